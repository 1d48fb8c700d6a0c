// yarn: fast planes stay, slow planes are interpolated, attention is sharpened.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// theta'_i = (theta_i / s) r_i + theta_i (1 - r_i), r rising from plane dim(beta_fast) to plane dim(beta_slow);
/// cos and sin times 0.1 ln s + 1 (Peng et al. 2023, arXiv:2309.00071, sections 3.2 and 3.4).
/// With mscale_all_dim the softmax scale is multiplied by (0.1 mscale_all_dim ln s + 1)^2 as well (DeepSeek-V2, V3).
NameInfo yarn_name();

}  // namespace torsor
