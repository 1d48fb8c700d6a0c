// WordPiece on a small vocabulary: how words are found and cut, what comes back, what is refused.
#include "torsor/data/wordpiece.h"

#include <gtest/gtest.h>

#include "tests/data/golden_ids.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using namespace data_test;

/// 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], and then what the tests need.
WordPieceModel small_model() {
  WordPieceModel model;
  model.vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##a",          "ab", "##b", "##ba", ".", ",",
                      "n",     "##'t",  "'",     "t",     "e", "\xE4\xB8\xAD", "i",  "##i", "not",  "do"};
  for (TokenId id = 0; id < 4; ++id)
    model.added.push_back({.id = id, .content = model.vocabulary[id], .special = true});
  return model;
}

TEST(WordPiece, TakesTheLongestPieceFirst) {
  const WordPieceTokenizer tokenizer(small_model());
  EXPECT_EQ(tokenizer.encode("aba"), Ids({6, 5}));      // ab ##a, not a ##ba
  EXPECT_EQ(tokenizer.encode("abab"), Ids({6, 5, 7}));  // ab ##a ##b
  EXPECT_EQ(tokenizer.encode("aab"), Ids({4, 5, 7}));
  // What was cut already does not matter where the rest is unknown, and "##b" begins no word.
  EXPECT_EQ(tokenizer.encode("abx b ab"), Ids({1, 1, 6}));
  EXPECT_EQ(tokenizer.encode(""), Ids());
  EXPECT_EQ(tokenizer.encode(" \t\n\r\xC2\xA0\xE3\x80\x80"), Ids());
}

TEST(WordPiece, LongWordsAreUnknown) {
  WordPieceModel model = small_model();
  model.longest_word = 4;
  const WordPieceTokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.encode("aaaa aaaaa a"), Ids({4, 5, 5, 5, 1, 4}));
  // In code points, of what normalising leaves: these are 4 with 8 bytes, and 4 of 8 with accents apart.
  EXPECT_EQ(tokenizer.encode("\xC3\xA1\xC3\xA1\xC3\xA1\xC3\xA1"), Ids({4, 5, 5, 5}));
  EXPECT_EQ(tokenizer.encode("a\xCC\x81\x61\xCC\x81\x61\xCC\x81\x61\xCC\x81"), Ids({4, 5, 5, 5}));
  model.longest_word = 0;
  EXPECT_EQ(WordPieceTokenizer(model).encode("a b"), Ids({1, 1}));
}

TEST(WordPiece, EveryStepOfNormalisingCanBeLeftOut) {
  const std::string text =
      "A\xCC\x81 \xC3\x81 \x01"
      "a\xE4\xB8\xAD\x61";  // A with an accent apart and composed; a control; Chinese inside
  const auto ids = [&](auto change) {
    WordPieceModel model = small_model();
    change(model);
    return WordPieceTokenizer(model).encode(text);
  };
  EXPECT_EQ(ids([](WordPieceModel&) {}), Ids({4, 4, 4, 16, 4}));
  EXPECT_EQ(ids([](WordPieceModel& m) { m.lowercase = false; }), Ids({1, 1, 4, 16, 4}));
  EXPECT_EQ(ids([](WordPieceModel& m) { m.strip_accents = false; }), Ids({1, 1, 4, 16, 4}));
  EXPECT_EQ(ids([](WordPieceModel& m) { m.chinese = false; }), Ids({4, 4, 1}));
  EXPECT_EQ(ids([](WordPieceModel& m) { m.clean_text = false; }), Ids({4, 4, 1, 16, 4}));
}

TEST(WordPiece, BytesThatAreNoTextAreDropped) {
  const WordPieceTokenizer tokenizer(small_model());
  EXPECT_EQ(tokenizer.encode("a\xFF"
                             "b\xC3 a\xED\xA0\x80"),
            Ids({6, 4}));  // as U+FFFD is
  EXPECT_EQ(tokenizer.encode(text("a\0b\xEF\xBF\xBD")), Ids({6}));
  WordPieceModel model = small_model();
  model.clean_text = false;
  EXPECT_EQ(WordPieceTokenizer(model).encode("a\xFF a"), Ids({1, 4}));
}

TEST(WordPiece, AddedTokensAreFoundFirst) {
  WordPieceModel model = small_model();
  model.vocabulary.push_back("<\xC3\x84>");  // 21
  model.added.push_back({.id = 21, .content = "<\xC3\x84>", .normalized = true});
  const WordPieceTokenizer tokenizer(model);
  EXPECT_EQ(tokenizer.encode("[CLS]a[SEP] [sep] a[PAD]"), Ids({2, 4, 3, 1, 1, 1, 4, 0}));
  // One that is sought in the normalised text is normalised too.
  EXPECT_EQ(tokenizer.encode("a<\xC3\x84>a<A>"), Ids({4, 21, 4, 21}));
}

