#include "torsor/syntax/features.h"

#include <gtest/gtest.h>

#include "tests/syntax/toy_parser.h"
#include "tests/syntax/treebanks.h"
#include "torsor/base/error.h"
#include "torsor/syntax/relations.h"

namespace torsor::syntax {
namespace {

using namespace testing;

std::vector<ByteSpan> bytes_of(std::string_view text) { return pieces(text, 1); }

/// "1.2 0.0 ..." of every token.
std::string tags_of(const SyntaxFeatures& features) {
  std::string text;
  for (const auto& tag : features.tags) {
    text += (text.empty() ? "" : " ");
    text += tag[0] == 0 && tag[1] == 0 ? "-" : std::to_string(tag[0]) + std::to_string(tag[1]);
  }
  return text;
}

/// Everything that an encoding is given at tokens [0, count), in one list.
std::vector<std::int64_t> inputs(const SyntaxFeatures& features, std::size_t count) {
  std::vector<std::int64_t> all, part(count * 18);
  features.write_tags(0, count, part.data());
  all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count * 2));
  features.write_sentences(0, count, part.data());
  all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count));
  features.write_arcs(0, count, part.data());
  all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count * 9));
  features.write_links(0, count, 2, part.data());
  all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count * 4));
  return all;
}

const std::string kText = "ab cd e f. g";
// she watches funny videos (and a full stop), and a sentence of one word; as bytes of kText.
std::vector<Sentence> example() {
  std::vector<Sentence> sentences = {words_with_heads({2, 0, 4, 2, 2}), words_with_heads({0})};
  const char* forms[] = {"ab", "cd", "e", "f", "."};
  for (std::size_t i = 0; i < 5; ++i) sentences[0].words[i].form = forms[i];
  sentences[0].words[0].deprel = "nsubj";
  sentences[1].words[0].form = "g";
  return sentences;
}

SyntaxFeatures example_features(ParseMode mode, const FeatureOptions& options) {
  return syntax_features(make_parse(example(), kText, {.mode = mode}), kText, bytes_of(kText), options);
}

TEST(Features, OracleTagsByTheRule) {
  // The binary tree is ((ab > cd) < (e > f)) < the full stop, where the signs point to the head.
  //                                                        a  b     c  d     e     f  .     g
  EXPECT_EQ(tags_of(example_features(ParseMode::kOracle, {SubwordRule::kFirst})), "11 - - 22 - - 13 - 22 25 - 15");
  EXPECT_EQ(tags_of(example_features(ParseMode::kOracle, {SubwordRule::kAll})), "11 11 - 22 22 - 13 - 22 25 - 15");
  EXPECT_EQ(tags_of(example_features(ParseMode::kOracle, {SubwordRule::kLast})), "- 11 - - 22 - 13 - 22 25 - 15");
  EXPECT_EQ(tags_of(example_features(ParseMode::kOracle, {SubwordRule::kDelayed})), "- - - 11 - - 22 - 13 22 - -");
  EXPECT_EQ(tags_of(example_features(ParseMode::kNone, {SubwordRule::kAll})), "- - - - - - - - - - - -");
}

TEST(Features, RevealedTagsAreCausalInShapeAndDelayed) {
  const SyntaxFeatures features = example_features(ParseMode::kOracleRevealed, {SubwordRule::kDelayed});
  //                        (2, 5) begins; ab is pending; cd takes it and hangs from the root; e is pending; f takes e
  //                        and hangs from cd; g begins a sentence.
  EXPECT_EQ(tags_of(features), "25 - - 21 - - 12 - 21 12 - 25");
  EXPECT_EQ(tags_of(example_features(ParseMode::kOracleRevealed, {SubwordRule::kDelayed, true})),
            "25 25 - 21 21 - 12 - 21 12 - 25");
}

