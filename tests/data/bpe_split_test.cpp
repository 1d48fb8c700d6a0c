#include "torsor/data/bpe_split.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "torsor/base/random.h"
#include "torsor/base/unicode_classes.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text) {
  Pieces pieces;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = piece_end(text, begin);
    if (end <= begin || end > text.size()) {
      ADD_FAILURE() << "piece from " << begin << " ends at " << end;
      break;
    }
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

TEST(BpeSplit, WordsTakeTheSpaceBeforeThem) {
  EXPECT_EQ(pieces_of(""), Pieces());
  EXPECT_EQ(pieces_of("a"), Pieces({"a"}));
  EXPECT_EQ(pieces_of("Hello, my world 42!"), Pieces({"Hello", ",", " my", " world", " 42", "!"}));
  EXPECT_EQ(pieces_of("a1b2"), Pieces({"a", "1", "b", "2"}));
  EXPECT_EQ(pieces_of(" ?!x"), Pieces({" ?!", "x"}));
}

TEST(BpeSplit, ContractionsAreLowerCaseOnly) {
  EXPECT_EQ(pieces_of("I'll don't we've you're I'm he's I'd"),
            Pieces({"I", "'ll", " don", "'t", " we", "'ve", " you", "'re", " I", "'m", " he", "'s", " I", "'d"}));
  EXPECT_EQ(pieces_of("DON'T I'Ll"), Pieces({"DON", "'", "T", " I", "'", "Ll"}));
  EXPECT_EQ(pieces_of("'sam"), Pieces({"'s", "am"}));
  EXPECT_EQ(pieces_of(" 'sam"), Pieces({" '", "sam"}));  // the space takes the apostrophe along
  EXPECT_EQ(pieces_of("!'s"), Pieces({"!'", "s"}));
  EXPECT_EQ(pieces_of("'"), Pieces({"'"}));
  EXPECT_EQ(pieces_of("'r'l"), Pieces({"'", "r", "'", "l"}));
  EXPECT_EQ(pieces_of("''s"), Pieces({"''", "s"}));
}

TEST(BpeSplit, WhiteSpaceLeavesItsLastCharacterToTheWord) {
  EXPECT_EQ(pieces_of("   "), Pieces({"   "}));
  EXPECT_EQ(pieces_of("a   "), Pieces({"a", "   "}));
  EXPECT_EQ(pieces_of("a   b"), Pieces({"a", "  ", " b"}));
  EXPECT_EQ(pieces_of("a\n\nb"), Pieces({"a", "\n", "\n", "b"}));
  EXPECT_EQ(pieces_of("a \t b"), Pieces({"a", " \t", " b"}));
  EXPECT_EQ(pieces_of("a \tb"), Pieces({"a", " ", "\t", "b"}));
  EXPECT_EQ(pieces_of("\r\n"), Pieces({"\r\n"}));
  // Spaces of other kinds are no part of a word, and separate like others.
  EXPECT_EQ(pieces_of("a\xC2\xA0"
                      "b"),
            Pieces({"a", "\xC2\xA0", "b"}));
  EXPECT_EQ(pieces_of("\xE3\x80\x80\xE3\x80\x80x"), Pieces({"\xE3\x80\x80", "\xE3\x80\x80", "x"}));
  EXPECT_EQ(pieces_of("\xC2\x85 x"), Pieces({"\xC2\x85", " x"}));
}

TEST(BpeSplit, OtherScripts) {
  EXPECT_EQ(pieces_of("\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E 3"),
            Pieces({"\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E", " 3"}));
  EXPECT_EQ(pieces_of("1\xD9\xA3\xC2\xBD"), Pieces({"1\xD9\xA3\xC2\xBD"}));  // 1, Arabic-Indic 3, one half
  // A combining mark is no letter: "e" and the acute part.
  EXPECT_EQ(pieces_of("cafe\xCC\x81s"), Pieces({"cafe", "\xCC\x81", "s"}));
  EXPECT_EQ(pieces_of("\xF0\x9F\x98\x80!x"), Pieces({"\xF0\x9F\x98\x80!", "x"}));
}

