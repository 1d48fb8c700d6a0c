#include "torsor/data/tokenizer.h"

#include <gtest/gtest.h>

#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using namespace data_test;

TEST(ByteTokenizer, EveryByteAndBadUtf8RoundTrip) {
  std::string text;
  for (int first = 0; first < 256; ++first) {
    for (int second : {0x00, 0x41, 0x80, 0xC3, 0xFF}) {
      text += static_cast<char>(first);
      text += static_cast<char>(second);
    }
  }
  const ByteTokenizer tokenizer;
  const std::vector<TokenId> ids = tokenizer.encode(text);
  ASSERT_EQ(ids.size(), text.size());
  EXPECT_EQ(ids[0], 0U);
  EXPECT_EQ(ids[9], 255U);  // a negative char must not become a huge id
  for (const TokenId id : ids) ASSERT_LT(id, tokenizer.vocabulary_size());
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(ByteTokenizer, NamesItselfAndTakesNothing) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.name(), "bytes");
  EXPECT_EQ(tokenizer.vocabulary_size(), 256U);
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(ByteTokenizer, RefusesIdsBeyondTheVocabulary) {
  const std::vector<TokenId> ids{65, 256};
  const std::string message = message_of<Error>([&] { ByteTokenizer().decode(ids); });
  EXPECT_TRUE(contains(message, "256")) << message;
  EXPECT_TRUE(contains(message, "index 1")) << message;
}

}  // namespace
}  // namespace torsor
