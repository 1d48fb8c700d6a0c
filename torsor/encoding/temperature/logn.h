// logn: a query's logits grow with the logarithm of its position.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// Multiplies q.k of the query at position p by max(1, ln(p + 1) / ln(L)), L = train_length (Su 2021, "entropy
/// invariance of attention"; Qwen). One factor a query.
NameInfo logn_name();

}  // namespace torsor
