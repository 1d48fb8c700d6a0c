#include "torsor/kernel/cpu/pairs.h"

#include <hwy/base.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "torsor/kernel/cpu/fetch.h"

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

/// Sums of neighbours: eight of a's, then eight of b's.
HWY_INLINE __m512 add_neighbours(__m512 a, __m512 b) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b));
}

HWY_INLINE __m512bh load_pairs(const BFloat16* from) { return as_pairs(_mm512_loadu_si512(from)); }

/// pair_dots of a number of rows known to the compiler: sixteen keys at a time, whose sums of lanes then cost three
/// instructions a key instead of eight.
template <int rows>
HWY_INLINE bool dots_of(const BFloat16* const* queries, const float* factors, const BFloat16* keys, std::int64_t row,
                        std::int64_t width, std::int64_t from, std::int64_t until, float* const* scores) {
  __m512 bad = _mm512_setzero_ps();  // 0 times a finite number is 0, and NaN otherwise
  for (std::int64_t j = from; j < until; j += 16) {
    __m512 sums[rows][16];
    for (int n = 0; n < 16; ++n) {
      const BFloat16* key = keys + std::min(j + n, until - 1) * row;
      fetch_ahead(key, 2 * width);
      __m512 sum[rows];
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sum[r] = _mm512_setzero_ps();
      for (std::int64_t c = 0; c < width; c += 32) {
        const __m512bh numbers = load_pairs(key + c);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) sum[r] = _mm512_dpbf16_ps(sum[r], numbers, load_pairs(queries[r] + c));
      }
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sums[r][n] = sum[r];
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int count = 8; count > 0; count /= 2)
#pragma GCC unroll 8
        for (int n = 0; n < count; ++n) sums[r][n] = add_neighbours(sums[r][2 * n], sums[r][2 * n + 1]);
      const __m512 found = _mm512_mul_ps(sums[r][0], _mm512_set1_ps(factors[r]));
      bad = _mm512_fmadd_ps(_mm512_setzero_ps(), found, bad);
      const std::int64_t left = until - j;
      _mm512_mask_storeu_ps(scores[r] + j, static_cast<__mmask16>(left >= 16 ? 0xffffU : (1U << left) - 1U), found);
    }
  }
  return _mm512_cmp_ps_mask(bad, bad, _CMP_UNORD_Q) == 0;
}

/// pair_weighted of `vectors` times 32 channels from channel c on; the first channels ask for the memory of whole rows.
template <int rows, int vectors>
HWY_INLINE void weighted_of(const BFloat16* const* weights, const BFloat16* values, std::int64_t row,
                            std::int64_t width, std::int64_t c, std::int64_t from, std::int64_t until,
                            float* const* sums) {
  // Interleaving two rows leaves four channels of the lower and four of the upper half in turn.
  const __m512i first = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
  const __m512i second = _mm512_set_epi32(31, 30, 29, 28, 15, 14, 13, 12, 27, 26, 25, 24, 11, 10, 9, 8);
  __m512 low[rows][vectors], high[rows][vectors];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) low[r][n] = high[r][n] = _mm512_setzero_ps();
  for (std::int64_t j = from; j < until; j += 2) {
    // An odd last key stands for the one behind it, whose weight is 0.
    const BFloat16 *one = values + j * row + c, *two = j + 1 < until ? one + row : one;
    if (c == 0) {
      fetch_ahead(one, 2 * width);
      fetch_ahead(two, 2 * width);
    }
    __m512bh lower[vectors], upper[vectors];
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) {
      const __m512i a = _mm512_loadu_si512(one + 32 * n), b = _mm512_loadu_si512(two + 32 * n);
      lower[n] = as_pairs(_mm512_unpacklo_epi16(a, b));
      upper[n] = as_pairs(_mm512_unpackhi_epi16(a, b));
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      int pair;
      std::memcpy(&pair, weights[r] + j, sizeof pair);
      const __m512bh weight = as_pairs(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
      for (int n = 0; n < vectors; ++n) {
        low[r][n] = _mm512_dpbf16_ps(low[r][n], weight, lower[n]);
        high[r][n] = _mm512_dpbf16_ps(high[r][n], weight, upper[n]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) {
      float* to = sums[r] + c + 32 * n;
      const __m512 a = _mm512_permutex2var_ps(low[r][n], first, high[r][n]),
                   b = _mm512_permutex2var_ps(low[r][n], second, high[r][n]);
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), a));
      _mm512_storeu_ps(to + 16, _mm512_add_ps(_mm512_loadu_ps(to + 16), b));
    }
}

/// Calls body.operator()<rows>() for 1 <= rows <= most_pair_rows.
template <class Body>
HWY_INLINE auto with_pair_rows(int rows, const Body& body) {
  switch (rows) {
    case 1:
      return body.template operator()<1>();
    case 2:
      return body.template operator()<2>();
    case 3:
      return body.template operator()<3>();
    default:
      return body.template operator()<4>();
  }
}

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

bool pair_dots(const BFloat16* const* queries, const float* factors, int rows, const BFloat16* keys, std::int64_t row,
               std::int64_t width, std::int64_t from, std::int64_t until, float* const* scores) {
  return with_pair_rows(
      rows, [&]<int count>() { return dots_of<count>(queries, factors, keys, row, width, from, until, scores); });
}

void pair_weighted(const BFloat16* const* weights, int rows, const BFloat16* values, std::int64_t row,
                   std::int64_t width, std::int64_t from, std::int64_t until, float* const* sums) {
  with_pair_rows(rows, [&]<int count>() {
    constexpr int most = count > 2 ? 2 : 4;  // sixteen sums, or a row's whole width
    constexpr std::int64_t stretch = 64;     // keys whose sum is taken before it joins a longer one
    for (std::int64_t j = from; j < until; j += stretch) {
      const std::int64_t end = std::min(until, j + stretch);
      std::int64_t c = 0;
      for (; c + 32 * most <= width; c += 32 * most)
        weighted_of<count, most>(weights, values, row, width, c, j, end, sums);
      for (; c < width; c += 32) weighted_of<count, 1>(weights, values, row, width, c, j, end, sums);
    }
  });
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
bool pair_dots(const BFloat16* const*, const float*, int, const BFloat16*, std::int64_t, std::int64_t, std::int64_t,
               std::int64_t, float* const*) {
  return true;
}
void pair_weighted(const BFloat16* const*, int, const BFloat16*, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                   float* const*) {}
float soften_pairs(float*, std::int64_t, std::int64_t, float&, float&, BFloat16*, bool) { return 1; }
void weigh_pairs(const SlopeRow&, const SlopeRow&, std::int64_t, Pair*, Pair*, bool) {}

}  // namespace torsor::kernel

#endif
