// Raw text to sentences of words, as a treebank cuts them: learned counts of where tokens and sentences end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/syntax/conllu.h"

namespace torsor::syntax {

/// The raw text of a treebank: its documents (treebank_texts) with a blank line between them.
std::string raw_text(const std::vector<Sentence>& sentences);

/// Cuts text. Tokens never hold white space and sentences end at blank lines; between two characters of a stretch
/// without white space, and behind every token, what the treebank did most often in the same surroundings decides:
/// the longest surroundings that occur often enough. Multiword tokens are opened as in the treebank: whole forms that
/// it opens, and endings ("n't", "'s") of others.
class Tokenizer {
 public:
  Tokenizer() = default;
  /// Learns from a treebank. Sentences whose tokens do not spell their text are passed over.
  explicit Tokenizer(const std::vector<Sentence>& treebank);

  /// The sentences of UTF-8 text: words without tags or heads, multiword ranges, "# text", SpaceAfter=No. Together they
  /// spell `text` up to white space.
  std::vector<Sentence> sentences(std::string_view text) const;

  /// The words of a surface token: itself, or its members.
  std::vector<std::string> words_of(const std::string& token) const;

  /// Whether a token ends between what has been read of it and the next character, decided from these two alone; true
  /// for white space.
  bool ends_before(std::string_view token, char32_t next) const;

  Json to_json() const;
  /// Throws Error naming `source` for what to_json did not write.
  static Tokenizer from_json(const Json& json, const std::string& source);

 private:
  using Counts = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;  ///< {surroundings: {no, yes}}

  bool decide(const std::vector<std::string>& surroundings, bool otherwise) const;
  std::vector<std::pair<std::size_t, std::size_t>> tokens(std::string_view text) const;
  void learn_tokens(const std::vector<Sentence>& treebank, Counts& counts);
  static void learn_ends(const std::vector<Sentence>& treebank, Counts& counts);
  void learn_multiwords(const std::vector<Sentence>& treebank);

  std::map<std::string, bool, std::less<>> decisions_;          ///< surroundings to whether something ends
  std::map<std::string, std::vector<std::string>> multiwords_;  ///< lower-case forms to their members
  std::vector<std::string> endings_;                            ///< lower case, longest first
};

/// A surface token as it was read.
struct ReadToken {
  std::string form;
  std::vector<std::string> words;  ///< itself, or the members of a multiword token, which spell it
  std::size_t begin = 0, end = 0;  ///< bytes since the start
  std::size_t known = 0;           ///< bytes that had been read when it was whole; one more than all at the text's end
  bool after_blank_line = false;   ///< a blank line stands before it
};

/// Tokens as the bytes of a text arrive: a token comes out when the byte that ends it has been read, and no later byte
/// changes it. Copies go on independently.
class WordReader {
 public:
  explicit WordReader(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  /// The tokens that end with these bytes; a code point may come in pieces.
  std::vector<ReadToken> read(std::string_view bytes);
  /// The token that the end of the text ends, if any.
  std::vector<ReadToken> finish();

  /// Bytes read so far.
  std::size_t size() const { return read_; }
  /// A token that has begun and is not whole: how many bytes had been read with its first character, and whether a
  /// blank line stands before it.
  struct Begun {
    std::size_t begun = 0;
    bool after_blank_line = false;
  };
  std::optional<Begun> begun() const;

 private:
  void close(std::vector<ReadToken>& tokens);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string token_;    // of which nothing has come out
  std::string pending_;  // bytes of an unfinished code point
  std::size_t read_ = 0, begin_ = 0, begun_ = 0;
  int newlines_ = 0;  // since the last token
  bool blank_line_ = false;
};

}  // namespace torsor::syntax
