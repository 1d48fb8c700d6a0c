// GGUF files of a byte-level vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/base/gguf_file.h"
#include "torsor/data/bpe.h"
#include "torsor/data/bpe_alphabet.h"

namespace torsor::data_test {

/// The keys of tokenizer.ggml; what is empty is left out. It begins with the 256 bytes as tokens.
struct BpeGgufParts {
  std::string pre;
  std::vector<std::string> tokens, merges;
  std::vector<std::int64_t> types;
  std::optional<std::uint32_t> begin_id;
  std::optional<bool> add_begin;

  BpeGgufParts() {
    for (std::size_t id = 0; id < 256; ++id) add(byte_letters(std::string(1, static_cast<char>(byte_at(id)))), 1);
  }

  void add(const std::string& token, std::int64_t type) {
    tokens.push_back(token);
    types.push_back(type);
  }

  std::string build() const { return parts().build(); }

  testing::GgufParts parts() const {
    using testing::bytes_of;
    testing::GgufParts parts;
    parts.text_key("tokenizer.ggml.model", "gpt2");
    if (!pre.empty()) parts.text_key("tokenizer.ggml.pre", pre);
    const auto list = [](std::uint32_t type, std::size_t size) {
      return bytes_of(type) + bytes_of(std::uint64_t{size});
    };
    const auto texts = [&](const std::vector<std::string>& all) {
      std::string bytes = list(8, all.size());
      for (const std::string& one : all) bytes += testing::gguf_text(one);
      return bytes;
    };
    parts.key("tokenizer.ggml.tokens", 9, texts(tokens));
    parts.key("tokenizer.ggml.merges", 9, texts(merges));
    std::string numbers = list(5, types.size());
    for (const std::int64_t one : types) numbers += bytes_of(static_cast<std::int32_t>(one));
    if (!types.empty()) parts.key("tokenizer.ggml.token_type", 9, numbers);
    if (begin_id) parts.number_key("tokenizer.ggml.bos_token_id", *begin_id);
    if (add_begin) parts.key("tokenizer.ggml.add_bos_token", 7, bytes_of(static_cast<std::uint8_t>(*add_begin)));
    return parts;
  }
};

}  // namespace torsor::data_test
