// Encodings made of encodings: sums, head mixtures, patterns over the layers.
#pragma once

#include <memory>
#include <vector>

#include "torsor/encoding/encoding.h"

namespace torsor {

using EncodingPointer = std::shared_ptr<const Encoding>;

/// `E + F`: every answer is the concatenation of the parts' answers. Throws UsageError when two parts turn the same
/// planes.
EncodingPointer make_sum(std::vector<EncodingPointer> parts, const Dimensions& dimensions);

/// `heads(E * n, F * m)`: each part answers for its own query heads, as if it were alone. The parts must have been made
/// for part_dimensions().
EncodingPointer make_heads(std::vector<EncodingPointer> parts, const Dimensions& dimensions);
/// Dimensions of one part of `count` query heads. Throws UsageError when a group of key heads would be cut.
Dimensions part_dimensions(const Dimensions& whole, std::int64_t count);

/// `layers(E * n, F * m)`: a pattern over the layers, repeated. `pattern` holds one entry a layer of the pattern.
EncodingPointer make_layers(std::vector<EncodingPointer> pattern, const Dimensions& dimensions);

}  // namespace torsor
