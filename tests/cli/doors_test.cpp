// What every command promises: help with an example that works, one JSON document, quiet when asked.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "tests/cli/program.h"

namespace torsor::testing {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// The names under "Subcommands:" of the help.
std::vector<std::string> commands() {
  std::vector<std::string> names;
  bool inside = false;
  for (const std::string& line : lines_of(run({"--help"}).out)) {
    if (inside && line.rfind("  ", 0) == 0 && line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
    if (contains(line, "ubcommands:")) inside = true;
  }
  return names;
}

std::vector<std::string> examples_of(const std::string& command) {
  std::vector<std::string> examples;
  const Ran help = run({command, "--help"});
  EXPECT_EQ(help.code, 0) << help;
  EXPECT_EQ(help.err, "");
  for (const std::string& line : lines_of(help.out))
    if (line.rfind("Example: ", 0) == 0) examples.push_back(line.substr(9));
  return examples;
}

TEST(CliDoors, TheExampleOfEveryHelpWorks) {
  const TestFolder folder;
  // The files that the examples name.
  folder.put("book.txt", tiny_text(20000));
  folder.put("other.txt", tiny_text(3000));
  folder.put("treebank.conllu", kTreebank);
  put_tiny_model(folder);
  std::filesystem::create_directories(folder / "conformance");
  Json cases = read_json(std::string(TORSOR_SOURCE_DIR) + "/conformance/absolute.json");
  folder.put("conformance/absolute.json", json_text(cases));
  Json first = cases;
  first["cases"] = Json::array({cases.at("cases")[0]});
  first["cases"][0]["outputs"] = Json::object();
  folder.put("cases.json", json_text(first));
  // Training for its example's many steps is not what is tested.
  const std::map<std::string, std::string> smaller = {
      {"compare", " --model tiny.json --length 16 --eval-lengths 16,32 --batch 2 --quiet"},
      {"train", " --model tiny.json --length 16 --batch 2 --quiet"}};

  std::vector<std::string> names = commands();
  ASSERT_GE(names.size(), 8u);
  for (const std::string& command : names) {
    const std::vector<std::string> examples = examples_of(command);
    EXPECT_FALSE(examples.empty()) << command;
    for (const std::string& example : examples) {
      std::string line = std::regex_replace(example, std::regex("--steps [0-9]+"), "--steps 2");
      if (const auto more = smaller.find(command); more != smaller.end()) line += more->second;
      const Ran ran = run_shell(line, folder.path());
      EXPECT_EQ(ran.code, 0) << line << "\n" << ran;
      EXPECT_NE(ran.out, "") << line;
    }
  }
}

TEST(CliDoors, JsonIsOneDocumentAndNothingElse) {
  const TestFolder folder;
  const std::string text = folder.put("other.txt", tiny_text(200));
  const Ran trained = run(tiny_train(folder, "run", {"--steps", "2", "--json"}));
  ASSERT_EQ(trained.code, 0) << trained;
  const Json train = parse_json(trained.out, "train");
  EXPECT_EQ(train.at("steps"), 2);
  EXPECT_EQ(train.at("encoding"), "rope + t5");
  EXPECT_EQ(trained.err, "");  // --quiet
  EXPECT_EQ(train.at("loss"), read_lines(folder / "run/log.jsonl")[2].at("loss"));

  const Ran evaluated = run({"eval", folder / "run", "--text", text, "--lengths", "16,64", "--json"});
  ASSERT_EQ(evaluated.code, 0) << evaluated;
  const Json eval = parse_json(evaluated.out, "eval");
  EXPECT_EQ(eval.at("tokens"), 192);  // three spans of 64
  ASSERT_EQ(eval.at("eval").size(), 2u);
  EXPECT_EQ(eval.at("eval")[1].at("length"), 64);

  const std::string conformance = std::string(TORSOR_SOURCE_DIR) + "/conformance/absolute.json";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"encodings", "--json"},
           {"encodings", "yarn", "--json"},
           {"values", "rope + alibi", "--json"},
           {"values", "cope", "--json"},
           {"laws", "alibi", "--json"},
           {"check", conformance, "--json"},
           {"bench", "--quick", "--repeat", "1", "--json", "--filter", "no bias, forward, float32, H=8 T=512"}}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 0) << arguments[0] << "\n" << ran;
    EXPECT_NO_THROW(parse_json(ran.out, arguments[0])) << ran;
  }
}

// What an encoding does not claim may fail without failing the command.
TEST(CliDoors, LawsSeeANormBehindTheRotation) {
  for (const auto& [norm, verdict] : {std::pair{"none", "holds"}, {"before", "holds"}, {"after", "does not hold"}}) {
    const Ran ran = run({"laws", "rope", "--head-dim", "8", "--qk-norm", norm, "--json"});
    EXPECT_EQ(ran.code, 0) << norm << "\n" << ran;
    const Json json = parse_json(ran.out, norm);
    EXPECT_EQ(json.at("qk_norm"), norm);
    int seen = 0;
    for (const Json& law : json.at("laws")) {
      if (law.at("law") != "relative") continue;
      ++seen;
      EXPECT_EQ(law.at("verdict"), verdict) << norm;
      EXPECT_EQ(law.at("claimed").get<bool>(), std::string(norm) != "after");
    }
    EXPECT_EQ(seen, 1) << norm;
  }
}

TEST(CliDoors, EvalDumpsTheLogitsOfTheFirstWindow) {
  const TestFolder folder;
  const std::string text = folder.put("other.txt", tiny_text(200));
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "2"})).code, 0);
  const std::string dump = folder / "logits.safetensors";
  const Ran ran = run({"eval", folder / "run", "--text", text, "--lengths", "32", "--dump-logits", dump});
  ASSERT_EQ(ran.code, 0) << ran;
  const std::string bytes = slurp(dump);
  EXPECT_TRUE(contains(bytes, "\"shape\":[32,256]")) << bytes.substr(0, 300);
  EXPECT_GT(bytes.size(), 32u * 256u * 4u + 32u * 8u);
}

TEST(CliDoors, TellsItsVersion) {
  const Ran ran = run({"--version"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out.rfind("torsor ", 0), 0u) << ran;
  EXPECT_FALSE(contains(ran.out, "unknown"));
}

}  // namespace
}  // namespace torsor::testing
