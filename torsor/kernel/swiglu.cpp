#include "torsor/kernel/swiglu.h"

// Compiled once an instruction set; the best that the processor has is chosen when the function is called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torsor/kernel/swiglu.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls body(tag, i) for whole vectors and then for single numbers, which go through the same operations.
template <class Body>
HWY_INLINE void for_each(std::int64_t count, const Body& body) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 1> single;
  const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(wide)), full = count / step * step;
  for (std::int64_t i = 0; i < full; i += step) body(wide, i);
  for (std::int64_t i = full; i < count; ++i) body(single, i);
}

/// 1 / (1 + exp(-x)), and 0 below -87, where exp(-x) nears the end of float32.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0F), least = hn::Set(d, -87.0F);
  const V s = hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(hn::Max(x, least)))));
  return hn::IfThenZeroElse(hn::Lt(x, least), s);
}

HWY_NOINLINE void swiglu_all(const float* HWY_RESTRICT gate, const float* HWY_RESTRICT up, std::int64_t count,
                             float* HWY_RESTRICT y) {
  for_each(count, [&](auto d, std::int64_t i) {
    const auto x = hn::LoadU(d, gate + i);
    hn::StoreU(hn::Mul(hn::Mul(x, sigmoid(d, x)), hn::LoadU(d, up + i)), d, y + i);
  });
}

// d silu(x)/dx = s + x s (1 - s) with s = sigmoid(x).
HWY_NOINLINE void swiglu_back_all(const float* HWY_RESTRICT gate, const float* HWY_RESTRICT up,
                                  const float* HWY_RESTRICT g, std::int64_t count, float* HWY_RESTRICT dgate,
                                  float* HWY_RESTRICT dup) {
  for_each(count, [&](auto d, std::int64_t i) {
    const auto x = hn::LoadU(d, gate + i), v = hn::LoadU(d, g + i);
    const auto s = sigmoid(d, x);
    const auto silu = hn::Mul(x, s);
    const auto slope = hn::Add(s, hn::Mul(silu, hn::Sub(hn::Set(d, 1.0F), s)));
    hn::StoreU(hn::Mul(v, silu), d, dup + i);
    hn::StoreU(hn::Mul(hn::Mul(v, hn::LoadU(d, up + i)), slope), d, dgate + i);
  });
}

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torsor::kernel {

HWY_EXPORT(swiglu_all);
HWY_EXPORT(swiglu_back_all);

void swiglu(const float* gate, const float* up, std::int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(swiglu_all)(gate, up, count, y);
}

void swiglu_back(const float* gate, const float* up, const float* g, std::int64_t count, float* dgate, float* dup) {
  HWY_DYNAMIC_DISPATCH(swiglu_back_all)(gate, up, g, count, dgate, dup);
}

}  // namespace torsor::kernel
#endif  // HWY_ONCE
