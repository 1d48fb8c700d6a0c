// BPE with bytes for what has no token: ids that Hugging Face's tokenizers gives, texts that come back, refusals.
#include "torsor/data/fallback_bpe.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "tests/data/fallback_toy.h"
#include "tests/data/golden_ids.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/json.h"
#include "torsor/base/utf8.h"
#include "torsor/data/sentencepiece_model.h"

namespace torsor {
namespace {

using namespace data_test;
using Prefix = FallbackBpeModel::Prefix;

const std::vector<std::string>& toy_texts() {
  static const std::vector<std::string> texts = {"",
                                                 "a",
                                                 " ab",
                                                 "ab  ab b",
                                                 "\xC3\xA9\xE2\x82\xAC\n",
                                                 "a<x>b <x> ab",
                                                 "<y>a b",
                                                 "a b<y> a",
                                                 "ab</s>ab",
                                                 "\xE2\x96\x81"
                                                 "a"};
  return texts;
}

FallbackBpeModel spaced(FallbackBpeModel model, Prefix prefix, bool early, bool split = false) {
  model.prefix = prefix;
  model.early_spaces = early;
  model.split_words = split;
  return model;
}

// tokenizers 0.23.3 on the same vocabulary, merges and added tokens.
TEST(FallbackBpe, AgreesWithHuggingFace) {
  struct Case {
    const char* what;
    FallbackBpeModel model;
    std::vector<Ids> ids;  // of toy_texts()
  };
  FallbackBpeModel ignoring = toy_fallback({{"a", "b"}});
  ignoring.ignore_merges = true;
  const std::vector<Case> cases = {{"Prepend and Replace",
                                    toy_fallback(),
                                    {{1},
                                     {1, 264},
                                     {1, 259, 265},
                                     {1, 265, 259, 265, 259, 261},
                                     {1, 259, 262, 229, 133, 175, 13},
                                     {1, 264, 268, 259, 261, 259, 268, 265},
                                     {1, 269, 260, 259, 261},
                                     {1, 270, 63, 124, 65, 264},
                                     {1, 265, 2, 265},
                                     {1, 259, 264}}},
                                   {"Replace",
                                    spaced(toy_fallback(), Prefix::none, true),
                                    {{1},
                                     {1, 260},
                                     {1, 265},
                                     {1, 263, 259, 265, 259, 261},
                                     {1, 262, 229, 133, 175, 13},
                                     {1, 260, 268, 261, 259, 268, 263},
                                     {1, 269, 270},
                                     {1, 270, 269, 264},
                                     {1, 263, 2, 263},
                                     {1, 264}}},
                                   {"Metaspace always",
                                    spaced(toy_fallback(), Prefix::each_bare, false),
                                    {{1},
                                     {1, 264},
                                     {1, 265},
                                     {1, 265, 259, 265, 259, 261},
                                     {1, 259, 262, 229, 133, 175, 13},
                                     {1, 264, 268, 259, 261, 259, 268, 265},
                                     {1, 269, 270},
                                     {1, 270, 269, 264},
                                     {1, 265, 2, 265},
                                     {1, 264}}},
                                   {"Metaspace first, split",
                                    spaced(toy_fallback(), Prefix::first_if_bare, false, true),
                                    {{1},
                                     {1, 264},
                                     {1, 265},
                                     {1, 265, 259, 265, 259, 261},
                                     {1, 259, 262, 229, 133, 175, 13},
                                     {1, 264, 268, 261, 259, 268, 263},
                                     {1, 269, 270},
                                     {1, 270, 269, 264},
                                     {1, 265, 2, 263},
                                     {1, 264}}},
                                   {"Metaspace never",
                                    spaced(toy_fallback(), Prefix::none, false),
                                    {{1},
                                     {1, 260},
                                     {1, 265},
                                     {1, 263, 259, 265, 259, 261},
                                     {1, 262, 229, 133, 175, 13},
                                     {1, 260, 268, 261, 259, 268, 263},
                                     {1, 269, 270},
                                     {1, 270, 269, 264},
                                     {1, 263, 2, 263},
                                     {1, 264}}},
                                   {"a merge across words",
                                    toy_fallback({{"b", "_"}, {"a", "b"}, {"_", "a"}, {"_", "ab"}, {"_", "_"}}),
                                    {{1},
                                     {1, 264},
                                     {1, 259, 265},
                                     {1, 264, 267, 264, 267, 261},
                                     {1, 259, 262, 229, 133, 175, 13},
                                     {1, 264, 268, 259, 267, 268, 265},
                                     {1, 269, 260, 259, 261},
                                     {1, 270, 63, 124, 65, 264},
                                     {1, 265, 2, 265},
                                     {1, 259, 264}}},
                                   {"ignore_merges",
                                    ignoring,
                                    {{1},
                                     {1, 264},
                                     {1, 259, 259, 263},
                                     {1, 259, 263, 259, 259, 263, 259, 261},
                                     {1, 259, 262, 229, 133, 175, 13},
                                     {1, 264, 268, 259, 261, 259, 268, 265},
                                     {1, 269, 260, 259, 261},
                                     {1, 270, 63, 124, 65, 259, 260},
                                     {1, 265, 2, 265},
                                     {1, 259, 259, 260}}}};
  std::set<std::string> names;
  for (const Case& one : cases) {
    const FallbackBpeTokenizer tokenizer(one.model);
    ASSERT_EQ(one.ids.size(), toy_texts().size());
    for (std::size_t i = 0; i < one.ids.size(); ++i)
      EXPECT_EQ(tokenizer.encode(toy_texts()[i]), one.ids[i]) << one.what << ": " << toy_texts()[i];
    const auto again = FallbackBpeTokenizer::parse(tokenizer.json(), "again");
    EXPECT_EQ(again->name(), tokenizer.name()) << one.what;
    for (const std::string& text : toy_texts()) EXPECT_EQ(again->encode(text), tokenizer.encode(text)) << one.what;
    names.insert(tokenizer.name());
  }
  EXPECT_EQ(names.size(), cases.size());
}

TEST(FallbackBpe, TextsComeBack) {
  const std::string bytes = "a\xFF\xC3\xE2\x96" + std::string(1, '\0') + "\xED\xA0\x80 b\xF0\x9F\x9A\x80";
  for (const FallbackBpeModel& model : {toy_fallback(), spaced(toy_fallback(), Prefix::none, true),
                                        spaced(toy_fallback(), Prefix::none, false, true)}) {
    const FallbackBpeTokenizer tokenizer(model);
    for (const std::string& text : {std::string(), std::string(" "), std::string("  ab b  "), bytes, " " + bytes}) {
      const Ids ids = tokenizer.encode(text);
      EXPECT_EQ(tokenizer.decode(ids), text) << quote(text);
      std::string joined;
      for (const TokenId id : ids) joined += tokenizer.text_of(id);
      EXPECT_EQ(joined, model.prefix == Prefix::none || text.empty() ? text : " " + text);
    }
    // Marks of the vocabulary come back as themselves, the beginning as nothing.
    EXPECT_EQ(tokenizer.decode(Ids{2, 268, 0}), "</s><x><unk>");
    EXPECT_EQ(tokenizer.decode(Ids{1, 1}), "");
    EXPECT_TRUE(contains(message_of<Error>([&] {
                           tokenizer.decode(Ids{1, 271});
                         }),
                         "ids below 271, got 271 at index 1"));
    EXPECT_TRUE(contains(message_of<Error>([&] { tokenizer.text_of(271); }), "ids below 271"));
  }
  // Metaspace puts no space before a text that has one, so decoding takes one too many.
  const FallbackBpeTokenizer bare(spaced(toy_fallback(), Prefix::each_bare, false));
  EXPECT_EQ(bare.decode(bare.encode("ab")), "ab");
  EXPECT_EQ(bare.decode(bare.encode(" ab")), "ab");
}

TEST(FallbackBpe, RefusesModelsThatDoNotHoldTogether) {
  const auto refusal = [](const std::function<void(FallbackBpeModel&)>& change) {
    FallbackBpeModel model = toy_fallback();
    change(model);
    return message_of<Error>([&] { FallbackBpeTokenizer tokenizer(model); });
  };
  using Model = FallbackBpeModel;
  EXPECT_TRUE(contains(refusal([](Model& m) { m.vocabulary[13] = "<0x0a>"; }), "none named '<0x0A>'"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.vocabulary[261] = "a"; }), "ids 260 and 261 are both 'a'"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.vocabulary[261] = ""; }), "the token of id 261 is empty"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.merges[0].result = 262; }), "merge 0 of 'a' and 'b' cannot make"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.merges[1] = m.merges[0]; }), "merges 0 and 1 are of the same"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.merges[0].right = 999; }), "merge 0 has an id outside"));
  EXPECT_TRUE(
      contains(refusal([](Model& m) { m.added[0].id = 999; }), "does not stand in the vocabulary at its id 999"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.added.push_back(m.added[0]); }), "stands twice"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.vocabulary[268] = m.added[3].content = "\xFF"; }), "is not UTF-8"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.begin = 260; }), "id 260, which texts begin with, is no added token"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.split_words = true; }), "no tokenizer.json"));
  EXPECT_TRUE(contains(refusal([](Model& m) { m.early_spaces = false; }), "no tokenizer.json"));
}

