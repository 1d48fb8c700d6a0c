// Parses reach the model: gold trees, parsers, controls, files; what must not leak does not, what leaks does.
#include "torsor/lab/parsed_feed.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "tests/lab/toy_causal_parser.h"
#include "tests/syntax/small_trees.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/data/minimal_suites.h"
#include "torsor/encoding/registry.h"
#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/parse_store.h"
#include "torsor/lab/surprisal.h"
#include "torsor/syntax/arc_training.h"
#include "torsor/syntax/features.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::TestFolder;

class ParsedFeed : public ::testing::Test {
 protected:
  ParsedFeed() { at::set_num_threads(1); }

  static const std::string& causal_parser() { return testing::toy_causal_parser(); }

  static std::shared_ptr<const Encoding> encoding(const std::string& expression) {
    return make_encoding(expression, {.heads = 2, .head_dim = 8, .train_length = 16});
  }

  static FeedRow row_of(const std::string& text) {
    FeedRow row;
    row.text = text;
    for (std::size_t t = 0; t < text.size(); ++t) row.tokens.push_back({t, t + 1});
    return row;
  }

  static at::Tensor tags(const SyntaxFeed& feed, const std::string& expression, const FeedRow& row) {
    const auto count = static_cast<std::int64_t>(row.tokens.size());
    return feed_rows(&feed, *encoding(expression), {row}, count).at(kSyntaxTags)[0];
  }

  LmData generated(std::int64_t bytes) const {
    DataSource source;
    source.generated_bytes = bytes;
    return load_data(source, 64);
  }
};

TEST_F(ParsedFeed, WindowsHaveTheGoldTagsOfTheirDocument) {
  const LmData data = generated(100'000);
  const auto feed = make_parsed_feed({.parsers = {"gold"}}, true, data.gold);
  const Document& document = data.train.documents[1];
  const std::string text(document.tokens.bytes());
  std::optional<syntax::Parse> gold;
  for (syntax::Parse& one : data.gold())
    if (one.text_sha256 == sha256_hex(text)) gold = std::move(one);
  ASSERT_TRUE(gold.has_value());
  std::vector<syntax::ByteSpan> spans;
  for (std::uint32_t t = 0; t < text.size(); ++t) spans.push_back({t, t + 1});
  const syntax::SyntaxFeatures whole = syntax::syntax_features(*gold, text, spans, {});
  EXPECT_GT(whole.coverage(), 0.99);
  Batch batch;
  batch.rows = 2;
  batch.length = 40;
  batch.windows = {{1, 0}, {1, 777}};
  batch.tokens.resize(2 * 41);
  for (std::size_t r = 0; r < 2; ++r) document.tokens.copy(batch.windows[r].begin, 41, batch.tokens.data() + r * 41);
  const auto t5 = encoding("sipe(t5, mode=oracle)");
  const NamedTensors named = feed_windows(feed.get(), *t5, data.train, batch);
  std::int64_t tagged = 0;
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t t = 0; t < 40; ++t) {
      const auto row = static_cast<std::int64_t>(r), token = static_cast<std::int64_t>(t);
      const std::size_t at = batch.windows[r].begin + t;
      EXPECT_EQ(named.at(kSyntaxTags)[row][token][0].item<std::int64_t>(), whole.tags[at][0]);
      EXPECT_EQ(named.at(kSyntaxTags)[row][token][1].item<std::int64_t>(), whole.tags[at][1]);
      EXPECT_EQ(named.at(kSyntaxSentences)[row][token].item<std::int64_t>(), whole.sentences[at]);
      tagged += whole.tags[at][0] != 0;
    }
  EXPECT_GT(tagged, 5);
  // Relations stand where the tags do.
  const at::Tensor labels =
      feed_windows(feed.get(), *encoding("sipe(none, labels=only, mode=oracle)"), data.train, batch).at(kSyntaxLabels);
  std::set<std::int64_t> kinds;
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t t = 0; t < 40; ++t) {
      const auto label = labels[static_cast<std::int64_t>(r)][static_cast<std::int64_t>(t)].item<std::int64_t>();
      EXPECT_EQ(label, whole.arcs[batch.windows[r].begin + t].relation);
      EXPECT_EQ(label > 0, whole.tags[batch.windows[r].begin + t][0] != 0);
      kinds.insert(label);
    }
  EXPECT_GT(kinds.size(), 3u);
  // An encoding that reads nothing is fed nothing, whoever could.
  EXPECT_TRUE(feed_windows(feed.get(), *encoding("t5"), data.train, batch).empty());
  EXPECT_TRUE(feed_windows(feed.get(), *encoding("sipe(t5, mode=none)"), data.train, batch).empty());
}

