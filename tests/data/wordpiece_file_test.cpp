// WordPiece's files: what is read, what is refused, and ids that other programs give.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/data/golden_ids.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/gguf.h"
#include "torsor/base/json.h"
#include "torsor/data/wordpiece.h"

namespace torsor {
namespace {

using namespace data_test;

const std::string kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\nb\n\xC3\xA9\nE\n";

std::shared_ptr<const WordPieceTokenizer> of_vocabulary(const std::string& lines, const std::string& config = "") {
  return WordPieceTokenizer::parse_vocabulary(lines, config, "x/vocab.txt");
}

TEST(WordPieceFile, ReadsAVocabulary) {
  const auto tokenizer = of_vocabulary(kVocabulary);
  EXPECT_EQ(tokenizer->vocabulary_size(), 10U);
  EXPECT_EQ(tokenizer->encode("aa b[MASK]"), Ids({5, 6, 7, 4}));
  EXPECT_FALSE(tokenizer->model().lowercase);  // for its E
  EXPECT_EQ(tokenizer->encode("E e \xC3\xA9"), Ids({9, 1, 8}));
  const auto lower = of_vocabulary("[UNK]\na\ne\n");
  EXPECT_TRUE(lower->model().lowercase && lower->model().strip_accents);
  EXPECT_EQ(lower->encode("A \xC3\x89"), Ids({1, 2}));
  // Other ends of lines, and none behind the last.
  EXPECT_EQ(of_vocabulary("[UNK]\r\na\r\ne")->name(), lower->name());
}

TEST(WordPieceFile, TheConfigurationBesideItDecides) {
  const auto with = [](const std::string& config) { return of_vocabulary(kVocabulary, config); };
  EXPECT_TRUE(with("{}")->model().lowercase);  // Hugging Face's default
  EXPECT_TRUE(with("{}")->model().strip_accents);
  EXPECT_FALSE(with(R"({"do_lower_case": false})")->model().strip_accents);
  EXPECT_TRUE(with(R"({"do_lower_case": false, "strip_accents": true})")->model().strip_accents);
  EXPECT_FALSE(with(R"({"strip_accents": false})")->model().strip_accents);
  EXPECT_FALSE(with(R"({"tokenize_chinese_chars": false})")->model().chinese);
  const auto named =
      with(R"({"unk_token": "a", "cls_token": {"content": "b"}, "sep_token": null, "model_max_length": 512,
                              "tokenizer_class": "BertTokenizer"})");
  EXPECT_EQ(named->encode("xyz"), Ids({5}));
  EXPECT_EQ(named->with_specials("xyz").ids, Ids({7, 5, 3}));
  EXPECT_EQ(named->encode("[CLS]").size(), 3U);  // no mark any more
  const auto refusal = [&](const std::string& config) { return message_of<Error>([&] { with(config); }); };
  EXPECT_TRUE(contains(refusal(R"({"do_basic_tokenize": false})"), "x/tokenizer_config.json: key 'do_basic_tokenize'"));
  EXPECT_TRUE(contains(refusal(R"({"never_split": ["a"]})"), "'never_split'"));
  EXPECT_TRUE(contains(refusal(R"({"do_lower_case": 3})"), "'do_lower_case'"));
  EXPECT_TRUE(contains(refusal("{"), "x/tokenizer_config.json:1:"));
}

TEST(WordPieceFile, RefusesBrokenVocabularies) {
  const auto refusal = [](const std::string& lines) { return message_of<Error>([&] { of_vocabulary(lines); }); };
  EXPECT_TRUE(contains(refusal(""), "x/vocab.txt: expected tokens"));
  EXPECT_TRUE(contains(refusal("[UNK]\n\na\n"), "x/vocab.txt:2: expected a token"));
  EXPECT_TRUE(contains(refusal("[UNK]\na\nb\na\n"), "x/vocab.txt:4: the token 'a' stands in line 2"));
  EXPECT_TRUE(contains(refusal("a\n\xFF\n"), "x/vocab.txt: expected UTF-8, found another byte at 2"));
  EXPECT_TRUE(contains(refusal("a\nb\n"), "x/vocab.txt: WordPiece: the vocabulary has no token '[UNK]'"));
}

TEST(WordPieceFile, ReadsWhatItWrites) {
  WordPieceModel model = of_vocabulary(kVocabulary)->model();
  model.strip_accents = true;
  model.clean_text = model.cleanup = false;
  model.longest_word = 7;
  model.begin = "a", model.end = "b";
  model.vocabulary.push_back("<new>");
  model.added.push_back({.id = 10, .content = "<new>", .lstrip = true, .normalized = true});
  const WordPieceTokenizer tokenizer(model);
  const TemporaryFolder folder;
  for (const TokenizerFile& file : tokenizer.files()) folder.write(file.name, file.content);
  const auto read = WordPieceTokenizer::load(folder.path());
  EXPECT_EQ(read->name(), tokenizer.name());
  EXPECT_EQ(read->json(), tokenizer.json());
  EXPECT_EQ(read->with_specials("E").ids, Ids({5, 9, 7}));
  EXPECT_EQ(WordPieceTokenizer::load(folder.path() + "/tokenizer.json")->name(), tokenizer.name());
  EXPECT_EQ(WordPieceTokenizer::parse_json_text(tokenizer.json(), "x")->name(), tokenizer.name());
}

TEST(WordPieceFile, AFolderMayHoldBothForms) {
  const TemporaryFolder folder;
  EXPECT_TRUE(contains(message_of<Error>([&] { WordPieceTokenizer::load(folder.path()); }), folder.path()));
  folder.write("vocab.txt", kVocabulary);
  folder.write("tokenizer_config.json", R"({"do_lower_case": true})");
  const auto lines = WordPieceTokenizer::load(folder.path());
  EXPECT_TRUE(lines->model().lowercase);
  EXPECT_EQ(WordPieceTokenizer::load(folder.path() + "/vocab.txt")->name(), lines->name());
  WordPieceModel model = lines->model();
  model.lowercase = false;
  folder.write("tokenizer.json", WordPieceTokenizer(model).json());
  EXPECT_FALSE(WordPieceTokenizer::load(folder.path())->model().lowercase);
}

TEST(WordPieceFile, RefusesWhatIsNotRead) {
  const Json good = parse_json(of_vocabulary(kVocabulary)->json(), "good");
  const auto refusal = [&](auto change) {
    Json json = good;
    change(json);
    return message_of<Error>([&] { WordPieceTokenizer::parse_json_text(json_text(json), "t.json"); });
  };
  EXPECT_EQ(refusal([](Json& j) { j["model"]["type"] = "Unigram"; }),
            "t.json: model: key 'type' must be WordPiece, found 'Unigram'");
  EXPECT_TRUE(contains(refusal([](Json& j) { j["normalizer"]["type"] = "NFC"; }), "t.json: normalizer: key 'type'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["normalizer"]["new"] = 1; }), "'new'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["pre_tokenizer"]["type"] = "Whitespace"; }), "BertPreTokenizer"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["pre_tokenizer"] = nullptr; }), "pre_tokenizer"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["decoder"]["prefix"] = "--"; }), "t.json: decoder: key 'prefix'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["truncation"] = Json::object(); }), "'truncation'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["version"] = "2.0"; }), "'version'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["surprise"] = 1; }), "'surprise'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"]["dropout"] = 0.1; }), "'dropout'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"]["vocab"]["a"] = 6; }), "have the same id 6"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"]["vocab"]["a"] = 10; }), "0 to 9 without a hole, got 10"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"]["vocab"]["a"] = -1; }), "the id of 'a' must be a whole"));
  EXPECT_TRUE(
      contains(refusal([](Json& j) { j["model"]["vocab"] = Json::array(); }), "t.json: model: vocab: expected"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["model"].erase("vocab"); }), "'vocab' is missing"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["added_tokens"][0]["single_word"] = true; }), "'single_word'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["added_tokens"][0]["content"] = "[pad]"; }), "'[pad]'"));
  EXPECT_TRUE(contains(refusal([](Json& j) { j["post_processor"]["cls"] = "x"; }), "t.json: post_processor"));
}

