#include <gtest/gtest.h>

#include <cmath>

#include "tests/encoding/bias_case.h"

namespace torsor {
namespace {

using bias_test::BiasCase;
using bias_test::dense_bias;
using bias_test::relative_error;

const std::vector<std::string>& expressions() {
  static const std::vector<std::string> all = {
      "alibi",
      "alibi(max_exponent=3)",
      "alibi(learn=true)",
      "t5",
      "t5(buckets=12, max_distance=20, bidirectional=true)",
      "t5(buckets=8, max_distance=16, far=wrap)",
      "t5(buckets=9, max_distance=16, far=log, shared=true)",
      "kerple",
      "kerple(kind=power)",
      "sandwich",
      "sandwich(width=2)",
      "fire(hidden=5, length=16)",
      "fire(hidden=1, length=5000)",
      "txl",
      "txl(order=interleaved)",
  };
  return all;
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

// Answers beside definitions
// -------------------------------------------------------------------------------------------

TEST(Bias, AnswersEqualTheDefinition) {
  for (const std::string& expression : expressions())
    for (int seed = 1; seed <= 3; ++seed) {
      const BiasCase one(expression, at::kDouble, seed);
      EXPECT_LT(relative_error(one.answered(), one.defined(one.plain())), 1e-12) << expression;
    }
}

TEST(Bias, OneRowForAllIsTheSameAsRepeatedRows) {
  for (const std::string& expression : expressions()) {
    BiasCase one(expression);
    one.pq = one.pq.narrow(0, 1, 1).expand({2, 3});
    one.pk = one.pk.narrow(0, 1, 1).expand({2, 5});
    one.refresh();
    EXPECT_LT(relative_error(one.answered(), one.defined(one.plain())), 1e-12) << expression;
    const std::vector<BiasForm> forms = one.encoding->biases(one.question);
    if (const auto* product = std::get_if<ProductForm>(&forms.front().form)) {
      EXPECT_EQ(product->key.size(0), 1) << "keys of equal rows are computed once";
    }
  }
}

TEST(Bias, GradientsEqualFiniteDifferencesOfTheDefinition) {
  for (const std::string& expression : expressions()) {
    BiasCase one(expression);
    if (one.parameters.empty()) continue;
    const at::Tensor weight = at::randn({one.rows, one.heads, one.queries, one.keys}, at::kDouble);
    (one.answered() * weight).sum().backward();
    const PlainParameters start = one.plain();
    for (const auto& [name, tensor] : one.parameters) {
      if (name == "txl.u") continue;  // not a bias: TxlAddsItsVectorToTheQuery
      ASSERT_TRUE(tensor.grad().defined()) << name;
      const at::Tensor got = tensor.grad().contiguous().flatten();
      at::Tensor expected = at::empty_like(got);
      for (std::int64_t entry = 0; entry < got.numel(); ++entry) {
        const double step = 1e-5;
        PlainParameters up = start, down = start;
        up[name][static_cast<std::size_t>(entry)] += step;
        down[name][static_cast<std::size_t>(entry)] -= step;
        const at::Tensor difference = (one.defined(up) - one.defined(down)) * weight / (2 * step);
        expected[entry] = difference.sum().item<double>();
      }
      EXPECT_LT(relative_error(got, expected), 1e-6) << expression << ' ' << name;
    }
  }
}

TEST(Bias, AnswersTakeTheTypeOfTheCall) {
  for (const std::string& expression : expressions())
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const BiasCase one(expression, type);
      for (const BiasForm& bias : one.encoding->biases(one.question)) {
        EXPECT_EQ(bias.heads.begin, 0);
        EXPECT_EQ(bias.heads.end, 4);
        std::visit(
            [&](const auto& form) {
              using Form = std::decay_t<decltype(form)>;
              if constexpr (std::is_same_v<Form, LinearForm>) {
                EXPECT_EQ(form.slope.scalar_type(), at::kFloat);
              }
              if constexpr (std::is_same_v<Form, TableForm>) {
                EXPECT_EQ(form.table.scalar_type(), at::kFloat);
              }
              if constexpr (std::is_same_v<Form, LogForm>) {
                EXPECT_EQ(form.r1.scalar_type(), at::kFloat);
              }
              if constexpr (std::is_same_v<Form, CosineForm>) {
                EXPECT_EQ(form.weight.scalar_type(), at::kDouble);
              }
              if constexpr (std::is_same_v<Form, PiecewiseForm>) {
                EXPECT_EQ(form.w2.scalar_type(), at::kFloat);
              }
              if constexpr (std::is_same_v<Form, ProductForm>) {
                EXPECT_EQ(form.query.scalar_type(), at::kFloat);
                EXPECT_EQ(form.key.scalar_type(), at::kFloat);
              }
            },
            bias.form);
      }
      if (type == at::kFloat) {
        EXPECT_LT(relative_error(one.answered(), one.defined(one.plain())), 2e-5) << expression;
      }
    }
}

TEST(Bias, OnlyDistancesMatterToAllButFire) {
  for (const std::string& expression : expressions()) {
    BiasCase one(expression);
    const at::Tensor before = one.answered();
    EXPECT_EQ(one.encoding->traits().relative, expression.find("fire") == std::string::npos);
    for (const double shift : {1.0, -0.5, -4096.0, 1048576.0}) {
      const at::Tensor pq = one.pq, pk = one.pk;
      one.pq = pq + shift;
      one.pk = pk + shift;
      one.refresh();
      const double error = relative_error(one.answered(), before);
      if (one.encoding->traits().relative) {
        EXPECT_LT(error, 1e-8) << expression << ' ' << shift;
      }
      one.pq = pq;
      one.pk = pk;
      one.refresh();
    }
  }
}

TEST(Bias, NothingIsKeptInACacheBesideTheKeys) {
  for (const std::string& expression : expressions()) {
    const BiasCase one(expression);
    const CacheContract contract = one.encoding->cache(0);
    EXPECT_EQ(contract.key, CacheContract::Key::Rotated);
    EXPECT_TRUE(contract.kept.empty());
    EXPECT_EQ(contract.shift, "exact");
    EXPECT_EQ(contract.evict, "exact");
    EXPECT_TRUE(one.encoding->inputs().empty());
    EXPECT_FALSE(one.encoding->embedding(one.question.query, one.parameters).defined());
  }
}

TEST(Bias, MissingTensorIsNamed) {
  BiasCase one("t5");
  one.parameters.clear();
  EXPECT_EQ(message_of([&] { one.answered(); }), "the trained tensor 't5.table' was not given");
  EXPECT_EQ(message_of([&] { one.defined({}); }), "the trained tensor 't5.table' was not given");
}

TEST(Bias, SecondTermOfANameHasItsOwnTensors) {
  const auto encoding = make_encoding("t5 + t5(buckets=8, max_distance=16)", {.heads = 2, .head_dim = 4});
  const std::vector<ParameterInfo> infos = encoding->parameters(0);
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].name, "t5.table");
  EXPECT_EQ(infos[0].shape, (std::vector<std::int64_t>{32, 2}));
  EXPECT_EQ(infos[1].name, "t5#2.table");
  EXPECT_EQ(infos[1].shape, (std::vector<std::int64_t>{8, 2}));
}

