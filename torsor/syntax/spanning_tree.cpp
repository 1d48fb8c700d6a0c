#include "torsor/syntax/spanning_tree.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "torsor/base/error.h"

namespace torsor::syntax {
namespace {

using Matrix = std::vector<std::vector<double>>;

/// Nodes of a cycle among heads (index 0 is the root, its head is not read); empty when there is none.
std::vector<std::size_t> find_cycle(const std::vector<std::size_t>& head) {
  std::vector<std::size_t> seen_by(head.size(), 0);
  for (std::size_t start = 1; start < head.size(); ++start) {
    std::size_t at = start;
    while (at != 0 && seen_by[at] == 0) {
      seen_by[at] = start;
      at = head[at];
    }
    if (at == 0 || seen_by[at] != start) continue;
    std::vector<std::size_t> cycle = {at};
    for (std::size_t next = head[at]; next != at; next = head[next]) cycle.push_back(next);
    return cycle;
  }
  return {};
}

std::vector<std::size_t> greedy(const Matrix& score) {
  std::vector<std::size_t> head(score.size(), 0);
  for (std::size_t d = 1; d < score.size(); ++d) {
    std::size_t best = 0;
    for (std::size_t h = 1; h < score.size(); ++h)
      if (h != d && score[d][h] > score[d][best]) best = h;
    head[d] = best;
  }
  return head;
}

/// Chu and Liu's and Edmonds' algorithm on a dense matrix: score[d][h]. Contracts one cycle a call.
std::vector<std::size_t> spanning(const Matrix& score) {
  std::vector<std::size_t> head = greedy(score);
  const std::vector<std::size_t> cycle = find_cycle(head);
  if (cycle.empty()) return head;

  const std::size_t n = score.size();
  std::vector<bool> inside(n, false);
  for (const std::size_t node : cycle) inside[node] = true;
  std::vector<std::size_t> kept;  // nodes outside the cycle; the contracted one is added behind
  for (std::size_t node = 0; node < n; ++node)
    if (!inside[node]) kept.push_back(node);
  const std::size_t c = kept.size();
  double whole = 0;
  for (const std::size_t node : cycle) whole += score[node][head[node]];

  Matrix smaller(c + 1, std::vector<double>(c + 1, 0));
  std::vector<std::size_t> enters(c + 1), leaves(c + 1);  // the cycle's node behind an arc into and out of it
  for (std::size_t a = 0; a < c; ++a) {
    for (std::size_t b = 0; b < c; ++b) smaller[a][b] = score[kept[a]][kept[b]];
    std::size_t best_in = cycle.front(), best_out = cycle.front();
    const auto gain = [&](std::size_t node) { return score[node][kept[a]] - score[node][head[node]]; };
    for (const std::size_t node : cycle) {
      if (gain(node) > gain(best_in)) best_in = node;
      if (score[kept[a]][node] > score[kept[a]][best_out]) best_out = node;
    }
    smaller[c][a] = whole + gain(best_in);
    smaller[a][c] = score[kept[a]][best_out];
    enters[a] = best_in;
    leaves[a] = best_out;
  }
  const std::vector<std::size_t> tree = spanning(smaller);
  for (std::size_t a = 1; a < c; ++a) head[kept[a]] = tree[a] == c ? leaves[a] : kept[tree[a]];
  head[enters[tree[c]]] = kept[tree[c]];
  return head;
}

}  // namespace

std::vector<int> best_tree(const std::vector<std::vector<double>>& scores) {
  const std::size_t n = scores.size();
  double low = 0, high = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (scores[i].size() != n + 1)
      throw Error(str("best_tree: expected rows of ", n + 1, " scores, got ", scores[i].size(), " in row ", i));
    for (std::size_t h = 0; h <= n; ++h) {
      if (h == i + 1) continue;
      if (!std::isfinite(scores[i][h]))
        throw Error(str("best_tree: the score of head ", h, " in row ", i, " is not finite"));
      low = std::min(low, scores[i][h]);
      high = std::max(high, scores[i][h]);
    }
  }
  Matrix score(n + 1, std::vector<double>(n + 1, 0));
  for (std::size_t d = 1; d <= n; ++d) score[d] = scores[d - 1];

  std::vector<std::size_t> head = greedy(score);
  const auto single_root = [&] { return std::count(head.begin() + 1, head.end(), std::size_t{0}) <= 1; };
  if (n > 0 && !(single_root() && find_cycle(head).empty())) {
    // So dear that a second arc from the root costs more than any choice of the others can win: one is left.
    const double penalty = (high - low + 1) * static_cast<double>(n + 1);
    for (std::size_t d = 1; d <= n; ++d) score[d][0] -= penalty;
    head = spanning(score);
  }
  return {head.begin() + (n > 0 ? 1 : 0), n > 0 ? head.end() : head.begin()};
}

}  // namespace torsor::syntax
