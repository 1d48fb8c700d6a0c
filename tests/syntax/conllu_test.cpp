#include "torsor/syntax/conllu.h"

#include <gtest/gtest.h>

#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"

namespace torsor::syntax {
namespace {

using namespace testing;

const std::string kPlain = rows({"# sent_id = a-1", "# text = I run.", "1 I I PRON PRP Case=Nom 2 nsubj _ _",
                                 "2 run run VERB VBP _ 0 root 0:root SpaceAfter=No", "3 . . PUNCT . _ 2 punct _ _"});

TEST(Conllu, ReadsEveryColumn) {
  const Document document = read_conllu(kPlain, "x");
  ASSERT_EQ(document.sentences.size(), 1u);
  const Sentence& sentence = document.sentences[0];
  EXPECT_EQ(sentence.line, 1u);
  EXPECT_EQ(sentence.comment("sent_id"), "a-1");
  EXPECT_EQ(sentence.comment("text"), "I run.");
  EXPECT_EQ(sentence.comment("tex"), std::nullopt);
  EXPECT_EQ(sentence.comment("newdoc"), std::nullopt);
  ASSERT_EQ(sentence.size(), 3u);
  const Word expected{"run", "run", "VERB", "VBP", "_", 0, "root", "0:root", "SpaceAfter=No"};
  EXPECT_EQ(sentence.words[1], expected);
  EXPECT_EQ(sentence.heads(), (std::vector<int>{2, 0, 2}));
  EXPECT_EQ(sentence.relations(), (std::vector<std::string>{"nsubj", "root", "punct"}));
  EXPECT_EQ(conllu_text(document.sentences), kPlain);
}

TEST(Conllu, KeepsRangesEmptyNodesAndComments) {
  const std::string text =
      rows({"# newdoc id = d", "# newpar", "#no space=x", "0.1 E e _ _ _ _ _ 2:x CopyOf=2",
            "1-2 au _ _ _ Typo=Yes _ _ _ SpaceAfter=No", "1 a a ADP _ _ 3 case _ _", "2 le le DET _ _ 3 det _ _",
            "2.1 F _ _ _ _ _ _ 1:y _", "2.2 G _ _ _ _ _ _ _ _", "3-4 xy _ _ _ _ _ _ _ _", "3 x x NOUN _ _ 0 root _ _",
            "4 y y NOUN _ _ 3 dep 5:z|7:q _"});
  const Document document = read_conllu(text, "x");
  const Sentence& sentence = document.sentences.at(0);
  EXPECT_EQ(conllu_text(sentence), text);
  EXPECT_EQ(sentence.comment("newdoc id"), "d");
  EXPECT_EQ(sentence.comment("newpar"), "");
  EXPECT_EQ(sentence.comment("no space"), "x");
  ASSERT_EQ(sentence.multiwords.size(), 2u);
  EXPECT_EQ(sentence.multiwords[0], (MultiwordToken{1, 2, "au", "Typo=Yes", "SpaceAfter=No"}));
  ASSERT_EQ(sentence.empty_nodes.size(), 3u);
  EXPECT_EQ(sentence.empty_nodes[0].after, 0);
  EXPECT_EQ(sentence.empty_nodes[2].after, 2);
  EXPECT_EQ(sentence.empty_nodes[2].index, 2);
  EXPECT_EQ(sentence.words[3].deps, "5:z|7:q");
  const auto tokens = surface_tokens(sentence);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].form, "au");
  EXPECT_EQ(tokens[1].first, 3);
  EXPECT_EQ(tokens[1].last, 4);
}

TEST(Conllu, TenEmptyNodesCountOn) {
  std::vector<std::string> lines = {"1 a _ _ _ _ 0 root _ _"};
  for (int i = 1; i <= 11; ++i) lines.push_back("1." + std::to_string(i) + " e _ _ _ _ _ _ _ _");
  lines.push_back("2 b _ _ _ _ 1 dep _ _");
  EXPECT_EQ(conllu_text(read_conllu(rows(lines), "x").sentences), rows(lines));
}

