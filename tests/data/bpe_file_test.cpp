// tokenizer.json, vocab.json and merges.txt: what is read, what is refused, and ids that other programs give.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/data/bpe_toy.h"
#include "tests/data/golden_ids.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/data/bpe.h"

namespace torsor {
namespace {

using namespace data_test;

/// A tokenizer.json of all bytes and two merges, as Hugging Face writes it.
Json small_json() {
  const BpeTokenizer tokenizer(toy_model({{"a", "b"}, {" ", "ab"}}));
  Json json = parse_json(tokenizer.json(), "small");
  json["added_tokens"] = parse_json(
      R"([{"id": 258, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": true}])",
      "added");
  return json;
}

std::string written(const TemporaryFolder& folder, const Json& json) {
  return folder.write("tokenizer.json", json_text(json));
}

TEST(BpeFile, ReadsWhatItWrites) {
  BpeModel model = toy_model({{"a", "b"}, {" ", "ab"}, {"\xC3", "\xA9"}});
  add_token(model, "<x>");
  model.vocabulary.push_back("ab\xC3\xA9");  // so that an added token stands between others
  model.merges.push_back({id_of(model, "ab"), id_of(model, "\xC3\xA9"), id_of(model, "ab\xC3\xA9")});
  add_token(model, "  ");
  add_token(model, "\xE4\xB8\xAD <y>");
  model.added[0].special = model.added[0].lstrip = true;
  model.added[1].normalized = true;
  model.added[2].rstrip = true;
  model.add_prefix_space = true;
  const BpeTokenizer tokenizer(model);
  const TemporaryFolder folder;
  const std::string path = folder.write("tokenizer.json", tokenizer.json());
  const auto read = BpeTokenizer::load(path);
  EXPECT_EQ(read->name(), tokenizer.name());
  EXPECT_EQ(read->model().vocabulary, model.vocabulary);
  EXPECT_EQ(read->model().merges, model.merges);
  EXPECT_TRUE(read->model().added[0].special);
  EXPECT_FALSE(read->model().added[1].special);
  EXPECT_EQ(read->json(), tokenizer.json());
  EXPECT_EQ(BpeTokenizer::load(folder.path())->name(), tokenizer.name());  // the folder stands for the file
  const Json json = read_json(path);
  EXPECT_EQ(json.at("model").at("vocab").size(), 261U);  // with "<x>", which has others behind it
  EXPECT_EQ(json.at("added_tokens").size(), 3U);
  EXPECT_EQ(json.at("model").at("merges")[1], "\xC4\xA0 ab");
}

TEST(BpeFile, ReadsBothWritingsOfMerges) {
  const TemporaryFolder folder;
  Json json = small_json();
  const auto strings = BpeTokenizer::load(written(folder, json));
  json["model"]["merges"] = parse_json(R"([["a", "b"], ["\u0120", "ab"]])", "merges");
  const auto pairs = BpeTokenizer::load(written(folder, json));
  EXPECT_EQ(pairs->name(), strings->name());
  EXPECT_EQ(pairs->encode(" ab<x>"), Ids({257, 258}));
}

