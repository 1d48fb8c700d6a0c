#include "torsor/model/encoder_config.h"

#include "torsor/base/utf8.h"

namespace torsor {

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
  if (model.mlp_width == 0 && model.width >= 1 && model.width <= SizeLimits::kSize) model.mlp_width = 4 * model.width;
  model.complete();
  if (byte_tokens && model.vocabulary_size < EncoderTokens::kCount) model.vocabulary_size = EncoderTokens::kCount;
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
  if (!JsonObject(rest, source).has("mlp_width")) {
    const auto width = JsonObject(rest, source).get<std::int64_t>("width", config.model.width);
    if (width >= 1 && width <= SizeLimits::kSize) rest["mlp_width"] = 4 * width;  // another is refused as a width
  }
  config.model = model_from_json(rest, source);
  JsonObject object(json, source);
  const auto norm = object.get<std::string>("norm", "post");
  if (norm != "post" && norm != "pre") object.fail(str("norm must be post or pre, found ", quote(norm)));
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

}  // namespace torsor