TEST(Features, SentencesArcsAndLinks) {
  const SyntaxFeatures features = example_features(ParseMode::kOracle, {SubwordRule::kFirst});
  EXPECT_EQ(features.sentences, (std::vector<std::int32_t>{0, 0, -1, 0, 0, -1, 0, -1, 0, 0, -1, 1}));
  EXPECT_DOUBLE_EQ(features.coverage(), 1.0);
  const ArcFeatures she{
      .relation = static_cast<std::uint8_t>(relation_id("nsubj")), .direction = 3, .distance = 0, .valid = 1};
  EXPECT_EQ(features.arcs[0], she);
  const ArcFeatures watches{.relation = static_cast<std::uint8_t>(relation_id("root")), .direction = 1, .valid = 1};
  EXPECT_EQ(features.arcs[3], watches);
  EXPECT_EQ(features.arcs[1], ArcFeatures{});
  EXPECT_EQ(features.arcs[9].direction, 2);
  EXPECT_EQ(features.arcs[9].distance, 1);  // three words back
  // Links stand where the later end is: ab-cd at c, e-f at f, f-cd at f, the full stop's at itself.
  std::vector<std::int64_t> links(12 * 2 * 2);
  EXPECT_EQ(features.write_links(0, 12, 2, links.data()), 0u);
  const auto link = [&](std::size_t token, std::size_t place) {
    return std::pair(links[(token * 2 + place) * 2], links[(token * 2 + place) * 2 + 1]);
  };
  EXPECT_EQ(link(3, 0), std::pair(std::int64_t{3}, std::int64_t{0}));
  EXPECT_EQ(link(3, 1), std::pair(std::int64_t{-1}, std::int64_t{-1}));
  EXPECT_EQ(link(8, 0), std::pair(std::int64_t{2}, std::int64_t{0}));
  EXPECT_EQ(link(8, 1), std::pair(std::int64_t{0}, std::int64_t{5}));
  EXPECT_EQ(link(9, 0), std::pair(std::int64_t{0}, std::int64_t{6}));
  // With room for one a token the second goes to the next token, one further back.
  EXPECT_EQ(features.write_links(0, 12, 1, links.data()), 0u);
  EXPECT_EQ(links[8 * 2], 2);
  EXPECT_EQ(links[9 * 2], 1);
  EXPECT_EQ(links[9 * 2 + 1], 6);
  EXPECT_EQ(links[10 * 2], 1);
  EXPECT_EQ(features.write_links(0, 9, 1, links.data()), 1u);  // what found no room
}

TEST(Features, WindowsAreCutOut) {
  const SyntaxFeatures features = example_features(ParseMode::kOracle, {SubwordRule::kFirst});
  std::vector<std::int64_t> tags(4 * 2, 9), sentences(4, 9), links(4 * 4, 9), arcs(4 * 9, 9);
  features.write_tags(8, 4, tags.data());
  EXPECT_EQ(tags, (std::vector<std::int64_t>{2, 2, 2, 5, 0, 0, 1, 5}));
  features.write_sentences(8, 4, sentences.data());
  EXPECT_EQ(sentences, (std::vector<std::int64_t>{0, 0, -1, 1}));
  // Every link here has an end ahead of the window.
  EXPECT_EQ(features.write_links(8, 4, 2, links.data()), 0u);
  EXPECT_EQ(links, std::vector<std::int64_t>(16, -1));
  EXPECT_EQ(features.write_links(3, 4, 2, links.data()), 0u);
  // Behind the end there is nothing.
  features.write_tags(11, 4, tags.data());
  EXPECT_EQ(tags, (std::vector<std::int64_t>{1, 5, 0, 0, 0, 0, 0, 0}));
  features.write_sentences(12, 4, sentences.data());
  EXPECT_EQ(sentences, std::vector<std::int64_t>(4, -1));
  features.write_arcs(11, 4, arcs.data());
  EXPECT_EQ(arcs[8], 1);
  EXPECT_EQ(arcs[17], 0);
  EXPECT_EQ(features.write_links(11, 4, 2, links.data()), 0u);
  EXPECT_TRUE(contains(message_of<Error>([&] { features.write_tags(13, 1, tags.data()); }), "got 13"));
}

TEST(Features, ParsesOfAnotherTextAreRefused) {
  const Parse parse = make_parse(example(), kText);
  EXPECT_TRUE(
      contains(message_of<Error>([&] { syntax_features(parse, "ab cd e f. h", bytes_of(kText), {}); }), "SHA-256"));
}

TEST(Features, UnparsedSentencesHaveNothing) {
  const Parse parse = make_parse(example(), kText, {.max_words = 4});
  const SyntaxFeatures features = syntax_features(parse, kText, bytes_of(kText), {SubwordRule::kAll});
  EXPECT_EQ(tags_of(features), "- - - - - - - - - - - 15");
  EXPECT_EQ(features.sentences[0], -1);
  EXPECT_EQ(features.sentences[11], 1);
  EXPECT_TRUE(features.links.empty());
  EXPECT_DOUBLE_EQ(features.coverage(), 1.0 / 8);  // eight bytes that are no spaces
}

