#include "torsor/kernel/half_product.h"

#include <algorithm>

// Compiled once an instruction set; the best that the processor has is chosen when the function is called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torsor/kernel/half_product.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sums run in 32 lanes whatever the vectors' width, so that a row has the same order of additions everywhere.
constexpr std::int64_t kLanes = 32;
using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;

template <Half kind>
HWY_INLINE Vector load(const std::uint16_t* HWY_RESTRICT numbers) {
  const Tag tag;
  if constexpr (kind == Half::Float16) {
    const hn::Rebind<hwy::float16_t, Tag> half;
    return hn::PromoteTo(tag, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(numbers)));
  } else {
    const hn::Rebind<std::uint16_t, Tag> half;
    const hn::Rebind<std::uint32_t, Tag> wide;
    return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(half, numbers))));
  }
}

template <Half kind>
HWY_INLINE float one(std::uint16_t bits) {
  if constexpr (kind == Half::Float16)
    return widen(Float16{bits});
  else
    return widen(BFloat16{bits});
}

/// One row against all vectors. A row after the other walks through the matrix as it lies in memory, which the
/// processor guesses ahead of: four rows side by side took twice the time (measured 2026-12-01, AMD EPYC).
template <Half kind, int vectors>
HWY_INLINE void row_by_vectors(const HalfProduct& product, const std::uint16_t* HWY_RESTRICT numbers,
                               float* HWY_RESTRICT out, std::int64_t out_stride) {
  const Tag tag;
  constexpr int step = static_cast<int>(hn::MaxLanes(Tag())), all = kLanes / step;
  // As many sums as registers hold; what they leave is another pass over the row, which is near by then.
  constexpr int fitting = 16 / vectors, parts = fitting >= all ? all : fitting >= 4 ? 4 : fitting >= 2 ? 2 : 1;
  const std::int64_t columns = product.columns, full = columns / kLanes * kLanes;
  HWY_ALIGN float sums[vectors][kLanes] = {};
  for (std::int64_t lane = 0; lane < kLanes && full > 0; lane += parts * step) {
    Vector acc[vectors][parts];
    for (int m = 0; m < vectors; ++m)
      for (int part = 0; part < parts; ++part) acc[m][part] = hn::Zero(tag);
    for (std::int64_t c = lane; c < full; c += kLanes)
      for (int part = 0; part < parts; ++part) {
        const Vector w = load<kind>(numbers + c + part * step);
        for (int m = 0; m < vectors; ++m)
          acc[m][part] = hn::MulAdd(w, hn::LoadU(tag, product.x + m * columns + c + part * step), acc[m][part]);
      }
    for (int m = 0; m < vectors; ++m)
      for (int part = 0; part < parts; ++part) hn::Store(acc[m][part], tag, sums[m] + lane + part * step);
  }
  for (int m = 0; m < vectors; ++m) {
    float* HWY_RESTRICT sum = sums[m];
    for (std::int64_t c = full; c < columns; ++c) sum[c - full] += one<kind>(numbers[c]) * product.x[m * columns + c];
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
      for (std::int64_t lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
    out[m * out_stride] = sum[0];
  }
}

template <Half kind, int vectors>
HWY_INLINE void some_rows(const HalfProduct& product, std::int64_t first, std::int64_t last) {
  std::int64_t begin = 0;
  for (const HalfMatrix& matrix : product.matrices) {
    const std::int64_t end = std::min(last - begin, matrix.rows);
    for (std::int64_t row = std::max(first - begin, std::int64_t{0}); row < end; ++row)
      row_by_vectors<kind, vectors>(product, matrix.numbers + row * product.columns, matrix.out + row, matrix.rows);
    begin += matrix.rows;
  }
}

template <Half kind>
HWY_INLINE void any_vectors(const HalfProduct& product, std::int64_t first, std::int64_t last) {
  switch (product.vectors) {
    case 1:
      return some_rows<kind, 1>(product, first, last);
    case 2:
      return some_rows<kind, 2>(product, first, last);
    case 3:
      return some_rows<kind, 3>(product, first, last);
    case 4:
      return some_rows<kind, 4>(product, first, last);
    case 5:
      return some_rows<kind, 5>(product, first, last);
    case 6:
      return some_rows<kind, 6>(product, first, last);
    case 7:
      return some_rows<kind, 7>(product, first, last);
    default:
      return some_rows<kind, 8>(product, first, last);
  }
}

HWY_NOINLINE void float16_product(const HalfProduct& product, std::int64_t first, std::int64_t last) {
  any_vectors<Half::Float16>(product, first, last);
}
HWY_NOINLINE void bfloat16_product(const HalfProduct& product, std::int64_t first, std::int64_t last) {
  any_vectors<Half::BFloat16>(product, first, last);
}

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torsor::kernel {

HWY_EXPORT(float16_product);
HWY_EXPORT(bfloat16_product);

void half_product(const HalfProduct& product, std::int64_t first, std::int64_t last) {
  if (product.kind == Half::Float16)
    HWY_DYNAMIC_DISPATCH(float16_product)(product, first, last);
  else
    HWY_DYNAMIC_DISPATCH(bfloat16_product)(product, first, last);
}

}  // namespace torsor::kernel
#endif  // HWY_ONCE
