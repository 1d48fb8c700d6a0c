// Matrices kept in half precision.
#include "torsor/model/project.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/base/test_folder.h"
#include "tests/model/foreign_weights.h"
#include "torsor/model/encoder_decoder.h"
#include "torsor/model/generate.h"

namespace torsor {
namespace {

using testing::contains;
using testing::largest_difference;
using testing::message_of;

TEST(Project, HalvesAreReadAsTheyAre) {
  const at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16})
    for (const std::int64_t vectors : {1, 3, 8, 9, 40}) {
      const at::Tensor x = at::randn({vectors, 70}), a = at::randn({33, 70}).to(type), b = at::randn({5, 70}).to(type);
      // Beside the sum in float64, in units of the sum of the products' absolute values.
      const auto error = [](const at::Tensor& found, const at::Tensor& v, const at::Tensor& matrix) {
        const at::Tensor left = v.to(at::kDouble), right = matrix.to(at::kDouble).t();
        const at::Tensor size = at::matmul(left.abs(), right.abs());
        return ((found.to(at::kDouble) - at::matmul(left, right)).abs() / size).max().item<double>();
      };
      const std::vector<at::Tensor> found = project_all(x, {a, b}, at::kFloat);
      EXPECT_LE(error(found[0], x, a), 10 * 0x1p-24) << vectors;
      EXPECT_LE(error(found[1], x, b), 10 * 0x1p-24) << vectors;
      EXPECT_EQ(found[0].scalar_type(), at::kFloat);
      EXPECT_EQ(found[0].sizes(), (std::vector<std::int64_t>{vectors, 33}));
      // Views, and one matrix alone.
      const at::Tensor wide = at::randn({vectors, 140}).slice(1, 0, 140, 2);
      EXPECT_LE(error(project(wide, a, at::kFloat), wide, a), 10 * 0x1p-24) << vectors;
    }
  const at::Tensor x = at::randn({2, 70});
  EXPECT_TRUE(contains(message_of<Error>([&] { project(x, at::zeros({3, 71}, at::kHalf), at::kFloat); }), "71"));
  EXPECT_EQ(project(at::zeros({0, 70}), at::zeros({3, 70}, at::kHalf), at::kFloat).sizes(),
            (std::vector<std::int64_t>{0, 3}));
}

TEST(Project, GradientsGoAroundTheKernel) {
  const at::Tensor weight = at::randn({4, 6}).to(at::kBFloat16), x = at::randn({1, 6});
  x.requires_grad_(true);
  project(x, weight, at::kFloat).sum().backward();
  EXPECT_LE(largest_difference(x.grad(), weight.to(at::kDouble).sum(0, true)), 1e-6);
}

ModelConfig some_config(const std::string& encoding) {
  ModelConfig config;
  config.width = 48;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.vocabulary_size = 50;
  config.train_length = 64;
  config.encoding = encoding;
  config.complete();
  return config;
}

TEST(Project, ADecoderOfHalvesIsTheOneWithRoundedMatrices) {
  const at::NoGradGuard no_grad;
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16})
    for (const char* encoding : {"rope", "fox", "learned", "tape(rope)", "grape-m"}) {
      Decoder halves(some_config(encoding), 3), rounded(some_config(encoding), 3);
      halves.keep_matrices(type);
      std::int64_t matrices = 0;
      for (std::size_t i = 0; i < halves.parameters().size(); ++i) {
        const ModelParameter& one = halves.parameters()[i];
        if (!is_half(one.tensor.scalar_type())) continue;
        ++matrices;
        EXPECT_EQ(one.name.find("position"), std::string::npos) << one.name;
        rounded.parameters()[i].tensor.copy_(one.tensor.to(at::kFloat));
      }
      EXPECT_EQ(matrices, 1 + 2 * 7) << encoding;  // the head is the embedding
      TokenBatch batch;
      batch.tokens = at::arange(20).view({1, 20});
      const at::Tensor wanted = rounded.logits(rounded.hidden(batch));
      EXPECT_LE(largest_difference(halves.logits(halves.hidden(batch)), wanted), 1e-4) << encoding;
      // Step by step, where the kernel multiplies.
      KvCache cache = halves.make_cache(1, 20);
      for (std::int64_t t = 0; t < 20; ++t) {
        TokenBatch step;
        step.tokens = batch.tokens.narrow(1, t, 1);
        EXPECT_LE(largest_difference(halves.logits(halves.hidden(step, &cache)), wanted.narrow(1, t, 1)), 1e-4)
            << encoding << t;
      }
    }
}

