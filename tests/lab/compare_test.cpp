// The main job: one run an encoding and seed, paired, resumable, with failures recorded.
#include "torsor/lab/compare.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "torsor/base/file.h"
#include "torsor/data/task.h"
#include "torsor/lab/profile.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::slurp;
using testing::StepWatch;
using testing::TestFolder;
using testing::timeless;
using testing::tiny_plan;
using testing::tiny_text;

class LabCompare : public ::testing::Test {
 protected:
  LabCompare() {
    at::set_num_threads(1);
    plan_.encodings = {"none", "rope", "linear(rope, factor=1)", "learned"};
    plan_.run = tiny_plan();
    plan_.eval_lengths = {16, 32};
    plan_.seeds = {0, 1};
    plan_.eval_spans = 4;
    plan_.threads = 1;
    plan_.data.text = {folder_.put("train.txt", tiny_text(2000))};
    plan_.data.valid = {folder_.put("valid.txt", tiny_text(400, 2))};
  }

  CompareControl control(const std::string& name) const {
    CompareControl control;
    control.folder = folder_ / name;
    return control;
  }

  TestFolder folder_;
  ComparePlan plan_;
};

const Json& run_of(const Json& document, const std::string& encoding, int seed) {
  for (const Json& run : document.at("runs"))
    if (run.at("encoding") == encoding && run.at("seed") == seed) return run;
  throw Error("no run of " + encoding);
}

TEST_F(LabCompare, OneRunAnEncodingAndSeedOnTheSameBatches) {
  std::size_t told = 0;
  CompareControl options = control("out");
  options.on_results = [&](const Json& document) {
    EXPECT_EQ(document.at("runs").size(), ++told);
    EXPECT_EQ(read_json(options.folder + "/results.json").at("runs").size(), told);
  };
  const Json document = run_compare(plan_, options);
  EXPECT_EQ(document, read_json(options.folder + "/results.json"));
  EXPECT_EQ(told, 8u);
  EXPECT_EQ(document.at("format"), "torsor-results-1");
  std::set<std::pair<std::string, int>> seen;
  for (const Json& run : document.at("runs")) {
    EXPECT_TRUE(seen.emplace(run.at("encoding"), run.at("seed")).second);
    EXPECT_EQ(run.at("status"), "ok") << run.at("reason");
    EXPECT_EQ(run.at("train").at("losses").size(), 3u);
    EXPECT_EQ(run.at("train").at("losses")[2][0], 3);
    EXPECT_EQ(run.at("train").at("tokens"), 3 * 2 * 16);
    EXPECT_GT(run.at("peak_memory_bytes").get<double>(), 0);
    EXPECT_GT(run.at("decode_tokens_per_second").get<double>(), 0);
    ASSERT_EQ(run.at("eval").size(), 2u);
    for (const Json& eval : run.at("eval")) {
      const bool beyond = run.at("encoding") == "learned" && eval.at("length") == 32;
      EXPECT_EQ(eval.at("status"), beyond ? "refused" : "ok");
      EXPECT_EQ(eval.at("reason") == "", !beyond) << eval;
      if (!beyond) {
        EXPECT_DOUBLE_EQ(eval.at("perplexity").get<double>(), std::exp(eval.at("loss").get<double>()));
      }
      EXPECT_EQ(eval.at("windows").size(), beyond ? 0u : eval.at("length") == 16 ? 8u : 4u);
    }
  }
  // Same weights, same batches: what is the same function gives the same numbers.
  for (const int seed : {0, 1}) {
    const Json &rope = run_of(document, "rope", seed), &same = run_of(document, "linear(rope, factor=1)", seed);
    EXPECT_EQ(rope.at("train").at("losses"), same.at("train").at("losses"));
    EXPECT_EQ(rope.at("eval"), same.at("eval"));
    EXPECT_NE(rope.at("train").at("losses"), run_of(document, "none", seed).at("train").at("losses"));
    EXPECT_EQ(run_of(document, "learned", seed).at("parameters").get<int>(),
              rope.at("parameters").get<int>() + 16 * 16);
  }
  EXPECT_NE(run_of(document, "rope", 0).at("train").at("losses"), run_of(document, "rope", 1).at("train").at("losses"));
  EXPECT_EQ(document.at("effects").size(), 4u);
  EXPECT_EQ(document.at("effects")[1].at("kind"), "rotation");
}

