// The online softmax of one row, and what is not a number. Included inside an instruction set by the kernels.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/scores-inl.h"
#include "torsor/kernel/finite.h"

#if defined(TORSOR_KERNEL_CPU_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TORSOR_KERNEL_CPU_SOFTMAX_INL_H
#undef TORSOR_KERNEL_CPU_SOFTMAX_INL_H
#else
#define TORSOR_KERNEL_CPU_SOFTMAX_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

inline bool row_is_finite(const Input& from, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t width) {
  return from.data ? all_finite(Element::Float32, from.row(b, h, t), width)
                   : all_finite(Element::BFloat16, from.half + from.at(b, h, t), width);
}

/// One pass of the online softmax over the vectors [from, to) of a row of scores: they become weights relative to the
/// new largest one. Returns the factor that brings what was summed before to the new scale.
HWY_INLINE float soften(float* HWY_RESTRICT row, std::int64_t from, std::int64_t to, float& largest, float& total) {
  const Tag d;
  Vec most = hn::Set(d, minus_infinity);
  auto bad = hn::FirstN(d, 0);
  for (std::int64_t j = from; j < to; j += lanes()) {
    const Vec score = hn::LoadU(d, row + j);
    most = hn::Max(most, score);
    bad = hn::Or(bad, hn::IsNaN(score));  // Max may lose it
  }
  if (!hn::AllFalse(d, bad)) return largest = total = std::numeric_limits<float>::quiet_NaN();
  const float found = std::max(largest, hn::GetLane(hn::MaxOfLanes(d, most)));
  if (found == minus_infinity) {
    std::fill(row + from, row + to, 0.0F);
    return 1;
  }
  const Vec shift = hn::Set(d, found);
  float fresh = 0;
  for (std::int64_t begin = from; begin < to; begin += stretch) {
    Vec sum = hn::Zero(d);
    for (std::int64_t j = begin; j < std::min(to, begin + stretch); j += lanes()) {
      const Vec weight = exp_below_zero(hn::Sub(hn::LoadU(d, row + j), shift));
      hn::StoreU(weight, d, row + j);
      sum = hn::Add(sum, weight);
    }
    fresh += hn::GetLane(hn::SumOfLanes(d, sum));
  }
  if (largest == found) {
    total += fresh;
    return 1;
  }
  const float factor = largest == minus_infinity ? 0.0F : std::exp(largest - found);
  largest = found;
  total = total * factor + fresh;
  return factor;
}

/// row *= factor
HWY_INLINE void scale_row(float* row, std::int64_t count, float factor) {
  const Tag d;
  const Vec by = hn::Set(d, factor);
  for (std::int64_t c = 0; c < count; c += lanes()) hn::StoreU(hn::Mul(hn::LoadU(d, row + c), by), d, row + c);
}

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
