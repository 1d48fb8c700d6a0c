#include "torsor/data/bpe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/data/bpe_toy.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

using namespace data_test;

using Ids = std::vector<TokenId>;

Ids encode(const BpeModel& model, std::string_view text) { return BpeTokenizer(model).encode(text); }

TEST(BpeAlphabet, WritesEveryByteAsGpt2Does) {
  EXPECT_EQ(byte_letters(" a\n"),
            "\xC4\xA0"
            "a\xC4\x8A");                                   // Ġ, Ċ
  EXPECT_EQ(byte_letters("\xC3\xA9"), "\xC3\x83\xC2\xA9");  // Ã©
  EXPECT_EQ(byte_letters(std::string("\0\xAD\x7F", 3)), "\xC4\x80\xC5\x83\xC4\xA1");
  EXPECT_EQ(byte_at(0), '!');
  EXPECT_EQ(byte_at(64), 'a');
  EXPECT_EQ(byte_at(188), 0);
  EXPECT_EQ(byte_at(220), ' ');
  EXPECT_EQ(byte_at(255), 0xAD);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(count_utf8(byte_letters(all)), 256U);
  EXPECT_EQ(letters_to_bytes(byte_letters(all)), all);
  EXPECT_EQ(letters_to_bytes(""), "");
  for (const char* none : {" ", "\n", "\x7F", "\xC2\xAD", "\xC5\x84", "\xE4\xB8\xAD", "\xFF"})
    EXPECT_EQ(letters_to_bytes(none), std::nullopt) << quote(none);
}

TEST(Bpe, MergesByRankThenFromTheLeft) {
  const BpeModel model = toy_model({{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"a", "a"}, {"aa", "a"}});
  const auto texts = [&](std::string_view text) {
    std::vector<std::string> tokens;
    for (const TokenId id : encode(model, text)) tokens.push_back(model.vocabulary[id]);
    return tokens;
  };
  using Tokens = std::vector<std::string>;
  EXPECT_EQ(texts("abc"), Tokens({"abc"}));
  EXPECT_EQ(texts("abab"), Tokens({"ab", "ab"}));
  EXPECT_EQ(texts("aaaa"), Tokens({"aa", "aa"}));
  EXPECT_EQ(texts("aaaaa"), Tokens({"aa", "aaa"}));
  EXPECT_EQ(texts("aab"), Tokens({"a", "ab"}));
  EXPECT_EQ(texts("ab c"), Tokens({"ab", " ", "c"}));  // no merge crosses a cut
  EXPECT_EQ(texts("x"), Tokens({"x"}));
  EXPECT_EQ(encode(model, ""), Ids());
  EXPECT_EQ(encode(model, std::string("\0", 1)), Ids({188}));
  EXPECT_EQ(encode(model, "!abc"), Ids({0, 258}));
}

// A merge may have a lower rank than the one that makes its parts: then it comes at once.
TEST(Bpe, MergesInAnyOrderOfRanks) {
  const BpeModel model = toy_model({{"a", "b"}, {"ab", "a"}, {"b", "a"}});
  BpeModel turned = model;
  std::swap(turned.merges[0], turned.merges[1]);
  // "abab": ab, then aba (rank 0) before the second ab.
  EXPECT_EQ(encode(turned, "abab"), Ids({id_of(model, "aba"), id_of(model, "b")}));
  EXPECT_EQ(encode(model, "abab"), Ids({id_of(model, "ab"), id_of(model, "ab")}));
}

TEST(Bpe, IsTheNaiveAlgorithm) {
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::pair<std::string, std::string>> merges;
    std::vector<std::string> tokens = {"a", "b", "c", " "};
    for (int i = 0; i < 12; ++i) {
      const auto merge = std::pair(tokens[random.below(tokens.size())], tokens[random.below(tokens.size())]);
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      merges.push_back(merge);
      tokens.push_back(merge.first + merge.second);
    }
    BpeModel model = toy_model(merges);
    if (round % 2 == 1) random.shuffle(model.merges);
    const BpeTokenizer tokenizer(model);
    for (int text_round = 0; text_round < 20; ++text_round) {
      std::string text;
      for (auto left = random.below(40); left > 0; --left) text += "aaabbc "[random.below(7)];
      ASSERT_EQ(tokenizer.encode(text), naive_encode(model, text)) << text;
    }
  }
}

