// Moves a model from its encoding to another one that means the same.
#pragma once

#include <cstdint>
#include <string>

#include "torsor/model/decoder.h"

namespace torsor {

/// How far apart the logits of two models lie on the same tokens.
struct LogitsDifference {
  double worst = 0;         ///< largest |a - b| over the largest |a|
  std::int64_t rows = 0;    ///< of tokens drawn at random
  std::int64_t tokens = 0;  ///< of a row
};

/// Both models on the same rows of random tokens, as many as the training length and at most 64 a row; fewer where an
/// encoding refuses that many. Throws Refusal when it refuses even one token.
LogitsDifference compare_logits(const Decoder& a, const Decoder& b, std::uint64_t seed);

/// What float32 may leave between the logits of two models of this depth that mean the same, in units of
/// LogitsDifference::worst. Measured on models of random weights it is a tenth of that.
double logits_rounding(const ModelConfig& config);

struct Converted {
  Decoder model;
  LogitsDifference difference;  ///< from the model that it was made of
};

/// The same function of its tokens under the encoding expression `encoding`: what can be said exactly is said by
/// trained tensors, permuted rows of W_Q and W_K (and of the q- and k-norm gains), or an orthogonal basis folded into
/// them; anything else is refused.
///
///   rotations   any two that turn planes at the same speeds: rope and its scalings, grape-m. Layouts and orientations
///               are permutations, bit-exact and back again; a trained basis, or planes of trained vectors, are folded
///               (GRAPE, arXiv:2512.07805: q.k only sees the product of both sides' bases)
///   slopes      alibi and grape-a, fixed or trained
///   the rest    only under the same term
///
/// Sums, heads(...) and layers(...) convert term by term and layer by layer, when the same heads have as many terms.
/// Afterwards both models are compared on random tokens drawn from `seed`.
///
/// Throws Refusal with the reason where no exact conversion exists, UsageError when `encoding` is no expression for
/// this model, Error when the logits differ by more than logits_rounding().
Converted convert_model(const Decoder& model, const std::string& encoding, std::uint64_t seed = 0);

}  // namespace torsor
