// Generated tasks: problems whose answers are known, scored by exact match. A comparison trains on small problems and
// tests on larger ones too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace torsor {

/// One problem: what the model reads and, from `answer` on, what it must write.
struct TaskProblem {
  std::vector<std::int64_t> tokens;  ///< the prompt, then the answer
  std::size_t answer = 0;            ///< where the answer begins, at least 1; it goes on to the end
  std::int64_t x = 0, y = 0;         ///< the cell of the score: see the task
};

/// Problems as rows of one length, padded on the right. A row's inputs are its first `length` tokens, its targets the
/// last `length`; where attention is causal, no token that counts sees the padding.
struct TaskBatch {
  std::size_t rows = 0;
  std::size_t length = 0;
  std::vector<std::int64_t> tokens;  ///< (rows, length + 1), row-major
  std::vector<float> weights;        ///< (rows, length): how much the loss of a target counts; 0 = not at all
};

/// Pads to the longest problem. The weights of all answer tokens together are 1, evenly, and those of all other targets
/// inside the problems `context_weight`. Throws Error without problems, and for one whose answer is empty or begins it.
TaskBatch pad_problems(std::span<const TaskProblem> problems, std::int64_t pad, double context_weight);

/// A task at one trained length. Immutable; nothing here has a state, so one object may serve several threads.
class Task {
 public:
  virtual ~Task() = default;

  virtual std::string name() const = 0;
  /// What the ids mean, for records ("addition-1"): another vocabulary has another name.
  virtual std::string tokenizer() const = 0;
  virtual std::uint32_t vocabulary_size() const = 0;
  virtual std::int64_t pad() const = 0;

  /// The length that training goes up to, in the task's own unit.
  virtual std::int64_t trained_length() const = 0;
  /// The shortest length that a problem can have, in the same unit.
  virtual std::int64_t shortest_length() const = 0;
  /// The most inputs that a problem of `length` has: its tokens but the last.
  virtual std::int64_t inputs_of(std::int64_t length) const = 0;

  /// What targets outside the answers count for in training, beside 1 for the answers (pad_problems).
  virtual double context_weight() const = 0;
  /// The problems of training step `step` = 0, 1, ...: a function of (seed, step) alone. `batch` of the largest, or as
  /// many more as have the same number of tokens when the step draws shorter ones.
  virtual std::vector<TaskProblem> training(std::uint64_t seed, std::uint64_t step, std::size_t batch) const = 0;

  /// The test problems of one length, at most `each` a cell, cell by cell: the same in every run, whatever its seed.
  /// Throws UsageError for a length that has none.
  virtual std::vector<TaskProblem> test(std::int64_t length, std::size_t each) const = 0;

  /// Tokens as text, for people. Throws Error for an id outside the vocabulary.
  virtual std::string text(std::span<const std::int64_t> tokens) const = 0;
};

/// The names that make_task knows.
const std::vector<std::string>& task_names();

/// The task `name` trained up to `length`. Throws UsageError for another name or a length that is too short.
std::shared_ptr<const Task> make_task(const std::string& name, std::int64_t length);

}  // namespace torsor
