// BERT, RoBERTa, DistilBERT and RoFormer in transformers' form, against their formulas written out in float64.
#include "torsor/model/hugging_face_encoder.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/base/test_folder.h"
#include "tests/model/bert_folders.h"
#include "tests/model/foreign_weights.h"
#include "torsor/base/file.h"
#include "torsor/model/encoder.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

using namespace testing::bert;
using testing::contains;
using testing::ForeignWeights;
using testing::join_heads;
using testing::largest_difference;
using testing::message_of;
using testing::split_heads;
using testing::TestFolder;
using testing::write_hugging_face;

/// Devlin et al. 2019: post-norm blocks; RoFormer (Su et al. 2021, eq. 34) turns neighbouring channels of q and k.
struct Plain {
  const ForeignWeights& w;
  std::string type;

  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    const at::Tensor centred = x - x.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + 1e-12).sqrt() * w(name + ".weight") + w(name + ".bias");
  }

  static at::Tensor gelu(const at::Tensor& x) { return 0.5 * x * (1 + at::erf(x / std::sqrt(2.0))); }

  static at::Tensor turned(const at::Tensor& x) {  // (H, T, d)
    const at::Tensor y = x.clone();
    const std::int64_t d = x.size(2);
    for (std::int64_t i = 0; i < d / 2; ++i) {
      const at::Tensor angle = at::arange(x.size(1), at::kDouble) *
                               std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d));
      const at::Tensor a = x.select(2, 2 * i), b = x.select(2, 2 * i + 1);
      y.select(2, 2 * i).copy_(a * angle.cos() - b * angle.sin());
      y.select(2, 2 * i + 1).copy_(b * angle.cos() + a * angle.sin());
    }
    return y;
  }

  at::Tensor hidden(const at::Tensor& tokens, const at::Tensor& segments) const {
    const Theirs n = names(type);
    at::Tensor h = w(n.root + "embeddings.word_embeddings.weight").index_select(0, tokens);
    if (type != "distilbert") h = h + w(n.root + "embeddings.token_type_embeddings.weight").index_select(0, segments);
    if (type != "roformer")
      h = h + w(n.root + "embeddings.position_embeddings.weight").narrow(0, type == "roberta" ? 2 : 0, tokens.numel());
    h = norm(n.root + "embeddings.LayerNorm", h);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string own = str(n.root, n.layer, layer, ".");
      at::Tensor q = split_heads(w.apply(own + n.q, h), kHeads), k = split_heads(w.apply(own + n.k, h), kHeads);
      if (type == "roformer") q = turned(q), k = turned(k);
      const at::Tensor scores = at::matmul(q, k.transpose(1, 2)) / std::sqrt(static_cast<double>(kWidth / kHeads));
      const at::Tensor mixed = at::matmul(at::softmax(scores, -1), split_heads(w.apply(own + n.v, h), kHeads));
      h = norm(own + n.norm1, h + w.apply(own + n.o, join_heads(mixed)));
      h = norm(own + n.norm2, h + w.apply(own + n.down, gelu(w.apply(own + n.up, h))));
    }
    return h;
  }

  at::Tensor logits(const at::Tensor& hidden) const {
    const Theirs n = names(type);
    return at::matmul(norm(n.norm, gelu(w.apply(n.dense, hidden))),
                      w(n.root + "embeddings.word_embeddings.weight").t()) +
           w(n.bias);
  }

  at::Tensor classes(const at::Tensor& hidden) const {
    const at::Tensor first = hidden.narrow(0, 0, 1);
    return w.apply(type == "roberta" ? "classifier.out_proj" : "classifier",
                   w.apply(type == "roberta" ? "classifier.dense" : "bert.pooler.dense", first).tanh());
  }
};

at::Tensor some_tokens(std::int64_t count) { return testing::some_tokens(count, 0, kVocabulary, 3); }

