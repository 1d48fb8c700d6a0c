#include "torsor/model/encoder.h"

#include <filesystem>
#include <utility>

#include "torsor/base/file.h"
#include "torsor/base/utf8.h"
#include "torsor/data/tokenizer_file.h"
#include "torsor/model/activation.h"
#include "torsor/model/attention_parameters.h"
#include "torsor/model/checkpoint_config.h"
#include "torsor/model/checkpoint_files.h"
#include "torsor/model/document_positions.h"
#include "torsor/model/hugging_face.h"
#include "torsor/model/hugging_face_encoder.h"
#include "torsor/model/stored_encoding.h"
#include "torsor/model/structure_embedder.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

// What stands on top of the layers and may be drawn anew.
bool is_head(const std::string& name) { return name.rfind("head.", 0) == 0; }

}  // namespace

// ---- weights --------------------------------------------------------------------------------------------------------

void Encoder::declare(const Declare& declare) {
  const ModelConfig& c = config_.model;
  const auto norm = [&](const std::string& name) {
    return Norm{declare(name + ".weight", {c.width}, constant_initial(1), false),
                declare(name + ".bias", {c.width}, constant_initial(0), false)};
  };
  const auto dense = [&](const std::string& name, std::int64_t outputs, std::int64_t inputs, const Initial& initial) {
    return Linear{declare(name + ".weight", {outputs, inputs}, initial, true),
                  declare(name + ".bias", {outputs}, constant_initial(0), false)};
  };
  embedding_ = declare("model.embed_tokens.weight", {c.vocabulary_size, c.width}, normal_initial(0.02), true);
  segment_embedding_ = declare("model.embed_segments.weight", {config_.segments, c.width}, normal_initial(0.02), true);
  AttentionParameters attention(c, encoding_, declare);
  model_position_ = attention.embedding();
  if (!config_.norm_first) embedding_norm_ = norm("model.embed_norm");
  layers_.resize(static_cast<std::size_t>(c.layers));
  for (std::int64_t index = 0; index < c.layers; ++index) {
    Layer& layer = layers_[static_cast<std::size_t>(index)];
    const std::string prefix = str("model.layers.", index, ".");
    layer.attention = attention.layer(index, *by_layer_[static_cast<std::size_t>(index)]);
    layer.attention_norm = norm(prefix + "attention_norm");
    layer.up = dense(prefix + "mlp.up", c.mlp_width, c.width, inner_initial(c.width));
    layer.down = dense(prefix + "mlp.down", c.width, c.mlp_width, outer_initial(c.mlp_width, c.layers));
    layer.mlp_norm = norm(prefix + "mlp_norm");
  }
  if (config_.norm_first) final_norm_ = norm("model.norm");
  if (config_.token_head) {
    token_head_ = dense("head.tokens.dense", c.width, c.width, inner_initial(c.width));
    token_norm_ = norm("head.tokens.norm");
    token_bias_ = declare("head.tokens.bias", {c.vocabulary_size}, constant_initial(0), false);
  }
  if (config_.tag_heads) {
    tau_head_ = dense("head.tau", kTauTags, c.width, inner_initial(c.width));
    nu_head_ = dense("head.nu", kNuTags, c.width, inner_initial(c.width));
  }
  if (config_.labels > 0) {
    pooler_ = dense("head.classes.pooler", c.width, c.width, inner_initial(c.width));
    class_head_ = dense("head.classes.out", config_.labels, c.width, inner_initial(c.width));
  }
}

void Encoder::prepare() {
  config_.complete();
  encoding_ = make_encoding(config_.model.encoding, config_.model.dimensions());
  const Traits traits = encoding_->traits();
  if (traits.axes != 1)
    throw UsageError(str("encoder: '", config_.model.encoding, "' reads ", traits.axes,
                         " position axes, and the tokens of a text have one"));
  if (traits.carries)
    throw UsageError(str("encoder: '", config_.model.encoding,
                         "' carries a state from layer to layer, which only the "
                         "decoder hands on"));
  if (config_.model.qk_norm == QkNorm::After && traits.moved_width != 0)
    throw UsageError(str("encoder: qk_norm after rotation has gains for ", config_.model.head_dim, " channels, and '",
                         config_.model.encoding, "' makes heads of ", traits.moved_width, " channels"));
  for (std::int64_t layer = 0; layer < config_.model.layers; ++layer)
    by_layer_.push_back(layer_encoding(encoding_, layer));
}