TEST(Conllu, SpacesInsideFormLemmaAndMisc) {
  const std::string text = "1\ta b\tc  d\tX\t_\t_\t0\troot\t_\tNote=e f\n\n";
  const Document document = read_conllu(text, "x");
  EXPECT_EQ(document.sentences[0].words[0].form, "a b");
  EXPECT_EQ(conllu_text(document.sentences), text);
}

struct Fault {
  const char* name;
  std::string text;
  std::size_t line;
  std::string reason;  // a part of the message
};

std::vector<Fault> faults() {
  const std::string a = "1 a _ _ _ _ 0 root _ _", b = "2 b _ _ _ _ 1 dep _ _", c = "3 c _ _ _ _ 1 dep _ _";
  const auto whole = [](std::vector<std::string> lines) { return rows(lines); };
  std::string crlf = whole({a, b});
  for (std::size_t at = 0; (at = crlf.find('\n', at)) != std::string::npos; at += 2) crlf.insert(at, "\r");
  return {
      {"nine columns", whole({a, "2 b _ _ _ _ 1 dep _"}), 2, "10 columns with tabs between, got 9"},
      {"eleven columns", whole({a, b + " _"}), 2, "got 11"},
      {"spaces for tabs", a + "\n\n", 1, "got 1"},
      {"a line of spaces", whole({a, b}).insert(whole({a}).size() - 1, "  \n"), 2, "got 1"},
      {"empty column", whole({a, "2  _ _ _ _ 1 dep _ _"}), 2, "column FORM, got nothing"},
      {"a form of white space", whole({a, "2 \u3000\u00A0 _ _ _ _ 1 dep _ _"}), 2, "column FORM, got white space"},
      {"empty last column", whole({a, "2 b _ _ _ _ 1 dep _ "}), 2, "column MISC, got nothing"},
      {"space in UPOS", "1\ta\t_\tA B\t_\t_\t0\troot\t_\t_\n\n", 1, "no space in column UPOS, got 'A B'"},
      {"space in DEPS", "1\ta\t_\t_\t_\t_\t0\troot\t_ _\t_\n\n", 1, "no space in column DEPS"},
      {"gap", whole({a, "3 b _ _ _ _ 1 dep _ _"}), 2, "expected word 2, got ID '3'"},
      {"not from 1", whole({"2 a _ _ _ _ 0 root _ _"}), 1, "expected word 1, got ID '2'"},
      {"twice", whole({a, a}), 2, "expected word 2, got ID '1'"},
      {"no number", whole({"x a _ _ _ _ 0 root _ _"}), 1, "expected word 1, got ID 'x'"},
      {"leading zero", whole({"01 a _ _ _ _ 0 root _ _"}), 1, "got ID '01'"},
      {"huge ID", whole({"99999999999999999999 a _ _ _ _ 0 root _ _"}), 1, "expected word 1"},
      {"backward range", whole({a, "3-2 x _ _ _ _ _ _ _ _", b, c}), 2, "range FIRST-LAST"},
      {"range of one", whole({"1-1 x _ _ _ _ _ _ _ _", a}), 1, "range FIRST-LAST"},
      {"range of words x", whole({"1-x y _ _ _ _ _ _ _ _", a}), 1, "range FIRST-LAST"},
      {"range of empty nodes", whole({"1-1.1 y _ _ _ _ _ _ _ _", a}), 1, "range FIRST-LAST"},
      {"range from 0", whole({"0-1 y _ _ _ _ _ _ _ _", a}), 1, "range FIRST-LAST"},
      {"long range", whole({a, "2-4 x _ _ _ _ _ _ _ _", b, c}), 2, "range 2-4 to end at a word up to 3"},
      {"overlap", whole({"1-2 x _ _ _ _ _ _ _ _", a, "2-3 y _ _ _ _ _ _ _ _", b, c}), 3, "do not overlap"},
      {"same start", whole({"1-2 x _ _ _ _ _ _ _ _", "1-3 y _ _ _ _ _ _ _ _", a, b, c}), 2, "do not overlap"},
      {"misplaced range", whole({a, "1-2 x _ _ _ _ _ _ _ _", b}), 2, "directly before its first word"},
      {"early range", whole({"2-3 x _ _ _ _ _ _ _ _", a, b, c}), 1, "directly before its first word"},
      {"range with a lemma", whole({"1-2 x x _ _ _ _ _ _ _", a, b}), 1, "'_' in column LEMMA of a range"},
      {"range with a head", whole({"1-2 x _ _ _ _ 0 _ _ _", a, b}), 1, "'_' in column HEAD of a range"},
      {"range with features", whole({"1-2 x _ _ _ Case=Nom _ _ _ _", a, b}), 1, "Typo=Yes in column FEATS"},
      {"empty node too early", whole({"1.1 e _ _ _ _ _ _ _ _", a}), 1, "empty node 0.1"},
      {"empty node out of order", whole({a, "1.2 e _ _ _ _ _ _ _ _"}), 2, "empty node 1.1, got ID '1.2'"},
      {"empty node 0", whole({a, "1.0 e _ _ _ _ _ _ _ _"}), 2, "empty node 1.1, got ID '1.0'"},
      {"empty node with a head", whole({a, "1.1 e _ _ _ _ 1 _ _ _"}), 2, "'_' in column HEAD of an empty node"},
      {"empty node in a range", whole({"1-2 x _ _ _ _ _ _ _ _", "0.1 e _ _ _ _ _ _ _ _", a, b}), 2,
       "belongs before the range"},
      {"comment behind words", whole({a, "# late", b}), 2, "comments ahead of the words"},
      {"comments alone", whole({"# only"}), 2, "expected words before the blank line"},
      {"two blank lines", whole({a}) + "\n" + whole({a}), 3, "expected a sentence before the blank line"},
      {"empty nodes alone", whole({"0.1 e _ _ _ _ _ _ _ _"}), 2, "expected a word, got none"},
      {"head outside", whole({a, "2 b _ _ _ _ 3 dep _ _"}), 2, "expected a head from 0 to 2, got 3 for word 2"},
      {"head is a word", whole({a, "2 b _ _ _ _ x dep _ _"}), 2, "number in column HEAD, got 'x'"},
      {"head missing", whole({a, "2 b _ _ _ _ _ dep _ _"}), 2, "number in column HEAD, got '_'"},
      {"head negative", whole({a, "2 b _ _ _ _ -1 dep _ _"}), 2, "number in column HEAD, got '-1'"},
      {"head with a sign", whole({a, "2 b _ _ _ _ +1 dep _ _"}), 2, "number in column HEAD, got '+1'"},
      {"head of an empty node", whole({a, "2 b _ _ _ _ 1.1 dep _ _"}), 2, "number in column HEAD"},
      {"no root", whole({"1 a _ _ _ _ 2 dep _ _", b}), 1, "expected a root, got none"},
      {"two roots", whole({a, "2 b _ _ _ _ 0 root _ _"}), 2, "one root, got words 1 and 2"},
      {"self-loop", whole({a, "2 b _ _ _ _ 2 dep _ _"}), 2, "got the word itself for word 2"},
      {"cycle", whole({a, "2 b _ _ _ _ 3 dep _ _", "3 c _ _ _ _ 2 dep _ _"}), 2, "cycle"},
      {"no blank line at the end", whole({a}).substr(0, whole({a}).size() - 1), 1, "blank line behind the last"},
      {"no line feed at the end", whole({a}).substr(0, whole({a}).size() - 2), 1, "blank line behind the last"},
      {"CR LF", crlf, 1, "carriage return"},
      {"CR inside", whole({a, "2 b\r _ _ _ _ 1 dep _ _"}), 2, "carriage return"},
      {"BOM", "\xEF\xBB\xBF" + whole({a}), 1, "byte-order mark"},
      {"no UTF-8", whole({a, "2 \xC3( _ _ _ _ 1 dep _ _"}), 2, "UTF-8, got '\\xc3' at byte 3"},
  };
}

