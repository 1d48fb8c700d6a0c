// The definition's own gradients against central differences of it, number by number.
#include "tests/kernel/definition.h"

#include <gtest/gtest.h>

#include <cmath>

namespace torsor::kernel {
namespace {

double objective(const Problem& p, const Incoming& in) {
  const Result result = define(p);
  double sum = 0;
  const auto add = [&](const Tensor& slopes, const Tensor& values) {
    for (std::size_t n = 0; n < slopes.data.size(); ++n)
      if (std::isfinite(values.data[n])) sum += slopes.data[n] * values.data[n];  // lse of a row that sees nothing
  };
  add(in.dout, result.out), add(in.dlse, result.lse), add(in.daverages, result.averages);
  return sum;
}

/// The gradient of `number` as it lies in the problem, from those of all that share it.
Tensor gathered(const Tensor& number, const Tensor& gradient) {
  Tensor sum = number;
  std::fill(sum.data.begin(), sum.data.end(), 0);
  const auto [batch, heads, tokens, width] = gradient.extent;
  // k and v have a gradient a key head, all else one a query head.
  const std::int64_t step = number.extent[1] * number.group / heads;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t c = 0; c < width; ++c) sum(b, h * step, t, c) += gradient(b, h, t, c);
  return sum;
}

void check(const char* name, Problem& p, const Incoming& in, Tensor& number, const Tensor& gradient) {
  if (number.empty()) return;
  const Tensor expected = gathered(number, gradient);
  for (std::size_t n = 0; n < number.data.size(); ++n) {
    const double was = number.data[n], step = 1e-4 * std::min(1.0, std::abs(was) + 0.01);
    const auto at = [&](double steps) {
      number.data[n] = was + steps * step;
      return objective(p, in);
    };
    const double slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step);
    number.data[n] = was;
    EXPECT_NEAR(expected.data[n], slope, 1e-8 * (1 + std::abs(slope))) << name << " " << n;
  }
}

void check_biases(Problem p) {
  const Incoming in = incoming(p);
  const GradientNumbers gradients = define_gradients(p, in).sums;
  for (std::size_t m = 0; m < p.biases.size(); ++m)
    for (const Parameters::Name& one : Parameters::all())
      check(one.name, p, in, p.biases[m].is.*one.member, gradients.biases[m].*one.member);
}

void check_all(Problem p) {
  const Incoming in = incoming(p);
  const GradientNumbers gradients = define_gradients(p, in).sums;
  check("q", p, in, p.q, gradients.q);
  check("k", p, in, p.k, gradients.k);
  check("v", p, in, p.v, gradients.v);
  check("carried", p, in, p.carried, gradients.carried);
  check_biases(p);
}

Problem small() {
  Problem p = draw({2, 4, 2, 3, 6, 3, 2});
  p.lengths = {6, 4};
  carry(p, 2, 2);
  scale_queries(p);
  return p;
}

TEST(AttentionDefinition, GradientsOfEveryForm) {
  for (const Form form : every_form)
    for (const bool documents : {false, true}) {
      SCOPED_TRACE(::testing::Message() << name_of(form) << (documents ? ", documents" : ""));
      Problem p = small();
      if (documents) {
        p.causal = false;
        p.query_documents = {1, 1, -1, 0, 0, 1};
        p.key_documents = {1, 0, 1, -1, 1, 1, 0, 0, 1, 0, 0, 0};
      }
      Places places;
      if (form != Form::DistanceTable && documents) places = {Places::Kind::Gaps, 3.5, 0.5};
      p.biases = {draw_bias(p, form, 1, 4, places, 2)};
      check_all(p);
    }
}