TEST_F(LabCompare, InterruptedAnywhereItGoesOnToTheSameResults) {
  plan_.encodings = {"rope", "learned"};
  const Json undisturbed = run_compare(plan_, control("undisturbed"));

  // Between two runs.
  std::atomic<bool> stop = false;
  CompareControl between = control("between");
  between.stop = &stop;
  between.on_results = [&](const Json& document) { stop = document.at("runs").size() == 1; };
  const std::string message = message_of<Interrupted>([&] { run_compare(plan_, between); });
  EXPECT_TRUE(contains(message, "--resume")) << message;
  EXPECT_EQ(read_json(between.folder + "/results.json").at("runs").size(), 1u);
  stop = false;
  between.on_results = {};
  between.resume = true;
  EXPECT_EQ(timeless(run_compare(plan_, between)), timeless(undisturbed));

  // In the middle of every run, again and again.
  CompareControl inside = control("inside");
  inside.stop = &stop;
  inside.resume = true;
  StepWatch watch([&](int steps) { stop = steps == 2; });
  inside.progress = [&](const std::string&) { return watch.options(); };
  int stops = 0;
  Json document;
  for (; stops < 20; ++stops) {
    stop = false;
    try {
      document = run_compare(plan_, inside);
      break;
    } catch (const Interrupted&) {
    }
  }
  EXPECT_GE(stops, 4);
  EXPECT_LT(stops, 20);
  EXPECT_EQ(timeless(document), timeless(undisturbed));
}

TEST_F(LabCompare, AnotherPlanIsRefusedByTheKeyThatDiffers) {
  plan_.encodings = {"none"};
  plan_.seeds = {0};
  CompareControl options = control("out");
  const Json document = run_compare(plan_, options);
  const std::string before = slurp(options.folder + "/results.json");
  options.resume = true;
  const auto refusal = [&](const ComparePlan& other) {
    const std::string message = message_of<Error>([&] { run_compare(other, options); });
    EXPECT_TRUE(contains(message, options.folder)) << message;
    EXPECT_EQ(slurp(options.folder + "/results.json"), before);
    return message;
  };
  ComparePlan other = plan_;
  other.run.steps = 4;
  EXPECT_TRUE(contains(refusal(other), "run.steps is 3 there and 4 here")) << refusal(other);
  other = plan_;
  other.eval_lengths = {16};
  EXPECT_TRUE(contains(refusal(other), "eval_lengths[1]")) << refusal(other);
  other = plan_;
  other.encodings.push_back("rope");
  EXPECT_TRUE(contains(refusal(other), "encodings[1]")) << refusal(other);
  folder_.put("train.txt", tiny_text(2000, 7));
  EXPECT_TRUE(contains(refusal(plan_), "data_sha256"));
}

TEST_F(LabCompare, ResultsAreNotReplacedUnasked) {
  plan_.encodings = {"none"};
  plan_.seeds = {0};
  CompareControl options = control("out");
  const Json first = run_compare(plan_, options);
  const std::string before = slurp(options.folder + "/results.json");
  const std::string message = message_of<Error>([&] { run_compare(plan_, options); });
  for (const char* word : {"--resume", "--force", "--out"}) EXPECT_TRUE(contains(message, word)) << message;
  EXPECT_EQ(slurp(options.folder + "/results.json"), before);
  options.force = true;
  plan_.seeds = {3};
  const Json second = run_compare(plan_, options);
  ASSERT_EQ(second.at("runs").size(), 1u);
  EXPECT_EQ(second.at("runs")[0].at("seed"), 3);
  std::size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder + "/runs"))
    folders += entry.is_directory();
  EXPECT_EQ(folders, 1u);
  // Finished runs are taken as they are, times included.
  options.force = false;
  options.resume = true;
  EXPECT_EQ(run_compare(plan_, options).at("runs"), second.at("runs"));
}