TEST(Conllu, EveryDefectIsNamedWithItsLine) {
  for (const Fault& fault : faults()) {
    SCOPED_TRACE(fault.name);
    const std::string message = message_of<Error>([&] { read_conllu(fault.text, "file"); });
    EXPECT_EQ(message.rfind("file:" + std::to_string(fault.line) + ": expected", 0), 0u) << message;
    EXPECT_TRUE(contains(message, fault.reason)) << message;
    // Behind a good sentence the line counts on, and the good sentence survives lenient reading.
    if (fault.name == std::string("BOM")) continue;
    const std::string late = message_of<Error>([&] { read_conllu(kPlain + fault.text, "file"); });
    EXPECT_EQ(late.rfind("file:" + std::to_string(fault.line + 6) + ": expected", 0), 0u) << late;
  }
}

TEST(Conllu, LenientReadingSkipsTheSentenceAndCounts) {
  for (const Fault& fault : faults()) {
    SCOPED_TRACE(fault.name);
    // The last two have no end of their own, and the defect with two blank lines holds good sentences itself.
    const bool open =
        fault.name == std::string("no blank line at the end") || fault.name == std::string("no line feed at the end");
    const bool doubled = fault.name == std::string("two blank lines");
    const Document document =
        read_conllu((open || fault.name == std::string("BOM") ? "" : kPlain) + fault.text + (open ? "" : kPlain),
                    "file", {.lenient = true});
    const std::size_t good = open ? 0 : fault.name == std::string("BOM") ? 1 : doubled ? 4 : 2;
    EXPECT_EQ(document.sentences.size(), good);
    ASSERT_EQ(document.skipped.size(), 1u);
    EXPECT_TRUE(contains(document.skipped[0].reason, fault.reason)) << document.skipped[0].reason;
    EXPECT_EQ(document.skipped[0].before, good == 2 ? 1u : doubled ? 2u : 0u);
    if (good > 0) {
      EXPECT_EQ(conllu_text(document.sentences.back()), kPlain);
    }
  }
  const Document document =
      read_conllu(rows({"# text = Hm  x.", "1 a _ _ _ _ 5 dep _ _"}) + kPlain, "file", {.lenient = true});
  ASSERT_EQ(document.skipped.size(), 1u);
  EXPECT_EQ(document.skipped[0].text, "Hm  x.");
  EXPECT_EQ(document.skipped[0].line, 2u);
}

