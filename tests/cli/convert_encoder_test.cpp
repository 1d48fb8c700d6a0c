// torsor convert of encoders and of models of two stacks.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/program.h"
#include "torsor/base/file.h"
#include "torsor/base/safetensors.h"

namespace torsor::testing {
namespace {

constexpr std::int64_t kWidth = 8, kInner = 12, kVocabulary = 20;

/// A folder of transformers whose tensors hold some numbers.
class Folder {
 public:
  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t one : shape) count *= static_cast<std::size_t>(one);
    std::vector<float>& values = values_[name];
    for (std::size_t i = 0; i < count; ++i) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      values.push_back(static_cast<float>(state_ >> 40) / static_cast<float>(1 << 23) - 1);
    }
    shapes_[name] = shape;
  }
  void linear(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    add(name + ".weight", {outputs, inputs});
    add(name + ".bias", {outputs});
  }
  void norm(const std::string& name) {
    add(name + ".weight", {kWidth});
    add(name + ".bias", {kWidth});
  }
  void write(const std::string& path, const Json& config) const {
    std::filesystem::create_directory(path);
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [name, values] : values_) tensors.push_back({name, Dtype::F32, shapes_.at(name), values.data()});
    write_safetensors(path + "/model.safetensors", tensors, {{"format", "pt"}});
    write_file_atomic(path + "/config.json", json_text(config));
  }

 private:
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::uint64_t state_ = 1;
};

/// A bert with a pooler that no head reads, or a roberta; of one layer, with a head for masked tokens and a tokenizer.
std::string put_bert(const TestFolder& folder, const std::string& type) {
  const bool bert = type == "bert";
  Folder made;
  const std::string root = type + ".", layer = root + "encoder.layer.0.";
  made.add(root + "embeddings.word_embeddings.weight", {kVocabulary, kWidth});
  made.add(root + "embeddings.position_embeddings.weight", {bert ? 16 : 18, kWidth});
  made.add(root + "embeddings.token_type_embeddings.weight", {2, kWidth});
  made.norm(root + "embeddings.LayerNorm");
  for (const char* part : {"self.query", "self.key", "self.value", "output.dense"})
    made.linear(layer + "attention." + part, kWidth, kWidth);
  made.norm(layer + "attention.output.LayerNorm");
  made.linear(layer + "intermediate.dense", kInner, kWidth);
  made.linear(layer + "output.dense", kWidth, kInner);
  made.norm(layer + "output.LayerNorm");
  if (bert) made.linear("bert.pooler.dense", kWidth, kWidth);
  made.linear(bert ? "cls.predictions.transform.dense" : "lm_head.dense", kWidth, kWidth);
  made.norm(bert ? "cls.predictions.transform.LayerNorm" : "lm_head.layer_norm");
  made.add(bert ? "cls.predictions.bias" : "lm_head.bias", {kVocabulary});
  const std::string path = folder / type;
  made.write(path, {{"model_type", type},
                    {"vocab_size", kVocabulary},
                    {"hidden_size", kWidth},
                    {"num_hidden_layers", 1},
                    {"num_attention_heads", 2},
                    {"intermediate_size", kInner},
                    {"max_position_embeddings", bert ? 16 : 18},
                    {"pad_token_id", bert ? 0 : 1}});
  write_file_atomic(path + "/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nlow\n##er\nnew\n");
  return path;
}

/// A t5 of one layer a stack, with a head of its own.
std::string put_t5(const TestFolder& folder) {
  Folder made;
  for (const char* name : {"shared.weight", "lm_head.weight"}) made.add(name, {kVocabulary, kWidth});
  for (const std::string stack : {"encoder.", "decoder."}) {
    const bool writes = stack == "decoder.";
    const std::string block = stack + "block.0.layer.";
    for (const char* part : {"q", "k", "v", "o"}) {
      made.add(block + "0.SelfAttention." + part + ".weight", {kWidth, kWidth});
      if (writes) made.add(block + "1.EncDecAttention." + part + ".weight", {kWidth, kWidth});
    }
    made.add(block + "0.SelfAttention.relative_attention_bias.weight", {8, 2});
    const std::string last = block + (writes ? "2." : "1.");
    made.add(last + "DenseReluDense.wi.weight", {kInner, kWidth});
    made.add(last + "DenseReluDense.wo.weight", {kWidth, kInner});
    for (const std::string& norm :
         {block + "0.layer_norm", block + "1.layer_norm", last + "layer_norm", stack + "final_layer_norm"})
      made.add(norm + ".weight", {kWidth});
  }
  made.write(folder / "t5", {{"model_type", "t5"},
                             {"vocab_size", kVocabulary},
                             {"d_model", kWidth},
                             {"d_kv", 4},
                             {"d_ff", kInner},
                             {"num_layers", 1},
                             {"num_heads", 2},
                             {"relative_attention_num_buckets", 8},
                             {"tie_word_embeddings", false},
                             {"eos_token_id", 1}});
  return folder / "t5";
}

