// The forward pass of fused attention without biases: shapes, masks, number types, how the work is cut.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/kernel/call.h"
#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

TEST(FusedForward, ShapesOfEveryKind) {
  const std::vector<Shape> shapes = {
      {1, 1, 1, 1, 1, 2, 1},      {2, 2, 2, 1, 1, 6, 2},         {1, 2, 1, 3, 3, 8, 8},
      {2, 4, 2, 17, 17, 32, 32},  {1, 2, 1, 1, 300, 64, 64},     {1, 6, 2, 49, 49, 72, 72},
      {2, 1, 1, 5, 70, 16, 24},   {1, 1, 1, 130, 130, 128, 128}, {1, 2, 2, 97, 600, 40, 65},
      {3, 2, 1, 63, 257, 64, 48}, {1, 1, 1, 300, 700, 32, 32},   {1, 2, 1, 33, 65, 1, 3},
      {1, 1, 1, 65, 129, 13, 97}, {1, 8, 1, 4, 90, 16, 16},      {1, 1, 1, 50, 20, 16, 16}};
  std::size_t turn = 0;  // the layouts take turns
  for (const Shape& shape : shapes)
    for (const bool causal : {true, false}) {
      const Layout layout = every_layout[turn++ % every_layout.size()];
      SCOPED_TRACE(::testing::Message() << describe(shape) << (causal ? ", causal, " : ", ") << name_of(layout));
      expect_forward(draw(shape, causal, 3), layout);
    }
}

TEST(FusedForward, Masks) {
  for (const bool causal : {true, false})
    for (const std::int64_t window : {0, 1, 7, 300}) {
      SCOPED_TRACE(::testing::Message() << "causal " << causal << ", window " << window);
      Problem p = draw({3, 2, 1, 65, 400, 16, 16}, causal);
      p.window = window;
      p.lengths = {400, 65, 3};  // the last row has fewer keys than queries
      expect_forward(p);
      p.offsets = {10, 0, 0};  // queries in the middle of what is there
      expect_forward(p);
      p.offsets = {500, 330, 20};  // and behind its end
      expect_forward(p);
      p.offsets.clear();
      p.lengths = {0, 1, 400};
      expect_forward(p);
    }
}

TEST(FusedForward, Documents) {
  for (const bool causal : {true, false})
    for (const std::int64_t window : {0, 30}) {
      Problem p = draw({2, 2, 2, 200, 300, 16, 16}, causal);
      p.window = window;
      divide_into_documents(p);
      expect_forward(p);
    }
}

TEST(FusedForward, WhatABatchShares) {
  Problem p = draw({3, 4, 2, 20, 70, 16, 16});
  Random random(3);
  p.k = normal(random, {1, 2, 70, 16}, 1, 2);
  p.v = normal(random, {1, 2, 70, 16}, 1, 2);
  expect_forward(p);
  p.q = normal(random, {1, 4, 20, 16});
  p.lengths = {70, 30, 20};
  for (const Layout layout : every_layout) expect_forward(p, layout);
  p.k = normal(random, {1, 1, 70, 16}, 1, 4);  // one key head's numbers, whatever the number of key heads
  expect_forward(p);
}

TEST(FusedForward, ThousandsOfKeys) {
  expect_forward(draw({1, 1, 1, 21, 4096, 128, 128}));
  expect_forward(draw({1, 1, 1, 61, 2049, 32, 32}, false));
}

TEST(FusedForward, LargeLogits) {
  Problem p = draw({1, 2, 1, 70, 300, 32, 32});
  p.scale = 4;
  expect_forward(p);
  scale_queries(p);
  expect_forward(p);
}

TEST(FusedForward, QueryScales) {
  Problem p = draw({2, 3, 1, 70, 130, 16, 16});
  scale_queries(p);
  expect_forward(p);
}

TEST(FusedForward, QueriesOfZeros) {
  Problem p = draw({1, 2, 1, 50, 70, 16, 16});
  std::fill(p.q.data.begin(), p.q.data.end(), 0);
  expect_forward(p);  // plain means
}