// none
// -----------------------------------------------------------------------------------------------------------------

TEST(None, AnswersNothing) {
  const BiasCase one("none");
  EXPECT_TRUE(one.encoding->biases(one.question).empty());
  EXPECT_TRUE(one.encoding->moves(one.question, Role::Query).empty());
  EXPECT_TRUE(one.encoding->parameters(0).empty());
  EXPECT_TRUE(one.encoding->slopes().empty());
  EXPECT_TRUE(one.encoding->buckets({1}).empty());
  EXPECT_EQ(one.encoding->cache(0).evict, "exact");
  EXPECT_FALSE(one.encoding->embedding(one.question.query, {}).defined());
}

// alibi
// ----------------------------------------------------------------------------------------------------------------

std::vector<double> slopes(std::int64_t heads, const std::string& expression = "alibi") {
  return make_encoding(expression, {.heads = heads, .head_dim = 4})->slopes();
}

TEST(Alibi, SlopesOfAnyHeadCount) {
  EXPECT_EQ(slopes(1), (std::vector<double>{0.00390625}));
  EXPECT_EQ(slopes(6), (std::vector<double>{.25, .0625, .015625, .00390625, .5, .125}));
  EXPECT_EQ(slopes(8), (std::vector<double>{.5, .25, .125, .0625, .03125, .015625, .0078125, .00390625}));
  const std::vector<double> twelve = slopes(12);
  ASSERT_EQ(twelve.size(), 12u);
  EXPECT_EQ(twelve[0], 0.5);
  EXPECT_EQ(twelve[7], 0.00390625);
  const double last[] = {.70710678, .35355339, .1767767, .08838835};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(twelve[8 + i], last[i], 1e-8);
  ASSERT_EQ(slopes(40).size(), 40u);
  EXPECT_NEAR(slopes(40)[39], .27262693, 1e-8);
}

