// llama2.c's tokenizer beside a plain search for the best pair, its files, and mutated ones.
#include "torsor/data/llama2_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/base/gguf_file.h"
#include "tests/base/test_folder.h"
#include "tests/fuzz/fuzz.h"
#include "torsor/base/error.h"
#include "torsor/base/random.h"

namespace torsor {
namespace {

using testing::bytes_of;
using testing::contains;
using testing::message_of;
using Piece = Llama2Tokenizer::Piece;

/// The bytes, and pieces of the letters a, b, c with drawn scores, some of them equal.
std::vector<Piece> pieces() {
  std::vector<Piece> all = {{0, "<unk>"}, {0, "<s>"}, {0, "</s>"}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    all.push_back({0, name});
  }
  Random random(4, 0);
  for (const char* text : {" ", "a", "b", "c", "ab", "bc", "abc", " a", "aa", "aaaa", "ca", "\xC3\xA4", "cab", "aab"})
    all.push_back({static_cast<float>(random.below(5)), text});
  return all;
}

/// What the C program does: again and again the first of the best pairs.
std::vector<TokenId> plain_encode(const std::vector<Piece>& pieces, const std::string& text) {
  const auto find = [&](const std::string& piece) -> std::int64_t {
    for (std::size_t id = 0; id < pieces.size(); ++id)
      if (pieces[id].text == piece) return static_cast<std::int64_t>(id);
    return -1;
  };
  std::vector<TokenId> ids = {1};
  if (text.empty()) return ids;
  ids.push_back(static_cast<TokenId>(find(" ")));
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (end < text.size() && end - at < 4 && (text[end] & 0xC0) == 0x80) ++end;
    if (const std::int64_t id = find(text.substr(at, end - at)); id >= 0) {
      ids.push_back(static_cast<TokenId>(id));
    } else {
      for (; at < end; ++at) ids.push_back(3 + static_cast<unsigned char>(text[at]));
    }
    at = end;
  }
  for (;;) {
    float best = -1e10F;
    std::size_t where = 0;
    std::int64_t joined = -1;
    for (std::size_t i = 1; i + 1 < ids.size(); ++i) {
      const std::int64_t id = find(pieces[ids[i]].text + pieces[ids[i + 1]].text);
      if (id >= 0 && pieces[static_cast<std::size_t>(id)].score > best)
        best = pieces[static_cast<std::size_t>(id)].score, where = i, joined = id;
    }
    if (joined < 0) return ids;
    ids[where] = static_cast<TokenId>(joined);
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(Llama2Tokenizer, JoinsAsThePlainSearchDoes) {
  const std::vector<Piece> all = pieces();
  const Llama2Tokenizer tokenizer(all);
  Random random(1, 0);
  const std::vector<std::string> letters = {"a", "b", "c", " ", "a", "d", "\xC3\xA4", "\xE4\xB8\x96", "\xFF", "\n"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::uint64_t n = random.below(14); n > 0; --n) text += letters[random.below(letters.size())];
    const std::vector<TokenId> ids = tokenizer.encode(text);
    EXPECT_EQ(ids, plain_encode(all, text)) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(Llama2Tokenizer, LongTextsTakeNoLonger) {
  const Llama2Tokenizer tokenizer(pieces());
  const std::string text(300000, 'a');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

std::string file_of(const std::vector<Piece>& all, std::int32_t longest = 8) {
  std::string bytes = bytes_of(longest);
  for (const Piece& piece : all)
    bytes += bytes_of(piece.score) + bytes_of(static_cast<std::int32_t>(piece.text.size())) + piece.text;
  return bytes;
}

TEST(Llama2Tokenizer, FilesThatDoNotComeOutEvenAreRefused) {
  const std::vector<Piece> all = pieces();
  const auto read = Llama2Tokenizer::parse(file_of(all), "tok.bin");
  EXPECT_EQ(read->name(), Llama2Tokenizer(all).name());
  EXPECT_EQ(read->vocabulary_size(), all.size());
  const auto refused = [](const std::string& bytes, const char* part) {
    const std::string message = message_of<Error>([&] { Llama2Tokenizer::parse(bytes, "tok.bin"); });
    EXPECT_TRUE(contains(message, "tok.bin") && contains(message, part)) << message;
  };
  refused("", "0 bytes");
  refused(file_of(all, 3), "the longest has 3");
  refused(file_of(all) + "abc", "cut off");
  refused(file_of({all.begin(), all.begin() + 200}), "at least 259");
  refused(bytes_of(std::int32_t{8}) + bytes_of(0.0F) + bytes_of(std::int32_t{-1}), "-1 bytes");
  std::vector<Piece> infinite = all;
  infinite[5].score = std::numeric_limits<float>::infinity();
  refused(file_of(infinite), "not finite");
  infinite[5].score = 1;
  EXPECT_NE(Llama2Tokenizer(infinite).name(), read->name());
  EXPECT_TRUE(contains(message_of<Error>([&] { read->decode(std::vector<TokenId>{9999}); }), "got 9999"));
  EXPECT_EQ(read->text_of(1) + read->text_of(2) + read->text_of(3 + 'x'), "x");
}

TEST(Llama2TokenizerFuzz, MutatedFilesAreReadOrRefused) {
  std::vector<Piece> few = pieces();
  for (std::size_t id = 3; id < 259; ++id) few[id].text = "x";  // shorter files, faster
  fuzz::Run run(
      "llama2.c tokenizer",
      {.seeds = {file_of(few), file_of(few, 1000)},
       .pieces = {bytes_of(std::int32_t{-1}), bytes_of(std::int32_t{0}), bytes_of(std::int32_t{1} << 30),
                  bytes_of(0.0F), bytes_of(std::numeric_limits<float>::quiet_NaN()), "ab", std::string(8, '\0')},
       .most_changes = 2});
  while (run.next()) {
    bool past = false;
    try {
      const auto tokenizer = Llama2Tokenizer::parse(run.input(), "fuzz.bin");
      past = true;
      tokenizer->decode(tokenizer->encode("abc cab"));
    } catch (const Error& error) {
      // Past the first check where the pieces come out even.
      const std::string message = error.what();
      past = contains(message, "expected at least") || contains(message, "not finite");
    }
    run.count(past);
  }
  run.report(0.2);
}

}  // namespace
}  // namespace torsor
