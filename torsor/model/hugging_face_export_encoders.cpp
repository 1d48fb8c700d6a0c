// Which family has an encoder or a model of two stacks, and what its config.json says. Keys: transformers 5.24,
// src/transformers/models/{bert,roformer,t5,umt5}/configuration_*.py.
#include "torsor/model/hugging_face_export_encoders.h"

#include <utility>

#include "torsor/data/bpe.h"
#include "torsor/encoding/registry.h"
#include "torsor/model/checkpoint_files.h"
#include "torsor/model/convert_rotation.h"
#include "torsor/model/hugging_face_differences.h"

namespace torsor {
namespace {

/// The first candidate that reads back as the model. A candidate is written by `write`, which also tells what it says
/// otherwise.
template <class Form, class Write>
Form first_that_fits(const std::vector<const char*>& families, const Write& write) {
  std::string nearest;
  std::vector<std::string> least;
  for (const char* family : families) {
    std::vector<std::string> found;
    Form form;
    try {
      form = write(family, found);
    } catch (const Error& error) {
      found.push_back(error.what());
    }
    if (found.empty()) return form;
    if (least.empty() || found.size() < least.size()) least = found, nearest = family;
  }
  throw no_family(nearest, least);
}

// --------------------------------------------------------------------------------------------------------------------
// Encoders

/// All that decides an encoder's function but its positions, by the names of its model file.
Json shape_of(EncoderConfig config) {
  config.byte_tokens = false;  // what ids stand for is the tokenizer's
  config.dropout = 0;          // of training alone, as what follows
  config.model.decay_positions = false;
  config.model.tag_heads.reset();
  config.model.precision = Precision::Exact;
  config.model.block.qkv_bias = config.model.block.output_bias = true;  // of zero where there are none
  Json json = encoder_to_json(config);
  json["activation"] = mlp_name(config.activation);
  json["token_head"] = config.token_head;
  json["vocabulary_size"] = config.model.vocabulary_size;
  json["labels"] = config.labels;
  return json;
}

/// Rows of a table of learned positions, else how long texts were.
std::int64_t longest_of(const ModelConfig& config, std::int64_t otherwise) {
  const Expression expression = parse(config.encoding);
  const Term& term = expression.terms.front();
  if (term.name == "learned")
    if (const auto rows = Settings(term, find_name(term.name)->keys).integer("length"); rows > 0) return rows;
  return config.train_length > 0 ? config.train_length : otherwise;
}

void write_labels(Json& json, std::int64_t labels, const Json& about) {
  Json names = about.is_object() ? about.value("labels", Json()) : Json();
  if (!names.is_array() || static_cast<std::int64_t>(names.size()) != labels) names = Json::array();
  Json& by_id = json["id2label"] = Json::object();
  Json& by_name = json["label2id"] = Json::object();
  for (std::int64_t label = 0; label < labels; ++label) {
    const Json& given = names.empty() ? Json() : names[static_cast<std::size_t>(label)];
    const std::string name = given.is_string() ? given.get<std::string>() : str("LABEL_", label);
    by_id[std::to_string(label)] = name;
    by_name[name] = label;
  }
}

Json bert_config(const std::string& family, const EncoderConfig& config, const Json& about) {
  const ModelConfig& c = config.model;
  const std::string architecture = family == "bert" ? "Bert" : "RoFormer";
  Json json;
  json["architectures"] = {architecture + (config.labels > 0   ? "ForSequenceClassification"
                                           : config.token_head ? "ForMaskedLM"
                                                               : "Model")};
  json["model_type"] = family;
  json["vocab_size"] = c.vocabulary_size;
  json["hidden_size"] = c.width;
  json["num_hidden_layers"] = c.layers;
  json["num_attention_heads"] = c.heads;
  json["intermediate_size"] = c.mlp_width;
  json["hidden_act"] = config.activation == MlpKind::GeluTanh ? "gelu_new" : mlp_name(config.activation);
  json["layer_norm_eps"] = c.norm_eps;
  json["max_position_embeddings"] = longest_of(c, 512);
  json["type_vocab_size"] = config.segments;
  json["hidden_dropout_prob"] = config.dropout;
  json["attention_probs_dropout_prob"] = 0.0;
  json["is_decoder"] = false;
  json["add_cross_attention"] = false;
  json["tie_word_embeddings"] = true;
  if (family == "roformer") {
    json["embedding_size"] = c.width;
    json["rotary_value"] = false;
  }
  for (const char* key : {"bos_token_id", "eos_token_id"}) json[key] = nullptr;
  json["pad_token_id"] = config.byte_tokens ? Json(EncoderTokens::kPadding) : Json(nullptr);
  if (config.labels > 0) write_labels(json, config.labels, about);
  return json;
}

/// Bytes and EncoderTokens: "[CLS] text [SEP]", and "[CLS] text [SEP] other [SEP]" with the other's segment 1.
std::vector<TokenizerFile> encoder_bytes() {
  const std::vector<std::pair<const char*, std::int64_t>> marks = {{"[CLS]", EncoderTokens::kFirst},
                                                                   {"[SEP]", EncoderTokens::kSeparator},
                                                                   {"[MASK]", EncoderTokens::kMask},
                                                                   {"[PAD]", EncoderTokens::kPadding}};
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.vocabulary.push_back(std::string(1, static_cast<char>(byte)));
  for (const auto& [text, id] : marks) {
    model.vocabulary.push_back(text);
    model.added.push_back({.id = static_cast<TokenId>(id), .content = text, .special = true});
  }
  Json document = parse_json(BpeTokenizer(std::move(model)).json(), "tokenizer.json");
  const auto mark = [](const char* name, int segment) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", segment}}}};
  };
  const auto text = [](const char* name, int segment) {
    return Json{{"Sequence", {{"id", name}, {"type_id", segment}}}};
  };
  Json& processor = document["post_processor"] = {{"type", "TemplateProcessing"}};
  processor["single"] = Json::array({mark("[CLS]", 0), text("A", 0), mark("[SEP]", 0)});
  processor["pair"] = Json::array({mark("[CLS]", 0), text("A", 0), mark("[SEP]", 0), text("B", 1), mark("[SEP]", 1)});
  for (const auto& [name, id] : {marks[0], marks[1]})
    processor["special_tokens"][name] = {{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
  const Json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"cls_token", "[CLS]"},
                         {"sep_token", "[SEP]"},
                         {"mask_token", "[MASK]"},
                         {"pad_token", "[PAD]"}};
  return {{"tokenizer.json", json_text(document, 1) + "\n"}, {"tokenizer_config.json", json_text(settings, 1) + "\n"}};
}

// --------------------------------------------------------------------------------------------------------------------
// Models of two stacks

/// Kinds of MLP that have no name there get one that reads back as another.
const char* feed_forward_name(MlpKind kind) {
  switch (kind) {
    case MlpKind::Relu:
      return "relu";
    case MlpKind::Gelu:
      return "gelu";
    case MlpKind::GeluTanh:
      return "gelu_new";
    case MlpKind::SwiGlu:
      return "gated-silu";
    default:
      return "gated-gelu";
  }
}

Json t5_config(const std::string& family, const EncoderDecoderConfig& config) {
  const ModelConfig &reads = config.encoder, &writes = config.decoder;
  Json json;
  json["architectures"] = {family == "umt5" ? "UMT5ForConditionalGeneration" : "T5ForConditionalGeneration"};
  json["model_type"] = family;
  json["vocab_size"] = writes.vocabulary_size;
  json["d_model"] = writes.width;
  json["d_kv"] = writes.head_dim;
  json["d_ff"] = writes.mlp_width;
  json["num_layers"] = reads.layers;
  json["num_decoder_layers"] = writes.layers;
  json["num_heads"] = writes.heads;
  json["layer_norm_epsilon"] = writes.norm_eps;
  json["feed_forward_proj"] = feed_forward_name(writes.block.mlp);
  json["is_encoder_decoder"] = true;
  json["tie_word_embeddings"] = writes.tie_head;
  json["scale_decoder_outputs"] = writes.block.head_scale != 1;
  const Expression expression = parse(writes.encoding);
  if (const Term& term = expression.terms.front(); term.name == "t5") {
    const Settings settings(term, find_name(term.name)->keys);
    json["relative_attention_num_buckets"] = settings.integer("buckets");
    json["relative_attention_max_distance"] = settings.integer("max_distance");
  }
  json["decoder_start_token_id"] = config.start_token;
  json["eos_token_id"] = end_tokens_json(config.end_tokens);
  for (const char* key : {"bos_token_id", "pad_token_id"}) json[key] = nullptr;
  return json;
}

}  // namespace