TEST(Alibi, MaxExponentIsWhereTheSlopesEnd) {
  EXPECT_EQ(slopes(4, "alibi(max_exponent=12)"), (std::vector<double>{.125, .015625, .001953125, .000244140625}));
  EXPECT_EQ(slopes(3, "alibi(max_exponent=4)"), (std::vector<double>{.25, .0625, .5}));
}

TEST(Alibi, AnswersTheSameSlopesForEveryHeadCount) {
  for (std::int64_t heads = 1; heads <= 128; ++heads) {
    const auto encoding = make_encoding("alibi", {.heads = heads, .head_dim = 4});
    const std::vector<double> listed = encoding->slopes();
    ASSERT_EQ(static_cast<std::int64_t>(listed.size()), heads);
    for (std::int64_t head = 0; head < heads; ++head) {
      const double pq = 5, pk = 4;
      PlainPair pair;
      pair.pq = &pq;
      pair.pk = &pk;
      pair.head = head;
      ASSERT_NEAR(encoding->define_bias(pair, {}), -listed[static_cast<std::size_t>(head)], 1e-15)
          << heads << ' ' << head;
    }
  }
}

TEST(Alibi, LearnedSlopesStartAtTheFormula) {
  const auto encoding = make_encoding("alibi(learn=true)", {.heads = 6, .head_dim = 4});
  const ParameterInfo info = encoding->parameters(0).at(0);
  EXPECT_EQ(info.name, "alibi.slopes");
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{6}));
  EXPECT_EQ(info.initial.kind, Initial::Kind::Values);
  EXPECT_EQ(info.initial.values, slopes(6));
  EXPECT_FALSE(info.decay);
}

TEST(Alibi, RefusesExponentsWithoutMeaning) {
  EXPECT_THROW(make_encoding("alibi(max_exponent=0)", {.heads = 2, .head_dim = 4}), UsageError);
  EXPECT_THROW(make_encoding("alibi(max_exponent=127)", {.heads = 2, .head_dim = 4}), UsageError);
}

// t5
// -------------------------------------------------------------------------------------------------------------------

TEST(T5, TableOfALayerOrOfTheModel) {
  const ParameterInfo own = make_encoding("t5", {.heads = 3, .head_dim = 4})->parameters(0).at(0);
  EXPECT_FALSE(own.shared);
  EXPECT_EQ(own.shape, (std::vector<std::int64_t>{32, 3}));
  EXPECT_EQ(own.initial.kind, Initial::Kind::Normal);
  EXPECT_EQ(own.initial.b, 0.02);
  EXPECT_TRUE(make_encoding("t5(shared=true)", {.heads = 3, .head_dim = 4})->parameters(1).at(0).shared);
}

TEST(T5, KeysAreChecked) {
  const Dimensions dimensions{.heads = 2, .head_dim = 4};
  EXPECT_THROW(make_encoding("t5(buckets=1)", dimensions), UsageError);
  EXPECT_THROW(make_encoding("t5(far=fold)", dimensions), UsageError);
  EXPECT_EQ(message_of([&] { make_encoding("t5(buckets=64, max_distance=32)", dimensions); }),
            "t5: max_distance=32 must be larger than 32, as the first 32 distances have buckets of their own");
}

// kerple
// ---------------------------------------------------------------------------------------------------------------

TEST(Kerple, StartsAsTheAuthorsDo) {
  const auto log = make_encoding("kerple", {.heads = 2, .head_dim = 4})->parameters(0);
  EXPECT_EQ(log.at(0).name, "kerple.r1");
  EXPECT_EQ(log.at(0).initial.b, 2);
  EXPECT_EQ(log.at(1).name, "kerple.r2");
  EXPECT_EQ(log.at(1).initial.b, 1);
  const auto power = make_encoding("kerple(kind=power)", {.heads = 2, .head_dim = 4})->parameters(0);
  EXPECT_EQ(power.at(0).initial.b, 1);
  EXPECT_EQ(power.at(1).initial.b, 2);
}

