// Fused attention against its definition, evaluated pair by pair in float64.
#include "torsor/kernel/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernel/problem.h"
#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

struct Found {
  std::vector<float> out, lse;
};

Found run(const Problem& p, std::int64_t threads = 1) {
  const Shape& s = p.shape;
  Found found;
  found.out.assign(static_cast<std::size_t>(s.batch * s.heads * s.queries * s.value_width), 7.0F);
  found.lse.assign(static_cast<std::size_t>(s.batch * s.heads * s.queries), 7.0F);
  const Run how = workers(threads);
  attention_forward(p.call, how,
                    {found.out.data(), {s.heads * s.queries * s.value_width, s.queries * s.value_width, s.value_width}},
                    found.lse.data());
  return found;
}

/// kernel.md: 2e-6 a row, 5e-7 the tensor, times max(1, largest logit / 8).
void expect_close(const Problem& p) {
  const Result expected = define(p);
  const double slack = std::max(1.0, expected.largest_logit / 8);
  testing::on_every_target([&] {
    const Found found = run(p);
    double all_error = 0, all_size = 0;
    const auto width = static_cast<std::size_t>(p.shape.value_width);
    for (std::size_t row = 0; row < expected.lse.size(); ++row) {
      if (std::isinf(expected.lse[row]) || std::isnan(expected.lse[row])) {
        EXPECT_EQ(std::isnan(found.lse[row]), std::isnan(expected.lse[row])) << row;
        if (!std::isnan(expected.lse[row])) {
          EXPECT_EQ(found.lse[row], expected.lse[row]) << row;
        }
      } else {
        EXPECT_NEAR(found.lse[row], expected.lse[row], 1e-6 * std::max(1.0, std::abs(expected.lse[row])) * slack)
            << row;
      }
      double error = 0, size = 0;
      bool bad = false;
      for (std::size_t c = row * width; c < (row + 1) * width; ++c) {
        EXPECT_EQ(std::isnan(found.out[c]), std::isnan(expected.out[c])) << "row " << row << ", channel " << c % width;
        bad = bad || std::isnan(expected.out[c]);
        error += std::pow(found.out[c] - expected.out[c], 2);
        size += std::pow(expected.out[c], 2);
      }
      if (bad) continue;
      EXPECT_LE(std::sqrt(error), 2e-6 * slack * std::sqrt(size)) << "row " << row;
      all_error += error, all_size += size;
    }
    EXPECT_LE(std::sqrt(all_error), 5e-7 * slack * std::sqrt(all_size));
  });
}

TEST(FusedForward, ShapesOfEveryKind) {
  const std::vector<Shape> shapes = {
      {1, 1, 1, 1, 1, 2, 1},      {2, 2, 2, 1, 1, 6, 2},      {1, 2, 1, 3, 3, 8, 8},      {2, 4, 2, 17, 17, 32, 32},
      {1, 2, 1, 1, 300, 64, 64},  {1, 6, 2, 49, 49, 72, 72},  {2, 1, 1, 5, 70, 16, 24},   {1, 3, 3, 130, 130, 128, 128},
      {1, 2, 2, 97, 600, 40, 65}, {3, 2, 1, 63, 257, 64, 48}, {1, 1, 1, 700, 700, 64, 64}};
  for (const Shape& shape : shapes)
    for (const bool causal : {true, false})
      for (const bool token_major : {false, true}) {
        SCOPED_TRACE(describe(shape, causal, token_major));
        Problem p = draw(shape, 3, token_major);
        p.call.visible.causal = causal;
        connect(p);
        expect_close(p);
      }
}

TEST(FusedForward, Masks) {
  for (const bool causal : {true, false})
    for (const std::int64_t window : {0, 1, 7, 300}) {
      SCOPED_TRACE(::testing::Message() << "causal " << causal << ", window " << window);
      Problem p = draw({3, 2, 1, 65, 400, 16, 16});
      p.call.visible.causal = causal;
      p.call.visible.window = window;
      p.lengths = {400, 65, 3};  // the last row has fewer keys than queries
      connect(p);
      expect_close(p);
      p.offsets = {10, 0, 0};  // queries in the middle of what is there
      connect(p);
      expect_close(p);
      p.lengths = {0, 1, 400};
      connect(p);
      expect_close(p);
    }
}

