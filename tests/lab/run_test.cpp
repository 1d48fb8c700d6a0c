// One run: same start and same batches whatever the encoding, resumable, with its files.
#include "torsor/lab/run.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "torsor/lab/machine.h"
#include "torsor/model/checkpoint.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::slurp;
using testing::StepWatch;
using testing::TestFolder;
using testing::tiny_plan;
using testing::tiny_text;

LmData tiny_data() {
  LmData data;
  data.train = text_corpus(tiny_text(2000), "train");
  data.valid = text_corpus(tiny_text(400, 2), "valid");
  data.sha256 = data.train.sha256();
  return data;
}

std::map<std::string, at::Tensor> tensors_of(const Decoder& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const ModelParameter& parameter : model.parameters()) tensors[parameter.name] = parameter.tensor;
  return tensors;
}

TEST(LabRun, TensorsOfOneNameAndShapeStartAlikeUnderEveryEncoding) {
  const auto none = tensors_of(make_model(tiny_plan("none"), 256));
  EXPECT_EQ(none.size(), 11u);
  for (const char* encoding : {"learned", "rope", "alibi", "t5", "kerple", "fire", "cope", "rope + t5"}) {
    const auto other = tensors_of(make_model(tiny_plan(encoding), 256));
    for (const auto& [name, tensor] : none) EXPECT_TRUE(at::equal(other.at(name), tensor)) << encoding << " " << name;
    for (const auto& [name, tensor] : other)
      EXPECT_TRUE(none.count(name) || contains(name, "position.")) << encoding << " " << name;
  }
  RunPlan reseeded = tiny_plan("none");
  reseeded.seed = 1;
  EXPECT_FALSE(at::equal(tensors_of(make_model(reseeded, 256)).at("model.embed_tokens.weight"),
                         none.at("model.embed_tokens.weight")));
}

TEST(LabRun, AnEncodingOfSeveralAxesIsRefusedBeforeTheFirstStep) {
  for (const char* encoding : {"rope(axes=2)", "tape(rope(axes=2))", "layers(none, grape-m(axes=2))"}) {
    const std::string message = message_of<UsageError>([&] { make_model(tiny_plan(encoding), 256); });
    EXPECT_TRUE(contains(message, "2 position axes")) << message;
  }
}

TEST(LabRun, EncodingsOfOneSeedTrainOnTheSameBatches) {
  // A linear scaling by 1 is plain rope under another expression: the same numbers at every step, or the data differed.
  const LmData data = tiny_data();
  const auto losses = [&](const std::string& encoding, std::uint64_t seed) {
    RunPlan plan = tiny_plan(encoding);
    plan.steps = 5;
    plan.seed = seed;
    Decoder model = make_model(plan, 256);
    return train_model(model, plan, data.train, {}).losses;
  };
  const std::vector<double> rope = losses("rope", 0);
  EXPECT_EQ(rope.size(), 5u);
  EXPECT_EQ(losses("linear(rope, factor=1)", 0), rope);
  EXPECT_NE(losses("rope", 1), rope);
  EXPECT_NE(losses("alibi", 0), rope);
}

TEST(LabRun, LeavesACheckpointAStateAndALog) {
  const TestFolder folder;
  RunPlan plan = tiny_plan("t5");
  plan.accumulation = 2;
  RunControl control;
  control.folder = folder / "deep/run";
  const LmData data = tiny_data();
  const RunResult result = train_run(plan, data, control);
  EXPECT_EQ(result.train.losses.size(), 3u);
  EXPECT_EQ(result.train.tokens, 3 * 2 * 2 * 16);
  EXPECT_NEAR(result.train.losses[0], std::log(256.0), 0.1);  // small weights know nothing
  const LoadedModel loaded = load_checkpoint(control.folder);
  EXPECT_EQ(loaded.tokenizer, "bytes");
  EXPECT_EQ(loaded.model.config().encoding, "t5");
  EXPECT_EQ(loaded.model.config().train_length, 16);
  const auto trained = tensors_of(result.model);
  for (const auto& [name, tensor] : tensors_of(loaded.model)) EXPECT_TRUE(at::equal(tensor, trained.at(name))) << name;
  for (const char* name : {"config.json", "model.safetensors", "state.safetensors", "state.json", "log.jsonl"})
    EXPECT_FALSE(slurp(control.folder + "/" + name).empty()) << name;
  EXPECT_TRUE(contains(slurp(control.folder + "/state.json"), data.sha256));
}

