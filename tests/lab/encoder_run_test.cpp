// Masked-language training: what is masked, what is withheld, that it learns, resumes and repeats.
#include "torsor/lab/encoder_run.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "torsor/encoding/syntax/sipe.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::tiny_text;

EncoderPlan tiny_encoder(const std::string& encoding = "rope") {
  EncoderPlan plan;
  plan.encoder.model.width = 32;
  plan.encoder.model.layers = 1;
  plan.encoder.model.heads = 2;
  plan.run.encoding = encoding;
  plan.run.length = 18;
  plan.run.batch = 4;
  plan.run.steps = 6;
  plan.run.warmup_steps = 1;
  plan.run.learning_rate = 1e-2;
  return plan;
}

LmData tiny_data() {
  LmData data;
  data.train = text_corpus(tiny_text(800), "train");
  data.valid = text_corpus(tiny_text(200, 2), "valid");
  data.sha256 = "d";
  return data;
}

// Tags, sentences and links that depend on places alone.
class PlaceFeed : public SyntaxFeed {
 public:
  std::string description() const override { return "a fake parser"; }
  std::string sha256() const override { return "p"; }
  std::shared_ptr<const SyntaxFeed> under(const std::string& control) const override {
    throw UsageError("no control " + control);
  }
  NamedTensors inputs(const std::vector<FeedRow>& rows, std::int64_t tokens, const Encoding& encoding) const override {
    asked.insert(asked.end(), rows.begin(), rows.end());
    const auto count = static_cast<std::int64_t>(rows.size());
    NamedTensors named;
    for (const std::string& name : encoding.inputs()) {
      const at::Tensor place = at::arange(tokens, at::kLong).view({1, tokens}).expand({count, tokens});
      if (name == kSyntaxTags)
        named[name] = at::stack({1 + place % 2, 1 + place % 5}, -1).contiguous();
      else if (name == kSyntaxSentences)
        named[name] = at::zeros({count, tokens}, at::kLong);
    }
    return named;
  }
  mutable std::vector<FeedRow> asked;
};

class LabEncoder : public ::testing::Test {
 protected:
  LabEncoder() { at::set_num_threads(1); }
};

TEST_F(LabEncoder, RowsAreWindowsBetweenSpecialTokens) {
  const std::string text = tiny_text(400);
  const Corpus corpus = text_corpus(text, "text");
  const auto encoding = make_encoding("rope", {.heads = 1, .head_dim = 4});
  const std::vector<Window> windows = {{0, 0}, {0, 100}};
  const auto make = [&](std::uint64_t seed, std::uint64_t index) {
    return masked_batch(corpus, windows, 22, EncoderPlan::default_masking(), seed, index, *encoding, nullptr);
  };
  const MaskedBatch batch = make(1, 2);
  ASSERT_EQ(batch.inputs.tokens.sizes(), (std::vector<std::int64_t>{2, 22}));
  std::int64_t masked = 0;
  for (std::int64_t row = 0; row < 2; ++row) {
    EXPECT_EQ(batch.inputs.tokens[row][0].item<std::int64_t>(), EncoderTokens::kFirst);
    EXPECT_EQ(batch.inputs.tokens[row][21].item<std::int64_t>(), EncoderTokens::kSeparator);
    EXPECT_EQ(batch.targets[row][0].item<std::int64_t>(), -100);
    EXPECT_EQ(batch.targets[row][21].item<std::int64_t>(), -100);
    for (std::int64_t t = 1; t < 21; ++t) {
      const auto byte = static_cast<std::int64_t>(
          text[windows[static_cast<std::size_t>(row)].begin + static_cast<std::size_t>(t) - 1]);
      const auto target = batch.targets[row][t].item<std::int64_t>();
      EXPECT_TRUE(target == -100 || target == byte);
      EXPECT_TRUE(target != -100 || batch.inputs.tokens[row][t].item<std::int64_t>() == byte);
      masked += target != -100 ? 1 : 0;
    }
  }
  EXPECT_GT(masked, 1);
  EXPECT_TRUE(at::equal(make(1, 2).inputs.tokens, batch.inputs.tokens));
  EXPECT_FALSE(at::equal(make(1, 3).targets, batch.targets));
  EXPECT_FALSE(at::equal(make(2, 2).targets, batch.targets));
  EXPECT_THROW(masked_batch(corpus, windows, 2, EncoderPlan::default_masking(), 0, 0, *encoding, nullptr), UsageError);
}

