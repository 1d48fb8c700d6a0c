// Models in the form of Hugging Face transformers: folders that were read come out as they were, models of this project
// find the family that has them, and what none has is said.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/base/test_folder.h"
#include "tests/model/hugging_face_folders.h"
#include "torsor/base/file.h"
#include "torsor/data/bpe.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/convert.h"
#include "torsor/model/hugging_face.h"
#include "torsor/model/hugging_face_export.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

using testing::contains;
using testing::hugging_face_folder;
using testing::kHuggingFaceFolders;
using testing::message_of;
using testing::shared_path;
using testing::TestFolder;

using Tensors = std::map<std::string, at::Tensor>;

void expect_same(const Tensors& found, const Tensors& wanted, const std::string& what) {
  for (const auto& [name, tensor] : wanted) {
    ASSERT_EQ(found.count(name), 1u) << what << ": " << name;
    EXPECT_EQ(found.at(name).scalar_type(), at::kFloat) << what << ": " << name;
    EXPECT_TRUE(at::equal(found.at(name), tensor)) << what << ": " << name;
  }
  EXPECT_EQ(found.size(), wanted.size()) << what;
}

Tensors parameters_of(const Decoder& model) {
  Tensors tensors;
  for (const ModelParameter& parameter : model.parameters()) tensors[parameter.name] = parameter.tensor;
  return tensors;
}

Json whole(const ModelConfig& config) {
  Json json = model_to_json(config);
  json["encoding"] = config.encoding;
  json["train_length"] = config.train_length;
  json["vocabulary_size"] = config.vocabulary_size;
  return json;
}

at::Tensor logits_of(const Decoder& model, std::int64_t tokens) {
  const at::NoGradGuard no_grad;
  TokenBatch batch;
  batch.tokens = at::arange(tokens, at::kLong).remainder(model.config().vocabulary_size).view({1, tokens});
  return model.logits(model.hidden(batch))[0];
}

TEST(Export, FifteenFoldersComeOutAsTheyWere) {
  if (shared_path("data/models/hf-tiny").empty()) GTEST_SKIP() << "the shared data are not here";
  const TestFolder folder;
  for (const std::string& name : kHuggingFaceFolders) {
    const std::string path = shared_path("data/models/hf-tiny/" + name), out = folder / name;
    const LoadedModel loaded = load_checkpoint(path);
    const HuggingFaceCompanions companions = hugging_face_companions(path);
    const Json original = read_json(path + "/config.json");
    EXPECT_EQ(companions.family, original.at("model_type")) << name;
    const HuggingFaceForm form =
        hugging_face_form(loaded.model.config(), {companions.family, false, companions.longest});
    EXPECT_EQ(form.family, companions.family) << name;
    save_hugging_face(out, loaded.model, form, companions, loaded.reader, loaded.end_tokens);
    expect_same(load_tensors(out + "/model.safetensors").tensors, load_tensors(path + "/model.safetensors").tensors,
                name);
    const LoadedModel again = load_checkpoint(out);
    EXPECT_EQ(whole(again.model.config()), whole(loaded.model.config())) << name;
    EXPECT_EQ(again.end_tokens, loaded.end_tokens) << name;
    expect_same(parameters_of(again.model), parameters_of(loaded.model), name);
    // Keys that transformers wrote itself keep their values, save for those that say nothing to a reader.
    const Json written = read_json(out + "/config.json");
    for (const char* key : {"architectures", "vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id",
                            "pad_token_id", "hidden_size", "num_kv_heads", "multi_query", "sliding_window",
                            "layer_types", "tie_word_embeddings", "original_max_position_embeddings"})
      if (original.contains(key)) {
        EXPECT_EQ(written.at(key), original.at(key)) << name << key;
      }
    EXPECT_EQ(testing::slurp(out + "/generation_config.json"), testing::slurp(path + "/generation_config.json"));
  }
}

