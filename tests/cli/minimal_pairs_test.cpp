// Minimal pairs, sliding perplexities and encoders from the command line.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/program.h"

namespace torsor::testing {
namespace {

const char* const kPair =
    R"({"sentence_good": "the cats are here", "sentence_bad": "the cats is here", "field": "syntax", "linguistics_term": "agreement", "UID": "u", "pairID": "0"})";

std::string checkpoint_of(const std::string& out, const std::string& name) {
  for (const auto& entry : std::filesystem::directory_iterator(out + "/runs"))
    if (contains(entry.path().filename(), name)) return entry.path();
  return "";
}

TEST(CliMinimalPairs, ComparesRepeatsAndScoresAgain) {
  const TestFolder folder;
  const std::string text = folder.put("text.txt", tiny_text(6000)), blimp = folder.put("u.jsonl", kPair);
  const Ran ran = run({"compare",
                       "--task",
                       "syntax",
                       "--encodings",
                       "rope; alibi",
                       "--text",
                       text,
                       "--blimp",
                       blimp,
                       "--suite-items",
                       "2",
                       "--length",
                       "16",
                       "--eval-lengths",
                       "16,32",
                       "--eval-spans",
                       "2",
                       "--steps",
                       "2",
                       "--batch",
                       "2",
                       "--seeds",
                       "0",
                       "--model",
                       put_tiny_model(folder),
                       "--threads",
                       "1",
                       "--out",
                       folder / "out"});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_TRUE(contains(ran.err, "generated suites of")) << ran;
  EXPECT_TRUE(contains(ran.err, "each sentence after '\\n\\n'")) << ran;
  EXPECT_TRUE(contains(ran.out, "Agreement (5)")) << ran;
  EXPECT_TRUE(contains(ran.out, "syntax: ")) << ran;
  EXPECT_TRUE(contains(ran.out, "blimp: ")) << ran;
  const Json first = read_json(folder / "out/results.json");
  const Json& eval = first.at("runs")[0].at("eval");
  ASSERT_EQ(eval.size(), 4U);
  EXPECT_EQ(eval[0].at("task"), "lm");
  EXPECT_EQ(eval[2].at("task"), "syntax");
  EXPECT_EQ(eval[2].at("windows").size(), 2 * eval[2].at("suites").size());
  EXPECT_EQ(eval[3].at("task"), "blimp");
  EXPECT_TRUE(std::filesystem::exists(folder / "out/report.html"));

  const Ran again = run({"compare", "--from", folder / "out/results.json", "--out", folder / "again", "--quiet"});
  ASSERT_EQ(again.code, 0) << again;
  EXPECT_EQ(read_json(folder / "again/results.json").at("runs")[1].at("eval"), first.at("runs")[1].at("eval"));

  const std::string checkpoint = checkpoint_of(folder / "out", "rope");
  const Ran scored =
      run({"eval", checkpoint, "--task", "syntax", "--suite-items", "2", "--blimp", blimp, "--json", "--threads", "1"});
  ASSERT_EQ(scored.code, 0) << scored;
  const Json json = parse_json(scored.out, "eval");
  EXPECT_EQ(json.at("separator"), "\n\n");
  EXPECT_EQ(json.at("eval")[0].at("suites"), eval[2].at("suites"));
  EXPECT_EQ(json.at("eval")[1], eval[3]);
  const Ran alone = run({"eval", checkpoint, "--task", "blimp", "--blimp", blimp, "--separator", "\\n"});
  ASSERT_EQ(alone.code, 0) << alone;
  EXPECT_TRUE(contains(alone.out, "agreement")) << alone;
  EXPECT_TRUE(contains(alone.err, "each sentence after '\\n'")) << alone;

  const Ran sliding = run({"eval", checkpoint, "--text", text, "--lengths", "16", "--stride", "8", "--json"});
  ASSERT_EQ(sliding.code, 0) << sliding;
  const Json figures = parse_json(sliding.out, "eval");
  EXPECT_EQ(figures.at("tokens"), 5999);
  EXPECT_GT(figures.at("word_ppl").get<double>(), figures.at("token_ppl").get<double>());
}

TEST(CliMinimalPairs, GeneratedSuitesAreWritten) {
  const TestFolder folder;
  const Ran ran = run({"syntax", "suites", "--items", "3", "--seed", "5", "--out", folder / "suites", "--json"});
  ASSERT_EQ(ran.code, 0) << ran;
  const Json list = parse_json(ran.out, "suites");
  EXPECT_GE(list.size(), 17U);
  for (const Json& one : list) {
    const std::string name = one.at("suite");
    EXPECT_EQ(read_json(folder / ("suites/" + name + ".json")).at("items").size(), 3U);
    EXPECT_TRUE(contains(slurp(folder / ("suites/" + name + ".conllu")), "# sent_id = " + name + "/1/"));
  }
  expect_refusal(run({"syntax", "suites", "--items", "3", "--out", folder / "suites"}), 1, {"exists", "--force"});
  EXPECT_EQ(
      run({"syntax", "suites", "--items", "2", "--names", "generated_cleft", "--force", "--out", folder / "suites"})
          .code,
      0);
  expect_refusal(run({"syntax", "suites", "--names", "nothing", "--out", folder / "other"}), 2, {"nothing"});
  expect_refusal(run({"syntax", "suites"}), 2, {"--out"});
}

TEST(CliMinimalPairs, Refusals) {
  const TestFolder folder;
  const std::string broken = folder.put("broken.json", R"({"meta": {"name": "x"}})");
  const auto compare = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"compare", "--out", folder / "out"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  };
  expect_refusal(compare({"--task", "lm", "--suites", broken}), 2, {"--suites", "--task syntax"});
  expect_refusal(compare({"--task", "syntax", "--suites", broken, "--suite-items", "3"}), 2, {"--suite-items"});
  // A short text: nothing is generated before the suites are read.
  const std::string text = folder.put("text.txt", tiny_text(3000));
  expect_refusal(
      compare({"--task", "syntax", "--suites", broken, "--text", text, "--length", "16", "--eval-lengths", "16"}), 1,
      {"broken.json", "region_meta"});
  expect_refusal(compare({"--task", "syntax", "--separator", "\\x"}), 2, {"--separator"});
  expect_refusal(compare({"--task", "syntax", "--tokens", "x.bin"}), 2, {"--tokens"});
  expect_refusal(compare({"--task", "syntax", "--encodings", "sipe(alibi)"}), 2, {"sipe(alibi)", "no parses"});
  expect_refusal(compare({"--task", "glue"}), 2, {"--data"});
  expect_refusal(compare({"--task", "glue", "--data", folder.path()}), 1, {"holds no folder of a GLUE task"});
  expect_refusal(compare({"--task", "glue", "--data", folder.path(), "--suites", broken}), 2, {"--suites"});
  expect_refusal(compare({"--task", "lm", "--data", folder.path()}), 2, {"--data", "--task glue"});
  expect_refusal(run({"eval", "nowhere", "--task", "blimp"}), 2, {"--blimp"});
  expect_refusal(run({"eval", "nowhere", "--task", "syntax", "--lengths", "3"}), 2, {"--lengths"});
  expect_refusal(run({"eval", "nowhere", "--text", "x", "--blimp", "y"}), 2, {"--blimp", "--task syntax"});
  expect_refusal(run({"eval", "nowhere", "--text", "x", "--stride", "4", "--lengths", "8,16"}), 2, {"--stride"});
}

TEST(CliMinimalPairs, EncodersAreTrainedAndCompared) {
  const TestFolder folder;
  const std::string text = folder.put("text.txt", tiny_text(4000));
  const std::string model = folder.put(
      "encoder.json", R"({"kind": "encoder", "width": 16, "layers": 1, "heads": 2, "norm": "pre", "tag_heads": true})");
  const Ran trained = run({"train", "--encoding", "rope", "--text", text, "--model", model, "--length", "16", "--steps",
                           "3", "--batch", "2", "--threads", "1", "--out", folder / "run", "--json"});
  ASSERT_EQ(trained.code, 0) << trained;
  EXPECT_EQ(parse_json(trained.out, "train").at("steps"), 3);
  EXPECT_EQ(read_json(folder / "run/config.json").at("kind"), "encoder");
  expect_refusal(run({"eval", folder / "run", "--text", text}), 2, {"predicts no next token"});
  // What it says of each place, one of them masked.
  const std::string ids = folder.put("ids.bin", std::string("h\0e\0\2\1l\0o\0", 10));
  const Ran seen =
      run({"eval", folder / "run", "--tokens", ids, "--dump-logits", folder / "logits.safetensors", "--json"});
  ASSERT_EQ(seen.code, 0) << seen;
  EXPECT_EQ(parse_json(seen.out, "eval").at("tokens"), 5);
  EXPECT_TRUE(contains(slurp(folder / "logits.safetensors").substr(0, 400), "\"shape\":[5,260]"));
  expect_refusal(run({"eval", folder / "run", "--tokens", ids, "--dump-logits", folder / "logits.safetensors"}), 1,
                 {"logits.safetensors", "--force"});
  expect_refusal(run({"eval", folder / "run", "--tokens", ids, "--dump-logits", folder / "x", "--stride", "4"}), 2,
                 {"--stride"});
  expect_refusal(run({"generate", folder / "run", "--prompt", "a"}), 1, {"found an encoder's"});
  expect_refusal(run({"train", "--encoding", "tape(rope)", "--text", text, "--model", model, "--out", folder / "no"}),
                 2, {"tape(rope)"});

  std::filesystem::create_directories(folder / "tasks/RTE");
  std::string rows = "index\tsentence1\tsentence2\tlabel\n";
  for (int i = 0; i < 6; ++i) rows += str(i, "\ta b\tc d\t", i % 2 ? "entailment" : "not_entailment", "\n");
  folder.put("tasks/RTE/train.tsv", rows);
  folder.put("tasks/RTE/dev.tsv", rows);
  const Ran compared = run({"compare",     "--task",    "glue",         "--data",  folder / "tasks",
                            "--encodings", "rope; fox", "--text",       text,      "--model",
                            model,         "--length",  "16",           "--steps", "2",
                            "--batch",     "2",         "--fine-steps", "2",       "--threads",
                            "1",           "--out",     folder / "out"});
  ASSERT_EQ(compared.code, 0) << compared;
  EXPECT_TRUE(contains(compared.out, "RTE (6)")) << compared;
  EXPECT_TRUE(contains(compared.out, "refused")) << compared;
  EXPECT_TRUE(contains(compared.err, "no GLUE score")) << compared;
  const Ran again = run({"compare", "--from", folder / "out/results.json", "--out", folder / "again", "--quiet"});
  ASSERT_EQ(again.code, 0) << again;
  EXPECT_EQ(read_json(folder / "again/results.json").at("runs")[0].at("eval"),
            read_json(folder / "out/results.json").at("runs")[0].at("eval"));
}

}  // namespace
}  // namespace torsor::testing