Encoder::Encoder(EncoderConfig config, std::uint64_t seed) : config_(std::move(config)) {
  prepare();
  declare(drawn_parameters(parameters_, seed));
}

Encoder::Encoder(EncoderConfig config, const std::map<std::string, at::Tensor>& weights, const std::string& source,
                 std::optional<std::uint64_t> draw_seed)
    : config_(std::move(config)) {
  prepare();
  declare(given_parameters(parameters_, weights, source, draw_seed, is_head));
  check_no_others(parameters_, weights, source);
}

Encoder Encoder::with_labels(std::int64_t labels, std::uint64_t seed) const {
  if (labels < 1) throw UsageError(str("encoder: a class head has at least 1 label, found ", labels));
  EncoderConfig config = config_;
  config.labels = labels;
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : parameters_)
    if (parameter.name.rfind("head.classes.", 0) != 0) weights[parameter.name] = parameter.tensor.detach().clone();
  return Encoder(config, weights, "encoder", seed);
}

void Encoder::require_gradients() {
  for (ModelParameter& parameter : parameters_) parameter.tensor.requires_grad_(true);
}

// ---- forward --------------------------------------------------------------------------------------------------------

at::Tensor Encoder::normalized(const at::Tensor& x, const Norm& norm) const {
  return at::layer_norm(x, {config_.model.width}, norm.weight, norm.bias, config_.model.norm_eps);
}

at::Tensor Encoder::dropped(const at::Tensor& x, bool training) const {
  return training && config_.dropout > 0 ? at::dropout(x, config_.dropout, true) : x;
}

void Encoder::check(const EncoderBatch& batch) const {
  const at::Tensor& tokens = batch.tokens;
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong)
    throw Error(
        str("encoder: tokens must be int64 of shape (B, T), found ", tokens.scalar_type(), " ", tokens.sizes()));
  for (const auto& [name, given] : {std::pair("segments", &batch.segments), std::pair("documents", &batch.documents)})
    if (given->defined() && (given->sizes() != tokens.sizes() || given->scalar_type() != at::kLong))
      throw Error(str("encoder: ", name, " must be int64 of shape ", tokens.sizes(), ", found ", given->scalar_type(),
                      " ", given->sizes()));
  for (const std::string& name : encoding_->inputs()) {
    const auto found = batch.named.find(name);
    if (found == batch.named.end() || !found->second.defined())
      throw Error(str("encoder: '", config_.model.encoding, "' reads the per-token input '", name,
                      "', which the batch does not bring"));
    if (found->second.dim() < 2 || found->second.size(0) != tokens.size(0) || found->second.size(1) != tokens.size(1))
      throw Error(str("encoder: the per-token input '", name, "' must have shape (", tokens.size(0), ", ",
                      tokens.size(1), ", ...), found ", found->second.sizes()));
  }
}

at::Tensor Encoder::hidden(const EncoderBatch& batch, bool training, at::ScalarType dtype) const {
  check(batch);
  const ModelConfig& c = config_.model;
  const std::int64_t rows = batch.tokens.size(0), tokens = batch.tokens.size(1);
  at::Tensor h = at::embedding(embedding_, batch.tokens), beside;
  h = h + (batch.segments.defined() ? at::embedding(segment_embedding_, batch.segments) : segment_embedding_[0]);
  AttendOptions options;
  options.causal = false;
  options.layers = c.layers;
  options.documents = batch.documents;
  options.positions = positions_in_documents(batch.documents);
  options.named = batch.named;
  if (encoding_->traits().absolute) {
    Side side;
    side.positions = options.positions.defined()
                         ? options.positions
                         : at::arange(tokens, at::kDouble).view({1, tokens, 1}).expand({rows, tokens, 1});
    side.documents = batch.documents;
    const at::Tensor added = encoding_->embedding(side, model_position_, batch.named, h);
    if (added.defined()) h = h + added.to(h.scalar_type());
    beside = encoding_->behind_attention(side, model_position_, batch.named);
  }
  if (!config_.norm_first) h = normalized(h, embedding_norm_);
  h = dropped(h, training);
  for (std::int64_t index = 0; index < c.layers; ++index) {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const Encoding& encoding = *by_layer_[static_cast<std::size_t>(index)];
    const auto attended = [&](const at::Tensor& x) {
      const at::Tensor mixed = attention_layer(c, layer.attention, encoding, index, x, options, {}, nullptr, dtype)
                                   .mixed.to(h.scalar_type());
      return dropped(index == 0 && beside.defined() ? mixed + beside.to(h.scalar_type()) : mixed, training);
    };
    const auto mlp = [&](const at::Tensor& x) {
      return dropped(linear(activated(config_.activation, linear(x, layer.up.weight, layer.up.bias, dtype), {}),
                            layer.down.weight, layer.down.bias, dtype),
                     training);
    };
    if (config_.norm_first) {
      h = h + attended(normalized(h, layer.attention_norm));
      h = h + mlp(normalized(h, layer.mlp_norm));
    } else {
      h = normalized(h + attended(h), layer.attention_norm);
      h = normalized(h + mlp(h), layer.mlp_norm);
    }
  }
  return config_.norm_first ? normalized(h, final_norm_) : h;
}

