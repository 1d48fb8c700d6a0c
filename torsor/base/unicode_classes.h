// The few properties of characters that splitting text into words needs.
#pragma once

#include <cstdint>

namespace torsor {

/// Letters are the general categories L*, numbers N* (digits of every script, fractions, Roman numerals), spaces the
/// property White_Space. Combining marks, punctuation, symbols, controls and unassigned code points are other.
enum class UnicodeClass : std::uint8_t { other, letter, number, space };

/// The class of a code point under Unicode 16.0.0; values beyond U+10FFFF are other. The table is written by
/// scripts/unicode_classes.py.
UnicodeClass unicode_class(char32_t value);

}  // namespace torsor
