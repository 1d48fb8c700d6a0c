#include "torsor/syntax/letters.h"

#include "torsor/base/utf8.h"

namespace torsor::syntax {

bool is_space(char32_t point) {
  switch (point) {
    case 0x09:
    case 0x0A:
    case 0x0B:
    case 0x0C:
    case 0x0D:
    case 0x20:
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return point >= 0x2000 && point <= 0x200A;
  }
}

std::size_t space_at(std::string_view text, std::size_t offset) {
  if (offset >= text.size()) return 0;
  const CodePoint step = decode_utf8(text, offset);
  return step.valid && is_space(step.value) ? step.size : 0;
}

std::size_t skip_spaces(std::string_view text, std::size_t offset) {
  while (const std::size_t size = space_at(text, offset)) offset += size;
  return offset;
}

std::string without_spaces(std::string_view text) {
  std::string kept;
  kept.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint step = decode_utf8(text, i);
    if (!step.valid || !is_space(step.value)) kept += text.substr(i, step.size);
    i += step.size;
  }
  return kept;
}

char32_t lower(char32_t point) {
  const auto in = [&](char32_t first, char32_t last) { return point >= first && point <= last; };
  const char32_t odd = point | 1, even_up = point + (point & 1);
  if (in('A', 'Z')) return point + 0x20;
  if (point < 0xC0) return point;
  if (in(0xC0, 0xDE)) return point == 0xD7 ? point : point + 0x20;
  // Latin: capitals on even numbers, but for two stretches where they are on odd ones. Dotted I has no single partner.
  if (in(0x100, 0x12F) || in(0x132, 0x137) || in(0x14A, 0x177)) return odd;
  if (in(0x139, 0x148) || in(0x179, 0x17E)) return even_up;
  if (point == 0x178) return 0xFF;
  if (point == 0x1A0 || point == 0x1AF) return point + 1;
  if (in(0x1CD, 0x1DC)) return even_up;
  if (in(0x1DE, 0x1EF) || in(0x1F8, 0x21F) || in(0x222, 0x233)) return odd;
  if (in(0x1E00, 0x1E95) || in(0x1EA0, 0x1EFF)) return odd;
  // Greek.
  if (point == 0x386) return 0x3AC;
  if (in(0x388, 0x38A)) return point + 37;
  if (point == 0x38C) return 0x3CC;
  if (in(0x38E, 0x38F)) return point + 63;
  if (in(0x391, 0x3AB) && point != 0x3A2) return point + 0x20;
  // Cyrillic and Armenian.
  if (in(0x400, 0x40F)) return point + 0x50;
  if (in(0x410, 0x42F)) return point + 0x20;
  if (in(0x460, 0x481) || in(0x48A, 0x4BF) || in(0x4D0, 0x52F)) return odd;
  if (in(0x531, 0x556)) return point + 0x30;
  return point;
}

std::string lower(std::string_view text) {
  std::string lowered;
  lowered.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint step = decode_utf8(text, i);
    if (step.valid)
      append_utf8(lowered, lower(step.value));
    else
      lowered += text.substr(i, step.size);
    i += step.size;
  }
  return lowered;
}

}  // namespace torsor::syntax
