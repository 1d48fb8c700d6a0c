// A small BPE with bytes for what has no token.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "torsor/data/fallback_bpe.h"

namespace torsor::data_test {

/// "<0x00>" to "<0xFF>".
inline std::vector<std::string> byte_names() {
  std::vector<std::string> names;
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    names.emplace_back(name);
  }
  return names;
}

/// `_` for U+2581.
inline std::string with_spaces(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '_' ? std::string("\xE2\x96\x81") : std::string(1, c);
  return result;
}

/// <unk>, <s>, </s>, the bytes from 3 on; 259 "_", 260 "a", 261 "b", 262 e with acute, 263 "ab", 264 "_a", 265 "_ab",
/// 266 "__", 267 "b_". Of the added tokens <x> takes white space behind it along; <y> and "a b" are sought last. Texts
/// begin with <s>.
inline FallbackBpeModel toy_fallback(const std::vector<std::pair<std::string, std::string>>& merges = {
                                         {"a", "b"}, {"_", "a"}, {"_", "ab"}, {"_", "_"}}) {
  FallbackBpeModel model;
  model.vocabulary = {"<unk>", "<s>", "</s>"};
  for (const std::string& name : byte_names()) model.vocabulary.push_back(name);
  for (const char* text : {"_", "a", "b", "\xC3\xA9", "ab", "_a", "_ab", "__", "b_", "<x>", "<y>", "a b"})
    model.vocabulary.push_back(with_spaces(text));
  const auto id = [&](const std::string& text) {
    return static_cast<TokenId>(std::find(model.vocabulary.begin(), model.vocabulary.end(), with_spaces(text)) -
                                model.vocabulary.begin());
  };
  for (const auto& [left, right] : merges) model.merges.push_back({id(left), id(right), id(left + right)});
  for (const char* text : {"<unk>", "<s>", "</s>"})
    model.added.push_back({.id = id(text), .content = text, .special = true});
  model.added.push_back({.id = 268, .content = "<x>", .special = true, .rstrip = true});
  model.added.push_back({.id = 269, .content = "<y>", .normalized = true});
  model.added.push_back({.id = 270, .content = "a b", .normalized = true});
  model.begin = 1;
  return model;
}

}  // namespace torsor::data_test
