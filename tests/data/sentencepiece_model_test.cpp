// The file of SentencePiece's models: read, written, and what is refused before the library sees it.
#include "torsor/data/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/data/sentencepiece_toy.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"

namespace torsor {
namespace {

using namespace data_test;

std::string refusal(const std::string& bytes) {
  return message_of<Error>([&] { parse_sentencepiece(bytes, "m"); });
}

std::string refusal(const SentencePieceModel& model) {
  return message_of<Error>([&] { check_sentencepiece(model, "m"); });
}

TEST(SentencePieceModel, ReadsWhatItWrites) {
  SentencePieceModel model = toy_bpe();
  model.pieces[263].score = -0.125F;
  model.pieces.push_back({"user", 0, Kind::user_defined});
  model.pieces.push_back({"gone", 1e-30F, Kind::unused});
  model.unknown_text = "?";
  model.add_space = false;
  model.escape_spaces = false;
  model.characters = toy_table({{'\t', " "}, {'B', "b"}});
  model.decoded_characters = toy_table({{'x', "yz"}});
  const SentencePieceModel read = parse_sentencepiece(sentencepiece_bytes(model), "m");
  ASSERT_EQ(read.pieces.size(), model.pieces.size());
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    EXPECT_EQ(read.pieces[id].text, model.pieces[id].text);
    EXPECT_EQ(read.pieces[id].score, model.pieces[id].score);
    EXPECT_EQ(read.pieces[id].kind, model.pieces[id].kind);
  }
  EXPECT_EQ(read.method, SentencePieceModel::Method::bpe);
  EXPECT_TRUE(read.byte_fallback);
  EXPECT_EQ(read.unknown_text, "?");
  EXPECT_FALSE(read.add_space || read.remove_spaces || read.escape_spaces);
  EXPECT_EQ(read.characters, model.characters);
  EXPECT_EQ(read.decoded_characters, model.decoded_characters);
  EXPECT_EQ(read.unknown(), 0U);
  EXPECT_EQ(sentencepiece_bytes(read), sentencepiece_bytes(model));
}

TEST(SentencePieceModel, DefaultsAreThoseOfTheFormat) {
  // Two pieces and nothing else: "<unk>" of kind 2, "a" of score 1.
  const std::string bytes(
      "\x0A\x09\x0A\x05<unk>\x18\x02\x0A\x08\x0A\x01"
      "a\x15\0\0\x80\x3F",
      21);
  const SentencePieceModel model = parse_sentencepiece(bytes, "m");
  EXPECT_EQ(model.pieces[1].text, "a");
  EXPECT_EQ(model.pieces[1].score, 1.0F);
  EXPECT_EQ(model.method, SentencePieceModel::Method::unigram);
  EXPECT_TRUE(model.add_space && model.remove_spaces && model.escape_spaces && !model.byte_fallback);
  EXPECT_EQ(model.unknown_text, " \xE2\x81\x87 ");
  // Fields that are not known are passed over, of every wire type: 9 varint, 10 eight bytes, 11 bytes, 12 four bytes.
  const std::string more(
      "\x48\x85\x01\x51"
      "12345678\x5A\x03xyz\x65"
      "1234",
      22);
  EXPECT_EQ(sentencepiece_bytes(parse_sentencepiece(bytes + more, "m")), sentencepiece_bytes(model));
}

TEST(SentencePieceModel, RefusesWhatIsNoMessage) {
  EXPECT_EQ(refusal(std::string()), "m: expected a model of SentencePiece, found no piece");
  EXPECT_TRUE(contains(refusal(std::string("\x0A")), "m: is cut off inside a number"));
  EXPECT_TRUE(contains(refusal(std::string("\x0A\x05"
                                           "a")),
                       "m: field 1 would have 5 bytes, and 1 are left"));
  EXPECT_TRUE(
      contains(refusal(std::string("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01")), "would have 18446744073709"));
  EXPECT_TRUE(
      contains(refusal(std::string("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01")), "more than ten bytes"));
  EXPECT_TRUE(contains(refusal(std::string("\x02\x01")), "a field has the number 0"));
  EXPECT_TRUE(contains(refusal(std::string("\x0B")), "field 1 has the wire type 3"));
  EXPECT_TRUE(contains(refusal(std::string("\x08\x01")), "field 1 must be bytes"));
  EXPECT_TRUE(contains(refusal(std::string("\x0A\x02\x0A\x05")), "m: piece 0: field 1 would have 5 bytes"));
  EXPECT_TRUE(contains(refusal(std::string("\x0A\x02\x10\x01")), "m: piece 0: field 2 must be four bytes"));
  EXPECT_TRUE(contains(refusal(std::string("\x0A\x02\x18\x07")), "m: piece 0: is of kind 7"));
  EXPECT_TRUE(contains(refusal(std::string("\x12\x02\x18\x03")), "m: trainer_spec: the model type 3 is not read"));
  EXPECT_TRUE(contains(refusal(std::string("\x12\x03\xC0\x01\x01")), "treat_whitespace_as_suffix"));
  EXPECT_TRUE(contains(refusal(std::string("{\"version\": \"1.0\"}")), "m: "));
  // Cut at every place: never anything but an Error or the whole model.
  const std::string whole = sentencepiece_bytes(toy_bpe());
  for (std::size_t size = 0; size < whole.size(); size += 7) try {
      parse_sentencepiece(whole.substr(0, size), "m");
    } catch (const Error&) {
    }
}

TEST(SentencePieceModel, RefusesPiecesThatAreNone) {
  const auto with = [](auto change) {
    SentencePieceModel model = toy_bpe();
    change(model);
    return refusal(model);
  };
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[260].text = ""; }), "m: piece 260, '', is empty"));
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[260].text = "b"; }), "m: piece 261, 'b', stands twice"));
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[260].text = "\xFF"; }), "is not UTF-8"));
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[260].text = std::string("a\0b", 3); }), "has a NUL"));
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[260].text.assign(4097, 'x'); }), "has 4097 bytes, at most 4096"));
  SentencePieceModel longest = toy_bpe();
  longest.pieces[260].text.assign(4096, 'x');
  check_sentencepiece(longest, "m");
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[260].score = std::numeric_limits<float>::infinity(); }), "inf"));
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[260].score = std::numeric_limits<float>::quiet_NaN(); }), "nan"));
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[0].kind = Kind::normal; }), "one unknown piece, found 0"));
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[1].kind = Kind::unknown; }), "one unknown piece, found 2"));
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[3].text = "<0x0>"; }), "is no byte such as <0x0A>"));
  EXPECT_TRUE(contains(with([](auto& m) { m.pieces[13].text = "<0x0a>"; }), "is no byte such as"));
  EXPECT_TRUE(contains(with([](auto& m) { m.byte_fallback = false; }), "and the model has no byte_fallback"));
  EXPECT_TRUE(
      contains(with([](auto& m) { m.pieces[3].kind = Kind::normal; }), "all 256 bytes for byte_fallback, found 255"));
  EXPECT_TRUE(contains(with([](auto& m) { m.unknown_text = "\xFF"; }), "unknown piece is not UTF-8"));
  EXPECT_TRUE(contains(with([](auto& m) {
                         for (auto& piece : m.pieces)
                           if (piece.kind == Kind::normal) piece.kind = Kind::control;
                       }),
                       "no piece is text"));
}

