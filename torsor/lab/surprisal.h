// Surprisals of sentences under a decoder.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "torsor/data/syntaxgym.h"
#include "torsor/lab/syntax_feed.h"
#include "torsor/model/decoder.h"

namespace torsor {

/// How sentences are shown to a model.
struct SentenceOptions {
  /// What stands before every sentence. Models of this project have no token for the beginning of a text, and the first
  /// token of a text has no surprisal at all: a paragraph's end is what they know a sentence after.
  std::string separator = "\n\n";
  bool final_period = false;  ///< suites alone: a '.' after sentences that end without a mark
  at::ScalarType dtype = at::kFloat;
  const SyntaxFeed* feed = nullptr;
  std::function<bool()> stop;  ///< asked between calls of the model; true = Interrupted is thrown
  std::shared_ptr<const Tokenizer> reader = std::make_shared<ByteTokenizer>();  ///< what the model reads
};

/// A sentence to be scored.
struct ScoredText {
  std::string text;
  const SuiteTree* tree = nullptr;  ///< its gold tree, for the feed
};

/// A sentence's tokens with their surprisals in bits, -log2 p(token | separator and tokens before). A token that begins
/// in the separator and ends in the sentence is one of the sentence's.
struct Surprisals {
  std::vector<ByteRange> tokens;
  std::vector<double> bits;

  double sum() const;
};

/// One entry a text. Texts of equally many tokens are run together, so that no encoding sees padding. Throws UsageError
/// for an empty separator, Error for an empty text, Refusal where the encoding refuses the length of one.
std::vector<Surprisals> surprisals_of(const Decoder& model, const std::vector<ScoredText>& texts,
                                      const SentenceOptions& options);

}  // namespace torsor