TEST_F(LabCompare, AFailedRunIsRecordedAndTheOthersGoOn) {
  plan_.encodings = {"none", "rope"};
  plan_.seeds = {0};
  const Json whole = run_compare(plan_, control("whole"));
  std::string rope;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "whole/runs"))
    if (const std::string name = entry.path().filename(); name.rfind("none-", 0) != 0) rope = name;
  ASSERT_FALSE(rope.empty());

  // A state that cannot be read or written.
  CompareControl options = control("failing");
  std::filesystem::create_directories(options.folder + "/runs/" + rope + "/state.safetensors");
  std::vector<std::string> messages;
  options.on_message = [&](const std::string& line) { messages.push_back(line); };
  plan_.encodings = {"rope", "none"};
  Json document = run_compare(plan_, options);
  EXPECT_EQ(run_of(document, "rope", 0).at("status"), "failed");
  EXPECT_TRUE(contains(run_of(document, "rope", 0).at("reason"), "state.safetensors"));
  EXPECT_TRUE(run_of(document, "rope", 0).at("eval").empty());
  EXPECT_EQ(timeless(document).at("runs")[1], timeless(whole).at("runs")[0]);
  EXPECT_TRUE(contains(messages.back(), "rope seed 0 failed")) << messages.back();
  EXPECT_EQ(document, read_json(options.folder + "/results.json"));

  // Going on tries it again.
  std::filesystem::remove_all(options.folder + "/runs/" + rope);
  options.resume = true;
  document = run_compare(plan_, options);
  EXPECT_EQ(timeless(document).at("runs")[0], timeless(whole).at("runs")[1]);

  // A folder of the run that cannot even be made.
  CompareControl blocked = control("blocked");
  std::filesystem::create_directories(blocked.folder + "/runs");
  folder_.put("blocked/runs/" + rope, "in the way");
  document = run_compare(plan_, blocked);
  EXPECT_EQ(run_of(document, "rope", 0).at("status"), "failed");
  EXPECT_EQ(run_of(document, "none", 0).at("status"), "ok");
}

TEST_F(LabCompare, ALossThatIsNotFiniteFailsItsRunAlone) {
  plan_.encodings = {"none", "rope"};
  plan_.seeds = {0};
  plan_.run.steps = 6;
  plan_.run.learning_rate = 1e30;
  const Json document = run_compare(plan_, control("out"));
  ASSERT_EQ(document.at("runs").size(), 2u);
  for (const Json& run : document.at("runs")) {
    EXPECT_EQ(run.at("status"), "failed");
    EXPECT_TRUE(contains(run.at("reason"), "step ")) << run.at("reason");
    EXPECT_TRUE(contains(run.at("reason"), "is nan") || contains(run.at("reason"), "is inf") ||
                contains(run.at("reason"), "finite"))
        << run.at("reason");
  }
}

TEST_F(LabCompare, AnEncodingThatRefusesTheTrainingLengthIsAnAnswer) {
  plan_.encodings = {"learned(length=8)", "none"};
  plan_.seeds = {0};
  const Json document = run_compare(plan_, control("out"));
  EXPECT_EQ(run_of(document, "learned(length=8)", 0).at("status"), "refused");
  EXPECT_FALSE(run_of(document, "learned(length=8)", 0).at("reason").get<std::string>().empty());
  EXPECT_EQ(run_of(document, "none", 0).at("status"), "ok");
}

TEST_F(LabCompare, EvaluationShorterThanTrainingIsPossible) {
  // Validation documents then need not hold a training window.
  plan_.encodings = {"none"};
  plan_.seeds = {0};
  plan_.run.length = 64;
  plan_.eval_lengths = {4, 8};
  plan_.data.valid = {folder_.put("short.txt", tiny_text(20, 2))};
  const Json document = run_compare(plan_, control("out"));
  EXPECT_EQ(document.at("runs")[0].at("status"), "ok") << document.at("runs")[0].at("reason");
  EXPECT_EQ(document.at("runs")[0].at("eval").size(), 2u);
}

