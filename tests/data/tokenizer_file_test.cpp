// Which tokenizer a file or a folder stands for.
#include "torsor/data/tokenizer_file.h"

#include <gtest/gtest.h>

#include "tests/base/gguf_file.h"
#include "tests/data/bpe_toy.h"
#include "tests/data/fallback_toy.h"
#include "tests/data/golden_ids.h"
#include "tests/data/sentencepiece_toy.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/json.h"
#include "torsor/data/llama2_tokenizer.h"
#include "torsor/data/sentencepiece.h"
#include "torsor/data/wordpiece.h"

namespace torsor {
namespace {

using namespace data_test;

const char* kWords = "[UNK]\n[CLS]\n[SEP]\na\n##a\n";

Llama2Tokenizer llama2() {
  std::vector<Llama2Tokenizer::Piece> pieces(259);
  pieces.push_back({-1.5F, " "});
  pieces.push_back({-2, "a"});
  pieces.push_back({-0.25F, " a"});
  return Llama2Tokenizer(pieces);
}

TEST(TokenizerFile, EveryKindIsFoundByItsFile) {
  const TemporaryFolder folder;
  const BpeTokenizer bpe(toy_model({{"a", "b"}}));
  const auto words = WordPieceTokenizer::parse_vocabulary(kWords, "", "x");
  const std::string bpe_json = folder.write("bpe.json", bpe.json());
  EXPECT_EQ(load_tokenizer(bpe_json)->name(), bpe.name());
  EXPECT_EQ(load_tokenizer(folder.write("words.json", words->json()))->name(), words->name());
  EXPECT_EQ(load_tokenizer(folder.write("words.txt", kWords))->name(), words->name());
  EXPECT_EQ(load_tokenizer(folder.write("a.bin", llama2().bytes()))->name(), llama2().name());
  EXPECT_EQ(load_tokenizer(folder.write("other", bpe.json()))->name(), bpe.name());
  EXPECT_TRUE(contains(message_of<Error>([&] { load_tokenizer(folder.write("x.md", "ab")); }), "x.md:1:1"));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_tokenizer(folder.path() + "/none.json"); }), "none.json"));
  const std::string model = folder.write("m.model", sentencepiece_bytes(toy_bpe()));
  if (has_sentencepiece())
    EXPECT_EQ(load_tokenizer(model)->name(), SentencePieceTokenizer(toy_bpe()).name());
  else
    EXPECT_TRUE(contains(message_of<Error>([&] { load_tokenizer(model); }), "m.model: this torsor was built without"));
}

TEST(TokenizerFile, AFolderHasAnOrder) {
  const TemporaryFolder folder;
  EXPECT_FALSE(holds_tokenizer(folder.path()));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_tokenizer(folder.path()); }), "vocab.txt"));
  folder.write("tokenizer.bin", llama2().bytes());
  EXPECT_TRUE(holds_tokenizer(folder.path()));
  EXPECT_EQ(load_tokenizer(folder.path())->name(), llama2().name());
  folder.write("vocab.txt", kWords);
  EXPECT_TRUE(load_tokenizer(folder.path())->name().starts_with("wordpiece-"));
  const BpeTokenizer bpe(toy_model({{"a", "b"}}));
  folder.write("vocab.json", json_text(parse_json(bpe.json(), "x").at("model").at("vocab")));
  folder.write("merges.txt", "a b\n");
  EXPECT_EQ(load_tokenizer(folder.path())->name(), bpe.name());
  folder.write("tokenizer.model", sentencepiece_bytes(toy_bpe()));
  if (has_sentencepiece()) {
    EXPECT_TRUE(load_tokenizer(folder.path())->name().starts_with("sentencepiece-"));
  }
  folder.write("tokenizer.json", WordPieceTokenizer::parse_vocabulary(kWords, "", "x")->json());
  EXPECT_TRUE(load_tokenizer(folder.path())->name().starts_with("wordpiece-"));
  // Llama's: a tokenizer.json gives way to the model beside it where that can be applied, any other does not.
  FallbackBpeModel fallback = toy_fallback({{"a", "b"}, {"_", "a"}});  // with no more added tokens than the model's
  fallback.vocabulary.resize(265);
  fallback.added.resize(3);
  folder.write("tokenizer.json", FallbackBpeTokenizer(fallback).json());
  EXPECT_TRUE(
      load_tokenizer(folder.path())->name().starts_with(has_sentencepiece() ? "sentencepiece-" : "fallbackbpe-"));
  EXPECT_TRUE(load_tokenizer(folder.path() + "/tokenizer.json")->name().starts_with("fallbackbpe-"));
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "byte_fallback": false}})");
  EXPECT_TRUE(contains(message_of<Error>([&] { load_tokenizer(folder.path()); }), "tokenizer.json: model"));
  folder.write("tokenizer.json", R"({"model": {"type": "WordLevel"}})");
  EXPECT_TRUE(contains(message_of<Error>([&] { load_tokenizer(folder.path()); }), "BPE, found 'WordLevel'"));
}

