// The encoder: it sees both sides, padding changes nothing, gradients, checkpoints, heads.
#include "torsor/model/encoder.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/test_folder.h"
#include "torsor/model/checkpoint.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;

EncoderConfig tiny(const std::string& encoding, bool norm_first = false) {
  EncoderConfig config;
  config.model.width = 16;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.encoding = encoding;
  config.model.train_length = 12;
  config.norm_first = norm_first;
  config.tag_heads = true;
  config.labels = 3;
  return config;
}

EncoderBatch batch_of(std::int64_t rows, std::int64_t tokens, std::int64_t seed = 1) {
  EncoderBatch batch;
  batch.tokens = ((at::arange(rows * tokens, at::kLong) * 37 + seed * 11) % 256).view({rows, tokens}).contiguous();
  batch.tokens.select(1, 0).fill_(EncoderTokens::kFirst);
  return batch;
}

// Weights of a size that makes attention matter.
Encoder lively(const std::string& encoding, bool norm_first = false) {
  at::NoGradGuard no_grad;
  Encoder encoder(tiny(encoding, norm_first), 3);
  for (const ModelParameter& parameter : encoder.parameters())
    if (parameter.tensor.dim() == 2) at::Tensor(parameter.tensor).mul_(parameter.name.find("embed") == 6 ? 40 : 3);
  return encoder;
}

const char* const kEncodings[] = {"none", "learned", "sinusoidal", "rope", "alibi", "t5(bidirectional=true)"};

class ModelEncoder : public ::testing::Test {
 protected:
  ModelEncoder() { at::set_num_threads(1); }
};

TEST_F(ModelEncoder, EveryTokenSeesBothSides) {
  at::NoGradGuard no_grad;
  for (const char* encoding : kEncodings)
    for (const bool norm_first : {false, true}) {
      const Encoder encoder = lively(encoding, norm_first);
      const EncoderBatch batch = batch_of(1, 6);
      const at::Tensor before = encoder.hidden(batch);
      ASSERT_EQ(before.sizes(), (std::vector<std::int64_t>{1, 6, 16}));
      for (const std::int64_t changed : {1, 5}) {
        EncoderBatch other = batch;
        other.tokens = batch.tokens.clone();
        other.tokens[0][changed] = 7;
        const at::Tensor moved = (encoder.hidden(other) - before).abs().amax(-1).squeeze(0);
        for (std::int64_t t = 0; t < 6; ++t)
          EXPECT_GT(moved[t].item<double>(), 1e-4) << encoding << ": token " << changed << " on token " << t;
      }
    }
}

// fuse=skip joins the stream with the first attention, which has not read it: in one layer it stays where it is.
TEST_F(ModelEncoder, SkippedSyntaxReachesOthersInTheSecondLayer) {
  at::NoGradGuard no_grad;
  for (const bool norm_first : {false, true})
    for (const std::int64_t layers : {1, 2})
      for (const bool skip : {false, true}) {
        EncoderConfig config = tiny(skip ? "sipe(learned, fuse=skip)" : "sipe(learned, inject=input)", norm_first);
        config.model.layers = layers;
        Encoder encoder(config, 3);
        for (const ModelParameter& parameter : encoder.parameters())
          if (parameter.tensor.dim() == 2)
            at::Tensor(parameter.tensor).mul_(parameter.name.find("embed") == 6 ? 40 : 3);
        EncoderBatch batch = batch_of(1, 6), other = batch;
        batch.named["syntax.tags"] = at::ones({1, 6, 2}, at::kLong);
        other.named["syntax.tags"] = batch.named["syntax.tags"].clone();
        other.named["syntax.tags"][0][2].fill_(2);
        const at::Tensor change = (encoder.hidden(batch) - encoder.hidden(other)).abs().amax(-1).squeeze(0);
        EXPECT_GT(change[2].item<double>(), 1e-4);
        for (const std::int64_t t : {0, 1, 3, 4, 5})
          if (skip && layers == 1)
            EXPECT_EQ(change[t].item<double>(), 0) << t;
          else
            EXPECT_GT(change[t].item<double>(), 0) << t << " of " << layers << " layers";
      }
}

