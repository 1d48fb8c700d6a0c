// Every length scores the same targets once.
#include "torsor/lab/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"

namespace torsor {
namespace {

using testing::edited_model;
using testing::tiny_config;
using testing::tiny_text;

const Corpus& corpus() {
  static const Corpus one = text_corpus(tiny_text(1500), "text");
  return one;
}

EvaluationPlan plan_for(const std::vector<std::size_t>& lengths) { return evaluation_windows(corpus(), lengths); }

/// The loss of every target of every window of `length`, by one call a window.
at::Tensor direct_losses(const Decoder& model, const EvaluationPlan& plan, std::int64_t length) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> rows;
  const std::string text = tiny_text(1500);
  for (const Window& window : plan.windows(static_cast<std::size_t>(length))) {
    at::Tensor tokens = at::empty({1, length + 1}, at::kLong);
    for (std::int64_t i = 0; i <= length; ++i)
      tokens[0][i] = static_cast<int>(text[window.begin + static_cast<std::size_t>(i)]);
    rows.push_back(model.token_losses(tokens).to(at::kDouble));
  }
  return at::cat(rows);
}

TEST(LabEvaluate, AModelThatIgnoresContextLosesTheSameAtEveryLength) {
  // Without what attention brings, a prediction depends on the token before it alone.
  const Decoder model = edited_model(tiny_config("none"), 3, [](const std::string& name, at::Tensor& tensor) {
    if (name.find("o_proj") != std::string::npos) tensor.zero_();
    if (name == "model.embed_tokens.weight") tensor *= 50;  // so that targets differ in their losses
  });
  const EvaluationPlan plan = plan_for({1, 4, 16, 64, 256});
  ASSERT_EQ(plan.target_count() % 256, 0u);
  const LmEvaluation longest = evaluate_lm(model, corpus(), plan, 256, at::kFloat);
  EXPECT_GT(longest.loss, 1);
  for (const std::int64_t length : {1, 4, 16, 64}) {
    const LmEvaluation one = evaluate_lm(model, corpus(), plan, length, at::kFloat);
    EXPECT_NEAR(one.loss, longest.loss, 1e-6) << length;
    EXPECT_EQ(one.windows.size() * static_cast<std::size_t>(length), plan.target_count()) << length;
  }
  // With attention it is another matter: the context counts.
  const Decoder attentive = edited_model(tiny_config("none"), 3, [](const std::string& name, at::Tensor& tensor) {
    if (name == "model.embed_tokens.weight") tensor *= 50;
  });
  EXPECT_GT(std::abs(evaluate_lm(attentive, corpus(), plan, 4, at::kFloat).loss -
                     evaluate_lm(attentive, corpus(), plan, 256, at::kFloat).loss),
            1e-4);
}

TEST(LabEvaluate, AUniformModelLosesLn256) {
  const Decoder model = edited_model(tiny_config("rope"), 3, [](const std::string& name, at::Tensor& tensor) {
    if (name == "model.embed_tokens.weight") tensor.zero_();
  });
  const EvaluationPlan plan = plan_for({16, 64});
  for (const std::int64_t length : {16, 64}) {
    const LmEvaluation one = evaluate_lm(model, corpus(), plan, length, at::kFloat);
    EXPECT_NEAR(one.loss, std::log(256.0), 1e-6);
    const Json json = evaluation_to_json(one);
    EXPECT_EQ(json.at("status"), "ok");
    EXPECT_NEAR(json.at("bits_per_byte").get<double>(), 8, 1e-5);
    EXPECT_NEAR(json.at("perplexity").get<double>(), 256, 1e-3);
    Corpus ids = corpus();
    ids.reader = nullptr;  // numbers that are no text
    EXPECT_TRUE(evaluation_to_json(evaluate_lm(model, ids, plan, length, at::kFloat)).at("bits_per_byte").is_null());
  }
}

TEST(LabEvaluate, WindowsAndPositionsAreMeansOfTheSameLosses) {
  const Decoder model(tiny_config("alibi"), 5);
  const EvaluationPlan plan = plan_for({8, 40, 200});
  for (const std::int64_t length : {8, 40, 200}) {
    const LmEvaluation one = evaluate_lm(model, corpus(), plan, length, at::kFloat);
    const at::Tensor losses = direct_losses(model, plan, length);
    ASSERT_EQ(one.windows.size(), static_cast<std::size_t>(losses.size(0)));
    double sum = 0;
    for (std::size_t n = 0; n < one.windows.size(); ++n) {
      EXPECT_NEAR(one.windows[n], losses[static_cast<std::int64_t>(n)].mean().item<double>(), 1e-5);
      sum += one.windows[n];
    }
    EXPECT_NEAR(sum / static_cast<double>(one.windows.size()), one.loss, 1e-12);

    ASSERT_EQ(one.positions.size(), static_cast<std::size_t>(std::min<std::int64_t>(32, length)));
    std::int64_t expected_from = 0;
    double weighted = 0;
    for (const LmEvaluation::Bucket& bucket : one.positions) {
      EXPECT_EQ(bucket.from, expected_from);
      ASSERT_GT(bucket.to, bucket.from);
      expected_from = bucket.to;
      EXPECT_NEAR(bucket.loss, losses.narrow(1, bucket.from, bucket.to - bucket.from).mean().item<double>(), 1e-5);
      weighted += bucket.loss * static_cast<double>(bucket.to - bucket.from);
    }
    EXPECT_EQ(expected_from, length);
    EXPECT_NEAR(weighted / static_cast<double>(length), one.loss, 1e-12);
  }
}

TEST(LabEvaluate, ALearnedTableRefusesPastItsLastRow) {
  const EvaluationPlan plan = plan_for({16, 32});
  const Decoder learned(tiny_config("learned", 16), 1);
  const LmEvaluation inside = evaluate_lm(learned, corpus(), plan, 16, at::kFloat);
  EXPECT_FALSE(inside.refused);
  EXPECT_TRUE(std::isfinite(inside.loss));
  const LmEvaluation beyond = evaluate_lm(learned, corpus(), plan, 32, at::kFloat);
  EXPECT_TRUE(beyond.refused);
  EXPECT_NE(beyond.reason.find("16"), std::string::npos) << beyond.reason;
  EXPECT_TRUE(beyond.windows.empty());
  const Json json = evaluation_to_json(beyond);
  EXPECT_EQ(json.at("status"), "refused");
  EXPECT_EQ(json.at("reason"), beyond.reason);
  for (const char* key : {"loss", "perplexity", "bits_per_byte"}) EXPECT_TRUE(json.at(key).is_null()) << key;
  for (const char* encoding : {"none", "rope", "alibi", "t5", "fire", "sinusoidal"})
    EXPECT_FALSE(evaluate_lm(Decoder(tiny_config(encoding, 16), 1), corpus(), plan, 32, at::kFloat).refused)
        << encoding;
}

TEST(LabEvaluate, APerplexityBeyondDoubleIsNullWithAReason) {
  LmEvaluation evaluation;
  evaluation.length = 4;
  evaluation.loss = 1000;
  evaluation.windows = {1000};
  const Json json = evaluation_to_json(evaluation);
  EXPECT_EQ(json.at("status"), "ok");
  EXPECT_TRUE(json.at("perplexity").is_null());
  EXPECT_TRUE(json.at("loss").is_null());
  EXPECT_FALSE(json.at("reason").get<std::string>().empty());
}

TEST(LabEvaluate, Bf16IsNearFloat32AndNotTheSame) {
  const Decoder model = edited_model(tiny_config("rope"), 3, [](const std::string& name, at::Tensor& tensor) {
    if (name == "model.embed_tokens.weight") tensor *= 20;
  });
  const EvaluationPlan plan = plan_for({32});
  const double full = evaluate_lm(model, corpus(), plan, 32, at::kFloat).loss;
  const double half = evaluate_lm(model, corpus(), plan, 32, at::kBFloat16).loss;
  EXPECT_NE(full, half);
  EXPECT_NEAR(full, half, 0.02);
}

TEST(LabEvaluate, StopsWhenAsked) {
  const Decoder model(tiny_config(), 1);
  int asked = 0;
  EXPECT_THROW(evaluate_lm(model, corpus(), plan_for({16}), 16, at::kFloat, [&] { return ++asked == 1; }), Interrupted);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace torsor
