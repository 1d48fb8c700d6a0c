#include "torsor/report/html.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/report/fixture.h"
#include "tests/report/markup_check.h"
#include "tests/report/solved.h"
#include "tests/report/tiny.h"
#include "torsor/report/charts.h"
#include "torsor/report/numbers.h"
#include "torsor/report/scale.h"
#include "torsor/report/svg.h"

namespace torsor::report {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();

std::string report_of(const Json& document) {
  Results results = parse_results(document);
  summarize(results);
  return html_report(results);
}

FixtureOptions three_seeds() {
  FixtureOptions options;
  options.seeds = {0, 1, 2};
  return options;
}

/// The values of an attribute in all tags of a page that hold `part`, such as the y of all texts of a class.
std::vector<std::string> attributes_of(const std::string& html, const std::string& part, const std::string& attribute) {
  std::vector<std::string> values;
  for (std::size_t at = html.find(part); at != std::string::npos; at = html.find(part, at + 1)) {
    const std::size_t begin = html.rfind('<', at), end = html.find('>', at);
    const std::size_t place = html.find(' ' + attribute + "=\"", begin);
    if (place == std::string::npos || place > end) continue;
    const std::size_t first = place + attribute.size() + 3;
    values.push_back(html.substr(first, html.find('"', first) - first));
  }
  return values;
}

std::vector<double> numbers_of(const std::string& html, const std::string& part, const std::string& attribute) {
  std::vector<double> numbers;
  for (const std::string& value : attributes_of(html, part, attribute)) numbers.push_back(std::stod(value));
  return numbers;
}

TEST(ReportTagFault, FindsFaults) {
  EXPECT_EQ(tag_fault("<p class=\"a\">x &amp; y<br/></p>"), "");
  EXPECT_NE(tag_fault("<p>"), "");
  EXPECT_NE(tag_fault("<p></b>"), "");
  EXPECT_NE(tag_fault("a < b"), "");
  EXPECT_NE(tag_fault("a & b"), "");
  EXPECT_NE(tag_fault("<p id=\"a\"/><p id=\"a\"/>"), "");
  EXPECT_NE(tag_fault("<p a=b/>"), "");
}

TEST(ReportHtml, WellFormedForEveryFixture) {
  FixtureOptions exploding = three_seeds(), plain;
  exploding.exploding = true;
  plain.windows = plain.effects = false;
  for (const FixtureOptions& options : {FixtureOptions{}, three_seeds(), exploding, plain}) {
    EXPECT_EQ(tag_fault(report_of(fixture_document(options))), "");
  }
}

TEST(ReportHtml, NeedsNothingElse) {
  std::string html = report_of(fixture_document(three_seeds()));
  const std::string name_space = "http://www.w3.org/2000/svg";
  for (std::size_t at = html.find(name_space); at != std::string::npos; at = html.find(name_space))
    html.erase(at, name_space.size());
  for (const char* part :
       {"http:", "https:", "src=", "href=", "@import", "url(http", "<link", "<img", "<iframe", "fetch(", "XMLHttp"}) {
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  }
  EXPECT_NE(html.find("default-src &#39;none&#39;"), std::string::npos);
  EXPECT_NE(html.find("<html lang=\"en\">"), std::string::npos);
  EXPECT_NE(html.find("name=\"viewport\" content=\"width=device-width, initial-scale=1\""), std::string::npos);
  EXPECT_NE(html.find("@media screen and (prefers-color-scheme:dark)"), std::string::npos);
  EXPECT_NE(html.find("@media print"), std::string::npos);
}

TEST(ReportHtml, SectionsInOrderVerdictFirst) {
  const std::string html = report_of(fixture_document(three_seeds()));
  std::size_t last = 0;
  for (const char* part :
       {"<h1>rope has the lowest perplexity at the training length", ">Perplexity by length<", ">Table<",
        ">Cost against quality<", ">Training loss<", ">Loss by position<", ">Effect on a logit by distance<",
        ">Settings and how to repeat<", "torsor compare --from results.json", ">model.width<", ">Machine<"}) {
    const std::size_t at = html.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    EXPECT_GT(at, last) << part;
    last = at;
  }
  EXPECT_EQ(html.find("Published"), std::string::npos);
}

TEST(ReportHtml, EveryPictureHasATableAndWords) {
  const std::string html = report_of(fixture_document(three_seeds()));
  const std::size_t pictures = count(html, "role=\"img\"");
  // Headline, two of cost, training, position: each wide and narrow; five panels of effects.
  EXPECT_EQ(pictures, 2u * 5 + 5);
  EXPECT_EQ(count(html, "<desc "), pictures);
  EXPECT_EQ(count(html, "aria-describedby="), pictures);
  EXPECT_EQ(count(html, "<summary>Numbers</summary>"), 5u + 5);
  EXPECT_NE(html.find("rope at 1024: "), std::string::npos) << "a value for the pointer";
}

TEST(ReportHtml, BoldOnlyByTheRule) {
  EXPECT_EQ(count(report_of(fixture_document()), " best\""), 0u) << "one seed";
  const std::string three = report_of(fixture_document(three_seeds()));
  EXPECT_GE(count(three, " best\""), 1u);
  EXPECT_LE(count(three, " best\""), 5u) << "one a column at most";
  EXPECT_EQ(count(report_of(tiny_document({{"a", {{128, {5, 6, 7}}}}, {"b", {{128, {4.9, 8, 9}}}}})), " best\""), 0u);
}

TEST(ReportHtml, ColoursAreTheSameInEveryPicture) {
  const std::string html = report_of(fixture_document(three_seeds()));
  const std::vector<std::string> found = attributes_of(html, "data-series=\"rope\"", "class");
  EXPECT_GE(found.size(), 10u);
  const std::set<std::string> classes(found.begin(), found.end());
  EXPECT_EQ(classes.size(), 1u);
  EXPECT_EQ(count(html, "fill=\"#"), 0u) << "colours belong to the style sheet";
  EXPECT_EQ(count(html, "stroke=\"#"), 0u);
}

TEST(ReportHtml, HostileNamesStayText) {
  const std::string evil = "<script>alert('x')</script>\"&";
  Json document = tiny_document({{evil, {{128, {5, 6, 7}}, {256, {kNan, 6, 7}}}}, {"b", {{128, {8, 8, 8}}}}});
  document["config"]["text"] = {evil, "a,b"};
  document["config"][evil] = evil;
  document["machine"]["cpu"] = evil;
  document["published"] = {evil};
  document["runs"][0]["eval"][1]["reason"] = evil;
  document["runs"].push_back({{"encoding", "c\x01\n"}, {"seed", 0}, {"status", "failed"}, {"reason", evil}});
  document["effects"] =
      Json::parse(R"([{"encoding": "b", "kind": "bias", "distances": [0, 1], "per_head": [[0, null]]}])");
  document["effects"][0]["encoding"] = evil;
  document["effects"][0]["note"] = evil;
  const std::string html = report_of(document);
  EXPECT_EQ(tag_fault(html), "");
  EXPECT_EQ(count(html, "<script"), 1u) << "the page's own";
  EXPECT_GE(count(html, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"), 8u);
  EXPECT_NE(html.find("Published figures, for orientation only"), std::string::npos);
}

TEST(ReportHtml, OddResultsDoNotBreakIt) {
  const std::vector<TinyCurves> cases = {
      {},
      {{"only", {{128, {5}}}}},
      {{"only", {{128, {5, 5, 5}}, {256, {5, 5, 5}}}}},
      {{"a", {{128, {5}}}}, {"b", {{128, {6}}}}},
      {{"a", {{128, {kNan}}}}, {"b", {{128, {0}}}}, {"c", {{128, {-1}}}}},
      {{"a", {{128, {5}}, {256, {1e300}}}}, {"b", {{128, {6}}, {256, {7}}}}},
      {{"a", {{64, {5}}, {512, {6}}}}},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string html = report_of(tiny_document(cases[i]));
    EXPECT_EQ(tag_fault(html), "") << "case " << i;
    for (const char* part : {"=\"nan", "=\"inf", "=\"-nan", "=\"-inf", "nan nan", " inf"}) {
      EXPECT_EQ(html.find(part), std::string::npos) << part << " in case " << i;
    }
  }
  Json document = tiny_document({});
  document["runs"] = Json::parse(R"([{"encoding": "a", "seed": 0, "status": "refused", "reason": "odd width"}])");
  const std::string html = report_of(document);
  EXPECT_EQ(tag_fault(html), "");
  EXPECT_NE(html.find("odd width"), std::string::npos);
}

TEST(ReportHtml, AccuraciesAreAWholePageToo) {
  std::vector<Json> documents = {
      solved_fixture({}),
      solved_fixture(passkey_fixture()),
      solved_document({{"only", {{2, {5}}}}}, 2),
      solved_document({{"a", {{2, {-1}}}}, {"b", {{2, {-1}}}}}, 2),
      solved_document({{"a", {{4, {0, 0}}}}, {"b", {{4, {0, 0}}}}}, 2),
      solved_document({{"a", {{2, {10}}, {4, {-1}}}}, {"b", {{2, {10}}, {4, {3}}}}}, 2, "copy")};
  SolvedFixture seeds;
  seeds.seeds = {0, 1, 2};
  seeds.encodings = {"none", "<script>alert('x')</script>\"&", "fox"};
  documents.push_back(solved_fixture(seeds));
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::string html = report_of(documents[i]);
    EXPECT_EQ(tag_fault(html), "") << "case " << i;
    EXPECT_EQ(count(html, "<script"), 1u) << "case " << i;
    for (const char* part : {"=\"nan", "=\"inf", "=\"-nan", "=\"-inf", "erplexity", "fill=\"#"}) {
      EXPECT_EQ(html.find(part), std::string::npos) << part << " in case " << i;
    }
  }
  const std::string html = report_of(documents[0]);
  EXPECT_NE(html.find("trained up to 6 digits"), std::string::npos);
  EXPECT_NE(html.find(">beyond</th>"), std::string::npos);
  EXPECT_NE(html.find("Accuracy minus the highest at each length, in percentage points"), std::string::npos);
  EXPECT_EQ(count(html, ">highest<"), 2u + 12) << "one a column";
}

TEST(ReportHtml, SummarisesWhenNobodyDid) {
  const Results results = parse_results(tiny_document({{"a", {{128, {5}}}}, {"b", {{128, {6}}}}}));
  EXPECT_NE(html_report(results).find("<h1>a has the lowest perplexity"), std::string::npos);
}

LineChart simple_chart() {
  LineChart chart;
  chart.id = "t";
  chart.title = "title";
  chart.description = "words";
  chart.x_ticks = {128, 256, 512};
  return chart;
}

TEST(ReportLineChart, NamesNeverOverlap) {
  LineChart chart = simple_chart();
  for (int i = 0; i < 14; ++i) {
    chart.series.push_back(
        {"encoding-" + std::to_string(i), {}, "8.0", {{128, 8, 0, ""}, {256, 8 + 0.001 * i, 0, ""}, {512, 8, 0, ""}}});
  }
  for (const ChartSize& size : {kWideChart, kNarrowChart}) {
    std::vector<double> places = numbers_of(line_chart(chart, size), "class=\"name\"", "y");
    ASSERT_EQ(places.size(), 14u);
    std::sort(places.begin(), places.end());
    for (std::size_t i = 1; i < places.size(); ++i) EXPECT_GE(places[i] - places[i - 1], 15.8);
    EXPECT_GE(places.front(), 0);
  }
}

TEST(ReportLineChart, AWholeNameGoesBeforeItsFigure) {
  LineChart chart = simple_chart();
  chart.series.push_back({"sinusoidal", {}, "2020 at 1024 and more", {{128, 8, 0, ""}, {256, 9, 0, ""}}});
  chart.series.push_back({"heads(t5(shared=true) * 4, t5 * 4, kerple)", {}, "7.4", {{128, 7, 0, ""}, {256, 7, 0, ""}}});
  const std::string narrow = line_chart(chart, kNarrowChart);
  EXPECT_NE(narrow.find(">sinusoidal</text>"), std::string::npos);
  EXPECT_NE(narrow.find(">7.4</tspan>"), std::string::npos);
  EXPECT_NE(narrow.find("<title>heads(t5(shared=true) * 4, t5 * 4, kerple)</title>heads"), std::string::npos)
      << "the whole name as a tip";
  EXPECT_NE(line_chart(chart, kWideChart).find(">2020 at 1024 and more</tspan>"), std::string::npos);
}

TEST(ReportLineChart, TicksStandAtTheirLengthsAndTheReferenceAtItsOwn) {
  LineChart chart = simple_chart();
  chart.series.push_back({"a", {}, "", {{128, 8, 0, ""}, {256, 9, 0, ""}, {512, 10, 0, ""}}});
  chart.reference = 256;
  chart.reference_text = "trained at 256";
  const std::string svg = line_chart(chart, kWideChart);
  const std::vector<double> ticks = numbers_of(svg, "class=\"tick mid\"", "x");
  ASSERT_EQ(ticks.size(), 3u);
  EXPECT_NEAR(ticks[1] - ticks[0], ticks[2] - ticks[1], 0.11);  // equal ratios, equal distances
  const std::vector<double> reference = numbers_of(svg, "class=\"reference\"", "x1");
  ASSERT_EQ(reference.size(), 1u);
  EXPECT_NEAR(reference[0], ticks[1], 0.11);
  EXPECT_NE(svg.find("trained at 256"), std::string::npos);
  chart.reference = 4096;  // outside: no line, no text
  EXPECT_EQ(line_chart(chart, kWideChart).find("class=\"reference\""), std::string::npos);
}

TEST(ReportLineChart, LogarithmicWhereTheRangeIsWide) {
  LineChart chart = simple_chart();
  chart.y_title = "perplexity";
  chart.series.push_back({"a", {}, "", {{128, 8, 0, ""}, {256, 31, 0, ""}}});
  EXPECT_EQ(line_chart(chart, kWideChart).find("perplexity, logarithmic"), std::string::npos);
  chart.series[0].points[1].y = 33;
  EXPECT_NE(line_chart(chart, kWideChart).find("perplexity, logarithmic"), std::string::npos);
}

TEST(ReportLineChart, BandsOnlyWithASpread) {
  LineChart chart = simple_chart();
  chart.series.push_back({"a", {}, "", {{128, 8, 0, ""}, {256, 9, 0, ""}}});
  EXPECT_EQ(count(line_chart(chart, kWideChart), "class=\"band\""), 0u);
  chart.series[0].points[0].spread = 0.5;
  EXPECT_EQ(count(line_chart(chart, kWideChart), "class=\"band\""), 1u);
}

TEST(ReportLineChart, WhatExplodesIsAnArrowWithItsValue) {
  FixtureOptions options = three_seeds();
  options.exploding = true;
  Results results = parse_results(fixture_document(options));
  summarize(results);
  LinePicture picture = length_picture(results, "lm", styles_of(results));
  ASSERT_TRUE(picture.chart.cap.has_value());
  EXPECT_NEAR(*picture.chart.cap, 4 * 11.68, 0.2);
  picture.chart.id = "t";
  const std::string svg = line_chart(picture.chart, kWideChart);
  EXPECT_EQ(count(svg, "class=\"value"), 3u);  // 256, 512, 1024
  EXPECT_NE(svg.find(">2000</text>"), std::string::npos);
  EXPECT_LT(count(line_chart(picture.chart, kNarrowChart), "class=\"value"), 3u) << "texts would touch";
  Results tame = parse_results(fixture_document(three_seeds()));
  summarize(tame);
  EXPECT_FALSE(length_picture(tame, "lm", styles_of(tame)).chart.cap.has_value());
}

TEST(ReportScatterChart, NamesMoveToAKeyWhenTheyCannotStandBeside) {
  ScatterChart chart;
  chart.id = "t";
  for (int i = 0; i < 3; ++i)
    chart.series.push_back({"e" + std::to_string(i), {}, "", {{0.8 + 0.1 * i, 7.0 + i, 0, "tip"}}});
  const std::string apart = scatter_chart(chart, {490, 370, false});
  EXPECT_EQ(count(apart, "class=\"name mid\""), 3u);
  for (int i = 0; i < 12; ++i) chart.series.push_back({"crowd-" + std::to_string(i), {}, "", {{0.9, 8.0, 0, "tip"}}});
  const std::string crowd = scatter_chart(chart, {490, 370, false});
  EXPECT_EQ(count(crowd, "class=\"name mid\""), 0u);
  std::vector<double> places = numbers_of(crowd, "class=\"name\"", "y");
  ASSERT_EQ(places.size(), 15u);
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i) EXPECT_GE(places[i] - places[i - 1], 15.8);
}

TEST(ReportHeat, NineSteps) {
  EXPECT_EQ(heat_class(0, 10), "z");
  EXPECT_EQ(heat_class(1.2, 10), "z");
  EXPECT_EQ(heat_class(1.3, 10), "p1");
  EXPECT_EQ(heat_class(-5, 10), "n2");
  EXPECT_EQ(heat_class(-400, 10), "n4");
  EXPECT_EQ(heat_class(10, 10), "p4");
  EXPECT_EQ(heat_class(1, 0), "z");
  EXPECT_EQ(heat_class(kNan, 1), "z");
}

TEST(ReportPictures, TrainingLossIsAveragedOverStretchesThenSeeds) {
  Json document = tiny_document({{"a", {{128, {5, 5}}}}});
  document["runs"][0]["train"]["losses"] = Json::parse("[[0, 6], [1, 4], [2, null]]");
  document["runs"][1]["train"]["losses"] = Json::parse("[[0, 8], [1, 5], [2, 3]]");
  const Results results = parse_results(document);
  const LinePicture picture = training_picture(results, styles_of(results));
  const std::vector<ChartPoint>& points = picture.chart.series[0].points;
  ASSERT_EQ(points.size(), 3u);
  EXPECT_DOUBLE_EQ(points[0].y, 7);
  EXPECT_DOUBLE_EQ(points[0].spread, std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(points[1].y, 4.5);
  EXPECT_DOUBLE_EQ(points[2].y, 3);
  EXPECT_DOUBLE_EQ(points[2].spread, 0);
}

TEST(ReportPictures, PositionLossUsesTheLongestLengthAndWeighsBins) {
  Json document = tiny_document({{"a", {{128, {5}}, {256, {5}}}}});
  document["runs"][0]["eval"][0]["position_loss"] = Json::parse("[[0, 128, 9]]");
  document["runs"][0]["eval"][1]["position_loss"] =
      Json::parse("[[0, 1, 6], [1, 252, 3], [252, 255, 2], [255, 256, 6]]");
  const Results results = parse_results(document);
  const LinePicture picture = position_picture(results, "lm", styles_of(results));
  const std::vector<ChartPoint>& points = picture.chart.series[0].points;
  ASSERT_EQ(points.size(), 3u);  // the last two bins are too narrow for a point each
  EXPECT_DOUBLE_EQ(points[0].y, 6);
  EXPECT_DOUBLE_EQ(points[1].y, 3);
  EXPECT_DOUBLE_EQ(points[2].y, 3);  // (3 * 2 + 1 * 6) / 4
  EXPECT_DOUBLE_EQ(points[2].x, 254);
  EXPECT_EQ(picture.rows.size(), 5u);
}

TEST(ReportPictures, BiasesShareAnAxisThatEndsAtMinusTen) {
  Json document = tiny_document({{"a", {{128, {5}}}}});
  document["effects"] = Json::parse(R"([
    {"encoding": "a", "kind": "bias", "distances": [0, 1, 600], "per_head": [[1, -2, null]]},
    {"encoding": "b", "kind": "bias", "distances": [0, 600], "per_head": [[0, -500], [0, -1]]},
    {"encoding": "r", "kind": "rotation", "distances": [0, 600], "per_head": [[1, -0.2]]},
    {"encoding": "n", "kind": "none", "distances": [], "per_head": [], "note": "nothing"}])");
  const Results results = parse_results(document);
  const std::vector<PanelPicture> pictures = effect_pictures(results, styles_of(results));
  ASSERT_EQ(pictures.size(), 4u);
  EXPECT_DOUBLE_EQ(pictures[0].chart->low, -10 - 0.55);
  EXPECT_DOUBLE_EQ(pictures[1].chart->low, pictures[0].chart->low);
  EXPECT_DOUBLE_EQ(pictures[1].chart->high, 1.55);
  EXPECT_DOUBLE_EQ(pictures[2].chart->high, 1.05);
  EXPECT_DOUBLE_EQ(pictures[2].chart->low, -0.25);
  EXPECT_FALSE(pictures[3].chart.has_value());
  EXPECT_EQ(pictures[0].rows[3], (std::vector<std::string>{"600", "-inf"}));
  EXPECT_EQ(pictures[1].rows[0], (std::vector<std::string>{"distance", "head 0", "head 1"}));
}

}  // namespace
}  // namespace torsor::report
