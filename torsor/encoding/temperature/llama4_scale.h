// llama4-scale: a query's logits grow by steps of its position.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// Multiplies q.k of the query at position p by 1 + scale * ln(floor((p + 1) / length) + 1) (Llama 4 release, 2025,
/// on its position-free layers; Nakanishi 2025, arXiv:2501.19399, for the idea). One factor a query.
NameInfo llama4_scale_name();

}  // namespace torsor
