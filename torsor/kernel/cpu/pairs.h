// Products of bf16 numbers in pairs, where the processor multiplies two of them and adds both products to a float32 in
// one instruction (AVX-512 BF16). Debian's Highway has no such target, so these are intrinsics, behind a run-time
// check.
//
// A pair is two bf16 numbers that lie next to each other along the depth of a product, the first in the lower half.
#pragma once

#include <cstdint>

#include "torsor/kernel/element.h"

namespace torsor::kernel {

/// True where the processor has the instructions. The functions below may be called only then.
bool has_pair_products();

using Pair = std::uint32_t;

inline Pair pair_of(BFloat16 first, BFloat16 second) {
  return static_cast<Pair>(first.bits) | static_cast<Pair>(second.bits) << 16;
}

/// sums[row][column] (+)= factor[row] times the sum over c < depth of the two products of left[row * left_row + c *
/// left_column] and right[c * right_stride + column]. `columns` is a multiple of 16; `factors` may be null (1). Numbers
/// too small for a normal float32 count as 0.
void pair_product(const Pair* left, std::int64_t left_row, std::int64_t left_column, const Pair* right,
                  std::int64_t right_stride, std::int64_t depth, float* sums, std::int64_t sums_stride,
                  std::int64_t rows, std::int64_t columns, const float* factors, bool add);

/// The online softmax of a row over [from, to), multiples of 16: weights exp(score - largest) as bf16, and as float32
/// in the place of the scores where `keep`. Returns the factor that brings what was summed before to the new scale.
float soften_pairs(float* scores, std::int64_t from, std::int64_t to, float& largest, float& total, BFloat16* weights,
                   bool keep);

/// Queries that read keys and values together in one pass.
constexpr int most_pair_rows = 4;

/// scores[r][j] = factors[r] <queries[r], key j> of `rows` <= most_pair_rows queries with the keys [from, until), keys
/// + j * row each. The width is a multiple of 32. False where a score is not finite.
bool pair_dots(const BFloat16* const* queries, const float* factors, int rows, const BFloat16* keys, std::int64_t row,
               std::int64_t width, std::int64_t from, std::int64_t until, float* const* scores);

/// sums[r] += the sum over the keys [from, until) of weights[r][j] times value j, values + j * row each. `from` is
/// even, an odd last key has a weight of 0 behind it; the width is a multiple of 32.
void pair_weighted(const BFloat16* const* weights, int rows, const BFloat16* values, std::int64_t row,
                   std::int64_t width, std::int64_t from, std::int64_t until, float* const* sums);

/// One row of a tile in the backward pass.
struct SlopeRow {
  float* scores = nullptr;  ///< in: scores; out: weights where `keep`
  float* slopes = nullptr;  ///< in: dP; out: dS where `keep`
  std::int64_t from = 0, to = 0;
  float level = 0, share = 0, factor = 0;
  BFloat16* scaled = nullptr;  ///< out: dS factor
};

/// weights = exp(score - level), dS = weight (dP - share) of two rows over [0, width), width a multiple of 16, zeros
/// outside of what each row sees: pairs of both rows' weights and of both rows' dS factor, and each row's dS factor.
void weigh_pairs(const SlopeRow& first, const SlopeRow& second, std::int64_t width, Pair* weights, Pair* slopes,
                 bool keep);

}  // namespace torsor::kernel
