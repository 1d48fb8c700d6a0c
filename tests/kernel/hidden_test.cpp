// What is not a number reaches the queries that see it and nobody else, and what is too far away stays a number.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernel/call.h"
#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// A row of the batch with padding, one without, and every kind of number to spoil.
Problem to_spoil(bool half) {
  Problem p = draw({2, 2, 1, 90, 90, 16, 16});
  p.lengths = {90, 80};  // row 1 has 80 keys for 90 queries: query i stands at i - 10
  carry(p, 16, 2);
  if (half) make_half(p);
  return p;
}

TEST(FusedHidden, ValuesReachOnlyWhoSeesThem) {
  for (const bool half : {false, true})
    for (const double bad : {nan, infinity, -infinity})
      testing::on_every_target([&] {
        Problem p = to_spoil(half);
        const Result good = run_forward(p);
        p.v(0, 0, 40, 3) = bad;        // one channel
        p.carried(0, 0, 50, 2) = bad;  // later, and another
        for (std::int64_t c = 0; c < 16; ++c)
          p.v(1, 0, 85, c) = p.k(1, 0, 84, c) = p.carried(1, 0, 86, c) = bad;  // behind the row's end
        const Result found = run_forward(p);
        EXPECT_EQ(found.lse.data, good.lse.data);
        for (std::int64_t b = 0; b < 2; ++b)
          for (std::int64_t h = 0; h < 2; ++h)
            for (std::int64_t i = 0; i < 90; ++i)
              for (std::int64_t c = 0; c < 16; ++c) {
                const bool value = b == 0 && i >= 40 && c == 3, carried = b == 0 && i >= 50 && c == 2;
                const auto check = [&](const Tensor& is, const Tensor& was, bool spoilt) {
                  ASSERT_EQ(std::isfinite(is(b, h, i, c)), !spoilt) << b << " " << h << " " << i << " " << c;
                  if (!spoilt) {
                    ASSERT_NEAR(is(b, h, i, c), was(b, h, i, c), half ? 0.02 : 1e-5);
                  }
                };
                check(found.out, good.out, value);
                check(found.averages, good.averages, carried);
              }
      });
}

TEST(FusedHidden, KeysAndQueriesReachOnlyTheirRows) {
  for (const bool half : {false, true})
    for (const double bad : {nan, infinity, -infinity})
      testing::on_every_target([&] {
        Problem p = to_spoil(half);
        const Result good = run_forward(p);
        p.k(1, 0, 50, 0) = bad;
        p.q(1, 1, 20, 0) = bad;
        const Result found = run_forward(p);
        for (std::int64_t b = 0; b < 2; ++b)
          for (std::int64_t h = 0; h < 2; ++h)
            for (std::int64_t i = 0; i < 90; ++i) {
              const bool spoilt = b == 1 && (i >= 60 || (h == 1 && i == 20));
              if (spoilt && std::isnan(bad)) {
                EXPECT_TRUE(std::isnan(found.lse(b, h, i, 0))) << h << " " << i;
                EXPECT_TRUE(std::isnan(found.out(b, h, i, 3))) << h << " " << i;
                EXPECT_TRUE(std::isnan(found.averages(b, h, i, 3))) << h << " " << i;
              } else if (!spoilt && b == 1 && i < 10) {
                EXPECT_EQ(found.lse(b, h, i, 0), -infinity);
              } else if (!spoilt) {
                ASSERT_NEAR(found.lse(b, h, i, 0), good.lse(b, h, i, 0), 1e-5) << b << " " << h << " " << i;
                ASSERT_NEAR(found.out(b, h, i, 3), good.out(b, h, i, 3), half ? 0.02 : 1e-5);
              }
            }
      });
}

