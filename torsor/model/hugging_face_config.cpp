// Hugging Face's config.json, family by family. Keys and defaults: transformers 5.24, src/transformers/models/*/
// configuration_*.py and modeling_rope_utils.py.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "torsor/base/utf8.h"
#include "torsor/encoding/bias/slopes.h"
#include "torsor/encoding/registry.h"
#include "torsor/model/expression_number.h"
#include "torsor/model/hugging_face.h"

namespace torsor {
namespace {

/// A config.json that remembers which of its keys were read.
class Keys {
 public:
  Keys(const Json& json, std::string source) : json_(json), source_(std::move(source)) {
    if (!json.is_object()) fail("expected an object");
  }

  [[noreturn]] void fail(const std::string& message) const { throw Error(str(source_, ": ", message)); }
  const std::string& source() const { return source_; }

  /// The value, or nothing where it is missing or null; the key counts as known.
  const Json* find(const std::string& key) {
    known_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const std::string& key) { return find(key) != nullptr; }

  std::int64_t integer(const std::string& key, std::optional<std::int64_t> fallback = std::nullopt) {
    const Json* value = find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr) fail(str("\"", key, "\" is missing"));
    if (!value->is_number_integer()) fail(str("\"", key, "\" must be a whole number, found ", json_text(*value)));
    return value->get<std::int64_t>();
  }
  double real(const std::string& key, std::optional<double> fallback = std::nullopt) {
    const Json* value = find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr) fail(str("\"", key, "\" is missing"));
    if (!value->is_number()) fail(str("\"", key, "\" must be a number, found ", json_text(*value)));
    return value->get<double>();
  }
  bool flag(const std::string& key, bool fallback) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) fail(str("\"", key, "\" must be true or false, found ", json_text(*value)));
    return value->get<bool>();
  }
  std::string word(const std::string& key, const std::string& fallback) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) fail(str("\"", key, "\" must be a string, found ", json_text(*value)));
    return value->get<std::string>();
  }
  std::vector<double> reals(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr) fail(str("\"", key, "\" is missing"));
    std::vector<double> list;
    for (const Json& one : value->is_array() ? *value : Json::array({nullptr})) {
      if (!one.is_number()) fail(str("\"", key, "\" must be a list of numbers, found ", json_text(*value)));
      list.push_back(one.get<double>());
    }
    return list;
  }
  Keys object(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr || !value->is_object()) fail(str("\"", key, "\" must be an object"));
    return {*value, str(source_, ": ", key)};
  }
  void expect(const std::string& key, const Json& value) {
    const Json* found = find(key);
    if (found != nullptr && *found != value)
      fail(str("\"", key, "\": ", json_text(*found), " is not supported, only ", json_text(value)));
  }

  /// Throws for a key that nobody asked for.
  void finish() const {
    for (const auto& [key, value] : json_.items())
      if (known_.count(key) == 0) fail(str("\"", key, "\" is not known here, and it says something about positions"));
  }
  /// The same for keys whose names are about positions; others say nothing that the model depends on.
  void finish_positions() const {
    for (const auto& [key, value] : json_.items()) {
      if (known_.count(key) > 0) continue;
      for (const char* part :
           {"rope", "rotary", "alibi", "position", "relative_att", "sliding", "window", "layer_types"})
        if (key.find(part) != std::string::npos)
          fail(str("\"", key, "\": ", json_text(value), " is not known for this family, and it is about positions"));
    }
  }

 private:
  const Json& json_;
  std::string source_;
  std::set<std::string> known_;
};

// --------------------------------------------------------------------------------------------------------------------
// Rotations

/// transformers: yarn_get_mscale.
double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

/// The rotation as an expression, and the length that the model was first trained on where the keys tell.
struct Rotation {
  std::string expression;
  std::optional<std::int64_t> trained;
};

