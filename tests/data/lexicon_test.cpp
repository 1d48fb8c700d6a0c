#include "torsor/data/lexicon.h"

#include <gtest/gtest.h>

#include <set>

#include "torsor/base/error.h"

namespace torsor::grammar {
namespace {

TEST(Lexicon, HasAFewHundredWordsAndNoneTwice) {
  const Lexicon& words = lexicon();
  EXPECT_GE(words.nouns.size(), 200U);
  EXPECT_GE(words.verbs.size(), 130U);
  EXPECT_GE(words.adjectives.size(), 70U);
  std::set<std::string> nouns;
  for (const Noun& noun : words.nouns) {
    EXPECT_TRUE(nouns.insert(noun.singular).second) << noun.singular;
    EXPECT_TRUE(nouns.insert(noun.plural).second) << noun.plural;  // no form is both one and many
    EXPECT_NE(noun.classes, 0U);
  }
  std::set<std::string> bases;
  for (const Verb& verb : words.verbs) EXPECT_TRUE(bases.insert(verb.base).second) << verb.base;
  for (const Verb& verb : words.verbs) {
    EXPECT_FALSE(bases.contains(verb.third)) << verb.third;
    EXPECT_FALSE(bases.contains(verb.past)) << verb.past;  // present and past must differ
  }
}

TEST(Lexicon, Inflects) {
  const auto expect = [](const char* base, const char* third, const char* past, const char* participle,
                         const char* gerund) {
    const Verb& verb = lexicon().verb(base);
    EXPECT_EQ(verb.third, third);
    EXPECT_EQ(verb.past, past);
    EXPECT_EQ(verb.participle, participle);
    EXPECT_EQ(verb.gerund, gerund);
  };
  expect("carry", "carries", "carried", "carried", "carrying");
  expect("obey", "obeys", "obeyed", "obeyed", "obeying");
  expect("watch", "watches", "watched", "watched", "watching");
  expect("write", "writes", "wrote", "written", "writing");
  expect("see", "sees", "saw", "seen", "seeing");
  expect("swim", "swims", "swam", "swum", "swimming");
  expect("travel", "travels", "travelled", "travelled", "travelling");
  expect("hide", "hides", "hid", "hidden", "hiding");
  expect("forget", "forgets", "forgot", "forgotten", "forgetting");
  EXPECT_THROW(lexicon().verb("torsor"), Error);
}

TEST(Lexicon, ArticlesAndNumbers) {
  EXPECT_EQ(indefinite_article("owl"), "an");
  EXPECT_EQ(indefinite_article("lamp"), "a");
  EXPECT_EQ(number_word(1), "one");
  EXPECT_EQ(number_word(19), "nineteen");
  EXPECT_EQ(number_word(20), "twenty");
  EXPECT_EQ(number_word(41), "forty-one");
  EXPECT_EQ(number_word(99), "ninety-nine");
  EXPECT_THROW(number_word(0), Error);
  EXPECT_THROW(number_word(100), Error);
}

}  // namespace
}  // namespace torsor::grammar
