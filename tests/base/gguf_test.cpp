// The GGUF reader: values of every type, widening, and files that are not what they say.
#include "torsor/base/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/base/gguf_file.h"
#include "tests/base/test_folder.h"
#include "tests/fuzz/fuzz.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"

namespace torsor {
namespace {

using testing::bytes_of;
using testing::contains;
using testing::gguf_text;
using testing::GgufParts;
using testing::message_of;
using testing::small_gguf;

std::vector<float> numbers_of(const GgufEntry& entry) {
  std::vector<float> numbers(static_cast<std::size_t>(entry.elements()));
  entry.read(numbers.data());
  return numbers;
}

TEST(Gguf, ReadsKeysAndTensors) {
  const GgufFile file = GgufFile::from_bytes(small_gguf().build(), "a.gguf");
  EXPECT_EQ(file.text("general.architecture", ""), "llama");
  EXPECT_EQ(file.integer("llama.block_count"), 7);
  EXPECT_EQ(file.integer("a.u8"), 200);
  EXPECT_EQ(file.integer("a.i8"), -3);
  EXPECT_EQ(file.integer("a.i16"), -300);
  EXPECT_EQ(file.real("a.f32", 0), 0.5);
  EXPECT_EQ(std::get<bool>(file.keys().at("a.flag")), true);
  EXPECT_EQ(std::get<std::uint64_t>(file.keys().at("a.u64")), ~std::uint64_t{0});
  EXPECT_EQ(file.integer("a.i64"), -5);
  EXPECT_EQ(file.real("a.f64", 0), 0.1);
  EXPECT_EQ(file.real("a.i64", 0), -5);
  EXPECT_EQ(file.texts("a.names"), (std::vector<std::string>{"x", ""}));
  EXPECT_EQ(file.reals("a.reals"), (std::vector<double>{1.5, -2}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(file.keys().at("a.wholes")), std::vector<std::int64_t>{-9});
  EXPECT_EQ(file.integer("none", 4), 4);
  EXPECT_EQ(file.real("none", 4), 4);
  EXPECT_TRUE(contains(message_of<Error>([&] { file.integer("none"); }), "'none' is missing"));
  EXPECT_TRUE(contains(message_of<Error>([&] { file.integer("a.f32"); }), "whole number"));
  EXPECT_TRUE(contains(message_of<Error>([&] { file.text("a.u8", ""); }), "a string"));
  EXPECT_TRUE(contains(message_of<Error>([&] { file.texts("a.reals"); }), "list of strings"));

  const GgufEntry& first = file.entries().at("first");
  EXPECT_EQ(first.shape, (std::vector<std::int64_t>{2, 3}));  // slowest first
  EXPECT_EQ(numbers_of(first), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  const std::vector<float> second = numbers_of(file.entries().at("second"));
  for (int i = 0; i < 32; ++i) EXPECT_EQ(second[static_cast<std::size_t>(i)], 0.5F * static_cast<float>(i - 16));
}

TEST(Gguf, WidensEveryHalf) {
  GgufParts parts;
  std::string halves, brains;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    halves += bytes_of(static_cast<std::uint16_t>(bits));
    brains += bytes_of(static_cast<std::uint16_t>(bits));
  }
  parts.tensors = {{"half", {65536}, 1, halves}, {"brain", {65536}, 30, brains}};
  const GgufFile file = GgufFile::from_bytes(parts.build(), "a.gguf");
  const std::vector<float> half = numbers_of(file.entries().at("half")), brain = numbers_of(file.entries().at("brain"));
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    // By the definition of the format, in double.
    const int exponent = static_cast<int>((bits >> 10) & 31), fraction = static_cast<int>(bits & 1023);
    const double sign = bits >= 32768 ? -1 : 1;
    const double expected = exponent == 0   ? sign * std::ldexp(fraction, -24)
                            : exponent < 31 ? sign * std::ldexp(1024 + fraction, exponent - 25)
                            : fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                                            : std::numeric_limits<double>::quiet_NaN();
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(half[bits])) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(half[bits]), expected) << bits;
    }
    std::uint32_t word;
    std::memcpy(&word, &brain[bits], sizeof word);
    ASSERT_EQ(word, bits << 16);
  }
  EXPECT_TRUE(std::signbit(half[32768]));
}

