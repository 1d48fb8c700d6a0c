// torsor tune: an adapter beside its checkpoint, the same figures merged, and one line where it does not go.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/cli/program.h"
#include "torsor/base/safetensors.h"

namespace torsor::testing {
namespace {

class CliTune : public ::testing::Test {
 protected:
  CliTune() {
    std::vector<std::string> arguments = tiny_train(folder_, "base", {"--steps", "5"});
    *std::find(arguments.begin(), arguments.end(), "rope + t5") = "rope";
    trained_ = run(arguments).code;
    text_ = folder_.put("other.txt", tiny_text(2000));
  }

  std::vector<std::string> tune(const std::string& out, const std::vector<std::string>& more = {},
                                int steps = 6) const {
    std::vector<std::string> arguments = {"tune",    folder_ / "base", "--text",   text_, "--batch",   "2",
                                          "--steps", str(steps),       "--warmup", "2",   "--threads", "1",
                                          "--out",   folder_ / out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  Json losses(const std::string& checkpoint, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"eval", checkpoint,  "--text", text_,   "--lengths",
                                          "16",   "--threads", "1",      "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 0) << ran;
    return ran.code == 0 ? parse_json(ran.out, "eval").at("eval") : Json();
  }

  const TestFolder folder_;
  std::string text_;
  int trained_ = -1;
};

TEST_F(CliTune, TellsCountsAndLossAndLeavesAnAdapterThatMerges) {
  ASSERT_EQ(trained_, 0);
  const std::string weights = slurp(folder_ / "base/model.safetensors");
  const Ran ran = run(tune("lora", {"--encoding", "linear(rope,factor=2)", "--rank", "2", "--modules", "q,v"}));
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_TRUE(contains(ran.err, "trained ")) << ran;
  EXPECT_TRUE(contains(ran.err, "loss before the first step")) << ran;
  EXPECT_TRUE(contains(ran.out, "final loss")) << ran;
  EXPECT_EQ(slurp(folder_ / "base/model.safetensors"), weights);

  const Ran merge = run({"tune", "--merge", folder_ / "lora", "--out", folder_ / "merged"});
  ASSERT_EQ(merge.code, 0) << merge;
  EXPECT_TRUE(contains(merge.out, "merged lora under linear(rope, factor=2)")) << merge;
  EXPECT_EQ(losses(folder_ / "merged"), losses(folder_ / "lora"));
  EXPECT_NE(losses(folder_ / "merged"), losses(folder_ / "base"));
  // What LoRA does not touch keeps its bits.
  const SafetensorsFile before(folder_ / "base/model.safetensors"), after(folder_ / "merged/model.safetensors");
  const auto bytes = [](const SafetensorsEntry& entry) {
    return std::string(reinterpret_cast<const char*>(entry.data), entry.bytes);
  };
  ASSERT_EQ(after.names(), before.names());
  for (const auto& [name, entry] : after.entries())
    EXPECT_EQ(bytes(entry) == bytes(before.entry(name)), !contains(name, "q_proj") && !contains(name, "v_proj"))
        << name;

  // convert takes the adapter too, and the base may lie elsewhere.
  const Ran converted = run({"convert", folder_ / "lora", "--to", "hf", "--out", folder_ / "hf"});
  ASSERT_EQ(converted.code, 0) << converted;
  EXPECT_EQ(slurp(folder_ / "hf/model.safetensors"), slurp(folder_ / "merged/model.safetensors"));
  std::filesystem::rename(folder_ / "base", folder_ / "moved");
  expect_refusal(run({"eval", folder_ / "lora", "--text", text_}), 1, {"--base"});
  EXPECT_EQ(losses(folder_ / "lora", {"--base", folder_ / "moved"}), losses(folder_ / "merged"));
}

TEST_F(CliTune, JudgesBeforeAndAfterInOneReport) {
  ASSERT_EQ(trained_, 0);
  const Ran ran = run(tune("fox",
                           {"--train", "positions", "--encoding", "rope + fox", "--with", "embeddings,norms", "--valid",
                            folder_ / "book.txt", "--eval-lengths", "16,32", "--learning-rate", "0.01", "--json"},
                           60));
  ASSERT_EQ(ran.code, 0) << ran;
  const Json json = parse_json(ran.out, "tune");
  EXPECT_EQ(json.at("encoding"), "rope + fox");
  EXPECT_EQ(json.at("eval").at("before").size(), 2u);
  // The base has hardly been trained; sixty steps of its embeddings tell the letters of the text from other bytes.
  EXPECT_GT(json.at("eval").at("before")[0].at("loss").get<double>(),
            json.at("eval").at("after")[0].at("loss").get<double>() + 0.5);
  const Json results = read_json(folder_ / "fox/results.json");
  EXPECT_EQ(results.at("runs")[0].at("encoding"), "before");
  EXPECT_EQ(results.at("runs")[1].at("parameters"), json.at("trained_parameters"));
  EXPECT_TRUE(contains(slurp(folder_ / "fox/report.html"), "torsor tune "));
  EXPECT_FALSE(contains(slurp(folder_ / "fox/report.html"), "torsor compare --from"));
}

TEST_F(CliTune, ComparesMethodsInOneReport) {
  ASSERT_EQ(trained_, 0);
  const std::vector<std::string> arguments =
      tune("several", {"--compare", "base; lora; positions: rope + fox", "--seeds", "0,1", "--valid",
                       folder_ / "book.txt", "--eval-lengths", "16,32", "--quiet"});
  const Ran ran = run(arguments);
  ASSERT_EQ(ran.code, 0) << ran;
  for (const char* label : {"base", "lora", "positions: rope + fox"}) {
    EXPECT_TRUE(contains(ran.out, label)) << ran;
    EXPECT_TRUE(contains(slurp(folder_ / "several/report.html"), label));
  }
  EXPECT_EQ(read_json(folder_ / "several/results.json").at("runs").size(), 6u);
  expect_refusal(run(arguments), 1, {"already holds results"});
}

TEST_F(CliTune, StopsAndGoesOnToTheSameBytes) {
  ASSERT_EQ(trained_, 0);
  ASSERT_EQ(run(tune("whole", {"--quiet"}, 400)).code, 0);
  const std::string log = folder_ / "parts/log.jsonl";
  Program program(tune("parts", {"--quiet"}, 400));
  ASSERT_TRUE(program.wait_until([&] { return count_events(log, "step") >= 3; }));
  program.send(SIGINT);
  const Ran stopped = program.finish();
  ASSERT_EQ(stopped.code, 130) << stopped;
  expect_refusal(run(tune("parts", {"--quiet"}, 400)), 1, {"--resume"});
  ASSERT_EQ(run(tune("parts", {"--quiet", "--resume"}, 400)).code, 0);
  EXPECT_EQ(count_events(log, "resume"), 1u);
  for (const char* name : {"adapter.safetensors", "adapter.json"})
    EXPECT_EQ(slurp(folder_ / "parts/" + name), slurp(folder_ / "whole/" + name)) << name;
}

TEST_F(CliTune, RefusesInOneLine) {
  ASSERT_EQ(trained_, 0);
  const std::string base = folder_ / "base", out = folder_ / "out";
  const auto refusal = [&](int code, std::vector<std::string> more, const std::vector<std::string>& parts) {
    more.push_back("--quiet");
    expect_refusal(run(tune("out", more)), code, parts);
  };
  expect_refusal(run({"tune", base}), 2, {"--out"});
  expect_refusal(run({"tune", "--out", out}), 2, {"folder of a checkpoint"});
  refusal(2, {"--train", "all"}, {"lora, positions or tape", "all"});
  refusal(2, {"--train", "positions"}, {"'rope' has no trained tensors"});
  refusal(2, {"--train", "tape", "--encoding", "alibi"}, {"tape(...)"});
  refusal(2, {"--modules", "q,up"}, {"'up'"});
  refusal(2, {"--train", "positions", "--rank", "4"}, {"--rank belongs to --train lora"});
  refusal(2, {"--with", "head"}, {"'head'"});
  refusal(2, {"--dtype", "int8"}, {"int8"});
  refusal(2, {"--eval-lengths", "16,24"}, {"24"});
  refusal(2, {"--eval-spans", "4"}, {"--eval-lengths"});
  refusal(2, {"--compare", "full"}, {"found 'full'"});
  refusal(2, {"--compare", "lora", "--train", "lora"}, {"--train"});
  expect_refusal(run(tune("base")), 2, {"the checkpoint itself"});
  expect_refusal(run({"tune", folder_ / "nowhere", "--text", text_, "--out", out}), 1, {"nowhere"});
  expect_refusal(run({"tune", "--merge", base, "--out", out}), 1, {"no adapter.json"});
  expect_refusal(run({"tune", "--merge", base, "--out", out, "--steps", "3"}), 2, {"--steps"});
  expect_refusal(run({"tune", "--merge", base, "--out", out, "--rank", "3"}), 2, {"--rank"});
  EXPECT_FALSE(std::filesystem::exists(out));
  ASSERT_EQ(run(tune("one")).code, 0);
  expect_refusal(run({"tune", "--merge", folder_ / "one", "--out", base}), 2, {"the checkpoint itself"});
  expect_refusal(run({"tune", "--merge", folder_ / "one", "--out", folder_ / "one"}), 2, {"itself"});
  expect_refusal(run({"tune", folder_ / "one", "--text", text_, "--out", out}), 1, {"merge it"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace torsor::testing
