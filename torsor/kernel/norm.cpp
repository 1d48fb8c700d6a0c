#include "torsor/kernel/norm.h"

#include <cmath>

// Compiled once an instruction set; the best that the processor has is chosen when the function is called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torsor/kernel/norm.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t lanes = 16;  // of every sum, whatever the vectors' width: the same bits on every machine
using Tag = hn::CappedTag<float, lanes>;

/// Sum over i < width of term(tag, i), as 16 running sums that are added in pairs at the end. `single` gives the terms
/// behind the last full stretch.
template <class Term, class Single>
HWY_INLINE float sum_of(std::int64_t width, const Term& term, const Single& single) {
  const Tag tag;
  const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(tag)), full = width / lanes * lanes;
  HWY_ALIGN float sums[lanes];
  for (std::int64_t lane = 0; lane < lanes; lane += step) {
    auto sum = hn::Zero(tag);
    for (std::int64_t i = lane; i < full; i += lanes) sum = hn::Add(sum, term(tag, i));
    hn::Store(sum, tag, sums + lane);
  }
  for (std::int64_t i = full; i < width; ++i) sums[i - full] += single(i);
  for (std::int64_t half = lanes / 2; half > 0; half /= 2)
    for (std::int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

HWY_NOINLINE void rms_norm_rows(const float* HWY_RESTRICT x, const float* HWY_RESTRICT weight, float eps,
                                std::int64_t width, std::int64_t first, std::int64_t last, float* HWY_RESTRICT y,
                                float* HWY_RESTRICT inverse) {
  const Tag tag;
  const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(tag)), full = width / step * step;
  for (std::int64_t row = first; row < last; ++row) {
    const float* in = x + row * width;
    float* out = y + row * width;
    const float squares = sum_of(
        width,
        [&](Tag d, std::int64_t i) {
          const auto v = hn::LoadU(d, in + i);
          return hn::Mul(v, v);
        },
        [&](std::int64_t i) { return in[i] * in[i]; });
    const float r = 1.0F / std::sqrt(squares / static_cast<float>(width) + eps);
    inverse[row] = r;
    const auto factor = hn::Set(tag, r);
    for (std::int64_t i = 0; i < full; i += step)
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(tag, in + i), factor), hn::LoadU(tag, weight + i)), tag, out + i);
    for (std::int64_t i = full; i < width; ++i) out[i] = in[i] * r * weight[i];
  }
}

// With y_i = x_i r w_i and r = (mean(x^2) + eps)^(-1/2): dr/dx_i = -r^3 x_i / width, so
// dx_i = r (g_i w_i - x_i r^2 sum(g w x) / width), and the weight's gradient is the sum over rows of g_i x_i r.
HWY_NOINLINE void rms_norm_back_rows(const float* HWY_RESTRICT x, const float* HWY_RESTRICT weight,
                                     const float* HWY_RESTRICT inverse, const float* HWY_RESTRICT g, std::int64_t width,
                                     std::int64_t first, std::int64_t last, float* HWY_RESTRICT dx,
                                     float* HWY_RESTRICT dweight) {
  const Tag tag;
  const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(tag)), full = width / step * step;
  for (std::int64_t row = first; row < last; ++row) {
    const float* in = x + row * width;
    const float* up = g + row * width;
    float* out = dx + row * width;
    const float product = sum_of(
        width,
        [&](Tag d, std::int64_t i) {
          return hn::Mul(hn::Mul(hn::LoadU(d, up + i), hn::LoadU(d, weight + i)), hn::LoadU(d, in + i));
        },
        [&](std::int64_t i) { return up[i] * weight[i] * in[i]; });
    const float r = inverse[row], share = r * r * product / static_cast<float>(width);
    const auto factor = hn::Set(tag, r), back = hn::Set(tag, share);
    for (std::int64_t i = 0; i < full; i += step) {
      const auto v = hn::LoadU(tag, in + i), u = hn::LoadU(tag, up + i);
      const auto straight = hn::Mul(u, hn::LoadU(tag, weight + i));
      hn::StoreU(hn::Mul(factor, hn::Sub(straight, hn::Mul(v, back))), tag, out + i);
      hn::StoreU(hn::Add(hn::LoadU(tag, dweight + i), hn::Mul(hn::Mul(u, v), factor)), tag, dweight + i);
    }
    for (std::int64_t i = full; i < width; ++i) {
      out[i] = r * (up[i] * weight[i] - in[i] * share);
      dweight[i] += up[i] * in[i] * r;
    }
  }
}

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torsor::kernel {

HWY_EXPORT(rms_norm_rows);
HWY_EXPORT(rms_norm_back_rows);

void rms_norm(const float* x, const float* weight, float eps, std::int64_t width, std::int64_t first, std::int64_t last,
              float* y, float* inverse) {
  HWY_DYNAMIC_DISPATCH(rms_norm_rows)(x, weight, eps, width, first, last, y, inverse);
}

void rms_norm_back(const float* x, const float* weight, const float* inverse, const float* g, std::int64_t width,
                   std::int64_t first, std::int64_t last, float* dx, float* dweight) {
  HWY_DYNAMIC_DISPATCH(rms_norm_back_rows)(x, weight, inverse, g, width, first, last, dx, dweight);
}

}  // namespace torsor::kernel
#endif  // HWY_ONCE
