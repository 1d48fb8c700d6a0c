#include "torsor/data/bpe_merge.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
constexpr TokenId kGone = std::numeric_limits<TokenId>::max();
constexpr std::size_t kEnd = std::numeric_limits<std::size_t>::max();

std::uint64_t pair_key(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

}  // namespace

MergeRanks::MergeRanks(std::vector<BpeMerge> merges, std::span<const std::string> texts, const char* kind)
    : merges_(std::move(merges)) {
  ranks_.reserve(merges_.size());
  const std::size_t size = texts.size();
  if (merges_.size() >= kNoRank) throw Error(str(kind, ": too many merges"));
  for (std::uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const BpeMerge& merge = merges_[rank];
    if (merge.left >= size || merge.right >= size || merge.result >= size)
      throw Error(str(kind, ": merge ", rank, " has an id outside the vocabulary of ", size, " tokens"));
    if (texts[merge.result] != texts[merge.left] + texts[merge.right])
      throw Error(str(kind, ": merge ", rank, " of ", quote(texts[merge.left], 40), " and ",
                      quote(texts[merge.right], 40), " cannot make ", quote(texts[merge.result], 40)));
    const auto [place, is_new] = ranks_.emplace(pair_key(merge.left, merge.right), rank);
    if (!is_new) throw Error(str(kind, ": merges ", place->second, " and ", rank, " are of the same two tokens"));
  }
}

std::uint32_t MergeRanks::rank(TokenId left, TokenId right) const {
  const auto found = ranks_.find(pair_key(left, right));
  return found == ranks_.end() ? kNoRank : found->second;
}

void MergeRanks::merge(std::span<const TokenId> piece, std::vector<TokenId>& ids, Room& room) const {
  std::vector<Room::Node>& nodes = room.nodes_;
  std::vector<Room::Candidate>& heap = room.heap_;
  // The lowest rank on top, and of equal ones the leftmost.
  const auto comes_later = [](const Room::Candidate& a, const Room::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  nodes.clear();
  heap.clear();
  for (std::size_t i = 0; i < piece.size(); ++i)
    nodes.push_back({piece[i], i == 0 ? kEnd : i - 1, i + 1 == piece.size() ? kEnd : i + 1});
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i)
    if (const std::uint32_t found = rank(nodes[i].id, nodes[i + 1].id); found != kNoRank) heap.push_back({found, i});
  std::make_heap(heap.begin(), heap.end(), comes_later);
  const auto consider = [&](std::size_t at) {
    const std::uint32_t found = rank(nodes[at].id, nodes[nodes[at].after].id);
    if (found == kNoRank) return;
    heap.push_back({found, at});
    std::push_heap(heap.begin(), heap.end(), comes_later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Room::Candidate candidate = heap.back();
    heap.pop_back();
    const BpeMerge& merge = merges_[candidate.rank];
    Room::Node& node = nodes[candidate.at];
    // A neighbour may have been merged since.
    if (node.id != merge.left || node.after == kEnd || nodes[node.after].id != merge.right) continue;
    Room::Node& right = nodes[node.after];
    node.id = merge.result;
    node.after = right.after;
    right.id = kGone;
    if (node.after != kEnd) {
      nodes[node.after].before = candidate.at;
      consider(candidate.at);
    }
    if (node.before != kEnd) consider(node.before);
  }
  for (std::size_t at = 0; at != kEnd; at = nodes[at].after) ids.push_back(nodes[at].id);
}

}  // namespace torsor
