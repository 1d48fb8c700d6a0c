// Biases that fall with the distance leave most keys without weight, and the kernel may leave those out. What still
// weighs must be found wherever it lies.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernel/call.h"
#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

constexpr std::int64_t queries = 50, keys = 750;
/// The key far from all queries that shall weigh.
constexpr std::int64_t far_key = 70;

/// A bias that falls by about `fall` a token.
Problem falling(Form form, double fall, bool causal = true, const Places& places = {}) {
  Problem p = draw({1, 2, 1, queries, keys, 16, 16}, causal);
  p.biases = {draw_bias(p, form, 0, 2, places)};
  BiasNumbers& bias = p.biases[0];
  Parameters& is = bias.is;
  const auto fill = [](Tensor& number, double value) { std::fill(number.data.begin(), number.data.end(), value); };
  fill(is.slope, fall), fill(is.alpha, fall / 0.75);
  if (form == Form::Gated) fill(is.query, fall / 2), fill(is.key, fall / 2);
  if (form == Form::Potential) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t j = 0; j < keys; ++j) is.key(0, h, j, 0) = -fall * static_cast<double>(j);
      for (std::int64_t i = 0; i < queries; ++i) is.query(0, h, i, 0) = -fall * static_cast<double>(keys - queries + i);
    }
  }
  for (std::int64_t h = 0; h < 2 && form == Form::DistanceTable; ++h)
    for (std::int64_t s = 0; s < is.table.extent[3]; ++s)
      is.table(0, h, 0, s) = -fall * std::abs(static_cast<double>(bias.most - s));
  for (Tensor* number : {&is.slope, &is.alpha, &is.table}) round_to_float(*number);
  if (form == Form::Gated) round_to_float(is.query), round_to_float(is.key);
  return p;
}

const std::vector<Form> falling_forms = {Form::DistanceTable, Form::Slope, Form::Potential, Form::Gated, Form::Path};

/// How much of the far key's value reaches a query on average.
double weight_of_far_key(Problem p) {
  std::fill(p.v.data.begin(), p.v.data.end(), 0);
  p.v(0, 0, far_key, 0) = 1;
  double sum = 0;
  const Result result = define(p);
  for (std::int64_t i = 0; i < queries; ++i) sum += result.out(0, 0, i, 0);
  return sum / queries;
}

TEST(FusedReach, SteepBiases) {
  for (const Form form : falling_forms)
    for (const double fall : {0.12, 0.6})
      for (const bool causal : {true, false}) {
        if (fall > 0.2 && !causal) continue;
        SCOPED_TRACE(::testing::Message() << name_of(form) << ", " << fall << (causal ? ", causal" : ""));
        Problem p = falling(form, fall, causal);
        expect_both(p);
      }
}

/// Less steep: where a few keys whose values cancel hold all the weight, bf16 weights are off by more than the bound.
TEST(FusedReach, SteepBiasesOfBFloat16) {
  for (const Form form : falling_forms) {
    SCOPED_TRACE(name_of(form));
    Problem p = falling(form, 0.08);
    make_half(p);
    expect_both(p);
  }
}

TEST(FusedReach, SteepBiasesWithMasks) {
  for (const Form form : falling_forms) {
    SCOPED_TRACE(name_of(form));
    Problem p = falling(form, 0.2);
    p.window = 900;
    expect_both(p);
    divide_into_documents(p);
    expect_both(p);
    // Queries that see nothing near them, and some that see nothing.
    p.window = 0;
    for (std::int64_t i = 0; i < queries; ++i) p.query_documents[static_cast<std::size_t>(i)] = i % 7 == 0 ? 9 : i % 3;
    for (std::int64_t j = 0; j < keys; ++j) p.key_documents[static_cast<std::size_t>(j)] = j / 150;
    expect_both(p);
  }
}

/// A key so large that its product makes up for the distance.
TEST(FusedReach, AFarKeyOfLargeProduct) {
  for (const Form form : falling_forms)
    for (const bool half : {false, true}) {
      SCOPED_TRACE(name_of(form));
      Problem p = falling(form, 0.1);
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t i = 0; i < queries; ++i)
          for (std::int64_t c = 0; c < 16; ++c) p.q(0, h, i, c) = c % 2 ? 1 : -1;
      // The queries lie 630 to 679 tokens behind it; product 16 * 16.5 / 4.
      for (std::int64_t c = 0; c < 16; ++c) p.k(0, 0, far_key, c) = (c % 2 ? 1 : -1) * 16.5;
      if (half) make_half(p);
      if (form != Form::Path) {
        EXPECT_GT(weight_of_far_key(p), 0.1);
      }
      expect_both(p);
    }
}

TEST(FusedReach, AQueryOfLargeScale) {
  Problem p = falling(Form::Slope, 0.1);
  p.query_scale = Tensor(1, 2, queries, 1);
  std::fill(p.query_scale.data.begin(), p.query_scale.data.end(), 1);
  for (std::int64_t i = 5; i < 9; ++i)
    for (std::int64_t h = 0; h < 2; ++h) p.query_scale(0, h, i, 0) = -30;
  expect_both(p);
}

