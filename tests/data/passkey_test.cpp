#include "torsor/data/passkey.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>

#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using data_test::contains;
using data_test::message_of;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t words_in(const std::string& line) {
  std::istringstream in(line);
  std::size_t count = 0;
  for (std::string word; in >> word;) ++count;
  return count;
}

struct Checked {
  std::string code;           // "1 2 3 4 5"
  std::size_t before, after;  // tokens of filler
};

/// The five parts of a problem, after checks of all that can be seen from the text.
Checked checked(const PasskeyTask& task, const TaskProblem& problem) {
  const std::string text = task.text(problem.tokens);
  const std::vector<std::string> parts = lines_of(text);
  if (parts.size() != 5) {
    ADD_FAILURE() << parts.size() << " parts: " << text;
    return {};
  }
  Checked found;
  found.code = task.text(std::span(problem.tokens).subspan(problem.answer));
  EXPECT_EQ(words_in(found.code), PasskeyTask::kDigits);
  EXPECT_EQ(parts[0], "somewhere below hides a secret code . find it and keep it in mind .");
  EXPECT_EQ(parts[2],
            "the secret code is " + found.code + " . keep in mind that the secret code is " + found.code + " .");
  EXPECT_EQ(parts[4], "which code was hidden above ? the secret code is " + found.code);
  for (const std::size_t filler : {1, 3}) {
    EXPECT_EQ(parts[filler].find_first_of("0123456789"), std::string::npos) << parts[filler];
    EXPECT_FALSE(contains(parts[filler], "code")) << parts[filler];
    if (!parts[filler].empty()) {
      EXPECT_EQ(parts[filler].rfind("the ", 0) == 0 || parts[filler] == "the", true) << parts[filler];
    }
  }
  found.before = words_in(parts[1]);
  found.after = words_in(parts[3]);
  return found;
}

TEST(Passkey, HasFivePartsAndFillsTheContext) {
  const PasskeyTask task(200);
  std::set<std::string> codes;
  for (const std::int64_t length : {task.shortest_length(), std::int64_t{100}, std::int64_t{777}})
    for (const TaskProblem& problem : task.test(length, 6)) {
      EXPECT_EQ(problem.tokens.size(), static_cast<std::size_t>(length) + 1);
      const Checked found = checked(task, problem);
      const std::size_t filler = static_cast<std::size_t>(length - task.shortest_length());
      EXPECT_EQ(found.before + found.after, filler);
      EXPECT_NEAR(static_cast<double>(found.before), static_cast<double>(filler) * static_cast<double>(problem.y) / 100,
                  0.5);
      EXPECT_EQ(problem.x, length);
      codes.insert(found.code);
    }
  EXPECT_GT(codes.size(), 80u);  // of 90 draws from ten thousand
  EXPECT_EQ(task.inputs_of(777), 777);
}

TEST(Passkey, DepthsAreAGridInOrder) {
  const PasskeyTask task(100);
  const std::vector<TaskProblem> problems = task.test(100, 2);
  ASSERT_EQ(problems.size(), 10u);
  for (std::size_t n = 0; n < problems.size(); ++n) EXPECT_EQ(problems[n].y, PasskeyTask::kDepths[n / 2]);
  // The same in every run, whatever was trained.
  const std::vector<TaskProblem> same = PasskeyTask(300).test(100, 2);
  for (std::size_t n = 0; n < problems.size(); ++n) EXPECT_EQ(same[n].tokens, problems[n].tokens);
}

