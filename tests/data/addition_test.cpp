#include "torsor/data/addition.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using data_test::contains;
using data_test::message_of;

using Pair = std::pair<std::string, std::string>;  // the addends as read: from the least significant digit on

std::uint64_t value_of(const std::string& reversed) {
  return std::stoull(std::string(reversed.rbegin(), reversed.rend()));
}

/// The addends of a problem whose text, sum and answer have been checked.
Pair checked(const AdditionTask& task, const TaskProblem& problem) {
  const std::string text = task.text(problem.tokens);
  const std::size_t plus = text.find('+'), equals = text.find('='), end = text.find('$');
  const Pair pair = {text.substr(0, plus), text.substr(plus + 1, equals - plus - 1)};
  const std::string sum = text.substr(equals + 1, end - equals - 1);
  EXPECT_EQ(problem.answer, equals + 1) << text;
  EXPECT_EQ(end, text.size() - 1) << text;
  EXPECT_EQ(problem.tokens.back(), AdditionTask::kEnd) << text;
  EXPECT_EQ(value_of(pair.first) + value_of(pair.second), value_of(sum)) << text;
  for (const std::string& number : {pair.first, pair.second, sum}) EXPECT_NE(number.back(), '0') << text;
  EXPECT_EQ(problem.x, static_cast<std::int64_t>(pair.first.size())) << text;
  EXPECT_EQ(problem.y, static_cast<std::int64_t>(pair.second.size())) << text;
  EXPECT_LE(problem.tokens.size() - 1, static_cast<std::size_t>(task.inputs_of(std::max(problem.x, problem.y))));
  return pair;
}

TEST(Addition, ReadsFromTheLeastSignificantDigitOn) {
  const AdditionTask task(2);
  // 17 + 5 = 22.
  EXPECT_EQ(task.text(std::vector<std::int64_t>{9, 3, 12, 7, 13, 4, 4, 1, 0}), "71+5=22$_");
  EXPECT_TRUE(contains(message_of<Error>([&] { task.text(std::vector<std::int64_t>{14}); }), "14"));
  EXPECT_EQ(task.vocabulary_size(), 14u);
}

TEST(Addition, EveryPairOfLengthsComesEquallyOftenWithUniformDigits) {
  const AdditionTask task(4);
  constexpr std::size_t kSteps = 200, kBatch = 64;  // 12800 problems, 800 a cell
  std::map<std::pair<std::int64_t, std::int64_t>, int> cells;
  std::array<int, 10> first{}, last{};
  int numbers = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step)
    for (const TaskProblem& problem : task.training(5, step, kBatch)) {
      const Pair pair = checked(task, problem);
      ++cells[{problem.x, problem.y}];
      for (const std::string& number : {pair.first, pair.second}) {
        if (number.size() < 2) continue;
        ++first[static_cast<std::size_t>(number.front() - '0')];
        ++last[static_cast<std::size_t>(number.back() - '0')];
        ++numbers;
      }
    }
  EXPECT_EQ(cells.size(), 16u);
  for (const auto& [cell, count] : cells) EXPECT_EQ(count, 800) << cell.first << " x " << cell.second;
  // Five standard deviations of a binomial count.
  const auto expect_share = [&](int count, double share, const char* what, std::size_t digit) {
    EXPECT_NEAR(count, numbers * share, 5 * std::sqrt(numbers * share * (1 - share))) << what << " digit " << digit;
  };
  for (std::size_t digit = 0; digit < 10; ++digit) {
    expect_share(first[digit], 0.1, "least significant", digit);
    if (digit > 0) expect_share(last[digit], 1.0 / 9, "most significant", digit);
  }
  EXPECT_EQ(last[0], 0);
}

TEST(Addition, ABatchIsAFunctionOfSeedAndStep) {
  const AdditionTask task(3);
  const auto tokens = [&](std::uint64_t seed, std::uint64_t step) {
    std::vector<std::vector<std::int64_t>> rows;
    for (const TaskProblem& problem : task.training(seed, step, 8)) rows.push_back(problem.tokens);
    return rows;
  };
  const auto some = tokens(1, 7);
  tokens(1, 8);
  EXPECT_EQ(tokens(1, 7), some);
  EXPECT_NE(tokens(1, 8), some);
  EXPECT_NE(tokens(2, 7), some);
}

TEST(Addition, TestedSumsAreNeverTrainedNorTheirMirrors) {
  const AdditionTask task(3);
  std::set<Pair> tested;
  for (const std::int64_t length : {2, 3})
    for (const TaskProblem& problem : task.test(length, 100))
      if (problem.x + problem.y >= 4) tested.insert(checked(task, problem));
  EXPECT_EQ(tested.size(), 600u);  // 2 x 2, and five cells of length 3
  int drawn = 0;
  for (std::uint64_t step = 0; step < 400; ++step)
    for (const TaskProblem& problem : task.training(0, step, 64)) {
      const Pair pair = checked(task, problem);
      EXPECT_FALSE(tested.count(pair)) << pair.first << "+" << pair.second;
      EXPECT_FALSE(tested.count({pair.second, pair.first})) << pair.second << "+" << pair.first;
      // 2 x 2 is dense: nearly 7100 sums are trained on and drawn 2800 times, so a leak would show.
      drawn += pair.first.size() == 2 && pair.second.size() == 2;
    }
  EXPECT_NEAR(drawn, 400 * 64 / 9, 1);
}

