#include "torsor/report/accuracy.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/report/solved.h"
#include "tests/report/tiny.h"
#include "torsor/base/error.h"
#include "torsor/report/charts.h"
#include "torsor/report/csv.h"
#include "torsor/report/html.h"
#include "torsor/report/statistics.h"
#include "torsor/report/table.h"

namespace torsor::report {
namespace {

using Sentences = std::vector<std::string>;

Results summarized(const Json& document) {
  Results results = parse_results(document);
  summarize(results);
  return results;
}

void expect_error(const Json& document, const std::string& part) {
  std::string message;
  try {
    parse_results(document, "r.json");
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find(part), std::string::npos) << "expected '" << part << "' in '" << message << "'";
}

Json one_eval() {
  Json document = solved_document({{"rope", {{2, {7, 8}}}}}, 2);
  for (Json& run : document["runs"]) {
    const int correct = run["seed"] == 0 ? 7 : 8;
    run["eval"][0]["cells"] = {{{"x", 2}, {"y", 1}, {"correct", 4}, {"count", 4}},
                               {{"x", 2}, {"y", 2}, {"correct", correct - 4}, {"count", 6}}};
  }
  return document;
}

TEST(ReportAccuracy, ReadsSharesCellsAndProblems) {
  const Results results = parse_results(one_eval());
  const Eval& eval = results.runs[1].eval[0];
  EXPECT_DOUBLE_EQ(*eval.accuracy, 0.8);
  ASSERT_EQ(eval.cells.size(), 2u);
  EXPECT_EQ(eval.cells[1].x, 2);
  EXPECT_EQ(eval.cells[1].y, 2);
  EXPECT_EQ(eval.cells[1].correct, 4);
  EXPECT_EQ(eval.cells[1].count, 6);
  EXPECT_EQ(problems_of(eval), 10);
  EXPECT_FALSE(eval.perplexity || eval.loss);
}

TEST(ReportAccuracy, ErrorsNameThePlace) {
  const auto with = [](const char* key, const Json& value) {
    Json document = one_eval();
    document["runs"][0]["eval"][0][key] = value;
    return document;
  };
  const auto with_cell = [](const char* key, const Json& value) {
    Json document = one_eval();
    document["runs"][1]["eval"][0]["cells"][1][key] = value;
    return document;
  };
  expect_error(with("accuracy", 1.5), "r.json: runs[0].eval[0]: accuracy: expected a share in 0..1, got 1.5");
  expect_error(with("accuracy", -0.1), "accuracy: expected a number that is not negative, got -0.1");
  expect_error(with("accuracy", nullptr), "accuracy: expected the share of problems solved beside cells, got none");
  expect_error(with("accuracy", 0.6), "accuracy: expected 7 of 10 as in cells, got 0.6");
  expect_error(with_cell("correct", 7), "runs[1].eval[0].cells[1]: correct: expected at most count, 6, got 7");
  expect_error(with_cell("correct", -1), "correct: expected at least 0, got -1");
  expect_error(with_cell("count", 0), "count: expected at least 1, got 0");
  expect_error(with_cell("y", 1), "runs[1].eval[0]: cells[1]: expected each x and y once, got 2 and 1 again");
  expect_error(with("windows", {1, 1, 1, 1, 1, 1, 1, 0, 0.5, 0}), "windows[8]: expected 0 or 1 for a problem, got 0.5");
  expect_error(with("windows", {1, 1, 1, 1, 1, 1, 1, 1, 0, 0}), "accuracy: expected 8 of 10 as in windows, got 0.7");
  Json twice = Json::array();
  for (int i = 0; i < 20; ++i) twice.push_back(i < 14 ? 1 : 0);
  expect_error(with("windows", twice), "windows: expected 10 problems as in cells, got 20");
}

TEST(ReportAccuracy, RunsMustHaveTheSameProblems) {
  Json document = one_eval();
  document["runs"][1]["eval"][0]["cells"][0]["y"] = 3;
  expect_error(document, "runs[1].eval[0].cells: expected x, y and count as in the other runs of 'addition' at 2");
  document = one_eval();
  document["runs"][1]["eval"][0].erase("cells");
  document["runs"][1]["eval"][0]["windows"] = {1, 1, 1, 1, 0};
  expect_error(document, "runs[1].eval[0].windows: expected 10 problems as in the other runs at length 2, got 5");
}

TEST(ReportAccuracy, PercentsNeverRoundToAllOrNothing) {
  EXPECT_EQ(format_percent(1), "100");
  EXPECT_EQ(format_percent(0), "0");
  EXPECT_EQ(format_percent(0.9999), "100.0");
  EXPECT_EQ(format_percent(0.0001), "0.0");
  EXPECT_EQ(format_percent(0.3744), "37.4");
  EXPECT_EQ(format_percent(0.3744, 0.0), "37.4");
  EXPECT_EQ(format_percent(0.3744, 0.042), "37");
  EXPECT_EQ(format_percent_spread(0.042), "4");
  EXPECT_EQ(format_percent(0.3744, 0.0142), "37.4");
  EXPECT_EQ(format_percent_spread(0.0142), "1.4");
  EXPECT_EQ(format_percent(0.3, 1e-17), "30.0") << "a deviation of rounding errors";
  EXPECT_EQ(format_percent_spread(1e-17), "");
  EXPECT_EQ(format_percent_spread(0.0), "");
  EXPECT_EQ(format_percent_spread(std::nullopt), "");
}

TEST(ReportAccuracy, PoolsAreUpToTheTrainedLengthAndBeyond) {
  const Results results = solved_results({{"rope", {{2, {10}}, {4, {9}}, {5, {5}}, {8, {0}}}}}, 4);
  const std::vector<Pool> pools = pools_of(results, "addition");
  ASSERT_EQ(pools.size(), 2u);
  EXPECT_EQ(pools[0].lengths, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(pools[1].lengths, (std::vector<std::int64_t>{5, 8}));
  EXPECT_EQ(row_lengths(results, "addition", 8, kAccuracyBeyond), pools[1].lengths);
  EXPECT_EQ(row_lengths(results, "addition", 8, kAccuracy), std::vector<std::int64_t>{8});
  EXPECT_TRUE(pools_of(tiny_results({{"a", {{128, {5}}, {256, {5}}}}}), "lm").empty());
  EXPECT_EQ(pools_of(solved_results({{"rope", {{2, {10}}}}}, 4), "addition").size(), 1u);
  EXPECT_EQ(headline_metric(results, "addition"), "accuracy");
  EXPECT_EQ(headline_metric(results, "lm"), "perplexity");
}

TEST(ReportAccuracy, PoolsWeighEveryProblemAlike) {
  Json document = solved_document({{"rope", {{1, {10}}, {2, {0}}}}}, 2);
  document["runs"][0]["eval"][0]["windows"] = {1, 1};  // two problems of one digit, ten of two
  const Results results = parse_results(document);
  EXPECT_DOUBLE_EQ(pooled_accuracy(results.runs[0], "addition", {1, 2})->value, 2.0 / 12);
  EXPECT_EQ(pooled_accuracy(results.runs[0], "addition", {1, 2})->windows.size(), 12u);
  EXPECT_FALSE(pooled_accuracy(results.runs[0], "addition", {1, 2, 3}).has_value()) << "3 was not evaluated";
}

TEST(ReportAccuracy, SummaryByHandHigherIsBetter) {
  const Results results =
      solved_results({{"rope", {{2, {10, 9, 8}}, {4, {1, 2, 3}}}}, {"alibi", {{2, {9, 7, 8}}, {4, {4, 6, 5}}}}}, 2);
  const SummaryRow* rope = find_summary(results, "rope", "addition", 2, "accuracy");
  const SummaryRow* alibi = find_summary(results, "alibi", "addition", 2, "accuracy");
  ASSERT_TRUE(rope != nullptr && alibi != nullptr);
  EXPECT_NEAR(*rope->mean, 0.9, 1e-12);
  EXPECT_NEAR(*rope->sd, 0.1, 1e-12);
  EXPECT_EQ(rope->n, 3);
  EXPECT_DOUBLE_EQ(rope->difference_to_best->mean, 0);
  EXPECT_NEAR(alibi->difference_to_best->mean, -0.1, 1e-12);  // -0.1, -0.2, 0
  EXPECT_LT(*alibi->difference_to_best->low, -0.1);
  EXPECT_EQ(best_of(results, "addition", 2, "accuracy")->encoding, "rope");
  EXPECT_FALSE(best_of(results, "addition", 2, "accuracy")->shown) << "one seed shows no difference";
  EXPECT_EQ(best_of(results, "addition", 4, "accuracy_beyond")->encoding, "alibi");
  EXPECT_EQ(results.summary.size(), 2u * 4) << "two lengths, inside and beyond; no perplexity";
  EXPECT_EQ(find_summary(results, "rope", "addition", 2, "perplexity"), nullptr);
}

// The same ten problems are solved in a and nine of them in b, in all seeds: the lead is 0.1 and its problems vary.
TEST(ReportAccuracy, AShownLeadNeedsAnIntervalWithoutZero) {
  const Results wide = solved_results({{"a", {{2, {10, 10, 10}}}}, {"b", {{2, {9, 9, 9}}}}}, 2);
  const auto close = best_of(wide, "addition", 2, "accuracy");
  EXPECT_NEAR(close->lead->mean, -0.1, 1e-12);
  EXPECT_DOUBLE_EQ(*close->lead->high, 0) << "draws without the tenth problem are no rarity";
  EXPECT_FALSE(close->shown);
  const auto far =
      best_of(solved_results({{"a", {{2, {10, 10, 10}}}}, {"b", {{2, {1, 2, 1}}}}}, 2), "addition", 2, "accuracy");
  EXPECT_TRUE(far->shown);
  EXPECT_EQ(far->encoding, "a");
  EXPECT_LT(*far->lead->high, 0);
  EXPECT_EQ(far->pairs, 3);
}

// Two problems, one solved in b: a quarter of the draws has it twice, a quarter not at all.
TEST(ReportAccuracy, BootstrapByHand) {
  const Interval interval = paired_bootstrap(Metric::accuracy, {{1, 0, {1, 1}}}, {{0.5, 0, {1, 0}}});
  EXPECT_DOUBLE_EQ(interval.mean, 0.5);
  EXPECT_NEAR(*interval.low, 0, 1e-12);
  EXPECT_NEAR(*interval.high, 1, 1e-12);
}

// 512 problems in order of their kind, all of the first kind solved: a block has one of each kind, so that the share
// of kinds, which is chosen and not drawn, adds nothing to the interval.
TEST(ReportAccuracy, BlocksHoldEveryKindOfProblem) {
  Sample a{0.5, 0, {}}, b{0, 0, {}};
  for (int i = 0; i < 512; ++i) {
    a.windows.push_back(i < 256 ? 1 : 0);
    b.windows.push_back(0);
  }
  const Interval interval = paired_bootstrap(Metric::accuracy, {a}, {b});
  EXPECT_NEAR(*interval.low, 0.5, 1e-12);
  EXPECT_NEAR(*interval.high, 0.5, 1e-12);
  // 300 problems: blocks of two and of one.
  Sample c{0.25, 0, std::vector<double>(300, 0)}, d{0, 0, std::vector<double>(300, 0)};
  for (int i = 0; i < 75; ++i) c.windows[static_cast<std::size_t>(4 * i)] = 1;
  const Interval uneven = paired_bootstrap(Metric::accuracy, {c}, {d});
  EXPECT_NEAR(*uneven.low, 0.25 - 1.96 * std::sqrt(0.25 * 0.75 / 300), 0.02);  // the percentiles of a binomial
  EXPECT_NEAR(*uneven.high, 0.25 + 1.96 * std::sqrt(0.25 * 0.75 / 300), 0.02);
}

TEST(ReportAccuracy, ARefusedLengthLeavesThePool) {
  const Results results =
      solved_results({{"rope", {{2, {10}}, {4, {5}}, {6, {0}}}}, {"learned", {{2, {10}}, {4, {9}}, {6, {-1}}}}}, 2);
  EXPECT_EQ(find_summary(results, "learned", "addition", 6, kAccuracyBeyond), nullptr);
  EXPECT_NEAR(*find_summary(results, "learned", "addition", 4, kAccuracy)->mean, 0.9, 1e-12);
  EXPECT_EQ(best_of(results, "addition", 6, kAccuracyBeyond)->encoding, "rope");
  const FigureTable table = figure_table(results, "addition");
  EXPECT_EQ(table.rows[1].pooled[1].text, "refused");
  EXPECT_EQ(table.rows[1].pooled[1].reason, "no row");
}

// The interval of the lead of fox beyond, about 0.467 +- 1.96 sqrt(0.25 / 60), is that of 60 drawn problems of which
// half differ.
TEST(ReportAccuracyVerdict, WhoIsHighestWhoLearnedWhoHolds) {
  const Results results = solved_results({{"none", {{2, {5, 5, 5}}, {3, {1, 0, 1}}, {4, {0, 0, 0}}}},
                                          {"rope", {{2, {10, 10, 10}}, {3, {1, 2, 1}}, {4, {0, 0, 0}}}},
                                          {"fox", {{2, {9, 9, 9}}, {3, {10, 10, 10}}, {4, {10, 9, 9}}}},
                                          {"t5", {{2, {9, 9, 10}}, {3, {9, 9, 9}}, {4, {1, 1, 1}}}}},
                                         2);
  EXPECT_EQ(
      results.verdict,
      (Sentences{"rope has the highest accuracy inside the trained lengths (100 % up to 2 digits), fox beyond them "
                 "(97 \u00b1 3 % at 3 to 4 digits).",
                 "Inside the trained lengths no difference shown between rope and the runner-up t5: 6.7 points, "
                 "95 % interval 0 to 20.",
                 "Beyond the trained lengths the lead of fox over the runner-up t5 is shown: 47 points, 95 % "
                 "interval 33 to 60.",
                 "At least 90 % inside the trained lengths: rope, fox and t5.",
                 "Below 90 % inside the trained lengths: none (50.0 %). What these reach beyond says nothing about "
                 "their encoding.",
                 "At least 90 % at every length up to 4 digits: fox.",
                 "At least 90 % some way beyond the trained lengths: t5 to 3 digits.",
                 "Chance level: 11 % at one digit, and a tenth of that with each further digit."}));
}

TEST(ReportAccuracyVerdict, AnUnlearnedTaskShowsNothingYet) {
  const Results nobody = solved_results({{"none", {{2, {5}}, {3, {1}}}}, {"rope", {{2, {8}}, {3, {0}}}}}, 2);
  EXPECT_EQ(
      nobody.verdict[0],
      "This table shows nothing yet: no encoding reaches 90 % inside the trained lengths (the highest is 80.0 %); "
      "more steps or shorter problems may help.");
  EXPECT_EQ(nobody.verdict[1],
            "rope has the highest accuracy inside the trained lengths (80.0 % up to 2 digits), none beyond them "
            "(10.0 % at 3 digits).");
  const Results one = solved_results({{"none", {{2, {5}}, {3, {0}}}}, {"rope", {{2, {9}}, {3, {0}}}}}, 2);
  EXPECT_EQ(one.verdict[0].rfind("This table shows nothing yet: only rope reaches 90 % inside the trained lengths", 0),
            0u);
  const Results two = solved_results({{"alibi", {{2, {9}}, {3, {0}}}}, {"rope", {{2, {9}}, {3, {0}}}}}, 2);
  EXPECT_EQ(two.verdict,
            (Sentences{"alibi and rope are level with the highest accuracy inside the trained lengths (90.0 % up to 2 "
                       "digits); no encoding solves a problem beyond them (at 3 digits).",
                       "One seed only shows direction: no difference counts as shown with fewer than 3 seeds.",
                       "Inside the trained lengths alibi and rope are level.",
                       "Beyond the trained lengths alibi and rope are level.",
                       "At least 90 % inside the trained lengths: alibi and rope.",
                       "No encoding keeps 90 % at 3 digits, the first length beyond.",
                       "Chance level: 11 % at one digit, and a tenth of that with each further digit."}));
}

TEST(ReportAccuracyVerdict, OddCasesHaveWords) {
  const Results alone = solved_results({{"rope", {{256, {10}}, {512, {9}}}}}, 256, "passkey");
  EXPECT_EQ(
      alone.verdict,
      (Sentences{"rope has the highest accuracy, both inside the trained lengths (100 % up to 256 tokens) and beyond "
                 "them (90.0 % at 512 tokens).",
                 "Only one encoding was run: there is nothing to compare it with.",
                 "At least 90 % inside the trained lengths: rope.",
                 "At least 90 % at every length up to 512 tokens: rope.",
                 "Chance level: next to 0 %, since every digit of the key must be right."}));
  EXPECT_EQ(solved_results({{"a", {{2, {0}}}}, {"b", {{2, {0}}}}}, 2).verdict[1],
            "No encoding solved a single problem.");
  const Results beyond = solved_results({{"a", {{4, {3}}}}, {"b", {{4, {2}}}}}, 2);
  EXPECT_EQ(beyond.verdict[0], "a has the highest accuracy beyond the trained lengths (30.0 % at 4 digits).");
  const Results refused = solved_results({{"a", {{2, {10}}, {4, {-1}}}}, {"b", {{2, {10}}, {4, {1}}}}}, 2);
  EXPECT_EQ(refused.verdict.back(), "Refused: a 4 (no row).");
  Json failed = solved_document({{"a", {{2, {10}}}}}, 2);
  failed["runs"][0]["eval"][0] = {
      {"task", "addition"}, {"length", 2}, {"status", "failed"}, {"reason", "out of memory"}};
  const Results none = summarized(failed);
  EXPECT_EQ(none.verdict[0], "No run gave an accuracy at all lengths.");
  EXPECT_EQ(none.verdict.back(), "Failed: a with seed 0 at 2 (out of memory).");
  EXPECT_TRUE(none.summary.empty());
}

TEST(ReportAccuracyTable, PercentsPooledFirst) {
  const Results results = solved_results({{"rope", {{2, {10}}, {4, {5}}}}, {"learned", {{2, {9}}, {4, {-1}}}}}, 2);
  EXPECT_EQ(
      text_table(results),
      "addition: accuracy in % inside the trained lengths (up to 2 digits), beyond them and by digits, 1 seed; speed "
      "relative to rope\n"
      "encoding  inside   beyond     2        4  parameters  speed  memory  decode/s\n"
      "rope         100     50.0   100     50.0\n"
      "learned     90.0  refused  90.0  refused\n"
      "learned, 4: refused, no row\n");
}

TEST(ReportAccuracyTable, ATerminalShowsSomeOfManyLengths) {
  const std::string text = text_table(summarized(solved_fixture({})));
  const std::string head = text.substr(text.find('\n') + 1, text.find('\n', text.find('\n') + 1) - text.find('\n') - 1);
  std::string squeezed;
  for (const char c : head) {
    if (c != ' ' || squeezed.back() != ' ') squeezed += c;
  }
  EXPECT_EQ(squeezed, "encoding inside beyond 1 4 6 8 10 12 parameters speed memory decode/s");
}

TEST(ReportAccuracyTable, BoldByTheRuleWithTheDirectionTurned) {
  const FigureTable table = figure_table(
      solved_results({{"rope", {{2, {10, 10, 10}}, {4, {1, 1, 2}}}}, {"fox", {{2, {10, 10, 10}}, {4, {9, 9, 8}}}}}, 2),
      "addition");
  EXPECT_FALSE(table.rows[0].pooled[0].best || table.rows[1].pooled[0].best) << "level";
  EXPECT_TRUE(table.rows[1].pooled[1].best && table.rows[1].cells[1].best);
  EXPECT_FALSE(table.rows[0].pooled[1].best || table.rows[0].cells[1].best);
}

TEST(ReportAccuracyCsv, HasTheShareAndItsProblems) {
  const Results results = parse_results(solved_document({{"rope", {{2, {7}}, {4, {-1}}}}}, 2));
  EXPECT_EQ(results_csv(results),
            "encoding,seed,status,task,length,eval_status,loss,perplexity,bits_per_byte,accuracy,problems,parameters,"
            "tokens_per_second,peak_memory_bytes,decode_tokens_per_second,reason\r\n"
            "rope,0,ok,addition,2,ok,,,,0.7,10,,,,,\r\n"
            "rope,0,ok,addition,4,refused,,,,,,,,,,no row\r\n");
}

TEST(ReportAccuracyPictures, AccuracyAgainstLengthIsInPercent) {
  const Results results = summarized(solved_fixture({}));
  const LinePicture picture = length_picture(results, "addition", styles_of(results));
  EXPECT_TRUE(picture.chart.percent);
  EXPECT_FALSE(picture.chart.log_x);
  EXPECT_EQ(picture.chart.reference_text, "trained up to 6");
  EXPECT_EQ(picture.chart.series[5].points.size(), 12u);
  EXPECT_DOUBLE_EQ(picture.chart.series[5].points[0].y, 100);  // fox solves everything inside
  EXPECT_NE(picture.chart.series[5].points[0].tip.find("fox at 1: 100 %"), std::string::npos);
  EXPECT_EQ(picture.chart.series[1].points.size(), 6u) << "learned refuses the others";
  const Results passkey = summarized(solved_fixture(passkey_fixture()));
  EXPECT_TRUE(length_picture(passkey, "passkey", styles_of(passkey)).chart.log_x);
  const auto costs = cost_pictures(results, "addition", styles_of(results));
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].chart.title, "Training speed against accuracy inside the trained lengths");
  EXPECT_EQ(costs[1].chart.better, "better: up and right");
  EXPECT_EQ(costs[0].chart.series.size(), 8u);
  EXPECT_EQ(costs[1].chart.series.size(), 7u);
}

TEST(ReportAccuracyPictures, ThePercentAxisEndsAtAHundred) {
  const Results results = summarized(solved_fixture({}));
  LinePicture picture = length_picture(results, "addition", styles_of(results));
  picture.chart.id = "t";
  for (const ChartSize& size : {kWideChart, kNarrowChart}) {
    const std::string svg = line_chart(picture.chart, size);
    EXPECT_NE(svg.find(">100</text>"), std::string::npos);
    EXPECT_NE(svg.find(">0</text>"), std::string::npos);
    EXPECT_EQ(svg.find(">120</text>"), std::string::npos);
    EXPECT_EQ(svg.find("logarithmic"), std::string::npos);
  }
}

}  // namespace
}  // namespace torsor::report