TEST_F(ParsedFeed, TreebanksAreTextsWithTrees) {
  const TestFolder folder;
  std::string conllu;
  for (const syntax::Sentence& sentence : syntax::testing::sentences_of(syntax::testing::small_trees(30, 4)))
    conllu += syntax::conllu_text(sentence);
  DataSource source;
  source.text = {folder.put("toy.conllu", conllu)};
  source.valid = {folder.put("other.conllu", conllu)};
  const LmData data = load_data(source, 16);
  ASSERT_EQ(data.train.documents.size(), 1u);
  EXPECT_FALSE(contains(std::string(data.train.documents[0].tokens.bytes()), "\t"));
  ASSERT_EQ(data.gold().size(), 2u);
  const auto feed = make_parsed_feed({.parsers = {"gold"}}, true, data.gold);
  const std::string text(data.train.documents[0].tokens.bytes());
  EXPECT_GT(tags(*feed, "sipe(t5, mode=oracle)", row_of(text)).count_nonzero().item<std::int64_t>(), 100);
  // Some other text has no gold trees, and the message says who has.
  EXPECT_TRUE(
      contains(message_of<Error>([&] { tags(*feed, "sipe(t5, mode=oracle)", row_of("the dog")); }), "treebank"));
}

TEST_F(ParsedFeed, SuitesBringTheirTrees) {
  const auto feed = make_parsed_feed({.parsers = {"gold"}}, true, {});
  const Suite suite = minimal_suite("generated_cleft", {.seed = 0, .items = 1, .grammar = {}}).suite;
  const SuiteCondition& condition = suite.items[0].conditions[0];
  ASSERT_TRUE(condition.tree.has_value());
  FeedRow row = row_of("\n\n" + suite_sentence(suite, condition).text);
  row.tree = &*condition.tree;
  row.tree_begin = 2;
  const at::Tensor found = tags(*feed, "sipe(alibi, mode=oracle)", row);
  EXPECT_EQ(found.narrow(0, 0, 2).count_nonzero().item<std::int64_t>(), 0);
  EXPECT_EQ(found.select(1, 0).ne(0).sum().item<std::int64_t>(),
            static_cast<std::int64_t>(condition.tree->words.size()));
  for (const ByteRange& word : condition.tree->words)
    EXPECT_NE(found[static_cast<std::int64_t>(2 + word.begin)][0].item<std::int64_t>(), 0);
}

