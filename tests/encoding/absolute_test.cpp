#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "torsor/base/json.h"
#include "torsor/encoding/registry.h"

namespace torsor {
namespace {

Side side(std::vector<double> positions, std::int64_t rows = 1) {
  Side tokens;
  const auto count = static_cast<std::int64_t>(positions.size()) / rows;
  tokens.positions = at::tensor(positions, at::kDouble).view({rows, count, 1});
  return tokens;
}

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// sinusoidal
// -----------------------------------------------------------------------------------------------------------

TEST(Sinusoidal, PublishedTables) {
  const char* variable = std::getenv("TORSOR_SHARED");
  const std::string shared = variable ? std::string(variable) : str(TORSOR_SOURCE_DIR, "/../shared");
  const std::string path = str(shared, "/data/reference/sinusoidal.json");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data at " << path;
  int compared = 0;
  const Json file = read_json(path);
  for (const Json& one : file["cases"]) {
    const std::string layout = one["layout"];
    if (layout.find("exponent i/(half-1)") != std::string::npos) continue;  // fairseq's frequencies are not the paper's
    const std::string order = layout.find("in turn") != std::string::npos ? "interleaved" : "halves";
    const std::int64_t width = one["dim"];
    const auto encoding = make_encoding("sinusoidal(order=" + order + ")", {.heads = 1, .head_dim = 4, .width = width});
    const std::vector<double> positions = one["positions"];
    const at::Tensor table = encoding->embedding(side(positions), {});
    const bool whole = one.contains("expected");
    const Json& expected = whole ? one["expected"] : one["expected_first_5"];
    for (std::size_t i = 0; i < expected.size(); ++i)
      for (std::size_t c = 0; c < expected[i].size(); ++c) {
        const double value = expected[i][c], tolerance = one["atol"];
        const auto row = static_cast<std::int64_t>(i), channel = static_cast<std::int64_t>(c);
        EXPECT_NEAR(table.index({0, row, channel}).item<double>(), value, tolerance) << layout << ' ' << i << ' ' << c;
        EXPECT_NEAR(encoding->define_embedding(positions[i], channel, {}), value, tolerance);
        ++compared;
      }
  }
  EXPECT_GE(compared, 47);
}

TEST(Sinusoidal, AnswerEqualsTheDefinitionAnywhere) {
  for (const std::string expression : {"sinusoidal", "sinusoidal(order=halves)", "sinusoidal(base=30, order=halves)"})
    for (const std::int64_t width : {2, 6, 72}) {
      const auto encoding = make_encoding(expression, {.heads = 1, .head_dim = 4, .width = width});
      const std::vector<double> positions = {0, 1, -3, 0.5, 100000, 1000000.25};
      const at::Tensor table = encoding->embedding(side(positions, 2), {});
      ASSERT_EQ(table.sizes(), (std::vector<std::int64_t>{2, 3, width}));
      EXPECT_EQ(table.scalar_type(), at::kDouble);
      for (std::int64_t token = 0; token < 6; ++token)
        for (std::int64_t channel = 0; channel < width; ++channel)
          ASSERT_NEAR(table.index({token / 3, token % 3, channel}).item<double>(),
                      encoding->define_embedding(positions[static_cast<std::size_t>(token)], channel, {}), 2e-9)
              << expression << ' ' << token << ' ' << channel;
    }
}

TEST(Sinusoidal, OrdersHoldTheSameNumbers) {
  const Dimensions dimensions{.heads = 1, .head_dim = 4, .width = 6};
  const at::Tensor turn = make_encoding("sinusoidal", dimensions)->embedding(side({5}), {});
  const at::Tensor halves = make_encoding("sinusoidal(order=halves)", dimensions)->embedding(side({5}), {});
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(turn.index({0, 0, 2 * i}).item<double>(), halves.index({0, 0, i}).item<double>());
    EXPECT_EQ(turn.index({0, 0, 2 * i + 1}).item<double>(), halves.index({0, 0, i + 3}).item<double>());
  }
  EXPECT_NEAR(turn.index({0, 0, 0}).item<double>(), std::sin(5.0), 1e-15);
}

TEST(Sinusoidal, RepeatedRowsAreComputedOnce) {
  const auto encoding = make_encoding("sinusoidal", {.heads = 1, .head_dim = 4, .width = 6});
  Side tokens = side({0, 1, 2});
  tokens.positions = tokens.positions.expand({4, 3, 1});
  const at::Tensor table = encoding->embedding(tokens, {});
  EXPECT_EQ(table.sizes(), (std::vector<std::int64_t>{4, 3, 6}));
  EXPECT_EQ(table.stride(0), 0);
}

TEST(Sinusoidal, PaddingGetsZeros) {
  const auto encoding = make_encoding("sinusoidal", {.heads = 1, .head_dim = 4, .width = 4});
  Side tokens = side({std::nan(""), 0, 1, 0, 1, 2}, 2);
  tokens.documents = at::tensor({-1, 0, 0, 0, 0, 1}, at::kLong).view({2, 3});
  const at::Tensor table = encoding->embedding(tokens, {});
  EXPECT_TRUE(table.index({0, 0}).eq(0).all().item<bool>());
  EXPECT_FALSE(table.isnan().any().item<bool>());
  EXPECT_NEAR(table.index({1, 2, 0}).item<double>(), std::sin(2.0), 1e-15);
}

TEST(Sinusoidal, WidthAndCache) {
  EXPECT_EQ(message_of([] { make_encoding("sinusoidal", {.heads = 1, .head_dim = 4, .width = 5}); }),
            "sinusoidal needs an even model width for its sines and cosines, found width 5");
  const auto encoding = make_encoding("sinusoidal", {.heads = 1, .head_dim = 4});
  EXPECT_NE(encoding->cache(0).shift, "exact");
  EXPECT_EQ(encoding->cache(0).evict, "exact");
  EXPECT_TRUE(encoding->traits().absolute);
  EXPECT_FALSE(encoding->traits().relative);
  EXPECT_EQ(encoding->embedding(side({}), {}).sizes(), (std::vector<std::int64_t>{1, 0, 4}));
}

// learned
// --------------------------------------------------------------------------------------------------------------

struct LearnedCase {
  std::shared_ptr<const Encoding> encoding = make_encoding("learned(length=4)", {.heads = 1, .head_dim = 3});
  NamedTensors parameters = {{"learned.table", at::arange(12, at::kDouble).view({4, 3}).requires_grad_(true)}};
  at::Tensor look_up(const Side& tokens) const { return encoding->embedding(tokens, parameters); }
};

TEST(Learned, LooksUpWholePositions) {
  const LearnedCase one;
  const at::Tensor vectors = one.look_up(side({3, 0, 1, 1}, 2));
  const at::Tensor expected = at::tensor({9.0, 10.0, 11.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 4.0, 5.0}, at::kDouble);
  EXPECT_TRUE(at::equal(vectors, expected.view({2, 2, 3})));
  std::vector<double> table;
  for (int i = 0; i < 12; ++i) table.push_back(i);
  EXPECT_EQ(one.encoding->define_embedding(3, 1, {{"learned.table", table}}), 10);
}

TEST(Learned, RefusesPositionsThatHaveNoVector) {
  const LearnedCase one;
  const std::string rest = " has no vector: the table of length=4 holds the whole positions from 0 to 3";
  EXPECT_EQ(message_of([&] { one.look_up(side({0, 1, 2, 4}, 2)); }), "learned: position 4 (row 1, token 1)" + rest);
  EXPECT_EQ(message_of([&] { one.look_up(side({-1})); }), "learned: position -1 (row 0, token 0)" + rest);
  EXPECT_EQ(message_of([&] { one.look_up(side({1, 2.5})); }), "learned: position 2.5 (row 0, token 1)" + rest);
  EXPECT_EQ(message_of([&] { one.look_up(side({1048576.5})); }), "learned: position 1048576.5 (row 0, token 0)" + rest);
  EXPECT_NE(message_of([&] { one.look_up(side({std::nan("")})); }), "no error");
  EXPECT_NE(message_of([&] { one.look_up(side({std::numeric_limits<double>::infinity()})); }), "no error");
  EXPECT_EQ(message_of([&] { one.encoding->define_embedding(4, 0, {}); }), "learned: position 4" + rest);
}

TEST(Learned, PaddingIsNeverLookedUp) {
  LearnedCase one;
  Side tokens = side({-7, 99.5, 0, 1, 2, 3}, 2);
  tokens.documents = at::tensor({-1, -1, 0, 0, 0, -1}, at::kLong).view({2, 3});
  const at::Tensor vectors = one.look_up(tokens);
  EXPECT_TRUE(vectors.index({0, 0}).eq(0).all().item<bool>());
  EXPECT_TRUE(vectors.index({0, 1}).eq(0).all().item<bool>());
  EXPECT_TRUE(vectors.index({1, 2}).eq(0).all().item<bool>());
  EXPECT_EQ(vectors.index({1, 1, 0}).item<double>(), 6);
  vectors.sum().backward();
  const at::Tensor gradient = one.parameters["learned.table"].grad();
  EXPECT_TRUE(at::equal(gradient.select(1, 0), at::tensor({1.0, 1.0, 1.0, 0.0}, at::kDouble)));
}

TEST(Learned, PaddingWithOneRowOfPositionsForAll) {
  const LearnedCase one;
  Side tokens = side({0, 1});
  tokens.positions = tokens.positions.expand({2, 2, 1});
  tokens.documents = at::tensor({0, 0, -1, 0}, at::kLong).view({2, 2});
  const at::Tensor vectors = one.look_up(tokens);
  EXPECT_EQ(vectors.index({0, 0, 1}).item<double>(), 1);
  EXPECT_EQ(vectors.index({1, 0, 1}).item<double>(), 0);
  EXPECT_EQ(vectors.index({1, 1, 1}).item<double>(), 4);
}

TEST(Learned, GradientCountsRepeatedPositionsAndDoesNotDependOnThreads) {
  at::manual_seed(3);
  const auto encoding = make_encoding("learned(length=50)", {.heads = 1, .head_dim = 8});
  Side tokens;
  tokens.positions = at::randint(0, 50, {16, 200, 1}, at::kDouble);
  const at::Tensor weight = at::randn({16, 200, 8}, at::kFloat);
  const at::Tensor start = at::randn({50, 8}, at::kFloat);
  at::Tensor first;
  const int threads = at::get_num_threads();
  for (int run = 0; run < 5; ++run) {
    at::set_num_threads(run % 2 + 1);
    const at::Tensor table = start.clone().requires_grad_(true);
    (encoding->embedding(tokens, {{"learned.table", table}}) * weight).sum().backward();
    if (run == 0) {
      first = table.grad();
      const at::Tensor index = tokens.positions.flatten().to(at::kLong);
      const at::Tensor dense =
          at::zeros({50, 8}, at::kDouble).index_add(0, index, weight.view({-1, 8}).to(at::kDouble));
      EXPECT_LT((first.to(at::kDouble) - dense).abs().max().item<double>(), 1e-4);
    }
    EXPECT_TRUE(at::equal(table.grad(), first)) << "run " << run;
  }
  at::set_num_threads(threads);
}

TEST(Learned, LengthIsTheTrainingLengthUnlessGiven) {
  const Dimensions trained{.heads = 1, .head_dim = 4, .train_length = 128};
  const ParameterInfo info = make_encoding("learned", trained)->parameters(0).at(0);
  EXPECT_EQ(info.name, "learned.table");
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{128, 4}));
  EXPECT_TRUE(info.shared);
  EXPECT_EQ(info.initial.kind, Initial::Kind::Normal);
  EXPECT_EQ(info.initial.b, 0.02);
  EXPECT_EQ(make_encoding("learned(length=7)", trained)->parameters(3).at(0).shape[0], 7);
  EXPECT_EQ(message_of([] { make_encoding("learned", {.heads = 1, .head_dim = 4}); }),
            "learned needs a length: the model has no training length here, give length=");
}

}  // namespace
}  // namespace torsor