Rotation read_rotation(Keys& top, std::int64_t head_dim, std::int64_t longest, double default_part = 1) {
  // The newer form is one object; the older one has its parts beside each other.
  Json merged = Json::object();
  std::string place = "rope_parameters";
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = top.find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) top.fail(str("\"", key, "\" must be an object, found ", json_text(*value)));
    place = key;
    merged = *value;
  }
  const auto move = [&](const char* key, const char* to) {
    const Json* value = top.find(key);
    if (value != nullptr && !merged.contains(to)) merged[to] = *value;
  };
  move("rope_theta", "rope_theta");
  move("rotary_emb_base", "rope_theta");
  move("partial_rotary_factor", "partial_rotary_factor");
  move("rotary_pct", "partial_rotary_factor");
  // At the top it wins over the object's (Phi-3).
  if (const Json* original = top.find("original_max_position_embeddings"))
    merged["original_max_position_embeddings"] = *original;
  if (merged.contains("type") && !merged.contains("rope_type")) merged["rope_type"] = merged.at("type");
  merged.erase("type");

  Keys keys(merged, str(top.source(), ": ", place));
  const double base = keys.real("rope_theta", 10000);
  const double part = keys.real("partial_rotary_factor", default_part);
  std::string type = keys.word("rope_type", "default");
  if (type == "su") type = "longrope";
  if (!(part > 0 && part <= 1)) keys.fail(str("\"partial_rotary_factor\" must lie in (0, 1], found ", part));
  const auto width = static_cast<std::int64_t>(static_cast<double>(head_dim) * part);
  std::string inner = "base=" + expression_number(base);
  if (width != head_dim) inner += str(", dim=", width);
  const std::string rope = "rope(" + inner + ")";

  Rotation result{rope, std::nullopt};
  const auto original = [&] { return keys.integer("original_max_position_embeddings", longest); };
  if (type == "default") {
    if (keys.has("original_max_position_embeddings")) result.trained = original();
  } else if (type == "linear") {
    result.expression = str("linear(", rope, ", factor=", expression_number(keys.real("factor")), ")");
  } else if (type == "dynamic") {
    result.expression =
        str("dynamic(", rope, ", factor=", expression_number(keys.real("factor")), ", train_length=", longest, ")");
    keys.find("original_max_position_embeddings");
  } else if (type == "yarn") {
    result.trained = original();
    const double factor = keys.real("factor", static_cast<double>(longest) / static_cast<double>(*result.trained));
    std::string text = str("yarn(", rope, ", factor=", expression_number(factor), ", train_length=", *result.trained,
                           ", beta_fast=", expression_number(keys.real("beta_fast", 32)),
                           ", beta_slow=", expression_number(keys.real("beta_slow", 1)));
    if (!keys.flag("truncate", true)) text += ", truncate=false";
    const double mscale = keys.real("mscale", 0), all = keys.real("mscale_all_dim", 0);
    if (keys.has("attention_factor"))
      text += ", attention_factor=" + expression_number(keys.real("attention_factor"));
    else if (mscale != 0 && all != 0)
      text += ", attention_factor=" + expression_number(yarn_mscale(factor, mscale) / yarn_mscale(factor, all));
    result.expression = text + ")";
  } else if (type == "longrope") {
    result.trained = original();
    const double factor = keys.has("original_max_position_embeddings")
                              ? static_cast<double>(longest) / static_cast<double>(*result.trained)
                              : keys.real("factor");
    keys.find("factor");
    const auto list = [&](const char* key) {
      std::string text;
      for (const double one : keys.reals(key)) text += (text.empty() ? "" : ", ") + expression_number(one);
      return "[" + text + "]";
    };
    std::string text = str("longrope(", rope, ", short=", list("short_factor"), ", long=", list("long_factor"),
                           ", train_length=", *result.trained, ", factor=", expression_number(factor));
    if (keys.has("attention_factor")) text += ", attention_factor=" + expression_number(keys.real("attention_factor"));
    result.expression = text + ")";
  } else if (type == "llama3") {
    result.trained = original();
    result.expression = str("llama3(", rope, ", factor=", expression_number(keys.real("factor")),
                            ", low_freq_factor=", expression_number(keys.real("low_freq_factor")),
                            ", high_freq_factor=", expression_number(keys.real("high_freq_factor")),
                            ", train_length=", *result.trained, ")");
  } else {
    keys.fail(str("\"rope_type\": ", quote(type), " is not known here"));
  }
  keys.finish();
  return result;
}

// --------------------------------------------------------------------------------------------------------------------
// Families

