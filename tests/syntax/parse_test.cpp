#include "torsor/syntax/parse.h"

#include <gtest/gtest.h>

#include "tests/syntax/toy_parser.h"
#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"
#include "torsor/base/hash.h"
#include "torsor/base/utf8.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/letters.h"
#include "torsor/syntax/relations.h"

namespace torsor::syntax {
namespace {

using namespace testing;

/// "form form" of the words' bytes, a bar between sentences.
std::string words_of(const Parse& parse, const std::string& text) {
  std::string shown;
  for (const ParseSentence& sentence : parse.sentences) {
    shown += shown.empty() ? "" : "|";
    if (!sentence.parsed) shown += "?" + text.substr(sentence.byte_begin, sentence.byte_end - sentence.byte_begin);
    for (std::size_t i = 0; i < sentence.words.size(); ++i) {
      const ParseWord& word = sentence.words[i];
      shown += (i == 0 ? "" : " ") + text.substr(word.byte_begin, word.byte_end - word.byte_begin);
    }
  }
  return shown;
}

std::vector<int> heads_of_sentence(const ParseSentence& sentence) {
  std::vector<int> heads;
  for (const ParseWord& word : sentence.words) heads.push_back(word.head);
  return heads;
}

TEST(ParseModes, NamesComeAndGo) {
  for (const ParseMode mode :
       {ParseMode::kNone, ParseMode::kOracle, ParseMode::kOracleRevealed, ParseMode::kIncremental})
    EXPECT_EQ(parse_mode(mode_name(mode)), mode);
  EXPECT_TRUE(contains(message_of<UsageError>([] { parse_mode("orakel"); }), "'orakel'"));
  EXPECT_TRUE(leaks(ParseMode::kOracle));
  EXPECT_TRUE(leaks(ParseMode::kOracleRevealed));
  EXPECT_FALSE(leaks(ParseMode::kIncremental));
  EXPECT_FALSE(leaks(ParseMode::kNone));
}

TEST(Relations, NumbersStay) {
  EXPECT_EQ(relation_id("acl"), 1);
  EXPECT_EQ(relation_id("acl:relcl"), 1);
  EXPECT_EQ(relation_id("xcomp"), 37);
  EXPECT_EQ(relation_id("dobj"), 0);
  EXPECT_EQ(relation_id("_"), 0);
  for (std::uint16_t id = 1; id <= kRelations.size(); ++id) EXPECT_EQ(relation_id(relation_name(id)), id);
  EXPECT_EQ(relation_name(0), "_");
  EXPECT_TRUE(contains(message_of<Error>([] { relation_name(38); }), "38"));
}

TEST(Letters, SpacesAndCase) {
  EXPECT_EQ(lower("AbÇÉŁŽŸΣΆЙЁԱ漢"), "abçéłžÿσάйёա漢");
  EXPECT_EQ(lower("\xFFX"), "\xFFx");
  EXPECT_EQ(skip_spaces(" \t\n\xC2\xA0\xE3\x80\x80x", 0), 8u);
  EXPECT_EQ(without_spaces(" a\xC2\xA0 b\n\v\f\xC2\x85"), "ab");
  EXPECT_EQ(skip_spaces("  ", 0), 2u);
  EXPECT_EQ(space_at("\xC2", 0), 0u);
}

const std::string kFrench = rows({"# text = Il va  au lac.", "1 Il il _ _ _ 2 nsubj _ _", "2 va aller _ _ _ 0 root _ _",
                                  "3-4 au _ _ _ _ _ _ _ _", "3 à à _ _ _ 5 case _ _", "4 le le _ _ _ 5 det _ _",
                                  "5 lac lac _ _ _ 2 obl:arg _ SpaceAfter=No", "6 . . _ _ _ 2 punct _ _"});

TEST(MakeParse, WordsAreBytesOfTheText) {
  const std::string text = "\n Il va  au lac.\n";
  const Document document = read_conllu(kFrench, "x");
  const Parse parse = make_parse(document.sentences, text, {.doc_id = "d"});
  EXPECT_EQ(parse.doc_id, "d");
  EXPECT_EQ(parse.text_sha256, sha256_hex(text));
  EXPECT_EQ(parse.mode, ParseMode::kOracle);
  EXPECT_EQ(words_of(parse, text), "Il va au lac .");
  const ParseSentence& sentence = parse.sentences.at(0);
  EXPECT_EQ(sentence.byte_begin, 2u);
  EXPECT_EQ(sentence.byte_end, 16u);
  // "au" is "à" alone, since both hang from "lac" and the leftmost stands for both.
  EXPECT_EQ(heads_of_sentence(sentence), (std::vector<int>{2, 0, 4, 2, 2}));
  EXPECT_EQ(sentence.words[2].number, 3);
  EXPECT_EQ(sentence.words[3].number, 5);
  EXPECT_EQ(relation_name(sentence.words[2].relation), "case");
  EXPECT_EQ(relation_name(sentence.words[3].relation), "obl");
  EXPECT_EQ(parse.word_count(), 5u);
  const std::vector<Hexatag> tags = hexatags_of(std::vector<int>{2, 0, 4, 2, 2});
  for (std::size_t i = 0; i < tags.size(); ++i) {
    EXPECT_EQ(sentence.words[i].tag.tau, static_cast<int>(tags[i].terminal));
    EXPECT_EQ(sentence.words[i].tag.nu, static_cast<int>(tags[i].nonterminal));
  }
  EXPECT_NO_THROW(require_text(parse, text));
  EXPECT_TRUE(contains(message_of<Error>([&] { require_text(parse, text + " "); }), "SHA-256"));
}

TEST(MakeParse, MultiwordTokensThatSpellTheirWordsShareTheBytes) {
  const Document document = read_conllu(rows({"1-2 DON'T _ _ _ _ _ _ _ _", "1 Do do _ _ _ 3 aux _ _",
                                              "2 n't not _ _ _ 3 advmod _ _", "3 go go _ _ _ 0 root _ _"}),
                                        "x");
  const std::string text = "DON'T go";
  const Parse parse = make_parse(document.sentences, text);
  EXPECT_EQ(words_of(parse, text), "DO N'T go");
  EXPECT_EQ(heads_of_sentence(parse.sentences[0]), (std::vector<int>{3, 3, 0}));
}

TEST(MakeParse, OneWordStandsForAMultiwordTokenAndTakesItsArcs) {
  const auto heads_for = [](const std::vector<int>& heads) {
    Sentence sentence = words_with_heads(heads);
    sentence.multiwords.push_back({1, 2, "X"});
    return heads_of_sentence(make_parse(std::vector<Sentence>{sentence}, "X w3 w4").sentences[0]);
  };
  EXPECT_EQ(heads_for({2, 0, 1, 2}), (std::vector<int>{0, 1, 1}));  // 2 is the one whose head lies outside
  EXPECT_EQ(heads_for({0, 1, 2, 3}), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(heads_for({3, 3, 0, 2}), (std::vector<int>{2, 0, 1}));
  // Both heads lie outside, but 1 climbs to 2 by way of 3: were 1 to stand for both, there would be a cycle.
  EXPECT_EQ(heads_for({3, 4, 2, 0}), (std::vector<int>{3, 1, 0}));
}

TEST(MakeParse, RefusesATextThatIsAnother) {
  const Document document = read_conllu(kFrench, "x");
  const auto message = [&](const std::string& text) {
    return message_of<Error>([&] { make_parse(document.sentences, text); });
  };
  EXPECT_TRUE(contains(message("Il vas au lac."), "expected 'au' at byte 5 of the text, got 's au lac.'"));
  EXPECT_TRUE(contains(message("Il va"), "expected 'au' at byte 5 of the text, got ''"));
  EXPECT_TRUE(contains(message("Il va au lac. Oui"), "'Oui' at byte 14"));
  EXPECT_TRUE(contains(message(""), "line 1"));
  EXPECT_TRUE(contains(message_of<UsageError>(
                           [&] { make_parse(document.sentences, "Il va au lac.", {.mode = ParseMode::kIncremental}); }),
                       "incremental"));
}

TEST(MakeParse, UnparsedStretchesKeepTheirPlace) {
  const std::string good = rows({"1 Yes _ _ _ _ 0 root _ _"}), text = "Yes Hm, x. Yes";
  const std::string named = rows({"# text = Hm,  x.", "1 Hm _ _ _ _ 7 x _ _"}),
                    nameless = rows({"1 Hm _ _ _ _ 7 x _ _"});
  for (const std::string& bad : {named, nameless}) {
    const Document document = read_conllu(good + bad + good, "x", {.lenient = true});
    EXPECT_EQ(words_of(make_parse(with_skipped(document), text), text), "Yes|?Hm, x.|Yes");
    EXPECT_TRUE(contains(message_of<Error>([&] { make_parse(document.sentences, text); }), "'Yes' at byte 4"));
    const Document last = read_conllu(good + bad, "x", {.lenient = true});
    EXPECT_EQ(words_of(make_parse(with_skipped(last), "Yes Hm, x. \n"), "Yes Hm, x. \n"), "Yes|?Hm, x.");
  }
  const Document document = read_conllu(good + named + good, "x", {.lenient = true});
  EXPECT_TRUE(contains(message_of<Error>([&] { make_parse(with_skipped(document), "Yes Hm. Yes"); }), "Hm"));
}

TEST(MakeParse, RepairsOrLeavesOut) {
  const Document document =
      read_conllu(rows({"1 a _ _ _ _ 2 x _ _", "2 b _ _ _ _ 1 y _ _"}), "x", {.check_trees = false});
  const Parse repaired = make_parse(document.sentences, "a b");
  EXPECT_EQ(heads_of_sentence(repaired.sentences[0]), (std::vector<int>{2, 0}));
  EXPECT_EQ(repaired.sentences[0].repairs, 2);
  const Parse strict = make_parse(document.sentences, "a b", {.repair = RepairPolicy::kStrict});
  EXPECT_FALSE(strict.sentences[0].parsed);
  EXPECT_TRUE(strict.sentences[0].words.empty());
  EXPECT_EQ(strict.sentences[0].byte_end, 3u);
  EXPECT_FALSE(make_parse(document.sentences, "a b", {.max_words = 1}).sentences[0].parsed);
}

TEST(MakeParse, ModesChangeTheTagsAlone) {
  const std::string text = "Il va au lac.";
  Parse parse = make_parse(read_conllu(kFrench, "x").sentences, text, {.mode = ParseMode::kOracleRevealed});
  const std::vector<CausalTag> causal = oracle_tags(std::vector<int>{2, 0, 4, 2, 2});
  for (std::size_t i = 0; i < causal.size(); ++i) EXPECT_EQ(parse.sentences[0].words[i].tag, causal[i]);
  set_mode(parse, ParseMode::kNone);
  EXPECT_EQ(parse.sentences[0].words[0].tag, CausalTag{});
  set_mode(parse, ParseMode::kOracle);
  EXPECT_EQ(parse.sentences[0].words[4].tag.nu, 5);
  EXPECT_TRUE(contains(message_of<Error>([&] { set_mode(parse, ParseMode::kIncremental); }), "left to right"));
}

TEST(Treebanks, DocumentsHaveTextsOfTheirOwn) {
  const Document document =
      read_conllu(rows({"# newdoc id = one", "# text = A b", "1 A _ _ _ _ 0 root _ _", "2 b _ _ _ _ 1 x _ _"}) +
                      rows({"1 C _ _ _ _ 0 root _ SpaceAfter=No", "2 . _ _ _ _ 1 x _ _"}) +
                      rows({"# newpar", "1 D _ _ _ _ 0 root _ _"}) + rows({"# newdoc", "1 E _ _ _ _ 0 root _ _"}),
                  "x");
  const auto texts = treebank_texts(document, "x");
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0].doc_id, "one");
  EXPECT_EQ(texts[0].text, "A b C.\n\nD\n");
  EXPECT_EQ(texts[0].sentences.size(), 3u);
  EXPECT_EQ(texts[1].doc_id, "x-2");
  EXPECT_EQ(texts[1].text, "E\n");
}

// UDPipe's TokenRange counts characters of the text that it read; what the forms and their white space spell is that.
TEST(ParseTreebanks, RangesOfTokensFollowFromTheForms) {
  const std::vector<Sentence> sentences =
      read_conllu(rows({"1 Zoë _ _ _ _ 2 nsubj _ TokenRange=0:3", "2 ran _ _ _ _ 0 root _ SpaceAfter=No|TokenRange=4:7",
                        "3 . _ _ _ _ 2 punct _ SpacesAfter=\\s\\s|TokenRange=7:8"}) +
                      rows({"1 Stop _ _ _ _ 0 root _ SpacesAfter=\\n|TokenRange=10:14"}),
                  "x")
          .sentences;
  const std::string text = "Zo\u00EB ran.  Stop";
  EXPECT_EQ(spelled_text(sentences[0]) + "  " + spelled_text(sentences[1]), text);
  const auto documents = treebank_texts({sentences, {}}, "x");  // without "# text"; one space between sentences
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0].text, "Zo\u00EB ran. Stop\n");
  const Parse parse = make_parse(sentences, text);
  for (std::size_t s = 0; s < sentences.size(); ++s)
    for (std::size_t i = 0; i < sentences[s].size(); ++i) {
      const ParseWord& word = parse.sentences[s].words[i];
      const auto characters = [&](std::uint32_t bytes) { return count_utf8(std::string_view(text).substr(0, bytes)); };
      EXPECT_EQ(str(characters(word.byte_begin), ":", characters(word.byte_end)),
                column_value(sentences[s].words[i].misc, "TokenRange"));
    }
}

