// Tokenizers in the folders of models: found, applied, kept beside what is written.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tests/base/test_folder.h"
#include "tests/data/bpe_gguf_toy.h"
#include "tests/data/fallback_toy.h"
#include "torsor/base/file.h"
#include "torsor/data/llama2_tokenizer.h"
#include "torsor/data/sentencepiece.h"
#include "torsor/data/wordpiece.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/llama2_c.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::message_of;
using testing::shared_path;
using testing::TestFolder;
using Kind = SentencePieceModel::Kind;

std::string stories() { return shared_path("data/models/stories260K"); }

#define NEEDS_STORIES \
  if (stories().empty()) GTEST_SKIP() << "no shared data; set TORSOR_SHARED"

/// The folder of Hugging Face, without a tokenizer.
void copy_model(const std::string& folder) {
  fs::create_directories(folder);
  for (const char* name : {"config.json", "model.safetensors"})
    write_file_atomic(folder + "/" + name, read_file(stories() + "/hf/" + name));
}

/// Its tokenizer as a model of SentencePiece, from llama2.c's file of the same pieces.
SentencePieceModel pieces() {
  const std::string bytes = read_file(stories() + "/tok512.bin");
  SentencePieceModel model;
  model.method = SentencePieceModel::Method::bpe;
  model.byte_fallback = true;
  model.remove_spaces = false;
  for (std::size_t at = 4; at + 8 <= bytes.size();) {
    float score = 0;
    std::int32_t size = 0;
    std::memcpy(&score, bytes.data() + at, 4);
    std::memcpy(&size, bytes.data() + at + 4, 4);
    std::string text;
    for (const char c : bytes.substr(at + 8, static_cast<std::size_t>(size)))
      text += c == ' ' ? std::string("\xE2\x96\x81") : std::string(1, c);
    at += 8 + static_cast<std::size_t>(size);
    const std::size_t id = model.pieces.size();
    if (id < 3) text = id == 0 ? "<unk>" : id == 1 ? "<s>" : "</s>";
    const Kind kind = id == 0 ? Kind::unknown : id < 3 ? Kind::control : id < 259 ? Kind::byte : Kind::normal;
    model.pieces.push_back({text, score, kind});
  }
  return model;
}

TEST(CheckpointTokenizer, AFolderWithSentencePieceReadsText) {
  NEEDS_STORIES;
  if (!has_sentencepiece()) GTEST_SKIP() << "this build has no SentencePiece";
  const TestFolder folder;
  copy_model(folder / "hf");
  EXPECT_EQ(load_checkpoint(folder / "hf").reader, nullptr);
  EXPECT_EQ(load_checkpoint(folder / "hf").tokenizer, "tokens");
  write_file_atomic(folder / "hf/tokenizer.model", sentencepiece_bytes(pieces()));
  write_file_atomic(folder / "hf/tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  const LoadedModel loaded = load_checkpoint(folder / "hf");
  ASSERT_NE(loaded.reader, nullptr);
  EXPECT_TRUE(loaded.tokenizer.starts_with("sentencepiece-"));
  const auto own = Llama2Tokenizer::load(stories() + "/tok512.bin");
  for (const char* text : {"Once upon a time", "", " two  spaces\n", "Z\xC3\xBCrich \xF0\x9F\x9A\x80 7"})
    EXPECT_EQ(loaded.reader->encode(text), own->encode(text)) << text;

  // Written in this project's form it is still there, and the same.
  save_checkpoint(folder / "own", loaded.model, loaded.tokenizer, loaded.embedder, loaded.reader);
  const LoadedModel again = load_checkpoint(folder / "own");
  ASSERT_NE(again.reader, nullptr);
  EXPECT_EQ(again.reader->name(), loaded.tokenizer);
  EXPECT_EQ(again.reader->encode("Once"), own->encode("Once"));
  // Another in its place is no longer that of the model.
  SentencePieceModel other = pieces();
  std::swap(other.pieces[300].text, other.pieces[301].text);
  write_file_atomic(folder / "own/tokenizer.model", sentencepiece_bytes(other));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_checkpoint(folder / "own"); }), "not the tokenizer of this model"));
}

TEST(CheckpointTokenizer, Llama2sTokenizerIsKept) {
  NEEDS_STORIES;
  const TestFolder folder;
  const LoadedModel loaded = load_checkpoint(stories() + "/stories260K.gguf");
  ASSERT_NE(loaded.reader, nullptr);
  save_checkpoint(folder / "own", loaded.model, loaded.tokenizer, loaded.embedder, loaded.reader);
  const LoadedModel again = load_checkpoint(folder / "own");
  ASSERT_NE(again.reader, nullptr);
  EXPECT_EQ(again.reader->name(), loaded.tokenizer);
  // What was written before tokenizers were kept has ids alone.
  fs::remove(folder / "own/tokenizer.bin");
  EXPECT_EQ(load_checkpoint(folder / "own").reader, nullptr);
}

