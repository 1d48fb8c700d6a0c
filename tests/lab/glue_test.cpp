// Fine-tuning on tasks in the GLUE layouts, and the comparison of encoders.
#include "torsor/lab/glue.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "tests/lab/toy_causal_parser.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;

Encoder tiny_encoder(const std::string& encoding = "rope") {
  EncoderConfig config;
  config.model.width = 32;
  config.model.layers = 1;
  config.model.heads = 2;
  config.model.encoding = encoding;
  config.model.train_length = 24;
  return Encoder(config, 1);
}

GlueExample example(const std::string& first, const std::string& second, std::int64_t label, double score = 0) {
  return {first, second, label, score};
}

class LabGlue : public ::testing::Test {
 protected:
  LabGlue() { at::set_num_threads(1); }
};

TEST_F(LabGlue, RowsOfOneAndTwoSentences) {
  const GlueExample one = example("ab", "", 0), two = example("abcd", "xyz", 0),
                    long_pair = example("aaaaaaaa", "bbb", 0);
  const auto encoding = make_encoding("rope", {.heads = 1, .head_dim = 4});
  const EncoderBatch batch = glue_rows({&one, &two, &long_pair}, 10, *encoding, nullptr);
  const std::int64_t C = EncoderTokens::kFirst, S = EncoderTokens::kSeparator, P = EncoderTokens::kPadding;
  const auto row = [](std::vector<std::int64_t> values) { return at::tensor(values).view({1, -1}); };
  EXPECT_TRUE(at::equal(
      batch.tokens, at::cat({row({C, 'a', 'b', S, P, P, P, P, P, P}), row({C, 'a', 'b', 'c', 'd', S, 'x', 'y', 'z', S}),
                             row({C, 'a', 'a', 'a', 'a', S, 'b', 'b', 'b', S})})));
  EXPECT_TRUE(
      at::equal(batch.segments, at::cat({row({0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), row({0, 0, 0, 0, 0, 0, 1, 1, 1, 1}),
                                         row({0, 0, 0, 0, 0, 0, 1, 1, 1, 1})})));
  EXPECT_TRUE(at::equal(batch.documents[0], at::tensor(std::vector<std::int64_t>{0, 0, 0, 0, -1, -1, -1, -1, -1, -1})));
  EXPECT_EQ(batch.documents[1].abs().sum().item<std::int64_t>(), 0);
  EXPECT_THROW(glue_rows({&one}, 4, *encoding, nullptr), UsageError);
}

GlueData separable(GlueTask task) {
  GlueData data;
  data.task = task;
  data.name = glue_info(task).name;
  for (int i = 0; i < 16; ++i) {
    const std::string filler(1 + static_cast<std::size_t>(i % 5), static_cast<char>('c' + i % 7));
    const bool yes = i % 2 == 0;
    data.train.push_back(
        example(filler + (yes ? "a" : "b") + filler, glue_info(task).pairs ? "zz" : "", yes ? 1 : 0, yes ? 4.5 : 0.5));
  }
  data.dev = data.train;
  return data;
}

TEST_F(LabGlue, LearnsWhatCanBeTold) {
  testing::TestFolder folder;
  FineTunePlan plan;
  plan.epochs = 1000;
  plan.most_steps = 80;
  plan.batch = 8;
  plan.learning_rate = 5e-3;
  const Encoder pretrained = tiny_encoder();
  for (const GlueTask task : {GlueTask::SST2, GlueTask::RTE, GlueTask::STSB}) {
    const GlueData data = separable(task);
    RunControl control;
    control.folder = folder / data.name;
    const GlueTaskResult result = fine_tune(pretrained, data, plan, 3, 24, "float32", control, nullptr);
    EXPECT_EQ(result.losses.size(), 80U);
    EXPECT_LT(result.losses.back(), 0.3 * result.losses.front()) << data.name;
    EXPECT_GT(result.dev.member, 0.9) << data.name;
    EXPECT_EQ(result.examples, 16U);
    // The checkpoint answers as it was scored, and the pretrained encoder is untouched.
    const LoadedEncoder loaded = load_encoder(folder / data.name);
    EXPECT_EQ(loaded.about.at("layout"), data.name);
    EXPECT_EQ(loaded.encoder.config().labels, task == GlueTask::STSB ? 1 : 2);
    control.folder = folder / (data.name + "-again");
    EXPECT_EQ(fine_tune(pretrained, data, plan, 3, 24, "float32", control, nullptr).losses, result.losses);
    control.folder = folder / (data.name + "-other");
    EXPECT_NE(fine_tune(pretrained, data, plan, 4, 24, "float32", control, nullptr).losses, result.losses);
  }
  EXPECT_TRUE(at::equal(pretrained.parameters()[0].tensor, tiny_encoder().parameters()[0].tensor));
}

TEST_F(LabGlue, MnliHasTwoParts) {
  testing::TestFolder folder;
  GlueData data = separable(GlueTask::MNLI);
  data.dev_mismatched = {data.train[0], data.train[1], data.train[2]};
  FineTunePlan plan;
  plan.most_steps = 2;
  RunControl control;
  control.folder = folder / "run";
  const GlueTaskResult result = fine_tune(tiny_encoder(), data, plan, 3, 24, "float32", control, nullptr);
  EXPECT_EQ(result.dev.values.size(), 1U);
  EXPECT_EQ(result.dev_mismatched.values.size(), 1U);
}

void put_task(const testing::TestFolder& folder, const std::string& name, int rows = 12) {
  std::filesystem::create_directories(folder / ("data/" + name));
  std::string text = "sentence\tlabel\n";
  for (int i = 0; i < rows; ++i)
    text += std::string(3, static_cast<char>('a' + i % 5)) + "\t" + (i % 2 ? "1" : "0") + "\n";
  for (const char* part : {"train", "dev"}) folder.put("data/" + name + "/" + part + ".tsv", text);
}

TEST_F(LabGlue, FindsTasksByFolder) {
  testing::TestFolder folder;
  std::filesystem::create_directories(folder / "data");
  EXPECT_TRUE(
      contains(message_of<Error>([&] { load_glue_tasks(folder / "data", {}, {}); }), "no folder of a GLUE task"));
  put_task(folder, "SST-2");
  put_task(folder, "mine", 7);
  EXPECT_EQ(load_glue_tasks(folder / "data", {}, {}).size(), 1U);
  FineTunePlan few;
  few.most_train = 3, few.most_dev = 2;
  const auto both = load_glue_tasks(folder / "data", {"sst-2", "mine:SST-2"}, few);
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].name, "SST-2");
  EXPECT_EQ(both[1].name, "mine");
  EXPECT_EQ(both[1].task, GlueTask::SST2);
  EXPECT_EQ(both[1].train.size(), 3U);
  EXPECT_EQ(both[1].dev.size(), 2U);
  EXPECT_THROW(load_glue_tasks(folder / "data", {"mine"}, {}), UsageError);
  EXPECT_THROW(load_glue_tasks(folder / "data", {"SST-2", "sst-2"}, {}), UsageError);
  EXPECT_THROW(load_glue_tasks(folder / "data", {"RTE"}, {}), Error);
}

