// The numbers that an expression stands for: frequencies, biases by distance, slopes, buckets, embeddings,
// temperatures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/encoding/registry.h"

namespace torsor {

struct ValuesRequest {
  std::string encoding;
  Dimensions dimensions{.heads = 8, .head_dim = 64};
  double length = 0;                               ///< tokens T of the document; 0 = largest position + 1
  std::vector<double> positions = {0, 1, 2, 100};  ///< every axis of a position takes the same value
  std::vector<double> distances = {0, 1, 2, 100};  ///< n = position of the query - position of the key
  std::int64_t layer = 0;                          ///< for patterns over the layers
};

/// {"encoding", "rotation", "bias", "slopes", "buckets", "embedding", "temperature", "content", "trained"}; null where
/// the expression has no such thing. Numbers come from the encodings' plain definitions.
///
/// rotation: {"layout", "offset", "width", "blocks", "inv_freq" [plane] (radians a position; one list a key head where
///   they differ), "axis" [plane], "magnitude", "softmax_factor", "cos", "sin" [position][plane] (the magnitude
///   included)}; "decay" [plane] where planes fade with the distance (exponent a position); "heads" [begin, end) where
///   not all turn; "initial": true where the frequencies are trained and these are their first values. More rotations
///   of a sum or a head mixture follow under "further_rotations".
/// bias: {"distances", "per_head" [head][distance]}; null when a part of it is trained or reads content.
/// slopes, buckets (of the distances), embedding [position][channel], temperature [position] (one list a head where
/// heads
///   differ): null where there is none; slopes that are trained are the first ones.
/// content: what depends on content, described; trained: the trained tensors of the layer with their shapes.
///
/// Throws UsageError for an expression that is wrong or does not fit the dimensions, and for numbers that are not
/// finite.
Json encoding_values(const ValuesRequest& request);

/// The same for people: tables, and pictures in characters of the bias and of the mean cosine by distance.
std::string values_text(const ValuesRequest& request);

/// Query heads for an expression of which none are told: those of `dimensions`, or where it does not take so many (head
/// mixtures, lists of bases) the fewest that it takes.
std::int64_t fitting_heads(const std::string& encoding, const Dimensions& dimensions);

}  // namespace torsor