TEST(ParseTreebanks, WordsCoverTheText) {
  const std::vector<std::string> files = treebank_files();
  if (files.empty()) GTEST_SKIP() << "no treebanks; set TORSOR_SHARED";
  for (const std::string& path : files) {
    std::size_t words = 0, contracted = 0;
    for (const TreebankText& document : treebank_texts(read_conllu_file(path), path)) {
      const Parse parse = make_parse(document.sentences, document.text);
      std::string uncovered = document.text;
      std::uint32_t end = 0;
      for (std::size_t s = 0; s < parse.sentences.size(); ++s) {
        const ParseSentence& sentence = parse.sentences[s];
        if (sentence.words.empty()) {  // longer than kMaxWords
          ASSERT_GT(document.sentences[s].size(), kMaxWords);
          std::fill(uncovered.begin() + sentence.byte_begin, uncovered.begin() + sentence.byte_end, ' ');
        }
        ASSERT_FALSE(!sentence.words.empty() && find_defect(heads_of_sentence(sentence)))
            << document.doc_id << " " << s;
        for (const ParseWord& word : sentence.words) {
          ASSERT_GE(word.byte_begin, end) << document.doc_id;
          ASSERT_GT(word.byte_end, word.byte_begin);
          end = word.byte_end;
          std::fill(uncovered.begin() + word.byte_begin, uncovered.begin() + word.byte_end, ' ');
        }
        words += sentence.words.size();
        contracted += sentence.words.empty() ? 0 : document.sentences[s].size() - sentence.words.size();
      }
      ASSERT_EQ(skip_spaces(uncovered, 0), uncovered.size()) << document.doc_id;
    }
    EXPECT_GT(words, 5000u) << path;
    // French contractions ("au", "des") do not spell their words; English ones ("don't", "cannot") nearly all do.
    if (contains(path, "fr_gsd-ud-dev")) {
      EXPECT_GT(contracted, 900u);
    }
    if (contains(path, "en_ewt-ud-dev")) {
      EXPECT_LT(contracted, 10u);
    }
  }
}