TEST_F(ParsedFeed, IncrementalTagsNeverTellOfLaterTextAndOracleTagsDo) {
  const std::string causal = causal_parser();
  const auto feed = make_parsed_feed({.parsers = {causal, "gold"}}, true, {});
  const std::string one = "the old king sees the cat. the boy", other = "the old king quickly likes that dog.";
  std::size_t same = 0;
  while (one[same] == other[same]) ++same;
  for (const char* expression :
       {"sipe(t5, mode=incremental)", "sipe(alibi)", "sipe(rope)", "sipe(none, inject=input)"}) {
    SCOPED_TRACE(expression);
    const at::Tensor a = tags(*feed, expression, row_of(one)), b = tags(*feed, expression, row_of(other));
    const auto shared = static_cast<std::int64_t>(same);
    EXPECT_TRUE(at::equal(a.narrow(0, 0, shared), b.narrow(0, 0, shared)));
    EXPECT_GT(a.narrow(0, 0, shared).count_nonzero().item<std::int64_t>(), 2);
  }
  // The same through a model, bit for bit, and a control that the injection is wired: the oracle's tags move logits.
  at::NoGradGuard no_grad;
  const auto logits = [&](const std::string& expression, const FeedRow& row) {
    const Decoder model =
        testing::edited_model(testing::tiny_config(expression, 64), 3, [](const std::string& name, at::Tensor& tensor) {
          if (is_positional(name)) tensor.uniform_(-0.5, 0.5);  // no factor saturates
          if (name == "model.embed_tokens.weight") tensor *= 20;
        });
    TokenBatch batch;
    std::vector<std::int64_t> ids;
    for (const char c : row.text) ids.push_back(static_cast<unsigned char>(c));
    batch.tokens = at::tensor(ids, at::kLong).unsqueeze(0);
    batch.named = feed_rows(feed.get(), model.encoding(), {row}, batch.tokens.size(1));
    return model.logits(model.hidden(batch))[0];
  };
  at::manual_seed(1);
  const std::string tail =
      other.substr(same) + std::string(one.size() > other.size() ? one.size() - other.size() : 0, ' ');
  const std::string changed = one.substr(0, same) + tail.substr(0, one.size() - same);
  ASSERT_EQ(changed.size(), one.size());
  for (const char* expression : {"sipe(t5, mode=incremental)", "sipe(alibi, mode=incremental)"}) {
    at::manual_seed(1);
    const at::Tensor a = logits(expression, row_of(one));
    at::manual_seed(1);
    const at::Tensor b = logits(expression, row_of(changed));
    EXPECT_TRUE(
        at::equal(a.narrow(0, 0, static_cast<std::int64_t>(same)), b.narrow(0, 0, static_cast<std::int64_t>(same))));
  }
  // Two garden paths with gold trees that part before the text does.
  const auto with_tree = [&](const std::string& text, const std::vector<int>& heads) {
    static std::vector<std::unique_ptr<SuiteTree>> kept;
    kept.push_back(std::make_unique<SuiteTree>());
    SuiteTree& tree = *kept.back();
    std::size_t begin = 0;
    for (const int head : heads) {
      const std::size_t end = std::min(text.find(' ', begin), text.size());
      tree.words.push_back({begin, end});
      tree.tree.words.push_back(text.substr(begin, end - begin));
      tree.tree.heads.push_back(head);
      tree.tree.relations.push_back(head == 0 ? "root" : "dep");
      begin = end + 1;
    }
    FeedRow row = row_of(text);
    row.tree = &tree;
    return row;
  };
  const FeedRow verb = with_tree("The old man the boat", {2, 3, 0, 5, 3}),
                noun = with_tree("The old man sat down", {3, 3, 4, 0, 4});
  for (const char* expression : {"sipe(t5, mode=oracle)", "sipe(t5, mode=oracle_revealed)"}) {
    SCOPED_TRACE(expression);
    EXPECT_FALSE(
        at::equal(tags(*feed, expression, verb).narrow(0, 0, 12), tags(*feed, expression, noun).narrow(0, 0, 12)));
    at::manual_seed(1);
    const at::Tensor a = logits(expression, verb).narrow(0, 0, 12);
    at::manual_seed(1);
    const at::Tensor b = logits(expression, noun).narrow(0, 0, 12);
    EXPECT_GT((a - b).abs().max().item<float>(), 1e-4);
  }
}