TEST(BpeSplit, NulAndBytesThatAreNoUtf8AreLikePunctuation) {
  EXPECT_EQ(pieces_of(std::string("a\0b", 3)), Pieces({"a", std::string("\0", 1), "b"}));
  EXPECT_EQ(pieces_of("a\xFF\xFE!b"), Pieces({"a", "\xFF\xFE!", "b"}));
  EXPECT_EQ(pieces_of(" \xC3"), Pieces({" \xC3"}));                      // cut
  EXPECT_EQ(pieces_of("\xED\xA0\x80x"), Pieces({"\xED\xA0\x80", "x"}));  // a surrogate
  EXPECT_EQ(pieces_of("\xC0\xA0"), Pieces({"\xC0\xA0"}));                // an overlong space is no space
}

/// The expression, alternative by alternative with its way back, on code points.
std::size_t expression_end(const std::u32string& text, std::size_t at) {
  const auto kind = [&](std::size_t i) { return unicode_class(text[i]); };
  for (const std::u32string ending : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"})
    if (text.compare(at, ending.size(), ending) == 0) return at + ending.size();
  for (const UnicodeClass wanted : {UnicodeClass::letter, UnicodeClass::number, UnicodeClass::other})
    for (const std::size_t optional_space : {1, 0}) {
      if (optional_space == 1 && text[at] != U' ') continue;
      std::size_t end = at + optional_space;
      while (end < text.size() && kind(end) == wanted) ++end;
      if (end > at + optional_space) return end;
    }
  std::size_t all = at;
  while (all < text.size() && kind(all) == UnicodeClass::space) ++all;
  for (std::size_t end = all; end > at; --end)
    if (end == text.size() || kind(end) == UnicodeClass::space) return end;
  return all;
}

TEST(BpeSplit, IsTheExpressionOnRandomTexts) {
  const std::u32string letters = U"stremvld'' \u00A0\n\t1\u0663aZ\u00E9\u4E2D\u0301!\u3000\U0001F600";
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    std::u32string text;
    for (auto left = random.below(12) + 1; left > 0; --left) text += letters[random.below(letters.size())];
    Pieces expected;
    std::string whole;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = expression_end(text, at);
      std::string piece;
      for (; at < end; ++at) append_utf8(piece, text[at]);
      whole += piece;
      expected.push_back(piece);
    }
    ASSERT_EQ(pieces_of(whole), expected) << quote(whole);
  }
}

Pieces pieces_of(std::string_view text, BpeSplit split) {
  Pieces pieces;
  PieceReader reader(text, split);
  for (std::string_view piece; reader.next(piece);) {
    if (piece.empty()) {
      ADD_FAILURE() << "an empty piece of " << quote(text);
      break;
    }
    pieces.emplace_back(piece);
  }
  return pieces;
}

constexpr BpeSplit kSplits[] = {BpeSplit::gpt2, BpeSplit::digits, BpeSplit::llama3, BpeSplit::qwen2};

TEST(BpeSplit, RandomBytesAreCoveredWhole) {
  Random random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (auto left = random.below(40); left > 0; --left) text += static_cast<char>(random.below(256));
    for (const BpeSplit split : kSplits) {
      std::string joined;
      for (const std::string& piece : pieces_of(text, split)) joined += piece;
      ASSERT_EQ(joined, text);
    }
    ASSERT_EQ(pieces_of(text, BpeSplit::gpt2), pieces_of(text));
  }
}

// What Split with these expressions gives in tokenizers 0.23.3.
TEST(BpeSplit, OtherFamiliesCutElsewhere) {
  const std::string text = "I'LL 1234 go!\n\n  x";
  EXPECT_EQ(pieces_of(text, BpeSplit::llama3), Pieces({"I", "'LL", " ", "123", "4", " go", "!\n\n", " ", " x"}));
  EXPECT_EQ(pieces_of(text, BpeSplit::qwen2), Pieces({"I", "'LL", " ", "1", "2", "3", "4", " go", "!\n\n", " ", " x"}));
  EXPECT_EQ(pieces_of(text, BpeSplit::digits),
            Pieces({"I", "'", "LL", " ", "1", "2", "3", "4", " go", "!", "\n\n ", " x"}));
  // A letter takes along any one character before it but a line end; white space ends with its last line end.
  EXPECT_EQ(pieces_of("(a\tb\nc  \r\n d\xC2\xA0"
                      "e  ",
                      BpeSplit::llama3),
            Pieces({"(a", "\tb", "\n", "c", "  \r\n", " d",
                    "\xC2\xA0"
                    "e",
                    "  "}));
  // Without regard to case a long s is an s.
  EXPECT_EQ(pieces_of("'\xC5\xBFx 'Rex 'lL'l", BpeSplit::llama3),
            Pieces({"'\xC5\xBF", "x", " '", "Rex", " '", "lL", "'l"}));
  EXPECT_EQ(pieces_of("\xD9\xA3\xD9\xA4\xD9\xA5\xD9\xA6", BpeSplit::llama3),
            Pieces({"\xD9\xA3\xD9\xA4\xD9\xA5", "\xD9\xA6"}));
}

