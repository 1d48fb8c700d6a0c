#include "torsor/data/bpe_alphabet.h"

#include <array>

#include "torsor/base/utf8.h"

namespace torsor {
namespace {

bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::size_t kLetters = 0x100 + 68;

struct Alphabet {
  std::array<std::uint8_t, 256> order{};      // bytes by index
  std::array<char32_t, 256> letter{};         // by byte
  std::array<std::int16_t, kLetters> byte{};  // by letter, -1 for none
};

const Alphabet& alphabet() {
  static const Alphabet made = [] {
    Alphabet one;
    one.byte.fill(-1);
    std::size_t index = 0;
    char32_t next = 0x100;
    for (const bool itself : {true, false})
      for (unsigned byte = 0; byte < 256; ++byte) {
        if (stands_for_itself(byte) != itself) continue;
        const char32_t letter = itself ? byte : next++;
        one.order[index++] = static_cast<std::uint8_t>(byte);
        one.letter[byte] = letter;
        one.byte[letter] = static_cast<std::int16_t>(byte);
      }
    return one;
  }();
  return made;
}

}  // namespace

std::uint8_t byte_at(std::size_t index) { return alphabet().order.at(index); }

std::string byte_letters(std::string_view bytes) {
  std::string letters;
  for (const char c : bytes) append_utf8(letters, alphabet().letter[static_cast<unsigned char>(c)]);
  return letters;
}

std::optional<std::string> letters_to_bytes(std::string_view letters) {
  std::string bytes;
  for (std::size_t at = 0; at < letters.size();) {
    const CodePoint point = decode_utf8(letters, at);
    if (!point.valid || point.value >= kLetters || alphabet().byte[point.value] < 0) return std::nullopt;
    bytes += static_cast<char>(static_cast<unsigned char>(alphabet().byte[point.value]));
    at += point.size;
  }
  return bytes;
}

std::string byte_name(std::uint8_t byte) {
  constexpr char digits[] = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + '>';
}

}  // namespace torsor
