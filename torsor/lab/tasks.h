// Generated tasks in the lab: the loss of their answers, and exact match by cell.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "torsor/data/task.h"
#include "torsor/lab/run.h"

namespace torsor {

/// The weighted sum of the targets' cross entropies (nats) under `batch`: one number. Only positions whose target
/// counts reach the output projection.
at::Tensor task_loss(const Decoder& model, const TaskBatch& batch, at::ScalarType dtype = at::kFloat);

/// Training on a task. `sha256` names its problems.
TrainingData task_training(const RunPlan& plan, std::shared_ptr<const Task> task, const std::string& sha256);

/// What a model answers to problems of one length.
struct TaskEvaluation {
  std::string task;
  std::int64_t length = 0;  ///< in the task's unit
  bool refused = false;
  std::string reason;         ///< why it was refused
  std::vector<bool> correct;  ///< of each problem, in order: every token of the answer is right
  struct Cell {
    std::int64_t x = 0, y = 0;
    std::int64_t correct = 0, count = 0;
  };
  std::vector<Cell> cells;  ///< in the order of the problems

  double accuracy() const;  ///< share of problems that are correct; 0 without problems
};

/// Whether greedy decoding would write each answer, found in one pass: the most probable token is taken at every
/// position of the answer with the right ones before it. As long as all were right, that is what greedy decoding sees;
/// after the first mistake nothing counts any more. (Under frequencies that depend on the length, `dynamic` and
/// `longrope`, decoding gives every token those of its own length, and one pass those of the whole problem.)
///
/// Problems with equally many tokens are run together, so that no encoding sees padding. `stop` is asked between calls
/// of the model; when it answers true, Interrupted is thrown.
TaskEvaluation evaluate_task(const Decoder& model, const Task& task, const std::vector<TaskProblem>& problems,
                             std::int64_t length, at::ScalarType dtype, const std::function<bool()>& stop = {});

/// The entry of results.json.
Json task_evaluation_to_json(const TaskEvaluation& evaluation);

}  // namespace torsor
