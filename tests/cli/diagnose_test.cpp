// torsor diagnose: what breaks past the training length, in words, as a document and as a page.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "tests/cli/program.h"

namespace torsor::testing {
namespace {

TEST(CliDiagnose, AnExpressionInWordsAndAsADocument) {
  const Ran ran = run({"diagnose", "rope", "--head-dim", "8", "--train-length", "512", "--lengths", "2048,512"});
  ASSERT_EQ(ran.code, 0) << ran;
  EXPECT_EQ(ran.err, "");
  for (const char* part :
       {"Verdict", "is expected to break from 513 tokens on", "planes 2, 3 of 4", "wavelength", "6283",
        "torsor extend CKPT --encoding 'yarn(rope, factor=4)' --length 2048", "Nothing was measured"})
    EXPECT_TRUE(contains(ran.out, part)) << part << "\n" << ran;
  const Ran json = run({"diagnose", "rope", "--head-dim", "8", "--train-length", "512", "--json"});
  ASSERT_EQ(json.code, 0) << json;
  const Json document = parse_json(json.out, "diagnose");
  EXPECT_EQ(document.at("format"), "torsor-diagnosis-1");
  EXPECT_EQ(document.at("subject"), "expression");
  EXPECT_TRUE(document.at("measured").is_null());
  EXPECT_EQ(document.at("lengths"), Json::parse("[512, 1024, 2048]"));
  EXPECT_EQ(document.at("findings")[0].at("severity"), "breaks");
  EXPECT_EQ(document.at("findings")[0].at("basis"), "expected");
  EXPECT_EQ(document.at("facts").at("rotations")[0].at("planes").size(), 4u);
  // The shown command gives the same.
  const Ran again = run_shell(document.at("repeat").get<std::string>() + " --json", "/");
  EXPECT_EQ(again.out, json.out);
  // An expression that says the length itself, and one that says how many heads it takes.
  EXPECT_EQ(run({"diagnose", "yarn(rope, factor=4, train_length=256)", "--quiet"}).code, 0);
  EXPECT_EQ(run({"diagnose", "heads(rope * 3, alibi * 3)", "--train-length", "64"}).code, 0);
}

TEST(CliDiagnose, ACheckpointOnAText) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "3"})).code, 0);
  const std::string text = folder.put("other.txt", tiny_text(1500)), page = folder / "report.html";
  const Ran ran = run({"diagnose", folder / "run", "--text", text, "--lengths", "16,64", "--out", page, "--json"});
  ASSERT_EQ(ran.code, 0) << ran;
  const Json json = parse_json(ran.out, "diagnose");
  EXPECT_EQ(json.at("subject"), "checkpoint");
  EXPECT_EQ(json.at("encoding"), "rope + t5");
  EXPECT_EQ(json.at("train_length"), 16);
  const Json& measured = json.at("measured");
  EXPECT_EQ(measured.at("windows"), 4);
  EXPECT_EQ(measured.at("length"), 64);
  EXPECT_EQ(measured.at("text"), text);
  EXPECT_EQ(measured.at("bins").size(), 32u);
  EXPECT_EQ(measured.at("layers").size(), 1u);
  const Ran eval = run({"eval", folder / "run", "--text", text, "--lengths", "64", "--spans", "4", "--json"});
  EXPECT_NEAR(measured.at("loss").get<double>(), parse_json(eval.out, "eval").at("eval")[0].at("loss").get<double>(),
              1e-5);
  bool loss = false;
  for (const Json& finding : json.at("findings"))
    loss |= finding.at("topic") == "loss" && finding.at("basis") == "measured";
  EXPECT_TRUE(loss);
  const std::string html = slurp(page);
  EXPECT_EQ(html.rfind("<!DOCTYPE html>", 0), 0u);
  EXPECT_TRUE(contains(html, "Loss by position"));

  // Nothing that exists is overwritten, and nothing is left beside it.
  const std::vector<std::string> again = {"diagnose",  folder / "run", "--text", text,
                                          "--lengths", "16,64",        "--out",  page};
  expect_refusal(run(again), 1, {"exists", "--force"});
  std::vector<std::string> forced = again;
  forced.push_back("--force");
  const Ran second = run(forced);
  EXPECT_EQ(second.code, 0) << second;
  EXPECT_EQ(slurp(page), html);
  EXPECT_TRUE(contains(second.out, "Measured on 4 windows of 64 tokens")) << second;
  EXPECT_TRUE(contains(second.err, "the page is in")) << second;

  // Without a text, one that is generated; with a short one, as far as it goes; under another expression.
  const Ran generated = run({"diagnose", folder / "run", "--json", "--spans", "1"});
  ASSERT_EQ(generated.code, 0) << generated;
  EXPECT_TRUE(
      contains(parse_json(generated.out, "diagnose").at("measured").at("text").get<std::string>(), "generates"));
  const Ran brief = run({"diagnose", folder / "run", "--text", folder.put("short.txt", tiny_text(40)), "--json"});
  ASSERT_EQ(brief.code, 0) << brief;
  EXPECT_EQ(parse_json(brief.out, "diagnose").at("lengths"), Json::parse("[16, 32, 39]"));
  EXPECT_TRUE(contains(brief.err, "40 tokens")) << brief;
  const Ran scaled =
      run({"diagnose", folder / "run", "--text", text, "--encoding", "yarn(rope, factor=4) + t5", "--json"});
  ASSERT_EQ(scaled.code, 0) << scaled;
  EXPECT_EQ(parse_json(scaled.out, "diagnose").at("facts").at("rotations")[0].at("scaling").at("name"), "yarn");
}

