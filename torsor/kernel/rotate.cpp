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

}  // namespace

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
