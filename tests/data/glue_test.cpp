#include "torsor/data/glue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/data/test_files.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

using namespace data_test;

using Labels = std::vector<std::int64_t>;
using Numbers = std::vector<double>;

TEST(GlueMetrics, AgainstHandValues) {
  // TP 2, FP 1, FN 1, TN 2.
  const Labels gold = {1, 1, 1, 0, 0, 0}, predicted = {1, 1, 0, 1, 0, 0};
  EXPECT_DOUBLE_EQ(accuracy_of(predicted, gold).value, 4.0 / 6);
  EXPECT_DOUBLE_EQ(f1_of(predicted, gold).value, 2.0 / 3);
  EXPECT_DOUBLE_EQ(matthews_of(predicted, gold).value, 3.0 / 9);  // (2 2 - 1 1) / sqrt(3 3 3 3)
  EXPECT_DOUBLE_EQ(matthews_of(gold, gold).value, 1);
  EXPECT_DOUBLE_EQ(matthews_of({0, 0, 0, 1, 1, 1}, gold).value, -1);
  EXPECT_DOUBLE_EQ(f1_of({0, 0, 0, 0, 0, 1}, gold).value, 0);
  // x - 2 = -1 0 1, y - 10/3 = -7/3 -1/3 8/3: r = 5 / sqrt(2 * 38/3).
  EXPECT_NEAR(pearson_of({1, 2, 3}, {1, 3, 6}).value, 5 / std::sqrt(2 * 38.0 / 3), 1e-15);
  EXPECT_DOUBLE_EQ(pearson_of({1, 2, 3}, {3, 2, 1}).value, -1);
  EXPECT_DOUBLE_EQ(spearman_of({1, 2, 3, 4}, {1, 10, 100, 1000}).value, 1);
  // Ranks 1 2.5 2.5 4 against 1 2 3 4: covariance 4.5, squares 4.5 and 5.
  EXPECT_NEAR(spearman_of({1, 2, 2, 3}, {1, 2, 3, 4}).value, 4.5 / std::sqrt(4.5 * 5), 1e-15);
  EXPECT_EQ(average_ranks({5, 1, 5, 3, 5}), (Numbers{4, 1, 4, 2, 4}));
}

TEST(GlueMetrics, UndefinedIsZeroAndSaysSo) {
  const auto undefined = [](const Figure& figure) { return !figure.defined && figure.value == 0; };
  EXPECT_TRUE(undefined(f1_of({0, 0}, {0, 0})));
  EXPECT_TRUE(undefined(matthews_of({1, 1}, {0, 1})));
  EXPECT_TRUE(undefined(matthews_of({0, 1}, {1, 1})));
  EXPECT_TRUE(undefined(pearson_of({0.1, 0.1, 0.1}, {1, 2, 3})));
  EXPECT_TRUE(undefined(spearman_of({1, 2, 3}, {2, 2, 2})));
  EXPECT_TRUE(undefined(pearson_of({1, std::numeric_limits<double>::quiet_NaN()}, {1, 2})));
  EXPECT_TRUE(undefined(spearman_of({1, std::numeric_limits<double>::infinity()}, {1, 2})));
  EXPECT_TRUE(f1_of({0, 1}, {0, 0}).defined);
  EXPECT_THROW(accuracy_of({}, {}), Error);
  EXPECT_THROW(pearson_of({1}, {1, 2}), Error);
}

