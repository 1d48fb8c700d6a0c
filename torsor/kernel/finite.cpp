#include "torsor/kernel/finite.h"

#include <algorithm>
#include <cstring>

namespace torsor::kernel {
namespace {

/// A number is not finite when all bits of its exponent are set. The bits are compared as integers, which no compiler
/// setting that assumes finite numbers can remove, and counted without a branch so that the loop becomes vector code.
template <class Bits>
bool all_finite_bits(const void* numbers, std::int64_t count, Bits exponent) {
  const char* bytes = static_cast<const char*>(numbers);
  constexpr std::int64_t stretch = 4096;  // between two looks at the count
  for (std::int64_t begin = 0; begin < count; begin += stretch) {
    const std::int64_t end = std::min(count, begin + stretch);
    Bits bad = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, bytes + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
      bad |= static_cast<Bits>((bits & exponent) == exponent);
    }
    if (bad != 0) return false;
  }
  return true;
}

}  // namespace

bool all_finite(Element element, const void* numbers, std::int64_t count) {
  switch (element) {
    case Element::Float32:
      return all_finite_bits(numbers, count, std::uint32_t{0x7f800000U});
    case Element::Float64:
      return all_finite_bits(numbers, count, std::uint64_t{0x7ff0000000000000U});
    case Element::BFloat16:
      return all_finite_bits(numbers, count, std::uint16_t{0x7f80U});
  }
  return false;
}

}  // namespace torsor::kernel