TEST(BpeFile, ReadsVocabularyAndMerges) {
  const TemporaryFolder folder;
  const BpeTokenizer tokenizer(toy_model({{"a", "b"}, {"#", "#"}, {"\n", "\n"}}));
  folder.write("vocab.json", json_text(parse_json(tokenizer.json(), "x").at("model").at("vocab")));
  for (const char* merges : {"#version: 0.2\na b\n# #\n\xC4\x8A \xC4\x8A\n", "a b\n# #\n\xC4\x8A \xC4\x8A",
                             "#version: 0.2\r\na b\r\n# #\r\n\xC4\x8A \xC4\x8A\r\n"}) {
    folder.write("merges.txt", merges);
    EXPECT_EQ(BpeTokenizer::load(folder.path())->name(), tokenizer.name());
  }
  const auto refusal = [&](const std::string& merges) {
    folder.write("merges.txt", merges);
    return message_of<Error>([&] { BpeTokenizer::load(folder.path()); });
  };
  for (const auto& [merges, part] : std::vector<std::pair<std::string, std::string>>{
           {"#version: 0.2\na b\n\n# #\n", "merges.txt:3: expected two tokens"},
           {"a b\na b c\n", "merges.txt:2: expected two tokens"},
           {"a b\nab\n", "merges.txt:2: expected two tokens"},
           {"a b\n# \n", "merges.txt:2: expected two tokens"},
           {"a b\nxy z\n", "merges.txt:2: 'xy' is no token"},
           {"a b\na c\n", "merges.txt:2: 'ac', which the merge makes, is no token"},
           {"a b\na b\n", "merges 0 and 1 are of the same two tokens"},
           {"a b\n\xFF b\n", "merges.txt: expected UTF-8, found another byte at 4"}}) {
    const std::string message = refusal(merges);
    EXPECT_TRUE(contains(message, part)) << message;
    EXPECT_TRUE(contains(message, folder.path())) << message;
  }
  std::filesystem::remove(folder.path("merges.txt"));
  const std::string message = message_of<Error>([&] { BpeTokenizer::load(folder.path()); });
  EXPECT_TRUE(contains(message, "tokenizer.json, or vocab.json and merges.txt")) << message;
}

TEST(BpeFile, RefusesWhatItCannotMean) {
  struct Case {
    const char* pointer;  // what is changed
    const char* value;
    std::vector<std::string> parts;
  };
  const TemporaryFolder folder;
  for (const Case& one : {
           Case{"/normalizer", R"({"type": "NFKC"})", {"normalizer: key 'type' must be NFC, found 'NFKC'"}},
           Case{"/normalizer", R"({"type": "NFC", "more": 1})", {"normalizer", "more"}},
           Case{"/truncation", R"({"max_length": 5})", {"truncation"}},
           Case{"/padding", R"({"length": 5})", {"padding"}},
           Case{"/version", R"("2.0")", {"version", "2.0"}},
           Case{"/pre_tokenizer", "null", {"pre_tokenizer"}},
           Case{"/pre_tokenizer", R"({"type": "Whitespace"})", {"pre_tokenizer", "type", "Whitespace"}},
           Case{"/pre_tokenizer",
                R"({"type": "Sequence", "pretokenizers": []})",
                {"pre_tokenizer", "a split and ByteLevel, found 0"}},
           Case{"/pre_tokenizer/use_regex", "false", {"pre_tokenizer", "use_regex"}},
           Case{"/pre_tokenizer/add_prefix_space", "1", {"pre_tokenizer", "add_prefix_space"}},
           Case{"/pre_tokenizer/more", "1", {"pre_tokenizer", "unknown key 'more'"}},
           Case{"/decoder", R"({"type": "Metaspace"})", {"decoder", "Metaspace"}},
           Case{"/model", "[]", {"model", "an object"}},
           Case{"/model/type", R"("Unigram")", {"model", "type", "Unigram"}},
           Case{"/model/dropout", "0.1", {"model", "dropout"}},
           Case{"/model/byte_fallback", "true", {"model", "byte_fallback"}},
           Case{"/model/ignore_merges", "1", {"model", "ignore_merges"}},
           Case{"/pre_tokenizer",
                R"({"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, {"type": "ByteLevel"}]})",
                {"pretokenizers[0]", "Split or Digits", "Punctuation"}},
           Case{"/pre_tokenizer",
                R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": false},
{"type": "ByteLevel", "add_prefix_space": false}]})",
                {"pretokenizers[0]", "individual_digits"}},
           Case{"/pre_tokenizer",
                R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})",
                {"pretokenizers[1]", "use_regex"}},
           Case{"/pre_tokenizer",
                R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "a+"},
"behavior": "Isolated", "invert": false}, {"type": "ByteLevel"}]})",
                {"pretokenizers[0]: pattern", "'Regex'", "'a+'"}},
           Case{"/pre_tokenizer",
                R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "a+"},
