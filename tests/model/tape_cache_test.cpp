// What a model's cache holds under tape: the sizes of tape.md 3.5, and a sliding window that forgets and stays exact.
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include "torsor/model/decoder.h"

namespace torsor {
namespace {

ModelConfig config(const std::string& encoding, std::int64_t kv_heads) {
  ModelConfig config;
  config.width = 32;
  config.layers = 4;
  config.heads = 4;
  config.kv_heads = kv_heads;
  config.vocabulary_size = 64;
  config.train_length = 16;
  config.encoding = encoding;
  config.complete();
  return config;
}

/// Bytes a token, all layers together, positions left out.
std::int64_t bytes_a_token(const std::string& encoding, std::int64_t kv_heads, at::ScalarType dtype) {
  at::NoGradGuard no_grad;
  const ModelConfig model_config = config(encoding, kv_heads);
  const Decoder model(model_config, 1);
  KvCache cache = model.make_cache(1, 16, dtype);
  TokenBatch batch;
  batch.tokens = at::arange(16, at::kLong).unsqueeze(0);
  model.hidden(batch, &cache);
  constexpr std::int64_t kPosition = 8;
  EXPECT_EQ(cache.bytes() % 16, 0);
  return cache.bytes() / 16 - model_config.layers * kPosition;
}

TEST(TapeCache, HoldsTwoAndAHiddenStreamLessTwoLayers) {
  // 2 L D for keys and values and (L - 2) D for the states, D = heads * head_dim; states are float32 always.
  constexpr std::int64_t kLayers = 4, kWidth = 32, kHalf = 16;
  for (const auto& [dtype, number] : {std::pair{at::kFloat, 4}, std::pair{at::kBFloat16, 2}}) {
    EXPECT_EQ(bytes_a_token("rope", 4, dtype), 2 * kLayers * kWidth * number);
    EXPECT_EQ(bytes_a_token("tape(rope)", 4, dtype), 2 * kLayers * kWidth * number + (kLayers - 2) * kWidth * 4);
    // Two key heads. A state a query head turns keys when they are read, so the last layer needs its own too; a state
    // a key head turns them when they arrive.
    EXPECT_EQ(bytes_a_token("tape(rope)", 2, dtype), 2 * kLayers * kHalf * number + (kLayers - 1) * kWidth * 4);
    EXPECT_EQ(bytes_a_token("tape(rope, gqa=shared)", 2, dtype),
              2 * kLayers * kHalf * number + (kLayers - 2) * kHalf * 4);
    // Where no layer changes a state, none is held.
    EXPECT_EQ(bytes_a_token("tape(rope, from_layer=3)", 4, dtype), bytes_a_token("rope", 4, dtype));
  }
}

TEST(TapeCache, AWindowForgetsAndStaysExact) {
  at::NoGradGuard no_grad;
  for (const char* encoding : {"tape(rope)", "tape(rope, post=headmix)", "rope", "fox", "layers(tape(rope), rope)"}) {
    SCOPED_TRACE(encoding);
    ModelConfig windowed = config(encoding, 2);
    windowed.window = {5};
    Decoder model(windowed, 3);
    for (const ModelParameter& parameter : model.parameters())  // states that move
      if (is_positional(parameter.name)) parameter.tensor.normal_(0, 0.3);
    model.to(at::kDouble);
    constexpr std::int64_t kTokens = 300;
    TokenBatch all;
    all.tokens = at::arange(kTokens, at::kLong).mul(37).remainder(64).unsqueeze(0);
    const at::Tensor full = model.hidden(all, nullptr, at::kDouble);
    KvCache cache = model.make_cache(1, 8, at::kDouble);
    std::int64_t largest = 0;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      TokenBatch one;
      one.tokens = all.tokens.narrow(1, token, 1);
      const at::Tensor step = model.hidden(one, &cache, at::kDouble);
      ASSERT_LE((step - full.narrow(1, token, 1)).abs().max().item<double>(), 1e-11) << "token " << token;
      largest = std::max(largest, cache.held()[0]);
    }
    EXPECT_EQ(cache.lengths()[0], kTokens);
    EXPECT_LE(largest, 4 + 64 + 16);  // the window, what can be taken back, and the slack
  }
}

}  // namespace
}  // namespace torsor