TEST(FusedForward, BFloat16) {
  const std::vector<Shape> shapes = {{1, 1, 1, 1, 1, 2, 1},     {2, 4, 2, 17, 17, 32, 32},   {1, 2, 1, 1, 300, 64, 64},
                                     {1, 6, 2, 49, 49, 72, 72}, {1, 2, 2, 97, 600, 40, 65},  {1, 1, 1, 65, 129, 13, 97},
                                     {1, 2, 1, 33, 65, 1, 3},   {1, 1, 1, 90, 300, 128, 128}};
  std::size_t turn = 0;  // the layouts take turns
  for (const Shape& shape : shapes)
    for (const bool causal : {true, false}) {
      const Layout layout = every_layout[turn++ % every_layout.size()];
      SCOPED_TRACE(::testing::Message() << describe(shape) << (causal ? ", causal, " : ", ") << name_of(layout));
      Problem p = draw(shape, causal, 3);
      make_half(p);
      if (causal) scale_queries(p);
      expect_forward(p, layout);
    }
  Problem p = draw({3, 2, 1, 65, 400, 16, 16});
  make_half(p);
  p.lengths = {400, 65, 3};
  p.window = 70;
  divide_into_documents(p);
  expect_forward(p);
  p = draw({1, 1, 1, 10, 4096, 64, 64});
  make_half(p);
  expect_forward(p);
}

TEST(FusedForward, AQueryInFloat32ReadsKeysInBFloat16) {
  const std::vector<Shape> shapes = {
      {1, 1, 1, 1, 1, 2, 1},      {2, 4, 2, 1, 17, 32, 32},     {1, 8, 2, 1, 1300, 64, 64},
      {1, 6, 2, 3, 649, 72, 72},  {1, 2, 2, 4, 600, 40, 65},    {1, 1, 1, 65, 129, 13, 97},
      {2, 2, 1, 33, 700, 64, 32}, {1, 1, 1, 90, 300, 128, 128}, {1, 4, 4, 1, 555, 128, 128}};
  std::size_t turn = 0;  // the layouts take turns
  for (const Shape& shape : shapes) {
    const Layout layout = every_layout[turn++ % every_layout.size()];
    SCOPED_TRACE(::testing::Message() << describe(shape) << name_of(layout));
    Problem p = draw(shape, true, 4);
    make_half_cache(p);
    expect_forward(p, layout);
  }
  // Far keys are left out where a bias falls, and what is not a number stays with those who see it.
  for (const std::int64_t queries : {1, 40}) {
    Problem p = draw({2, 2, 1, queries, 1500, 64, 64});
    make_half_cache(p);
    p.lengths = {1500, 700};
    p.window = 900;
    expect_forward(p);
  }
}

TEST(FusedForward, TheLseIsOptional) {
  const Problem p = draw({1, 2, 1, 50, 70, 16, 16});
  testing::on_every_target([&] {
    const Result with = run_forward(p), without = run_forward(p, {}, Layout::HeadsFirst, false);
    EXPECT_EQ(with.out.data, without.out.data);
    for (const double value : without.lse.data) EXPECT_EQ(value, 7);  // as it was
  });
}

TEST(FusedForward, ThreadsDoNotChangeTheBits) {
  Problem p = draw({2, 3, 3, 100, 150, 8, 8});
  add_every_form(p);
  carry(p, 5, 1);
  for (const bool half : {false, true}) {
    if (half) make_half(p);
    testing::on_every_target([&] {
      const Result one = run_forward(p);
      for (const std::int64_t threads : {2, 3, 16}) expect_same(one, run_forward(p, workers(threads)));
      expect_same(one, run_forward(p, side_by_side(3)));
      expect_same(one, run_forward(p, alone(4)));
    });
  }
}