"behavior": "Removed", "invert": false}, {"type": "ByteLevel"}]})",
                {"pretokenizers[0]", "Isolated", "Removed"}},
           Case{"/post_processor",
                R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}},
{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<x>": {"id": "<x>", "ids": [1, 2], "tokens": []}}})",
                {"post_processor", "special_tokens", "'ids'"}},
           Case{"/post_processor",
                R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}},
{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<x>": {"id": "<x>", "ids": [64], "tokens": []}}})",
                {"id 64, which texts begin with, is no added token"}},
           Case{"/model/continuing_subword_prefix", R"("##")", {"model", "continuing_subword_prefix"}},
           Case{"/model/end_of_word_suffix", R"("</w>")", {"model", "end_of_word_suffix"}},
           Case{"/model/merges", "null", {"model", "key 'merges' is missing"}},
           Case{"/model/typo", "1", {"model", "unknown key 'typo'"}},
           Case{"/typo", "1", {"unknown key 'typo'"}},
           Case{"/model/vocab", "[]", {"vocab", "object"}},
           Case{"/model/vocab/a", "-1", {"vocab", "'a'", "whole number", "-1"}},
           Case{"/model/vocab/a", "64.5", {"vocab", "'a'", "64.5"}},
           Case{"/model/vocab/a", R"("64")", {"vocab", "'a'", "whole number"}},
           Case{"/model/vocab/a", "65", {"vocab", "'a' and 'b' have the same id 65"}},
           Case{"/model/vocab/a", "18446744073709551615", {"vocab", "0 to 258 without a hole", "18446744073709551615"}},
           Case{"/model/vocab/a", "259", {"vocab", "0 to 258 without a hole", "259 for 'a'"}},
           Case{"/model/vocab/new", "4294967296", {"vocab", "without a hole", "4294967296"}},
           Case{"/model/vocab/n w", "259", {"vocab", "'n w' of id 259", "stands for no byte"}},
           Case{"/model/vocab/", "259", {"id 259 is empty"}},
           Case{"/model/merges", "{}", {"merges", "list"}},
           Case{"/model/merges/0", "1", {"merges[0]", "got '1'"}},
           Case{"/model/merges/0", R"(["a"])", {"merges[0]"}},
           Case{"/model/merges/0", R"(["a", 1])", {"merges[0]"}},
           Case{"/model/merges/1", R"("a")", {"merges[1]", "'a'"}},
           Case{"/model/merges/1", R"("a  b")", {"merges[1]"}},
           Case{"/model/merges/1", R"("qq a")", {"merges[1]", "'qq' is no token"}},
           Case{"/model/merges/1", R"(["a", "a"])", {"merges[1]", "'aa'", "no token"}},
           Case{"/model/merges/1", R"("a b")", {"merges 0 and 1"}},
           Case{"/added_tokens", "{}", {"added_tokens", "list"}},
           Case{"/added_tokens/0", "1", {"added_tokens[0]", "an object"}},
           Case{"/added_tokens/0/single_word", "true", {"added_tokens[0]", "single_word"}},
           Case{"/added_tokens/0/lstrip", R"("no")", {"added_tokens[0]", "lstrip"}},
           Case{"/added_tokens/0/id", "-1", {"added_tokens[0]", "'id'"}},
           Case{"/added_tokens/0/id", "99999999999", {"added_tokens[0]", "'id'"}},
           Case{"/added_tokens/0/id", "259", {"0 to 258 without a hole", "259 for the added token '<x>'"}},
           Case{"/added_tokens/0/id", "64", {"'a' and '<x>' have the same id 64"}},
           Case{"/added_tokens/0/content", "5", {"added_tokens[0]", "content"}},
           Case{"/added_tokens/0/content", R"("")", {"is empty"}},
           Case{"/added_tokens/0/content", R"("ab")", {"'ab' has the id 258 and in the vocabulary 256"}},
           Case{"/added_tokens/0/typo", "5", {"added_tokens[0]", "typo"}},
       }) {
    Json json = small_json();
    json[Json::json_pointer(one.pointer)] = parse_json(one.value, "value");
    const std::string path = written(folder, json);
    const std::string message = message_of<Error>([&] { BpeTokenizer::load(path); });
    EXPECT_EQ(message.rfind(path, 0), 0U) << one.pointer << " " << one.value << ": " << message;
    for (const std::string& part : one.parts)
      EXPECT_TRUE(contains(message, part)) << one.pointer << " " << one.value << ": " << message;
  }
}

