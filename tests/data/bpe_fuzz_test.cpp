// Mutated tokenizer.json and vocabularies of GGUF: whatever comes, the reader answers with one line or with a tokenizer
// that encodes everything.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/data/bpe_gguf_toy.h"
#include "tests/data/bpe_toy.h"
#include "tests/data/fallback_toy.h"
#include "tests/fuzz/fuzz.h"
#include "torsor/base/error.h"
#include "torsor/base/json.h"

namespace torsor {
namespace {

using namespace data_test;

/// Stands for the bytes of the vocabulary, which are put in after the mutation: they would draw most of the changes.
const std::string kBytes = "\"@\": 0";

std::string bytes_of_vocabulary() {
  std::string entries;
  for (std::size_t id = 0; id < 256; ++id)
    entries += str(id > 0 ? "," : "", json_text(byte_letters(std::string(1, static_cast<char>(byte_at(id))))), ":", id);
  return entries;
}

fuzz::Material material() {
  const std::string head = R"({"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
"decoder": {"type": "ByteLevel"}, "post_processor": null,
)";
  fuzz::Material material;
  material.seeds = {
      head + R"("added_tokens": [],
"model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false, "byte_fallback": false,
"vocab": {)" +
          kBytes + R"(, "ab": 256, "abc": 257}, "merges": ["a b", "ab c"]}})",
      head + R"("added_tokens": [{"id": 257, "content": "<x>", "single_word": false, "lstrip": true, "rstrip": false,
"normalized": false, "special": true}, {"id": 258, "content": "  ", "rstrip": true, "special": false}],
"model": {"vocab": {)" +
          kBytes + R"(, "aa": 256}, "merges": [["a", "a"]]}})",
  };
  material.pieces = fuzz::hostile_pieces();
  for (const char* piece : {"{",
                            "}",
                            "[",
                            "]",
                            ",",
                            ":",
                            "null",
                            "true",
                            "false",
                            "1",
                            "256",
                            "257",
                            "258",
                            "\"a\"",
                            "\"ab\"",
                            "\"a b\"",
                            "\"\"",
                            "\"x\": 258,",
                            "{\"type\": \"NFC\"}",
                            "[\"a\", \"b\"]",
                            "\"\\u0120\"",
                            "\"\\ud800\""})
    material.pieces.emplace_back(piece);
  material.most_changes = 1;  // most break the syntax
  return material;
}