TEST(Gguf, WhatIsNotSoundIsRefused) {
  const auto refused = [](const std::function<void(GgufParts&)>& spoil, const char* part) {
    GgufParts parts = small_gguf();
    spoil(parts);
    const std::string message = message_of<Error>([&] { GgufFile::from_bytes(parts.build(), "a.gguf"); });
    EXPECT_TRUE(contains(message, "a.gguf") && contains(message, part)) << part << ": " << message;
  };
  refused([](GgufParts& p) { p.magic = "GGML"; }, "'GGUF'");
  refused([](GgufParts& p) { p.version = 1; }, "version 2 or 3, found 1");
  refused([](GgufParts& p) { p.version = 3U << 24; }, "other byte order");
  refused([](GgufParts& p) { p.number_key("llama.block_count", 8); }, "given twice");
  refused([](GgufParts& p) { p.key("b", 13, ""); }, "unknown type 13");
  refused([](GgufParts& p) { p.key("b", 7, "\x02"); }, "must be 0 or 1");
  refused([](GgufParts& p) { p.key("", 0, "a"); }, "a key of 0 bytes");
  refused([](GgufParts& p) { p.key("\xFF", 0, "a"); }, "UTF-8");
  refused([](GgufParts& p) { p.key("b", 9, bytes_of(std::uint32_t{9}) + bytes_of(std::uint64_t{0})); },
          "array of arrays");
  refused([](GgufParts& p) { p.key("b", 9, bytes_of(std::uint32_t{0}) + bytes_of(std::uint64_t{1} << 40)); },
          "bytes are left");
  refused([](GgufParts& p) { p.key("b", 8, bytes_of(~std::uint64_t{0})); }, "bytes");
  refused([](GgufParts& p) { p.number_key("general.alignment", 12); }, "power of two");
  refused([](GgufParts& p) { p.number_key("general.alignment", 4); }, "power of two");
  refused([](GgufParts& p) { p.number_key("general.alignment", 64); }, "lies at");
  refused([](GgufParts& p) { p.tensors[0].type = 12; }, "Q4_K");
  refused([](GgufParts& p) { p.tensors[0].type = 99; }, "type 99");
  refused([](GgufParts& p) { p.tensors[0].name = std::string(65, 'a'); }, "65 bytes");
  refused([](GgufParts& p) { p.tensors[0].sizes = {1, 1, 1, 1, 6}; }, "5 dimensions");
  refused([](GgufParts& p) { p.tensors[0].sizes = {~std::uint64_t{0}, 2}; }, "more numbers");
  refused([](GgufParts& p) { p.tensors[0].sizes = {std::uint64_t{1} << 30, std::uint64_t{1} << 30}; }, "more numbers");
  refused([](GgufParts& p) { p.tensors[0].sizes = {300, 2}; }, "takes 2400 bytes");
  refused([](GgufParts& p) { p.tensors[1].sizes = {31}; }, "multiple of 32");
  refused([](GgufParts& p) { p.tensors[1].sizes = {64}; }, "takes 68 bytes");
  refused([](GgufParts& p) { p.tensors[1].name = "first"; }, "there twice");
  const std::string whole = small_gguf().build();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(GgufFile::from_bytes(whole.substr(0, size), "a.gguf"), Error) << size;
  // Nothing but keys is a file too (vocabularies).
  GgufParts keys = small_gguf();
  keys.tensors.clear();
  EXPECT_EQ(GgufFile::from_bytes(keys.build(), "a.gguf").entries().size(), 0u);
  EXPECT_THROW(GgufFile("no/such.gguf"), Error);
}

TEST(Gguf, ReadsTheFilesOfAnotherProgram) {
  const std::string folder = testing::shared_path("data/models");
  if (folder.empty()) GTEST_SKIP() << "the shared data are not here";
  const GgufFile stories(folder + "/stories260K/stories260K.gguf");
  EXPECT_EQ(stories.entries().size(), 48u);
  EXPECT_EQ(stories.texts("tokenizer.ggml.tokens").size(), 512u);
  std::size_t vocabularies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/ggml-vocab")) {
    if (entry.path().extension() != ".gguf") continue;
    EXPECT_GT(GgufFile(entry.path().string()).texts("tokenizer.ggml.tokens").size(), 1000u) << entry.path();
    ++vocabularies;
  }
  EXPECT_GT(vocabularies, 0u);
}

TEST(GgufFuzz, MutatedFilesAreReadOrRefused) {
  GgufParts keys = small_gguf(), tensors = small_gguf();
  keys.tensors.clear();
  tensors.keys.resize(2);
  fuzz::Run run("gguf",
                {.seeds = {small_gguf().build(), keys.build(), tensors.build()},
                 .pieces = {bytes_of(std::uint64_t{0}), bytes_of(~std::uint64_t{0}), bytes_of(std::uint64_t{1} << 32),
                            bytes_of(std::uint32_t{9}), bytes_of(std::uint32_t{8}), bytes_of(std::uint32_t{30}),
                            bytes_of(std::uint64_t{3}), gguf_text("general.alignment"), gguf_text("first"), "GGUF",
                            std::string(32, '\0'), std::string(1, '\x7F')}});
  while (run.next()) {
    // Past the first check: magic and version.
    bool past = false;
    try {
      const GgufFile file = GgufFile::from_bytes(run.input(), "fuzz.gguf");
      past = true;
      for (const auto& [name, entry] : file.entries()) numbers_of(entry);
    } catch (const Error& error) {
      const std::string message = error.what();
      past = message.find("'GGUF'") == std::string::npos && message.find("version") == std::string::npos &&
             message.find("the first word") == std::string::npos;
    }
    run.count(past);
  }
  run.report(0.2);
}

}  // namespace
}  // namespace torsor
