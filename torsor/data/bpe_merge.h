// Merging neighbours by rank, which every kind of BPE does to a piece of a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torsor/data/tokenizer.h"

namespace torsor {

/// Two tokens that become one, whose text is that of both.
struct BpeMerge {
  TokenId left = 0, right = 0, result = 0;
  bool operator==(const BpeMerge&) const = default;
};

/// The merges of a model by their tokens. In a piece the merge of the lowest rank comes first, and of equal ones the
/// leftmost, until none is left; the time is that of a sort.
class MergeRanks {
 public:
  /// What one call after another works with.
  class Room {
    friend class MergeRanks;
    struct Node {
      TokenId id;  // kGone once it is part of another
      std::size_t before, after;
    };
    struct Candidate {
      std::uint32_t rank;
      std::size_t at;  // of the left node
    };
    std::vector<Node> nodes_;
    std::vector<Candidate> heap_;
  };

  MergeRanks() = default;
  /// `texts` are those of all ids. Throws Error, which begins with `kind`, for a merge of or into what is no id, whose
  /// result is not the text of both, or that stands twice.
  MergeRanks(std::vector<BpeMerge> merges, std::span<const std::string> texts, const char* kind);

  /// Appends to `ids` what is left of `piece` (at least one token) after all merges.
  void merge(std::span<const TokenId> piece, std::vector<TokenId>& ids, Room& room) const;

 private:
  /// The rank of the merge of two tokens, or kNoRank.
  std::uint32_t rank(TokenId left, TokenId right) const;

  std::vector<BpeMerge> merges_;                            // by rank
  std::unordered_map<std::uint64_t, std::uint32_t> ranks_;  // left * 2^32 + right -> index in merges_
};

/// Pieces whose ids are known already: most words come again and again. It looks into the texts, which must outlive it.
class KnownPieces {
 public:
  /// Appends the ids of `piece` to `ids`, which hold all that was appended before: as they were found earlier, or what
  /// make() appends.
  template <class Make>
  void append(std::string_view piece, std::vector<TokenId>& ids, const Make& make) {
    if (piece.size() > kLongest) return make();
    if (const auto found = places_.find(piece); found != places_.end()) {
      const auto [at, count] = found->second;
      for (std::size_t i = at; i < at + count; ++i) ids.push_back(ids[i]);
      return;
    }
    const std::size_t at = ids.size();
    make();
    if (places_.size() < kMost) places_.emplace(piece, std::pair(at, ids.size() - at));
  }

 private:
  static constexpr std::size_t kLongest = 64;  // longer ones hardly come back
  static constexpr std::size_t kMost = std::size_t{1} << 18;

  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> places_;  // in the ids, and how many
};

}  // namespace torsor
