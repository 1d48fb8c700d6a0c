// A text that grows at its end, read once: what its tokens show in mode incremental, as they come.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "torsor/syntax/feature_stream.h"
#include "torsor/syntax/parse.h"
#include "torsor/syntax/parser.h"
#include "torsor/syntax/tokenizer.h"

namespace torsor::syntax {

/// Gives for every token what syntax_features would give for it in the incremental parse of the whole text, whatever
/// comes behind it. Each byte is read once; the work for a token does not grow with the text. Bytes that are no UTF-8,
/// which a whole text may not hold, are read as characters of their own.
class TextStream {
 public:
  /// `parser` is reset. Throws UsageError for another rule than kDelayed, Error for a parser that is not prefix safe.
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, std::unique_ptr<WordParser> parser, const BackendId& backend,
             const FeatureOptions& options);

  /// The next token: the bytes that it adds to the text; none for a special token. Throws Error as the parser does, and
  /// where the text would reach 4 GiB.
  FeatureStream::Token read(std::string_view bytes);

  std::size_t size() const { return reader_.size(); }  ///< bytes read
  const Parse& parse() const { return parse_.so_far(); }

 private:
  void take(const ReadToken& token);

  std::unique_ptr<WordParser> parser_;
  WordReader reader_;
  IncrementalParse parse_;
  FeatureStream features_;
};

}  // namespace torsor::syntax
