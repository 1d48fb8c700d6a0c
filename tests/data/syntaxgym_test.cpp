#include "torsor/data/syntaxgym.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using namespace data_test;

Json small_suite() {
  return Json::parse(R"json({
    "meta": {"name": "number_test", "metric": "sum", "author": "nobody"},
    "region_meta": {"1": "intro", "2": "verb", "3": "end"},
    "predictions": [{"type": "formula", "formula": "(2;%match%) < (2;%mismatch%)"}],
    "items": [{"item_number": 1, "conditions": [
      {"condition_name": "match", "regions": [{"region_number": 1, "content": " The  author"},
        {"region_number": 2, "content": "is "}, {"region_number": 3, "content": "good ."}]},
      {"condition_name": "mismatch", "regions": [{"region_number": 1, "content": "The author"},
        {"region_number": 2, "content": ""}, {"region_number": 3, "content": ", good"}]}]}]
})json");
}

TEST(SyntaxGym, SentencesAndTheirRegions) {
  Suite suite = suite_from_json(small_suite(), "test");
  const SuiteSentence first = suite_sentence(suite, suite.items[0].conditions[0]);
  EXPECT_EQ(first.text, "The author is good .");
  // The joining space belongs to the region behind it.
  EXPECT_EQ(first.regions, (std::vector<ByteRange>{{0, 10}, {10, 13}, {13, 20}}));
  const SuiteSentence second = suite_sentence(suite, suite.items[0].conditions[1]);
  EXPECT_EQ(second.text, "The author , good");
  EXPECT_EQ(second.regions, (std::vector<ByteRange>{{0, 10}, {10, 10}, {10, 17}}));
  EXPECT_EQ(suite_sentence(suite, suite.items[0].conditions[1], true).text, "The author , good.");
  EXPECT_EQ(suite_sentence(suite, suite.items[0].conditions[1], true).regions, second.regions);
  EXPECT_EQ(suite_sentence(suite, suite.items[0].conditions[0], true).text, first.text);
  suite.attach_marks = true;
  EXPECT_EQ(suite_sentence(suite, suite.items[0].conditions[1]).text, "The author, good");
}

TEST(SyntaxGym, ATokenBelongsWhereItsFirstVisibleByteLies) {
  const Suite suite = suite_from_json(small_suite(), "test");
  const SuiteSentence sentence = suite_sentence(suite, suite.items[0].conditions[0]);
  // "The", " auth", "or is", " ", " good" (overlaps the blank), "" and the rest.
  const std::vector<ByteRange> tokens = {{0, 3}, {3, 8}, {8, 13}, {13, 14}, {13, 18}, {0, 0}, {18, 20}};
  EXPECT_EQ(regions_of_tokens(sentence, tokens), (std::vector<std::int64_t>{0, 0, 0, -1, 2, -1, 2}));
  const std::vector<double> surprisals = {1, 2, 4, 100, 8, 100, 16};
  EXPECT_EQ(region_values(RegionMetric::Sum, sentence, tokens, surprisals), (std::vector<double>{7, 0, 24}));
  EXPECT_EQ(region_values(RegionMetric::Range, sentence, tokens, surprisals), (std::vector<double>{3, 0, 8}));
  EXPECT_THROW(regions_of_tokens(sentence, std::vector<ByteRange>{{0, 21}}), Error);
  EXPECT_THROW(region_values(RegionMetric::Sum, sentence, tokens, std::vector<double>{1}), Error);
}

TEST(SyntaxGym, MetricsOfARegion) {
  const std::vector<double> four = {4, 1, 3, 2}, three = {9, 1, 2}, none;
  EXPECT_EQ(region_value(RegionMetric::Sum, four), 10);
  EXPECT_EQ(region_value(RegionMetric::Mean, four), 2.5);
  EXPECT_EQ(region_value(RegionMetric::Median, four), 2.5);
  EXPECT_EQ(region_value(RegionMetric::Median, three), 2);
  EXPECT_EQ(region_value(RegionMetric::Range, four), 3);
  EXPECT_EQ(region_value(RegionMetric::Max, four), 4);
  EXPECT_EQ(region_value(RegionMetric::Min, four), 1);
  for (const char* name : {"sum", "mean", "median", "range", "max", "min"}) {
    EXPECT_EQ(region_metric_name(region_metric_of(name)), name);
    EXPECT_EQ(region_value(region_metric_of(name), none), 0);
  }
  EXPECT_THROW(region_metric_of("average"), Error);
}

