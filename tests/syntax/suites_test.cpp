#include "torsor/syntax/suites.h"

#include <gtest/gtest.h>

#include "torsor/base/error.h"
#include "torsor/data/minimal_suites.h"
#include "torsor/syntax/parse.h"

namespace torsor::syntax {
namespace {

TEST(SyntaxSuites, GoldTreesAreATreebank) {
  std::size_t sentences = 0, crossing = 0;
  for (const MinimalSuite& made : minimal_suites({.seed = 1, .items = 10, .grammar = {}})) {
    const std::string text = conllu_text(suite_sentences(made.suite));
    const Document read = read_conllu(text, made.suite.name);  // strict: every tree is one
    std::size_t next = 0;
    for (const SuiteItem& item : made.suite.items)
      for (const SuiteCondition& condition : item.conditions) {
        ASSERT_LT(next, read.sentences.size());
        const Sentence& sentence = read.sentences[next++];
        EXPECT_EQ(sentence.heads(), condition.tree->tree.heads);
        EXPECT_EQ(sentence.relations(), condition.tree->tree.relations);
        EXPECT_EQ(*sentence.comment("text"), suite_sentence(made.suite, condition).text);
        std::string spelled = spelled_text(sentence);
        while (!spelled.empty() && spelled.back() == ' ') spelled.pop_back();
        EXPECT_EQ(spelled, *sentence.comment("text"));
        crossing += is_projective(condition.tree->tree) ? 0 : 1;
        ++sentences;
      }
    EXPECT_EQ(next, read.sentences.size());
  }
  EXPECT_GT(sentences, 500U);
  EXPECT_GT(crossing, 20U);  // gaps across a clause cross arcs
}

TEST(SyntaxSuites, GeneratedTextIsATreebankToo) {
  std::string content;
  const std::vector<GeneratedDocument> documents = generate_documents(70'000, 5);
  for (std::size_t d = 0; d < documents.size(); ++d)
    for (const Sentence& sentence : document_sentences(documents[d], str("d", d))) content += conllu_text(sentence);
  const std::vector<TreebankText> texts = treebank_texts(read_conllu(content, "generated"), "generated");
  ASSERT_EQ(texts.size(), documents.size());
  for (std::size_t d = 0; d < documents.size(); ++d) {
    EXPECT_EQ(texts[d].doc_id, str("d", d));
    EXPECT_EQ(texts[d].text, documents[d].text);
    ASSERT_EQ(texts[d].sentences.size(), documents[d].sentences.size());
    for (std::size_t s = 0; s < texts[d].sentences.size(); ++s)
      EXPECT_EQ(texts[d].sentences[s].heads(), documents[d].sentences[s].tree.heads);
  }
}

TEST(SyntaxSuites, AConditionWithoutATreeIsRefused) {
  Suite suite = minimal_suite("generated_cleft", {.seed = 1, .items = 1, .grammar = {}}).suite;
  suite.items[0].conditions[1].tree.reset();
  EXPECT_THROW(suite_sentences(suite), Error);
}

}  // namespace
}  // namespace torsor::syntax
