// Names: transformers 5.24, src/transformers/models/{bert,roberta,distilbert,roformer}.
#include "torsor/model/hugging_face_encoder.h"

#include <utility>
#include <vector>

#include "torsor/model/foreign_tensors.h"
#include "torsor/model/hugging_face_names.h"
#include "torsor/model/stored_encoding.h"

namespace torsor {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

constexpr const char* kSegments = "model.embed_segments.weight";
constexpr const char* kTokenBias = "head.tokens.bias";

/// Names of one family; a layer's modules stand under LAYERS N . NAME.
struct Names {
  std::string root, layers;                                  ///< the root is missing in files of the bare model
  std::vector<std::pair<const char*, const char*>> modules;  ///< under the root: theirs, ours
  std::vector<std::pair<const char*, const char*>> layer;
  std::vector<std::pair<const char*, const char*>> token_head;  ///< without the root
  const char *token_bias, *other_token_bias, *decoder;          ///< of the token head; the second is usual
};

Names names_of(const std::string& type) {
  if (type == "distilbert")
    return {"distilbert.",
            "transformer.layer.",
            {{"embeddings.word_embeddings", "model.embed_tokens"}, {"embeddings.LayerNorm", "model.embed_norm"}},
            {{"attention.q_lin", "self_attn.q_proj"},
             {"attention.k_lin", "self_attn.k_proj"},
             {"attention.v_lin", "self_attn.v_proj"},
             {"attention.out_lin", "self_attn.o_proj"},
             {"sa_layer_norm", "attention_norm"},
             {"ffn.lin1", "mlp.up"},
             {"ffn.lin2", "mlp.down"},
             {"output_layer_norm", "mlp_norm"}},
            {{"vocab_transform", "head.tokens.dense"}, {"vocab_layer_norm", "head.tokens.norm"}},
            "vocab_projector.bias",
            "vocab_projector.bias",
            "vocab_projector.weight"};
  Names names{is_roberta(type) ? "roberta." : type + ".",
              "encoder.layer.",
              {{"embeddings.word_embeddings", "model.embed_tokens"},
               {"embeddings.token_type_embeddings", "model.embed_segments"},
               {"embeddings.LayerNorm", "model.embed_norm"}},
              {{"attention.self.query", "self_attn.q_proj"},
               {"attention.self.key", "self_attn.k_proj"},
               {"attention.self.value", "self_attn.v_proj"},
               {"attention.output.dense", "self_attn.o_proj"},
               {"attention.output.LayerNorm", "attention_norm"},
               {"intermediate.dense", "mlp.up"},
               {"output.dense", "mlp.down"},
               {"output.LayerNorm", "mlp_norm"}},
              {{"cls.predictions.transform.dense", "head.tokens.dense"},
               {"cls.predictions.transform.LayerNorm", "head.tokens.norm"}},
              "cls.predictions.decoder.bias",
              "cls.predictions.bias",
              "cls.predictions.decoder.weight"};
  if (is_roberta(type)) {
    names.token_head = {{"lm_head.dense", "head.tokens.dense"}, {"lm_head.layer_norm", "head.tokens.norm"}};
    names.token_bias = "lm_head.decoder.bias", names.other_token_bias = "lm_head.bias";
    names.decoder = "lm_head.decoder.weight";
  }
  return names;
}

/// Their module and ours of all that has weights and biases in a model with these heads.
std::vector<std::pair<std::string, std::string>> modules_of(const HuggingFaceEncoder& model, const Names& names) {
  std::vector<std::pair<std::string, std::string>> modules;
  for (const auto& [theirs, ours] : names.modules) modules.emplace_back(model.root + theirs, ours);
  for (std::int64_t layer = 0; layer < model.config.model.layers; ++layer)
    for (const auto& [theirs, ours] : names.layer)
      modules.emplace_back(str(model.root, names.layers, layer, ".", theirs), str("model.layers.", layer, ".", ours));
  if (model.config.token_head)
    for (const auto& [theirs, ours] : names.token_head) modules.emplace_back(theirs, ours);
  if (!model.class_head.empty()) {
    modules.emplace_back(is_roberta(model.model_type) ? "classifier.dense" : model.root + "pooler.dense",
                         "head.classes.pooler");
    modules.emplace_back(model.class_head, "head.classes.out");
  }
  return modules;
}

/// The table of positions, for families that have one; else empty.
std::string table_of(const HuggingFaceEncoder& model) {
  return model.model_type == "roformer" ? "" : model.root + "embeddings.position_embeddings.weight";
}

class Renaming {
 public:
  Renaming(HuggingFaceEncoder& model, const Tensors& tensors, const std::string& source)
      : model_(model),
        names_(names_of(model.model_type)),
        source_(source),
        tensors_(of_today(tensors), source, model.model_type) {
    model_.root = tensors_.any_under(names_.root) ? names_.root : "";
  }

  Tensors run(PassedOver* passed_over) {
    find_heads();
    for (const auto& [theirs, ours] : modules_of(model_, names_)) tensors_.module(theirs, ours);
    if (model_.model_type == "distilbert") tensors_.put(kSegments, at::zeros({1, model_.config.model.width}));
    positions();
    token_bias();
    if (const at::Tensor weight = tensors_.kept("head.classes.out.weight"); weight.defined())
      model_.config.labels = weight.dim() == 2 ? weight.size(0) : 0;
    // What repeats the configuration (counts from 0, RoFormer's sines), and a pooler that no head reads.
    for (const char* name :
         {"embeddings.position_ids", "encoder.embed_positions.weight", "pooler.dense.weight", "pooler.dense.bias"})
      tensors_.pass_over(model_.root + name);
    if (passed_over != nullptr) *passed_over = tensors_.passed_over();
    return tensors_.finish();
  }

