#include "torsor/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "torsor/base/error.h"

namespace torsor {
namespace {

TEST(Schedule, WarmsUpLinearlyAndReachesThePeak) {
  const Schedule schedule{.peak = 3e-3, .steps = 300, .warmup = 30};
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 0), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 14), 1.5e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 29), 3e-3);
  EXPECT_LT(learning_rate_at(schedule, 30), 3e-3);
}

TEST(Schedule, CosineHasItsMiddleHalfwayAndEndsAtTheFloor) {
  const Schedule schedule{.peak = 2, .steps = 120, .warmup = 20, .final_ratio = 0.25};
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 69), 2 * (0.25 + 0.75 * 0.5));                         // u = 50 / 100
  EXPECT_NEAR(learning_rate_at(schedule, 44), 2 * (0.25 + 0.75 * (0.5 + std::sqrt(0.125))), 1e-15);  // u = 1 / 4
  EXPECT_EQ(learning_rate_at(schedule, 119), 0.5);
  EXPECT_EQ(learning_rate_at(schedule, 5000), 0.5);
  for (int done = 20; done < 119; ++done) {
    EXPECT_GT(learning_rate_at(schedule, done), learning_rate_at(schedule, done + 1));
  }
}

TEST(Schedule, ConstantStaysAtThePeak) {
  const Schedule schedule{.peak = 1, .steps = 10, .warmup = 4, .final_ratio = 0, .decay = RateDecay::Constant};
  EXPECT_EQ(learning_rate_at(schedule, 0), 0.25);
  EXPECT_EQ(learning_rate_at(schedule, 3), 1);
  EXPECT_EQ(learning_rate_at(schedule, 9), 1);
  EXPECT_EQ(learning_rate_at(schedule, 10), 1);
}

TEST(Schedule, Edges) {
  EXPECT_EQ(learning_rate_at({.peak = 1, .steps = 1, .warmup = 0, .final_ratio = 0.5}, 0), 0.5);
  EXPECT_EQ(learning_rate_at({.peak = 1, .steps = 1, .warmup = 1, .final_ratio = 0.5}, 0), 1);
  EXPECT_EQ(learning_rate_at({.peak = 1, .steps = 2, .warmup = 8}, 1), 0.25);  // ends inside the warm-up
  EXPECT_EQ(learning_rate_at({.peak = 1, .steps = 4, .warmup = 4}, 3), 1);
  EXPECT_EQ(learning_rate_at({.peak = 0, .steps = 4}, 2), 0);
  EXPECT_EQ(learning_rate_at({.peak = 1, .steps = 4, .final_ratio = 1}, 3), 1);
}

TEST(Schedule, RefusesWhatIsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(learning_rate_at({.steps = 0}, 0), UsageError);
  EXPECT_THROW(learning_rate_at({.steps = 4}, -1), UsageError);
  EXPECT_THROW(learning_rate_at({.peak = -1, .steps = 4}, 0), UsageError);
  EXPECT_THROW(learning_rate_at({.peak = nan, .steps = 4}, 0), UsageError);
  EXPECT_THROW(learning_rate_at({.steps = 4, .warmup = -1}, 0), UsageError);
  EXPECT_THROW(learning_rate_at({.steps = 4, .final_ratio = 1.5}, 0), UsageError);
  EXPECT_THROW(learning_rate_at({.steps = 4, .final_ratio = nan}, 0), UsageError);
}

TEST(Schedule, NamesGoBothWays) {
  EXPECT_EQ(decay_of(decay_name(RateDecay::Cosine)), RateDecay::Cosine);
  EXPECT_EQ(decay_of(decay_name(RateDecay::Constant)), RateDecay::Constant);
  EXPECT_THROW(decay_of("linear"), UsageError);
}

}  // namespace
}  // namespace torsor