TEST(Kerple, ClampedValuesActAsTheBoundWithoutGradient) {
  for (const bool power : {false, true}) {
    BiasCase one(power ? "kerple(kind=power)" : "kerple");
    one.parameters["kerple.r1"] = at::tensor({-3.0, 0.005, 0.5, 1.5}, at::kDouble).requires_grad_(true);
    one.parameters["kerple.r2"] = at::tensor({0.5, 0.0, 2.5, 1.5}, at::kDouble).requires_grad_(true);
    EXPECT_LT(relative_error(one.answered(), one.defined(one.plain())), 1e-13);
    PlainParameters used = one.plain();
    used["kerple.r1"] = {0.01, 0.01, 0.5, 1.5};
    used["kerple.r2"] = {0.5, 0.01, power ? 2.0 : 2.5, 1.5};
    EXPECT_EQ(relative_error(one.defined(one.plain()), one.defined(used)), 0);
    one.answered().sum().backward();
    const at::Tensor r1 = one.parameters["kerple.r1"].grad(), r2 = one.parameters["kerple.r2"].grad();
    EXPECT_EQ(r1[0].item<double>(), 0);
    EXPECT_EQ(r1[1].item<double>(), 0);
    EXPECT_LT(r1[2].item<double>(), 0);
    EXPECT_LT(r2[0].item<double>(), 0);
    EXPECT_EQ(r2[1].item<double>(), 0);
    EXPECT_EQ(r2[2].item<double>() == 0, power);
    EXPECT_LT(r2[3].item<double>(), 0);
  }
}

// sandwich
// -------------------------------------------------------------------------------------------------------------

TEST(Sandwich, KnownValues) {
  const auto encoding = make_encoding("sandwich", {.heads = 8, .head_dim = 4});
  const auto value = [&](double distance, std::int64_t head) {
    const double zero = 0;
    PlainPair pair;
    pair.pq = &distance;
    pair.pk = &zero;
    pair.head = head;
    return encoding->define_bias(pair, {});
  };
  EXPECT_NEAR(value(0, 0), 64, 1e-12);
  EXPECT_NEAR(value(1, 0), 62.0937, 5e-5);
  EXPECT_NEAR(value(100, 0), 30.5435, 5e-5);
  EXPECT_NEAR(value(-100, 0), 30.5435, 5e-5);
  EXPECT_NEAR(value(0, 1), 32, 1e-12);
  EXPECT_NEAR(value(0, 7), 8, 1e-12);
}

TEST(Sandwich, WidthMustBeEven) {
  EXPECT_EQ(message_of([] { make_encoding("sandwich(width=7)", {.heads = 2, .head_dim = 4}); }),
            "sandwich: width=7 must be even");
}

// fire
// -----------------------------------------------------------------------------------------------------------------

TEST(Fire, NormalisedDistance) {
  const auto encoding = make_encoding("fire(hidden=1)", {.heads = 1, .head_dim = 4});
  // A network that gives back its (positive) input.
  const PlainParameters identity = {{"fire.w1", {1}}, {"fire.b1", {0}},  {"fire.w2", {1}},
                                    {"fire.b2", {0}}, {"fire.c", {0.1}}, {"fire.mu", {1}}};
  const auto value = [&](double pq, double pk) {
    PlainPair pair;
    pair.pq = &pq;
    pair.pk = &pk;
    return encoding->define_bias(pair, identity);
  };
  EXPECT_NEAR(value(10, 0), 0.175255, 5e-7);
  EXPECT_NEAR(value(1023, 1000), 0.257442, 5e-7);
  EXPECT_EQ(value(77, 77), 0);
}

