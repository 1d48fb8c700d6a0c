// What turns text into token ids and back.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace torsor {

/// A token id; every id of a tokenizer lies in [0, vocabulary_size()).
using TokenId = std::uint32_t;
inline constexpr TokenId kNoToken = std::numeric_limits<TokenId>::max();

/// A file of a tokenizer: its name within a folder, and its bytes.
struct TokenizerFile {
  std::string name, content;
};

/// The contract that corpora, training and generation rely on. Implementations are immutable, so one object may serve
/// several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Tokenizers look into their own vocabularies and are shared, never copied.
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// A short name for records ("bytes").
  virtual std::string name() const = 0;

  /// The number of ids, at least 1.
  virtual std::uint32_t vocabulary_size() const = 0;

  /// The ids of `text`. Never refuses a text: what is not valid UTF-8 must get ids too.
  virtual std::vector<TokenId> encode(std::string_view text) const = 0;

  /// The bytes that `ids` stand for. Throws Error for an id outside the vocabulary.
  virtual std::string decode(std::span<const TokenId> ids) const = 0;

  /// The bytes of one id inside a text. Those of all ids together are what decode() gives, save where a tokenizer
  /// treats the beginning of a text in its own way. Throws Error for an id outside the vocabulary.
  virtual std::string text_of(TokenId id) const { return decode({&id, 1}); }

  /// What load_tokenizer() (torsor/data/tokenizer_file.h) reads back as the same tokenizer when it lies in one folder;
  /// nothing where the name says it all.
  virtual std::vector<TokenizerFile> files() const { return {}; }

 protected:
  Tokenizer() = default;
};

/// One id a byte (256 ids). decode(encode(text)) == text for every sequence of bytes, valid UTF-8 or not.
class ByteTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "bytes"; }
  std::uint32_t vocabulary_size() const override { return 256; }
  std::vector<TokenId> encode(std::string_view text) const override;
  std::string decode(std::span<const TokenId> ids) const override;
};

}  // namespace torsor
