// Where tokens stand in rows that begin with padding.
#pragma once

#include <ATen/ATen.h>

namespace torsor {

/// Positions (B, T, 1) float64 that count the tokens of a row and no padding: the running sum of those that exist, less
/// one. Undefined where no padding stands before a token, so that 0, 1, 2 ... says the same. `documents` (B, T) int64,
/// -1 = padding, or undefined.
at::Tensor positions_without_padding(const at::Tensor& documents);

}  // namespace torsor
