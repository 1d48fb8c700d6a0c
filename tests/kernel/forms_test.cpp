// Every bias form and factor of fused attention, forward and backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "tests/kernel/call.h"

namespace torsor::kernel {
namespace {

std::string test_name(const ::testing::TestParamInfo<Form>& info) {
  std::string name = name_of(info.param);
  name.erase(std::remove(name.begin(), name.end(), ' '), name.end());
  name[0] = static_cast<char>(std::toupper(name[0]));
  return name;
}

class EveryForm : public ::testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Fused, EveryForm, ::testing::ValuesIn(every_form), test_name);

class FormOfPositions : public ::testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Fused, FormOfPositions,
                         ::testing::Values(Form::DistanceLookup, Form::Slope, Form::Log, Form::Power, Form::Piecewise,
                                           Form::Gated),
                         test_name);

class FormWithFactor : public ::testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Fused, FormWithFactor,
                         ::testing::Values(Form::DistanceTable, Form::DistanceLookup, Form::Slope, Form::Log,
                                           Form::Power, Form::Piecewise, Form::Potential, Form::Gated, Form::Product),
                         test_name);

TEST_P(EveryForm, ForAllHeadsAndForSome) {
  for (const bool causal : {true, false})
    for (const Shape& shape :
         {Shape{1, 3, 1, 70, 333, 8, 8}, Shape{2, 3, 3, 65, 65, 12, 20}, Shape{1, 4, 2, 5, 67, 8, 8},
          Shape{1, 1, 1, 1, 1, 4, 4}, Shape{2, 2, 1, 1, 300, 8, 8}, Shape{1, 2, 2, 49, 20, 16, 16}}) {
      SCOPED_TRACE(::testing::Message() << describe(shape) << (causal ? ", causal" : ""));
      Problem p = draw(shape, causal);
      p.biases = {draw_bias(p, GetParam(), 0, shape.heads)};
      expect_both(p, incoming(p, true, causal));
      p.biases = {draw_bias(p, GetParam(), shape.heads - 1, shape.heads)};
      expect_both(p, incoming(p), Layout::Spaced);
    }
}

TEST_P(EveryForm, Masks) {
  for (const bool causal : {true, false})
    for (const std::int64_t window : {0, 9, 100}) {
      SCOPED_TRACE(::testing::Message() << "causal " << causal << ", window " << window);
      Problem p = draw({3, 2, 1, 65, 200, 8, 8}, causal);
      p.window = window;
      p.lengths = {200, 65, 3};
      p.biases = {draw_bias(p, GetParam(), 0, 2)};
      expect_both(p);
      p.lengths = {0, 150, 200};
      p.offsets = {3, 85, 20};
      divide_into_documents(p);
      p.biases = {draw_bias(p, GetParam(), 0, 2), draw_bias(p, GetParam(), 1, 2, {}, 3, 9)};
      expect_both(p, incoming(p), Layout::TokensFirst);
    }
}

TEST_P(EveryForm, WhatABatchShares) {
  Problem p = draw({3, 4, 2, 30, 70, 16, 16});
  for (const Layout layout : {Layout::HeadsFirst, Layout::TokensFirst}) {
    p.biases = {draw_bias(p, GetParam(), 1, 4, {}, 5, 2, true)};
    expect_both(p, incoming(p), layout);
  }
}

TEST_P(FormOfPositions, AnyPositions) {
  using Kind = Places::Kind;
  const std::vector<Places> all = {
      {Kind::Steps, 1e5, 1},  {Kind::Steps, 1e6 + 0.5, 0.5}, {Kind::Steps, -20.25, 0.25}, {Kind::Gaps, 1e6, 1},
      {Kind::Gaps, 0.5, 0.5}, {Kind::Shuffled, 0, 1},        {Kind::Shuffled, 1e6, 0.5}};
  for (const Places& places : all)
    for (const bool causal : {true, false}) {
      SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(places.kind) << ", start " << places.start
                                        << ", step " << places.step << (causal ? ", causal" : ""));
      Problem p = draw({2, 2, 1, 50, 100, 8, 8}, causal);
      p.lengths = {100, 70};
      p.biases = {draw_bias(p, GetParam(), 0, 2, places)};
      expect_both(p);
    }
}

TEST_P(EveryForm, BFloat16) {
  Problem p = draw({2, 4, 2, 65, 150, 32, 32});
  make_half(p);
  p.lengths = {150, 100};
  carry(p, 6, 2);
  p.biases = {draw_bias(p, GetParam(), 1, 4)};
  expect_both(p);
}