TEST(BpeFile, SplitsAndBeginningsAreKept) {
  const TemporaryFolder folder;
  std::set<std::string> names;
  for (const BpeSplit split : {BpeSplit::gpt2, BpeSplit::digits, BpeSplit::llama3, BpeSplit::qwen2})
    for (const bool ignores : {false, true})
      for (const bool begins : {false, true}) {
        BpeModel model = toy_model({{"a", "b"}, {" ", "ab"}});
        const TokenId mark = add_token(model, "<x>").id;
        model.split = split;
        model.ignore_merges = ignores;
        if (begins) model.begin = mark;
        const BpeTokenizer tokenizer(model);
        const auto again = BpeTokenizer::load(folder.write("tokenizer.json", tokenizer.json()));
        EXPECT_EQ(again->name(), tokenizer.name());
        EXPECT_TRUE(again->model().split == split && again->model().ignore_merges == ignores);
        EXPECT_EQ(again->model().begin, model.begin);
        names.insert(tokenizer.name());
      }
  EXPECT_EQ(names.size(), 16U);
}

// A template in a Sequence, as Llama 3 has it, begins texts; one that ends them too, or none, is passed over.
TEST(BpeFile, ATemplateBeginsTexts) {
  const TemporaryFolder folder;
  Json json = small_json();
  const auto with = [&](const char* single) {
    json["post_processor"] = parse_json(
        str(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": )",
            single, R"(, "pair": [], "special_tokens": {"<x>": {"id": "<x>", "ids": [258], "tokens": ["<x>"]}}}]})"),
        "template");
    return BpeTokenizer::load(written(folder, json));
  };
  const char* mark = R"({"SpecialToken": {"id": "<x>", "type_id": 0}})";
  const char* whole = R"({"Sequence": {"id": "A", "type_id": 0}})";
  const auto begins = with(str("[", mark, ",", whole, "]").c_str());
  EXPECT_EQ(begins->encode("ab"), Ids({258, 256}));
  EXPECT_EQ(begins->encode(""), Ids({258}));
  EXPECT_EQ(begins->decode(begins->encode(" ab")), " ab");
  EXPECT_EQ(begins->text_of(258), "");
  for (const std::string& other :
       {str("[", whole, "]"), str("[", whole, ",", mark, "]"), str("[", mark, ",", whole, ",", mark, "]"),
        str("[", mark, ",", mark, ",", whole, "]")})
    EXPECT_EQ(with(other.c_str())->encode("ab"), Ids({256})) << other;
}

// A normalizer NFC makes texts and added tokens with `normalized` NFC; others are sought in the raw text.
TEST(BpeFile, NfcIsAppliedBetweenAddedTokens) {
  const TemporaryFolder folder;
  Json json = small_json();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"].push_back({{"id", 259}, {"content", "e\xCC\x81x"}, {"normalized", true}});
  json["added_tokens"].push_back({{"id", 260}, {"content", "e\xCC\x81y"}, {"normalized", false}});
  const auto tokenizer = BpeTokenizer::load(written(folder, json));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ae\xCC\x81 \xC3\xA9")), "a\xC3\xA9 \xC3\xA9");
  EXPECT_EQ(tokenizer->encode("\xC3\xA9xe\xCC\x81x"), Ids({259, 259}));
  EXPECT_EQ(tokenizer->encode("e\xCC\x81y"), Ids({260}));
  EXPECT_EQ(tokenizer->encode("\xC3\xA9y").size(), 3U);
  EXPECT_EQ(BpeTokenizer::load(folder.write("tokenizer.json", tokenizer->json()))->name(), tokenizer->name());
  json["normalizer"] = nullptr;
  EXPECT_NE(BpeTokenizer::load(written(folder, json))->name(), tokenizer->name());
}

