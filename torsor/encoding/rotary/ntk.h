// ntk: NTK-aware scaling with a fixed factor.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// base' = base * factor^(d/(d - 2)): the fastest plane stays, the slowest is slowed by exactly the factor (bloc97
/// 2023, "NTK-aware scaled RoPE"; Peng et al. 2023, arXiv:2309.00071, section 3.1).
NameInfo ntk_name();

}  // namespace torsor
