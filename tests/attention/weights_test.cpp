// The weights of a block are those of the reference path.
#include "torsor/attention/weights.h"

#include <gtest/gtest.h>

#include "torsor/attention/attend.h"
#include "torsor/encoding/registry.h"

namespace torsor {
namespace {

at::Tensor drawn(std::vector<std::int64_t> shape, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions(at::kDouble));
}

/// The core call that an encoding makes of some tokens, shown to `look`.
Attended attend_seen(const std::string& expression, AttendOptions options, std::int64_t queries, std::int64_t keys,
                     CoreInput& seen) {
  const auto encoding = make_encoding(expression, {.heads = 4, .kv_heads = 2, .head_dim = 8, .train_length = 16});
  options.look = [&](const CoreInput& input) { seen = input; };
  options.path = Path::Reference;
  return attend_full(drawn({2, 4, queries, 8}, 1), drawn({2, 2, keys, 8}, 2), drawn({2, 2, keys, 8}, 3), *encoding,
                     options);
}

TEST(BlockWeights, AverageTheValuesAsAttentionDoes) {
  for (const char* expression : {"rope", "alibi + rope(dim=4)", "none", "xpos", "logn(train_length=4)"})
    for (const bool window : {false, true}) {
      AttendOptions options;
      if (window) options.window = 5;
      CoreInput input;
      const Attended attended = attend_seen(expression, options, 9, 13, input);
      for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 9}, {3, 2}, {8, 1}}) {
        const BlockWeights block = block_weights(input, first, count);
        ASSERT_EQ(block.weights.size(2), count);
        const at::Tensor values = input.v.repeat_interleave(2, 1).narrow(2, block.first_key, block.weights.size(3));
        const at::Tensor out = at::matmul(block.weights, values);
        EXPECT_LE((out - attended.out.narrow(2, first, count)).abs().max().item<double>(), 1e-12)
            << expression << window << first;
        EXPECT_LE((block.weights.sum(-1) - 1).abs().max().item<double>(), 1e-12);
        EXPECT_LE((at::softmax(block.logits, -1) - block.weights).abs().max().item<double>(), 1e-15);
        EXPECT_FALSE(
            block.weights.masked_select(block.visible.logical_not().expand_as(block.weights)).ne(0).any().item<bool>());
        if (window) {
          EXPECT_EQ(block.first_key, std::max<std::int64_t>(0, 13 - 9 + first - 4)) << "keys that nobody sees";
        }
      }
    }
}

TEST(BlockWeights, AQueryThatSeesNothingGivesNothing) {
  // Five queries and two keys: the first three stand before any key.
  CoreInput input;
  attend_seen("none", {}, 5, 2, input);
  const BlockWeights block = block_weights(input, 0, 5);
  EXPECT_EQ(block.weights.narrow(2, 0, 3).abs().max().item<double>(), 0);
  EXPECT_EQ(block.weights.narrow(2, 3, 1).select(3, 0).min().item<double>(), 1);
  EXPECT_NEAR(block.weights.narrow(2, 4, 1).sum().item<double>(), 2 * 4, 1e-12);
  EXPECT_EQ(block_weights(input, 0, 2).weights.size(3), 0) << "no key is in reach of this block";
}

}  // namespace
}  // namespace torsor
