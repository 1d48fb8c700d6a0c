// dynamic: NTK-aware scaling by as much as the document needs.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// With T the length of the token's own document and L = train_length: plain frequencies while T <= L, beyond it
/// base' = base * (factor T/L - (factor - 1))^(d/(d - 2)) (emozilla 2023, "Dynamically scaled RoPE"; Peng et al. 2023,
/// arXiv:2309.00071, section 3.3). A pure function of T: nothing is remembered from earlier calls.
NameInfo dynamic_name();

}  // namespace torsor
