// Heads that predict the next token's tags: what they pay is a probability, and their sum with the tokens' is a bound.
#include "torsor/model/tag_heads.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/base/test_folder.h"
#include "tests/model/tokens.h"
#include "torsor/base/error.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/convert.h"
#include "torsor/model/decoder.h"

namespace torsor {
namespace {

constexpr std::int64_t kVocabulary = 4;

ModelConfig tiny(const std::string& encoding) {
  ModelConfig config;
  config.encoding = encoding;
  config.vocabulary_size = kVocabulary;
  config.width = 8;
  config.layers = 2;
  config.heads = 2;
  config.head_dim = 4;
  config.mlp_width = 8;
  return config;
}

/// Away from its start, where tags say nothing and every class is as likely as the others.
Decoder lively(const ModelConfig& config) {
  Decoder model(config, 3);
  at::manual_seed(5);
  for (const ModelParameter& parameter : model.parameters())
    if (parameter.name.find("norm") == std::string::npos)
      parameter.tensor.copy_(at::randn(parameter.tensor.sizes()) * 0.6);
  return model;
}

at::Tensor rows_of(const std::vector<std::vector<std::int64_t>>& rows) {
  std::vector<at::Tensor> all;
  for (const auto& row : rows) all.push_back(at::tensor(row, at::kLong));
  return at::stack(all);
}

TEST(TagHeads, SentencesByHand) {
  const at::Tensor steps = sentence_steps(rows_of({{-1, -1, 4, 4, -1, 4, 5, -1, 7}, {0, 0, 1, -1, -1, 1, 1, 2, 0}}));
  // 0 none, 1 the last one goes on, 2 a new one; of the second token to the last.
  EXPECT_TRUE(at::equal(steps, rows_of({{0, 2, 1, 0, 1, 2, 0, 2}, {1, 2, 0, 0, 1, 1, 2, 2}}))) << steps;
}

TEST(TagHeads, WhatTheyServe) {
  const auto serve = [](const char* text) { return TagHeads::serve(*make_encoding(text, tiny(text).dimensions())); };
  EXPECT_TRUE(serve("sipe(txl, mode=oracle)"));
  EXPECT_TRUE(serve("sipe(rope)"));
  EXPECT_TRUE(serve("sipe(alibi)"));
  EXPECT_TRUE(serve("sipe(alibi, cross_sentence=true)"));
  EXPECT_FALSE(serve("sipe(alibi, coupling=sparse)"));  // reads arcs
  EXPECT_FALSE(serve("sipe(txl, prior=fsyn)"));
  EXPECT_FALSE(serve("sipe(alibi, prior=fsyn)"));
  EXPECT_FALSE(serve("sipe(alibi, mode=none)"));
  EXPECT_FALSE(serve("rope"));
  EXPECT_TRUE(TagHeads::owns("head.nu.bias"));
  EXPECT_FALSE(TagHeads::owns("head.nurse.bias"));
  EXPECT_FALSE(TagHeads::owns("lm_head.weight"));
}

TEST(TagHeads, WhoHasThem) {
  const auto heads = [](const char* encoding, std::optional<bool> key) {
    ModelConfig config = tiny(encoding);
    config.tag_heads = key;
    return Decoder(config, 0).tag_heads().there();
  };
  EXPECT_TRUE(heads("sipe(txl, mode=oracle)", {}));
  EXPECT_TRUE(heads("sipe(txl, mode=oracle_revealed)", {}));
  EXPECT_FALSE(heads("sipe(txl, mode=oracle)", false));
  EXPECT_FALSE(heads("sipe(txl)", {}));
  EXPECT_TRUE(heads("sipe(txl)", true));
  EXPECT_FALSE(heads("txl", true));
  EXPECT_FALSE(heads("sipe(txl, prior=fsyn, mode=oracle)", true));
  const Decoder model(tiny("sipe(rope, mode=oracle)"), 0);
  EXPECT_EQ(model.parameter_count(), Decoder(tiny("sipe(rope)"), 0).parameter_count() + (3 + 6) * (8 + 1));
  const Decoder pairs(tiny("sipe(alibi, mode=oracle)"), 0);
  EXPECT_EQ(pairs.parameter_count(), Decoder(tiny("sipe(alibi)"), 0).parameter_count() + (3 + 6 + 3) * (8 + 1));
}

// Everything that can stand at the next two places, tokens and tags and sentences, has probability 1 together: so what
// the losses say is the negative log of a distribution over texts with tags, and that of a text alone is no larger.
TEST(TagHeads, ProbabilitiesOfAllContinuationsSumToOne) {
  const at::NoGradGuard no_grad;
  for (const bool sentences : {false, true}) {
    const Decoder model = lively(tiny(sentences ? "sipe(alibi, mode=oracle)" : "sipe(txl, mode=oracle)"));
    const std::int64_t kinds = sentences ? 3 : 1, one = kVocabulary * kTauTags * kNuTags * kinds;
    // Row r = the first choice * one + the second.
    const at::Tensor row = at::arange(one * one, at::kLong);
    const auto choice = [&](std::int64_t place) {
      return place == 0 ? at::div(row, one, "floor") : row.remainder(one);
    };
    at::Tensor windows = at::full({one * one, 3}, 2, at::kLong), tags = at::ones({one * one, 3, 2}, at::kLong);
    at::Tensor sentence = at::zeros({one * one, 3}, at::kLong);
    for (std::int64_t place = 0; place < 2; ++place) {
      at::Tensor left = choice(place);
      const auto take = [&](std::int64_t count) {
        const at::Tensor value = left.remainder(count);
        left = at::div(left, count, "floor");
        return value;
      };
      windows.select(1, place + 1).copy_(take(kVocabulary));
      tags.select(1, place + 1).select(1, 0).copy_(take(kTauTags));
      tags.select(1, place + 1).select(1, 1).copy_(take(kNuTags));
      if (!sentences) continue;
      // None, the sentence that was last seen, or a new one.
      const at::Tensor kind = take(3), last = std::get<0>(sentence.narrow(1, 0, place + 1).max(1));
      sentence.select(1, place + 1).copy_(at::where(kind.eq(0), -1, last + kind.eq(2).to(at::kLong)));
    }
    NamedTensors named{{kSyntaxTags, tags}};
    if (sentences) named[kSyntaxSentences] = sentence;
    Decoder wide = lively(tiny(sentences ? "sipe(alibi, mode=oracle)" : "sipe(txl, mode=oracle)"));
    wide.to(at::kDouble);
    const Decoder::JointLosses losses = wide.joint_losses(windows, named, at::kDouble);
    const at::Tensor nats = losses.tokens + losses.tags;
    // The first step alone, every first choice once: rows whose second choice is 0.
    EXPECT_NEAR(nats.select(1, 0).masked_select(row.remainder(one).eq(0)).neg().exp().sum().item<double>(), 1, 1e-12);
    EXPECT_NEAR(nats.sum(1).neg().exp().sum().item<double>(), 1, 1e-12) << sentences;
    // The bound: a text with its tags is rarer than the text with any tags. A text's own probability is that sum over
    // all tags.
    const at::Tensor text = windows.select(1, 1) * kVocabulary + windows.select(1, 2);
    const at::Tensor alone =
        at::zeros({kVocabulary * kVocabulary}, at::kDouble).index_add(0, text, nats.sum(1).neg().exp());
    EXPECT_GT((alone.log().neg().index_select(0, text) - nats.sum(1)).neg().min().item<double>(), 0);
    // In float32 the same numbers.
    const Decoder::JointLosses narrow = model.joint_losses(windows, named);
    EXPECT_LT(largest_difference(narrow.tokens + narrow.tags, nats), 2e-5);
    // And the tokens' part is what a model is asked for without its heads.
    for (auto& [name, tensor] : named) tensor = tensor.narrow(1, 0, 2);
    EXPECT_TRUE(at::equal(narrow.tokens, model.token_losses(windows, at::kFloat, named)));
    const double first = std::log(3) + std::log(6) + (sentences ? std::log(3) : 0);
    EXPECT_NEAR(model.tag_heads().first_token(), first, 1e-15);
  }
}

TEST(TagHeads, RefuseWhatTheyCannotPredict) {
  const Decoder model(tiny("sipe(txl, mode=oracle)"), 0);
  const at::Tensor windows = rows_of({{1, 2, 3}});
  NamedTensors named{{kSyntaxTags, at::ones({1, 2, 2}, at::kLong)}};
  EXPECT_THROW(model.joint_losses(windows, named), Error);  // the last target's tags are missing
  EXPECT_THROW(model.joint_losses(windows, {}), Error);
  named[kSyntaxTags] = at::ones({1, 3, 2}, at::kLong);
  EXPECT_NO_THROW(model.joint_losses(windows, named));
  EXPECT_THROW(Decoder(tiny("sipe(txl)"), 0).joint_losses(windows, named), Error);
}

TEST(TagHeads, CheckpointsAndConversions) {
  const at::NoGradGuard no_grad;
  testing::TestFolder folder;
  ModelConfig config = tiny("sipe(alibi, mode=oracle)");
  config.train_length = 8;
  const Decoder model = lively(config);
  save_checkpoint(folder / "model", model, "bytes");
  const LoadedModel loaded = load_checkpoint(folder / "model");
  EXPECT_TRUE(loaded.model.tag_heads().there());
  EXPECT_EQ(loaded.model.parameter_count(), model.parameter_count());
  const at::Tensor windows = rows_of({{1, 2, 3, 0, 1}});
  const NamedTensors named{{kSyntaxTags, at::ones({1, 5, 2}, at::kLong)},
                           {kSyntaxSentences, at::zeros({1, 5}, at::kLong)}};
  EXPECT_TRUE(at::equal(loaded.model.joint_losses(windows, named).tags, model.joint_losses(windows, named).tags));
  // A model that comes from one without syntax has none.
  ModelConfig plain = tiny("alibi");
  plain.train_length = 8;
  const Converted more = convert_model(Decoder(plain, 1), "sipe(alibi, mode=oracle)", 0);
  EXPECT_FALSE(more.model.tag_heads().there());
  EXPECT_TRUE(convert_model(model, "sipe(alibi, mode=oracle)", 0).model.tag_heads().there());
  // Where the configuration demands them, weights without them are damaged.
  config.tag_heads = true;
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : model.parameters())
    if (parameter.name != "head.nu.weight") weights[parameter.name] = parameter.tensor;
  EXPECT_THROW(Decoder(config, weights, "a file"), Error);
}

TEST(TagHeads, TheKeyOfTheModelFile) {
  EXPECT_FALSE(model_from_json(parse_json("{}", "test"), "test").tag_heads);
  EXPECT_FALSE(model_to_json(ModelConfig()).contains("tag_heads"));
  for (const bool value : {false, true}) {
    ModelConfig config = tiny("alibi");
    config.tag_heads = value;
    const ModelConfig back = model_from_json(model_to_json(config), "test");
    ASSERT_TRUE(back.tag_heads);
    EXPECT_EQ(*back.tag_heads, value);
  }
  EXPECT_THROW(model_from_json(parse_json(R"({"tag_heads": "yes"})", "test"), "test"), UsageError);
}

}  // namespace
}  // namespace torsor
