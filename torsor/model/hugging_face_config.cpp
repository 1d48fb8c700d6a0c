// Hugging Face's config.json, family by family. Keys and defaults: transformers 5.24, src/transformers/models/*/
// configuration_*.py and modeling_rope_utils.py.
#include "torsor/model/hugging_face_config.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "torsor/base/utf8.h"
#include "torsor/encoding/bias/slopes.h"
#include "torsor/encoding/expression.h"
#include "torsor/model/expression_number.h"
#include "torsor/model/foreign_keys.h"

namespace torsor {
namespace {

using foreign_keys::either;
using foreign_keys::expect;
using foreign_keys::finish_positions;
using foreign_keys::integer;
using foreign_keys::layers;
using foreign_keys::length;
using foreign_keys::size;

// --------------------------------------------------------------------------------------------------------------------
// Rotations

/// transformers: yarn_get_mscale.
double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

/// The rotation as an expression, and the length that the model was first trained on where the keys tell.
struct Rotation {
  std::string expression;
  std::optional<std::int64_t> trained;
};

Rotation read_rotation(JsonObject& top, std::int64_t head_dim, std::int64_t longest, double default_part = 1) {
  // The newer form is one object; the older one has its parts beside each other.
  Json merged = Json::object();
  std::string place = "rope_parameters";
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json value = top.get<Json>(key, Json(nullptr));
    if (value.is_null()) continue;
    if (!value.is_object()) top.fail(str(quote(key), " must be an object, found ", foreign_keys::shown(value)));
    if (!merged.empty() && merged != value) top.fail("\"rope_scaling\" and \"rope_parameters\" say different things");
    place = key;
    merged = value;
  }
  const auto move = [&](const char* key, const char* to) {
    if (top.has(key) && !merged.contains(to)) merged[to] = top.get<Json>(key);
  };
  move("rope_theta", "rope_theta");
  move("rotary_emb_base", "rope_theta");
  move("partial_rotary_factor", "partial_rotary_factor");
  move("rotary_pct", "partial_rotary_factor");
  // At the top it wins over the object's (Phi-3).
  if (top.has("original_max_position_embeddings"))
    merged["original_max_position_embeddings"] = top.get<Json>("original_max_position_embeddings");
  if (merged.contains("type") && !merged.contains("rope_type")) merged["rope_type"] = merged.at("type");
  merged.erase("type");

  JsonObject keys(merged, str(top.source(), ": ", place), JsonObject::Blame::data);
  const double base = keys.get<double>("rope_theta", 10000.0);
  const double part = keys.get<double>("partial_rotary_factor", default_part);
  std::string type = keys.get<std::string>("rope_type", "default");
  if (type == "su") type = "longrope";
  if (!(part > 0 && part <= 1)) keys.fail(str("\"partial_rotary_factor\" must lie in (0, 1], found ", part));
  const auto width = static_cast<std::int64_t>(static_cast<double>(head_dim) * part);
  if (width < 1) keys.fail(str("\"partial_rotary_factor\": ", part, " of ", head_dim, " channels turns none"));
  std::string inner = "base=" + expression_number(base);
  if (width != head_dim) inner += str(", dim=", width);
  const std::string rope = "rope(" + inner + ")";

