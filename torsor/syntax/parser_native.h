// The native parsers behind the door: words from text, trees from words.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "torsor/syntax/native_biaffine.h"
#include "torsor/syntax/native_incremental.h"
#include "torsor/syntax/parser.h"
#include "torsor/syntax/tokenizer.h"

namespace torsor::syntax {

/// A model folder of either kind. The one of kind "incremental" reads text word by word, finds the ends of sentences
/// itself and is prefix safe; given tokens, it is told where sentences end.
class NativeParser final : public Parser {
 public:
  /// Throws Error for a folder that holds no sound model.
  explicit NativeParser(const std::string& folder);

  const ParserInfo& info() const override { return info_; }
  std::vector<ParsedSentence> parse_tokens(const std::vector<std::vector<std::string>>& sentences) override;
  std::vector<ParsedSentence> parse_text(const std::string& text) override;
  std::unique_ptr<WordParser> word_parser() override;
  std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }

 private:
  std::vector<TaggedTree> parse(const std::vector<std::vector<std::string>>& sentences) const;

  ParserInfo info_;
  std::shared_ptr<const BiaffineNetwork> biaffine_;
  std::shared_ptr<const IncrementalNetwork> incremental_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace torsor::syntax
