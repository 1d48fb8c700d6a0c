#include "torsor/base/utf8.h"

#include <gtest/gtest.h>

#include "torsor/base/error.h"

namespace torsor {
namespace {

struct Valid {
  std::string bytes;
  char32_t value;
};

TEST(Utf8, DecodesAndEncodesTheEdgesOfEveryLength) {
  const Valid cases[] = {{std::string("\0", 1), 0},
                         {"\x7F", 0x7F},
                         {"\xC2\x80", 0x80},
                         {"\xDF\xBF", 0x7FF},
                         {"\xE0\xA0\x80", 0x800},
                         {"\xED\x9F\xBF", 0xD7FF},
                         {"\xEE\x80\x80", 0xE000},
                         {"\xEF\xBF\xBF", 0xFFFF},
                         {"\xF0\x90\x80\x80", 0x10000},
                         {"\xF4\x8F\xBF\xBF", 0x10FFFF},
                         {"\xE2\x82\xAC", 0x20AC}};
  for (const Valid& c : cases) {
    const CodePoint step = decode_utf8("x" + c.bytes + "y", 1);
    EXPECT_TRUE(step.valid);
    EXPECT_EQ(step.value, c.value);
    EXPECT_EQ(step.size, c.bytes.size());
    std::string out = "x";
    append_utf8(out, c.value);
    EXPECT_EQ(out, "x" + c.bytes);
    EXPECT_EQ(find_invalid_utf8(c.bytes), std::string::npos);
  }
}

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t value = 0; value <= 0x10FFFF; ++value) {
    if (value == 0xD800) value = 0xE000;
    std::string text;
    append_utf8(text, value);
    const CodePoint step = decode_utf8(text, 0);
    ASSERT_TRUE(step.valid && step.value == value && step.size == text.size()) << static_cast<std::uint32_t>(value);
  }
}

TEST(Utf8, InvalidSequencesTakeTheirMaximalSubpart) {
  struct Invalid {
    std::string bytes;
    std::size_t size;
  };
  const Invalid cases[] = {{"\x80", 1},  // stray continuation
                           {"\xBF", 1},
                           {"\xC0\x80", 1},  // overlong
                           {"\xC1\xBF", 1},
                           {"\xE0\x80\x80", 1},
                           {"\xE0\x9F\xBF", 1},
                           {"\xF0\x80\x80\x80", 1},
                           {"\xF0\x8F\xBF\xBF", 1},
                           {"\xED\xA0\x80", 1},  // surrogates
                           {"\xED\xBF\xBF", 1},
                           {"\xF4\x90\x80\x80", 1},  // beyond the end
                           {"\xF5\x80\x80\x80", 1},
                           {"\xFF", 1},
                           {"\xC3", 1},  // cut
                           {"\xE2\x82", 2},
                           {"\xF0\x9F\x98", 3},
                           {"\xE2\x82x", 2},  // broken off
                           {"\xF0\x9F\x98x", 3},
                           {"\xC3\xC3\xA9", 1}};
  for (const Invalid& c : cases) {
    const CodePoint step = decode_utf8(c.bytes, 0);
    EXPECT_FALSE(step.valid);
    EXPECT_EQ(step.value, char32_t{0xFFFD});
    EXPECT_EQ(step.size, c.size);
    EXPECT_EQ(find_invalid_utf8("ab\xC3\xA9" + c.bytes), 4u);
    EXPECT_THROW(count_utf8(c.bytes), Error);
  }
}

TEST(Utf8, CountsCodePoints) {
  EXPECT_EQ(count_utf8(""), 0u);
  EXPECT_EQ(count_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), 4u);
  try {
    count_utf8("abc\xFF");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("byte 3"), std::string::npos);
  }
}

TEST(Utf8, RefusesWhatIsNoCodePoint) {
  std::string text = "x";
  EXPECT_THROW(append_utf8(text, 0xD800), Error);
  EXPECT_THROW(append_utf8(text, 0xDFFF), Error);
  EXPECT_THROW(append_utf8(text, 0x110000), Error);
  EXPECT_EQ(text, "x");
  EXPECT_THROW(decode_utf8("ab", 2), Error);
  EXPECT_THROW(decode_utf8("", 0), Error);
}

TEST(Utf8, QuoteIsOneSafeLine) {
  EXPECT_EQ(quote(""), "''");
  EXPECT_EQ(quote("caf\xC3\xA9"), "'caf\xC3\xA9'");
  EXPECT_EQ(quote("a\nb\tc\x1b[0m\x7F"), "'a\\nb\\tc\\x1b[0m\\x7f'");
  EXPECT_EQ(quote("\xC2\x9B"), "'\\xc2\\x9b'");
  EXPECT_EQ(quote("\xE2\x82"), "'\\xe2\\x82'");
  EXPECT_EQ(quote("\xC3\xA9\xC3\xA9\xC3\xA9", 2), "'\xC3\xA9\xC3\xA9...'");
  EXPECT_EQ(quote("ab", 2), "'ab'");
}

}  // namespace
}  // namespace torsor