TEST_F(ModelEncoder, WithoutPositionsTheOrderOfTokensDoesNotMatter) {
  at::NoGradGuard no_grad;
  const at::Tensor order = at::tensor(std::vector<std::int64_t>{0, 4, 2, 5, 1, 3});
  const EncoderBatch batch = batch_of(2, 6);
  EncoderBatch shuffled;
  shuffled.tokens = batch.tokens.index_select(1, order);
  const Encoder none = lively("none");
  // Sums of a few float32 numbers in another order.
  EXPECT_LT((none.hidden(shuffled) - none.hidden(batch).index_select(1, order)).abs().max().item<double>(), 1e-4);
  for (const char* encoding : {"learned", "rope", "alibi", "t5(bidirectional=true)"}) {
    const Encoder encoder = lively(encoding);
    if (std::string(encoding).starts_with("t5")) {
      // Its table starts at zero: give it some values.
      for (const ModelParameter& parameter : encoder.parameters())
        if (is_positional(parameter.name)) at::Tensor(parameter.tensor).copy_(at::randn(parameter.tensor.sizes()));
    }
    EXPECT_GT((encoder.hidden(shuffled) - encoder.hidden(batch).index_select(1, order)).abs().max().item<double>(),
              1e-3)
        << encoding;
  }
}

TEST_F(ModelEncoder, PaddingChangesNothing) {
  at::NoGradGuard no_grad;
  for (const char* encoding : kEncodings) {
    const Encoder encoder = lively(encoding);
    const EncoderBatch batch = batch_of(2, 5);
    EncoderBatch padded;
    padded.tokens = at::full({2, 9}, EncoderTokens::kPadding, at::kLong);
    padded.tokens.narrow(1, 0, 5).copy_(batch.tokens);
    padded.documents = at::full({2, 9}, -1, at::kLong);
    padded.documents.narrow(1, 0, 5).fill_(0);
    const at::Tensor expected = encoder.hidden(batch), got = encoder.hidden(padded).narrow(1, 0, 5);
    EXPECT_LT((got - expected).abs().max().item<double>(), 2e-5) << encoding;
    EXPECT_LT(
        (encoder.class_logits(encoder.hidden(padded)) - encoder.class_logits(expected)).abs().max().item<double>(),
        2e-5);
  }
}

// transformers#22161: positions count the row's own tokens, wherever the padding stands.
TEST_F(ModelEncoder, PaddingBeforeTokensIsNotCounted) {
  at::NoGradGuard no_grad;
  std::vector<std::string> encodings(std::begin(kEncodings), std::end(kEncodings));
  for (const char* more :
       {"xpos", "yarn(rope, factor=4)", "dynamic(rope, factor=2, train_length=4)", "kerple", "sandwich", "fire", "txl",
        "grape-m", "rope + logn(train_length=2)", "llama4-scale(length=2)"})
    encodings.emplace_back(more);
  for (const std::string& encoding : encodings) {
    Encoder encoder = lively(encoding);
    encoder.to(at::kDouble);
    const EncoderBatch alone = batch_of(3, 5);
    EncoderBatch padded;
    padded.tokens = at::full({3, 9}, EncoderTokens::kPadding, at::kLong);
    padded.documents = at::full({3, 9}, -1, at::kLong);
    const std::int64_t before[] = {4, 1, 0};  // of nine places
    for (std::int64_t row = 0; row < 3; ++row) {
      padded.tokens[row].narrow(0, before[row], 5).copy_(alone.tokens[row]);
      padded.documents[row].narrow(0, before[row], 5).zero_();
    }
    const at::Tensor wanted = encoder.hidden(alone, false, at::kDouble),
                     all = encoder.hidden(padded, false, at::kDouble);
    for (std::int64_t row = 0; row < 3; ++row)
      EXPECT_LT((all[row].narrow(0, before[row], 5) - wanted[row]).abs().max().item<double>(), 1e-11)
          << encoding << " with " << before[row] << " before";
  }
}

