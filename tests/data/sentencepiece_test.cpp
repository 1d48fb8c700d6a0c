// SentencePiece through its library, beside what other programs give; and what a build without it says.
#include "torsor/data/sentencepiece.h"

#include <gtest/gtest.h>

#include "tests/data/golden_ids.h"
#include "tests/data/sentencepiece_toy.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/gguf.h"
#include "torsor/base/json.h"
#include "torsor/data/tokenizer_file.h"

namespace torsor {
namespace {

using namespace data_test;

/// Every test but one is about what the library does.
#define NEEDS_THE_LIBRARY \
  if (!has_sentencepiece()) GTEST_SKIP() << "this build has no SentencePiece"

BpeAddedToken added(TokenId id, const std::string& content) { return {.id = id, .content = content, .special = true}; }

TEST(SentencePiece, ABuildWithoutItSaysSo) {
  if (has_sentencepiece()) {
    EXPECT_EQ(SentencePieceTokenizer(toy_bpe()).vocabulary_size(), 265U);
  } else {
    const std::string message = message_of<Error>([] { SentencePieceTokenizer tokenizer(toy_bpe()); });
    EXPECT_TRUE(contains(message, "built without SentencePiece")) << message;
  }
}

TEST(SentencePiece, JoinsByScoreAndFallsBackToBytes) {
  NEEDS_THE_LIBRARY;
  const SentencePieceTokenizer tokenizer(toy_bpe());
  EXPECT_EQ(tokenizer.encode("ab a"), Ids({259, 262, 263}));  // "_" "ab" "_a": ab scores higher than _a
  EXPECT_EQ(tokenizer.encode("a  b"), Ids({263, 264, 261}));
  EXPECT_EQ(tokenizer.encode(""), Ids());
  EXPECT_EQ(tokenizer.encode(text("\xC3\xA9\0")), Ids({259, 3 + 0xC3, 3 + 0xA9, 3}));
  EXPECT_EQ(tokenizer.encode("<s>"), Ids({259, 3 + '<', 3 + 's', 3 + '>'}));  // a mark is no text
  for (const std::string one : {"", " ", "  a ", "ab\n\tba", "\xE4\xB8\xAD\xF0\x9F\x9A\x80", " a b"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(one)), one);
  // A byte that is no UTF-8 becomes U+FFFD.
  EXPECT_EQ(tokenizer.encode("a\xFF"), Ids({263, 3 + 0xEF, 3 + 0xBF, 3 + 0xBD}));
  EXPECT_EQ(tokenizer.decode(Ids({3 + 0xFF})), "\xFF");  // and yet every byte can be written
}

TEST(SentencePiece, TakesTheMostProbableCut) {
  NEEDS_THE_LIBRARY;
  const SentencePieceTokenizer tokenizer(toy_unigram());
  EXPECT_EQ(tokenizer.encode("a b"), Ids({7, 3, 5}));           // -2.5 - 2 - 3; "_b" alone has -9
  EXPECT_EQ(tokenizer.encode("  a \n"), Ids({7, 3, 0}));        // the line end is unknown, the spaces go
  EXPECT_EQ(tokenizer.encode("axxb c"), Ids({7, 0, 5, 3, 0}));  // what is unknown stands together
  EXPECT_EQ(tokenizer.decode(Ids({7, 3, 5})), "a b");
  EXPECT_EQ(tokenizer.decode(Ids({3, 3, 7})), "a");  // leading spaces all go
  EXPECT_EQ(tokenizer.decode(Ids({7, 0, 2, 4})), "a \xE2\x81\x87 a");
  EXPECT_THROW(tokenizer.decode(Ids({9})), Error);
  const std::string message = message_of<Error>([&] { tokenizer.decode(Ids({4, 9})); });
  EXPECT_TRUE(contains(message, "below 9, got 9 at index 1")) << message;
  EXPECT_EQ(tokenizer.text_of(7), " a");
}

TEST(SentencePiece, WordsOneByOneAreTheWholeText) {
  NEEDS_THE_LIBRARY;
  // The same pieces with one across a space, which scores so little that it is never taken: then texts stay whole.
  SentencePieceModel whole = toy_unigram();
  whole.pieces.push_back({"b\xE2\x96\x81", -1000});
  whole.characters = toy_table({{'\t', " "}, {'B', "bb"}});
  SentencePieceModel words = toy_unigram();
  words.characters = whole.characters;
  const SentencePieceTokenizer one(words), other(whole);
  for (const std::string part :
       {"a b ab aab", "\ta\t\tb ", " aBa\tB", "x y\tx", "a \xE2\x96\x81 b", "a\nb", "  ", "a \xFF b"})
    EXPECT_EQ(one.encode(part), other.encode(part)) << part;
}

TEST(SentencePiece, AfterALongTextWordsAreCutAsBefore) {
  NEEDS_THE_LIBRARY;
  // "ab" as one piece is better by far less than a sum of some thousand words can hold in float32.
  const SentencePieceTokenizer tokenizer(
      toy_pieces({{"_", -2000}, {"a", -3}, {"b", -3}, {"ab", -5.9995F}, {"_x", -1000}}));
  std::string text = "ab";
  Ids expected = {3, 6};
  for (int i = 0; i < 20000; ++i) {
    text += i % 10 == 9 ? " ab" : " x";
    if (i % 10 == 9)
      expected.insert(expected.end(), {3, 6});
    else
      expected.push_back(7);
  }
  EXPECT_EQ(tokenizer.encode(text), expected);
}

TEST(SentencePiece, NulIsUnknownBesideATable) {
  NEEDS_THE_LIBRARY;
  SentencePieceModel model = toy_unigram();
  model.characters = toy_table({{'\t', " "}});
  EXPECT_EQ(SentencePieceTokenizer(model).encode(text("a\0b")), Ids({7, 0, 5}));
}

TEST(SentencePiece, AddedTokensAndMarks) {
  NEEDS_THE_LIBRARY;
  SentencePieceOptions options;
  options.add_begin = true;
  options.added = {added(265, "<x>"), added(266, "<xy>"), added(1, "<s>")};
  options.added[0].lstrip = true;
  const SentencePieceTokenizer tokenizer(toy_bpe(), options);
  EXPECT_EQ(tokenizer.vocabulary_size(), 267U);
  EXPECT_EQ(tokenizer.encode(""), Ids({1}));
  EXPECT_EQ(tokenizer.encode("ab<xy>a"), Ids({1, 259, 262, 266, 263}));  // each text has a space before it
  EXPECT_EQ(tokenizer.encode("a <x><s>"), Ids({1, 263, 265, 1}));
  EXPECT_EQ(tokenizer.decode(Ids({1, 263, 265, 263})), "a<x> a");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab a")), "ab a");
  options.space_first_only = true;
  const SentencePieceTokenizer other(toy_bpe(), options);
  EXPECT_EQ(other.encode("ab<xy>a"), Ids({1, 259, 262, 266, 260}));
  EXPECT_EQ(other.decode(other.encode("ab<xy>a b")), "ab<xy>a b");
  EXPECT_NE(other.name(), tokenizer.name());
}

TEST(SentencePiece, RefusesOptionsThatDoNotFit) {
  NEEDS_THE_LIBRARY;
  const auto refusal = [](auto change) {
    SentencePieceOptions options;
    options.added = {added(265, "<x>")};
    change(options);
    return message_of<Error>([&] { SentencePieceTokenizer tokenizer(toy_bpe(), options); });
  };
  EXPECT_TRUE(contains(refusal([](auto& o) { o.added[0].id = 266; }), "go on at 265, got 266 for '<x>'"));
  EXPECT_TRUE(contains(refusal([](auto& o) { o.added[0].id = 260; }), "has the id 260 of the piece 'a'"));
  EXPECT_TRUE(contains(refusal([](auto& o) { o.added[0].content = ""; }), "id 265 is empty"));
  EXPECT_TRUE(contains(refusal([](auto& o) { o.added[0].content = "\xFF"; }), "is not UTF-8"));
  EXPECT_TRUE(contains(refusal([](auto& o) { o.added.push_back(added(265, "<y>")); }), "have the same id 265"));
  EXPECT_TRUE(contains(refusal([](auto& o) { o.add_begin = true, o.begin = "<bos>"; }), "'<bos>'"));
  EXPECT_TRUE(contains(refusal([](auto& o) { o.add_begin = true, o.begin = "a"; }), "another kind"));
  SentencePieceModel model = toy_bpe();
  model.decoded_characters = toy_table({{'B', "b"}});
  EXPECT_TRUE(contains(message_of<Error>([&] { SentencePieceTokenizer tokenizer(model); }), "denormalizer_spec"));
}

TEST(SentencePiece, FoldersAreKeptAndReadBack) {
  NEEDS_THE_LIBRARY;
  SentencePieceOptions options;
  options.add_begin = options.space_first_only = true;
  options.added = {added(2, "</s>"), added(265, "<x>")};
  options.added[1].rstrip = true;
  const SentencePieceTokenizer tokenizer(toy_bpe(), options);
  const TemporaryFolder folder;
  for (const TokenizerFile& file : tokenizer.files()) folder.write(file.name, file.content);
  const auto read = SentencePieceTokenizer::load(folder.path());
  EXPECT_EQ(read->name(), tokenizer.name());
  EXPECT_EQ(read->encode("a<x> a"), tokenizer.encode("a<x> a"));
  // The file alone has no options.
  const auto alone = SentencePieceTokenizer::load(folder.path() + "/tokenizer.model");
  EXPECT_EQ(alone->name(), SentencePieceTokenizer(toy_bpe()).name());
  EXPECT_EQ(alone->encode("a"), Ids({263}));
}

TEST(SentencePiece, FoldersOfHuggingFace) {
  NEEDS_THE_LIBRARY;
  const TemporaryFolder folder;
  folder.write("tokenizer.model", sentencepiece_bytes(toy_bpe()));
  EXPECT_EQ(SentencePieceTokenizer::load(folder.path())->encode("a"), Ids({263}));
  // Llama's class begins texts with <s>; added tokens come from the tokenizer.json beside it.
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer", "bos_token": {"content": "<s>"}})");
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "byte_fallback": true},
                                     "added_tokens": [{"id": 265, "content": "<x>", "special": true}]})");
  const auto llama = SentencePieceTokenizer::load(folder.path());
  EXPECT_EQ(llama->encode("a<x>"), Ids({1, 263, 265}));
  EXPECT_EQ(load_tokenizer(folder.path())->name(), llama->name());
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "legacy": false,
      "added_tokens_decoder": {"265": {"content": "<y>", "special": true}}})");
  EXPECT_EQ(SentencePieceTokenizer::load(folder.path())->encode("a<y>a"), Ids({263, 265, 260}));
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<y>"}}})");
  const std::string message = message_of<Error>([&] { SentencePieceTokenizer::load(folder.path()); });
  EXPECT_TRUE(contains(message, "tokenizer_config.json: added_tokens_decoder: x: expected an id")) << message;
}