TEST(SyntaxGym, ScoresAndCircuits) {
  const Suite suite = suite_from_json(small_suite(), "test");
  const SuiteResult right = score_suite(suite, {{{9, 1, 9}, {0, 2, 0}}});
  EXPECT_EQ(right.accuracy(), 1);
  EXPECT_EQ(right.circuit, "Agreement");
  EXPECT_EQ(score_suite(suite, {{{9, 2, 9}, {0, 2, 0}}}).accuracy(), 0);
  EXPECT_THROW(score_suite(suite, {{{9, 2}, {0, 2, 0}}}), Error);
  EXPECT_THROW(score_suite(suite, {}), Error);
  SuiteResult other{"fgd-embed3", "Long-Distance Dependencies", counted_suite("fgd-embed3"), {{false, false}}};
  SuiteResult second{"number_x", "Agreement", true, {{false, true}, {true, true}}};
  const SuiteSummary summary = summarize_suites(std::vector<SuiteResult>{right, other, second});
  EXPECT_EQ(summary.suites, 2U);
  EXPECT_EQ(summary.mean, 0.75);  // first predictions only
  EXPECT_EQ(summary.circuits.size(), 1U);
  EXPECT_EQ(summary.circuits.at("Agreement").mean, 0.75);
  EXPECT_EQ(summarize_suites({}).suites, 0U);
}

TEST(SyntaxGym, WhatIsNoSuiteIsRefused) {
  const auto refused = [](const std::string& path, const Json& value, const std::string& part) {
    Json json = small_suite();
    json[Json::json_pointer(path)] = value;
    const std::string message = message_of<Error>([&] { suite_from_json(json, "s.json"); });
    EXPECT_TRUE(contains(message, "s.json") && contains(message, part)) << path << ": " << message;
  };
  refused("/meta/name", "", "name must not be empty");
  refused("/meta/metric", "average", "metric must be sum");
  refused("/region_meta/x", "name", "names by the number");
  refused("/items", Json::array(), "at least one");
  refused("/items/0/conditions", Json::array(), "at least one");
  refused("/items/0/conditions/1/condition_name", "match", "is there twice");
  refused("/items/0/conditions/0/regions/1/region_number", 1, "region_number 1 is there twice");
  refused("/items/0/conditions/0/regions/1/content", 3, "content");
  refused("/items/0/conditions/0/regions/1/colour", "red", "colour");
  refused("/items/0/conditions/0/regions", Json::array(), "expected a list of regions");
  refused("/items/1", Json::parse(R"({"item_number": 1, "conditions": []})"), "at least one");
  refused("/predictions/0/type", "region", "type must be formula");
  refused("/predictions/0/formula", "(2;%match%) <", "column 14");
  refused("/predictions/0/formula", "(4;%match%) < 1", "column 1: item 1 has no region 4 under 'match'");
  refused("/predictions/0/formula", "1 > (2;%other%)", "column 5: item 1 has no condition 'other'");
  Json empty = small_suite();
  for (int r = 0; r < 3; ++r) empty["items"][0]["conditions"][1]["regions"][r]["content"] = " ";
  EXPECT_TRUE(contains(message_of<Error>([&] { suite_from_json(empty, "s"); }), "expected a sentence"));
  Json twice = small_suite();
  twice["items"].push_back(twice["items"][0]);
  EXPECT_TRUE(contains(message_of<Error>([&] { suite_from_json(twice, "s"); }), "item_number 1 is there twice"));
  EXPECT_THROW(suite_from_json(Json::array(), "s"), Error);
}

