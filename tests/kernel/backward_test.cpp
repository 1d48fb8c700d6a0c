// The gradients of fused attention without biases, and of all of them together where the work is cut.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernel/call.h"
#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

TEST(FusedBackward, ShapesOfEveryKind) {
  const std::vector<Shape> shapes = {
      {1, 1, 1, 1, 1, 2, 1},       {1, 1, 1, 2, 3, 2, 1},    {2, 4, 2, 17, 17, 32, 32},     {1, 2, 1, 1, 300, 64, 64},
      {1, 6, 2, 49, 49, 72, 72},   {2, 1, 1, 5, 70, 16, 24}, {1, 1, 1, 130, 130, 128, 128}, {1, 2, 2, 97, 600, 40, 65},
      {1, 1, 1, 150, 300, 64, 64}, {1, 2, 1, 33, 65, 1, 3},  {1, 1, 1, 65, 129, 13, 97},    {1, 1, 1, 50, 20, 16, 16}};
  std::size_t turn = 0;  // the layouts take turns
  for (const Shape& shape : shapes)
    for (const bool causal : {true, false}) {
      const Layout layout = every_layout[turn++ % every_layout.size()];
      SCOPED_TRACE(::testing::Message() << describe(shape) << (causal ? ", causal, " : ", ") << name_of(layout));
      const Problem p = draw(shape, causal, 3);
      expect_both(p, incoming(p, true, turn % 4 < 2), layout);
    }
}

TEST(FusedBackward, MasksAndDocuments) {
  for (const bool causal : {true, false})
    for (const std::int64_t window : {0, 1, 7}) {
      SCOPED_TRACE(::testing::Message() << "causal " << causal << ", window " << window);
      Problem p = draw({3, 2, 1, 65, 200, 16, 16}, causal);
      p.window = window;
      p.lengths = {200, 65, 3};
      expect_both(p);
      p.offsets = {10, 0, 0};
      expect_both(p);
      p.offsets.clear();
      p.lengths = {0, 1, 200};
      divide_into_documents(p);
      expect_both(p);
    }
}

TEST(FusedBackward, WhatABatchShares) {
  Problem p = draw({3, 4, 2, 20, 70, 16, 16});
  Random random(3);
  p.q = normal(random, {1, 4, 20, 16});
  p.k = normal(random, {1, 2, 70, 16}, 1, 2);
  p.v = normal(random, {1, 1, 70, 16}, 1, 4);
  p.lengths = {70, 30, 20};
  expect_both(p);
  expect_both(p, incoming(p), Layout::TokensFirst);
}

TEST(FusedBackward, GradientsOfAnyOfTheResults) {
  Problem p = draw({1, 4, 2, 50, 90, 16, 16});
  carry(p, 5, 2);
  p.biases = {draw_bias(p, Form::Slope, 0, 4), draw_bias(p, Form::Path, 1, 3)};
  for (int which = 0; which < 8; ++which) {
    SCOPED_TRACE(which);
    expect_both(p, incoming(p, which & 1, which & 2, which & 4));
  }
}

TEST(FusedBackward, ThousandsOfKeys) {
  expect_both(draw({1, 1, 1, 60, 2048, 64, 64}));
  expect_both(draw({1, 1, 1, 17, 4096, 128, 128}));
}

TEST(FusedBackward, QueryScalesAndLargeLogits) {
  Problem p = draw({2, 3, 1, 70, 130, 16, 16});
  scale_queries(p);
  expect_both(p);
  p.scale = 4;
  expect_both(p);
}

TEST(FusedBackward, QueriesOfZeros) {
  Problem p = draw({1, 2, 1, 50, 70, 16, 16});
  std::fill(p.q.data.begin(), p.q.data.end(), 0);
  expect_both(p);
}

TEST(FusedBackward, BFloat16) {
  const std::vector<Shape> shapes = {{2, 4, 2, 17, 17, 32, 32},  {1, 2, 1, 1, 300, 64, 64},
                                     {1, 6, 2, 49, 49, 72, 72},  {1, 2, 2, 97, 600, 40, 65},
                                     {1, 1, 1, 65, 129, 13, 97}, {1, 1, 1, 90, 150, 128, 128}};
  for (const Shape& shape : shapes)
    for (const bool causal : {true, false}) {
      SCOPED_TRACE(::testing::Message() << describe(shape) << (causal ? ", causal" : ""));
      Problem p = draw(shape, causal, 3);
      make_half(p);
      expect_both(p, incoming(p, true, causal), causal ? Layout::Spaced : Layout::TokensFirst);
    }
  Problem p = draw({3, 2, 1, 65, 300, 16, 16});
  make_half(p);
  p.lengths = {300, 65, 3};
  p.window = 70;
  divide_into_documents(p);
  scale_queries(p);
  expect_both(p);
}

