// The parser that reads from left to right: it learns, and nothing that it says depends on what follows.
#include "torsor/syntax/native_incremental.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "tests/base/test_folder.h"
#include "tests/syntax/small_trees.h"
#include "torsor/base/error.h"
#include "torsor/syntax/incremental_text.h"
#include "torsor/syntax/native_word_parser.h"
#include "torsor/syntax/parser_native.h"

namespace torsor::syntax {
namespace {

using syntax::testing::forms_of;
using syntax::testing::sentences_of;
using syntax::testing::small_trees;
using torsor::testing::contains;
using torsor::testing::message_of;
using torsor::testing::TestFolder;

IncrementalSizes small_sizes() {
  IncrementalSizes sizes;
  sizes.words = {.word = 16, .character = 8, .spelling = 16};
  sizes.lstm = 24;
  sizes.layers = 2;
  sizes.hidden = 32;
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

/// Trained once for all tests.
const std::shared_ptr<const IncrementalNetwork>& trained() {
  static const auto network = train_incremental(small_trees(300, 1), {}, small_sizes(), small_training(10), nullptr);
  return network;
}

/// What a reader says to words one by one.
std::vector<WordStep> read_all(WordParser& reader, const std::vector<std::string>& words) {
  std::vector<WordStep> steps;
  for (const std::string& word : words) steps.push_back(reader.read(word));
  return steps;
}

std::vector<std::string> joined(const std::vector<TaggedTree>& trees) {
  std::vector<std::string> words;
  for (const TaggedTree& tagged : trees) words.insert(words.end(), tagged.tree.words.begin(), tagged.tree.words.end());
  return words;
}

TEST(NativeIncremental, LearnsASmallGrammar) {
  const auto unseen = small_trees(60, 2);
  const auto parsed = trained()->parse(forms_of(unseen));
  for (const TaggedTree& tagged : parsed) EXPECT_NO_THROW(check_tree(tagged.tree));
  const Attachment found = attachment(unseen, parsed);
  EXPECT_GT(found.uas(), 0.9);  // chance is below 0.2
  EXPECT_GT(found.las(), 0.9);
}

TEST(NativeIncremental, FindsTheEndsOfSentences) {
  const auto unseen = small_trees(30, 3);
  NativeWordParser reader(trained());
  std::size_t right = 0;
  for (const TaggedTree& tagged : unseen) {
    const auto steps = read_all(reader, tagged.tree.words);
    for (std::size_t i = 0; i < steps.size(); ++i) right += steps[i].sentence_end == (i + 1 == steps.size());
  }
  EXPECT_EQ(right, joined(unseen).size());  // a full stop stands nowhere else in this grammar
}

TEST(NativeIncremental, WordByWordAndManyAtATimeAgree) {
  const auto unseen = small_trees(40, 4);
  const auto parsed = trained()->parse(forms_of(unseen));
  std::size_t same = 0, words = 0;
  for (const TaggedTree& tagged : parsed) {
    IncrementalNetwork::State state = trained()->start();
    std::vector<int> heads(tagged.tree.size(), kNoHead);
    for (const std::string& form : tagged.tree.words)
      for (const WordArc& arc : trained()->read(state, form).arcs)
        heads[static_cast<std::size_t>(arc.dependent) - 1] = arc.head;
    for (std::size_t i = 0; i < heads.size(); ++i) same += heads[i] == kNoHead || heads[i] == tagged.tree.heads[i];
    words += heads.size();
  }
  // Rounding may turn a close decision; with a clear-cut grammar none is.
  EXPECT_EQ(same, words);
}

// Whatever follows: other words, unknown words, a text that ends.
TEST(NativeIncremental, FutureWordsChangeNothing) {
  const std::vector<std::string> words = joined(small_trees(4, 5));
  NativeWordParser reader(trained());
  const std::vector<WordStep> whole = read_all(reader, words);
  std::size_t arcs = 0;
  for (const WordStep& step : whole) arcs += step.arcs.size();
  EXPECT_GT(arcs, words.size() / 2);
  const std::vector<std::string> futures = {".", "that", "xyzzy"};
  bool matters = false;  // the control: the words themselves do change what is said of them
  for (std::size_t kept = 0; kept < words.size(); ++kept)
    for (const std::string& future : futures) {
      NativeWordParser other(trained());
      std::vector<std::string> changed(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(kept));
      changed.resize(words.size(), future);
      const std::vector<WordStep> steps = read_all(other, changed);
      for (std::size_t i = 0; i < kept; ++i) ASSERT_EQ(steps[i], whole[i]) << "word " << i << " before " << future;
      matters = matters || !(steps[kept] == whole[kept]);
    }
  EXPECT_TRUE(matters);
}

TEST(NativeIncremental, StepsKeepTheContract) {
  NativeWordParser reader(trained());
  const std::vector<std::string> words = joined(small_trees(10, 6));
  int number = 0;
  std::vector<bool> attached;
  for (const std::string& word : words) {
    const WordStep step = reader.read(word);
    ++number;
    attached.push_back(false);
    EXPECT_TRUE(step.tag.tau == 1 || step.tag.tau == 2);
    EXPECT_TRUE(step.tag.nu >= 1 && step.tag.nu <= 4);
    for (const WordArc& arc : step.arcs) {
      EXPECT_EQ(std::max(arc.dependent, arc.head), number);
      EXPECT_EQ(arc.head == 0, arc.relation == "root");
      EXPECT_FALSE(attached[static_cast<std::size_t>(arc.dependent) - 1]);
      attached[static_cast<std::size_t>(arc.dependent) - 1] = true;
    }
    if (step.sentence_end) {
      number = 0;
      attached.clear();
    }
  }
}

TEST(NativeIncremental, CopiesAndRollsBackToTheBit) {
  const std::vector<std::string> words = joined(small_trees(3, 7)), other = joined(small_trees(3, 8));
  NativeWordParser reader(trained());
  const std::vector<WordStep> whole = read_all(reader, words);
  for (std::size_t kept = 0; kept <= words.size(); kept += 3) {
    NativeWordParser again(trained());
    read_all(again, {words.begin(), words.begin() + static_cast<std::ptrdiff_t>(kept)});
    const std::unique_ptr<WordParser> fork = again.fork();
    read_all(again, other);  // goes its own way
    EXPECT_EQ(fork->words(), kept);
    again.roll_back(kept);
    EXPECT_EQ(again.words(), kept);
    for (std::size_t i = kept; i < words.size(); ++i) {
      EXPECT_EQ(fork->read(words[i]), whole[i]) << kept << " " << i;
      EXPECT_EQ(again.read(words[i]), whole[i]) << kept << " " << i;
    }
  }
  EXPECT_THROW(reader.roll_back(words.size() + 1), Error);
  reader.reset();
  EXPECT_EQ(reader.words(), 0u);
  EXPECT_EQ(read_all(reader, words), whole);
}

TEST(NativeIncremental, LongSentencesAreEnded) {
  NativeWordParser reader(trained(), 5);
  const auto steps = read_all(reader, std::vector<std::string>(12, "the"));
  EXPECT_TRUE(steps[4].sentence_end);
  EXPECT_TRUE(steps[9].sentence_end);
  reader.end_sentence();
  EXPECT_EQ(reader.read("the"), steps[0]);
}

TEST(NativeIncremental, EveryWeightLearnsOnOwnAndGoodWays) {
  auto trees = small_trees(12, 10);
  for (TaggedTree& tagged : trees) tagged.xpos = tagged.upos;  // with "_" alone there is nothing to learn
  const auto vocabulary = std::make_shared<const Vocabulary>(trees, 1);
  for (const double explore : {0.0, 1.0}) {
    const IncrementalNetwork network(vocabulary, small_sizes(), Weights(3));
    std::vector<IncrementalNetwork::Example> examples;
    for (const TaggedTree& tagged : trees) examples.push_back(network.example(tagged));
    for (const NamedParameter& parameter : network.weights().parameters()) {
      at::Tensor tensor = parameter.tensor;
      tensor.requires_grad_(true);
    }
    Random drops(4);
    const at::Tensor loss = network.loss(examples, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 0, explore, drops);
    loss.backward();
    EXPECT_TRUE(std::isfinite(loss.item<double>()));
    for (const NamedParameter& parameter : network.weights().parameters()) {
      ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
      const double size = parameter.tensor.grad().abs().max().item<double>();
      EXPECT_TRUE(size > 0 && std::isfinite(size)) << parameter.name << " " << size;
    }
  }
}

TEST(NativeIncremental, AStoppedRunEndsTheSame) {
  const auto trees = small_trees(40, 11);
  const TestFolder folder;
  NativeTraining training = small_training(3);
  training.folder = folder / "whole";
  train_incremental(trees, {}, small_sizes(), training, nullptr);

  std::atomic<bool> stop{false};
  training.folder = folder / "stopped";
  training.stop = &stop;
  training.on_message = [&](const std::string&) { stop = true; };  // after the first pass
  EXPECT_THROW(train_incremental(trees, {}, small_sizes(), training, nullptr), Interrupted);
  stop = false;
  training.on_message = nullptr;
  training.resume = true;
  train_incremental(trees, {}, small_sizes(), training, nullptr);
  const NativeModel one = read_native_model(folder / "whole"), other = read_native_model(folder / "stopped");
  ASSERT_EQ(one.tensors.size(), other.tensors.size());
  for (const auto& [name, tensor] : one.tensors) EXPECT_TRUE(at::equal(tensor, other.tensors.at(name))) << name;
}

TEST(NativeIncremental, FoldersOfTheFirstDesignAreRead) {
  const auto trees = small_trees(30, 12);
  const TestFolder folder;
  NativeTraining training = small_training(2);
  training.folder = folder / "model";
  IncrementalSizes sizes = small_sizes();
  sizes.design = 1;
  const auto network = train_incremental(trees, {}, sizes, training, nullptr);
  const std::string config = torsor::testing::slurp(folder / "model/config.json");
  EXPECT_EQ(config.find("\"design\""), std::string::npos);  // as it was before there were two
  const auto before = network->parse(forms_of(trees));
  const auto after = IncrementalNetwork(read_native_model(folder / "model")).parse(forms_of(trees));
  for (std::size_t i = 0; i < trees.size(); ++i) EXPECT_EQ(before[i].tree.heads, after[i].tree.heads);

  const auto with_design = [&](const char* design) {
    std::string text = config;
    const std::string from = "\"hidden\":32";
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    folder.put("model/config.json", text.insert(at + from.size(), str(",\"design\":", design)));
    return message_of<Error>([&] { IncrementalNetwork{read_native_model(folder / "model")}; });
  };
  EXPECT_TRUE(contains(with_design("3"), "design 3 is newer than this torsor"));
  EXPECT_TRUE(contains(with_design("2"), "next.weight"));
}

TEST(NativeIncremental, BehindTheDoorAndAsAParseOfText) {
  const auto trees = small_trees(200, 9);
  const TestFolder folder;
  NativeTraining training = small_training(5);
  training.folder = folder / "model";
  train_incremental(trees, {}, small_sizes(), training, Tokenizer(sentences_of(trees)).to_json());
  NativeParser parser(folder / "model");
  EXPECT_TRUE(parser.info().prefix_safe);
  EXPECT_EQ(parser.info().name, "incremental");
  const std::string text = "the dog sees the cat. the old king likes the bird.\n\nthe boy";
  const auto sentences = parser.parse_text(text);
  ASSERT_EQ(sentences.size(), 3u);
  EXPECT_EQ(sentences[0].sentence.comment("text"), "the dog sees the cat.");
  for (const ParsedSentence& one : sentences) EXPECT_NO_THROW(tree_of(one.sentence));
  EXPECT_EQ(sentences[0].sentence.words[4].misc, "SpaceAfter=No");

  const auto reader = parser.word_parser();
  ASSERT_NE(reader, nullptr);
  const auto steps = read_text(text, parser.tokenizer(), *reader);
  const Parse parse = incremental_parse(text, steps, backend_id(parser.info()), "toy");
  EXPECT_EQ(parse.mode, ParseMode::kIncremental);
  ASSERT_EQ(parse.sentences.size(), 3u);
  EXPECT_EQ(parse.word_count(), steps.size());
  // Every prefix of the text gives the same words, tags and arcs as far as they were known.
  for (std::size_t cut = 0; cut <= text.size(); cut += 5) {
    const auto again = parser.word_parser();
    const auto before = read_text(text.substr(0, cut), parser.tokenizer(), *again);
    for (std::size_t i = 0; i < before.size() && steps[i].known <= cut; ++i) {
      EXPECT_EQ(before[i].form, steps[i].form);
      EXPECT_EQ(before[i].bytes, steps[i].bytes);
      EXPECT_EQ(before[i].step, steps[i].step);
    }
  }
}

TEST(NativeIncremental, ContractionsKeepTheirBytes) {
  std::vector<Sentence> treebank;
  for (int i = 0; i < 6; ++i)
    treebank.push_back(
        read_conllu("1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tdo\t_\tAUX\t_\t_\t3\taux\t_\t_\n"
                    "2\tn't\t_\tPART\t_\t_\t3\tadvmod\t_\t_\n3\tgo\t_\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No\n"
                    "4\t.\t_\tPUNCT\t_\t_\t3\tpunct\t_\t_\n\n",
                    "made")
            .sentences.front());
  const auto tokenizer = std::make_shared<Tokenizer>(treebank);
  NativeWordParser reader(trained());
  const std::string text = "don't go.  DON'T";
  const auto steps = read_text(text, tokenizer, reader);
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps[1].form, "n't");
  EXPECT_EQ(steps[1].bytes, (ByteSpan{2, 5}));
  EXPECT_FALSE(steps[1].starts_token);
  EXPECT_EQ(steps[1].known, 6u);
  EXPECT_EQ(steps[5].bytes, (ByteSpan{13, 16}));
  EXPECT_EQ(steps[5].known, 17u);
  EXPECT_EQ(spelled_without_space(sentences_of(text, steps)), "don'tgo.DON'T");
  EXPECT_EQ(sentences_of(text, steps).front().multiwords.size(), 1u);
}

}  // namespace
}  // namespace torsor::syntax
