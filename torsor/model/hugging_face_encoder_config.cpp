// Keys: transformers 5.24, src/transformers/models/{bert,roberta,distilbert,roformer}.
#include "torsor/model/hugging_face_encoder_config.h"

#include "torsor/base/utf8.h"
#include "torsor/model/foreign_keys.h"

namespace torsor {
namespace {

using foreign_keys::expect;
using foreign_keys::integer;
using foreign_keys::layers;
using foreign_keys::length;
using foreign_keys::size;

MlpKind activation_of(JsonObject& keys, const char* key) {
  const auto name = keys.get<std::string>(key, "gelu");
  if (name == "gelu") return MlpKind::Gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return MlpKind::GeluTanh;
  if (name == "relu") return MlpKind::Relu;
  keys.fail(str(quote(key), ": ", quote(name), " is not known here; there are gelu, gelu_new, relu"));
}

void read_distilbert(HuggingFaceEncoder& model, JsonObject& keys) {
  ModelConfig& c = model.config.model;
  c.width = size(keys, "dim");
  c.layers = layers(keys, "n_layers");
  c.heads = size(keys, "n_heads");
  c.mlp_width = size(keys, "hidden_dim");
  c.norm_eps = 1e-12;
  c.train_length = length(keys, "max_position_embeddings", 512);
  model.config.segments = 1;
  model.config.dropout = keys.get<double>("dropout", 0.1);
  model.config.activation = activation_of(keys, "activation");
  keys.allow("sinusoidal_pos_embds");  // says how the table began
}

void read_bert_like(HuggingFaceEncoder& model, JsonObject& keys) {
  const std::string& type = model.model_type;
  ModelConfig& c = model.config.model;
  c.width = size(keys, "hidden_size");
  c.layers = layers(keys, "num_hidden_layers");
  c.heads = size(keys, "num_attention_heads");
  c.mlp_width = size(keys, "intermediate_size");
  c.norm_eps = keys.get<double>("layer_norm_eps", 1e-12);
  c.train_length = length(keys, "max_position_embeddings", type == "roformer" ? 1536 : 512);
  model.config.segments = size(keys, "type_vocab_size", 2);
  model.config.dropout = keys.get<double>("hidden_dropout_prob", 0.1);
  model.config.activation = activation_of(keys, "hidden_act");
  expect(keys, "is_decoder", false);
  expect(keys, "add_cross_attention", false);
  expect(keys, "position_embedding_type", "absolute");
  if (type == "roformer") {
    expect(keys, "rotary_value", false);
    if (const std::int64_t width = size(keys, "embedding_size", c.width); width != c.width)
      keys.fail(str("\"embedding_size\": ", width, " is not supported, only hidden_size, ", c.width));
  }
  if (is_roberta(type)) {
    if (model.config.activation != MlpKind::Gelu)
      keys.fail("\"hidden_act\" must be gelu, which the head of a RoBERTa has in any case");
    const std::int64_t padding = integer(keys, "pad_token_id", 1);
    if (padding < 0 || padding >= c.vocabulary_size)
      keys.fail(str("\"pad_token_id\" must lie in [0, ", c.vocabulary_size, "), found ", padding));
    model.first_row = padding + 1;
    c.train_length -= model.first_row;
    if (c.train_length < 1)
      keys.fail(str("\"max_position_embeddings\" must be above pad_token_id + 1, ", model.first_row, ", found ",
                    c.train_length + model.first_row));
  }
}

}  // namespace

bool is_roberta(const std::string& type) { return type == "roberta" || type == "xlm-roberta" || type == "camembert"; }

bool is_hugging_face_encoder(const Json& config) {
  if (!config.is_object() || !config.contains("model_type")) return false;
  for (const char* type : {"bert", "roberta", "xlm-roberta", "camembert", "distilbert", "roformer"})
    if (config.at("model_type") == Json(type)) return true;
  return false;
}

HuggingFaceEncoder describe_hugging_face_encoder(const Json& config, const std::string& source) {
  JsonObject keys(config, source, JsonObject::Blame::data);
  HuggingFaceEncoder model;
  model.model_type = keys.get<std::string>("model_type", "");
  ModelConfig& c = model.config.model;
  c.vocabulary_size = foreign_keys::vocabulary(keys, "vocab_size");
  c.block.qkv_bias = c.block.output_bias = true;
  model.config.byte_tokens = false;
  expect(keys, "tie_word_embeddings", true);
  if (model.model_type == "distilbert")
    read_distilbert(model, keys);
  else
    read_bert_like(model, keys);
  c.encoding =
      model.model_type == "roformer" ? "rope(layout=interleaved)" : str("learned(length=", c.train_length, ")");
  foreign_keys::finish_positions(keys);
  foreign_keys::completed(keys, [&] { model.config.complete(); });
  return model;
}

}  // namespace torsor
