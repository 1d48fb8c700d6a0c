// mean_factor_effect beside sums over pairs, one at a time.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "torsor/attention/core.h"

namespace torsor {
namespace {

constexpr std::int64_t kRows = 2, kHeads = 3, kQueries = 5, kKeys = 7, kTags = 4;

struct Call {
  CoreInput input;
  at::Tensor left, tag;

  Call() {
    at::manual_seed(3);
    const auto kind = at::TensorOptions(at::kDouble);
    input.q = at::randn({kRows, kHeads, kQueries, 4}, kind);
    input.k = at::randn({kRows, 1, kKeys, 4}, kind);
    input.v = input.k;
    input.key_positions = at::arange(kKeys, kind).expand({kRows, kKeys});
    input.query_positions = input.key_positions.narrow(1, kKeys - kQueries, kQueries);
    left = at::randn({kRows, kHeads, kQueries, kTags}, kind);
    tag = at::randint(-1, kTags, {kRows, kKeys}, kind.dtype(at::kLong));
  }

  static std::shared_ptr<const BiasForm> line(HeadRange heads) {
    return std::make_shared<BiasForm>(BiasForm{heads, LinearForm{at::ones({heads.size()}, at::kDouble)}});
  }
  /// Query i of a row sees key j.
  static bool sees(std::int64_t i, std::int64_t j) { return j <= kKeys - kQueries + i; }
};

TEST(FactorEffect, IsTheMeanOverVisiblePairsAndHeads) {
  Call call;
  FactorForm form;
  form.kind = FactorForm::Kind::Tag;
  form.left = call.left;
  form.tag = call.tag;
  form.base = Call::line({0, kHeads});
  call.input.biases.push_back({{0, kHeads}, form});
  for (const std::int64_t most : {std::int64_t{64}, std::int64_t{2}}) {
    double sum = 0, pairs = 0;
    for (std::int64_t b = 0; b < kRows; ++b)
      for (std::int64_t h = 0; h < kHeads; ++h)
        for (std::int64_t i = std::max<std::int64_t>(kQueries - most, 0); i < kQueries; ++i)
          for (std::int64_t j = 0; j < kKeys; ++j) {
            if (!Call::sees(i, j)) continue;
            const auto tag = call.tag[b][j].item<std::int64_t>();
            sum += tag < 0 ? 0 : std::abs(call.left[b][h][i][tag].item<double>());
            ++pairs;
          }
    const auto effect = mean_factor_effect(call.input, most);
    ASSERT_TRUE(effect);
    EXPECT_NEAR(*effect, sum / pairs, 1e-14);
  }
}

TEST(FactorEffect, CountsPairsAndStretchesOfTheirOwnHeads) {
  Call call;
  // Two pairs of query 3 in row 0, one of query 0 in row 1; the second key of it lies in the future and is not seen.
  FactorForm listed;
  listed.kind = FactorForm::Kind::Pairs;
  listed.pair_start =
      at::tensor(std::vector<std::int64_t>{0, 0, 0, 0, 2, 2, 2, 4, 4, 4, 4, 4}).view({kRows, kQueries + 1});
  listed.pair_key = at::tensor(std::vector<std::int64_t>{1, 4, 0, 6});
  listed.pair_value = at::tensor(std::vector<double>{0.5, -0.25, 2, 9}, at::kDouble);
  listed.base = Call::line({0, 1});
  call.input.biases.push_back({{0, 1}, listed});
  const double pairs = kRows * (3 + 4 + 5 + 6 + 7);
  EXPECT_NEAR(*mean_factor_effect(call.input), (0.5 + 0.25 + 2) / pairs, 1e-14);

  auto stretched = std::make_shared<FactorForm>();
  stretched->kind = FactorForm::Kind::Tag;
  stretched->left = at::full({kRows, 1, kQueries, kTags}, -0.125, at::kDouble);
  stretched->tag = at::zeros({kRows, kKeys}, at::kLong);
  StretchForm stretch;
  stretch.query = call.input.q.narrow(1, 1, 2);
  stretch.key = call.input.k;
  stretch.frequency = at::ones({1, 2}, at::kDouble);
  stretch.width = 4;
  stretch.factor = stretched;
  call.input.biases.push_back({{1, kHeads}, stretch});
  EXPECT_NEAR(*mean_factor_effect(call.input), (0.5 + 0.25 + 2 + 2 * pairs * 0.125) / (3 * pairs), 1e-14);
}

TEST(FactorEffect, IsNothingWithoutFactorsOrPairs) {
  Call call;
  EXPECT_FALSE(mean_factor_effect(call.input));
  call.input.biases.push_back(*Call::line({0, kHeads}));
  EXPECT_FALSE(mean_factor_effect(call.input));
  FactorForm form;
  form.left = call.left;
  form.tag = call.tag;
  form.base = Call::line({0, kHeads});
  call.input.biases.push_back({{0, kHeads}, form});
  call.input.mask.key_lengths = at::zeros({kRows}, at::kLong);
  EXPECT_FALSE(mean_factor_effect(call.input));
}

}  // namespace
}  // namespace torsor
