// Tuning runs: only what the plan names moves, the same bits every time and after a stop, and comparisons of tunings.
#include "torsor/lab/tune.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "torsor/lab/evaluate.h"
#include "torsor/model/checkpoint.h"

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

std::map<std::string, at::Tensor> tensors_of(const Decoder& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const ModelParameter& parameter : model.parameters()) tensors[parameter.name] = parameter.tensor.detach();
  return tensors;
}

class LabTune : public ::testing::Test {
 protected:
  LabTune() {
    at::set_num_threads(1);
    RunPlan plan = tiny_plan("rope");
    plan.steps = 20;
    RunControl control;
    control.folder = folder_ / "base";
    data_.train = text_corpus(tiny_text(2000), "train");
    data_.valid = text_corpus(tiny_text(400, 2), "valid");
    data_.sha256 = "of the test";
    train_run(plan, data_, control);
  }

  TunePlan plan_of(const std::string& train, const std::string& encoding = "",
                   const std::vector<std::string>& with = {}) const {
    TunePlan plan;
    plan.adapter.train = train;
    plan.adapter.encoding = encoding;
    plan.adapter.with = with;
    plan.run.length = 16;
    plan.run.batch = 2;
    plan.run.steps = 8;
    plan.run.warmup_steps = 2;
    plan.run.learning_rate = 5e-3;
    return plan;
  }

  RunControl control(const std::string& name) const {
    RunControl control;
    control.folder = folder_ / name;
    return control;
  }

  TestFolder folder_;
  LmData data_;
};

TEST_F(LabTune, MovesWhatThePlanNamesAndNothingElse) {
  const TuneBase base = load_tune_base(folder_ / "base");
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, tensor] : tensors_of(base.model)) before[name] = tensor.clone();
  struct Case {
    TunePlan plan;
    std::vector<std::string> moving;  ///< parts of the names of the model's own tensors that move
  };
  for (const Case& one : {Case{plan_of("lora"), {}}, Case{plan_of("lora", "", {"norms"}), {"norm.weight"}},
                          Case{plan_of("positions", "rope + t5"), {"t5.table"}},
                          Case{plan_of("positions", "fox", {"embeddings"}), {"fox.", "embed_tokens"}}}) {
    const TuneResult result = tune_run(base, one.plan, data_, control("moves"));
    EXPECT_EQ(result.train.losses.size(), 8u);
    const Decoder fresh(result.tuned.model.config(), one.plan.run.seed);
    const auto drawn = tensors_of(fresh);
    for (const auto& [name, tensor] : tensors_of(result.tuned.model)) {
      const at::Tensor& start = before.count(name) ? before.at(name) : drawn.at(name);
      const auto named = [&, &tensor_name = name](const std::string& part) { return contains(tensor_name, part); };
      EXPECT_EQ(at::equal(tensor, start), std::none_of(one.moving.begin(), one.moving.end(), named))
          << one.plan.adapter.train << " " << name;
    }
    for (const ModelParameter& parameter : result.tuned.trained)
      if (contains(parameter.name, "lora_B")) {
        EXPECT_GT(parameter.tensor.abs().max().item<float>(), 0) << parameter.name;
      }
    for (const auto& [name, tensor] : tensors_of(base.model)) EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
    std::filesystem::remove_all(folder_ / "moves");
  }
}

TEST_F(LabTune, TellsTheLossBeforeTheFirstStepAndLowersIt) {
  const TuneBase base = load_tune_base(folder_ / "base");
  for (const auto& [train, encoding] :
       {std::pair("lora", ""), std::pair("lora", "linear(rope, factor=2)"), std::pair("positions", "fox")}) {
    TunePlan plan = plan_of(train, encoding, {"norms"});
    plan.run.steps = 60;
    TuneStart start;
    const TuneResult result =
        tune_run(base, plan, data_, control("loss"), [&](const TuneStart& told) { start = told; });
    EXPECT_NEAR(start.loss, result.train.losses.front(), 1e-6);
    ASSERT_TRUE(start.base_loss.has_value());
    // Under its own encoding and with terms that are zero the model is the base.
    EXPECT_EQ(start.loss == *start.base_loss, std::string(encoding).empty()) << encoding;
    EXPECT_EQ(start.fresh.size(), std::string(encoding) == "fox" ? 2u : 0u);
    EXPECT_EQ(start.trained, result.tuned.trained_count());
    double late = 0;
    for (std::size_t step = 50; step < 60; ++step) late += result.train.losses[step] / 10;
    // Ten batches' mean against the first: the tiny text is learned quickly, noise between batches is below 0.1.
    EXPECT_LT(late, start.loss - 0.1) << encoding;
    std::filesystem::remove_all(folder_ / "loss");
  }
}

