#include "torsor/data/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "tests/data/spaced_tokenizer.h"
#include "tests/data/test_files.h"
#include "torsor/base/error.h"
#include "torsor/base/hash.h"

namespace torsor {
namespace {

using namespace data_test;

namespace fs = std::filesystem;

std::string text_of(const Document& document) { return std::string(document.tokens.bytes()); }

std::vector<std::string> texts_of(const Corpus& corpus) {
  std::vector<std::string> texts;
  for (const Document& document : corpus.documents) texts.push_back(text_of(document));
  return texts;
}

using Texts = std::vector<std::string>;

Corpus corpus_of_sizes(const std::vector<std::size_t>& sizes) {
  Corpus corpus;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const Corpus one = text_corpus(std::string(sizes[d], static_cast<char>('a' + d % 26)), "d" + std::to_string(d));
    corpus.tokenizer = one.tokenizer;
    corpus.vocabulary_size = one.vocabulary_size;
    corpus.reader = one.reader;
    corpus.documents.push_back(one.documents.front());
  }
  return corpus;
}

// A tokenizer of pairs of bytes, to see that nothing is particular to bytes. The last byte of an odd number is dropped.
class PairTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "pairs"; }
  std::uint32_t vocabulary_size() const override { return 65536; }
  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> ids;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
      ids.push_back(static_cast<unsigned char>(text[i]) * 256U + static_cast<unsigned char>(text[i + 1]));
    }
    return ids;
  }
  std::string decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids) text += {static_cast<char>(id / 256), static_cast<char>(id % 256)};
    return text;
  }
};

TEST(TokenArray, PacksInTheNarrowestWidth) {
  const std::vector<TokenId> ids{0, 7, 255};
  EXPECT_EQ(TokenArray::pack(ids, 256).width(), 1U);
  EXPECT_EQ(TokenArray::pack(ids, 257).width(), 2U);
  EXPECT_EQ(TokenArray::pack(ids, 65536).width(), 2U);
  EXPECT_EQ(TokenArray::pack(ids, 65537).width(), 4U);
  const std::vector<TokenId> wide{4294967294U, 65536, 256, 0};
  const TokenArray array = TokenArray::pack(wide, 4294967295U);
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(array[i], wide[i]);
  EXPECT_EQ(array.bytes().substr(4, 4), std::string_view("\0\0\1\0", 4));  // 65536, little-endian
  EXPECT_THROW(TokenArray::pack(ids, 255), Error);
}

TEST(TokenArray, SlicesShareAndStayInside) {
  const TokenArray array = TokenArray::pack(std::vector<TokenId>{10, 300, 20, 65535, 30}, 65536);
  const TokenArray part = array.slice(1, 3);
  EXPECT_EQ(part.size(), 3U);
  EXPECT_EQ(part[0], 300U);
  EXPECT_EQ(part[2], 65535U);
  EXPECT_EQ(part.slice(2, 1)[0], 65535U);
  EXPECT_EQ(part.bytes().data(), array.bytes().data() + 2);
  std::int64_t out[3] = {-1, -1, -1};
  part.copy(1, 2, out);
  EXPECT_EQ(out[0], 20);
  EXPECT_EQ(out[1], 65535);
  EXPECT_EQ(out[2], -1);
  EXPECT_EQ(array.slice(5, 0).size(), 0U);
  EXPECT_THROW(array.slice(5, 1), Error);
  EXPECT_THROW(array.slice(6, 0), Error);
  EXPECT_THROW(part.copy(1, 3, out), Error);
  EXPECT_THROW(part.copy(2, static_cast<std::size_t>(-1), out), Error);  // must not wrap around
  EXPECT_THROW(TokenArray("abc", 2), Error);
  EXPECT_THROW(TokenArray("abc", 3), Error);
  EXPECT_EQ(TokenArray().bytes(), "");
}

TEST(LoadText, ReadsFoldersRecursivelyAndSorted) {
  const TemporaryFolder folder;
  folder.write("b.txt", "second");
  folder.write("a/z.md", "first");
  folder.write("a/skip.html", "no");
  folder.write("a/notes", "no");
  folder.write("c/d/E.TXT", "third");
  folder.write("named.bin", "by name");
  const Corpus corpus = load_text({folder.path()});
  EXPECT_EQ(texts_of(corpus), (Texts{"first", "second", "third"}));
  EXPECT_TRUE(corpus.documents[0].name.ends_with("a/z.md")) << corpus.documents[0].name;
  EXPECT_EQ(corpus.vocabulary_size, 256U);
  EXPECT_EQ(corpus.tokenizer, "bytes");
  EXPECT_EQ(corpus.token_count(), 16U);
  EXPECT_EQ(corpus.text_bytes(), 16U);
  EXPECT_EQ(corpus.longest(), 6U);
  // The order of the paths asked for is kept, and a file that is named needs no known ending.
  EXPECT_EQ(texts_of(load_text({folder.path("named.bin"), folder.path("c"), folder.path("a")})),
            (Texts{"by name", "third", "first"}));
}