  Rotation result{rope, std::nullopt};
  const auto original = [&] { return length(keys, "original_max_position_embeddings", longest); };
  if (type == "default") {
    if (keys.has("original_max_position_embeddings")) result.trained = original();
  } else if (type == "linear") {
    result.expression = str("linear(", rope, ", factor=", expression_number(keys.get<double>("factor")), ")");
  } else if (type == "dynamic") {
    result.expression = str("dynamic(", rope, ", factor=", expression_number(keys.get<double>("factor")),
                            ", train_length=", longest, ")");
    keys.allow("original_max_position_embeddings");
  } else if (type == "yarn") {
    result.trained = original();
    const double factor =
        keys.get<double>("factor", static_cast<double>(longest) / static_cast<double>(*result.trained));
    std::string text = str("yarn(", rope, ", factor=", expression_number(factor), ", train_length=", *result.trained,
                           ", beta_fast=", expression_number(keys.get<double>("beta_fast", 32.0)),
                           ", beta_slow=", expression_number(keys.get<double>("beta_slow", 1.0)));
    if (!keys.get<bool>("truncate", true)) text += ", truncate=false";
    const double mscale = keys.get<double>("mscale", 0.0), all = keys.get<double>("mscale_all_dim", 0.0);
    if (keys.has("attention_factor"))
      text += ", attention_factor=" + expression_number(keys.get<double>("attention_factor"));
    else if (mscale != 0 && all != 0) {
      const double ratio = yarn_mscale(factor, mscale) / yarn_mscale(factor, all);
      if (!(ratio > 0 && std::isfinite(ratio)))
        keys.fail(
            str("\"mscale\": ", mscale, " and \"mscale_all_dim\": ", all, " give the softmax the factor ", ratio));
      text += ", attention_factor=" + expression_number(ratio);
    }
    result.expression = text + ")";
  } else if (type == "longrope") {
    result.trained = original();
    const double factor =
        keys.get<double>("factor", static_cast<double>(longest) / static_cast<double>(*result.trained));
    const auto list = [&](const char* key) {
      std::string text;
      for (const double one : keys.get<std::vector<double>>(key))
        text += (text.empty() ? "" : ", ") + expression_number(one);
      return "[" + text + "]";
    };
    std::string text = str("longrope(", rope, ", short=", list("short_factor"), ", long=", list("long_factor"),
                           ", train_length=", *result.trained, ", factor=", expression_number(factor));
    if (keys.has("attention_factor"))
      text += ", attention_factor=" + expression_number(keys.get<double>("attention_factor"));
    result.expression = text + ")";
  } else if (type == "llama3") {
    result.trained = original();
    result.expression = str("llama3(", rope, ", factor=", expression_number(keys.get<double>("factor")),
                            ", low_freq_factor=", expression_number(keys.get<double>("low_freq_factor")),
                            ", high_freq_factor=", expression_number(keys.get<double>("high_freq_factor")),
                            ", train_length=", *result.trained, ")");
  } else {
    keys.fail(str("\"rope_type\": ", quote(type), " is not known here"));
  }
  keys.finish();
  return result;
}

// --------------------------------------------------------------------------------------------------------------------
// Families

MlpKind gelu_of(JsonObject& keys, const char* key, const std::string& fallback) {
  const std::string name = keys.get<std::string>(key, fallback);
  if (name == "gelu") return MlpKind::Gelu;
  for (const char* tanh : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "bloom_gelu"})
    if (name == tanh) return MlpKind::GeluTanh;
  keys.fail(
      str("\"", key, "\": ", quote(name), " is not supported, only gelu, gelu_new, gelu_pytorch_tanh, gelu_fast"));
}

void set_rotation(HuggingFaceModel& model, JsonObject& keys, std::int64_t longest, double default_part = 1) {
  const Rotation rotation = read_rotation(keys, model.config.head_dim, longest, default_part);
  model.config.encoding = rotation.expression;
  model.config.train_length = rotation.trained.value_or(longest);
}

/// Windows of the layers: one number for all, or by layer_types.
void set_windows(ModelConfig& config, JsonObject& keys, std::optional<std::int64_t> window) {
  if (!keys.has("layer_types")) {
    if (window) config.window = {*window};
    return;
  }
  const auto types = keys.get<std::vector<std::string>>("layer_types");
  if (types.size() != static_cast<std::size_t>(config.layers))
    keys.fail(str("\"layer_types\" must list ", config.layers, " layers"));
  bool any = false;
  std::vector<std::int64_t> list;
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      keys.fail(str("\"layer_types\": ", quote(type), " is not supported"));
    const bool slides = type == "sliding_attention";
    if (slides && !window) keys.fail("\"layer_types\" has sliding_attention, and \"sliding_window\" is missing");
    list.push_back(slides ? *window : 0);
    any |= slides;
  }
  if (any) config.window = list;
}