struct Expected {
  std::string text;
  Ids cased, uncased;
  std::string decoded;  // of the cased ids
};

// BertWordPieceTokenizer of Hugging Face's tokenizers 0.23.3 with the vocabulary of bert-base-cased.
const std::vector<Expected>& expected_ids() {
  static const std::vector<Expected> all = {
      {"", {}, {}, ""},
      {" ", {}, {}, ""},
      {"Hello, world!", {8667, 117, 1362, 106}, {19082, 117, 1362, 106}, "Hello, world!"},
      {"Hello, y'all! How are you \360\237\230\201 ?",
       {8667, 117, 194, 112, 1155, 106, 1731, 1132, 1128, 100, 136},
       {19082, 117, 194, 112, 1155, 106, 1293, 1132, 1128, 100, 136},
       "Hello, y ' all! How are you [UNK]?"},
      {"H\303\251llo W\303\266rld \303\205ngstr\303\266m \303\200\303\211 \303\261 \303\247",
       {100, 100, 100, 100, 100, 100},
       {19082, 1362, 1126, 5700, 24655, 170, 1162, 183, 172},
       "[UNK] [UNK] [UNK] [UNK] [UNK] [UNK]"},
      {"e\314\201 e\314\243\314\207 \314\207x", {100, 100, 100}, {174, 174, 193}, "[UNK] [UNK] [UNK]"},
      {"[CLS] a [SEP][MASK] x[PAD]y [cls]",
       {101, 170, 102, 103, 193, 0, 194, 164, 172, 3447, 166},
       {101, 170, 102, 103, 193, 0, 194, 164, 172, 3447, 166},
       "[CLS] a [SEP] [MASK] x [PAD] y [ cls ]"},
      {"\346\210\221\346\203\263\345\234\250apple\345\267\245\344\275\234\357\275\236 "
       "\360\240\200\200\360\253\240\240\360\253\244\240",
       {100, 100, 100, 12075, 100, 100, 100, 100, 100, 100},
       {100, 100, 100, 12075, 100, 100, 100, 100, 100, 100},
       "[UNK] [UNK] [UNK] apple [UNK] [UNK] [UNK] [UNK] [UNK] [UNK]"},
      {"don't we've I'm John's do not .",
       {1274, 112, 189, 1195, 112, 1396, 146, 112, 182, 1287, 112, 188, 1202, 1136, 119},
       {1274, 112, 189, 1195, 112, 1396, 178, 112, 182, 179, 10559, 1179, 112, 188, 1202, 1136, 119},
       "don ' t we ' ve I ' m John ' s do not."},
      {text("a\000b\001c\177d\342\200\213e\357\273\277\302\255\tf\r\ng"),
       {170, 1830, 1665, 2007, 175, 176},
       {170, 1830, 1665, 2007, 175, 176},
       "abcde f g"},
      {"\304\260stanbul \341\272\236 \316\243\316\261\317\202 \316\243\316\221\316\243",
       {100, 100, 100, 100},
       {1110, 5108, 27515, 100, 100, 100},
       "[UNK] [UNK] [UNK] [UNK]"},
      {"\355\225\234\352\265\255\354\226\264 \343\201\262\343\202\211\343\201\214\343\201\252",
       {100, 100},
       {100, 100},
       "[UNK] [UNK]"},
      {"$100+5=~`^|<>",
       {109, 1620, 116, 126, 134, 199, 169, 167, 197, 133, 135},
       {109, 1620, 116, 126, 134, 199, 169, 167, 197, 133, 135},
       "$ 100 + 5 = ~ ` ^ | < >"},
      {"\302\253q\302\273 \342\200\234x\342\200\235 \342\200\246 \342\200\224 \302\277q?",
       {100, 186, 100, 100, 193, 100, 100, 100, 100, 186, 136},
       {100, 186, 100, 100, 193, 100, 100, 100, 100, 186, 136},
       "[UNK] q [UNK] [UNK] x [UNK] [UNK] [UNK] [UNK] q?"},
      {"\343\200\200wide\342\200\250line\302\205nel\302\240nbsp",
       {2043, 19838, 1883, 183, 4832, 1643},
       {2043, 19838, 1883, 183, 4832, 1643},
       "wide linenel nbsp"},
      {"a_b-c/d\\e",
       {170, 168, 171, 118, 172, 120, 173, 165, 174},
       {170, 168, 171, 118, 172, 120, 173, 165, 174},
       "a _ b - c / d \\ e"},
      {"##ing unaffable UNAFFABLE",
       {108, 108, 16664, 8362, 9823, 8057, 2165, 7414, 12303, 8842, 13360, 2036},
       {108, 108, 16664, 8362, 9823, 8057, 2165, 8362, 9823, 8057, 2165},
       "# # ing unaffable UNAFFABLE"},
      {"\340\244\250\340\244\256\340\244\270\340\245\215\340\244\244\340\245\207 \340\270\227\340\270\224 "
       "\327\251\327\201 \331\205",
       {100, 100, 100, 100},
       {100, 100, 100, 100},
       "[UNK] [UNK] [UNK] [UNK]"},
  };
  return all;
}