TEST(HuggingFaceEncoder, BertAndItsKinEqualTheirFormulas) {
  const at::NoGradGuard no_grad;
  for (const std::string type : {"bert", "roberta", "distilbert", "roformer"}) {
    const bool classes = type == "bert" || type == "roberta";
    ForeignWeights weights = weights_of(type, true, classes);
    const TestFolder folder;
    write_hugging_face(folder, config_of(type), weights);
    ASSERT_TRUE(is_encoder_checkpoint(folder.path()));
    const LoadedEncoder loaded = load_encoder(folder.path());
    const Plain plain{weights, type};
    for (const std::int64_t length : {std::int64_t{1}, std::int64_t{13}, kLongest}) {
      const at::Tensor tokens = some_tokens(length);
      const at::Tensor segments = type == "bert" || type == "roformer" ? (at::arange(length) >= 5).to(at::kLong)
                                                                       : at::zeros({length}, at::kLong);
      EncoderBatch batch;
      batch.tokens = tokens.view({1, -1});
      batch.segments = segments.view({1, -1});
      const at::Tensor hidden = loaded.encoder.hidden(batch), wanted = plain.hidden(tokens, segments);
      EXPECT_LE(largest_difference(hidden[0], wanted), 2e-5) << type << " " << length;
      EXPECT_LE(largest_difference(loaded.encoder.token_logits(hidden)[0], plain.logits(wanted)), 1e-4)
          << type << " " << length;
      if (classes) {
        EXPECT_LE(largest_difference(loaded.encoder.class_logits(hidden), plain.classes(wanted)), 2e-5) << type;
      }
      // Padding behind, and a longer row beside, change nothing that counts.
      if (length == kLongest) continue;
      EncoderBatch padded;
      padded.tokens = at::cat({batch.tokens, at::full({1, kLongest - length}, 7, at::kLong)}, 1);
      padded.segments = at::cat({batch.segments, at::zeros({1, kLongest - length}, at::kLong)}, 1);
      padded.documents = at::full({1, kLongest}, -1, at::kLong);
      padded.documents.narrow(1, 0, length).zero_();
      EXPECT_LE(largest_difference(loaded.encoder.hidden(padded).narrow(1, 0, length)[0], wanted), 2e-5)
          << type << " padded";
    }
    // Positions end where the table does.
    EncoderBatch longer;
    longer.tokens = some_tokens(kLongest + 1).view({1, -1});
    if (type == "roformer")
      EXPECT_NO_THROW(loaded.encoder.hidden(longer));
    else
      EXPECT_TRUE(contains(message_of<Refusal>([&] { loaded.encoder.hidden(longer); }), "20")) << type;
  }
}

TEST(HuggingFaceEncoder, FilesOfEveryShapeAreRead) {
  const at::NoGradGuard no_grad;
  EncoderBatch batch;
  batch.tokens = some_tokens(9).view({1, -1});
  const auto load = [](ForeignWeights& weights, const Json& config) {
    const TestFolder folder;
    write_hugging_face(folder, config, weights);
    return load_encoder(folder.path());
  };
  ForeignWeights weights = weights_of("bert", true, false);
  const at::Tensor wanted = load(weights, config_of("bert")).encoder.hidden(batch);

  // gamma and beta of the first files; both names of the bias, and the tied matrix once more; a pooler alone.
  ForeignWeights old = weights_of("bert", true, false);
  std::map<std::string, at::Tensor> renamed;
  for (const auto& [name, tensor] : old.tensors()) {
    std::string now = name;
    if (const auto at = now.find("LayerNorm.weight"); at != std::string::npos) now.replace(at + 10, 6, "gamma");
    if (const auto at = now.find("LayerNorm.bias"); at != std::string::npos) now.replace(at + 10, 4, "beta");
    renamed[now] = tensor;
  }
  renamed["cls.predictions.decoder.weight"] = renamed["bert.embeddings.word_embeddings.weight"];
  renamed["cls.predictions.decoder.bias"] = renamed["cls.predictions.bias"];
  renamed["bert.pooler.dense.weight"] = at::randn({kWidth, kWidth});
  renamed["bert.pooler.dense.bias"] = at::randn({kWidth});
  old.tensors() = renamed;
  const LoadedEncoder then = load(old, config_of("bert"));
  EXPECT_TRUE(then.encoder.hidden(batch).equal(wanted));
  EXPECT_EQ(then.encoder.config().labels, 0);
  EXPECT_TRUE(then.encoder.config().token_head);

  // The bare model, without its root and without heads.
  ForeignWeights bare = weights_of("bert", false, false);
  renamed.clear();
  for (const auto& [name, tensor] : bare.tensors()) renamed[name.substr(5)] = tensor;
  bare.tensors() = renamed;
  const LoadedEncoder base = load(bare, config_of("bert"));
  EXPECT_TRUE(base.encoder.hidden(batch).equal(wanted));
  EXPECT_FALSE(base.encoder.config().token_head);
  EXPECT_TRUE(contains(message_of<Error>([&] { base.encoder.token_logits(wanted); }), "no head for tokens"));

  // Next-sentence heads are class heads of two labels.
  ForeignWeights pairs = weights_of("bert", true, true);
  pairs.tensors().erase("classifier.weight"), pairs.tensors().erase("classifier.bias");
  pairs.linear("cls.seq_relationship", 2, kWidth);
  EXPECT_EQ(load(pairs, config_of("bert")).encoder.class_logits(wanted).size(1), 2);

  // Written as one of this project's, and read again.
  const TestFolder folder;
  ForeignWeights both = weights_of("roberta", true, true);
  const LoadedEncoder roberta = load(both, config_of("roberta"));
  save_encoder(folder.path(), roberta.encoder);
  const LoadedEncoder again = load_encoder(folder.path());
  EXPECT_TRUE(again.encoder.hidden(batch).equal(roberta.encoder.hidden(batch)));
  EXPECT_EQ(again.encoder.config().labels, kLabels);
  EXPECT_EQ(again.encoder.config().model.vocabulary_size, kVocabulary);
}

