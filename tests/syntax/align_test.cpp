#include "torsor/syntax/align.h"

#include <gtest/gtest.h>

#include "tests/data/spaced_tokenizer.h"
#include "tests/syntax/toy_parser.h"
#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"

namespace torsor::syntax {
namespace {

using namespace testing;

/// Cuts a text at bars: "The| d|og" gives the text and the spans of its three tokens.
struct Cut {
  std::string text;
  std::vector<ByteSpan> tokens;

  explicit Cut(const std::string& barred) {
    std::uint32_t begin = 0;
    for (const char c : barred + "|") {
      if (c != '|') {
        text += c;
        continue;
      }
      const auto end = static_cast<std::uint32_t>(text.size());
      tokens.push_back({begin, end});
      begin = end;
    }
  }
};

TEST(Align, TokensBelongToTheWordOfTheirFirstByte) {
  const Cut cut("w1 |w|2  w|3|");  // the third token begins with a space of its own, the last one is a special token
  const Parse parse = make_parse(std::vector<Sentence>{words_with_heads({2, 0, 2})}, cut.text);
  const Alignment alignment = align(parse, cut.text, cut.tokens);
  EXPECT_EQ(alignment.word_of, (std::vector<int>{0, 1, 1, 2, -1}));
  EXPECT_EQ(alignment.multi_word_tokens, 1u);  // "2  w"
  EXPECT_EQ(alignment.first_token, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(alignment.last_token, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(alignment.token_head, (std::vector<int>{1, -1, -1, 1, -1}));
  EXPECT_EQ(alignment.sentence_of, (std::vector<int>{0, 0, 0, 0, -1}));
  EXPECT_EQ(alignment.swallowed, 0u);
}

TEST(Align, LeadingSpaceBelongsToTheNextWord) {
  const Cut cut("w1| w2|\n |w3");
  const Parse parse = make_parse(std::vector<Sentence>{words_with_heads({2, 0, 2})}, cut.text);
  const Alignment alignment = align(parse, cut.text, cut.tokens);
  EXPECT_EQ(alignment.word_of, (std::vector<int>{0, 1, -1, 2}));
  EXPECT_EQ(alignment.multi_word_tokens, 0u);
}

TEST(Align, ATokenOfSeveralWordsBelongsToTheOneNearestToTheRoot) {
  const Cut cut("w1w2w3|w4w5");
  Sentence sentence = words_with_heads({3, 1, 0, 5, 2});
  for (Word& word : sentence.words) word.misc = "SpaceAfter=No";
  const Parse parse = make_parse(std::vector<Sentence>{sentence}, cut.text);
  const Alignment alignment = align(parse, cut.text, cut.tokens);
  EXPECT_EQ(alignment.word_of, (std::vector<int>{2, 4}));
  EXPECT_EQ(alignment.first_token, (std::vector<int>{-1, -1, 0, -1, 1}));
  EXPECT_EQ(alignment.owner, (std::vector<int>{2, 2, 2, 4, 4}));
  EXPECT_EQ(alignment.swallowed, 3u);
  EXPECT_EQ(alignment.multi_word_tokens, 2u);
  EXPECT_TRUE(alignment.too_coarse());
  EXPECT_EQ(alignment.token_head, (std::vector<int>{-1, 0}));  // 5 hung from 2, whose bytes 3 has
  const Parse flat = make_parse(std::vector<Sentence>{words_with_heads({0, 1, 1, 1, 1})}, cut.text);
  EXPECT_EQ(align(flat, cut.text, cut.tokens).word_of, (std::vector<int>{0, 3}));  // of equals the leftmost
}

TEST(Align, UnparsedTextHasNoWords) {
  const Cut cut("w1| |hm|. |w1");
  Sentence stretch;
  stretch.comments.push_back("# text = hm.");
  const Sentence word = words_with_heads({0});
  const Parse parse = make_parse(std::vector<Sentence>{word, stretch, word}, cut.text);
  const Alignment alignment = align(parse, cut.text, cut.tokens);
  EXPECT_EQ(alignment.word_of, (std::vector<int>{0, -1, -1, -1, 1}));
  EXPECT_EQ(alignment.sentence_of, (std::vector<int>{0, -1, -1, -1, 2}));
}

TEST(Align, RefusesTokensThatGoBackwardsOrOutside) {
  const std::string text = "w1 w2";
  const Parse parse = make_parse(std::vector<Sentence>{words_with_heads({0, 1})}, text);
  const auto message = [&](const std::vector<ByteSpan>& tokens) {
    return message_of<Error>([&] { align(parse, text, tokens); });
  };
  EXPECT_TRUE(contains(message({{0, 2}, {1, 3}}), "token 1"));
  EXPECT_TRUE(contains(message({{0, 6}}), "token 0"));
  EXPECT_TRUE(contains(message({{3, 2}}), "token 0"));
  EXPECT_NO_THROW(align(parse, text, std::vector<ByteSpan>{{0, 2}, {0, 0}, {3, 5}}));
}

TEST(TokenSpans, OfBytes) {
  const ByteTokenizer tokenizer;
  const std::string text = "h\xC3\xA9 ";
  const auto spans = token_spans(tokenizer, tokenizer.encode(text), text);
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[2], (ByteSpan{2, 3}));
  EXPECT_TRUE(contains(message_of<Error>([&] { token_spans(tokenizer, tokenizer.encode("hx"), text); }), "token 1"));
  EXPECT_TRUE(contains(message_of<Error>([&] { token_spans(tokenizer, tokenizer.encode("h"), text); }), "byte 4"));
}

TEST(TokenSpans, WhatStandsBeforeATextHasNone) {
  const torsor::testing::SpacedTokenizer tokenizer;
  const std::string text = "a b";
  EXPECT_EQ(token_spans(tokenizer, tokenizer.encode(text), text),
            (std::vector<ByteSpan>{{0, 0}, {0, 1}, {1, 2}, {2, 3}}));
}

TEST(AlignTreebanks, InvariantsHoldForEveryTokenizer) {
  const std::vector<std::string> files = treebank_files();
  if (files.empty()) GTEST_SKIP() << "no treebanks; set TORSOR_SHARED";
  std::size_t swallowed = 0, several = 0;
  for (const std::string& path : files) {
    if (contains(path, "train")) continue;  // the others have all that is hard
    for (const TreebankText& document : treebank_texts(read_conllu_file(path), path)) {
      const Parse parse = make_parse(document.sentences, document.text);
      for (const std::size_t most : {1, 4, 11}) {
        const std::vector<ByteSpan> tokens = pieces(document.text, most);
        const Alignment alignment = align(parse, document.text, tokens);
        ASSERT_EQ(alignment.words.size(), parse.word_count());
        int newest = -1;
        for (std::size_t w = 0; w < alignment.words.size(); ++w) {
          const int owner = alignment.owner[w];
          ASSERT_GE(owner, 0) << document.doc_id;  // every word's bytes belong to some word
          ASSERT_GE(alignment.first_token[static_cast<std::size_t>(owner)], 0);
          ASSERT_EQ(alignment.words[w].sentence == alignment.words[static_cast<std::size_t>(owner)].sentence ||
                        alignment.first_token[w] < 0,
                    true);
          if (alignment.first_token[w] < 0) continue;
          ASSERT_EQ(owner, static_cast<int>(w));
          ASSERT_GT(alignment.first_token[w], newest);
          newest = alignment.first_token[w];
        }
        for (std::size_t t = 0; t < tokens.size(); ++t) {
          const int word = alignment.word_of[t];
          if (word >= 0) {
            ASSERT_LE(alignment.first_token[static_cast<std::size_t>(word)], static_cast<int>(t));
          }
          // Climbing the token tree ends.
          std::size_t steps = 0;
          for (int at = static_cast<int>(t); at >= 0; at = alignment.token_head[static_cast<std::size_t>(at)])
            ASSERT_LE(++steps, kMaxWords) << document.doc_id;
        }
        if (most == 1) {
          ASSERT_EQ(alignment.swallowed, 0u);
        }
        swallowed += alignment.swallowed;
        several += alignment.multi_word_tokens;
      }
    }
  }
  EXPECT_GT(swallowed, 1000u);
  EXPECT_GT(several, 1000u);
}

}  // namespace
}  // namespace torsor::syntax