/// A tokenizer.json of type Unigram with the pieces of toy_unigram().
Json unigram_json() {
  return parse_json(R"({"version": "1.0", "truncation": null, "padding": null,
"added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 2, "content": "</s>", "special": true},
                 {"id": 9, "content": "<extra>", "special": true}],
"normalizer": null, "post_processor": null,
"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "\u2581", "str_rep": "\u2581", "add_prefix_space": true}]},
"decoder": {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": true},
"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["<s>", 0], ["</s>", 0], ["\u2581", -2], ["a", -3],
    ["b", -3], ["ab", -4], ["\u2581a", -2.5], ["\u2581b", -9], ["<extra>", 0]]}})",
                    "unigram");
}

TEST(SentencePiece, ReadsUnigramFromJson) {
  NEEDS_THE_LIBRARY;
  const auto tokenizer = SentencePieceTokenizer::parse_json_text(json_text(unigram_json()), "t");
  EXPECT_EQ(tokenizer->encode(" a  b<extra>ab</s>"), Ids({7, 3, 5, 9, 7, 5, 2}));
  EXPECT_EQ(tokenizer->decode(Ids({7, 3, 5, 9, 2, 0})), "a b<extra><unk>");
  const TemporaryFolder folder;
  for (const TokenizerFile& file : tokenizer->files()) folder.write(file.name, file.content);
  EXPECT_EQ(load_tokenizer(folder.path())->name(), tokenizer->name());
  const auto refusal = [](auto change) {
    Json json = unigram_json();
    change(json);
    return message_of<Error>([&] { SentencePieceTokenizer::parse_json_text(json_text(json), "t"); });
  };
  EXPECT_EQ(refusal([](Json& j) { j["model"]["type"] = "BPE"; }), "t: model: key 'type' must be Unigram, found 'BPE'");
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"]["unk_id"] = nullptr; }), "unk_id"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"]["unk_id"] = 10; }), "'unk_id' is 10, and there are 10 pieces"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"]["vocab"][4] = "a"; }), "t: model: vocab[4]: expected a piece"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"]["vocab"] = 3; }), "t: model: vocab: expected a list"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"]["more"] = 3; }), "'more'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["normalizer"] = {{"type", "NFKC"}}; }), "Precompiled, found 'NFKC'"));
  EXPECT_TRUE(contains(refusal([](Json& j) {
                         j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "A"}};
                       }),
                       "is not base64"));
  EXPECT_TRUE(contains(refusal([](Json& j) {
                         j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAAAAAA"}};
                       }),
                       "t: SentencePiece: normalizer_spec: "));
  EXPECT_TRUE(
      contains(refusal([](Json& j) { j["pre_tokenizer"] = j["pre_tokenizer"]["pretokenizers"][1]; }), "Sequence"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["prepend_scheme"] = "first"; }),
                       "prepend_scheme"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = false; }),
                       "add_prefix_space"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["decoder"]["type"] = "Fuse"; }), "t: decoder"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["added_tokens"][1]["content"] = "x"; }), "of the piece '</s>'"));
}

