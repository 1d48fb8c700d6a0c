// Turns pairs of channels by one complex number a token: what rotary encodings do to queries and keys.
#pragma once

#include <array>
#include <cstdint>

#include "torsor/kernel/element.h"

namespace torsor::kernel {

/// out = x with every plane of the span multiplied by (cosine + i sine); channels outside the span, and heads outside
/// the range, are copied. Computed in float32 (float64 for Float64) and rounded once. Strides are counted in elements;
/// channels lie next to each other in x, out and the tables.
struct Rotation {
  Element element = Element::Float32;
  const void* x = nullptr;
  void* out = nullptr;                ///< must not overlap what is read
  std::array<std::int64_t, 3> sizes;  ///< batch, heads, tokens
  std::int64_t channels = 0;
  std::array<std::int64_t, 3> x_strides, out_strides;

  const void* cosine = nullptr;  ///< (batch, table heads, tokens, planes) in float32 (float64 for Float64)
  const void* sine = nullptr;
  std::array<std::int64_t, 3> table_strides;  ///< 0 where one row serves all; the same for both tables
  std::int64_t heads_a_row = 1;               ///< neighbouring heads that share a row of the tables

  std::int64_t first_head = 0, last_head = 0;  ///< the heads that turn: [first, last)
  std::int64_t offset = 0, width = 0;          ///< the span; width / 2 planes
  std::int64_t blocks = 1;                     ///< the span falls into blocks of equal width, planes counted through
  bool interleaved = false;                    ///< a plane's channels lie side by side, not half a block apart
  bool back = false;                           ///< by the conjugate: the gradient's way
};

/// Rows [first, last) of the batch * tokens rows, batch slowest. Nothing is checked.
void rotate(const Rotation& rotation, std::int64_t first, std::int64_t last);

/// The gradients of the tables where rotation.x was turned and `gradient` (as x, with strides of its own) came back:
///   d cosine = x_a g_a + x_b g_b,   d sine = x_a g_b - x_b g_a   (of the conjugate: its negative)
/// summed over the heads that share a row, in float32 (float64 for Float64). `cosine` and `sine` (batch, `rows`,
/// tokens, planes), dense; rotation.out, its strides and the tables are not read.
struct TableGradients {
  const void* gradient = nullptr;
  std::array<std::int64_t, 3> gradient_strides;
  std::int64_t rows = 1;
  void* cosine = nullptr;
  void* sine = nullptr;
};
void rotate_tables_back(const Rotation& rotation, const TableGradients& to, std::int64_t first, std::int64_t last);

}  // namespace torsor::kernel