TEST(Export, InterleavedFilesBecomeTheKnownFolder) {
  const std::string stories = shared_path("data/models/stories260K");
  if (stories.empty()) GTEST_SKIP() << "the shared data are not here";
  const Tensors known = load_tensors(stories + "/hf/model.safetensors").tensors;
  for (const char* form : {"/stories260K.bin", "/stories260K.gguf"}) {
    const LoadedModel loaded = load_checkpoint(stories + form);
    const std::string layout = hugging_face_layout(loaded.model.config().encoding);
    EXPECT_EQ(layout, "rope");
    EXPECT_TRUE(contains(message_of<Refusal>([&] { hugging_face_form(loaded.model.config()); }), "layout=interleaved"));
    const Decoder model = convert_model(loaded.model, layout).model;
    Tensors found = hugging_face_tensors(model, hugging_face_form(model.config()));
    // The GGUF file repeats the embedding as the output projection.
    if (found.count("lm_head.weight") != 0) {
      EXPECT_TRUE(at::equal(found.at("lm_head.weight"), known.at("model.embed_tokens.weight")));
      found.erase("lm_head.weight");
    }
    expect_same(found, known, form);
  }
}

struct Own {
  const char* family;
  const char* encoding;
  BlockStyle block = {};
  QkNorm qk_norm = QkNorm::None;
  std::vector<std::int64_t> window = {};
  std::int64_t kv_heads = 2, mlp_width = 40;
};

ModelConfig config_of(const Own& own) {
  ModelConfig config;
  config.width = 32, config.layers = 2, config.heads = 4, config.vocabulary_size = 50, config.train_length = 16;
  config.encoding = print(parse(own.encoding));
  config.block = own.block, config.qk_norm = own.qk_norm, config.window = own.window;
  config.kv_heads = own.kv_heads, config.mlp_width = own.mlp_width;
  config.complete();
  return config;
}

BlockStyle layer_norms(bool bias, MlpKind mlp, Parallel parallel = Parallel::None) {
  BlockStyle block;
  block.norm = NormKind::Layer;
  block.norm_bias = bias;
  block.mlp = mlp;
  block.parallel = parallel;
  block.qkv_bias = block.output_bias = block.mlp_bias = bias;
  return block;
}

std::vector<Own> own_models() {
  BlockStyle all_biases, qkv_bias, bloom = layer_norms(true, MlpKind::GeluTanh),
                                   falcon = layer_norms(false, MlpKind::Gelu, Parallel::OneNorm);
  all_biases.qkv_bias = all_biases.output_bias = all_biases.mlp_bias = true;
  qkv_bias.qkv_bias = true;
  bloom.embedding_norm = true;
  falcon.norm_bias = true;
  BlockStyle two = falcon, unscaled = layer_norms(true, MlpKind::Gelu), sharper = layer_norms(false, MlpKind::Gelu);
  two.parallel = Parallel::TwoNorms;
  unscaled.attention_scale = 1;
  sharper.attention_scale = 0.25;
  return {
      {"llama", "rope(base=500)"},
      {"llama", "rope", all_biases},
      {"llama", "linear(rope(base=500), factor=2)"},
      {"llama", "ntk(rope, factor=4)"},
      {"llama", "dynamic(rope, factor=2)"},
      {"llama", "dynamic(rope, factor=2, train_length=8)"},
      {"llama", "yarn(rope(base=500), factor=4, beta_fast=16, truncate=false)"},
      {"llama", "yarn(rope, factor=2, mscale=0.7, attention_factor=1.2)"},
      {"llama", "longrope(rope, short=[1, 1, 1.5, 2], long=[1, 2, 3, 4], factor=4)"},
      {"llama", "longrope(rope, short=[1, 1, 1.5, 2], long=[1, 2, 3, 4], factor=1.3)"},
      {"llama", "longrope(rope, short=[1, 1, 1.5, 2], long=[1, 2, 3, 4], train_length=8)"},
      {"llama", "longrope(rope, short=[1, 1, 1.5, 2], long=[1, 2, 3, 4], attention_factor=1.5)"},
      {"llama", "llama3(rope, factor=4, low_freq_factor=1, high_freq_factor=2, train_length=16)"},
      {"mistral", "rope", {}, QkNorm::None, {5}},
      {"qwen2", "rope", qkv_bias},
      {"qwen2", "yarn(rope, factor=2)", qkv_bias, QkNorm::None, {0, 5}},
      {"qwen3", "rope", {}, QkNorm::Before},
      {"qwen3", "rope", {}, QkNorm::Before, {7, 0}},
      {"phi3", "rope(dim=4)"},
      {"phi3", "longrope(rope(dim=4), short=[1, 2], long=[2, 4], factor=4)"},
      {"gpt2", "learned", layer_norms(true, MlpKind::GeluTanh), QkNorm::None, {}, 4},
      {"gpt2", "learned(length=40)", unscaled, QkNorm::None, {}, 4},
      {"gpt_neox", "rope(dim=2)", layer_norms(true, MlpKind::Gelu, Parallel::TwoNorms), QkNorm::None, {}, 4},
      {"gpt_neox", "yarn(rope, factor=2)", layer_norms(true, MlpKind::GeluTanh), QkNorm::None, {}, 4},
      {"bloom", "alibi", bloom, QkNorm::None, {}, 4, 128},
      {"mpt", "alibi", layer_norms(false, MlpKind::Gelu), QkNorm::None, {}, 4, 128},
      {"mpt", "alibi", sharper, QkNorm::None, {}, 4, 128},
      {"falcon", "rope", falcon, QkNorm::None, {}, 1},
      {"falcon", "rope", falcon, QkNorm::None, {}, 4},
      {"falcon", "linear(rope, factor=2)", falcon},
      {"falcon", "rope", two},
  };
}

