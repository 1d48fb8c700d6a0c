// torsor convert: a checkpoint under another encoding, or one line that says why not and no file.
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace torsor::testing {
namespace {

std::string loss_of(const std::string& checkpoint, const std::string& text) {
  const Ran ran = run({"eval", checkpoint, "--text", text, "--lengths", "16", "--json"});
  EXPECT_EQ(ran.code, 0) << ran;
  return json_text(parse_json(ran.out, "eval").at("eval")[0].at("loss"));
}

TEST(CliConvert, WritesACheckpointThatMeansTheSame) {
  const TestFolder folder;
  const std::string text = folder.put("other.txt", tiny_text(400)), run_folder = folder / "run";
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "3"})).code, 0);
  const Ran ran = run({"convert", run_folder, "--encoding", "grape-m(layout=interleaved) + t5", "--out", folder / "a"});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_EQ(ran.err, "");
  EXPECT_TRUE(contains(ran.out, "rope + t5 -> grape-m(layout=interleaved) + t5")) << ran;
  EXPECT_TRUE(contains(ran.out, "worst difference of the logits")) << ran;
  const double before = std::stod(loss_of(run_folder, text)), after = std::stod(loss_of(folder / "a", text));
  EXPECT_NEAR(after, before, 1e-5 * before);

  // Permutations come back bit for bit, and nothing is left beside the two files.
  ASSERT_EQ(run({"convert", run_folder, "--encoding", "rope(orientation=minus) + t5", "--out", folder / "b"}).code, 0);
  const Ran back = run({"convert", folder / "b", "--encoding", "rope+t5", "--out", folder / "c", "--json"});
  ASSERT_EQ(back.code, 0) << back;
  EXPECT_EQ(slurp(folder / "c/model.safetensors"), slurp(run_folder + "/model.safetensors"));
  EXPECT_EQ(slurp(folder / "c/config.json"), slurp(run_folder + "/config.json"));
  EXPECT_NE(slurp(folder / "b/model.safetensors"), slurp(run_folder + "/model.safetensors"));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder / "c")) ++files;
  EXPECT_EQ(files, 2u);
  const Json json = parse_json(back.out, "convert");
  EXPECT_EQ(json.at("from"), "rope(orientation=minus) + t5");
  EXPECT_EQ(json.at("encoding"), "rope + t5");
  EXPECT_EQ(json.at("hugging_face"), false);
  EXPECT_EQ(json.at("logits").at("tokens"), 16);
  EXPECT_LE(json.at("logits").at("worst_difference"), json.at("logits").at("allowed"));
}

TEST(CliConvert, ToHuggingFaceWhereItHasTheModel) {
  const TestFolder folder;
  std::vector<std::string> arguments = tiny_train(folder, "run", {"--steps", "2"});
  *std::find(arguments.begin(), arguments.end(), "rope + t5") = "rope(layout=interleaved)";
  ASSERT_EQ(run(arguments).code, 0);
  const std::string out = folder / "hf", text = folder.put("other.txt", tiny_text(400));
  // Rows come into its order by themselves.
  const Ran ran = run({"convert", folder / "run", "--to", "hf", "--out", out, "--json"});
  ASSERT_EQ(ran.code, 0) << ran;
  const Json json = parse_json(ran.out, "convert");
  EXPECT_EQ(json.at("encoding"), "rope");
  EXPECT_EQ(json.at("family"), "llama");
  const Json config = read_json(out + "/config.json");
  EXPECT_EQ(config.at("architectures")[0], "LlamaForCausalLM");
  EXPECT_EQ(config.at("dtype"), "float32");
  EXPECT_FALSE(config.contains("format"));
  const double before = std::stod(loss_of(folder / "run", text)), after = std::stod(loss_of(out, text));
  EXPECT_NEAR(after, before, 1e-5 * before);
  // And back into a folder of ours, which keeps every bit.
  ASSERT_EQ(
      run({"convert", out, "--to", "torsor", "--encoding", "rope(layout=interleaved)", "--out", folder / "back"}).code,
      0);
  EXPECT_EQ(slurp(folder / "back/model.safetensors"), slurp(folder / "run/model.safetensors"));

  const std::size_t size = std::filesystem::file_size(out + "/model.safetensors");
  EXPECT_EQ(run({"convert", out, "--to", "hf", "--dtype", "float16", "--out", folder / "half"}).code, 0);
  EXPECT_LT(std::filesystem::file_size(folder / "half/model.safetensors"), size * 6 / 10);
  expect_refusal(run({"convert", out, "--to", "hf", "--dtype", "int8", "--out", folder / "x"}), 2, {"int8", "float16"});
  expect_refusal(run({"convert", out, "--to", "torsor", "--dtype", "float16", "--out", folder / "x"}), 2,
                 {"--dtype", "--to hf"});
  ASSERT_EQ(run(tiny_train(folder, "sum", {"--steps", "2"})).code, 0);
  expect_refusal(run({"convert", folder / "sum", "--to", "hf", "--out", folder / "x"}), 1,
                 {"Hugging Face", "nearest", "rope + t5"});
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
}

TEST(CliConvert, RefusesBeforeAnythingIsWritten) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "2"})).code, 0);
  const std::string from = folder / "run", out = folder / "out";
  const auto convert = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"convert", from};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  expect_refusal(convert({"--encoding", "alibi + t5", "--out", out}), 1, {"rope", "alibi", "rotation"});
  expect_refusal(convert({"--encoding", "rope(base=500) + t5", "--out", out}), 1, {"learn=true"});
  expect_refusal(convert({"--encoding", "roep", "--out", out}), 2, {"roep", "rope"});
  expect_refusal(convert({"--encoding", "rope + t5"}), 2, {"--out"});
  expect_refusal(convert({"--out", out}), 2, {"--encoding", "--to"});
  expect_refusal(convert({"--to", "gguf", "--out", out}), 2, {"gguf", "hf"});
  expect_refusal(run({"convert", "--encoding", "rope", "--out", out}), 2, {"checkpoint"});
  expect_refusal(run({"convert", folder / "nowhere", "--encoding", "rope", "--out", out}), 1, {"nowhere"});
  EXPECT_FALSE(std::filesystem::exists(out));

  // What exists stays.
  const std::vector<std::string> good = {"--encoding", "rope(orientation=minus) + t5", "--out", out};
  ASSERT_EQ(convert(good).code, 0);
  const std::string before = slurp(out + "/config.json");
  expect_refusal(convert({"--encoding", "rope + t5", "--out", out}), 1, {"already holds a checkpoint", "--force"});
  expect_refusal(convert({"--encoding", "alibi + t5", "--out", out, "--force"}), 1, {"alibi"});
  EXPECT_EQ(slurp(out + "/config.json"), before);
  EXPECT_EQ(convert({"--encoding", "rope + t5", "--out", out, "--force"}).code, 0);
  expect_refusal(convert({"--encoding", "rope + t5", "--out", from, "--force"}), 2, {"the checkpoint itself"});
  ASSERT_EQ(run(tiny_train(folder, "other", {"--steps", "2"})).code, 0);
  expect_refusal(convert({"--encoding", "rope + t5", "--out", folder / "other", "--force"}), 1, {"holds a run"});

  // A full disk leaves no half checkpoint.
  const Ran full = run({"convert", from, "--encoding", "rope + t5", "--out", folder / "full"}, {.file_limit = 4096});
  EXPECT_EQ(full.code, 1) << full;
  EXPECT_EQ(full.err_lines().size(), 1u) << full;
  EXPECT_FALSE(std::filesystem::exists(folder / "full/config.json"));
}

}  // namespace
}  // namespace torsor::testing
