// torsor generate: text to standard output, figures to standard error.
#include <gtest/gtest.h>

#include "tests/cli/program.h"
#include "torsor/base/safetensors.h"

namespace torsor::testing {
namespace {

TEST(CliGenerate, WritesTheSameTextEveryTime) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "3"})).code, 0);
  const std::string model = folder / "run";
  const Ran ran = run({"generate", model, "--prompt", "The sea", "--max-tokens", "20"});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_EQ(ran.out.substr(0, 7), "The sea");
  EXPECT_TRUE(contains(ran.err, "7 tokens read")) << ran;
  EXPECT_TRUE(contains(ran.err, "20 written")) << ran;
  EXPECT_TRUE(contains(ran.err, "ended: length")) << ran;
  EXPECT_EQ(run({"generate", model, "--prompt", "The sea", "--max-tokens", "20", "--seed", "0", "--quiet"}).out,
            ran.out);
  EXPECT_NE(run({"generate", model, "--prompt", "The sea", "--max-tokens", "20", "--seed", "1"}).out, ran.out);

  // Rows of a batch are what each is by itself, and a chunked prompt is the prompt.
  const std::vector<std::string> rest = {"--temperature", "0", "--max-tokens", "9", "--json"};
  const auto rows = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"generate", model});
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const Ran one = run(arguments);
    EXPECT_EQ(one.code, 0) << one;
    return parse_json(one.out, "generate").at("rows");
  };
  const Json both = rows({"--prompt", "The sea", "a"});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0], rows({"--prompt", "The sea"})[0]);
  EXPECT_EQ(both[1], rows({"--prompt", "a", "--chunk", "1"})[0]);
  EXPECT_EQ(both[0].at("tokens").size(), 9u);
  EXPECT_EQ(both[0].at("prompt_tokens").size(), 7u);
  EXPECT_EQ(both[0].at("text").get<std::string>().size(), 9u);

  // The text ends before a stop string.
  const std::string text = both[0].at("text"), stop = text.substr(3, 2);
  const std::size_t end = text.find(stop);
  const Json stopped = rows({"--prompt", "The sea", "--stop", stop, "\x01"});
  EXPECT_EQ(stopped[0].at("text"), text.substr(0, end));
  EXPECT_EQ(stopped[0].at("ended"), "stop string");

  // Ids in, ids out.
  const Ran ids = run(
      {"generate", model, "--ids", "--prompt", "84 104 101 32 115 101 97", "--temperature", "0", "--max-tokens", "9"});
  ASSERT_EQ(ids.code, 0) << ids;
  std::string expected = "84 104 101 32 115 101 97";
  for (const Json& token : both[0].at("tokens")) expected += " " + json_text(token);
  EXPECT_EQ(ids.out, expected + "\n");
}

TEST(CliGenerate, GoesOnBehindAWindow) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "2"})).code, 0);
  const std::string file = folder.put("long.txt", tiny_text(200));
  const Ran ran = run({"generate", folder / "run", "--prompt-file", file, "--window", "24", "--max-tokens", "100",
                       "--cache-dtype", "bf16", "--json"});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_EQ(parse_json(ran.out, "generate").at("rows")[0].at("tokens").size(), 100u);
  const Ran several = run({"generate", folder / "run", "--prompt", "ab", "cd", "--max-tokens", "3", "--quiet"});
  EXPECT_TRUE(contains(several.out, "--- 1, ended: length\nab")) << several;
  EXPECT_TRUE(contains(several.out, "--- 2, ended: length\ncd")) << several;
}

TEST(CliGenerate, RefusesWithOneLine) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "2"})).code, 0);
  const std::string model = folder / "run";
  const auto refused = [&](std::vector<std::string> arguments, int code, const std::vector<std::string>& parts) {
    arguments.insert(arguments.begin(), {"generate", model});
    expect_refusal(run(arguments), code, parts);
  };
  refused({}, 2, {"--prompt"});
  refused({"--prompt", ""}, 2, {"empty"});
  refused({"--prompt", "a", "--sinks", "2"}, 2, {"--window"});
  refused({"--prompt", "a", "--window", "5"}, 2, {"two tokens more", "5"});
  refused({"--prompt", "a", "--stop", ""}, 2, {"stop string"});
  refused({"--prompt", "a", "--temperature", "-1"}, 2, {"--temperature"});
  refused({"--prompt", "a", "--top-p", "2"}, 2, {"top_p", "2"});
  refused({"--prompt", "a", "--ids"}, 2, {"ids", "'a'"});
  refused({"--prompt", "1 999", "--ids"}, 2, {"[0, 256)", "999"});
  refused({"--prompt", "a", "--cache-dtype", "int8"}, 2, {"int8"});
  refused({"--prompt", "a", "--precision", "half"}, 2, {"half"});
  refused({"--prompt", "a", "--out", folder / "x"}, 2, {"--out"});
  refused({"--prompt-file", folder / "none.txt"}, 1, {"none.txt"});
  refused({"--prompt", "a", "--encoding", "sipe(t5)"}, 1, {"sipe"});
  expect_refusal(run({"generate", folder / "none", "--prompt", "a"}), 1, {"none"});
}

TEST(CliEval, WritesTheLogitsOfATextThatIsJustLongEnough) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "2"})).code, 0);
  const std::string tokens = folder.put("tokens.bin", std::string("a\0b\0c\0d\0", 8));
  const std::vector<std::string> eval = {"eval", folder / "run", "--tokens", tokens, "--lengths", "4"};
  expect_refusal(run(eval), 1, {"5 tokens"});  // nothing to score
  std::vector<std::string> dump = eval;
  dump.insert(dump.end(), {"--dump-logits", folder / "logits.safetensors"});
  const Ran ran = run(dump);
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_TRUE(contains(ran.err, "nothing is scored")) << ran;
  const SafetensorsFile file(folder / "logits.safetensors");
  EXPECT_EQ(file.entry("logits").shape, (std::vector<std::int64_t>{4, 256}));
}

TEST(CliGenerate, CtrlCLeavesWhatIsThere) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "2"})).code, 0);
  Surroundings surroundings;
  surroundings.out = folder.put("text.txt", "");
  Program program({"generate", folder / "run", "--prompt", "ab", "--window", "24", "--max-tokens", "100000000"},
                  surroundings);
  ASSERT_TRUE(program.wait_until([&] { return slurp(folder / "text.txt").size() > 50; }));
  program.send(SIGINT);
  const Ran ran = program.finish();
  EXPECT_EQ(ran.code, 130) << ran;
  EXPECT_TRUE(contains(ran.err, "tokens/s")) << ran;
  EXPECT_EQ(ran.out.substr(0, 2), "ab");
}

}  // namespace
}  // namespace torsor::testing
