#include "torsor/train/state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/train/workbench.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/train/snapshot.h"

namespace torsor {
namespace {

using testing::TemporaryFolder;

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TensorFile, EveryTypeComesBack) {
  const TemporaryFolder folder;
  const std::string path = folder / "t.safetensors";
  std::map<std::string, at::Tensor> tensors;
  const at::Tensor values = at::tensor({0.0, 1.0, 2.5, 3.0, 100.0, 7.0}, at::kDouble).view({2, 3});
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kShort,
                                    at::kChar, at::kByte, at::kBool, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    tensors.emplace(c10::toString(type), values.to(type));
  }
  save_tensors(path, tensors, {{"about", "test"}});
  const TensorFile file = load_tensors(path);
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"about", "test"}}));
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(file.tensors.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(file.tensors.at(name).sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(at::equal(file.tensors.at(name).to(at::kDouble), tensor.to(at::kDouble))) << name;
  }
}

TEST(TensorFile, KeepsShapesAndReadsStrides) {
  const TemporaryFolder folder;
  const std::string path = folder / "t.safetensors";
  const at::Tensor base = at::arange(24, at::kFloat).view({2, 3, 4});
  save_tensors(path, {{"scalar", at::scalar_tensor(4.5)},
                      {"empty", at::zeros({3, 0, 2})},
                      {"turned", base.permute({2, 0, 1})},
                      {"expanded", at::ones({1, 2}).expand({3, 2})},
                      {"sliced", base.select(2, 1)},
                      {"trained", at::ones({2}).requires_grad_(true)}});
  const auto tensors = load_tensors(path).tensors;
  EXPECT_EQ(tensors.at("scalar").dim(), 0);
  EXPECT_EQ(tensors.at("scalar").item<float>(), 4.5f);
  EXPECT_EQ(tensors.at("empty").sizes(), at::IntArrayRef({3, 0, 2}));
  EXPECT_TRUE(at::equal(tensors.at("turned"), base.permute({2, 0, 1})));
  EXPECT_TRUE(at::equal(tensors.at("expanded"), at::ones({3, 2})));
  EXPECT_TRUE(at::equal(tensors.at("sliced"), base.select(2, 1)));
  EXPECT_FALSE(tensors.at("trained").requires_grad());
  const SafetensorsFile file(path);
  EXPECT_TRUE(at::equal(load_tensor(file, "sliced"), base.select(2, 1)));
  EXPECT_THROW(load_tensor(file, "nothing"), Error);
}

TEST(TensorFile, NamesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const std::string path = folder / "t.safetensors";
  EXPECT_EQ(error_of([&] {
              save_tensors(path, {{"w", at::Tensor()}});
            }),
            "cannot write '" + path + "': tensor 'w' is undefined");
  EXPECT_EQ(
      error_of([&] {
        save_tensors(path, {{"w", at::zeros({1}, at::kComplexFloat)}});
      }),
      "cannot write '" + path + "': tensor 'w': tensors of type ComplexFloat cannot be kept in a safetensors file");
  EXPECT_FALSE(std::filesystem::exists(path));
  const std::map<std::string, at::Tensor> tensors = {{"w", at::zeros({2, 3}, at::kHalf)}};
  EXPECT_TRUE(find_tensor(tensors, "w", at::zeros({2, 3}, at::kHalf), "f").defined());
  EXPECT_EQ(error_of([&] {
              find_tensor(tensors, "w", at::zeros({3, 2}, at::kHalf), "f");
            }),
            "f: tensor 'w' must be float16 [3, 2], found float16 [2, 3]");
  EXPECT_EQ(error_of([&] {
              find_tensor(tensors, "w", at::zeros({2, 3}, at::kLong), "f");
            }),
            "f: tensor 'w' must be int64 [2, 3], found float16 [2, 3]");
  EXPECT_EQ(error_of([&] { find_tensor(tensors, "v", at::zeros({}), "f"); }),
            "f: tensor 'v' is missing, expected float32 []");
}