TEST(Addition, AnEighthOfThePairsIsSetApartAndEveryPairBelongsToOneSide) {
  int apart = 0, count = 0;
  for (std::uint8_t a0 = 0; a0 < 10; ++a0)
    for (std::uint8_t a1 = 1; a1 < 10; ++a1)
      for (std::uint8_t b0 = 0; b0 < 10; ++b0)
        for (std::uint8_t b1 = 1; b1 < 10; ++b1) {
          const std::array<std::uint8_t, 2> a = {a0, a1}, b = {b0, b1};
          EXPECT_NE(AdditionTask::trained(a, b), AdditionTask::tested(a, b));
          EXPECT_EQ(AdditionTask::tested(a, b), AdditionTask::tested(b, a));
          apart += AdditionTask::tested(a, b);
          ++count;
        }
  EXPECT_EQ(count, 8100);
  // Unordered pairs decide together, which doubles the variance of the count; five standard deviations.
  EXPECT_NEAR(apart, 8100 / 8.0, 5 * std::sqrt(2 * 8100 * (1 / 8.0) * (7 / 8.0)));
  const std::array<std::uint8_t, 1> one = {7};
  EXPECT_TRUE(AdditionTask::trained(one, one));
  EXPECT_TRUE(AdditionTask::tested(one, one));
}

TEST(Addition, ATestHoldsDistinctProblemsOfEveryCellWhateverWasTrained) {
  const AdditionTask task(2), other(9);
  for (const std::int64_t length : {1, 2, 5}) {
    const std::vector<TaskProblem> problems = task.test(length, 100);
    std::map<std::pair<std::int64_t, std::int64_t>, std::set<Pair>> cells;
    for (const TaskProblem& problem : problems) cells[{problem.x, problem.y}].insert(checked(task, problem));
    EXPECT_EQ(cells.size(), static_cast<std::size_t>(2 * length - 1));
    for (const auto& [cell, pairs] : cells) {
      EXPECT_EQ(std::max(cell.first, cell.second), length);
      EXPECT_EQ(pairs.size(), length == 1 ? 81u : 100u);
    }
    const std::vector<TaskProblem> same = other.test(length, 100);
    ASSERT_EQ(same.size(), problems.size());
    for (std::size_t n = 0; n < same.size(); ++n) EXPECT_EQ(same[n].tokens, problems[n].tokens);
  }
  // Fewer of a cell are the first of more.
  const std::vector<TaskProblem> few = task.test(3, 2), more = task.test(3, 5);
  EXPECT_EQ(few.size(), 10u);
  EXPECT_EQ(few[0].tokens, more[0].tokens);
  EXPECT_EQ(few[1].tokens, more[1].tokens);
  EXPECT_EQ(few[2].tokens, more[5].tokens);
}

TEST(Addition, RefusesWhatHasNoMeaning) {
  EXPECT_TRUE(contains(message_of<UsageError>([] { AdditionTask(0); }), "found 0"));
  const AdditionTask task(3);
  EXPECT_TRUE(contains(message_of<UsageError>([&] { task.test(0, 10); }), "found 0"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { task.test(3, 501); }), "found 501"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { task.test(3, 0); }), "found 0"));
}

TEST(PadProblems, PadsOnTheRightAndWeighsAnswers) {
  std::vector<TaskProblem> problems(2);
  problems[0].tokens = {5, 6, 7, 8, 9};
  problems[0].answer = 3;  // 8, 9
  problems[1].tokens = {4, 3};
  problems[1].answer = 1;  // 3
  const TaskBatch batch = pad_problems(problems, 0, 0.5);
  EXPECT_EQ(batch.rows, 2u);
  EXPECT_EQ(batch.length, 4u);
  EXPECT_EQ(batch.tokens, (std::vector<std::int64_t>{5, 6, 7, 8, 9, 4, 3, 0, 0, 0}));
  const float third = 1.0F / 3;
  EXPECT_EQ(batch.weights, (std::vector<float>{0.25F, 0.25F, third, third, third, 0, 0, 0}));
  EXPECT_EQ(pad_problems(problems, 0, 0).weights, (std::vector<float>{0, 0, third, third, third, 0, 0, 0}));
  EXPECT_TRUE(contains(message_of<Error>([] { pad_problems({}, 0, 0); }), "none"));
  problems[1].answer = 2;
  EXPECT_TRUE(contains(message_of<Error>([&] { pad_problems(problems, 0, 0); }), "2 tokens"));
  problems[1].answer = 0;
  EXPECT_THROW(pad_problems(problems, 0, 0), Error);
}

TEST(MakeTask, KnowsTheNames) {
  for (const std::string& name : task_names()) EXPECT_EQ(make_task(name, 100)->name(), name);
  EXPECT_EQ(make_task("addition", 6)->inputs_of(6), 21);
  EXPECT_TRUE(contains(message_of<UsageError>([] { make_task("sorting", 5); }), "sorting"));
}

}  // namespace
}  // namespace torsor
