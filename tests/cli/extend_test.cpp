// torsor extend: a checkpoint past its training length, scored on the same text before and after, or one line that says
// why not and no file.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/program.h"
#include "torsor/base/file.h"

namespace torsor::testing {
namespace {

/// A run of a tiny model, trained on 16 tokens under `encoding`.
std::string put_run(const TestFolder& folder, const std::string& name, const std::string& encoding) {
  std::vector<std::string> arguments = tiny_train(folder, name, {"--steps", "3"});
  *std::find(arguments.begin(), arguments.end(), "rope + t5") = encoding;
  const Ran ran = run(arguments);
  EXPECT_EQ(ran.code, 0) << ran;
  return folder / name;
}

double loss_of(const std::string& checkpoint, const std::string& text, const std::string& length,
               const std::string& encoding = "") {
  std::vector<std::string> arguments = {"eval", checkpoint, "--text", text, "--lengths", "16," + length, "--json"};
  if (!encoding.empty()) arguments.insert(arguments.end(), {"--encoding", encoding});
  const Ran ran = run(arguments);
  EXPECT_EQ(ran.code, 0) << ran;
  return parse_json(ran.out, "eval").at("eval")[1].at("loss").get<double>();
}

TEST(CliExtend, ScoresTheSameTargetsBeforeAndAfterAndWrites) {
  const TestFolder folder;
  const std::string text = folder.put("other.txt", tiny_text(900)), from = put_run(folder, "run", "rope(base=500)"),
                    out = folder / "out";
  const Ran ran = run({"extend", from, "--encoding", "yarn(rope, factor=4)", "--text", text, "--out", out, "--json"});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_TRUE(contains(ran.err, "kept from the checkpoint: base=500")) << ran;
  EXPECT_TRUE(contains(ran.err, "filled in: train_length=16")) << ran;
  const Json json = parse_json(ran.out, "extend");
  EXPECT_EQ(json.at("from"), "rope(base=500)");
  EXPECT_EQ(json.at("encoding"), "yarn(rope(base=500), factor=4, train_length=16)");
  EXPECT_EQ(json.at("train_length"), 16);
  EXPECT_EQ(json.at("length"), 64);
  EXPECT_EQ(json.at("hugging_face"), "llama");
  ASSERT_EQ(json.at("eval").size(), 3u);  // 16, 32, 64
  EXPECT_EQ(json.at("eval")[2].at("length"), 64);
  // The figures are those of torsor eval, of the checkpoint and of what was written.
  EXPECT_EQ(json.at("eval")[2].at("before").at("loss").get<double>(), loss_of(from, text, "64"));
  EXPECT_EQ(json.at("eval")[2].at("after").at("loss").get<double>(), loss_of(out, text, "64"));
  EXPECT_NE(loss_of(out, text, "64"), loss_of(from, text, "64"));
  EXPECT_EQ(slurp(out + "/model.safetensors"), slurp(from + "/model.safetensors"));
  const Json config = read_json(out + "/config.json");
  EXPECT_EQ(config.at("train_length"), 16);
  EXPECT_EQ(config.at("max_position_embeddings"), 64);
  EXPECT_EQ(config.at("rope_parameters").at("rope_theta"), 500);
  EXPECT_EQ(config.at("rope_parameters").at("original_max_position_embeddings"), 16);

  // People read a table.
  const Ran table = run({"extend", from, "--method", "linear", "--length", "32", "--text", text, "--lengths", "8,32",
                         "--spans", "2", "--out", folder / "b"});
  ASSERT_EQ(table.code, 0) << table;
  EXPECT_TRUE(contains(table.out, "perplexity on 64 bytes")) << table;
  EXPECT_TRUE(contains(table.out, "length        before         after")) << table;
  EXPECT_TRUE(contains(table.out, "rope(base=500) -> linear(rope(base=500), factor=2)")) << table;
  EXPECT_EQ(loss_of(folder / "b", text, "32"), loss_of(from, text, "32", "linear(rope(base=500), factor=2)"));
}

TEST(CliExtend, WithoutATextItOnlyWrites) {
  const TestFolder folder;
  const std::string from = put_run(folder, "run", "rope"), out = folder / "out";
  const Ran ran = run({"extend", from, "--method", "dynamic", "--length", "48", "--out", out});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_TRUE(contains(ran.out, "nothing was evaluated: no --text was given")) << ran;
  const Json config = read_json(out + "/config.json");
  EXPECT_EQ(config.at("encoding"), "dynamic(rope, factor=3, train_length=16)");
  EXPECT_EQ(config.at("max_position_embeddings"), 16);  // transformers takes it for the training length
  // A folder of transformers, from the same run, in one more step.
  const Ran foreign = run({"extend", from, "--method", "yarn", "--length", "48", "--to", "hf", "--out", folder / "hf"});
  ASSERT_EQ(foreign.code, 0) << foreign;
  EXPECT_FALSE(read_json(folder / "hf" + "/config.json").contains("encoding"));
  EXPECT_EQ(read_json(folder / "hf" + "/config.json").at("max_position_embeddings"), 48);
  // It is extended again in its own form, and what scaled it before is replaced.
  const Ran again = run({"extend", folder / "hf", "--encoding", "linear(rope, factor=8)", "--out", folder / "again"});
  ASSERT_EQ(again.code, 0) << again;
  EXPECT_TRUE(contains(again.out, "-> linear(rope, factor=8)")) << again;
  EXPECT_FALSE(read_json(folder / "again" + "/config.json").contains("encoding"));
  EXPECT_EQ(read_json(folder / "again" + "/config.json").at("max_position_embeddings"), 128);
}

TEST(CliExtend, OrderOfChannelsBecomesHuggingFacesWhereItHasTheModel) {
  const TestFolder folder;
  const std::string text = folder.put("other.txt", tiny_text(400)),
                    from = put_run(folder, "run", "rope(layout=interleaved)"), out = folder / "out";
  const Ran ran = run({"extend", from, "--encoding", "linear(rope, factor=2)", "--out", out});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_TRUE(contains(ran.err, "kept from the checkpoint: layout=interleaved")) << ran;
  EXPECT_EQ(read_json(out + "/config.json").at("encoding"), "linear(rope, factor=2)");
  EXPECT_EQ(read_json(out + "/config.json").at("model_type"), "llama");
  EXPECT_NEAR(loss_of(out, text, "32"), loss_of(from, text, "32", "linear(rope(layout=interleaved), factor=2)"), 1e-5);
}

TEST(CliExtend, AnAdapterStaysAsItWasTuned) {
  const TestFolder folder;
  const std::string text = folder.put("other.txt", tiny_text(900)), from = put_run(folder, "run", "rope");
  const Ran tuned = run({"tune", from, "--train", "lora", "--encoding", "linear(rope, factor=2)", "--text", text,
                         "--length", "32", "--steps", "2", "--batch", "2", "--out", folder / "lora", "--quiet"});
  ASSERT_EQ(tuned.code, 0) << tuned;
  const Ran ran = run({"extend", folder / "lora", "--text", text, "--out", folder / "out", "--json"});
  ASSERT_EQ(ran.code, 0) << ran;
  const Json json = parse_json(ran.out, "extend");
  EXPECT_EQ(json.at("from"), "rope");
  EXPECT_EQ(json.at("encoding"), "linear(rope, factor=2)");
  EXPECT_EQ(json.at("length"), 32);
  EXPECT_EQ(json.at("eval")[1].at("before").at("loss").get<double>(), loss_of(from, text, "32"));
  EXPECT_EQ(json.at("eval")[1].at("after").at("loss").get<double>(), loss_of(folder / "lora", text, "32"));
  EXPECT_EQ(json.at("eval")[1].at("after").at("loss").get<double>(), loss_of(folder / "out", text, "32"));
  expect_refusal(run({"extend", folder / "lora", "--encoding", "rope", "--out", folder / "b"}), 2,
                 {"adapter", "--encoding"});
}

TEST(CliExtend, RefusesBeforeAnythingIsWritten) {
  const TestFolder folder;
  const std::string from = put_run(folder, "run", "rope + t5"), out = folder / "out";
  const auto extend = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"extend", from};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  expect_refusal(extend({"--encoding", "yarn(rope, factor=4)", "--out", out}), 1, {"changes more", "rope + t5"});
  expect_refusal(extend({"--encoding", "alibi + t5", "--out", out}), 1, {"has no rope"});
  expect_refusal(extend({"--encoding", "yarn(rope, factr=4) + t5", "--out", out}), 2, {"factr"});
  expect_refusal(extend({"--encoding", "yarn(rope, factor=4", "--out", out}), 2, {")"});
  expect_refusal(extend({"--encoding", "yarn(rope) + t5", "--out", out}), 2, {"factor", "--length"});
  expect_refusal(extend({"--encoding", "rope(base=500000) + t5", "--out", out}), 2, {"--length", "16"});
  expect_refusal(extend({"--method", "yarn", "--out", out}), 2, {"--length"});
  expect_refusal(extend({"--method", "yarn", "--length", "16", "--out", out}), 2, {"16", "larger --length"});
  expect_refusal(extend({"--method", "alibi", "--length", "32", "--out", out}), 2, {"alibi", "yarn"});
  expect_refusal(extend({"--out", out}), 2, {"--encoding", "--method"});
  expect_refusal(extend({"--method", "yarn", "--encoding", "yarn(rope, factor=2)", "--out", out}), 2, {"one of them"});
  expect_refusal(extend({"--method", "yarn", "--length", "32"}), 2, {"--out"});
  expect_refusal(extend({"--method", "yarn", "--length", "32", "--lengths", "32", "--out", out}), 2, {"--text"});
  expect_refusal(extend({"--method", "yarn", "--length", "32", "--to", "hf", "--out", out}), 1,
                 {"Hugging Face has no architecture", "t5"});
  expect_refusal(extend({"--method", "yarn", "--length", "32", "--text", folder / "nowhere", "--out", out}), 1,
                 {"nowhere"});
  const std::string small = folder.put("small.txt", tiny_text(20));
  expect_refusal(extend({"--method", "yarn", "--length", "32", "--text", small, "--out", out}), 1, {"33"});
  expect_refusal(run({"extend", "--method", "yarn", "--out", out}), 2, {"checkpoint"});
  expect_refusal(run({"extend", folder / "nowhere", "--method", "yarn", "--length", "32", "--out", out}), 1,
                 {"nowhere"});
  const std::string alibi = put_run(folder, "alibi", "alibi");
  expect_refusal(run({"extend", alibi, "--encoding", "yarn(rope, factor=4)", "--out", out}), 1,
                 {"'alibi' has no rope"});
  EXPECT_FALSE(std::filesystem::exists(out));

