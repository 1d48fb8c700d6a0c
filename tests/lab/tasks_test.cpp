// Generated tasks: the loss of the answers, exact match against greedy decoding, and a tiny model that learns to add.
#include "torsor/lab/tasks.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "torsor/model/generate.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::tiny_config;

Decoder task_model(const Task& task, const std::string& encoding, std::uint64_t seed = 1) {
  ModelConfig config = tiny_config(encoding, task.inputs_of(task.trained_length()));
  config.vocabulary_size = task.vocabulary_size();
  return Decoder(config, seed);
}

/// The tokens of a batch, (rows, length + 1).
at::Tensor windows_of(const TaskBatch& batch) {
  return at::tensor(batch.tokens, at::kLong)
      .view({static_cast<std::int64_t>(batch.rows), static_cast<std::int64_t>(batch.length) + 1});
}

class LabTasks : public ::testing::Test {
 protected:
  LabTasks() { at::set_num_threads(1); }
};

TEST_F(LabTasks, TheLossIsTheWeightedSumOfTokenLosses) {
  at::NoGradGuard no_grad;
  for (const std::string& name : task_names()) {
    const auto task = make_task(name, name == "addition" ? 4 : 60);
    const Decoder model = task_model(*task, "rope");
    const std::vector<TaskProblem> problems = task->training(0, 0, 6);
    for (const double context : {0.0, 0.5}) {
      const TaskBatch batch = pad_problems(problems, task->pad(), context);
      const at::Tensor weights = at::tensor(batch.weights).view({static_cast<std::int64_t>(batch.rows), -1});
      const double expected = (model.token_losses(windows_of(batch)) * weights).to(at::kDouble).sum().item<double>();
      // Sums of a few hundred float32 numbers, in another order.
      EXPECT_NEAR(task_loss(model, batch).item<double>(), expected, 1e-5 * expected) << name << " " << context;
      // An untrained model knows nothing: the weights add up to 1 + context.
      EXPECT_NEAR(expected, (1 + context) * std::log(task->vocabulary_size()), 0.1) << name << " " << context;
    }
  }
}

TEST_F(LabTasks, PaddingChangesNothing) {
  at::NoGradGuard no_grad;
  const auto task = make_task("addition", 5);
  const std::vector<TaskProblem> problems = task->training(0, 0, 25);
  for (const char* encoding : {"none", "learned", "sinusoidal", "rope", "alibi", "t5", "fire", "fox", "grape-ap"}) {
    const Decoder model = task_model(*task, encoding);
    double sum = 0;
    std::size_t answers = 0;
    for (const TaskProblem& problem : problems) {
      const std::size_t count = problem.tokens.size() - problem.answer;
      sum += static_cast<double>(count) * task_loss(model, pad_problems({&problem, 1}, task->pad(), 0)).item<double>();
      answers += count;
    }
    const double together = task_loss(model, pad_problems(problems, task->pad(), 0)).item<double>();
    // float32 sums in another order.
    EXPECT_NEAR(together, sum / static_cast<double>(answers), 1e-5) << encoding;
  }
}

/// Trains on sums of one digit until the model knows some and lacks some.
Decoder half_taught(const std::string& encoding, std::int64_t steps) {
  const auto task = make_task("addition", 1);
  RunPlan plan = testing::tiny_plan(encoding);
  plan.model.width = 32;
  plan.model.head_dim = 0;
  plan.model.mlp_width = 0;
  plan.model.layers = 2;
  plan.model.complete();
  plan.length = task->inputs_of(1);
  plan.batch = 81;
  plan.steps = steps;
  plan.warmup_steps = 20;
  plan.learning_rate = 1e-2;
  Decoder model = make_model(plan, task->vocabulary_size());
  train_model(model, plan, task_training(plan, task, "x"), {});
  return model;
}

TEST_F(LabTasks, OnePassScoresWhatGreedyDecodingWrites) {
  const auto task = make_task("addition", 1);
  const std::vector<TaskProblem> problems = task->test(1, 100);
  ASSERT_EQ(problems.size(), 81u);
  for (const char* encoding : {"none", "rope", "alibi", "fox", "grape-ap"}) {
    const Decoder model = half_taught(encoding, 60);
    const TaskEvaluation found = evaluate_task(model, *task, problems, 1, at::kFloat);
    std::size_t right = 0;
    for (std::size_t n = 0; n < problems.size(); ++n) {
      const TaskProblem& problem = problems[n];
      const auto answer = problem.tokens.begin() + static_cast<std::ptrdiff_t>(problem.answer);
      const std::vector<std::int64_t> prompt(problem.tokens.begin(), answer), expected(answer, problem.tokens.end());
      GenerateOptions options;
      options.max_tokens = static_cast<std::int64_t>(expected.size());
      const bool same = generate(model, {prompt}, options).tokens[0] == expected;
      EXPECT_EQ(found.correct[n], same) << encoding << " " << task->text(problem.tokens);
      right += same;
    }
    EXPECT_DOUBLE_EQ(found.accuracy(), static_cast<double>(right) / 81) << encoding;
    // A comparison of all with none would show nothing.
    EXPECT_GT(right, 4u) << encoding;
    EXPECT_LT(right, 77u) << encoding;
  }
}