TEST(Passkey, TrainingDrawsLengthsAndDepthsAndKeepsTheNumberOfTokens) {
  const PasskeyTask task(200);
  const std::int64_t least = std::max<std::int64_t>(task.shortest_length(), 50);
  constexpr std::size_t kBatch = 4;
  std::set<std::int64_t> lengths;
  double depths = 0;
  int count = 0;
  for (std::uint64_t step = 0; step < 600; ++step) {
    const std::vector<TaskProblem> problems = task.training(3, step, kBatch);
    const std::int64_t length = problems[0].x;
    lengths.insert(length);
    EXPECT_GE(length, least);
    EXPECT_LE(length, 200);
    EXPECT_EQ(problems.size(), kBatch * 200 / static_cast<std::size_t>(length));
    for (const TaskProblem& problem : problems) {
      EXPECT_EQ(problem.tokens.size(), static_cast<std::size_t>(length) + 1);
      if (step >= 20) continue;
      const Checked found = checked(task, problem);
      const std::size_t filler = found.before + found.after;
      if (filler == 0) continue;
      depths += static_cast<double>(found.before) / static_cast<double>(filler);
      ++count;
    }
  }
  EXPECT_EQ(*lengths.begin(), least);
  EXPECT_EQ(*lengths.rbegin(), 200);
  // A uniform share has a standard deviation of 0.29; five of the mean.
  EXPECT_NEAR(depths / count, 0.5, 5 * 0.29 / std::sqrt(count));
  EXPECT_EQ(task.training(3, 9, kBatch)[1].tokens, task.training(3, 9, kBatch)[1].tokens);
  EXPECT_NE(task.training(3, 9, kBatch)[0].tokens, task.training(4, 9, kBatch)[0].tokens);
}

TEST(Passkey, TestedCodesAreNeverTrained) {
  std::size_t apart = 0;
  for (std::uint64_t code = 0; code < 100000; ++code) apart += PasskeyTask::tested(code);
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(static_cast<double>(apart), 10000, 5 * std::sqrt(100000 * 0.1 * 0.9));
  const auto code_of = [](const TaskProblem& problem) {
    std::uint64_t code = 0;
    for (std::size_t n = problem.answer; n < problem.tokens.size(); ++n)
      code = 10 * code + static_cast<std::uint64_t>(problem.tokens[n] - PasskeyTask::kZero);
    return code;
  };
  const PasskeyTask task(60);
  for (const TaskProblem& problem : task.test(60, 40)) EXPECT_TRUE(PasskeyTask::tested(code_of(problem)));
  for (std::uint64_t step = 0; step < 50; ++step)
    for (const TaskProblem& problem : task.training(0, step, 8)) EXPECT_FALSE(PasskeyTask::tested(code_of(problem)));
}

TEST(Passkey, EveryWordHasOneIdAndIsUsed) {
  const PasskeyTask task(400);
  std::set<std::int64_t> used;
  for (std::uint64_t step = 0; step < 60; ++step)
    for (const TaskProblem& problem : task.training(0, step, 4))
      used.insert(problem.tokens.begin(), problem.tokens.end());
  // All but the padding, which this task never needs.
  EXPECT_EQ(used.size(), task.vocabulary_size() - 1);
  EXPECT_EQ(*used.rbegin(), task.vocabulary_size() - 1);
  std::set<std::string> words;
  for (std::int64_t id = 0; id < task.vocabulary_size(); ++id) words.insert(task.text(std::vector{id}));
  EXPECT_EQ(words.size(), task.vocabulary_size());
}

TEST(Passkey, RefusesWhatHasNoMeaning) {
  const std::int64_t shortest = PasskeyTask(100).shortest_length();
  EXPECT_LT(shortest, 64);  // half of the quick profile's context
  PasskeyTask smallest(shortest);
  EXPECT_EQ(smallest.training(0, 0, 1)[0].tokens.size(), static_cast<std::size_t>(shortest) + 1);
  EXPECT_TRUE(contains(message_of<UsageError>([&] { PasskeyTask{shortest - 1}; }), str("found ", shortest - 1)));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { smallest.test(10, 1); }), "found 10"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { smallest.test(100, 0); }), "found 0"));
  const std::int64_t beyond = smallest.vocabulary_size();
  EXPECT_TRUE(contains(message_of<Error>([&] { smallest.text(std::vector{beyond}); }), str(beyond)));
}

}  // namespace
}  // namespace torsor
