// Which tokens lie within a few arcs of each other, when arcs become known one token after the other.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace torsor {

/// Arcs of one row of tokens, `width` a token: how many tokens back either end lies, -1 -1 where there is none. An arc
/// with an end before the first token is not there.
struct ArcTable {
  const std::int32_t* back = nullptr;  ///< (tokens, width, 2)
  std::int64_t tokens = 0, width = 0;
};

/// Keys by query: query i has key[start[i]] ... key[start[i + 1] - 1], ascending.
struct HopPairs {
  std::vector<std::int64_t> start = {0};
  std::vector<std::int64_t> key;
};

/// For each query, standing at token `own[i]` (ascending), the tokens that at most `hops` arcs lie between, its own
/// token included. Arcs have no direction. `revealed`: an arc is known to a query once the token that brings it has
/// been read; otherwise all are known. `causal`: only keys up to the query's own token count (arcs lead through any).
/// A query before the first token or past the last has none. Takes time in proportion to arcs and pairs.
HopPairs pairs_within(const ArcTable& arcs, const std::vector<std::int64_t>& own, std::int64_t hops, bool revealed,
                      bool causal);

}  // namespace torsor