TEST(Glue, ScoresAndTheMeanOfEight) {
  const GlueScore mrpc = score_glue(GlueTask::MRPC, Labels{1, 1, 0, 1, 0, 0}, Labels{1, 1, 1, 0, 0, 0});
  EXPECT_DOUBLE_EQ(mrpc.member, (4.0 / 6 + 2.0 / 3) / 2);
  ASSERT_EQ(mrpc.values.size(), 2U);
  EXPECT_EQ(mrpc.values[1].first, "f1");
  EXPECT_TRUE(mrpc.warnings.empty());
  const GlueScore cola = score_glue(GlueTask::CoLA, Labels{1, 1}, Labels{1, 0});
  EXPECT_EQ(cola.member, 0);
  ASSERT_EQ(cola.warnings.size(), 1U);
  EXPECT_TRUE(contains(cola.warnings[0], "matthews is not defined"));
  const GlueScore sts = score_glue(GlueTask::STSB, Numbers{1, 2, 3}, Numbers{1, 3, 6});
  EXPECT_NEAR(sts.member, (5 / std::sqrt(2 * 38.0 / 3) + 1) / 2, 1e-15);
  EXPECT_THROW(score_glue(GlueTask::STSB, Labels{1}, Labels{1}), Error);
  EXPECT_THROW(score_glue(GlueTask::RTE, Numbers{1}, Numbers{1}), Error);

  std::vector<std::pair<GlueTask, double>> members;
  for (const GlueTask task : {GlueTask::CoLA, GlueTask::SST2, GlueTask::MRPC, GlueTask::QQP, GlueTask::STSB,
                              GlueTask::MNLI, GlueTask::QNLI, GlueTask::WNLI})
    members.emplace_back(task, task == GlueTask::WNLI ? 0.0 : 0.5);
  EXPECT_FALSE(glue_mean(members).complete);  // WNLI does not count, RTE is not there
  EXPECT_EQ(glue_mean(members).tasks, 7U);
  EXPECT_EQ(glue_mean(members).mean, 0.5);
  members.emplace_back(GlueTask::RTE, 1.0);
  EXPECT_TRUE(glue_mean(members).complete);
  EXPECT_EQ(glue_mean(members).mean, 4.5 / 8);
  members.emplace_back(GlueTask::RTE, 1.0);
  EXPECT_THROW(glue_mean(members), Error);
}

TEST(Glue, Names) {
  EXPECT_EQ(glue_task_of("sst-2"), GlueTask::SST2);
  EXPECT_EQ(glue_task_of("CoLA"), GlueTask::CoLA);
  EXPECT_TRUE(contains(message_of<UsageError>([] { glue_task_of("glue"); }), "CoLA, SST-2, MRPC"));
  EXPECT_EQ(glue_file(GlueTask::MNLI, GlueSplit::Dev), "dev_matched.tsv");
  EXPECT_EQ(glue_file(GlueTask::MNLI, GlueSplit::TestMismatched), "test_mismatched.tsv");
  EXPECT_EQ(glue_file(GlueTask::RTE, GlueSplit::Dev), "dev.tsv");
  EXPECT_THROW(glue_file(GlueTask::RTE, GlueSplit::DevMismatched), UsageError);
}

TEST(Glue, QuotesAreOrdinaryAndEndsOfLinesVary) {
  const auto rows =
      glue_from_text(GlueTask::SST2, GlueSplit::Train, "\xEF\xBB\xBFsentence\tlabel\r\nsay \"it\t1\r\n\"\t0", "t");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].first, "say \"it");
  EXPECT_EQ(rows[0].label, 1);
  EXPECT_EQ(rows[1].first, "\"");
  EXPECT_EQ(rows[1].label, 0);
}

