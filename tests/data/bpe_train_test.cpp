#include "torsor/data/bpe_train.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/data/bpe_toy.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/data/grammar.h"

namespace torsor {
namespace {

using namespace data_test;

std::vector<std::string> merges_of(const BpeTokenizer& tokenizer) {
  std::vector<std::string> merges;
  for (const BpeMerge& merge : tokenizer.model().merges)
    merges.push_back(tokenizer.model().vocabulary[merge.left] + "|" + tokenizer.model().vocabulary[merge.right]);
  return merges;
}

using Merges = std::vector<std::string>;

/// As the header defines it: all pairs are counted anew before every merge.
BpeModel naive_train(const std::vector<std::string>& texts, std::size_t vocabulary_size) {
  BpeModel model = toy_model({});
  std::vector<std::vector<TokenId>> pieces;
  for (const std::string_view text : texts)
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = piece_end(text, begin);
      pieces.emplace_back();
      for (; begin < end; ++begin) pieces.back().push_back(id_of(model, text.substr(begin, 1)));
    }
  while (model.vocabulary.size() < vocabulary_size) {
    std::map<std::pair<TokenId, TokenId>, std::size_t> counts;
    for (const auto& piece : pieces)
      for (std::size_t i = 0; i + 1 < piece.size(); ++i) ++counts[{piece[i], piece[i + 1]}];
    std::pair<TokenId, TokenId> best;
    std::size_t most = 1;
    for (const auto& [pair, count] : counts)
      if (count > most) {
        most = count;
        best = pair;
      }
    if (most == 1) break;
    const std::string bytes = model.vocabulary[best.first] + model.vocabulary[best.second];
    if (id_of(model, bytes) == model.vocabulary.size()) model.vocabulary.push_back(bytes);
    model.merges.push_back({best.first, best.second, id_of(model, bytes)});
    for (auto& piece : pieces) {
      std::vector<TokenId> merged;
      for (std::size_t i = 0; i < piece.size(); ++i)
        if (i + 1 < piece.size() && piece[i] == best.first && piece[i + 1] == best.second) {
          merged.push_back(model.merges.back().result);
          ++i;
        } else {
          merged.push_back(piece[i]);
        }
      piece = merged;
    }
  }
  return model;
}

TEST(BpeTraining, TakesTheMostFrequentPairAndOfEqualOnesTheSmallest) {
  // " low" 3 times, "er" twice. Of the pairs that occur 3 times (l, o) has the smallest ids, then (space, lo).
  const auto trained = train_bpe({" low lower low er"}, 300);
  EXPECT_EQ(merges_of(*trained), Merges({"l|o", " |lo", " lo|w", "e|r"}));
  EXPECT_EQ(trained->vocabulary_size(), 260U);
  EXPECT_EQ(trained->model().vocabulary[258], " low");
  EXPECT_EQ(trained->encode(" lower"), std::vector<TokenId>({258, 259}));
  EXPECT_EQ(trained->model().vocabulary[0], "!");
  EXPECT_EQ(trained->model().vocabulary[220], " ");
}

TEST(BpeTraining, CountsOverlapsAndMergesFromTheLeft) {
  EXPECT_EQ(merges_of(*train_bpe({"aaa"}, 300)), Merges({"a|a"}));
  EXPECT_EQ(merges_of(*train_bpe({"aaaaaaa"}, 300)), Merges({"a|a", "aa|aa"}));
  EXPECT_EQ(merges_of(*train_bpe({"aa"}, 300)), Merges());
}

TEST(BpeTraining, EndsWhereNothingIsLeft) {
  const std::vector<std::vector<std::string_view>> all = {{},      {""},        {"a"},
                                                          {"abc"}, {"a b c d"}, {std::string_view("\0", 1)}};
  for (const std::vector<std::string_view>& texts : all) {
    const auto trained = train_bpe(texts, 1000);
    EXPECT_EQ(trained->vocabulary_size(), 256U);
    EXPECT_EQ(trained->decode(trained->encode("any\xFFthing")), "any\xFFthing");
  }
  EXPECT_EQ(train_bpe({"abababab"}, 256)->vocabulary_size(), 256U);
  EXPECT_EQ(train_bpe({"abababab"}, 257)->vocabulary_size(), 257U);
  const std::string message = message_of<UsageError>([] { train_bpe({"ab"}, 255); });
  EXPECT_TRUE(contains(message, "255")) << message;
}

TEST(BpeTraining, NoMergeCrossesTextsOrPieces) {
  EXPECT_EQ(merges_of(*train_bpe({"a", "b", "a", "b"}, 300)), Merges());
  EXPECT_EQ(merges_of(*train_bpe({"ab", "ab"}, 300)), Merges({"a|b"}));
  EXPECT_EQ(merges_of(*train_bpe({"a1a1a1"}, 300)), Merges());
}

TEST(BpeTraining, IsTheNaiveAlgorithm) {
  Random random(6);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts;
    for (auto left = random.below(3) + 1; left > 0; --left) {
      std::string& text = texts.emplace_back();
      const std::string letters = round % 3 == 0 ? "ab" : round % 3 == 1 ? "aab c'" : "ab \n\xC3\xA9\xFF";
      for (auto size = random.below(120); size > 0; --size) text += letters[random.below(letters.size())];
    }
    const BpeModel expected = naive_train(texts, 290);
    const auto trained = train_bpe({texts.begin(), texts.end()}, 290);
    ASSERT_EQ(trained->model().merges, expected.merges) << round;
    ASSERT_EQ(trained->model().vocabulary, expected.vocabulary) << round;
    for (const std::string& text : texts) ASSERT_EQ(trained->encode(text), naive_encode(expected, text));
  }
}

TEST(BpeTraining, LearnsTheGeneratedCorpus) {
  const Corpus corpus = generate_corpus(100000, 1);
  std::vector<std::string> texts;
  for (const Document& document : corpus.documents) texts.emplace_back(document.tokens.bytes());
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto trained = train_bpe(views, 300);
  EXPECT_EQ(trained->model().merges, naive_train(texts, 300).merges);
  const auto larger = train_bpe(views, 1000);
  EXPECT_EQ(larger->vocabulary_size(), 1000U);
  EXPECT_EQ(train_bpe(views, 1000)->name(), larger->name());
  // A smaller vocabulary is the beginning of a larger one.
  for (TokenId id = 0; id < 300; ++id) EXPECT_EQ(larger->model().vocabulary[id], trained->model().vocabulary[id]);
  const auto ids = larger->encode(texts[0]);
  EXPECT_EQ(larger->decode(ids), texts[0]);
  EXPECT_LT(ids.size() * 3, texts[0].size());
}

TEST(BpeTraining, StopsAndTells) {
  std::atomic<bool> stop{true};
  EXPECT_THROW(train_bpe({"abababab"}, 300, {.stop = &stop}), Interrupted);
  stop = false;
  std::ostringstream out;
  const Progress::Options progress{.out = out, .label = "tokens"};
  EXPECT_EQ(train_bpe({"ab ab ab"}, 300, {.stop = &stop, .progress = &progress})->vocabulary_size(), 258U);
  EXPECT_TRUE(contains(out.str(), "tokens: 258/300")) << out.str();
}

}  // namespace
}  // namespace torsor
