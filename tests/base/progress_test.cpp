#include "torsor/base/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "torsor/base/utf8.h"

namespace torsor {
namespace {

class ProgressTest : public ::testing::Test {
 protected:
  Progress::Options options(bool terminal, std::int64_t total) {
    return {.out = out, .terminal = terminal, .label = "train", .total = total, .clock = [this] { return now; }};
  }
  /// What was written since the last call.
  std::string taken() {
    const std::string text = out.str();
    out.str("");
    return text;
  }

  std::ostringstream out;
  double now = 1000;  // the origin of the clock must not matter
};

TEST_F(ProgressTest, TerminalRewritesOneLine) {
  Progress progress(options(true, 1000));
  progress.update(0);
  EXPECT_EQ(taken(), "\r\x1b[Ktrain [>                   ]   0% 0/1000");
  now += 0.05;
  progress.update(1);
  EXPECT_EQ(taken(), "");
  now += 39.95;
  progress.update(500, "loss 3.21");
  EXPECT_EQ(taken(), "\r\x1b[Ktrain [==========>         ]  50% 500/1000  12.5/s  0:40 left  loss 3.21");
  now += 40;
  progress.update(1000);
  progress.finish();
  EXPECT_EQ(taken(),
            "\r\x1b[Ktrain [====================] 100% 1000/1000  12.5/s"
            "\r\x1b[Ktrain [====================] 100% 1000/1000  12.5/s  1:20\n");
  progress.finish();
  progress.update(1001);
  EXPECT_EQ(taken(), "");
}

TEST_F(ProgressTest, PlainLinesComeAtMostEveryIntervalAndAtTheEnd) {
  Progress progress(options(false, 400));
  progress.update(1);
  now += 9.9;
  progress.update(2);
  EXPECT_EQ(taken(), "");
  now += 0.1;
  progress.update(100, "loss 2");
  EXPECT_EQ(taken(), "train: 100/400 (25%)  10/s  0:30 left  loss 2\n");
  now += 9.5;
  progress.update(399);
  EXPECT_EQ(taken(), "");
  now += 0.5;
  progress.update(399);
  EXPECT_EQ(taken(), "train: 399/400 (99%)  19.9/s  0:00 left\n");
  now += 1;
  progress.update(400, "loss 1");
  progress.finish();
  EXPECT_EQ(taken(), "train: 400/400 (100%)  19/s  0:21  loss 1\n");
}

TEST_F(ProgressTest, PlainFinishDoesNotRepeatALine) {
  Progress progress(options(false, 10));
  now += 10;
  progress.update(10);
  EXPECT_EQ(taken(), "train: 10/10 (100%)  1/s\n");
  progress.finish();
  EXPECT_EQ(taken(), "");
}

TEST_F(ProgressTest, WithoutATotalThereIsNoBar) {
  Progress progress(options(true, 0));
  progress.update(0);
  taken();
  now += 4;
  progress.update(1000);
  EXPECT_EQ(taken(), "\r\x1b[Ktrain 1000  250/s");
  progress.finish();
}

TEST_F(ProgressTest, QuietWritesNothing) {
  auto quiet = options(true, 10);
  quiet.quiet = true;
  {
    Progress progress(quiet);
    progress.update(1);
    now += 100;
    progress.update(10);
    progress.finish();
  }
  EXPECT_EQ(taken(), "");
}

TEST_F(ProgressTest, AnUnfinishedLiveLineIsEnded) {
  {
    Progress progress(options(true, 10));
    progress.update(1);
    taken();
  }
  EXPECT_EQ(taken(), "\n");
  {
    Progress progress(options(false, 10));
    progress.update(1);
  }
  EXPECT_EQ(taken(), "");
}

TEST_F(ProgressTest, ARateCountsOnlyThisRun) {
  auto resumed = options(false, 1000);
  resumed.start = 900;
  Progress progress(resumed);
  now += 10;
  progress.update(950);
  EXPECT_EQ(taken(), "train: 950/1000 (95%)  5/s  0:10 left\n");
  progress.finish();
}

TEST_F(ProgressTest, MoreThanTheTotalStaysInTheBar) {
  Progress progress(options(true, 10));
  now += 10;
  progress.update(20);
  EXPECT_EQ(taken(), "\r\x1b[Ktrain [====================] 100% 20/10  2/s");
  progress.finish();
}

TEST_F(ProgressTest, LongLinesAreCutBetweenCodePoints) {
  auto narrow = options(true, 0);
  narrow.width = 10;
  narrow.label = "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9";
  Progress progress(narrow);
  progress.update(1);
  const std::string text = taken();
  EXPECT_EQ(count_utf8(text), 4u + 9u);
  EXPECT_EQ(text.substr(text.size() - 2), "\xC3\xA9");
  progress.finish();
}

TEST(FormatDuration, Forms) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(7.4), "0:07");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(754), "12:34");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(47 * 3600 + 59 * 60 + 59), "47:59:59");
  EXPECT_EQ(format_duration(76 * 3600), "3d 4h");
  EXPECT_EQ(format_duration(-1), "-");
  EXPECT_EQ(format_duration(std::nan("")), "-");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "-");
}

}  // namespace
}  // namespace torsor
