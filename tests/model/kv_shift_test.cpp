// KV-shift in the model: steps, chunks, padding, packing and rolling back equal the full pass; traps of the released
// code.
#include "torsor/model/kv_shift.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/tokens.h"
#include "torsor/model/decoder.h"
#include "torsor/model/generate.h"

namespace torsor {
namespace {

ModelConfig small(const std::string& encoding) {
  ModelConfig config;
  config.width = 32;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.vocabulary_size = 50;
  config.train_length = 32;
  config.encoding = encoding;
  config.kv_shift = true;
  return config;
}

const std::vector<std::string>& expressions() {
  static const std::vector<std::string> all = {
      "none", "rope", "alibi", "fox", "grape-a(gate=qk)", "grape-ap", "rope + grape-ap(tie=k)", "layers(rope, fox)"};
  return all;
}

TEST(KvShift, StepsAndChunksEqualTheFullPass) {
  at::NoGradGuard no_grad;
  for (const std::string& encoding : expressions())
    for (const QkNorm norm : {QkNorm::None, QkNorm::Before, QkNorm::After}) {
      ModelConfig config = small(encoding);
      config.qk_norm = norm;
      const Decoder model(config, 3);
      const at::Tensor tokens = random_tokens(2, 19), full = model.hidden(batch_of(tokens));
      for (const std::int64_t chunk : {1, 7}) {
        KvCache cache = model.make_cache(2, 19);
        for (std::int64_t t = 0; t < 19; t += chunk) {
          const std::int64_t count = std::min<std::int64_t>(chunk, 19 - t);
          EXPECT_LT(
              largest_difference(model.hidden(batch_of(tokens.narrow(1, t, count)), &cache), full.narrow(1, t, count)),
              2e-5)
              << encoding << " chunk " << chunk << " at " << t;
        }
      }
    }
}

TEST(KvShift, PaddingIsNotThere) {
  at::NoGradGuard no_grad;
  for (const std::string& encoding : expressions()) {
    SCOPED_TRACE(encoding);
    const Decoder model(small(encoding), 3);
    const at::Tensor tokens = random_tokens(1, 9);
    // Before the text, and inside it.
    TokenBatch padded = batch_of(tokens);
    padded.documents = at::tensor({-1, -1, 0, 0, 0, -1, 0, -1, 0}, at::kLong).view({1, 9});
    padded.positions = (padded.documents.ge(0).cumsum(1) - 1).clamp_min(0).to(at::kDouble).unsqueeze(-1);
    const at::Tensor real = padded.documents[0].ge(0).nonzero().flatten();
    const at::Tensor alone = model.hidden(batch_of(tokens.index_select(1, real)));
    EXPECT_LT(largest_difference(model.hidden(padded).index_select(1, real), alone), 2e-5);
    for (const std::int64_t chunk : {1, 2, 4}) {
      KvCache cache = model.make_cache(1, 9);
      std::vector<at::Tensor> parts;
      for (std::int64_t t = 0; t < 9; t += chunk) {
        const std::int64_t count = std::min<std::int64_t>(chunk, 9 - t);
        TokenBatch part;
        part.tokens = padded.tokens.narrow(1, t, count);
        part.documents = padded.documents.narrow(1, t, count);
        part.positions = padded.positions.narrow(1, t, count);
        parts.push_back(model.hidden(part, &cache));
      }
      EXPECT_LT(largest_difference(at::cat(parts, 1).index_select(1, real), alone), 2e-5) << chunk;
    }
  }
}

TEST(KvShift, ADocumentDoesNotReachIntoTheNext) {
  at::NoGradGuard no_grad;
  for (const std::string& encoding : expressions()) {
    SCOPED_TRACE(encoding);
    const Decoder model(small(encoding), 3);
    const at::Tensor document = random_tokens(1, 8), alone = model.hidden(batch_of(document));
    TokenBatch packed = batch_of(at::cat({document, document}, 1));
    packed.documents = at::arange(16, at::kLong).div(8, "floor").view({1, 16});
    packed.positions = at::arange(16, at::kDouble).remainder(8).view({1, 16, 1});
    const at::Tensor states = model.hidden(packed);
    EXPECT_LT(largest_difference(states.narrow(1, 0, 8), alone), 2e-5);
    EXPECT_LT(largest_difference(states.narrow(1, 8, 8), alone), 2e-5);
    KvCache cache = model.make_cache(1, 16);
    for (std::int64_t t = 0; t < 16; t += 3) {
      const std::int64_t count = std::min<std::int64_t>(3, 16 - t);
      TokenBatch part;
      part.tokens = packed.tokens.narrow(1, t, count);
      part.documents = packed.documents.narrow(1, t, count);
      part.positions = packed.positions.narrow(1, t, count);
      EXPECT_LT(largest_difference(model.hidden(part, &cache), states.narrow(1, t, count)), 2e-5) << t;
    }
  }
}

TEST(KvShift, RollingBackIsExactOrRefused) {
  at::NoGradGuard no_grad;
  for (const std::string& encoding : expressions()) {
    SCOPED_TRACE(encoding);
    ModelConfig config = small(encoding);
    config.train_length = 128;
    const Decoder model(config, 3);
    const at::Tensor tokens = random_tokens(2, 90), full = model.hidden(batch_of(tokens));
    const at::Tensor other = (tokens + 1).remainder(50);
    KvCache cache = model.make_cache(2, 120);
    model.hidden(batch_of(tokens.narrow(1, 0, 50)), &cache);
    model.hidden(batch_of(other.narrow(1, 50, 30)), &cache);
    cache.truncate(50);
    EXPECT_LT(largest_difference(model.hidden(batch_of(tokens.narrow(1, 50, 2)), &cache), full.narrow(1, 50, 2)), 2e-5);
    cache.truncate({51, 50});  // rows of different lengths
    TokenBatch one;
    one.tokens = at::stack({tokens[0][51], tokens[1][50]}).view({2, 1});
    const at::Tensor next = model.hidden(one, &cache);
    EXPECT_LT(largest_difference(next[0][0], full[0][51]), 2e-5);
    EXPECT_LT(largest_difference(next[1][0], full[1][50]), 2e-5);
    // Further back than what is remembered: refused, and nothing has changed.
    model.hidden(batch_of(other.narrow(1, 52, 38)), &cache);
    EXPECT_THROW(cache.truncate(10), Refusal);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{90, 89}));
    EXPECT_EQ(cache.lengths(1), (std::vector<std::int64_t>{90, 89}));
    cache.truncate(std::int64_t{0});
    EXPECT_LT(largest_difference(model.hidden(batch_of(tokens.narrow(1, 0, 5)), &cache), full.narrow(1, 0, 5)), 2e-5);
  }
}