MlpKind gelu_of(Keys& keys, const char* key, const std::string& fallback) {
  const std::string name = keys.word(key, fallback);
  if (name == "gelu") return MlpKind::Gelu;
  for (const char* tanh : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "bloom_gelu"})
    if (name == tanh) return MlpKind::GeluTanh;
  keys.fail(
      str("\"", key, "\": ", quote(name), " is not supported, only gelu, gelu_new, gelu_pytorch_tanh, gelu_fast"));
}

void set_rotation(HuggingFaceModel& model, Keys& keys, std::int64_t longest, double default_part = 1) {
  const Rotation rotation = read_rotation(keys, model.config.head_dim, longest, default_part);
  model.config.encoding = rotation.expression;
  model.config.train_length = rotation.trained.value_or(longest);
}

/// Windows of the layers: one number for all, or by layer_types.
void set_windows(ModelConfig& config, Keys& keys, std::optional<std::int64_t> window) {
  const Json* types = keys.find("layer_types");
  if (types == nullptr) {
    if (window) config.window = {*window};
    return;
  }
  if (!types->is_array() || types->size() != static_cast<std::size_t>(config.layers))
    keys.fail(str("\"layer_types\" must list ", config.layers, " layers"));
  bool any = false;
  std::vector<std::int64_t> list;
  for (const Json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention")
      keys.fail(str("\"layer_types\": ", json_text(type), " is not supported"));
    const bool slides = type == "sliding_attention";
    if (slides && !window) keys.fail("\"layer_types\" has sliding_attention, and \"sliding_window\" is missing");
    list.push_back(slides ? *window : 0);
    any |= slides;
  }
  if (any) config.window = list;
}

void read_llama_sizes(ModelConfig& config, Keys& keys) {
  config.width = keys.integer("hidden_size");
  config.layers = keys.integer("num_hidden_layers");
  config.heads = keys.integer("num_attention_heads");
  config.kv_heads = keys.integer("num_key_value_heads", config.heads);
  if (config.heads < 1) keys.fail(str("\"num_attention_heads\" must be at least 1, found ", config.heads));
  config.head_dim = keys.integer("head_dim", config.width / config.heads);
  config.mlp_width = keys.integer("intermediate_size");
  config.norm_eps = keys.real("rms_norm_eps", 1e-6);
  config.tie_head = keys.flag("tie_word_embeddings", false);
  keys.expect("hidden_act", "silu");
}

void read_llama_like(HuggingFaceModel& model, Keys& keys) {
  ModelConfig& config = model.config;
  const std::string& type = model.model_type;
  read_llama_sizes(config, keys);
  const std::int64_t longest = keys.integer("max_position_embeddings", type == "mistral" ? 131072 : 2048);
  const bool qwen = type == "qwen2" || type == "qwen3";
  if (type == "qwen2") {
    config.block.qkv_bias = true;
  } else if (type == "llama" || type == "qwen3") {
    config.block.qkv_bias = config.block.output_bias = keys.flag("attention_bias", false);
  }
  if (type == "llama") config.block.mlp_bias = keys.flag("mlp_bias", false);
  if (type == "qwen3") config.qk_norm = QkNorm::Before;
  if (type == "phi3") model.fused = FusedRows::Blocks;

  std::optional<std::int64_t> window;
  if (type != "llama" && keys.has("sliding_window")) window = keys.integer("sliding_window");
  if (qwen) {
    const bool used = keys.flag("use_sliding_window", false);
    const std::int64_t from = keys.integer("max_window_layers", 28);
    if (!used) window = std::nullopt;
    // Without layer_types the layers from the one with this number on slide.
    if (window && !keys.has("layer_types")) {
      for (std::int64_t layer = 0; layer < config.layers; ++layer) config.window.push_back(layer >= from ? *window : 0);
      window = std::nullopt;
    }
  }
  if (config.window.empty()) set_windows(config, keys, window);
  set_rotation(model, keys, longest);
}

void read_gpt2(HuggingFaceModel& model, Keys& keys) {
  ModelConfig& config = model.config;
  config.width = keys.integer("n_embd");
  config.layers = keys.integer("n_layer");
  config.heads = keys.integer("n_head");
  config.mlp_width = keys.integer("n_inner", 4 * config.width);
  config.norm_eps = keys.real("layer_norm_epsilon", 1e-5);
  config.tie_head = keys.flag("tie_word_embeddings", true);
  config.train_length = keys.integer("n_positions", 1024);
  config.encoding = str("learned(length=", config.train_length, ")");
  config.block.norm = NormKind::Layer;
  config.block.mlp = gelu_of(keys, "activation_function", "gelu_new");
  config.block.qkv_bias = config.block.output_bias = config.block.mlp_bias = true;
  if (!keys.flag("scale_attn_weights", true)) config.block.attention_scale = 1;
  keys.expect("scale_attn_by_inverse_layer_idx", false);
  keys.expect("add_cross_attention", false);
  model.fused = FusedRows::Blocks;
}