TEST(WordPiece, DecodesWithSpaces) {
  const WordPieceTokenizer tokenizer(small_model());
  const auto decode = [&](const Ids& ids) { return tokenizer.decode(ids); };
  EXPECT_EQ(decode({}), "");
  EXPECT_EQ(decode({6, 5, 4, 9}), "aba a.");
  EXPECT_EQ(decode({5, 6}), "##a ab");  // the first token is written as it is
  EXPECT_EQ(decode({2, 4, 10, 4, 3}), "[CLS] a, a [SEP]");
  EXPECT_EQ(decode({20, 19, 11, 12}), "do not n't");  // each token is cleaned up by itself
  EXPECT_THROW(decode({4, 21}), Error);
  const std::string message = message_of<Error>([&] { decode({4, 21}); });
  EXPECT_TRUE(contains(message, "below 21, got 21 at index 1")) << message;
  // Inside a text every id has what it adds to it.
  const Ids ids = {6, 5, 4, 9, 17, 18};
  std::string text;
  for (const TokenId id : ids) text += tokenizer.text_of(id);
  EXPECT_EQ(text, " " + decode(ids));
  WordPieceModel model = small_model();
  model.cleanup = false;
  EXPECT_EQ(WordPieceTokenizer(model).decode(Ids({4, 9, 10})), "a . ,");
}

TEST(WordPiece, MarksOneTextOrTwo) {
  const WordPieceTokenizer tokenizer(small_model());
  const auto one = tokenizer.with_specials("ab a");
  EXPECT_EQ(one.ids, Ids({2, 6, 4, 3}));
  EXPECT_EQ(one.segments, std::vector<std::uint8_t>({0, 0, 0, 0}));
  const auto two = tokenizer.with_specials("ab", "a.");
  EXPECT_EQ(two.ids, Ids({2, 6, 3, 4, 9, 3}));
  EXPECT_EQ(two.segments, std::vector<std::uint8_t>({0, 0, 0, 1, 1, 1}));
  const auto empty = tokenizer.with_specials("", "");
  EXPECT_EQ(empty.ids, Ids({2, 3, 3}));
  EXPECT_EQ(empty.segments, std::vector<std::uint8_t>({0, 0, 1}));
  WordPieceModel model = small_model();
  model.begin = "<s>";
  const WordPieceTokenizer other(model);
  EXPECT_TRUE(contains(message_of<Error>([&] { other.with_specials("a"); }), "'<s>'"));
}

TEST(WordPiece, TheNameTellsTheIds) {
  const WordPieceModel model = small_model();
  const std::string name = WordPieceTokenizer(model).name();
  EXPECT_TRUE(name.starts_with("wordpiece-") && name.size() == 26) << name;
  EXPECT_EQ(WordPieceTokenizer(model).name(), name);
  const auto changed = [&](auto change) {
    WordPieceModel other = model;
    change(other);
    return WordPieceTokenizer(other).name() != name;
  };
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.vocabulary.push_back("x"); }));
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.lowercase = false; }));
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.strip_accents = false; }));
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.clean_text = false; }));
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.chinese = false; }));
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.longest_word = 99; }));
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.unknown = "[PAD]"; }));
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.prefix = "#"; }));
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.added.pop_back(); }));
  EXPECT_TRUE(changed([](WordPieceModel& m) { m.added[0].rstrip = true; }));
}

TEST(WordPiece, RefusesWhatHasNoMeaning) {
  const auto refusal = [](auto change) {
    WordPieceModel model = small_model();
    change(model);
    return message_of<Error>([&] { WordPieceTokenizer tokenizer(model); });
  };
  EXPECT_TRUE(contains(refusal([](WordPieceModel& m) { m.vocabulary.clear(); }), "empty"));
  EXPECT_TRUE(contains(refusal([](WordPieceModel& m) { m.vocabulary[5] = ""; }), "id 5 is empty"));
  EXPECT_TRUE(contains(refusal([](WordPieceModel& m) { m.vocabulary[5] = "\xFF"; }), "of id 5 is not UTF-8"));
  EXPECT_TRUE(contains(refusal([](WordPieceModel& m) { m.vocabulary[5] = "a"; }), "ids 4 and 5 are both 'a'"));
  EXPECT_TRUE(contains(refusal([](WordPieceModel& m) { m.unknown = "?"; }), "no token '?'"));
  EXPECT_TRUE(contains(refusal([](WordPieceModel& m) { m.added[1].id = 99; }), "'[UNK]'"));
  EXPECT_TRUE(contains(refusal([](WordPieceModel& m) { m.added[1] = m.added[0]; }), "'[PAD]' stands twice"));
}

}  // namespace
}  // namespace torsor