TEST_F(LabCompare, WhatCannotWorkIsRefusedBeforeTheFirstStep) {
  const auto refused = [&](const ComparePlan& plan, const std::string& part) {
    const std::string message = message_of<Error>([&] { run_compare(plan, control("never")); });
    EXPECT_TRUE(contains(message, part)) << message;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "never"));
  };
  ComparePlan plan = plan_;
  plan.encodings = {"none", "roep"};
  refused(plan, "roep");
  plan = plan_;
  plan.run.length = 5000;
  refused(plan, "5001");
  plan = plan_;
  plan.eval_lengths = {16, 4096};
  refused(plan, "4097");
  plan = plan_;
  plan.eval_lengths = {16, 24};
  refused(plan, "16");
  plan = plan_;
  plan.data.text = {folder_ / "missing"};
  refused(plan, "missing");
  CompareControl options = control("never");
  options.expected_data = std::string(64, '0');
  EXPECT_TRUE(contains(message_of<Error>([&] { run_compare(plan_, options); }), "data has changed"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "never"));
}

TEST_F(LabCompare, ATaskIsComparedLikeText) {
  plan_.task = "addition";
  plan_.data = {};
  plan_.encodings = {"none", "rope", "linear(rope, factor=1)", "learned"};
  plan_.run.length = 2;
  plan_.run.batch = 8;
  plan_.eval_lengths = {1, 2, 3};
  plan_.problems = 4;
  std::vector<std::string> messages;
  CompareControl options = control("out");
  options.on_message = [&](const std::string& line) { messages.push_back(line); };
  const Json document = run_compare(plan_, options);
  EXPECT_TRUE(contains(messages.at(0), "addition") && contains(messages[0], "36 problems")) << messages[0];
  const Json& config = document.at("config");
  EXPECT_EQ(config.at("task"), "addition");
  EXPECT_EQ(config.at("length"), 2);
  EXPECT_EQ(config.at("problems"), 4);
  EXPECT_EQ(config.at("data_sha256").get<std::string>().size(), 64u);
  for (const char* key : {"data", "eval_spans"}) EXPECT_FALSE(config.contains(key)) << key;
  ASSERT_EQ(document.at("runs").size(), 8u);
  for (const Json& run : document.at("runs")) {
    EXPECT_EQ(run.at("status"), "ok") << run.at("reason");
    EXPECT_EQ(run.at("train").at("tokens"), 3 * 8 * 9);  // steps, problems, padded inputs
    EXPECT_GT(run.at("decode_tokens_per_second").get<double>(), 0);
    ASSERT_EQ(run.at("eval").size(), 3u);
    for (std::size_t n = 0; n < 3; ++n) {
      const Json& eval = run.at("eval")[n];
      const bool beyond = run.at("encoding") == "learned" && n == 2;
      EXPECT_EQ(eval.at("task"), "addition");
      EXPECT_EQ(eval.at("length"), n + 1);
      EXPECT_EQ(eval.at("status"), beyond ? "refused" : "ok");
      EXPECT_EQ(eval.at("cells").size(), beyond ? 0 : 2 * n + 1);
      EXPECT_EQ(eval.at("windows").size(), beyond ? 0 : 4 * (2 * n + 1));
    }
  }
  // Same weights, same problems: what is the same function gives the same numbers.
  const Json &rope = run_of(document, "rope", 0), &same = run_of(document, "linear(rope, factor=1)", 0);
  EXPECT_EQ(rope.at("train").at("losses"), same.at("train").at("losses"));
  EXPECT_EQ(rope.at("eval"), same.at("eval"));
  EXPECT_NE(rope.at("train").at("losses"), run_of(document, "rope", 1).at("train").at("losses"));

  // The file repeats it, and a run that was lost comes back the same.
  const ComparePlan again = compare_from_json(config, "test");
  EXPECT_EQ(compare_to_json(again), compare_to_json(plan_));
  options.resume = true;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder + "/runs"))
    if (contains(entry.path().filename(), "rope")) std::filesystem::remove_all(entry.path());
  EXPECT_EQ(timeless(run_compare(again, options)), timeless(document));

  // A record that is another run's is not taken for one's own.
  const std::filesystem::directory_iterator runs(options.folder + "/runs");
  const std::vector<std::filesystem::directory_entry> folders(runs, {});
  ASSERT_GE(folders.size(), 2u);
  write_file_atomic(folders[0].path() / "result.json", slurp(folders[1].path() / "result.json"));
  EXPECT_TRUE(contains(message_of<Error>([&] { run_compare(again, options); }), "found another run's"));

  // Another number of problems is another plan.
  plan_.problems = 5;
  EXPECT_TRUE(contains(message_of<Error>([&] { run_compare(plan_, options); }), "problems is 4 there and 5 here"));
}

