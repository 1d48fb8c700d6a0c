#include "torsor/base/unicode_classes.h"

#include <gtest/gtest.h>

namespace torsor {
namespace {

TEST(UnicodeClasses, AsciiIsAsEverybodyKnowsIt) {
  for (char32_t value = 0; value < 128; ++value) {
    const bool letter = (value >= 'A' && value <= 'Z') || (value >= 'a' && value <= 'z');
    const bool number = value >= '0' && value <= '9', space = value == ' ' || (value >= 9 && value <= 13);
    const UnicodeClass expected = letter   ? UnicodeClass::letter
                                  : number ? UnicodeClass::number
                                  : space  ? UnicodeClass::space
                                           : UnicodeClass::other;
    EXPECT_EQ(unicode_class(value), expected) << static_cast<unsigned>(value);
  }
}

TEST(UnicodeClasses, CharactersOfEveryKind) {
  struct Case {
    char32_t value;
    UnicodeClass expected;
  };
  for (const Case& one : {
           Case{0x00AA, UnicodeClass::letter},    // feminine ordinal, Lo
           Case{0x00B2, UnicodeClass::number},    // superscript two, No
           Case{0x00D7, UnicodeClass::other},     // multiplication sign between letters
           Case{0x01C5, UnicodeClass::letter},    // Lt
           Case{0x02B0, UnicodeClass::letter},    // Lm
           Case{0x0301, UnicodeClass::other},     // combining acute, Mn
           Case{0x0663, UnicodeClass::number},    // Arabic-Indic three
           Case{0x0903, UnicodeClass::other},     // Devanagari visarga, Mc
           Case{0x0E51, UnicodeClass::number},    // Thai one
           Case{0x180E, UnicodeClass::other},     // Mongolian vowel separator, a space until Unicode 6.3
           Case{0x200B, UnicodeClass::other},     // zero width space is no White_Space
           Case{0x2167, UnicodeClass::number},    // Roman eight, Nl
           Case{0x3007, UnicodeClass::number},    // ideographic zero, Nl
           Case{0x4E00, UnicodeClass::letter},    // first and last of the CJK block
           Case{0x9FFF, UnicodeClass::letter},    //
           Case{0xAC00, UnicodeClass::letter},    // Hangul
           Case{0xD800, UnicodeClass::other},     // a surrogate
           Case{0xE000, UnicodeClass::other},     // private use
           Case{0xFEFF, UnicodeClass::other},     // byte-order mark
           Case{0x1D7D8, UnicodeClass::number},   // mathematical digit
           Case{0x1F600, UnicodeClass::other},    // a face
           Case{0x20000, UnicodeClass::letter},   //
           Case{0x323AF, UnicodeClass::letter},   // last ideograph of Unicode 15
           Case{0x323B0, UnicodeClass::other},    // not assigned in Unicode 16
           Case{0x10FFFF, UnicodeClass::other},   //
           Case{0x110000, UnicodeClass::other},   // beyond
           Case{0xFFFFFFFF, UnicodeClass::other}  //
       })
    EXPECT_EQ(unicode_class(one.value), one.expected) << std::hex << static_cast<std::uint32_t>(one.value);
}

TEST(UnicodeClasses, WhiteSpaceIsTheWholeProperty) {
  int count = 0;
  for (char32_t value = 0; value <= 0x10FFFF; ++value) count += unicode_class(value) == UnicodeClass::space ? 1 : 0;
  EXPECT_EQ(count, 25);
  for (const char32_t value : {0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000})
    EXPECT_EQ(unicode_class(value), UnicodeClass::space) << std::hex << static_cast<std::uint32_t>(value);
}

// The sums that Unicode 16.0.0 gives, as the general categories of its UnicodeData.txt count.
TEST(UnicodeClasses, CountsAreThoseOfUnicode16) {
  int letters = 0, numbers = 0;
  for (char32_t value = 0; value <= 0x10FFFF; ++value) {
    letters += unicode_class(value) == UnicodeClass::letter ? 1 : 0;
    numbers += unicode_class(value) == UnicodeClass::number ? 1 : 0;
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(numbers, 1911);
  // Letters that Unicode 16 has added.
  for (const char32_t value : {0x1C89, 0x1C8A, 0xA7CB, 0x105C0})
    EXPECT_EQ(unicode_class(value), UnicodeClass::letter) << std::hex << static_cast<std::uint32_t>(value);
}

}  // namespace
}  // namespace torsor
