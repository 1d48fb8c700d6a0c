// kerple: a trained logarithm or power of the distance.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `kerple(kind=log)`: b = -r1 ln(1 + r2 |n|); `kind=power`: b = -r1 |n|^r2, n = p_q - p_k (Chi et al. 2022, section
/// 4).
///
/// Trained: `r1`, `r2` (H). As used, both are at least 0.01 and the power's exponent r2 is at most 2 (the bound up to
/// which the kernel is conditionally positive definite); a value beyond has no gradient.
NameInfo kerple_name();

}  // namespace torsor
