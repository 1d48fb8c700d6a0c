// Generated tasks from the command line: compared, repeated, gone on with, and a checkpoint scored again.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/cli/program.h"

namespace torsor::testing {
namespace {

std::vector<std::string> tiny_task(const TestFolder& folder, const std::string& out,
                                   const std::vector<std::string>& more = {}, const std::string& steps = "3") {
  std::vector<std::string> arguments = {"compare",    "--task",    "addition", "--length", "2",
                                        "--batch",    "8",         "--steps",  steps,      "--out",
                                        folder / out, "--threads", "1",        "--model",  put_tiny_model(folder)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(CliTasks, AreComparedRepeatedAndScoredAgain) {
  const TestFolder folder;
  const Ran ran = run(tiny_task(folder, "out", {"--encodings", "rope; learned", "--problems", "3"}));
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_TRUE(contains(ran.err, "rope seed 0:  1 ")) << ran;
  EXPECT_TRUE(contains(ran.err, " %  2 ")) << ran;
  EXPECT_TRUE(contains(ran.err, "3 refused")) << ran;
  const Json first = read_json(folder / "out/results.json");
  EXPECT_EQ(first.at("config").at("problems"), 3);
  ASSERT_EQ(first.at("runs").size(), 2u);
  for (const Json& run : first.at("runs")) {
    ASSERT_EQ(run.at("eval").size(), 4u);  // 1 to twice the trained digits
    EXPECT_EQ(run.at("eval")[1].at("windows").size(), 9u);
  }

  const Ran again = run({"compare", "--from", folder / "out/results.json", "--out", folder / "again", "--quiet"});
  ASSERT_EQ(again.code, 0) << again;
  const Json second = read_json(folder / "again/results.json");
  for (std::size_t n = 0; n < 2; ++n) {
    EXPECT_EQ(second.at("runs")[n].at("train").at("losses"), first.at("runs")[n].at("train").at("losses"));
    EXPECT_EQ(second.at("runs")[n].at("eval"), first.at("runs")[n].at("eval"));
  }

  std::string checkpoint;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "out/runs"))
    if (contains(entry.path().filename(), "rope")) checkpoint = entry.path();
  const Ran scored = run({"eval", checkpoint, "--task", "addition", "--lengths", "2,3", "--problems", "3", "--json"});
  ASSERT_EQ(scored.code, 0) << scored;
  const Json eval = parse_json(scored.out, "eval").at("eval");
  ASSERT_EQ(eval.size(), 2u);
  EXPECT_EQ(eval[0], first.at("runs")[0].at("eval")[1]);
  EXPECT_EQ(eval[1], first.at("runs")[0].at("eval")[2]);
  expect_refusal(run({"eval", checkpoint, "--task", "passkey", "--lengths", "100"}), 1, {"addition-1", "passkey"});
  expect_refusal(run({"eval", checkpoint, "--text", "x.txt"}), 1, {"addition-1", "no text"});
  expect_refusal(run({"eval", checkpoint, "--task", "addition"}), 2, {"--lengths"});
  expect_refusal(run({"eval", checkpoint, "--task", "addition", "--lengths", "0"}), 2, {"found 0"});
  expect_refusal(run({"eval", checkpoint, "--task", "addition", "--lengths", "2", "--text", "x"}), 2, {"--text"});
}

TEST(CliTasks, StoppedTheyGoOnToTheSameResults) {
  const TestFolder folder;
  const std::vector<std::string> more = {"--encodings", "rope", "--problems", "2", "--quiet"};
  ASSERT_EQ(run(tiny_task(folder, "whole", more, "200")).code, 0);
  Program program(tiny_task(folder, "out", more, "200"));
  std::string log;
  ASSERT_TRUE(program.wait_until([&] {
    if (std::filesystem::exists(folder / "out/runs"))
      for (const auto& entry : std::filesystem::directory_iterator(folder / "out/runs"))
        log = entry.path().string() + "/log.jsonl";
    return !log.empty() && count_events(log, "step") > 3;
  }));
  program.send(SIGINT);
  const Ran stopped = program.finish();
  EXPECT_EQ(stopped.code, 130) << stopped;
  EXPECT_TRUE(contains(stopped.err, "--resume")) << stopped;
  std::vector<std::string> on = tiny_task(folder, "out", more, "200");
  on.push_back("--resume");
  ASSERT_EQ(run(on).code, 0);
  const Json whole = read_json(folder / "whole/results.json"), out = read_json(folder / "out/results.json");
  EXPECT_EQ(out.at("runs")[0].at("train").at("losses"), whole.at("runs")[0].at("train").at("losses"));
  EXPECT_EQ(out.at("runs")[0].at("eval"), whole.at("runs")[0].at("eval"));
}

TEST(CliTasks, RefuseWhatTheyDoNotRead) {
  const TestFolder folder;
  const std::string text = folder.put("book.txt", "something");
  expect_refusal(run(tiny_task(folder, "o", {"--text", text})), 2, {"--text", "addition"});
  expect_refusal(run(tiny_task(folder, "o", {"--eval-spans", "3"})), 2, {"--eval-spans", "addition"});
  expect_refusal(run(tiny_task(folder, "o", {"--problems", "501"})), 2, {"500", "501"});
  expect_refusal(run({"compare", "--task", "passkey", "--length", "12", "--out", folder / "o"}), 2,
                 {"passkey", "found 12"});
  expect_refusal(run({"compare", "--problems", "3", "--text", text, "--out", folder / "o"}), 2, {"--problems", "lm"});
  EXPECT_FALSE(std::filesystem::exists(folder / "o"));
}

}  // namespace
}  // namespace torsor::testing
