// cope: positions counted by gates that read the content.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `cope(length=64)`: a position that counts content (Golovneva et al. 2024, section 4).
///
/// With the finished logits s_ij (moved, scaled, other biases added, masked), gates g_ij = sigmoid(s_ij) and
/// p_ij = min(sum of g_it over the visible keys t from j to i, length - 1), the bias is the value at p_ij of the
/// straight lines through q_i.e_0, q_i.e_1, ...: q unscaled and before any move. Trained: `table` (length, D), one row
/// a position, shared by the heads. Positions of the tokens are not read; order in the sequence is. Causal attention
/// only.
NameInfo cope_name();

}  // namespace torsor