TEST_F(LabCompare, AnInterruptedTaskGoesOnToTheSameResults) {
  plan_.task = "passkey";
  plan_.data = {};
  plan_.encodings = {"none", "alibi"};
  plan_.seeds = {0};
  plan_.run.length = 64;
  plan_.eval_lengths = {64, 128};
  plan_.problems = 2;
  const Json undisturbed = run_compare(plan_, control("undisturbed"));
  EXPECT_EQ(undisturbed.at("runs")[0].at("eval")[1].at("cells").size(), 5u);
  std::atomic<bool> stop = false;
  CompareControl inside = control("inside");
  inside.stop = &stop;
  inside.resume = true;
  StepWatch watch([&](int steps) { stop = steps == 2; });
  inside.progress = [&](const std::string&) { return watch.options(); };
  int stops = 0;
  Json document;
  for (; stops < 20; ++stops) {
    stop = false;
    try {
      document = run_compare(plan_, inside);
      break;
    } catch (const Interrupted&) {
    }
  }
  EXPECT_GE(stops, 2);
  EXPECT_LT(stops, 20);
  EXPECT_EQ(timeless(document), timeless(undisturbed));
}

TEST(LabComparePlan, SurvivesJson) {
  ComparePlan plan = profile_plan("standard");
  plan.encodings = {"rope", "yarn(rope, factor=4) + alibi"};
  plan.data.text = {"a.txt"};
  plan.data.generated_seed = 9;
  plan.run.model = testing::tiny_config();
  plan.run.model.train_length = 0;
  plan.run.model.window = {0};
  plan.run.model.qk_norm = QkNorm::After;
  plan.run.batch = 5;
  plan.run.accumulation = 3;
  plan.run.steps = 77;
  plan.run.learning_rate = 0.1 + 0.2;
  plan.run.weight_decay = 0.25;
  plan.run.dtype = "bf16";
  plan.eval_spans = 0;
  plan.threads = 3;
  const Json json = compare_to_json(plan);
  const ComparePlan back = compare_from_json(parse_json(json_text(json), "test"), "test");
  EXPECT_EQ(compare_to_json(back), json);
  EXPECT_EQ(back.run.learning_rate, 0.1 + 0.2);
  EXPECT_EQ(back.encodings, plan.encodings);
  EXPECT_EQ(back.run.length, 256);
  EXPECT_EQ(back.run.model.qk_norm, QkNorm::After);
  EXPECT_EQ(back.threads, 3);
}

