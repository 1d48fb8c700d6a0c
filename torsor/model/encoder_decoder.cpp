#include "torsor/model/encoder_decoder.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "torsor/base/file.h"
#include "torsor/base/utf8.h"
#include "torsor/data/tokenizer_file.h"
#include "torsor/model/checkpoint_config.h"
#include "torsor/model/checkpoint_files.h"
#include "torsor/model/document_positions.h"
#include "torsor/model/hugging_face.h"
#include "torsor/model/hugging_face_t5.h"
#include "torsor/model/stored_encoding.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

constexpr const char* kShared = "embed_tokens.weight";

EncoderDecoderConfig completed(EncoderDecoderConfig config) {
  config.complete();
  check_encoder_encoding(config);
  return config;
}

Json stack_to_json(const ModelConfig& config) {
  return {{"encoding", config.encoding}, {"train_length", config.train_length}, {"model", model_to_json(config)}};
}

}  // namespace

void check_encoder_encoding(const EncoderDecoderConfig& config) {
  const Traits traits = make_encoding(config.encoder.encoding, config.encoder.dimensions())->traits();
  if (traits.axes != 1 || traits.carries)
    throw UsageError(str("model: '", config.encoder.encoding, "' has ",
                         traits.carries ? "a state from layer to layer" : "several axes",
                         ", which an encoder of text has not"));
}

std::map<std::string, at::Tensor> EncoderDecoder::stack(const std::map<std::string, at::Tensor>& weights,
                                                        const char* prefix, const std::string& source) {
  std::map<std::string, at::Tensor> own;
  for (const auto& [name, tensor] : weights) {
    if (name.starts_with(prefix))
      own[name.substr(std::string(prefix).size())] = tensor;
    else if (name == kShared)
      own[kEmbeddingName] = tensor;
    else if (!name.starts_with("encoder.") && !name.starts_with("decoder."))
      throw Error(str(source, ": the tensor ", name, " has no place in the model"));
  }
  return own;
}

EncoderDecoder::EncoderDecoder(EncoderDecoderConfig config, const std::map<std::string, at::Tensor>& weights,
                               const std::string& source)
    : config_(completed(std::move(config))),
      encoder_(config_.encoder, stack(weights, "encoder.", source), source),
      decoder_(config_.decoder, stack(weights, "decoder.", source), source) {}

namespace {

std::map<std::string, at::Tensor> drawn_weights(const EncoderDecoderConfig& given, std::uint64_t seed) {
  const EncoderDecoderConfig config = completed(given);
  std::map<std::string, at::Tensor> weights;
  // Streams are named after tensors, and the stacks' have the same names.
  const Decoder encoder(config.encoder, seed), decoder(config.decoder, seed + 0x9e3779b97f4a7c15ULL);
  for (const auto& [prefix, one] : {std::pair("encoder.", &encoder), std::pair("decoder.", &decoder)})
    for (const ModelParameter& parameter : one->parameters())
      weights[parameter.name == kEmbeddingName ? std::string(kShared) : prefix + parameter.name] = parameter.tensor;
  return weights;
}

}  // namespace

EncoderDecoder::EncoderDecoder(EncoderDecoderConfig config, std::uint64_t seed)
    : EncoderDecoder(config, drawn_weights(config, seed), "model") {}

std::vector<ModelParameter> EncoderDecoder::parameters() const {
  std::vector<ModelParameter> all;
  for (const auto& [prefix, one] : {std::pair("encoder.", &encoder_), std::pair("decoder.", &decoder_)})
    for (ModelParameter parameter : one->parameters()) {
      const bool shared = parameter.name == kEmbeddingName;
      if (shared && one == &decoder_) continue;
      parameter.name = shared ? std::string(kShared) : prefix + parameter.name;
      all.push_back(std::move(parameter));
    }
  return all;
}

void EncoderDecoder::require_gradients() {
  encoder_.require_gradients();
  decoder_.require_gradients();
}

void EncoderDecoder::keep_matrices(at::ScalarType dtype) {
  encoder_.keep_matrices(dtype);
  decoder_.keep_matrices(dtype);
}

at::ScalarType EncoderDecoder::lossless_matrices() const {
  for (const at::ScalarType dtype : kHalves)
    if (encoder_.keeps_all(dtype) && decoder_.keeps_all(dtype)) return dtype;
  return at::kFloat;
}

Memory EncoderDecoder::read(const at::Tensor& sources, const at::Tensor& documents, at::ScalarType dtype) const {
  TokenBatch batch;
  batch.tokens = sources;
  batch.documents = documents;
  batch.positions = positions_in_documents(documents);
  return decoder_.remember(encoder_.hidden(batch, nullptr, dtype), documents, dtype);
}