GlueComparePlan tiny_comparison(const testing::TestFolder& folder) {
  GlueComparePlan plan = glue_profile("quick");
  plan.folder = folder / "data";
  plan.tasks = {"SST-2", "mine:SST-2"};
  plan.seeds = {0};
  plan.encoder.encoder.model.width = 16;
  plan.encoder.encoder.model.layers = 1;
  plan.encoder.encoder.model.heads = 2;
  plan.encoder.encoder.complete();
  plan.encoder.run.length = 16;
  plan.encoder.run.batch = 2;
  plan.encoder.run.steps = 2;
  plan.encoder.run.warmup_steps = 1;
  plan.fine.most_steps = 2;
  plan.data.generated_bytes = 4000;
  plan.threads = 1;
  return plan;
}

TEST_F(LabGlue, ComparesResumesAndRepeats) {
  testing::TestFolder folder;
  put_task(folder, "SST-2");
  put_task(folder, "mine");
  GlueComparePlan plan = tiny_comparison(folder);
  plan.encodings = {"learned", "fox"};
  CompareControl control;
  control.folder = folder / "out";
  std::vector<std::string> told;
  control.on_message = [&](const std::string& line) { told.push_back(line); };
  const Json document = run_glue_compare(plan, control);
  ASSERT_EQ(document.at("runs").size(), 2U);
  const Json& run = document.at("runs")[0];
  EXPECT_EQ(run.at("status"), "ok");
  ASSERT_EQ(run.at("eval").size(), 2U);
  EXPECT_EQ(run.at("eval")[0].at("task"), "mlm");
  const Json& glue = run.at("eval")[1];
  EXPECT_EQ(glue.at("task"), "glue");
  EXPECT_FALSE(glue.at("complete").get<bool>());
  ASSERT_EQ(glue.at("groups").size(), 2U);
  EXPECT_NEAR(glue.at("score").get<double>(),
              (glue.at("groups")[0].at("score").get<double>() + glue.at("groups")[1].at("score").get<double>()) / 2,
              1e-12);
  // An encoding that needs causal order refuses; the other goes on.
  EXPECT_EQ(document.at("runs")[1].at("status"), "refused");
  EXPECT_TRUE(
      std::any_of(told.begin(), told.end(), [](const std::string& line) { return contains(line, "no GLUE score"); }));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/results.json"));

  control.resume = true;
  EXPECT_EQ(run_glue_compare(plan, control).at("runs"), document.at("runs"));
  GlueComparePlan other = plan;
  other.fine.most_steps = 3;
  EXPECT_THROW(run_glue_compare(other, control), Error);
  // The plan of a results.json is the plan.
  const GlueComparePlan again = glue_plan_from_json(document.at("config"), "results.json");
  EXPECT_EQ(glue_plan_to_json(again), glue_plan_to_json(plan));
  CompareControl elsewhere;
  elsewhere.folder = folder / "again";
  elsewhere.expected_data = document.at("config").at("data_sha256");
  EXPECT_EQ(run_glue_compare(again, elsewhere).at("runs")[0].at("eval"), run.at("eval"));
  elsewhere.folder = folder / "changed";
  put_task(folder, "mine", 11);
  EXPECT_TRUE(contains(message_of<Error>([&] { run_glue_compare(again, elsewhere); }), "the data has changed"));
}