TEST(SentencePieceModel, ATableMayNotLeadAstray) {
  const std::string good = toy_table({{'\t', " "}, {'B', "bb"}});
  const auto with = [&](auto change) {
    SentencePieceModel model = toy_unigram();
    model.characters = good;
    change(model.characters);
    return refusal(model);
  };
  EXPECT_EQ(space_bytes(good), std::vector<char>({'\t', ' '}));
  EXPECT_EQ(space_bytes(""), std::vector<char>({' '}));
  EXPECT_TRUE(contains(with([](std::string& t) { t.resize(3); }), "m: normalizer_spec: expected a table"));
  EXPECT_TRUE(contains(with([](std::string& t) { t.resize(100); }), "of its 96 bytes are the trie"));
  EXPECT_TRUE(contains(with([](std::string& t) { t += "x"; }), "the last text of the table has no end"));
  EXPECT_TRUE(contains(with([](std::string& t) { t[t.size() - 2] = '\xFF'; }), "not UTF-8"));
  EXPECT_TRUE(contains(with([](std::string& t) { t[1] = 4, t[0] = 4; }), "units, expected a multiple of 256"));
  // A unit, used or not, whose children would lie behind the last.
  EXPECT_TRUE(contains(with([](std::string& t) { set_unit(t, 9, 512U << 10); }), "unit 9 leads out of it"));
  EXPECT_TRUE(contains(with([](std::string& t) { set_unit(t, 9, 0xFFFFFU << 10 | 1U << 9); }), "unit 9 leads out"));
  EXPECT_TRUE(contains(with([](std::string& t) { set_unit(t, 0, 1U << 31 | 256U << 10); }), "begins with a value"));
  // A leaf that is none, or whose text lies behind the texts.
  EXPECT_TRUE(contains(with([](std::string& t) { set_unit(t, 1, 0); }), "has no text"));
  EXPECT_TRUE(contains(with([](std::string& t) { set_unit(t, 1, 1U << 31 | 5); }), "has no text"));
  // 'C' leads to itself by 'C'.
  const std::uint32_t c = 256 + 'C';
  EXPECT_TRUE(contains(with([&](std::string& t) { set_unit(t, c, (c ^ 256U) << 10 | 'C'); }), "leads in a circle"));
  // A text that is too long.
  SentencePieceModel model = toy_unigram();
  model.characters = toy_table({{'B', std::string(1024, 'b')}});
  check_sentencepiece(model, "m");
  model.characters = toy_table({{'B', std::string(1025, 'b')}});
  EXPECT_TRUE(contains(refusal(model), "more than 1024 bytes"));
  // 33 keys on one path: every byte leads to a block of its own in which the next byte lies.
  const auto chain = [](std::uint32_t length) {
    std::string table = toy_table({{'B', "b"}});
    table.resize(4);
    const std::uint32_t units = 256 * (length + 2);
    const std::uint32_t bytes = 4 * units;
    for (unsigned b = 0; b < 4; ++b) table[b] = static_cast<char>(static_cast<unsigned char>(bytes >> (8 * b)));
    table.append(bytes, '\0');
    set_unit(table, 0, 256U << 10);
    for (std::uint32_t i = 1; i <= length; ++i) {
      const std::uint32_t at = 256 * i + 'x', next = 256 * (i + 1);
      set_unit(table, at, (at ^ next) << 10 | 1U << 8 | 'x');
      set_unit(table, next, 1U << 31);  // the leaf, where the byte 0 would lead
    }
    return table + std::string("b\0", 2);
  };
  model.characters = chain(32);
  check_sentencepiece(model, "m");
  model.characters = chain(33);
  EXPECT_TRUE(contains(refusal(model), "more than 32 texts on one path"));
}