TEST(Conllu, UncheckedTreesKeepWhatStandsThere) {
  const std::string text = rows({"1 a _ _ _ _ 7 dep _ _", "2 b _ _ _ _ _ _ _ _", "3 c _ _ _ _ 3 dep _ _"});
  const Document document = read_conllu(text, "x", {.check_trees = false});
  EXPECT_EQ(document.sentences.at(0).heads(), (std::vector<int>{7, kNoHead, 3}));
  EXPECT_EQ(conllu_text(document.sentences), text);
  const std::string message =
      message_of<Error>([] { read_conllu(rows({"1 a _ _ _ _ -2 dep _ _"}), "x", {.check_trees = false}); });
  EXPECT_TRUE(contains(message, "HEAD")) << message;
}

TEST(Conllu, NothingIsADocumentWithoutSentences) {
  EXPECT_TRUE(read_conllu("", "x").sentences.empty());
  const std::string message = message_of<Error>([] { read_conllu("\n", "x"); });
  EXPECT_TRUE(contains(message, "x:1: ")) << message;
}

TEST(Conllu, SpacesAroundTokens) {
  EXPECT_TRUE(space_after("_"));
  EXPECT_FALSE(space_after("SpaceAfter=No"));
  EXPECT_FALSE(space_after("Lang=fr|SpaceAfter=No|Translit=x"));
  EXPECT_TRUE(space_after("NoSpaceAfter=No"));
  EXPECT_TRUE(space_after("SpacesAfter=\\n"));
  EXPECT_FALSE(space_after("SpacesAfter="));
  EXPECT_EQ(column_value("Case=Nom|Number=Sing", "Number"), "Sing");
  EXPECT_EQ(column_value("Case=Nom|Number=Sing", "Numb"), std::nullopt);
  const std::string spaces = " \t\r\n|\\x";
  EXPECT_EQ(escape_spaces(spaces), "\\s\\t\\r\\n\\p\\\\x");
  EXPECT_EQ(unescape_spaces(escape_spaces(spaces)), spaces);
  EXPECT_EQ(unescape_spaces("\\q\\"), "\\q\\");
  EXPECT_EQ(unescape_spaces("x\\u00A0\\u20"), "x\xC2\xA0\\u20");
  EXPECT_EQ(unescape_spaces("\\uD800"), "\\uD800");
  EXPECT_EQ(unescape_spaces("\\u-001"), "\\u-001");
  const Document document = read_conllu(
      rows({"1 a _ _ _ _ 0 root _ SpacesBefore=\\s|SpacesAfter=\\n\\n", "2 bc _ _ _ _ 1 dep _ SpacesInToken=b\\sc",
            "3 d _ _ _ _ 1 dep _ SpaceAfter=No", "4 e _ _ _ _ 1 dep _ SpacesAfter=\\s\\s"}),
      "x");
  EXPECT_EQ(spelled_text(document.sentences[0]), " a\n\nb c de");
}