  // A sum keeps its other terms, and what exists stays.
  const std::vector<std::string> good = {"--method", "yarn", "--length", "32", "--out", out};
  const Ran ran = extend(good);
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_TRUE(contains(ran.out, "rope + t5 -> yarn(rope, factor=2, train_length=16) + t5")) << ran;
  const std::string before = slurp(out + "/config.json");
  expect_refusal(extend(good), 1, {"already holds a checkpoint", "--force"});
  EXPECT_EQ(slurp(out + "/config.json"), before);
  EXPECT_EQ(extend({"--method", "ntk", "--length", "32", "--out", out, "--force"}).code, 0);
  EXPECT_NE(slurp(out + "/config.json"), before);
  expect_refusal(extend({"--method", "ntk", "--length", "32", "--out", from, "--force"}), 2, {"the checkpoint itself"});
  expect_refusal(extend({"--method", "ntk", "--length", "32", "--out", alibi, "--force"}), 1, {"holds a run"});
  const Ran full = run({"extend", from, "--method", "yarn", "--length", "32", "--out", folder / "full", "--quiet"},
                       {.file_limit = 4096});
  EXPECT_EQ(full.code, 1) << full;
  EXPECT_EQ(full.err_lines().size(), 1u) << full;
  EXPECT_FALSE(std::filesystem::exists(folder / "full/config.json"));
}

}  // namespace
}  // namespace torsor::testing
