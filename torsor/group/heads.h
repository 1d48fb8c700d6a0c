// How heads, groups of heads and tokens meet in the functions of this folder.
#pragma once

#include <ATen/ATen.h>

#include "torsor/base/error.h"

namespace torsor::group {

/// (B, H, T, D) seen as (B, G, H / G, T, D).
inline at::Tensor split_heads(const at::Tensor& x, std::int64_t groups) {
  return x.unflatten(1, {groups, x.size(1) / groups});
}

/// A gradient (B, G, h, T) summed to a clock of shape (B|1, G|1, T), in its dtype.
inline at::Tensor sum_to_tokens(const at::Tensor& gradient, const at::Tensor& clock) {
  return gradient.sum(2).sum_to_size(clock.sizes()).to(clock.scalar_type());
}

/// Throws Error unless x is (B, H, T, D) in float32 or float64, `of_groups` (G, D, ...) with G a divisor of H, and
/// `clock` (B or 1, G or 1, T).
inline void check_heads(const char* function, const at::Tensor& x, const at::Tensor& of_groups,
                        const at::Tensor& clock) {
  if (x.dim() != 4 || (x.scalar_type() != at::kFloat && x.scalar_type() != at::kDouble))
    throw Error(str(function, ": x must have shape (batch, heads, tokens, width) in float32 or float64, found ",
                    x.sizes(), " ", x.scalar_type()));
  if (of_groups.dim() < 2 || of_groups.size(0) < 1 || x.size(1) % of_groups.size(0) != 0 ||
      of_groups.size(1) != x.size(3))
    throw Error(str(function, ": generators must have shape (groups, width, ...) with groups that divide the ",
                    x.size(1), " heads and width ", x.size(3), ", found ", of_groups.sizes()));
  if (clock.dim() != 3 || (clock.size(0) != 1 && clock.size(0) != x.size(0)) ||
      (clock.size(1) != 1 && clock.size(1) != of_groups.size(0)) || clock.size(2) != x.size(2))
    throw Error(str(function, ": turns must have shape (1 or ", x.size(0), ", 1 or ", of_groups.size(0), ", ",
                    x.size(2), "), found ", clock.sizes()));
}

}  // namespace torsor::group
