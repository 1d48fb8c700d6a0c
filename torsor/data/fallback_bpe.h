// BPE on characters, with bytes for those that have no token: the kind of Llama 2, Mistral and Gemma as a
// tokenizer.json has it, with a list of merges where SentencePiece has scores.
//
//     "Hi \u20AC"  ->  "_Hi_\u20AC"  ->  "_", "H", "i", "_", <0xE2>, <0x82>, <0xAC>  ->  "_Hi", "_", <0xE2>, <0x82>,
//     <0xAC>
//
// where _ stands for U+2581.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torsor/data/bpe_added.h"
#include "torsor/data/bpe_merge.h"
#include "torsor/data/tokenizer.h"

namespace torsor {

/// All that decides the ids of a text.
struct FallbackBpeModel {
  /// Which texts between added tokens get U+2581 before them, after spaces have become it.
  enum class Prefix {
    none,
    each,           ///< every one, also where it begins with a space
    each_bare,      ///< every one that does not begin with it already
    first_if_bare,  ///< the one that the whole text begins with, unless it begins with it already
  };

  std::vector<std::string>
      vocabulary;                    ///< the text of every id, with U+2581 for a space; "<0x00>" to "<0xFF>" are bytes
  std::vector<BpeMerge> merges;      ///< by rank
  std::vector<BpeAddedToken> added;  ///< in any order
  Prefix prefix = Prefix::each;
  /// Whether spaces change before the added tokens with `normalized` are sought, in these tokens too.
  bool early_spaces = true;
  bool split_words = false;           ///< no token crosses from one U+2581 to the next; else they may
  bool ignore_merges = false;         ///< a piece that is a token is that one, whatever the merges make of it
  std::optional<TokenId> begin = {};  ///< an added token that goes before every text, and has no text itself
};

/// Valid UTF-8 comes back byte for byte, and so do other bytes, each as its token, save that U+2581 comes back as a
/// space, that `begin` has no text, and for the spaces of the model: decoding takes away the one before the whole text,
/// and no other.
class FallbackBpeTokenizer : public Tokenizer {
 public:
  /// Throws Error when a byte has no token, texts stand twice, a merge does not make what it says, or an added token is
  /// not at its id.
  explicit FallbackBpeTokenizer(FallbackBpeModel model);

  /// Reads a tokenizer.json: a BPE model with byte_fallback; `normalizer` Prepend and Replace of spaces, or Replace
  /// alone; or else `pre_tokenizer` Metaspace; `post_processor` as BpeTokenizer reads it. Anything else is an Error
  /// that names the file and the key.
  static std::shared_ptr<const FallbackBpeTokenizer> load(const std::string& path);
  /// The same in memory; `source` names it in messages.
  static std::shared_ptr<const FallbackBpeTokenizer> parse(std::string_view text, const std::string& source);

  FallbackBpeTokenizer(const FallbackBpeTokenizer&) = delete;
  FallbackBpeTokenizer& operator=(const FallbackBpeTokenizer&) = delete;

  /// "fallbackbpe-" and 16 digits of the SHA-256 of all that decides ids.
  std::string name() const override { return name_; }
  std::uint32_t vocabulary_size() const override { return static_cast<std::uint32_t>(model_.vocabulary.size()); }
  std::vector<TokenId> encode(std::string_view text) const override;
  std::string decode(std::span<const TokenId> ids) const override;
  std::string text_of(TokenId id) const override { return bytes_of(id, 0); }
  std::vector<TokenizerFile> files() const override { return {{"tokenizer.json", json()}}; }

  /// A tokenizer.json that load() and Hugging Face's tokenizers read: the same ids.
  std::string json() const;

  const FallbackBpeModel& model() const { return model_; }

 private:
  struct Encoding;

  void check_added() const;
  void find_bytes();
  void find_words();
  std::string identity() const;

  /// `text` with U+2581 for spaces, and before it where the model says so.
  std::string spaced(std::string_view text, bool first) const;
  void encode_text(std::string_view text, bool first, Encoding& encoding) const;
  void encode_plain(std::string_view text, Encoding& encoding) const;
  void merge_piece(std::string_view piece, Encoding& encoding) const;
  std::string bytes_of(TokenId id, std::size_t index) const;

  FallbackBpeModel model_;
  std::array<TokenId, 256> byte_ids_{};
  std::unordered_map<TokenId, unsigned char> bytes_;
  std::unordered_map<std::string_view, TokenId> ids_;
  std::vector<bool> is_added_;
  MergeRanks ranks_;
  bool words_apart_ = false;  // no merge crosses from another character to U+2581, so words may be merged one by one
  AddedTokenFinder raw_, normalized_;
  std::string name_;
};

}  // namespace torsor