at::Tensor EncoderDecoder::logits(const at::Tensor& targets, const Memory& memory, at::ScalarType dtype) const {
  TokenBatch batch;
  batch.tokens = targets;
  batch.memory = &memory;
  return decoder_.logits(decoder_.hidden(batch, nullptr, dtype), dtype);
}

Generated EncoderDecoder::generate(const std::vector<std::vector<std::int64_t>>& sources,
                                   const GenerateOptions& options,
                                   const std::vector<std::vector<std::int64_t>>& prefixes) const {
  if (sources.empty()) throw UsageError("generate: no source");
  if (!prefixes.empty() && prefixes.size() != sources.size())
    throw UsageError(str("generate: ", prefixes.size(), " prefixes for ", sources.size(), " sources"));
  std::size_t longest = 0;
  for (const auto& source : sources) {
    if (source.empty()) throw UsageError("generate: a source needs at least one token");
    for (const std::int64_t token : source)
      if (token < 0 || token >= config_.encoder.vocabulary_size)
        throw UsageError(str("generate: tokens must lie in [0, ", config_.encoder.vocabulary_size, "), found ", token));
    longest = std::max(longest, source.size());
  }
  const at::NoGradGuard no_grad;
  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(sources.size()),
                                           static_cast<std::int64_t>(longest)};
  const at::Tensor tokens = at::zeros(shape, at::kLong), documents = at::full(shape, -1, at::kLong);
  for (std::size_t row = 0; row < sources.size(); ++row) {
    const auto place = static_cast<std::int64_t>(row);
    std::copy(sources[row].begin(), sources[row].end(), tokens[place].data_ptr<std::int64_t>());
    documents[place].narrow(0, 0, static_cast<std::int64_t>(sources[row].size())).zero_();
  }
  const Memory memory = read(tokens, documents, options.dtype);
  GenerateOptions own = options;
  own.memory = &memory;
  if (own.end_tokens.empty()) own.end_tokens = config_.end_tokens;
  std::vector<std::vector<std::int64_t>> prompts(sources.size(), {config_.start_token});
  for (std::size_t row = 0; row < prefixes.size(); ++row)
    prompts[row].insert(prompts[row].end(), prefixes[row].begin(), prefixes[row].end());
  return torsor::generate(decoder_, prompts, own);
}

// ---- checkpoints ----------------------------------------------------------------------------------------------------

bool is_encoder_decoder(const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!std::filesystem::is_regular_file(path)) return false;
  const Json json = read_json(path);
  if (!json.is_object()) return false;
  return json.contains("format") ? json.value("kind", Json()) == Json(kEncoderDecoderKind) : is_hugging_face_t5(json);
}

void save_encoder_decoder(const std::string& folder, const EncoderDecoder& model, const std::string& tokenizer,
                          const std::shared_ptr<const Tokenizer>& reader) {
  const EncoderDecoderConfig& config = model.config();
  Json json;
  json["kind"] = kEncoderDecoderKind;
  json["encoder"] = stack_to_json(config.encoder);
  json["decoder"] = stack_to_json(config.decoder);
  json["vocabulary_size"] = config.decoder.vocabulary_size;
  json["start_token"] = config.start_token;
  json["end_tokens"] = config.end_tokens;
  json["tokenizer"] = tokenizer;
  write_checkpoint(folder, model.parameters(), json, reader);
}

LoadedEncoderDecoder load_encoder_decoder(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const Json json = read_json(path);
  JsonObject object(json, path, JsonObject::Blame::data);
  if (!object.has("format") && is_hugging_face_t5(json)) {
    HuggingFaceT5Form form{read_hugging_face_t5(json, path), json, {}};
    const std::map<std::string, at::Tensor> weights =
        hugging_face_t5_weights(form.model, load_sharded(folder), folder, &form.passed_over);
    FoundTokenizer found = find_tokenizer(folder, form.model.config.encoder.vocabulary_size);
    EncoderDecoder model(form.model.config, weights, folder);
    const std::string name = found.reader ? found.reader->name() : "tokens";
    return {std::move(model), name, std::move(found.reader), std::move(found.unread), std::move(form)};
  }
  EncoderDecoderCheckpoint stored = read_encoder_decoder_checkpoint(json, path);
  for (ModelConfig* stack : {&stored.config.encoder, &stored.config.decoder}) check_stored_encoding(*stack, path);
  const std::string weights = folder + "/model.safetensors";
  return {EncoderDecoder(stored.config, load_tensors(weights).tensors, weights), stored.tokenizer,
          named_tokenizer(folder, stored.tokenizer)};
}

}  // namespace torsor
