#include "torsor/model/decoder.h"

#include <cmath>
#include <functional>

#include "torsor/base/random.h"
#include "torsor/model/fused.h"

namespace torsor {
namespace {

Initial normal(double deviation) { return {Initial::Kind::Normal, 0, deviation, {}}; }
Initial ones() { return {Initial::Kind::Constant, 1, 0, {}}; }

}  // namespace

bool is_positional(const std::string& parameter) {
  return parameter.rfind("model.position.", 0) == 0 || parameter.find(".self_attn.position.") != std::string::npos;
}

at::Tensor drawn_tensor(const std::string& name, const std::vector<std::int64_t>& shape, const Initial& initial,
                        std::uint64_t seed) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  float* values = tensor.data_ptr<float>();
  const std::size_t count = static_cast<std::size_t>(tensor.numel());
  switch (initial.kind) {
    case Initial::Kind::Constant:
      tensor.fill_(initial.a);
      break;
    case Initial::Kind::Uniform:
      fill_uniform(values, count, initial.a, initial.b, seed, stream_of(name));
      break;
    case Initial::Kind::Normal:
      fill_normal(values, count, initial.a, initial.b, seed, stream_of(name));
      break;
    case Initial::Kind::Values:
      if (initial.values.size() != count)
        throw Error(str("model: ", initial.values.size(), " initial values for ", name, " of ", count));
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(initial.values[i]);
      break;
  }
  return tensor;
}

// Tensors are declared in one place; drawing and loading differ only in where a tensor comes from.
void Decoder::declare(const std::function<at::Tensor(const std::string&, const std::vector<std::int64_t>&,
                                                     const Initial&, bool)>& tensor) {
  const ModelConfig& c = config_;
  const std::int64_t q_width = c.heads * c.head_dim, k_width = c.kv_heads * c.head_dim;
  // evaluation.md: 0.02 for the embedding, 0.5 / sqrt(fan in) elsewhere, output projections over sqrt(2 layers).
  const auto inner = [](std::int64_t fan_in) { return normal(0.5 / std::sqrt(static_cast<double>(fan_in))); };
  const auto outer = [&](std::int64_t fan_in) {
    return normal(0.5 / std::sqrt(static_cast<double>(fan_in * 2 * c.layers)));
  };

  embedding_ = tensor("model.embed_tokens.weight", {c.vocabulary_size, c.width}, normal(0.02), true);
  std::map<std::string, at::Tensor> shared;
  const auto shared_tensor = [&](const ParameterInfo& info) {
    at::Tensor& one = shared[info.name];
    if (!one.defined())
      one = tensor("model.position." + info.name, info.shape, info.initial, info.decay || c.decay_positions);
    return one;
  };
  const bool absolute = encoding_->traits().absolute;
  if (absolute)
    for (const ParameterInfo& info : encoding_->parameters(0))
      if (info.shared) model_position_[info.name] = shared_tensor(info);

  layers_.resize(static_cast<std::size_t>(c.layers));
  for (std::int64_t index = 0; index < c.layers; ++index) {
    Layer& layer = layers_[static_cast<std::size_t>(index)];
    const std::string prefix = str("model.layers.", index, ".");
    layer.attention_norm = tensor(prefix + "input_layernorm.weight", {c.width}, ones(), false);
    AttentionWeights& attention = layer.attention;
    const std::string own = prefix + "self_attn.";
    attention.q = tensor(own + "q_proj.weight", {q_width, c.width}, inner(c.width), true);
    attention.k = tensor(own + "k_proj.weight", {k_width, c.width}, inner(c.width), true);
    attention.v = tensor(own + "v_proj.weight", {k_width, c.width}, inner(c.width), true);
    attention.o = tensor(own + "o_proj.weight", {c.width, q_width}, outer(q_width), true);
    if (c.qk_norm != QkNorm::None) {
      attention.q_norm = tensor(own + "q_norm.weight", {c.head_dim}, ones(), false);
      attention.k_norm = tensor(own + "k_norm.weight", {c.head_dim}, ones(), false);
    }
    if (c.kv_shift) {
      // Gates, and so exempt from decay like the positional ones.
      attention.k_shift = tensor(own + "k_shift.weight", {c.kv_heads, c.width}, inner(c.width), c.decay_positions);
      attention.v_shift = tensor(own + "v_shift.weight", {c.kv_heads, c.width}, inner(c.width), c.decay_positions);
    }
    for (const ParameterInfo& info : by_layer_[static_cast<std::size_t>(index)]->parameters(index)) {
      attention.position[info.name] = info.shared ? shared_tensor(info)
                                                  : tensor(own + "position." + info.name, info.shape, info.initial,
                                                           info.decay || c.decay_positions);
    }
    layer.mlp_norm = tensor(prefix + "post_attention_layernorm.weight", {c.width}, ones(), false);
    layer.gate = tensor(prefix + "mlp.gate_proj.weight", {c.mlp_width, c.width}, inner(c.width), true);
    layer.up = tensor(prefix + "mlp.up_proj.weight", {c.mlp_width, c.width}, inner(c.width), true);
    layer.down = tensor(prefix + "mlp.down_proj.weight", {c.width, c.mlp_width}, outer(c.mlp_width), true);
  }
  final_norm_ = tensor("model.norm.weight", {c.width}, ones(), false);
  head_ = c.tie_head ? embedding_ : tensor("lm_head.weight", {c.vocabulary_size, c.width}, inner(c.width), true);
}

