// ntk-by-parts: the forerunner of YaRN, with ramps of its own and no magnitude.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// Blends three sets of frequencies over the plane index: plain theta for planes that turn often, the NTK ones between,
/// theta/factor for planes that hardly turn. The ramps run from 1.25 to 0.75 and from 16 to 2 turns within train_length
/// (constants of the released code of the YaRN authors; not YaRN's 32 and 1).
NameInfo ntk_by_parts_name();

}  // namespace torsor
