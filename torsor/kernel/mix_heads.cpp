#include "torsor/kernel/mix_heads.h"

// Compiled once an instruction set; the best that the processor has is chosen when the function is called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torsor/kernel/mix_heads.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t lanes = 8;  // of every sum, whatever the vectors' width: the same bits on every machine

template <class T>
using Tag = hn::CappedTag<T, lanes>;

/// out += factor * x
template <class T>
HWY_INLINE void add_scaled(T factor, const T* HWY_RESTRICT x, std::int64_t width, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> tag;
  const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(tag)), full = width / step * step;
  const auto by = hn::Set(tag, factor);
  for (std::int64_t i = 0; i < full; i += step)
    hn::StoreU(hn::Add(hn::LoadU(tag, out + i), hn::Mul(by, hn::LoadU(tag, x + i))), tag, out + i);
  for (std::int64_t i = full; i < width; ++i) out[i] += factor * x[i];
}

template <class T>
HWY_INLINE T product(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, std::int64_t width) {
  const Tag<T> tag;
  const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(tag)), full = width / lanes * lanes;
  HWY_ALIGN T sums[lanes];
  for (std::int64_t lane = 0; lane < lanes; lane += step) {
    auto sum = hn::Zero(tag);
    for (std::int64_t i = lane; i < full; i += lanes)
      sum = hn::Add(sum, hn::Mul(hn::LoadU(tag, a + i), hn::LoadU(tag, b + i)));
    hn::Store(sum, tag, sums + lane);
  }
  for (std::int64_t i = full; i < width; ++i) sums[i - full] += a[i] * b[i];
  for (std::int64_t half = lanes / 2; half > 0; half /= 2)
    for (std::int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

using Strides = std::array<std::int64_t, 3>;

template <class T>
HWY_INLINE void mix_rows(const HeadMix<T>& mix, std::int64_t first, std::int64_t last) {
  const auto [batch, heads, tokens] = mix.sizes;
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t b = row / tokens, t = row % tokens;
    const T* x = mix.x + b * mix.x_strides[0] + t * mix.x_strides[2];
    T* out = mix.out + b * mix.out_strides[0] + t * mix.out_strides[2];
    const T* matrix = mix.matrix + row * heads * heads;
    for (std::int64_t h = 0; h < heads; ++h) {
      T* own = out + h * mix.out_strides[1];
      const T* same = x + h * mix.x_strides[1];
      for (std::int64_t i = 0; i < mix.width; ++i) own[i] = same[i];
      for (std::int64_t e = 0; e < heads; ++e)
        add_scaled(matrix[h * heads + e], x + e * mix.x_strides[1], mix.width, own);
    }
  }
}

template <class T>
HWY_INLINE void mix_rows_back(const HeadMix<T>& mix, const HeadMixBack<T>& back, std::int64_t first,
                              std::int64_t last) {
  const auto [batch, heads, tokens] = mix.sizes;
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t b = row / tokens, t = row % tokens;
    const T* x = mix.x + b * mix.x_strides[0] + t * mix.x_strides[2];
    const T* g = back.gradient + b * back.gradient_strides[0] + t * back.gradient_strides[2];
    T* dx = mix.out + b * mix.out_strides[0] + t * mix.out_strides[2];
    const T* matrix = mix.matrix + row * heads * heads;
    T* dmatrix = back.matrix_gradient + row * heads * heads;
    for (std::int64_t e = 0; e < heads; ++e) {
      T* own = dx + e * mix.out_strides[1];
      const T* same = g + e * back.gradient_strides[1];
      for (std::int64_t i = 0; i < mix.width; ++i) own[i] = same[i];
      for (std::int64_t h = 0; h < heads; ++h) {
        const T* other = g + h * back.gradient_strides[1];
        add_scaled(matrix[h * heads + e], other, mix.width, own);
        dmatrix[h * heads + e] = product(other, x + e * mix.x_strides[1], mix.width);
      }
    }
  }
}

HWY_NOINLINE void mix_floats(const HeadMix<float>& mix, std::int64_t first, std::int64_t last) {
  mix_rows(mix, first, last);
}
HWY_NOINLINE void mix_floats_back(const HeadMix<float>& mix, const HeadMixBack<float>& back, std::int64_t first,
                                  std::int64_t last) {
  mix_rows_back(mix, back, first, last);
}
#if HWY_HAVE_FLOAT64
HWY_NOINLINE void mix_doubles(const HeadMix<double>& mix, std::int64_t first, std::int64_t last) {
  mix_rows(mix, first, last);
}
HWY_NOINLINE void mix_doubles_back(const HeadMix<double>& mix, const HeadMixBack<double>& back, std::int64_t first,
                                   std::int64_t last) {
  mix_rows_back(mix, back, first, last);
}
#else
#error "every instruction set that is compiled here has float64"
#endif

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torsor::kernel {

HWY_EXPORT(mix_floats);
HWY_EXPORT(mix_floats_back);
HWY_EXPORT(mix_doubles);
HWY_EXPORT(mix_doubles_back);

void mix_heads(const HeadMix<float>& mix, std::int64_t first, std::int64_t last) {
  HWY_DYNAMIC_DISPATCH(mix_floats)(mix, first, last);
}
void mix_heads(const HeadMix<double>& mix, std::int64_t first, std::int64_t last) {
  HWY_DYNAMIC_DISPATCH(mix_doubles)(mix, first, last);
}
void mix_heads_back(const HeadMix<float>& mix, const HeadMixBack<float>& back, std::int64_t first, std::int64_t last) {
  HWY_DYNAMIC_DISPATCH(mix_floats_back)(mix, back, first, last);
}
void mix_heads_back(const HeadMix<double>& mix, const HeadMixBack<double>& back, std::int64_t first,
                    std::int64_t last) {
  HWY_DYNAMIC_DISPATCH(mix_doubles_back)(mix, back, first, last);
}

}  // namespace torsor::kernel
#endif  // HWY_ONCE
