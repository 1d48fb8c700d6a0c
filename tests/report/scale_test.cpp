#include "torsor/report/scale.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "torsor/base/error.h"
#include "torsor/base/random.h"

namespace torsor::report {
namespace {

using Values = std::vector<double>;
using Texts = std::vector<std::string>;

void expect_near(const Values& got, const Values& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-9) << i;
}

TEST(ReportScale, MapsStraightAndLogarithmic) {
  const Scale straight{0, 10, 100, 200, false};
  EXPECT_DOUBLE_EQ(straight(0), 100);
  EXPECT_DOUBLE_EQ(straight(2.5), 125);
  EXPECT_DOUBLE_EQ(straight(20), 300);
  const Scale log{128, 2048, 0, 4, true};
  EXPECT_NEAR(log(128), 0, 1e-12);
  EXPECT_NEAR(log(512), 2, 1e-12);
  EXPECT_NEAR(log(2048), 4, 1e-12);
  const Scale point{3, 3, 0, 10, false};
  EXPECT_DOUBLE_EQ(point(3), 5);
}

TEST(ReportScale, LogarithmicAboveAFactorOfFour) {
  EXPECT_FALSE(wants_log(7, 28));
  EXPECT_TRUE(wants_log(7, 28.1));
  EXPECT_FALSE(wants_log(0, 100));
  EXPECT_FALSE(wants_log(-1, 100));
}

TEST(ReportTicks, Nice) {
  expect_near(nice_ticks(0, 10, 5), {0, 2, 4, 6, 8, 10});
  expect_near(nice_ticks(6.8, 22.4, 6), {10, 15, 20});
  expect_near(nice_ticks(-10.4, 0.8, 4), {-10, -5, 0});
  expect_near(nice_ticks(0.795, 1.02, 5), {0.8, 0.85, 0.9, 0.95, 1.0});
  expect_near(nice_ticks(4, 4, 5), {4});
  EXPECT_GE(nice_ticks(1.001, 1.002, 5).size(), 2u);
  EXPECT_GE(nice_ticks(7.1, 9.9, 2).size(), 2u);
  EXPECT_THROW(nice_ticks(2, 1, 5), Error);
  EXPECT_THROW(nice_ticks(0, INFINITY, 5), Error);
}

TEST(ReportTicks, Logarithmic) {
  expect_near(log_ticks(7, 50, 5), {7, 10, 15, 20, 30, 40, 50});
  expect_near(log_ticks(6, 60, 4), {10, 20, 50});
  expect_near(log_ticks(1, 10000, 5), {1, 10, 100, 1000, 10000});
  expect_near(log_ticks(0.5, 2, 2), {0.5, 1, 2});
  EXPECT_LE(log_ticks(1e-10, 1e20, 6).size(), 8u);
  EXPECT_GE(log_ticks(7.1, 7.3, 5).size(), 2u);
  expect_near(log_ticks(3, 3, 5), {3});
  EXPECT_THROW(log_ticks(0, 1, 5), Error);
}

TEST(ReportTicks, Texts) {
  EXPECT_EQ(tick_texts({10, 12.5, 15}), (Texts{"10.0", "12.5", "15.0"}));
  EXPECT_EQ(tick_texts({128, 256, 2048}), (Texts{"128", "256", "2048"}));
  EXPECT_EQ(tick_texts({0.1, 1, 10, 100}), (Texts{"0.1", "1", "10", "100"}));
  EXPECT_EQ(tick_texts({0, 0.05, 0.1}), (Texts{"0.00", "0.05", "0.10"}));
  EXPECT_EQ(tick_texts({1e6, 2.5e6}), (Texts{"1e6", "2.5e6"}));
  EXPECT_EQ(tick_texts({}), Texts{});
}

TEST(ReportLabels, StayWhereTheyFit) { expect_near(spread_labels({50, 20, 90}, 10, 0, 100), {50, 20, 90}); }

TEST(ReportLabels, EqualWishesSpreadEvenlyAroundThem) {
  expect_near(spread_labels({50, 50, 50}, 10, 0, 100), {40, 50, 60});
  expect_near(spread_labels({50, 54}, 10, 0, 100), {47, 57});  // each moves by three: the least squares
}

TEST(ReportLabels, StayInside) {
  expect_near(spread_labels({0, 1}, 10, 0, 100), {5, 15});
  expect_near(spread_labels({99, 100}, 10, 0, 100), {85, 95});
}

TEST(ReportLabels, ShareTheRoomWhenTheyCannotFit) {
  expect_near(spread_labels({3, 1, 2}, 50, 0, 90), {75, 15, 45});
  EXPECT_TRUE(spread_labels({}, 10, 0, 100).empty());
}

TEST(ReportLabels, NeverCloserThanTheirHeightAndInOrder) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    const std::size_t count = 1 + random.below(18);
    Values wanted;
    for (std::size_t i = 0; i < count; ++i) wanted.push_back(300 * std::pow(random.uniform(), 4));
    const Values placed = spread_labels(wanted, 15, 0, 300);
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return wanted[a] < wanted[b]; });
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_GE(placed[order[i]], 7.5 - 1e-9);
      EXPECT_LE(placed[order[i]], 292.5 + 1e-9);
      if (i > 0) {
        EXPECT_GE(placed[order[i]] - placed[order[i - 1]], 15 - 1e-9) << "round " << round;
      }
    }
  }
}

TEST(ReportTexts, FitAndStayApart) {
  EXPECT_EQ(fit_text("rope", 12, 1000), "rope");
  const std::string cut = fit_text("heads(t5(shared=true) * 4, t5 * 4)", 12, 100);
  EXPECT_LE(text_width(cut, 12), 100);
  EXPECT_NE(cut.find("\u2026"), std::string::npos);
  const Texts names = {"rope(base=10000, width=32, layout=pairs)", "rope(base=10000, width=64, layout=pairs)"};
  const Texts fitted = fit_texts(names, 12, {110, 110});
  EXPECT_NE(fitted[0], fitted[1]);
  EXPECT_EQ(fitted[0].substr(fitted[0].size() - 2), "#1");
  EXPECT_LE(text_width(fitted[1], 12), 111);
}

}  // namespace
}  // namespace torsor::report
