// t5: a trained table over distance buckets.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `t5(buckets=32, max_distance=128, bidirectional=false, far=clamp, shared=false)`: b = table[bucket(p_q - p_k)][h]
/// with the trained `table` (buckets, H). bucket.h has the rule. `shared=true` keeps one table for all layers. (Raffel
/// et al. 2020, section 2.1.) T5 itself uses scale = 1; this encoding leaves the scale alone.
NameInfo t5_name();

}  // namespace torsor
