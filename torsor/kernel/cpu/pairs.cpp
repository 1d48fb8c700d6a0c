#include "torsor/kernel/cpu/pairs.h"

#include <hwy/base.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if HWY_ARCH_X86_64 && (HWY_COMPILER_GCC_ACTUAL >= 1000 || HWY_COMPILER_CLANG >= 1000)
#define TORSOR_HAS_PAIRS 1
#include <immintrin.h>
#else
#define TORSOR_HAS_PAIRS 0
#endif

namespace torsor::kernel {

#if TORSOR_HAS_PAIRS

bool has_pair_products() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bf16");
  return has;
}

}  // namespace torsor::kernel

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
namespace torsor::kernel {
namespace {

constexpr int most_rows = 6;

HWY_INLINE __m512bh as_pairs(__m512i bits) {
  __m512bh pairs;
  std::memcpy(&pairs, &bits, sizeof pairs);
  return pairs;
}
HWY_INLINE __m512i bits_of(__m512bh pairs) {
  __m512i bits;
  std::memcpy(&bits, &pairs, sizeof bits);
  return bits;
}

template <int rows, int vectors>
HWY_INLINE void block_of_rows(const Pair* HWY_RESTRICT left, std::int64_t left_row, std::int64_t left_column,
                              const Pair* HWY_RESTRICT right, std::int64_t right_stride, std::int64_t depth,
                              float* HWY_RESTRICT sums, std::int64_t sums_stride, const float* factors, bool add) {
  __m512 sum[rows][vectors];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) sum[r][n] = _mm512_setzero_ps();
  for (std::int64_t c = 0; c < depth; ++c) {
    __m512bh column[vectors];
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) column[n] = as_pairs(_mm512_loadu_si512(right + c * right_stride + n * 16));
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      const __m512bh factor = as_pairs(_mm512_set1_epi32(static_cast<int>(left[r * left_row + c * left_column])));
#pragma GCC unroll 4
      for (int n = 0; n < vectors; ++n) sum[r][n] = _mm512_dpbf16_ps(sum[r][n], factor, column[n]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) {
      float* to = sums + r * sums_stride + n * 16;
      __m512 value = sum[r][n];
      if (factors) value = _mm512_mul_ps(value, _mm512_set1_ps(factors[r]));
      _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), value) : value);
    }
}

template <int vectors>
HWY_INLINE void block_of_columns(const Pair* left, std::int64_t left_row, std::int64_t left_column, const Pair* right,
                                 std::int64_t right_stride, std::int64_t depth, float* sums, std::int64_t sums_stride,
                                 std::int64_t rows, const float* factors, bool add) {
  std::int64_t row = 0;
  const auto block = [&]<int count>() {
    block_of_rows<count, vectors>(left + row * left_row, left_row, left_column, right, right_stride, depth,
                                  sums + row * sums_stride, sums_stride, factors ? factors + row : nullptr, add);
  };
  for (; row + most_rows <= rows; row += most_rows) block.template operator()<most_rows>();
  switch (rows - row) {
    case 5:
      return block.template operator()<5>();
    case 4:
      return block.template operator()<4>();
    case 3:
      return block.template operator()<3>();
    case 2:
      return block.template operator()<2>();
    case 1:
      return block.template operator()<1>();
    default:
      return;
  }
}

/// exp(x) for x <= 0 from y = x log2(e), 0 where y < -158; the polynomial's coefficients are powers of ln 2 over
/// factorials, which leave 3e-6 of the result.
HWY_INLINE __m512 power_of_two(__m512 y) {
  y = _mm512_max_ps(y, _mm512_set1_ps(-160.0F));
  const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_sub_ps(y, n);
  __m512 p = _mm512_set1_ps(1.3333558e-3F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.6181291e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.5504109e-2F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.24022651F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.69314718F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(p, n);
}

constexpr float log2_e = 1.44269504F;

HWY_INLINE void store_halves(BFloat16* to, __m512 values) {
  const __m256bh halves = _mm512_cvtneps_pbh(values);
  std::memcpy(to, &halves, sizeof halves);
}

}  // namespace

