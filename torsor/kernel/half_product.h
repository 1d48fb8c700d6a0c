// Products of a few vectors with matrices stored in half precision: what decoding spends its time on. Every number of a
// matrix is read once, from memory, and widened on the way; sums are float32.
#pragma once

#include <cstdint>
#include <vector>

#include "torsor/kernel/element.h"

namespace torsor::kernel {

enum class Half { Float16, BFloat16 };

/// out[m, r] = sum_c x[m, c] matrix[r, c]
struct HalfMatrix {
  const std::uint16_t* numbers =
      nullptr;  ///< (rows, columns), dense; float16 ones finite, since not every instruction set widens others
  std::int64_t rows = 0;
  float* out = nullptr;  ///< (vectors, rows), dense
};

/// Several matrices of one kind and width that read the same vectors.
struct HalfProduct {
  Half kind = Half::BFloat16;
  std::int64_t columns = 0;
  std::int64_t vectors = 0;  ///< 1 to kMostVectors
  const float* x = nullptr;  ///< (vectors, columns), dense
  std::vector<HalfMatrix> matrices;

  static constexpr std::int64_t kMostVectors = 8;
  std::int64_t rows() const {
    std::int64_t all = 0;
    for (const HalfMatrix& one : matrices) all += one.rows;
    return all;
  }
};

/// Rows [first, last) of all matrices' rows, counted through. Nothing is checked; last <= rows(). A row's sum does not
/// depend on how the rows are cut. Its error is at most (columns / 32 + 6) 2^-24 of the sum of the products' absolute
/// values.
void half_product(const HalfProduct& product, std::int64_t first, std::int64_t last);

}  // namespace torsor::kernel