// ---- Models of the field

struct Expected {
  std::string text;
  Ids mistral;  // sentencepiece 0.2.3
  std::string mistral_text;
  Ids english;
  std::string english_text;
  Ids t5;  // tokenizers 0.23.3
};

const std::vector<Expected>& expected_ids() {
  static const std::vector<Expected> all = {
      {"", {}, "", {}, "", {}},
      {" ", {259}, " ", {}, "", {}},
      {"  ", {2287}, "  ", {}, "", {}},
      {"Hello, world!",
       {22557, 28725, 1526, 28808},
       "Hello, world!",
       {151, 88, 21, 5, 887, 147},
       "Hello, world!",
       {8774, 6, 296, 55}},
      {" Hello  world  ",
       {28705, 22557, 28705, 1526, 259},
       " Hello  world  ",
       {151, 88, 21, 887},
       "Hello world",
       {8774, 296}},
      {"H\303\251llo W\303\266rld",
       {382, 28797, 584, 28709, 394, 2024, 417},
       "H\303\251llo W\303\266rld",
       {4, 165, 0, 88, 21, 4, 321, 0, 30, 31, 17},
       "H \342\201\207 llo W \342\201\207 rld",
       {454, 154, 195, 32, 549, 4446, 40, 26}},
      {"<s> a </s><unk>b",
       {523, 28713, 28767, 264, 1867, 28713, 3409, 2060, 28767, 28726},
       "<s> a </s><unk>b",
       {4, 0, 8, 0, 11, 4, 0, 8, 0, 160, 46, 0, 66},
       " \342\201\207 s \342\201\207  a  \342\201\207 s \342\201\207 unk \342\201\207 b",
       {3, 2, 7, 3155, 3, 9, 1, 2, 3, 115}},
      {"\346\210\221\346\203\263\345\234\250apple\345\267\245\344\275\234\357\275\236",
       {28705, 29242, 30023, 29010, 24175, 29487, 29089, 30328},
       "\346\210\221\346\203\263\345\234\250apple\345\267\245\344\275\234\357\275\236",
       {4, 0, 19, 29, 29, 82, 0},
       " \342\201\207 apple \342\201\207 ",
       {3, 2, 3096, 109, 2}},
      {"a\001c\177d\342\200\213e\357\273\277\302\255",
       {264, 29534, 28717, 30982, 28715, 28935, 28706, 31759, 28927},
       "a\001c\177d\342\200\213e\357\273\277\302\255",
       {11, 0, 28, 0, 17, 0, 16, 0},
       "a \342\201\207 c \342\201\207 d \342\201\207 e \342\201\207 ",
       {3, 9, 75, 26, 3, 15, 3, 575}},
      {"\360\237\232\200 (normal) \360\237\230\266\342\200\215\360\237\214\253\357\270\217",
       {28705, 30012, 325, 8027, 28731, 28705, 243, 162, 155, 185, 29274, 243, 162, 143, 174, 29096},
       "\360\237\232\200 (normal) \360\237\230\266\342\200\215\360\237\214\253\357\270\217",
       {4, 0, 420, 24, 54, 26, 73, 394, 4, 0},
       " \342\201\207  (normal)  \342\201\207 ",
       {3, 2, 41, 12110, 61, 3, 2, 3, 2}},
      {"e\314\201 \302\275 \357\254\201 \343\200\200w",
       {317, 28949, 28705, 29039, 28705, 30160, 28705, 29351, 28727},
       "e\314\201 \302\275 \357\254\201 \343\200\200w",
       {4, 0, 4, 357, 0, 596, 74, 25, 102},
       " \342\201\207  1 \342\201\207 2 fi w",
       {3, 154, 209, 2, 357, 361, 3, 210}},
      {"a\r\nb\n\nd\te",
       {264, 28801, 13, 28726, 13, 13, 28715, 12, 28706},
       "a\r\nb\n\nd\te",
       {11, 3, 0, 66, 0, 17, 0, 16},
       "a\r \342\201\207 b \342\201\207 d \342\201\207 e",
       {3, 9, 3, 115, 3, 26, 3, 15}},
      {"\342\226\201a\342\226\201\342\226\201b",
       {28705, 264, 28705, 287},
       " a  b",
       {4, 11, 4, 80},
       "a  b",
       {3, 9, 3, 115}},
      {"\355\225\234\352\265\255\354\226\264 \357\275\266\357\276\236",
       {28705, 29282, 30779, 29433, 28705, 242, 192, 185, 242, 193, 161},
       "\355\225\234\352\265\255\354\226\264 \357\275\266\357\276\236",
       {4, 0, 4, 0},
       " \342\201\207   \342\201\207 ",
       {3, 2, 3, 2}},
      {"\340\244\250\340\244\256\340\244\270\340\245\215\340\244\244\340\245\207",
       {28705, 29540, 29672, 29671, 29300, 29708, 29586},
       "\340\244\250\340\244\256\340\244\270\340\245\215\340\244\244\340\245\207",
       {4, 0},
       " \342\201\207 ",
       {3, 2}},
      {"I don't know.",
       {315, 949, 28742, 28707, 873, 28723},
       "I don't know.",
       {9, 274, 32, 15, 208, 6},
       "I don't know.",
       {27, 278, 31, 17, 214, 5}},

  };
  return all;
}