TEST(Glue, MalformedRowsAreErrorsWithTheirLine) {
  const auto refused = [](GlueTask task, GlueSplit split, const std::string& text, const std::string& part) {
    const std::string message = message_of<Error>([&] { glue_from_text(task, split, text, "f.tsv"); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  const std::string sst = "sentence\tlabel\n";
  refused(GlueTask::SST2, GlueSplit::Train, sst + "good\t1\nbad\n", "f.tsv:3: expected 2 columns");
  refused(GlueTask::SST2, GlueSplit::Train, sst + "good\t1\t1\n", "f.tsv:2: expected 2 columns");
  refused(GlueTask::SST2, GlueSplit::Train, sst + "good\t2\n", "f.tsv:2: expected a label of 0, 1, found '2'");
  refused(GlueTask::SST2, GlueSplit::Train, sst + "good\t1\n\nbad\t0\n",
          "f.tsv:3: expected a row, found an empty line");
  refused(GlueTask::SST2, GlueSplit::Train, sst + "g\xFFod\t1\n", "f.tsv:2: expected text in UTF-8");
  refused(GlueTask::SST2, GlueSplit::Train, sst, "f.tsv: expected at least one row");
  refused(GlueTask::SST2, GlueSplit::Train, "", "expected at least one row");
  refused(GlueTask::SST2, GlueSplit::Train, "good\t1\n", "f.tsv:1: expected 'sentence' as column 0 of the header");
  refused(GlueTask::SST2, GlueSplit::Test, sst + "good\t1\n", "f.tsv:1: expected 'sentence' as column 1");
  refused(GlueTask::CoLA, GlueSplit::Train, "a\t1\t\n", "f.tsv:1: expected 4 columns");
  refused(GlueTask::RTE, GlueSplit::Dev, "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tmaybe\n",
          "f.tsv:2: expected a label of not_entailment, entailment, found 'maybe'");
  const std::string sts = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n";
  for (const char* score : {"5.1", "-1", "nan", "", "3x"})
    refused(GlueTask::STSB, GlueSplit::Train, sts + "0\tg\tf\t1\t2\tn\tn\ta\tb\t" + score + "\n",
            "f.tsv:2: expected a score from 0 to 5");
}

TEST(Glue, FixturesOfAllNineLayouts) {
  const auto folder = shared_data("glue-layout/format-fixtures");
  if (!folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  struct Expected {
    GlueTask task;
    std::size_t train, dev, test;
    std::string first, second;  // of the last training row
    std::int64_t label;
  };
  const Expected all[] = {
      {GlueTask::CoLA, 8, 4, 2, "She persuaded them leave early to.", "", 0},
      {GlueTask::SST2, 6, 2, 2, "a tiresome mess ", "", 0},
      {GlueTask::MRPC, 3, 2, 1, "She said the plan \" will work \" .", "The plan will work , she said .", 1},
      {GlueTask::QQP, 3, 2, 1, "Why is the sky blue?", "What makes the sky look blue?", 1},
      {GlueTask::STSB, 3, 3, 1, "Two dogs run on a beach.", "Dogs are running near the sea.", -1},
      {GlueTask::MNLI, 3, 3, 1, "All the shops were shut.", "It was a Sunday.", 2},
      {GlueTask::QNLI, 2, 2, 1, "Where was the meeting held?", "About forty people attended.", 0},
      {GlueTask::RTE, 2, 2, 1, "The river flooded three villages last week.", "The river is dry.", 0},
      {GlueTask::WNLI, 2, 1, 1, "The box did not fit in the car because it was too big.", "The car was too big.", 0}};
  for (const Expected& one : all) {
    const GlueInfo& info = glue_info(one.task);
    const std::string path = *folder + "/" + info.name;
    const auto train = load_glue(one.task, GlueSplit::Train, path);
    EXPECT_EQ(train.size(), one.train) << info.name;
    EXPECT_EQ(load_glue(one.task, GlueSplit::Dev, path).size(), one.dev) << info.name;
    const auto test = load_glue(one.task, GlueSplit::Test, path);
    EXPECT_EQ(test.size(), one.test) << info.name;
    EXPECT_EQ(test[0].label, -1);
    EXPECT_EQ(train.back().first, one.first) << info.name;
    EXPECT_EQ(train.back().second, one.second) << info.name;
    EXPECT_EQ(train.back().label, one.label) << info.name;
  }
  EXPECT_EQ(load_glue(GlueTask::MNLI, GlueSplit::DevMismatched, *folder + "/MNLI").size(), 1U);
  EXPECT_EQ(load_glue(GlueTask::MNLI, GlueSplit::TestMismatched, *folder + "/MNLI").size(), 1U);
  EXPECT_DOUBLE_EQ(load_glue(GlueTask::STSB, GlueSplit::Train, *folder + "/STS-B")[1].score, 0.4);
}

TEST(Glue, DerivedTasks) {
  const auto folder = shared_data("glue-layout/derived");
  if (!folder) GTEST_SKIP() << "no shared data; set TORSOR_SHARED";
  EXPECT_EQ(load_glue(GlueTask::CoLA, GlueSplit::Train, *folder + "/acceptability-blimp").size(), 6700U);
  EXPECT_EQ(load_glue(GlueTask::SST2, GlueSplit::Dev, *folder + "/genre-ewt").size(), 600U);
  const auto pairs = load_glue(GlueTask::RTE, GlueSplit::Train, *folder + "/next-sentence-ewt");
  EXPECT_EQ(pairs.size(), 3000U);
  std::size_t entailed = 0;
  for (const GlueExample& pair : pairs) entailed += pair.label == 1 ? 1 : 0;
  EXPECT_EQ(entailed, 1500U);
}

}  // namespace
}  // namespace torsor