TEST(SentencePieceModel, SpacesAreThoseThatNothingJoins) {
  // A key "\ta" in which the tab is only the beginning: at 256 + '\t' a child 'a'.
  std::string table = toy_table({{'\t', " "}, {'\n', " "}, {'B', " "}, {'C', "c"}});
  EXPECT_EQ(space_bytes(table), std::vector<char>({'\t', '\n', ' ', 'B'}));
  const std::uint32_t tab = 256 + '\t', leaf = 1, child = leaf ^ 'a';  // children of the tab lie where its leaf does
  set_unit(table, child, (child ^ 200U) << 10 | 1U << 8 | 'a');
  set_unit(table, 200, 1U << 31);
  SentencePieceModel model = toy_unigram();
  model.characters = table;
  check_sentencepiece(model, "m");
  EXPECT_EQ(space_bytes(table), std::vector<char>({'\n', ' ', 'B'})) << tab;
  // A space that becomes something else is none.
  EXPECT_EQ(space_bytes(toy_table({{' ', "_"}})), std::vector<char>());
}

TEST(SentencePieceModel, ReadsTheFilesOfTheField) {
  struct Case {
    const char* file;
    std::size_t pieces;
    SentencePieceModel::Method method;
    bool bytes;
    std::string spaces;
  };
  for (const Case& one :
       {Case{"mistral-v1/tokenizer.model", 32000, SentencePieceModel::Method::bpe, true, " "},
        Case{"mistral-v3/tokenizer.model", 32768, SentencePieceModel::Method::bpe, true, " "},
        Case{"sentencepiece-test/test_model.model", 1000, SentencePieceModel::Method::unigram, false, " "},
        Case{"torchtune-tiny/m.model", 2000, SentencePieceModel::Method::unigram, false, "\t\n\f\r "}}) {
    const auto path = shared_data(std::string("models/tokenizers/") + one.file);
    if (!path) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
    const SentencePieceModel model = parse_sentencepiece(read_file(*path), *path);
    EXPECT_EQ(model.pieces.size(), one.pieces);
    EXPECT_EQ(model.method, one.method);
    EXPECT_EQ(model.byte_fallback, one.bytes);
    EXPECT_EQ(model.pieces[0].text, "<unk>");
    EXPECT_EQ(space_bytes(model.characters), std::vector<char>(one.spaces.begin(), one.spaces.end()));
    const std::string written = sentencepiece_bytes(model);
    EXPECT_EQ(sentencepiece_bytes(parse_sentencepiece(written, "again")), written);
  }
}

}  // namespace
}  // namespace torsor
