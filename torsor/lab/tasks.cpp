#include "torsor/lab/tasks.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>

#include "torsor/lab/evaluate.h"

namespace torsor {
namespace {

// Tokens of one call of the model, as in the evaluation on text.

/// The logits (count, vocabulary) at `places` of hidden states (B, T, C) seen as one row of B * T.
at::Tensor logits_at(const Decoder& model, const at::Tensor& hidden, const at::Tensor& places, at::ScalarType dtype) {
  const at::Tensor picked = hidden.flatten(0, 1).index_select(0, places);
  return model.logits(picked.unsqueeze(0), dtype).squeeze(0);
}

/// Marks the right answers among `rows`, places in `problems` with equally many tokens.
void mark(const Decoder& model, const std::vector<TaskProblem>& problems, std::span<const std::size_t> rows,
          at::ScalarType dtype, std::vector<bool>& correct) {
  const std::size_t inputs = problems[rows[0]].tokens.size() - 1;
  std::vector<std::int64_t> tokens, places, answers;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const TaskProblem& problem = problems[rows[row]];
    tokens.insert(tokens.end(), problem.tokens.begin(), problem.tokens.end() - 1);
    for (std::size_t n = problem.answer; n <= inputs; ++n) {
      places.push_back(static_cast<std::int64_t>(row * inputs + n - 1));
      answers.push_back(problem.tokens[n]);
    }
  }
  TokenBatch batch;
  batch.tokens =
      at::tensor(tokens, at::kLong).view({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(inputs)});
  const at::Tensor hidden = model.hidden(batch, nullptr, dtype);
  const at::Tensor best = logits_at(model, hidden, at::tensor(places, at::kLong), dtype).argmax(-1).contiguous();
  const std::int64_t* written = best.const_data_ptr<std::int64_t>();
  std::size_t next = 0;
  for (const std::size_t row : rows) {
    bool right = true;
    for (std::size_t n = problems[row].answer; n <= inputs; ++n, ++next)
      right = right && written[next] == answers[next];
    correct[row] = right;
  }
}

}  // namespace

at::Tensor task_loss(const Decoder& model, const TaskBatch& batch, at::ScalarType dtype) {
  const auto rows = static_cast<std::int64_t>(batch.rows), length = static_cast<std::int64_t>(batch.length);
  const at::Tensor windows = at::tensor(batch.tokens, at::kLong).view({rows, length + 1});
  const at::Tensor weights = at::tensor(batch.weights, at::kFloat);
  const at::Tensor places = weights.nonzero().squeeze(1);
  TokenBatch inputs;
  inputs.tokens = windows.narrow(1, 0, length);
  const at::Tensor scores = logits_at(model, model.hidden(inputs, nullptr, dtype), places, dtype);
  const at::Tensor targets = windows.narrow(1, 1, length).reshape({-1}).index_select(0, places);
  return (at::cross_entropy_loss(scores, targets, {}, at::Reduction::None) * weights.index_select(0, places)).sum();
}

TrainingData task_training(const RunPlan& plan, std::shared_ptr<const Task> task, const std::string& sha256) {
  const at::ScalarType dtype = dtype_named(plan.dtype);
  const auto batch = static_cast<std::size_t>(plan.batch);
  const std::uint64_t seed = plan.seed;
  return {task->tokenizer(), task->vocabulary_size(), sha256, [=](const Decoder& model, std::uint64_t index) {
            const std::vector<TaskProblem> problems = task->training(seed, index, batch);
            return task_loss(model, pad_problems(problems, task->pad(), task->context_weight()), dtype);
          }};
}

double TaskEvaluation::accuracy() const {
  if (correct.empty()) return 0;
  return static_cast<double>(std::count(correct.begin(), correct.end(), true)) / static_cast<double>(correct.size());
}

TaskEvaluation evaluate_task(const Decoder& model, const Task& task, const std::vector<TaskProblem>& problems,
                             std::int64_t length, at::ScalarType dtype, const std::function<bool()>& stop) {
  at::NoGradGuard no_grad;
  TaskEvaluation result;
  result.task = task.name();
  result.length = length;
  result.correct.resize(problems.size());
  std::map<std::size_t, std::vector<std::size_t>> by_size;
  for (std::size_t n = 0; n < problems.size(); ++n) by_size[problems[n].tokens.size()].push_back(n);
  try {
    for (const auto& [size, places] : by_size) {
      const std::size_t rows = std::max<std::size_t>(1, kTokensAtOnce / size);
      for (std::size_t first = 0; first < places.size(); first += rows) {
        if (stop && stop()) throw Interrupted("stopped during evaluation");
        const std::size_t count = std::min(rows, places.size() - first);
        mark(model, problems, std::span(places).subspan(first, count), dtype, result.correct);
      }
    }
  } catch (const Refusal& refusal) {
    // One problem that does not fit refuses the length: a score over what was left would be of other problems.
    result.refused = true;
    result.reason = refusal.what();
    result.correct.clear();
    return result;
  }
  for (std::size_t n = 0; n < problems.size(); ++n) {
    const TaskProblem& problem = problems[n];
    auto cell = std::find_if(result.cells.begin(), result.cells.end(),
                             [&](const TaskEvaluation::Cell& one) { return one.x == problem.x && one.y == problem.y; });
    if (cell == result.cells.end()) cell = result.cells.insert(cell, {problem.x, problem.y, 0, 0});
    ++cell->count;
    cell->correct += result.correct[n];
  }
  return result;
}

Json task_evaluation_to_json(const TaskEvaluation& evaluation) {
  Json json;
  json["task"] = evaluation.task;
  json["length"] = evaluation.length;
  json["status"] = evaluation.refused ? "refused" : "ok";
  json["reason"] = evaluation.reason;
  json["accuracy"] = evaluation.refused ? Json(nullptr) : Json(evaluation.accuracy());
  json["cells"] = json["windows"] = Json::array();
  for (const TaskEvaluation::Cell& cell : evaluation.cells)
    json["cells"].push_back({{"x", cell.x}, {"y", cell.y}, {"correct", cell.correct}, {"count", cell.count}});
  for (const bool correct : evaluation.correct) json["windows"].push_back(correct ? 1 : 0);
  return json;
}

}  // namespace torsor