TEST(SyntaxGym, TreesMustFitTheirSentence) {
  const auto with = [](const char* tree) {
    Json json = small_suite();
    json["items"][0]["conditions"][0]["tree"] = Json::parse(tree);
    return json;
  };
  const Suite suite = suite_from_json(with(R"({"words": [[0, 3], [4, 10], [11, 13], [14, 18]], "heads": [2, 4, 4, 0],
               "relations": ["det", "nsubj", "cop", "root"]})"),
                                      "s");
  ASSERT_TRUE(suite.items[0].conditions[0].tree);
  EXPECT_EQ(suite.items[0].conditions[0].tree->tree.words[1], "author");
  const auto refused = [&](const char* tree, const char* part) {
    EXPECT_TRUE(contains(message_of<Error>([&] { suite_from_json(with(tree), "s"); }), part)) << tree;
  };
  refused(R"({"words": [[0, 3], [2, 10]], "heads": [2, 0], "relations": ["det", "root"]})", "rising pairs");
  refused(R"({"words": [[0, 3], [4, 21]], "heads": [2, 0], "relations": ["det", "root"]})", "rising pairs");
  refused(R"({"words": [[0, 3], [4]], "heads": [2, 0], "relations": ["det", "root"]})", "rising pairs");
  refused(R"({"words": [[0, 3]], "heads": [2], "relations": ["det"]})", "tree");
  // What was written reads back.
  const Suite again = suite_from_json(suite_to_json(suite), "again");
  EXPECT_EQ(suite_to_json(again), suite_to_json(suite));
  EXPECT_EQ(again.items[0].conditions[0].tree->words, suite.items[0].conditions[0].tree->words);
}

TEST(SyntaxGym, Folders) {
  TemporaryFolder folder;
  folder.write("b.json", json_text(small_suite()));
  EXPECT_EQ(load_suites({folder.path()}).size(), 1U);
  folder.write("a.json", json_text(small_suite()));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_suites({folder.path()}); }), "two suites have the name"));
  EXPECT_THROW(load_suites({folder.path("none.json")}), Error);
  TemporaryFolder empty;
  EXPECT_TRUE(contains(message_of<Error>([&] { load_suites({empty.path()}); }), "found none"));
}

// The made-up surprisals of the golden files (their README has the rule).
double pseudo(std::int64_t item, std::size_t condition, const SuiteRegion& region) {
  const auto sum = item * 7919 + static_cast<std::int64_t>(condition) * 104729 + region.number * 1299709 +
                   17 * static_cast<std::int64_t>(region.content.size());
  return static_cast<double>(sum % 1009) / 64;
}

TEST(SyntaxGym, PublishedSuitesScoreAsTheGoldenFilesSay) {
  const auto suites_folder = shared_data("syntaxgym/suites"), golden = shared_data("golden/syntaxgym");
  if (!suites_folder || !golden) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  const std::vector<Suite> suites = load_suites({*suites_folder});
  ASSERT_EQ(suites.size(), 34U);
  std::size_t sentences = 0, empty = 0, stray = 0;
  std::vector<SuiteResult> results;
  std::ostringstream table;
  for (const Suite& suite : suites) {
    SuiteValues values;
    for (const SuiteItem& item : suite.items) {
      auto& of_item = values.emplace_back();
      for (std::size_t c = 0; c < item.conditions.size(); ++c) {
        auto& of_condition = of_item.emplace_back();
        for (const SuiteRegion& region : item.conditions[c].regions)
          of_condition.push_back(pseudo(item.number, c, region));
        ++sentences;
        const SuiteSentence sentence = suite_sentence(suite, item.conditions[c]);
        EXPECT_EQ(sentence.text.find("  "), std::string::npos);
        bool has_empty = false, has_stray = false;
        for (std::size_t r = 0; r < sentence.regions.size(); ++r) {
          const std::string& content = item.conditions[c].regions[r].content;
          has_empty = has_empty || sentence.regions[r].begin == sentence.regions[r].end;
          has_stray = has_stray || content.starts_with(' ') || content.ends_with(' ') || contains(content, "  ");
          EXPECT_EQ(sentence.regions[r].begin, r == 0 ? 0 : sentence.regions[r - 1].end);
        }
        EXPECT_EQ(sentence.regions.back().end, sentence.text.size());
        empty += has_empty ? 1 : 0, stray += has_stray ? 1 : 0;
      }
    }
    results.push_back(score_suite(suite, values));
    for (std::size_t p = 0; p < suite.predictions.size(); ++p) {
      const std::vector<bool>& correct = results.back().correct[p];
      table << suite.name << '\t' << p << '\t' << correct.size() << '\t'
            << std::count(correct.begin(), correct.end(), true) << '\t';
      for (std::size_t i = 0; i < correct.size() && i < 20; ++i) table << correct[i];
      table << '\n';
    }
  }
  EXPECT_EQ(sentences, 3304U);
  EXPECT_EQ(empty, 678U);
  EXPECT_EQ(stray, 398U);
  std::ifstream file(*golden + "/pseudo-surprisal-expected.tsv");
  std::string header, expected;
  std::getline(file, header);
  for (std::string line; std::getline(file, line);) expected += line + "\n";
  EXPECT_EQ(table.str(), expected);
  const Json summary_expected = read_json(*golden + "/pseudo-surprisal-summary.json");
  const SuiteSummary summary = summarize_suites(results);
  EXPECT_EQ(summary.suites, summary_expected.at("suites_counted").get<std::size_t>());
  EXPECT_EQ(summary.suites, 31U);
  // Sums of ratios in another order: a few units in the last place.
  EXPECT_NEAR(summary.mean, summary_expected.at("mean_over_31_suites_first_prediction").get<double>(), 1e-14);
  const Json& circuits = summary_expected.at("circuit_means");
  EXPECT_EQ(summary.circuits.size(), circuits.size());
  for (const auto& [name, pair] : circuits.items()) {
    EXPECT_EQ(summary.circuits.at(name).suites, pair[0].get<std::size_t>()) << name;
    EXPECT_NEAR(summary.circuits.at(name).mean, pair[1].get<double>(), 1e-14) << name;
  }
}

