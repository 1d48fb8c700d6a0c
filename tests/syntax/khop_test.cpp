#include "torsor/syntax/khop.h"

#include <gtest/gtest.h>

#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"

namespace torsor::syntax {
namespace {

using namespace testing;

TEST(Khop, AChainAndAStar) {
  const std::vector<int> chain = {0, 1, 2, 3};
  const HopPairs pairs = pairs_within(chain, 2);
  EXPECT_EQ(pairs.row_begin, (std::vector<std::int32_t>{0, 3, 7, 11, 14}));
  EXPECT_EQ(pairs.column, (std::vector<std::int32_t>{1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 4, 2, 3, 4}));
  EXPECT_EQ(pairs.hops, (std::vector<std::uint8_t>{0, 1, 2, 1, 0, 1, 2, 2, 1, 0, 1, 2, 1, 0}));
  const HopPairs causal = pairs_within(chain, 1, true);
  EXPECT_EQ(causal.column, (std::vector<std::int32_t>{1, 1, 2, 2, 3, 3, 4}));
  EXPECT_EQ(pairs_within(chain, 0).size(), 4u);
  const std::vector<int> star = {0, 1, 1, 1, 1};
  EXPECT_EQ(count_pairs(star), (std::array<std::int64_t, 3>{13, 25, 25}));
  EXPECT_EQ(pairs_within(star, 2).size(), 25u);
}

TEST(Khop, PartialTrees) {
  const std::vector<int> heads = {kNoHead, 1, kNoHead, 0};
  EXPECT_EQ(pairs_within(heads, 3).column, (std::vector<std::int32_t>{1, 2, 1, 2, 3, 4}));
  EXPECT_EQ(count_pairs(heads)[2], 6);
  EXPECT_EQ(pairs_within({}, 3).row_begin, (std::vector<std::int32_t>{0}));
  EXPECT_TRUE(contains(message_of<Error>([] { pairs_within(std::vector<int>{3, 0}, 1); }), "got 3 for word 1"));
  EXPECT_TRUE(contains(message_of<Error>([] { count_pairs(std::vector<int>{1, 0}); }), "got 1 for word 1"));
  EXPECT_TRUE(contains(message_of<Error>([] { pairs_within(std::vector<int>{0}, -1); }), "hops"));
}

TEST(KhopProperty, ClosedFormEqualsTheSearch) {
  Random random(8);
  for (int round = 0; round < 2000; ++round) {
    const int n = 1 + static_cast<int>(random.below(40));
    const std::vector<int> heads = random_heads(n, random);
    const auto counts = count_pairs(heads);
    for (int k = 1; k <= 3; ++k) {
      ASSERT_EQ(static_cast<std::int64_t>(pairs_within(heads, k).size()), counts[static_cast<std::size_t>(k) - 1]);
      ASSERT_EQ(static_cast<std::int64_t>(pairs_within(heads, k, true).size()),
                (counts[static_cast<std::size_t>(k) - 1] + n) / 2);
    }
  }
}

TEST(KhopGolden, EqualThePublishedCounts) {
  std::size_t compared = 0;
  for (const auto& [golden, treebank] : kGoldenTreebanks) {
    const std::string expected = shared_path("data/golden/khop/" + golden), path = shared_path(treebank);
    if (expected.empty() || path.empty()) continue;
    const auto table = golden_rows(expected);
    const Document document = read_conllu_file(path);
    ASSERT_EQ(table.size(), document.sentences.size()) << golden;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const std::vector<int> heads = document.sentences[i].heads();
      const auto counts = count_pairs(heads);
      for (std::size_t k = 0; k < 3; ++k) {
        ASSERT_EQ(std::to_string(counts[k]), table[i][2 + k]) << table[i][0];
        ASSERT_EQ(std::to_string(pairs_within(heads, static_cast<int>(k) + 1, true).size()), table[i][5 + k])
            << table[i][0];
      }
      ++compared;
    }
  }
  if (compared == 0) GTEST_SKIP() << "no golden counts; set TORSOR_SHARED";
  EXPECT_EQ(compared, 2001u + 1000u + 500u + 416u);
}

}  // namespace
}  // namespace torsor::syntax