TEST(Export, OwnModelsFindTheirFamily) {
  const TestFolder folder;
  for (const Own& own : own_models()) {
    const Decoder model(config_of(own), 7);
    for (const ModelParameter& parameter : model.parameters())
      if (parameter.tensor.dim() == 1) parameter.tensor.normal_(1, 0.3);  // biases and gains that matter
    const HuggingFaceForm form = hugging_face_form(model.config());
    EXPECT_EQ(form.family, own.family) << own.encoding;
    save_hugging_face(folder.path(), model, form, {}, nullptr, {3, 4});
    const LoadedModel again = load_checkpoint(folder.path());
    // Beyond the training length too, where scalings differ; a table ends at its last row.
    const std::int64_t tokens = std::string(own.family) == "gpt2" ? 16 : 40;
    EXPECT_TRUE(at::equal(logits_of(again.model, tokens), logits_of(model, tokens)))
        << own.family << " " << own.encoding << " read as " << again.model.config().encoding;
    EXPECT_EQ(again.end_tokens, (std::vector<std::int64_t>{3, 4}));
  }
}

TEST(Export, ScalingsAreKeysOfTheNewestForm) {
  const auto keys = [](const char* encoding, std::int64_t longest = 0) {
    return hugging_face_form(config_of({"llama", encoding}), {"", false, longest}).config;
  };
  EXPECT_EQ(keys("rope(base=500)").at("rope_parameters"),
            Json::parse(R"({"rope_type": "default", "rope_theta": 500.0})"));
  EXPECT_EQ(keys("rope").at("max_position_embeddings"), 16);
  EXPECT_EQ(keys("rope", 99).at("max_position_embeddings"), 99);
  Json json = keys("linear(rope, factor=2.5)", 40);
  EXPECT_EQ(json.at("rope_parameters"),
            Json::parse(R"({"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5})"));
  EXPECT_EQ(json.at("max_position_embeddings"), 40);
  // Under dynamic the key decides the frequencies.
  json = keys("dynamic(rope, factor=4)", 64);
  EXPECT_EQ(json.at("rope_parameters"),
            Json::parse(R"({"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0})"));
  EXPECT_EQ(json.at("max_position_embeddings"), 16);
  json = keys("yarn(rope, factor=4)");
  EXPECT_EQ(json.at("rope_parameters"), Json::parse(R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                            "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0})"));
  EXPECT_EQ(json.at("max_position_embeddings"), 64);
  json = keys("longrope(rope, short=[1, 1, 1, 1], long=[1, 2, 3, 4], factor=4)");
  EXPECT_EQ(json.at("rope_parameters"),
            Json::parse(R"({"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 16,
                            "short_factor": [1.0, 1.0, 1.0, 1.0], "long_factor": [1.0, 2.0, 3.0, 4.0], "factor": 4.0})"));
  EXPECT_EQ(json.at("max_position_embeddings"), 64);
  json = keys("llama3(rope, factor=4, train_length=16)");
  EXPECT_EQ(json.at("rope_parameters"), Json::parse(R"({"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0,
                            "original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0})"));
  // b s^(d/(d - 2)) with d = 8, s = 4.
  EXPECT_NEAR(keys("ntk(rope, factor=4)").at("rope_parameters").at("rope_theta").get<double>(), 63496.042078728, 1e-6);
  EXPECT_EQ(keys("ntk(rope, factor=4)").at("rope_parameters").at("rope_type"), "default");
}

