#include "torsor/syntax/score.h"

#include <gtest/gtest.h>

#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"
#include "torsor/base/json.h"

namespace torsor::syntax {
namespace {

using namespace testing;

Sentence words(const std::vector<std::string>& forms, const std::vector<int>& heads) {
  Sentence sentence = words_with_heads(heads);
  for (std::size_t i = 0; i < forms.size(); ++i) sentence.words[i].form = forms[i];
  return sentence;
}

TEST(Score, OfTheSameTokens) {
  const std::vector<Sentence> gold = {words({"a", "b", "c"}, {2, 0, 2})};
  std::vector<Sentence> system = {words({"a", "b", "c"}, {2, 0, 1})};
  Score result = score(gold, system);
  EXPECT_EQ(result.uas, (Agreement{2, 3, 3}));
  EXPECT_EQ(result.las, (Agreement{2, 3, 3}));
  EXPECT_EQ(result.words, (Agreement{3, 3, 3}));
  EXPECT_EQ(result.by_sentence, (std::vector<SentenceScore>{{3, 3, 2, 2}}));
  EXPECT_DOUBLE_EQ(result.uas.f1(), 2.0 / 3);
  system[0].words[0].deprel = "dep:x";
  system[0].words[1].deprel = "dep";
  EXPECT_EQ(score(gold, system).las.correct, 1u);  // subtypes do not count
  system[0].words[0].head = kNoHead;
  EXPECT_EQ(score(gold, system).uas.correct, 1u);
}

TEST(Score, OfWordsThatAreSplitAndJoined) {
  const std::vector<Sentence> gold = {words({"ab", "c"}, {0, 1}), words({"d"}, {0})};
  const std::vector<Sentence> system = {words({"a", "b", "c", "d"}, {0, 1, 1, 3})};
  const Score result = score(gold, system);
  EXPECT_EQ(result.tokens, (Agreement{2, 3, 4}));
  EXPECT_EQ(result.sentences, (Agreement{0, 2, 1}));
  EXPECT_EQ(result.words, (Agreement{2, 3, 4}));
  EXPECT_EQ(result.uas, (Agreement{0, 3, 4}));  // c hangs from a word that is not aligned, d is no root
  EXPECT_EQ(result.by_sentence, (std::vector<SentenceScore>{{2, 3, 0, 0}, {1, 1, 0, 0}}));
}

TEST(Score, OfMultiwordTokens) {
  std::vector<Sentence> gold = {words({"vamos", "nos", "al"}, {0, 1, 1})};
  gold[0].multiwords.push_back({1, 2, "vámonos"});
  std::vector<Sentence> system = {words({"Vamos", "al"}, {0, 1})};
  system[0].words[0].form = "vámonos";
  EXPECT_EQ(score(gold, system).words, (Agreement{1, 3, 2}));  // no form in common inside the stretch
  system = {words({"Vamos", "nos", "al"}, {2, 0, 2})};
  system[0].multiwords.push_back({1, 2, "vámonos"});
  const Score result = score(gold, system);
  EXPECT_EQ(result.words, (Agreement{3, 3, 3}));
  EXPECT_EQ(result.uas.correct, 0u);
  EXPECT_EQ(result.tokens, (Agreement{2, 2, 2}));
}

TEST(Score, RefusesAnotherText) {
  const std::vector<Sentence> gold = {words({"a", "bé", "c"}, {0, 1, 1})},
                              system = {words({"a", "bè", "c"}, {0, 1, 1})};
  const std::string message = message_of<Error>([&] { score(gold, system); });
  EXPECT_TRUE(contains(message, "'éc'")) << message;
  EXPECT_TRUE(contains(message, "'èc'")) << message;
  EXPECT_TRUE(contains(message_of<Error>([&] { score(gold, {}); }), "''"));
  EXPECT_EQ(score({}, {}).uas.f1(), 0.0);
}

TEST(ScoreGolden, EqualsTheSharedTaskScorer) {
  const std::string folder = shared_path("data/golden/uas");
  if (folder.empty()) GTEST_SKIP() << "no golden scores; set TORSOR_SHARED";
  const Json expected = read_json(folder + "/expected.json");
  const std::vector<Sentence> gold = read_conllu_file(folder + "/gold.conllu").sentences;
  std::size_t compared = 0;
  for (const char* name : {"gold", "system-same-tokens", "system-other-tokens"}) {
    const Score result = score(gold, read_conllu_file(folder + "/" + name + ".conllu").sentences);
    const std::pair<const char*, const Agreement&> measures[] = {
        {"Tokens", result.tokens}, {"Sentences", result.sentences},
        {"Words", result.words},   {"UAS", result.uas},
        {"LAS", result.las},       {"CLAS", result.clas}};
    for (const auto& [measure, agreement] : measures) {
      SCOPED_TRACE(std::string(name) + " " + measure);
      const Json& row = expected[name][measure];
      EXPECT_EQ(agreement.correct, row["correct"].get<std::size_t>());
      EXPECT_EQ(agreement.gold, row["gold_total"].get<std::size_t>());
      EXPECT_EQ(agreement.system, row["system_total"].get<std::size_t>());
      EXPECT_NEAR(agreement.precision(), row["precision"].get<double>(), 1e-9);  // printed with ten digits
      EXPECT_NEAR(agreement.recall(), row["recall"].get<double>(), 1e-9);
      EXPECT_NEAR(agreement.f1(), row["f1"].get<double>(), 1e-9);
      ++compared;
    }
    SentenceScore sum;
    for (const SentenceScore& one : result.by_sentence) {
      sum.gold_words += one.gold_words;
      sum.system_words += one.system_words;
      sum.uas += one.uas;
      sum.las += one.las;
    }
    EXPECT_EQ(sum, (SentenceScore{result.uas.gold, result.uas.system, result.uas.correct, result.las.correct}));
  }
  EXPECT_EQ(compared, 18u);
}

}  // namespace
}  // namespace torsor::syntax
