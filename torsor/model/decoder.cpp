#include "torsor/model/decoder.h"

#include <algorithm>

#include "torsor/attention/large_tensor.h"
#include "torsor/model/activation.h"
#include "torsor/model/attention_parameters.h"
#include "torsor/model/fused.h"

namespace torsor {

namespace {

void check_windows(const at::Tensor& windows) {
  if (windows.dim() != 2 || windows.size(1) < 2)
    throw Error(str("model: windows must have shape (B, T + 1) with T at least 1, found ", windows.sizes()));
}

/// Tensors that hidden states are multiplied with, and the embedding.
bool is_matrix(const std::string& name) {
  if (is_positional(name)) return false;
  return name.ends_with("_proj.weight") || name == "lm_head.weight" || name == kEmbeddingName;
}

}  // namespace

Decoder::Norm Decoder::declare_norm(const Declare& tensor, const std::string& name) const {
  Norm norm;
  norm.weight = tensor(name + ".weight", {config_.width}, constant_initial(1), false);
  if (config_.block.norm == NormKind::Layer && config_.block.norm_bias)
    norm.bias = tensor(name + ".bias", {config_.width}, constant_initial(0), false);
  return norm;
}

at::Tensor Decoder::normalized(const at::Tensor& x, const Norm& norm) const {
  if (config_.block.norm == NormKind::Rms) return rms_norm(x, norm.weight, config_.norm_eps);
  return at::layer_norm(x, {config_.width}, norm.weight, norm.bias, config_.norm_eps);
}

at::Tensor Decoder::mlp(const at::Tensor& x, const Layer& layer, at::ScalarType dtype) const {
  std::vector<at::Tensor> weights = {layer.up};
  if (layer.gate.defined()) weights.push_back(layer.gate);
  const std::vector<at::Tensor> projected = project_all(x, weights, dtype);
  const at::Tensor up = with_bias(projected[0], layer.up_bias);
  const at::Tensor gate = layer.gate.defined() ? with_bias(projected[1], layer.gate_bias) : at::Tensor();
  const at::Tensor inner = activated(config_.block.mlp, up, gate);
  return with_bias(project(inner, layer.down, dtype), layer.down_bias);
}

// Tensors are declared in one place; drawing and loading differ only in where a tensor comes from.
void Decoder::declare(const Declare& tensor, bool with_tag_heads) {
  const ModelConfig& c = config_;
  embedding_ = tensor(kEmbeddingName, {c.vocabulary_size, c.width}, normal_initial(0.02), true);
  AttentionParameters attention(c, encoding_, tensor);
  if (c.block.embedding_norm) embedding_norm_ = declare_norm(tensor, "model.embed_norm");
  model_position_ = attention.embedding();
  layers_.resize(static_cast<std::size_t>(c.layers));
  for (std::int64_t index = 0; index < c.layers; ++index) {
    Layer& layer = layers_[static_cast<std::size_t>(index)];
    const std::string prefix = str("model.layers.", index, ".");
    layer.attention_norm = declare_norm(tensor, prefix + "input_layernorm");
    layer.attention = attention.layer(index, *by_layer_[static_cast<std::size_t>(index)]);
    if (c.cross_attention) {
      layer.cross_norm = declare_norm(tensor, prefix + "cross_attention_layernorm");
      layer.cross = attention.cross(index);
    }
    if (c.block.parallel != Parallel::OneNorm)
      layer.mlp_norm = declare_norm(tensor, prefix + "post_attention_layernorm");
    const auto bias = [&](const char* name, std::int64_t size) {
      return c.block.mlp_bias ? tensor(prefix + "mlp." + name + ".bias", {size}, constant_initial(0), false)
                              : at::Tensor();
    };
    if (is_gated(c.block.mlp)) {
      layer.gate = tensor(prefix + "mlp.gate_proj.weight", {c.mlp_width, c.width}, inner_initial(c.width), true);
      layer.gate_bias = bias("gate_proj", c.mlp_width);
    }
    layer.up = tensor(prefix + "mlp.up_proj.weight", {c.mlp_width, c.width}, inner_initial(c.width), true);
    layer.up_bias = bias("up_proj", c.mlp_width);
    layer.down =
        tensor(prefix + "mlp.down_proj.weight", {c.width, c.mlp_width}, outer_initial(c.mlp_width, c.layers), true);
    layer.down_bias = bias("down_proj", c.width);
  }
  final_norm_ = declare_norm(tensor, "model.norm");
  head_ =
      c.tie_head ? embedding_ : tensor("lm_head.weight", {c.vocabulary_size, c.width}, inner_initial(c.width), true);
  if (c.block.head_bias) head_bias_ = tensor("lm_head.bias", {c.vocabulary_size}, constant_initial(0), false);
  if (with_tag_heads && TagHeads::serve(*encoding_)) tag_heads_ = TagHeads(tensor, c.width, *encoding_);
}

void Decoder::resolve_layers() {
  if (config_.cross_attention) no_positions_ = make_encoding("none", config_.dimensions());
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
  declare(drawn_parameters(parameters_, seed), config_.tag_heads.value_or(encoding_->traits().leaks));
}

Decoder::Decoder(ModelConfig config, const std::map<std::string, at::Tensor>& weights, const std::string& source,
                 std::optional<std::uint64_t> draw_seed)
    : config_(std::move(config)) {
  config_.complete();
  encoding_ = make_encoding(config_.encoding, config_.dimensions());
  resolve_layers();
  // Where the configuration leaves it open, the weights tell.
  const bool heads =
      std::any_of(weights.begin(), weights.end(), [](const auto& one) { return TagHeads::owns(one.first); });
  declare(given_parameters(parameters_, weights, source, draw_seed), config_.tag_heads.value_or(heads));
  // A model that reads no tags has no use for heads that predict them, whoever left some.
  std::map<std::string, at::Tensor> used = weights;
  if (!TagHeads::serve(*encoding_)) std::erase_if(used, [](const auto& one) { return TagHeads::owns(one.first); });
  check_no_others(parameters_, used, source);
}

std::int64_t Decoder::parameter_count() const { return count_parameters(parameters_); }

void Decoder::to(at::ScalarType dtype) { convert_parameters(parameters_, dtype); }

void Decoder::keep_matrices(at::ScalarType dtype) {
  if (dtype != at::kFloat && !is_half(dtype))
    throw UsageError(str("model: matrices are kept in float32, float16 or bfloat16, found ", dtype));
  constexpr std::int64_t kAligned = 64;  // numbers: a matrix begins at a line of the processor's caches
  const auto room = [](const at::Tensor& tensor) { return (tensor.numel() + kAligned - 1) / kAligned * kAligned; };
  const auto changes = [&](const ModelParameter& one) {
    return is_matrix(one.name) && one.tensor.scalar_type() != dtype;
  };
  std::int64_t all = 0;
  for (const ModelParameter& parameter : parameters_)
    if (changes(parameter)) all += room(parameter.tensor);
  // One block for all of them: most alone are smaller than a large page.
  const at::Tensor block = large_empty({all}, at::TensorOptions(dtype));
  std::int64_t begin = 0;
  std::vector<at::Tensor> kept;  // all of them before the first is exchanged
  for (const ModelParameter& parameter : parameters_) {
    kept.push_back(parameter.tensor);
    if (!changes(parameter)) continue;
    kept.back() = block.narrow(0, begin, parameter.tensor.numel()).view(parameter.tensor.sizes());
    kept.back().copy_(parameter.tensor.detach());
    begin += room(parameter.tensor);
    if (dtype == at::kHalf && !at::isfinite(kept.back()).all().item<bool>())
      throw Error(
          str("model: ", parameter.name, " holds numbers beyond float16, whose largest is 65504; bfloat16 holds them"));
  }
  for (std::size_t index = 0; index < kept.size(); ++index)
    if (changes(parameters_[index])) parameters_[index].tensor.set_data(kept[index]);
}

bool Decoder::keeps_all(at::ScalarType dtype) const {
  return std::all_of(parameters_.begin(), parameters_.end(), [&](const ModelParameter& one) {
    const at::Tensor tensor = one.tensor.detach();
    return !is_matrix(one.name) || tensor.to(dtype).to(tensor.scalar_type()).equal(tensor);
  });
}

at::ScalarType Decoder::lossless_matrices() const {
  for (const at::ScalarType dtype : kHalves)
    if (keeps_all(dtype)) return dtype;
  return at::kFloat;
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
                    at::ScalarType dtype, const at::Tensor& beside, const Memory* memory) const {
  const ModelConfig& c = config_;
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const Encoding& encoding = *by_layer_[static_cast<std::size_t>(index)];
  const at::Tensor x = normalized(h, layer.attention_norm);
  const AttentionOutput attention =
      attention_layer(c, layer.attention, encoding, index, x, options, counts, cache, dtype);
  at::Tensor attended = h + attention.mixed;
  if (beside.defined()) attended = attended + beside;
  if (memory) {
    const auto place = static_cast<std::size_t>(index);
    attended = attended + cross_attention(c, layer.cross, *no_positions_, normalized(attended, layer.cross_norm),
                                          memory->keys[place], memory->values[place], memory->documents, dtype);
  }
  const at::Tensor u = c.block.parallel == Parallel::OneNorm
                           ? x
                           : normalized(c.block.parallel == Parallel::None ? attended : h, layer.mlp_norm);
  const at::Tensor output = mlp(u, layer, dtype);
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

void Decoder::check_named(const TokenBatch& batch) const {
  for (const std::string& name : encoding_->inputs()) {
    const auto found = batch.named.find(name);
    if (found == batch.named.end() || !found->second.defined())
      throw Error(str("model: '", config_.encoding, "' reads the per-token input '", name,
                      "', which the batch does not bring"));
    const at::Tensor& given = found->second;
    if (given.dim() < 2 || given.size(0) != batch.tokens.size(0) || given.size(1) != batch.tokens.size(1))
      throw Error(str("model: the per-token input '", name, "' must have shape (", batch.tokens.size(0), ", ",
                      batch.tokens.size(1), ", ...) as the tokens have, found ", given.sizes()));
  }
}

at::Tensor Decoder::hidden(const TokenBatch& batch, KvCache* cache, at::ScalarType dtype) const {
  if (batch.tokens.dim() != 2 || batch.tokens.scalar_type() != at::kLong)
    throw Error(str("model: tokens must be int64 of shape (B, T), found ", batch.tokens.scalar_type(), " ",
                    batch.tokens.sizes()));
  check_named(batch);
  check_memory(batch);
  AttendOptions options;
  options.causal = config_.causal;
  options.layers = config_.layers;
  options.positions = batch.positions;
  options.documents = batch.documents;
  options.named = batch.named;
  if (cache && !options.positions.defined()) {
    // Every layer must see the same numbers, so they are taken once, before the first layer appends.
    const at::Tensor count = at::arange(batch.tokens.size(1), at::kDouble).view({1, -1, 1});
    options.positions = cache->next_positions() + count;
  }
  at::Tensor h = at::embedding(embedding_, batch.tokens), beside;
  if (is_half(h.scalar_type())) h = h.to(at::kFloat);
  if (config_.block.embedding_norm) h = normalized(h, embedding_norm_);
  if (encoding_->traits().absolute) {
    Side side;
    const std::int64_t rows = batch.tokens.size(0), tokens = batch.tokens.size(1);
    side.positions = options.positions.defined()
                         ? options.positions.to(at::kDouble)
                         : at::arange(tokens, at::kDouble).view({1, tokens, 1}).expand({rows, tokens, 1});
    side.documents = batch.documents;
    side.lengths = batch.counts;
    const at::Tensor added = encoding_->embedding(side, model_position_, batch.named, h);
    if (added.defined()) h = h + added.to(h.scalar_type());
    beside = encoding_->behind_attention(side, model_position_, batch.named);
    if (beside.defined()) beside = beside.to(h.scalar_type());
  }
  options.state = batch.state;
  for (std::int64_t index = 0; index < config_.layers; ++index) {
    if (batch.look) options.look = [&batch, index](const CoreInput& input) { batch.look(index, input); };
    if (batch.stream) batch.stream(index, h);
    block(index, h, options, batch.counts, cache, dtype, index == 0 ? beside : at::Tensor(), batch.memory);
  }
  if (batch.stream) batch.stream(config_.layers, h);
  return normalized(h, final_norm_);
}

Memory Decoder::remember(const at::Tensor& output, const at::Tensor& documents, at::ScalarType dtype) const {
  if (!config_.cross_attention) throw Error("model: without cross-attention there is no memory to read");
  if (output.dim() != 3 || output.size(2) != config_.width)
    throw Error(str("model: an encoder's output must have shape (B, S, ", config_.width, "), found ", output.sizes()));
  if (documents.defined() && (documents.dim() != 2 || documents.size(0) != output.size(0) ||
                              documents.size(1) != output.size(1) || documents.scalar_type() != at::kLong))
    throw Error(str("model: documents of a memory must be int64 of shape (", output.size(0), ", ", output.size(1),
                    "), found ", documents.scalar_type(), " ", documents.sizes()));
  // What a decoder writes is one text and reads one: those of another number would be passed over without a word.
  if (documents.defined() && documents.gt(0).any().item<bool>())
    throw Error("model: documents of a memory must be 0, or -1 for padding: a row has one source");
  Memory memory;
  memory.documents = documents;
  for (const Layer& layer : layers_) {
    const auto heads = [&](const at::Tensor& weight, const at::Tensor& bias) {
      return with_bias(project(output, weight, dtype), bias)
          .view({output.size(0), output.size(1), config_.kv_heads, config_.head_dim})
          .transpose(1, 2);
    };
    memory.keys.push_back(heads(layer.cross.k, layer.cross.k_bias));
    memory.values.push_back(heads(layer.cross.v, layer.cross.v_bias));
  }
  return memory;
}

void Decoder::check_memory(const TokenBatch& batch) const {
  if (config_.cross_attention != (batch.memory != nullptr))
    throw Error(config_.cross_attention ? "model: its cross-attention reads an encoder's output, which the batch lacks"
                                        : "model: without cross-attention nothing reads the batch's memory");
  if (!batch.memory) return;
  const Memory& memory = *batch.memory;
  if (memory.keys.size() != layers_.size() || memory.values.size() != layers_.size())
    throw Error(str("model: a memory of ", memory.keys.size(), " layers, the model has ", layers_.size()));
  if (memory.keys.front().size(0) != batch.tokens.size(0))
    throw Error(str("model: a memory of ", memory.keys.front().size(0), " rows, the batch has ", batch.tokens.size(0)));
}

at::Tensor Decoder::logits(const at::Tensor& unscaled, at::ScalarType dtype) const {
  const at::Tensor hidden = config_.block.head_scale == 1 ? unscaled : unscaled * config_.block.head_scale;
  return with_bias(project(hidden, head_, dtype).to(hidden.scalar_type()), head_bias_);
}

at::Tensor Decoder::token_losses(const at::Tensor& windows, at::ScalarType dtype, const NamedTensors& named) const {
  check_windows(windows);
  TokenBatch batch;
  batch.tokens = windows.narrow(1, 0, windows.size(1) - 1);
  batch.named = named;
  return token_losses_of(hidden(batch, nullptr, dtype), windows, dtype);
}

at::Tensor Decoder::token_losses_of(const at::Tensor& hidden, const at::Tensor& windows, at::ScalarType dtype) const {
  const at::Tensor targets = windows.narrow(1, 1, windows.size(1) - 1);
  return at::cross_entropy_loss(logits(hidden, dtype).flatten(0, 1), targets.reshape({-1}), {}, at::Reduction::None)
      .view(targets.sizes());
}

Decoder::JointLosses Decoder::joint_losses(const at::Tensor& windows, const NamedTensors& named,
                                           at::ScalarType dtype) const {
  check_windows(windows);
  if (!tag_heads_.there()) throw Error(str("model: '", config_.encoding, "' has no heads for tags"));
  TokenBatch batch;
  batch.tokens = windows.narrow(1, 0, windows.size(1) - 1);
  for (const auto& [name, all] : named) batch.named[name] = all.narrow(1, 0, windows.size(1) - 1);
  const at::Tensor h = hidden(batch, nullptr, dtype);
  return {token_losses_of(h, windows, dtype), tag_heads_.losses(h, named, dtype)};
}

KvCache Decoder::make_cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype, bool shifts) const {
  CacheOptions options;
  options.capacity = capacity;
  options.batch = batch;
  options.layers = config_.layers;
  options.dtype = dtype;
  options.raw_keys = shifts && config_.qk_norm == QkNorm::After && !carries_;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) options.window.push_back(config_.window_of(layer));
  return KvCache(encoding_, options);
}

}  // namespace torsor
