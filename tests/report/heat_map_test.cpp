#include "torsor/report/heat_map.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/report/solved.h"
#include "torsor/report/html.h"
#include "torsor/report/style.h"

namespace torsor::report {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Results summarized(const Json& document) {
  Results results = parse_results(document);
  summarize(results);
  return results;
}

TEST(ReportHeatScale, OnlyAllAndNothingHaveTheEnds) {
  EXPECT_EQ(heat_step(0), 0u);
  EXPECT_EQ(heat_step(0.001), 1u);
  EXPECT_EQ(heat_step(0.5), 5u);
  EXPECT_EQ(heat_step(0.999), 9u);
  EXPECT_EQ(heat_step(1), 10u);
}

// Lightness alone tells the share, for every kind of sight: contrast with the paper grows from step to step, and text
// in black or white is readable on each (4.5:1, WCAG 2.1).
TEST(ReportHeatScale, EveryStepIsFurtherFromThePaperAndReadable) {
  for (const auto& [steps, paper] : {std::pair(light_heat(), kLightPaper), std::pair(dark_heat(), kDarkPaper)}) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_GE(std::max(contrast("#000000", steps[i]), contrast("#ffffff", steps[i])), 4.5) << steps[i];
      if (i > 0) {
        EXPECT_GE(contrast(steps[i], paper), 1.07 * contrast(steps[i - 1], paper)) << steps[i];
      }
    }
    EXPECT_GE(contrast(steps.back(), paper), 9);
  }
}

HeatMap small_map() {
  HeatMap map;
  map.id = "t";
  map.title = "title";
  map.description = "words";
  map.columns = {"1", "2"};
  map.rows = {"2", "1"};
  map.shares = {{0.25, std::nullopt}, {1.0, 0.0}};
  map.tips = {{"a", "b"}, {"c", "d"}};
  return map;
}

TEST(ReportHeatMap, CellsValuesTipsAndOutline) {
  HeatMap map = small_map();
  EXPECT_EQ(count(heat_map(map), "class=\"outline\""), 0u);
  map.outline_columns = map.outline_rows = 1;
  const std::string svg = heat_map(map);
  EXPECT_EQ(count(svg, "data-tip="), 4u);
  EXPECT_EQ(count(svg, "class=\"gap\""), 1u);
  EXPECT_EQ(count(svg, "class=\"q10\""), 1u);
  EXPECT_NE(svg.find(">25</text>"), std::string::npos);
  EXPECT_NE(svg.find("class=\"cell on0\""), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"cell "), 3u) << "no value where nothing was evaluated";
  const std::size_t outline = svg.find("class=\"outline\"");
  // Rows are 32 high from 24 on: the lower left cell alone.
  EXPECT_EQ(svg.substr(svg.find(" y=", outline), 7), " y=\"56\"");
  EXPECT_EQ(svg.substr(svg.find(" height=", outline), 12), " height=\"32\"");
  EXPECT_EQ(count(svg, "class=\"outline\""), 1u);
  EXPECT_EQ(svg.find("fill="), std::string::npos) << "colours belong to the style sheet";
}

TEST(ReportHeatMap, ValuesOnlyWhereTheyHaveRoom) {
  HeatMap map = small_map();
  map.columns.assign(24, "1");
  map.rows.assign(24, "1");
  map.shares.assign(24, std::vector<std::optional<double>>(24, 0.5));
  map.tips.assign(24, std::vector<std::string>(24, "tip"));
  EXPECT_EQ(count(heat_map(map), "class=\"cell "), 0u);
  EXPECT_LT(count(heat_map(map), "class=\"tick "), 48u) << "labels would touch";
}

TEST(ReportHeatPictures, AdditionIsAGridWithTheTrainedSquare) {
  const Results results = summarized(solved_fixture({}));
  const HeatPictures heat = heat_pictures(results, "addition");
  ASSERT_EQ(heat.pictures.size(), 8u);
  const HeatMap& fox = *heat.pictures[5].map;
  EXPECT_EQ(fox.columns.size(), 12u);
  EXPECT_EQ(fox.rows.front(), "12");  // digits grow upwards
  EXPECT_EQ(fox.rows.back(), "1");
  EXPECT_EQ(fox.outline_columns, 6u);
  EXPECT_EQ(fox.outline_rows, 6u);
  EXPECT_EQ(*fox.shares[11][0], 1);
  EXPECT_EQ(fox.tips[11][1], "2 + 1 digits: 100 % (20 of 20)");
  const HeatMap& learned = *heat.pictures[1].map;
  EXPECT_FALSE(learned.shares[0][0].has_value());
  EXPECT_EQ(learned.tips[0][0], "1 + 12 digits: not evaluated");
  EXPECT_EQ(heat.pictures[1].summary.substr(heat.pictures[1].summary.find(',')), ", beyond refused");
  EXPECT_EQ(heat.rows.size(), 1u + 144);
  EXPECT_EQ(heat.rows[1][6], "100 % (20 of 20)");
  EXPECT_EQ(heat.rows[144][2], "-");
}

TEST(ReportHeatPictures, CellsAddUpOverSeeds) {
  SolvedFixture fixture;
  fixture.seeds = {0, 1, 2};
  const HeatPictures heat = heat_pictures(summarized(solved_fixture(fixture)), "addition");
  EXPECT_EQ(heat.pictures[5].map->tips[11][0], "1 + 1 digits: 100 % (60 of 60)");
}

TEST(ReportHeatPictures, PasskeyIsDepthByLength) {
  const HeatPictures heat = heat_pictures(summarized(solved_fixture(passkey_fixture())), "passkey");
  const HeatMap& fox = *heat.pictures[5].map;
  EXPECT_EQ(fox.columns, (std::vector<std::string>{"128", "256", "512", "1024", "2048"}));
  EXPECT_EQ(fox.rows, (std::vector<std::string>{"0", "25", "50", "75", "100"}));  // the text runs downwards
  EXPECT_EQ(fox.outline_columns, 2u);
  EXPECT_EQ(fox.outline_rows, 5u);
  EXPECT_EQ(fox.tips[1][0], "128 tokens, depth 25 %: 100 % (20 of 20)");
}

TEST(ReportHeatPictures, WithoutCellsThereAreNone) {
  EXPECT_TRUE(heat_pictures(solved_results({{"rope", {{2, {10}}}}}, 2), "addition").pictures.empty());
}

TEST(ReportHeatPictures, ThePageHasThemInOneFigure) {
  for (const SolvedFixture& fixture : {SolvedFixture{}, passkey_fixture()}) {
    const std::string html = html_report(summarized(solved_fixture(fixture)));
    const std::size_t section = html.find(">Accuracy by kind of problem<");
    ASSERT_NE(section, std::string::npos);
    EXPECT_LT(html.find(">Accuracy by length<"), section);
    EXPECT_LT(section, html.find(">Table<"));
    const std::string part = html.substr(section, html.find("</section>", section) - section);
    EXPECT_EQ(count(part, "<figure>"), 1u);
    EXPECT_EQ(count(part, "class=\"chart panel\""), 8u);
    EXPECT_EQ(count(part, "<summary>Numbers</summary>"), 1u);
    EXPECT_EQ(count(part, "<desc "), 9u) << "eight grids and the scale";
    EXPECT_EQ(html.find("erplexity"), std::string::npos);
  }
}

}  // namespace
}  // namespace torsor::report