TEST(SyntaxGym, RegionValuesOfRealSurprisalsEqualThePublishedOnes) {
  const auto folder = shared_data("syntaxgym/core-samples");
  if (!folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  std::size_t compared = 0;
  Json input = read_json(*folder + "/test_in.json");
  input.erase("predictions");  // of an older kind, without formulas
  const Suite suite = suite_from_json(input, "test_in.json");
  EXPECT_EQ(suite.metric, RegionMetric::Sum);  // "all"
  for (const char* model : {"grnn", "transformer-xl"}) {
    // sentence, token, text, surprisal
    std::vector<std::vector<std::pair<std::string, double>>> tokens(5);
    std::ifstream file(*folder + "/test_surp_" + model + ".txt");
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::size_t sentence = 0, token = 0;
      std::string text;
      double surprisal = 0;
      fields >> sentence >> token >> text >> surprisal;
      tokens.at(sentence).emplace_back(text, surprisal);
    }
    const Json out = read_json(*folder + "/test_out_" + model + ".json");
    EXPECT_EQ(suite_from_json(out, "out").items.size(), suite.items.size());  // values in a suite are passed over
    std::size_t number = 0;
    for (std::size_t i = 0; i < suite.items.size(); ++i)
      for (std::size_t c = 0; c < suite.items[i].conditions.size(); ++c) {
        const SuiteSentence sentence = suite_sentence(suite, suite.items[i].conditions[c]);
        std::vector<ByteRange> spans;
        std::vector<double> surprisals;
        std::size_t at = 0;
        for (const auto& [text, surprisal] : tokens.at(++number)) {
          const std::size_t found = sentence.text.find(text, at);
          const bool special = text.starts_with('<');
          ASSERT_TRUE(special || found != std::string::npos) << text;
          // The published program counts the end mark, at 0 bits, in the last region.
          spans.push_back(special ? ByteRange{sentence.text.size() - 1, sentence.text.size()}
                                  : ByteRange{found, found + text.size()});
          if (!special) at = found + text.size();
          surprisals.push_back(surprisal);
        }
        for (const char* metric : {"sum", "mean", "median", "range", "max", "min"}) {
          const std::vector<double> values = region_values(region_metric_of(metric), sentence, spans, surprisals);
          const Json& regions = out["items"][i]["conditions"][c]["regions"];
          ASSERT_EQ(values.size(), regions.size());
          for (std::size_t r = 0; r < values.size(); ++r, ++compared)
            EXPECT_NEAR(values[r], regions[r]["metric_value"][metric].get<double>(), 1e-12)
                << model << " " << metric << " sentence " << number << " region " << r;
        }
      }
  }
  EXPECT_EQ(compared, 2U * 4 * 6 * 6);
}

}  // namespace
}  // namespace torsor