TEST(TokenizerFile, WhatIsKeptIsFoundByItsName) {
  std::vector<std::shared_ptr<const Tokenizer>> all = {std::make_shared<ByteTokenizer>(),
                                                       std::make_shared<BpeTokenizer>(toy_model({{"a", "b"}})),
                                                       WordPieceTokenizer::parse_vocabulary(kWords, "", "x"),
                                                       std::shared_ptr<const Tokenizer>(new Llama2Tokenizer(llama2())),
                                                       std::make_shared<FallbackBpeTokenizer>(toy_fallback())};
  if (has_sentencepiece()) all.push_back(std::make_shared<SentencePieceTokenizer>(toy_bpe()));
  for (const auto& one : all) {
    const TemporaryFolder folder;
    for (const TokenizerFile& file : one->files()) folder.write(file.name, file.content);
    EXPECT_EQ(holds_tokenizer(folder.path()), one->name() != "bytes") << one->name();
    const auto found = named_tokenizer(folder.path(), one->name());
    ASSERT_NE(found, nullptr) << one->name();
    EXPECT_EQ(found->name(), one->name());
    EXPECT_EQ(found->encode("aab a"), one->encode("aab a"));
    if (one->name() == "bytes") continue;
    std::string other = one->name();
    other.back() = other.back() == '0' ? '1' : '0';
    const std::string message = message_of<Error>([&] { named_tokenizer(folder.path(), other); });
    EXPECT_TRUE(contains(message, "not the tokenizer of this model") && contains(message, one->name())) << message;
  }
  const TemporaryFolder folder;
  EXPECT_EQ(named_tokenizer(folder.path(), "tokens"), nullptr);
  EXPECT_EQ(named_tokenizer(folder.path(), "llama2c-0123"), nullptr);
  for (const char* name : {"bpe-0123", "fallbackbpe-0123", "wordpiece-0123", "sentencepiece-0123"})
    EXPECT_TRUE(contains(message_of<Error>([&] { named_tokenizer(folder.path(), name); }), folder.path())) << name;
}

TEST(TokenizerFile, VocabulariesOfGguf) {
  const auto folder = shared_data("models/ggml-vocab");
  if (!folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  EXPECT_TRUE(load_tokenizer(*folder + "/ggml-vocab-bert-bge.gguf")->name().starts_with("wordpiece-"));
  EXPECT_TRUE(load_tokenizer(*folder + "/ggml-vocab-phi-3.gguf")->name().starts_with("llama2c-"));
  EXPECT_TRUE(load_tokenizer(*folder + "/ggml-vocab-gpt-2.gguf")->name().starts_with("bpe-"));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_tokenizer(*folder + "/ggml-vocab-gpt-neox.gguf"); }),
                       "ggml-vocab-gpt-neox.gguf: tokenizer.ggml.pre: it is missing"));
}

TEST(TokenizerFile, TiktokenIsRefusedByName) {
  const TemporaryFolder folder;
  const std::string why = "tokenizer.model: a vocabulary of tiktoken is not read";
  const std::string file = folder.write("tokenizer.model", "IQ== 0\nIg== 1\r\n");
  for (const std::string& path : {file, folder.path()})
    EXPECT_TRUE(contains(message_of<Error>([&] { load_tokenizer(path); }), why)) << path;
  EXPECT_TRUE(
      contains(message_of<Error>([&] { load_tokenizer(folder.write("x.tiktoken", "IQ== 0")); }), "of tiktoken"));
  for (const char* other : {"", "\n", " 0", "IQ== x", "a b c", "IQ=="})
    EXPECT_FALSE(contains(message_of<Error>([&] { load_tokenizer(folder.write("y.model", other)); }), "of tiktoken"));
}

// What Llama's kind in GGUF cannot mean here is refused, not read as something else.
TEST(TokenizerFile, LlamasVocabularyInGgufIsChecked) {
  std::vector<std::string> names = {"<unk>", "<s>", "</s>"};
  for (const std::string& name : byte_names()) names.push_back(name);
  names.push_back("\xE2\x96\x81");
  names.push_back("a");
  const auto parts = [](const std::vector<std::string>& tokens) {
    testing::GgufParts made;
    made.text_key("tokenizer.ggml.model", "llama");
    std::string list = testing::bytes_of(std::uint32_t{8}) + testing::bytes_of(std::uint64_t{tokens.size()});
    std::string scores = testing::bytes_of(std::uint32_t{6}) + testing::bytes_of(std::uint64_t{tokens.size()});
    for (const std::string& one : tokens) list += testing::gguf_text(one), scores += testing::bytes_of(0.0F);
    made.key("tokenizer.ggml.tokens", 9, list);
    made.key("tokenizer.ggml.scores", 9, scores);
    return made;
  };
  const auto read = [](const testing::GgufParts& made) {
    return gguf_tokenizer(GgufFile::from_bytes(made.build(), "x.gguf"));
  };
  EXPECT_EQ(read(parts(names))->encode("a"), (Ids{1, 259, 260}));
  const auto refusal = [&](const testing::GgufParts& made) { return message_of<Error>([&] { read(made); }); };
  for (const char* key : {"tokenizer.ggml.add_space_prefix", "tokenizer.ggml.add_bos_token"}) {
    testing::GgufParts made = parts(names);
    made.key(key, 7, testing::bytes_of(std::uint8_t{1}));
    EXPECT_EQ(read(made)->encode("a"), (Ids{1, 259, 260}));
    made = parts(names);
    made.key(key, 7, testing::bytes_of(std::uint8_t{0}));
    EXPECT_TRUE(contains(refusal(made), str("x.gguf: ", key, " must be true")));
  }
  testing::GgufParts begins = parts(names);
  begins.number_key("tokenizer.ggml.bos_token_id", 2);
  EXPECT_TRUE(contains(refusal(begins), "bos_token_id must be 1, found 2"));
  std::swap(names[3], names[259]);
  EXPECT_TRUE(contains(refusal(parts(names)), "x.gguf: tokenizer.ggml.tokens must have <0x00> at 3"));
  names.resize(100);
  EXPECT_TRUE(contains(refusal(parts(names)), "tokenizer.ggml.tokens must have <0x00> at 3"));
}

}  // namespace
}  // namespace torsor