TEST_F(LabTasks, ATinyModelLearnsToAddDigits) {
  const auto task = make_task("addition", 1);
  const TaskEvaluation found = evaluate_task(half_taught("rope", 400), *task, task->test(1, 100), 1, at::kFloat);
  EXPECT_GT(found.accuracy(), 0.95);
}

TEST_F(LabTasks, CellsCountTheProblemsOfTheirOwn) {
  const auto task = make_task("addition", 2);
  const std::vector<TaskProblem> problems = task->test(3, 7);
  // A head that always writes the same: right nowhere, as no answer is of one kind of token.
  const Decoder model = task_model(*task, "none");
  TaskEvaluation found = evaluate_task(model, *task, problems, 3, at::kFloat);
  ASSERT_EQ(found.cells.size(), 5u);
  std::set<std::pair<std::int64_t, std::int64_t>> cells;
  std::int64_t right = 0, count = 0;
  for (const TaskEvaluation::Cell& cell : found.cells) {
    EXPECT_TRUE(cells.emplace(cell.x, cell.y).second);
    EXPECT_EQ(std::max(cell.x, cell.y), 3);
    EXPECT_EQ(cell.count, 7);
    right += cell.correct;
    count += cell.count;
  }
  EXPECT_EQ(count, 35);
  EXPECT_DOUBLE_EQ(found.accuracy(), static_cast<double>(right) / 35);

  found.correct.assign(35, false);
  found.correct[8] = true;  // the second of the second cell
  found.cells[1].correct = 1;
  const Json json = task_evaluation_to_json(found);
  EXPECT_EQ(json.at("task"), "addition");
  EXPECT_EQ(json.at("length"), 3);
  EXPECT_EQ(json.at("status"), "ok");
  EXPECT_DOUBLE_EQ(json.at("accuracy").get<double>(), 1.0 / 35);
  EXPECT_EQ(json.at("windows").size(), 35u);
  EXPECT_EQ(json.at("windows")[8], 1);
  EXPECT_EQ(json.at("windows")[7], 0);
  EXPECT_EQ(json.at("cells")[1], Json({{"x", 2}, {"y", 3}, {"correct", 1}, {"count", 7}}));
}

TEST_F(LabTasks, ManyProblemsAreScoredAsOneByOne) {
  // More tokens than one call of the model takes, and answers of different sizes.
  const auto task = make_task("passkey", 100);
  std::vector<TaskProblem> problems = task->test(100, 20);  // 10100 tokens
  const Decoder model = task_model(*task, "rope");
  // Answers that the model gives and answers that it does not.
  for (std::size_t n = 0; n < problems.size(); n += 3) {
    const std::vector<std::int64_t> prompt(
        problems[n].tokens.begin(), problems[n].tokens.begin() + static_cast<std::ptrdiff_t>(problems[n].answer));
    const std::vector<std::int64_t> written = generate(model, {prompt}, {.max_tokens = 5}).tokens[0];
    std::copy(written.begin(), written.end(),
              problems[n].tokens.begin() + static_cast<std::ptrdiff_t>(problems[n].answer));
  }
  const TaskEvaluation found = evaluate_task(model, *task, problems, 100, at::kFloat);
  for (std::size_t n = 0; n < problems.size(); ++n) EXPECT_EQ(found.correct[n], n % 3 == 0) << n;
  EXPECT_THROW(evaluate_task(model, *task, problems, 100, at::kFloat, [] { return true; }), Interrupted);
}

TEST_F(LabTasks, ALengthThatDoesNotFitIsRefusedAsAWhole) {
  const auto task = make_task("addition", 2);
  const Decoder model = task_model(*task, "learned");
  EXPECT_FALSE(evaluate_task(model, *task, task->test(2, 5), 2, at::kFloat).refused);
  const TaskEvaluation beyond = evaluate_task(model, *task, task->test(4, 5), 4, at::kFloat);
  EXPECT_TRUE(beyond.refused);
  EXPECT_TRUE(contains(beyond.reason, "learned")) << beyond.reason;
  const Json json = task_evaluation_to_json(beyond);
  EXPECT_EQ(json.at("status"), "refused");
  EXPECT_TRUE(json.at("accuracy").is_null());
  EXPECT_TRUE(json.at("windows").empty());
  EXPECT_TRUE(json.at("cells").empty());
}

}  // namespace
}  // namespace torsor