TEST(LoadText, AFileReachedTwiceCountsOnce) {
  const TemporaryFolder folder;
  folder.write("a/x.txt", "x");
  folder.write("a/y.txt", "y");
  fs::create_symlink("x.txt", folder.path("a/z.txt"));
  const std::string way = folder.path("a/../a/y.txt");
  EXPECT_EQ(texts_of(load_text({way, folder.path("a"), folder.path("a")})), (Texts{"y", "x"}));
}

TEST(LoadText, LoopsOfLinksEnd) {
  const TemporaryFolder folder;
  folder.write("a/x.txt", "x");
  fs::create_directory_symlink("..", folder.path("a/up"));
  fs::create_directory_symlink(".", folder.path("a/self.txt"));
  EXPECT_EQ(texts_of(load_text({folder.path()})), (Texts{"x"}));
  fs::create_symlink("ring.txt", folder.path("ring.txt"));
  const std::string message = message_of<Error>([&] { load_text({folder.path("ring.txt")}); });
  EXPECT_TRUE(contains(message, "ring.txt")) << message;
}

TEST(LoadText, ErrorsNameThePath) {
  const TemporaryFolder folder;
  const std::string file = folder.write("empty.txt", "");
  folder.write("pictures/x.png", "png");
  const auto load = [&](const std::string& name) { return message_of<Error>([&] { load_text({folder.path(name)}); }); };
  EXPECT_TRUE(contains(load("missing.txt"), "missing.txt"));
  EXPECT_TRUE(contains(load("empty.txt"), "empty.txt"));
  EXPECT_TRUE(contains(load("pictures"), "pictures"));
  EXPECT_TRUE(contains(load("pictures"), "*.txt"));
  // Below a file there is no folder. This stands in for "permission denied", which root never meets.
  EXPECT_TRUE(contains(load("empty.txt/inner.txt"), "inner.txt"));
  EXPECT_THROW(load_text({}), UsageError);
  EXPECT_THROW(load_text({""}), Error);
}

TEST(LoadText, EmptyFilesArePassedOver) {
  const TemporaryFolder folder;
  folder.write("a.txt", "");
  folder.write("b.txt", "b");
  EXPECT_EQ(texts_of(load_text({folder.path()})), (Texts{"b"}));
}

TEST(LoadText, KeepsEveryByte) {
  const TemporaryFolder folder;
  const std::string odd =
      std::string("\xEF\xBB\xBF") + "one\r\ntwo\r" + std::string("\0\xFF\xC3", 3) + "\xED\xA0\x80\n\x1A";
  folder.write("odd.txt", odd);
  const Corpus corpus = load_text({folder.path("odd.txt")});
  EXPECT_EQ(text_of(corpus.documents[0]), odd);
  EXPECT_EQ(corpus.documents[0].tokens[odd.size() - 2], 10U);
  EXPECT_EQ(corpus.documents[0].tokens[0], 0xEFU);
}

TEST(LoadText, OtherTokenizersKeepTheSizeOfTheText) {
  const TemporaryFolder folder;
  folder.write("a.txt", "abcd");
  const Corpus corpus = tokenized(load_text({folder.path()}), std::make_shared<PairTokenizer>());
  EXPECT_EQ(corpus.tokenizer, "pairs");
  EXPECT_EQ(corpus.token_count(), 2U);
  EXPECT_EQ(corpus.text_bytes(), 4U);
  EXPECT_EQ(corpus.text(0), "abcd");
  EXPECT_EQ(corpus.documents[0].tokens.width(), 2U);
  EXPECT_EQ(corpus.documents[0].tokens[1], 'c' * 256U + 'd');
  // Text that does not come back is refused, with its name.
  folder.write("a.txt", "abcde");
  const std::string message =
      message_of<Error>([&] { tokenized(load_text({folder.path()}), std::make_shared<PairTokenizer>()); });
  EXPECT_NE(message.find("byte for byte, 'pairs' does not with"), std::string::npos) << message;
}

