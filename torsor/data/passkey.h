// The task `passkey`: one fact to be found again in a long text that is about something else.
#pragma once

#include <array>

#include "torsor/data/task.h"

namespace torsor {

/// A problem is five parts, each but the last ended by a newline: what to look for; filler; the statement, which holds
/// the code of five digits twice; filler again; and a question that ends where the code must follow. The answer is the
/// code. Filler is made of sentences of nine words drawn at random; both pieces begin with a sentence and are cut where
/// the context is full. Tokens are words (from a fixed list of about a hundred) and single digits.
///
/// A length is a number of context tokens: a problem of length n has n inputs, the question and all but the last digit
/// of the answer among them. In training the length of a step is uniform in [max(shortest, trained / 4), trained], and
/// the statement stands at a random depth. A test at length n has the cells (x, y) = (n, depth in percent): the share
/// of the filler that comes before the statement, 0, 25, 50, 75 and 100.
///
/// A tenth of the 100,000 codes is set apart by a hash: these are tested and never trained.
class PasskeyTask : public Task {
 public:
  static constexpr std::int64_t kPad = 0, kNewline = 1, kZero = 2;
  static constexpr std::size_t kDigits = 5;
  static constexpr std::array<std::int64_t, 5> kDepths = {0, 25, 50, 75, 100};  ///< percent

  /// Throws UsageError when `length` is below shortest_length().
  explicit PasskeyTask(std::int64_t length);

  std::string name() const override { return "passkey"; }
  std::string tokenizer() const override { return "passkey-1"; }
  std::uint32_t vocabulary_size() const override;
  std::int64_t pad() const override { return kPad; }
  std::int64_t trained_length() const override { return length_; }
  std::int64_t shortest_length() const override;
  std::int64_t inputs_of(std::int64_t length) const override { return length; }
  double context_weight() const override;
  std::vector<TaskProblem> training(std::uint64_t seed, std::uint64_t step, std::size_t batch) const override;
  std::vector<TaskProblem> test(std::int64_t length, std::size_t each) const override;
  std::string text(std::span<const std::int64_t> tokens) const override;

  /// Whether a code, in [0, 100000), is tested; the others are trained.
  static bool tested(std::uint64_t code);

 private:
  std::int64_t length_;
};

}  // namespace torsor
