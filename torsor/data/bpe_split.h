// Where GPT-2 cuts a text before any merge: no token crosses such a cut.
#pragma once

#include <cstddef>
#include <string_view>

namespace torsor {

/// The end of the piece that begins at `begin` < text.size(), always beyond `begin`. Cutting from 0 on gives the
/// matches of GPT-2's expression, which together are the whole text:
///
///     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///
/// A byte that is not part of valid UTF-8 counts as one of [^\s\p{L}\p{N}]. The classes are those of
/// torsor/base/unicode_classes.h. What stands before `begin` does not matter.
std::size_t piece_end(std::string_view text, std::size_t begin);

}  // namespace torsor
