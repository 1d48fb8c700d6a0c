// What the treebank formats ask of Unicode: white space and the case of letters, without tables of all of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace torsor::syntax {

/// A space of category Zs, a tab or a line break (LF, VT, FF, CR, U+0085, U+2028, U+2029).
bool is_space(char32_t point);

/// Bytes of the space at `offset` of `text`, 0 where there is none (also behind the end).
std::size_t space_at(std::string_view text, std::size_t offset);
/// The first offset from `offset` on that holds no space.
std::size_t skip_spaces(std::string_view text, std::size_t offset);
/// `text` without its spaces: what two versions of a text must share.
std::string without_spaces(std::string_view text);

/// The lower-case letter of Latin, Greek, Cyrillic and Armenian capitals that have a single one; others unchanged.
char32_t lower(char32_t point);
/// `text` in lower case; bytes that are no UTF-8 stay.
std::string lower(std::string_view text);

}  // namespace torsor::syntax