TEST_F(ModelEncoder, TextsOfOneRowAreReadAlone) {
  at::NoGradGuard no_grad;
  std::vector<std::string> encodings(std::begin(kEncodings), std::end(kEncodings));
  for (const char* more : {"xpos", "yarn(rope, factor=4)", "kerple", "fire", "txl", "grape-m"})
    encodings.emplace_back(more);
  for (const std::string& encoding : encodings) {
    Encoder encoder = lively(encoding);
    encoder.to(at::kDouble);
    const EncoderBatch alone = batch_of(3, 5);
    EncoderBatch packed;  // padding, then 5, 3 and 4 tokens with padding between the last two
    packed.tokens = at::full({1, 15}, EncoderTokens::kPadding, at::kLong);
    packed.documents = at::full({1, 15}, -1, at::kLong);
    const std::int64_t begins[] = {1, 6, 10}, lengths[] = {5, 3, 4};
    for (std::int64_t text = 0; text < 3; ++text) {
      packed.tokens[0].narrow(0, begins[text], lengths[text]).copy_(alone.tokens[text].narrow(0, 0, lengths[text]));
      packed.documents[0].narrow(0, begins[text], lengths[text]).fill_(text);
    }
    const at::Tensor all = encoder.hidden(packed, false, at::kDouble);
    for (std::int64_t text = 0; text < 3; ++text) {
      EncoderBatch one;
      one.tokens = alone.tokens.narrow(0, text, 1).narrow(1, 0, lengths[text]);
      const at::Tensor wanted = encoder.hidden(one, false, at::kDouble);
      EXPECT_LT((all[0].narrow(0, begins[text], lengths[text]) - wanted[0]).abs().max().item<double>(), 1e-11)
          << encoding << ", text " << text;
    }
  }
}

TEST_F(ModelEncoder, SegmentsAreTold) {
  at::NoGradGuard no_grad;
  const Encoder encoder = lively("rope");
  EncoderBatch batch = batch_of(1, 6);
  const at::Tensor none = encoder.hidden(batch);
  batch.segments = at::zeros({1, 6}, at::kLong);
  EXPECT_TRUE(at::equal(encoder.hidden(batch), none));
  batch.segments.narrow(1, 3, 3).fill_(1);
  EXPECT_GT((encoder.hidden(batch) - none).abs().max().item<double>(), 1e-3);
}

TEST_F(ModelEncoder, GradientsAgreeWithDifferences) {
  for (const char* encoding : {"learned", "rope", "t5(bidirectional=true)"})
    for (const bool norm_first : {false, true}) {
      Encoder encoder = lively(encoding, norm_first);
      encoder.to(at::kDouble);
      encoder.require_gradients();
      const EncoderBatch batch = batch_of(2, 5);
      const at::Tensor targets = at::tensor(std::vector<std::int64_t>{2, 0});
      const auto loss_of = [&] {
        const at::Tensor hidden = encoder.hidden(batch, false, at::kDouble);
        const Encoder::TagLogits tags = encoder.tag_logits(hidden, at::kDouble);
        return at::cross_entropy_loss(encoder.class_logits(hidden, false, at::kDouble), targets) +
               at::log_softmax(encoder.token_logits(hidden, at::kDouble), -1).select(-1, 5).mean() * 0.1 +
               at::log_softmax(tags.tau, -1).select(-1, 1).mean() - at::log_softmax(tags.nu, -1).select(-1, 3).mean();
      };
      loss_of().backward();
      for (const ModelParameter& parameter : encoder.parameters()) {
        ASSERT_TRUE(parameter.tensor.grad().defined()) << encoding << " " << parameter.name;
        at::NoGradGuard no_grad;
        at::Tensor flat = parameter.tensor.view({-1});
        // One number of each tensor: the one with the largest gradient.
        const at::Tensor gradient = parameter.tensor.grad().view({-1});
        const std::int64_t place = gradient.abs().argmax().item<std::int64_t>();
        const double value = flat[place].item<double>(), step = 1e-5 * std::max(1.0, std::abs(value));
        flat[place] = value + step;
        const double up = loss_of().item<double>();
        flat[place] = value - step;
        const double down = loss_of().item<double>();
        flat[place] = value;
        const double expected = (up - down) / (2 * step), found = gradient[place].item<double>();
        // Central differences in float64: the third derivative times step^2.
        EXPECT_NEAR(found, expected, 1e-6 * std::max(1.0, std::abs(expected))) << encoding << " " << parameter.name;
      }
    }
}

