// Small models of SentencePiece for tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "torsor/data/sentencepiece_model.h"

namespace torsor::data_test {

using Kind = SentencePieceModel::Kind;

/// <unk>, <s>, </s>, the bytes where they are asked for, and the pieces, in this order; `_` is written for U+2581.
inline SentencePieceModel toy_pieces(const std::vector<std::pair<std::string, float>>& pieces, bool bytes = false) {
  SentencePieceModel model;
  model.pieces = {{"<unk>", 0, Kind::unknown}, {"<s>", 0, Kind::control}, {"</s>", 0, Kind::control}};
  model.byte_fallback = bytes;
  for (unsigned byte = 0; byte < 256 && bytes; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    model.pieces.push_back({name, 0, Kind::byte});
  }
  for (const auto& [text, score] : pieces) {
    std::string with_spaces;
    for (const char c : text) with_spaces += c == '_' ? std::string("\xE2\x96\x81") : std::string(1, c);
    model.pieces.push_back({with_spaces, score});
  }
  return model;
}

/// A BPE that gives text back: bytes, no table, spaces kept. 259 "_", 260 "a", 261 "b", 262 "ab", 263 "_a", 264 "__".
inline SentencePieceModel toy_bpe() {
  SentencePieceModel model =
      toy_pieces({{"_", -4}, {"a", -5}, {"b", -6}, {"ab", -1}, {"_a", -2}, {"__", -3}}, /*bytes=*/true);
  model.method = SentencePieceModel::Method::bpe;
  model.remove_spaces = false;
  return model;
}

/// A Unigram: 3 "_", 4 "a", 5 "b", 6 "ab", 7 "_a", 8 "_b".
inline SentencePieceModel toy_unigram() {
  return toy_pieces({{"_", -2}, {"a", -3}, {"b", -3}, {"ab", -4}, {"_a", -2.5F}, {"_b", -9}});
}

/// A table of characters: a double array of one block, in which single bytes become texts.
inline std::string toy_table(const std::vector<std::pair<char, std::string>>& replacements) {
  std::vector<std::uint32_t> units(512, 0);
  // The root points at its own block by an offset of 256 to be away from 0: children lie at 256 + byte.
  units[0] = 256U << 10;
  std::string texts;
  for (std::size_t i = 0; i < replacements.size(); ++i) {
    const auto byte = static_cast<unsigned char>(replacements[i].first);
    const std::uint32_t child = 256U + byte, leaf = 1U + static_cast<std::uint32_t>(i);  // leaves in the first block
    units[child] = (child ^ leaf) << 10 | 1U << 8 | byte;
    units[leaf] = 1U << 31 | static_cast<std::uint32_t>(texts.size());
    texts += replacements[i].second + '\0';
  }
  std::string table;
  const auto put = [&table](std::uint32_t word) {
    for (unsigned b = 0; b < 4; ++b) table += static_cast<char>(static_cast<unsigned char>(word >> (8 * b)));
  };
  put(static_cast<std::uint32_t>(4 * units.size()));
  for (const std::uint32_t unit : units) put(unit);
  return table + texts;
}

/// Sets a unit of such a table.
inline void set_unit(std::string& table, std::uint32_t at, std::uint32_t value) {
  for (unsigned b = 0; b < 4; ++b)
    table[4 + 4 * at + b] = static_cast<char>(static_cast<unsigned char>(value >> (8 * b)));
}

}  // namespace torsor::data_test
