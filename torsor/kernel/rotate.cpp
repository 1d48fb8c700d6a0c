#include "torsor/kernel/rotate.h"

#include <algorithm>

namespace torsor::kernel {
namespace {

template <class T>
void turn_halves(const T* __restrict x, T* __restrict out, const auto* __restrict cosine, const auto* __restrict sine,
                 auto sign, std::int64_t planes) {
  for (std::int64_t p = 0; p < planes; ++p) {
    const auto a = widen(x[p]), b = widen(x[p + planes]);
    const auto c = cosine[p], s = sign * sine[p];
    narrow(a * c - b * s, out[p]);
    narrow(a * s + b * c, out[p + planes]);
  }
}

template <class T>
void turn_neighbours(const T* __restrict x, T* __restrict out, const auto* __restrict cosine,
                     const auto* __restrict sine, auto sign, std::int64_t planes) {
  for (std::int64_t p = 0; p < planes; ++p) {
    const auto a = widen(x[2 * p]), b = widen(x[2 * p + 1]);
    const auto c = cosine[p], s = sign * sine[p];
    narrow(a * c - b * s, out[2 * p]);
    narrow(a * s + b * c, out[2 * p + 1]);
  }
}

template <class T, class Wide>
void rotate_rows(const Rotation& r, std::int64_t first, std::int64_t last) {
  const auto [batch, heads, tokens] = r.sizes;
  const std::int64_t each = r.width / r.blocks, planes = each / 2, end = r.offset + r.width;
  const Wide sign = r.back ? -1 : 1;
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t b = row / tokens, t = row % tokens;
    for (std::int64_t h = 0; h < heads; ++h) {
      const T* x = static_cast<const T*>(r.x) + b * r.x_strides[0] + h * r.x_strides[1] + t * r.x_strides[2];
      T* out = static_cast<T*>(r.out) + b * r.out_strides[0] + h * r.out_strides[1] + t * r.out_strides[2];
      if (h < r.first_head || h >= r.last_head) {
        std::copy(x, x + r.channels, out);
        continue;
      }
      const std::int64_t entry =
          b * r.table_strides[0] + (h - r.first_head) / r.heads_a_row * r.table_strides[1] + t * r.table_strides[2];
      const Wide* cosine = static_cast<const Wide*>(r.cosine) + entry;
      const Wide* sine = static_cast<const Wide*>(r.sine) + entry;
      std::copy(x, x + r.offset, out);
      std::copy(x + end, x + r.channels, out + end);
      for (std::int64_t block = 0; block < r.blocks; ++block) {
        const std::int64_t channel = r.offset + block * each, plane = block * planes;
        if (r.interleaved)
          turn_neighbours(x + channel, out + channel, cosine + plane, sine + plane, sign, planes);
        else
          turn_halves(x + channel, out + channel, cosine + plane, sine + plane, sign, planes);
      }
    }
  }
}

/// Adds the shares of one head and block; `step` channels between the planes' first ones, `apart` to the second.
template <class T>
void add_table_gradients(const T* __restrict x, const T* __restrict g, std::int64_t step, std::int64_t apart, auto sign,
                         std::int64_t planes, auto* __restrict cosine, auto* __restrict sine) {
  for (std::int64_t p = 0; p < planes; ++p) {
    const auto a = widen(x[step * p]), b = widen(x[step * p + apart]);
    const auto u = widen(g[step * p]), v = widen(g[step * p + apart]);
    cosine[p] += a * u + b * v;
    sine[p] += sign * (a * v - b * u);
  }
}

template <class T, class Wide>
void table_gradient_rows(const Rotation& r, const TableGradients& to, std::int64_t first, std::int64_t last) {
  const std::int64_t tokens = r.sizes[2], each = r.width / r.blocks, planes = each / 2, all = r.width / 2;
  const Wide sign = r.back ? -1 : 1;
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t b = row / tokens, t = row % tokens;
    for (std::int64_t i = 0; i < to.rows; ++i) {
      const std::int64_t entry = ((b * to.rows + i) * tokens + t) * all;
      Wide* cosine = static_cast<Wide*>(to.cosine) + entry;
      Wide* sine = static_cast<Wide*>(to.sine) + entry;
      std::fill(cosine, cosine + all, Wide{0});
      std::fill(sine, sine + all, Wide{0});
    }
    for (std::int64_t h = r.first_head; h < r.last_head; ++h) {
      const T* x = static_cast<const T*>(r.x) + b * r.x_strides[0] + h * r.x_strides[1] + t * r.x_strides[2];
      const T* g = static_cast<const T*>(to.gradient) + b * to.gradient_strides[0] + h * to.gradient_strides[1] +
                   t * to.gradient_strides[2];
      const std::int64_t i = to.rows == 1 ? 0 : (h - r.first_head) / r.heads_a_row;
      const std::int64_t entry = ((b * to.rows + i) * tokens + t) * all;
      for (std::int64_t block = 0; block < r.blocks; ++block) {
        const std::int64_t channel = r.offset + block * each, at = entry + block * planes;
        Wide* cosine = static_cast<Wide*>(to.cosine) + at;
        Wide* sine = static_cast<Wide*>(to.sine) + at;
        // Two calls, so that each has its steps as constants and runs in vectors.
        if (r.interleaved)
          add_table_gradients(x + channel, g + channel, 2, 1, sign, planes, cosine, sine);
        else
          add_table_gradients(x + channel, g + channel, 1, planes, sign, planes, cosine, sine);
      }
    }
  }
}

}  // namespace

void rotate_tables_back(const Rotation& rotation, const TableGradients& to, std::int64_t first, std::int64_t last) {
  switch (rotation.element) {
    case Element::Float32:
      return table_gradient_rows<float, float>(rotation, to, first, last);
    case Element::Float64:
      return table_gradient_rows<double, double>(rotation, to, first, last);
    case Element::BFloat16:
      return table_gradient_rows<BFloat16, float>(rotation, to, first, last);
  }
}

void rotate(const Rotation& rotation, std::int64_t first, std::int64_t last) {
  switch (rotation.element) {
    case Element::Float32:
      return rotate_rows<float, float>(rotation, first, last);
    case Element::Float64:
      return rotate_rows<double, double>(rotation, first, last);
    case Element::BFloat16:
      return rotate_rows<BFloat16, float>(rotation, first, last);
  }
}

}  // namespace torsor::kernel