TEST(FallbackBpe, RefusesFilesByKey) {
  struct Case {
    const char* pointer;
    const char* value;
    std::vector<std::string> parts;
  };
  const std::string replace = R"({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})";
  const std::string twice = R"({"type": "Sequence", "normalizers": [)" + replace + "," + replace + "]}";
  for (const Case& one : {
           Case{"/normalizer", "null", {"expected a normalizer or a pre_tokenizer"}},
           Case{"/normalizer", R"({"type": "NFKC"})", {"normalizer", "found 'NFKC'"}},
           Case{"/normalizer", R"({"type": "Prepend", "prepend": "\u2581"})", {"normalizer", "expected a Replace"}},
           Case{"/normalizer", R"({"type": "Sequence", "normalizers": []})", {"normalizer", "expected a Replace"}},
           Case{"/normalizer", twice.c_str(), {"normalizers[1]", "once", "Replace"}},
           Case{"/normalizer/normalizers/0/prepend", R"("_")", {"normalizers[0]", "'prepend' must be U+2581"}},
           Case{"/normalizer/normalizers/1/content", R"("_")", {"normalizers[1]", "'content' must be U+2581"}},
           Case{"/normalizer/normalizers/1/pattern", R"({"Regex": " "})", {"pattern", "'String'"}},
           Case{"/pre_tokenizer",
                R"({"type": "Whitespace"})",
                {"pre_tokenizer", "none beside a normalizer", "Whitespace"}},
           Case{"/pre_tokenizer", R"({"type": "Metaspace"})", {"pre_tokenizer", "none beside a normalizer"}},
           Case{"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}})", {"pre_tokenizer", "a space"}},
           Case{"/decoder", R"({"type": "ByteLevel"})", {"decoder", "found 'ByteLevel'"}},
           Case{"/decoder/decoders/0", R"({"type": "WordPiece"})", {"decoder", "found 'WordPiece'"}},
           Case{"/decoder/decoders/0",
                R"({"type": "Sequence", "decoders": []})",
                {"decoder", "a Sequence in a Sequence"}},
           Case{"/truncation", R"({"max_length": 5})", {"truncation"}},
           Case{"/model/type", R"("Unigram")", {"model", "Unigram"}},
           Case{"/model/byte_fallback", "false", {"model", "byte_fallback"}},
           Case{"/model/dropout", "0.5", {"model", "dropout"}},
           Case{"/model/end_of_word_suffix", R"("</w>")", {"model", "end_of_word_suffix"}},
           Case{"/model/typo", "1", {"model", "typo"}},
           Case{"/typo", "1", {"typo"}},
           Case{"/model/vocab/a", "99999999999", {"vocab", "without a hole", "99999999999"}},
           Case{"/model/vocab/a", "261", {"vocab", "same id 261"}},
           Case{"/model/vocab/<0x41>", "\"x\"", {"vocab", "whole number"}},
           Case{"/model/merges/0", R"("a zz")", {"merges[0]", "'zz' is no token"}},
           Case{"/model/merges/0", R"(["b", "b"])", {"merges[0]", "'bb'", "no token"}},
           Case{"/model/merges/1", R"("a b")", {"merges 0 and 1 are of the same two tokens"}},
           Case{"/added_tokens/0/id", "77", {"has the id 77 and in the vocabulary 0"}},
           Case{"/added_tokens/3/single_word", "true", {"added_tokens[3]", "single_word"}},
       }) {
    Json json = parse_json(FallbackBpeTokenizer(toy_fallback()).json(), "x");
    json[Json::json_pointer(one.pointer)] = parse_json(one.value, "value");
    const std::string message = message_of<Error>([&] { FallbackBpeTokenizer::parse(json_text(json), "toy.json"); });
    EXPECT_TRUE(message.starts_with("toy.json: ")) << one.pointer << ": " << message;
    for (const std::string& part : one.parts)
      EXPECT_TRUE(contains(message, part)) << one.pointer << " " << one.value << ": " << message;
  }
  Json json = parse_json(FallbackBpeTokenizer(spaced(toy_fallback(), Prefix::each_bare, false)).json(), "x");
  const auto refusal = [&](const char* key, const Json& value) {
    Json other = json;
    other["pre_tokenizer"][key] = value;
    return message_of<Error>([&] { FallbackBpeTokenizer::parse(json_text(other), "toy.json"); });
  };
  EXPECT_TRUE(contains(refusal("replacement", "_"), "pre_tokenizer: key 'replacement' must be U+2581"));
  EXPECT_TRUE(contains(refusal("prepend_scheme", "last"), "always, first or never, found 'last'"));
  EXPECT_TRUE(contains(refusal("add_prefix_space", false), "'add_prefix_space' is false"));
}

