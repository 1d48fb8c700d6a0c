#include "torsor/kernel/rotate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace torsor::kernel {
namespace {

struct Shape {
  std::int64_t batch, heads, tokens, channels, offset, width, blocks, first_head, last_head, heads_a_row, table_batch;
  bool interleaved, token_major;
};

std::string describe(const Shape& s) {
  std::string text;
  for (const std::int64_t n : {s.batch, s.heads, s.tokens, s.channels, s.offset, s.width, s.blocks, s.first_head,
                               s.last_head, s.heads_a_row, s.table_batch})
    text += std::to_string(n) + " ";
  return text + (s.interleaved ? "interleaved" : "halves") + (s.token_major ? ", tokens before heads" : "");
}

const std::vector<Shape> shapes = {
    {1, 1, 1, 2, 0, 2, 1, 0, 1, 1, 1, false, false},    {2, 3, 5, 8, 0, 8, 1, 0, 3, 1, 1, false, true},
    {2, 3, 5, 8, 0, 8, 1, 0, 3, 1, 2, true, true},      {2, 4, 7, 72, 0, 72, 1, 0, 4, 2, 2, false, false},
    {1, 4, 3, 128, 32, 64, 1, 0, 4, 4, 1, false, true}, {1, 4, 3, 16, 2, 12, 3, 1, 3, 1, 1, false, false},
    {3, 4, 2, 16, 4, 12, 2, 0, 2, 2, 1, true, true},    {2, 2, 1, 6, 0, 0, 1, 0, 2, 1, 1, false, false},
    {1, 6, 9, 10, 6, 4, 1, 2, 6, 2, 1, false, true},
};

/// Independent of the kernel: complex numbers in float64, one plane at a time.
template <class T, class Wide>
void check(const Shape& s, Element element, bool back, double tolerance) {
  SCOPED_TRACE(describe(s) + (back ? ", back" : ""));
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const std::int64_t planes = s.width / 2, rows = (s.last_head - s.first_head) / s.heads_a_row;
  const auto count = static_cast<std::size_t>(s.batch * s.heads * s.tokens * s.channels);
  std::vector<T> x(count), out(count);
  for (T& value : x) narrow(static_cast<Wide>(normal(random)), value);
  std::vector<Wide> cosine(static_cast<std::size_t>(s.table_batch * rows * s.tokens * planes) + 1), sine(cosine.size());
  for (Wide& value : cosine) value = static_cast<Wide>(normal(random));
  for (Wide& value : sine) value = static_cast<Wide>(normal(random));

  Rotation r;
  r.element = element;
  r.x = x.data();
  r.out = out.data();
  r.sizes = {s.batch, s.heads, s.tokens};
  r.channels = s.channels;
  const std::int64_t row = s.channels, plane_row = planes;
  if (s.token_major)
    r.x_strides = {s.tokens * s.heads * row, row, s.heads * row};
  else
    r.x_strides = {s.tokens * s.heads * row, s.tokens * row, row};
  r.out_strides = {s.tokens * s.heads * row, s.tokens * row, row};  // always heads before tokens
  r.cosine = cosine.data();
  r.sine = sine.data();
  r.table_strides = {s.table_batch == 1 ? 0 : rows * s.tokens * plane_row, s.tokens * plane_row, plane_row};
  r.heads_a_row = s.heads_a_row;
  r.first_head = s.first_head;
  r.last_head = s.last_head;
  r.offset = s.offset;
  r.width = s.width;
  r.blocks = s.blocks;
  r.interleaved = s.interleaved;
  r.back = back;
  // In two pieces, as two threads would.
  const std::int64_t all = s.batch * s.tokens;
  rotate(r, 0, all / 2);
  rotate(r, all / 2, all);

  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const T* from = x.data() + b * r.x_strides[0] + h * r.x_strides[1] + t * r.x_strides[2];
        const T* to = out.data() + b * r.out_strides[0] + h * r.out_strides[1] + t * r.out_strides[2];
        std::vector<double> expected(static_cast<std::size_t>(s.channels));
        for (std::size_t c = 0; c < expected.size(); ++c) expected[c] = static_cast<double>(widen(from[c]));
        if (h >= s.first_head && h < s.last_head)
          for (std::int64_t plane = 0; plane < planes; ++plane) {
            const std::int64_t each = planes / s.blocks, block = plane / each, place = plane % each;
            const std::int64_t start = s.offset + block * 2 * each;
            const auto one = static_cast<std::size_t>(s.interleaved ? start + 2 * place : start + place);
            const std::size_t two = s.interleaved ? one + 1 : one + static_cast<std::size_t>(each);
            const std::int64_t table_row = (h - s.first_head) / s.heads_a_row;
            const auto entry = static_cast<std::size_t>(
                (((s.table_batch == 1 ? 0 : b) * rows + table_row) * s.tokens + t) * planes + plane);
            std::complex<double> turn(cosine[entry], sine[entry]);
            if (back) turn = std::conj(turn);
            const std::complex<double> turned = std::complex<double>(expected[one], expected[two]) * turn;
            expected[one] = turned.real();
            expected[two] = turned.imag();
          }
        for (std::size_t c = 0; c < expected.size(); ++c)
          ASSERT_NEAR(static_cast<double>(widen(to[c])), expected[c], tolerance * (1 + std::abs(expected[c])))
              << "batch " << b << ", head " << h << ", token " << t << ", channel " << c;
      }
}