/// The width of a head where no key tells it.
std::int64_t divided(const JsonObject& keys, const ModelConfig& config) {
  if (config.width % config.heads != 0)
    keys.fail(str("the width ", config.width, " does not divide by the ", config.heads, " heads"));
  return config.width / config.heads;
}

void read_llama_sizes(ModelConfig& config, JsonObject& keys) {
  config.width = size(keys, "hidden_size");
  config.layers = layers(keys, "num_hidden_layers");
  config.heads = size(keys, "num_attention_heads");
  config.kv_heads = size(keys, "num_key_value_heads", config.heads);
  config.head_dim = keys.has("head_dim") ? size(keys, "head_dim") : divided(keys, config);
  config.mlp_width = size(keys, "intermediate_size");
  config.norm_eps = keys.get<double>("rms_norm_eps", 1e-6);
  config.tie_head = keys.get<bool>("tie_word_embeddings", false);
  expect(keys, "hidden_act", "silu");
}

void read_llama_like(HuggingFaceModel& model, JsonObject& keys) {
  ModelConfig& config = model.config;
  const std::string& type = model.model_type;
  read_llama_sizes(config, keys);
  const std::int64_t longest = length(keys, "max_position_embeddings", type == "mistral" ? 131072 : 2048);
  const bool qwen = type == "qwen2" || type == "qwen3";
  if (type == "qwen2") {
    config.block.qkv_bias = true;
  } else if (type == "llama" || type == "qwen3") {
    config.block.qkv_bias = config.block.output_bias = keys.get<bool>("attention_bias", false);
  }
  if (type == "llama") config.block.mlp_bias = keys.get<bool>("mlp_bias", false);
  if (type == "qwen3") config.qk_norm = QkNorm::Before;
  if (type == "phi3") model.fused = FusedRows::Blocks;

  std::optional<std::int64_t> window;
  if (type != "llama" && keys.has("sliding_window"))
    window = qwen ? integer(keys, "sliding_window") : length(keys, "sliding_window");
  if (qwen) {
    const bool used = keys.get<bool>("use_sliding_window", false);
    const std::int64_t from = integer(keys, "max_window_layers", 28);
    if (!used) window = std::nullopt;
    if (window && *window < 1) keys.fail(str("\"sliding_window\" must be at least 1, found ", *window));
    // Without layer_types the layers from the one with this number on slide.
    if (window && !keys.has("layer_types")) {
      for (std::int64_t layer = 0; layer < config.layers; ++layer) config.window.push_back(layer >= from ? *window : 0);
      window = std::nullopt;
    }
  }
  if (config.window.empty()) set_windows(config, keys, window);
  set_rotation(model, keys, longest);
}

void read_gpt2(HuggingFaceModel& model, JsonObject& keys) {
  ModelConfig& config = model.config;
  config.width = size(keys, "n_embd");
  config.layers = layers(keys, "n_layer");
  config.heads = size(keys, "n_head");
  config.mlp_width = size(keys, "n_inner", 4 * config.width);
  config.norm_eps = keys.get<double>("layer_norm_epsilon", 1e-5);
  config.tie_head = keys.get<bool>("tie_word_embeddings", true);
  config.train_length = length(keys, "n_positions", 1024);
  config.encoding = str("learned(length=", config.train_length, ")");
  config.block.norm = NormKind::Layer;
  config.block.mlp = gelu_of(keys, "activation_function", "gelu_new");
  config.block.qkv_bias = config.block.output_bias = config.block.mlp_bias = true;
  if (!keys.get<bool>("scale_attn_weights", true)) config.block.attention_scale = 1;
  expect(keys, "scale_attn_by_inverse_layer_idx", false);
  expect(keys, "add_cross_attention", false);
  model.fused = FusedRows::Blocks;
}

