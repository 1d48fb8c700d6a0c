#include "torsor/syntax/controls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/syntax/toy_parser.h"
#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"
#include "torsor/syntax/features.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/relations.h"

namespace torsor::syntax {
namespace {

using namespace testing;

std::vector<int> heads_of_sentence(const ParseSentence& sentence) {
  std::vector<int> heads;
  for (const ParseWord& word : sentence.words) heads.push_back(word.head);
  return heads;
}

/// Sentences of 1 to 30 words with random trees, as one text.
Parse sample(ParseMode mode) {
  Random random(11);
  std::vector<Sentence> sentences;
  std::string text;
  for (int n = 1; n <= 30; ++n) {
    Sentence sentence = words_with_heads(projectivise(random_heads(n, random)));
    for (std::size_t i = 0; i < sentence.size(); ++i) {
      if (sentence.words[i].head != 0) sentence.words[i].deprel = std::string(kRelations[random.below(34)]);
      text += sentence.words[i].form + " ";
    }
    sentences.push_back(sentence);
  }
  return make_parse(sentences, text, {.mode = mode});
}

/// Heads and tags, to compare.
std::vector<std::vector<int>> content(const Parse& parse) {
  std::vector<std::vector<int>> all;
  for (const ParseSentence& sentence : parse.sentences)
    for (const ParseWord& word : sentence.words) all.push_back({word.head, word.relation, word.tag.tau, word.tag.nu});
  return all;
}

std::map<std::vector<int>, int> counts(const ParseSentence& sentence, bool tags) {
  std::map<std::vector<int>, int> found;
  for (const ParseWord& word : sentence.words)
    ++found[tags ? std::vector<int>{word.tag.tau, word.tag.nu} : std::vector<int>{word.relation}];
  return found;
}

TEST(Controls, NamesComeAndGo) {
  for (const char* name : {"none", "shuffled", "random_tree", "right_chain"})
    EXPECT_EQ(control_name(control_named(name)), name);
  EXPECT_TRUE(contains(message_of<UsageError>([] { control_named("x"); }), "'x'"));
}

TEST(Controls, AreFunctionsOfTheSeed) {
  const Parse parse = sample(ParseMode::kOracle);
  EXPECT_EQ(content(controlled(parse, Control::kNone, 1)), content(parse));
  for (const Control control : {Control::kShuffled, Control::kRandomTree}) {
    const Parse one = controlled(parse, control, 1);
    EXPECT_EQ(content(one), content(controlled(parse, control, 1)));
    EXPECT_NE(content(one), content(controlled(parse, control, 2)));
    EXPECT_NE(content(one), content(parse));
    EXPECT_EQ(one.text_sha256, parse.text_sha256);
    EXPECT_EQ(one.mode, parse.mode);
  }
}

TEST(Controls, OfWholeSentencesKeepTreesAndCounts) {
  for (const ParseMode mode : {ParseMode::kOracle, ParseMode::kOracleRevealed}) {
    const Parse parse = sample(mode);
    for (const Control control : {Control::kShuffled, Control::kRandomTree, Control::kRightChain}) {
      const Parse changed = controlled(parse, control, 3);
      for (std::size_t s = 0; s < parse.sentences.size(); ++s) {
        const ParseSentence &before = parse.sentences[s], &after = changed.sentences[s];
        const std::vector<int> heads = heads_of_sentence(after);
        ASSERT_FALSE(find_defect(heads)) << control_name(control) << s;
        ASSERT_EQ(counts(after, false), counts(before, false)) << control_name(control) << s;
        if (control == Control::kShuffled) {
          ASSERT_EQ(counts(after, true), counts(before, true)) << s;
          continue;
        }
        ASSERT_TRUE(is_projective(heads));
        for (std::size_t i = 0; i < heads.size(); ++i)
          ASSERT_EQ(after.words[i].relation == relation_id("root"), heads[i] == 0) << control_name(control);
        if (mode == ParseMode::kOracle) {
          const std::vector<Hexatag> tags = hexatags_of(heads);
          for (std::size_t i = 0; i < tags.size(); ++i)
            ASSERT_EQ(after.words[i].tag.nu, static_cast<int>(tags[i].nonterminal));
        }
        if (control == Control::kRightChain) {
          for (std::size_t i = 0; i < heads.size(); ++i) ASSERT_EQ(heads[i], static_cast<int>(i));
        }
      }
    }
  }
}

TEST(Controls, OfIncrementalParsesStayCausal) {
  std::size_t compared = 0, changed_tags = 0, links = 0, links_before = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = toy_text(40, seed);
    const auto cut = static_cast<std::size_t>(random_at(8, 0, seed) % text.size());
    const std::string changed = text.substr(0, cut) + toy_text(40, seed + 5000);
    for (const Control control : {Control::kShuffled, Control::kRandomTree, Control::kRightChain}) {
      const Parse one = controlled(toy_parse(text), control, 4), two = controlled(toy_parse(changed), control, 4);
      const std::vector<ByteSpan> tokens = pieces(text, 1), other_tokens = pieces(changed, 1);
      const SyntaxFeatures a = syntax_features(one, text, tokens, {SubwordRule::kDelayed});
      const SyntaxFeatures b = syntax_features(two, changed, other_tokens, {SubwordRule::kDelayed});
      const SyntaxFeatures plain = syntax_features(toy_parse(text), text, tokens, {SubwordRule::kDelayed});
      std::vector<std::int64_t> tags_a(cut * 2), tags_b(cut * 2), arcs_a(cut * 9), arcs_b(cut * 9), links_a(cut * 6),
          links_b(cut * 6);
      a.write_tags(0, cut, tags_a.data());
      b.write_tags(0, cut, tags_b.data());
      a.write_arcs(0, cut, arcs_a.data());
      b.write_arcs(0, cut, arcs_b.data());
      a.write_links(0, cut, 3, links_a.data());
      b.write_links(0, cut, 3, links_b.data());
      ASSERT_EQ(tags_a, tags_b) << control_name(control) << " " << seed;
      ASSERT_EQ(arcs_a, arcs_b) << control_name(control) << " " << seed;
      ASSERT_EQ(links_a, links_b) << control_name(control) << " " << seed;
      compared += cut;
      for (std::size_t t = 0; t < cut; ++t) changed_tags += a.tags[t] != plain.tags[t] ? 1 : 0;
      if (control == Control::kShuffled) {
        links += a.links.size();
        links_before += plain.links.size();
      }
      for (const ParseSentence& sentence : one.sentences) {
        std::vector<int> heads = heads_of_sentence(sentence);
        std::vector<std::string> relations(heads.size(), "dep");
        const RepairCounts repaired = repair(heads, relations);
        ASSERT_EQ(repaired.cycles + repaired.outside + repaired.self_loops, 0u) << control_name(control) << " " << seed;
      }
    }
  }
  EXPECT_GT(compared, 20000u);
  EXPECT_GT(changed_tags, 2000u);
  // Shuffled words have as many links as before, but for those that took all words ahead of them and so have no
  // partner left on the left.
  EXPECT_LE(links, links_before);
  EXPECT_GT(static_cast<double>(links), 0.9 * static_cast<double>(links_before));
}

}  // namespace
}  // namespace torsor::syntax
