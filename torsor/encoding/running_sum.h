// Running sums over the tokens of a row, as forget gates and contextual phases need them.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "torsor/encoding/encoding.h"
#include "torsor/group/phase.h"

namespace torsor {

/// For every arriving token the sum of `values` (B, H, T) over the tokens of its document up to itself, without and
/// with itself: (B, H, T) float64 each. A document that comes back goes on where it stopped. Padding, tokens past their
/// row's length and other documents add nothing, whatever their values are; what the sum of a token that does not exist
/// holds has no meaning.
///
/// The sums so far are read from `state` and put back there: `name`.sum (B, H, n) float64 and `name`.document (B, n)
/// int64, one entry a document that the row has met (-1 in unused places).
group::RunningSums running_sum(const at::Tensor& values, const Side& arriving, const std::string& name,
                               NamedTensors& state);

/// The state that running_sum() had after the tokens of `tokens`, of which it answered these sums `through` each.
NamedTensors rewound_sum(const at::Tensor& sums, const Side& tokens, const std::string& name);

}  // namespace torsor