TEST(Fire, StartOfItsTensors) {
  const auto infos = make_encoding("fire(hidden=16)", {.heads = 3, .head_dim = 4})->parameters(0);
  ASSERT_EQ(infos.size(), 6u);
  EXPECT_EQ(infos[0].name, "fire.w1");
  EXPECT_EQ(infos[0].initial.a, -1);
  EXPECT_EQ(infos[0].initial.b, 1);
  EXPECT_EQ(infos[2].name, "fire.w2");
  EXPECT_EQ(infos[2].shape, (std::vector<std::int64_t>{3, 16}));
  EXPECT_EQ(infos[2].initial.b, 0.25);
  EXPECT_EQ(infos[4].name, "fire.c");
  EXPECT_EQ(infos[4].initial.a, 0.1);
  EXPECT_EQ(infos[5].name, "fire.mu");
  EXPECT_EQ(infos[5].initial.a, 1);
}

TEST(Fire, RenumberingChangesItPastTheThreshold) {
  BiasCase one("fire(hidden=5, length=16)");
  const at::Tensor before = one.answered().detach();
  one.pq = one.pq + 1000;
  one.pk = one.pk + 1000;
  one.refresh();
  EXPECT_GT(relative_error(one.answered(), before), 1e-3);
  EXPECT_NE(one.encoding->cache(0).note.find("absolute"), std::string::npos);
}

// cope
// -----------------------------------------------------------------------------------------------------------------

TEST(Cope, CountsGatesFromTheQueryBack) {
  const auto encoding = make_encoding("cope(length=3)", {.heads = 1, .head_dim = 2});
  const PlainParameters table = {{"cope.table", {0, 1, 10, 1, 20, 1}}};
  const double q[] = {1, 0};
  // Gates of one half: counts 2.5, 2, 1.5, 1, 0.5 from the oldest key to the query itself, at most 2.
  std::vector<double> logits(5, 0.0);
  encoding->define_row(logits, q, 0, 0, table);
  const double expected[] = {20, 20, 15, 10, 5};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(logits[i], expected[i], 1e-12);
  // Gates read the logits before the bias: closed gates count nothing.
  std::vector<double> closed = {-800, 800, -800};
  encoding->define_row(closed, q, 0, 0, table);
  EXPECT_EQ(closed, (std::vector<double>{-790, 810, -800}));
}

TEST(Cope, OneRowIsAConstant) {
  const auto encoding = make_encoding("cope(length=1)", {.heads = 1, .head_dim = 2});
  const double q[] = {1, 2};
  std::vector<double> logits = {0.5, -1};
  encoding->define_row(logits, q, 0, 0, {{"cope.table", {3, 4}}});
  EXPECT_EQ(logits, (std::vector<double>{11.5, 10}));
}

TEST(Cope, AnswerAndGradientEqualTheDefinition) {
  BiasCase one("cope(length=4)");
  at::Tensor visible = at::zeros({2, 4, 3, 5}, at::kDouble);
  for (std::int64_t i = 0; i < 3; ++i) visible.select(2, i).narrow(2, 0, i + 3).fill_(1);
  const at::Tensor logits = at::randn({2, 4, 3, 5}, at::kDouble), weight = at::randn({2, 4, 3, 5}, at::kDouble);
  const std::vector<BiasForm> forms = one.encoding->biases(one.question);
  ASSERT_EQ(forms.size(), 1u);
  const at::Tensor got = dense_bias(forms[0], one.pq, one.pk, logits, visible) * visible;
  const at::Tensor q = one.q.contiguous();
  const auto defined = [&](const PlainParameters& values) {
    at::Tensor all = at::zeros({2, 4, 3, 5}, at::kDouble);
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 4; ++h)
        for (std::int64_t i = 0; i < 3; ++i) {
          std::vector<double> row;
          for (std::int64_t j = 0; j < i + 3; ++j) row.push_back(logits.index({b, h, i, j}).item<double>());
          one.encoding->define_row(row, q.const_data_ptr<double>() + ((b * 4 + h) * 3 + i) * 6, h, 0, values);
          for (std::int64_t j = 0; j < i + 3; ++j)
            all.index({b, h, i, j}).fill_(row[static_cast<std::size_t>(j)] - logits.index({b, h, i, j}).item<double>());
        }
    return all;
  };
  EXPECT_LT(relative_error(got, defined(one.plain())), 1e-12);
  (got * weight).sum().backward();
  const at::Tensor gradient = one.parameters.at("cope.table").grad().contiguous().flatten();
  at::Tensor expected = at::empty_like(gradient);
  for (std::int64_t entry = 0; entry < gradient.numel(); ++entry) {
    PlainParameters up = one.plain(), down = one.plain();
    up["cope.table"][static_cast<std::size_t>(entry)] += 1e-5;
    down["cope.table"][static_cast<std::size_t>(entry)] -= 1e-5;
    expected[entry] = ((defined(up) - defined(down)) * weight).sum().item<double>() / 2e-5;
  }
  EXPECT_LT(relative_error(gradient, expected), 1e-6);
}

