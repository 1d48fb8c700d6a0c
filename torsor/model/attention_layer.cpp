#include "torsor/model/attention_layer.h"

#include "torsor/model/fused.h"
#include "torsor/model/kv_shift.h"

namespace torsor {

at::Tensor project(const at::Tensor& x, const at::Tensor& weight, at::ScalarType dtype) {
  return at::linear(x.to(dtype), weight.to(dtype));
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::ScalarType dtype) {
  return at::linear(x.to(dtype), weight.to(dtype), bias.to(dtype)).to(x.scalar_type());
}

at::Tensor with_bias(const at::Tensor& x, const at::Tensor& bias) {
  return bias.defined() ? x + bias.to(x.scalar_type()) : x;
}

AttentionOutput attention_layer(const ModelConfig& config, const AttentionWeights& weights, const Encoding& encoding,
                                std::int64_t layer, const at::Tensor& x, const AttendOptions& given,
                                const at::Tensor& counts, KvCache* cache, at::ScalarType dtype) {
  const std::int64_t batch = x.size(0), tokens = x.size(1);
  const LayerLowRank& low = weights.low_rank;
  const auto heads = [&](const at::Tensor& weight, const at::Tensor& bias, const LowRank& low_rank,
                         std::int64_t count) {
    return with_bias(project(x, weight, low_rank, dtype), bias)
        .view({batch, tokens, count, config.head_dim})
        .transpose(1, 2);
  };
  at::Tensor q = heads(weights.q, weights.q_bias, low.q, config.heads);
  at::Tensor k = heads(weights.k, weights.k_bias, low.k, config.kv_heads);
  at::Tensor v = heads(weights.v, weights.v_bias, low.v, config.kv_heads);
  Shifted shifted;
  if (config.kv_shift) {
    shifted = kv_shift(k, v, x, weights.k_shift, weights.v_shift, given.documents, counts,
                       cache ? cache->newest(layer) : NamedTensors());
    k = shifted.k, v = shifted.v;
  }

  AttendOptions options = given;
  options.layer = layer;
  options.parameters = weights.position;
  options.x = x;
  if (config.block.attention_scale > 0) options.scale = config.block.attention_scale;
  if (const std::int64_t window = config.window_of(layer); window > 0) options.window = window;
  if (config.qk_norm == QkNorm::Before) {
    q = rms_norm(q, weights.q_norm.to(q.scalar_type()), config.norm_eps);
    k = rms_norm(k, weights.k_norm.to(k.scalar_type()), config.norm_eps);
  } else if (config.qk_norm == QkNorm::After) {
    options.after_moves = [&](const at::Tensor& moved, Role role) {
      const at::Tensor& weight = role == Role::Query ? weights.q_norm : weights.k_norm;
      return rms_norm(moved, weight.to(moved.scalar_type()), config.norm_eps);
    };
  }
  const Attended attended = cache ? cache->attend(q, k, v, options, counts) : attend_full(q, k, v, encoding, options);
  if (cache && config.kv_shift) cache->remember(layer, shifted.newest, counts);
  const at::Tensor joined = attended.out.transpose(1, 2).reshape({batch, tokens, -1});
  return {with_bias(project(joined, weights.o, low.o, dtype), weights.o_bias), attended.averages};
}

}  // namespace torsor
