// The perplexities of a text, kept apart: a token's, a word's, and what must not be called one (sipe.md 6.4).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "torsor/base/json.h"
#include "torsor/data/corpus.h"
#include "torsor/lab/evaluate.h"
#include "torsor/model/decoder.h"

namespace torsor {

struct SlidingOptions {
  std::int64_t length = 128;  ///< tokens that the model sees at once
  std::int64_t stride = 64;   ///< tokens that a window moves on, 1 to length
  at::ScalarType dtype = at::kFloat;
  const SyntaxFeed* feed = nullptr;
  std::function<bool()> stop;  ///< asked between calls of the model; true = Interrupted is thrown
};

/// Over every target of every document, each scored once: a window scores its last `stride` targets, the first window
/// of a document all of its own. The first token of a document is no target, and no end of text is counted.
struct TextPerplexity {
  double nats = 0;  ///< of all targets together
  std::size_t tokens = 0;
  std::size_t words = 0;  ///< that begin among the targets, by white space; 0 where tokens are no text
  bool leaks = false;
  std::optional<double> joint_nats;  ///< with the tags', of a model with tag heads (evaluate_lm)
};

/// Throws UsageError for a stride outside 1 to length, Error when no document has two tokens, Refusal where the
/// encoding refuses the length.
TextPerplexity sliding_perplexity(const Decoder& model, const Corpus& corpus, const SlidingOptions& options);

/// {"tokens", "words", "token_ppl", "word_ppl" (or null)}, or under an encoding that leaks {"tokens", "words", "leaks":
/// true, "cond_ppl", "joint_ppl"} with the last per token as well.
Json perplexity_to_json(const TextPerplexity& perplexity);

}  // namespace torsor