void read_gpt_neox(HuggingFaceModel& model, Keys& keys) {
  ModelConfig& config = model.config;
  config.width = keys.integer("hidden_size");
  config.layers = keys.integer("num_hidden_layers");
  config.heads = keys.integer("num_attention_heads");
  if (config.heads < 1) keys.fail("\"num_attention_heads\" must be at least 1");
  config.head_dim = config.width / config.heads;
  config.mlp_width = keys.integer("intermediate_size");
  config.norm_eps = keys.real("layer_norm_eps", 1e-5);
  config.tie_head = keys.flag("tie_word_embeddings", false);
  config.block.norm = NormKind::Layer;
  config.block.mlp = gelu_of(keys, "hidden_act", "gelu");
  config.block.parallel = keys.flag("use_parallel_residual", true) ? Parallel::TwoNorms : Parallel::None;
  config.block.qkv_bias = config.block.output_bias = keys.flag("attention_bias", true);
  config.block.mlp_bias = true;
  model.fused = FusedRows::Heads;
  set_rotation(model, keys, keys.integer("max_position_embeddings", 2048), 0.25);
}

void read_bloom(HuggingFaceModel& model, Keys& keys) {
  ModelConfig& config = model.config;
  config.width = keys.has("n_embed") ? keys.integer("n_embed") : keys.integer("hidden_size");
  config.layers = keys.has("num_hidden_layers") ? keys.integer("num_hidden_layers") : keys.integer("n_layer");
  config.heads = keys.has("num_attention_heads") ? keys.integer("num_attention_heads") : keys.integer("n_head");
  config.mlp_width = 4 * config.width;
  config.norm_eps = keys.real("layer_norm_epsilon", 1e-5);
  config.tie_head = keys.flag("tie_word_embeddings", true);
  config.train_length = keys.integer("seq_length", 2048);  // BLOOM's own; its models are trained on 2048 tokens
  config.encoding = "alibi";
  config.block.norm = NormKind::Layer;
  config.block.mlp = MlpKind::GeluTanh;
  config.block.qkv_bias = config.block.output_bias = config.block.mlp_bias = true;
  config.block.embedding_norm = true;
  keys.expect("apply_residual_connection_post_layernorm", false);
  model.fused = FusedRows::Heads;
}

void read_mpt(HuggingFaceModel& model, Keys& keys) {
  ModelConfig& config = model.config;
  config.width = keys.integer("d_model");
  config.layers = keys.integer("n_layers");
  config.heads = keys.integer("n_heads");
  config.mlp_width = 4 * config.width;  // "expansion_ratio" is written and never read
  config.norm_eps = keys.real("layer_norm_epsilon", 1e-5);
  config.tie_head = keys.flag("tie_word_embeddings", true);
  config.train_length = keys.integer("max_seq_len", 2048);
  config.block.norm = NormKind::Layer;
  config.block.norm_bias = false;
  config.block.mlp = MlpKind::Gelu;
  model.fused = FusedRows::Blocks;
  keys.expect("no_bias", true);
  keys.find("learned_pos_emb");
  const Json none = Json::object();
  const bool given = keys.has("attn_config");
  Keys attention = given ? keys.object("attn_config") : Keys(none, keys.source());
  attention.expect("clip_qkv", nullptr);
  attention.expect("qk_ln", false);
  attention.expect("prefix_lm", false);
  attention.expect("attn_type", "multihead_attention");
  attention.expect("attn_uses_sequence_id", false);
  config.block.attention_scale = attention.real("softmax_scale", 0);
  const double most = attention.real("alibi_bias_max", 8);
  if (!attention.flag("alibi", true)) keys.fail("attn_config: \"alibi\": false is not supported");
  config.encoding = most == 8 ? "alibi" : str("alibi(max_exponent=", expression_number(most), ")");
  attention.finish_positions();
}

