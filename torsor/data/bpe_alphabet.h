// How vocabularies write bytes in text files: byte-level ones a printable character for each of the 256, others a name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace torsor {

/// The bytes in GPT-2's order, which is that of the characters that stand for them: printable ASCII and Latin-1, then
/// the 68 others, in order. `index` < 256.
std::uint8_t byte_at(std::size_t index);

/// `bytes` as they stand in vocab.json: "\xC3\xA9 x" is "Ã©Ġx".
std::string byte_letters(std::string_view bytes);

/// The bytes that `letters` stand for, or nothing when one of its characters stands for no byte.
std::optional<std::string> letters_to_bytes(std::string_view letters);

/// U+2581, which stands for a space in the tokens of SentencePiece and its kin.
inline constexpr std::string_view kSpace = "\xE2\x96\x81";
/// "<0x00>" to "<0xFF>", which SentencePiece calls the tokens of single bytes.
std::string byte_name(std::uint8_t byte);

}  // namespace torsor
