// xpos: a rotation whose planes fade with the distance.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// rope, and the product of plane i times zeta_i^((p_q - p_k) / scale_base), zeta_i = (2i + gamma d) / ((1 + gamma) d)
/// (Sun et al. 2022, arXiv:2212.10554). Only the distance enters, so the factor is applied tile by tile and
/// neither overflows nor is stored with a key. A key after its query grows instead of fading: meant for causal order.
NameInfo xpos_name();

}  // namespace torsor