HuggingFaceEncoderForm hugging_face_form(const EncoderConfig& config, const Json& about) {
  // Where neither fits, the first is the nearer one.
  const bool rotates = make_encoding(config.model.encoding, config.model.dimensions())->traits().rotates;
  std::vector<const char*> families = {"bert", "roformer"};
  if (rotates) std::swap(families[0], families[1]);
  return first_that_fits<HuggingFaceEncoderForm>(
      families, [&](const std::string& family, std::vector<std::string>& found) {
        HuggingFaceEncoderForm form;
        form.config = bert_config(family, config, about);
        form.model = read_hugging_face_encoder(form.config, "config.json");
        EncoderConfig& read = form.model.config;
        read.token_head = config.token_head;  // these two are told by tensors
        read.labels = family == "bert" ? config.labels : 0;
        set_usual_names(form.model);
        found = key_differences(shape_of(config), shape_of(read));
        if (const std::string one = encoding_difference(config.model, read.model); !one.empty()) found.push_back(one);
        return form;
      });
}

HuggingFaceT5Form hugging_face_form(const EncoderDecoderConfig& config) {
  return first_that_fits<HuggingFaceT5Form>(
      {"t5", "umt5"}, [&](const std::string& family, std::vector<std::string>& found) {
        HuggingFaceT5Form form;
        form.config = t5_config(family, config);
        form.model = read_hugging_face_t5(form.config, "config.json");
        EncoderDecoderConfig& read = form.model.config;
        read.decoder.tie_head = config.decoder.tie_head;  // told by tensors
        for (const auto& [name, mine, theirs] : {std::tuple("encoder", &config.encoder, &read.encoder),
                                                 std::tuple("decoder", &config.decoder, &read.decoder)})
          for (const std::string& one : model_differences(*mine, *theirs)) found.push_back(str(name, ": ", one));
        return form;
      });
}