TEST(Corpora, AreAppendedWhereTheyAreReadAlike) {
  Corpus all;
  append(all, text_corpus("first", "one"));
  append(all, text_corpus("and more", "two"));
  ASSERT_EQ(all.documents.size(), 2u);
  EXPECT_EQ(all.documents[1].name, "two");
  EXPECT_EQ(all.text(0) + all.text(1), "firstand more");
  EXPECT_EQ(all.text_bytes(), 13u);
  EXPECT_TRUE(all.of_bytes());
  Corpus tokens = text_corpus("third", "three");
  tokens.tokenizer = "tokens";
  EXPECT_THROW(append(all, tokens), Error);
  EXPECT_EQ(all.documents.size(), 2u);
}

TEST(CorpusHash, IsTheDigestOfTheDigests) {
  Corpus corpus = text_corpus("abc", "somewhere");
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // FIPS 180-4 example
  EXPECT_EQ(corpus.sha256(), sha256_hex(abc + "\n"));
  const Corpus more = text_corpus("d", "elsewhere");
  corpus.documents.push_back(more.documents[0]);
  const std::string both = corpus.sha256();
  EXPECT_NE(both, text_corpus("abcd", "x").sha256());  // the border between documents counts
  std::swap(corpus.documents[0], corpus.documents[1]);
  EXPECT_NE(corpus.sha256(), both);
  EXPECT_THROW(text_corpus("", "nothing"), Error);
}

TEST(LoadTokens, ReadsBothWidths) {
  const TemporaryFolder folder;
  const std::string bytes("\x01\x00\xFF\xFF\x00\x02\x03\x00", 8);
  const std::string path = folder.write("train.bin", bytes);
  const Corpus narrow = load_tokens(path, 2);
  ASSERT_EQ(narrow.token_count(), 4U);
  EXPECT_EQ(narrow.documents[0].tokens[1], 65535U);
  EXPECT_EQ(narrow.documents[0].tokens[2], 512U);
  EXPECT_EQ(narrow.vocabulary_size, 65536U);
  EXPECT_EQ(narrow.text_bytes(), 0U);
  const Corpus wide = load_tokens(path, 4);
  ASSERT_EQ(wide.token_count(), 2U);
  EXPECT_EQ(wide.documents[0].tokens[0], 0xFFFF0001U);
  EXPECT_EQ(wide.vocabulary_size, 0xFFFF0002U);
  EXPECT_EQ(load_tokens(path, 2, 100000).vocabulary_size, 100000U);
}

TEST(LoadTokens, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const std::string odd = folder.write("odd.bin", std::string("\0\0\1", 3));
  const std::string six = folder.write("six.bin", std::string("\0\0\1\0\2\0", 6));
  const std::string full = folder.write("full.bin", std::string("\xFF\xFF\xFF\xFF", 4));
  const std::string none = folder.write("none.bin", "");
  std::string message = message_of<Error>([&] { load_tokens(odd, 2); });
  EXPECT_TRUE(contains(message, "odd.bin") && contains(message, "3")) << message;
  message = message_of<Error>([&] { load_tokens(six, 4); });
  EXPECT_TRUE(contains(message, "multiple of 4")) << message;
  message = message_of<Error>([&] { load_tokens(six, 2, 2); });
  EXPECT_TRUE(contains(message, "below 2") && contains(message, "got 2") && contains(message, "index 2")) << message;
  EXPECT_EQ(load_tokens(six, 2, 3).vocabulary_size, 3U);
  EXPECT_THROW(load_tokens(full, 4), Error);  // max id + 1 would be 0
  EXPECT_THROW(load_tokens(none, 2), Error);
  EXPECT_THROW(load_tokens(folder.path(), 2), Error);
  EXPECT_THROW(load_tokens(folder.path("missing.bin"), 2), Error);
  EXPECT_THROW(load_tokens(six, 1), UsageError);
  EXPECT_THROW(load_tokens(six, 8), UsageError);
}