TEST(FusedForward, Documents) {
  Problem p = draw({2, 2, 2, 300, 300, 16, 16});
  std::mt19937 random(5);
  for (int b = 0; b < 2; ++b)
    for (int t = 0, document = 0; t < 300; ++t) {
      if (random() % 40 == 0) ++document;
      p.key_documents.push_back(random() % 17 == 0 ? -1 : document);
    }
  p.query_documents = p.key_documents;
  for (const bool causal : {true, false}) {
    p.call.visible.causal = causal;
    connect(p);
    expect_close(p);
  }
}

TEST(FusedForward, BiasesEachAndTogether) {
  for (const bool causal : {true, false}) {
    const Problem all = biased({2, 3, 1, 70, 333, 16, 16}, causal);
    expect_close(all);
    for (std::size_t n = 0; n < 3; ++n) {
      SCOPED_TRACE(::testing::Message() << "bias " << n << ", causal " << causal);
      Problem one = biased({2, 3, 3, 300, 300, 16, 16}, causal);
      one.call.biases = {one.call.biases[n]};
      expect_close(one);
    }
  }
}

TEST(FusedForward, ThousandsOfKeys) {
  Problem p = draw({1, 1, 1, 60, 4096, 128, 128});
  connect(p);
  expect_close(p);
}

TEST(FusedForward, WhatIsNotANumberReachesOnlyWhoSeesIt) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    Problem p = draw({2, 2, 1, 90, 90, 16, 16});
    p.lengths = {90, 80};
    p.v[p.place(1, 90, 16, 0, 0, 40) + 3] = bad;                                       // one channel of a value
    for (std::size_t c = 0; c < 16; ++c) p.v[p.place(1, 90, 16, 1, 0, 85) + c] = bad;  // behind the row's end
    for (std::size_t c = 0; c < 16; ++c) p.k[p.place(1, 90, 16, 1, 0, 84) + c] = bad;
    connect(p);
    const Found found = run(p);
    for (std::size_t n = 0; n < found.out.size(); ++n) {
      const std::size_t batch = n / (2 * 90 * 16), i = n / 16 % 90, c = n % 16;
      EXPECT_EQ(std::isnan(found.out[n]), batch == 0 && i >= 40 && c == 3) << n;
    }
    p.k[p.place(1, 90, 16, 1, 0, 50)] = bad;  // a key: whole rows
    p.q[p.place(2, 90, 16, 1, 1, 20)] = bad;  // a query: its own row
    const Found more = run(p);
    for (std::size_t n = 0; n < more.lse.size(); ++n) {
      const std::size_t batch = n / 180, head = n / 90 % 2, i = n % 90;
      // Row 1 has 80 keys for 90 queries: query i stands at i - 10.
      const bool expected = batch == 1 && ((i >= 60) || (head == 1 && i == 20));
      EXPECT_EQ(std::isnan(more.lse[n]), expected) << n;
      EXPECT_EQ(std::isnan(more.out[n * 16]), expected) << n;
    }
  }
  Problem p = biased({1, 2, 2, 40, 40, 8, 8}, true);
  std::fill(p.table.begin(), p.table.end(), std::numeric_limits<float>::quiet_NaN());  // head 1
  const Found found = run(p);
  for (std::size_t n = 0; n < found.lse.size(); ++n) EXPECT_EQ(std::isnan(found.lse[n]), n >= 40) << n;
}

TEST(FusedForward, ThreadsAndNeighboursDoNotChangeTheBits) {
  const Problem p = biased({2, 3, 3, 200, 200, 24, 24}, true);
  const Found one = run(p, 1), three = run(p, 3);
  EXPECT_EQ(one.out, three.out);
  EXPECT_EQ(one.lse, three.lse);
}

TEST(FusedForward, EmptyExtents) {
  Problem p = draw({1, 2, 1, 3, 0, 8, 8});
  connect(p);
  const Found found = run(p);
  for (const float value : found.out) EXPECT_EQ(value, 0);
  for (const float value : found.lse) EXPECT_EQ(value, -std::numeric_limits<float>::infinity());
  Problem none = draw({1, 2, 1, 0, 5, 8, 8});
  connect(none);
  EXPECT_TRUE(run(none).out.empty());
}

}  // namespace
}  // namespace torsor::kernel
