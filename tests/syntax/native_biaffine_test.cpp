// The parser of whole sentences: it learns, is deterministic, resumes, and its model folder brings it back.
#include "torsor/syntax/native_biaffine.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/base/test_folder.h"
#include "tests/syntax/small_trees.h"
#include "torsor/base/error.h"
#include "torsor/syntax/parser_native.h"

namespace torsor::syntax {
namespace {

using syntax::testing::forms_of;
using syntax::testing::sentences_of;
using syntax::testing::small_trees;
using torsor::testing::contains;
using torsor::testing::message_of;
using torsor::testing::TestFolder;

BiaffineSizes small_sizes() {
  BiaffineSizes sizes;
  sizes.words = {.word = 16, .character = 8, .spelling = 16};
  sizes.lstm = 16;
  sizes.layers = 2;
  sizes.arc = 16;
  sizes.label = 12;
  return sizes;
}

NativeTraining small_training(std::int64_t epochs) {
  NativeTraining training;
  training.epochs = epochs;
  training.batch_words = 80;
  training.learning_rate = 1e-2;
  training.dropout = 0.1;
  return training;
}

TEST(NativeBiaffine, LearnsASmallGrammar) {
  const auto trees = small_trees(300, 1), unseen = small_trees(60, 2);
  std::vector<std::string> lines;
  NativeTraining training = small_training(6);
  training.on_message = [&](const std::string& line) { lines.push_back(line); };
  const BiaffineNetwork network = train_biaffine(trees, unseen, small_sizes(), training, nullptr);
  const auto parsed = network.parse(forms_of(unseen));
  for (const TaggedTree& tagged : parsed) EXPECT_NO_THROW(check_tree(tagged.tree));
  const Attachment found = attachment(unseen, parsed);
  EXPECT_GT(found.uas(), 0.95);  // chance is below 0.2
  EXPECT_GT(found.las(), 0.95);
  EXPECT_EQ(parsed[0].upos, unseen[0].upos);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_TRUE(contains(lines.back(), "pass 6 of 6")) << lines.back();
  EXPECT_TRUE(contains(lines.back(), "UAS")) << lines.back();
}

TEST(NativeBiaffine, BatchesDoNotChangeAParse) {
  const auto trees = small_trees(60, 3);
  const BiaffineNetwork network = train_biaffine(trees, {}, small_sizes(), small_training(6), nullptr);
  const auto together = network.parse(forms_of(trees));
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const auto alone = network.parse({trees[i].tree.words});
    EXPECT_EQ(alone[0].tree.heads, together[i].tree.heads) << i;
    EXPECT_EQ(alone[0].tree.relations, together[i].tree.relations) << i;
  }
  EXPECT_EQ(network.parse({{}, {"dog"}})[0].tree.size(), 0u);
  EXPECT_EQ(network.parse({{}, {"dog"}})[1].tree.heads, std::vector<int>{0});
}

TEST(NativeBiaffine, FolderBringsItBackAndAStoppedRunEndsTheSame) {
  const auto trees = small_trees(60, 4);
  const TestFolder folder;
  NativeTraining training = small_training(2);
  training.folder = folder / "whole";
  const BiaffineNetwork whole = train_biaffine(trees, {}, small_sizes(), training, nullptr);

  std::atomic<bool> stop{false};
  training.folder = folder / "stopped";
  training.stop = &stop;
  training.on_message = [&](const std::string&) { stop = true; };  // after the first pass
  EXPECT_THROW(train_biaffine(trees, {}, small_sizes(), training, nullptr), Interrupted);
  stop = false;
  training.on_message = nullptr;
  training.resume = true;
  train_biaffine(trees, {}, small_sizes(), training, nullptr);

  const NativeModel one = read_native_model(folder / "whole"), other = read_native_model(folder / "stopped");
  EXPECT_EQ(one.kind, "biaffine");
  EXPECT_EQ(one.sha256.size(), 64u);
  ASSERT_EQ(one.tensors.size(), other.tensors.size());
  for (const auto& [name, tensor] : one.tensors) EXPECT_TRUE(at::equal(tensor, other.tensors.at(name))) << name;
  const auto before = whole.parse(forms_of(trees)), after = BiaffineNetwork(one).parse(forms_of(trees));
  for (std::size_t i = 0; i < trees.size(); ++i) EXPECT_EQ(before[i].tree.heads, after[i].tree.heads);

  training.dropout = 0.2;
  EXPECT_TRUE(
      contains(message_of<Error>([&] { train_biaffine(trees, {}, small_sizes(), training, nullptr); }), "dropout"));
}

TEST(NativeBiaffine, DamagedFoldersAreRefused) {
  const auto trees = small_trees(20, 5);
  const TestFolder folder;
  NativeTraining training = small_training(1);
  training.folder = folder / "model";
  train_biaffine(trees, {}, small_sizes(), training, Tokenizer(sentences_of(trees)).to_json());
  EXPECT_NO_THROW(NativeParser{folder / "model"});
  EXPECT_THROW(NativeParser{folder / "none"}, Error);
  const std::string config = torsor::testing::slurp(folder / "model/config.json");
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = config;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    folder.put("model/config.json", text.replace(at, from.size(), to));
    return message_of<Error>([&] { NativeParser{folder / "model"}; });
  };
  EXPECT_TRUE(contains(broken("torsor-parser-1", "torsor-parser-9"), "expected format"));
  EXPECT_TRUE(contains(broken("\"biaffine\"", "\"chart\""), "expected kind biaffine or incremental"));
  EXPECT_TRUE(contains(broken("\"lstm\":16", "\"lstm\":17"), "forward.0"));
  EXPECT_TRUE(contains(broken("\"arc\":16", "\"arc\":0"), "arc must lie in"));
  EXPECT_TRUE(contains(broken("\"layers\":2", "\"layers\":2,\"more\":1"), "more"));
}