TEST_P(FormWithFactor, EveryFactor) {
  for (const Factor::Kind kind : {Factor::Kind::Tag, Factor::Kind::Tanh, Factor::Kind::Exp})
    for (const bool groups : {false, true})
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(::testing::Message() << name_of(kind) << (groups ? ", groups" : "") << (causal ? ", causal" : ""));
        Problem p = draw({2, 3, 1, 49, 90, 8, 8}, causal);
        p.lengths = {90, 71};
        p.biases = {draw_bias(p, GetParam(), 1, 3)};
        draw_factor(p, p.biases[0], kind, causal ? 5 : 1, groups);
        expect_both(p, incoming(p), causal ? Layout::HeadsFirst : Layout::Spaced);
      }
}

// ---------------------------------------------------------------------------------------------------------------------
// All together

TEST(FusedForms, AllTogether) {
  for (const bool causal : {true, false})
    for (const Layout layout : every_layout) {
      if (layout == Layout::TokensFirst && !causal) continue;
      SCOPED_TRACE(::testing::Message() << name_of(layout) << (causal ? ", causal" : ""));
      Problem p = draw({2, 6, 2, 50, 133, 16, 24}, causal);
      p.lengths = {133, 90};
      add_every_form(p);
      draw_factor(p, p.biases[0], Factor::Kind::Exp, 4, false);
      draw_factor(p, p.biases[2], Factor::Kind::Tag, 3, true);
      draw_factor(p, p.biases[9], Factor::Kind::Tanh, 7, true);
      carry(p, 9, 3);
      scale_queries(p);
      expect_both(p, incoming(p), layout);
      if (layout != Layout::HeadsFirst) continue;
      divide_into_documents(p);
      p.window = 50;
      expect_both(p);
    }
  Problem p = draw({1, 3, 1, 50, 600, 8, 8});
  add_every_form(p);
  expect_both(p);
}

TEST(FusedForms, TheSameFormTwice) {
  Problem p = draw({1, 3, 1, 60, 130, 16, 16});
  for (const Form form : every_form) {
    p.biases = {draw_bias(p, form, 0, 2, {}, 4, 1), draw_bias(p, form, 1, 3, {}, 7, 2)};
    SCOPED_TRACE(name_of(form));
    expect_both(p);
  }
}

TEST(FusedForms, AtThousandsOfKeys) {
  for (const Form form : every_form) {
    SCOPED_TRACE(name_of(form));
    Problem p = draw({1, 1, 1, 20, 2500, 16, 16});
    p.biases = {draw_bias(p, form, 0, 1)};
    expect_both(p);
  }
}