std::optional<Encoder> hugging_face_layout(const Encoder& encoder) {
  EncoderConfig config = encoder.config();
  if (config.model.encoding != "rope") return std::nullopt;
  config.model.encoding = "rope(layout=interleaved)";
  const std::int64_t d = config.model.head_dim;
  HeadMap map;
  for (std::int64_t plane = 0; plane < d / 2; ++plane) {
    map.moved.emplace_back(plane, 2 * plane);
    map.moved.emplace_back(plane + d / 2, 2 * plane + 1);
  }
  map.complete(d);
  std::map<std::string, at::Tensor> weights = tensors_by_name(encoder.parameters());
  for (auto& [name, tensor] : weights) {
    bool turns = false;  // gains of a norm stand between the projection and the rotation
    for (const char* part :
         {"q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias", "q_norm.weight", "k_norm.weight"})
      turns = turns || name.ends_with(str(".self_attn.", part));
    if (!turns) continue;
    std::vector<at::Tensor> heads;
    for (const at::Tensor& head : tensor.split(d)) heads.push_back(map.apply(head));
    tensor = at::cat(heads);
  }
  return Encoder(std::move(config), weights, "encoder");
}

std::map<std::string, at::Tensor> hugging_face_tensors(const Encoder& encoder, const HuggingFaceEncoderForm& form) {
  std::map<std::string, at::Tensor> weights = tensors_by_name(encoder.parameters());
  const ModelConfig& c = encoder.config().model;
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    for (const char* part : {"q", "k", "v", "o"}) {
      const std::string name = str("model.layers.", layer, ".self_attn.", part, "_proj.");
      if (const at::Tensor& weight = weights.at(name + "weight"); weights.count(name + "bias") == 0)
        weights[name + "bias"] = at::zeros({weight.size(0)}, weight.options());
    }
  return hugging_face_encoder_tensors(form, std::move(weights));
}

std::map<std::string, at::Tensor> hugging_face_tensors(const EncoderDecoder& model, const HuggingFaceT5Form& form) {
  return hugging_face_t5_tensors(form, tensors_by_name(model.parameters()));
}

std::vector<std::string> unread_tensors(const HuggingFaceEncoderForm& form) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : form.passed_over.unread)
    names.push_back(name.ends_with("embeddings.position_embeddings.weight")
                        ? str("rows 0 to ", form.model.first_row - 1, " of ", name)
                        : name);
  return names;
}

std::vector<std::string> unread_tensors(const HuggingFaceT5Form& form) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : form.passed_over.unread) names.push_back(name);
  return names;
}

void save_hugging_face(const std::string& folder, const Encoder& encoder, const HuggingFaceEncoderForm& form,
                       const HuggingFaceCompanions& companions, const std::shared_ptr<const Tokenizer>& reader,
                       at::ScalarType dtype) {
  write_hugging_face(folder, hugging_face_tensors(encoder, form), form.config, companions,
                     encoder.config().byte_tokens ? encoder_bytes() : hugging_face_tokenizer(reader), dtype);
}

void save_hugging_face(const std::string& folder, const EncoderDecoder& model, const HuggingFaceT5Form& form,
                       const HuggingFaceCompanions& companions, const std::shared_ptr<const Tokenizer>& reader,
                       at::ScalarType dtype) {
  write_hugging_face(folder, hugging_face_tensors(model, form), form.config, companions, hugging_face_tokenizer(reader),
                     dtype);
}

}  // namespace torsor