TEST(BpeFile, PassesOverWhatDoesNotMatter) {
  const TemporaryFolder folder;
  const std::string name = BpeTokenizer::load(written(folder, small_json()))->name();
  Json json = small_json();
  json["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"<s>", 0}}};
  json["decoder"] = nullptr;
  json["model"]["unk_token"] = "<x>";  // every byte has its token
  json["model"]["dropout"] = 0.0;
  json["model"]["fuse_unk"] = true;
  json["model"].erase("type");
  json["pre_tokenizer"].erase("use_regex");
  json["pre_tokenizer"].erase("trim_offsets");
  EXPECT_EQ(BpeTokenizer::load(written(folder, json))->name(), name);
}

TEST(BpeFile, RefusesFilesThatAreNone) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::string& path) { return message_of<Error>([&] { BpeTokenizer::load(path); }); };
  EXPECT_TRUE(contains(refusal(folder.path("missing.json")), "missing.json"));
  EXPECT_TRUE(contains(refusal(folder.path()), "expected tokenizer.json"));
  const std::string whole = json_text(small_json());
  for (const std::string& content :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("\xFF\xFE"),
        std::string("{}"), whole.substr(0, whole.size() / 2), whole + "x", std::string("{\"model\": \"\xFF\"}")}) {
    const std::string path = folder.write("tokenizer.json", content);
    const std::string message = refusal(path);
    EXPECT_TRUE(contains(message, path)) << message;
  }
  Json json = small_json();
  json["model"]["vocab"].erase("a");
  json["model"]["merges"] = Json::array();
  json["model"]["vocab"]["new"] = 64;
  EXPECT_TRUE(contains(refusal(written(folder, json)), "a token for every byte")) << refusal(written(folder, json));
  EXPECT_TRUE(
      contains(refusal(folder.write("tokenizer.json", R"({"model": {"vocab": {"a": 0, "a": 1}}})")), "duplicate"));
}

// ---- Tokenizers of the field
// -----------------------------------------------------------------------------------------

TEST(BpeOfTheField, Gpt2AgreesWithItsReferenceIds) {
  const auto folder = shared_data("models/tokenizers/gpt2"),
             base = shared_data("models/ggml-vocab/ggml-vocab-gpt-2.gguf");
  if (!folder || !base) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto gpt2 = BpeTokenizer::load(*folder);
  EXPECT_EQ(gpt2->vocabulary_size(), 50257U);
  EXPECT_EQ(gpt2->model().merges.size(), 50000U);
  const auto cases = ggml_cases(*base);
  EXPECT_EQ(cases.size(), 46U);
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(gpt2->encode(text), ids) << text;
    EXPECT_EQ(gpt2->decode(ids), text);
  }
}

struct Expected {
  std::string text;
  Ids gpt2, phi2, roberta;
};

