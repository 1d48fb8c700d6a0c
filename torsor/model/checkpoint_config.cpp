#include "torsor/model/checkpoint_config.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "torsor/base/utf8.h"
#include "torsor/encoding/expression.h"
#include "torsor/syntax/relations.h"

namespace torsor {
namespace {

/// What `read` makes of the file, which messages name once. A bad word in a file is bad data, not a bad request.
template <class Read>
auto as_data(const std::string& source, Read read) {
  try {
    return read();
  } catch (const UsageError& error) {
    const std::string message = error.what();
    throw Error(message.starts_with(source) ? message : str(source, ": ", message));
  }
}

/// An expression as it stands, when the grammar has one like it.
std::string stated(const std::string& expression) { return print(parse_grammar(expression)); }

ModelConfig stack_from_json(const Json& json, std::int64_t vocabulary, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  ModelConfig config = model_from_json(object.get<Json>("model"), source + ": model");
  config.encoding = stated(object.get<std::string>("encoding"));
  config.train_length = object.get<std::int64_t>("train_length");
  config.vocabulary_size = vocabulary;
  object.finish();
  return config;
}

}  // namespace

void check_checkpoint_format(JsonObject& config) {
  if (!config.has("format"))
    config.fail(str("\"format\" is missing; a checkpoint of this project has \"", kCheckpointFormat, "\""));
  if (const auto format = config.get<std::string>("format"); format != kCheckpointFormat)
    config.fail(str("format must be ", kCheckpointFormat, ", found ", quote(format)));
}

Json structure_embedder_to_json(const std::string& sha256) {
  return {{"sha256", sha256}, {"relations", syntax::kRelations}};
}

std::string structure_embedder_of(JsonObject& config) {
  if (!config.has("structure_embedder")) return "";
  JsonObject object = config.object("structure_embedder");
  const auto sha256 = object.get<std::string>("sha256");
  const auto relations = object.get<std::vector<std::string>>("relations");
  object.finish();
  if (sha256.empty()) object.fail("sha256: expected a hash, found an empty text");
  if (!std::equal(relations.begin(), relations.end(), syntax::kRelations.begin(), syntax::kRelations.end()))
    object.fail(str("relations: expected the ", syntax::kRelations.size(), " that arcs are numbered by here, found ",
                    relations.size(), relations.size() == syntax::kRelations.size() ? " others" : ""));
  return sha256;
}

DecoderCheckpoint read_decoder_checkpoint(const Json& json, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  check_checkpoint_format(object);
  if (object.get<std::string>("kind", "decoder") != "decoder")
    object.fail("expected the checkpoint of a decoder, found an encoder's");
  DecoderCheckpoint result;
  result.tokenizer = object.get<std::string>("tokenizer");
  result.embedder = structure_embedder_of(object);
  const auto encoding = object.get<std::string>("encoding");
  const auto model = object.get<Json>("model");
  const auto vocabulary = object.get<std::int64_t>("vocabulary_size");
  const auto length = object.get<std::int64_t>("train_length");
  result.config = as_data(source, [&] {
    ModelConfig config = model_from_json(model, source + ": model");
    config.vocabulary_size = vocabulary;
    config.train_length = length;
    config.encoding = stated(encoding);
    config.complete();
    return config;
  });
  return result;
}

const char* encoder_tokens(const EncoderConfig& config) { return config.byte_tokens ? EncoderTokens::kName : "tokens"; }

EncoderCheckpoint read_encoder_checkpoint(const Json& json, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  check_checkpoint_format(object);
  if (object.get<std::string>("kind", "decoder") != "encoder")
    object.fail("expected the checkpoint of an encoder, found a decoder's");
  EncoderCheckpoint result;
  result.tokenizer = object.get<std::string>("tokenizer");
  const auto encoding = object.get<std::string>("encoding");
  const auto model = object.get<Json>("model");
  const auto vocabulary = object.get<std::int64_t>("vocabulary_size");
  const auto length = object.get<std::int64_t>("train_length");
  const auto labels = object.get<std::int64_t>("labels");
  result.about = object.get<Json>("task", Json());
  result.embedder = structure_embedder_of(object);
  object.finish();
  result.config = as_data(source, [&] {
    EncoderConfig config = encoder_from_json(model, source + ": model");
    config.model.encoding = stated(encoding);
    config.model.vocabulary_size = vocabulary;
    config.model.train_length = length;
    config.labels = labels;
    config.complete();
    return config;
  });
  // Other ids than EncoderTokens have any tokenizer, or none.
  if (result.config.byte_tokens != (result.tokenizer == EncoderTokens::kName))
    object.fail(str("tokenizer must be ", result.config.byte_tokens ? "" : "another than ", EncoderTokens::kName,
                    " where byte_tokens is ", result.config.byte_tokens ? "true" : "false", ", found ",
                    quote(result.tokenizer)));
  return result;
}

EncoderDecoderCheckpoint read_encoder_decoder_checkpoint(const Json& json, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  check_checkpoint_format(object);
  if (const auto kind = object.get<std::string>("kind", "decoder"); kind != kEncoderDecoderKind)
    object.fail(str("expected an encoder and a decoder, found the checkpoint of ", quote(kind), " alone"));
  EncoderDecoderCheckpoint result;
  const auto vocabulary = object.get<std::int64_t>("vocabulary_size");
  result.tokenizer = object.get<std::string>("tokenizer");
  result.config.start_token = object.get<std::int64_t>("start_token");
  result.config.end_tokens = object.get<std::vector<std::int64_t>>("end_tokens");
  const auto encoder = object.get<Json>("encoder"), decoder = object.get<Json>("decoder");
  object.finish();
  as_data(source, [&] {
    result.config.encoder = stack_from_json(encoder, vocabulary, source + ": encoder");
    result.config.decoder = stack_from_json(decoder, vocabulary, source + ": decoder");
    result.config.complete();
  });
  return result;
}

}  // namespace torsor