/// The expression of Llama 3 alternative by alternative, with at most `most` numbers.
std::size_t llama3_end(const std::u32string& text, std::size_t at, std::size_t most) {
  const auto kind = [&](std::size_t i) { return i < text.size() ? unicode_class(text[i]) : UnicodeClass::space; };
  const auto line_end = [&](std::size_t i) { return i < text.size() && (text[i] == U'\r' || text[i] == U'\n'); };
  for (const std::u32string ending : {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"}) {
    bool same = at + ending.size() <= text.size();
    for (std::size_t i = 0; same && i < ending.size(); ++i) {
      const char32_t c = text[at + i];
      same = c == ending[i] || (c >= U'A' && c <= U'Z' && c + 32 == ending[i]) || (c == 0x17F && ending[i] == U's');
    }
    if (same) return at + ending.size();
  }
  for (const std::size_t before : {1, 0}) {
    const bool may =
        before == 0 || (!line_end(at) && kind(at) != UnicodeClass::letter && kind(at) != UnicodeClass::number);
    std::size_t end = at + before;
    while (may && end < text.size() && kind(end) == UnicodeClass::letter) ++end;
    if (end > at + before) return end;
  }
  std::size_t end = at;
  while (end < text.size() && end < at + most && kind(end) == UnicodeClass::number) ++end;
  if (end > at) return end;
  for (const std::size_t before : {1, 0}) {
    if (before == 1 && text[at] != U' ') continue;
    end = at + before;
    while (end < text.size() && kind(end) == UnicodeClass::other) ++end;
    if (end == at + before) continue;
    while (line_end(end)) ++end;
    return end;
  }
  std::size_t all = at;
  while (all < text.size() && kind(all) == UnicodeClass::space) ++all;
  for (std::size_t blank = all + 1; blank-- > at;)  // \s* gives back until a line end follows
    if (line_end(blank) && blank < all) {
      for (end = blank; end < all && line_end(end);) ++end;
      return end;
    }
  for (end = all; end > at; --end)
    if (end == text.size() || kind(end) == UnicodeClass::space) return end;
  return all;
}

TEST(BpeSplit, IsTheExpressionOfEveryFamilyOnRandomTexts) {
  const std::u32string letters = U"stremvldSRE'' \u00A0\n\r\t\u017F1\u06637aZ\u00E9\u4E2D\u0301!\u3000\U0001F600";
  Random random(3);
  for (int round = 0; round < 20000; ++round) {
    std::u32string text;
    for (auto left = random.below(12) + 1; left > 0; --left) text += letters[random.below(letters.size())];
    std::string whole;
    for (const char32_t c : text) append_utf8(whole, c);
    const auto expected = [&](const auto& end_of) {
      Pieces pieces;
      for (std::size_t at = 0; at < text.size();) {
        std::string piece;
        for (const std::size_t end = end_of(at); at < end; ++at) append_utf8(piece, text[at]);
        pieces.push_back(piece);
      }
      return pieces;
    };
    ASSERT_EQ(pieces_of(whole, BpeSplit::llama3), expected([&](std::size_t at) { return llama3_end(text, at, 3); }))
        << quote(whole);
    ASSERT_EQ(pieces_of(whole, BpeSplit::qwen2), expected([&](std::size_t at) { return llama3_end(text, at, 1); }))
        << quote(whole);
    // Numbers alone, and what lies between by itself.
    ASSERT_EQ(pieces_of(whole, BpeSplit::digits), expected([&](std::size_t at) {
                if (unicode_class(text[at]) == UnicodeClass::number) return at + 1;
                std::size_t end = at;
                while (end < text.size() && unicode_class(text[end]) != UnicodeClass::number) ++end;
                return expression_end(text.substr(0, end), at);
              }))
        << quote(whole);
  }
}

}  // namespace
}  // namespace torsor