// Ids that Hugging Face's tokenizers 0.23.3 gives, without the tokens of a template.
const std::vector<Expected>& expected_ids() {
  static const std::vector<Expected> all = {
      {"I'll DON'T don't we'Ve",
       {40, 1183, 23917, 6, 51, 836, 470, 356, 6, 26979},
       {40, 1183, 23917, 6, 51, 836, 470, 356, 6, 26979},
       {100, 581, 24980, 108, 565, 218, 75, 52, 108, 30660}},
      {"caf\xC3\xA9 e\xCC\x81tude",
       {66, 1878, 2634, 304, 136, 223, 83, 2507},
       {66, 1878, 2634, 304, 136, 223, 83, 2507},
       {438, 2001, 1140, 364, 44025, 10172, 90, 6343}},
      {"\xD9\xA3\xD9\xA4\xD9\xA5 \xE0\xB9\x91\xE0\xB9\x92 \xE2\x85\xA7 \xC2\xBD",
       {149, 96, 149, 97, 149, 98, 220, 31479, 239, 31479, 240, 2343, 227, 100, 25208},
       {149, 96, 149, 97, 149, 98, 220, 31479, 239, 31479, 240, 2343, 227, 100, 25208},
       {26068, 2469, 26068, 10470, 26068, 8210, 1437, 42348, 3602, 42348, 10659, 14333, 5782, 6248, 18430}},
      {"\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E \xE3\x83\x86\xE3\x82\xAD\xE3\x82\xB9\xE3\x83\x88",
       {33768, 98, 17312, 105, 45739, 252, 14524, 228, 25084, 43302},
       {33768, 98, 17312, 105, 45739, 252, 14524, 228, 25084, 43302},
       {47954, 8210, 44636, 11582, 48537, 17772, 48695, 27819, 49587, 49615}},
      {"a\xC2\xA0"
       "b\xE3\x80\x80"
       "c\xE2\x80\xA8",
       {64, 1849, 65, 5099, 222, 66, 447, 101},
       {64, 1849, 65, 5099, 222, 66, 447, 101},
       {102, 50141, 428, 48516, 7471, 438, 17, 11423}},
      {std::string("x\x00y\x1C z", 6),
       {87, 188, 88, 216, 1976},
       {87, 188, 88, 216, 1976},
       {1178, 50108, 219, 50136, 992}},
      {"\xE1\xB2\x89\xE1\xB2\x8A ok",
       {157, 110, 231, 157, 110, 232, 12876},
       {157, 110, 231, 157, 110, 232, 12876},
       {1376, 14292, 23171, 1376, 14292, 27969, 15983}},
      {"trailing   ", {9535, 4386, 220, 220, 220}, {9535, 4386, 50285}, {9738, 7022, 1437, 1437, 1437}},
      {"  two\n\n  lines\r\n",
       {220, 734, 628, 220, 3951, 201, 198},
       {50286, 11545, 628, 50286, 6615, 201, 198},
       {1437, 80, 50140, 1437, 2301, 50121, 50118}},
      {"def f(x):\n        return x\n\t\t\tpass",
       {4299, 277, 7, 87, 2599, 198, 220, 220, 220, 220, 220, 220, 220, 1441, 2124, 198, 197, 197, 197, 6603},
       {4299, 277, 7, 87, 2599, 198, 50280, 7783, 2124, 198, 50293, 6603},
       {9232, 856,  1640, 1178, 3256, 50118, 1437,  1437,  1437,  1437,
        1437, 1437, 1437, 671,  3023, 50118, 50117, 50117, 50117, 10212}},
      {"a<|endoftext|>b <mask>  </s>",
       {64, 27, 91, 437, 1659, 5239, 91, 29, 65, 1279, 27932, 29, 220, 7359, 82, 29},
       {64, 50256, 65, 1279, 27932, 29, 50286, 3556, 82, 29},
       {102, 41552, 15483, 1397, 1116, 29015, 15483, 15698, 428, 50264, 1437, 1437, 2}},
      {"         \t\t  x",
       {220, 220, 220, 220, 220, 220, 220, 220, 220, 197, 197, 220, 2124},
       {50279, 50294, 50286, 87},
       {1437, 1437, 1437, 1437, 1437, 1437, 1437, 1437, 1437, 50117, 50117, 1437, 3023}},
  };
  return all;
}