TEST(Cope, RefusesWhatItCannotCount) {
  BiasCase one("cope");
  one.question.causal = false;
  EXPECT_EQ(message_of([&] { one.encoding->biases(one.question); }),
            "cope counts the tokens between a key and a query that comes after it, so it needs causal attention");
  EXPECT_NE(one.encoding->cache(0).evict.find("cope counts every token"), std::string::npos);
  EXPECT_EQ(one.encoding->cache(0).shift, "exact");
  EXPECT_EQ(one.encoding->content().size(), 1u);
}

TEST(Cope, TableStartsAtZeroAndServesAllHeads) {
  const ParameterInfo info = make_encoding("cope", {.heads = 8, .head_dim = 16})->parameters(0).at(0);
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{64, 16}));
  EXPECT_EQ(info.initial.kind, Initial::Kind::Constant);
  EXPECT_EQ(info.initial.a, 0);
}

// txl
// ------------------------------------------------------------------------------------------------------------------

TEST(Txl, AddsItsVectorToTheQuery) {
  const BiasCase one("txl");
  EXPECT_TRUE(one.encoding->moves(one.question, Role::Key).empty());
  const std::vector<Move> moves = one.encoding->moves(one.question, Role::Query);
  ASSERT_EQ(moves.size(), 1u);
  const at::Tensor vector = std::get<AddedVector>(moves[0]).vector;
  EXPECT_TRUE(at::equal(vector, one.parameters.at("txl.u")));
  EXPECT_TRUE(vector.requires_grad());
  const at::Tensor product = at::matmul(one.q + vector.unsqueeze(1), one.k.repeat_interleave(2, 1).transpose(2, 3));
  EXPECT_LT(relative_error(product, one.defined_product(one.plain())), 1e-13);
}

TEST(Txl, FarPositionsKeepTheirDistances) {
  BiasCase one("txl", at::kFloat);
  const at::Tensor near = one.answered();
  one.pq = one.pq + 1e6;
  one.pk = one.pk + 1e6;
  one.refresh();
  EXPECT_LT(relative_error(one.answered(), near.detach()), 2e-6);
}

TEST(Txl, QueryGradientFlowsThroughTheDistanceTerm) {
  BiasCase one("txl");
  one.q.requires_grad_(true);
  one.refresh();
  const at::Tensor weight = at::randn({2, 4, 3, 5}, at::kDouble);
  (one.answered() * weight).sum().backward();
  const at::Tensor gradient = one.q.grad().contiguous().flatten();
  const PlainParameters values = one.plain();
  at::Tensor expected = at::empty_like(gradient);
  const at::Tensor start = one.q.detach().clone();
  for (std::int64_t entry = 0; entry < gradient.numel(); ++entry) {
    at::Tensor up = start.clone(), down = start.clone();
    up.view(-1)[entry] += 1e-5;
    down.view(-1)[entry] -= 1e-5;
    one.q = up;
    const at::Tensor above = one.defined(values);
    one.q = down;
    expected[entry] = ((above - one.defined(values)) * weight).sum().item<double>() / 2e-5;
  }
  EXPECT_LT(relative_error(gradient, expected), 1e-6);
}

TEST(Txl, StandsAloneAndNeedsAnEvenWidth) {
  EXPECT_THROW(make_encoding("rope + txl", {.heads = 2, .head_dim = 4}), UsageError);
  EXPECT_EQ(message_of([] { make_encoding("txl", {.heads = 2, .head_dim = 4, .width = 7}); }),
            "txl needs an even model width for its sines and cosines, found width 7");
  const auto infos = make_encoding("txl", {.heads = 4, .kv_heads = 2, .head_dim = 8, .width = 6})->parameters(0);
  ASSERT_EQ(infos.size(), 3u);
  EXPECT_EQ(infos[0].shape, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(infos[2].name, "txl.w");
  EXPECT_EQ(infos[2].shape, (std::vector<std::int64_t>{4, 8, 6}));
}

}  // namespace
}  // namespace torsor
