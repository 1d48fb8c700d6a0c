#include "torsor/data/formula.h"

#include <gtest/gtest.h>

#include <iostream>
#include <limits>

#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using namespace data_test;

// With the region's number as its value, whatever the condition.
bool holds(const std::string& text) {
  const Formula formula = Formula::parse(text);
  std::vector<double> values;
  for (const RegionReference& reference : formula.references()) values.push_back(static_cast<double>(reference.region));
  return formula.holds(values);
}

TEST(Formula, ReadsWhatPublishedSuitesWrite) {
  EXPECT_TRUE(holds("(5;%nn_ambig%)>(4;%nn_unambig%)"));
  EXPECT_TRUE(holds("[ (7;%match_sing%) < (8;%mismatch_sing%) ] & [ (7;%match_plural%) < (8;%mismatch_plural%) ]"));
  EXPECT_FALSE(holds("[ (7;%match_sing%) < (8;%mismatch_sing%) ] & [ (8;%match_plural%) < (7;%mismatch_plural%) ]"));
  EXPECT_TRUE(holds("[(7;%np_mismatch%)-(6;%np_match%)]+[[(6;%a%)+(7;%a%)]-[(6;%b%)+(7;%b%)]]>0"));
  EXPECT_TRUE(holds("(7;%no-obj_no-comma%) > ((6;%a%))"));
  const Formula formula = Formula::parse("(7;%a%) < (7;%b%) | (*;%a%) = (7;%a%)");
  ASSERT_EQ(formula.references().size(), 3U);
  EXPECT_EQ(formula.references()[0].region, 7);
  EXPECT_EQ(formula.references()[0].condition, "a");
  EXPECT_EQ(formula.references()[2].region, RegionReference::kAll);
  EXPECT_EQ(formula.references()[2].column, 21U);
  EXPECT_FALSE(formula.holds(std::vector<double>{3, 2, 5}));
  EXPECT_TRUE(formula.holds(std::vector<double>{3, 4, 5}));
  EXPECT_TRUE(formula.holds(std::vector<double>{3, 2, 3}));
}

TEST(Formula, BothBracketsAndBlanksMeanTheSame) {
  const Formula square = Formula::parse("[(1;%a%)+(2;%a%)]<[(3;%b%)-1]");
  EXPECT_EQ(square, Formula::parse("((1;%a%)+(2;%a%))<((3;%b%)-1)"));
  EXPECT_EQ(square, Formula::parse(" [ ( 1 ; %a% ) + (2 ;%a%)]\t<\n[ (3;%b%) - 1.0 ] "));
  EXPECT_EQ(square, Formula::parse("(1;%a%) + (2;%a%) < (3;%b%) - 1"));
  EXPECT_FALSE(square == Formula::parse("(1;%a%) + (2;%a%) < (3;%b%) - 2"));
  EXPECT_FALSE(square == Formula::parse("(1;%a%) + (2;%c%) < (3;%b%) - 1"));
}

TEST(Formula, Precedence) {
  // Sums bind before comparisons, and these before '&' and '|', which share one level from left to right.
  EXPECT_TRUE(holds("1 + 2 < 4"));
  EXPECT_TRUE(holds("5 - 2 - 1 = 2"));
  EXPECT_FALSE(holds("5 - (2 - 1) = 2"));
  EXPECT_FALSE(holds("1 < 2 | 1 < 2 & 2 < 1"));  // (true | true) & false
  EXPECT_TRUE(holds("1 < 2 | [1 < 2 & 2 < 1]"));
  EXPECT_TRUE(holds("2 < 1 & 2 < 1 | 1 < 2"));
  EXPECT_FALSE(holds("2 < 1 & [2 < 1 | 1 < 2]"));
}

TEST(Formula, EqualWithinATolerance) {
  EXPECT_TRUE(holds("1 = 1.0009"));
  EXPECT_FALSE(holds("1 = 1.0021"));
  EXPECT_TRUE(holds("1000 = 1000.0105"));  // 1e-3 + 1e-5 * 1000 = 0.011
  EXPECT_FALSE(holds("1000 = 1000.02"));
  EXPECT_TRUE(holds("0 = .001"));
  const Formula formula = Formula::parse("[(1;%a%) < 1] | [(1;%a%) > 1] | [(1;%a%) = 1]");
  EXPECT_FALSE(formula.holds(std::vector<double>{std::numeric_limits<double>::quiet_NaN()}));
  EXPECT_TRUE(formula.holds(std::vector<double>{std::numeric_limits<double>::infinity()}));
  EXPECT_THROW(formula.holds(std::vector<double>{}), Error);
}