void read_gpt_neox(HuggingFaceModel& model, JsonObject& keys) {
  ModelConfig& config = model.config;
  config.width = size(keys, "hidden_size");
  config.layers = layers(keys, "num_hidden_layers");
  config.heads = size(keys, "num_attention_heads");
  config.head_dim = divided(keys, config);
  config.mlp_width = size(keys, "intermediate_size");
  config.norm_eps = keys.get<double>("layer_norm_eps", 1e-5);
  config.tie_head = keys.get<bool>("tie_word_embeddings", false);
  config.block.norm = NormKind::Layer;
  config.block.mlp = gelu_of(keys, "hidden_act", "gelu");
  config.block.parallel = keys.get<bool>("use_parallel_residual", true) ? Parallel::TwoNorms : Parallel::None;
  config.block.qkv_bias = config.block.output_bias = keys.get<bool>("attention_bias", true);
  config.block.mlp_bias = true;
  model.fused = FusedRows::Heads;
  set_rotation(model, keys, length(keys, "max_position_embeddings", 2048), 0.25);
}

void read_bloom(HuggingFaceModel& model, JsonObject& keys) {
  ModelConfig& config = model.config;
  config.width = size(keys, either(keys, "hidden_size", "n_embed"));
  config.layers = layers(keys, either(keys, "n_layer", "num_hidden_layers"));
  config.heads = size(keys, either(keys, "n_head", "num_attention_heads"));
  config.mlp_width = 4 * config.width;
  config.norm_eps = keys.get<double>("layer_norm_epsilon", 1e-5);
  config.tie_head = keys.get<bool>("tie_word_embeddings", true);
  config.train_length = length(keys, "seq_length", 2048);  // BLOOM's own; its models are trained on 2048 tokens
  config.encoding = "alibi";
  config.block.norm = NormKind::Layer;
  config.block.mlp = MlpKind::GeluTanh;
  config.block.qkv_bias = config.block.output_bias = config.block.mlp_bias = true;
  config.block.embedding_norm = true;
  expect(keys, "apply_residual_connection_post_layernorm", false);
  model.fused = FusedRows::Heads;
}

void read_mpt(HuggingFaceModel& model, JsonObject& keys) {
  ModelConfig& config = model.config;
  config.width = size(keys, "d_model");
  config.layers = layers(keys, "n_layers");
  config.heads = size(keys, "n_heads");
  config.mlp_width = 4 * config.width;  // "expansion_ratio" is written and never read
  config.norm_eps = keys.get<double>("layer_norm_epsilon", 1e-5);
  config.tie_head = keys.get<bool>("tie_word_embeddings", true);
  config.train_length = length(keys, "max_seq_len", 2048);
  config.block.norm = NormKind::Layer;
  config.block.norm_bias = false;
  config.block.mlp = MlpKind::Gelu;
  model.fused = FusedRows::Blocks;
  expect(keys, "no_bias", true);
  keys.allow("learned_pos_emb");
  const Json config_of_attention = keys.get<Json>("attn_config", Json::object());
  JsonObject attention(config_of_attention, keys.source() + ": attn_config", JsonObject::Blame::data);
  expect(attention, "clip_qkv", nullptr);
  expect(attention, "qk_ln", false);
  expect(attention, "prefix_lm", false);
  expect(attention, "attn_type", "multihead_attention");
  expect(attention, "attn_uses_sequence_id", false);
  if (attention.has("softmax_scale")) {
    config.block.attention_scale = attention.get<double>("softmax_scale");
    if (!(config.block.attention_scale > 0))
      attention.fail(str("\"softmax_scale\" must be above 0, found ", config.block.attention_scale));
  }
  const double most = attention.get<double>("alibi_bias_max", 8.0);
  if (!attention.get<bool>("alibi", true)) keys.fail("attn_config: \"alibi\": false is not supported");
  config.encoding = most == 8 ? "alibi" : str("alibi(max_exponent=", expression_number(most), ")");
  finish_positions(attention);
}

