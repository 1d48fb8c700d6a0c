// Root-mean-square normalisation of rows, and its gradient, each in one pass over memory.
#pragma once

#include <cstdint>

namespace torsor::kernel {

/// y = x / sqrt(mean(x^2) + eps) * weight for rows [first, last) of `width` numbers that follow each other in memory.
/// `inverse` receives 1 / sqrt(...) of each row. Sums in float32 over 16 lanes, the same on every instruction set.
void rms_norm(const float* x, const float* weight, float eps, std::int64_t width, std::int64_t first, std::int64_t last,
              float* y, float* inverse);

/// The gradient: dx of rows [first, last) from the gradient g of y, and the rows' share of the weight's gradient, which
/// is added to `dweight` (width).
void rms_norm_back(const float* x, const float* weight, const float* inverse, const float* g, std::int64_t width,
                   std::int64_t first, std::int64_t last, float* dx, float* dweight);

}  // namespace torsor::kernel