TEST_F(LabTune, EndsWithTheSameBytesAfterAStop) {
  const TuneBase base = load_tune_base(folder_ / "base");
  const TunePlan plan = plan_of("lora", "rope + t5", {"positions"});
  tune_run(base, plan, data_, control("whole"));
  std::atomic<bool> stop{false};
  StepWatch watch([&](int steps) { stop = steps >= 3; });
  const Progress::Options progress = watch.options();
  RunControl stopped = control("parts");
  stopped.stop = &stop;
  stopped.progress = &progress;
  EXPECT_TRUE(contains(message_of<Interrupted>([&] { tune_run(base, plan, data_, stopped); }), "stopped after step"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "parts/adapter.json"));
  RunControl resumed = control("parts");
  resumed.resume = true;
  const TuneResult result = tune_run(base, plan, data_, resumed);
  EXPECT_GT(result.train.resumed_from, 0);
  for (const char* name : {"adapter.safetensors", "adapter.json"})
    EXPECT_EQ(slurp(folder_ / "parts/" + name), slurp(folder_ / "whole/" + name)) << name;
  // Another plan does not go on from it.
  TunePlan other = plan;
  other.adapter.lora.alpha = 8;
  EXPECT_TRUE(contains(message_of<Error>([&] { tune_run(base, other, data_, resumed); }), "alpha"));
}

TEST_F(LabTune, RefusesWhatTheBaseDoesNotRead) {
  const TuneBase base = load_tune_base(folder_ / "base");
  LmData tokens = data_;
  tokens.train.tokenizer = "tokens";
  EXPECT_TRUE(
      contains(message_of<Error>([&] { tune_run(base, plan_of("lora"), tokens, control("x")); }), "give --text"));
  LmData large = data_;
  large.train.vocabulary_size = 300;
  EXPECT_TRUE(
      contains(message_of<Error>([&] { tune_run(base, plan_of("lora"), large, control("x")); }), "ids up to 299"));
  tune_run(base, plan_of("lora"), data_, control("adapter"));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_tune_base(folder_ / "adapter"); }), "merge it"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x"));
}

// --------------------------------------------------------------------------------------------------------------------
// Comparisons

TEST_F(LabTune, ReadsMethods) {
  const ModelConfig base = load_tune_base(folder_ / "base").origin.config;
  AdapterPlan shared;
  shared.lora.rank = 4;
  shared.with = {"norms"};
  const auto methods =
      parse_methods({"base; lora ;lora: linear( rope,factor=2)", "positions: fox; lora"}, shared, base);
  ASSERT_EQ(methods.size(), 4u);
  EXPECT_EQ(methods[0].label, "base");
  EXPECT_FALSE(methods[0].trained);
  EXPECT_EQ(methods[1].label, "lora");
  EXPECT_EQ(methods[1].adapter.encoding, "rope");
  EXPECT_EQ(methods[1].adapter.lora.rank, 4);
  EXPECT_EQ(methods[2].label, "lora: linear(rope, factor=2)");
  EXPECT_EQ(methods[3].adapter.train, "positions");
  EXPECT_EQ(methods[3].adapter.with, shared.with);
  const auto message = [&](const std::string& text) {
    return message_of<UsageError>([&] { parse_methods({text}, shared, base); });
  };
  EXPECT_TRUE(contains(message("full"), "found 'full'"));
  EXPECT_TRUE(contains(message(" ; "), "no method"));
  EXPECT_TRUE(contains(message("lora: roap"), "roap"));
  EXPECT_TRUE(contains(message("positions"), "no trained tensors"));
}

