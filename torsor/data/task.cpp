#include "torsor/data/task.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/data/addition.h"
#include "torsor/data/passkey.h"

namespace torsor {

TaskBatch pad_problems(std::span<const TaskProblem> problems, std::int64_t pad, double context_weight) {
  if (problems.empty()) throw Error("task: expected at least one problem, got none");
  std::size_t longest = 0, answers = 0, contexts = 0;
  for (const TaskProblem& problem : problems) {
    const std::size_t size = problem.tokens.size();
    if (problem.answer < 1 || problem.answer >= size)
      throw Error(str("task: expected an answer that begins inside the ", size, " tokens of its problem, got ",
                      problem.answer));
    longest = std::max(longest, size);
    answers += size - problem.answer;
    contexts += problem.answer - 1;  // the first token is no target
  }
  TaskBatch batch;
  batch.rows = problems.size();
  batch.length = longest - 1;
  batch.tokens.assign(batch.rows * longest, pad);
  batch.weights.assign(batch.rows * batch.length, 0.0F);
  const float answer_weight = static_cast<float>(1.0 / static_cast<double>(answers));
  const float other_weight = contexts > 0 ? static_cast<float>(context_weight / static_cast<double>(contexts)) : 0.0F;
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const TaskProblem& problem = problems[row];
    std::copy(problem.tokens.begin(), problem.tokens.end(), batch.tokens.data() + row * longest);
    float* weights = batch.weights.data() + row * batch.length;
    std::fill(weights, weights + problem.answer - 1, other_weight);
    std::fill(weights + problem.answer - 1, weights + problem.tokens.size() - 1, answer_weight);
  }
  return batch;
}

const std::vector<std::string>& task_names() {
  static const std::vector<std::string> names = {"addition", "passkey"};
  return names;
}

std::shared_ptr<const Task> make_task(const std::string& name, std::int64_t length) {
  if (name == "addition") return std::make_shared<AdditionTask>(length);
  if (name == "passkey") return std::make_shared<PasskeyTask>(length);
  throw UsageError(str("a generated task is addition or passkey, found ", name));
}

}  // namespace torsor