TEST_F(ParsedFeed, ControlsAreOtherSyntaxWithTheSameCoverage) {
  const LmData data = generated(70'000);
  const auto feed = make_parsed_feed({.parsers = {"gold"}}, true, data.gold);
  const FeedRow row = row_of(std::string(data.train.documents[0].tokens.bytes()));
  const at::Tensor real = tags(*feed, "sipe(t5, mode=oracle)", row);
  for (const char* control : {"shuffled", "random_tree", "right_chain"}) {
    const auto other = feed->under(control);
    const at::Tensor found = tags(*other, "sipe(t5, mode=oracle)", row);
    EXPECT_TRUE(at::equal(found.select(1, 0).ne(0), real.select(1, 0).ne(0))) << control;
    EXPECT_FALSE(at::equal(found, real)) << control;
    EXPECT_NE(other->sha256(), feed->sha256());
    EXPECT_TRUE(contains(other->description(), control));
  }
  EXPECT_EQ(feed->under(""), feed);
  EXPECT_THROW(feed->under("reversed"), UsageError);
}

TEST_F(ParsedFeed, VectorsComeFromAFrozenEmbedder) {
  const TestFolder folder;
  for (const bool incremental : {false, true})
    syntax::write_native_model(folder / (incremental ? "causal" : "whole"),
                               syntax::ArcEmbedder({.incremental = incremental}, syntax::Weights(1)).to_model());
  const LmData data = generated(70'000);
  const FeedRow row = row_of(std::string(data.train.documents[0].tokens.bytes()).substr(0));
  const auto count = static_cast<std::int64_t>(row.tokens.size());
  const auto fsyn = encoding("sipe(t5, prior=fsyn, mode=oracle)");
  const auto feed = make_parsed_feed({.parsers = {"gold"}, .arcs = folder / "whole"}, true, data.gold);
  const at::Tensor vectors = feed_rows(feed.get(), *fsyn, {row}, count).at(kSyntaxVectors);
  EXPECT_FALSE(vectors.requires_grad());
  const at::Tensor tagged = tags(*feed, "sipe(t5, mode=oracle)", row).select(1, 0).ne(0);
  EXPECT_TRUE(at::equal(vectors[0].ne(0).any(1), tagged));
  const auto wrong = make_parsed_feed({.parsers = {"gold"}, .arcs = folder / "causal"}, true, data.gold);
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { feed_rows(wrong.get(), *fsyn, {row}, count); }), "incremental arcs"));
  const auto none = make_parsed_feed({.parsers = {"gold"}}, true, data.gold);
  EXPECT_TRUE(contains(message_of<UsageError>([&] { feed_rows(none.get(), *fsyn, {row}, count); }), "--arcs"));
}

TEST_F(ParsedFeed, RefusesWhatDoesNotGoTogether) {
  const std::string causal = causal_parser();
  EXPECT_TRUE(contains(message_of<UsageError>([&] {
                         make_parsed_feed({.parsers = {causal, causal}}, true, {});
                       }),
                       "safe for prefixes"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] {
                         make_parsed_feed({.parsers = {"gold", "gold"}}, true, {});
                       }),
                       "whole sentences"));
  const auto gold = make_parsed_feed({.parsers = {"gold"}}, true, {});
  EXPECT_TRUE(contains(message_of<UsageError>([&] { tags(*gold, "sipe(t5)", row_of("a b")); }), "incremental"));
  const auto reader = make_parsed_feed({.parsers = {causal}}, true, {});
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { tags(*reader, "sipe(t5, mode=oracle)", row_of("a b")); }), "oracle"));
  const auto both = make_parsed_feed({.parsers = {causal, "gold"}}, true, {});
  EXPECT_TRUE(contains(message_of<UsageError>([&] {
                         tags(*both, "sipe(t5, mode=oracle) + sipe(alibi, mode=incremental)", row_of("a b"));
                       }),
                       "different modes"));
  EXPECT_THROW(make_parsed_feed({.parsers = {"nowhere"}}, true, {}), UsageError);
}

