#include "torsor/syntax/suites.h"

#include <gtest/gtest.h>

#include "torsor/base/error.h"
#include "torsor/data/minimal_suites.h"

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

TEST(SyntaxSuites, AConditionWithoutATreeIsRefused) {
  Suite suite = minimal_suite("generated_cleft", {.seed = 1, .items = 1, .grammar = {}}).suite;
  suite.items[0].conditions[1].tree.reset();
  EXPECT_THROW(suite_sentences(suite), Error);
}

}  // namespace
}  // namespace torsor::syntax
