// The number types that kernels read and write.
#pragma once

#include <cstdint>
#include <cstring>

namespace torsor::kernel {

enum class Element { Float32, Float64, BFloat16 };

/// The upper half of a float32, as the field stores it.
struct BFloat16 {
  std::uint16_t bits;
};

inline float widen(BFloat16 value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}
/// IEEE 754's binary16.
struct Float16 {
  std::uint16_t bits;
};

inline float widen(Float16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16, exponent = (value.bits >> 10) & 0x1FU,
                      fraction = value.bits & 0x3FFU;
  if (exponent == 0) {  // zero, or a multiple of 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -size : size;
  }
  // 2^(e - 15) becomes 2^(e - 127); of infinity and NaN the exponent stays full.
  const std::uint32_t bits = sign | (exponent == 31 ? 0x7F800000U : (exponent + 112) << 23) | (fraction << 13);
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}
inline float widen(float value) { return value; }
inline double widen(double value) { return value; }

inline void narrow(float value, float& to) { to = value; }
inline void narrow(double value, double& to) { to = value; }
/// To the nearest, ties to even; a NaN stays a NaN.
inline void narrow(float value, BFloat16& to) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  to.bits = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40U : rounded >> 16);
}

}  // namespace torsor::kernel