at::Tensor Encoder::token_logits(const at::Tensor& hidden, at::ScalarType dtype) const {
  if (!config_.token_head) throw Error("encoder: it has no head for tokens");
  const at::Tensor x = normalized(
      activated(config_.activation, linear(hidden, token_head_.weight, token_head_.bias, dtype), {}), token_norm_);
  return linear(x, embedding_, token_bias_, dtype);
}

Encoder::TagLogits Encoder::tag_logits(const at::Tensor& hidden, at::ScalarType dtype) const {
  if (!config_.tag_heads) throw Error("encoder: it has no heads for tags");
  return {linear(hidden, tau_head_.weight, tau_head_.bias, dtype),
          linear(hidden, nu_head_.weight, nu_head_.bias, dtype)};
}

at::Tensor Encoder::class_logits(const at::Tensor& hidden, bool training, at::ScalarType dtype) const {
  if (config_.labels == 0) throw Error("encoder: it has no class head");
  const at::Tensor pooled = at::tanh(linear(hidden.select(1, 0), pooler_.weight, pooler_.bias, dtype));
  return linear(dropped(pooled, training), class_head_.weight, class_head_.bias, dtype);
}

// ---- checkpoints ----------------------------------------------------------------------------------------------------

bool is_encoder_checkpoint(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!std::filesystem::is_regular_file(path)) return false;
  const Json json = read_json(path);
  return is_encoder(json) || (json.is_object() && !json.contains("format") && is_hugging_face_encoder(json));
}

void save_encoder(const std::string& folder, const Encoder& encoder, const Json& about, const std::string& embedder,
                  const std::shared_ptr<const Tokenizer>& reader) {
  const EncoderConfig& config = encoder.config();
  Json json;
  json["kind"] = "encoder";
  json["encoding"] = config.model.encoding;
  json["model"] = encoder_to_json(config);
  json["vocabulary_size"] = config.model.vocabulary_size;
  json["train_length"] = config.model.train_length;
  json["tokenizer"] = reader ? reader->name() : encoder_tokens(config);
  json["labels"] = config.labels;
  json["task"] = about;
  if (!embedder.empty() && reads_vectors(encoder.encoding()))
    json["structure_embedder"] = structure_embedder_to_json(embedder);
  write_checkpoint(folder, encoder.parameters(), json, reader);
}

LoadedEncoder load_encoder(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const Json json = read_json(path);
  JsonObject object(json, path, JsonObject::Blame::data);
  if (!object.has("format") && is_hugging_face_encoder(json)) {
    HuggingFaceEncoderForm form{read_hugging_face_encoder(json, path), json, {}};
    const std::map<std::string, at::Tensor> weights =
        hugging_face_encoder_weights(form.model, load_sharded(folder), folder, &form.passed_over);
    FoundTokenizer found = find_tokenizer(folder, form.model.config.model.vocabulary_size);
    Encoder encoder(form.model.config, weights, folder);
    return {std::move(encoder), nullptr, "", std::move(found.reader), std::move(found.unread), std::move(form)};
  }
  EncoderCheckpoint stored = read_encoder_checkpoint(json, path);
  check_stored_encoding(stored.config.model, path);
  const std::string weights = folder + "/model.safetensors";
  const TensorFile file = load_tensors(weights);
  return {Encoder(stored.config, file.tensors, weights), stored.about, stored.embedder,
          stored.config.byte_tokens ? nullptr : named_tokenizer(folder, stored.tokenizer)};
}

}  // namespace torsor
