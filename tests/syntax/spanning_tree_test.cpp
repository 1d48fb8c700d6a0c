// The best tree with one root, against all trees.
#include "torsor/syntax/spanning_tree.h"

#include <gtest/gtest.h>

#include <limits>

#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/data/tree.h"

namespace torsor::syntax {
namespace {

using Scores = std::vector<std::vector<double>>;

double sum_of(const Scores& scores, const std::vector<int>& heads) {
  double sum = 0;
  for (std::size_t i = 0; i < heads.size(); ++i) sum += scores[i][static_cast<std::size_t>(heads[i])];
  return sum;
}

/// The best sum over every assignment of heads that is a tree with one root.
double best_sum(const Scores& scores) {
  const int n = static_cast<int>(scores.size());
  std::vector<int> heads(static_cast<std::size_t>(n), 0);
  double best = -std::numeric_limits<double>::infinity();
  while (true) {
    if (!find_defect(heads)) best = std::max(best, sum_of(scores, heads));
    int at = 0;
    while (at < n && ++heads[static_cast<std::size_t>(at)] > n) heads[static_cast<std::size_t>(at++)] = 0;
    if (at == n) return best;
  }
}

TEST(SpanningTree, IsTheBestOfAllTrees) {
  Random random(7);
  for (std::size_t n = 1; n <= 5; ++n)
    for (int trial = 0; trial < 60; ++trial) {
      Scores scores(n, std::vector<double>(n + 1));
      for (auto& row : scores)
        for (double& score : row) score = random.normal();
      // A root that every word wants, or none does: both must end with one.
      for (auto& row : scores) row[0] += trial % 3 == 0 ? 5 : trial % 3 == 1 ? -5 : 0;
      const std::vector<int> heads = best_tree(scores);
      ASSERT_FALSE(find_defect(heads)) << "n " << n << " trial " << trial;
      EXPECT_NEAR(sum_of(scores, heads), best_sum(scores), 1e-9) << "n " << n << " trial " << trial;
    }
}

TEST(SpanningTree, LongSentencesGiveTrees) {
  Random random(8);
  for (const std::size_t n : {1u, 2u, 60u, 200u}) {
    Scores scores(n, std::vector<double>(n + 1));
    for (auto& row : scores)
      for (double& score : row) score = random.normal();
    EXPECT_FALSE(find_defect(best_tree(scores))) << n;
  }
  EXPECT_TRUE(best_tree({}).empty());
}

TEST(SpanningTree, EqualScoresGiveATree) {
  EXPECT_FALSE(find_defect(best_tree(Scores(6, std::vector<double>(7, 0.0)))));
}

TEST(SpanningTree, RefusesWhatIsNoMatrix) {
  EXPECT_THROW(best_tree({{0, 0, 0}}), Error);
  EXPECT_THROW(best_tree({{std::numeric_limits<double>::quiet_NaN(), 0}}), Error);
  EXPECT_THROW(best_tree({{std::numeric_limits<double>::infinity(), 0}}), Error);
}

}  // namespace
}  // namespace torsor::syntax