TEST(Bpe, EveryByteSequenceRoundTrips) {
  const BpeModel model =
      toy_model({{"\xC3", "\xA9"}, {" ", "\xC3\xA9"}, {"t", "h"}, {"th", "e"}, {" ", "the"}, {"\n", "\n"}});
  const BpeTokenizer tokenizer(model);
  std::string all;
  for (int first = 0; first < 256; ++first)
    for (const int second : {0x00, 0x20, 0x27, 0x41, 0x80, 0xC3, 0xFF}) {
      all += static_cast<char>(first);
      all += static_cast<char>(second);
    }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all)), all);
  Random random(4);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (auto left = random.below(60); left > 0; --left) {
      const auto kind = random.below(3);
      if (kind == 0) text += static_cast<char>(random.below(256));
      if (kind == 1) text += " the\n\n\xC3\xA9'"[random.below(9)];
      if (kind == 2) append_utf8(text, static_cast<char32_t>(random.below(0xD800)));
    }
    const Ids ids = tokenizer.encode(text);
    for (const TokenId id : ids) ASSERT_LT(id, tokenizer.vocabulary_size());
    ASSERT_EQ(tokenizer.decode(ids), text) << quote(text);
  }
}

// A quadratic algorithm would need minutes.
TEST(Bpe, LongWordsAreEncodedInTime) {
  const BpeTokenizer tokenizer(toy_model({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}, {"a", "b"}, {"b", "a"}}));
  std::string same(1 << 20, 'a'), mixed;
  Random random(5);
  for (int i = 0; i < 1 << 20; ++i) mixed += "aaab"[random.below(4)];
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer.encode(same).size(), std::size_t{1} << 17);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(mixed)), mixed);
  EXPECT_EQ(tokenizer.encode(std::string(1 << 20, ' ')).size(), std::size_t{1} << 20);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(), 60.0);
}

TEST(Bpe, RefusesIdsBeyondTheVocabulary) {
  const BpeTokenizer tokenizer(toy_model({{"a", "b"}}));
  EXPECT_EQ(tokenizer.vocabulary_size(), 257U);
  EXPECT_EQ(tokenizer.decode(Ids({256, 0})), "ab!");
  EXPECT_EQ(tokenizer.decode({}), "");
  const std::string message = message_of<Error>([&] { tokenizer.decode(Ids({65, 257})); });
  EXPECT_TRUE(contains(message, "below 257, got 257 at index 1")) << message;
}

