// Forms and classes of characters that normalising a text needs: what BERT's tokenizer strips, splits at and lowers.
#pragma once

#include <string>
#include <string_view>

namespace torsor {

// All of Unicode 16.0.0; the tables are written by scripts/unicode_forms.py.

/// Marks that take no room of their own (general category Mn): accents, vowel points.
bool is_nonspacing_mark(char32_t value);

/// Punctuation (general categories P*): no symbols such as $ + < = > ^ ` | ~.
bool is_punctuation(char32_t value);

/// Controls, formats and private use (general categories Cc, Cf, Co). Unassigned code points are none of them.
bool is_control(char32_t value);

/// The canonical decomposition (NFD): composed characters apart, marks in canonical order.
std::u32string decomposed(std::u32string_view text);

/// The canonical composition (NFC): as decomposed(), then letters and their marks together again where there is one
/// character for both.
std::u32string composed(std::u32string_view text);

/// NFC of UTF-8; bytes that are no part of it stay as they are, and part what is beside them.
std::string composed_utf8(std::string_view text);

/// Appends the lower case of one character: one code point, and two of U+0130. It does not depend on the neighbours, so
/// a sigma at the end of a word is as any other.
void append_lower(std::u32string& text, char32_t value);

}  // namespace torsor