TEST(Split, TakesWholeDocumentsAndIsDeterministic) {
  const Corpus corpus = corpus_of_sizes(std::vector<std::size_t>(50, 100));
  const Split once = split(corpus, 0.1, 7);
  EXPECT_EQ(once.valid.documents.size(), 5U);
  EXPECT_EQ(once.train.documents.size(), 45U);
  std::set<std::string> names;
  for (const Corpus* side : {&once.train, &once.valid}) {
    for (const Document& document : side->documents) {
      names.insert(document.name);
      EXPECT_EQ(document.tokens.size(), 100U);
    }
    EXPECT_EQ(side->vocabulary_size, 256U);
    EXPECT_EQ(side->tokenizer, "bytes");
  }
  EXPECT_EQ(names.size(), 50U);
  EXPECT_EQ(split(corpus, 0.1, 7).valid.sha256(), once.valid.sha256());
  EXPECT_NE(split(corpus, 0.1, 8).valid.sha256(), once.valid.sha256());
  // The documents' order stays.
  for (std::size_t d = 1; d < once.train.documents.size(); ++d) {
    EXPECT_LT(std::stoi(once.train.documents[d - 1].name.substr(1)), std::stoi(once.train.documents[d].name.substr(1)));
  }
}

TEST(Split, ComesNearTheFractionWithUnequalDocuments) {
  std::vector<std::size_t> sizes{5000};
  for (std::size_t i = 1; i <= 40; ++i) sizes.push_back(i * 10);
  const Corpus corpus = corpus_of_sizes(sizes);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const double share = static_cast<double>(split(corpus, 0.1, seed).valid.token_count()) / 13200.0;
    EXPECT_GT(share, 0.08) << seed;
    EXPECT_LT(share, 0.12) << seed;
  }
}

TEST(Split, NeverGivesAwayEverything) {
  for (const double fraction : {0.001, 0.5, 0.999}) {
    const Split both = split(corpus_of_sizes({10, 10}), fraction, 3);
    EXPECT_EQ(both.train.documents.size(), 1U) << fraction;
    EXPECT_EQ(both.valid.documents.size(), 1U) << fraction;
  }
}

TEST(Split, KeepsDocumentsThatAreTooShortToEvaluateForTraining) {
  const Corpus corpus = corpus_of_sizes({1000, 3, 4, 5});
  // Without a bound the short ones would be the validation part; with one, the long document gives its end.
  const Split bounded = split(corpus, 0.1, 0, 50);
  ASSERT_EQ(bounded.valid.documents.size(), 1U);
  EXPECT_EQ(bounded.valid.documents[0].tokens.size(), 100U);
  EXPECT_EQ(bounded.train.documents.size(), 4U);
  EXPECT_EQ(bounded.train.documents[0].tokens.size(), 900U);
  EXPECT_EQ(bounded.train.documents[0].text_bytes, 900U);
}

TEST(Split, OneDocumentKeepsItsEnd) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>('0' + i % 10);
  const Split parts = split(text_corpus(text, "one"), 0.1, 0);
  EXPECT_EQ(text_of(parts.train.documents[0]), text.substr(0, 90));
  EXPECT_EQ(text_of(parts.valid.documents[0]), text.substr(90));
  EXPECT_EQ(parts.valid.documents[0].text_bytes, 10U);
  // Two bytes are the least that can be shared.
  EXPECT_EQ(text_of(split(text_corpus("ab", "two"), 0.1, 0).valid.documents[0]), "b");
  EXPECT_EQ(text_of(split(text_corpus("ab", "two"), 0.99, 0).train.documents[0]), "a");
  EXPECT_THROW(split(text_corpus("a", "one byte"), 0.1, 0), Error);
}

