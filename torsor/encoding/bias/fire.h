// fire: a small network of the distance, seen relative to where the query stands.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `fire(hidden=32, length=512)`: b = b2_h + sum_k w2_hk relu(w1_k z + b1_k) with
/// z = ln(1 + |c n|) / (ln(1 + |c max(p_q, |mu length|)|) + 1e-6), n = p_q - p_k (Li et al. 2024, section 3).
///
/// Trained: `w1`, `b1` (hidden), `w2` (H, hidden), `b2` (H), `c`, `mu` (1). It depends on the query's absolute position
/// once that passes |mu length|: renumbering all tokens changes it.
NameInfo fire_name();

}  // namespace torsor
