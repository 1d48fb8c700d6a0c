// Folders of Hugging Face transformers: fifteen families whose logits are known, older forms of their keys, sharded
// files, and what must not be passed over in silence.
#include "torsor/model/hugging_face.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/base/test_folder.h"
#include "tests/model/hugging_face_folders.h"
#include "torsor/base/file.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/generate.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

using testing::contains;
using testing::hugging_face_folder;
using testing::kHuggingFaceFolders;
using testing::message_of;
using testing::shared_path;
using testing::TestFolder;

at::Tensor logits_of(const Decoder& model, const at::Tensor& tokens) {
  const at::NoGradGuard no_grad;
  TokenBatch batch;
  batch.tokens = tokens.view({1, -1});
  return model.logits(model.hidden(batch))[0];
}

double worst(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(HuggingFace, FifteenFoldersGiveTheirLogits) {
  if (shared_path("data/models/hf-tiny").empty()) GTEST_SKIP() << "the shared data are not here";
  for (const std::string& name : kHuggingFaceFolders) {
    LoadedModel loaded = load_checkpoint(hugging_face_folder(name));
    // The file was made on the eager path of transformers 5.24, which adds Falcon's ALiBi twice (once to the scores and
    // once more in the mask); its other paths, and what Falcon's models were trained with, add it once.
    if (name == "falcon-alibi")
      for (const ModelParameter& parameter : loaded.model.parameters())
        if (parameter.name.ends_with("alibi.slopes")) parameter.tensor.mul_(2);
    const TensorFile expected = load_tensors(hugging_face_folder(name) + "/expected.safetensors");
    const at::Tensor tokens = expected.tensors.at("tokens"), wanted = expected.tensors.at("logits");
    const at::Tensor found = logits_of(loaded.model, tokens);
    ASSERT_EQ(found.sizes(), wanted.sizes()) << name;
    // float32 rounding of two programs; the logits reach some tens.
    EXPECT_LE(worst(found, wanted), 1e-3) << name << " as " << loaded.model.config().encoding;
    // Step by step through a cache, in pieces that do not divide the text.
    const at::NoGradGuard no_grad;
    if (loaded.model.encoding().traits().length_dependent) continue;
    KvCache cache = loaded.model.make_cache(1, tokens.numel());
    for (std::int64_t first = 0; first < tokens.numel(); first += 7) {
      const std::int64_t count = std::min<std::int64_t>(7, tokens.numel() - first);
      TokenBatch part;
      part.tokens = tokens.narrow(0, first, count).view({1, -1});
      const at::Tensor out = loaded.model.logits(loaded.model.hidden(part, &cache))[0];
      EXPECT_LE(worst(out, wanted.narrow(0, first, count)), 1e-3) << name << " at " << first;
    }
  }
}

/// A folder's config.json in the form of older releases.
Json legacy(Json config) {
  const Json rope = config.at("rope_parameters");
  config.erase("rope_parameters");
  Json scaling = rope;
  config["rope_theta"] = rope.at("rope_theta");
  scaling.erase("rope_theta");
  if (scaling.contains("partial_rotary_factor")) {
    config["partial_rotary_factor"] = scaling.at("partial_rotary_factor");
    scaling.erase("partial_rotary_factor");
  }
  scaling["type"] = scaling.at("rope_type");
  scaling.erase("rope_type");
  if (scaling.at("type") != "default") config["rope_scaling"] = scaling;
  return config;
}

TEST(HuggingFace, OlderKeysMeanTheSame) {
  if (shared_path("data/models/hf-tiny").empty()) GTEST_SKIP() << "the shared data are not here";
  int seen = 0;
  for (const std::string& name : kHuggingFaceFolders) {
    const Json config = read_json(hugging_face_folder(name) + "/config.json");
    if (!config.contains("rope_parameters")) continue;
    const ModelConfig now = read_hugging_face(config, name).config,
                      then = read_hugging_face(legacy(config), name).config;
    EXPECT_EQ(then.encoding, now.encoding) << name;
    EXPECT_EQ(then.train_length, now.train_length) << name;
    ++seen;
  }
  EXPECT_GE(seen, 11);
  // The words of Pythia.
  Json pythia = legacy(read_json(hugging_face_folder("gpt-neox") + "/config.json"));
  pythia["rotary_pct"] = pythia.at("partial_rotary_factor");
  pythia["rotary_emb_base"] = pythia.at("rope_theta");
  pythia.erase("partial_rotary_factor"), pythia.erase("rope_theta");
  EXPECT_EQ(read_hugging_face(pythia, "x").config.encoding, "rope(dim=2)");
}

Json tiny_llama() {
  return {{"model_type", "llama"},   {"hidden_size", 16}, {"num_hidden_layers", 2},        {"num_attention_heads", 2},
          {"intermediate_size", 24}, {"vocab_size", 40},  {"max_position_embeddings", 64}, {"rope_theta", 10000.0}};
}

TEST(HuggingFace, NothingAboutPositionsIsPassedOver) {
  const auto encoding = [](const Json& more) {
    Json config = tiny_llama();
    if (!more.is_null()) config.update(more);
    return read_hugging_face(config, "config.json").config.encoding;
  };
  const auto refused = [&](const Json& more, const std::vector<std::string>& parts) {
    const std::string message = message_of<Error>([&] { encoding(more); });
    for (const std::string& part : parts) EXPECT_TRUE(contains(message, part)) << json_text(more) << ": " << message;
  };
  EXPECT_EQ(encoding({}), "rope");
  EXPECT_EQ(encoding({{"rope_theta", 500000}}), "rope(base=500000)");
  EXPECT_EQ(encoding({{"rope_scaling", nullptr}}), "rope");
  EXPECT_EQ(encoding({{"partial_rotary_factor", 0.5}}), "rope(dim=4)");
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  EXPECT_EQ(encoding({{"rope_scaling", yarn}}), "yarn(rope, factor=4, train_length=16)");
  Json more = yarn;
  more["attention_factor"] = 1.0;
  EXPECT_EQ(encoding({{"rope_scaling", more}}), "yarn(rope, factor=4, train_length=16, attention_factor=1)");
  more = yarn;
  more["factor"] = nullptr;  // from the two lengths
  EXPECT_EQ(encoding({{"rope_scaling", more}}), "yarn(rope, factor=4, train_length=16)");
  more = yarn;
  more["beta_fats"] = 16;
  refused({{"rope_scaling", more}}, {"config.json: rope_scaling", "beta_fats"});
  refused({{"rope_scaling", {{"rope_type", "linear"}}}}, {"factor", "missing"});
  refused({{"rope_scaling", {{"rope_type", "linear"}, {"factor", "two"}}}}, {"factor", "number"});
  refused({{"rope_scaling", {{"rope_type", "new"}}}}, {"rope_type", "'new'"});
  refused({{"rope_scaling", 4}}, {"rope_scaling", "object"});
  refused({{"rope_local_base_freq", 10000}}, {"rope_local_base_freq", "positions"});
  refused({{"sliding_window", 9}}, {"sliding_window"});  // Llama has none
  refused({{"alibi", true}}, {"alibi"});
  refused({{"hidden_act", "gelu"}}, {"hidden_act", "gelu"});
  refused({{"num_attention_heads", 0}}, {"num_attention_heads"});
  refused({{"num_attention_heads", 3}}, {"config.json"});
  refused({{"hidden_size", 1e3}}, {"hidden_size", "whole number"});
  refused({{"model_type", "mamba"}}, {"'mamba'", "gpt_neox"});
  refused({{"model_type", 3}}, {"model_type"});
  refused({{"model_type", "bloom"}}, {"max_position_embeddings"});  // it counts from the key, without an end
  // Other keys say nothing that the model depends on.
  EXPECT_EQ(encoding({{"torch_dtype", "bfloat16"}, {"pretraining_tp", 1}}), "rope");
}

/// Weights for tiny_llama() with a few tensors to change.
std::map<std::string, at::Tensor> tiny_weights() {
  const HuggingFaceModel model = read_hugging_face(tiny_llama(), "x");
  const Decoder drawn(model.config, 3);
  std::map<std::string, at::Tensor> tensors;
  for (const ModelParameter& parameter : drawn.parameters()) tensors[parameter.name] = parameter.tensor;
  return tensors;
}

TEST(HuggingFace, ShardsAreOneModel) {
  const TestFolder folder;
  const std::map<std::string, at::Tensor> all = tiny_weights();
  std::map<std::string, at::Tensor> first, second;
  Json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", Json::object()}};
  for (const auto& [name, tensor] : all) {
    const bool early = name < "model.layers.1";
    (early ? first : second)[name] = tensor;
    index["weight_map"][name] = early ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  }
  save_tensors(folder / "model-00001-of-00002.safetensors", first);
  save_tensors(folder / "model-00002-of-00002.safetensors", second);
  write_file_atomic(folder / "config.json", json_text(tiny_llama()));
  write_file_atomic(folder / "model.safetensors.index.json", json_text(index));
  const at::Tensor tokens = at::arange(12, at::kLong);
  const Decoder whole(read_hugging_face(tiny_llama(), "x").config, all, "x");
  EXPECT_TRUE(at::equal(logits_of(load_checkpoint(folder.path()).model, tokens), logits_of(whole, tokens)));

  const auto refused = [&](const std::string& name, const Json& file, const char* part) {
    Json damaged = index;
    damaged["weight_map"][name] = file;
    write_file_atomic(folder / "model.safetensors.index.json", json_text(damaged));
    const std::string message = message_of<Error>([&] { load_checkpoint(folder.path()); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  refused("model.norm.weight", "../model.safetensors", "no plain name");
  refused("model.norm.weight", "/etc/passwd", "no plain name");
  refused("model.norm.weight", ".hidden", "no plain name");
  refused("model.norm.weight", "", "no plain name");
  refused("model.norm.weight", 7, "must name a file");
  refused("model.norm.weight", "model-00001-of-00002.safetensors", "is not in model-00001");
  refused("no.such", "model-00001-of-00002.safetensors", "'no.such'");
  refused("model.norm.weight", "model-00003-of-00003.safetensors", "'model.norm.weight'");
  write_file_atomic(folder / "model.safetensors.index.json", "[]");
  EXPECT_TRUE(contains(message_of<Error>([&] { load_checkpoint(folder.path()); }), "weight_map"));
}

TEST(HuggingFace, TensorsThatDoNotFitAreNamed) {
  const HuggingFaceModel model = read_hugging_face(tiny_llama(), "x");
  const auto refused = [&](const std::string& name, const at::Tensor& tensor, const char* part) {
    std::map<std::string, at::Tensor> damaged = tiny_weights();
    if (tensor.defined())
      damaged[name] = tensor;
    else
      damaged.erase(name);
    const std::string message =
        message_of<Error>([&] { Decoder(model.config, hugging_face_weights(model, damaged, "folder"), "folder"); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  refused("model.layers.0.mlp.up_proj.weight", {}, "model.layers.0.mlp.up_proj.weight");
  refused("model.layers.0.mlp.up_proj.weight", at::zeros({24, 17}), "[24, 17]");
  refused("model.layers.2.mlp.up_proj.weight", at::zeros({24, 16}), "belongs to no part of a llama");
  refused("model.norm.weight", at::ones({16}, at::kLong), "floating");
  // Half precision is widened, and buffers that repeat the configuration are left out.
  std::map<std::string, at::Tensor> half = tiny_weights();
  for (auto& [name, tensor] : half) tensor = tensor.to(at::kBFloat16);
  half["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::ones({4});
  const auto weights = hugging_face_weights(model, half, "folder");
  EXPECT_EQ(weights.size(), tiny_weights().size());
  EXPECT_EQ(weights.at("model.norm.weight").scalar_type(), at::kFloat);
}

TEST(HuggingFace, JoinedRowsComeApart) {
  // A head's query, key and value stand together: row 10 h + i of part i of head h.
  HuggingFaceModel model;
  model.model_type = "gpt_neox";
  model.config.width = 4, model.config.heads = 2, model.config.kv_heads = 2, model.config.head_dim = 2;
  model.config.layers = 1, model.config.tie_head = false;
  model.fused = FusedRows::Heads;
  const at::Tensor rows = at::arange(12, at::kFloat);
  const auto weights =
      hugging_face_weights(model,
                           {{"gpt_neox.layers.0.attention.query_key_value.weight", rows.view({12, 1}).expand({12, 4})},
                            {"gpt_neox.layers.0.attention.query_key_value.bias", rows}},
                           "x");
  const auto bias = [&](const char* side) { return weights.at(str("model.layers.0.self_attn.", side, "_proj.bias")); };
  EXPECT_TRUE(at::equal(bias("q"), at::tensor({0.0f, 1.0f, 6.0f, 7.0f})));
  EXPECT_TRUE(at::equal(bias("k"), at::tensor({2.0f, 3.0f, 8.0f, 9.0f})));
  EXPECT_TRUE(at::equal(bias("v"), at::tensor({4.0f, 5.0f, 10.0f, 11.0f})));
  EXPECT_TRUE(at::equal(weights.at("model.layers.0.self_attn.k_proj.weight").select(1, 3), bias("k")));
  // Falcon's groups: two queries, their key, their value.
  model.model_type = "falcon";
  model.config.heads = 4, model.config.width = 8, model.fused = FusedRows::Groups;
  const auto groups = hugging_face_weights(model,
                                           {{"transformer.h.0.self_attention.query_key_value.weight",
                                             at::arange(16, at::kFloat).view({16, 1}).expand({16, 8})}},
                                           "x");
  const auto first = [&](const char* side) {
    return groups.at(str("model.layers.0.self_attn.", side, "_proj.weight")).select(1, 0);
  };
  EXPECT_TRUE(at::equal(first("q"), at::tensor({0.0f, 1.0f, 2.0f, 3.0f, 8.0f, 9.0f, 10.0f, 11.0f})));
  EXPECT_TRUE(at::equal(first("k"), at::tensor({4.0f, 5.0f, 12.0f, 13.0f})));
  EXPECT_TRUE(at::equal(first("v"), at::tensor({6.0f, 7.0f, 14.0f, 15.0f})));
}

// One pretrained model in three forms, with logits, text and losses of two other programs.
TEST(Stories, ThreeFormsAreOneModel) {
  const std::string folder = shared_path("data/models/stories260K");
  if (folder.empty()) GTEST_SKIP() << "the shared data are not here";
  const TensorFile expected = load_tensors(folder + "/expected/in_context_256.safetensors");
  const at::Tensor tokens = expected.tensors.at("tokens").to(at::kLong);
  for (const char* form : {"/stories260K.bin", "/stories260K.gguf", "/hf"}) {
    const LoadedModel loaded = load_checkpoint(folder + form);
    const at::Tensor found = logits_of(loaded.model, tokens);
    // The two programs differ by 2e-5 among themselves.
    EXPECT_LE(worst(found, expected.tensors.at("logits_llama2_c")), 1e-4) << form;
    EXPECT_LE(worst(found, expected.tensors.at("logits_llama_cpp")), 1e-4) << form;
  }
}

TEST(Stories, LongTextsLoseWhatTheyShould) {
  const std::string folder = shared_path("data/models/stories260K");
  if (folder.empty()) GTEST_SKIP() << "the shared data are not here";
  const Json cases = read_json(folder + "/expected/long_2048_rope_variants.json");
  const at::Tensor tokens = at::tensor(cases.at("tokens").get<std::vector<std::int64_t>>(), at::kLong);
  for (const char* form : {"/stories260K.bin", "/stories260K.gguf", "/hf"})
    for (const bool linear : {false, true}) {
      const Json& wanted = cases.at("variants").at(linear ? "linear4" : "default");
      const bool pairs = std::string(form) != "/hf";
      const std::string rope = pairs ? "rope(layout=interleaved)" : "rope";
      const LoadedModel loaded = load_checkpoint(folder + form, linear ? "linear(" + rope + ", factor=4)" : rope);
      const at::Tensor logits = logits_of(loaded.model, tokens);
      const std::int64_t count = tokens.numel() - 1;
      const at::Tensor losses =
          at::cross_entropy_loss(logits.narrow(0, 0, count), tokens.narrow(0, 1, count), {}, at::Reduction::None);
      EXPECT_NEAR(losses.mean().item<double>(), wanted.at("mean_nll").get<double>(), 2e-5) << form << linear;
      const auto parts = wanted.at("mean_nll_by_256_tokens").get<std::vector<double>>();
      for (std::size_t part = 0; part < parts.size(); ++part) {
        const std::int64_t first = 256 * static_cast<std::int64_t>(part),
                           last = std::min<std::int64_t>(first + 256, count);
        EXPECT_NEAR(losses.narrow(0, first, last - first).mean().item<double>(), parts[part], 1e-3) << form << part;
      }
    }
}

TEST(Stories, WritesTheTextOfTheOtherPrograms) {
  const std::string folder = shared_path("data/models/stories260K");
  if (folder.empty()) GTEST_SKIP() << "the shared data are not here";
  const std::string wanted = read_file(folder + "/expected/greedy_200.txt");
  for (const char* form : {"/stories260K.bin", "/stories260K.gguf"}) {
    const LoadedModel loaded = load_checkpoint(folder + form);
    ASSERT_TRUE(loaded.reader) << form;
    GenerateOptions options;
    options.max_tokens = 200;
    const Generated made = generate(loaded.model, {{1}}, options);
    std::vector<TokenId> ids = {1};
    for (const std::int64_t token : made.tokens[0]) ids.push_back(static_cast<TokenId>(token));
    const std::string text = loaded.reader->decode(ids);
    EXPECT_EQ(text.substr(0, wanted.size() - 1), wanted.substr(0, wanted.size() - 1)) << form;
  }
}

TEST(Stories, TokenizersGiveTheKnownIds) {
  const std::string folder = shared_path("data/models/stories260K");
  if (folder.empty()) GTEST_SKIP() << "the shared data are not here";
  const Json cases = read_json(folder + "/expected/tokenizer_cases.json").at("cases");
  EXPECT_EQ(cases.size(), 12u);
  for (const char* form : {"/stories260K.bin", "/stories260K.gguf"}) {
    const LoadedModel loaded = load_checkpoint(folder + form);
    for (const Json& one : cases) {
      const auto text = one.at("text").get<std::string>();
      const std::vector<TokenId> ids = loaded.reader->encode(text);
      EXPECT_EQ(ids, one.at("ids_llama2_c").get<std::vector<TokenId>>()) << form << ": " << text;
      EXPECT_EQ(loaded.reader->decode(ids), text);
    }
  }
}

TEST(Llama2C, FilesThatDoNotComeOutEvenAreRefused) {
  const TestFolder folder;
  const auto file = [&](const std::vector<std::int32_t>& header, std::size_t floats) {
    std::string bytes(reinterpret_cast<const char*>(header.data()), 4 * header.size());
    bytes.append(4 * floats, '\0');
    const std::string path = folder / "m.bin";
    write_file_atomic(path, bytes);
    return path;
  };
  // dim 4, hidden 8, 1 layer, 2 heads, 1 key head, 5 tokens, length 3.
  const std::size_t count = 5 * 4 + (4 + 16 + 8 + 8 + 16 + 4 + 3 * 32) + 4 + 2 * 3 * 1;
  EXPECT_EQ(load_checkpoint(file({4, 8, 1, 2, 1, 5, 3}, count)).model.parameter_count(),
            static_cast<std::int64_t>(count) - 6);
  EXPECT_EQ(load_checkpoint(file({4, 8, 1, 2, 1, -5, 3}, count + 20)).model.config().tie_head, false);
  const auto refused = [&](const std::vector<std::int32_t>& header, std::size_t floats, const char* part) {
    const std::string path = file(header, floats);
    const std::string message = message_of<Error>([&] { load_checkpoint(path); });
    EXPECT_TRUE(contains(message, part) && contains(message, "m.bin")) << message;
  };
  refused({4, 8, 1, 2, 1, 5, 3}, count - 1, "bytes for dim 4");
  refused({4, 8, 1, 2, 1, 5, 3}, count + 1, "bytes for dim 4");
  refused({4, 8, 0, 2, 1, 5, 3}, count, "n_layers = 0");
  refused({4, 8, 1, 3, 1, 5, 3}, count, "m.bin");
  refused({1 << 24, 1 << 24, 1 << 24, 1, 1, 1 << 24, 1 << 24}, 0, "m.bin");
  refused({4, 8}, 0, "28 bytes");
}

}  // namespace
}  // namespace torsor
