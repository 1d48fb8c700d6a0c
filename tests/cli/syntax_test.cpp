// torsor syntax check, tags, score: what they print, how they refuse.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/program.h"

namespace torsor::testing {
namespace {

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(CliSyntax, ExamplesOfEveryHelpWork) {
  const TestFolder folder;
  folder.put("treebank.conllu", kTreebank);
  folder.put("parsed.conllu", kTreebank);
  folder.put("tags.txt", "L:LR R:LL L:RR R:E\n");
  for (const char* command : {"check", "tags", "score"}) {
    const Ran help = run({"syntax", command, "--help"});
    ASSERT_EQ(help.code, 0) << help;
    std::istringstream lines(help.out);
    int examples = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("Example: ", 0) != 0) continue;
      ++examples;
      const Ran ran = run_shell(line.substr(9), folder.path());
      EXPECT_EQ(ran.code, 0) << line << "\n" << ran;
      EXPECT_NE(ran.out, "") << line;
    }
    EXPECT_GT(examples, 0) << command;
  }
}

TEST(CliSyntax, TagsAndBack) {
  const TestFolder folder;
  const std::string file = folder.put("treebank.conllu", kTreebank);
  const Ran tags = run({"syntax", "tags", file});
  ASSERT_EQ(tags.code, 0) << tags;
  EXPECT_EQ(tags.out, "L:LR R:LL L:RR R:E\nL:LL R:LL R:LL R:E\n");
  EXPECT_TRUE(contains(tags.err, "1 of 2 sentences")) << tags;
  const Ran heads = run({"syntax", "tags", "--invert", folder.put("tags.txt", tags.out)});
  ASSERT_EQ(heads.code, 0) << heads;
  EXPECT_EQ(heads.out, "2 0 4 2\n0 1 1 1\n");
  const Json json = parse_json(run({"syntax", "tags", file, "--json"}).out, "tags");
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["sent_id"], "one");
  EXPECT_EQ(json[1]["nonprojective_arcs"], 1);
  EXPECT_EQ(json[1]["tags"], "L:LL R:LL R:LL R:E");
  EXPECT_EQ(parse_json(run({"syntax", "tags", "--invert", folder / "tags.txt", "--json"}).out, "heads")[0],
            Json({2, 0, 4, 2}));
  expect_refusal(run({"syntax", "tags", "--invert", folder.put("bad.txt", "L:E\nR:E\n")}), 1, {"bad.txt:2", "word 1"});
  expect_refusal(run({"syntax", "tags", "--invert", file}), 1, {"treebank.conllu:1", "L or R"});
}

TEST(CliSyntax, CheckListsEveryDefect) {
  const TestFolder folder;
  const std::string file = folder.put("treebank.conllu", kTreebank);
  const Ran sound = run({"syntax", "check", file});
  ASSERT_EQ(sound.code, 0) << sound;
  EXPECT_TRUE(contains(sound.out, "2 sentences, 8 words")) << sound;
  EXPECT_TRUE(contains(sound.out, "1 non-projective arcs in 1 sentences, 0 defects")) << sound;

  std::string text = with(kTreebank, "0\troot", "9\troot");
  text = with(text, "# text = she", "# text = he");
  const std::string broken = folder.put("broken.conllu", text + "# text = x z\n1\tx\t_\t_\t_\t_\t0\tdep\t_\t_\n\n");
  const Ran ran = run({"syntax", "check", broken});
  EXPECT_EQ(ran.code, 1) << ran;
  EXPECT_TRUE(contains(ran.out, "broken.conllu:4: expected a head from 0 to 4, got 9 for word 2\n")) << ran;
  EXPECT_TRUE(contains(ran.out, "broken.conllu:14: expected the relation root")) << ran;
  EXPECT_TRUE(contains(ran.out, "broken.conllu:14: # text: ")) << ran;
  EXPECT_TRUE(contains(ran.out, "3 defects")) << ran;
  const Json json = parse_json(run({"syntax", "check", broken, file, "--json"}).out, "check");
  EXPECT_EQ(json["sound"], false);
  EXPECT_EQ(json["files"][0]["defects"].size(), 3u);
  EXPECT_EQ(json["files"][0]["defects"][0]["line"], 4);
  EXPECT_EQ(json["files"][1]["sentences"], 2);

  expect_refusal(run({"syntax", "tags", broken}), 1, {"broken.conllu:4", "got 9"});
  const Ran lenient = run({"syntax", "tags", broken, "--lenient"});
  EXPECT_EQ(lenient.code, 0) << lenient;
  EXPECT_EQ(lenient.out, "L:LL R:LL R:LL R:E\nL:E\n");
  EXPECT_TRUE(contains(lenient.err, "broken.conllu:4")) << lenient;
}

TEST(CliSyntax, ScoresInPerCent) {
  const TestFolder folder;
  const std::string gold = folder.put("gold.conllu", kTreebank);
  const std::string system = folder.put("system.conllu", with(kTreebank, "4\tamod", "2\tamod"));
  const Json json = parse_json(run({"syntax", "score", gold, system, "--json"}).out, "score");
  EXPECT_DOUBLE_EQ(json["uas"].get<double>(), 87.5);
  EXPECT_DOUBLE_EQ(json["las"].get<double>(), 87.5);
  EXPECT_EQ(json["sentences"], 2);
  EXPECT_EQ(json["words"], 8);
  EXPECT_EQ(json["counts"]["uas"]["correct"], 7);
  const Ran table = run({"syntax", "score", gold, system});
  EXPECT_TRUE(contains(table.out, "uas") && contains(table.out, "87.50")) << table;
  expect_refusal(
      run({"syntax", "score", gold, folder.put("other.conllu", with(kTreebank, "videos\tvideo", "video\tvideo"))}), 1,
      {"same text", "'s"});
  const std::string headless = folder.put("headless.conllu", with(kTreebank, "2\tobj", "7\tobj"));
  expect_refusal(run({"syntax", "score", gold, headless}), 1, {"headless.conllu:6", "got 7"});
  const Ran repaired = run({"syntax", "score", gold, headless, "--repair"});
  EXPECT_EQ(repaired.code, 0) << repaired;
  EXPECT_TRUE(contains(repaired.err, "1 of 2 sentences repaired")) << repaired;
}

TEST(CliSyntax, WrongUseIsRefused) {
  const TestFolder folder;
  const std::string file = folder.put("treebank.conllu", kTreebank);
  expect_refusal(run({"syntax"}), 2, {"subcommand"});
  expect_refusal(run({"syntax", "tgas", file}), 2, {"'tgas' of torsor syntax", "check", "tags", "score"});
  expect_refusal(run({"syntax", "tags"}), 2, {"file"});
  expect_refusal(run({"syntax", "tags", file, "--inwert"}), 2, {"--inwert"});
  expect_refusal(run({"syntax", "score", file}), 2, {"system"});
  expect_refusal(run({"syntax", "check", folder / "missing.conllu"}), 1, {"missing.conllu"});
  expect_refusal(run({"syntax", "check", file, "--out", folder / "x"}), 2, {"--out"});
}

}  // namespace
}  // namespace torsor::testing