TEST(IncrementalParseTest, CollectsWordByWord) {
  const std::string text = "don't run.";
  const Parse parse = toy_parse(text);
  EXPECT_EQ(parse.mode, ParseMode::kIncremental);
  EXPECT_TRUE(parse.backend.prefix_safe);
  EXPECT_EQ(words_of(parse, text), "do n't run .");
  EXPECT_EQ(parse.sentences[0].words[0].known, 6u);
  EXPECT_EQ(parse.sentences[0].words[1].known, 6u);
  EXPECT_EQ(parse.sentences[0].words[2].known, 10u);
  EXPECT_EQ(parse.sentences[0].words[3].known, 10u);
  EXPECT_EQ(parse.sentences[0].words[0].tag.nu, 1);
  EXPECT_NO_THROW(require_text(parse, text));
  const Parse two = toy_parse("a. b");
  ASSERT_EQ(two.sentences.size(), 2u);
  EXPECT_EQ(two.sentences[1].words[0].number, 1);
  const Parse cut = toy_parse("a b c d e f", 2);
  EXPECT_EQ(cut.sentences[0].words.size(), 6u);
  for (std::size_t i = 2; i < 6; ++i) {
    EXPECT_EQ(cut.sentences[0].words[i].tag, CausalTag{});
    EXPECT_EQ(cut.sentences[0].words[i].head, kNoHead);
  }
}

