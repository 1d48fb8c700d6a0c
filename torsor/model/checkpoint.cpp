#include "torsor/model/checkpoint.h"

#include <filesystem>

#include "torsor/base/file.h"
#include "torsor/data/bpe.h"
#include "torsor/model/adapter.h"
#include "torsor/model/gguf_model.h"
#include "torsor/model/hugging_face.h"
#include "torsor/model/llama2_c.h"
#include "torsor/model/structure_embedder.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

constexpr const char* kFormat = "torsor-checkpoint-1";

const Argument* find_argument(const Term& term, const char* key) {
  for (const Argument& argument : term.arguments)
    if (argument.key == key) return &argument;
  return nullptr;
}

double number_of(const Term& term, const char* key, double fallback) {
  const Argument* argument = find_argument(term, key);
  const double* value = argument ? std::get_if<double>(&argument->value) : nullptr;
  return value ? *value : fallback;
}

/// Hugging Face's rope_parameters for a rotary encoding that transformers has under the same definition, else null.
Json rope_parameters(const ModelConfig& config) {
  const Expression expression = parse(config.encoding);
  if (expression.terms.size() != 1) return nullptr;
  const Term& outer = expression.terms.front();
  const Term& rope = outer.operands.empty() ? outer : outer.operands.front().expression.terms.front();
  if (rope.name != "rope") return nullptr;
  for (const Argument& argument : rope.arguments)
    if (argument.key != "base" || !std::holds_alternative<double>(argument.value)) return nullptr;
  Json parameters;
  parameters["rope_theta"] = number_of(rope, "base", 10000);
  const double length = number_of(outer, "train_length", static_cast<double>(config.train_length));
  if (outer.name == "rope") {
    parameters["rope_type"] = "default";
  } else if (outer.name == "linear") {
    parameters["rope_type"] = "linear";
    parameters["factor"] = number_of(outer, "factor", 1);
  } else if (outer.name == "llama3") {
    parameters["rope_type"] = "llama3";
    parameters["factor"] = number_of(outer, "factor", 8);
    parameters["low_freq_factor"] = number_of(outer, "low_freq_factor", 1);
    parameters["high_freq_factor"] = number_of(outer, "high_freq_factor", 4);
    parameters["original_max_position_embeddings"] = number_of(outer, "train_length", 8192);
  } else if (outer.name == "yarn") {
    parameters["rope_type"] = "yarn";
    parameters["factor"] = number_of(outer, "factor", 1);
    parameters["original_max_position_embeddings"] = length;
    for (const Argument& argument : outer.arguments) {
      if (argument.key == "mscale_all_dim") return nullptr;  // Hugging Face's Llama has no second correction
      if (const double* value = std::get_if<double>(&argument.value)) parameters[argument.key] = *value;
      if (const bool* value = std::get_if<bool>(&argument.value)) parameters[argument.key] = *value;
    }
    parameters.erase("train_length");
  } else {
    return nullptr;
  }
  return parameters;
}

void add_hugging_face_keys(Json& json, const ModelConfig& config) {
  if (!hugging_face_obstacle(config).empty()) return;
  const Json rope = rope_parameters(config);
  json["architectures"] = {"LlamaForCausalLM"};
  json["model_type"] = "llama";
  json["hidden_size"] = config.width;
  json["intermediate_size"] = config.mlp_width;
  json["num_hidden_layers"] = config.layers;
  json["num_attention_heads"] = config.heads;
  json["num_key_value_heads"] = config.kv_heads;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = config.norm_eps;
  json["tie_word_embeddings"] = config.tie_head;
  json["vocab_size"] = config.vocabulary_size;
  json["max_position_embeddings"] = config.train_length;
  json["attention_bias"] = false;
  json["mlp_bias"] = false;
  json["rope_parameters"] = rope;
}

}  // namespace

std::string hugging_face_obstacle(const ModelConfig& config) {
  if (rope_parameters(config).is_null()) return str("its Llama has no encoding '", config.encoding, "'");
  if (config.qk_norm != QkNorm::None) return "its Llama has no qk_norm";
  if (config.kv_shift) return "its Llama has no kv_shift";
  if (config.block != BlockStyle()) return "its Llama has other blocks";
  for (const std::int64_t window : config.window)
    if (window != 0) return "its Llama has no window";
  return "";
}