TEST(Features, RulesOfIncrementalMode) {
  const std::string text = "a b.";
  const Parse parse = toy_parse(text);
  const auto message = [&](const FeatureOptions& options) {
    return message_of<UsageError>([&] { syntax_features(parse, text, bytes_of(text), options); });
  };
  EXPECT_TRUE(contains(message({SubwordRule::kFirst}), "got first"));
  EXPECT_TRUE(contains(message({SubwordRule::kAll}), "got all"));
  EXPECT_TRUE(contains(message({SubwordRule::kLast}), "got last"));
  EXPECT_NO_THROW(syntax_features(parse, text, bytes_of(text), {SubwordRule::kLast, false, true}));
  Parse unsafe = parse;
  unsafe.backend.prefix_safe = false;
  EXPECT_TRUE(contains(
      message_of<Error>([&] { syntax_features(unsafe, text, bytes_of(text), {SubwordRule::kDelayed}); }), "safe"));
  EXPECT_EQ(default_rule(ParseMode::kIncremental, false), SubwordRule::kDelayed);
  EXPECT_EQ(default_rule(ParseMode::kIncremental, true), SubwordRule::kDelayed);
  EXPECT_EQ(default_rule(ParseMode::kOracle, true), SubwordRule::kAll);
  EXPECT_EQ(default_rule(ParseMode::kOracle, false), SubwordRule::kFirst);
  for (const char* name : {"first", "all", "delayed", "last"}) EXPECT_EQ(rule_name(subword_rule(name)), name);
  EXPECT_TRUE(contains(message_of<UsageError>([] { subword_rule("some"); }), "'some'"));
}

TEST(IncrementalFeatures, StatesComeWhenTheirWordsAreComplete) {
  // Tokens are bytes. "do" and "n't" are known at the space behind; no tag may stand at the "n" of "n't".
  const std::string text = "don't go.";
  const Parse parse = toy_parse(text);
  const auto tag = [&](std::size_t word) {
    const CausalTag one = parse.sentences[0].words[word].tag;
    return std::to_string(one.tau) + std::to_string(one.nu);
  };
  const SyntaxFeatures features = syntax_features(parse, text, bytes_of(text), {SubwordRule::kDelayed});
  EXPECT_EQ(tags_of(features), "25 - - - - - " + tag(1) + " - " + tag(2));
  const SyntaxFeatures repeated = syntax_features(parse, text, bytes_of(text), {SubwordRule::kDelayed, true});
  EXPECT_EQ(tags_of(repeated), "25 25 25 25 25 - " + tag(1) + " " + tag(1) + " " + tag(2));
  EXPECT_EQ(features.sentences, (std::vector<std::int32_t>{0, 0, 0, 0, 0, -1, 0, 0, 0}));
  // Links of both come no earlier than the space.
  EXPECT_EQ(features.link_begin[5], 0u);
}

TEST(IncrementalFeatures, ArcsShowWhatTheWordSawWhenItWasRead) {
  const std::string text = "a b c d";
  IncrementalParse collected("d", {.name = "toy", .prefix_safe = true});
  const std::uint16_t nsubj = relation_id("nsubj"), obj = relation_id("obj"), root = relation_id("root");
  collected.word({0, 1}, 2, {2, 1}, {});
  collected.word({2, 3}, 4, {1, 2}, std::vector<MadeArc>{{1, 2, nsubj}, {2, 0, root}});
  collected.word({4, 5}, 6, {2, 1}, {});
  collected.word({6, 7}, 8, {1, 2}, std::vector<MadeArc>{{3, 4, obj}, {4, 2, obj}});
  const Parse parse = std::move(collected).finish(text);
  const SyntaxFeatures features = syntax_features(parse, text, bytes_of(text), {SubwordRule::kLast, false, true});
  EXPECT_EQ(features.arcs[0], (ArcFeatures{.waiting = 1, .valid = 1}));  // its head comes later: not told
  EXPECT_EQ(features.arcs[2], (ArcFeatures{.relation = static_cast<std::uint8_t>(root),
                                           .direction = 1,
                                           .left_count = 1,
                                           .left_relations = {static_cast<std::uint8_t>(nsubj), 0, 0},
                                           .waiting = 0,
                                           .valid = 1}));
  EXPECT_EQ(features.arcs[4], (ArcFeatures{.waiting = 1, .valid = 1}));
  EXPECT_EQ(features.arcs[6], (ArcFeatures{.relation = static_cast<std::uint8_t>(obj),
                                           .direction = 2,
                                           .distance = 1,
                                           .left_count = 1,
                                           .left_relations = {static_cast<std::uint8_t>(obj), 0, 0},
                                           .waiting = 0,
                                           .valid = 1}));
  // The arcs to b are known at the space behind it; those of d never are, since the text ends with it.
  ASSERT_EQ(features.links.size(), 1u);
  EXPECT_EQ(features.links[0], (Link{0, 2}));
  EXPECT_EQ(features.link_begin[3], 0u);
  EXPECT_EQ(features.link_begin[4], 1u);
}

