#include "torsor/base/unicode_forms.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "torsor/base/hash.h"

namespace torsor {
namespace {

std::u32string lowered(std::u32string_view text) {
  std::u32string lower;
  for (const char32_t value : text) append_lower(lower, value);
  return lower;
}

// A line a code point, "C3 000 | E3 | 41 303": classes, lower case, decomposition. The digest is of the lines that were
// made without this project's tables: classes and decompositions by Python's unicodedata2 16.0.0, lower case by Rust's
// standard library (through Hugging Face's tokenizers 0.23.3, save for the letters that are new in Unicode 17).
TEST(UnicodeForms, EveryCodePointIsAsOthersHaveIt) {
  Sha256 hash;
  std::string line;
  char part[16];
  const auto append = [&](std::u32string_view text) {
    for (const char32_t c : text) {
      std::snprintf(part, sizeof part, " %X", static_cast<unsigned>(c));
      line += part;
    }
  };
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::snprintf(part, sizeof part, "%X %d%d%d |", static_cast<unsigned>(value), is_nonspacing_mark(value) ? 1 : 0,
                  is_punctuation(value) ? 1 : 0, is_control(value) ? 1 : 0);
    line = part;
    append(lowered(std::u32string(1, value)));
    line += " |";
    append(decomposed(std::u32string(1, value)));
    line += "\n";
    hash.update(line);
  }
  EXPECT_EQ(hash.hex(), "c0c4ccd18876ab03d529e85bd83a57ffc8a82ca82470cf0b4c0ef5ea5353b421");
}

TEST(UnicodeForms, MarksStandInTheOrderOfTheirClasses) {
  EXPECT_EQ(decomposed(U""), U"");
  EXPECT_EQ(decomposed(U"a\u0323\u0307"), U"a\u0323\u0307");  // below (220) before above (230)
  EXPECT_EQ(decomposed(U"a\u0307\u0323"), U"a\u0323\u0307");
  EXPECT_EQ(decomposed(U"\u1E69"), U"s\u0323\u0307");
  EXPECT_EQ(decomposed(U"\u1E61\u0323"), U"s\u0323\u0307");             // the mark of a composed letter moves too
  EXPECT_EQ(decomposed(U"\u0307\u0301\u0316"), U"\u0316\u0307\u0301");  // equal classes keep their order
  EXPECT_EQ(decomposed(U"a\u0307b\u0323"), U"a\u0307b\u0323");          // each run for itself
  EXPECT_EQ(decomposed(U"\u1F82"), U"\u03B1\u0313\u0300\u0345");        // four at once
  EXPECT_EQ(decomposed(U"\uAC01\uAC00"), U"\u1100\u1161\u11A8\u1100\u1161");
}

// A line a code point, "E9 | 1EB9 301": NFC of it, and of it with two marks more. The digest is of the lines that
// Python's unicodedata2 16.0.0 makes.
TEST(UnicodeForms, EveryCodePointIsComposedAsOthersHaveIt) {
  Sha256 hash;
  std::string line;
  char part[16];
  const auto append = [&](std::u32string_view text, const char* end) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      std::snprintf(part, sizeof part, i > 0 ? " %X" : "%X", static_cast<unsigned>(text[i]));
      line += part;
    }
    line += end;
  };
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    line.clear();
    append(composed(std::u32string(1, value)), " | ");
    append(composed(decomposed(std::u32string(1, value)) + U"\u0301\u0323"), "\n");
    hash.update(line);
  }
  EXPECT_EQ(hash.hex(), "0339f8d9b58b07bdc339bfc20f22131a94ea9f3e35d14ed5f718013118496dae");
}

TEST(UnicodeForms, CompositionIsStoppedByWhatLiesBetween) {
  EXPECT_EQ(composed(U""), U"");
  EXPECT_EQ(composed(U"e\u0301"), U"\u00E9");
  EXPECT_EQ(composed(U"e\u0323\u0301"), U"\u1EB9\u0301");
  EXPECT_EQ(composed(U"e\u0335\u0301"), U"\u00E9\u0335");  // another class lies between
  EXPECT_EQ(composed(U"e\u0300\u0301"), U"\u00E8\u0301");  // the same one stops it
  EXPECT_EQ(composed(U"\u0301e"), U"\u0301e");
  EXPECT_EQ(composed(U"\u0958\u2126"), U"\u0915\u093C\u03A9");  // excluded, and a character that means another
  EXPECT_EQ(composed(U"\u1100\u1161\u11A8\u11A8"), U"\uAC01\u11A8");
  EXPECT_EQ(composed(U"\u1100\u1161\u11A7"), U"\uAC00\u11A7");
  EXPECT_EQ(composed_utf8("caf\xC3\xA9 e"), "caf\xC3\xA9 e");
  EXPECT_EQ(composed_utf8("e\xCC\x81\xFF\xCC\x81"
                          "e\xCC"),
            "\xC3\xA9\xFF\xCC\x81"
            "e\xCC");
}

TEST(UnicodeForms, LowerCase) {
  EXPECT_EQ(lowered(U"AZ[az@"), U"az[az@");
  EXPECT_EQ(lowered(U"\u0130"), U"i\u0307");
  EXPECT_EQ(lowered(U"\u1E9E\u00DF"), U"\u00DF\u00DF");
  EXPECT_EQ(lowered(U"\u039F\u03A3"), U"\u03BF\u03C3");              // no final sigma
  EXPECT_EQ(lowered(U"\u0100\u0101\u0102"), U"\u0101\u0101\u0103");  // every second one
  EXPECT_EQ(lowered(std::u32string(1, 0x110000)), std::u32string(1, 0x110000));
}

TEST(UnicodeForms, ClassesAtTheirEdges) {
  EXPECT_TRUE(is_nonspacing_mark(0x300));
  EXPECT_FALSE(is_nonspacing_mark(0x2FF));
  EXPECT_FALSE(is_nonspacing_mark(0x903));  // takes room: Mc
  for (const char32_t value : {U'!', U'_', U'}', U'\u00BF', U'\u3001'}) EXPECT_TRUE(is_punctuation(value));
  for (const char32_t value : {U'$', U'+', U'<', U'^', U'`', U'|', U'~', U'a', U' '})
    EXPECT_FALSE(is_punctuation(value));
  for (const char32_t value : {U'\0', U'\x7F', U'\u00AD', U'\u200B', U'\uE000'}) EXPECT_TRUE(is_control(value));
  EXPECT_FALSE(is_control(0x378));  // unassigned
  EXPECT_FALSE(is_control(0x110000));
  EXPECT_FALSE(is_punctuation(0x110000));
}

}  // namespace
}  // namespace torsor
