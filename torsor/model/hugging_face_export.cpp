// Which family has a model, and what its config.json says. Keys: transformers 5.24, src/transformers/models/*/
// configuration_*.py.
#include "torsor/model/hugging_face_export.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <utility>

#include "torsor/base/file.h"
#include "torsor/encoding/registry.h"
#include "torsor/model/hugging_face.h"
#include "torsor/model/hugging_face_differences.h"
#include "torsor/model/hugging_face_rotation.h"

namespace torsor {
namespace {

// --------------------------------------------------------------------------------------------------------------------
// Keys by family. What a family has no key for is left out here and noticed when its config.json is read back.

struct Writing {
  const ModelConfig& config;
  const HuggingFaceRequest& request;
  const std::string& family;
  Json& json;
  std::string obstacle = {};
};

/// The window that all sliding layers share; 0 without any. Layers with different ones are an obstacle.
std::int64_t one_window(Writing& writing) {
  const ModelConfig& c = writing.config;
  std::int64_t window = 0;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::int64_t one = c.window_of(layer);
    if (one != 0 && window != 0 && one != window) writing.obstacle = "its layers have one window";
    window = std::max(window, one);
  }
  return window;
}

void write_rotation(Writing& writing) {
  const RotationKeys keys = rotation_keys(writing.config, writing.request.longest);
  if (!keys.obstacle.empty()) writing.obstacle = keys.obstacle;
  if (keys.parameters.is_null()) return;
  Json& json = writing.json;
  const std::string type = keys.parameters.at("rope_type");
  const bool partial = keys.parameters.contains("partial_rotary_factor");
  json["max_position_embeddings"] = keys.longest;
  json["rope_parameters"] = keys.parameters;
  if (writing.family == "phi3") {
    // It takes any other type for longrope, and reads the length at the top.
    if (type != "default" && type != "longrope") writing.obstacle = str("it has no scaling '", type, "'");
    json["original_max_position_embeddings"] = keys.original.value_or(writing.config.train_length);
    if (!partial) json["rope_parameters"]["partial_rotary_factor"] = 1.0;
  } else if (writing.family == "gpt_neox") {
    if (!partial) json["rope_parameters"]["partial_rotary_factor"] = 1.0;  // a quarter where it is left out
  } else if (partial) {
    writing.obstacle = "it turns whole heads";
  }
}

void write_llama_like(Writing& writing) {
  const ModelConfig& c = writing.config;
  const std::string& family = writing.family;
  Json& json = writing.json;
  json["hidden_size"] = c.width;
  json["intermediate_size"] = c.mlp_width;
  json["num_hidden_layers"] = c.layers;
  json["num_attention_heads"] = c.heads;
  json["num_key_value_heads"] = c.kv_heads;
  const bool plain = c.head_dim * c.heads == c.width;
  if ((family != "qwen2" && family != "phi3") || !plain) json["head_dim"] = c.head_dim;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = c.norm_eps;
  json["tie_word_embeddings"] = c.tie_head;
  if (family == "llama" || family == "qwen3") json["attention_bias"] = c.block.qkv_bias;
  if (family == "llama") json["mlp_bias"] = c.block.mlp_bias;
  if (family == "phi3" && !plain) writing.obstacle = "its heads are as wide together as the model";
  if (family == "llama" && c.width % c.heads != 0) writing.obstacle = "its width divides by its heads";

  const std::int64_t window = one_window(writing);
  const Json window_or_none = window > 0 ? Json(window) : Json(nullptr);
  if (family == "mistral" || family == "phi3") json["sliding_window"] = window_or_none;
  if (family == "qwen2" || family == "qwen3") {
    json["use_sliding_window"] = window > 0;
    json["sliding_window"] = window_or_none;
    json["max_window_layers"] = c.layers;
    Json& types = json["layer_types"] = Json::array();
    for (std::int64_t layer = 0; layer < c.layers; ++layer)
      types.push_back(c.window_of(layer) > 0 ? "sliding_attention" : "full_attention");
  }
  write_rotation(writing);
}

void write_gpt2(Writing& writing) {
  const ModelConfig& c = writing.config;
  Json& json = writing.json;
  json["n_embd"] = c.width;
  json["n_layer"] = c.layers;
  json["n_head"] = c.heads;
  json["n_inner"] = c.mlp_width;
  json["layer_norm_epsilon"] = c.norm_eps;
  json["tie_word_embeddings"] = c.tie_head;
  json["activation_function"] = c.block.mlp == MlpKind::Gelu ? "gelu" : "gelu_new";
  json["scale_attn_weights"] = c.block.attention_scale != 1;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
  json["add_cross_attention"] = false;
  const Expression expression = parse(c.encoding);
  const Term& term = expression.terms.front();
  json["n_positions"] = c.train_length;
  if (term.name != "learned") return;
  if (const auto rows = Settings(term, find_name(term.name)->keys).integer("length"); rows > 0)
    json["n_positions"] = rows;
}

const char* gelu_name(const ModelConfig& config) {
  return config.block.mlp == MlpKind::GeluTanh ? "gelu_pytorch_tanh" : "gelu";
}

void write_gpt_neox(Writing& writing) {
  const ModelConfig& c = writing.config;
  Json& json = writing.json;
  json["hidden_size"] = c.width;
  json["intermediate_size"] = c.mlp_width;
  json["num_hidden_layers"] = c.layers;
  json["num_attention_heads"] = c.heads;
  json["hidden_act"] = gelu_name(c);
  json["layer_norm_eps"] = c.norm_eps;
  json["tie_word_embeddings"] = c.tie_head;
  json["use_parallel_residual"] = c.block.parallel == Parallel::TwoNorms;
  json["attention_bias"] = c.block.qkv_bias;
  write_rotation(writing);
}

void write_bloom(Writing& writing) {
  const ModelConfig& c = writing.config;
  Json& json = writing.json;
  json["hidden_size"] = c.width;
  json["n_layer"] = c.layers;
  json["n_head"] = c.heads;
  json["layer_norm_epsilon"] = c.norm_eps;
  json["tie_word_embeddings"] = c.tie_head;
  json["seq_length"] = c.train_length;
  json["apply_residual_connection_post_layernorm"] = false;
}

void write_mpt(Writing& writing) {
  const ModelConfig& c = writing.config;
  Json& json = writing.json;
  json["d_model"] = c.width;
  json["n_layers"] = c.layers;
  json["n_heads"] = c.heads;
  json["expansion_ratio"] = 4;
  json["max_seq_len"] = c.train_length;
  json["layer_norm_epsilon"] = c.norm_eps;
  json["tie_word_embeddings"] = c.tie_head;
  json["no_bias"] = true;
  json["norm_type"] = "low_precision_layernorm";
  Json& attention = json["attn_config"];
  attention["alibi"] = true;
  attention["alibi_bias_max"] = 8;
  attention["softmax_scale"] = c.block.attention_scale != 0 ? Json(c.block.attention_scale) : Json(nullptr);
  for (const char* key : {"clip_qkv"}) attention[key] = nullptr;
  for (const char* key : {"prefix_lm", "qk_ln", "attn_uses_sequence_id"}) attention[key] = false;
  attention["attn_type"] = "multihead_attention";
  const Expression expression = parse(c.encoding);
  const Term& term = expression.terms.front();
  if (term.name != "alibi") return;
  const double most = Settings(term, find_name(term.name)->keys).number("max_exponent");
  if (most == std::nearbyint(most)) attention["alibi_bias_max"] = static_cast<std::int64_t>(most);
  // What was read with such a key is written with it again.
  if (most != 8 && writing.request.family != "mpt")
    writing.obstacle = "transformers takes alibi_bias_max for 8, whatever it says";
}

void write_falcon(Writing& writing) {
  const ModelConfig& c = writing.config;
  Json& json = writing.json;
  const bool two = c.block.parallel == Parallel::TwoNorms, beside = c.block.parallel != Parallel::None;
  // The older decoder has one key head or as many as queries; the newer one groups them.
  const bool grouped = two || (c.kv_heads != 1 && c.kv_heads != c.heads);
  json["hidden_size"] = c.width;
  json["num_hidden_layers"] = c.layers;
  json["num_attention_heads"] = c.heads;
  json["num_kv_heads"] = grouped ? c.kv_heads : c.heads;
  json["ffn_hidden_size"] = c.mlp_width;
  json["layer_norm_epsilon"] = c.norm_eps;
  json["tie_word_embeddings"] = c.tie_head;
  json["activation"] = gelu_name(c);
  json["bias"] = c.block.qkv_bias;
  json["new_decoder_architecture"] = grouped;
  json["multi_query"] = !grouped && c.kv_heads == 1;
  json["parallel_attn"] = beside;
  json["num_ln_in_parallel_attn"] = grouped ? Json(two ? 2 : 1) : Json(nullptr);
  if (grouped && !beside) writing.obstacle = "its blocks with grouped keys are parallel";
  const bool alibi = c.encoding == "alibi(learn=true)";
  json["alibi"] = alibi;
  if (alibi)
    json["max_position_embeddings"] = c.train_length;
  else
    write_rotation(writing);
}

struct Family {
  const char* name;
  const char* architecture;
  void (*write)(Writing&);
  bool own_names;  ///< its tensors are named as Decoder's
};

constexpr Family kWrittenFamilies[] = {{"llama", "LlamaForCausalLM", write_llama_like, true},
                                       {"mistral", "MistralForCausalLM", write_llama_like, true},
                                       {"qwen2", "Qwen2ForCausalLM", write_llama_like, true},
                                       {"qwen3", "Qwen3ForCausalLM", write_llama_like, true},
                                       {"phi3", "Phi3ForCausalLM", write_llama_like, false},
                                       {"gpt2", "GPT2LMHeadModel", write_gpt2, false},
                                       {"gpt_neox", "GPTNeoXForCausalLM", write_gpt_neox, false},
                                       {"bloom", "BloomForCausalLM", write_bloom, false},
                                       {"mpt", "MptForCausalLM", write_mpt, false},
                                       {"falcon", "FalconForCausalLM", write_falcon, false}};

// --------------------------------------------------------------------------------------------------------------------
// The family that has a model

/// Fills `form` and answers what keeps the family from having the model.
std::vector<std::string> attempt(const Family& family, const ModelConfig& config, const HuggingFaceRequest& request,
                                 HuggingFaceForm& form) {
  form.family = family.name;
  form.config = Json::object();
  form.config["architectures"] = {family.architecture};
  form.config["model_type"] = family.name;
  form.config["vocab_size"] = config.vocabulary_size;
  Writing writing{config, request, form.family, form.config};
  family.write(writing);
  std::vector<std::string> found;
  if (!writing.obstacle.empty()) found.push_back(writing.obstacle);
  try {
    const std::vector<std::string> more =
        model_differences(config, read_hugging_face(form.config, "config.json").config);
    found.insert(found.end(), more.begin(), more.end());
  } catch (const Error& error) {
    if (found.empty()) found.push_back(error.what());
  }
  return found;
}

void each_operand(Term& term, const std::function<void(Term&)>& change) {
  change(term);
  for (Item& item : term.operands)
    for (Term& inner : item.expression.terms) each_operand(inner, change);
}

}  // namespace