 private:
  /// gamma and beta are older names.
  static Tensors of_today(const Tensors& tensors) {
    Tensors result;
    for (const auto& [name, tensor] : tensors) {
      std::string now = name;
      if (now.ends_with(".gamma")) now.replace(now.size() - 5, 5, "weight");
      if (now.ends_with(".beta")) now.replace(now.size() - 4, 4, "bias");
      result.emplace(now, tensor);
    }
    return result;
  }

  void find_heads() {
    const auto has = [&](const std::string& module) { return tensors_.has(module + ".weight"); };
    model_.config.token_head = has(names_.token_head.front().first);
    const std::string& type = model_.model_type;
    std::string dense = model_.root + "pooler.dense", out;
    if (type == "bert")
      out = has("classifier") ? "classifier" : "cls.seq_relationship";
    else if (is_roberta(type) && has("classifier.out_proj"))
      dense = "classifier.dense", out = "classifier.out_proj";
    else if (has("classifier") || has("classifier.out_proj"))
      throw Error(str(source_, ": the class head of a ", type, " is not supported (no tanh behind its dense layer)"));
    if (!out.empty() && has(out) && has(dense)) model_.class_head = out;
  }

  void positions() {
    const std::string name = table_of(model_);
    if (name.empty()) return;
    const at::Tensor table = tensors_.take(name);
    const std::int64_t rows = model_.config.model.train_length + model_.first_row;
    if (table.dim() != 2 || table.size(0) != rows)
      throw Error(str(source_, ": tensor '", name, "' must have ", rows, " rows (max_position_embeddings), found ",
                      table.sizes()));
    tensors_.put(kLearnedTable, table.narrow(0, model_.first_row, model_.config.model.train_length));
    if (model_.first_row > 0) tensors_.passed_over().unread[name] = table.narrow(0, 0, model_.first_row);
  }

  void token_bias() {
    PassedOver& passed_over = tensors_.passed_over();
    if (tensors_.has(names_.decoder)) {
      const at::Tensor decoder = tensors_.take(names_.decoder), embedding = tensors_.kept("model.embed_tokens.weight");
      if (!embedding.defined() || !decoder.to(at::kFloat).equal(embedding))
        throw Error(str(source_, ": tensor '", names_.decoder,
                        "' differs from the embedding of tokens; only a head tied to it is supported"));
      passed_over.copies[names_.decoder] = model_.root + names_.modules.front().first + ".weight";
    }
    // The same numbers under two names, of which files hold one or both; the first is the one that is added.
    at::Tensor kept;
    model_.token_bias = names_.other_token_bias;
    for (const char* name : {names_.token_bias, names_.other_token_bias}) {
      if (!tensors_.has(name)) continue;
      const at::Tensor bias = tensors_.take(name);
      if (!kept.defined()) {
        kept = bias;
        model_.token_bias = name;
        tensors_.put(kTokenBias, bias);
      } else if (bias.equal(kept)) {
        passed_over.copies[name] = model_.token_bias;
      } else {
        passed_over.unread[name] = bias;
      }
    }
  }

  HuggingFaceEncoder& model_;
  Names names_;
  std::string source_;
  ForeignTensors tensors_;
};

}  // namespace

HuggingFaceEncoder read_hugging_face_encoder(const Json& config, const std::string& source) {
  HuggingFaceEncoder model = describe_hugging_face_encoder(config, source);
  check_stored_encoding(model.config.model, source);
  return model;
}

Tensors hugging_face_encoder_weights(HuggingFaceEncoder& model, const Tensors& tensors, const std::string& source,
                                     PassedOver* passed_over) {
  return Renaming(model, tensors, source).run(passed_over);
}

void set_usual_names(HuggingFaceEncoder& model) {
  const Names names = names_of(model.model_type);
  model.root = names.root;
  model.token_bias = names.other_token_bias;
  const bool bert = model.model_type == "bert";
  if (model.config.labels == 0 || !(bert || is_roberta(model.model_type)))
    model.class_head.clear();
  else
    model.class_head = bert ? "classifier" : "classifier.out_proj";
}

Tensors hugging_face_encoder_tensors(const HuggingFaceEncoderForm& form, Tensors weights) {
  const HuggingFaceEncoder& model = form.model;
  if (model.model_type == "distilbert") weights.erase(kSegments);
  OwnTensors own(std::move(weights), model.model_type);
  for (const auto& [theirs, ours] : modules_of(model, names_of(model.model_type))) own.module(ours, theirs);
  if (model.config.token_head) own.put(model.token_bias, own.take(kTokenBias));
  PassedOver passed_over = form.passed_over;
  if (const std::string name = table_of(model); !name.empty()) {
    const at::Tensor table = own.take(kLearnedTable);
    if (model.first_row == 0) {
      own.put(name, table);
    } else {
      const auto rows = passed_over.unread.find(name);
      const at::Tensor before =
          rows != passed_over.unread.end() ? rows->second : at::zeros({model.first_row, table.size(1)});
      own.put(name, at::cat({before.to(table.scalar_type()), table}));
      passed_over.unread.erase(name);
    }
  }
  return own.finish(passed_over);
}

}  // namespace torsor