std::string tensor_bytes(const std::string& folder) { return slurp(folder + "/model.safetensors"); }

/// The bytes of a folder's tensors, all together.
std::size_t numbers_bytes(const std::string& folder) {
  std::size_t bytes = 0;
  const SafetensorsFile file(folder + "/model.safetensors");
  for (const auto& [name, entry] : file.entries()) bytes += entry.bytes;
  return bytes;
}

TEST(CliConvertEncoder, ComesOutAsItWasAndThroughOurFolder) {
  const TestFolder folder;
  for (const std::string& from : {put_bert(folder, "bert"), put_bert(folder, "roberta"), put_t5(folder)}) {
    const bool two = from.ends_with("t5"), rows = from.ends_with("roberta");
    const Ran ran = run({"convert", from, "--to", "hf", "--out", from + "-hf", "--json"});
    ASSERT_EQ(ran.code, 0) << ran;
    EXPECT_EQ(ran.err, "");
    const Json json = parse_json(ran.out, "convert");
    EXPECT_EQ(json.at("kind"), two ? "encoder-decoder" : "encoder");
    EXPECT_EQ(json.at("family"), std::filesystem::path(from).filename().string());
    EXPECT_EQ(json.at("hugging_face"), true);
    EXPECT_EQ(json.contains("source_encoding"), two);
    Json unread = Json::array({"bert.pooler.dense.bias", "bert.pooler.dense.weight"});
    if (rows) unread = {"rows 0 to 1 of roberta.embeddings.position_embeddings.weight"};
    if (two) unread = Json::array();
    EXPECT_EQ(json.at("unread"), unread) << from;
    EXPECT_EQ(tensor_bytes(from + "-hf"), tensor_bytes(from));
    EXPECT_EQ(std::filesystem::exists(from + "-hf/vocab.txt"), !two);

    const Ran own = run({"convert", from, "--to", "torsor", "--out", from + "-own"});
    ASSERT_EQ(own.code, 0) << own;
    for (const Json& one : unread)
      EXPECT_TRUE(contains(own.out, "not read here, left out: " + one.get<std::string>())) << own;
    EXPECT_EQ(contains(own.out, "left out"), !two) << own;
    EXPECT_TRUE(contains(own.out, "checkpoint in " + from + "-own")) << own;
    EXPECT_EQ(read_json(from + "-own/config.json").at("format"), "torsor-checkpoint-1");
    EXPECT_EQ(std::filesystem::exists(from + "-own/tokenizer.json"), !two);
    const Ran back = run({"convert", from + "-own", "--to", "hf", "--out", from + "-back"});
    ASSERT_EQ(back.code, 0) << back;
    EXPECT_TRUE(contains(back.out, (two ? "t5" : "bert") + std::string(" of Hugging Face in "))) << back;
    EXPECT_EQ(std::filesystem::exists(from + "-back/tokenizer.json"), !two);
    // Every one of them gives the same logits.
    const std::string tokens = folder.put("ids.bin", std::string("\5\0\6\0\11\0\7\0", 8));
    std::string first;
    for (const char* end : {"", "-hf", "-own", "-back"}) {
      std::vector<std::string> eval = {
          "eval", from + end, "--tokens", tokens, "--dump-logits", folder / "l.safetensors", "--force"};
      if (two) eval.insert(eval.end(), {"--source-tokens", tokens});
      const Ran said = run(eval);
      ASSERT_EQ(said.code, 0) << said;
      const std::string dumped = slurp(folder / "l.safetensors");
      if (first.empty()) first = dumped;
      EXPECT_EQ(dumped, first) << from << end;
    }
  }
}