TEST(IncrementalParseTest, RefusesWhatIsNotSafe) {
  EXPECT_TRUE(contains(message_of<Error>([] { IncrementalParse("d", {.name = "stanza"}); }), "stanza"));
  const BackendId safe = {.name = "toy", .prefix_safe = true};
  const auto after_one = [&](ByteSpan bytes, std::uint32_t known, std::vector<MadeArc> arcs) {
    return message_of<Error>([&] {
      IncrementalParse parse("d", safe);
      parse.word({2, 4}, 5, {2, 1}, {});
      parse.word(bytes, known, {2, 1}, arcs);
    });
  };
  EXPECT_TRUE(contains(after_one({3, 5}, 6, {}), "bytes from 4"));
  EXPECT_TRUE(contains(after_one({5, 5}, 6, {}), "bytes from 4"));
  EXPECT_TRUE(contains(after_one({4, 6}, 5, {}), "at its end"));
  EXPECT_TRUE(contains(after_one({4, 5}, 4, {}), "at its end"));
  EXPECT_TRUE(contains(after_one({4, 6}, 7, {{1, 1, 0}}), "1 -> 1"));
  EXPECT_TRUE(contains(after_one({4, 6}, 7, {{3, 2, 0}}), "2 -> 3"));
  EXPECT_TRUE(contains(after_one({4, 6}, 7, {{1, 2, 0}, {1, 2, 0}}), "2 -> 1"));
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         IncrementalParse parse("d", safe);
                         parse.word({0, 9}, 9, {2, 1}, {});
                         std::move(parse).finish("short");
                       }),
                       "5 bytes"));
  Parse parse = toy_parse("a b.");
  EXPECT_NO_THROW(set_mode(parse, ParseMode::kIncremental));
  EXPECT_TRUE(contains(message_of<Error>([&] { set_mode(parse, ParseMode::kOracle); }), "whole sentences"));
}

}  // namespace
}  // namespace torsor::syntax
