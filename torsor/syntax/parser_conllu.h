// Parses that lie in CoNLL-U files: the format in which parses are exchanged.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "torsor/syntax/parser.h"

namespace torsor::syntax {

/// Answers from a file: the sentences of a text that is the file's text (up to white space), or a sentence with the
/// words of one of the file's. Everything else is unparsed.
class ConlluParser final : public Parser {
 public:
  /// Throws Error for a file that cannot be read or is not sound.
  explicit ConlluParser(const std::string& path);

  const ParserInfo& info() const override { return info_; }
  std::vector<ParsedSentence> parse_tokens(const std::vector<std::vector<std::string>>& sentences) override;
  std::vector<ParsedSentence> parse_text(const std::string& text) override;

 private:
  ParserInfo info_;
  std::vector<Sentence> sentences_;
  std::map<std::vector<std::string>, std::vector<std::size_t>> by_words_;  ///< sentences of these words, in order
  std::size_t last_ = 0;  ///< answered last: of sentences with the same words, the one behind it comes next
  /// Where each sentence begins in the file's text without white space: {offset, index}.
  std::map<std::size_t, std::size_t> by_offset_;
  std::string text_;
};

}  // namespace torsor::syntax
