// sandwich: the inner product of two sinusoidal vectors, as a bias.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `sandwich(width=128)`: b = sum over i < width/2 of cos(n / 10000^(2i / width)), divided by 8 (h + 1) / H; n = p_q -
/// p_k (Chi et al. 2023, section 5). Nothing is trained.
NameInfo sandwich_name();

}  // namespace torsor
