// Mutated files of WordPiece and SentencePiece: whatever comes, the reader answers with one line or with a tokenizer
// that encodes everything.
#include <gtest/gtest.h>

#include "tests/data/golden_ids.h"
#include "tests/data/sentencepiece_toy.h"
#include "tests/fuzz/fuzz.h"
#include "torsor/base/error.h"
#include "torsor/base/json.h"
#include "torsor/data/sentencepiece.h"
#include "torsor/data/wordpiece.h"

namespace torsor {
namespace {

using namespace data_test;

fuzz::Material material(std::vector<std::string> seeds, const std::vector<std::string>& pieces) {
  fuzz::Material made;
  made.seeds = std::move(seeds);
  made.pieces = fuzz::hostile_pieces();
  made.pieces.insert(made.pieces.end(), pieces.begin(), pieces.end());
  return made;
}

/// What every tokenizer that was read must do.
void use(const Tokenizer& tokenizer) {
  const std::string text = "ab aab\xFF\xC3\xA9 [CLS]<x>\n\tA\xCC\x81 \xE4\xB8\xAD b" + std::string(1, '\0');
  const Ids ids = tokenizer.encode(text);
  for (const TokenId id : ids) EXPECT_LT(id, tokenizer.vocabulary_size());
  tokenizer.decode(ids);
  for (TokenId id = 0; id < std::min(tokenizer.vocabulary_size(), 20U); ++id) tokenizer.text_of(id);
}

void expect_one_line(const std::string& message) {
  EXPECT_TRUE(message.starts_with("fuzz")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

/// Whether an Error is of the syntax, "fuzz:LINE:COLUMN: ".
bool is_syntax(const std::string& message) { return message.size() > 5 && message[5] >= '0' && message[5] <= '9'; }

const std::vector<std::string> kJson = {"{",         "}",         "[",    "]",    ",",           ":",           "null",
                                        "true",      "false",     "1",    "9",    "\"a\"",       "\"##\"",      "\"\"",
                                        "\"[UNK]\"", "\"x\": 9,", "-2.5", "1e39", "\"\\u2581\"", "\"\\ud800\"", "AAAA"};

TEST(TokenizerFuzz, MutatedVocabularies) {
  fuzz::Run run("vocab.txt",
                material({"[UNK]\n[CLS]\n[SEP]\na\n##a\nab\n##b\n.\n", "[PAD]\n[UNK]\n\xE4\xB8\xAD\n##\xC3\xA9\nA\n"},
                         {"[UNK]", "##", "a", "[MASK]", "\n\n", "##ab\n"}));
  while (run.next()) {
    bool read = false, past = true;
    try {
      const auto tokenizer = WordPieceTokenizer::parse_vocabulary(run.input(), "", "fuzz");
      read = true;
      use(*tokenizer);
      if (run.every(20)) {
        EXPECT_EQ(WordPieceTokenizer::parse_json_text(tokenizer->json(), "again")->name(), tokenizer->name());
      }
    } catch (const Error& error) {
      EXPECT_FALSE(read) << error.what();
      expect_one_line(error.what());
      past = std::string(error.what()).find("UTF-8") == std::string::npos;
    }
    run.count(past);
  }
  run.report(0.2);
}

TEST(TokenizerFuzz, MutatedWordPieceJson) {
  WordPieceModel small =
      WordPieceTokenizer::parse_vocabulary("[UNK]\n[CLS]\n[SEP]\na\n##a\nab\n##b\n", "", "x")->model();
  fuzz::Material made = material({WordPieceTokenizer(small).json()}, kJson);
  small.vocabulary.push_back("<x>");
  small.added.push_back({.id = 7, .content = "<x>", .lstrip = true, .normalized = true});
  small.lowercase = false;
  made.seeds.push_back(WordPieceTokenizer(small).json());
  made.most_changes = 1;  // most break the syntax
  fuzz::Run run("WordPiece in tokenizer.json", made);
  while (run.next()) {
    bool read = false, past = true;
    try {
      const auto tokenizer = WordPieceTokenizer::parse_json_text(run.input(), "fuzz");
      read = true;
      use(*tokenizer);
      if (run.every(20)) {
        EXPECT_EQ(WordPieceTokenizer::parse_json_text(tokenizer->json(), "again")->name(), tokenizer->name());
      }
    } catch (const Error& error) {
      EXPECT_FALSE(read) << error.what();
      expect_one_line(error.what());
      past = !is_syntax(error.what());
    }
    run.count(past);
  }
  run.report(0.2);
}

TEST(TokenizerFuzz, MutatedUnigramJson) {
  fuzz::Material made = material({R"({"version": "1.0", "truncation": null, "padding": null,
"added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 7, "content": "<x>", "special": true}],
"normalizer": null, "post_processor": null,
"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
{"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": true}]},
"decoder": {"type": "Metaspace"},
"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["</s>", 0], ["\u2581", -2], ["a", -3],
["b", -3], ["ab", -4], ["\u2581a", -2.5]]}})"},
                                 kJson);
  made.most_changes = 1;
  fuzz::Run run("Unigram in tokenizer.json", made);
  while (run.next()) {
    bool read = false, past = true;
    try {
      const auto tokenizer = SentencePieceTokenizer::parse_json_text(run.input(), "fuzz");
      read = true;
      use(*tokenizer);
    } catch (const Error& error) {
      EXPECT_FALSE(read) << error.what();
      expect_one_line(error.what());
      past = !is_syntax(error.what());
    }
    run.count(past);
  }
  run.report(0.2);
}

