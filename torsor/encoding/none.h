// none: no positional encoding at all.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `none`: nothing is added, moved or scaled. Under a causal mask a decoder can still learn order from what each token
/// sees (Haviv et al. 2022, "Transformer Language Models without Positional Encodings Still Learn Positional
/// Information"); without the mask it sees a set.
NameInfo none_name();

}  // namespace torsor