TEST(LabRun, AStoppedRunGoesOnToTheSameBits) {
  at::set_num_threads(1);
  const LmData data = tiny_data();
  RunPlan plan = tiny_plan("rope + t5");
  plan.steps = 7;
  const TestFolder folder;
  RunControl control;
  control.folder = folder / "undisturbed";
  const RunResult undisturbed = train_run(plan, data, control);

  control.folder = folder / "stopped";
  control.resume = true;
  std::atomic<bool> stop = false;
  control.stop = &stop;
  int stops = 0;
  std::optional<RunResult> resumed;
  for (int process = 0; process < 10 && !resumed; ++process) {
    stop = false;
    StepWatch watch([&](int steps) { stop = steps == 2; });
    const Progress::Options progress = watch.options();
    control.progress = &progress;
    try {
      resumed.emplace(train_run(plan, data, control));
    } catch (const Interrupted& stopped) {
      EXPECT_TRUE(contains(stopped.what(), str("step ", 2 * ++stops, " of 7"))) << stopped.what();
    }
  }
  ASSERT_TRUE(resumed);
  EXPECT_EQ(stops, 3);
  EXPECT_EQ(resumed->train.resumed_from, 6);
  EXPECT_EQ(resumed->train.losses, undisturbed.train.losses);
  EXPECT_EQ(slurp(folder / "stopped/model.safetensors"), slurp(folder / "undisturbed/model.safetensors"));

  plan.learning_rate = 1e-3;
  control.stop = nullptr;
  control.progress = nullptr;
  const std::string message = message_of<Error>([&] { train_run(plan, data, control); });
  EXPECT_TRUE(contains(message, "learning_rate")) << message;
}

TEST(LabRun, DataWithoutAWindowIsRefusedBeforeAnythingIsWritten) {
  const TestFolder folder;
  RunPlan plan = tiny_plan();
  plan.length = 2000;
  RunControl control;
  control.folder = folder / "run";
  EXPECT_TRUE(contains(message_of<Error>([&] { train_run(plan, tiny_data(), control); }), "2001"));
  EXPECT_TRUE(folder.names().empty());
}

TEST(LabRun, TypesAreNamed) {
  EXPECT_EQ(dtype_named("float32"), at::kFloat);
  EXPECT_EQ(dtype_named("bf16"), at::kBFloat16);
  EXPECT_TRUE(contains(message_of<UsageError>([] { dtype_named("fp8"); }), "fp8"));
}

TEST(LabMachine, IsDescribedWithoutNamingIt) {
  const Json machine = describe_machine();
  for (const char* key :
       {"processor", "cores", "memory_bytes", "instruction_sets", "system", "libtorch", "torsor", "threads"})
    EXPECT_TRUE(machine.contains(key)) << key;
  EXPECT_EQ(machine.size(), 8u);
  EXPECT_NE(machine.at("torsor"), "unknown");
  EXPECT_GE(machine.at("cores").get<int>(), 1);
  EXPECT_GT(machine.at("memory_bytes").get<double>(), 1e8);
  reset_peak_memory();
  const std::int64_t before = peak_memory();
  EXPECT_GT(before, 1 << 20);
  {
    const std::vector<char> large(std::size_t{64} << 20, 'x');
    EXPECT_EQ(large.back(), 'x');
  }
  EXPECT_GT(peak_memory(), before + (32 << 20));
}

}  // namespace
}  // namespace torsor
