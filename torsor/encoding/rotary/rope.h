// rope: rotary position embedding, the plain one and its variants.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// Plane i of q and k turns by position * base^(-2i/d) (Su et al. 2021, arXiv:2104.09864, eq. 15).
/// Trained with learn=true: NAME.log_freq (1 or key heads, planes), frequency = exp(log_freq).
NameInfo rope_name();

}  // namespace torsor