/// The model of stories260K in GGUF with a byte-level vocabulary of its size in place of its own, and more keys.
std::string gguf_with_bytes(const std::string& pre) {
  const GgufFile file(stories() + "/stories260K.gguf");
  data_test::BpeGgufParts vocabulary;
  vocabulary.pre = pre;
  vocabulary.add("<b>", 3);
  vocabulary.add("<e>", 3);
  for (std::size_t i = 0; vocabulary.tokens.size() < 512; ++i) {
    const std::string left = vocabulary.tokens[64 + i / 16], right = vocabulary.tokens[64 + i % 16];
    vocabulary.merges.push_back(left + " " + right);
    vocabulary.add(left + right, 1);
  }
  vocabulary.begin_id = 256;
  vocabulary.add_begin = true;
  testing::GgufParts parts = vocabulary.parts();
  parts.number_key("tokenizer.ggml.eos_token_id", 257);
  parts.number_key("tokenizer.ggml.eot_token_id", 256);
  for (const auto& [key, value] : file.keys()) {
    if (key.starts_with("tokenizer.")) continue;
    if (const auto* text = std::get_if<std::string>(&value)) parts.text_key(key, *text);
    if (const auto* whole = std::get_if<std::int64_t>(&value))
      parts.number_key(key, static_cast<std::uint32_t>(*whole));
    if (const auto* real = std::get_if<double>(&value)) parts.key(key, 6, testing::bytes_of(static_cast<float>(*real)));
  }
  for (const auto& [name, entry] : file.entries()) {
    const std::vector<std::uint64_t> sizes(entry.shape.rbegin(), entry.shape.rend());
    parts.tensors.push_back({name, sizes, static_cast<std::uint32_t>(entry.type),
                             std::string(reinterpret_cast<const char*>(entry.data), entry.bytes)});
  }
  return parts.build();
}

TEST(CheckpointTokenizer, AByteLevelVocabularyInGgufIsRead) {
  NEEDS_STORIES;
  const TestFolder folder;
  write_file_atomic(folder / "bytes.gguf", gguf_with_bytes("qwen2"));
  const LoadedModel loaded = load_checkpoint(folder / "bytes.gguf");
  ASSERT_NE(loaded.reader, nullptr);
  EXPECT_EQ(loaded.unread, "");
  EXPECT_EQ(loaded.end_tokens, (std::vector<std::int64_t>{257, 256}));
  EXPECT_EQ(loaded.reader->encode("aa<e>"), (std::vector<TokenId>{256, 258, 257}));
  save_checkpoint(folder / "own", loaded.model, loaded.tokenizer, loaded.embedder, loaded.reader);
  const LoadedModel again = load_checkpoint(folder / "own");
  ASSERT_NE(again.reader, nullptr);
  EXPECT_EQ(again.reader->name(), loaded.tokenizer);
  EXPECT_EQ(again.reader->encode("aa 12<e>"), loaded.reader->encode("aa 12<e>"));
  // A vocabulary that is not read leaves ids, and says why.
  write_file_atomic(folder / "other.gguf", gguf_with_bytes("tekken"));
  const LoadedModel other = load_checkpoint(folder / "other.gguf");
  EXPECT_EQ(other.reader, nullptr);
  EXPECT_EQ(other.tokenizer, "tokens");
  EXPECT_TRUE(contains(other.unread, "other.gguf: tokenizer.ggml.pre: 'tekken' is not read")) << other.unread;
}

// Llama's tokenizer.json alone, without tokenizer.model.
TEST(CheckpointTokenizer, ABpeWithByteFallbackIsRead) {
  NEEDS_STORIES;
  const TestFolder folder;
  copy_model(folder / "hf");
  const FallbackBpeTokenizer tokenizer(data_test::toy_fallback());
  write_file_atomic(folder / "hf/tokenizer.json", tokenizer.json());
  const LoadedModel loaded = load_checkpoint(folder / "hf");
  EXPECT_EQ(loaded.tokenizer, tokenizer.name());
  ASSERT_NE(loaded.reader, nullptr);
  save_checkpoint(folder / "own", loaded.model, loaded.tokenizer, loaded.embedder, loaded.reader);
  const LoadedModel again = load_checkpoint(folder / "own");
  ASSERT_NE(again.reader, nullptr);
  EXPECT_EQ(again.reader->encode("ab \xE2\x82\xAC"), tokenizer.encode("ab \xE2\x82\xAC"));
}

TEST(CheckpointTokenizer, AnyKindThatIsReadIsFound) {
  NEEDS_STORIES;
  const TestFolder folder;
  copy_model(folder / "hf");
  write_file_atomic(folder / "hf/vocab.txt", "[UNK]\na\n##b\n");
  EXPECT_TRUE(load_checkpoint(folder / "hf").tokenizer.starts_with("wordpiece-"));
  // One that is not read leaves ids, and says why.
  write_file_atomic(folder / "hf/tokenizer.json", R"({"model": {"type": "WordLevel"}})");
  const LoadedModel loaded = load_checkpoint(folder / "hf");
  EXPECT_EQ(loaded.reader, nullptr);
  EXPECT_TRUE(contains(loaded.unread, "tokenizer.json: model: key 'type' must be BPE")) << loaded.unread;
  // One with more tokens than the model is refused.
  fs::remove(folder / "hf/tokenizer.json");
  std::string lines = "[UNK]\n";
  for (int i = 0; i < 512; ++i) lines += "a" + std::to_string(i) + "\n";
  write_file_atomic(folder / "hf/vocab.txt", lines);
  const std::string message = message_of<Error>([&] { load_checkpoint(folder / "hf"); });
  EXPECT_TRUE(contains(message, "the tokenizer has 513 tokens, the model 512")) << message;
}

}  // namespace
}  // namespace torsor
