#include "torsor/syntax/hexatags.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"
#include "torsor/data/tree.h"

namespace torsor::syntax {
namespace {

using namespace testing;

std::string text_of(const std::vector<Hexatag>& tags) {
  std::string text;
  for (const Hexatag& tag : tags) text += (text.empty() ? "" : " ") + hexatag_text(tag);
  return text;
}

std::vector<Hexatag> tags_from(const std::string& text) {
  std::istringstream words(text);
  std::vector<Hexatag> tags;
  for (std::string word; words >> word;) tags.push_back(parse_hexatag(word));
  return tags;
}

TEST(Hexatags, TheExampleOfThePaper) {
  const std::vector<int> heads = {2, 0, 4, 2};  // she watches funny videos
  const std::vector<Hexatag> tags = hexatags_of(heads);
  EXPECT_EQ(text_of(tags), "L:LR R:LL L:RR R:E");
  EXPECT_EQ(tags[0].terminal, Terminal::kLeftChild);
  EXPECT_EQ(tags[0].nonterminal, NonTerminal::kLeftChildRightHead);
  EXPECT_EQ(heads_of(tags), heads);
}

TEST(Hexatags, ShortSentences) {
  EXPECT_EQ(text_of(hexatags_of(std::vector<int>{0})), "L:E");
  EXPECT_EQ(text_of(hexatags_of(std::vector<int>{0, 1})), "L:LL R:E");
  EXPECT_EQ(text_of(hexatags_of(std::vector<int>{2, 0})), "L:LR R:E");
  EXPECT_EQ(heads_of(tags_from("L:E")), (std::vector<int>{0}));
}

TEST(Hexatags, IdsAreThoseOfTheTables) {
  EXPECT_EQ(static_cast<int>(Terminal::kLeftChild), 1);
  EXPECT_EQ(static_cast<int>(Terminal::kRightChild), 2);
  EXPECT_EQ(static_cast<int>(NonTerminal::kLeftChildRightHead), 1);
  EXPECT_EQ(static_cast<int>(NonTerminal::kLeftChildLeftHead), 2);
  EXPECT_EQ(static_cast<int>(NonTerminal::kRightChildRightHead), 3);
  EXPECT_EQ(static_cast<int>(NonTerminal::kRightChildLeftHead), 4);
  EXPECT_EQ(static_cast<int>(NonTerminal::kEnd), 5);
}

TEST(Hexatags, RefusesWhatIsNoTreeOrNotProjective) {
  EXPECT_TRUE(contains(message_of<Error>([] { hexatags_of(std::vector<int>{0, 4, 1, 1}); }), "projective"));
  EXPECT_TRUE(contains(message_of<Error>([] { hexatags_of(std::vector<int>{2, 1}); }), "root"));
  EXPECT_TRUE(contains(message_of<Error>([] { projectivise(std::vector<int>{0, 3, 2}); }), "cycle"));
  EXPECT_TRUE(contains(message_of<Error>([] { hexatags_of(std::vector<int>{}); }), "words"));
}

TEST(Hexatags, RefusesTagsThatMakeNoTree) {
  for (const char* text :
       {"R:E", "L:LL", "L:E L:E", "L:LL L:E", "L:RR R:E", "L:LL R:LL", "L:LL R:E R:E", "L:_", "_:E"}) {
    std::vector<Hexatag> tags;
    if (std::string(text) == "L:_")
      tags = {{Terminal::kLeftChild, NonTerminal::kNone}};
    else if (std::string(text) == "_:E")
      tags = {{Terminal::kNone, NonTerminal::kEnd}};
    else
      tags = tags_from(text);
    const std::string message = message_of<Error>([&] { heads_of(tags); });
    EXPECT_TRUE(contains(message, "word ")) << text << ": " << message;
  }
  EXPECT_TRUE(contains(message_of<Error>([] { heads_of({}); }), "none"));
  for (const char* text : {"", "L", "L:", "X:LL", "L:LX", "L:LLL", "LLL"})
    EXPECT_TRUE(contains(message_of<Error>([&] { parse_hexatag(text); }), "expected L or R")) << text;
}

TEST(Projectivise, LiftsTheShortestArcFirst) {
  EXPECT_EQ(projectivise(std::vector<int>{2, 0, 4, 2}), (std::vector<int>{2, 0, 4, 2}));
  // 2 <- 4 spans 3, which hangs on 1: 2 goes to 1, the head of 4.
  EXPECT_EQ(projectivise(std::vector<int>{0, 4, 1, 1}), (std::vector<int>{0, 1, 1, 1}));
  // Both 1 <- 3 and 4 <- 2 cross; the lengths are equal, so the leftmost dependent goes first, which is enough.
  const std::vector<int> crossing = {3, 0, 2, 2};
  EXPECT_EQ(count_nonprojective(crossing), 1);
  EXPECT_EQ(projectivise(crossing), (std::vector<int>{2, 0, 2, 2}));
}

TEST(HexatagsProperty, RandomTreesComeBack) {
  Random random(1);
  int crossing = 0;
  for (int round = 0; round < 10000; ++round) {
    const int n = 1 + static_cast<int>(random.below(40));
    const std::vector<int> heads = random_heads(n, random);
    const std::vector<int> lifted = projectivise(heads);
    ASSERT_FALSE(find_defect(lifted)) << round;
    ASSERT_TRUE(is_projective(lifted)) << round;
    ASSERT_EQ(count_nonprojective(lifted), 0) << round;
    ASSERT_EQ(count_nonprojective(heads) == 0, is_projective(heads)) << round;
    crossing += is_projective(heads) ? 0 : 1;
    const std::vector<Hexatag> tags = hexatags_of(lifted);
    ASSERT_EQ(heads_of(tags), lifted) << round;
    HexatagAutomaton automaton(n);
    for (const Hexatag& tag : tags) {
      ASSERT_TRUE(automaton.allows(tag.terminal)) << round;
      automaton.take(tag.terminal);
      ASSERT_TRUE(automaton.allows(tag.nonterminal)) << round;
      automaton.take(tag.nonterminal);
    }
    ASSERT_TRUE(automaton.done()) << round;
  }
  EXPECT_GT(crossing, 5000);  // the projectivisation had something to do
}

/// Every sequence of tags for n words.
std::vector<std::vector<Hexatag>> all_sequences(int n) {
  std::vector<std::vector<Hexatag>> sequences = {{}};
  for (int i = 0; i < n; ++i) {
    std::vector<std::vector<Hexatag>> longer;
    for (const auto& sequence : sequences) {
      for (int t = 1; t <= 2; ++t) {
        for (int v = 1; v <= 5; ++v) {
          longer.push_back(sequence);
          longer.back().push_back({static_cast<Terminal>(t), static_cast<NonTerminal>(v)});
        }
      }
    }
    sequences = std::move(longer);
  }
  return sequences;
}

bool is_valid(const std::vector<Hexatag>& tags) {
  try {
    heads_of(tags);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(HexatagAutomatonTest, AllowsExactlyTheTagsOfProjectiveTrees) {
  // Binary trees of n words with a head side at each of their inner nodes: Catalan(n - 1) * 2^(n - 1).
  const int expected[] = {0, 1, 2, 8, 40};
  for (int n = 1; n <= 4; ++n) {
    int valid = 0;
    for (const auto& tags : all_sequences(n)) {
      HexatagAutomaton automaton(n);
      bool allowed = true;
      for (const Hexatag& tag : tags) {
        allowed = allowed && automaton.allows(tag.terminal);
        if (allowed) automaton.take(tag.terminal);
        allowed = allowed && automaton.allows(tag.nonterminal);
        if (allowed) automaton.take(tag.nonterminal);
      }
      EXPECT_EQ(allowed, is_valid(tags)) << n << ": " << text_of(tags);
      valid += allowed ? 1 : 0;
    }
    EXPECT_EQ(valid, expected[n]) << n;
  }
}

TEST(HexatagAutomatonTest, NeverLeadsIntoADeadEnd) {
  Random random(2);
  for (int round = 0; round < 2000; ++round) {
    const int n = 1 + static_cast<int>(random.below(30));
    HexatagAutomaton automaton(n);
    for (int i = 0; i < n; ++i) {
      std::vector<Terminal> words;
      for (int t = 1; t <= 2; ++t)
        if (automaton.allows(static_cast<Terminal>(t))) words.push_back(static_cast<Terminal>(t));
      ASSERT_FALSE(words.empty()) << round << " word " << i;
      automaton.take(words[static_cast<std::size_t>(random.below(words.size()))]);
      std::vector<NonTerminal> gaps;
      for (int v = 1; v <= 5; ++v)
        if (automaton.allows(static_cast<NonTerminal>(v))) gaps.push_back(static_cast<NonTerminal>(v));
      ASSERT_FALSE(gaps.empty()) << round << " gap " << i;
      automaton.take(gaps[static_cast<std::size_t>(random.below(gaps.size()))]);
    }
    ASSERT_TRUE(automaton.done());
  }
  HexatagAutomaton automaton(1);
  EXPECT_TRUE(contains(message_of<Error>([&] { automaton.take(Terminal::kRightChild); }), "word"));
  EXPECT_TRUE(contains(message_of<Error>([&] { automaton.take(NonTerminal::kEnd); }), "gap"));
}

TEST(BestHexatags, IsTheBestOfAll) {
  Random random(3);
  for (int round = 0; round < 40; ++round) {
    const int n = 1 + round % 4;
    std::vector<float> terminals, nonterminals;
    for (int i = 0; i < n * 2; ++i) terminals.push_back(static_cast<float>(random.normal()));
    for (int i = 0; i < n * 5; ++i) nonterminals.push_back(static_cast<float>(random.normal()));
    const auto score = [&](const std::vector<Hexatag>& tags) {
      double sum = 0;
      for (std::size_t i = 0; i < tags.size(); ++i) {
        sum += terminals[i * 2 + static_cast<std::size_t>(tags[i].terminal) - 1];
        sum += nonterminals[i * 5 + static_cast<std::size_t>(tags[i].nonterminal) - 1];
      }
      return sum;
    };
    double best = -std::numeric_limits<double>::infinity();
    for (const auto& tags : all_sequences(n))
      if (is_valid(tags)) best = std::max(best, score(tags));
    const std::vector<Hexatag> found = best_hexatags(terminals, nonterminals);
    ASSERT_TRUE(is_valid(found)) << text_of(found);
    EXPECT_NEAR(score(found), best, 1e-9) << n;  // both add the same floats in double
  }
  EXPECT_TRUE(contains(message_of<Error>([] { best_hexatags({}, {}); }), "got 0 and 0"));
}

TEST(BestHexatags, FollowsScoresOfATree) {
  Random random(4);
  const std::vector<int> heads = projectivise(random_heads(200, random));
  const std::vector<Hexatag> tags = hexatags_of(heads);
  std::vector<float> terminals(400, 0), nonterminals(1000, 0);
  for (std::size_t i = 0; i < tags.size(); ++i) {
    terminals[i * 2 + static_cast<std::size_t>(tags[i].terminal) - 1] = 1;
    nonterminals[i * 5 + static_cast<std::size_t>(tags[i].nonterminal) - 1] = 1;
  }
  EXPECT_EQ(best_hexatags(terminals, nonterminals), tags);
}

TEST(HexatagsGolden, EqualThePublishedOnes) {
  std::size_t compared = 0;
  for (const auto& [golden, treebank] : kGoldenTreebanks) {
    const std::string expected = shared_path("data/golden/hexatags/" + golden), path = shared_path(treebank);
    if (expected.empty() || path.empty()) continue;
    const auto table = golden_rows(expected);
    const Document document = read_conllu_file(path);
    ASSERT_EQ(table.size(), document.sentences.size()) << golden;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const std::vector<int> heads = document.sentences[i].heads();
      ASSERT_EQ(document.sentences[i].comment("sent_id"), table[i][0]) << golden;
      ASSERT_EQ(std::to_string(heads.size()), table[i][1]) << table[i][0];
      ASSERT_EQ(std::to_string(count_nonprojective(heads)), table[i][2]) << table[i][0];
      ASSERT_EQ(text_of(hexatags_of(projectivise(heads))), table[i][3]) << table[i][0];
      ++compared;
    }
  }
  if (compared == 0) GTEST_SKIP() << "no golden hexatags; set TORSOR_SHARED";
  EXPECT_EQ(compared, 2001u + 1000u + 500u + 416u);
}

TEST(HexatagsTreebanks, RoundTripsAreExactAfterProjectivisation) {
  const std::vector<std::string> files = treebank_files();
  if (files.empty()) GTEST_SKIP() << "no treebanks; set TORSOR_SHARED";
  for (const std::string& path : files) {
    int crossing_sentences = 0, crossing_arcs = 0;
    for (const Sentence& sentence : read_conllu_file(path).sentences) {
      const std::vector<int> heads = sentence.heads();
      const int crossing = count_nonprojective(heads);
      crossing_sentences += crossing > 0 ? 1 : 0;
      crossing_arcs += crossing;
      const std::vector<int> lifted = projectivise(heads);
      ASSERT_EQ(heads_of(hexatags_of(lifted)), lifted) << path << ":" << sentence.line;
    }
    if (contains(path, "en_ewt-ud-train")) {  // counts of sipe.md, 1.6
      EXPECT_EQ(crossing_sentences, 288);
      EXPECT_EQ(crossing_arcs, 354);
    }
  }
}

}  // namespace
}  // namespace torsor::syntax
