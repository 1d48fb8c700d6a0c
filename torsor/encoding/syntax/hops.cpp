#include "torsor/encoding/syntax/hops.h"

#include <algorithm>

namespace torsor {
namespace {

class Graph {
 public:
  explicit Graph(const ArcTable& arcs)
      : arcs_(arcs),
        neighbours_(static_cast<std::size_t>(arcs.tokens)),
        met_(static_cast<std::size_t>(arcs.tokens), -1) {}

  /// Takes in what the tokens before `end` bring.
  void read_to(std::int64_t end) {
    for (; read_ < std::min(end, arcs_.tokens); ++read_)
      for (std::int64_t n = 0; n < arcs_.width; ++n) {
        const std::int32_t* arc = arcs_.back + (read_ * arcs_.width + n) * 2;
        const std::int64_t one = read_ - arc[0], other = read_ - arc[1];
        if (arc[0] < 0 || arc[1] < 0 || one < 0 || other < 0) continue;
        neighbours_[static_cast<std::size_t>(one)].push_back(other);
        neighbours_[static_cast<std::size_t>(other)].push_back(one);
      }
  }

  /// The tokens up to `hops` arcs away, in no order.
  const std::vector<std::int64_t>& around(std::int64_t token, std::int64_t hops) {
    ++turn_;
    found_.assign(1, token);
    met_[static_cast<std::size_t>(token)] = turn_;
    std::size_t begin = 0;
    for (std::int64_t hop = 0; hop < hops; ++hop) {
      const std::size_t end = found_.size();
      for (; begin < end; ++begin)
        for (const std::int64_t next : neighbours_[static_cast<std::size_t>(found_[begin])]) {
          std::int64_t& met = met_[static_cast<std::size_t>(next)];
          if (met == turn_) continue;
          met = turn_;
          found_.push_back(next);
        }
    }
    return found_;
  }

 private:
  const ArcTable& arcs_;
  std::vector<std::vector<std::int64_t>> neighbours_;
  std::vector<std::int64_t> met_;  ///< the search that met a token last
  std::vector<std::int64_t> found_;
  std::int64_t read_ = 0, turn_ = 0;
};

}  // namespace

HopPairs pairs_within(const ArcTable& arcs, const std::vector<std::int64_t>& own, std::int64_t hops, bool revealed,
                      bool causal) {
  Graph graph(arcs);
  if (!revealed) graph.read_to(arcs.tokens);
  HopPairs pairs;
  for (const std::int64_t token : own) {
    if (token >= 0 && token < arcs.tokens) {
      if (revealed) graph.read_to(token + 1);
      const std::size_t first = pairs.key.size();
      for (const std::int64_t key : graph.around(token, hops))
        if (!causal || key <= token) pairs.key.push_back(key);
      std::sort(pairs.key.begin() + static_cast<std::ptrdiff_t>(first), pairs.key.end());
    }
    pairs.start.push_back(static_cast<std::int64_t>(pairs.key.size()));
  }
  return pairs;
}

}  // namespace torsor
