// SHA-256 (FIPS 180-4), for the identity of files and data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace torsor {

/// SHA-256 of bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256& update(const void* data, std::size_t size);
  Sha256& update(std::string_view bytes) { return update(bytes.data(), bytes.size()); }

  /// The digest of everything given so far, as 64 lower-case hexadecimal digits; more may be given afterwards.
  std::string hex() const;

 private:
  void absorb(const std::uint8_t* block);
  void finish();

  // First 32 bits of the fractional parts of the square roots of the first eight primes (FIPS 180-4, 5.3.3).
  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_{};
  std::size_t filled_ = 0;
  std::uint64_t total_ = 0;  // bytes
};

/// SHA-256 of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace torsor
