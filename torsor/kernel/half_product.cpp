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

// Sums run in sixteen lanes whatever the vectors' width, so that a row has the same order of additions everywhere.
constexpr std::int64_t kLanes = 16;
using Tag = hn::CappedTag<float, kLanes>;
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

/// `count` rows that lie behind each other, against all vectors. The rows are read side by side: their streams keep
/// more of the memory's requests in flight than one would.
template <Half kind, int count, int vectors>
HWY_INLINE void rows_by_vectors(const HalfProduct& product, const std::uint16_t* HWY_RESTRICT numbers,
                                float* HWY_RESTRICT out, std::int64_t out_stride) {
  const Tag tag;
  const std::int64_t step = static_cast<std::int64_t>(hn::Lanes(tag)), columns = product.columns;
  const std::int64_t full = columns / kLanes * kLanes;
  HWY_ALIGN float sums[count][vectors][kLanes] = {};
  for (std::int64_t lane = 0; lane < kLanes && full > 0; lane += step) {
    Vector acc[count][vectors];
    for (int r = 0; r < count; ++r)
      for (int m = 0; m < vectors; ++m) acc[r][m] = hn::Zero(tag);
    for (std::int64_t c = lane; c < full; c += kLanes) {
      Vector x[vectors];
      for (int m = 0; m < vectors; ++m) x[m] = hn::LoadU(tag, product.x + m * columns + c);
      for (int r = 0; r < count; ++r) {
        const Vector w = load<kind>(numbers + r * columns + c);
        for (int m = 0; m < vectors; ++m) acc[r][m] = hn::MulAdd(w, x[m], acc[r][m]);
      }
    }
    for (int r = 0; r < count; ++r)
      for (int m = 0; m < vectors; ++m) hn::Store(acc[r][m], tag, sums[r][m] + lane);
  }
  for (int r = 0; r < count; ++r)
    for (int m = 0; m < vectors; ++m) {
      float* HWY_RESTRICT sum = sums[r][m];
      for (std::int64_t c = full; c < columns; ++c)
        sum[c - full] += one<kind>(numbers[r * columns + c]) * product.x[m * columns + c];
      for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
        for (std::int64_t lane = 0; lane < half; ++lane) sum[lane] += sum[lane + half];
      out[m * out_stride + r] = sum[0];
    }
}

template <Half kind, int vectors>
HWY_INLINE void some_rows(const HalfProduct& product, std::int64_t first, std::int64_t last) {
  constexpr int block = vectors <= 2 ? 4 : vectors <= 4 ? 2 : 1;  // as many sums as registers hold
  std::int64_t begin = 0;
  for (const HalfMatrix& matrix : product.matrices) {
    std::int64_t row = std::max(first - begin, std::int64_t{0});
    const std::int64_t end = std::min(last - begin, matrix.rows);
    for (; row + block <= end; row += block)
      rows_by_vectors<kind, block, vectors>(product, matrix.numbers + row * product.columns, matrix.out + row,
                                            matrix.rows);
    for (; row < end; ++row)
      rows_by_vectors<kind, 1, vectors>(product, matrix.numbers + row * product.columns, matrix.out + row, matrix.rows);
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