/// d cosine = Re(x conj g) and d sine = Im(conj x g), summed over the heads that share a row, from complex numbers in
/// float64.
template <class T, class Wide>
void check_tables(const Shape& s, Element element, bool back, bool one_row, double tolerance) {
  SCOPED_TRACE(describe(s) + (back ? ", back" : "") + (one_row ? ", one row" : ""));
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  const std::int64_t planes = s.width / 2, rows = one_row ? 1 : (s.last_head - s.first_head) / s.heads_a_row;
  const auto count = static_cast<std::size_t>(s.batch * s.heads * s.tokens * s.channels);
  std::vector<T> x(count), g(count);
  for (T& value : x) narrow(static_cast<Wide>(normal(random)), value);
  for (T& value : g) narrow(static_cast<Wide>(normal(random)), value);
  const auto entries = static_cast<std::size_t>(s.batch * rows * s.tokens * planes);
  std::vector<Wide> cosine(entries + 1, Wide{77}), sine(entries + 1, Wide{77});  // what stood there is overwritten

  Rotation r;
  r.element = element;
  r.x = x.data();
  r.sizes = {s.batch, s.heads, s.tokens};
  r.channels = s.channels;
  r.x_strides = {s.tokens * s.heads * s.channels, s.channels, s.heads * s.channels};
  r.heads_a_row = s.heads_a_row;
  r.first_head = s.first_head;
  r.last_head = s.last_head;
  r.offset = s.offset;
  r.width = s.width;
  r.blocks = s.blocks;
  r.interleaved = s.interleaved;
  r.back = back;
  TableGradients to;
  to.gradient = g.data();
  to.gradient_strides = {s.tokens * s.heads * s.channels, s.tokens * s.channels, s.channels};
  to.rows = rows;
  to.cosine = cosine.data();
  to.sine = sine.data();
  const std::int64_t all = s.batch * s.tokens;
  rotate_tables_back(r, to, 0, all / 2);
  rotate_tables_back(r, to, all / 2, all);

  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t t = 0; t < s.tokens; ++t)
        for (std::int64_t plane = 0; plane < planes; ++plane) {
          const std::int64_t each = planes / s.blocks, block = plane / each, place = plane % each;
          const std::int64_t start = s.offset + block * 2 * each;
          const std::int64_t one = s.interleaved ? start + 2 * place : start + place;
          const std::int64_t two = s.interleaved ? one + 1 : one + each;
          std::complex<double> sum = 0;
          for (std::int64_t h = s.first_head; h < s.last_head; ++h) {
            if (!one_row && (h - s.first_head) / s.heads_a_row != row) continue;
            const auto number = [&](const std::vector<T>& of, std::int64_t c,
                                    const std::array<std::int64_t, 3>& strides) {
              return static_cast<double>(
                  widen(of[static_cast<std::size_t>(b * strides[0] + h * strides[1] + t * strides[2] + c)]));
            };
            const std::complex<double> of_x(number(x, one, r.x_strides), number(x, two, r.x_strides));
            const std::complex<double> of_g(number(g, one, to.gradient_strides), number(g, two, to.gradient_strides));
            sum += std::conj(of_x) * of_g;
          }
          const auto entry = static_cast<std::size_t>(((b * rows + row) * s.tokens + t) * planes + plane);
          const double size = 1 + static_cast<double>(s.heads);
          ASSERT_NEAR(static_cast<double>(cosine[entry]), sum.real(), tolerance * size);
          ASSERT_NEAR(static_cast<double>(sine[entry]), back ? -sum.imag() : sum.imag(), tolerance * size);
        }
  EXPECT_EQ(cosine[entries], Wide{77});
  EXPECT_EQ(sine[entries], Wide{77});
}

TEST(Rotate, TablesHaveGradients) {
  for (const Shape& shape : shapes)
    for (const bool back : {false, true})
      for (const bool one_row : {false, true}) {
        check_tables<float, float>(shape, Element::Float32, back, one_row, 2e-6);
        check_tables<double, double>(shape, Element::Float64, back, one_row, 1e-14);
        check_tables<BFloat16, float>(shape, Element::BFloat16, back, one_row, 2e-6);  // products of what was rounded
      }
}

TEST(Rotate, IsAProductOfComplexNumbers) {
  for (const Shape& shape : shapes)
    for (const bool back : {false, true}) {
      check<float, float>(shape, Element::Float32, back, 1e-6);
      check<double, double>(shape, Element::Float64, back, 1e-14);
      check<BFloat16, float>(shape, Element::BFloat16, back, 4e-3);
    }
}

TEST(Element, RoundsToTheNearestEvenBFloat16) {
  const auto rounded = [](float value) {
    BFloat16 half;
    narrow(value, half);
    return half.bits;
  };
  EXPECT_EQ(rounded(1.0F), 0x3f80);
  EXPECT_EQ(rounded(1.0F + 1.0F / 256), 0x3f80);                        // a tie goes to even
  EXPECT_EQ(rounded(1.0F + 3.0F / 256), 0x3f82);                        // and here upwards
  EXPECT_EQ(rounded(std::nextafter(1.0F + 1.0F / 256, 2.0F)), 0x3f81);  // just above the tie
  EXPECT_EQ(rounded(-0.0F), 0x8000);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), 0x7f80);  // rounds to infinity
  EXPECT_EQ(rounded(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_TRUE(std::isnan(widen(BFloat16{rounded(std::numeric_limits<float>::quiet_NaN())})));
  const std::uint32_t low_nan = 0x7f800001U;  // all its bits of a NaN lie in the lower half
  float value;
  std::memcpy(&value, &low_nan, sizeof value);
  EXPECT_TRUE(std::isnan(widen(BFloat16{rounded(value)})));
  EXPECT_EQ(widen(BFloat16{0x3fc0}), 1.5F);
}

}  // namespace
}  // namespace torsor::kernel