TEST(Formula, ErrorsNameTheColumn) {
  struct Case {
    const char* text;
    const char* part;
  };
  const Case cases[] = {
      {"", "column 1: expected a region, a number or a bracket, found the end"},
      {"   ", "column 4: expected a region"},
      {"(1;%a%)", "column 1: expected a comparison, found a number"},
      {"(1;%a%) < ", "column 11: expected a region"},
      {"(1;%a%) < (2;%a%", "column 17: expected ')' after a region, found the end"},
      {"(1;%a) < (2;%a%)", "column 6: expected '%' after the name"},
      {"(1;a%) < 2", "column 4: expected '%' before the name"},
      {"(1;%%) < 2", "column 5: expected the name of a condition"},
      {"(;%a%) < 2", "column 2: expected the number of a region"},
      {"(*) < 2", "column 3: expected ';' after '*'"},
      {"(x;%a%) < 2", "column 2: expected a region"},
      {"(99999999999999999999;%a%) < 2", "column 2: expected the number of a region"},
      {"1 < 2 < 3", "column 7: a comparison cannot be compared again"},
      {"[1 < 2 < 3]", "column 8: a comparison cannot be compared again"},
      {"[1 < 2] < 3", "column 1: expected a number before '<', found a comparison"},
      {"3 < [1 < 2]", "column 5: expected a number after '<', found a comparison"},
      {"1 + [1 < 2] < 3", "column 5: expected a number after '+', found a comparison"},
      {"[1 < 2] + 1 < 3", "column 1: expected a number before '+', found a comparison"},
      {"1 & 2 < 3", "column 1: expected a comparison beside '&' or '|', found a number"},
      {"1 < 2 & 3", "column 9: expected a comparison after '&', found a number"},
      {"1 <= 2", "column 4: comparisons are '<', '>' and '='"},
      {"1 == 2", "column 4: comparisons are"},
      {"[1 < 2", "column 7: expected ']', found the end"},
      {"[1 < 2)", "column 7: expected ']', found ')'"},
      {"1 < 2 x", "column 7: expected an operator or the end, found 'x'"},
      {"1 < 2e999", "column 5: expected a number that a double holds"},
      {"1 < 2a", "column 6: expected an operator after a number, found 'a'"},
      {"-1 < 2", "column 1: expected a region"},
      {"1 < \xC3\xA9", "column 5: expected a region, a number or a bracket, found '\xC3\xA9'"},
  };
  for (const Case& one : cases) {
    const std::string message = message_of<Error>([&] { Formula::parse(one.text, "suite.json"); });
    EXPECT_TRUE(contains(message, std::string("suite.json: ") + one.part)) << one.text << ": " << message;
  }
}

TEST(Formula, Limits) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') + "1<2" +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_TRUE(holds(nested(Formula::kDeepest)));
  EXPECT_TRUE(contains(message_of<Error>([&] { holds(nested(Formula::kDeepest + 1)); }), "at most 64 brackets"));
  EXPECT_TRUE(contains(message_of<Error>([&] { holds(std::string(1 << 20, '[')); }), "at most 16384 bytes"));
  // A long chain is neither deep nor slow.
  std::string chain = "0";
  while (chain.size() + 8 < Formula::kLongest) chain += "+1";
  EXPECT_TRUE(holds(chain + ">1"));
}

TEST(Formula, TextReadsBack) {
  for (const char* text : {"(1;%a%) < 2", "[1 < 2 | 2 < 1] & 1 = 1", "1 < 2 & [2 < 1 | 1 = 1]",
                           "5 - [2 - [1 + 1]] > .5", "(*;%x-y_0%) = 1e30", "[[(5;%r%) - (5;%u%)]] > [[1 + 2] - 3]"}) {
    const Formula formula = Formula::parse(text);
    EXPECT_EQ(Formula::parse(formula.text()), formula) << text << " became " << formula.text();
  }
  EXPECT_EQ(Formula::parse("[[1]] < [(2)] & [[3 = (4;%a%)]]").text(), "1 < 2 & 3 = (4;%a%)");
  EXPECT_EQ(Formula::parse("1 < 2 & [3 < 4 | 5 < 6]").text(), "1 < 2 & [3 < 4 | 5 < 6]");
  EXPECT_EQ(Formula::parse("[1 + 2] - [3 - 4] < 5").text(), "1 + 2 - [3 - 4] < 5");
}

}  // namespace
}  // namespace torsor