TEST(TokenizerFuzz, MutatedSentencePieceModels) {
  SentencePieceModel bpe = toy_unigram();
  bpe.method = SentencePieceModel::Method::bpe;
  bpe.remove_spaces = false;
  bpe.pieces.push_back({"user", 0, Kind::user_defined});
  bpe.pieces.push_back({"aab", -0.5F, Kind::unused});
  fuzz::Run run("tokenizer.model",
                material({sentencepiece_bytes(toy_unigram()), sentencepiece_bytes(bpe)},
                         {"\x0A\x03\x0A\x01"
                          "a",
                          "\x18\x02", "\x18\x04", "\xFF\xFF\xFF\xFF\x0F", "\x0A\x80\x01",
                          std::string("\x12\x02\x18\x02", 4), std::string("\x1A\x02\x18\x00", 4), "\xE2\x96\x81"}));
  while (run.next()) {
    bool read = false, past = true;
    try {
      const SentencePieceModel model = parse_sentencepiece(run.input(), "fuzz");
      if (has_sentencepiece()) {
        const auto tokenizer = std::make_unique<SentencePieceTokenizer>(model);
        read = true;
        use(*tokenizer);
      }
      EXPECT_EQ(sentencepiece_bytes(parse_sentencepiece(sentencepiece_bytes(model), "again")),
                sentencepiece_bytes(model));
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_FALSE(read) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      past = message.find(" are left") == std::string::npos && message.find("wire type") == std::string::npos &&
             message.find("cut off") == std::string::npos;
    }
    run.count(past);
  }
  run.report(0.2);
}

// The table of characters by itself, in the words of its double array: most changes lead somewhere.
TEST(TokenizerFuzz, MutatedTablesOfCharacters) {
  Random random(20251130, stream_of("table"));
  std::size_t past = 0;
  const std::size_t total = 20'000;
  for (std::size_t i = 0; i < total && !::testing::Test::HasFailure(); ++i) {
    SentencePieceModel model = toy_unigram();
    model.characters = toy_table({{'\t', " "}, {'B', "b"}, {'A', "aa"}, {'\xC3', "b"}});
    for (std::uint64_t n = 1 + random.below(4); n > 0; --n) {
      const auto at = static_cast<std::uint32_t>(random.below(512));
      const auto to = static_cast<std::uint32_t>(random.below(random.below(8) == 0 ? 1024 : 512));
      set_unit(model.characters, at,
               (at ^ to) << 10 | static_cast<std::uint32_t>(random.below(2)) << 8 |
                   static_cast<std::uint32_t>(random.below(2) == 0 ? 'a' + random.below(3) : random.below(256)) |
                   (random.below(6) == 0 ? 1U << 31 : 0U));
    }
    try {
      check_sentencepiece(model, "fuzz");
      ++past;
      if (has_sentencepiece()) use(SentencePieceTokenizer(model));
    } catch (const Error& error) {
      expect_one_line(error.what());
    }
  }
  std::cout << "tables of characters: " << total << " inputs, " << 100.0 * static_cast<double>(past) / total
            << " % past the check\n";
  EXPECT_GE(past, total / 5);
}

}  // namespace
}  // namespace torsor