TEST_F(ModelEncoder, StartsAlikeUnderEveryEncodingAndDependsOnTheSeed) {
  const Encoder a(tiny("none"), 5), b(tiny("rope"), 5), c(tiny("none"), 6);
  ASSERT_EQ(a.parameters().size(), b.parameters().size());
  bool differs = false;
  for (std::size_t p = 0; p < a.parameters().size(); ++p) {
    EXPECT_EQ(a.parameters()[p].name, b.parameters()[p].name);
    EXPECT_TRUE(at::equal(a.parameters()[p].tensor, b.parameters()[p].tensor));
    differs = differs || !at::equal(a.parameters()[p].tensor, c.parameters()[p].tensor);
  }
  EXPECT_TRUE(differs);
}

TEST_F(ModelEncoder, DropoutActsInTrainingAlone) {
  at::NoGradGuard no_grad;
  EncoderConfig config = tiny("rope");
  config.dropout = 0.3;
  const Encoder encoder(config, 1);
  const EncoderBatch batch = batch_of(1, 6);
  EXPECT_TRUE(at::equal(encoder.hidden(batch), encoder.hidden(batch)));
  EXPECT_FALSE(at::equal(encoder.hidden(batch, true), encoder.hidden(batch, true)));
}

TEST_F(ModelEncoder, CheckpointsReadBack) {
  at::NoGradGuard no_grad;
  testing::TestFolder folder;
  const Encoder encoder(tiny("t5(bidirectional=true)", true), 4);
  save_encoder(folder / "run", encoder, {{"name", "RTE"}});
  const LoadedEncoder loaded = load_encoder(folder / "run");
  EXPECT_EQ(loaded.about.at("name"), "RTE");
  EXPECT_EQ(encoder_to_json(loaded.encoder.config()), encoder_to_json(encoder.config()));
  const EncoderBatch batch = batch_of(2, 6);
  EXPECT_TRUE(at::equal(loaded.encoder.class_logits(loaded.encoder.hidden(batch)),
                        encoder.class_logits(encoder.hidden(batch))));
  // Neither kind passes for the other.
  EXPECT_TRUE(contains(message_of<Error>([&] { load_checkpoint(folder / "run"); }), "found an encoder's"));
  ModelConfig decoder;
  decoder.width = 16, decoder.heads = 2, decoder.layers = 1;
  save_checkpoint(folder / "decoder", Decoder(decoder, 1), "bytes");
  EXPECT_TRUE(contains(message_of<Error>([&] { load_encoder(folder / "decoder"); }), "found a decoder's"));
}