/// A key, a value and a carried value that are not numbers, each seen by some queries, under every mask; few queries
/// too, which are decoded.
TEST(FusedHidden, EveryMaskKeepsThemFromWhoDoesNotSee) {
  for (const std::int64_t queries : {70, 4, 1})
    for (const bool half : {false, true})
      for (int way = 0; way < 16; ++way) {
        const int mask = way % 8, only = (way + way / 8) % 4;  // all three, or one of them
        SCOPED_TRACE(::testing::Message() << queries << " queries, way " << way << (half ? ", bf16" : ""));
        Problem p = draw({2, 2, 1, queries, 700, 8, 8}, mask & 1);
        p.lengths = {700, 333};
        p.window = mask & 2 ? 100 : 0;
        carry(p, 8, 2);
        if (half) make_half(p);
        if (mask & 4) divide_into_documents(p);
        struct Spoilt {
          Tensor* tensor;
          std::int64_t b, j;
        };
        const std::vector<Spoilt> all = {{&p.k, 0, 650},       {&p.k, 1, 320},       {&p.k, 1, 340},
                                         {&p.v, 0, 690},       {&p.v, 1, 270},       {&p.v, 0, 20},
                                         {&p.carried, 0, 661}, {&p.carried, 1, 331}, {&p.carried, 1, 600}};
        const std::array<Tensor*, 4> which = {nullptr, &p.k, &p.v, &p.carried};
        std::vector<Spoilt> spoilt;
        for (const Spoilt& one : all)
          if (only == 0 || one.tensor == which[static_cast<std::size_t>(only)]) spoilt.push_back(one);
        for (const Spoilt& one : spoilt) (*one.tensor)(one.b, 0, one.j, 5) = nan;
        const auto reached = [&](const Tensor& by, std::int64_t b, std::int64_t i) {
          return std::any_of(spoilt.begin(), spoilt.end(),
                             [&](const Spoilt& one) { return one.tensor == &by && one.b == b && p.sees(b, i, one.j); });
        };
        testing::on_every_target([&] {
          const Result found = run_forward(p);
          for (std::int64_t b = 0; b < 2; ++b)
            for (std::int64_t h = 0; h < 2; ++h)
              for (std::int64_t i = 0; i < queries; ++i) {
                const bool key = reached(p.k, b, i);
                ASSERT_EQ(std::isnan(found.lse(b, h, i, 0)), key) << b << " " << i;
                for (std::int64_t c = 0; c < 8; ++c) {
                  ASSERT_EQ(std::isnan(found.out(b, h, i, c)), key || (c == 5 && reached(p.v, b, i))) << b << " " << i;
                  ASSERT_EQ(std::isnan(found.averages(b, h, i, c)), key || (c == 5 && reached(p.carried, b, i)))
                      << b << " " << i;
                }
              }
        });
      }
}

TEST(FusedHidden, OtherDocumentsAndWindowsKeepThemOut) {
  testing::on_every_target([&] {
    Problem p = draw({1, 1, 1, 80, 80, 16, 16}, false);
    for (int t = 0; t < 80; ++t) p.query_documents.push_back(t / 20), p.key_documents.push_back(t / 20);
    for (std::int64_t c = 0; c < 16; ++c) p.v(0, 0, 30, c) = nan;
    Result found = run_forward(p);
    for (std::int64_t i = 0; i < 80; ++i) EXPECT_EQ(std::isnan(found.out(0, 0, i, 0)), i / 20 == 1) << i;
    p.query_documents.clear(), p.key_documents.clear();
    p.window = 5;
    p.k(0, 0, 30, 1) = nan;
    found = run_forward(p);
    for (std::int64_t i = 0; i < 80; ++i) EXPECT_EQ(std::isnan(found.lse(0, 0, i, 0)), i > 25 && i < 35) << i;
  });
}

TEST(FusedHidden, BiasesReachTheirHeads) {
  for (const Form form : every_form) {
    SCOPED_TRACE(name_of(form));
    Problem p = draw({1, 3, 1, 40, 40, 8, 8});
    p.biases = {draw_bias(p, form, 1, 2)};
    Parameters& is = p.biases[0].is;
    for (Tensor* number : {&is.table, &is.level, &is.r1, &is.alpha, &is.query})
      std::fill(number->data.begin(), number->data.end(), nan);
    if (form == Form::Slope) is.slope.data[0] = nan;
    testing::on_every_target([&] {
      const Result found = run_forward(p);
      for (std::int64_t h = 0; h < 3; ++h)
        for (std::int64_t i = 0; i < 40; ++i) {
          // A path has no edge yet for the first query.
          if (h == 1 && i == 0 && form == Form::Path) continue;
          EXPECT_EQ(std::isnan(found.lse(0, h, i, 0)), h == 1) << h << " " << i;
        }
    });
  }
}