TEST_F(LabEncoder, WhatIsSaidOfMaskedWordsIsWithheld) {
  NamedTensors named;
  named[kSyntaxTags] = at::ones({1, 4, 2}, at::kLong);
  named[kSyntaxLabels] = at::full({1, 4}, 9, at::kLong);
  named[kSyntaxVectors] = at::ones({1, 4, 3});
  named[kSyntaxSentences] = at::zeros({1, 4}, at::kLong);
  // Arcs: at token 1 (1, 0); at token 2 (2, 1) and none; at token 3 (3, 0) and (2, 3).
  named[kSyntaxLinks] =
      at::tensor(std::vector<std::int64_t>{-1, -1, -1, -1, 0, 1, -1, -1, 0, 1, -1, -1, 0, 3, 1, 0}).view({1, 4, 2, 2});
  const at::Tensor chosen = at::tensor(std::vector<std::int64_t>{0, 1, 0, 0}).view({1, 4}).to(at::kBool);
  const NamedTensors kept = withheld(named, chosen);
  EXPECT_TRUE(at::equal(kept.at(kSyntaxTags).sum(-1), at::tensor(std::vector<std::int64_t>{2, 0, 2, 2}).view({1, 4})));
  EXPECT_TRUE(at::equal(kept.at(kSyntaxLabels), at::tensor(std::vector<std::int64_t>{9, 0, 9, 9}).view({1, 4})));
  EXPECT_EQ(kept.at(kSyntaxVectors)[0][1].abs().sum().item<double>(), 0);
  EXPECT_EQ(kept.at(kSyntaxVectors)[0][2].sum().item<double>(), 3);
  EXPECT_TRUE(at::equal(kept.at(kSyntaxSentences), named.at(kSyntaxSentences)));
  EXPECT_TRUE(at::equal(kept.at(kSyntaxLinks), at::tensor(std::vector<std::int64_t>{-1, -1, -1, -1, -1, -1, -1, -1, -1,
                                                                                    -1, -1, -1, 0, 3, 1, 0})
                                                   .view({1, 4, 2, 2})));
  // What was given stays as it was.
  EXPECT_EQ(named.at(kSyntaxTags).sum().item<std::int64_t>(), 8);
}

TEST_F(LabEncoder, TagsOfMaskedWordsAreRecoveredAndNotRead) {
  at::NoGradGuard no_grad;
  EncoderPlan plan = tiny_encoder("sipe(learned, inject=input, mode=oracle)");
  plan.encoder.tag_heads = true;
  const Encoder encoder = make_encoder(plan);
  const PlaceFeed feed;
  const Corpus corpus = text_corpus(tiny_text(400), "text");
  const MaskedBatch batch = masked_batch(corpus, {{0, 7}}, 18, plan.masking, 1, 1, encoder.encoding(), &feed);
  ASSERT_EQ(feed.asked.size(), 1U);
  const FeedRow& row = feed.asked[0];
  EXPECT_EQ(row.place->first, 1U);
  EXPECT_EQ(row.place->count, 16U);
  EXPECT_EQ(row.place->window, (Window{0, 7}));
  EXPECT_EQ(row.tokens[0], (ByteRange{0, 0}));
  EXPECT_EQ(row.tokens[1], (ByteRange{0, 1}));
  ASSERT_TRUE(batch.tags.defined());
  const at::Tensor told = batch.tags.ne(-100).any(-1), chosen = batch.targets.ne(-100);
  EXPECT_TRUE(at::equal(told, chosen));
  EXPECT_EQ(batch.inputs.named.at(kSyntaxTags).masked_select(chosen.unsqueeze(-1)).abs().sum().item<std::int64_t>(), 0);
  const double all = masked_loss(encoder, batch, plan, false).item<double>();
  EncoderPlan tokens_only = plan;
  tokens_only.tau_weight = tokens_only.nu_weight = 0;
  const double tokens = masked_loss(encoder, batch, tokens_only, false).item<double>();
  // Untrained heads know nothing: ln 3 and ln 6 for the tags.
  EXPECT_NEAR(all - tokens, std::log(3.0) + std::log(6.0), 1.0);
  EXPECT_GT(all - tokens, 1);
}

