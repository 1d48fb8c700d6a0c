// Temperatures: one factor a query, from its position.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/encoding/rotary_case.h"

namespace torsor::rotary_test {
namespace {

at::Tensor factors(const std::string& expression, const std::vector<double>& positions, std::int64_t train_length = 0,
                   Precision precision = Precision::Exact) {
  const auto encoding = make_encoding(
      expression, {.heads = 4, .kv_heads = 2, .head_dim = 8, .train_length = train_length, .precision = precision});
  Question question;
  question.query.positions = at::tensor(positions, at::kDouble).view({1, -1, 1});
  const std::vector<LogitScale> scales = encoding->logit_scales(question);
  EXPECT_EQ(scales.size(), 1u);
  EXPECT_EQ(scales[0].heads.begin, 0);
  EXPECT_EQ(scales[0].heads.end, 4);
  EXPECT_EQ(scales[0].query.scalar_type(), at::kDouble);
  EXPECT_EQ(scales[0].query.sizes(), (std::vector<std::int64_t>{1, static_cast<std::int64_t>(positions.size())}));
  return scales[0].query[0];
}

// DAMO-NLP-SG/CLEX#1: one factor a query, not one for all.
TEST(Temperature, LognGrowsWithTheQuery) {
  const at::Tensor found = factors("logn(train_length=2048)", {8191, 2047, 2048, 0, 100, -5, 1e6});
  EXPECT_NEAR(found[0].item<double>(), 1.1818181818181819, 1e-14);  // ln 8192 / ln 2048 = 13/11
  EXPECT_EQ(found[1].item<double>(), 1);
  EXPECT_NEAR(found[2].item<double>(), std::log(2049.0) / std::log(2048.0), 1e-15);
  for (const int i : {3, 4, 5}) EXPECT_EQ(found[i].item<double>(), 1);
  EXPECT_NEAR(found[6].item<double>(), std::log(1000001.0) / std::log(2048.0), 1e-14);
  EXPECT_TRUE(factors("logn", {8191}, 2048).equal(factors("logn(train_length=2048)", {8191})));
}

TEST(Temperature, Llama4ScaleGrowsByStepsOfTheLength) {
  const at::Tensor found = factors("llama4-scale", {0, 8190, 8191, 16382, 16383, 1e6, -3, -9000});
  EXPECT_EQ(found[0].item<double>(), 1);
  EXPECT_EQ(found[1].item<double>(), 1);
  EXPECT_NEAR(found[2].item<double>(), 1 + 0.1 * std::log(2.0), 1e-15);
  EXPECT_NEAR(found[3].item<double>(), 1 + 0.1 * std::log(2.0), 1e-15);
  EXPECT_NEAR(found[4].item<double>(), 1 + 0.1 * std::log(3.0), 1e-15);
  EXPECT_NEAR(found[5].item<double>(), 1 + 0.1 * std::log(123.0), 1e-14);
  EXPECT_EQ(found[6].item<double>(), 1);
  EXPECT_EQ(found[7].item<double>(), 1);
  const at::Tensor single = factors("llama4-scale", {8191, 1e6}, 0, Precision::HuggingFace);
  EXPECT_TRUE(single.equal(single.to(at::kFloat).to(at::kDouble)));
  EXPECT_NEAR(single[1].item<double>(), found[5].item<double>(), 1e-6);
}

TEST(Temperature, AnswersEqualTheDefinition) {
  for (const char* expression : {"logn(train_length=7.5)", "llama4-scale(scale=0.3, length=5)"}) {
    const auto encoding = make_encoding(expression, {.head_dim = 8});
    std::vector<double> positions;
    for (double p = -12; p < 60; p += 0.5) positions.push_back(p);
    const at::Tensor found = factors(expression, positions);
    for (std::size_t i = 0; i < positions.size(); ++i)
      EXPECT_NEAR(found[static_cast<std::int64_t>(i)].item<double>(),
                  encoding->define_query_factor(&positions[i], 0, 0), 1e-14);
  }
}

TEST(Temperature, RowsAndShapes) {
  const auto encoding = make_encoding("logn(train_length=4)", {.head_dim = 8});
  Question question;
  question.query.positions = at::arange(6, at::kDouble).view({2, 3, 1});
  EXPECT_EQ(encoding->logit_scales(question)[0].query.sizes(), (std::vector<std::int64_t>{2, 3}));
  question.query.positions = at::arange(3, at::kDouble).view({1, 3, 1}).expand({2, 3, 1});
  EXPECT_EQ(encoding->logit_scales(question)[0].query.sizes(), (std::vector<std::int64_t>{1, 3}));
  question.query.positions = at::zeros({2, 0, 1}, at::kDouble);
  EXPECT_EQ(encoding->logit_scales(question)[0].query.sizes(), (std::vector<std::int64_t>{2, 0}));
  question.query.positions = at::zeros({2, 3, 2}, at::kDouble);
  EXPECT_THROW(encoding->logit_scales(question), Error);
  EXPECT_FALSE(encoding->traits().relative);
  EXPECT_FALSE(encoding->cache(0).note.empty());
}

TEST(Temperature, Refusals) {
  EXPECT_THROW(make_encoding("logn", {.head_dim = 8}), UsageError);
  EXPECT_THROW(make_encoding("logn", {.head_dim = 8, .train_length = 1}), UsageError);
  EXPECT_THROW(make_encoding("logn(train_length=1)", {.head_dim = 8}), UsageError);
  EXPECT_THROW(make_encoding("llama4-scale(length=0)", {.head_dim = 8}), UsageError);
  EXPECT_THROW(make_encoding("llama4-scale(scale=-1)", {.head_dim = 8}), UsageError);
}

}  // namespace
}  // namespace torsor::rotary_test