Snapshot example() {
  Snapshot snapshot;
  snapshot.step = 7;
  snapshot.seed = 18446744073709551615U;
  snapshot.seconds = 0.1;
  snapshot.configuration = {{"rate", 0.003}, {"model", {{"width", 128}, {"windows", {1, 2}}}}};
  snapshot.extra = {{"cursor", "12;\"x\""}, {"rng", ""}};
  snapshot.tensors = {{"w", at::arange(6, at::kFloat).view({2, 3})}, {"n", at::arange(3, at::kLong)}};
  return snapshot;
}

TEST(Snapshot, ComesBack) {
  const TemporaryFolder folder;
  const std::string path = folder / "s.safetensors";
  save_snapshot(path, example());
  const Snapshot found = load_snapshot(path, example().configuration);
  EXPECT_EQ(found.step, 7);
  EXPECT_EQ(found.seed, 18446744073709551615U);
  EXPECT_EQ(found.seconds, 0.1);
  EXPECT_EQ(found.extra, example().extra);
  ASSERT_EQ(found.tensors.size(), 2U);
  EXPECT_TRUE(at::equal(found.tensors.at("w"), example().tensors.at("w")));
  EXPECT_TRUE(at::equal(found.tensors.at("n"), example().tensors.at("n")));
  Snapshot bad = example();
  bad.extra["rng"] = "\xff";
  EXPECT_EQ(error_of([&] { save_snapshot(path, bad); }), "cannot write '" + path + "': the entry 'rng' is not UTF-8");
}

TEST(Snapshot, AnyDamageIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = folder / "s.safetensors";
  save_snapshot(path, example());
  const std::string whole = read_file(path);
  const auto load = [&] { return error_of([&] { load_snapshot(path, example().configuration); }); };
  ASSERT_EQ(load(), "no error");
  const auto put = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    put(changed);
    const std::string message = load();
    EXPECT_NE(message, "no error") << "byte " << i;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  for (std::size_t size = 0; size < whole.size(); size += 13) {
    put(whole.substr(0, size));
    EXPECT_NE(load(), "no error") << size;
  }
  std::string changed = whole;
  changed.back() = static_cast<char>(changed.back() ^ 64);
  put(changed);
  EXPECT_EQ(load(),
            "state '" + path + "': the content does not match its checksum: the file was damaged after it was written");
  save_tensors(path, example().tensors);
  EXPECT_EQ(load(), "state '" + path + "': expected format torsor-state-1, found ''");
  std::filesystem::remove(path);
  EXPECT_NE(load().find("cannot read '" + path + "'"), std::string::npos);
}

TEST(Snapshot, AnotherConfigurationIsRefusedByKey) {
  const TemporaryFolder folder;
  const std::string path = folder / "s.safetensors";
  save_snapshot(path, example());
  Json other = example().configuration;
  other["model"]["width"] = 256;
  EXPECT_EQ(error_of([&] { load_snapshot(path, other); }),
            "state '" + path + "' belongs to another run: model.width is 128 there and 256 here");
}

TEST(Snapshot, FirstDifference) {
  const auto difference = [](const char* there, const char* here) {
    return first_difference(parse_json(there, "a"), parse_json(here, "b"));
  };
  EXPECT_EQ(difference(R"({"a": 1, "b": [1, {"c": null}]})", R"({"b": [1, {"c": null}], "a": 1.0})"), "");
  EXPECT_EQ(difference(R"({"a": 1})", R"({})"), "a is 1 there and missing here");
  EXPECT_EQ(difference(R"({})", R"({"a": "x"})"), "a is missing there and \"x\" here");
  EXPECT_EQ(difference(R"({"a": [1, 2]})", R"({"a": [1, 3, 4]})"), "a[1] is 2 there and 3 here");
  EXPECT_EQ(difference(R"({"a": [1, 2]})", R"({"a": [1]})"), "a[1] is 2 there and missing here");
  EXPECT_EQ(difference(R"({"a": {"b": 1}})", R"({"a": true})"), "a is {\"b\":1} there and true here");
  EXPECT_EQ(difference("1", "2"), "the configuration is 1 there and 2 here");
}

}  // namespace
}  // namespace torsor
