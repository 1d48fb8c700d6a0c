#include "torsor/data/addition.h"

#include <algorithm>
#include <set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/random.h"

namespace torsor {
namespace {

using Digits = std::vector<std::uint8_t>;  // from the least significant on

// All runs are judged on the same sums, whatever their seed.
constexpr std::uint64_t kTestSeed = 20250301;
// One pair in eight is set apart: 1012 of the smallest cells that are (8100 pairs), so that a hundred can be drawn.
constexpr std::uint64_t kParts = 8;
constexpr std::size_t kFewestDigits = 4;  // of both operands together, for pairs to be set apart
constexpr std::size_t kMostEach = 500;    // sums of a cell in a test: half of those 1012, so that drawing ends soon

bool set_apart(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  // Equal for a + b and b + a, or a model that learned to swap would have seen the test.
  const bool less =
      a.size() != b.size() ? a.size() < b.size() : std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  if (!less) std::swap(a, b);
  std::string key(a.begin(), a.end());
  key += '+';  // no digit
  key.append(b.begin(), b.end());
  return random_at(kTestSeed, stream_of(key), 0) % kParts == 0;
}

Digits draw(Random& random, std::int64_t count) {
  Digits digits(static_cast<std::size_t>(count));
  for (std::uint8_t& digit : digits) digit = static_cast<std::uint8_t>(random.below(10));
  digits.back() = static_cast<std::uint8_t>(1 + random.below(9));
  return digits;
}

Digits sum_of(const Digits& a, const Digits& b) {
  Digits sum;
  int carry = 0;
  for (std::size_t n = 0; n < std::max(a.size(), b.size()) || carry > 0; ++n) {
    const int digit = (n < a.size() ? a[n] : 0) + (n < b.size() ? b[n] : 0) + carry;
    sum.push_back(static_cast<std::uint8_t>(digit % 10));
    carry = digit / 10;
  }
  return sum;
}

TaskProblem problem_of(const Digits& a, const Digits& b) {
  TaskProblem problem;
  const auto add = [&](const Digits& digits) {
    for (const std::uint8_t digit : digits) problem.tokens.push_back(AdditionTask::kZero + digit);
  };
  add(a);
  problem.tokens.push_back(AdditionTask::kPlus);
  add(b);
  problem.tokens.push_back(AdditionTask::kEquals);
  problem.answer = problem.tokens.size();
  add(sum_of(a, b));
  problem.tokens.push_back(AdditionTask::kEnd);
  problem.x = static_cast<std::int64_t>(a.size());
  problem.y = static_cast<std::int64_t>(b.size());
  return problem;
}

/// Every pair of one cell that is set apart for neither side: few enough to be listed.
std::vector<std::pair<Digits, Digits>> all_pairs(std::int64_t x, std::int64_t y) {
  const auto numbers = [](std::int64_t digits) {
    std::vector<Digits> all;
    for (int value = digits == 1 ? 1 : 10; value < (digits == 1 ? 10 : 100); ++value)
      all.push_back(digits == 1 ? Digits{static_cast<std::uint8_t>(value)}
                                : Digits{static_cast<std::uint8_t>(value % 10), static_cast<std::uint8_t>(value / 10)});
    return all;
  };
  std::vector<std::pair<Digits, Digits>> pairs;
  for (const Digits& a : numbers(x))
    for (const Digits& b : numbers(y)) pairs.emplace_back(a, b);
  return pairs;
}

void add_cell(std::vector<TaskProblem>& problems, std::int64_t x, std::int64_t y, std::size_t each) {
  Random random(kTestSeed, stream_of(str("task/addition/test/", x, "/", y)));
  if (x + y < static_cast<std::int64_t>(kFewestDigits)) {
    auto pairs = all_pairs(x, y);
    random.shuffle(pairs);
    for (std::size_t n = 0; n < std::min(each, pairs.size()); ++n)
      problems.push_back(problem_of(pairs[n].first, pairs[n].second));
    return;
  }
  std::set<std::pair<Digits, Digits>> seen;
  while (seen.size() < each) {
    std::pair<Digits, Digits> pair;
    pair.first = draw(random, x);
    pair.second = draw(random, y);
    if (!AdditionTask::tested(pair.first, pair.second) || !seen.insert(pair).second) continue;
    problems.push_back(problem_of(pair.first, pair.second));
  }
}

}  // namespace

AdditionTask::AdditionTask(std::int64_t digits) : digits_(digits) {
  if (digits < 1 || digits > kMostDigits)
    throw UsageError(str("addition: expected from 1 to ", kMostDigits, " digits, found ", digits));
}

bool AdditionTask::trained(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return a.size() + b.size() < kFewestDigits || !set_apart(a, b);
}

bool AdditionTask::tested(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return a.size() + b.size() < kFewestDigits || set_apart(a, b);
}

std::vector<TaskProblem> AdditionTask::training(std::uint64_t seed, std::uint64_t step, std::size_t batch) const {
  Random random(seed, stream_of("task/addition") + step);
  const auto side = static_cast<std::uint64_t>(digits_), cells = side * side;
  std::vector<TaskProblem> problems;
  problems.reserve(batch);
  for (std::size_t row = 0; row < batch; ++row) {
    // In turn rather than drawn: every pair of lengths comes equally often, to within one.
    const std::uint64_t cell = (step * batch + row) % cells;
    Digits a, b;
    do {
      a = draw(random, static_cast<std::int64_t>(1 + cell / side));
      b = draw(random, static_cast<std::int64_t>(1 + cell % side));
    } while (!trained(a, b));
    problems.push_back(problem_of(a, b));
  }
  return problems;
}

std::vector<TaskProblem> AdditionTask::test(std::int64_t length, std::size_t each) const {
  if (length < 1 || length > kMostDigits)
    throw UsageError(str("addition: expected a test length from 1 to ", kMostDigits, " digits, found ", length));
  if (each < 1 || each > kMostEach)
    throw UsageError(str("addition: expected from 1 to ", kMostEach, " problems a cell, found ", each));
  std::vector<TaskProblem> problems;
  for (std::int64_t x = 1; x <= length; ++x)
    for (std::int64_t y = x < length ? length : 1; y <= length; ++y) add_cell(problems, x, y, each);
  return problems;
}

std::string AdditionTask::text(std::span<const std::int64_t> tokens) const {
  std::string text;
  for (const std::int64_t token : tokens) {
    if (token >= kZero && token < kZero + 10)
      text += static_cast<char>('0' + token - kZero);
    else if (token == kPlus)
      text += '+';
    else if (token == kEquals)
      text += '=';
    else if (token == kEnd)
      text += '$';
    else if (token == kPad)
      text += '_';
    else
      throw Error(str("addition: expected a token from 0 to ", vocabulary_size() - 1, ", got ", token));
  }
  return text;
}

}  // namespace torsor
