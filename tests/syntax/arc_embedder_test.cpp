// f_syn: zero without an arc, nothing but the own arc is read, files, and a training that learns where there is
// something to learn.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "tests/base/test_folder.h"
#include "torsor/base/file.h"
#include "torsor/data/grammar.h"
#include "torsor/syntax/arc_training.h"
#include "torsor/syntax/relations.h"

namespace torsor::syntax {
namespace {

at::Tensor drawn_arcs(std::int64_t rows, std::int64_t tokens) {
  at::Tensor arcs = at::zeros({rows, tokens, 9}, at::kLong);
  const std::int64_t most[] = {38, 4, 8, 5, 38, 38, 38, 8, 2};
  for (int c = 0; c < 9; ++c) arcs.select(2, c).random_(0, most[c]);
  return arcs;
}

TEST(ArcEmbedder, ReadsTheOwnArcAloneAndIsZeroWithoutOne) {
  at::manual_seed(1);
  for (const bool incremental : {false, true}) {
    const ArcEmbedder embedder({.incremental = incremental}, Weights(3));
    const at::Tensor arcs = drawn_arcs(2, 30);
    const at::Tensor s = embedder(arcs);
    EXPECT_EQ(s.sizes(), (at::IntArrayRef{2, 30, 64}));
    const at::Tensor invalid = arcs.select(2, 8).eq(0);
    EXPECT_TRUE(s.masked_select(invalid.unsqueeze(2)).eq(0).all().item<bool>());
    EXPECT_TRUE(s.ne(0).any(2).logical_or(invalid).all().item<bool>());
    // One arc at a time gives the same: no token reads another's.
    for (std::int64_t t = 0; t < 30; ++t)
      EXPECT_LE((embedder(arcs.narrow(1, t, 1)) - s.narrow(1, t, 1)).abs().max().item<float>(), 1e-5);
    // What only a left-to-right parser tells is read in that mode alone.
    at::Tensor other = arcs.clone();
    other.select(2, 3).copy_((arcs.select(2, 3) + 1).remainder(5));
    EXPECT_EQ(at::equal(embedder(other), s), !incremental);
  }
}

TEST(ArcEmbedder, ExchangesAlongTheArcs) {
  at::manual_seed(2);
  const ArcEmbedder embedder({.exchange = true}, Weights(4));
  at::Tensor arcs = drawn_arcs(1, 4);
  arcs.select(2, 8).fill_(1);
  const at::Tensor heads = at::tensor({1, -1, 1, 2}, at::kLong).unsqueeze(0);
  const at::Tensor s = embedder(arcs, heads);
  at::Tensor other = arcs.clone();
  other[0][3][0] = (arcs[0][3][0] + 1).remainder(38);
  const at::Tensor changed = embedder(other, heads).ne(s).any(2);
  // Word 4 hangs from word 3: these two see it, the others do not.
  EXPECT_TRUE(at::equal(changed, at::tensor({0, 0, 1, 1}, at::kLong).to(at::kBool).unsqueeze(0)));
  EXPECT_THROW(embedder(arcs), Error);
  EXPECT_THROW(embedder(arcs, heads + 4), Error);
  EXPECT_THROW(ArcEmbedder({.incremental = true, .exchange = true}, Weights(1)), UsageError);
}

TEST(ArcEmbedder, RefusesNumbersOutsideItsTables) {
  const ArcEmbedder embedder({}, Weights(1));
  for (int c = 0; c < 9; ++c) {
    at::Tensor arcs = at::zeros({1, 2, 9}, at::kLong);
    arcs[0][1][c] = 1000;
    EXPECT_THROW(embedder(arcs), Error) << c;
    arcs[0][1][c] = -1;
    EXPECT_THROW(embedder(arcs), Error) << c;
  }
  EXPECT_THROW(embedder(at::zeros({1, 2, 8}, at::kLong)), Error);
  EXPECT_THROW(embedder(at::zeros({1, 2, 9}, at::kFloat)), Error);
}

/// Sentences of the generated corpus with their gold trees.
std::vector<ArcSentence> generated(std::uint64_t first, std::size_t count, bool incremental) {
  std::vector<Sentence> sentences;
  GrammarOptions options;
  options.target_bytes = 4096;
  for (std::uint64_t document = first; sentences.size() < count; ++document)
    for (const GeneratedSentence& one : generate_document(options, document).sentences) {
      Sentence sentence;
      for (std::size_t i = 0; i < one.tree.size(); ++i) {
        Word word;
        word.form = one.tree.words[i];
        word.head = one.tree.heads[i];
        word.deprel = one.tree.relations[i];
        sentence.words.push_back(word);
      }
      sentences.push_back(sentence);
    }
  return arc_sentences(sentences, incremental);
}

TEST(ArcTraining, TellsHiddenArcsAndAShuffledControlDoesNot) {
  for (const bool incremental : {false, true}) {
    const std::vector<ArcSentence> train = generated(0, 400, incremental),
                                   development = generated(900, 80, incremental);
    ArcTraining training;
    training.epochs = 3;
    training.warmup_steps = 5;
    training.learning_rate = 5e-3;
    training.seed = 7;
    const TrainedArcs told = train_arcs(train, development, {.incremental = incremental}, training);
    training.shuffled = true;
    const TrainedArcs control = train_arcs(train, development, {.incremental = incremental}, training);
    EXPECT_LT(told.development.loss, control.development.loss - 0.1);
    EXPECT_GT(told.development.uas, control.development.uas);
    EXPECT_EQ(told.development.words, control.development.words);
    EXPECT_GT(told.development.uas, 0.5);
  }
}

TEST(ArcTraining, IsTheSameTwiceAndGoesOnAfterAStop) {
  const std::vector<ArcSentence> train = generated(0, 100, false), development = generated(900, 30, false);
  testing::TestFolder folder;
  ArcTraining training;
  training.epochs = 3;
  training.warmup_steps = 2;
  training.folder = folder / "whole";
  const TrainedArcs whole = train_arcs(train, development, {}, training);
  const ArcEmbedder loaded = load_arc_embedder(training.folder);
  EXPECT_EQ(loaded.sha256().size(), 64u);
  const at::Tensor arcs = drawn_arcs(1, 20);
  EXPECT_TRUE(at::equal(loaded(arcs), whole.embedder(arcs)));

  training.folder = folder / "stopped";
  std::atomic<bool> stop{false};
  training.stop = &stop;
  training.on_message = [&](const std::string&) { stop = true; };
  EXPECT_THROW(train_arcs(train, development, {}, training), Interrupted);
  stop = false;
  training.on_message = {};
  training.resume = true;
  const TrainedArcs resumed = train_arcs(train, development, {}, training);
  EXPECT_TRUE(at::equal(resumed.embedder(arcs), whole.embedder(arcs)));
  EXPECT_EQ(resumed.development.loss, whole.development.loss);
}

TEST(ArcTraining, AFolderWithOtherRelationsIsRefused) {
  testing::TestFolder folder;
  write_native_model(folder / "arcs", ArcEmbedder({}, Weights(1)).to_model());
  std::string config = read_file(folder / "arcs/config.json");
  const std::size_t at = config.find("\"nsubj\"");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 7, "\"subj\"");
  write_file_atomic(folder / "arcs/config.json", config);
  EXPECT_THROW(load_arc_embedder(folder / "arcs"), Error);
}

TEST(ArcTraining, RealTreesHaveArcsInBothModes) {
  const std::string path = testing::shared_path("data/ud-english-pud/en_pud-ud-test.conllu");
  if (path.empty()) GTEST_SKIP() << "no shared data";
  const std::vector<Sentence> sentences = read_conllu_file(path).sentences;
  const std::vector<ArcSentence> whole = arc_sentences(sentences, false), causal = arc_sentences(sentences, true);
  ASSERT_EQ(whole.size(), sentences.size());
  std::size_t left = 0, causal_left = 0, hidden_heads = 0;
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (std::size_t w = 0; w < whole[i].arcs.size(); ++w) {
      EXPECT_EQ(whole[i].arcs[w].valid, 1);
      EXPECT_NE(whole[i].arcs[w].direction, 0);
      EXPECT_NE(causal[i].arcs[w].direction, 3) << "a head ahead is not known";
      left += whole[i].arcs[w].direction == 2;
      causal_left += causal[i].arcs[w].direction == 2;
      hidden_heads += causal[i].arcs[w].direction == 0;
    }
  EXPECT_GT(hidden_heads, 0u);
  EXPECT_NEAR(static_cast<double>(causal_left), static_cast<double>(left), 0.02 * static_cast<double>(left));
}

}  // namespace
}  // namespace torsor::syntax
