// A tokenizer that puts a space before every text.
#pragma once

#include <string>

#include "torsor/data/tokenizer.h"

namespace torsor::testing {

/// Bytes with a space before every text, which is not there when they are decoded from the beginning.
struct SpacedTokenizer : ByteTokenizer {
  std::string name() const override { return "spaced"; }
  std::vector<TokenId> encode(std::string_view text) const override {
    return ByteTokenizer::encode(" " + std::string(text));
  }
  std::string decode(std::span<const TokenId> ids) const override {
    const std::string text = ByteTokenizer::decode(ids);
    return text.starts_with(' ') ? text.substr(1) : text;
  }
  std::string text_of(TokenId id) const override { return ByteTokenizer::decode({&id, 1}); }
};

}  // namespace torsor::testing
