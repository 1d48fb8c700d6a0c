// Mutated tokenizer.json: whatever comes, the reader answers with one line or with a tokenizer that encodes everything.
#include <gtest/gtest.h>

#include "tests/data/bpe_toy.h"
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
      if (tokenizer->model().added.empty() && !tokenizer->model().add_prefix_space) {
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

}  // namespace
}  // namespace torsor
