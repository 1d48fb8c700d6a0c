// Tasks in groups: what is compared, what is only shown.
#include "torsor/report/groups.h"

#include <gtest/gtest.h>

#include "torsor/base/error.h"
#include "torsor/report/accuracy.h"
#include "torsor/report/csv.h"
#include "torsor/report/html.h"
#include "torsor/report/statistics.h"
#include "torsor/report/verdict.h"

namespace torsor::report {
namespace {

struct Made {
  std::string encoding;
  std::vector<double> agreement, licensing;  // one a seed
  bool leaks = false;
};

Json document_of(const std::vector<Made>& all, const char* task = "syntax", const char* key = "accuracy") {
  Json document = {{"format", "torsor-results-1"}, {"config", {{"length", 128}}}, {"machine", Json::object()}};
  document["runs"] = Json::array();
  for (const Made& one : all)
    for (std::size_t seed = 0; seed < one.agreement.size(); ++seed) {
      const double a = one.agreement[seed], b = one.licensing[seed];
      Json lm = {{"task", "lm"}, {"length", 128}, {"status", "ok"}, {"perplexity", 4.0}, {"loss", 1.386}};
      Json entry = {{"task", task}, {"length", 128}, {"status", "ok"}};
      entry[key] = (a + b) / 2;
      entry["groups"] = {{{"name", "Agreement"}, {key, a}, {"count", 5}},
                         {{"name", "Licensing"}, {key, b}, {"count", 4}}};
      if (one.leaks) {
        entry["leaks"] = lm["leaks"] = true;
        lm["perplexity"] = lm["loss"] = nullptr;
        lm["reason"] = "cond_ppl 2.5";
      }
      document["runs"].push_back({{"encoding", one.encoding}, {"seed", seed}, {"status", "ok"}, {"eval", {lm, entry}}});
    }
  return document;
}

Results results_of(const std::vector<Made>& all, const char* task = "syntax", const char* key = "accuracy") {
  Results results = parse_results(document_of(all, task, key));
  summarize(results);
  return results;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string verdict_of(const Results& results) {
  std::string all;
  for (const std::string& sentence : results.verdict) all += sentence + "\n";
  return all;
}

const std::vector<Made>& three() {
  static const std::vector<Made> made = {{"rope", {0.5, 0.52, 0.54}, {0.6, 0.62, 0.61}},
                                         {"sipe(t5)", {0.7, 0.71, 0.72}, {0.6, 0.6, 0.6}},
                                         {"sipe(t5, mode=oracle)", {0.9, 0.9, 0.9}, {0.9, 0.9, 0.9}, true}};
  return made;
}

TEST(ReportGroups, SummaryHasTheMeanAndEveryGroup) {
  const Results results = results_of(three());
  EXPECT_EQ(headline_metric(results, "syntax"), kAccuracy);
  EXPECT_TRUE(pools_of(results, "syntax").empty());
  ASSERT_EQ(groups_of(results, "syntax").size(), 2U);
  const SummaryRow* all = find_summary(results, "rope", "syntax", 128, "accuracy");
  ASSERT_NE(all, nullptr);
  EXPECT_NEAR(*all->mean, (0.55 + 0.57 + 0.575) / 3, 1e-12);
  const SummaryRow* group = find_summary(results, "rope", "syntax", 128, "accuracy: Agreement");
  ASSERT_NE(group, nullptr);
  EXPECT_NEAR(*group->mean, 0.52, 1e-12);
  EXPECT_NEAR(group->difference_to_best->mean, 0.52 - 0.71, 1e-12);
  EXPECT_TRUE(higher_is_better("accuracy: Agreement"));
  EXPECT_TRUE(higher_is_better("score: RTE"));
  EXPECT_FALSE(higher_is_better("perplexity"));
  // A summary that was written reads back.
  const Results again = parse_results(to_json(results));
  EXPECT_EQ(to_json(again).at("summary"), to_json(results).at("summary"));
}

TEST(ReportGroups, WhatLeaksIsShownAndNeverCompared) {
  const Results results = results_of(three());
  const SummaryRow* row = find_summary(results, "sipe(t5, mode=oracle)", "syntax", 128, "accuracy");
  ASSERT_NE(row, nullptr);
  EXPECT_TRUE(row->leaks);
  EXPECT_FALSE(row->difference_to_best);
  EXPECT_EQ(best_of(results, "syntax", 128, "accuracy")->encoding, "sipe(t5)");
  EXPECT_EQ(best_of(results, "syntax", 128, "accuracy: Licensing")->encoding, "rope");
  // No perplexity of it anywhere.
  EXPECT_EQ(find_summary(results, "sipe(t5, mode=oracle)", "lm", 128, "perplexity"), nullptr);
  const FigureTable lm = figure_table(results, "lm");
  EXPECT_EQ(lm.rows[2].cells[0].text, "leaks");
  EXPECT_FALSE(lm.rows[2].cells[0].mean);
  const std::string verdict = verdict_of(results);
  EXPECT_TRUE(contains(verdict, "lm: Not compared, since its inputs tell of later words: sipe(t5, mode=oracle)."))
      << verdict;
  EXPECT_TRUE(contains(verdict, "syntax: Not compared, since its inputs tell of later words")) << verdict;
  EXPECT_FALSE(contains(verdict, "No longer finite"));
  EXPECT_TRUE(contains(verdict, "syntax: sipe(t5) has the highest mean accuracy over suites (65.5")) << verdict;
  EXPECT_TRUE(contains(verdict, "could not have been shown")) << verdict;
  EXPECT_TRUE(contains(verdict, "Highest by circuit: Agreement sipe(t5) (71")) << verdict;
}

TEST(ReportGroups, TablesAndPages) {
  const Results results = results_of(three());
  const std::string text = text_table(results);
  EXPECT_TRUE(contains(text, "Agreement (5)")) << text;
  EXPECT_TRUE(contains(text, "sipe(t5, mode=oracle) (leaks, not compared)")) << text;
  EXPECT_TRUE(contains(text, "cond_ppl 2.5")) << text;
  EXPECT_FALSE(contains(text, "inside")) << text;
  const GroupTable table = group_table(results, "syntax");
  ASSERT_EQ(table.columns.size(), 3U);
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_TRUE(table.rows[1].cells[1].best);  // 0.19 ahead with a spread of 0.01 over three seeds
  EXPECT_FALSE(table.rows[2].cells[0].best);
  const std::string page = html_report(results);
  EXPECT_TRUE(contains(page, "Accuracy by circuit: syntax"));
  EXPECT_TRUE(contains(page, "Agreement (5)"));
  EXPECT_TRUE(contains(results_csv(results), "syntax"));
}

TEST(ReportGroups, ScoresMayBeNegative) {
  const Results results = results_of({{"rope", {-0.1}, {0.3}}, {"alibi", {0.1}, {0.2}}}, "glue", "score");
  EXPECT_EQ(headline_metric(results, "glue"), kScore);
  EXPECT_NEAR(*find_summary(results, "rope", "glue", 128, "score")->mean, 0.1, 1e-12);
  EXPECT_NEAR(*find_summary(results, "rope", "glue", 128, "score: Agreement")->mean, -0.1, 1e-12);
  EXPECT_EQ(best_of(results, "glue", 128, "score")->encoding, "alibi");
  EXPECT_TRUE(contains(text_table(results), "-10")) << text_table(results);
  EXPECT_TRUE(contains(html_report(results), "Score by task: glue"));
}

TEST(ReportGroups, WhatDoesNotFitIsRefused) {
  const auto refused = [](const std::string& pointer, const Json& value, const std::string& part) {
    Json document = document_of(three());
    document[Json::json_pointer(pointer)] = value;
    try {
      parse_results(document);
      ADD_FAILURE() << pointer << " was accepted";
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), part)) << error.what();
    }
  };
  refused("/runs/0/eval/1/groups/0/accuracy", 1.5, "share in 0..1");
  refused("/runs/0/eval/1/groups/0/accuracy", -0.5, "share in 0..1");
  refused("/runs/0/eval/1/groups/1/name", "Agreement", "each name once");
  refused("/runs/0/eval/1/groups/0/name", "Other", "those of the other runs");
  refused("/runs/0/eval/1/groups/0/count", 0, "at least 1");
  refused("/runs/0/eval/1/windows", {1, 0}, "as in windows");
}

TEST(ReportGroups, RefusalsAreTold) {
  Json document = document_of({{"rope", {0.5}, {0.6}}, {"learned", {0.1}, {0.1}}});
  Json& entry = document["runs"][1]["eval"][1];
  entry["status"] = "refused", entry["reason"] = "no row", entry["accuracy"] = nullptr;
  entry["groups"] = Json::array();
  Results results = parse_results(document);
  summarize(results);
  const std::string text = text_table(results), verdict = verdict_of(results);
  EXPECT_TRUE(contains(text, "refused")) << text;
  EXPECT_TRUE(contains(text, "learned: refused, no row")) << text;
  EXPECT_TRUE(contains(verdict, "Refused: learned")) << verdict;
  EXPECT_TRUE(contains(verdict, "rope has the highest mean accuracy")) << verdict;
}

}  // namespace
}  // namespace torsor::report
