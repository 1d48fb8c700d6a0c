// What an encoding does to a logit by distance, in numbers for a picture.
#pragma once

#include <cstdint>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/model/decoder.h"

namespace torsor {

/// {"encoding", "kind": "none"|"bias"|"rotation"|"content", "distances", "per_head", "note"} of the model's first layer
/// with its present weights. A rotation is shown as the mean cosine over its planes.
Json effect_of(const Decoder& model, std::int64_t longest);

/// Distances for a picture: 0, 1, 2 ... then about six a doubling, up to `longest`.
std::vector<double> distances_up_to(std::int64_t longest);

/// The trained tensors of layer 0 in plain numbers.
PlainParameters plain_parameters(const NamedTensors& parameters);

}  // namespace torsor