TEST(NativeBiaffine, BehindTheDoor) {
  const auto trees = small_trees(200, 6);
  const TestFolder folder;
  NativeTraining training = small_training(6);
  training.folder = folder / "model";
  train_biaffine(trees, {}, small_sizes(), training, Tokenizer(sentences_of(trees)).to_json());
  NativeParser parser(folder / "model");
  EXPECT_EQ(parser.info().backend, "native");
  EXPECT_FALSE(parser.info().prefix_safe);
  EXPECT_EQ(parser.word_parser(), nullptr);
  const auto sentences = parser.parse_text("The dog sees the cat. The old king likes the bird.\n\nthe boy\n");
  ASSERT_EQ(sentences.size(), 3u);
  EXPECT_EQ(sentences[0].sentence.comment("text"), "The dog sees the cat.");
  EXPECT_EQ(sentences[0].sentence.heads(), (std::vector<int>{2, 3, 0, 5, 3, 3}));
  EXPECT_EQ(sentences[2].sentence.words[1].form, "boy");
  const auto tokens = parser.parse_tokens({{"the", "dog", "sees", "the", "cat", "."}});
  EXPECT_EQ(tokens[0].sentence.heads(), sentences[0].sentence.heads());
  EXPECT_EQ(tokens[0].sentence.words[1].deprel, "nsubj");
  EXPECT_EQ(tokens[0].sentence.words[1].upos, "NOUN");
}

TEST(NativeTraining, OptionsOutOfRangeAreRefused) {
  const auto trees = small_trees(5, 7);
  const auto refused = [&](const auto& change) {
    NativeTraining training = small_training(1);
    change(training);
    EXPECT_THROW(train_biaffine(trees, {}, small_sizes(), training, nullptr), UsageError);
  };
  refused([](NativeTraining& training) { training.epochs = 0; });
  refused([](NativeTraining& training) { training.batch_words = 0; });
  refused([](NativeTraining& training) { training.dropout = 1; });
  refused([](NativeTraining& training) { training.learning_rate = 0; });
  EXPECT_THROW(train_biaffine({}, {}, small_sizes(), small_training(1), nullptr), Error);
}

TEST(BatchPlan, HasEverySentenceOnceAPass) {
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < 100; ++i) lengths.push_back(1 + i % 17);
  NativeTraining training = small_training(3);
  training.batch_words = 40;
  const BatchPlan plan(lengths, training);
  std::vector<int> seen(100, 0);
  std::int64_t passes = 0;
  for (std::int64_t step = 0; step < plan.steps(); ++step) {
    std::size_t longest = 0;
    for (const std::size_t sentence : plan.at(step)) {
      ++seen[sentence];
      longest = std::max(longest, lengths[sentence]);
    }
    EXPECT_LE(longest * plan.at(step).size(), 40u);
    if (plan.pass_ended(step + 1) > 0) {
      ++passes;
      EXPECT_EQ(plan.pass_ended(step + 1), passes);
      for (const int count : seen) EXPECT_EQ(count, passes);
    }
  }
  EXPECT_EQ(passes, 3);
}

}  // namespace
}  // namespace torsor::syntax