TEST(LabComparePlan, ADamagedFileIsBadDataAndNamesTheKey) {
  ComparePlan plan = profile_plan("quick");
  plan.run.model.complete();
  const Json good = compare_to_json(plan);
  ComparePlan task = profile_plan("quick", "addition");
  task.run.model.complete();
  const Json good_task = compare_to_json(task);
  const auto message = [](const Json& json) {
    try {
      compare_from_json(json, "there");
    } catch (const UsageError& error) {
      ADD_FAILURE() << "blames the user: " << error.what();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  for (const auto& [key, value] : good.items()) {
    Json lacking = good;
    lacking.erase(key);
    EXPECT_TRUE(contains(message(lacking), key)) << message(lacking);
  }
  const auto with = [&](const char* pointer, const Json& value) {
    Json json = good;
    json[Json::json_pointer(pointer)] = value;
    return message(json);
  };
  for (const auto& [key, value] : good_task.items()) {
    Json lacking = good_task;
    lacking.erase(key);
    EXPECT_TRUE(contains(message(lacking), key)) << message(lacking);
  }
  EXPECT_TRUE(contains(with("/surplus", 1), "surplus"));
  EXPECT_TRUE(contains(with("/task", "sorting"), "sorting"));
  Json none = good_task;
  none["problems"] = 0;
  EXPECT_TRUE(contains(message(none), "problems must be at least 1"));
  EXPECT_TRUE(contains(with("/run/steps", 0), "steps must be at least 1"));
  EXPECT_TRUE(contains(with("/run/batch", -1), "batch must be at least 1"));
  EXPECT_TRUE(contains(with("/run/dtype", "fp8"), "fp8"));
  EXPECT_TRUE(contains(with("/run/model/heads", 3), "heads 3"));
  EXPECT_TRUE(contains(with("/run/model/widht", 5), "widht"));
  EXPECT_TRUE(contains(with("/length", "long"), "length"));
  EXPECT_TRUE(contains(with("/encodings/0", "roep"), "roep"));
  EXPECT_TRUE(contains(with("/eval_lengths", Json::array()), "evaluation lengths"));
  EXPECT_TRUE(contains(with("/eval_lengths/0", 0), "eval_lengths"));
  EXPECT_TRUE(contains(with("/seeds/0", -1), "seeds"));
  EXPECT_TRUE(contains(message(Json::array()), "there"));
}

TEST(LabComparePlan, EncodingsAreSplitCheckedAndCountedOnce) {
  EXPECT_EQ(split_encodings({" rope; alibi ;", "none", "rope(base=10000)"}),
            (std::vector<std::string>{"rope", "alibi", "none"}));
  EXPECT_EQ(split_encodings({"yarn(rope, factor=4); t5"}).size(), 2u);
  EXPECT_TRUE(contains(message_of<UsageError>([] { split_encodings({"rope; roep"}); }), "roep"));
  EXPECT_TRUE(contains(message_of<UsageError>([] { split_encodings({" ; "}); }), "no encoding"));
  EXPECT_THROW(split_encodings({}), UsageError);
}

TEST(LabComparePlan, ProfilesAreWhatTheyAreSaidToBe) {
  const ComparePlan quick = profile_plan("quick");
  EXPECT_EQ(quick.encodings,
            (std::vector<std::string>{"none", "sinusoidal", "learned", "rope", "alibi", "t5", "kerple", "fire"}));
  EXPECT_EQ(quick.run.length, 128);
  EXPECT_EQ(quick.eval_lengths, (std::vector<std::int64_t>{128, 256, 512, 1024, 2048}));
  EXPECT_EQ(quick.seeds, (std::vector<std::int64_t>{0}));
  for (const char* name : {"quick", "standard", "full"}) {
    const ComparePlan plan = profile_plan(name);
    EXPECT_EQ(plan.profile, name);
    EXPECT_EQ(plan.eval_lengths.front(), plan.run.length);
    for (const std::int64_t length : plan.eval_lengths) EXPECT_EQ(plan.eval_lengths.back() % length, 0) << name;
    EXPECT_LE(plan.run.warmup_steps, plan.run.steps);
  }
  EXPECT_EQ(profile_plan("standard").seeds.size(), 3u);
  EXPECT_TRUE(contains(message_of<UsageError>([] { profile_plan("fast"); }), "fast"));
  for (const std::string task : {"addition", "passkey"})
    for (const char* name : {"quick", "standard", "full"}) {
      const ComparePlan plan = profile_plan(name, task);
      EXPECT_EQ(plan.task, task);
      EXPECT_EQ(plan.profile, name);
      EXPECT_LE(plan.run.warmup_steps, plan.run.steps);
      EXPECT_TRUE(std::is_sorted(plan.eval_lengths.begin(), plan.eval_lengths.end()));
      EXPECT_NE(std::find(plan.eval_lengths.begin(), plan.eval_lengths.end(), plan.run.length),
                plan.eval_lengths.end());
      EXPECT_EQ(plan.eval_lengths.back(), (task == "addition" ? 2 : 8) * plan.run.length);
      EXPECT_GE(plan.eval_lengths.front(), make_task(task, plan.run.length)->shortest_length());
    }
  EXPECT_TRUE(contains(message_of<UsageError>([] { profile_plan("quick", "sorting"); }), "sorting"));
}

TEST(LabComparePlan, AnotherLengthKeepsTheMultiples) {
  const auto lengths = [](const std::string& task, std::int64_t length) {
    ComparePlan plan = profile_plan("quick", task);
    set_length(plan, length);
    EXPECT_EQ(plan.run.length, length);
    return plan.eval_lengths;
  };
  EXPECT_EQ(lengths("lm", 100), (std::vector<std::int64_t>{100, 200, 400, 800, 1600}));
  EXPECT_EQ(lengths("addition", 2), (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(lengths("passkey", 200), (std::vector<std::int64_t>{100, 200, 400, 800, 1600}));
}

}  // namespace
}  // namespace torsor
