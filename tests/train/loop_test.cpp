#include "torsor/train/loop.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <sstream>
#include <string>

#include "tests/train/workbench.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"

namespace torsor {
namespace {

using testing::Problem;
using testing::read_log;
using testing::saving_options;
using testing::small_options;
using testing::TemporaryFolder;
using testing::train_problem;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Trains `problem` until `last` steps are done, stops and expects the stop.
void train_until(Problem& problem, TrainOptions options, std::int64_t last) {
  std::atomic<bool> stop = last == 0;
  options.stop = &stop;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { stop = report.step == last; };
  EXPECT_THROW(train_problem(problem, options, callbacks), Interrupted);
}

TEST(Loop, TrainsAndTellsEveryStep) {
  Problem problem;
  std::vector<StepReport> reports;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { reports.push_back(report); };
  TrainOptions options = small_options();
  options.steps = 60;
  const TrainResult result = train_problem(problem, options, callbacks);
  ASSERT_EQ(reports.size(), 60U);
  ASSERT_EQ(result.losses.size(), 60U);
  const Schedule schedule{.peak = 2e-2, .steps = 60, .warmup = 4, .final_ratio = 0.1};
  for (std::size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(reports[i].loss, result.losses[i]);
    EXPECT_EQ(reports[i].learning_rate, learning_rate_at(schedule, static_cast<std::int64_t>(i)));
    EXPECT_GT(reports[i].gradient_norm, 0);
  }
  EXPECT_LT(result.losses.back(), 0.6 * result.losses.front());
  EXPECT_EQ(result.tokens, 1200);
  EXPECT_EQ(result.resumed_from, 0);
  EXPECT_EQ(problem.calls, 120);
  EXPECT_GT(result.seconds, 0);
  for (const NamedParameter& parameter : problem.parameters()) EXPECT_FALSE(parameter.tensor.grad().defined());
}

TEST(Loop, AccumulationIsTheMeanOverMicroBatches) {
  // One pass over a batch of 20 and two over its halves give the same gradient.
  const auto result = [](std::int64_t accumulation) {
    Problem problem;
    TrainOptions options = small_options();
    options.accumulation = accumulation;
    options.steps = 3;
    const TrainResult trained = train(problem.parameters(), options, [&](std::int64_t, std::int64_t micro) {
      const std::int64_t size = 20 / accumulation;
      const at::Tensor hidden = at::tanh(at::linear(problem.x.narrow(0, micro * size, size), problem.w1, problem.b1));
      return at::mse_loss(at::linear(hidden, problem.w2, problem.b2), problem.y.narrow(0, micro * size, size));
    });
    return std::pair(trained.losses, problem.weights());
  };
  const auto [losses, weights] = result(1);
  for (const std::int64_t accumulation : {2, 4, 5}) {
    const auto [other_losses, other_weights] = result(accumulation);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses[i], other_losses[i], 1e-6);
    EXPECT_TRUE(at::allclose(weights, other_weights, 1e-5, 1e-6)) << accumulation;
  }
}

TEST(Loop, TheSeedDecidesWhatIsDrawn) {
  const auto weights = [](std::uint64_t seed) {
    at::manual_seed(seed + 100);  // what the generators held before must not matter
    Problem problem;
    TrainOptions options = small_options();
    options.seed = seed;
    train_problem(problem, options);
    return problem.weights();
  };
  EXPECT_TRUE(at::equal(weights(3), weights(3)));
  EXPECT_FALSE(at::equal(weights(3), weights(4)));
}

TEST(Loop, ResumesBitForBitFromEveryStep) {
  Problem undisturbed;
  const TrainResult expected = train_problem(undisturbed, small_options());
  for (std::int64_t last = 0; last < 12; ++last) {
    const TemporaryFolder folder;
    TrainOptions options = saving_options(folder);
    options.resume = true;
    Problem first;
    train_until(first, options, last);
    EXPECT_EQ(first.calls, 2 * last);
    Problem second;
    second.w1.detach().zero_();  // all comes from the state
    at::manual_seed(1234);
    const TrainResult result = train_problem(second, options);
    EXPECT_TRUE(at::equal(second.weights(), undisturbed.weights())) << last;
    EXPECT_EQ(result.losses, expected.losses) << last;
    EXPECT_EQ(result.resumed_from, last);
    EXPECT_EQ(result.tokens, expected.tokens);
    EXPECT_EQ(second.calls, 24);
  }
}

TEST(Loop, ResumesAfterEveryStepInTurn) {
  Problem undisturbed;
  const TrainResult expected = train_problem(undisturbed, small_options());
  const TemporaryFolder folder;
  TrainOptions options = saving_options(folder);
  options.resume = true;
  for (std::int64_t last = 1; last < 12; ++last) {
    Problem problem;
    train_until(problem, options, last);
  }
  Problem problem;
  const TrainResult result = train_problem(problem, options);
  EXPECT_TRUE(at::equal(problem.weights(), undisturbed.weights()));
  EXPECT_EQ(result.losses, expected.losses);
  // A finished run gives its result again without training.
  Problem again;
  const TrainResult repeated = train_problem(again, options);
  EXPECT_TRUE(at::equal(again.weights(), undisturbed.weights()));
  EXPECT_EQ(repeated.losses, expected.losses);
  EXPECT_EQ(repeated.resumed_from, 12);
  EXPECT_EQ(again.calls, 24);
}

TEST(Loop, WithoutResumeTheOldStateIsReplaced) {
  const TemporaryFolder folder;
  TrainOptions options = saving_options(folder);
  Problem first;
  train_until(first, options, 5);
  Problem second;
  EXPECT_EQ(train_problem(second, options).resumed_from, 0);
  Problem undisturbed;
  train_problem(undisturbed, small_options());
  EXPECT_TRUE(at::equal(second.weights(), undisturbed.weights()));
}

TEST(Loop, StopsAfterThePresentStepAndSaves) {
  const TemporaryFolder folder;
  TrainOptions options = saving_options(folder);
  std::atomic<bool> stop = false;
  options.stop = &stop;
  Problem problem;
  // Set in the middle of the fifth step, as a signal would.
  const auto loss_of = [&](std::int64_t step, std::int64_t micro) {
    if (step == 4 && micro == 0) stop = true;
    return problem.loss(step, micro);
  };
  EXPECT_EQ(error_of([&] { train(problem.parameters(), options, loss_of); }),
            "stopped after step 5 of 12; the state is in '" + options.state + "'");
  EXPECT_EQ(problem.calls, 10);
  const Json summary = read_json(folder / "state.json");
  EXPECT_EQ(summary.at("step"), 5);
  EXPECT_EQ(summary.at("steps"), 12);
  EXPECT_EQ(summary.at("configuration").at("learning_rate"), 2e-2);
  EXPECT_EQ(summary.at("configuration").at("run").at("encoding"), "rope");
  EXPECT_TRUE(folder.unfinished().empty());
  options.state.clear();
  EXPECT_EQ(error_of([&] { train(problem.parameters(), options, loss_of); }), "stopped after step 0 of 12");
}

TEST(Loop, AStopDuringTheLastStepFinishes) {
  std::atomic<bool> stop = false;
  TrainOptions options = small_options();
  options.stop = &stop;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { stop = report.step == 12; };
  Problem problem;
  EXPECT_EQ(train_problem(problem, options, callbacks).losses.size(), 12U);
}

TEST(Loop, LogTellsWhatHappened) {
  const TemporaryFolder folder;
  TrainOptions options = saving_options(folder);
  options.save_every = 5;
  options.resume = true;
  Problem first;
  train_until(first, options, 7);
  Problem second;
  const TrainResult result = train_problem(second, options);
  std::string events;
  std::size_t steps = 0;
  for (const Json& line : read_log(options.log)) {
    const std::string event = line.at("event");
    if (event == "step") {
      ++steps;
      EXPECT_EQ(line.at("step"), steps);
      EXPECT_EQ(line.at("loss").get<double>(), result.losses[steps - 1]);
      EXPECT_GT(line.at("learning_rate").get<double>(), 0);
      EXPECT_GT(line.at("gradient_norm").get<double>(), 0);
      EXPECT_GT(line.at("tokens_per_second").get<double>(), 0);
      EXPECT_GT(line.at("seconds").get<double>(), 0);
    } else {
      events += event + ' ' + line.at("step").dump() + ' ';
    }
  }
  EXPECT_EQ(steps, 12U);
  EXPECT_EQ(events, "start 0 save 5 save 7 stop 7 resume 7 save 10 save 12 done 12 ");
}

TEST(Loop, ReportsProgress) {
  const TemporaryFolder folder;
  TrainOptions options = saving_options(folder);
  Problem first;
  train_until(first, options, 6);
  std::ostringstream out;
  const Progress::Options progress{.out = out, .label = "train"};
  options.progress = &progress;
  options.resume = true;
  Problem second;
  train_problem(second, options);
  EXPECT_NE(out.str().find("train: 12/12 (100%)"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("loss "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find(" tokens/s"), std::string::npos) << out.str();
}

TEST(Loop, AStateOfAnotherRunIsRefused) {
  const TemporaryFolder folder;
  TrainOptions options = saving_options(folder);
  options.resume = true;
  Problem first;
  train_until(first, options, 4);
  const std::string old = read_file(options.state);
  const std::string refused = "state '" + options.state + "' belongs to another run: ";
  const auto resume = [&](const std::function<void(TrainOptions&)>& change) {
    TrainOptions changed = options;
    change(changed);
    Problem problem;
    const at::Tensor before = problem.weights();
    const std::string message = error_of([&] { train_problem(problem, changed); });
    EXPECT_TRUE(at::equal(problem.weights(), before));
    EXPECT_EQ(read_file(options.state), old);
    return message;
  };
  EXPECT_EQ(resume([](TrainOptions& o) { o.steps = 13; }), refused + "steps is 12 there and 13 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.learning_rate = 0.5; }),
            refused + "learning_rate is 0.02 there and 0.5 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.warmup_steps = 1; }), refused + "warmup_steps is 4 there and 1 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.final_ratio = 1; }), refused + "final_ratio is 0.1 there and 1.0 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.decay = RateDecay::Constant; }),
            refused + "decay is \"cosine\" there and \"constant\" here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.adamw.beta1 = 0.5; }), refused + "beta1 is 0.9 there and 0.5 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.adamw.beta2 = 0.5; }), refused + "beta2 is 0.95 there and 0.5 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.adamw.epsilon = 1; }), refused + "epsilon is 1e-08 there and 1.0 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.adamw.weight_decay = 0; }),
            refused + "weight_decay is 0.1 there and 0.0 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.clip_norm = 0; }), refused + "clip_norm is 0.5 there and 0.0 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.accumulation = 1; }), refused + "accumulation is 2 there and 1 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.seed = 4; }), refused + "seed is 3 there and 4 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.configuration["model"]["width"] = 32; }),
            refused + "run.model.width is 16 there and 32 here");
  EXPECT_EQ(resume([](TrainOptions& o) { o.configuration["extra"] = true; }),
            refused + "run.extra is missing there and true here");

  // The same options, other tensors.
  Problem wide(17);
  EXPECT_EQ(error_of([&] { train_problem(wide, options); }),
            "state '" + options.state + "': tensor 'parameter.w1' must be float32 [17, 6], found float32 [16, 6]");
  Problem problem;
  const auto loss_of = [&](std::int64_t step, std::int64_t micro) { return problem.loss(step, micro); };
  auto fewer = problem.parameters();
  fewer.erase(fewer.begin() + 1);  // b1, which does not decay
  EXPECT_EQ(error_of([&] { train(fewer, options, loss_of); }),
            "state '" + options.state + "': tensor 'first_moment.b1' is not part of this run");
  auto more = problem.parameters();
  more.push_back({"g", at::ones({2}).requires_grad_(true), false});
  EXPECT_EQ(error_of([&] { train(more, options, loss_of); }),
            "state '" + options.state + "': tensor 'parameter.g' is missing, expected float32 [2]");
  auto decayed = problem.parameters();
  decayed[1].decay = true;
  EXPECT_EQ(error_of([&] { train(decayed, options, loss_of); }),
            refused + "decayed_parameters[1] is \"w2\" there and \"b1\" here");

  // What may change from process to process.
  options.save_every = 2;
  options.tokens_per_step = 0;
  EXPECT_EQ(error_of([&] { train_problem(problem, options); }), "no error");
}

