// The bytes of llama2.c's models.
#include "torsor/data/llama2_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>

#include "tests/base/test_folder.h"
#include "tests/fuzz/fuzz.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;

void append(std::string& bytes, std::int32_t value) { bytes.append(reinterpret_cast<const char*>(&value), 4); }
void append(std::string& bytes, float value) { bytes.append(reinterpret_cast<const char*>(&value), 4); }

/// A file whose numbers count up; the count is of what the sizes ask for, written out.
std::string file_of(std::vector<std::int32_t> header, int numbers) {
  std::string bytes;
  for (const std::int32_t one : header) append(bytes, one);
  for (int i = 0; i < numbers; ++i) append(bytes, static_cast<float>(i));
  return bytes;
}

// dim 8, hidden 3, 2 layers, 2 heads, 1 key head, 5 tokens, length 6: embedding 40, norms 16, wq 128, wk 64, wv 64,
// wo 128, norms 16, w1 48, w2 48, w3 48, norm 8, tables 2 * 6 * 2.
constexpr int kNumbers = 40 + 16 + 128 + 64 + 64 + 128 + 16 + 48 + 48 + 48 + 8 + 24;
const std::vector<std::int32_t> kHeader = {8, 3, 2, 2, 1, 5, 6};

float number(const Llama2File::Tensor& tensor, std::size_t index) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data() + 4 * index, 4);
  return value;
}

TEST(Llama2File, TensorsLieWhereTheFormatPutsThem) {
  const Llama2File file = Llama2File::from_bytes(file_of(kHeader, kNumbers), "x.bin");
  EXPECT_EQ(file.sizes().hidden_dim, 3);
  EXPECT_EQ(file.sizes().head_dim(), 4);
  EXPECT_TRUE(file.sizes().tied);
  std::map<std::string, Llama2File::Tensor> found;
  for (const Llama2File::Tensor& one : file.tensors()) {
    std::size_t count = 1;
    for (const std::int64_t size : one.shape) count *= static_cast<std::size_t>(size);
    EXPECT_EQ(one.bytes.size(), 4 * count) << one.name;
    EXPECT_TRUE(found.emplace(one.name, one).second) << one.name;
  }
  EXPECT_EQ(found.size(), 1u + 9u * 2u + 1u);
  // First numbers, counted by hand.
  EXPECT_EQ(number(found.at("model.embed_tokens.weight"), 0), 0);
  EXPECT_EQ(number(found.at("model.layers.1.input_layernorm.weight"), 0), 48);
  EXPECT_EQ(number(found.at("model.layers.0.self_attn.q_proj.weight"), 0), 56);
  EXPECT_EQ(number(found.at("model.layers.1.self_attn.k_proj.weight"), 0), 184 + 32);
  EXPECT_EQ(number(found.at("model.layers.0.mlp.gate_proj.weight"), 0), 456);
  EXPECT_EQ(number(found.at("model.layers.0.mlp.down_proj.weight"), 0), 504);
  EXPECT_EQ(number(found.at("model.layers.1.mlp.up_proj.weight"), 23), 599);
  EXPECT_EQ(number(found.at("model.norm.weight"), 7), 607);
  EXPECT_EQ(found.at("model.layers.0.mlp.down_proj.weight").shape, (std::vector<std::int64_t>{8, 3}));
  // A negative vocabulary: a projection behind the tables.
  std::vector<std::int32_t> own = kHeader;
  own[5] = -5;
  const Llama2File untied = Llama2File::from_bytes(file_of(own, kNumbers + 40), "x.bin");
  EXPECT_FALSE(untied.sizes().tied);
  EXPECT_EQ(untied.tensors().back().name, "lm_head.weight");
  EXPECT_EQ(number(untied.tensors().back(), 0), 608 + 24);
}

TEST(Llama2File, DamageIsSaid) {
  const auto refused = [](const std::string& bytes, const std::string& part) {
    const std::string message = message_of<Error>([&] { Llama2File::from_bytes(bytes, "x.bin"); });
    EXPECT_TRUE(contains(message, part)) << message;
    EXPECT_TRUE(contains(message, "x.bin")) << message;
  };
  refused("", "28 bytes");
  refused(file_of(kHeader, 0).substr(0, 27), "got 27 bytes");
  refused(file_of(kHeader, kNumbers - 1), str("expected ", 4 * kNumbers + 28, " bytes"));
  refused(file_of(kHeader, kNumbers + 1), str("got ", 4 * kNumbers + 32));
  const auto with = [](std::size_t place, std::int32_t value) {
    std::vector<std::int32_t> header = kHeader;
    header[place] = value;
    return file_of(header, kNumbers);
  };
  refused(with(0, 0), "dim = 0");
  refused(with(2, -1), "n_layers = -1");
  refused(with(5, std::numeric_limits<std::int32_t>::min()), "vocab_size = -2147483648");
  refused(with(6, std::numeric_limits<std::int32_t>::max()), "seq_len = 2147483647");
  refused(with(3, 3), "must divide by n_heads 3");
  refused(with(3, 8), "pairs of channels");
  refused(with(4, 4), "n_kv_heads 4");
  std::vector<std::int32_t> huge = {1 << 20, 1 << 20, 1 << 14, 2, 1, 1 << 20, 1 << 20};
  refused(file_of(huge, 1), "more than 1e15");
}

TEST(Llama2FileFuzz, MutatedFilesAreReadOrRefused) {
  const auto word = [](std::int32_t value) {
    std::string bytes;
    append(bytes, value);
    return bytes;
  };
  const std::vector<std::int32_t> tiny = {4, 2, 1, 2, 2, 3, 2};
  constexpr int kTiny = 12 + 4 + 16 * 4 + 4 + 8 * 3 + 4 + 2 * 2 * 1;
  fuzz::Run run("llama2-file", {.seeds = {file_of(kHeader, kNumbers), file_of(tiny, kTiny)},
                                .pieces = {word(0), word(1), word(-1), word(2), word(-3), word(1 << 20), word(1 << 24),
                                           word(std::numeric_limits<std::int32_t>::max()),
                                           word(std::numeric_limits<std::int32_t>::min()), std::string(1, '\x7F')}});
  while (run.next()) {
    // Past the first check: the sizes have a meaning.
    bool past = true;
    try {
      const Llama2File file = Llama2File::from_bytes(run.input(), "fuzz.bin");
      volatile float read = 0;  // what is read must lie in the file: the sanitizer watches
      for (const Llama2File::Tensor& one : file.tensors())
        read = number(one, 0) + number(one, one.bytes.size() / 4 - 1);
      static_cast<void>(read);
    } catch (const Error& error) {
      past = std::string(error.what()).find("expected a model of llama2.c") == std::string::npos;
    }
    run.count(past);
  }
  run.report(0.2);
}

}  // namespace
}  // namespace torsor