TEST(BpeOfTheField, Gpt2Phi2AndRobertaAgreeWithHuggingFace) {
  const auto gpt2 = shared_data("models/tokenizers/gpt2"), phi2 = shared_data("models/tokenizers/phi-2"),
             roberta = shared_data("models/tokenizers/roberta-base/tokenizer.json");
  if (!gpt2 || !phi2 || !roberta) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto first = BpeTokenizer::load(*gpt2), second = BpeTokenizer::load(*phi2),
             third = BpeTokenizer::load(*roberta);
  EXPECT_EQ(second->vocabulary_size(), 50295U);
  EXPECT_EQ(third->vocabulary_size(), 50265U);
  for (const Expected& one : expected_ids()) {
    EXPECT_EQ(first->encode(one.text), one.gpt2) << one.text;
    EXPECT_EQ(second->encode(one.text), one.phi2) << one.text;
    EXPECT_EQ(third->encode(one.text), one.roberta) << one.text;
    EXPECT_EQ(first->decode(one.gpt2), one.text);
    EXPECT_EQ(second->decode(one.phi2), one.text);
  }
  // The reader's own files mean the same.
  const TemporaryFolder folder;
  for (const auto& tokenizer : {first, second, third})
    EXPECT_EQ(BpeTokenizer::load(folder.write("tokenizer.json", tokenizer->json()))->name(), tokenizer->name());
}

struct FamilyCase {
  BpeSplit split;
  std::vector<Ids> ids;
  std::vector<std::pair<std::string, Digest>> files;
};

// GPT-2's vocabulary cut by the expressions of other families, in tokenizers 0.23.3.
TEST(BpeOfTheField, OtherFamiliesAgreeWithHuggingFace) {
  const auto gpt2 = shared_data("models/tokenizers/gpt2"), shared = shared_data("text");
  if (!gpt2 || !shared) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const std::string texts[] = {"a1234567 b 12.5 \xD9\xA3\xD9\xA4\xD9\xA5\xD9\xA6", "  two\n\n  lines\r\n \r\n x",
                               "!!word (x) ...\n\n#a <tag>"};
  const std::vector<FamilyCase> cases = {
      {BpeSplit::llama3,
       {{64, 10163, 29228, 22, 275, 220, 1065, 13, 20, 220, 149, 96, 149, 97, 149, 98, 149, 99},
        {220, 734, 628, 220, 3951, 201, 198, 220, 201, 198, 2124},
        {3228, 4775, 357, 87, 8, 2644, 628, 2, 64, 1279, 12985, 29}},
       {{"extra/tinyshakespeare.txt", {29909, "8a85836cf617a767"}},
        {"extra/udhr/rus.txt", {13605, "a4aa6f9bbf75451b"}},
        {"extra/udhr/vie.txt", {12253, "080c67e3d7456a26"}},
        {"extra/udhr/hin.txt", {18571, "db38ba889885302c"}}}},
      {BpeSplit::qwen2,
       {{64, 16, 17, 18, 19, 20, 21, 22, 275, 220, 16, 17, 13, 20, 220, 149, 96, 149, 97, 149, 98, 149, 99},
        {220, 734, 628, 220, 3951, 201, 198, 220, 201, 198, 2124},
        {3228, 4775, 357, 87, 8, 2644, 628, 2, 64, 1279, 12985, 29}},
       {{"extra/tinyshakespeare.txt", {29909, "8a85836cf617a767"}},
        {"extra/udhr/rus.txt", {13631, "5b7802d28d96c1ae"}},
        {"extra/udhr/vie.txt", {12280, "dbcdc32cb9c1e3b6"}},
        {"extra/udhr/hin.txt", {18571, "db38ba889885302c"}}}},
      {BpeSplit::digits,
       {{64, 16, 17, 18, 19, 20, 21, 22, 275, 220, 16, 17, 13, 20, 220, 149, 96, 149, 97, 149, 98, 149, 99},
        {220, 734, 628, 220, 3951, 201, 198, 220, 201, 198, 2124},
        {3228, 4775, 357, 87, 8, 2644, 198, 198, 2, 64, 1279, 12985, 29}},
       {{"extra/tinyshakespeare.txt", {30645, "fc923d11527f1906"}},
        {"extra/udhr/rus.txt", {13631, "5b7802d28d96c1ae"}},
        {"extra/udhr/vie.txt", {12280, "dbcdc32cb9c1e3b6"}},
        {"extra/udhr/hin.txt", {18571, "db38ba889885302c"}}}}};
  BpeModel model = BpeTokenizer::load(*gpt2)->model();
  for (const FamilyCase& one : cases) {
    model.split = one.split;
    const BpeTokenizer tokenizer(model);
    for (std::size_t i = 0; i < one.ids.size(); ++i) EXPECT_EQ(tokenizer.encode(texts[i]), one.ids[i]) << texts[i];
    for (const auto& [file, digest] : one.files)
      EXPECT_EQ(digest_of(tokenizer.encode(read_file(*shared + "/" + file).substr(0, 100000))), digest) << file;
  }
}