TEST(KvShift, RowsOfDifferentLengthsGenerateAsAlone) {
  at::NoGradGuard no_grad;
  for (const char* encoding : {"rope", "fox", "grape-ap"}) {
    const Decoder model(small(encoding), 3);
    GenerateOptions options;
    options.max_tokens = 6;
    const std::vector<std::vector<std::int64_t>> prompts = {{3, 1, 4, 1, 5}, {9, 2}};
    const Generated together = generate(model, prompts, options);
    for (std::size_t row = 0; row < prompts.size(); ++row)
      EXPECT_EQ(together.tokens[row], generate(model, {prompts[row]}, options).tokens[0]) << encoding;
  }
}

// The released code ignores the state in chunks of several tokens, and answers y_0 where a single token has none.
TEST(KvShift, TheFirstTokenIsMixedWithZeroHoweverItComes) {
  const at::Tensor k = at::randn({1, 2, 1, 4}, at::kDouble), v = at::randn({1, 2, 1, 4}, at::kDouble);
  const at::Tensor x = at::randn({1, 1, 6}, at::kDouble), weight = at::randn({2, 6}, at::kDouble);
  const Shifted alone = kv_shift(k, v, x, weight, weight, {}, {}, {});
  const at::Tensor gate = at::sigmoid(weight.matmul(x[0][0])).view({1, 2, 1, 1});
  EXPECT_LT(largest_difference(alone.k, (1 - gate) * k), 1e-15);
  EXPECT_LT(largest_difference(alone.v, (1 - gate) * v), 1e-15);
  const at::Tensor k2 = at::randn({1, 2, 2, 4}, at::kDouble), x2 = at::randn({1, 2, 6}, at::kDouble);
  const Shifted chunk = kv_shift(k2, k2, x2, weight, weight, {}, {}, alone.newest);
  const at::Tensor gates = at::sigmoid(x2.matmul(weight.t())).transpose(1, 2).unsqueeze(3);
  const at::Tensor before = at::cat({k, k2.narrow(2, 0, 1)}, 2);  // unmixed
  EXPECT_LT(largest_difference(chunk.k, gates * before + (1 - gates) * k2), 1e-15);
}

TEST(KvShift, IsTrainedSavedAndExemptFromDecay) {
  const Decoder model(small("rope"), 1);
  int gates = 0;
  for (const ModelParameter& parameter : model.parameters())
    if (parameter.name.find("_shift.weight") != std::string::npos) {
      ++gates;
      EXPECT_EQ(parameter.tensor.sizes(), (std::vector<std::int64_t>{2, 32}));
      EXPECT_FALSE(parameter.decay);
      EXPECT_NEAR(parameter.tensor.std().item<double>() * std::sqrt(32.0), 0.5, 0.15);
    }
  EXPECT_EQ(gates, 4);
  ModelConfig config = small("rope");
  config.complete();
  EXPECT_TRUE(model_from_json(model_to_json(config), "test").kv_shift);
  EXPECT_FALSE(model_from_json(parse_json("{}", "test"), "test").kv_shift);
  config.kv_shift = false;
  EXPECT_EQ(model.parameter_count() - Decoder(config, 1).parameter_count(), 2 * 2 * 2 * 32);
}

TEST(KvShift, GradientsReachTheGates) {
  Decoder model(small("rope"), 1);
  model.require_gradients();
  model.token_losses(random_tokens(2, 9)).sum().backward();
  for (const ModelParameter& parameter : model.parameters())
    if (parameter.name.find("_shift.weight") != std::string::npos) {
      ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
      EXPECT_GT(parameter.tensor.grad().abs().max().item<double>(), 0) << parameter.name;
    }
}

}  // namespace
}  // namespace torsor