TEST(Split, NeverCutsACodePoint) {
  const std::string points[] = {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82"};
  for (std::size_t shift = 0; shift < 24; ++shift) {
    std::string text(shift, 'x');
    for (int i = 0; i < 40; ++i) text += points[(i * 7 + i / 4) % 4];
    for (const double fraction : {0.1, 0.33, 0.9, 0.999, 0.001}) {
      const Split parts = split(text_corpus(text, "t"), fraction, 0);
      const std::string head = text_of(parts.train.documents[0]);
      const std::string tail = text_of(parts.valid.documents[0]);
      EXPECT_EQ(head + tail, text);
      EXPECT_NE(static_cast<unsigned char>(tail[0]) & 0xC0U, 0x80U) << shift << " " << fraction;
      EXPECT_FALSE(head.empty() || tail.empty());
    }
  }
  EXPECT_THROW(split(text_corpus("\xF0\x9F\x99\x82", "one face"), 0.5, 0), Error);
  const Split two = split(text_corpus("\xF0\x9F\x99\x82\xC3\xA9", "face and letter"), 0.9, 0);
  EXPECT_EQ(text_of(two.valid.documents[0]), "\xC3\xA9");
  // What is not UTF-8 is cut near the wished place all the same.
  const Split bad = split(text_corpus(std::string(100, '\x80'), "bad"), 0.1, 0);
  EXPECT_GE(bad.valid.token_count(), 10U);
  EXPECT_LE(bad.valid.token_count(), 13U);
}

TEST(Split, CutsTokensWhereAsked) {
  Corpus corpus;
  corpus.tokenizer = "tokens";
  corpus.vocabulary_size = 256;
  corpus.documents.push_back({"ids", TokenArray(std::string(100, '\x80'), 1), 0});
  const Split parts = split(corpus, 0.25, 0);
  EXPECT_EQ(parts.valid.token_count(), 25U);
  EXPECT_EQ(parts.valid.text_bytes(), 0U);
}

TEST(Split, AllBytesAreInOnePart) {
  const std::string text =
      "a b c d e f g h i j k l m n o p q r s t";  // 39 bytes, 40 tokens; the end begins with a space
  const Corpus corpus = tokenized(text_corpus(text, "x"), std::make_shared<testing::SpacedTokenizer>());
  EXPECT_EQ(corpus.text_bytes(), 39U);
  for (const double fraction : {0.25, 0.225}) {  // 10 and 9 tokens
    const Split parts = split(corpus, fraction, 0);
    EXPECT_EQ(parts.valid.token_count(), static_cast<std::size_t>(std::lround(40 * fraction)));
    EXPECT_EQ(parts.train.text_bytes() + parts.valid.text_bytes(), 39U) << fraction;
  }
}

TEST(Split, RefusesMeaninglessFractions) {
  const Corpus corpus = corpus_of_sizes({10, 10});
  for (const double fraction : {0.0, 1.0, -0.1, std::nan("")}) EXPECT_THROW(split(corpus, fraction, 0), UsageError);
  EXPECT_THROW(split(Corpus(), 0.1, 0), Error);
}

struct ManifestRow {
  std::size_t bytes = 0;
  std::string sha256;
};

std::map<std::string, ManifestRow> read_manifest(const std::string& path) {
  std::map<std::string, ManifestRow> rows;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // the titles
  while (std::getline(file, line)) {
    std::vector<std::string> fields;
    std::istringstream stream(line);
    for (std::string field; std::getline(stream, field, '\t');) fields.push_back(field);
    if (fields.size() >= 7) rows[fields[0]] = {std::stoul(fields[4]), fields[6]};
  }
  return rows;
}

TEST(SharedText, ValidationPartIsWhatTheManifestSays) {
  const auto text = shared_data("text");
  if (!text) GTEST_SKIP() << "shared text is not here";
  const std::map<std::string, ManifestRow> manifest = read_manifest(*text + "/MANIFEST.tsv");
  const Corpus corpus = load_text({*text + "/valid"});
  EXPECT_EQ(corpus.documents.size(), 22U);
  EXPECT_EQ(corpus.token_count(), 4457201U);
  std::size_t listed = 0;
  for (const auto& [path, row] : manifest) listed += path.starts_with("valid/") ? 1 : 0;
  EXPECT_EQ(listed, corpus.documents.size());
  for (const Document& document : corpus.documents) {
    const std::string path = document.name.substr(text->size() + 1);
    ASSERT_TRUE(manifest.contains(path)) << path;
    EXPECT_EQ(document.tokens.size(), manifest.at(path).bytes) << path;
    EXPECT_EQ(sha256_hex(document.tokens.bytes()), manifest.at(path).sha256) << path;
  }
  EXPECT_EQ(corpus.sha256(), "d4d7965e31225c7cc2ad0e18a7cefe427a5e406ee257fb03543094d14c8fcbd7");
  EXPECT_TRUE(std::is_sorted(corpus.documents.begin(), corpus.documents.end(),
                             [](const Document& a, const Document& b) { return a.name < b.name; }));
}

TEST(SharedText, ChineseIsCutBetweenCharacters) {
  const auto path = shared_data("text/valid/zh/tang-poems.txt");
  if (!path) GTEST_SKIP() << "shared text is not here";
  const Corpus corpus = load_text({*path});
  for (int percent = 1; percent < 100; ++percent) {
    const Split parts = split(corpus, percent / 100.0, 0);
    const TokenId first = parts.valid.documents[0].tokens[0];
    EXPECT_NE(first & 0xC0U, 0x80U) << percent;
    EXPECT_NEAR(static_cast<double>(parts.valid.token_count()), 248054.0 * percent / 100.0, 4.0);
  }
}

}  // namespace
}  // namespace torsor
