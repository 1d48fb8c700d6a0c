// The attention half of a block, between its norm and the addition to the residual stream.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "torsor/attention/kv_cache.h"
#include "torsor/model/config.h"
#include "torsor/model/lora.h"
#include "torsor/model/project.h"

namespace torsor {

/// Trained tensors of one layer's attention, weights as (outputs, inputs); Hq query heads, K key heads of width D.
struct AttentionWeights {
  at::Tensor q, k, v, o;                      ///< (Hq D, C), (K D, C), (K D, C), (C, Hq D)
  at::Tensor q_bias, k_bias, v_bias, o_bias;  ///< (Hq D), (K D), (K D), (C), where the model has them
  at::Tensor q_norm, k_norm;                  ///< (D), with qk_norm
  at::Tensor k_shift, v_shift;                ///< (K, C), with kv_shift
  NamedTensors position;                      ///< the encoding's
  LayerLowRank low_rank;                      ///< trained beside q, k, v and o; most models have none
};

/// What a block's attention gives.
struct AttentionOutput {
  at::Tensor mixed;     ///< (B, T, C), projected back
  at::Tensor averages;  ///< (B, Hq, T, Dw) of what the encoding carries along; undefined where nothing is
};

/// Projects x (B, T, C), the block's normalised input, shifts keys and values where the model does, attends with the
/// encoding and projects back. `options` brings positions, documents, the position state and the number of layers;
/// `counts` (B) and `cache` as in KvCache::attend. `dtype` is that of the projections.
AttentionOutput attention_layer(const ModelConfig& config, const AttentionWeights& weights, const Encoding& encoding,
                                std::int64_t layer, const at::Tensor& x, const AttendOptions& options,
                                const at::Tensor& counts, KvCache* cache, at::ScalarType dtype);

/// Attention from x (B, T, C), normalised, to what an encoder left behind: keys and values (B, K, S, D), `documents` as
/// in Memory. Positions play no part; `none` is the encoding that says so.
at::Tensor cross_attention(const ModelConfig& config, const AttentionWeights& weights, const Encoding& none,
                           const at::Tensor& x, const at::Tensor& keys, const at::Tensor& values,
                           const at::Tensor& documents, at::ScalarType dtype);

}  // namespace torsor
