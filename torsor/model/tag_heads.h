// Heads of a decoder that predict the syntax of the next token beside the token: what it costs to tell the tags that a
// model is given (sipe.md 3.4).
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "torsor/encoding/encoding.h"
#include "torsor/model/parameters.h"

namespace torsor {

/// The values of the two tags, "none" included (sipe.md 1.6).
inline constexpr std::int64_t kTauTags = 3;
inline constexpr std::int64_t kNuTags = 6;

/// What a token's sentence is to those before it: it has none; that of the last token that had one; a new one.
enum class SentenceStep : std::int64_t { None, Same, New, Count };

/// The steps of tokens 1 to N - 1 of rows of sentence numbers (B, N) int64, -1 = none: (B, N - 1) int64.
at::Tensor sentence_steps(const at::Tensor& sentences);

class TagHeads {
 public:
  /// Whether all that an encoding reads of a token can be told by such heads: tags, or tags and sentences. Vectors and
  /// arcs cannot.
  static bool serve(const Encoding& encoding);
  /// Whether a tensor is one of theirs.
  static bool owns(const std::string& parameter);

  TagHeads() = default;
  /// Tensors head.tau, head.nu and, where the encoding reads sentences, head.sentence: weight (classes, width) and bias
  /// (classes).
  TagHeads(const Declare& declare, std::int64_t width, const Encoding& encoding);

  bool there() const { return tau_.weight.defined(); }

  /// Nats of the tags of the next token, (B, T), from hidden states (B, T, C) and the per-token inputs of T + 1 tokens.
  /// The heads are asked at every position and know "none" too, since even that a token carries no tag is paid for;
  /// they are independent of each other given the hidden state.
  at::Tensor losses(const at::Tensor& hidden, const NamedTensors& named, at::ScalarType dtype) const;

  /// The same of a token that no position predicts, the first of a text: every value equally likely.
  double first_token() const;

 private:
  struct Head {
    at::Tensor weight, bias;
  };
  Head tau_, nu_, sentence_;
};

}  // namespace torsor
