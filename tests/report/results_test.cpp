#include "torsor/report/results.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tests/report/fixture.h"
#include "tests/report/tiny.h"
#include "torsor/base/error.h"

namespace torsor::report {
namespace {

/// The message of the error that parsing throws, or "" when it throws none.
std::string error_of(const Json& document) {
  try {
    parse_results(document, "r.json");
  } catch (const UsageError&) {
    return "a usage error";  // bad data is no wrong usage
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Json small() {
  return tiny_document({{"rope", {{128, {7, 8}}, {256, {9, 9}}}}, {"learned", {{128, {7, 7}}, {256, {-1, -1}}}}});
}

void expect_error(const Json& document, const std::string& part) {
  const std::string message = error_of(document);
  EXPECT_NE(message.find(part), std::string::npos) << "expected '" << part << "' in '" << message << "'";
  EXPECT_EQ(message.rfind("r.json", 0), 0u) << message;
}

TEST(ReportResults, ReadsEverything) {
  FixtureOptions options;
  options.seeds = {3, 4};
  const Results results = parse_results(fixture_document(options));
  ASSERT_EQ(results.runs.size(), 16u);
  EXPECT_EQ(results.runs[3].encoding, "rope");
  EXPECT_EQ(results.runs[8].seed, 4);
  EXPECT_EQ(*results.runs[2].parameters, 819840 + 16384);
  EXPECT_EQ(results.runs[2].eval[1].status, Status::refused);
  EXPECT_EQ(results.runs[0].train.losses.size(), 300u);
  EXPECT_EQ(results.runs[0].train.losses[7].step, 7);
  EXPECT_EQ(results.runs[0].eval[4].windows.size(), 8u);
  EXPECT_EQ(results.runs[0].eval[0].position_loss[1].from, 16);
  EXPECT_EQ(results.effects.size(), 8u);
  EXPECT_EQ(results.effects[4].kind, Effect::Kind::bias);
  EXPECT_EQ(training_length(results), 128);
  EXPECT_EQ(base_encoding(results), "none");
  EXPECT_EQ(encodings_of(results), options.encodings);
  EXPECT_EQ(seeds_of(results), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(lengths_of(results, "lm"), options.lengths);
  EXPECT_TRUE(lengths_of(results, "copy").empty());
}

TEST(ReportResults, DefaultsWithoutConfigOrNone) {
  Json document = small();
  document.erase("config");
  const Results results = parse_results(document);
  EXPECT_EQ(training_length(results), 128);
  EXPECT_EQ(base_encoding(results), "rope");
  EXPECT_EQ(training_length(parse_results(tiny_document({}, 0))), 0);
  EXPECT_EQ(base_encoding(parse_results(tiny_document({}))), "");
}

TEST(ReportResults, ErrorsNameThePlace) {
  Json document = small();
  document["format"] = "torsor-results-2";
  expect_error(document, "format: expected torsor-results-1, got 'torsor-results-2'");
  document = small();
  document.erase("runs");
  expect_error(document, "runs");
  document = small();
  document["runs"][1]["status"] = "fine";
  expect_error(document, "runs[1]: status: expected ok, refused, failed or stopped, got 'fine'");
  document = small();
  document["runs"][1]["seed"] = 0;
  expect_error(document, "runs[1]: expected each encoding and seed once, got 'rope' with seed 0 again");
  document = small();
  document["runs"][0]["seed"] = -1;
  expect_error(document, "seed: expected at least 0, got -1");
  document = small();
  document["runs"][0]["eval"][1]["length"] = 128;
  expect_error(document, "runs[0].eval[1]: expected each task and length once");
  document = small();
  document["runs"][0]["eval"][0]["length"] = 0;
  expect_error(document, "runs[0].eval[0]: length: expected at least 1, got 0");
  document = small();
  document["runs"][0]["eval"][0]["perplexity"] = -3.0;
  expect_error(document, "perplexity");
  document = small();
  document["runs"][0]["eval"][0]["perplexity"] = "low";
  expect_error(document, "perplexity");
  document = small();
  document["runs"][0]["eval"][0]["position_loss"] = Json::parse("[[0, 16, 2.5], [32, 16, 2.5]]");
  expect_error(document, "position_loss[1]: expected 0 <= from < to, got 32 and 16");
  document["runs"][0]["eval"][0]["position_loss"] = Json::parse("[[0, 16]]");
  expect_error(document, "position_loss[0]: expected a list of 3 numbers, got 2 values");
  document = small();
  document["runs"][0]["train"]["losses"] = Json::parse("[[0, 5.5], [0, 5.4]]");
  expect_error(document, "losses[1]: expected a step after 0, got 0");
  document = small();
  document["runs"][0]["eval"][0]["windows"] = {1.5, 2.5};
  document["runs"][1]["eval"][0]["windows"] = {1.5};
  expect_error(document, "runs[1].eval[0].windows: expected 2 losses as in the other runs at length 128, got 1");
  document = small();
  document["effects"] = Json::parse(R"([{"encoding": "a", "kind": "bias", "distances": [0, 1], "per_head": [[0]]}])");
  expect_error(document, "effects[0]: per_head[0]: expected a list of 2 numbers, got 1 values");
  document["effects"][0]["kind"] = "magic";
  expect_error(document, "kind");
  expect_error(Json::array(), "");
  expect_error(Json(3), "");
}

TEST(ReportResults, NumbersThatAreNotFiniteAreEmpty) {
  Json document = small();
  Json& eval = document["runs"][0]["eval"][0];
  eval["perplexity"] = nullptr;
  eval["loss"] = nullptr;
  eval["windows"] = Json::parse("[1.5, null, 2.5]");
  eval["position_loss"] = Json::parse("[[0, 16, null], [16, 32, 2.5]]");
  document["runs"][0]["train"]["losses"] = Json::parse("[[0, 5.5], [1, null]]");
  const Results results = parse_results(document);
  EXPECT_FALSE(results.runs[0].eval[0].perplexity || results.runs[0].eval[0].loss);
  EXPECT_TRUE(results.runs[0].eval[0].windows.empty());
  ASSERT_EQ(results.runs[0].eval[0].position_loss.size(), 1u);
  EXPECT_EQ(results.runs[0].eval[0].position_loss[0].from, 16);
  EXPECT_FALSE(results.runs[0].train.losses[1].loss);
}

TEST(ReportResults, WritingKeepsWhatItDoesNotKnow) {
  Json document = small();
  document["later"] = {{"key", 1}};
  document["runs"][0]["checkpoint"] = "rope-0";
  Results results = parse_results(document);
  summarize(results);
  const Json written = to_json(results);
  EXPECT_EQ(written["later"]["key"], 1);
  EXPECT_EQ(written["runs"][0]["checkpoint"], "rope-0");
  EXPECT_EQ(written["verdict"].size(), results.verdict.size());
  const Results again = parse_results(parse_json(json_text(written), "again"));
  ASSERT_EQ(again.summary.size(), results.summary.size());
  for (std::size_t i = 0; i < again.summary.size(); ++i) {
    EXPECT_EQ(again.summary[i].mean, results.summary[i].mean);
    EXPECT_EQ(again.summary[i].sd, results.summary[i].sd);
    EXPECT_EQ(again.summary[i].n, results.summary[i].n);
    ASSERT_EQ(again.summary[i].difference_to_best.has_value(), results.summary[i].difference_to_best.has_value());
    if (again.summary[i].difference_to_best) {
      EXPECT_EQ(again.summary[i].difference_to_best->low, results.summary[i].difference_to_best->low);
    }
  }
  EXPECT_EQ(again.verdict, results.verdict);
}

}  // namespace
}  // namespace torsor::report