TEST(FusedForward, EmptyExtents) {
  for (const bool half : {false, true})
    testing::on_every_target([&] {
      Problem p = draw({1, 2, 1, 3, 0, 8, 8});
      carry(p, 4, 1);
      p.half = half;
      const Result found = run_forward(p);
      for (const double value : found.out.data) EXPECT_EQ(value, 0);
      for (const double value : found.averages.data) EXPECT_EQ(value, 0);
      for (const double value : found.lse.data) EXPECT_EQ(value, -std::numeric_limits<double>::infinity());
      p = draw({1, 2, 1, 0, 5, 8, 8});
      p.half = half;
      EXPECT_TRUE(run_forward(p).out.empty());
      p = draw({0, 2, 1, 3, 5, 8, 8});
      p.half = half;
      EXPECT_TRUE(run_forward(p, workers(4)).out.empty());
    });
}

// ---------------------------------------------------------------------------------------------------------------------
// Decode: few queries, many keys. There the keys may be cut among the threads, and still nobody can tell how many.

void expect_decode(const Problem& p) {
  const Result expected = define(p);
  testing::on_every_target([&] {
    const Result found = run_forward(p);
    expect_result(p, found, expected);
    for (const Run& run : {workers(2), workers(16), side_by_side(7), alone(3)}) {
      SCOPED_TRACE(::testing::Message() << run.threads << " threads");
      expect_same(found, run_forward(p, run));
    }
  });
}

TEST(FusedDecode, FewQueriesManyKeys) {
  for (const std::int64_t queries : {1, 2, 3, 4})
    for (const std::int64_t keys : {7, 511, queries == 2 ? 5000 : 1200}) {
      SCOPED_TRACE(::testing::Message() << queries << " queries, " << keys << " keys");
      Problem p = draw({1, 2, 1, queries, keys, 24, 24});
      expect_decode(p);
      make_half(p);
      expect_decode(p);
    }
}

TEST(FusedDecode, RowsOfManyLengths) {
  for (const bool causal : {true, false})
    for (const std::int64_t window : {0, 100}) {
      Problem p = draw({4, 2, 2, 2, 1500, 8, 12}, causal);
      p.lengths = {1500, 1, 0, 777};
      p.window = window;
      carry(p, 6, 2);
      expect_decode(p);
      divide_into_documents(p);
      expect_decode(p);
    }
}

TEST(FusedDecode, GroupsOfHeads) {
  for (const auto& [heads, key_heads] : {std::pair{8, 1}, std::pair{6, 2}, std::pair{3, 3}, std::pair{20, 1}})
    for (const std::int64_t queries : {1, 3, 4}) {
      SCOPED_TRACE(::testing::Message() << heads << "/" << key_heads << " heads, " << queries << " queries");
      Problem p = draw({2, heads, key_heads, queries, 290, 8, 5}, queries != 3);
      p.lengths = {290, 31};
      carry(p, 3, queries == 1 ? 1 : heads);
      scale_queries(p);
      // Ranges that begin and end inside a group.
      p.biases = {draw_bias(p, Form::Slope, 1, heads - 1), draw_bias(p, Form::Path, 0, heads / 2 + 1),
                  draw_bias(p, Form::DistanceTable, heads - 1, heads), draw_bias(p, Form::Product, heads / 3, heads)};
      if (queries == 3) make_half(p);
      expect_decode(p);
    }
}

TEST(FusedDecode, EveryForm) {
  for (const Form form : every_form) {
    SCOPED_TRACE(name_of(form));
    Problem p = draw({1, 2, 1, 2, 3001, 8, 8});
    p.biases = {draw_bias(p, form, 0, 2)};
    if (form == Form::Slope) draw_factor(p, p.biases[0], Factor::Kind::Exp, 5, true);
    expect_decode(p);
  }
  Problem p = draw({2, 3, 1, 3, 1500, 8, 8});
  p.lengths = {1500, 800};
  add_every_form(p);
  carry(p, 16, 3);
  expect_decode(p);
  divide_into_documents(p);
  expect_decode(p);
}

}  // namespace
}  // namespace torsor::kernel
