// The task `addition`: sums of two whole numbers, digit by digit from the least significant one on, so that the carry
// flows in reading order.
#pragma once

#include "torsor/data/task.h"

namespace torsor {

/// A problem is `rev(a)+rev(b)=rev(a+b)` and the end: 17 + 5 = 22 reads "71+5=22" and EOS. Digits are uniform, numbers
/// have no leading zero (a one-digit number is 1 to 9). A length is a number of digits: training draws operands of
/// 1 .. trained_length() digits, every pair of lengths equally often; a test at length n has the cells (x, y) = (digits
/// of a, digits of b) with max(x, y) = n. The answer is the sum and EOS.
///
/// Ids: PAD 0, EOS 1, digits 2 .. 11, '+' 12, '=' 13.
///
/// An eighth of all unordered pairs of numbers is set apart by a hash and tested alone, a + b and b + a together. Where
/// the operands have three digits or fewer in all (cells 1 x 1, 1 x 2 and 2 x 1, 1701 sums) there are too few: those
/// sums are both trained and tested.
class AdditionTask : public Task {
 public:
  static constexpr std::int64_t kPad = 0, kEnd = 1, kZero = 2, kPlus = 12, kEquals = 13;
  static constexpr std::int64_t kMostDigits = 10000;

  /// Throws UsageError unless 1 <= digits <= kMostDigits.
  explicit AdditionTask(std::int64_t digits);

  std::string name() const override { return "addition"; }
  std::string tokenizer() const override { return "addition-1"; }
  std::uint32_t vocabulary_size() const override { return 14; }
  std::int64_t pad() const override { return kPad; }
  std::int64_t trained_length() const override { return digits_; }
  std::int64_t shortest_length() const override { return 1; }
  /// Two operands, two signs and a sum of one digit more; EOS is never read.
  std::int64_t inputs_of(std::int64_t length) const override { return 3 * length + 3; }
  double context_weight() const override { return 0; }
  std::vector<TaskProblem> training(std::uint64_t seed, std::uint64_t step, std::size_t batch) const override;
  std::vector<TaskProblem> test(std::int64_t length, std::size_t each) const override;
  std::string text(std::span<const std::int64_t> tokens) const override;

  /// Whether the sum of two numbers, digits from the least significant on, may be drawn in training, or in a test.
  static bool trained(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);
  static bool tested(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

 private:
  std::int64_t digits_;
};

}  // namespace torsor