TEST(CliDiagnose, ATableThatEndsIsMeasuredUpToItsEnd) {
  const TestFolder folder;
  std::vector<std::string> arguments = tiny_train(folder, "run", {"--steps", "2"});
  *std::find(arguments.begin(), arguments.end(), "rope + t5") = "learned";
  ASSERT_EQ(run(arguments).code, 0);
  const Ran ran = run(
      {"diagnose", folder / "run", "--text", folder.put("other.txt", tiny_text(900)), "--lengths", "16,64", "--json"});
  ASSERT_EQ(ran.code, 0) << ran;
  const Json json = parse_json(ran.out, "diagnose");
  EXPECT_EQ(json.at("measured").at("length"), 16);
  EXPECT_EQ(json.at("findings")[0].at("topic"), "table");
  EXPECT_EQ(json.at("findings")[0].at("from_length"), 17);
}

TEST(CliDiagnose, RefusesWithOneLine) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "2"})).code, 0);
  const std::string model = folder / "run", text = folder.put("other.txt", tiny_text(300));
  expect_refusal(run({"diagnose"}), 2, {"subject"});
  expect_refusal(run({"diagnose", "roep", "--train-length", "16"}), 2, {"'roep' is no file or folder", "rope"});
  expect_refusal(run({"diagnose", "rope(bse=3)", "--train-length", "16"}), 2, {"bse", "base"});
  expect_refusal(run({"diagnose", "rope"}), 2, {"--train-length"});
  expect_refusal(run({"diagnose", folder / "nowhere"}), 1, {"nowhere", "no such file or folder"});
  expect_refusal(run({"diagnose", "nowhere.gguf"}), 1, {"nowhere.gguf"});
  expect_refusal(run({"diagnose", "rope", "--train-length", "16", "--lengths", "0"}), 2, {"at least 1", "found 0"});
  expect_refusal(run({"diagnose", "rope", "--train-length", "16", "--lengths", "16,many"}), 2, {"many"});
  expect_refusal(run({"diagnose", "rope", "--train-length", "16", "--lengths", "99999999999999999"}), 2,
                 {"found 99999999999999999"});
  EXPECT_EQ(run({"diagnose", "rope", "--train-length", "16", "--lengths", "1000000000000"}).code, 0);
  expect_refusal(run({"diagnose", "rope", "--train-length", "16", "--text", text}), 2,
                 {"--text goes with a checkpoint"});
  expect_refusal(run({"diagnose", model, "--heads", "4"}), 2, {"--heads goes with an expression"});
  expect_refusal(run({"diagnose", model, "--text", folder / "missing.txt"}), 1, {"missing.txt"});
  expect_refusal(run({"diagnose", model, "--text", text, "--lengths", "16,512"}), 1, {"513"});
  expect_refusal(run({"diagnose", model, "--text", text, "--tokens", text}), 2, {"--text", "--tokens"});
  expect_refusal(run({"diagnose", model, "--precision", "half"}), 2, {"exact or hf"});
  expect_refusal(run({"diagnose", model, "--encoding", "roep"}), 2, {"roep"});
  const std::string empty = folder / "empty";
  std::filesystem::create_directories(empty);
  expect_refusal(run({"diagnose", empty}), 1, {"config.json"});
  // A full disk leaves no half page.
  const Ran full =
      run({"diagnose", "rope", "--train-length", "16", "--out", folder / "full.html"}, {.file_limit = 4096});
  EXPECT_EQ(full.code, 1) << full;
  EXPECT_FALSE(std::filesystem::exists(folder / "full.html"));
}

TEST(CliDiagnose, StopsWhenAsked) {
  const TestFolder folder;
  ASSERT_EQ(run(tiny_train(folder, "run", {"--steps", "2"})).code, 0);
  const std::string page = folder / "report.html";
  Program program({"diagnose", folder / "run", "--text", folder.put("other.txt", tiny_text(60000)), "--lengths",
                   "16,4096", "--spans", "0", "--out", page, "--threads", "1"});
  program.wait_until([started = 0]() mutable { return ++started > 2000; });  // some 0.6 s
  program.send(SIGINT);
  const Ran ran = program.finish();
  EXPECT_EQ(ran.code, 130) << ran;
  EXPECT_TRUE(contains(ran.err, "diagnose was stopped")) << ran;
  EXPECT_FALSE(std::filesystem::exists(page));
}

}  // namespace
}  // namespace torsor::testing
