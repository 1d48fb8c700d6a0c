// Register tiles and row operations, compiled once an instruction set: included inside HWY_NAMESPACE by the kernels.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#if defined(TORSOR_KERNEL_CPU_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TORSOR_KERNEL_CPU_TILES_INL_H
#undef TORSOR_KERNEL_CPU_TILES_INL_H
#else
#define TORSOR_KERNEL_CPU_TILES_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Tag>;

// A register tile of 6 rows by 2 or 4 vectors: 24 sums fill the 32 registers of AVX-512, 12 those of 16-register sets.
constexpr std::int64_t tile_rows = 6;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr std::int64_t tile_vectors = 4;
#else
constexpr std::int64_t tile_vectors = 2;
#endif

HWY_INLINE std::int64_t lanes() { return static_cast<std::int64_t>(hn::Lanes(Tag())); }
/// Numbers in a row of a full register tile: tokens of a panel.
HWY_INLINE std::int64_t panel_width() { return lanes() * tile_vectors; }

/// exp(x) for x <= 0, 0 below -87 and NaN of NaN; at most 2 units in the last place for x > -16, and 1e-7 of exp(x) for
/// every 40 that it lies below. The argument is split into a whole multiple n of ln 2, rounded off by adding 1.5 *
/// 2^23, whose low bits then hold n, and a rest in [-ln 2 / 2, ln 2 / 2], whose exponential is a polynomial of degree 6
/// (the Taylor coefficients, with the last two shifted to spread the error over the interval). ln 2 is one float32: its
/// error of 2e-9, times n, is nothing in a number that is itself 2^n.
HWY_INLINE Vec exp_below_zero(Vec x) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  const Vec least = hn::Set(d, -87.0F), magic = hn::Set(d, 12582912.0F), one = hn::Set(d, 1.0F);
  const Vec rounded = hn::MulAdd(x, hn::Set(d, 1.44269504F), magic);
  const Vec r = hn::NegMulAdd(hn::Sub(rounded, magic), hn::Set(d, 0.693147182F), x);
  Vec p = hn::Set(d, 1.3981999507e-3F);
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1F));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1F));
  p = hn::MulAdd(p, r, one);
  p = hn::MulAdd(p, r, one);
  const Vec scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, rounded))));
  // Below -87 the bits above mean nothing. The comparison is false for a NaN, which the sums have carried on.
  return hn::IfThenZeroElse(hn::Lt(x, least), scaled);
}

// Without fused multiply-add every product is rounded as well; shorter sums of sums make up for it.
#if HWY_NATIVE_FMA
constexpr std::int64_t longest_sum = std::int64_t{1} << 30;
#else
constexpr std::int64_t longest_sum = 16;
#endif

/// sums[row][column] (+)= sum over c < depth of left[row * left_row + c * left_column] * right[c * right_stride +
/// column] for `rows` <= 6 rows and a few vectors of columns. A left-hand side with left_row = 1 is read transposed.
template <int rows, int vectors, bool add>
HWY_INLINE void product_rows(const float* HWY_RESTRICT left, std::int64_t left_row, std::int64_t left_column,
                             const float* HWY_RESTRICT right, std::int64_t right_stride, std::int64_t depth,
                             float* HWY_RESTRICT sums, std::int64_t sums_stride) {
  const Tag d;
  const std::int64_t step = lanes();
  bool adding = add;
  std::int64_t c = 0;
  do {
    Vec sum[rows][vectors];
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int n = 0; n < vectors; ++n) sum[r][n] = hn::Zero(d);
    for (const std::int64_t end = std::min(depth, c + longest_sum); c < end; ++c) {
      Vec column[vectors];
#pragma GCC unroll 4
      for (int n = 0; n < vectors; ++n) column[n] = hn::LoadU(d, right + c * right_stride + n * step);
#pragma GCC unroll 6
      for (int r = 0; r < rows; ++r) {
        const Vec factor = hn::Set(d, left[r * left_row + c * left_column]);
#pragma GCC unroll 4
        for (int n = 0; n < vectors; ++n) sum[r][n] = hn::MulAdd(factor, column[n], sum[r][n]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int n = 0; n < vectors; ++n) {
        float* to = sums + r * sums_stride + n * step;
        // Added at the end: a sum of sums loses less than one long sum.
        hn::StoreU(adding ? hn::Add(hn::LoadU(d, to), sum[r][n]) : sum[r][n], d, to);
      }
    adding = true;
  } while (c < depth);
}

/// The same for any number of rows.
template <int vectors, bool add>
HWY_INLINE void product_rows_of(const float* left, std::int64_t left_row, std::int64_t left_column, const float* right,
                                std::int64_t right_stride, std::int64_t depth, float* sums, std::int64_t sums_stride,
                                std::int64_t rows) {
  std::int64_t row = 0;
  for (; row + tile_rows <= rows; row += tile_rows)
    product_rows<tile_rows, vectors, add>(left + row * left_row, left_row, left_column, right, right_stride, depth,
                                          sums + row * sums_stride, sums_stride);
  left += row * left_row;
  sums += row * sums_stride;
  const auto rest = [&]<int count>() {
    product_rows<count, vectors, add>(left, left_row, left_column, right, right_stride, depth, sums, sums_stride);
  };
  switch (rows - row) {
    case 5:
      return rest.template operator()<5>();
    case 4:
      return rest.template operator()<4>();
    case 3:
      return rest.template operator()<3>();
    case 2:
      return rest.template operator()<2>();
    case 1:
      return rest.template operator()<1>();
    default:
      return;
  }
}

/// The same for any number of columns that is a multiple of the lanes.
template <bool add>
inline HWY_NOINLINE void product(const float* left, std::int64_t left_row, std::int64_t left_column, const float* right,
                                 std::int64_t right_stride, std::int64_t depth, float* sums, std::int64_t sums_stride,
                                 std::int64_t rows, std::int64_t columns) {
  std::int64_t c = 0;
  for (; c + panel_width() <= columns; c += panel_width())
    product_rows_of<tile_vectors, add>(left, left_row, left_column, right + c, right_stride, depth, sums + c,
                                       sums_stride, rows);
  const std::int64_t vectors = (columns - c) / lanes();
  if (vectors == 0) return;
  right += c;
  sums += c;
  if (vectors == 1)
    return product_rows_of<1, add>(left, left_row, left_column, right, right_stride, depth, sums, sums_stride, rows);
  if constexpr (tile_vectors > 2) {
    if (vectors == 2)
      return product_rows_of<2, add>(left, left_row, left_column, right, right_stride, depth, sums, sums_stride, rows);
    return product_rows_of<3, add>(left, left_row, left_column, right, right_stride, depth, sums, sums_stride, rows);
  }
}

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
