// Ids of texts that other programs gave, for the tests of tokenizers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/data/tokenizer.h"

namespace torsor::data_test {

using Ids = std::vector<TokenId>;

/// A literal with the NULs inside it.
template <std::size_t size>
std::string text(const char (&literal)[size]) {
  return std::string(literal, size - 1);
}

/// How many ids a text has, and the first 16 digits of the SHA-256 of them as little-endian uint32.
struct Digest {
  std::size_t count = 0;
  std::string sha256;
  bool operator==(const Digest&) const = default;
};

inline Digest digest_of(const Ids& ids) {
  std::string bytes;
  for (const TokenId id : ids)
    for (unsigned b = 0; b < 4; ++b) bytes += static_cast<char>(static_cast<unsigned char>(id >> (8 * b)));
  return {ids.size(), sha256_hex(bytes).substr(0, 16)};
}

inline std::ostream& operator<<(std::ostream& out, const Digest& digest) {
  return out << digest.count << " ids, " << digest.sha256;
}

/// What every tokenizer of the shared data makes of a text of it, the first 100,000 bytes where it is longer.
struct GoldenText {
  const char* file;
  Digest cased, uncased;                                    // tokenizers 0.23.3, BertWordPieceTokenizer
  Digest t5;                                                // tokenizers 0.23.3
  Digest mistral_v1, mistral_v3, english, japanese, small;  // sentencepiece 0.2.3
};

inline const std::vector<GoldenText>& golden_texts() {
  static const std::vector<GoldenText> texts = {
      {"extra/tinyshakespeare.txt",
       {27828, "67370cc2e0b1d4f7"},
       {27185, "29e3c2708d598394"},
       {29994, "f2488a71725b77f1"},
       {32619, "0e7bc21936675fad"},
       {32619, "5bbb0ce5279829b9"},
       {47676, "930c6dbb048f2548"},
       {92922, "0e64dec8562a9bcf"},
       {40119, "fcf9300e33a9a518"}},
      {"extra/udhr/arb.txt",
       {1446, "b8b07bfcdf7a56ad"},
       {1446, "b8b07bfcdf7a56ad"},
       {2736, "305c594d7a44ba26"},
       {7058, "5229457aafed3131"},
       {7058, "bb65bd925894a221"},
       {2868, "881d1bd2d0cbd1d3"},
       {2851, "37d6d8f3b19c7f23"},
       {2782, "b0e4874ca2fa9df3"}},
      {"extra/udhr/ben.txt",
       {1549, "59f906f3e70d6654"},
       {1549, "59f906f3e70d6654"},
       {3063, "06d99d90e5f91d77"},
       {11301, "38352cf373669ae6"},
       {11301, "eb53bf70b6a763cf"},
       {2841, "0ff23108e55bbfcf"},
       {2905, "1c1262e3013760d8"},
       {3061, "0aee11afaa60d526"}},
      {"extra/udhr/fra.txt",
       {3465, "6a639089647f0ee4"},
       {3851, "fcf5c457b881f2ef"},
       {3523, "3603f9dbb44c2e2f"},
       {3657, "82b387e2684f9115"},
       {3657, "627933479727a0e7"},
       {6986, "4309587eba59bb14"},
       {11085, "5931627f9cf1e65d"},
       {6532, "16a3a2a48084be6b"}},
      {"extra/udhr/jpn.txt",
       {3000, "2bd2d269397c0755"},
       {3000, "2bd2d269397c0755"},
       {250, "e5ae8c03bae60205"},
       {5004, "ee8b59df75bc0723"},
       {5004, "ec80135e770a291a"},
       {254, "adb487a7468b08f2"},
       {2687, "0f01fa09036e39bd"},
       {257, "03e274fe553e2c81"}},
      {"extra/udhr/kor.txt",
       {1322, "ffaebb56f7d19f8f"},
       {1322, "ffaebb56f7d19f8f"},
       {2475, "9dab020d190fb590"},
       {5183, "fadd227dec8f5105"},
       {5183, "b047a8edf1b2a8ff"},
       {2586, "72ff29e05d7cde31"},
       {2557, "88854cd469b70cb5"},
       {2515, "72a41c73d7247d67"}},
      {"extra/udhr/rus.txt",
       {1829, "f26c0dac75c1d75b"},
       {1830, "3ccef24ad7ce341e"},
       {8434, "eccbca0515a2f739"},
       {4464, "7f350a09dbdad00e"},
       {4464, "2eb2f32e96480af5"},
       {3527, "03e6fa14fac60cd6"},
       {3510, "d6ec2765fa1e7adf"},
       {3445, "d5d16a5c45be9fc6"}},
      {"extra/udhr/spa.txt",
       {3782, "d7754c32d8d1947c"},
       {4183, "094db3164e0f45d7"},
       {4938, "8866e31d0785bd49"},
       {3670, "15fc0fc451832658"},
       {3670, "2a96489182bea081"},
       {7350, "400089f7ae62c0ec"},
       {11077, "d70fe967b8a7af89"},
       {6979, "36b335320699f21b"}},
      {"extra/udhr/tha.txt",
       {358, "e29b655aaad71952"},
       {358, "e29b655aaad71952"},
       {669, "7906a156304ea63c"},
       {9616, "d647934f14343002"},
       {9616, "c81e20833761a5bb"},
       {672, "080122f04267656c"},
       {722, "ef16d52a531e0d76"},
       {709, "a550acfdd619d1df"}},
      {"extra/udhr/vie.txt",
       {2876, "c82b88c3dc3b63ec"},
       {4846, "1fb7de56290433b4"},
       {9742, "92f7bcc78ca7d2e5"},
       {9184, "aa0e507fca29b45a"},
       {9184, "5eb367b6c653b6e4"},
       {9041, "71d0b4f768a8ce77"},
       {10644, "853ef6fe8fb753f8"},
       {8619, "d562967f3f1104cd"}},
      {"extra/udhr/heb.txt",
       {1477, "3e312f10cf6dce15"},
       {1477, "3e312f10cf6dce15"},
       {2752, "9a5f31ee25ae93a8"},
       {7454, "a75ddc8502c2532c"},
       {7454, "0171c6c6ebba4767"},
       {2840, "654dfd3918a4d530"},
       {2840, "1b4e4ba65dfef3eb"},
       {2752, "ac5baeefddabe908"}},
      {"extra/udhr/hin.txt",
       {2292, "00c0ff05528f7b39"},
       {2292, "00c0ff05528f7b39"},
       {4418, "b035eb0ca8d8d2c1"},
       {12309, "b8df2b4dce93daac"},
       {12309, "f9813165087e233e"},
       {4445, "cd00b0331d102a72"},
       {4457, "70dbe0ad725b739f"},
       {4408, "fdaed6786a6cf8a7"}},
      {"extra/udhr/amh.txt",
       {2125, "4f552027cbf770e8"},
       {2125, "4f552027cbf770e8"},
       {166, "9ca9573031e27d88"},
       {14274, "cda95367709fef5e"},
       {14274, "643899d3706dc542"},
       {100, "28708f1eacb558f7"},
       {166, "a70d752602e25171"},
       {166, "3ef478c68a5ec569"}},
  };
  return texts;
}

/// Its text, from the folder of the shared texts.
inline std::string golden_text(const std::string& folder, const GoldenText& golden) {
  return read_file(folder + "/" + golden.file).substr(0, 100000);
}

/// The texts of a llama.cpp file of test texts.
inline std::vector<std::string> ggml_texts(const std::string& base) {
  const std::string all = read_file(base + ".inp"), mark = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find(mark, begin), all.size());
    texts.push_back(all.substr(begin, end - begin));
    begin = end + mark.size();
  }
  return texts;
}

/// The same with their ids, which stand one text a line in the file beside it.
inline std::vector<std::pair<std::string, Ids>> ggml_cases(const std::string& base) {
  std::istringstream lines(read_file(base + ".out"));
  std::vector<std::pair<std::string, Ids>> cases;
  for (const std::string& one : ggml_texts(base)) {
    std::string line;
    if (!std::getline(lines, line)) break;
    Ids ids;
    std::istringstream words(line);
    for (TokenId id = 0; words >> id;) ids.push_back(id);
    cases.emplace_back(one, ids);
  }
  return cases;
}

}  // namespace torsor::data_test