void Decoder::resolve_layers() {
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) by_layer_.push_back(layer_encoding(encoding_, layer));
  const Traits traits = encoding_->traits();
  carries_ = traits.carries;
  if (config_.qk_norm == QkNorm::After && traits.moved_width != 0)
    throw UsageError(str("model: qk_norm after rotation has gains for ", config_.head_dim, " channels, and '",
                         config_.encoding, "' makes heads of ", traits.moved_width, " channels"));
}

Decoder::Decoder(ModelConfig config, std::uint64_t seed) : config_(std::move(config)) {
  config_.complete();
  encoding_ = make_encoding(config_.encoding, config_.dimensions());
  resolve_layers();
  declare([&](const std::string& name, const std::vector<std::int64_t>& shape, const Initial& initial, bool decay) {
    at::Tensor tensor = drawn_tensor(name, shape, initial, seed);
    parameters_.push_back({name, tensor, decay});
    return tensor;
  });
}

Decoder::Decoder(ModelConfig config, const std::map<std::string, at::Tensor>& weights, const std::string& source,
                 std::optional<std::uint64_t> draw_seed)
    : config_(std::move(config)) {
  config_.complete();
  encoding_ = make_encoding(config_.encoding, config_.dimensions());
  resolve_layers();
  declare([&](const std::string& name, const std::vector<std::int64_t>& shape, const Initial& initial, bool decay) {
    const auto found = weights.find(name);
    if (found == weights.end() && draw_seed && is_positional(name)) {
      parameters_.push_back({name, drawn_tensor(name, shape, initial, *draw_seed), decay});
      return parameters_.back().tensor;
    }
    if (found == weights.end()) throw Error(str(source, ": the tensor ", name, " is missing"));
    if (found->second.sizes() != at::IntArrayRef(shape))
      throw Error(str(source, ": the tensor ", name, " must have shape ", at::IntArrayRef(shape), ", found ",
                      found->second.sizes()));
    if (!found->second.is_floating_point())
      throw Error(str(source, ": the tensor ", name, " must hold real numbers, found ", found->second.scalar_type()));
    if (!at::isfinite(found->second).all().item<bool>())
      throw Error(str(source, ": the tensor ", name, " holds numbers that are not finite"));
    at::Tensor tensor = found->second.to(at::kFloat).contiguous();
    parameters_.push_back({name, tensor, decay});
    return tensor;
  });
  for (const auto& [name, tensor] : weights) {
    bool known = false;
    for (const ModelParameter& parameter : parameters_) known = known || parameter.name == name;
    if (!known) throw Error(str(source, ": the tensor ", name, " has no place in the model"));
  }
}

std::int64_t Decoder::parameter_count() const {
  std::int64_t count = 0;
  for (const ModelParameter& parameter : parameters_) count += parameter.tensor.numel();
  return count;
}

void Decoder::to(at::ScalarType dtype) {
  if (dtype != at::kFloat && dtype != at::kDouble)
    throw UsageError(str("model: weights are float32 or float64, found ", dtype));
  for (ModelParameter& parameter : parameters_) parameter.tensor.set_data(parameter.tensor.detach().to(dtype));
}

void Decoder::require_gradients() {
  for (ModelParameter& parameter : parameters_) parameter.tensor.requires_grad_(true);
}