/// Keys behind a row's end do not exist, whatever their numbers are.
TEST(FusedHidden, NumbersOfKeysThatDoNotExist) {
  for (const Form form : every_form) {
    SCOPED_TRACE(name_of(form));
    Problem p = draw({2, 2, 1, 30, 70, 8, 8}, false);
    p.lengths = {45, 0};
    p.biases = {draw_bias(p, form, 0, 2)};
    if (form == Form::Slope || form == Form::Product) draw_factor(p, p.biases[0], Factor::Kind::Tanh, 3, false);
    carry(p, 4, 1);
    const Result expected = define(p);
    BiasNumbers& bias = p.biases[0];
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t j = p.length(b); j < 70; ++j) {
        for (std::int64_t h = 0; h < 2; ++h)
          for (Tensor* number : {&bias.is.key, &bias.is.right, &p.k, &p.v, &p.carried})
            for (std::int64_t c = 0; c < number->extent[3]; ++c) (*number)(b, h, j, c) = nan;
        bias.key_positions(b, 0, j, 0) = j % 2 ? 1e12 : -1e12;
      }
    testing::on_every_target([&] { expect_result(p, run_forward(p), expected); });
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Far away

/// One query at 1e6 + 70 000 that sees the first of 70 001 keys only: the lse is the bias.
Problem far(Form form) {
  constexpr std::int64_t distance = 70000;
  Problem p = draw({1, 1, 1, 1, distance + 1, 2, 2});
  std::fill(p.q.data.begin(), p.q.data.end(), 0);
  p.query_documents = {0};
  p.key_documents.assign(distance + 1, 1);
  p.key_documents[0] = 0;
  p.biases = {draw_bias(p, form, 0, 1, {Places::Kind::Steps, 1e6, 1})};
  return p;
}

TEST(FusedFar, BiasesAtSeventyThousand) {
  for (const Form form : every_form) {
    if (form == Form::Product || form == Form::Path) continue;  // know no distance
    for (const double size : {1.0, 0.00390625}) {
      SCOPED_TRACE(::testing::Message() << name_of(form) << " " << size);
      Problem p = far(form);
      Parameters& is = p.biases[0].is;
      for (Tensor* number : {&is.slope, &is.query, &is.key, &is.r1})
        if (form != Form::Piecewise && form != Form::Potential)
          std::fill(number->data.begin(), number->data.end(), size);
      for (double& value : is.table.data) value = -70000 * size;
      if (form == Form::Potential) is.query.data[0] = is.key.data[0] - 70000.03 * size;
      if (form == Form::DistanceLookup)
        p.biases[0].most += 1, is.table.data = {-1.5 * size, -70000 * size, 1}, is.table.extent[3] = 3;
      const double expected = define(p).lse.data[0];
      ASSERT_TRUE(std::isfinite(expected));
      testing::on_every_target([&] {
        for (const std::int64_t threads : {1, 3}) {
          const Result found = run_forward(p, workers(threads));
          EXPECT_NEAR(found.lse.data[0], expected, 1e-6 * std::abs(expected)) << threads;
          EXPECT_FLOAT_EQ(static_cast<float>(found.out.data[1]), static_cast<float>(p.v.data[1])) << threads;
        }
      });
    }
  }
}

/// A path of 70 000 edges.
TEST(FusedFar, PathsOfSeventyThousandEdges) {
  Problem p = draw({1, 1, 1, 1, 70001, 2, 2});
  std::fill(p.q.data.begin(), p.q.data.end(), 0);
  p.biases = {draw_bias(p, Form::Path, 0, 1, {}, 4)};
  p.biases[0].is.alpha.data[0] = 0.125;
  const Result expected = define(p);
  testing::on_every_target([&] {
    for (const std::int64_t threads : {1, 3}) {
      const Result found = run_forward(p, workers(threads));
      EXPECT_NEAR(found.lse.data[0], expected.lse.data[0], 3e-6 * std::abs(expected.lse.data[0]));
      for (std::size_t c = 0; c < 2; ++c) EXPECT_NEAR(found.out.data[c], expected.out.data[c], 2e-5);
    }
  });
}

/// A million apart, the weights of two neighbours still tell their distances.
TEST(FusedFar, DistancesAreExactAtAMillion) {
  for (const Form form : {Form::Slope, Form::Gated}) {
    SCOPED_TRACE(name_of(form));
    Problem p = draw({1, 1, 1, 3, 40, 2, 2}, false);
    std::fill(p.q.data.begin(), p.q.data.end(), 0);
    p.biases = {draw_bias(p, form, 0, 1)};
    BiasNumbers& bias = p.biases[0];
    for (std::int64_t j = 0; j < 40; ++j) bias.key_positions(0, 0, j, 0) = static_cast<double>(j);
    bias.query_positions.data = {1e6, 1e6 + 0.5, 2e6 - 0.5};
    // A slope whose products with half steps are float32 numbers even there.
    for (Tensor* number : {&bias.is.slope, &bias.is.query, &bias.is.key})
      std::fill(number->data.begin(), number->data.end(), 0.25);
    if (form == Form::Gated) bias.is.key = {};
    const Result expected = define(p);
    testing::on_every_target([&] {
      const Result found = run_forward(p);
      for (std::size_t n = 0; n < 6; ++n) EXPECT_NEAR(found.out.data[n], expected.out.data[n], 2e-6);
    });
  }
}

}  // namespace
}  // namespace torsor::kernel