TEST_F(LabGlue, ControlsAreOfTheParses) {
  testing::TestFolder folder;
  put_task(folder, "SST-2");
  GlueComparePlan plan = tiny_comparison(folder);
  plan.tasks = {"SST-2"};
  plan.encodings = {"sipe(learned, mode=incremental)", "sipe(learned, mode=incremental) @ shuffled"};
  plan.parses.parsers = {testing::toy_causal_parser()};
  CompareControl control;
  control.folder = folder / "out";
  const Json document = run_glue_compare(plan, control);
  const Json &plain = document.at("runs")[0], &shuffled = document.at("runs")[1];
  ASSERT_EQ(plain.at("status"), "ok") << plain.at("reason");
  ASSERT_EQ(shuffled.at("status"), "ok") << shuffled.at("reason");
  EXPECT_EQ(plain.at("syntax").at("control"), "none");
  EXPECT_EQ(shuffled.at("syntax").at("control"), "shuffled");
  EXPECT_NE(plain.at("train").at("losses"), shuffled.at("train").at("losses"));

  control.folder = folder / "other";
  plan.encodings = {"learned @ shuffled"};
  plan.parses = {};
  EXPECT_TRUE(contains(message_of<UsageError>([&] { run_glue_compare(plan, control); }), "'@ shuffled'"));
  // Sentences of tasks have no gold trees: said before anything is trained.
  plan.encodings = {"sipe(learned)"};
  plan.parses.parsers = {"gold"};
  EXPECT_TRUE(
      contains(message_of<UsageError>([&] { run_glue_compare(plan, control); }), "a parser of whole sentences"));
  EXPECT_FALSE(std::filesystem::exists(folder / "other"));
}

}  // namespace
}  // namespace torsor