// Older files have no prepend_scheme: add_prefix_space tells, and words are split.
TEST(FallbackBpe, ReadsOlderMetaspace) {
  Json json = parse_json(FallbackBpeTokenizer(spaced(toy_fallback(), Prefix::each_bare, false, true)).json(), "x");
  const std::string always = FallbackBpeTokenizer::parse(json_text(json), "x")->name();
  json["pre_tokenizer"] =
      parse_json(R"({"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": true})", "x");
  EXPECT_EQ(FallbackBpeTokenizer::parse(json_text(json), "x")->name(), always);
  json["pre_tokenizer"]["add_prefix_space"] = false;
  EXPECT_EQ(FallbackBpeTokenizer::parse(json_text(json), "x")->model().prefix, Prefix::none);
}

/// Mistral's model as Hugging Face's converter makes a list of merges of it: for every piece each pair that makes it,
/// the best score first, of equal ones by the ids of the halves.
FallbackBpeModel converted(const SentencePieceModel& pieces) {
  FallbackBpeModel model;
  std::map<std::string, TokenId> ids;
  for (const auto& piece : pieces.pieces) {
    ids.emplace(piece.text, static_cast<TokenId>(model.vocabulary.size()));
    model.vocabulary.push_back(piece.text);
  }
  std::vector<std::pair<float, std::vector<BpeMerge>>> made;
  for (TokenId id = 0; id < pieces.pieces.size(); ++id) {
    const auto& piece = pieces.pieces[id];
    if (piece.kind == SentencePieceModel::Kind::control || piece.kind == SentencePieceModel::Kind::unknown)
      model.added.push_back({.id = id, .content = piece.text, .special = true});
    if (piece.kind != SentencePieceModel::Kind::normal) continue;
    std::vector<BpeMerge> all;
    for (std::size_t at = 1; at < piece.text.size(); ++at) {
      const auto left = ids.find(piece.text.substr(0, at)), right = ids.find(piece.text.substr(at));
      if (left != ids.end() && right != ids.end()) all.push_back({left->second, right->second, id});
    }
    std::sort(all.begin(), all.end(), [](const BpeMerge& a, const BpeMerge& b) {
      return std::pair(a.left, a.right) < std::pair(b.left, b.right);
    });
    made.emplace_back(piece.score, all);
  }
  std::stable_sort(made.begin(), made.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [score, merges] : made) model.merges.insert(model.merges.end(), merges.begin(), merges.end());
  return model;
}

// Both references agree here: tokenizers 0.23.3 on the converted file, and sentencepiece 0.2.3 on the model.
TEST(FallbackBpe, MistralAgreesWithBothReferences) {
  const auto file = shared_data("models/tokenizers/mistral-v1/tokenizer.model"), folder = shared_data("text");
  if (!file || !folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const FallbackBpeTokenizer direct(converted(parse_sentencepiece(read_file(*file), *file)));
  const auto tokenizer = FallbackBpeTokenizer::parse(direct.json(), "converted");
  EXPECT_EQ(tokenizer->name(), direct.name());
  EXPECT_EQ(tokenizer->vocabulary_size(), 32000U);
  for (const GoldenText& golden : golden_texts()) {
    const std::string text = golden_text(*folder, golden);
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(digest_of(ids), golden.mistral_v1) << golden.file;
    EXPECT_EQ(tokenizer->decode(ids), text) << golden.file;
  }
}

}  // namespace
}  // namespace torsor
