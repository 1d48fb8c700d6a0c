// Pairs of words that lie few arcs apart in the tree, whatever the arcs' direction.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace torsor::syntax {

/// Pairs in compressed rows: those of word i (from 1) are at row_begin[i - 1] <= at < row_begin[i].
struct HopPairs {
  std::vector<std::int32_t> row_begin;  ///< (n + 1)
  std::vector<std::int32_t> column;     ///< the other word, from 1, rising in every row; the word itself included
  std::vector<std::uint8_t> hops;       ///< arcs between the two

  std::size_t size() const { return column.size(); }
};

/// All pairs (i, j) with at most `hops` arcs between them, `hops` >= 0; with `causal` only those with j <= i. `heads`
/// may be of a forest: arcs from 0 and unknown heads (below 0) link nothing. Throws Error for a head beyond the
/// sentence. Time and memory in proportion to the pairs: at worst (a star) n * n.
HopPairs pairs_within(std::span<const int> heads, int hops, bool causal = false);

/// The numbers of ordered pairs within 1, 2 and 3 arcs, words with themselves included, in closed form: in a forest of
/// n words with E arcs and degrees d,
///   P1 = n + 2 E;   P2 = P1 + sum over words of d (d - 1);   P3 = P2 + 2 * sum over arcs (u, v) of (d_u - 1)(d_v - 1).
/// Those with j <= i are (P + n) / 2.
std::array<std::int64_t, 3> count_pairs(std::span<const int> heads);

}  // namespace torsor::syntax
