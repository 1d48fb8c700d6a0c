#include "torsor/report/numbers.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "torsor/base/error.h"

namespace torsor::report {
namespace {

TEST(ReportNumbers, DecimalsMayBeNegativeAndZeroHasNoSign) {
  EXPECT_EQ(format_decimals(7.416, 2), "7.42");
  EXPECT_EQ(format_decimals(12345, -2), "12300");
  EXPECT_EQ(format_decimals(0.5, 0), "0");  // ties to even, as to_chars rounds
  EXPECT_EQ(format_decimals(-0.001, 2), "0.00");
  EXPECT_EQ(format_decimals(-0.004, 3), "-0.004");
  EXPECT_EQ(format_decimals(INFINITY, 2), "inf");
  EXPECT_EQ(format_decimals(-INFINITY, 2), "-inf");
  EXPECT_EQ(format_decimals(std::nan(""), 2), "nan");
  EXPECT_EQ(format_decimals(std::numeric_limits<double>::max(), 0).size(), 309u);
}

TEST(ReportNumbers, SignificantDigits) {
  EXPECT_EQ(format_significant(7.404), "7.40");
  EXPECT_EQ(format_significant(11.68), "11.7");
  EXPECT_EQ(format_significant(99.96), "100");  // rounding up makes a digit
  EXPECT_EQ(format_significant(10432), "10400");
  EXPECT_EQ(format_significant(0.00123456), "0.00123");
  EXPECT_EQ(format_significant(999999), "1.00e6");
  EXPECT_EQ(format_significant(12345678), "1.23e7");
  EXPECT_EQ(format_significant(0.0000123), "1.23e-5");
  EXPECT_EQ(format_significant(-2.5, 1), "-2");
  EXPECT_EQ(format_significant(0), "0");
}

TEST(ReportNumbers, SpreadSaysTheDecimals) {
  EXPECT_EQ(decimals_for_spread(0.03), 2);
  EXPECT_EQ(decimals_for_spread(0.014), 3);  // begins with 1: two digits
  EXPECT_EQ(decimals_for_spread(0.0194), 3);
  EXPECT_EQ(decimals_for_spread(0.0196), 2);  // rounds to 0.020
  EXPECT_EQ(decimals_for_spread(0.0996), 2);  // rounds to 0.10
  EXPECT_EQ(decimals_for_spread(0.096), 2);
  EXPECT_EQ(decimals_for_spread(3), 0);
  EXPECT_EQ(decimals_for_spread(1.2), 1);
  EXPECT_EQ(decimals_for_spread(250), -2);
  EXPECT_EQ(decimals_for_spread(1e-12), 6);
  EXPECT_THROW(decimals_for_spread(0), Error);
  EXPECT_THROW(decimals_for_spread(INFINITY), Error);
}

TEST(ReportNumbers, MeanCarriesTheDigitsOfItsSpread) {
  EXPECT_EQ(format_mean_sd(7.4162, 0.0312), "7.42 \u00b1 0.03");
  EXPECT_EQ(format_mean_sd(7.4162, 0.0141), "7.416 \u00b1 0.014");
  EXPECT_EQ(format_mean_sd(2016.4, 250), "2000 \u00b1 300");
  EXPECT_EQ(format_mean_sd(7.4162, std::nullopt), "7.42");
  EXPECT_EQ(format_mean_sd(7.4162, 0.0), "7.42");
  EXPECT_EQ(format_mean_sd(24.215277, 3.5e-15), "24.2");  // rounding of three equal figures
  EXPECT_EQ(format_mean_sd(12345678, 1000), "1.23e7 \u00b1 1000");
  EXPECT_EQ(format_mean(7.4162, 2.0), "7");
  EXPECT_EQ(format_mean_short(10.4494, 0.012), "10.4");
  EXPECT_EQ(format_mean_short(10.4494, 3.0), "10");
}

TEST(ReportNumbers, IntervalNeverHidesWhetherItHoldsZero) {
  EXPECT_EQ(format_interval({0.21, 0.186, 0.242}), "0.19 to 0.24");
  EXPECT_EQ(format_interval({0.5, 0.004, 1.1}), "0.004 to 1.100");
  EXPECT_EQ(format_interval({0.5, -0.004, 1.1}), "-0.004 to 1.100");
  EXPECT_EQ(format_interval({30, 10, 52}), "10 to 52");
  EXPECT_EQ(format_interval({1, std::nullopt, std::nullopt}), "");
  EXPECT_EQ(format_interval({2, 2, 2}), "2.00 to 2.00");
}

TEST(ReportNumbers, Units) {
  EXPECT_EQ(format_count(819840), "820 k");
  EXPECT_EQ(format_count(910.3), "910");
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(999.6), "1.00 k");
  EXPECT_EQ(format_count(1.24e9), "1.24 G");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_bytes(327155712), "312 MiB");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_factor(0.971), "0.97");
  EXPECT_EQ(format_factor(1), "1.00");
  EXPECT_EQ(format_factor(12.34), "12.3");
  EXPECT_EQ(format_factor(0.0123), "0.012");
}

TEST(ReportNumbers, WidthCountsTerminalColumns) {
  EXPECT_EQ(display_width("rope"), 4u);
  EXPECT_EQ(display_width("\u00b1"), 1u);
  EXPECT_EQ(display_width("e\u0301"), 1u);       // combining accent
  EXPECT_EQ(display_width("\u4e2d\u6587"), 4u);  // wide
  EXPECT_EQ(display_width("\xff"), 1u);          // not UTF-8
  EXPECT_EQ(display_width(""), 0u);
}

TEST(ReportNumbers, ShortenKeepsBothEndsAndWholeCharacters) {
  EXPECT_EQ(shorten("rope", 4), "rope");
  EXPECT_EQ(shorten("abcdefghij", 5), "ab\u2026ij");
  EXPECT_EQ(shorten("abcdefghij", 1), "\u2026");
  EXPECT_EQ(shorten("abcdefghij", 0), "");
  const std::string wide = shorten("\u4e2d\u6587\u4e2d\u6587", 5);
  EXPECT_EQ(wide, "\u4e2d\u2026\u6587");
  EXPECT_LE(display_width(wide), 5u);
}

TEST(ReportNumbers, NamesThatWouldLookAlikeStayWhole) {
  EXPECT_EQ(shorten_apart({"abcdefghij", "abxxxxxxij", "klmnopqrst", "abcdefghij", "k"}, 5),
            (std::vector<std::string>{"abcdefghij", "abxxxxxxij", "kl\u2026st", "abcdefghij", "k"}));
}

TEST(ReportNumbers, OneLineHasNoControlCharacters) {
  EXPECT_EQ(one_line("a\nb\x1b[31m\tc"), "a b [31m c");
  EXPECT_EQ(one_line("\xff!"), "\ufffd!");
}

}  // namespace
}  // namespace torsor::report
