#include "torsor/model/encoder.h"

#include <filesystem>
#include <utility>

#include "torsor/base/file.h"
#include "torsor/base/utf8.h"
#include "torsor/model/activation.h"
#include "torsor/model/attention_parameters.h"
#include "torsor/model/checkpoint_files.h"
#include "torsor/model/hugging_face.h"
#include "torsor/model/hugging_face_encoder.h"
#include "torsor/model/structure_embedder.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

/// What a checkpoint calls the ids.
const char* tokens_of(const EncoderConfig& config) { return config.byte_tokens ? EncoderTokens::kName : "tokens"; }

// What stands on top of the layers and may be drawn anew.
bool is_head(const std::string& name) { return name.rfind("head.", 0) == 0; }

}  // namespace

// ---- configuration --------------------------------------------------------------------------------------------------

void EncoderConfig::complete() {
  if (model.kv_shift) throw UsageError("encoder: kv_shift mixes a token with the one before it, and here is no before");
  for (const std::int64_t one : model.window)
    if (one != 0) throw UsageError(str("encoder: window is for decoders, found ", one));
  if (!(dropout >= 0 && dropout < 1)) throw UsageError(str("encoder: dropout must be in [0, 1), found ", dropout));
  if (segments < 1 || segments > 1024)
    throw UsageError(str("encoder: segments must be from 1 to 1024, found ", segments));
  if (labels < 0 || labels > 100000) throw UsageError(str("encoder: labels must be from 0 to 100000, found ", labels));
  if (is_gated(activation))
    throw UsageError(str("encoder: activation must not be gated, found ", mlp_name(activation)));
  // A BERT's inner width; a decoder's three matrices of 8/3 hold as many numbers.
  if (model.mlp_width == 0) model.mlp_width = 4 * model.width;
  model.complete();
  if (byte_tokens && model.vocabulary_size < EncoderTokens::kCount) model.vocabulary_size = EncoderTokens::kCount;
}

bool is_encoder_checkpoint(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!std::filesystem::is_regular_file(path)) return false;
  const Json json = read_json(path);
  return is_encoder(json) || (json.is_object() && !json.contains("format") && is_hugging_face_encoder(json));
}

bool is_encoder(const Json& json) {
  return json.is_object() && json.contains("kind") && json.at("kind") == Json("encoder");
}

EncoderConfig encoder_from_json(const Json& json, const std::string& source) {
  if (!is_encoder(json)) throw UsageError(str(source, ": expected \"kind\": \"encoder\""));
  Json rest = json;  // what a decoder's file has as well
  for (const char* key :
       {"kind", "norm", "dropout", "segments", "tag_heads", "token_head", "byte_tokens", "activation"})
    rest.erase(key);
  for (const char* key : {"tie_head", "kv_shift", "window", "norm_bias", "mlp", "parallel", "mlp_bias", "head_bias",
                          "embedding_norm", "attention_scale", "head_scale"})
    if (rest.contains(key)) throw UsageError(str(source, ": an encoder has no ", quote(key)));
  EncoderConfig config;
  if (!rest.contains("mlp_width")) rest["mlp_width"] = 4 * rest.value("width", config.model.width);
  config.model = model_from_json(rest, source);
  JsonObject object(json, source);
  const auto norm = object.get<std::string>("norm", "post");
  if (norm != "post" && norm != "pre") object.fail(str("norm must be post or pre, found ", norm));
  config.norm_first = norm == "pre";
  config.dropout = object.get<double>("dropout", config.dropout);
  config.segments = object.get<std::int64_t>("segments", config.segments);
  config.tag_heads = object.get<bool>("tag_heads", config.tag_heads);
  config.token_head = object.get<bool>("token_head", config.token_head);
  config.byte_tokens = object.get<bool>("byte_tokens", config.byte_tokens);
  config.activation = mlp_kind(object, "activation", config.activation);
  config.complete();
  return config;
}

Json encoder_to_json(const EncoderConfig& config) {
  Json json = {{"kind", "encoder"}};
  // Of what makes a decoder's block, an encoder's has two biases and its MLP under another name.
  ModelConfig model = config.model;
  model.block = BlockStyle();
  json.update(model_to_json(model));
  for (const char* key : {"tie_head", "kv_shift", "window"}) json.erase(key);
  if (config.model.block.qkv_bias) json["qkv_bias"] = true;
  if (config.model.block.output_bias) json["output_bias"] = true;
  json["norm"] = config.norm_first ? "pre" : "post";
  json["dropout"] = config.dropout;
  json["segments"] = config.segments;
  json["tag_heads"] = config.tag_heads;
  if (!config.token_head) json["token_head"] = false;
  if (!config.byte_tokens) json["byte_tokens"] = false;
  if (config.activation != MlpKind::Gelu) json["activation"] = mlp_name(config.activation);
  return json;
}

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
  options.named = batch.named;
  if (encoding_->traits().absolute) {
    Side side;
    side.positions = at::arange(tokens, at::kDouble).view({1, tokens, 1}).expand({rows, tokens, 1});
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

void save_encoder(const std::string& folder, const Encoder& encoder, const Json& about, const std::string& embedder) {
  const EncoderConfig& config = encoder.config();
  Json json;
  json["kind"] = "encoder";
  json["encoding"] = config.model.encoding;
  json["model"] = encoder_to_json(config);
  json["vocabulary_size"] = config.model.vocabulary_size;
  json["train_length"] = config.model.train_length;
  json["tokenizer"] = tokens_of(config);
  json["labels"] = config.labels;
  json["task"] = about;
  if (!embedder.empty() && reads_vectors(encoder.encoding()))
    json["structure_embedder"] = structure_embedder_to_json(embedder);
  write_checkpoint(folder, encoder.parameters(), json, nullptr);
}

LoadedEncoder load_encoder(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const Json json = read_json(path);
  JsonObject object(json, path, JsonObject::Blame::data);
  if (!object.has("format") && is_hugging_face_encoder(json)) {
    HuggingFaceEncoder model = read_hugging_face_encoder(json, path);
    const std::map<std::string, at::Tensor> weights = hugging_face_encoder_weights(model, load_sharded(folder), folder);
    return {Encoder(model.config, weights, folder), nullptr, ""};
  }
  check_checkpoint_format(object);
  if (object.get<std::string>("kind", "decoder") != "encoder")
    object.fail("expected the checkpoint of an encoder, found a decoder's");
  const auto tokenizer = object.get<std::string>("tokenizer");
  const auto stored = object.get<std::string>("encoding");
  const auto model = object.get<Json>("model");
  EncoderConfig config;
  try {
    config = encoder_from_json(model, path + ": model");
    config.model.encoding = print(parse(stored));
  } catch (const UsageError& error) {
    // A bad word in a file is bad data, not a bad request.
    throw Error(str(path, ": ", error.what()));
  }
  if (tokenizer != tokens_of(config)) object.fail(str("tokenizer must be ", tokens_of(config), ", found ", tokenizer));
  config.model.vocabulary_size = object.get<std::int64_t>("vocabulary_size");
  config.model.train_length = object.get<std::int64_t>("train_length");
  config.labels = object.get<std::int64_t>("labels");
  const Json about = object.get<Json>("task", Json());
  const std::string embedder = structure_embedder_of(object);
  object.finish();
  const std::string weights = folder + "/model.safetensors";
  const TensorFile file = load_tensors(weights);
  return {Encoder(config, file.tensors, weights), about, embedder};
}

}  // namespace torsor