TEST_F(LabEncoder, LearnsATinyTextAndRepeatsToTheBit) {
  testing::TestFolder folder;
  EncoderPlan plan = tiny_encoder();
  plan.run.steps = 1000;
  plan.run.learning_rate = 5e-3;
  plan.encoder.dropout = 0.05;
  LmData data = tiny_data();
  data.train = text_corpus("one two three four five six seven one two three four five six seven ", "train");
  RunControl control;
  control.folder = folder / "one";
  const EncoderResult first = train_encoder(plan, data, control);
  EXPECT_GT(first.train.losses.front(), 4);
  double last = 0;
  for (std::size_t n = 980; n < 1000; ++n) last += first.train.losses[n] / 20;
  // Words in a fixed order: the neighbours tell which one is missing. ln 260 = 5.6 is where it began.
  EXPECT_LT(last, 1.5);
  control.folder = folder / "two";
  EXPECT_EQ(train_encoder(plan, data, control).train.losses, first.train.losses);
  const LoadedEncoder loaded = load_encoder(folder / "one");
  const Json before = evaluate_masked(make_encoder(plan), data.train, plan, 0, nullptr, {});
  const Json after = evaluate_masked(loaded.encoder, data.train, plan, 0, nullptr, {});
  EXPECT_EQ(after.at("task"), "mlm");
  EXPECT_LT(after.at("loss").get<double>(), 0.5 * before.at("loss").get<double>());
  EXPECT_NEAR(after.at("perplexity").get<double>(), std::exp(after.at("loss").get<double>()), 1e-9);
  EXPECT_EQ(after.at("windows").size(), 4U);  // 68 bytes in windows of 16
  EXPECT_EQ(evaluate_masked(loaded.encoder, data.train, plan, 2, nullptr, {}).at("windows").size(), 2U);
}

TEST_F(LabEncoder, AStoppedRunEndsWithTheSameBits) {
  testing::TestFolder folder;
  const EncoderPlan plan = tiny_encoder("alibi");
  const LmData data = tiny_data();
  RunControl control;
  control.folder = folder / "whole";
  const EncoderResult whole = train_encoder(plan, data, control);
  std::atomic<bool> stop = false;
  testing::StepWatch watch([&](int seen) { stop = seen >= 3; });
  const Progress::Options progress = watch.options();
  control.folder = folder / "parts";
  control.progress = &progress;
  control.stop = &stop;
  EXPECT_THROW(train_encoder(plan, data, control), Interrupted);
  stop = false;
  control.progress = nullptr;
  control.resume = true;
  const EncoderResult parts = train_encoder(plan, data, control);
  EXPECT_GT(parts.train.resumed_from, 0);
  EXPECT_EQ(parts.train.losses, whole.train.losses);
  for (std::size_t p = 0; p < whole.encoder.parameters().size(); ++p)
    EXPECT_TRUE(at::equal(parts.encoder.parameters()[p].tensor, whole.encoder.parameters()[p].tensor));
}

TEST_F(LabEncoder, WhatDoesNotFitIsRefused) {
  testing::TestFolder folder;
  RunControl control;
  control.folder = folder / "run";
  LmData tokens = tiny_data();
  tokens.train.tokenizer = "tokens";
  EXPECT_THROW(train_encoder(tiny_encoder(), tokens, control), UsageError);
  EXPECT_TRUE(contains(
      message_of<UsageError>([&] { train_encoder(tiny_encoder("sipe(alibi, mode=oracle)"), tiny_data(), control); }),
      "no parses of the text were given"));
  EXPECT_THROW(make_encoder(tiny_encoder("tape(rope)")), UsageError);
}

}  // namespace
}  // namespace torsor
