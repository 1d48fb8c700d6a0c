#include "torsor/data/masking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "torsor/base/error.h"

namespace torsor {
namespace {

std::vector<std::int64_t> tokens_of(const std::string& text) {
  std::vector<std::int64_t> tokens = {300};
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  tokens.push_back(301);
  return tokens;
}

TEST(Masking, WordsOfBytes) {
  const auto words = byte_words(tokens_of("He's 12\n\xC3\xA9t\xC3\xA9."));
  EXPECT_EQ(words, (std::vector<ByteRange>{{1, 3}, {3, 4}, {4, 5}, {6, 8}, {9, 14}, {14, 15}}));
  EXPECT_TRUE(byte_words(std::vector<std::int64_t>{300, ' ', '\t', 257}).empty());
}

TEST(Masking, WholeWordsShareOneFate) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "word ";
  const auto tokens = tokens_of(text);
  const auto words = byte_words(tokens);
  ASSERT_EQ(words.size(), 5000U);
  MaskingOptions options;
  options.mask_token = 400;
  Random random(1, 2);
  const MaskedTokens masked = mask_words(tokens, words, options, random);
  ASSERT_EQ(masked.tokens.size(), tokens.size());
  std::size_t chosen = 0, all_masked = 0, kept = 0, other = 0;
  for (const ByteRange word : words) {
    std::size_t marked = 0, hidden = 0, same = 0;
    for (std::size_t t = word.begin; t < word.end; ++t) {
      marked += masked.chosen[t] ? 1 : 0;
      hidden += masked.tokens[t] == 400 ? 1 : 0;
      same += masked.tokens[t] == tokens[t] ? 1 : 0;
    }
    ASSERT_TRUE(marked == 0 || marked == 4);
    ASSERT_TRUE(hidden == 0 || hidden == 4);
    if (marked == 0) {
      ASSERT_EQ(same, 4U);
      continue;
    }
    ++chosen;
    if (hidden == 4)
      ++all_masked;
    else if (same == 4)
      ++kept;
    else
      ++other;
  }
  // Binomial: 5000 * 0.15 = 750 with deviation 25, of which 80, 10 and 10 %; five deviations.
  EXPECT_NEAR(static_cast<double>(chosen), 750, 126);
  EXPECT_NEAR(static_cast<double>(all_masked) / static_cast<double>(chosen), 0.8, 0.075);
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(chosen), 0.1, 0.055);
  EXPECT_NEAR(static_cast<double>(other) / static_cast<double>(chosen), 0.1, 0.055);
  for (std::size_t t = 0; t < tokens.size(); ++t) EXPECT_TRUE(tokens[t] != ' ' || !masked.chosen[t]);
}

TEST(Masking, AtLeastOneWordAndTheSameEveryTime) {
  const auto tokens = tokens_of("one two");
  MaskingOptions options;
  options.rate = 1e-9;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random first(seed, 0), second(seed, 0);
    const MaskedTokens masked = mask_words(tokens, byte_words(tokens), options, first);
    EXPECT_EQ(std::count(masked.chosen.begin(), masked.chosen.end(), true), 3);
    EXPECT_EQ(mask_words(tokens, byte_words(tokens), options, second).tokens, masked.tokens);
  }
  Random random(0, 0);
  EXPECT_EQ(mask_words(tokens, {}, options, random).tokens, tokens);
}

TEST(Masking, Refusals) {
  const auto tokens = tokens_of("one");
  Random random(0, 0);
  const auto with = [&](double rate, double masked, double other) {
    MaskingOptions options;
    options.rate = rate, options.masked = masked, options.random = other;
    mask_words(tokens, byte_words(tokens), options, random);
  };
  EXPECT_THROW(with(0, 0.8, 0.1), UsageError);
  EXPECT_THROW(with(1.1, 0.8, 0.1), UsageError);
  EXPECT_THROW(with(0.15, 0.8, 0.3), UsageError);
  EXPECT_THROW(with(0.15, -0.1, 0.3), UsageError);
  const std::vector<ByteRange> outside = {{3, 9}};
  EXPECT_THROW(mask_words(tokens, outside, {}, random), Error);
}

}  // namespace
}  // namespace torsor