TEST(WordPieceOfTheField, BertCasedAgreesWithHuggingFace) {
  const auto path = shared_data("models/tokenizers/bert-base-cased"), texts = shared_data("text");
  if (!path || !texts) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto cased = WordPieceTokenizer::load(*path);
  EXPECT_EQ(cased->vocabulary_size(), 28996U);
  EXPECT_FALSE(cased->model().lowercase);
  const auto uncased =
      of_vocabulary(read_file(*path + "/vocab.txt"), R"({"do_lower_case": true, "tokenizer_class": "BertTokenizer"})");
  for (const Expected& one : expected_ids()) {
    EXPECT_EQ(cased->encode(one.text), one.cased) << one.text;
    EXPECT_EQ(uncased->encode(one.text), one.uncased) << one.text;
    EXPECT_EQ(cased->decode(one.cased), one.decoded);
  }
  const auto repeated = [](const std::string& part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  // x ##x ... as far as a word may reach, and one letter more.
  Ids hundred(100, 1775);
  hundred[0] = 193;
  hundred.push_back(100);
  EXPECT_EQ(cased->encode(repeated("x", 100) + " " + repeated("x", 101)), hundred);
  // Without accents ee are pairs: e ##ee ... ##e.
  Ids pairs(51, 3051);
  pairs[0] = 174, pairs[50] = 1162;
  pairs.push_back(100);
  EXPECT_EQ(uncased->encode(repeated("\xC3\xA9", 100) + " " + repeated("\xC3\xA9", 101)), pairs);
  EXPECT_EQ(cased->encode(repeated("\xC3\xA9", 100)), Ids({100}));
  // Accents gone and nothing else changed; decoded forms too.
  WordPieceModel model = cased->model();
  model.strip_accents = true;
  model.clean_text = model.chinese = false;
  const WordPieceTokenizer odd(model);
  EXPECT_EQ(odd.encode("H\xC3\xA9llo W\xC3\xB6rld \xC3\x85ngstr\xC3\xB6m \xC3\x80\xC3\x89 \xC3\xB1 \xC3\xA7"),
            Ids({8667, 1291, 26285, 22230, 138, 2036, 183, 172}));
  EXPECT_EQ(odd.encode(text("a\0b\001c\177d\342\200\213e\357\273\277\302\255\tf\r\ng")), Ids({100, 175, 176}));
  for (const GoldenText& golden : golden_texts()) {
    const std::string one = golden_text(*texts, golden);
    EXPECT_EQ(digest_of(cased->encode(one)), golden.cased) << golden.file;
    EXPECT_EQ(digest_of(uncased->encode(one)), golden.uncased) << golden.file;
  }
}

TEST(WordPieceOfTheField, BgeAgreesWithItsReferenceIds) {
  const auto base = shared_data("models/ggml-vocab/ggml-vocab-bert-bge.gguf");
  if (!base) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const auto bge = WordPieceTokenizer::of_gguf(GgufFile(*base));
  EXPECT_EQ(bge->vocabulary_size(), 30522U);
  const auto cases = ggml_cases(*base);
  EXPECT_EQ(cases.size(), 46U);
  for (const auto& [text, ids] : cases) EXPECT_EQ(bge->encode(text), ids) << text;
  EXPECT_EQ(bge->with_specials("hello", "world").ids, Ids({101, 7592, 102, 2088, 102}));
  EXPECT_EQ(bge->decode(bge->encode("Unaffable \xC3\x85ngstr\xC3\xB6m, isn't it?")), "unaffable angstrom, isn ' t it?");
}

TEST(WordPieceOfTheField, OtherVocabulariesAreRefused) {
  const auto base = shared_data("models/ggml-vocab/ggml-vocab-gpt-2.gguf");
  if (!base) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  EXPECT_TRUE(contains(message_of<Error>([&] { WordPieceTokenizer::of_gguf(GgufFile(*base)); }), "bert, found 'gpt2'"));
}

}  // namespace
}  // namespace torsor
