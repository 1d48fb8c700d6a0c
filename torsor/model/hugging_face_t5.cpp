// Keys and names: transformers 5.24, src/transformers/models/{t5,mt5,umt5}.
#include "torsor/model/hugging_face_t5.h"

#include <cmath>
#include <utility>
#include <vector>

#include "torsor/base/utf8.h"
#include "torsor/model/foreign_keys.h"
#include "torsor/model/foreign_tensors.h"

namespace torsor {
namespace {

using foreign_keys::expect;
using foreign_keys::integer;
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

/// Their name and ours of every tensor but the embedding and the head.
std::vector<std::pair<std::string, std::string>> names_of(const HuggingFaceT5& model) {
  std::vector<std::pair<std::string, std::string>> names;
  const bool each = model.model_type == "umt5";  // a table a layer
  for (const bool writes : {false, true}) {
    const ModelConfig& c = writes ? model.config.decoder : model.config.encoder;
    const std::string stack = writes ? "decoder." : "encoder.";
    if (!each)
      names.emplace_back(stack + "block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                         stack + "model.position.t5.table");
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      const std::string theirs = str(stack, "block.", layer, ".layer."), ours = str(stack, "model.layers.", layer, ".");
      if (each)
        names.emplace_back(theirs + "0.SelfAttention.relative_attention_bias.weight",
                           ours + "self_attn.position.t5.table");
      for (const char* part : {"q", "k", "v", "o"}) {
        names.emplace_back(str(theirs, "0.SelfAttention.", part, ".weight"),
                           str(ours, "self_attn.", part, "_proj.weight"));
        if (writes)
          names.emplace_back(str(theirs, "1.EncDecAttention.", part, ".weight"),
                             str(ours, "cross_attn.", part, "_proj.weight"));
      }
      names.emplace_back(theirs + "0.layer_norm.weight", ours + "input_layernorm.weight");
      if (writes) names.emplace_back(theirs + "1.layer_norm.weight", ours + "cross_attention_layernorm.weight");
      const std::string last = theirs + (writes ? "2." : "1.");
      names.emplace_back(last + "layer_norm.weight", ours + "post_attention_layernorm.weight");
      const bool gated = is_gated(c.block.mlp);
      if (gated) names.emplace_back(last + "DenseReluDense.wi_0.weight", ours + "mlp.gate_proj.weight");
      names.emplace_back(last + (gated ? "DenseReluDense.wi_1.weight" : "DenseReluDense.wi.weight"),
                         ours + "mlp.up_proj.weight");
      names.emplace_back(last + "DenseReluDense.wo.weight", ours + "mlp.down_proj.weight");
    }
    names.emplace_back(stack + "final_layer_norm.weight", stack + "model.norm.weight");
  }
  return names;
}

}  // namespace

bool is_hugging_face_t5(const Json& config) {
  if (!config.is_object() || !config.contains("model_type")) return false;
  const Json& type = config.at("model_type");
  return type == "t5" || type == "mt5" || type == "umt5";
}

HuggingFaceT5 read_hugging_face_t5(const Json& config, const std::string& source) {
  JsonObject keys(config, source, JsonObject::Blame::data);
  HuggingFaceT5 model;
  model.model_type = keys.get<std::string>("model_type", "");
  expect(keys, "is_encoder_decoder", true);
  ModelConfig c;
  c.vocabulary_size = size(keys, "vocab_size");
  c.width = size(keys, "d_model");
  c.heads = size(keys, "num_heads");
  c.head_dim = size(keys, "d_kv");
  c.mlp_width = size(keys, "d_ff");
  c.norm_eps = keys.get<double>("layer_norm_epsilon", 1e-6);
  c.block.mlp = mlp_of(keys, model.model_type == "t5" ? "relu" : "gated-gelu");
  c.block.attention_scale = 1;  // T5 does not divide by the root of the head's width
  const std::int64_t buckets = integer(keys, "relative_attention_num_buckets", 32);
  const std::int64_t far = integer(keys, "relative_attention_max_distance", 128);
  const auto encoding = [&](bool both) {
    return str("t5(buckets=", buckets, ", max_distance=", far, ", bidirectional=", both ? "true" : "false",
               ", shared=", model.model_type == "umt5" ? "false" : "true", ")");
  };
  ModelConfig& encoder = model.config.encoder;
  ModelConfig& decoder = model.config.decoder;
  encoder = decoder = c;
  encoder.layers = size(keys, "num_layers");
  decoder.layers = size(keys, "num_decoder_layers", encoder.layers);
  encoder.encoding = encoding(true);
  decoder.encoding = encoding(false);
  // Which of the two it is was told by tie_word_embeddings, until transformers 5 tied all and kept a key of its own.
  const bool tied = keys.get<bool>("tie_word_embeddings", true);
  const bool scaled = keys.get<bool>("scale_decoder_outputs", tied);
  if (model.model_type != "mt5" && scaled) decoder.block.head_scale = 1 / std::sqrt(static_cast<double>(c.width));
  model.config.end_tokens = foreign_keys::token_ids(keys, "eos_token_id");
  const std::int64_t padding = integer(keys, "pad_token_id", 0);
  model.config.start_token = integer(keys, "decoder_start_token_id", padding);
  foreign_keys::finish_positions(keys);
  try {
    for (ModelConfig* one : {&encoder, &decoder}) one->encoding = print(parse(one->encoding));
    model.config.complete();
    for (const ModelConfig* one : {&encoder, &decoder}) make_encoding(one->encoding, one->dimensions());
  } catch (const UsageError& error) {
    keys.fail(error.what());
  }
  return model;
}

std::map<std::string, at::Tensor> hugging_face_t5_weights(HuggingFaceT5& model,
                                                          const std::map<std::string, at::Tensor>& tensors,
                                                          const std::string& source) {
  ForeignTensors found(tensors, source, model.model_type);
  // The embedding goes by three names; files hold some of them.
  at::Tensor shared;
  for (const char* name : {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
    if (!found.has(name)) continue;
    const at::Tensor one = found.take(name);
    if (!shared.defined())
      shared = one;
    else if (!shared.equal(one))
      throw Error(
          str(source, ": tensor '", name, "' differs from the other stack's embedding, which is not supported"));
  }
  if (!shared.defined()) throw Error(str(source, ": tensor 'shared.weight' is missing"));
  found.put("embed_tokens.weight", shared);
  if (found.has("lm_head.weight")) {
    const at::Tensor head = found.take("lm_head.weight");
    model.config.decoder.tie_head = head.equal(shared);
    if (!model.config.decoder.tie_head) found.put("decoder.lm_head.weight", head);
  }
  // Of older files, which transformers does not read either.
  found.drop("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight");
  for (const auto& [theirs, ours] : names_of(model)) found.put(ours, found.take(theirs));
  return found.finish();
}

}  // namespace torsor
