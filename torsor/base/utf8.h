// UTF-8: strict decoding and encoding of code points, and text that is safe to show in a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace torsor {

/// One step of decode_utf8.
struct CodePoint {
  char32_t value;    ///< the code point, or U+FFFD where the bytes are not valid UTF-8
  std::size_t size;  ///< bytes taken, at least 1
  bool valid;
};

/// Decodes the code point that starts at byte `offset` of `text`. Overlong forms, surrogates (U+D800..U+DFFF), values
/// above U+10FFFF, stray continuation bytes and cut sequences are invalid; such a step takes the longest run of bytes
/// that could have begun a valid sequence (Unicode 15, section 3.9, "maximal subpart"), so a loop always advances.
/// Throws Error when `offset` is not below text.size().
CodePoint decode_utf8(std::string_view text, std::size_t offset);

/// Appends `value` to `text`. Throws Error for surrogates and for values above U+10FFFF.
void append_utf8(std::string& text, char32_t value);

/// Offset of the first byte that is not part of valid UTF-8, or std::string_view::npos when all of `text` is valid.
std::size_t find_invalid_utf8(std::string_view text);

/// Number of code points. Throws Error with the offset of the first bad byte when `text` is not valid UTF-8.
std::size_t count_utf8(std::string_view text);

/// `text` between single quotes for a one-line message: control characters and invalid bytes become \n, \t, \xNN,
/// and what goes beyond `limit` code points is replaced by "...".
std::string quote(std::string_view text, std::size_t limit = 200);

}  // namespace torsor
