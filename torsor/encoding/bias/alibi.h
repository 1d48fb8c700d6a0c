// alibi: a straight line in the distance.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `alibi(max_exponent=8, learn=false)`: b = -slope_h * |p_q - p_k| (Press et al. 2022, section 3).
///
/// For a power of two n of heads slope_h = 2^(-max_exponent (h + 1) / n). For any other n the first c = 2^floor(log2 n)
/// heads take the slopes of c heads, and the rest every second slope of 2c heads, the first one included.
/// With learn=true the slopes are trained: `slopes` (H), starting at these values.
NameInfo alibi_name();

}  // namespace torsor
