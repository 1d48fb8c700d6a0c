// KV-shift: keys and values mixed with those of the token before.
#pragma once

#include <ATen/ATen.h>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// Keys and values (B, K, T, D) of tokens after the shift, and what the next tokens need.
struct Shifted {
  at::Tensor k, v;
  /// For the cache, an entry a token: the unmixed key and value (B, K, T, D) of the newest token up to it that exists,
  /// and its document (B, 1, T).
  NamedTensors newest;
};

/// out_t = a_t y_{t-1} + (1 - a_t) y_t with a_t = sigmoid(weight . x_t) a head, for keys and values apart
/// (Zhang et al. 2026, arXiv 2512.07805, the authors' code: k_shift and v_shift).
///
/// y_{t-1} is the unmixed key or value of the token before it in its document, padding left out; zero where there is
/// none. k and v (B, K, T, D) as projected, before QK-norm and any rotation; x (B, T, C) the block's input; weights
/// (K, C); documents (B, T) int64 with -1 = padding, or undefined; counts (B) tokens of each row that exist, or
/// undefined. `before` is what the cache remembered of each row's newest token (Shifted::newest, one token), or empty:
/// no token came before. The mixture is computed in float32 at least.
Shifted kv_shift(const at::Tensor& k, const at::Tensor& v, const at::Tensor& x, const at::Tensor& k_weight,
                 const at::Tensor& v_weight, const at::Tensor& documents, const at::Tensor& counts,
                 const NamedTensors& before);

}  // namespace torsor