Problem everything(const Shape& shape) {
  Problem p = draw(shape);
  add_every_form(p);
  draw_factor(p, p.biases[0], Factor::Kind::Tag, 3, true);
  draw_factor(p, p.biases[2], Factor::Kind::Exp, 3, false);
  carry(p, 5, shape.heads);
  scale_queries(p);
  return p;
}

TEST(FusedBackward, AnyNumberOfThreadsIsCloseAndOneNumberGivesOneResult) {
  for (const Shape& shape : {Shape{1, 3, 1, 150, 150, 8, 8}, Shape{2, 2, 2, 50, 130, 8, 8}}) {
    Problem p = everything(shape);
    const Incoming in = incoming(p);
    for (const bool half : {false, true}) {
      if (half) make_half(p);
      const Result expected = define(p);
      const Defined gradients = define_gradients(p, in);
      for (const std::int64_t threads : {1, 2, 5, 16}) {
        SCOPED_TRACE(::testing::Message() << threads << " threads");
        const Found once = run_backward(p, in, workers(threads));
        expect_gradients(p, once.gradients, gradients, expected.largest_logit);
        expect_same(once.gradients, run_backward(p, in, side_by_side(threads)).gradients);
        expect_same(once.gradients, run_backward(p, in, alone(threads)).gradients);
      }
    }
  }
}

TEST(FusedBackward, WhatNobodyAsksForIsLeftOut) {
  const Problem p = everything({1, 3, 1, 90, 90, 16, 16});
  const Incoming in = incoming(p);
  testing::on_every_target([&] {
    const Found all = run_backward(p, in);
    Asked none;
    none.biases = none.carried = false;
    const GradientNumbers bare = run_backward(p, in, {}, Layout::HeadsFirst, none).gradients;
    const auto expect_near = [](const Tensor& one, const Tensor& other) {
      ASSERT_EQ(one.data.size(), other.data.size());
      for (std::size_t n = 0; n < one.data.size(); ++n)
        EXPECT_NEAR(one.data[n], other.data[n], 1e-6 * (1 + std::abs(one.data[n]))) << n;
    };
    expect_near(all.gradients.q, bare.q);
    expect_near(all.gradients.k, bare.k);
    expect_near(all.gradients.v, bare.v);
    // Each alone gives what it gives in company.
    for (std::size_t m = 0; m < p.biases.size(); ++m)
      for (const Parameters::Name& name : Parameters::all()) {
        if ((p.biases[m].is.*name.member).empty()) continue;
        SCOPED_TRACE(::testing::Message() << name_of(p.biases[m].form) << " " << name.name);
        Asked one = none;
        one.biases = true;
        one.only_bias = m, one.only_number = name.member;
        const GradientNumbers found = run_backward(p, in, {}, Layout::HeadsFirst, one).gradients;
        expect_near(all.gradients.biases[m].*name.member, found.biases[m].*name.member);
      }
  });
}

TEST(FusedBackward, EmptyExtents) {
  for (const bool half : {false, true})
    testing::on_every_target([&] {
      Problem p = draw({1, 2, 1, 3, 0, 8, 8});
      p.half = half;
      for (const double value : run_backward(p, incoming(p)).gradients.q.data) EXPECT_EQ(value, 0);
      p = draw({1, 2, 1, 0, 5, 8, 8});
      carry(p, 3, 1);
      p.half = half;
      p.biases = {draw_bias(p, Form::Slope, 0, 2), draw_bias(p, Form::Potential, 0, 2), draw_bias(p, Form::Path, 0, 2)};
      const GradientNumbers found = run_backward(p, incoming(p)).gradients;
      for (const Tensor* zero : {&found.k, &found.v, &found.carried, &found.biases[0].slope, &found.biases[1].key,
                                 &found.biases[2].key, &found.biases[2].alpha}) {
        EXPECT_FALSE(zero->empty());
        for (const double value : zero->data) EXPECT_EQ(value, 0);
      }
      p = draw({0, 2, 1, 3, 5, 8, 8});
      p.half = half;
      EXPECT_TRUE(run_backward(p, incoming(p), workers(4)).gradients.q.empty());
    });
}

}  // namespace
}  // namespace torsor::kernel