TEST_F(ModelEncoder, AFreshHeadOnTheSameBody) {
  at::NoGradGuard no_grad;
  const Encoder encoder(tiny("rope"), 4);
  const Encoder two = encoder.with_labels(2, 1), again = encoder.with_labels(2, 1), other = encoder.with_labels(2, 2);
  const EncoderBatch batch = batch_of(2, 6);
  EXPECT_TRUE(at::equal(two.hidden(batch), encoder.hidden(batch)));
  EXPECT_EQ(two.class_logits(two.hidden(batch)).size(1), 2);
  EXPECT_TRUE(at::equal(two.class_logits(two.hidden(batch)), again.class_logits(again.hidden(batch))));
  EXPECT_FALSE(at::equal(two.class_logits(two.hidden(batch)), other.class_logits(other.hidden(batch))));
  // Copies: training one leaves the other alone.
  at::Tensor(two.parameters()[0].tensor).fill_(0);
  EXPECT_GT(encoder.parameters()[0].tensor.abs().max().item<double>(), 0);
  EXPECT_THROW(encoder.with_labels(0, 1), UsageError);
}

TEST_F(ModelEncoder, ModelFiles) {
  const auto config = encoder_from_json(
      Json::parse(R"({"kind": "encoder", "width": 32, "layers": 2, "heads": 4, "norm": "pre", "dropout": 0.1,
                      "segments": 3, "tag_heads": true, "qk_norm": "before"})"),
      "m.json");
  EXPECT_EQ(config.model.mlp_width, 128);
  EXPECT_TRUE(config.norm_first);
  EXPECT_EQ(config.segments, 3);
  EXPECT_TRUE(config.tag_heads);
  EXPECT_EQ(encoder_to_json(encoder_from_json(encoder_to_json(config), "again")), encoder_to_json(config));
  const auto refused = [](const char* text, const char* part) {
    const std::string message = message_of<UsageError>([&] { encoder_from_json(Json::parse(text), "m.json"); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  refused(R"({"width": 32})", "\"kind\": \"encoder\"");
  refused(R"({"kind": "encoder", "norm": "middle"})", "norm must be post or pre");
  refused(R"({"kind": "encoder", "kv_shift": true})", "has no 'kv_shift'");
  refused(R"({"kind": "encoder", "window": 4})", "has no 'window'");
  refused(R"({"kind": "encoder", "tie_head": true})", "has no 'tie_head'");
  refused(R"({"kind": "encoder", "colour": 4})", "colour");
  refused(R"({"kind": "encoder", "dropout": 1})", "dropout");
  refused(R"({"kind": "encoder", "segments": 0})", "segments");
  EXPECT_TRUE(contains(message_of<UsageError>([] { model_from_json(Json::parse(R"({"kind": "encoder"})"), "m"); }),
                       "model file of a decoder"));
}

TEST_F(ModelEncoder, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(Encoder(tiny("rope(axes=2)"), 1), UsageError);
  EXPECT_THROW(Encoder(tiny("tape(rope)"), 1), UsageError);
  const Encoder gated(tiny("fox"), 1);
  EXPECT_THROW(gated.hidden(batch_of(1, 4)), Refusal);
  const Encoder encoder(tiny("rope"), 1);
  EncoderBatch batch = batch_of(1, 4);
  batch.segments = at::zeros({1, 5}, at::kLong);
  EXPECT_TRUE(contains(message_of<Error>([&] { encoder.hidden(batch); }), "segments must be int64"));
  batch = batch_of(1, 4);
  batch.tokens = batch.tokens.to(at::kInt);
  EXPECT_THROW(encoder.hidden(batch), Error);
  EncoderConfig bare = tiny("rope");
  bare.labels = 0, bare.tag_heads = false;
  const Encoder headless(bare, 1);
  const at::Tensor hidden = headless.hidden(batch_of(1, 4));
  EXPECT_THROW(headless.class_logits(hidden), Error);
  EXPECT_THROW(headless.tag_logits(hidden), Error);
  const Encoder tagged(tiny("sipe(alibi)"), 1);
  EXPECT_TRUE(contains(message_of<Error>([&] { tagged.hidden(batch_of(1, 4)); }), "syntax."));
}

}  // namespace
}  // namespace torsor
