// fox: forget gates that read the content.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `fox`: the Forgetting Transformer's data-dependent decay (Lin et al. 2025, arXiv 2503.02130, section 3).
///
/// With x the block's input and f_l = sigmoid(weight_h . x_l + bias_h), query i sees key j with
/// b = ln f_{j+1} + ... + ln f_i: the query's own gate counts, the key's does not, and b is 0 for the token itself.
/// Trained: `weight` (H, C), normal with deviation 0.5 / sqrt(C), and `bias` (H), zeros: at first half of the past is
/// left after one token. Gates are of query heads. Positions are not read; order in the sequence is. Padding and other
/// documents add nothing. Causal attention only.
NameInfo fox_name();

}  // namespace torsor
