// Pairs of tokens within a few arcs: counts in closed form, distances against a search of its own, arcs that become
// known one after the other.
#include "torsor/encoding/syntax/hops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace torsor {
namespace {

/// A random tree over `tokens` tokens; every arc is brought by its later end.
struct RandomTree {
  std::vector<std::int64_t> head;  ///< of every token but the first, which is the root's
  std::vector<std::int32_t> back;
  std::int64_t width = 0;

  RandomTree(std::int64_t tokens, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::int64_t> order;
    for (std::int64_t t = 0; t < tokens; ++t) order.push_back(t);
    std::shuffle(order.begin(), order.end(), random);
    head.assign(static_cast<std::size_t>(tokens), -1);
    for (std::size_t n = 1; n < order.size(); ++n) head[static_cast<std::size_t>(order[n])] = order[random() % n];
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> brought(static_cast<std::size_t>(tokens));
    for (std::int64_t t = 0; t < tokens; ++t)
      if (const std::int64_t h = head[static_cast<std::size_t>(t)]; h >= 0)
        brought[static_cast<std::size_t>(std::max(t, h))].emplace_back(t, h);
    for (const auto& one : brought) width = std::max(width, static_cast<std::int64_t>(one.size()));
    back.assign(static_cast<std::size_t>(tokens * width * 2), -1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::size_t at = static_cast<std::size_t>(t * width * 2);
      for (const auto& [one, other] : brought[static_cast<std::size_t>(t)]) {
        back[at++] = static_cast<std::int32_t>(t - one);
        back[at++] = static_cast<std::int32_t>(t - other);
      }
    }
  }
  std::int64_t tokens() const { return static_cast<std::int64_t>(head.size()); }
  ArcTable arcs() const { return {back.data(), tokens(), width}; }

  /// Arcs between two tokens, over those whose later end comes before `end`; -1 = no way.
  std::int64_t distance(std::int64_t from, std::int64_t to, std::int64_t end) const {
    std::vector<std::int64_t> reached(head.size(), -1);
    reached[static_cast<std::size_t>(from)] = 0;
    for (std::int64_t turn = 0; turn < tokens(); ++turn)
      for (std::int64_t t = 0; t < tokens(); ++t) {
        const std::int64_t h = head[static_cast<std::size_t>(t)];
        if (h < 0 || std::max(t, h) >= end) continue;
        std::int64_t &a = reached[static_cast<std::size_t>(t)], &b = reached[static_cast<std::size_t>(h)];
        if (a >= 0 && (b < 0 || b > a + 1)) b = a + 1;
        if (b >= 0 && (a < 0 || a > b + 1)) a = b + 1;
      }
    return reached[static_cast<std::size_t>(to)];
  }
};

std::vector<std::int64_t> counted(std::int64_t end) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < end; ++i) all.push_back(i);
  return all;
}

std::int64_t count(const RandomTree& tree, std::int64_t hops, bool causal) {
  return static_cast<std::int64_t>(pairs_within(tree.arcs(), counted(tree.tokens()), hops, false, causal).key.size());
}

// P1 = 3n - 2; P2 = P1 + sum d(d - 1); P3 = P2 + 2 sum over arcs (d_u - 1)(d_v - 1); causal pairs (P + n) / 2.
TEST(Hops, CountsAreTheClosedForm) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomTree tree(1 + static_cast<std::int64_t>(seed % 40), seed);
    const std::int64_t n = tree.tokens();
    std::vector<std::int64_t> degree(static_cast<std::size_t>(n), 0);
    for (std::int64_t t = 0; t < n; ++t)
      if (const std::int64_t h = tree.head[static_cast<std::size_t>(t)]; h >= 0)
        ++degree[static_cast<std::size_t>(t)], ++degree[static_cast<std::size_t>(h)];
    const std::int64_t one = 3 * n - 2;
    std::int64_t two = one, three = 0;
    for (const std::int64_t d : degree) two += d * (d - 1);
    for (std::int64_t t = 0; t < n; ++t)
      if (const std::int64_t h = tree.head[static_cast<std::size_t>(t)]; h >= 0)
        three += 2 * (degree[static_cast<std::size_t>(t)] - 1) * (degree[static_cast<std::size_t>(h)] - 1);
    three += two;
    EXPECT_EQ(count(tree, 1, false), one) << seed;
    EXPECT_EQ(count(tree, 2, false), two) << seed;
    EXPECT_EQ(count(tree, 3, false), three) << seed;
    EXPECT_EQ(count(tree, 3, true), (three + n) / 2) << seed;
  }
}

TEST(Hops, RevealedPairsAreThoseOfTheTreeSoFar) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const RandomTree tree(14, seed);
    for (const std::int64_t hops : {1, 2, 3}) {
      const HopPairs pairs = pairs_within(tree.arcs(), counted(14), hops, true, true);
      ASSERT_EQ(pairs.start.size(), 15u);
      for (std::int64_t i = 0; i < 14; ++i) {
        const auto first = static_cast<std::size_t>(pairs.start[static_cast<std::size_t>(i)]),
                   last = static_cast<std::size_t>(pairs.start[static_cast<std::size_t>(i) + 1]);
        const std::vector<std::int64_t> found(pairs.key.begin() + static_cast<std::ptrdiff_t>(first),
                                              pairs.key.begin() + static_cast<std::ptrdiff_t>(last));
        std::vector<std::int64_t> wanted;
        for (std::int64_t j = 0; j <= i; ++j)
          if (const std::int64_t far = tree.distance(i, j, i + 1); far >= 0 && far <= hops) wanted.push_back(j);
        EXPECT_EQ(found, wanted) << "query " << i << ", hops " << hops << ", seed " << seed;
      }
    }
  }
}

// A step of a cache asks about its newest token alone and must find what the whole pass found for it.
TEST(Hops, OneQueryFindsWhatAllFind) {
  const RandomTree tree(20, 7);
  const HopPairs all = pairs_within(tree.arcs(), counted(20), 3, true, true);
  for (std::int64_t i = 0; i < 20; ++i) {
    const ArcTable so_far{tree.back.data(), i + 1, tree.width};
    const HopPairs one = pairs_within(so_far, {i}, 3, true, true);
    const auto first = all.key.begin() + all.start[static_cast<std::size_t>(i)];
    const auto last = all.key.begin() + all.start[static_cast<std::size_t>(i) + 1];
    EXPECT_EQ(one.key, std::vector<std::int64_t>(first, last)) << i;
  }
}

TEST(Hops, WhatIsNotThereHasNoPairs) {
  // An arc to before the first token; none; a loop on itself.
  const std::vector<std::int32_t> back = {0, 1, -1, -1, 0, 0};
  const ArcTable arcs{back.data(), 3, 1};
  const HopPairs pairs = pairs_within(arcs, {-2, 0, 1, 2, 3}, 3, false, false);
  EXPECT_EQ(pairs.start, (std::vector<std::int64_t>{0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(pairs.key, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_TRUE(pairs_within({}, {}, 3, true, true).key.empty());
}

}  // namespace
}  // namespace torsor
