#include "torsor/model/attention_layer.h"

#include <vector>

#include "torsor/model/fused.h"
#include "torsor/model/kv_shift.h"

namespace torsor {

AttentionOutput attention_layer(const ModelConfig& config, const AttentionWeights& weights, const Encoding& encoding,
                                std::int64_t layer, const at::Tensor& x, const AttendOptions& given,
                                const at::Tensor& counts, KvCache* cache, at::ScalarType dtype) {
  const std::int64_t batch = x.size(0), tokens = x.size(1);
  const LayerLowRank& low = weights.low_rank;
  const std::vector<at::Tensor> projected = project_all(x, {weights.q, weights.k, weights.v}, dtype);
  const auto heads = [&](const at::Tensor& full, const at::Tensor& bias, const LowRank& low_rank, std::int64_t count) {
    return with_bias(with_low_rank(full, x, low_rank, dtype), bias)
        .view({batch, tokens, count, config.head_dim})
        .transpose(1, 2);
  };
  at::Tensor q = heads(projected[0], weights.q_bias, low.q, config.heads);
  at::Tensor k = heads(projected[1], weights.k_bias, low.k, config.kv_heads);
  at::Tensor v = heads(projected[2], weights.v_bias, low.v, config.kv_heads);
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
  const at::Tensor mixed = with_low_rank(project(joined, weights.o, dtype), joined, low.o, dtype);
  return {with_bias(mixed, weights.o_bias), attended.averages};
}

at::Tensor cross_attention(const ModelConfig& config, const AttentionWeights& weights, const Encoding& none,
                           const at::Tensor& x, const at::Tensor& keys, const at::Tensor& values,
                           const at::Tensor& documents, at::ScalarType dtype) {
  const std::int64_t batch = x.size(0), tokens = x.size(1);
  const at::Tensor q = with_bias(project(x, weights.q, dtype), weights.q_bias)
                           .view({batch, tokens, config.heads, config.head_dim})
                           .transpose(1, 2);
  AttendOptions options;
  options.causal = false;
  options.query_positions = at::zeros({batch, tokens, 1}, at::kDouble);
  options.documents = documents;
  // Who may ask is not for the memory to say: a query of padding answers something that nobody reads.
  if (documents.defined()) options.query_documents = at::zeros({batch, tokens}, at::kLong);
  if (config.block.attention_scale > 0) options.scale = config.block.attention_scale;
  const at::Tensor out = attend(q, keys.to(q.scalar_type()), values.to(q.scalar_type()), none, options);
  return with_bias(project(out.transpose(1, 2).reshape({batch, tokens, -1}), weights.o, dtype), weights.o_bias);
}

}  // namespace torsor
