// Tokens that are found in the raw text before it is cut and merged: "<|endoftext|>", runs of spaces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torsor/data/tokenizer.h"

namespace torsor {

/// A token that stands for its own text. The flags are those of tokenizer.json.
struct BpeAddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;     ///< a mark and no text; tells nothing about ids
  bool lstrip = false;      ///< takes the white space before it along, which decoding does not give back
  bool rstrip = false;      ///< the same behind it
  bool normalized = false;  ///< sought after all that are not
};

/// Finds added tokens, leftmost and of those the longest.
class AddedTokenFinder {
 public:
  struct Match {
    std::size_t begin = 0, end = 0;  ///< in bytes, the white space that was taken along included
    TokenId id = 0;
  };

  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<BpeAddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  /// The first token in `text` at or behind `from`; nothing before `from` is taken along.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  /// The index of the longest token at `at`, or kNone.
  std::uint32_t longest_at(std::string_view text, std::size_t at) const;

  std::vector<BpeAddedToken> tokens_;
  std::array<bool, 256> first_{};                           // bytes that a token begins with
  std::unordered_map<std::uint64_t, std::uint32_t> nodes_;  // a tree of bytes: node * 256 + byte -> node
  std::vector<std::uint32_t> ends_;                         // by node: the token that ends there
};

}  // namespace torsor
