// What is said of distances without looking at pairs, against looking at every pair.
#include "torsor/attention/distances.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "torsor/base/error.h"

namespace torsor {
namespace {

/// A drawn call: positions that mostly rise, with documents, padding, a window, lengths and offsets or without.
struct Drawn {
  CoreInput input;
  std::int64_t batch = 2, queries = 0, keys = 0;
};

Drawn draw(std::mt19937& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Drawn drawn;
  drawn.queries = 1 + below(7), drawn.keys = 1 + below(9);
  CoreInput& input = drawn.input;
  input.q = at::zeros({drawn.batch, 1, drawn.queries, 1});
  input.k = input.v = at::zeros({drawn.batch, 1, drawn.keys, 1});
  const auto positions = [&](std::int64_t count, std::int64_t first) {
    at::Tensor all = at::arange(first, first + count, at::kDouble).repeat({drawn.batch, 1});
    if (below(2) == 0)
      for (std::int64_t n = below(3); n > 0; --n)
        all[below(drawn.batch)][below(count)] += static_cast<double>(below(9)) - 4;
    return below(4) == 0 ? all * 0.5 : all;
  };
  input.key_positions = positions(drawn.keys, 3);
  input.query_positions = positions(drawn.queries, 3 + drawn.keys - drawn.queries + below(2));
  Mask& mask = input.mask;
  mask.causal = below(4) != 0;
  if (below(3) == 0) mask.window = 1 + below(4);
  const auto longs = [&](std::int64_t low, std::int64_t high) {
    return at::randint(low, high + 1, {drawn.batch}, at::kLong);
  };
  if (below(3) == 0) mask.key_lengths = longs(0, drawn.keys);
  if (below(3) == 0) mask.offsets = longs(-2, drawn.keys);
  if (below(2) == 0) {
    mask.key_documents = at::randint(-1, 2, {drawn.batch, drawn.keys}, at::kLong);
    mask.query_documents = at::randint(-1, 2, {drawn.batch, drawn.queries}, at::kLong);
  }
  return drawn;
}

bool sees(const Drawn& drawn, std::int64_t b, std::int64_t i, std::int64_t j) {
  const Mask& mask = drawn.input.mask;
  const std::int64_t length = mask.key_lengths.defined() ? mask.key_lengths[b].item<std::int64_t>() : drawn.keys;
  const std::int64_t index =
      i + (mask.offsets.defined() ? mask.offsets[b].item<std::int64_t>() : length - drawn.queries);
  if (j >= length || (mask.causal && j > index)) return false;
  if (mask.window && (index - j >= *mask.window || (!mask.causal && j - index >= *mask.window))) return false;
  if (!mask.key_documents.defined()) return true;
  const auto document = mask.query_documents[b][i].item<std::int64_t>();
  return document != -1 && document == mask.key_documents[b][j].item<std::int64_t>();
}

TEST(Distances, AgreeWithEveryPair) {
  std::mt19937 random(1);
  at::manual_seed(1);
  int negatives = 0, wholes = 0;
  for (int round = 0; round < 3000; ++round) {
    const Drawn drawn = draw(random);
    const at::Tensor &query = drawn.input.query_positions, &key = drawn.input.key_positions;
    Distances distances(drawn.input);
    const at::Tensor& whole = distances.whole();
    const Distances::Range range = distances.range();
    bool negative = false;
    for (std::int64_t b = 0; b < drawn.batch; ++b)
      for (std::int64_t i = 0; i < drawn.queries; ++i)
        for (std::int64_t j = 0; j < drawn.keys; ++j) {
          if (!sees(drawn, b, i, j)) continue;
          const double n = query[b][i].item<double>() - key[b][j].item<double>();
          negative = negative || n < 0;
          ASSERT_TRUE(range.least <= n && n <= range.most) << round;
          if (whole.defined()) {
            ASSERT_EQ(static_cast<double>(whole[b].item<std::int64_t>() + i - j), n) << round;
          }
        }
    ASSERT_EQ(distances.any_negative(), negative) << round;
    negatives += negative ? 1 : 0;
    wholes += whole.defined() ? 1 : 0;
  }
  EXPECT_GT(negatives, 300);
  EXPECT_LT(negatives, 2700);
  EXPECT_GT(wholes, 300);
}

TEST(Distances, OfOneDocumentAmongMany) {
  // 40 000 tokens of 10 000 documents, where only the last query sees a key with a larger position.
  const std::int64_t tokens = 40000;
  CoreInput input;
  input.q = at::zeros({1, 1, tokens, 1}), input.k = input.v = input.q;
  input.key_positions = at::arange(tokens, at::kDouble).remainder(4).unsqueeze(0).clone();
  input.query_positions = input.key_positions;
  input.mask.key_documents = at::arange(tokens, at::kLong).div(4, "floor").unsqueeze(0);
  input.mask.query_documents = input.mask.key_documents;
  EXPECT_FALSE(Distances(input).any_negative());
  EXPECT_FALSE(Distances(input).whole().defined() && Distances(input).whole().item<std::int64_t>() != 0);
  input.key_positions = input.key_positions.clone();
  input.key_positions[0][tokens - 4] = 7;
  EXPECT_TRUE(Distances(input).any_negative());
  input.mask.window = 1;                         // its own token alone
  EXPECT_TRUE(Distances(input).any_negative());  // which now stands behind it
  input.query_positions = input.key_positions;
  EXPECT_FALSE(Distances(input).any_negative());
}

}  // namespace
}  // namespace torsor
