// Names: transformers 5.24, src/transformers/models/{bert,roberta,distilbert,roformer}.
#include "torsor/model/hugging_face_encoder.h"

#include <utility>
#include <vector>

#include "torsor/model/foreign_tensors.h"
#include "torsor/model/stored_encoding.h"

namespace torsor {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

/// Names of one family; a layer's modules stand under LAYERS N . NAME.
struct Names {
  std::string root, layers;                                  ///< the root may be missing in a file of the bare model
  std::vector<std::pair<const char*, const char*>> modules;  ///< under the root: theirs, ours
  std::vector<std::pair<const char*, const char*>> layer;
  std::vector<std::pair<const char*, const char*>> token_head;  ///< without the root
  const char *token_bias, *other_token_bias, *decoder;          ///< of the token head
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

class Renaming {
 public:
  Renaming(HuggingFaceEncoder& model, const Tensors& tensors, const std::string& source)
      : model_(model),
        names_(names_of(model.model_type)),
        source_(source),
        tensors_(of_today(tensors), source, model.model_type),
        root_(tensors_.any_under(names_.root) ? names_.root : "") {}

  Tensors run() {
    const ModelConfig& c = model_.config.model;
    for (const auto& [theirs, ours] : names_.modules) tensors_.module(root_ + theirs, ours);
    if (model_.model_type == "distilbert") tensors_.put("model.embed_segments.weight", at::zeros({1, c.width}));
    positions();
    for (std::int64_t layer = 0; layer < c.layers; ++layer)
      for (const auto& [theirs, ours] : names_.layer)
        tensors_.module(str(root_, names_.layers, layer, ".", theirs), str("model.layers.", layer, ".", ours));
    token_head();
    class_head();
    return tensors_.finish();
  }

 private:
  /// Without what repeats the configuration (counts from 0, RoFormer's sines); gamma and beta are older names.
  static Tensors of_today(const Tensors& tensors) {
    Tensors result;
    for (const auto& [name, tensor] : tensors) {
      if (name.ends_with("embeddings.position_ids") || name.ends_with("encoder.embed_positions.weight")) continue;
      std::string now = name;
      if (now.ends_with(".gamma")) now.replace(now.size() - 5, 5, "weight");
      if (now.ends_with(".beta")) now.replace(now.size() - 4, 4, "bias");
      result.emplace(now, tensor);
    }
    return result;
  }

  void positions() {
    if (model_.model_type == "roformer") return;
    const std::string name = root_ + "embeddings.position_embeddings.weight";
    const at::Tensor table = tensors_.take(name);
    const std::int64_t rows = model_.config.model.train_length + model_.first_row;
    if (table.dim() != 2 || table.size(0) != rows)
      throw Error(str(source_, ": tensor '", name, "' must have ", rows, " rows (max_position_embeddings), found ",
                      table.sizes()));
    tensors_.put("model.position.learned.table", table.narrow(0, model_.first_row, model_.config.model.train_length));
  }

  void token_head() {
    model_.config.token_head = tensors_.has(std::string(names_.token_head.front().first) + ".weight");
    if (model_.config.token_head)
      for (const auto& [theirs, ours] : names_.token_head) tensors_.module(theirs, ours);
    if (tensors_.has(names_.decoder)) {
      const at::Tensor decoder = tensors_.take(names_.decoder), embedding = tensors_.kept("model.embed_tokens.weight");
      if (!embedding.defined() || !decoder.to(at::kFloat).equal(embedding))
        throw Error(str(source_, ": tensor '", names_.decoder,
                        "' differs from the embedding of tokens; only a head tied to it is supported"));
    }
    // The same numbers under two names, of which files hold one or both; the first is the one that is added.
    bool found = false;
    for (const char* name : {names_.token_bias, names_.other_token_bias}) {
      if (!tensors_.has(name)) continue;
      const at::Tensor bias = tensors_.take(name);
      if (!found) tensors_.put("head.tokens.bias", bias);
      found = true;
    }
  }

  void class_head() {
    const std::string& type = model_.model_type;
    std::string dense = root_ + "pooler.dense", out;
    if (type == "bert")
      out = tensors_.has("classifier.weight") ? "classifier" : "cls.seq_relationship";
    else if (is_roberta(type) && tensors_.has("classifier.out_proj.weight"))
      dense = "classifier.dense", out = "classifier.out_proj";
    else if (tensors_.has("classifier.weight") || tensors_.has("classifier.out_proj.weight"))
      throw Error(str(source_, ": the class head of a ", type, " is not supported (no tanh behind its dense layer)"));
    if (!out.empty() && tensors_.has(out + ".weight") && tensors_.has(dense + ".weight")) {
      tensors_.module(dense, "head.classes.pooler");
      tensors_.module(out, "head.classes.out");
      const at::Tensor weight = tensors_.kept("head.classes.out.weight");
      model_.config.labels = weight.dim() == 2 ? weight.size(0) : 0;
    }
    // A pooler that no head reads.
    for (const char* part : {".weight", ".bias"}) tensors_.drop(root_ + "pooler.dense" + part);
  }

  HuggingFaceEncoder& model_;
  Names names_;
  std::string source_;
  ForeignTensors tensors_;
  std::string root_;
};

}  // namespace

HuggingFaceEncoder read_hugging_face_encoder(const Json& config, const std::string& source) {
  HuggingFaceEncoder model = describe_hugging_face_encoder(config, source);
  check_stored_encoding(model.config.model, source);
  return model;
}

Tensors hugging_face_encoder_weights(HuggingFaceEncoder& model, const Tensors& tensors, const std::string& source) {
  return Renaming(model, tensors, source).run();
}

}  // namespace torsor
