// Keys: transformers 5.24, src/transformers/models/{t5,mt5,umt5}.
#include "torsor/model/hugging_face_t5_config.h"

#include <cmath>
#include <utility>

#include "torsor/base/utf8.h"
#include "torsor/model/foreign_keys.h"

namespace torsor {
namespace {

using foreign_keys::expect;
using foreign_keys::integer;
using foreign_keys::layers;
using foreign_keys::length;
using foreign_keys::size;

MlpKind mlp_of(JsonObject& keys, const std::string& fallback) {
  const auto name = keys.get<std::string>("feed_forward_proj", fallback);
  // "gated-gelu" has always meant the tanh formula there.
  for (const auto& [theirs, kind] :
       {std::pair("relu", MlpKind::Relu), std::pair("gelu", MlpKind::Gelu), std::pair("gelu_new", MlpKind::GeluTanh),
        std::pair("gated-gelu", MlpKind::GeGluTanh), std::pair("gated-gelu_new", MlpKind::GeGluTanh),
        std::pair("gated-silu", MlpKind::SwiGlu)})
    if (name == theirs) return kind;
  keys.fail(str("\"feed_forward_proj\": ", quote(name),
                " is not known here; there are relu, gelu, gelu_new, gated-gelu, gated-silu"));
}

}  // namespace

bool is_hugging_face_t5(const Json& config) {
  if (!config.is_object() || !config.contains("model_type")) return false;
  const Json& type = config.at("model_type");
  return type == "t5" || type == "mt5" || type == "umt5";
}

HuggingFaceT5 describe_hugging_face_t5(const Json& config, const std::string& source) {
  JsonObject keys(config, source, JsonObject::Blame::data);
  HuggingFaceT5 model;
  model.model_type = keys.get<std::string>("model_type", "");
  expect(keys, "is_encoder_decoder", true);
  ModelConfig c;
  c.vocabulary_size = foreign_keys::vocabulary(keys, "vocab_size");
  c.width = size(keys, "d_model");
  c.heads = size(keys, "num_heads");
  c.head_dim = size(keys, "d_kv");
  c.mlp_width = size(keys, "d_ff");
  c.norm_eps = keys.get<double>("layer_norm_epsilon", 1e-6);
  c.block.mlp = mlp_of(keys, model.model_type == "t5" ? "relu" : "gated-gelu");
  c.block.attention_scale = 1;  // T5 does not divide by the root of the head's width
  const std::int64_t buckets = size(keys, "relative_attention_num_buckets", 32);
  const std::int64_t far = length(keys, "relative_attention_max_distance", 128);
  const auto encoding = [&](bool both) {
    return str("t5(buckets=", buckets, ", max_distance=", far, ", bidirectional=", both ? "true" : "false",
               ", shared=", model.model_type == "umt5" ? "false" : "true", ")");
  };
  ModelConfig& encoder = model.config.encoder;
  ModelConfig& decoder = model.config.decoder;
  encoder = decoder = c;
  encoder.layers = layers(keys, "num_layers");
  decoder.layers = layers(keys, "num_decoder_layers", encoder.layers);
  encoder.encoding = encoding(true);
  decoder.encoding = encoding(false);
  // Which of the two it is was told by tie_word_embeddings, until transformers 5 tied all and kept a key of its own.
  const bool tied = keys.get<bool>("tie_word_embeddings", true);
  const bool scaled = keys.get<bool>("scale_decoder_outputs", tied);
  if (model.model_type != "mt5" && scaled) decoder.block.head_scale = 1 / std::sqrt(static_cast<double>(c.width));
  model.config.end_tokens = foreign_keys::token_ids(keys, "eos_token_id");
  const std::int64_t padding = integer(keys, "pad_token_id", 0);
  model.config.start_token = integer(keys, "decoder_start_token_id", padding);
  keys.allow("n_positions");  // of the first files: how long texts were in training, which bounds nothing
  foreign_keys::finish_positions(keys);
  foreign_keys::completed(keys, [&] { model.config.complete(); });
  return model;
}

}  // namespace torsor