TEST(BpeFuzz, MutatedTokenizerFiles) {
  fuzz::Run run("tokenizer.json", material());
  const std::string bytes = bytes_of_vocabulary(), text = "ab abc aaa  <x> \xFF\xC3\xA9 <x>'s\n\n";
  while (run.next()) {
    bool read = false, is_json = true;
    std::string input = run.input();
    if (const std::size_t at = input.find(kBytes); at != std::string::npos) input.replace(at, kBytes.size(), bytes);
    try {
      const auto tokenizer = BpeTokenizer::parse(input, "fuzz");
      read = true;
      const std::vector<TokenId> ids = tokenizer->encode(text);
      const std::string back = tokenizer->decode(ids);
      const BpeModel& model = tokenizer->model();
      if (model.added.empty() && !model.add_prefix_space && !model.composes) {
        EXPECT_EQ(back, text);
      }
      if (run.every(20)) {
        EXPECT_EQ(BpeTokenizer::parse(tokenizer->json(), "again")->name(), tokenizer->name());
      }
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_FALSE(read) << message;
      is_json = message.size() < 6 || message[5] < '0' || message[5] > '9';  // else "fuzz:LINE:COLUMN: "
      EXPECT_TRUE(message.starts_with("fuzz:")) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    run.count(is_json);
  }
  run.report(0.1);
}

TEST(BpeFuzz, MutatedFilesWithByteFallback) {
  // As above: the bytes are put in afterwards.
  FallbackBpeModel model = toy_fallback();
  std::string bytes;
  for (std::size_t byte = 0; byte < 256; ++byte)
    bytes += str(byte > 0 ? "," : "", "\"", byte_names()[byte], "\":", byte + 3);
  fuzz::Material made = material();
  made.seeds.clear();
  for (const bool early : {true, false}) {
    model.early_spaces = early;
    model.prefix = early ? FallbackBpeModel::Prefix::each : FallbackBpeModel::Prefix::first_if_bare;
    model.ignore_merges = !early;
    Json json = parse_json(FallbackBpeTokenizer(model).json(), "seed");
    Json vocab = Json::object();
    for (const auto& [name, id] : json["model"]["vocab"].items())
      if (!name.starts_with("<0x"))
        vocab[name] = id;
      else if (name == "<0x00>")
        vocab["@"] = 0;
    json["model"]["vocab"] = vocab;
    made.seeds.push_back(json_text(json, 1));
    ASSERT_NE(made.seeds.back().find(kBytes), std::string::npos);
  }
  for (const char* piece : {"\"\\u2581\"", "\"<0x41>\"", "\"\\u2581a\"", "\"<s>\"", "263", "[\"a\", \"\\u2581\"]",
                            "Metaspace", "\"Prepend\"", "\"first\""})
    made.pieces.emplace_back(piece);
  fuzz::Run run("tokenizer.json with byte_fallback", made);
  const std::string text = "ab abc  <x>  <y>a b\xFF\xC3\xA9 \xE2\x96\x81 </s>'s\n\n";
  while (run.next()) {
    bool read = false, is_json = true;
    std::string input = run.input();
    if (const std::size_t at = input.find(kBytes); at != std::string::npos) input.replace(at, kBytes.size(), bytes);
    try {
      const auto tokenizer = FallbackBpeTokenizer::parse(input, "fuzz");
      read = true;
      const std::vector<TokenId> ids = tokenizer->encode(text);
      for (const TokenId id : ids) EXPECT_LT(id, tokenizer->vocabulary_size());
      tokenizer->decode(ids);
      if (run.every(20)) {
        EXPECT_EQ(FallbackBpeTokenizer::parse(tokenizer->json(), "again")->name(), tokenizer->name());
      }
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_FALSE(read) << message;
      is_json = message.size() < 6 || message[5] < '0' || message[5] > '9';
      EXPECT_TRUE(message.starts_with("fuzz:")) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
    run.count(is_json);
  }
  run.report(0.1);
}

/// The parts of a GGUF file from lines that can be mutated: "pre NAME", "begin ID", "adds 0", "merge LEFT RIGHT",
/// "token TYPE NAME". The 256 bytes stand before them all, since a file without them is refused at once.
BpeGgufParts parts_of(const std::string& lines) {
  BpeGgufParts parts;
  std::istringstream all(lines);
  for (std::string line; std::getline(all, line);) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string kind = line.substr(0, space), rest = space < line.size() ? line.substr(space + 1) : "";
    if (kind == "pre")
      parts.pre = rest;
    else if (kind == "begin")
      parts.begin_id = static_cast<std::uint32_t>(std::strtoul(rest.c_str(), nullptr, 10));
    else if (kind == "adds")
      parts.add_begin = rest != "0";
    else if (kind == "merge")
      parts.merges.push_back(rest);
    else if (kind == "token" && rest.size() > 1)
      parts.add(rest.substr(2), rest[0] - '0');
    else if (kind == "byte" && !rest.empty())
      parts.tokens[static_cast<unsigned char>(rest[0])] = rest.substr(1);
    else
      parts.add(line, 1);
  }
  return parts;
}

TEST(BpeFuzz, MutatedVocabulariesOfGguf) {
  fuzz::Material made;
  made.seeds = {"pre gpt-2\nmerge a b\nmerge ab c\ntoken 1 ab\ntoken 1 abc\ntoken 3 <x>\ntoken 4 # x\n",
                "pre llama-bpe\nbegin 259\nmerge \xC4\xA0 a\ntoken 1 \xC4\xA0"
                "a\ntoken 5 [PAD]\ntoken 2 <u>\ntoken 3 <b>\nadds 1\n",
                "pre qwen2\ntoken 1 aa\nmerge a a\ntoken 1 aaa\nmerge aa a\nbyte qzz\n"};
  made.pieces = fuzz::hostile_pieces();
  for (const char* piece :
       {"token 1 ab\n", "token 3 a\n", "merge ab ab\n", "merge a b\n", "token 4 \xFF\n", "begin 4294967295\n",
        "adds 1\n", "pre smollm\n", "token 9 q\n", "byte aab\n", "token 1 abab\n"})
    made.pieces.emplace_back(piece);
  made.most_changes = 2;
  fuzz::Run run("byte-level BPE in GGUF", made);
  const std::string text = "ab abc aaa  <x> \xFF\xC3\xA9 <b>'S 123 [PAD]# x\n\n";
  while (run.next()) {
    bool read = false;
    const BpeGgufParts parts = parts_of(run.input());
    std::string bytes = parts.build();
    // Now and then the file itself, too.
    if (run.every(16)) bytes[bytes.size() / 3] = static_cast<char>(bytes[bytes.size() / 3] + 1);
    try {
      const auto tokenizer = BpeTokenizer::of_gguf(GgufFile::from_bytes(bytes, "fuzz"));
      read = true;
      const std::vector<TokenId> ids = tokenizer->encode(text);
      for (const TokenId id : ids) EXPECT_LT(id, tokenizer->vocabulary_size());
      if (!tokenizer->model().begin) {
        EXPECT_EQ(tokenizer->decode(ids), text);
      }
      if (run.every(20)) {
        EXPECT_EQ(BpeTokenizer::parse(tokenizer->json(), "again")->name(), tokenizer->name());
      }
    } catch (const Error& error) {
      EXPECT_FALSE(read) << error.what();
      EXPECT_TRUE(std::string(error.what()).starts_with("fuzz:")) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
    run.count(read);
  }
  run.report(0.1);
}

}  // namespace
}  // namespace torsor