TEST(CliConvertEncoder, NarrowTypesAndWhatCannotWork) {
  const TestFolder folder;
  const std::string from = put_bert(folder, "bert"), two = put_t5(folder), out = folder / "out";
  ASSERT_EQ(run({"convert", from, "--to", "hf", "--dtype", "float16", "--out", folder / "half"}).code, 0);
  EXPECT_EQ(2 * numbers_bytes(folder / "half"), numbers_bytes(from));
  EXPECT_EQ(read_json(folder / "half/config.json").at("dtype"), "float16");
  for (const std::string& one : {from, two}) {
    const std::string what = one == from ? "an encoder" : "an encoder and a decoder";
    expect_refusal(run({"convert", one, "--encoding", "rope", "--out", out}), 2, {"--encoding", what, "leave it out"});
    expect_refusal(run({"convert", one, "--encoding", "roep", "--to", "hf", "--out", out}), 2, {"roep"});
    expect_refusal(run({"convert", one, "--to", "hf", "--base", from, "--out", out}), 2, {"--base"});
    expect_refusal(run({"convert", one, "--to", "torsor", "--dtype", "float16", "--out", out}), 2, {"--dtype"});
    expect_refusal(run({"convert", one, "--out", out}), 2, {"--to"});
    expect_refusal(run({"convert", one, "--to", "hf", "--out", one}), 2, {"the checkpoint itself"});
  }
  expect_refusal(run({"convert", from, "--to", "hf", "--out", two}), 1, {"already holds a checkpoint", "--force"});
  // A model that no family has, and damaged folders.
  write_file_atomic(folder / "model.json", R"({"kind": "encoder", "width": 16, "layers": 1, "heads": 2})");
  const std::string text = folder.put("book.txt", tiny_text(2000));
  const auto train = [&](const std::string& encoding, const std::string& name) {
    ASSERT_EQ(run({"train", "--model", folder / "model.json", "--encoding", encoding, "--text", text, "--length", "32",
                   "--steps", "2", "--batch", "2", "--quiet", "--out", folder / name})
                  .code,
              0);
  };
  train("rope", "turning");
  const Ran turned = run({"convert", folder / "turning", "--to", "hf", "--out", folder / "roformer"});
  ASSERT_EQ(turned.code, 0) << turned;
  EXPECT_TRUE(contains(turned.out, "rope -> rope(layout=interleaved), rows permuted\nroformer of Hugging Face"))
      << turned;
  train("alibi", "run");
  expect_refusal(run({"convert", folder / "run", "--to", "hf", "--out", out}), 1,
                 {"Hugging Face has no architecture", "nearest, bert", "'alibi'"});
  ASSERT_EQ(run({"convert", folder / "run", "--to", "torsor", "--out", folder / "copy"}).code, 0);
  EXPECT_EQ(tensor_bytes(folder / "copy"), tensor_bytes(folder / "run"));
  EXPECT_EQ(slurp(folder / "copy/config.json"), slurp(folder / "run/config.json"));
  std::filesystem::resize_file(two + "/model.safetensors", 1000);
  expect_refusal(run({"convert", two, "--to", "hf", "--out", out}), 1, {"model.safetensors"});
  std::filesystem::remove(from + "/model.safetensors");
  expect_refusal(run({"convert", from, "--to", "torsor", "--out", out}), 1, {"model.safetensors"});
  write_file_atomic(from + "/config.json", R"({"model_type": "bert", "hidden_size": 16})");
  expect_refusal(run({"convert", from, "--to", "hf", "--out", out}), 1, {"config.json"});
  EXPECT_FALSE(std::filesystem::exists(out));
  // A full disk leaves no half checkpoint.
  const std::string whole = put_bert(folder, "distilbert");
  const Ran full = run({"convert", whole, "--to", "hf", "--out", folder / "full"}, {.file_limit = 4096});
  EXPECT_EQ(full.code, 1) << full;
  EXPECT_EQ(full.err_lines().size(), 1u) << full;
  EXPECT_FALSE(std::filesystem::exists(folder / "full/config.json"));
}

}  // namespace
}  // namespace torsor::testing