TEST_F(ParsedFeed, WhatAParserFailedAtIsToldAndNotKept) {
  const TestFolder folder;
  LmData data;
  data.train = text_corpus("One two three .\n\nFour five bad six .\n\nSeven eight .\n", "text");
  Batch batch;
  batch.rows = 1;
  batch.length = 50;
  batch.windows = {{0, 0}};
  const auto oracle = encoding("sipe(t5, mode=oracle)");
  const auto tags_with = [&](const std::string& faults, std::vector<std::string>& told) {
    const ParseSources sources{.parsers = {str("process:", TORSOR_FAKE_PARSER, faults)}, .cache = folder / "parses"};
    const auto feed = make_parsed_feed(sources, true, {}, [&](const std::string& line) { told.push_back(line); });
    return feed_windows(feed.get(), *oracle, data.train, batch).at(kSyntaxTags).ne(0).any(2);
  };
  std::vector<std::string> failing, sound;
  const at::Tensor some = tags_with(" error-on:bad", failing);
  EXPECT_FALSE(some.narrow(1, 17, 20).any().item<bool>());  // "Four ... six ."
  EXPECT_TRUE(some.narrow(1, 0, 15).any().item<bool>());
  EXPECT_EQ(std::count_if(failing.begin(), failing.end(),
                          [](const std::string& line) { return contains(line, "could not be parsed"); }),
            1);
  EXPECT_FALSE(std::filesystem::exists(folder / "parses"));
  const at::Tensor all = tags_with("", sound);
  EXPECT_TRUE(all.narrow(1, 17, 20).any().item<bool>());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "parses"), {}), 1);
}

TEST_F(ParsedFeed, ParsesAreKeptInFiles) {
  const TestFolder folder;
  const std::string causal = causal_parser();
  const LmData data = generated(70'000);
  Batch batch;
  batch.rows = 1;
  batch.length = 30;
  batch.windows = {{0, 50}};
  batch.tokens.resize(31);
  data.train.documents[0].tokens.copy(50, 31, batch.tokens.data());
  const auto t5 = encoding("sipe(t5)");
  const ParseSources sources{.parsers = {causal}, .cache = folder / "parses"};
  const at::Tensor first =
      feed_windows(make_parsed_feed(sources, true, {}).get(), *t5, data.train, batch).at(kSyntaxTags);
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder / "parses"), {}), 1);
  EXPECT_TRUE(at::equal(feed_windows(make_parsed_feed(sources, true, {}).get(), *t5, data.train, batch).at(kSyntaxTags),
                        first));

  const ParseStore store(folder / "store");
  syntax::Parse parse;
  parse.text_sha256 = std::string(64, 'a');
  parse.doc_id = "d";
  parse.mode = syntax::ParseMode::kIncremental;
  parse.backend = {"native", "1", "x", "ud", true};
  parse.sentences.push_back(
      {0,
       9,
       {{.byte_begin = 0, .byte_end = 4, .head = 2, .relation = 3, .tag = {2, 1}, .number = 1, .known = 5},
        {.byte_begin = 5, .byte_end = 9, .head = 0, .relation = 35, .tag = {1, 4}, .number = 2, .known = 10}}});
  parse.sentences.push_back({10, 12, {}, false, 3});
  store.put(parse, "p");
  const auto found = store.find(parse.text_sha256, "p", parse.mode);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->sentences.size(), 2u);
  EXPECT_EQ(found->sentences[0].words[1].relation, 35);
  EXPECT_EQ(found->sentences[0].words[0].tag, (syntax::CausalTag{2, 1}));
  EXPECT_EQ(found->sentences[0].words[1].known, 10u);
  EXPECT_FALSE(found->sentences[1].parsed);
  EXPECT_EQ(found->sentences[1].repairs, 3);
  EXPECT_TRUE(found->backend.prefix_safe);
  EXPECT_FALSE(store.find(parse.text_sha256, "q", parse.mode).has_value());
  EXPECT_FALSE(store.find(parse.text_sha256, "p", syntax::ParseMode::kOracle).has_value());
  // Another parser's file under this one's name, and every file of which a byte is another, are as good as none.
  const std::string path = std::filesystem::directory_iterator(folder / "store")->path();
  const std::string sound = read_file(path);
  store.put(parse, "q");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "store"))
    if (entry.path() != path) write_file_atomic(path, read_file(entry.path()));
  EXPECT_FALSE(store.find(parse.text_sha256, "p", parse.mode).has_value());
  for (std::size_t at = 0; at < sound.size(); ++at) {
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file_atomic(path, damaged);
    EXPECT_FALSE(store.find(parse.text_sha256, "p", parse.mode).has_value()) << at;
  }
  write_file_atomic(path, sound);
  EXPECT_TRUE(store.find(parse.text_sha256, "p", parse.mode).has_value());
}

}  // namespace
}  // namespace torsor
