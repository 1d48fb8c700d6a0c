#include "torsor/model/config.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "torsor/base/utf8.h"

namespace torsor {
namespace {

const char* norm_name(QkNorm norm) {
  return norm == QkNorm::None ? "none" : norm == QkNorm::Before ? "before" : "after";
}

template <class Kind>
using Names = std::vector<std::pair<const char*, Kind>>;

const Names<NormKind> kNorms = {{"rms", NormKind::Rms}, {"layer", NormKind::Layer}};
const Names<MlpKind> kMlps = {{"swiglu", MlpKind::SwiGlu},      {"gelu", MlpKind::Gelu},
                              {"gelu_tanh", MlpKind::GeluTanh}, {"relu", MlpKind::Relu},
                              {"geglu", MlpKind::GeGlu},        {"geglu_tanh", MlpKind::GeGluTanh}};
const Names<Parallel> kParallels = {
    {"none", Parallel::None}, {"one_norm", Parallel::OneNorm}, {"two_norms", Parallel::TwoNorms}};

template <class Kind>
const char* name_of(const Names<Kind>& names, Kind kind) {
  for (const auto& [name, one] : names)
    if (one == kind) return name;
  return "";
}

template <class Kind>
Kind named(JsonObject& object, const char* key, const Names<Kind>& names, Kind fallback) {
  const auto given = object.get<std::string>(key, name_of(names, fallback));
  std::string all;
  for (const auto& [name, one] : names) {
    if (given == name) return one;
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  object.fail(str(key, " must be one of ", all, ", found ", quote(given)));
}

BlockStyle block_from_json(JsonObject& object) {
  BlockStyle block;
  block.norm = named(object, "norm", kNorms, block.norm);
  block.norm_bias = object.get<bool>("norm_bias", block.norm_bias);
  block.mlp = mlp_kind(object, "mlp", block.mlp);
  block.parallel = named(object, "parallel", kParallels, block.parallel);
  block.qkv_bias = object.get<bool>("qkv_bias", block.qkv_bias);
  block.output_bias = object.get<bool>("output_bias", block.output_bias);
  block.mlp_bias = object.get<bool>("mlp_bias", block.mlp_bias);
  block.head_bias = object.get<bool>("head_bias", block.head_bias);
  block.embedding_norm = object.get<bool>("embedding_norm", block.embedding_norm);
  block.attention_scale = object.get<double>("attention_scale", block.attention_scale);
  block.head_scale = object.get<double>("head_scale", block.head_scale);
  return block;
}

/// Llama's blocks need no words.
void block_to_json(Json& json, const BlockStyle& block) {
  if (block == BlockStyle()) return;
  json["norm"] = name_of(kNorms, block.norm);
  json["norm_bias"] = block.norm_bias;
  json["mlp"] = mlp_name(block.mlp);
  json["parallel"] = name_of(kParallels, block.parallel);
  json["qkv_bias"] = block.qkv_bias;
  json["output_bias"] = block.output_bias;
  json["mlp_bias"] = block.mlp_bias;
  json["head_bias"] = block.head_bias;
  json["embedding_norm"] = block.embedding_norm;
  json["attention_scale"] = block.attention_scale;
  json["head_scale"] = block.head_scale;
}

void in_range(const char* key, std::int64_t value, std::int64_t most = SizeLimits::kSize) {
  if (value < 1) throw UsageError(str("model: ", key, " must be at least 1, found ", value));
  if (value > most) throw UsageError(str("model: ", key, " must be at most ", most, ", found ", value));
}

}  // namespace

bool is_gated(MlpKind kind) { return kind == MlpKind::SwiGlu || kind == MlpKind::GeGlu || kind == MlpKind::GeGluTanh; }

const char* mlp_name(MlpKind kind) { return name_of(kMlps, kind); }

MlpKind mlp_kind(JsonObject& object, const char* key, MlpKind fallback) { return named(object, key, kMlps, fallback); }

void ModelConfig::complete() {
  in_range("width", width);
  in_range("layers", layers, SizeLimits::kLayers);
  in_range("heads", heads);
  in_range("vocabulary_size", vocabulary_size, SizeLimits::kVocabulary);
  if (kv_heads == 0) kv_heads = heads;
  in_range("kv_heads", kv_heads);
  if (heads % kv_heads != 0) throw UsageError(str("model: kv_heads ", kv_heads, " must divide heads ", heads));
  if (head_dim == 0) {
    if (width % heads != 0)
      throw UsageError(str("model: width ", width, " does not divide by heads ", heads, "; give head_dim"));
    head_dim = width / heads;
  }
  in_range("head_dim", head_dim);
  if (mlp_width == 0) mlp_width = std::max<std::int64_t>(8, std::llround(static_cast<double>(width) / 3.0) * 8);
  in_range("mlp_width", mlp_width);
  if (!(norm_eps > 0 && norm_eps <= 1))
    throw UsageError(str("model: norm_eps must be above 0 and at most 1, found ", norm_eps));
  if (train_length < 0 || train_length > SizeLimits::kLength)
    throw UsageError(
        str("model: train_length must be from 0 (unknown) to ", SizeLimits::kLength, ", found ", train_length));
  if (window.size() > 1 && static_cast<std::int64_t>(window.size()) != layers)
    throw UsageError(str("model: window lists ", window.size(), " layers, the model has ", layers));
  if (!(block.attention_scale >= 0) || !std::isfinite(block.attention_scale))
    throw UsageError(str("model: attention_scale must be 0 or more, found ", block.attention_scale));
  if (!(block.head_scale > 0) || !std::isfinite(block.head_scale))
    throw UsageError(str("model: head_scale must be above 0, found ", block.head_scale));
  if (cross_attention && block.parallel != Parallel::None)
    throw UsageError("model: cross-attention stands between attention and MLP, so blocks cannot be parallel");
  if (!causal && kv_shift)
    throw UsageError("model: kv_shift mixes a token with the one before it, and here is no before");
  for (const std::int64_t one : window)
    if (one < 0 || one > SizeLimits::kLength)
      throw UsageError(
          str("model: window must be at least 1 (0 = none) and at most ", SizeLimits::kLength, ", found ", one));
}

Dimensions ModelConfig::dimensions() const {
  Dimensions dimensions;
  dimensions.heads = heads;
  dimensions.kv_heads = kv_heads;
  dimensions.head_dim = head_dim;
  dimensions.width = width;
  dimensions.train_length = train_length;
  dimensions.layers = layers;
  dimensions.precision = precision;
  return dimensions;
}

std::int64_t ModelConfig::window_of(std::int64_t layer) const {
  if (window.empty()) return 0;
  return window.size() == 1 ? window.front() : window[static_cast<std::size_t>(layer)];
}

ModelConfig model_from_json(const Json& json, const std::string& source) {
  JsonObject object(json, source);
  ModelConfig config;
  if (const auto kind = object.get<std::string>("kind", "decoder"); kind != "decoder")
    object.fail(str("expected the model file of a decoder, found \"kind\": ", quote(kind)));
  config.width = object.get<std::int64_t>("width", config.width);
  config.layers = object.get<std::int64_t>("layers", config.layers);
  config.heads = object.get<std::int64_t>("heads", config.heads);
  config.kv_heads = object.get<std::int64_t>("kv_heads", config.kv_heads);
  config.head_dim = object.get<std::int64_t>("head_dim", config.head_dim);
  config.mlp_width = object.get<std::int64_t>("mlp_width", config.mlp_width);
  config.tie_head = object.get<bool>("tie_head", config.tie_head);
  const auto norm = object.get<std::string>("qk_norm", "none");
  if (norm == "before")
    config.qk_norm = QkNorm::Before;
  else if (norm == "after")
    config.qk_norm = QkNorm::After;
  else if (norm != "none")
    object.fail(str("qk_norm must be none, before or after, found ", quote(norm)));
  config.norm_eps = object.get<double>("norm_eps", config.norm_eps);
  if (object.has("window")) {
    if (json.at("window").is_array())
      config.window = object.get<std::vector<std::int64_t>>("window");
    else
      config.window = {object.get<std::int64_t>("window")};
  }
  config.kv_shift = object.get<bool>("kv_shift", false);
  config.block = block_from_json(object);
  config.decay_positions = object.get<bool>("decay_positions", false);
  if (object.has("tag_heads")) config.tag_heads = object.get<bool>("tag_heads");
  const auto precision = object.get<std::string>("precision", "exact");
  if (precision == "hf")
    config.precision = Precision::HuggingFace;
  else if (precision != "exact")
    object.fail(str("precision must be exact or hf, found ", quote(precision)));
  object.finish();
  config.complete();
  return config;
}

ModelConfig read_model_file(const std::string& path) { return model_from_json(read_json(path), path); }

Json model_to_json(const ModelConfig& config) {
  Json json;
  json["width"] = config.width;
  json["layers"] = config.layers;
  json["heads"] = config.heads;
  json["kv_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["mlp_width"] = config.mlp_width;
  json["tie_head"] = config.tie_head;
  json["qk_norm"] = norm_name(config.qk_norm);
  json["norm_eps"] = config.norm_eps;
  json["window"] = config.window.empty()       ? Json(0)
                   : config.window.size() == 1 ? Json(config.window.front())
                                               : Json(config.window);
  json["kv_shift"] = config.kv_shift;
  block_to_json(json, config.block);
  json["decay_positions"] = config.decay_positions;
  if (config.tag_heads) json["tag_heads"] = *config.tag_heads;
  json["precision"] = config.precision == Precision::Exact ? "exact" : "hf";
  return json;
}

}  // namespace torsor
