// Where tokens stand in rows with padding and several texts.
#pragma once

#include <ATen/ATen.h>

namespace torsor {

/// Positions (B, T, 1) float64 that count the tokens of each document from 0, and no padding, which stands at 0.
/// Undefined where 0, 1, 2 ... says the same of all tokens. `documents` (B, T) int64, -1 = padding, or undefined.
at::Tensor positions_in_documents(const at::Tensor& documents);

}  // namespace torsor
