#include "torsor/model/checkpoint.h"

#include <filesystem>

#include "torsor/base/file.h"
#include "torsor/data/tokenizer_file.h"
#include "torsor/model/adapter.h"
#include "torsor/model/checkpoint_config.h"
#include "torsor/model/checkpoint_files.h"
#include "torsor/model/gguf_model.h"
#include "torsor/model/hugging_face.h"
#include "torsor/model/hugging_face_export.h"
#include "torsor/model/llama2_c.h"
#include "torsor/model/stored_encoding.h"
#include "torsor/model/structure_embedder.h"
#include "torsor/train/state.h"

namespace torsor {

std::string hugging_face_obstacle(const ModelConfig& config) {
  try {
    hugging_face_form(config, {.own_names = true});
    return "";
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
}

void save_checkpoint(const std::string& folder, const Decoder& model, const std::string& tokenizer,
                     const std::string& embedder, const std::shared_ptr<const Tokenizer>& reader,
                     std::int64_t longest) {
  const ModelConfig& config = model.config();
  Json json;
  json["encoding"] = config.encoding;
  json["model"] = model_to_json(config);
  json["vocabulary_size"] = config.vocabulary_size;
  json["train_length"] = config.train_length;
  json["tokenizer"] = tokenizer;
  if (!embedder.empty() && reads_vectors(model.encoding()))
    json["structure_embedder"] = structure_embedder_to_json(embedder);
  try {
    json.update(hugging_face_form(config, {.own_names = true, .longest = longest}).config);
  } catch (const Refusal&) {
    // Hugging Face has no such model: the folder is this project's alone.
  }
  write_checkpoint(folder, model.parameters(), json, reader);
}

namespace {

void set_precision(ModelConfig& config, const std::string& precision) {
  if (precision == "hf") config.precision = Precision::HuggingFace;
  if (precision == "exact") config.precision = Precision::Exact;
}

/// An adapter as the plain model that means the same.
LoadedModel load_merged(const std::string& folder, const std::string& encoding, const std::string& precision,
                        const std::string& base) {
  if (std::filesystem::exists(folder + "/config.json"))
    throw Error(str("'", folder, "' holds a checkpoint and an adapter: which one is meant?"));
  const LoadedAdapter adapter = load_adapter(folder, base);
  Decoder merged = adapter.tuned.merged();
  if (encoding.empty() && precision.empty())
    return {std::move(merged), adapter.base.tokenizer, adapter.base.embedder, {}, adapter.base.reader};
  ModelConfig config = merged.config();
  if (!encoding.empty()) config.encoding = print(parse(encoding));
  set_precision(config, precision);
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : merged.parameters()) weights[parameter.name] = parameter.tensor;
  return {Decoder(config, weights, folder + "/adapter.safetensors"),
          adapter.base.tokenizer,
          adapter.base.embedder,
          {},
          adapter.base.reader};
}

/// Under another expression where one is asked for; what the request gets wrong is no fault of the file.
ModelConfig asked(ModelConfig config, const std::string& encoding, const std::string& precision) {
  set_precision(config, precision);
  if (!encoding.empty()) config.encoding = print(parse(encoding));
  return config;
}

LoadedModel load_hugging_face(const std::string& folder, const Json& json, const std::string& encoding,
                              const std::string& precision) {
  const HuggingFaceModel model = read_hugging_face(json, folder + "/config.json");
  const std::map<std::string, at::Tensor> weights = hugging_face_weights(model, load_sharded(folder), folder);
  FoundTokenizer found = find_tokenizer(folder, model.config.vocabulary_size);
  const std::string name = found.reader ? found.reader->name() : "tokens";
  return {Decoder(asked(model.config, encoding, precision), weights, folder),
          name,
          "",
          model.end_tokens,
          std::move(found.reader),
          std::move(found.unread)};
}

}  // namespace

LoadedModel load_checkpoint(const std::string& folder, const std::string& encoding, const std::string& precision,
                            const std::string& base) {
  if (is_adapter(folder)) return load_merged(folder, encoding, precision, base);
  if (!base.empty()) throw UsageError(str("'", folder, "' holds no adapter that --base could belong to"));
  const std::string path = folder + "/config.json";
  if (std::filesystem::is_regular_file(folder)) {
    if (folder.ends_with(".gguf")) {
      GgufModel model = read_gguf_model(folder);
      const std::string name = model.reader ? model.reader->name() : "tokens";
      return {Decoder(asked(model.config, encoding, precision), model.weights, folder),
              name,
              "",
              model.end_tokens,
              std::move(model.reader),
              std::move(model.unread)};
    }
    if (!folder.ends_with(".bin"))
      throw Error(str(folder, ": expected the folder of a checkpoint, a .gguf file or llama2.c's .bin"));
    Llama2Model model = read_llama2(folder);
    std::shared_ptr<const Tokenizer> reader = find_llama2_tokenizer(folder, model.config.vocabulary_size);
    const std::string name = reader ? reader->name() : "tokens";
    return {Decoder(asked(model.config, encoding, precision), model.weights, folder),
            name,
            "",
            {Llama2Tokenizer::kBegin, Llama2Tokenizer::kEnd},
            std::move(reader)};
  }
  const Json json = read_json(path);
  JsonObject object(json, path, JsonObject::Blame::data);
  if (!object.has("format") && is_hugging_face(json)) return load_hugging_face(folder, json, encoding, precision);
  DecoderCheckpoint stored = read_decoder_checkpoint(json, path);
  set_precision(stored.config, precision);
  check_stored_encoding(stored.config, path);
  if (!encoding.empty()) stored.config.encoding = print(parse(encoding));
  const std::string weights = folder + "/model.safetensors";
  const TensorFile file = load_tensors(weights);
  std::shared_ptr<const Tokenizer> reader = named_tokenizer(folder, stored.tokenizer);
  return {Decoder(stored.config, file.tensors, weights), stored.tokenizer, stored.embedder, {}, std::move(reader)};
}

}  // namespace torsor
