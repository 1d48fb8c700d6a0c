#include "torsor/syntax/arc_eager.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/repair.h"

namespace torsor::syntax {
namespace {

using namespace testing;

ArcEager replay(const std::vector<Step>& steps) {
  ArcEager state;
  for (const Step& step : steps) {
    if (step.word != state.front()) state.read();
    state.take(step.action, step.word * 10);
  }
  return state;
}

std::vector<int> heads_of(const ArcEager& state) { return {state.heads().begin(), state.heads().end()}; }

TEST(ArcEagerTest, AShortSentenceStepByStep) {
  ArcEager state;  // she watches funny videos
  EXPECT_EQ(state.front(), 0);
  EXPECT_FALSE(state.allows(Action::kShift));
  state.read();
  EXPECT_TRUE(state.waiting());
  EXPECT_TRUE(state.allows(Action::kShift));
  EXPECT_EQ(state.top(), 0);
  EXPECT_TRUE(state.allows(Action::kRightArc));  // of the root
  EXPECT_FALSE(state.allows(Action::kLeftArc));
  EXPECT_FALSE(state.allows(Action::kReduce));
  state.take(Action::kShift);
  EXPECT_EQ(state.tag(), (CausalTag{2, 1}));
  state.read();
  EXPECT_TRUE(state.allows(Action::kLeftArc));
  EXPECT_FALSE(state.allows(Action::kReduce));  // the top has no head
  state.take(Action::kLeftArc, 7);
  EXPECT_EQ(state.head(1), 2);
  EXPECT_EQ(state.label(1), 7);
  EXPECT_EQ(std::vector<int>(state.taken().begin(), state.taken().end()), (std::vector<int>{1}));
  EXPECT_FALSE(state.has_root());
  state.take(Action::kRightArc);
  EXPECT_TRUE(state.has_root());
  EXPECT_EQ(state.head(2), 0);
  EXPECT_EQ(state.tag(), (CausalTag{1, 2}));
  EXPECT_EQ(state.leftmost(2), 1);
  state.read();
  EXPECT_TRUE(state.taken().empty());
  state.take(Action::kShift);
  state.read();
  state.take(Action::kLeftArc);
  state.take(Action::kRightArc);
  EXPECT_EQ(state.tag(), (CausalTag{1, 2}));
  EXPECT_EQ(state.rightmost(2), 4);
  EXPECT_EQ(heads_of(state), (std::vector<int>{2, 0, 4, 2}));
  state.read();
  EXPECT_TRUE(state.allows(Action::kReduce));
  state.take(Action::kReduce);
  EXPECT_EQ(state.top(), 2);
  EXPECT_TRUE(state.allows(Action::kReduce));
  state.take(Action::kRightArc);
  EXPECT_EQ(state.tag(), (CausalTag{1, 3}));
  state.read();
  state.take(Action::kReduce);
  state.take(Action::kReduce);
  EXPECT_EQ(state.top(), 0);
  EXPECT_FALSE(state.allows(Action::kRightArc));  // there is a root
  state.take(Action::kShift);
  EXPECT_EQ(state.head(6), kNoHead);
}

TEST(ArcEagerTest, RefusesWhatIsNotPossible) {
  ArcEager state;
  EXPECT_TRUE(contains(message_of<Error>([&] { state.take(Action::kShift); }), "shift"));
  state.read();
  EXPECT_TRUE(contains(message_of<Error>([&] { state.take(Action::kLeftArc); }), "left arc"));
  EXPECT_TRUE(contains(message_of<Error>([&] { state.read(); }), "word 1"));
  state.take(Action::kShift);
  EXPECT_TRUE(contains(message_of<Error>([&] { state.take(Action::kShift); }), "word 1"));
  EXPECT_TRUE(contains(message_of<Error>([] { oracle_steps(std::vector<int>{0, 4, 1, 1}); }), "projective"));
}

TEST(ArcEagerTest, CopiesGoTheirOwnWays) {
  ArcEager one;
  one.read();
  one.take(Action::kShift);
  ArcEager other = one;
  one.read();
  one.take(Action::kRightArc);
  other.read();
  other.take(Action::kLeftArc);
  other.take(Action::kShift);
  EXPECT_EQ(one.head(2), 1);
  EXPECT_EQ(one.head(1), kNoHead);
  EXPECT_EQ(other.head(1), 2);
  EXPECT_EQ(other.head(2), kNoHead);
  one.reset();
  EXPECT_EQ(one.words(), 0);
}

TEST(ArcEagerProperty, TheOracleMakesEveryProjectiveTree) {
  Random random(5);
  for (int round = 0; round < 10000; ++round) {
    const int n = 1 + static_cast<int>(random.below(40));
    const std::vector<int> heads = projectivise(random_heads(n, random));
    const std::vector<Step> steps = oracle_steps(heads);
    const ArcEager state = replay(steps);
    ASSERT_EQ(heads_of(state), heads) << round;
    // Every arc is made when the later of its two words is at the front, and has that word's label here.
    for (const Step& step : steps) {
      if (step.arc == 0) continue;
      ASSERT_EQ(step.word, std::max(step.arc, heads[static_cast<std::size_t>(step.arc) - 1])) << round;
      ASSERT_EQ(state.label(step.arc), step.word * 10) << round;
    }
  }
}

TEST(ArcEagerProperty, AnythingAllowedGivesAForest) {
  Random random(6);
  for (int round = 0; round < 2000; ++round) {
    ArcEager state;
    const int n = 1 + static_cast<int>(random.below(25));
    for (int i = 0; i < n; ++i) {
      state.read();
      while (state.waiting()) {
        std::vector<Action> possible;
        for (int a = 0; a < kActions; ++a)
          if (state.allows(static_cast<Action>(a))) possible.push_back(static_cast<Action>(a));
        state.take(possible.at(static_cast<std::size_t>(random.below(possible.size()))));
      }
    }
    // Nothing to mend but words whose head is pending.
    std::vector<int> heads = heads_of(state);
    std::vector<std::string> labels(heads.size(), "dep");
    const auto pending = static_cast<std::size_t>(std::count(heads.begin(), heads.end(), kNoHead));
    const RepairCounts counts = repair(heads, labels);
    ASSERT_EQ(counts.total(), pending) << round;
    ASSERT_EQ(counts.no_root + counts.unattached, pending) << round;
    ASSERT_EQ(counts.no_root, state.has_root() ? 0u : 1u) << round;
  }
}

// Every continuation of a state to the sentence's end: the most arcs of `heads` that one of them makes.
int most_arcs(ArcEager state, const std::vector<int>& heads) {
  if (!state.waiting()) {
    if (state.words() == static_cast<int>(heads.size())) {
      int made = 0;
      for (std::size_t i = 0; i < heads.size(); ++i) made += state.heads()[i] == heads[i];
      return made;
    }
    state.read();
  }
  int most = 0;
  for (int a = 0; a < kActions; ++a) {
    if (!state.allows(static_cast<Action>(a))) continue;
    ArcEager next = state;
    next.take(static_cast<Action>(a));
    most = std::max(most, most_arcs(std::move(next), heads));
  }
  return most;
}

// Random ways through random trees, good and bad ones: every cost is what trying all continuations tells.
TEST(ArcEagerProperty, CostsAreThoseOfAllContinuations) {
  Random random(7);
  std::array<std::map<int, int>, kActions> seen;  // by action, how often each cost came
  for (int round = 0; round < 600; ++round) {
    const int n = 1 + static_cast<int>(random.below(6));
    const std::vector<int> heads = projectivise(random_heads(n, random));
    ArcEager state;
    int lost = 0;
    for (int i = 0; i < n; ++i) {
      state.read();
      while (state.waiting()) {
        const int before = most_arcs(state, heads);
        ASSERT_EQ(before, n - lost) << round;  // what is lost is the sum of the costs so far
        const auto costs = action_costs(state, heads);
        std::vector<Action> possible;
        int least = n;
        for (int a = 0; a < kActions; ++a) {
          const auto action = static_cast<Action>(a);
          ASSERT_EQ(costs[static_cast<std::size_t>(a)] >= 0, state.allows(action)) << round;
          if (!state.allows(action)) continue;
          ArcEager next = state;
          next.take(action);
          ASSERT_EQ(costs[static_cast<std::size_t>(a)], before - most_arcs(next, heads))
              << "round " << round << ", word " << i + 1 << ", action " << a;
          least = std::min(least, costs[static_cast<std::size_t>(a)]);
          ++seen[static_cast<std::size_t>(a)][costs[static_cast<std::size_t>(a)]];
          possible.push_back(action);
        }
        ASSERT_EQ(least, 0) << round;
        const Action taken = possible[static_cast<std::size_t>(random.below(possible.size()))];
        lost += costs[static_cast<std::size_t>(taken)];
        state.take(taken);
      }
    }
  }
  for (const auto& costs : seen)  // the test has seen cheap and dear ones of every kind
    for (int cost = 0; cost <= 2; ++cost) EXPECT_GT(costs.count(cost), 0u) << cost;
}

TEST(ArcEagerProperty, TheStaticOracleCostsNothing) {
  Random random(8);
  for (int round = 0; round < 500; ++round) {
    const std::vector<int> heads = projectivise(random_heads(1 + static_cast<int>(random.below(30)), random));
    ArcEager state;
    for (const Step& step : oracle_steps(heads)) {
      if (step.word != state.front()) state.read();
      ASSERT_EQ(action_costs(state, heads)[static_cast<std::size_t>(step.action)], 0) << round;
      state.take(step.action);
    }
  }
}

TEST(ArcEagerTreebanks, TheOracleMakesAllOfEwt) {
  const std::string path = shared_path("data/ud-english-ewt/en_ewt-ud-train.conllu");
  if (path.empty()) GTEST_SKIP() << "no treebanks; set TORSOR_SHARED";
  std::map<std::pair<int, int>, double> counts;
  double words = 0, left = 0;
  for (const Sentence& sentence : read_conllu_file(path).sentences) {
    const std::vector<int> heads = projectivise(sentence.heads());
    ASSERT_EQ(heads_of(replay(oracle_steps(heads))), heads) << sentence.line;
    for (const CausalTag& tag : oracle_tags(heads)) ++counts[{tag.tau, tag.nu}];
    for (std::size_t i = 0; i < heads.size(); ++i) left += heads[i] > 0 && heads[i] <= static_cast<int>(i) ? 1 : 0;
    words += static_cast<double>(heads.size());
  }
  double entropy = 0;
  for (const auto& [tag, count] : counts) entropy -= count / words * std::log2(count / words);
  // Figures of sipe.md, 3.3, to the digits given there: bits a word, share of heads on the left, "pending, no pop".
  EXPECT_NEAR(entropy, 2.04, 0.005);
  EXPECT_NEAR(left / words, 0.36, 0.005);
  EXPECT_NEAR((counts[{2, 1}]) / words, 0.53, 0.005);
}

}  // namespace
}  // namespace torsor::syntax