// tokenizers 0.23.3. Its normalizer is NFC, and it has no tokens for bytes that UTF-8 never has.
TEST(BpeOfTheField, GptNeoXAgreesWithHuggingFace) {
  const auto folder = shared_data("models/tokenizers/gpt-neox-20b"), text = shared_data("text");
  if (!folder || !text) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto tokenizer = BpeTokenizer::load(*folder);
  EXPECT_EQ(tokenizer->vocabulary_size(), 50277U);
  EXPECT_EQ(tokenizer->encode("cafe\xCC\x81 \xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8 a\xCC\xA3\xCC\x87\xCC\x81"),
            Ids({68, 2320, 860, 42984, 212, 209, 30110, 136, 218, 136, 212}));
  EXPECT_EQ(tokenizer->encode("a   b<|endoftext|>\tx"), Ids({66, 50275, 67, 0, 186, 89}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("e\xCC\x81\xFF")), "\xC3\xA9\xEF\xBF\xBD");
  const std::pair<const char*, Digest> files[] = {{"extra/tinyshakespeare.txt", {30790, "1d1bb3f2bcb01028"}},
                                                  {"extra/udhr/spa.txt", {3517, "45052f4c972f6bcc"}},
                                                  {"extra/udhr/vie.txt", {7586, "bbc1c71c2a45eec0"}},
                                                  {"extra/udhr/hin.txt", {11655, "874b75dd6a15eea0"}},
                                                  {"extra/udhr/amh.txt", {16258, "62ef7784de575cc8"}}};
  for (const auto& [file, digest] : files)
    EXPECT_EQ(digest_of(tokenizer->encode(read_file(*text + "/" + file).substr(0, 100000))), digest) << file;
  const TemporaryFolder kept;
  EXPECT_EQ(BpeTokenizer::load(kept.write("tokenizer.json", tokenizer->json()))->name(), tokenizer->name());
}

TEST(BpeOfTheField, OthersAreRefusedByName) {
  const auto folder = shared_data("models/tokenizers");
  if (!folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto refusal = [&](const std::string& name) {
    return message_of<Error>([&] { BpeTokenizer::load(*folder + "/" + name); });
  };
  EXPECT_TRUE(contains(refusal("torchtune-tiny/tiny_bpe_tokenizer.json"), "a token for every byte"));
  EXPECT_TRUE(contains(refusal("t5-small"), "t5-small/tokenizer.json: model: key 'merges' is missing"));
  EXPECT_TRUE(contains(refusal("bert-base-cased"), "expected tokenizer.json"));
  const TemporaryFolder copy;
  copy.write("vocab.json", read_file(*folder + "/torchtune-tiny/tiny_bpe_vocab.json"));
  copy.write("merges.txt", read_file(*folder + "/torchtune-tiny/tiny_bpe_merges.txt"));
  const std::string message = message_of<Error>([&] { BpeTokenizer::load(copy.path()); });
  EXPECT_TRUE(contains(message, "a token for every byte")) << message;
}

// Real text: everything comes back, and the naive algorithm agrees on some of it.
TEST(BpeOfTheField, Gpt2OnRealText) {
  const auto folder = shared_data("models/tokenizers/gpt2"), text = shared_data("text/extra/udhr");
  if (!folder || !text) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto gpt2 = BpeTokenizer::load(*folder);
  for (const std::string& file : list_files(*text, {".txt"})) {
    const std::string whole = read_file(file);
    ASSERT_EQ(gpt2->decode(gpt2->encode(whole)), whole) << file;
  }
}

}  // namespace
}  // namespace torsor