TEST(Bpe, AddedTokensComeFirst) {
  BpeModel model = toy_model({{"a", "b"}, {"<", "<"}});
  const TokenId x = add_token(model, "<x>").id, longer = add_token(model, "<x>>").id, mark = add_token(model, "a b").id;
  EXPECT_EQ(encode(model, "<x>"), Ids({x}));
  EXPECT_EQ(encode(model, "<x>>>"), Ids({longer, 29}));
  EXPECT_EQ(encode(model, "a b<<"), Ids({mark, 257}));
  EXPECT_EQ(encode(model, "ab<x><x>ab"), Ids({256, x, x, 256}));
  EXPECT_EQ(encode(model, "a <x>"), Ids({64, 220, x}));  // the text before it ends there: its space stands alone
  const BpeTokenizer tokenizer(model);
  for (const char* text : {"<x>a b <x>>", "  <x>  ", "a<x", "<<x>"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Bpe, NormalizedTokensComeAfterTheOthers) {
  BpeModel model = toy_model({});
  const TokenId first = add_token(model, "ab").id;
  const TokenId second = add_token(model, "bc").id;
  EXPECT_EQ(encode(model, "abc"), Ids({first, 66}));  // leftmost
  model.added[0].normalized = true;
  EXPECT_EQ(encode(model, "abc"), Ids({64, second}));
  model.added[1].normalized = true;
  EXPECT_EQ(encode(model, "abc"), Ids({first, 66}));
}

TEST(Bpe, AddedTokensTakeWhiteSpaceAlong) {
  BpeModel model = toy_model({});
  const TokenId left = add_token(model, "<l>").id, right = add_token(model, "<r>").id;
  model.added[0].lstrip = model.added[1].rstrip = true;
  EXPECT_EQ(encode(model, "a \xC2\xA0\n<l> b"), Ids({64, left, 220, 65}));
  EXPECT_EQ(encode(model, "a <r> \xE3\x80\x80 b"), Ids({64, 220, right, 65}));
  EXPECT_EQ(encode(model, "<l> <l>"), Ids({left, left}));
  EXPECT_EQ(encode(model, "<r> <l>"), Ids({right, left}));
  EXPECT_EQ(encode(model, "\xA0<l>"), Ids({id_of(model, "\xA0"), left}));
  EXPECT_EQ(BpeTokenizer(model).decode(encode(model, "a <l>")), "a<l>");  // what the header warns of
}

TEST(Bpe, PrefixSpaceStandsBeforeEveryText) {
  BpeModel model = toy_model({{" ", "a"}});
  const TokenId mark = add_token(model, "<x>").id;
  model.add_prefix_space = true;
  EXPECT_EQ(encode(model, "a"), Ids({256}));
  EXPECT_EQ(encode(model, " a"), Ids({256}));
  EXPECT_EQ(encode(model, "\na"), Ids({220, 198, 64}));
  EXPECT_EQ(encode(model, "a<x>a<x>"), Ids({256, mark, 256, mark}));
  EXPECT_EQ(encode(model, "<x>"), Ids({mark}));
  EXPECT_EQ(encode(model, ""), Ids());
}

TEST(Bpe, NamesStandForWhatDecidesIds) {
  const BpeModel model = toy_model({{"a", "b"}, {"b", "a"}});
  const std::string name = BpeTokenizer(model).name();
  EXPECT_EQ(name, "bpe-3d6c47f22fa063bb");
  EXPECT_EQ(BpeTokenizer(model).name(), name);
  BpeModel other = model;
  std::swap(other.merges[0], other.merges[1]);
  EXPECT_NE(BpeTokenizer(other).name(), name);
  other = model;
  other.add_prefix_space = true;
  EXPECT_NE(BpeTokenizer(other).name(), name);
  other = model;
  add_token(other, "<x>");
  const std::string with_token = BpeTokenizer(other).name();
  EXPECT_NE(with_token, name);
  other.added[0].lstrip = true;
  EXPECT_NE(BpeTokenizer(other).name(), with_token);
  other.added[0].lstrip = false;
  other.added[0].special = true;
  EXPECT_EQ(BpeTokenizer(other).name(), with_token);
  other = model;
  std::swap(other.vocabulary[0], other.vocabulary[1]);
  EXPECT_NE(BpeTokenizer(other).name(), name);
}

TEST(Bpe, RefusesModelsThatDoNotHoldTogether) {
  const BpeModel good = toy_model({{"a", "b"}, {"ab", "c"}});
  const auto refusal = [](const BpeModel& model) { return message_of<Error>([&] { BpeTokenizer tokenizer(model); }); };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_TRUE(contains(message, part)) << message;
  };
  BpeModel bad = good;
  bad.vocabulary[5] = "xy";
  expect(refusal(bad), "a token for every byte");
  expect(refusal(bad), "byte 38");
  bad = good;
  bad.vocabulary.push_back("ab");
  expect(refusal(bad), "ids 256 and 258 have the same bytes 'ab'");
  bad = good;
  bad.vocabulary.push_back("");
  expect(refusal(bad), "id 258 is empty");
  bad = good;
  bad.merges[1].result = 256;
  expect(refusal(bad), "merge 1 of 'ab' and 'c' cannot make 'ab'");
  bad.merges[1].result = 258;
  expect(refusal(bad), "merge 1 has an id outside");
  bad = good;
  bad.merges.push_back(good.merges[0]);
  expect(refusal(bad), "merges 0 and 2");
  bad = good;
  add_token(bad, "");
  expect(refusal(bad), "empty");
  bad = good;
  add_token(bad, "\xFF");
  expect(refusal(bad), "not UTF-8");
  bad = good;
  add_token(bad, "ab");
  expect(refusal(bad), "'ab' has the id 258, and the token written so has 256");
  bad = good;
  add_token(bad, "<x>");
  bad.added.push_back(bad.added[0]);
  expect(refusal(bad), "same id 258");
  add_token(bad, "<x>");
  bad.added.erase(bad.added.begin());
  expect(refusal(bad), "stands twice");
  bad = good;
  bad.added.push_back({.id = 7, .content = "<x>"});
  expect(refusal(bad), "at its id 7");
  bad.added[0].id = 1000;
  expect(refusal(bad), "at its id 1000");
  // A newline is written as another letter in the model, so as an added token it would be two things.
  bad = good;
  bad.added.push_back({.id = id_of(good, "\n"), .content = "\n"});
  expect(refusal(bad), "part of the model");
  // A token of the model under its own letters may be added too.
  bad = good;
  bad.added.push_back({.id = 257, .content = "abc"});
  EXPECT_EQ(encode(bad, "aabc"), Ids({64, 257}));
}

// With ignore_merges a piece that is a token stays whole, though no merge makes it; others are merged as ever.
TEST(Bpe, AWholePieceMayComeBeforeMerges) {
  BpeModel model = toy_model({{"a", "b"}});
  model.vocabulary.push_back("abc");
  model.vocabulary.push_back(" abc");
  EXPECT_EQ(encode(model, "abc abc abcd"), (Ids{256, 66, 220, 256, 66, 220, 256, 66, 67}));
  model.ignore_merges = true;
  EXPECT_EQ(encode(model, "abc abc abcd"), (Ids{257, 258, 220, 256, 66, 67}));
}

// GPT-NeoX has no tokens for bytes that UTF-8 never has: such a byte becomes U+FFFD.
TEST(Bpe, BytesBeyondUtf8MayLackTokens) {
  BpeModel model = toy_model({});
  const auto without = [&](unsigned char byte) {
    BpeModel less = model;
    less.vocabulary.erase(less.vocabulary.begin() +
                          static_cast<std::ptrdiff_t>(id_of(less, std::string(1, static_cast<char>(byte)))));
    return less;
  };
  for (const unsigned char byte : {0xC0, 0xC1, 0xF5, 0xFF}) {
    const BpeTokenizer tokenizer(without(byte));
    const std::string text = std::string("a") + static_cast<char>(byte) + static_cast<char>(byte) + "b";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)),
              "a\xEF\xBF\xBD\xEF\xBF\xBD"
              "b");
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text.substr(1, 1))), "\xEF\xBF\xBD");
  }
  for (const unsigned char byte : {0x00, 0x80, 0xC2, 0xF4})
    EXPECT_TRUE(contains(message_of<Error>([&] { BpeTokenizer tokenizer(without(byte)); }), "a token for every byte"));
}

TEST(Bpe, OneObjectServesSeveralThreads) {
  const BpeTokenizer tokenizer(toy_model({{"t", "h"}, {"th", "e"}, {" ", "the"}}));
  std::string text;
  for (int i = 0; i < 2000; ++i) text += " the then\xFF" + std::to_string(i);
  const Ids expected = tokenizer.encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = tokenizer.encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace torsor
