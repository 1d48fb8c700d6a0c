// Runs that are stopped, killed and taken up again end with the same bits, and the same call gives them twice.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "tests/cli/program.h"
#include "torsor/base/random.h"

namespace torsor::testing {
namespace {

constexpr int kSaveEvery = 5;

/// Every process took over from the last saved state, lost at most one interval and repeated the same losses.
void expect_orderly_log(const std::string& log, const std::vector<double>& losses) {
  std::int64_t last_step = 0, last_save = 0;
  for (const Json& line : read_lines(log)) {
    const std::string event = line.at("event");
    const auto step = line.at("step").get<std::int64_t>();
    if (event == "start" || event == "resume") {
      EXPECT_EQ(event == "start", step == 0);
      EXPECT_EQ(step % kSaveEvery, 0);
      EXPECT_GE(step, last_save);
      EXPECT_LE(step, last_step);
      EXPECT_LE(last_step - step, kSaveEvery);
      last_step = step;
    } else if (event == "step") {
      EXPECT_EQ(step, last_step + 1);
      EXPECT_EQ(line.at("loss").get<double>(), losses.at(static_cast<std::size_t>(step - 1)));
      last_step = step;
    } else if (event == "save") {
      EXPECT_EQ(step, last_step);
      last_save = step;
    }
  }
  EXPECT_EQ(last_step, static_cast<std::int64_t>(losses.size()));
}

std::vector<double> losses_of(const std::string& log) {
  std::vector<double> losses;
  for (const Json& line : read_lines(log))
    if (line.at("event") == "step") losses.push_back(line.at("loss"));
  return losses;
}

TEST(CliResume, TrainKilledAtTwentyRandomMomentsEndsWithTheSameBytes) {
  const TestFolder folder;
  const std::vector<std::string> sizes = {"--steps", "40", "--save-every", std::to_string(kSaveEvery)};
  const auto begun = std::chrono::steady_clock::now();
  const Ran undisturbed = run(tiny_train(folder, "undisturbed", sizes));
  ASSERT_EQ(undisturbed.code, 0) << undisturbed;
  const double duration = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
  const std::vector<double> losses = losses_of(folder / "undisturbed/log.jsonl");
  ASSERT_EQ(losses.size(), 40u);

  std::vector<std::string> more = sizes;
  more.push_back("--resume");
  const std::vector<std::string> arguments = tiny_train(folder, "killed", more);
  const std::string log = folder / "killed/log.jsonl";
  // What a process finished; then a new run begins, so that there is always something to kill.
  int finished = 0;
  const auto take_result = [&](const Ran& ran) {
    ASSERT_EQ(ran.code, 0) << ran;
    EXPECT_EQ(slurp(folder / "killed/model.safetensors"), slurp(folder / "undisturbed/model.safetensors"));
    expect_orderly_log(log, losses);
    std::filesystem::remove_all(folder / "killed");
    ++finished;
  };
  Random random(40, 0);
  for (int kills = 0; kills < 20 && !HasFatalFailure();) {
    const std::size_t before = count_events(log, "step");
    Program program(arguments);
    if (random.below(4) == 0) {
      ::usleep(static_cast<useconds_t>(random.uniform() * duration));  // anywhere, before the first step too
    } else {
      const std::size_t steps = 1 + random.below(8);
      const std::uint64_t delay = random.below(3000);
      program.wait_until([&] { return count_events(log, "step") >= before + steps; });
      ::usleep(static_cast<useconds_t>(delay));
    }
    program.send(SIGKILL);
    const Ran ran = program.finish();
    if (ran.signal == SIGKILL)
      ++kills;
    else
      take_result(ran);
  }
  take_result(run(arguments));
  EXPECT_GE(finished, 1);
}

TEST(CliResume, CtrlCSavesAndEndsWith130) {
  const TestFolder folder;
  const std::vector<std::string> sizes = {"--steps", "300", "--save-every", "0"};
  ASSERT_EQ(run(tiny_train(folder, "undisturbed", sizes)).code, 0);
  std::vector<std::string> more = sizes;
  more.push_back("--resume");
  const std::vector<std::string> arguments = tiny_train(folder, "stopped", more);
  const std::string log = folder / "stopped/log.jsonl";
  Ran ran;
  for (int attempt = 0; attempt < 10 && ran.code != 130; ++attempt) {  // a run may be over before the signal comes
    std::filesystem::remove_all(folder / "stopped");
    Program program(arguments);
    program.wait_until([&] { return count_events(log, "step") >= 3; });
    program.send(attempt % 2 == 0 ? SIGINT : SIGTERM);
    ran = program.finish();
  }
  expect_refusal(ran, 130, {"stopped after step", "of 300", "stopped/state.safetensors"});
  const std::vector<Json> lines = read_lines(log);
  EXPECT_EQ(lines.back().at("event"), "stop");
  const std::size_t steps = count_events(log, "step");
  EXPECT_EQ(lines.back().at("step"), steps);
  EXPECT_EQ(count_events(log, "save"), 1u);
  EXPECT_FALSE(std::filesystem::exists(folder / "stopped/model.safetensors"));
  ASSERT_EQ(run(arguments).code, 0);
  EXPECT_EQ(count_events(log, "step"), 300u);  // nothing was done twice
  EXPECT_EQ(slurp(folder / "stopped/model.safetensors"), slurp(folder / "undisturbed/model.safetensors"));
  EXPECT_EQ(losses_of(log), losses_of(folder / "undisturbed/log.jsonl"));
}

TEST(CliResume, TheSameThreadsGiveTheSameBits) {
  const TestFolder folder;
  for (const char* threads : {"1", "2"}) {
    const auto train = [&](const std::string& out) {
      std::vector<std::string> arguments = tiny_train(folder, out, {"--steps", "8"});
      for (std::size_t i = 0; i < arguments.size(); ++i) {
        if (arguments[i] == "--threads") arguments[i + 1] = threads;
        if (arguments[i] == "--length") arguments[i + 1] = "128";
        if (arguments[i] == "--batch") arguments[i + 1] = "8";  // enough for two threads to share
      }
      ASSERT_EQ(run(arguments).code, 0);
    };
    train(str("a", threads));
    train(str("b", threads));
    EXPECT_EQ(slurp(folder / str("a", threads, "/model.safetensors")),
              slurp(folder / str("b", threads, "/model.safetensors")))
        << threads;
    EXPECT_EQ(losses_of(folder / str("a", threads, "/log.jsonl")), losses_of(folder / str("b", threads, "/log.jsonl")))
        << threads;
  }
}

Json only_losses(const Json& results) {
  Json losses = Json::array();
  for (const Json& one : results.at("runs"))
    losses.push_back(
        {one.at("encoding"), one.at("seed"), one.at("status"), one.at("train").at("losses"), one.at("eval")});
  return losses;
}

TEST(CliResume, ComparePrintsOneDocumentAndFromRepeatsIt) {
  const TestFolder folder;
  const std::string text = folder.put("book.txt", tiny_text(4000));
  const Ran first = run({"compare",     "--encodings", "none; rope",
                         "--encodings", "learned",     "--text",
                         text,          "--model",     put_tiny_model(folder),
                         "--length",    "16",          "--eval-lengths",
                         "16,32",       "--seeds",     "0,1",
                         "--steps",     "3",           "--batch",
                         "2",           "--threads",   "1",
                         "--json",      "--out",       folder / "first"});
  ASSERT_EQ(first.code, 0) << first;
  const Json document = parse_json(first.out, "standard output");  // refuses anything after the document
  EXPECT_EQ(document.at("format"), "torsor-results-1");
  EXPECT_EQ(document.at("runs").size(), 6u);
  EXPECT_FALSE(document.at("summary").empty());
  EXPECT_FALSE(document.at("verdict").empty());
  EXPECT_EQ(document, read_json(folder / "first/results.json"));
  for (const char* name : {"results.csv", "report.html"})
    EXPECT_FALSE(slurp(folder / "first" + ("/" + std::string(name))).empty());
  EXPECT_FALSE(first.err.empty());  // messages go there

  const std::string results = folder / "first/results.json", before = slurp(results);
  const Ran again = run({"compare", "--from", results, "--quiet", "--out", folder / "second"});
  ASSERT_EQ(again.code, 0) << again;
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(only_losses(read_json(folder / "second/results.json")), only_losses(document));

  expect_refusal(run({"compare", "--from", results, "--quiet", "--out", folder / "first"}), 1, {"first", "--force"});
  // What the results say is not overruled in silence.
  expect_refusal(run({"compare", "--from", results, "--steps", "3", "--out", folder / "third"}), 2,
                 {"--from", "--steps"});
  expect_refusal(run({"compare", "--from", results, "--task", "passkey", "--out", folder / "third"}), 2, {"--task"});
  EXPECT_EQ(slurp(results), before);
  folder.put("book.txt", tiny_text(5000));
  expect_refusal(run({"compare", "--from", results, "--quiet", "--out", folder / "third"}), 1, {"data has changed"});
}

TEST(CliResume, CompareStoppedByCtrlCGoesOnToTheSameResults) {
  const TestFolder folder;
  const auto arguments = [&](const std::string& out, bool resume) {
    std::vector<std::string> words = {"compare",
                                      "--encodings",
                                      "none; rope; alibi",
                                      "--text",
                                      folder.put("book.txt", tiny_text(4000)),
                                      "--model",
                                      put_tiny_model(folder),
                                      "--length",
                                      "16",
                                      "--eval-lengths",
                                      "16,32",
                                      "--seeds",
                                      "0",
                                      "--steps",
                                      "120",
                                      "--batch",
                                      "2",
                                      "--threads",
                                      "1",
                                      "--quiet",
                                      "--out",
                                      folder / out};
    if (resume) words.push_back("--resume");
    return words;
  };
  ASSERT_EQ(run(arguments("undisturbed", false)).code, 0);
  const auto some_log = [&](const std::string& out) {
    std::size_t steps = 0;
    if (std::filesystem::exists(folder / (out + "/runs")))
      for (const auto& entry : std::filesystem::directory_iterator(folder / (out + "/runs")))
        steps += count_events(entry.path() / "log.jsonl", "step");
    return steps;
  };
  Ran ran;
  for (int attempt = 0; attempt < 10 && ran.code != 130; ++attempt) {
    std::filesystem::remove_all(folder / "stopped");
    Program program(arguments("stopped", true));
    program.wait_until([&] { return some_log("stopped") >= 150; });  // in the second run
    program.send(SIGINT);
    ran = program.finish();
  }
  expect_refusal(ran, 130, {"--resume", "stopped"});
  ASSERT_EQ(run(arguments("stopped", true)).code, 0);
  EXPECT_EQ(some_log("stopped"), 360u);
  EXPECT_EQ(only_losses(read_json(folder / "stopped/results.json")),
            only_losses(read_json(folder / "undisturbed/results.json")));
}

}  // namespace
}  // namespace torsor::testing
