#include "torsor/syntax/khop.h"

#include <algorithm>
#include <numeric>

#include "torsor/base/error.h"

namespace torsor::syntax {
namespace {

/// Calls visit(word, head) for every arc between two words, both from 0.
template <class Visit>
void for_each_arc(std::span<const int> heads, const Visit& visit) {
  for (std::size_t i = 0; i < heads.size(); ++i) {
    if (heads[i] > static_cast<int>(heads.size()) || heads[i] == static_cast<int>(i) + 1)
      throw Error(str("pairs: expected a head from 0 to ", heads.size(), " other than the word, got ", heads[i],
                      " for word ", i + 1));
    if (heads[i] > 0) visit(i, static_cast<std::size_t>(heads[i]) - 1);
  }
}

}  // namespace

HopPairs pairs_within(std::span<const int> heads, int hops, bool causal) {
  const std::size_t n = heads.size();
  if (hops < 0 || hops > 255) throw Error(str("pairs: expected 0 to 255 hops, got ", hops));
  std::vector<std::size_t> begin(n + 1, 0);
  for_each_arc(heads, [&](std::size_t word, std::size_t head) {
    ++begin[word + 1];
    ++begin[head + 1];
  });
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<std::size_t> next(begin.begin(), begin.end() - 1), neighbours(begin.back());
  for_each_arc(heads, [&](std::size_t word, std::size_t head) {
    neighbours[next[word]++] = head;
    neighbours[next[head]++] = word;
  });

  HopPairs pairs;
  pairs.row_begin.push_back(0);
  std::vector<std::size_t> reached;     // breadth first
  std::vector<std::size_t> seen_by(n);  // 1 + the word from which it was reached last
  std::vector<std::uint8_t> distance(n);
  for (std::size_t i = 0; i < n; ++i) {
    reached.assign(1, i);
    seen_by[i] = i + 1;
    distance[i] = 0;
    for (std::size_t at = 0; at < reached.size(); ++at) {
      const std::size_t word = reached[at];
      if (distance[word] == hops) break;
      for (std::size_t e = begin[word]; e < begin[word + 1]; ++e) {
        const std::size_t other = neighbours[e];
        if (seen_by[other] == i + 1) continue;
        seen_by[other] = i + 1;
        distance[other] = static_cast<std::uint8_t>(distance[word] + 1);
        reached.push_back(other);
      }
    }
    std::sort(reached.begin(), reached.end());
    for (const std::size_t word : reached) {
      if (causal && word > i) break;
      pairs.column.push_back(static_cast<std::int32_t>(word) + 1);
      pairs.hops.push_back(distance[word]);
    }
    pairs.row_begin.push_back(static_cast<std::int32_t>(pairs.column.size()));
  }
  return pairs;
}

std::array<std::int64_t, 3> count_pairs(std::span<const int> heads) {
  std::vector<std::int64_t> degree(heads.size(), 0);
  std::int64_t arcs = 0;
  for_each_arc(heads, [&](std::size_t word, std::size_t head) {
    ++degree[word];
    ++degree[head];
    ++arcs;
  });
  std::int64_t through_word = 0, through_arc = 0;
  for (const std::int64_t d : degree) through_word += d * (d - 1);
  for_each_arc(heads,
               [&](std::size_t word, std::size_t head) { through_arc += (degree[word] - 1) * (degree[head] - 1); });
  const std::int64_t one = static_cast<std::int64_t>(heads.size()) + 2 * arcs;
  const std::int64_t two = one + through_word;
  return {one, two, two + 2 * through_arc};
}

}  // namespace torsor::syntax
