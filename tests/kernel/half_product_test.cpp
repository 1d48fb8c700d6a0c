#include "torsor/kernel/half_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

TEST(Float16, WidensEveryNumber) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const std::uint32_t exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const double sign = (bits >> 15) != 0 ? -1 : 1;
    const float wide = widen(Float16{static_cast<std::uint16_t>(bits)});
    if (exponent == 31 && fraction != 0) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      continue;
    }
    const double expected = exponent == 31  ? sign * std::numeric_limits<double>::infinity()
                            : exponent == 0 ? sign * std::ldexp(fraction, -24)
                                            : sign * std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    ASSERT_EQ(static_cast<double>(wide), expected) << bits;
    ASSERT_EQ(std::signbit(wide), sign < 0) << bits;
  }
}

float wide(Half kind, std::uint16_t bits) {
  return kind == Half::Float16 ? widen(Float16{bits}) : widen(BFloat16{bits});
}

struct Case {
  std::int64_t columns, vectors;
  std::vector<std::int64_t> rows;
};
const std::vector<Case> cases = {{1, 1, {1}},         {2, 2, {3}},           {15, 3, {5}},   {16, 1, {4, 4}},
                                 {17, 4, {7, 1}},     {31, 5, {2, 3, 4}},    {64, 1, {9}},   {72, 6, {6}},
                                 {32, 2, {3}},        {33, 1, {2, 2}},       {63, 3, {4}},   {128, 7, {5, 12}},
                                 {333, 8, {3, 2, 1}}, {1024, 1, {4, 5, 11}}, {16, 8, {1, 1}}};

TEST(HalfProduct, EqualsTheSumInDouble) {
  for (const Half kind : {Half::Float16, Half::BFloat16})
    for (const Case& c : cases) {
      SCOPED_TRACE(::testing::Message() << (kind == Half::Float16 ? "float16 " : "bfloat16 ") << c.columns
                                        << " columns, " << c.vectors << " vectors");
      std::mt19937 random(static_cast<unsigned>(c.columns * 10 + c.vectors));
      std::normal_distribution<float> normal;
      std::vector<float> x(static_cast<std::size_t>(c.columns * c.vectors));
      for (float& value : x) value = normal(random);
      HalfProduct product;
      product.kind = kind;
      product.columns = c.columns;
      product.vectors = c.vectors;
      product.x = x.data();
      std::vector<std::vector<std::uint16_t>> numbers;
      for (const std::int64_t rows : c.rows) {
        std::vector<std::uint16_t> own(static_cast<std::size_t>(rows * c.columns));
        for (std::uint16_t& bits : own) {
          // Any finite number up to 2: of float16 the subnormal ones too.
          bits = static_cast<std::uint16_t>(random());
          if (kind == Half::Float16) bits = static_cast<std::uint16_t>((bits & 0x83FFU) | (random() % 17) << 10);
          if (kind == Half::BFloat16) bits = static_cast<std::uint16_t>((bits & 0x807FU) | (100 + random() % 29) << 7);
        }
        numbers.push_back(own);
      }
      testing::on_every_target([&] {
        std::vector<std::vector<float>> out, again;
        for (const std::int64_t rows : c.rows) out.emplace_back(static_cast<std::size_t>(rows * c.vectors), -7.0F);
        again = out;
        const auto aim = [&](std::vector<std::vector<float>>& at) {
          product.matrices.clear();
          for (std::size_t i = 0; i < c.rows.size(); ++i)
            product.matrices.push_back({numbers[i].data(), c.rows[i], at[i].data()});
        };
        aim(out);
        half_product(product, 0, product.rows());
        for (std::size_t i = 0; i < c.rows.size(); ++i)
          for (std::int64_t m = 0; m < c.vectors; ++m)
            for (std::int64_t r = 0; r < c.rows[i]; ++r) {
              double sum = 0, size = 0;
              for (std::int64_t k = 0; k < c.columns; ++k) {
                const double term = double(wide(kind, numbers[i][static_cast<std::size_t>(r * c.columns + k)])) *
                                    x[static_cast<std::size_t>(m * c.columns + k)];
                sum += term;
                size += std::abs(term);
              }
              const double bound = (static_cast<double>(c.columns) / 32 + 6) * 0x1p-24 * size;
              ASSERT_LE(std::abs(out[i][static_cast<std::size_t>(m * c.rows[i] + r)] - sum), bound)
                  << "matrix " << i << " vector " << m << " row " << r;
            }
        // Row by row and in odd pieces: the same bits.
        aim(again);
        for (std::int64_t first = 0, step = 1; first < product.rows(); first += step, step = step % 3 + 1)
          half_product(product, first, std::min(first + step, product.rows()));
        EXPECT_EQ(out, again);
      });
    }
}

TEST(HalfProduct, WhatIsNotFiniteStaysInItsRowAndVector) {
  const std::int64_t columns = 40;
  for (const Half kind : {Half::Float16, Half::BFloat16}) {
    std::vector<std::uint16_t> numbers(3 * columns, kind == Half::Float16 ? 0x3C00 : 0x3F80);  // ones
    // A NaN in row 1; float16 numbers must be finite.
    if (kind == Half::BFloat16) numbers[columns + 20] = 0x7FC0;
    std::vector<float> x(2 * columns, 1.0F), out(6);
    x[columns + 39] = std::numeric_limits<float>::infinity();  // at the end of vector 1
    HalfProduct product;
    product.kind = kind;
    product.columns = columns;
    product.vectors = 2;
    product.x = x.data();
    product.matrices = {{numbers.data(), 3, out.data()}};
    testing::on_every_target([&] {
      half_product(product, 0, 3);
      EXPECT_EQ(out[0], 40);
      EXPECT_TRUE(kind == Half::BFloat16 ? std::isnan(out[1]) : out[1] == 40);
      EXPECT_EQ(out[2], 40);
      EXPECT_TRUE(std::isinf(out[3]));
      EXPECT_TRUE(kind == Half::BFloat16 ? std::isnan(out[4]) : std::isinf(out[4]));
      EXPECT_TRUE(std::isinf(out[5]));
    });
  }
}

}  // namespace
}  // namespace torsor::kernel