TEST(SentencePieceOfTheField, AgreesWithOtherPrograms) {
  NEEDS_THE_LIBRARY;
  const auto folder = shared_data("models/tokenizers");
  if (!folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto mistral = SentencePieceTokenizer::load(*folder + "/mistral-v1"),
             english = SentencePieceTokenizer::load(*folder + "/sentencepiece-test/test_model.model"),
             t5 = SentencePieceTokenizer::load(*folder + "/t5-small");
  EXPECT_EQ(mistral->vocabulary_size(), 32000U);
  EXPECT_EQ(t5->vocabulary_size(), 32100U);
  for (const Expected& one : expected_ids()) {
    EXPECT_EQ(mistral->encode(one.text), one.mistral) << one.text;
    EXPECT_EQ(mistral->decode(one.mistral), one.mistral_text);
    EXPECT_EQ(english->encode(one.text), one.english) << one.text;
    EXPECT_EQ(english->decode(one.english), one.english_text);
    EXPECT_EQ(t5->encode(one.text), one.t5) << one.text;
  }
  EXPECT_EQ(mistral->encode(text("a\0b")), Ids({264, 3, 28726}));
  EXPECT_EQ(english->encode(text("a\0b")), Ids({11, 0, 66}));
  EXPECT_EQ(t5->encode("<extra_id_0> x</s>"), Ids({32099, 3, 226, 1}));
}

TEST(SentencePieceOfTheField, WholeTextsAgree) {
  NEEDS_THE_LIBRARY;
  const auto folder = shared_data("models/tokenizers"), texts = shared_data("text");
  if (!folder || !texts) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto load = [&](const char* name) { return SentencePieceTokenizer::load(*folder + "/" + name); };
  const auto t5 = load("t5-small"), v1 = load("mistral-v1"), v3 = load("mistral-v3"),
             english = load("sentencepiece-test/test_model.model"),
             japanese = load("sentencepiece-test/test_ja_model.model"), small = load("torchtune-tiny/m.model");
  for (const GoldenText& golden : golden_texts()) {
    const std::string one = golden_text(*texts, golden);
    EXPECT_EQ(digest_of(t5->encode(one)), golden.t5) << golden.file;
    EXPECT_EQ(digest_of(v3->encode(one)), golden.mistral_v3) << golden.file;
    EXPECT_EQ(digest_of(english->encode(one)), golden.english) << golden.file;
    EXPECT_EQ(digest_of(japanese->encode(one)), golden.japanese) << golden.file;
    EXPECT_EQ(digest_of(small->encode(one)), golden.small) << golden.file;
    const Ids ids = v1->encode(one);
    EXPECT_EQ(digest_of(ids), golden.mistral_v1) << golden.file;
    EXPECT_EQ(v1->decode(ids), one);  // byte for byte
  }
}

// Two programs of one rule: the library, and this project's tokenizer of GGUF vocabularies, which begins with <s>.
TEST(SentencePieceOfTheField, Phi3IsCutTheSameWayTwice) {
  NEEDS_THE_LIBRARY;
  const auto base = shared_data("models/ggml-vocab/ggml-vocab-phi-3.gguf");
  if (!base) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const GgufFile file(*base);
  const auto own = gguf_tokenizer(file);
  SentencePieceModel model;
  model.method = SentencePieceModel::Method::bpe;
  model.byte_fallback = true;
  model.remove_spaces = false;
  const std::vector<std::string> tokens = file.texts("tokenizer.ggml.tokens");
  const std::vector<double> scores = file.reals("tokenizer.ggml.scores");
  for (std::size_t i = 0; i < 32000; ++i)
    model.pieces.push_back({tokens[i], static_cast<float>(scores[i]),
                            i == 0    ? Kind::unknown
                            : i < 3   ? Kind::control
                            : i < 259 ? Kind::byte
                                      : Kind::normal});
  const SentencePieceTokenizer library(model);
  int count = 0;
  for (const std::string& one : ggml_texts(*base)) {
    Ids ids = library.encode(one);
    ids.insert(ids.begin(), 1);
    EXPECT_EQ(own->encode(one), ids) << one;
    EXPECT_EQ(library.decode(library.encode(one)), one);
    ++count;
  }
  EXPECT_EQ(count, 46);
}

}  // namespace
}  // namespace torsor