void read_falcon(HuggingFaceModel& model, JsonObject& keys) {
  ModelConfig& config = model.config;
  config.width = size(keys, "hidden_size");
  config.layers = layers(keys, either(keys, "num_hidden_layers", "n_layer"));
  config.heads = size(keys, either(keys, "num_attention_heads", "n_head"));
  config.head_dim = divided(keys, config);
  config.mlp_width = size(keys, "ffn_hidden_size", 4 * config.width);
  config.norm_eps = keys.get<double>("layer_norm_epsilon", 1e-5);
  config.tie_head = keys.get<bool>("tie_word_embeddings", true);
  config.block.norm = NormKind::Layer;
  config.block.mlp = gelu_of(keys, "activation", "gelu");
  config.block.qkv_bias = config.block.output_bias = config.block.mlp_bias = keys.get<bool>("bias", false);
  const bool grouped = keys.get<bool>("new_decoder_architecture", false), one_key = keys.get<bool>("multi_query", true);
  const std::int64_t key_heads = size(keys, "num_kv_heads", config.heads);
  const bool beside = keys.get<bool>("parallel_attn", true);
  if (grouped) {
    config.kv_heads = key_heads;
    model.fused = FusedRows::Groups;
    const std::int64_t norms = integer(keys, "num_ln_in_parallel_attn", 2);
    if (norms != 1 && norms != 2) keys.fail(str("\"num_ln_in_parallel_attn\" must be 1 or 2, found ", norms));
    config.block.parallel = norms == 2 ? Parallel::TwoNorms : Parallel::OneNorm;
  } else {
    config.kv_heads = one_key ? 1 : config.heads;
    model.fused = one_key ? FusedRows::Blocks : FusedRows::Heads;
    config.block.parallel = beside ? Parallel::OneNorm : Parallel::None;
    keys.allow("num_ln_in_parallel_attn");
  }
  const std::int64_t longest = length(keys, "max_position_embeddings", 2048);
  if (!keys.get<bool>("alibi", false)) {
    set_rotation(model, keys, longest);
    return;
  }
  for (const char* key : {"rope_parameters", "rope_scaling", "rope_theta"}) keys.allow(key);
  config.train_length = longest;
  // Falcon adds the bias before it divides by the root of the head's width: slopes of its own.
  config.encoding = "alibi(learn=true)";
  model.slopes = alibi_slopes(config.heads, 8);
  for (double& slope : model.slopes) slope /= std::sqrt(static_cast<double>(config.head_dim));
}

using Reader = void (*)(HuggingFaceModel&, JsonObject&);
const std::vector<std::pair<const char*, Reader>> kReadFamilies = {
    {"llama", read_llama_like}, {"mistral", read_llama_like}, {"qwen2", read_llama_like},  {"qwen3", read_llama_like},
    {"phi3", read_llama_like},  {"gpt2", read_gpt2},          {"gpt_neox", read_gpt_neox}, {"bloom", read_bloom},
    {"mpt", read_mpt},          {"falcon", read_falcon}};

}  // namespace

bool is_hugging_face(const Json& config) { return config.is_object() && config.contains("model_type"); }

HuggingFaceModel describe_hugging_face(const Json& config, const std::string& source) {
  JsonObject keys(config, source, JsonObject::Blame::data);
  HuggingFaceModel model;
  model.model_type = keys.get<std::string>("model_type", "");
  const auto family = std::find_if(kReadFamilies.begin(), kReadFamilies.end(),
                                   [&](const auto& one) { return model.model_type == one.first; });
  if (family == kReadFamilies.end()) {
    std::string names;
    for (const auto& [name, reader] : kReadFamilies) names += (names.empty() ? "" : ", ") + std::string(name);
    keys.fail(str("\"model_type\": ", quote(model.model_type), " is not known here; there are ", names));
  }
  model.config.vocabulary_size = foreign_keys::vocabulary(keys, "vocab_size");
  family->second(model, keys);
  finish_positions(keys);
  // Ids outside the vocabulary, which small models inherit from the defaults of their family, end nothing.
  for (const std::int64_t token : foreign_keys::token_ids(keys, "eos_token_id"))
    if (token >= 0 && token < model.config.vocabulary_size) model.end_tokens.push_back(token);
  foreign_keys::completed(keys, [&] {
    model.config.encoding = print(parse_grammar(model.config.encoding));
    model.config.complete();
  });
  return model;
}

}  // namespace torsor
