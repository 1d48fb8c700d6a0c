// The sizes of position states while a model trains: in the log, on the progress line, and the warning.
#include "torsor/lab/state_watch.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"

namespace torsor {
namespace {

using testing::contains;
using testing::slurp;
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

/// Lines of a log that tell of a state.
std::vector<Json> watched_lines(const std::string& log) {
  std::vector<Json> found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);)
    if (Json json = parse_json(line, "log"); json.contains("state_max")) found.push_back(json);
  return found;
}

TEST(StateWatch, SizesStandInTheLogAndStartAtOne) {
  const TestFolder folder;
  const LmData data = tiny_data();
  RunPlan plan = tiny_plan("tape(rope)");
  plan.model.layers = 3;
  plan.steps = 21;
  RunControl control;
  control.folder = folder / "run";
  int warnings = 0;
  control.on_message = [&](const std::string&) { ++warnings; };
  (void)train_run(plan, data, control);
  const auto lines = watched_lines(slurp(folder / "run/log.jsonl"));
  ASSERT_EQ(lines.size(), 3u);  // steps 1, 11 and 21
  EXPECT_EQ(lines[0].at("step"), 1);
  EXPECT_EQ(lines[1].at("step"), 11);
  for (const Json& line : lines) ASSERT_EQ(line.at("state_max").size(), 2u) << "every layer but the last changes it";
  for (const char* key : {"state_max", "state_rms"})
    for (const Json& size : lines[0].at(key)) EXPECT_NEAR(size.get<double>(), 1, 1e-6) << key;
  EXPECT_GT(std::abs(lines[2].at("state_max")[1].get<double>() - 1), 1e-6) << "twenty steps change the states";
  EXPECT_EQ(warnings, 0);
}

TEST(StateWatch, NothingIsWatchedWhereNothingIsCarried) {
  const TestFolder folder;
  RunPlan plan = tiny_plan("rope");
  plan.steps = 2;
  RunControl control;
  control.folder = folder / "run";
  (void)train_run(plan, tiny_data(), control);
  EXPECT_TRUE(watched_lines(slurp(folder / "run/log.jsonl")).empty());
}

TEST(StateWatch, MeasuresPlanesAndWarnsOnceALayer) {
  at::NoGradGuard no_grad;
  for (const std::string encoding : {"tape(rope)", "tape(rope(dim=4))", "tape(rope, block=3)"}) {
    ModelConfig config = testing::tiny_config(encoding);
    config.layers = 3;
    Decoder model(config, 1);
    for (const ModelParameter& parameter : model.parameters())
      if (parameter.name.ends_with("tape.post_attention")) parameter.tensor.fill_(0.5);
    // Without the network every state becomes z + Y: of one token alone, where Y = z, twice as large a layer.
    std::vector<std::string> messages;
    StateWatch watch(model, [&](const std::string& line) { messages.push_back(line); });
    TokenBatch batch;
    batch.tokens = at::zeros({2, 1}, at::kLong);
    for (const double by : {1.0, 3.0}) {
      for (const ModelParameter& parameter : model.parameters())
        if (parameter.name.ends_with("tape.post_attention"))
          parameter.tensor.fill_(by / 2);  // two heads: a row sums to `by`
      watch.begin(0);
      (void)model.hidden(batch);
      Json line;
      std::string shown;
      watch.annotate(line, shown);
      const double one = 1 + by, two = one * one;
      for (const char* key : {"state_max", "state_rms"}) {
        EXPECT_NEAR(line.at(key)[0].get<double>(), one, 1e-5) << encoding;
        EXPECT_NEAR(line.at(key)[1].get<double>(), two, 1e-5) << encoding;
      }
      EXPECT_TRUE(contains(shown, "state ")) << shown;
    }
    // 2 and 4 are quiet; of 4 and 16 the second is told, once.
    ASSERT_EQ(messages.size(), 1u) << encoding;
    EXPECT_TRUE(contains(messages[0], "layer 1")) << messages[0];
    EXPECT_TRUE(contains(messages[0], "16")) << messages[0];
    watch.begin(10);
    (void)model.hidden(batch);
    EXPECT_EQ(messages.size(), 1u);
    // Between the watched steps nothing is measured.
    watch.begin(11);
    (void)model.hidden(batch);
    Json line;
    std::string shown;
    watch.annotate(line, shown);
    EXPECT_TRUE(line.is_null());
  }
}

}  // namespace
}  // namespace torsor