TEST(AttentionDefinition, GradientsOfWhatIsShared) {
  for (const Form form : {Form::Gated, Form::Potential, Form::Product, Form::Path}) {
    SCOPED_TRACE(name_of(form));
    Problem p = small();
    p.biases = {draw_bias(p, form, 0, 4, {}, 2, 2, true)};
    if (form == Form::Product) {
      Random random(1);
      p.biases[0].is.key = normal(random, {1, 2, 6, 2}, 1, 2);
    }
    check_biases(p);
  }
}

TEST(AttentionDefinition, GradientsOfNegativeAndOneSidedForms) {
  Problem p = small();
  p.causal = false;
  p.biases = {draw_bias(p, Form::Piecewise, 0, 4)};
  p.biases[0].is.c.data[0] *= -1;
  check_biases(p);
  p.biases = {draw_bias(p, Form::Gated, 0, 4)};
  p.biases[0].is.query = {};
  check_biases(p);
  p.biases = {draw_bias(p, Form::Gated, 0, 4)};
  p.biases[0].is.key = {};
  check_biases(p);
}

TEST(AttentionDefinition, GradientsOfEveryFactor) {
  for (const Factor::Kind kind : {Factor::Kind::Tag, Factor::Kind::Tanh, Factor::Kind::Exp})
    for (const Form form : every_form) {
      if (form == Form::Path) continue;
      for (const bool groups : {false, true}) {
        if (!groups && form != Form::Slope) continue;  // the factor is the same for all
        SCOPED_TRACE(::testing::Message() << name_of(form) << " " << name_of(kind) << (groups ? ", groups" : ""));
        Problem p = small();
        p.biases = {draw_bias(p, form, 1, 4, {}, 2)};
        draw_factor(p, p.biases[0], kind, 3, groups);
        if (groups) p.biases[0].factor->query_groups = {0, 0, 1, 0, 1, 1};
        check_biases(p);
      }
    }
}

TEST(AttentionDefinition, ARowByHand) {
  Problem p = draw({1, 1, 1, 1, 3, 1, 1});
  p.q.data = {2}, p.k.data = {0.5, 1, -1}, p.v.data = {3, 5, 7};
  p.scale = 0.5;
  BiasNumbers slope;
  slope.form = Form::Slope;
  slope.last_head = 1;
  slope.is.slope = Tensor(1, 1, 1, 1);
  slope.is.slope.data = {0.25};
  slope.query_positions = Tensor(1, 1, 1, 1), slope.key_positions = Tensor(1, 1, 3, 1);
  slope.query_positions.data = {4}, slope.key_positions.data = {0, 2, 4};
  p.biases = {slope};
  const double a = std::exp(0.5 - 1), b = std::exp(1 - 0.5), c = std::exp(-1.0);
  const Result found = define(p);
  EXPECT_NEAR(found.lse.data[0], std::log(a + b + c), 1e-15);
  EXPECT_NEAR(found.out.data[0], (3 * a + 5 * b + 7 * c) / (a + b + c), 1e-15);
  EXPECT_NEAR(found.largest_logit, 1, 1e-15);

  // The path's edges behind the first key: ln sigmoid of 2 * key / 1, the query's own edge included.
  BiasNumbers path;
  path.form = Form::Path;
  path.last_head = 1;
  path.is.query = Tensor(1, 1, 1, 1), path.is.key = Tensor(1, 1, 3, 1), path.is.alpha = Tensor(1, 1, 1, 1);
  path.is.query.data = {2}, path.is.key.data = {9, 0.25, -0.5}, path.is.alpha.data = {0.5};
  path.query_positions = slope.query_positions, path.key_positions = slope.key_positions;
  p.biases = {path};
  const double one = -std::log1p(std::exp(-0.5)), two = -std::log1p(std::exp(1.0));
  const double x = std::exp(0.5 + 0.5 * (one + two)), y = std::exp(1 + 0.5 * two), z = std::exp(-1.0);
  EXPECT_NEAR(define(p).out.data[0], (3 * x + 5 * y + 7 * z) / (x + y + z), 1e-15);
}

}  // namespace
}  // namespace torsor::kernel