void save_checkpoint(const std::string& folder, const Decoder& model, const std::string& tokenizer,
                     const std::string& embedder, const std::shared_ptr<const Tokenizer>& reader) {
  make_directories(folder);
  if (const auto* pieces = dynamic_cast<const BpeTokenizer*>(reader.get()))
    write_file_atomic(folder + "/tokenizer.json", pieces->json());
  std::map<std::string, at::Tensor> tensors;
  for (const ModelParameter& parameter : model.parameters()) tensors[parameter.name] = parameter.tensor.detach();
  save_tensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  const ModelConfig& config = model.config();
  Json json;
  json["format"] = kFormat;
  json["encoding"] = config.encoding;
  json["model"] = model_to_json(config);
  json["vocabulary_size"] = config.vocabulary_size;
  json["train_length"] = config.train_length;
  json["tokenizer"] = tokenizer;
  if (!embedder.empty() && reads_vectors(model.encoding()))
    json["structure_embedder"] = structure_embedder_to_json(embedder);
  add_hugging_face_keys(json, config);
  write_file_atomic(folder + "/config.json", json_text(json, 2) + "\n");
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

/// What a checkpoint's ids stand for; nothing where they are no text.
std::shared_ptr<const Tokenizer> reader_of(const std::string& folder, const std::string& name) {
  auto bytes = std::make_shared<ByteTokenizer>();
  if (name == bytes->name()) return bytes;
  if (!name.starts_with("bpe-")) return nullptr;
  auto pieces = BpeTokenizer::load(folder + "/tokenizer.json");
  if (pieces->name() != name)
    throw Error(str(folder, "/tokenizer.json: not the tokenizer of this model: it is '", pieces->name(),
                    "', config.json says '", name, "'"));
  return pieces;
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
  std::shared_ptr<const Tokenizer> reader;
  if (std::filesystem::exists(folder + "/tokenizer.json")) {
    try {
      reader = BpeTokenizer::load(folder + "/tokenizer.json");
    } catch (const Error&) {
      // Of another kind: the model is read all the same, its ids stand for no text here.
    }
  }
  if (reader && static_cast<std::int64_t>(reader->vocabulary_size()) > model.config.vocabulary_size)
    throw Error(str(folder, "/tokenizer.json: has ", reader->vocabulary_size(), " tokens, the model ",
                    model.config.vocabulary_size));
  const std::string name = reader ? reader->name() : "tokens";
  return {Decoder(asked(model.config, encoding, precision), weights, folder), name, "", model.end_tokens,
          std::move(reader)};
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
      return {Decoder(asked(model.config, encoding, precision), model.weights, folder), name, "", model.end_tokens,
              std::move(model.reader)};
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
  if (!object.has("format"))
    object.fail(str("\"format\" is missing; a checkpoint of this project has \"", kFormat, "\""));
  const auto format = object.get<std::string>("format");
  if (format != kFormat) object.fail(str("format must be ", kFormat, ", found ", format));
  if (object.get<std::string>("kind", "decoder") != "decoder")
    object.fail("expected the checkpoint of a decoder, found an encoder's");
  const auto stored = object.get<std::string>("encoding");
  const auto model = object.get<Json>("model");
  const auto vocabulary = object.get<std::int64_t>("vocabulary_size");
  const auto length = object.get<std::int64_t>("train_length");
  const auto tokenizer = object.get<std::string>("tokenizer");
  const std::string embedder = structure_embedder_of(object);
  const std::string weights = folder + "/model.safetensors";
  const TensorFile file = load_tensors(weights);
  ModelConfig config;
  try {
    config = model_from_json(model, path + ": model");
    config.vocabulary_size = vocabulary;
    config.train_length = length;
    config.encoding = print(parse(stored));
    set_precision(config, precision);
  } catch (const UsageError& error) {
    // A bad word in a file is bad data, not a bad request.
    throw Error(str(path, ": ", error.what()));
  }
  if (!encoding.empty()) config.encoding = print(parse(encoding));
  std::shared_ptr<const Tokenizer> reader = reader_of(folder, tokenizer);
  return {Decoder(config, file.tensors, weights), tokenizer, embedder, {}, std::move(reader)};
}

}  // namespace torsor
