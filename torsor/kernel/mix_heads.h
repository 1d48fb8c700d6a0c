// Every token's heads mixed by a matrix of its own: what TAPE's position network does to a position state.
#pragma once

#include <array>
#include <cstdint>

namespace torsor::kernel {

/// out[h] = x[h] + sum_e matrix[h, e] x[e], every [.] a row of `width` numbers. T is float or double. Strides are
/// counted in numbers; the numbers of a row lie next to each other.
template <class T>
struct HeadMix {
  std::array<std::int64_t, 3> sizes;  ///< batch, heads, tokens
  std::int64_t width = 0;
  const T* x = nullptr;
  std::array<std::int64_t, 3> x_strides;
  const T* matrix = nullptr;  ///< (batch, tokens, heads, heads), dense
  T* out = nullptr;           ///< must not overlap what is read
  std::array<std::int64_t, 3> out_strides;
};

/// Rows [first, last) of the batch * tokens rows, batch slowest. Nothing is checked. Sums run in an order that does not
/// depend on the instruction set.
void mix_heads(const HeadMix<float>& mix, std::int64_t first, std::int64_t last);
void mix_heads(const HeadMix<double>& mix, std::int64_t first, std::int64_t last);

/// The gradients for `gradient` of `out`: to `out` goes g[e] + sum_h matrix[h, e] g[h], to `matrix_gradient` (as
/// `matrix`) the products <g[h], x[e]>.
template <class T>
struct HeadMixBack {
  const T* gradient = nullptr;
  std::array<std::int64_t, 3> gradient_strides;
  T* matrix_gradient = nullptr;
};
void mix_heads_back(const HeadMix<float>& mix, const HeadMixBack<float>& back, std::int64_t first, std::int64_t last);
void mix_heads_back(const HeadMix<double>& mix, const HeadMixBack<double>& back, std::int64_t first, std::int64_t last);

}  // namespace torsor::kernel
