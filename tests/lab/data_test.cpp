// Where a run's text comes from, and what is set apart for validation.
#include "torsor/lab/data.h"

#include <gtest/gtest.h>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "torsor/base/hash.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::TestFolder;
using testing::tiny_text;

std::string text_of(const Corpus& corpus) {
  std::string text;
  for (const Document& document : corpus.documents) text += std::string(document.tokens.bytes());
  return text;
}

TEST(LabData, WithNothingGivenTheCorpusIsGenerated) {
  DataSource source;
  source.generated_bytes = 60000;
  const LmData data = load_data(source, 64);
  EXPECT_EQ(data.train.tokenizer, "bytes");
  EXPECT_EQ(data.train.vocabulary_size, 256u);
  EXPECT_GE(data.train.token_count() + data.valid.token_count(), 60000u);
  EXPECT_GT(data.valid.token_count(), 1000u);
  EXPECT_LT(data.valid.token_count(), data.train.token_count());
  for (const Document& document : data.valid.documents) EXPECT_GE(document.tokens.size(), 65u);
  EXPECT_TRUE(contains(data.description, "generated text")) << data.description;

  EXPECT_EQ(load_data(source, 64).sha256, data.sha256);
  source.generated_seed = 1;
  EXPECT_NE(load_data(source, 64).sha256, data.sha256);
}

TEST(LabData, GivenValidationTextIsTakenAsItIs) {
  const TestFolder folder;
  DataSource source;
  source.text = {folder.put("train.txt", tiny_text(700))};
  source.valid = {folder.put("valid.txt", tiny_text(300, 2))};
  const LmData data = load_data(source, 64);
  EXPECT_EQ(text_of(data.train), tiny_text(700));
  EXPECT_EQ(text_of(data.valid), tiny_text(300, 2));
  EXPECT_EQ(data.sha256, sha256_hex(data.train.sha256() + data.valid.sha256()));
  EXPECT_EQ(data.description, "700 bytes of text in 1 document, validation 300 bytes in 1");
}

TEST(LabData, OneDocumentKeepsItsLastTenthForValidation) {
  const TestFolder folder;
  DataSource source;
  source.text = {folder.put("book.txt", tiny_text(5000))};
  const LmData data = load_data(source, 64);
  EXPECT_EQ(text_of(data.train), tiny_text(5000).substr(0, 4500));
  EXPECT_EQ(text_of(data.valid), tiny_text(5000).substr(4500));
}

TEST(LabData, SeveralDocumentsAreSplitWholeAndValidationHoldsTheLongestLength) {
  const TestFolder folder;
  DataSource source;
  std::size_t total = 0;
  for (int n = 0; n < 20; ++n) {
    const std::size_t bytes = n % 2 == 0 ? 100 : 400;
    total += bytes;
    folder.put(str("d", 10 + n, ".txt"), tiny_text(bytes, static_cast<std::uint64_t>(n)));
  }
  source.text = {folder.path()};
  const LmData data = load_data(source, 256);
  EXPECT_EQ(data.train.token_count() + data.valid.token_count(), total);
  EXPECT_EQ(data.train.documents.size() + data.valid.documents.size(), 20u);
  ASSERT_FALSE(data.valid.documents.empty());
  for (const Document& document : data.valid.documents) EXPECT_EQ(document.tokens.size(), 400u);
}

TEST(LabData, TokenFilesCountTheVocabularyOfBothSides) {
  const TestFolder folder;
  std::string bytes;
  for (int n = 0; n < 1000; ++n) {
    const int id = n == 990 ? 4711 : n % 300;  // the largest id lies in the part that validates
    bytes += static_cast<char>(id & 255);
    bytes += static_cast<char>(id >> 8);
  }
  DataSource source;
  source.tokens = folder.put("ids.bin", bytes);
  const LmData data = load_data(source, 50);
  EXPECT_EQ(data.train.vocabulary_size, 4712u);
  EXPECT_EQ(data.train.tokenizer, "tokens");
  EXPECT_EQ(data.train.token_count(), 900u);
  EXPECT_EQ(data.valid.token_count(), 100u);
  EXPECT_TRUE(contains(data.description, "900 tokens in 1 document,")) << data.description;
}

TEST(LabData, WhatCannotBeReadIsNamed) {
  const TestFolder folder;
  DataSource both;
  both.text = {folder.put("a.txt", "text")};
  both.tokens = folder.put("a.bin", "text");
  EXPECT_TRUE(contains(message_of<UsageError>([&] { load_data(both, 1); }), "not both"));
  DataSource only_valid;
  only_valid.valid = both.text;
  EXPECT_TRUE(contains(message_of<UsageError>([&] { load_data(only_valid, 1); }), "without training text"));
  DataSource missing;
  missing.text = {folder / "missing.txt"};
  EXPECT_TRUE(contains(message_of<Error>([&] { load_data(missing, 1); }), "missing.txt"));
  DataSource empty;
  empty.text = {folder.put("empty.txt", "")};
  EXPECT_TRUE(contains(message_of<Error>([&] { load_data(empty, 1); }), "empty"));
  DataSource odd;
  odd.tokens = folder.put("odd.bin", "abc");
  EXPECT_TRUE(contains(message_of<Error>([&] { load_data(odd, 1); }), "odd.bin"));
}

TEST(LabData, SourcesSurviveJson) {
  DataSource source;
  source.text = {"a.txt", "folder"};
  source.valid = {"v.txt"};
  source.token_bytes = 4;
  source.generated_bytes = 123;
  source.generated_seed = 18446744073709551615u;
  const Json json = data_to_json(source);
  const DataSource back = data_from_json(parse_json(json_text(json), "test"), "test");
  EXPECT_EQ(back.text, source.text);
  EXPECT_EQ(back.valid, source.valid);
  EXPECT_EQ(back.generated_seed, source.generated_seed);
  EXPECT_EQ(data_to_json(back), json);
  Json extra = json;
  extra["extra"] = 1;
  EXPECT_TRUE(contains(message_of<Error>([&] { data_from_json(extra, "there"); }), "extra"));
  Json lacking = json;
  lacking.erase("tokens");
  EXPECT_TRUE(contains(message_of<Error>([&] { data_from_json(lacking, "there"); }), "tokens"));
}

}  // namespace
}  // namespace torsor
