#include "torsor/report/table.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/report/tiny.h"
#include "torsor/report/csv.h"
#include "torsor/report/numbers.h"

namespace torsor::report {
namespace {

Json with_costs(Json document) {
  double rate = 1000;
  for (Json& run : document["runs"]) {
    run["parameters"] = 819840;
    run["train"] = {{"steps", 300}, {"tokens", 614400}, {"seconds", 35.5}, {"tokens_per_second", rate}};
    run["peak_memory_bytes"] = 327155712;
    run["decode_tokens_per_second"] = 910.5;
    rate -= 100;
  }
  return document;
}

Results summarized(const Json& document) {
  Results results = parse_results(document);
  summarize(results);
  return results;
}

TEST(ReportTable, ColumnsAlignByTerminalColumns) {
  EXPECT_EQ(align_columns({{"a", "x"}, {"\u4e2d", "yy"}, {"abc", "\u00b1"}, {"d"}}),
            "a     x\n"
            "\u4e2d   yy\n"
            "abc   \u00b1\n"
            "d\n");
  EXPECT_EQ(align_columns({}), "");
}

TEST(ReportTable, OneSeedExact) {
  const Results results = summarized(with_costs(
      tiny_document({{"rope", {{128, {7.404}}, {256, {14.52}}}}, {"learned", {{128, {9.1}}, {256, {-1}}}}})));
  EXPECT_EQ(text_table(results),
            "lm: perplexity by length, trained at 128, 1 seed; speed relative to rope\n"
            "encoding   128      256  parameters  speed   memory  decode/s\n"
            "rope      7.40     14.5       820 k  1.00x  312 MiB       910\n"
            "learned   9.10  refused       820 k  0.90x  312 MiB       910\n"
            "learned, 256: refused, no row\n");
}

TEST(ReportTable, ThreeSeedsExact) {
  const Results results =
      summarized(tiny_document({{"none", {{128, {11, 11.1, 11.2}}}}, {"rope", {{128, {7, 7.03, 7.06}}}}}));
  EXPECT_EQ(text_table(results),
            "lm: perplexity by length, trained at 128, 3 seeds (mean \u00b1 sd); speed relative to none\n"
            "encoding           128  parameters  speed  memory  decode/s\n"
            "none      11.10 \u00b1 0.10\n"
            "rope      7.03 \u00b1 0.03*\n"
            "* the 95 % interval of its lead over the runner-up excludes zero\n");
}

TEST(ReportTable, FailuresInfinitiesAndGapsHaveWords) {
  Json document =
      tiny_document({{"a", {{128, {5}}, {256, {std::numeric_limits<double>::quiet_NaN()}}}}, {"b", {{128, {0}}}}});
  document["runs"].push_back({{"encoding", "c"}, {"seed", 0}, {"status", "failed"}, {"reason", "out of\nmemory"}});
  const Results results = summarized(document);
  const FigureTable table = figure_table(results, "lm");
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0].cells[1].text, "not finite");
  EXPECT_EQ(table.rows[1].cells[0].text, "failed");
  EXPECT_EQ(table.rows[1].cells[1].text, "");
  EXPECT_EQ(table.rows[2].cells[1].text, "failed");
  const std::string text = text_table(results);
  EXPECT_NE(text.find("c, 128: failed, out of memory\n"), std::string::npos) << text;
  EXPECT_NE(text.find("a, 256: not finite, the loss is not finite\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("c, 256"), std::string::npos) << "the same reason twice";
}

TEST(ReportTable, CostsAreMeansOverRunsRelativeToTheBase) {
  const Results results = summarized(with_costs(tiny_document({{"rope", {{128, {7, 7}}}}, {"none", {{128, {9, 9}}}}})));
  const FigureTable table = figure_table(results, "lm");  // rope 1000 and 900, none 800 and 700
  EXPECT_EQ(table.base, "none");
  EXPECT_DOUBLE_EQ(*table.rows[0].cost.tokens_per_second, 950);
  EXPECT_DOUBLE_EQ(*table.rows[0].cost.relative_speed, 950.0 / 750.0);
  EXPECT_DOUBLE_EQ(*table.rows[1].cost.relative_speed, 1);
}

TEST(ReportTable, EmptyResultsGiveNoTable) { EXPECT_EQ(text_table(summarized(tiny_document({}))), ""); }

TEST(ReportCsv, FieldsAreQuotedOnlyWhereTheyMust) {
  EXPECT_EQ(csv_field("rope"), "rope");
  EXPECT_EQ(csv_field("yarn(rope, factor=4)"), "\"yarn(rope, factor=4)\"");
  EXPECT_EQ(csv_field("say \"no\""), "\"say \"\"no\"\"\"");
  EXPECT_EQ(csv_field("two\nlines"), "\"two\nlines\"");
  EXPECT_EQ(csv_field(""), "");
}

TEST(ReportCsv, OneRowARunAndEvaluation) {
  Json document = with_costs(tiny_document({{"yarn(rope, factor=4)", {{128, {7.25}}, {256, {-1}}}}}));
  document["runs"][0]["eval"][0]["loss"] = 0.1;
  document["runs"].push_back({{"encoding", "b"}, {"seed", 1}, {"status", "failed"}, {"reason", "no, \"none\""}});
  EXPECT_EQ(results_csv(parse_results(document)),
            "encoding,seed,status,task,length,eval_status,loss,perplexity,bits_per_byte,accuracy,problems,parameters,"
            "tokens_per_second,peak_memory_bytes,decode_tokens_per_second,reason\r\n"
            "\"yarn(rope, factor=4)\",0,ok,lm,128,ok,0.1,7.25,,,,819840,1000,327155712,910.5,\r\n"
            "\"yarn(rope, factor=4)\",0,ok,lm,256,refused,,,,,,819840,1000,327155712,910.5,no row\r\n"
            "b,1,failed,,,,,,,,,,,,,\"no, \"\"none\"\"\"\r\n");
}

TEST(ReportCsv, NumbersReadBackExactly) {
  Json document = tiny_document({{"a", {{128, {7.0}}}}});
  const double loss = 1.9459101090932196;
  document["runs"][0]["eval"][0]["loss"] = loss;
  const std::string text = results_csv(parse_results(document));
  EXPECT_NE(text.find(",1.9459101090932196,"), std::string::npos) << text;
}

}  // namespace
}  // namespace torsor::report