TEST(Export, WhatNoFamilyHasIsSaid) {
  const auto refused = [](const Own& own, const std::vector<std::string>& parts) {
    const std::string message = message_of<Refusal>([&] { hugging_face_form(config_of(own)); });
    for (const std::string& part : parts) EXPECT_TRUE(contains(message, part)) << own.encoding << ": " << message;
  };
  refused({"", "alibi"}, {"nearest, llama", "no encoding 'alibi'"});
  refused({"", "rope + alibi"}, {"'rope + alibi'"});
  refused({"", "none"}, {"'none'"});
  refused({"", "rope", {}, QkNorm::After}, {"qk_norm", "after"});
  refused({"", "rope", {}, QkNorm::None, {5, 7}}, {"one window"});
  refused({"", "rope", {}, QkNorm::None, {0, 7}}, {"window"});
  refused({"", "rope(learn=true)"}, {"rope(learn=true)"});
  refused({"", "rope(layout=interleaved)"}, {"layout=interleaved"});
  refused({"", "rope(orientation=minus)"}, {"orientation=minus"});
  refused({"", "rope(base=[500, 1000])"}, {"base=[500, 1000]"});
  refused({"", "rope(dim=4, part=suffix)"}, {"part=suffix"});
  refused({"", "yarn(rope, factor=2, mscale_all_dim=0.5)"}, {"mscale_all_dim"});
  refused({"", "ntk-by-parts(rope, factor=2)"}, {"ntk-by-parts"});
  refused({"", "linear(rope(dim=4), factor=2)"}, {"whole heads"});
  Own mpt{"mpt", "alibi(max_exponent=4)", layer_norms(false, MlpKind::Gelu), QkNorm::None, {}, 4, 128};
  refused(mpt, {"nearest, mpt", "alibi_bias_max"});
  EXPECT_EQ(hugging_face_form(config_of(mpt), {.family = "mpt"}).config.at("attn_config").at("alibi_bias_max"), 4);
  BlockStyle block;
  block.mlp = MlpKind::Gelu;
  refused({"", "rope", block}, {"mlp=\"swiglu\", not \"gelu\""});
  refused({"", "learned", layer_norms(true, MlpKind::Gelu)}, {"gpt2", "kv_heads=4, not 2"});
  refused({"", "alibi(learn=true)", layer_norms(true, MlpKind::Gelu)}, {"alibi(learn=true)"});
  Own shifted{"", "rope"};
  ModelConfig config = config_of(shifted);
  config.kv_shift = true;
  EXPECT_TRUE(contains(message_of<Refusal>([&] { hugging_face_form(config); }), "kv_shift=false, not true"));

  // Slopes that were trained on are no Falcon's any more.
  BlockStyle falcon = layer_norms(false, MlpKind::Gelu, Parallel::OneNorm);
  falcon.norm_bias = true;
  const Decoder drawn(config_of({"", "alibi(learn=true)", falcon, QkNorm::None, {}, 1}), 1);
  const HuggingFaceForm form = hugging_face_form(drawn.config());
  EXPECT_EQ(form.family, "falcon");
  EXPECT_TRUE(contains(message_of<Refusal>([&] { hugging_face_tensors(drawn, form); }), "slopes of a falcon"));
}

