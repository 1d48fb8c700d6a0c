#include "torsor/base/utf8.h"

#include <cstdint>

#include "torsor/base/error.h"

namespace torsor {
namespace {

constexpr char32_t replacement = 0xFFFD;
constexpr char32_t largest = 0x10FFFF;

bool is_surrogate(char32_t value) { return value >= 0xD800 && value <= 0xDFFF; }

}  // namespace

CodePoint decode_utf8(std::string_view text, std::size_t offset) {
  if (offset >= text.size()) throw Error(str("decode_utf8: offset ", offset, " is not below the size ", text.size()));
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[offset + i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  // C0 and C1 could only begin overlong forms, F5 and above only values beyond U+10FFFF.
  if (lead < 0xC2 || lead > 0xF4) return {replacement, 1, false};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t value = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (offset + i >= text.size()) return {replacement, i, false};
    // The second byte alone decides about overlong forms, surrogates and the upper end.
    std::uint8_t low = 0x80;
    std::uint8_t high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {replacement, i, false};
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  return {value, length, true};
}

void append_utf8(std::string& text, char32_t value) {
  const auto put = [&](char32_t bits) { text.push_back(static_cast<char>(static_cast<std::uint8_t>(bits))); };
  if (is_surrogate(value) || value > largest) {
    throw Error(str("append_utf8: 0x", std::hex, static_cast<std::uint32_t>(value), " is not a code point of a text"));
  }
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t offset = 0; offset < text.size();) {
    const CodePoint step = decode_utf8(text, offset);
    if (!step.valid) return offset;
    offset += step.size;
  }
  return std::string_view::npos;
}

std::size_t count_utf8(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t offset = 0; offset < text.size(); ++count) {
    const CodePoint step = decode_utf8(text, offset);
    if (!step.valid) throw Error(str("expected UTF-8, but byte ", offset, " begins no valid sequence"));
    offset += step.size;
  }
  return count;
}

std::string quote(std::string_view text, std::size_t limit) {
  constexpr char digits[] = "0123456789abcdef";
  std::string shown = "'";
  const auto escape = [&](char c) {
    const auto byte = static_cast<std::uint8_t>(c);
    shown += "\\x";
    shown += digits[byte >> 4];
    shown += digits[byte & 15];
  };
  std::size_t count = 0;
  for (std::size_t offset = 0; offset < text.size(); ++count) {
    if (count == limit) {
      shown += "...";
      break;
    }
    const CodePoint step = decode_utf8(text, offset);
    const std::string_view bytes = text.substr(offset, step.size);
    offset += step.size;
    // C1 controls (U+0080..U+009F) steer terminals just as C0 controls do.
    const bool control = step.value < 0x20 || (step.value >= 0x7F && step.value <= 0x9F);
    if (step.valid && !control) {
      shown += bytes;
    } else if (step.value == '\n') {
      shown += "\\n";
    } else if (step.value == '\t') {
      shown += "\\t";
    } else {
      for (const char c : bytes) escape(c);
    }
  }
  shown += '\'';
  return shown;
}

}  // namespace torsor