TEST(Loop, ADamagedStateIsRefused) {
  const TemporaryFolder folder;
  TrainOptions options = saving_options(folder);
  options.resume = true;
  Problem first;
  train_until(first, options, 4);
  const std::string whole = read_file(options.state);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, whole.size() / 2, whole.size() - 1}) {
    write_file_atomic(options.state, whole.substr(0, size));
    Problem problem;
    const std::string message = error_of([&] { train_problem(problem, options); });
    EXPECT_NE(message.find(options.state), std::string::npos) << message;
    EXPECT_EQ(problem.calls, 0);
  }
}

TEST(Loop, ABadLossNamesTheStepAndKeepsTheState) {
  const TemporaryFolder folder;
  TrainOptions options = saving_options(folder);
  options.save_every = 2;
  const auto message = [&](std::int64_t bad_step, const std::function<at::Tensor(const at::Tensor&)>& spoil) {
    Problem problem;
    return error_of([&] {
      train(problem.parameters(), options, [&](std::int64_t step, std::int64_t micro) {
        const at::Tensor loss = problem.loss(step, micro);
        return step + 1 == bad_step && micro == 1 ? spoil(loss) : loss;
      });
    });
  };
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(message(6, [](const at::Tensor& loss) { return loss * std::nan(""); }), "step 6: the loss is nan");
  EXPECT_EQ(read_json(folder / "state.json").at("step"), 4);
  EXPECT_EQ(read_log(options.log).back().at("event"), "stop");
  EXPECT_EQ(read_log(options.log).back().at("step"), 5);
  EXPECT_EQ(read_log(options.log).back().at("reason"), "step 6: the loss is nan");
  EXPECT_EQ(message(1, [&](const at::Tensor& loss) { return loss * -infinity; }), "step 1: the loss is -inf");
  // A finite loss with a gradient that is not.
  EXPECT_EQ(message(8, [&](const at::Tensor& loss) { return loss + at::sqrt(loss * 0); }).substr(0, 40),
            "step 8: the norm of the gradients is nan");
  EXPECT_EQ(message(1, [](const at::Tensor& loss) { return loss.expand({2}); }),
            "step 1: the loss must be one floating-point number, got float32 [2]");
  EXPECT_EQ(message(1, [](const at::Tensor&) { return at::Tensor(); }),
            "step 1: the loss must be one floating-point number, got undefined");
  EXPECT_EQ(message(1, [](const at::Tensor& loss) { return loss.detach(); }),
            "step 1: the loss does not depend on any parameter");

  // The kept state (of step 6, saved before the bad eighth) ends where an undisturbed run does.
  EXPECT_EQ(read_json(folder / "state.json").at("step"), 6);
  options.resume = true;
  Problem resumed;
  const auto loss_of = [&](std::int64_t step, std::int64_t micro) { return resumed.loss(step, micro); };
  EXPECT_EQ(train(resumed.parameters(), options, loss_of).resumed_from, 6);
  Problem undisturbed;
  train_problem(undisturbed, small_options());
  EXPECT_TRUE(at::equal(resumed.weights(), undisturbed.weights()));
}

