#include "torsor/base/base64.h"

#include <cstdint>

namespace torsor {
namespace {

/// The six bits of a character; 64 for none.
std::uint32_t bits_of(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<std::uint32_t>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<std::uint32_t>(c - 'a') + 26;
  if (c >= '0' && c <= '9') return static_cast<std::uint32_t>(c - '0') + 52;
  return c == '+' ? 62 : c == '/' ? 63 : 64;
}

}  // namespace

std::optional<std::string> base64_bytes(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::size_t count = 4;
    if (at + 4 == text.size()) {
      if (text[at + 3] == '=') count = text[at + 2] == '=' ? 2 : 3;
    }
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint32_t bits = i < count ? bits_of(text[at + i]) : 0;
      if (bits > 63) return std::nullopt;
      word = word << 6 | bits;
    }
    for (std::size_t i = 0; i + 1 < count; ++i)
      bytes += static_cast<char>(static_cast<unsigned char>(word >> (16 - 8 * i)));
    if (count < 4 && (word & ((1U << (8 * (4 - count))) - 1)) != 0) return std::nullopt;
  }
  return bytes;
}

}  // namespace torsor