TEST(FusedForms, LargeBiases) {
  for (const Form form : every_form) {
    SCOPED_TRACE(name_of(form));
    Problem p = draw({1, 2, 1, 65, 180, 8, 8});
    p.biases = {draw_bias(p, form, 0, 2)};
    Parameters& is = p.biases[0].is;
    for (Tensor* size : {&is.table, &is.slope, &is.level, &is.r1, &is.alpha})
      for (double& value : size->data) value *= 16;
    if (form == Form::Gated || form == Form::Product || form == Form::Potential)
      for (double& value : is.query.data) value *= form == Form::Potential ? 1 : 8;
    expect_both(p);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// What is particular to one form

TEST(FusedForms, ATableServesRowsThatStartAtAnyDistance) {
  Problem p = draw({3, 2, 1, 40, 90, 16, 16});
  p.biases = {draw_bias(p, Form::DistanceTable, 0, 2)};
  BiasNumbers& bias = p.biases[0];
  Random random(9);
  bias.first_distance = {1000000, -7, 50};
  // Only what the longest row needs is there; the others read inside it.
  bias.first_distance = {1000000, 1000013, 999950};
  bias.most = 1000013 + 39;
  bias.is.table = normal(random, {1, 2, 1, bias.most - (999950 - 89) + 1});
  expect_both(p);
  bias.first_distance = {-7, -100, 3};
  bias.most = 3 + 39;
  bias.is.table = normal(random, {1, 2, 1, bias.most - (-100 - 89) + 1});
  expect_both(p);
}

TEST(FusedForms, ALookupRoundsHalvesToEvenAndReadsItsEndsForWhatLiesOutside) {
  Problem p = draw({1, 1, 1, 8, 20, 8, 8});
  p.biases = {draw_bias(p, Form::DistanceLookup, 0, 1, {Places::Kind::Steps, 0, 0.5})};
  expect_both(p);
  // Distances from 6 to 19, half of them halves.
  for (std::int64_t j = 0; j < 20; ++j) p.biases[0].key_positions(0, 0, j, 0) = -0.5 * static_cast<double>(j);
  Random random(3);
  p.biases[0].most = 19;
  p.biases[0].is.table = normal(random, {1, 1, 1, 14});
  expect_both(p);
  // A shorter table serves what lies in front of it and behind it with its ends, however far that is.
  p.biases[0].most = 15;
  p.biases[0].is.table = normal(random, {1, 1, 1, 6});
  expect_both(p);
  for (std::int64_t j = 0; j < 20; j += 3) p.biases[0].key_positions(0, 0, j, 0) = j % 2 ? 1e12 : -1e12;
  expect_both(p);
  p.lengths = {15};
  p.offsets = {12};
  for (std::int64_t j = 15; j < 20; ++j) p.biases[0].key_positions(0, 0, j, 0) = j % 2 ? 1e12 : -1e12;
  expect_both(p);
}

TEST(FusedForms, AGateOfOneSide) {
  for (const Places::Kind kind : {Places::Kind::Steps, Places::Kind::Shuffled})
    for (const bool query : {true, false})
      for (const bool causal : {true, false}) {
        Problem p = draw({2, 3, 1, 65, 130, 16, 16}, causal);
        p.biases = {draw_bias(p, Form::Gated, 1, 3, {kind, 1e5, 0.5})};
        (query ? p.biases[0].is.key : p.biases[0].is.query) = {};
        expect_both(p);
      }
}

TEST(FusedForms, APotentialFarFromZero) {
  Problem p = draw({1, 2, 1, 65, 300, 16, 16});
  p.biases = {draw_bias(p, Form::Potential, 0, 2)};
  for (Tensor* sums : {&p.biases[0].is.query, &p.biases[0].is.key})
    for (double& sum : sums->data) sum -= 1e7;
  expect_both(p);
}

/// What is near is told apart however far away the numbers begin, and however far the first keys are.
TEST(FusedForms, NearTokensKeepTheirFractions) {
  for (const Form form : {Form::Slope, Form::Gated, Form::Potential, Form::Log, Form::Power})
    for (const double start : {0.0, 1e6}) {
      SCOPED_TRACE(::testing::Message() << name_of(form) << " from " << start);
      Problem p = draw({1, 2, 1, 65, 250, 16, 16});
      p.window = 10;  // so that the logits stay small
      p.biases = {draw_bias(p, form, 0, 2, {Places::Kind::Steps, start, 1 / 3.0})};
      Parameters& is = p.biases[0].is;
      for (double& value : is.slope.data) value = 1.25;
      for (double& value : is.r1.data) value = 1.25;
      if (form == Form::Gated)
        for (Tensor* rate : {&is.query, &is.key})
          for (double& value : rate->data) value = 0.625;
      if (form == Form::Potential)
        for (Tensor* sums : {&is.query, &is.key})
          for (double& sum : sums->data) sum = start + 64 * sum;
      expect_both(p);
    }
}

TEST(FusedForms, PathsOfAnyWidth) {
  for (const std::int64_t width : {1, 2, 3, 8, 16, 40})
    for (const bool documents : {false, true})
      for (const bool causal : {true, false}) {
        SCOPED_TRACE(::testing::Message() << width << (documents ? ", documents" : "") << (causal ? ", causal" : ""));
        Problem p = draw({2, 2, 1, 50, 150, 8, 8}, causal);
        p.lengths = {150, 77};
        if (documents) divide_into_documents(p);
        p.biases = {draw_bias(p, Form::Path, 0, 2, {}, width)};
        expect_both(p);
      }
}

TEST(FusedForms, PathsWithSlopesOfTheUsualSize) {
  Problem p = draw({1, 2, 1, 90, 1100, 16, 16});
  p.biases = {draw_bias(p, Form::Path, 0, 2)};
  p.biases[0].is.alpha.data = {0.5, 0.0625};
  expect_both(p);
  for (double& value : p.biases[0].is.query.data) value *= 6;  // ln sigmoid far from its middle
  round_to_float(p.biases[0].is.query);
  expect_both(p);
}

TEST(FusedForms, PiecesOfAnyNumber) {
  for (const Places& places : {Places{Places::Kind::Steps, 40, 1}, Places{Places::Kind::Gaps, 0.5, 0.5}})
    for (const double c : {0.37, -0.37, 0.0, 25.0})
      for (const std::int64_t pieces : {1, 2, 9}) {
        SCOPED_TRACE(::testing::Message() << "c " << c << ", " << pieces << " pieces, step " << places.step);
        Problem p = draw({2, 3, 1, 33, 90, 8, 8}, pieces != 2);
        p.biases = {draw_bias(p, Form::Piecewise, 1, 3, places)};
        BiasNumbers& bias = p.biases[0];
        Random random(6);
        bias.is.c.data[0] = c;
        bias.breaks.clear();
        // The first break is where every u lies when c is 0: it belongs to the piece in front.
        for (std::int64_t n = 0; n + 1 < pieces; ++n)
          bias.breaks.push_back(c == 0 && n == 0 ? 0 : 0.02 + 0.113 * static_cast<double>(n));
        bias.is.slope = normal(random, {1, 2, 1, pieces});
        bias.is.level = normal(random, {1, 2, 1, pieces});
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t n = 1; n < pieces; ++n)
            bias.is.level(0, h, 0, n) =
                bias.is.level(0, h, 0, n - 1) + (bias.is.slope(0, h, 0, n - 1) - bias.is.slope(0, h, 0, n)) *
                                                    bias.breaks[static_cast<std::size_t>(n - 1)];
        EXPECT_EQ(bias.first_distance.empty(), places.step != 1);
        expect_both(p);
        bias.first_distance.clear();  // and without what is known about the steps
        expect_both(p);
      }
}

TEST(FusedForms, CurvesAtZeroAndWithoutSlope) {
  for (const Form form : {Form::Log, Form::Power}) {
    SCOPED_TRACE(name_of(form));
    Problem p = draw({1, 3, 1, 40, 40, 16, 16}, false);
    p.biases = {draw_bias(p, form, 0, 3)};
    p.biases[0].is.r2.data = {0, 1, 2};
    p.biases[0].is.r1.data = {1.5, 0, form == Form::Log ? 0.5 : 0.0009765625};
    expect_both(p);
  }
}

TEST(FusedForms, ProductsOfAnyWidthAndGroup) {
  for (const std::int64_t width : {1, 3, 64, 70})
    for (const std::int64_t group : {1, 2, 4}) {
      SCOPED_TRACE(::testing::Message() << "width " << width << ", group " << group);
      Problem p = draw({1, 6, 2, 33, 130, 8, 8}, group != 2);
      p.biases = {draw_bias(p, Form::Product, 2, 6, {}, width)};
      Random random(8);
      p.biases[0].is.key = normal(random, {1, 4 / group, 130, width}, 1, group);
      expect_both(p, incoming(p), group == 1 ? Layout::TokensFirst : Layout::Spaced);
    }
}

TEST(FusedForms, FactorsThatHeadsShare) {
  for (const Factor::Kind kind : {Factor::Kind::Tag, Factor::Kind::Tanh, Factor::Kind::Exp}) {
    SCOPED_TRACE(name_of(kind));
    Problem p = draw({2, 4, 2, 40, 130, 16, 16});
    p.biases = {draw_bias(p, Form::Slope, 1, 4), draw_bias(p, Form::Product, 0, 4)};
    for (BiasNumbers& bias : p.biases) {
      draw_factor(p, bias, kind, 6, true);
      Random random(8);
      bias.is.left = normal(random, {2, 1, 40, 6}, 0.5);
      if (kind != Factor::Kind::Tag) bias.is.right = normal(random, {1, 1, 130, 6});
    }
    expect_both(p);
  }
}

TEST(FusedForms, ExponentialsWithinTheUsualBound) {
  Problem p = draw({1, 2, 1, 60, 130, 16, 16});
  p.biases = {draw_bias(p, Form::Gated, 0, 2), draw_bias(p, Form::DistanceTable, 0, 2)};
  for (BiasNumbers& bias : p.biases) {
    draw_factor(p, bias, Factor::Kind::Exp, 5, false);
    bias.factor->bound = 2;
    for (double& value : bias.is.left.data) value *= 2;
  }
  expect_both(p);
}

TEST(FusedForms, FactorsWithoutTagsOrGroupsAreOne) {
  for (const Factor::Kind kind : {Factor::Kind::Tag, Factor::Kind::Tanh}) {
    Problem p = draw({1, 2, 1, 40, 130, 16, 16});
    p.biases = {draw_bias(p, Form::Slope, 0, 2)};
    const Problem plain = p;
    draw_factor(p, p.biases[0], kind, 4, true);
    FactorNumbers& factor = *p.biases[0].factor;
    if (kind == Factor::Kind::Tag) std::fill(factor.tags.begin(), factor.tags.end(), -1);
    std::fill(factor.query_groups.begin(), factor.query_groups.end(), kind == Factor::Kind::Tag ? 1 : -1);
    std::fill(factor.key_groups.begin(), factor.key_groups.end(), kind == Factor::Kind::Tag ? 1 : -1);
    expect_both(p);
    expect_result(plain, run_forward(p), define(plain));
  }
}

}  // namespace
}  // namespace torsor::kernel