TEST(Conllu, TreesComeAndGo) {
  const Document document = read_conllu(kPlain, "x");
  const Tree tree = tree_of(document.sentences[0]);
  EXPECT_EQ(tree.words, (std::vector<std::string>{"I", "run", "."}));
  EXPECT_EQ(sentence_of(tree).heads(), tree.heads);
  EXPECT_EQ(sentence_of(tree).relations(), tree.relations);
  EXPECT_EQ(base_relation("acl:relcl"), "acl");
  EXPECT_EQ(base_relation("acl"), "acl");
  Sentence broken = document.sentences[0];
  broken.words[1].head = 3;
  const std::string message = message_of<Error>([&] { tree_of(broken); });
  EXPECT_TRUE(contains(message, "root")) << message;
}

TEST(ConlluTreebanks, RoundTripsAreExact) {
  const std::vector<std::string> files = treebank_files();
  if (files.empty()) GTEST_SKIP() << "no treebanks; set TORSOR_SHARED";
  std::size_t sentences = 0, ranges = 0, nodes = 0;
  for (const std::string& path : files) {
    const std::string content = slurp(path);
    const Document document = read_conllu(content, path);
    EXPECT_TRUE(conllu_text(document.sentences) == content) << path;
    for (const Sentence& sentence : document.sentences) {
      ranges += sentence.multiwords.size();
      nodes += sentence.empty_nodes.size();
      const auto text = sentence.comment("text");
      ASSERT_TRUE(text) << path << ":" << sentence.line;
      // Only a handful of treebank sentences hold double spaces, which SpaceAfter cannot say.
      if (text->find("  ") == std::string::npos) {
        EXPECT_EQ(spelled_text(sentence), *text) << path << ":" << sentence.line;
      }
    }
    sentences += document.sentences.size();
    if (contains(path, "en_ewt-ud-train")) {  // counts of sipe.md, 1.2
      EXPECT_EQ(document.sentences.size(), 12544u);
      EXPECT_EQ(ranges, 2614u);
      EXPECT_EQ(nodes, 37u);
    }
  }
  EXPECT_GT(sentences, 1000u);
}

}  // namespace
}  // namespace torsor::syntax