TEST(Export, NarrowTypesRoundOrRefuse) {
  const TestFolder folder;
  const Decoder model(config_of({"llama", "rope"}), 5);
  const HuggingFaceForm form = hugging_face_form(model.config());
  save_hugging_face(folder.path(), model, form, {}, nullptr, {}, at::kBFloat16);
  EXPECT_EQ(read_json(folder / "config.json").at("dtype"), "bfloat16");
  EXPECT_TRUE(read_json(folder / "config.json").at("eos_token_id").is_null());
  const Tensors wanted = hugging_face_tensors(model, form), found = load_tensors(folder / "model.safetensors").tensors;
  for (const auto& [name, tensor] : wanted) {
    EXPECT_EQ(found.at(name).scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(found.at(name), tensor.to(at::kBFloat16)));
  }
  model.parameters().front().tensor.data_ptr<float>()[3] = 70000;
  EXPECT_NO_THROW(save_hugging_face(folder.path(), model, form, {}, nullptr, {}, at::kBFloat16));
  const std::string message =
      message_of<Refusal>([&] { save_hugging_face(folder / "new", model, form, {}, nullptr, {}, at::kHalf); });
  EXPECT_TRUE(contains(message, "model.embed_tokens.weight") && contains(message, "float16")) << message;
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
}

TEST(Export, BytesStayReadable) {
  const TestFolder folder;
  Own own{"llama", "rope"};
  ModelConfig config = config_of(own);
  config.vocabulary_size = 256;
  const Decoder model(config, 5);
  save_hugging_face(folder.path(), model, hugging_face_form(config), {}, std::make_shared<ByteTokenizer>(), {});
  const LoadedModel again = load_checkpoint(folder.path());
  ASSERT_TRUE(again.reader);
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  text += "Caf\xC3\xA9 and two  spaces\n";
  EXPECT_EQ(again.reader->encode(text), ByteTokenizer().encode(text));
  EXPECT_EQ(again.reader->decode(again.reader->encode(text)), text);
}

TEST(Export, KeysBesideOursAreOfFamiliesWithOurNames) {
  const TestFolder folder;
  const Decoder model(config_of({"qwen3", "yarn(rope, factor=4)", {}, QkNorm::Before, {0, 5}}), 5);
  save_checkpoint(folder / "a", model, "bytes", "", nullptr, 100);
  const Json json = read_json(folder / "a" + "/config.json");
  EXPECT_EQ(json.at("model_type"), "qwen3");
  EXPECT_EQ(json.at("max_position_embeddings"), 100);
  EXPECT_EQ(json.at("train_length"), 16);
  EXPECT_EQ(load_checkpoint(folder / "a").model.config().train_length, 16);
  // Without our own keys the folder is read as Hugging Face's and means the same.
  Json theirs = json;
  for (const char* key : {"format", "encoding", "model", "vocabulary_size", "train_length", "tokenizer"})
    theirs.erase(key);
  write_file_atomic(folder / "a" + "/config.json", json_text(theirs));
  EXPECT_TRUE(at::equal(logits_of(load_checkpoint(folder / "a").model, 40), logits_of(model, 40)));
  // A family with other names has a folder of its own, never keys beside ours.
  EXPECT_TRUE(contains(hugging_face_obstacle(config_of({"phi3", "rope(dim=4)"})), "whole heads"));
  const Decoder partial(config_of({"phi3", "rope(dim=4)"}), 5);
  save_checkpoint(folder / "b", partial, "bytes");
  EXPECT_FALSE(read_json(folder / "b" + "/config.json").contains("model_type"));
}

}  // namespace
}  // namespace torsor