void pair_product(const Pair* left, std::int64_t left_row, std::int64_t left_column, const Pair* right,
                  std::int64_t right_stride, std::int64_t depth, float* sums, std::int64_t sums_stride,
                  std::int64_t rows, std::int64_t columns, const float* factors, bool add) {
  std::int64_t c = 0;
  for (; c + 64 <= columns; c += 64)
    block_of_columns<4>(left, left_row, left_column, right + c, right_stride, depth, sums + c, sums_stride, rows,
                        factors, add);
  switch ((columns - c) / 16) {
    case 3:
      return block_of_columns<3>(left, left_row, left_column, right + c, right_stride, depth, sums + c, sums_stride,
                                 rows, factors, add);
    case 2:
      return block_of_columns<2>(left, left_row, left_column, right + c, right_stride, depth, sums + c, sums_stride,
                                 rows, factors, add);
    case 1:
      return block_of_columns<1>(left, left_row, left_column, right + c, right_stride, depth, sums + c, sums_stride,
                                 rows, factors, add);
    default:
      return;
  }
}

float soften_pairs(float* scores, std::int64_t from, std::int64_t to, float& largest, float& total, BFloat16* weights,
                   bool keep) {
  __m512 most = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __mmask16 bad = 0;
  for (std::int64_t j = from; j < to; j += 16) {
    const __m512 score = _mm512_loadu_ps(scores + j);
    most = _mm512_max_ps(most, score);
    bad = static_cast<__mmask16>(bad | _mm512_cmp_ps_mask(score, score, _CMP_UNORD_Q));
  }
  if (bad) {
    std::fill(weights + from, weights + to, BFloat16{0});
    return largest = total = std::numeric_limits<float>::quiet_NaN();
  }
  const float found = std::max(largest, _mm512_reduce_max_ps(most));
  if (found == -std::numeric_limits<float>::infinity()) {
    std::fill(weights + from, weights + to, BFloat16{0});
    if (keep) std::fill(scores + from, scores + to, 0.0F);
    return 1;
  }
  const __m512 scale = _mm512_set1_ps(log2_e), shift = _mm512_set1_ps(found);
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t j = from; j < to; j += 16) {
    const __m512 weight = power_of_two(_mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(scores + j), shift), scale));
    sum = _mm512_add_ps(sum, weight);
    store_halves(weights + j, weight);
    if (keep) _mm512_storeu_ps(scores + j, weight);
  }
  const float fresh = _mm512_reduce_add_ps(sum);
  if (largest == found) {
    total += fresh;
    return 1;
  }
  const float factor = std::exp(largest - found);
  largest = found;
  total = total * factor + fresh;
  return factor;
}

void weigh_pairs(const SlopeRow& first, const SlopeRow& second, std::int64_t width, Pair* weights, Pair* slopes,
                 bool keep) {
  // One conversion leaves the second row's sixteen numbers behind the first row's.
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512 scale = _mm512_set1_ps(log2_e);
  struct Found {
    __m512 weight, slope;
  };
  const auto compute = [&](const SlopeRow& row, std::int64_t j) {
    Found found{_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (j >= row.from && j < row.to) {
      const __m512 below = _mm512_sub_ps(_mm512_loadu_ps(row.scores + j), _mm512_set1_ps(row.level));
      found.weight = power_of_two(_mm512_mul_ps(below, scale));
      found.slope =
          _mm512_mul_ps(found.weight, _mm512_sub_ps(_mm512_loadu_ps(row.slopes + j), _mm512_set1_ps(row.share)));
    }
    if (keep && row.scores) {
      _mm512_storeu_ps(row.scores + j, found.weight);
      _mm512_storeu_ps(row.slopes + j, found.slope);
    }
    found.slope = _mm512_mul_ps(found.slope, _mm512_set1_ps(row.factor));
    if (row.scaled) store_halves(row.scaled + j, found.slope);
    return found;
  };
  for (std::int64_t j = 0; j < width; j += 16) {
    const Found a = compute(first, j), b = compute(second, j);
    _mm512_storeu_si512(weights + j, _mm512_permutexvar_epi16(order, bits_of(_mm512_cvtne2ps_pbh(b.weight, a.weight))));
    _mm512_storeu_si512(slopes + j, _mm512_permutexvar_epi16(order, bits_of(_mm512_cvtne2ps_pbh(b.slope, a.slope))));
  }
}

}  // namespace torsor::kernel
HWY_POP_ATTRIBUTES

#else

bool has_pair_products() { return false; }

// Nobody calls these where the check above says no.
void pair_product(const Pair*, std::int64_t, std::int64_t, const Pair*, std::int64_t, std::int64_t, float*,
                  std::int64_t, std::int64_t, std::int64_t, const float*, bool) {}
float soften_pairs(float*, std::int64_t, std::int64_t, float&, float&, BFloat16*, bool) { return 1; }
void weigh_pairs(const SlopeRow&, const SlopeRow&, std::int64_t, Pair*, Pair*, bool) {}

}  // namespace torsor::kernel

#endif