/// Biases that do not fall everywhere.
TEST(FusedReach, AFarKeyOfLargeBias) {
  Problem table = falling(Form::DistanceTable, 0.2);
  for (std::int64_t n = keys - queries - far_key; n < keys - far_key; ++n)
    for (std::int64_t h = 0; h < 2; ++h) table.biases[0].is.table(0, h, 0, table.biases[0].most - n) = 3;
  EXPECT_GT(weight_of_far_key(table), 0.001);
  expect_both(table);

  Problem potential = falling(Form::Potential, 0.2);
  for (std::int64_t h = 0; h < 2; ++h)
    potential.biases[0].is.key(0, h, far_key, 0) = potential.biases[0].is.query(0, h, 0, 0);
  EXPECT_GT(weight_of_far_key(potential), 0.001);
  expect_both(potential);

  Problem slope = falling(Form::Slope, 0.2);
  slope.biases[0].is.slope.data[0] = -0.06F;
  EXPECT_GT(weight_of_far_key(slope), 1e-4);
  expect_both(slope);

  Problem gated = falling(Form::Gated, 0.2);
  for (std::int64_t h = 0; h < 2; ++h) gated.biases[0].is.key(0, h, far_key, 0) = -0.1F;  // as much as the query's
  EXPECT_GT(weight_of_far_key(gated), 0.001);
  expect_both(gated);
  gated = falling(Form::Gated, 0.2);
  for (std::int64_t i = 0; i < queries; ++i) gated.biases[0].is.query(0, 0, i, 0) = -0.15F;
  EXPECT_GT(weight_of_far_key(gated), 1e-4);
  expect_both(gated);

  Problem path = falling(Form::Path, 0.2);
  path.biases[0].is.alpha.data[0] = -0.08F;
  EXPECT_GT(weight_of_far_key(path), 1e-4);
  expect_both(path);
}

/// Keys in any order: one far back in the row stands beside the queries.
TEST(FusedReach, AFarKeyThatStandsNear) {
  for (const Form form : {Form::Slope, Form::Gated})
    for (const bool behind : {false, true}) {
      SCOPED_TRACE(::testing::Message() << name_of(form) << (behind ? ", behind the queries" : ""));
      Problem p = falling(form, 0.2);
      p.biases[0].key_positions(0, 0, far_key, 0) = behind ? keys + 5 : keys - queries - 3;
      if (!behind || form == Form::Gated) {
        EXPECT_GT(weight_of_far_key(p), 0.001);
      }
      expect_both(p);
      p = falling(form, 0.2, true, {Places::Kind::Shuffled, 0, 1});
      expect_both(p);
    }
}

/// A factor that takes the far key's bias away.
TEST(FusedReach, AFarKeyWithAFactor) {
  for (const Form form : falling_forms) {
    if (form == Form::Path) continue;
    SCOPED_TRACE(name_of(form));
    Problem p = falling(form, 0.2);
    draw_factor(p, p.biases[0], Factor::Kind::Tag, 2, false);
    std::fill(p.biases[0].factor->tags.begin(), p.biases[0].factor->tags.end(), -1);
    p.biases[0].factor->tags[far_key] = 1;
    std::fill(p.biases[0].is.left.data.begin(), p.biases[0].is.left.data.end(), -1);
    EXPECT_GT(weight_of_far_key(p), 0.001);
    expect_both(p);
  }
}

TEST(FusedReach, FallingBiasesBesideOthers) {
  for (const Form other : every_form) {
    SCOPED_TRACE(name_of(other));
    Problem p = falling(Form::Slope, 0.15);
    p.biases.push_back(draw_bias(p, other, 1, 2));
    if (other == Form::Product)
      for (std::int64_t c = 0; c < 8; ++c) p.biases[1].is.key(0, 0, far_key, c) *= 200;
    if (other == Form::Slope) draw_factor(p, p.biases[1], Factor::Kind::Tanh, 3, false);
    carry(p, 5, 2);
    expect_both(p);
  }
}

/// No bit of a causal query's results tells what comes after it.
TEST(FusedReach, ResultsDoNotDependOnLaterTokens) {
  for (const Form form : falling_forms)
    for (const bool half : {false, true}) {
      SCOPED_TRACE(::testing::Message() << name_of(form) << (half ? ", bf16" : ""));
      Problem p = draw({1, 1, 1, 580, 580, 16, 16});
      p.biases = {draw_bias(p, form, 0, 1)};
      Parameters& is = p.biases[0].is;
      for (Tensor* steep : {&is.slope, &is.alpha})
        for (double& value : steep->data) value = 0.25;
      if (form == Form::Gated)
        for (Tensor* steep : {&is.query, &is.key})
          for (double& value : steep->data) value = 0.125;
      if (half) make_half(p);
      Problem changed = p;
      constexpr std::int64_t from = 481;
      for (std::int64_t t = from; t < 580; ++t)
        for (std::int64_t c = 0; c < 16; ++c) {
          changed.k(0, 0, t, c) *= 8, changed.v(0, 0, t, c) *= -1;
          changed.q(0, 0, t, c) *= 16;
        }
      testing::on_every_target([&] {
        const Result one = run_forward(p), other = run_forward(changed, workers(3));
        for (std::int64_t i = 0; i < from; ++i) {
          ASSERT_EQ(one.lse(0, 0, i, 0), other.lse(0, 0, i, 0)) << i;
          for (std::int64_t c = 0; c < 16; ++c) ASSERT_EQ(one.out(0, 0, i, c), other.out(0, 0, i, c)) << i;
        }
      });
    }
}

}  // namespace
}  // namespace torsor::kernel