TEST(Loop, AFileThatCannotBeWrittenIsToldBeforeTheFirstStep) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "file", "x");
  TrainOptions options = small_options();
  Problem problem;
  options.state = folder / "file/state.safetensors";
  EXPECT_EQ(error_of([&] { train_problem(problem, options); }),
            "cannot write '" + options.state + "': Not a directory");
  options.state = folder / "missing/state.safetensors";
  EXPECT_EQ(error_of([&] { train_problem(problem, options); }),
            "cannot write '" + options.state + "': No such file or directory");
  options.state.clear();
  options.log = folder.path();
  EXPECT_EQ(error_of([&] { train_problem(problem, options); }).substr(0, 13), "cannot write ");
  EXPECT_EQ(problem.calls, 0);
}

TEST(Loop, RefusesOptionsOutOfRange) {
  const auto refused = [](const std::function<void(TrainOptions&)>& change) {
    TrainOptions options = small_options();
    change(options);
    Problem problem;
    EXPECT_THROW(train_problem(problem, options), UsageError);
    EXPECT_EQ(problem.calls, 0);
  };
  refused([](TrainOptions& o) { o.steps = 0; });
  refused([](TrainOptions& o) { o.learning_rate = -1; });
  refused([](TrainOptions& o) { o.warmup_steps = -1; });
  refused([](TrainOptions& o) { o.final_ratio = 2; });
  refused([](TrainOptions& o) { o.adamw.beta1 = 1; });
  refused([](TrainOptions& o) { o.clip_norm = -1; });
  refused([](TrainOptions& o) { o.clip_norm = std::numeric_limits<double>::infinity(); });
  refused([](TrainOptions& o) { o.accumulation = 0; });
  refused([](TrainOptions& o) { o.save_every = -1; });
  refused([](TrainOptions& o) { o.tokens_per_step = -1; });
  refused([](TrainOptions& o) { o.resume = true; });
}

}  // namespace
}  // namespace torsor
