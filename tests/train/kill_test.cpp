// Processes that die: killed at any moment, or with a disk that is full.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>

#include "tests/train/workbench.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/random.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

using testing::Child;
using testing::child_options;
using testing::finish_child;
using testing::Problem;
using testing::read_log;
using testing::start_child;
using testing::TemporaryFolder;
using testing::train_problem;

// Lets a child train for `steps` steps and `delay` microseconds, then kills it; false when it had ended by itself.
bool kill_after(const std::string& folder, std::uint64_t steps, std::uint64_t delay) {
  const Child child = start_child({"train", folder});
  char byte;
  for (std::uint64_t i = 0; i < steps; ++i) {
    if (read(child.output, &byte, 1) != 1) break;
  }
  usleep(static_cast<useconds_t>(delay));
  kill(child.process, SIGKILL);
  std::string rest;
  const int status = finish_child(child, rest);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST(Kill, ARunKilledTwentyTimesEndsWithTheSameBits) {
  at::set_num_threads(1);
  const TemporaryFolder folder;
  const TrainOptions options = child_options(folder.path());
  Random random(20, 0);
  int kills = 0;
  for (int i = 0; i < 20; ++i) kills += kill_after(folder.path(), 1 + random.below(9), random.below(3000)) ? 1 : 0;
  EXPECT_EQ(kills, 20);
  std::string output;
  const int status = finish_child(start_child({"train", folder.path()}), output);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  ASSERT_EQ(WEXITSTATUS(status), 0) << output;

  const TemporaryFolder other;
  Problem undisturbed;
  TrainOptions at_the_end = child_options(other.path());
  at_the_end.save_every = 0;
  const TrainResult expected = train_problem(undisturbed, at_the_end);
  const auto tensors = load_tensors(options.state).tensors;
  const auto expected_tensors = load_tensors(other / "state.safetensors").tensors;
  ASSERT_EQ(tensors.size(), expected_tensors.size());
  for (const auto& [name, tensor] : expected_tensors) EXPECT_TRUE(at::equal(tensors.at(name), tensor)) << name;

  // Every process takes over from the last state that was told, or from one that was written just before the kill, and
  // repeats at most one interval, with the same numbers.
  std::int64_t last_step = 0;
  std::int64_t last_save = 0;
  int processes = 0;
  for (const Json& line : read_log(options.log)) {
    const std::string event = line.at("event");
    const auto step = line.at("step").get<std::int64_t>();
    if (event == "start" || event == "resume") {
      ++processes;
      EXPECT_EQ(event == "start", step == 0);
      EXPECT_EQ(step % options.save_every, 0);
      EXPECT_GE(step, last_save);
      EXPECT_LE(step, last_step);
      EXPECT_LE(last_step - step, options.save_every);
      last_step = step;
    } else if (event == "step") {
      EXPECT_EQ(step, last_step + 1);
      EXPECT_EQ(line.at("loss").get<double>(), expected.losses.at(static_cast<std::size_t>(step - 1)));
      last_step = step;
    } else if (event == "save") {
      EXPECT_EQ(step, last_step);
      last_save = step;
    }
  }
  EXPECT_EQ(processes, 21);
  EXPECT_EQ(last_step, options.steps);
}

TEST(Kill, AFullDiskLeavesTheOldStateIntact) {
  at::set_num_threads(1);
  const TemporaryFolder folder;
  TrainOptions options = child_options(folder.path());
  options.steps = 12;
  options.stop = nullptr;
  {
    std::atomic<bool> stop = false;
    options.stop = &stop;
    Problem problem(128);
    TrainCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& report) { stop = report.step == 6; };
    EXPECT_THROW(train_problem(problem, options, callbacks), Interrupted);
    options.stop = nullptr;
  }
  const std::string old = read_file(options.state);
  ASSERT_GT(old.size(), std::size_t{16000});  // the log stays well below half of it
  std::string message;
  const int status = finish_child(start_child({"full", folder.path(), std::to_string(old.size() / 2)}), message);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(message, "cannot write '" + options.state + "': File too large");
  EXPECT_EQ(read_file(options.state), old);
  EXPECT_TRUE(folder.unfinished().empty());
  EXPECT_EQ(read_log(options.log).back().at("event"), "stop");
  EXPECT_EQ(read_log(options.log).back().at("step"), 9);

  Problem resumed(128);
  EXPECT_EQ(train_problem(resumed, options).resumed_from, 6);
  const TemporaryFolder other;
  Problem undisturbed(128);
  TrainOptions fresh = child_options(other.path());
  fresh.steps = 12;
  train_problem(undisturbed, fresh);
  EXPECT_TRUE(at::equal(resumed.weights(), undisturbed.weights()));
}

}  // namespace
}  // namespace torsor