TEST(IncrementalFeatures, NothingEarlierChangesWithTheFuture) {
  std::size_t compared = 0, tagged = 0, linked = 0, differing = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = toy_text(40, seed), other = toy_text(40, seed + 1000);
    const auto cut = static_cast<std::size_t>(random_at(7, 0, seed) % text.size());
    const std::string changed = text.substr(0, cut) + other, stopped = text.substr(0, cut);
    for (const std::size_t most : {1, 3, 8}) {
      for (const FeatureOptions& options :
           {FeatureOptions{SubwordRule::kDelayed}, FeatureOptions{SubwordRule::kDelayed, true}}) {
        const auto features_of = [&](const std::string& one) {
          return syntax_features(toy_parse(one, 12), one, pieces(one, most), options);
        };
        const SyntaxFeatures whole = features_of(text), new_future = features_of(changed),
                             no_future = features_of(stopped);
        // The tokens that lie in what all three share.
        std::size_t count = 0;
        for (const ByteSpan& token : pieces(text, most)) count += token.end <= cut ? 1 : 0;
        ASSERT_EQ(inputs(whole, count), inputs(new_future, count)) << seed << " cut " << cut << ": " << text;
        ASSERT_EQ(inputs(whole, count), inputs(no_future, count)) << seed << " cut " << cut << ": " << text;
        compared += count;
        for (std::size_t t = 0; t < count; ++t) tagged += whole.tags[t][0] != 0 ? 1 : 0;
        linked += whole.link_begin[count];
        differing += inputs(whole, whole.size()) != inputs(new_future, whole.size()) ? 1 : 0;
      }
    }
  }
  // There was something to compare, and the futures did differ.
  EXPECT_GT(compared, 50000u);
  EXPECT_GT(tagged, 5000u);
  EXPECT_GT(linked, 5000u);
  EXPECT_GT(differing, 1000u);
}

// A garden path: the same four words with a tree that depends on what follows.
const std::vector<Sentence>& continuations() {
  static const std::vector<Sentence> both = [] {
    // The old man the boat .   (man is the verb)
    Sentence boat = words_with_heads({2, 3, 0, 5, 3, 3});
    const char* boat_forms[] = {"The", "old", "man", "the", "boat", "."};
    for (std::size_t i = 0; i < 6; ++i) boat.words[i].form = boat_forms[i];
    // The old man sat down .
    Sentence sat = words_with_heads({3, 3, 4, 0, 4, 4});
    const char* sat_forms[] = {"The", "old", "man", "sat", "down", "."};
    for (std::size_t i = 0; i < 6; ++i) sat.words[i].form = sat_forms[i];
    return std::vector<Sentence>{boat, sat};
  }();
  return both;
}

TEST(OracleFeatures, DoChangeWithTheFuture) {
  const std::string one = "The old man the boat .", two = "The old man sat down .", shared = "The old man ";
  for (const auto& [mode, rule] :
       {std::pair(ParseMode::kOracle, SubwordRule::kFirst), std::pair(ParseMode::kOracle, SubwordRule::kAll),
        std::pair(ParseMode::kOracle, SubwordRule::kDelayed),
        std::pair(ParseMode::kOracleRevealed, SubwordRule::kDelayed),
        std::pair(ParseMode::kOracleRevealed, SubwordRule::kFirst)}) {
    const auto features_of = [&](std::size_t which, const std::string& text) {
      const Parse parse = make_parse(std::span(continuations()).subspan(which, 1), text, {.mode = mode});
      return syntax_features(parse, text, bytes_of(text), {rule});
    };
    const SyntaxFeatures first = features_of(0, one), second = features_of(1, two);
    EXPECT_NE(inputs(first, shared.size()), inputs(second, shared.size())) << mode_name(mode) << " " << rule_name(rule);
    std::vector<std::int64_t> tags(shared.size() * 2), others(shared.size() * 2);
    first.write_tags(0, shared.size(), tags.data());
    second.write_tags(0, shared.size(), others.data());
    EXPECT_NE(tags, others) << mode_name(mode) << " " << rule_name(rule);
  }
}

TEST(FeaturesTreebanks, EveryWordIsSeenOnce) {
  const std::string path = shared_path("data/ud-english-ewt/en_ewt-ud-dev.conllu");
  if (path.empty()) GTEST_SKIP() << "no treebanks; set TORSOR_SHARED";
  std::size_t words = 0, shown = 0, arcs = 0, links = 0;
  for (const TreebankText& document : treebank_texts(read_conllu_file(path), path)) {
    const Parse parse = make_parse(document.sentences, document.text);
    const SyntaxFeatures features =
        syntax_features(parse, document.text, bytes_of(document.text), {SubwordRule::kFirst});
    words += parse.word_count();
    for (const auto& tag : features.tags) shown += tag[0] != 0 && tag[1] != 0 ? 1 : 0;
    for (const ParseSentence& sentence : parse.sentences) arcs += sentence.words.size() - 1;
    links += features.links.size();
    EXPECT_DOUBLE_EQ(features.coverage(), 1.0);
  }
  EXPECT_GT(words, 25000u);
  EXPECT_EQ(shown, words);
  EXPECT_EQ(links, arcs);
}

}  // namespace
}  // namespace torsor::syntax