class LabTuneCompare : public LabTune {
 protected:
  LabTuneCompare() {
    plan_.checkpoint = folder_ / "base";
    plan_.methods = {"base; base: linear(rope, factor=2); lora; lora: linear(rope, factor=2); positions: fox"};
    plan_.run = plan_of("lora").run;
    plan_.data.text = {folder_.put("train.txt", tiny_text(2000))};
    plan_.data.valid = {folder_.put("valid.txt", tiny_text(400, 2))};
    plan_.evaluation = {{16, 32}, 4};
    plan_.seeds = {0, 1};
  }

  TuneCompareControl control(const std::string& name) const {
    TuneCompareControl control;
    control.folder = folder_ / name;
    return control;
  }

  TuneComparePlan plan_;
};

const Json& run_of(const Json& document, const std::string& label, int seed) {
  for (const Json& run : document.at("runs"))
    if (run.at("encoding") == label && run.at("seed") == seed) return run;
  throw Error("no run of " + label);
}

TEST_F(LabTuneCompare, PutsEveryMethodAndSeedIntoOneDocument) {
  const Json document = compare_tunings(plan_, control("a"));
  EXPECT_EQ(document.at("runs").size(), 10u);
  EXPECT_EQ(document.at("effects").size(), 5u);
  const Decoder base = load_checkpoint(folder_ / "base").model;
  const Corpus valid = load_text(plan_.data.valid);
  const Json expected = evaluate_lengths(base, valid, plan_.evaluation, at::kFloat, {});
  // What is not trained has the checkpoint's own figures, with every seed, and nothing trained.
  for (const int seed : {0, 1}) {
    EXPECT_EQ(run_of(document, "base", seed).at("eval"), expected);
    EXPECT_EQ(run_of(document, "base", seed).at("parameters"), 0);
  }
  const Decoder scaled = load_checkpoint(folder_ / "base", "linear(rope, factor=2)").model;
  EXPECT_EQ(run_of(document, "base: linear(rope, factor=2)", 1).at("eval"),
            evaluate_lengths(scaled, valid, plan_.evaluation, at::kFloat, {}));
  // 16 x 16 projections, rank 8, four of them.
  EXPECT_EQ(run_of(document, "lora", 0).at("parameters"), 4 * 8 * 32);
  EXPECT_EQ(run_of(document, "positions: fox", 0).at("parameters"), 2 * 16 + 2);
  EXPECT_NE(run_of(document, "lora", 0).at("eval"), run_of(document, "lora", 1).at("eval"));
  // Each run's adapter gives its figures again.
  std::set<std::string> adapters;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "a/runs"))
    if (std::filesystem::exists(entry.path() / "adapter.json")) adapters.insert(entry.path().string());
  EXPECT_EQ(adapters.size(), 6u);
  for (const std::string& adapter : adapters) {
    const Json record = read_json(adapter + "/result.json");
    EXPECT_EQ(evaluate_lengths(load_checkpoint(adapter).model, valid, plan_.evaluation, at::kFloat, {}),
              record.at("eval"));
  }
  EXPECT_TRUE(contains(document.at("config").at("repeat").get<std::string>(), "--compare 'base; base: linear"));
  // The same plan gives the same numbers.
  EXPECT_EQ(timeless(compare_tunings(plan_, control("b")))["runs"], timeless(document)["runs"]);
}

TEST_F(LabTuneCompare, GoesOnWhereItWasStopped) {
  const Json whole = compare_tunings(plan_, control("whole"));
  std::atomic<bool> stop{false};
  TuneCompareControl stopped = control("parts");
  stopped.stop = &stop;
  stopped.on_results = [&](const Json& document) { stop = document.at("runs").size() >= 3; };
  EXPECT_TRUE(contains(message_of<Interrupted>([&] { compare_tunings(plan_, stopped); }), "--resume"));
  EXPECT_TRUE(contains(message_of<Error>([&] { compare_tunings(plan_, control("parts")); }), "already holds results"));
  TuneCompareControl resumed = control("parts");
  resumed.resume = true;
  EXPECT_EQ(timeless(compare_tunings(plan_, resumed)), timeless(whole));
  TuneComparePlan other = plan_;
  other.shared.lora.rank = 2;
  EXPECT_TRUE(contains(message_of<Error>([&] { compare_tunings(other, resumed); }), "rank is 8 there and 2 here"));
}

}  // namespace
}  // namespace torsor
