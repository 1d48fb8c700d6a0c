// WordPiece, the tokenizer of BERT: words at white space and punctuation, each cut into the longest pieces that the
// vocabulary has.
//
//     "Héllo, worlds!"  ->  "hello", ",", "worlds", "!"  ->  hello , world ##s !
//
// A text does not come back byte for byte: case and accents may be gone, white space is, and so is what the vocabulary
// does not know. Whatever needs the bytes of a text back (training, losses a byte) refuses such a tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "torsor/base/gguf.h"
#include "torsor/data/bpe_added.h"
#include "torsor/data/tokenizer.h"

namespace torsor {

/// All that decides the ids of a text.
struct WordPieceModel {
  std::vector<std::string> vocabulary;  ///< by id; of an added token its text
  std::vector<BpeAddedToken> added;     ///< [CLS] and others that are found in the raw text, in any order
  std::string unknown = "[UNK]";        ///< stands for a word that cannot be cut into pieces
  std::string prefix = "##";            ///< of pieces that do not begin a word
  std::size_t longest_word = 100;       ///< a word of more code points is unknown
  bool clean_text = true;               ///< drop controls and U+FFFD, turn white space into spaces
  bool chinese = true;                  ///< every character of the blocks of Chinese is a word
  bool strip_accents = true;            ///< decompose (NFD) and drop nonspacing marks
  bool lowercase = true;
  bool cleanup = true;                         ///< decode() removes the space before . ? ! , n't 'm 's 've 're
  std::string begin = "[CLS]", end = "[SEP]";  ///< of with_specials(); may be missing in the vocabulary
};

/// Words are what Hugging Face's BertNormalizer and BertPreTokenizer make of a text: controls (Cc, Cf, Co) are dropped,
/// characters of Chinese stand alone, marks (Mn) are dropped and case is lowered where the model says so; words end at
/// white space, and punctuation (P*, and all of ASCII that is no letter, digit, space or control) stands alone. Bytes
/// that are not UTF-8 count as U+FFFD.
class WordPieceTokenizer : public Tokenizer {
 public:
  /// Throws Error when a token is empty, no UTF-8 or stands twice, the unknown token is none, or an added token does
  /// not stand in the vocabulary at its id.
  explicit WordPieceTokenizer(WordPieceModel model);

  /// Reads a tokenizer.json of type WordPiece; a vocab.txt, one token a line; or a folder with the one or else the
  /// other. Beside a vocab.txt, tokenizer_config.json tells do_lower_case, strip_accents, tokenize_chinese_chars and
  /// the names of special tokens; without it a vocabulary that has a word with a capital letter is cased, any other
  /// uncased. Throws Error naming the file and the key or line.
  static std::shared_ptr<const WordPieceTokenizer> load(const std::string& path);
  /// A tokenizer.json in memory; `source` names it in messages.
  static std::shared_ptr<const WordPieceTokenizer> parse_json_text(std::string_view text, const std::string& source);
  /// A vocab.txt in memory with a tokenizer_config.json, empty for none.
  static std::shared_ptr<const WordPieceTokenizer> parse_vocabulary(std::string_view text, std::string_view config,
                                                                    const std::string& source);
  /// The vocabulary of a GGUF file whose tokenizer.ggml.model is "bert" (uncased, as llama.cpp has it).
  static std::shared_ptr<const WordPieceTokenizer> of_gguf(const GgufFile& file);

  /// "wordpiece-" and 16 digits of the SHA-256 of the model, without the marks of with_specials().
  std::string name() const override { return name_; }
  std::uint32_t vocabulary_size() const override { return static_cast<std::uint32_t>(model_.vocabulary.size()); }
  /// The ids of a text, without [CLS] and [SEP].
  std::vector<TokenId> encode(std::string_view text) const override;
  /// The tokens with spaces between, pieces that go on with a word joined to it, and with `cleanup` no space before
  /// some punctuation, as Hugging Face's decoder does. Special tokens are written out.
  std::string decode(std::span<const TokenId> ids) const override;
  /// The token with the space before it, if it has one inside a text.
  std::string text_of(TokenId id) const override;
  std::vector<TokenizerFile> files() const override { return {{"tokenizer.json", json()}}; }

  /// One or two texts as encoders read them: [CLS] first [SEP], and then second [SEP].
  struct Input {
    std::vector<TokenId> ids;
    std::vector<std::uint8_t> segments;  ///< of every id: 0, or 1 for the second text and its [SEP]
  };
  /// Throws Error where the vocabulary has no such tokens.
  Input with_specials(std::string_view first, std::optional<std::string_view> second = std::nullopt) const;

  /// A tokenizer.json that load() and Hugging Face's tokenizers read: the same ids.
  std::string json() const;

  const WordPieceModel& model() const { return model_; }

 private:
  void check_added();
  std::string identity() const;
  std::string normalized(std::string_view text) const;
  void encode_normalized(std::string_view text, std::vector<TokenId>& ids) const;
  void encode_word(std::string_view word, std::vector<TokenId>& ids) const;
  std::string written(TokenId id, bool first, std::size_t index) const;

  WordPieceModel model_;
  std::unordered_map<std::string_view, TokenId> ids_;    // looking into model_
  std::unordered_map<std::string_view, TokenId> inner_;  // pieces that go on with a word, without the prefix
  std::size_t longest_ = 0;                              // bytes of the longest token
  AddedTokenFinder raw_, normalized_;
  TokenId unknown_ = 0;
  std::string name_;
};

}  // namespace torsor
