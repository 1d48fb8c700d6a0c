// Language modelling at several lengths: every length scores the same targets once, in non-overlapping windows of that
// length inside a document (evaluation.md, rules of evidence).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/data/batches.h"
#include "torsor/lab/syntax_feed.h"
#include "torsor/model/decoder.h"

namespace torsor {

/// Tokens of a call when a model is judged, which bound its memory.
inline constexpr std::int64_t kTokensAtOnce = 8192;

struct LmEvaluation {
  std::int64_t length = 0;
  bool refused = false;
  std::string reason;           ///< why it was refused
  double loss = 0;              ///< mean nats a target
  std::size_t words = 0;        ///< words that begin among the targets, by white space; 0 where tokens are no text
  std::size_t bytes = 0;        ///< of the targets' text; 0 where there is none
  bool leaks = false;           ///< the loss is conditional on inputs that tell of later tokens: no perplexity
  std::optional<double> joint;  ///< mean nats a target of tokens and their tags together, of a model with tag heads
  std::vector<double> windows;  ///< mean loss of each window
  struct Bucket {
    std::int64_t from = 0, to = 0;  ///< positions of the inputs, `to` exclusive
    double loss = 0;
  };
  std::vector<Bucket> positions;
};

/// What the targets of a batch of windows cost, (B, T) float64 nats each; the tags undefined without tag heads.
struct WindowLosses {
  at::Tensor tokens, tags;
};
/// `windows` are batch.tokens as (B, T + 1).
WindowLosses window_losses(const Decoder& model, const Corpus& corpus, const Batch& batch, const at::Tensor& windows,
                           const SyntaxFeed* feed, at::ScalarType dtype);

/// Of tokens[first] to tokens[last], `first` at least 1: their bytes, and how many words begin there (visible bytes
/// behind white space). Nothing where `reader` is nothing.
struct TextAmount {
  std::size_t words = 0, bytes = 0;
};
TextAmount text_among(const Tokenizer* reader, const std::int64_t* tokens, std::size_t first, std::size_t last);

/// `stop` is asked between calls of the model; when it answers true, Interrupted is thrown. `feed` gives the per-token
/// inputs of an encoding that reads some.
///
/// A model with tag heads (tag_heads.h) is also asked for the joint bound: tokens and tags of every target, and the
/// tags of the first token of each stretch of text, which nothing predicts, at the price of equally likely values.
LmEvaluation evaluate_lm(const Decoder& model, const Corpus& corpus, const EvaluationPlan& plan, std::int64_t length,
                         at::ScalarType dtype, const std::function<bool()>& stop = {},
                         const SyntaxFeed* feed = nullptr);

/// The entry of results.json; bits a byte, and a perplexity of words beside that of tokens, only where tokens are text.
/// An evaluation that leaks has no loss and no perplexity: "cond_ppl" (of tokens), "joint_ppl" (or null) and "leaks"
/// stand in their place.
Json evaluation_to_json(const LmEvaluation& evaluation);

}  // namespace torsor
