#include "torsor/model/attention_parameters.h"

#include <cmath>
#include <utility>

namespace torsor {

Initial inner_initial(std::int64_t fan_in) { return normal_initial(0.5 / std::sqrt(static_cast<double>(fan_in))); }

Initial outer_initial(std::int64_t fan_in, std::int64_t layers) {
  return normal_initial(0.5 / std::sqrt(static_cast<double>(fan_in * 2 * layers)));
}

AttentionParameters::AttentionParameters(const ModelConfig& config, std::shared_ptr<const Encoding> encoding,
                                         Declare declare)
    : config_(config), encoding_(std::move(encoding)), declare_(std::move(declare)) {}

at::Tensor AttentionParameters::shared(const ParameterInfo& info) {
  at::Tensor& one = shared_[info.name];
  if (!one.defined())
    one = declare_("model.position." + info.name, info.shape, info.initial, info.decay || config_.decay_positions);
  return one;
}

NamedTensors AttentionParameters::embedding() {
  NamedTensors tensors;
  if (!encoding_->traits().absolute) return tensors;
  for (const ParameterInfo& info : encoding_->parameters(0))
    if (info.shared) tensors[info.name] = shared(info);
  return tensors;
}

AttentionWeights AttentionParameters::projections(const std::string& own) {
  const ModelConfig& c = config_;
  const std::int64_t q_width = c.heads * c.head_dim, k_width = c.kv_heads * c.head_dim;
  AttentionWeights attention;
  attention.q = declare_(own + "q_proj.weight", {q_width, c.width}, inner_initial(c.width), true);
  attention.k = declare_(own + "k_proj.weight", {k_width, c.width}, inner_initial(c.width), true);
  attention.v = declare_(own + "v_proj.weight", {k_width, c.width}, inner_initial(c.width), true);
  attention.o = declare_(own + "o_proj.weight", {c.width, q_width}, outer_initial(q_width, c.layers), true);
  const auto bias = [&](const char* module, std::int64_t size, bool there) {
    return there ? declare_(own + module + ".bias", {size}, constant_initial(0), false) : at::Tensor();
  };
  attention.q_bias = bias("q_proj", q_width, c.block.qkv_bias);
  attention.k_bias = bias("k_proj", k_width, c.block.qkv_bias);
  attention.v_bias = bias("v_proj", k_width, c.block.qkv_bias);
  attention.o_bias = bias("o_proj", c.width, c.block.output_bias);
  return attention;
}

AttentionWeights AttentionParameters::cross(std::int64_t index) {
  return projections(str("model.layers.", index, ".cross_attn."));
}

AttentionWeights AttentionParameters::layer(std::int64_t index, const Encoding& encoding) {
  const ModelConfig& c = config_;
  const std::string own = str("model.layers.", index, ".self_attn.");
  AttentionWeights attention = projections(own);
  if (c.qk_norm != QkNorm::None) {
    attention.q_norm = declare_(own + "q_norm.weight", {c.head_dim}, constant_initial(1), false);
    attention.k_norm = declare_(own + "k_norm.weight", {c.head_dim}, constant_initial(1), false);
  }
  if (c.kv_shift) {
    // Gates, and so exempt from decay like the positional ones.
    attention.k_shift =
        declare_(own + "k_shift.weight", {c.kv_heads, c.width}, inner_initial(c.width), c.decay_positions);
    attention.v_shift =
        declare_(own + "v_shift.weight", {c.kv_heads, c.width}, inner_initial(c.width), c.decay_positions);
  }
  for (const ParameterInfo& info : encoding.parameters(index))
    attention.position[info.name] = info.shared ? shared(info)
                                                : declare_(own + "position." + info.name, info.shape, info.initial,
                                                           info.decay || c.decay_positions);
  return attention;
}

}  // namespace torsor
