// LoRA: nothing at the start, the stated product afterwards, and the same function when merged.
#include "torsor/model/lora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/base/test_folder.h"
#include "tests/model/tokens.h"
#include "torsor/model/attention_layer.h"
#include "torsor/model/convert.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;

ModelConfig small_config() {
  ModelConfig config;
  config.width = 24;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.vocabulary_size = 50;
  config.train_length = 16;
  config.encoding = "rope";
  config.complete();
  return config;
}

std::vector<LayerLowRank> terms_of(const ModelConfig& config, const LoraOptions& options, double b_deviation) {
  std::vector<LayerLowRank> terms(static_cast<std::size_t>(config.layers));
  at::manual_seed(5);
  for (const LoraPlace& place : lora_places(config, options)) {
    LowRank term = initial_low_rank(place, options, 3);
    term.b += at::randn_like(term.b) * b_deviation;
    low_rank_of(terms[static_cast<std::size_t>(place.layer)], place.module) = term;
  }
  return terms;
}

at::Tensor logits_of(const Decoder& model) { return model.logits(model.hidden(batch_of(random_tokens(2, 16)))); }

TEST(Lora, AddsTheStatedProduct) {
  const at::Tensor x = at::tensor({1.0F, 2.0F}).view({1, 1, 2});
  const at::Tensor weight = at::tensor({1.0F, 0.0F, 0.0F, 1.0F, 1.0F, 1.0F}).view({3, 2});
  LowRank term;
  EXPECT_TRUE(
      at::equal(with_low_rank(project(x, weight, at::kFloat), x, term, at::kFloat), project(x, weight, at::kFloat)));
  term.a = at::tensor({3.0F, -1.0F}).view({1, 2});
  term.b = at::tensor({1.0F, 0.0F, 4.0F}).view({3, 1});
  term.scale = 0.5;
  // x A^T = 1; x W^T = (1, 2, 3); 0.5 * (1, 0, 4) is added.
  EXPECT_TRUE(at::equal(with_low_rank(project(x, weight, at::kFloat), x, term, at::kFloat).flatten(),
                        at::tensor({1.5F, 2.0F, 5.0F})));
  // W + 0.5 * B A
  EXPECT_TRUE(at::equal(merged(weight, term).flatten(), at::tensor({2.5F, -0.5F, 0.0F, 1.0F, 7.0F, -1.0F})));
}

TEST(Lora, IsNothingAtTheStartAndTheSameFunctionWhenMerged) {
  const ModelConfig config = small_config();
  for (const std::vector<std::string>& modules : {std::vector<std::string>{"q", "k", "v", "o"},
                                                  std::vector<std::string>{"v"}, std::vector<std::string>{"o", "q"}}) {
    const LoraOptions options{4, 16, modules};
    Decoder model(config, 1);
    const at::Tensor base = logits_of(model);
    model.attach(terms_of(config, options, 0));
    EXPECT_TRUE(at::equal(logits_of(model), base));

    const std::vector<LayerLowRank> terms = terms_of(config, options, 0.1);
    model.attach(terms);
    const at::Tensor beside = logits_of(model);
    EXPECT_GT(largest_difference(beside, base), 1e-2);
    std::map<std::string, at::Tensor> weights;
    for (const ModelParameter& parameter : model.parameters()) weights[parameter.name] = parameter.tensor;
    for (const LoraPlace& place : lora_places(config, options)) {
      LayerLowRank layer = terms[static_cast<std::size_t>(place.layer)];
      weights[place.weight_name()] = merged(weights.at(place.weight_name()), low_rank_of(layer, place.module));
    }
    const at::Tensor inside = logits_of(Decoder(config, weights, "test"));
    // Float32 sums in another order: what conversions allow for rounding.
    EXPECT_LT(largest_difference(beside, inside), logits_rounding(config) * beside.abs().max().item<double>());
  }
}

TEST(Lora, PlacesHaveTheProjectionsShapes) {
  const ModelConfig config = small_config();
  const auto places = lora_places(config, {8, 16, {"o", "k"}});
  ASSERT_EQ(places.size(), 4u);
  EXPECT_EQ(places[0].a_name(), "model.layers.0.self_attn.k_proj.lora_A.weight");
  EXPECT_EQ(places[0].inputs, 24);
  EXPECT_EQ(places[0].outputs, 16);
  EXPECT_EQ(places[3].b_name(), "model.layers.1.self_attn.o_proj.lora_B.weight");
  EXPECT_EQ(places[3].inputs, 32);
  EXPECT_EQ(places[3].outputs, 24);
  const Decoder model(config, 0);
  for (const LoraPlace& place : lora_places(config, {}))
    for (const ModelParameter& parameter : model.parameters())
      if (parameter.name == place.weight_name()) {
        EXPECT_EQ(parameter.tensor.size(0), place.outputs) << place.projection;
        EXPECT_EQ(parameter.tensor.size(1), place.inputs) << place.projection;
      }
}

TEST(Lora, StartsNormalAndZero) {
  LoraPlace place;
  place.projection = "p";
  place.inputs = 400;
  place.outputs = 100;
  const LowRank term = initial_low_rank(place, {50, 25, {"q"}}, 1);
  EXPECT_EQ(term.scale, 0.5);
  EXPECT_EQ(term.b.abs().max().item<float>(), 0);
  // 20000 draws: the deviation of their mean is 0.05/141, of their deviation 0.05/200; five of each.
  EXPECT_NEAR(term.a.mean().item<double>(), 0, 5 * 0.05 / 141);
  EXPECT_NEAR(term.a.std().item<double>(), 0.05, 5 * 0.05 / 200);
  EXPECT_TRUE(at::equal(initial_low_rank(place, {50, 25, {"q"}}, 1).a, term.a));
  EXPECT_FALSE(at::equal(initial_low_rank(place, {50, 25, {"q"}}, 2).a, term.a));
}

TEST(Lora, RefusesWhatHasNoMeaning) {
  const auto message = [](const LoraOptions& options) { return message_of<UsageError>([&] { check_lora(options); }); };
  EXPECT_TRUE(contains(message({0, 16, {"q"}}), "rank must be from 1 to 65536, found 0"));
  EXPECT_TRUE(contains(message({1 << 20, 16, {"q"}}), "rank"));
  EXPECT_TRUE(contains(message({8, 0, {"q"}}), "alpha must be a finite number above 0, found 0"));
  EXPECT_TRUE(contains(message({8, std::numeric_limits<double>::infinity(), {"q"}}), "alpha"));
  EXPECT_TRUE(contains(message({8, 16, {}}), "at least one of q, k, v, o"));
  EXPECT_TRUE(contains(message({8, 16, {"q", "up"}}), "found 'up'"));
  EXPECT_TRUE(contains(message({8, 16, {"q", "v", "q"}}), "'q' twice"));
  Decoder model(small_config(), 0);
  EXPECT_TRUE(contains(message_of<Error>([&] { model.attach({}); }), "0 layers, the model has 2"));
}

}  // namespace
}  // namespace torsor
