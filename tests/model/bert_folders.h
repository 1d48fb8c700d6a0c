// Small models of BERT and its kin in transformers' form, made of random numbers.
#pragma once

#include <string>

#include "tests/model/foreign_weights.h"
#include "torsor/base/json.h"

namespace torsor::testing::bert {

constexpr std::int64_t kWidth = 24, kHeads = 3, kInner = 40, kLayers = 2, kVocabulary = 37, kLongest = 20, kLabels = 4;

inline Json config_of(const std::string& type) {
  if (type == "distilbert")
    return {{"model_type", type},
            {"vocab_size", kVocabulary},
            {"dim", kWidth},
            {"n_layers", kLayers},
            {"n_heads", kHeads},
            {"hidden_dim", kInner},
            {"max_position_embeddings", kLongest}};
  Json config = {{"model_type", type},
                 {"vocab_size", kVocabulary},
                 {"hidden_size", kWidth},
                 {"num_hidden_layers", kLayers},
                 {"num_attention_heads", kHeads},
                 {"intermediate_size", kInner},
                 {"max_position_embeddings", kLongest},
                 {"type_vocab_size", 2},
                 {"layer_norm_eps", 1e-12}};
  if (type == "roberta") {
    config["max_position_embeddings"] = kLongest + 2;
    config["type_vocab_size"] = 1;
    config["pad_token_id"] = 1;
  }
  return config;
}

/// Names of one family, as its files have them.
struct Theirs {
  std::string root, layer, q, k, v, o, norm1, up, down, norm2, dense, norm, bias;
};
inline Theirs names(const std::string& type) {
  if (type == "distilbert")
    return {"distilbert.",         "transformer.layer.", "attention.q_lin",
            "attention.k_lin",     "attention.v_lin",    "attention.out_lin",
            "sa_layer_norm",       "ffn.lin1",           "ffn.lin2",
            "output_layer_norm",   "vocab_transform",    "vocab_layer_norm",
            "vocab_projector.bias"};
  Theirs bert{type + ".",
              "encoder.layer.",
              "attention.self.query",
              "attention.self.key",
              "attention.self.value",
              "attention.output.dense",
              "attention.output.LayerNorm",
              "intermediate.dense",
              "output.dense",
              "output.LayerNorm",
              "cls.predictions.transform.dense",
              "cls.predictions.transform.LayerNorm",
              "cls.predictions.bias"};
  if (type == "roberta") bert.dense = "lm_head.dense", bert.norm = "lm_head.layer_norm", bert.bias = "lm_head.bias";
  return bert;
}

inline ForeignWeights weights_of(const std::string& type, bool token_head, bool class_head) {
  ForeignWeights w(11);
  const Theirs n = names(type);
  w.add(n.root + "embeddings.word_embeddings.weight", {kVocabulary, kWidth}, 1);
  if (type != "roformer")
    w.add(n.root + "embeddings.position_embeddings.weight", {kLongest + (type == "roberta" ? 2 : 0), kWidth}, 1);
  if (type != "distilbert")
    w.add(n.root + "embeddings.token_type_embeddings.weight", {type == "roberta" ? 1 : 2, kWidth}, 1);
  w.norm(n.root + "embeddings.LayerNorm", kWidth);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string own = str(n.root, n.layer, layer, ".");
    for (const std::string& part : {n.q, n.k, n.v, n.o}) w.linear(own + part, kWidth, kWidth);
    w.norm(own + n.norm1, kWidth);
    w.linear(own + n.up, kInner, kWidth);
    w.linear(own + n.down, kWidth, kInner);
    w.norm(own + n.norm2, kWidth);
  }
  if (token_head) {
    w.linear(n.dense, kWidth, kWidth);
    w.norm(n.norm, kWidth);
    w.add(n.bias, {kVocabulary});
  }
  if (class_head) {
    w.linear(type == "roberta" ? "classifier.dense" : "bert.pooler.dense", kWidth, kWidth);
    w.linear(type == "roberta" ? "classifier.out_proj" : "classifier", kLabels, kWidth);
  }
  // What repeats the configuration.
  if (type == "bert") w.tensors()["bert.embeddings.position_ids"] = at::arange(kLongest).view({1, -1});
  if (type == "roformer") w.add("roformer.encoder.embed_positions.weight", {kLongest, 8});
  return w;
}

}  // namespace torsor::testing::bert