TEST(HuggingFaceEncoder, WhatWouldBeAnotherModelIsRefused) {
  const auto refused = [](const std::string& type, const Json& more, const std::string& part) {
    Json config = config_of(type);
    config.update(more);
    const std::string message = message_of<Error>([&] { read_hugging_face_encoder(config, "config.json"); });
    EXPECT_TRUE(contains(message, part)) << type << " " << json_text(more) << ": " << message;
    EXPECT_TRUE(contains(message, "config.json")) << message;
  };
  refused("bert", {{"position_embedding_type", "relative_key"}}, "relative_key");
  refused("bert", {{"is_decoder", true}}, "is_decoder");
  refused("bert", {{"hidden_act", "swish"}}, "swish");
  refused("bert", {{"tie_word_embeddings", false}}, "tie_word_embeddings");
  refused("bert", {{"rope_theta", 10000}}, "rope_theta");
  refused("bert", {{"num_attention_heads", 5}}, "divide");
  refused("bert", {{"hidden_size", 0}}, "hidden_size");
  refused("bert", {{"intermediate_size", 0}}, "intermediate_size");
  refused("roformer", {{"rotary_value", true}}, "rotary_value");
  refused("roformer", {{"embedding_size", 12}}, "embedding_size");
  refused("roberta", {{"hidden_act", "relu"}}, "gelu");
  refused("roberta", {{"max_position_embeddings", 2}}, "max_position_embeddings");
  refused("distilbert", {{"n_layers", "two"}}, "n_layers");

  const auto weights_refused = [](const std::string& type,
                                  const std::function<void(std::map<std::string, at::Tensor>&)>& change,
                                  const std::string& part) {
    ForeignWeights weights = weights_of(type, true, type == "bert");
    change(weights.tensors());
    const TestFolder folder;
    write_hugging_face(folder, config_of(type), weights);
    const std::string message = message_of<Error>([&] { load_encoder(folder.path()); });
    EXPECT_TRUE(contains(message, part)) << type << ": " << message;
  };
  weights_refused(
      "bert", [](auto& all) { all.erase("bert.encoder.layer.1.output.dense.bias"); }, "down.bias");
  weights_refused(
      "bert", [](auto& all) { all["bert.encoder.layer.2.output.dense.bias"] = at::zeros({kWidth}); },
      "encoder.layer.2.output.dense.bias");
  weights_refused(
      "bert",
      [](auto& all) {
        all["cls.predictions.decoder.weight"] = at::zeros({kVocabulary, kWidth});
      },
      "tied");
  weights_refused(
      "bert", [](auto& all) { all["classifier.weight"] = at::zeros({3}); }, "classes.out");
  weights_refused(
      "roberta",
      [](auto& all) {
        all["roberta.embeddings.position_embeddings.weight"] = at::zeros({kLongest, kWidth});
      },
      "22 rows");
  weights_refused(
      "distilbert",
      [](auto& all) {
        all["classifier.weight"] = at::zeros({3, kWidth});
      },
      "class head of a distilbert");
  EXPECT_FALSE(is_hugging_face_encoder({{"model_type", "modernbert"}}));
}

}  // namespace
}  // namespace torsor