void read_falcon(HuggingFaceModel& model, Keys& keys) {
  ModelConfig& config = model.config;
  config.width = keys.integer("hidden_size");
  config.layers = keys.has("n_layer") ? keys.integer("n_layer") : keys.integer("num_hidden_layers");
  config.heads = keys.has("n_head") ? keys.integer("n_head") : keys.integer("num_attention_heads");
  if (config.heads < 1) keys.fail("\"num_attention_heads\" must be at least 1");
  config.head_dim = config.width / config.heads;
  config.mlp_width = keys.integer("ffn_hidden_size", 4 * config.width);
  config.norm_eps = keys.real("layer_norm_epsilon", 1e-5);
  config.tie_head = keys.flag("tie_word_embeddings", true);
  config.block.norm = NormKind::Layer;
  config.block.mlp = gelu_of(keys, "activation", "gelu");
  config.block.qkv_bias = config.block.output_bias = config.block.mlp_bias = keys.flag("bias", false);
  const bool grouped = keys.flag("new_decoder_architecture", false), one_key = keys.flag("multi_query", true);
  const std::int64_t key_heads = keys.integer("num_kv_heads", config.heads);
  const bool beside = keys.flag("parallel_attn", true);
  if (grouped) {
    config.kv_heads = key_heads;
    model.fused = FusedRows::Groups;
    config.block.parallel = keys.integer("num_ln_in_parallel_attn", 2) == 2 ? Parallel::TwoNorms : Parallel::OneNorm;
  } else {
    config.kv_heads = one_key ? 1 : config.heads;
    model.fused = one_key ? FusedRows::Blocks : FusedRows::Heads;
    config.block.parallel = beside ? Parallel::OneNorm : Parallel::None;
    keys.find("num_ln_in_parallel_attn");
  }
  const std::int64_t longest = keys.integer("max_position_embeddings", 2048);
  if (!keys.flag("alibi", false)) {
    set_rotation(model, keys, longest);
    return;
  }
  for (const char* key : {"rope_parameters", "rope_scaling", "rope_theta"}) keys.find(key);
  config.train_length = longest;
  // Falcon adds the bias before it divides by the root of the head's width: slopes of its own.
  config.encoding = "alibi(learn=true)";
  model.slopes = alibi_slopes(config.heads, 8);
  for (double& slope : model.slopes) slope /= std::sqrt(static_cast<double>(config.head_dim));
}

using Reader = void (*)(HuggingFaceModel&, Keys&);
const std::vector<std::pair<const char*, Reader>> kFamilies = {
    {"llama", read_llama_like}, {"mistral", read_llama_like}, {"qwen2", read_llama_like},  {"qwen3", read_llama_like},
    {"phi3", read_llama_like},  {"gpt2", read_gpt2},          {"gpt_neox", read_gpt_neox}, {"bloom", read_bloom},
    {"mpt", read_mpt},          {"falcon", read_falcon}};

}  // namespace

bool is_hugging_face(const Json& config) { return config.is_object() && config.contains("model_type"); }

HuggingFaceModel read_hugging_face(const Json& config, const std::string& source) {
  Keys keys(config, source);
  HuggingFaceModel model;
  model.model_type = keys.word("model_type", "");
  const auto family =
      std::find_if(kFamilies.begin(), kFamilies.end(), [&](const auto& one) { return model.model_type == one.first; });
  if (family == kFamilies.end()) {
    std::string names;
    for (const auto& [name, reader] : kFamilies) names += (names.empty() ? "" : ", ") + std::string(name);
    keys.fail(str("\"model_type\": ", quote(model.model_type), " is not known here; there are ", names));
  }
  model.config.vocabulary_size = keys.integer("vocab_size");
  family->second(model, keys);
  keys.finish_positions();
  if (const Json* end = keys.find("eos_token_id"))
    for (const Json& one : end->is_array() ? *end : Json::array({*end}))
      if (one.is_number_integer()) model.end_tokens.push_back(one.get<std::int64_t>());
  try {
    model.config.encoding = print(parse(model.config.encoding));
    model.config.complete();
    make_encoding(model.config.encoding, model.config.dimensions());
  } catch (const UsageError& error) {
    keys.fail(error.what());
  }
  return model;
}

}  // namespace torsor
