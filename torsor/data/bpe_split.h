// Where a byte-level BPE cuts a text before any merge: no token crosses such a cut.
#pragma once

#include <cstddef>
#include <string_view>

namespace torsor {

/// The rules that are known, by the family they come from. Each is an expression whose matches are the pieces, which
/// together are the whole text:
///
///     gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
///     digits  every \p{N} alone; what lies between as gpt2                    (SmolLM, StarCoder)
///     llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
///             |\s*[\r\n]+|\s+(?!\S)|\s+
///     qwen2   as llama3, with \p{N} for \p{N}{1,3}
///
/// A byte that is not part of valid UTF-8 counts as one of [^\s\p{L}\p{N}]. The classes are those of
/// torsor/base/unicode_classes.h.
enum class BpeSplit { gpt2, digits, llama3, qwen2 };

/// The end of the piece that begins at `begin` < text.size(), always beyond `begin`, by the rule gpt2. What stands
/// before `begin` does not matter.
std::size_t piece_end(std::string_view text, std::size_t begin);

/// Gives the pieces of a text, one after the other.
class PieceReader {
 public:
  PieceReader(std::string_view text, BpeSplit split) : text_(text), split_(split) {}

  /// The next piece, never empty; false at the end of the text.
  bool next(std::string_view& piece);

 private:
  std::string_view text_;
  BpeSplit split_;
  std::size_t at_ = 0, part_end_ = 0;  // only with digits: the end of what lies before the next number
};

}  // namespace torsor
