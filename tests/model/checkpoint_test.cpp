// Checkpoint folders: exact round trip, and every kind of damage reported with its file.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/base/test_folder.h"
#include "torsor/base/file.h"
#include "torsor/model/checkpoint.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

Decoder small_model(const std::string& encoding) {
  ModelConfig config;
  config.width = 16;
  config.layers = 2;
  config.heads = 2;
  config.vocabulary_size = 20;
  config.train_length = 8;
  config.encoding = encoding;
  return Decoder(config, 1);
}

std::string failure(const std::string& folder, const std::string& encoding = "") {
  try {
    load_checkpoint(folder, encoding);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Checkpoint, ReadsBackExactly) {
  const testing::TestFolder folder;
  for (const std::string& encoding :
       {std::string("rope"), std::string("t5(shared=true) + kerple"), std::string("learned"),
        std::string("layers(rope(base=500), alibi(learn=true))")}) {
    const std::string path = (folder / "model");
    const Decoder model = small_model(encoding);
    save_checkpoint(path, model, "bytes");
    const LoadedModel loaded = load_checkpoint(path);
    EXPECT_EQ(loaded.tokenizer, "bytes");
    EXPECT_EQ(loaded.model.config().encoding, encoding);
    ASSERT_EQ(loaded.model.parameters().size(), model.parameters().size());
    for (std::size_t n = 0; n < model.parameters().size(); ++n) {
      EXPECT_EQ(loaded.model.parameters()[n].name, model.parameters()[n].name);
      EXPECT_TRUE(at::equal(loaded.model.parameters()[n].tensor, model.parameters()[n].tensor));
    }
  }
}

TEST(Checkpoint, WritesHuggingFaceKeysWhereTheArchitectureExists) {
  const testing::TestFolder folder;
  save_checkpoint((folder / "a"), small_model("yarn(rope(base=500), factor=4, beta_fast=16)"), "bytes");
  const Json json = read_json((folder / "a") + "/config.json");
  EXPECT_EQ(json.at("model_type"), "llama");
  EXPECT_EQ(json.at("hidden_size"), 16);
  EXPECT_EQ(json.at("rope_parameters").at("rope_theta"), 500);
  EXPECT_EQ(json.at("rope_parameters").at("rope_type"), "yarn");
  EXPECT_EQ(json.at("rope_parameters").at("factor"), 4);
  EXPECT_EQ(json.at("rope_parameters").at("beta_fast"), 16);
  EXPECT_EQ(json.at("rope_parameters").at("original_max_position_embeddings"), 8);
  save_checkpoint((folder / "b"), small_model("alibi"), "bytes");
  EXPECT_FALSE(read_json((folder / "b") + "/config.json").contains("model_type"));
}

TEST(Checkpoint, ReadsUnderAnotherExpressionWhenTheTensorsFit) {
  const testing::TestFolder folder;
  save_checkpoint((folder / "a"), small_model("rope"), "bytes");
  EXPECT_EQ(load_checkpoint((folder / "a"), "yarn(rope,factor=2)").model.config().encoding, "yarn(rope, factor=2)");
  EXPECT_NE(failure((folder / "a"), "t5").find("model.layers.0.self_attn.position.t5.table is missing"),
            std::string::npos);
  EXPECT_THROW(load_checkpoint((folder / "a"), "roep"), UsageError);
}

TEST(Checkpoint, ReportsDamage) {
  const testing::TestFolder folder;
  const std::string path = (folder / "a"), config = path + "/config.json", weights = path + "/model.safetensors";
  save_checkpoint(path, small_model("rope"), "bytes");
  const std::string good_config = read_file(config), good_weights = read_file(weights);
  const auto with_config = [&](const std::string& text) {
    write_file_atomic(config, text);
    const std::string message = failure(path);
    write_file_atomic(config, good_config);
    return message;
  };
  EXPECT_NE(with_config("{").find(config), std::string::npos);
  EXPECT_NE(with_config("{}").find("format"), std::string::npos);
  EXPECT_NE(with_config("[]").find(config), std::string::npos);
  EXPECT_NE(with_config(R"({"format": "torsor-checkpoint-9"})").find("torsor-checkpoint-9"), std::string::npos);
  Json json = parse_json(good_config, "test");
  json["encoding"] = "roep";
  EXPECT_NE(with_config(json_text(json)).find("did you mean 'rope'"), std::string::npos);
  json = parse_json(good_config, "test");
  json["model"]["widht"] = 3;
  EXPECT_NE(with_config(json_text(json)).find("widht"), std::string::npos);
  json = parse_json(good_config, "test");
  json["model"]["width"] = 32;
  json["model"]["head_dim"] = 8;
  EXPECT_NE(with_config(json_text(json)).find("model.embed_tokens.weight must have shape [20, 32], found [20, 16]"),
            std::string::npos);
  json["model"]["width"] = -1;
  EXPECT_NE(with_config(json_text(json)).find("width must be at least 1"), std::string::npos);

  for (const std::size_t keep : {std::size_t{0}, std::size_t{5}, std::size_t{100}, good_weights.size() - 1}) {
    write_file_atomic(weights, good_weights.substr(0, keep));
    EXPECT_NE(failure(path).find("model.safetensors"), std::string::npos) << keep;
  }
  write_file_atomic(weights, good_weights + "x");
  EXPECT_NE(failure(path).find("model.safetensors"), std::string::npos);
  TensorFile file;
  write_file_atomic(weights, good_weights);
  file = load_tensors(weights);
  std::map<std::string, at::Tensor> tensors = file.tensors;
  tensors.erase("model.norm.weight");
  save_tensors(weights, tensors);
  EXPECT_NE(failure(path).find("model.norm.weight is missing"), std::string::npos);
  tensors = file.tensors;
  tensors["extra"] = at::zeros({1});
  save_tensors(weights, tensors);
  EXPECT_NE(failure(path).find("extra has no place"), std::string::npos);
  tensors.erase("extra");
  tensors["model.norm.weight"] = at::zeros({16}, at::kLong);
  save_tensors(weights, tensors);
  EXPECT_NE(failure(path).find("must hold real numbers"), std::string::npos);
  std::filesystem::remove(weights);
  EXPECT_NE(failure(path).find("model.safetensors"), std::string::npos);
  EXPECT_NE(failure((folder / "nowhere")).find("nowhere"), std::string::npos);
}

}  // namespace
}  // namespace torsor