HuggingFaceForm hugging_face_form(const ModelConfig& config, const HuggingFaceRequest& request) {
  HuggingFaceForm form, nearest;
  std::vector<std::string> least;
  const auto fits = [&](const Family& family) {
    if (request.own_names && !family.own_names) return false;
    const std::vector<std::string> found = attempt(family, config, request, form);
    if (!found.empty() && (least.empty() || found.size() < least.size())) {
      least = found;
      nearest = form;
    }
    return found.empty();
  };
  for (const Family& family : kWrittenFamilies)
    if (family.name == request.family && fits(family)) return form;
  for (const Family& family : kWrittenFamilies)
    if (family.name != request.family && fits(family)) return form;
  throw no_family(nearest.family, least);
}

std::string hugging_face_layout(const std::string& encoding) {
  Expression expression = parse(encoding);
  for (Term& term : expression.terms)
    each_operand(term, [](Term& one) {
      std::erase_if(one.arguments,
                    [](const Argument& argument) { return argument.key == "layout" || argument.key == "orientation"; });
    });
  return print(parse(print(expression)));
}

HuggingFaceCompanions hugging_face_companions(const std::string& checkpoint) {
  HuggingFaceCompanions companions;
  const std::string path = checkpoint + "/config.json";
  if (!std::filesystem::is_regular_file(path)) return companions;
  const Json json = read_json(path);
  if (!is_hugging_face(json) || !json.at("model_type").is_string()) return companions;
  companions.family = json.at("model_type");
  companions.longest =
      json.contains("max_position_embeddings") && json.at("max_position_embeddings").is_number_integer()
          ? json.at("max_position_embeddings").get<std::int64_t>()
          : 0;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (json.contains(key)) companions.tokens[key] = json.at(key);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "spiece.model",
                           "sentencepiece.bpe.model", "chat_template.jinja", "generation_config.json"})
    if (const std::string file = checkpoint + "/" + name; std::filesystem::is_regular_file(file))
      companions.files.push_back(file);
  return companions;
}

}  // namespace torsor
