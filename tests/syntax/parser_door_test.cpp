// The door to parsers, and parses that lie in files.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/base/test_folder.h"
#include "tests/syntax/small_trees.h"
#include "torsor/base/error.h"
#include "torsor/syntax/letters.h"
#include "torsor/syntax/make_parser.h"
#include "torsor/syntax/parser_conllu.h"
#include "torsor/syntax/parser_udpipe.h"

namespace torsor::syntax {
namespace {

using torsor::testing::contains;
using torsor::testing::message_of;
using torsor::testing::TestFolder;

const char* kFile =
    "# newpar\n# text = He "
    "left.\n1\tHe\t_\tPRON\t_\t_\t2\tnsubj\t_\t_\n2\tleft\t_\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No\n"
    "3\t.\t_\tPUNCT\t_\t_\t2\tpunct\t_\t_\n\n"
    "# text = Don't!\n1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No\n1\tDo\t_\tAUX\t_\t_\t0\troot\t_\t_\n"
    "2\tn't\t_\tPART\t_\t_\t1\tadvmod\t_\t_\n3\t!\t_\tPUNCT\t_\t_\t1\tpunct\t_\t_\n\n";

TEST(ParserDoor, FilesAnswerForTheirTextAndWords) {
  const TestFolder folder;
  const auto parser = make_parser("conllu:" + folder.put("gold.conllu", kFile));
  EXPECT_EQ(parser->info().backend, "conllu");
  EXPECT_EQ(parser->info().model_sha256.size(), 64u);
  const auto whole = parser->parse_text("He  left.\nDon't!\n");
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole[0].sentence.heads(), (std::vector<int>{2, 0, 2}));
  EXPECT_EQ(whole[1].sentence.multiwords.size(), 1u);
  ASSERT_EQ(parser->parse_text("Don't!").size(), 1u);  // a stretch of whole sentences
  EXPECT_TRUE(parser->parse_text("Don't!")[0].parsed);
  const auto other = parser->parse_text("Don't");
  ASSERT_EQ(other.size(), 1u);
  EXPECT_FALSE(other[0].parsed);
  EXPECT_TRUE(contains(other[0].reason, "do not spell this text"));
  EXPECT_TRUE(parser->parse_text(" \n").empty());
  const auto tokens = parser->parse_tokens({{"Do", "n't", "!"}, {"Don't", "!"}});
  EXPECT_TRUE(tokens[0].parsed);
  EXPECT_FALSE(tokens[1].parsed);
  EXPECT_EQ(tokens[1].sentence.words.size(), 2u);
  EXPECT_EQ(parser->word_parser(), nullptr);
}

TEST(ParserDoor, SpecsThatNameNothingAreRefused) {
  const TestFolder folder;
  EXPECT_TRUE(contains(message_of<UsageError>([] { make_parser("stanza"); }), "a parser is the folder"));
  EXPECT_THROW(make_parser(""), UsageError);
  EXPECT_THROW(make_parser("process:"), UsageError);
  EXPECT_THROW(make_parser("conllu:" + (folder / "none.conllu")), Error);
  EXPECT_THROW(make_parser("process:/nonexistent/parser"), Error);
  EXPECT_THROW(make_parser(folder.path()), Error);  // a folder without a model
}

TEST(ParserDoor, UdpipeSaysWhetherItIsThere) {
  const TestFolder folder;
  const std::string none = folder.put("none.udpipe", "no model");
  const std::string message = message_of<Error>([&] { make_parser("udpipe:" + none); });
  if (has_udpipe())
    EXPECT_TRUE(contains(message, "is no model of UDPipe")) << message;
  else
    EXPECT_TRUE(contains(message, "-DTORSOR_WITH_UDPIPE=ON")) << message;
}

TEST(ParserDoor, UdpipeTrainsAndParses) {
  if (!has_udpipe()) GTEST_SKIP() << "this build has no UDPipe (-DTORSOR_WITH_UDPIPE=ON)";
  const TestFolder folder;
  UdpipeTraining training;
  training.trees = syntax::testing::sentences_of(syntax::testing::small_trees(200, 1));
  training.development = syntax::testing::sentences_of(syntax::testing::small_trees(20, 2));
  training.tokenizer = "epochs=20";
  training.tagger = "iterations=3";
  training.parser = "iterations=5;hidden_layer=20;structured_interval=0";
  std::ostringstream log;
  train_udpipe(training, folder / "toy.udpipe", log);
  EXPECT_FALSE(log.str().empty());
  const auto parser = make_parser("udpipe:" + (folder / "toy.udpipe"));
  EXPECT_EQ(parser->info().version, "1.4.0");
  EXPECT_EQ(parser->info().model_sha256.size(), 64u);
  std::size_t right = 0, words = 0;
  std::vector<std::vector<std::string>> forms;
  for (const Sentence& sentence : training.development) {
    forms.emplace_back();
    for (const Word& word : sentence.words) forms.back().push_back(word.form);
  }
  const auto parsed = parser->parse_tokens(forms);
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    ASSERT_TRUE(parsed[i].parsed) << parsed[i].reason;
    for (std::size_t w = 0; w < forms[i].size(); ++w, ++words) {
      EXPECT_EQ(parsed[i].sentence.words[w].form, forms[i][w]);
      right += parsed[i].sentence.words[w].head == training.development[i].words[w].head;
    }
  }
  EXPECT_GT(right * 10, words * 8);
  const auto text = parser->parse_text("the dog sees the cat. the boy likes the girl.");
  ASSERT_FALSE(text.empty());
  std::vector<Sentence> sentences;
  for (const ParsedSentence& one : text) sentences.push_back(one.sentence);
  EXPECT_EQ(spelled_without_space(sentences), "thedogseesthecat.theboylikesthegirl.");
}

TEST(ParserDoor, ParagraphsAndSpaces) {
  EXPECT_EQ(paragraphs("a\nb\n \n\nc"), (std::vector<std::string>{"a\nb\n", "c"}));
  EXPECT_TRUE(paragraphs("\n \n").empty());
  EXPECT_EQ(without_spaces(" a\u00A0b\t\u3000c\n"), "abc");
  EXPECT_EQ(unparsed(" a \n b", "why").sentence.comment("text"), "a b");
}

}  // namespace
}  // namespace torsor::syntax