void Decoder::attach(const std::vector<LayerLowRank>& terms) {
  if (terms.size() != layers_.size())
    throw Error(str("model: low-rank terms of ", terms.size(), " layers, the model has ", layers_.size()));
  for (std::size_t index = 0; index < terms.size(); ++index) layers_[index].attention.low_rank = terms[index];
}

void Decoder::block(std::int64_t index, at::Tensor& h, AttendOptions& options, const at::Tensor& counts, KvCache* cache,
                    at::ScalarType dtype) const {
  const ModelConfig& c = config_;
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const Encoding& encoding = *by_layer_[static_cast<std::size_t>(index)];
  const at::Tensor x = rms_norm(h, layer.attention_norm, c.norm_eps);
  const AttentionOutput attention =
      attention_layer(c, layer.attention, encoding, index, x, options, counts, cache, dtype);
  const at::Tensor attended = h + attention.mixed;
  const at::Tensor u = rms_norm(attended, layer.mlp_norm, c.norm_eps);
  const at::Tensor gated = swiglu(project(u, layer.gate, dtype), project(u, layer.up, dtype));
  const at::Tensor output = project(gated, layer.down, dtype);
  if (carries_) {
    options.layer = index;
    options.parameters = layer.attention.position;
    const at::Tensor state = encoding.after_layer(layer_question(options, h.size(0), h.size(1), encoding, h.options()),
                                                  attention.averages, output);
    if (state.defined()) options.state = state;
    if (observer_ && state.defined()) observer_(index, state);
  }
  h = attended + output;
}

at::Tensor Decoder::hidden(const TokenBatch& batch, KvCache* cache, at::ScalarType dtype) const {
  if (batch.tokens.dim() != 2 || batch.tokens.scalar_type() != at::kLong)
    throw Error(str("model: tokens must be int64 of shape (B, T), found ", batch.tokens.scalar_type(), " ",
                    batch.tokens.sizes()));
  AttendOptions options;
  options.layers = config_.layers;
  options.positions = batch.positions;
  options.documents = batch.documents;
  if (cache && !options.positions.defined()) {
    // Every layer must see the same numbers, so they are taken once, before the first layer appends.
    const at::Tensor count = at::arange(batch.tokens.size(1), at::kDouble).view({1, -1, 1});
    options.positions = cache->next_positions() + count;
  }
  at::Tensor h = at::embedding(embedding_, batch.tokens);
  if (encoding_->traits().absolute) {
    Side side;
    const std::int64_t rows = batch.tokens.size(0), tokens = batch.tokens.size(1);
    side.positions = options.positions.defined()
                         ? options.positions.to(at::kDouble)
                         : at::arange(tokens, at::kDouble).view({1, tokens, 1}).expand({rows, tokens, 1});
    side.documents = batch.documents;
    const at::Tensor added = encoding_->embedding(side, model_position_);
    if (added.defined()) h = h + added.to(h.scalar_type());
  }
  options.state = batch.state;
  for (std::int64_t index = 0; index < config_.layers; ++index) block(index, h, options, batch.counts, cache, dtype);
  return rms_norm(h, final_norm_, config_.norm_eps);
}

at::Tensor Decoder::logits(const at::Tensor& hidden, at::ScalarType dtype) const {
  return project(hidden, head_, dtype).to(hidden.scalar_type());
}

at::Tensor Decoder::token_losses(const at::Tensor& windows, at::ScalarType dtype) const {
  if (windows.dim() != 2 || windows.size(1) < 2)
    throw Error(str("model: windows must have shape (B, T + 1) with T at least 1, found ", windows.sizes()));
  const std::int64_t rows = windows.size(0), tokens = windows.size(1) - 1;
  TokenBatch batch;
  batch.tokens = windows.narrow(1, 0, tokens);
  const at::Tensor scores = logits(hidden(batch, nullptr, dtype), dtype).flatten(0, 1);
  const at::Tensor targets = windows.narrow(1, 1, tokens).reshape({-1});
  return at::cross_entropy_loss(scores, targets, {}, at::Reduction::None).view({rows, tokens});
}

KvCache Decoder::make_cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype) const {
  CacheOptions options;
  options.capacity = capacity;
  options.batch = batch;
  options.layers = config_.layers;
  options.dtype = dtype;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) options.window.push_back(config_.window_of(layer));
  return KvCache(encoding_, options);
}

}  // namespace torsor