TEST(Project, WhatLosesNothingIsFound) {
  const at::NoGradGuard no_grad;
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    Decoder model(some_config("t5"), 3);
    EXPECT_EQ(model.lossless_matrices(), at::kFloat);
    for (const ModelParameter& one : model.parameters())
      if (one.name.find("_proj") != std::string::npos || one.name.find("embed") != std::string::npos)
        one.tensor.copy_(one.tensor.to(type).to(at::kFloat));
    EXPECT_EQ(model.lossless_matrices(), type);  // norms and tables are float32 in any case
    model.keep_matrices(type);
    EXPECT_EQ(model.lossless_matrices(), type);
    model.keep_matrices(at::kFloat);
    EXPECT_EQ(model.lossless_matrices(), type);
  }
}

TEST(Project, TwoStacksAreKeptAlike) {
  const at::NoGradGuard no_grad;
  EncoderDecoderConfig config;
  config.encoder = some_config("rope"), config.decoder = some_config("alibi");
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    EncoderDecoder model(config, 3), rounded(config, 3);
    EXPECT_EQ(model.lossless_matrices(), at::kFloat);
    model.keep_matrices(type);
    EXPECT_EQ(model.lossless_matrices(), type);
    std::int64_t matrices = 0;
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      const at::Tensor own = model.parameters()[i].tensor;
      matrices += is_half(own.scalar_type());
      rounded.parameters()[i].tensor.copy_(own.to(at::kFloat));
    }
    EXPECT_EQ(matrices, 1 + 2 * 7 + 2 * 11);
    EXPECT_EQ(rounded.lossless_matrices(), type);
    const at::Tensor source = at::arange(9).view({1, 9}), target = at::arange(20, 32).view({1, 12});
    const at::Tensor wanted = rounded.logits(target, rounded.read(source));
    EXPECT_LE(largest_difference(model.logits(target, model.read(source)), wanted), 1e-4);
    // One stack that halves cannot hold is enough.
    for (const ModelParameter& one : rounded.parameters())
      if (one.name == "decoder.model.layers.1.mlp.down_proj.weight") one.tensor[0][0] = 1.0F + 0x1p-20F;
    EXPECT_EQ(rounded.lossless_matrices(), at::kFloat);
  }
  // Numbers that both halves hold in one stack, and float16 alone in the other.
  EncoderDecoder mixed(config, 3);
  for (const ModelParameter& one : mixed.parameters()) one.tensor.fill_(1.0F);
  EXPECT_EQ(mixed.lossless_matrices(), at::kBFloat16);
  for (const ModelParameter& one : mixed.parameters())
    if (one.name == "decoder.model.layers.1.mlp.down_proj.weight") one.tensor[0][0] = 1.0F + 0x1p-10F;
  EXPECT_EQ(mixed.lossless_matrices(), at::kHalf);
}

TEST(Project, WhatHalvesCannotHoldIsSaid) {
  Decoder model(some_config("rope"), 3);
  const at::NoGradGuard no_grad;
  model.parameters().back().tensor.fill_(1);  // the last norm stays whatever it holds
  EXPECT_TRUE(contains(message_of<UsageError>([&] { model.keep_matrices(at::kDouble); }), "Double"));
  for (const ModelParameter& parameter : model.parameters())
    if (parameter.name == "model.layers.1.mlp.down_proj.weight") parameter.tensor[0][0] = 70000;
  EXPECT_TRUE(contains(message_of<Error>([&] { model.keep_matrices(at::kHalf); }), "layers.1.mlp.down_proj"));
  for (const ModelParameter& parameter : model.parameters()) EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat);
  EXPECT_NO_THROW(model.keep_matrices(at::kBFloat16));
}

}  // namespace
}  // namespace torsor
