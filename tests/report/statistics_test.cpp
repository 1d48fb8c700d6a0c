#include "torsor/report/statistics.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/report/fixture.h"
#include "tests/report/tiny.h"
#include "torsor/base/error.h"

namespace torsor::report {
namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<Sample> values(const std::vector<double>& list) {
  std::vector<Sample> samples;
  for (const double value : list) samples.push_back({value, 1, {}});
  return samples;
}

TEST(ReportStatistics, MeanDeviationQuantile) {
  EXPECT_DOUBLE_EQ(mean_of({1, 2, 6}), 3);
  EXPECT_THROW(mean_of({}), Error);
  EXPECT_DOUBLE_EQ(*sd_of({1, 2, 6}), std::sqrt(7.0));  // (4 + 1 + 9) / 2
  EXPECT_FALSE(sd_of({1}).has_value());
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 5}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 5}, 0), 1);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 5}, 1), 5);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 5}, 0.9), 4.4);
  EXPECT_THROW(quantile({}, 0.5), Error);
  EXPECT_THROW(quantile({1}, 1.5), Error);
}

// Three seeds with differences 1, 2, 3: the mean is 1 in one of 27 draws (3.7 %), so the 2.5 % quantile is 1.
TEST(ReportBootstrap, ThreeSeedsByHand) {
  const Interval interval = paired_bootstrap(Metric::loss, values({11, 22, 33}), values({10, 20, 30}));
  EXPECT_DOUBLE_EQ(interval.mean, 2);
  EXPECT_DOUBLE_EQ(*interval.low, 1);
  EXPECT_DOUBLE_EQ(*interval.high, 3);
}

// Four seeds with differences 1..4: means up to 1.25 come in 5 of 256 draws (2.0 %), up to 1.5 in 15 (5.9 %).
TEST(ReportBootstrap, FourSeedsByHand) {
  const Interval interval =
      paired_bootstrap(Metric::loss, values({1, 2, 3, 4}), values({0, 0, 0, 0}), {.replicates = 20000});
  EXPECT_DOUBLE_EQ(interval.mean, 2.5);
  EXPECT_DOUBLE_EQ(*interval.low, 1.5);
  EXPECT_DOUBLE_EQ(*interval.high, 3.5);
}

TEST(ReportBootstrap, PairingCancelsWhatSeedsAndWindowsShare) {
  const Interval seeds = paired_bootstrap(Metric::loss, values({1.5, 7.5, 100.5}), values({1, 7, 100}));
  EXPECT_DOUBLE_EQ(*seeds.low, 0.5);
  EXPECT_DOUBLE_EQ(*seeds.high, 0.5);
  const Sample a{2.5, 2.5, {0.5, 2.5, 4.5}}, b{2, 2, {0, 2, 4}};
  const Interval windows = paired_bootstrap(Metric::loss, {a}, {b});
  EXPECT_NEAR(*windows.low, 0.5, 1e-12);
  EXPECT_NEAR(*windows.high, 0.5, 1e-12);
}

// Two windows whose losses differ by 0 and 1: a quarter of the draws has 0 twice, a quarter 1 twice.
TEST(ReportBootstrap, WindowsOfOneSeedByHand) {
  const Interval interval = paired_bootstrap(Metric::loss, {{2, 2, {1, 3}}}, {{1.5, 1.5, {1, 2}}});
  EXPECT_DOUBLE_EQ(interval.mean, 0.5);
  EXPECT_NEAR(*interval.low, 0, 1e-12);
  EXPECT_NEAR(*interval.high, 1, 1e-12);
}

TEST(ReportBootstrap, PerplexityMovesByTheExponentOfTheLoss) {
  const double base = std::log(8.0), two = std::log(2.0);
  const Interval interval =
      paired_bootstrap(Metric::perplexity, {{8, base, {base - two, base + two}}}, {{8, base, {base, base}}});
  EXPECT_DOUBLE_EQ(interval.mean, 0);
  EXPECT_NEAR(*interval.low, 4 - 8, 1e-9);
  EXPECT_NEAR(*interval.high, 16 - 8, 1e-9);
}

TEST(ReportBootstrap, BitsPerByteMoveInProportionToTheLoss) {
  const Interval interval = paired_bootstrap(Metric::bits_per_byte, {{2, 1, {0.5, 1.5}}}, {{2, 1, {1, 1}}});
  EXPECT_NEAR(*interval.low, -1, 1e-9);
  EXPECT_NEAR(*interval.high, 1, 1e-9);
}

TEST(ReportBootstrap, SeedsAndWindowsBothWiden) {
  const std::vector<Sample> flat = {{0, 0, {0, 0}}, {0, 0, {0, 0}}, {0, 0, {0, 0}}};
  const std::vector<Sample> both = {{1, 1, {0, 2}}, {2, 2, {1, 3}}, {3, 3, {2, 4}}};
  const Interval interval = paired_bootstrap(Metric::loss, both, flat);
  EXPECT_LT(*interval.low, 1);
  EXPECT_GT(*interval.low, 0);
  EXPECT_GT(*interval.high, 3);
}

TEST(ReportBootstrap, NeighbouringWindowsAreOneBlock) {
  Sample a{0, 1, {}}, b{0, 1, {}};
  for (int i = 0; i < 512; ++i) {  // neighbours cancel: nothing is left to resample
    a.windows.push_back(i % 2 == 0 ? 1 : -1);
    b.windows.push_back(0);
  }
  const Interval interval = paired_bootstrap(Metric::loss, {a}, {b});
  EXPECT_NEAR(*interval.low, 0, 1e-12);
  EXPECT_NEAR(*interval.high, 0, 1e-12);
}

TEST(ReportBootstrap, WithoutAnythingToResampleThereIsNoInterval) {
  const Interval interval = paired_bootstrap(Metric::loss, values({3}), values({1}));
  EXPECT_DOUBLE_EQ(interval.mean, 2);
  EXPECT_FALSE(interval.low || interval.high);
  EXPECT_FALSE(paired_bootstrap(Metric::loss, {{3, 3, {3}}}, {{1, 1, {1}}}).low);  // one window
}

TEST(ReportBootstrap, SameSeedSameInterval) {
  const std::vector<Sample> a = values({1, 2.5, 3.25, 7, 8, 9.1, 4.7, 2.3, 6.6}),
                            b = values({0, 1, 2, 3, 4, 5, 6, 7, 8});
  const Interval first = paired_bootstrap(Metric::loss, a, b, {.replicates = 300});
  EXPECT_EQ(*first.low, *paired_bootstrap(Metric::loss, a, b, {.replicates = 300}).low);
  EXPECT_NE(*first.low, *paired_bootstrap(Metric::loss, a, b, {.replicates = 300, .seed = 1}).low);
}

TEST(ReportBootstrap, RefusesWhatCannotBePaired) {
  EXPECT_THROW(paired_bootstrap(Metric::loss, values({1, 2}), values({1})), Error);
  EXPECT_THROW(paired_bootstrap(Metric::loss, {}, {}), Error);
  EXPECT_THROW(paired_bootstrap(Metric::loss, {{1, 1, {1, 2}}}, {{1, 1, {1, 2, 3}}}), Error);
}

TEST(ReportSummary, RowsByHand) {
  const Results results = tiny_results({{"rope", {{128, {7, 8, 9}}}}, {"alibi", {{128, {9, 11, 10}}}}});
  const SummaryRow* rope = find_summary(results, "rope", "lm", 128, "perplexity");
  ASSERT_NE(rope, nullptr);
  EXPECT_DOUBLE_EQ(*rope->mean, 8);
  EXPECT_DOUBLE_EQ(*rope->sd, 1);
  EXPECT_EQ(rope->n, 3);
  EXPECT_DOUBLE_EQ(rope->difference_to_best->mean, 0);
  EXPECT_DOUBLE_EQ(*rope->difference_to_best->high, 0);
  const SummaryRow* alibi = find_summary(results, "alibi", "lm", 128, "perplexity");
  EXPECT_DOUBLE_EQ(alibi->difference_to_best->mean, 2);  // 2, 3, 1
  EXPECT_DOUBLE_EQ(*alibi->difference_to_best->low, 1);
  EXPECT_DOUBLE_EQ(*alibi->difference_to_best->high, 3);
  const SummaryRow* loss = find_summary(results, "rope", "lm", 128, "loss");
  EXPECT_NEAR(*loss->mean, (std::log(7.0) + std::log(8.0) + std::log(9.0)) / 3, 1e-12);
  EXPECT_EQ(find_summary(results, "rope", "lm", 128, "bits_per_byte"), nullptr);  // nobody measured it
}

TEST(ReportSummary, AFigureThatIsNotFiniteIsNotLeftOut) {
  const Results results = tiny_results({{"a", {{128, {5, 5, kNan}}}}, {"b", {{128, {6, 6, 6}}}}});
  const SummaryRow* a = find_summary(results, "a", "lm", 128, "perplexity");
  EXPECT_FALSE(a->mean || a->sd || a->difference_to_best);
  EXPECT_EQ(a->n, 3);
  EXPECT_EQ(best_of(results, "lm", 128, "perplexity")->encoding, "b");
}

TEST(ReportSummary, DifferencesUseTheSeedsThatBothHave) {
  const Results results = tiny_results({{"a", {{128, {5, 6, 7}}}}, {"b", {{128, {5.5, 0, 8}}}}});
  const SummaryRow* b = find_summary(results, "b", "lm", 128, "perplexity");
  EXPECT_EQ(b->n, 2);
  EXPECT_DOUBLE_EQ(*b->mean, 6.75);
  EXPECT_DOUBLE_EQ(b->difference_to_best->mean, 0.75);  // 0.5 and 1, not 6.75 - 6
  EXPECT_EQ(best_of(results, "lm", 128, "perplexity")->pairs, 2);
  EXPECT_FALSE(best_of(results, "lm", 128, "perplexity")->shown);
}

TEST(ReportSummary, ShownOnlyWithThreeSeedsAndAnIntervalAboveZero) {
  const auto shown = [](const TinyCurves& curves) {
    return best_of(tiny_results(curves), "lm", 128, "perplexity")->shown;
  };
  EXPECT_TRUE(shown({{"a", {{128, {5, 6, 7}}}}, {"b", {{128, {5.5, 6.5, 7.5}}}}}));
  EXPECT_FALSE(shown({{"a", {{128, {5, 6}}}}, {"b", {{128, {9, 9}}}}}));
  EXPECT_FALSE(shown({{"a", {{128, {5, 6, 7}}}}, {"b", {{128, {4.9, 8, 9}}}}}));  // one seed goes the other way
  EXPECT_FALSE(shown({{"a", {{128, {5, 6, 7}}}}}));
  EXPECT_FALSE(shown({{"a", {{128, {5, 6, 7}}}}, {"b", {{128, {5, 6, 7}}}}}));
}

using Sentences = std::vector<std::string>;

TEST(ReportVerdict, ThreeSeeds) {
  const Results results = tiny_results({{"none", {{128, {11, 11, 11}}, {256, {11, 11, 11}}}},
                                        {"rope", {{128, {7, 7.1, 7.2}}, {256, {14, 14.1, 14.2}}}},
                                        {"alibi", {{128, {8, 8.1, 8.2}}, {256, {8.1, 8.2, 8.3}}}}});
  EXPECT_EQ(results.verdict,
            (Sentences{
                "rope has the lowest perplexity at the training length (7.10 \u00b1 0.10 at 128), alibi at the longest "
                "(8.20 \u00b1 0.10 at 256).",
                "At 128 the lead of rope over the runner-up alibi is shown: 1.0, 95 % interval 1.00 to 1.00.",
                "At 256 the lead of alibi over the runner-up none is shown: 2.8, 95 % interval 2.70 to 2.90.",
                "Flat up to 256 (within 5 % of the perplexity at 128): none and alibi.",
                "Rising by 256: rope from 7.10 to 14.1 (+99 %)."}));
}

TEST(ReportVerdict, NoDifferenceShown) {
  const Results results = tiny_results({{"a", {{128, {5, 6, 7}}}}, {"b", {{128, {4.9, 8, 9}}}}});
  ASSERT_EQ(results.verdict.size(), 2u);
  EXPECT_EQ(results.verdict[0], "a has the lowest perplexity at the training length (6.0 \u00b1 1.0 at 128).");
  EXPECT_EQ(results.verdict[1],
            "At 128 no difference shown between a and the runner-up b: 1.3, 95 % interval -0.1 to 2.0.");
}

TEST(ReportVerdict, OneSeedShowsDirection) {
  const Results results = tiny_results({{"a", {{128, {5}}, {256, {5}}}}, {"b", {{128, {6}}, {256, {9}}}}});
  EXPECT_EQ(
      results.verdict,
      (Sentences{
          "a has the lowest perplexity, both at the training length (5.00 at 128) and at the longest (5.00 at 256).",
          "One seed only shows direction: no difference counts as shown with fewer than 3 seeds.",
          "At 128 a is 1.0 below the runner-up b.", "At 256 a is 4.0 below the runner-up b.",
          "Flat up to 256 (within 5 % of the perplexity at 128): a.", "Rising by 256: b from 6.00 to 9.00 (+50 %)."}));
}

TEST(ReportVerdict, FlatIsWithinFivePercent) {
  const Results results = tiny_results({{"in", {{128, {10}}, {256, {10.5}}}},
                                        {"out", {{128, {10}}, {256, {10.51}}}},
                                        {"down", {{128, {10}}, {256, {9.4}}}},
                                        {"far", {{128, {10}}, {256, {40}}}}});
  EXPECT_EQ(results.verdict[4], "Flat up to 256 (within 5 % of the perplexity at 128): in.");
  EXPECT_EQ(results.verdict[5], "Rising by 256: far from 10.0 to 40.0 (times 4.0) and out from 10.0 to 10.5 (+5.1 %).");
  EXPECT_EQ(results.verdict[6], "Falling by 256: down from 10.0 to 9.40 (-6.0 %).");
}

TEST(ReportVerdict, RefusalsFailuresAndInfinities) {
  const Results results = tiny_results({{"learned", {{128, {7}}, {256, {-1}}, {512, {-1}}}},
                                        {"b", {{128, {8}}, {256, {8}}, {512, {kNan}}}},
                                        {"c", {{128, {9}}, {256, {0}}, {512, {9}}}}});
  const Sentences& verdict = results.verdict;
  EXPECT_EQ(verdict[0],
            "learned has the lowest perplexity at the training length (7.00 at 128), c at the longest (9.00 at 512).");
  const Sentences tail(verdict.end() - 4, verdict.end());
  EXPECT_EQ(tail,
            (Sentences{"Flat up to 512 (within 5 % of the perplexity at 128): c.", "No longer finite: b at 512.",
                       "Refused: learned 256 and longer (no row).", "Failed: c with seed 0 at 256 (out of memory)."}));
}

TEST(ReportVerdict, OddCasesHaveWords) {
  EXPECT_EQ(tiny_results({}).verdict, Sentences{"Nothing was run."});
  EXPECT_EQ(tiny_results({{"a", {{128, {5}}}}}).verdict.back(),
            "Only one encoding was run: there is nothing to compare it with.");
  EXPECT_EQ(tiny_results({{"a", {{128, {kNan}}}}}).verdict[0], "No run gave a finite perplexity.");
  EXPECT_EQ(tiny_results({{"a", {{256, {5}}}}, {"b", {{256, {6}}}}}).verdict[0],
            "a has the lowest perplexity at the shortest length (5.00 at 256).");  // 128 was not evaluated
  Json document = tiny_document({});
  document["runs"] = Json::parse(R"([{"encoding": "a", "seed": 0, "status": "failed", "reason": "no\nspace"}])");
  Results results = parse_results(document);
  summarize(results);
  EXPECT_EQ(results.verdict, (Sentences{"No run was evaluated.", "Failed: a with seed 0 (no space)."}));
}

TEST(ReportVerdict, SeveralTasksAreNamed) {
  Json document = tiny_document({{"a", {{128, {5}}}}, {"b", {{128, {6}}}}});
  for (Json& run : document["runs"]) {
    Json copy = run["eval"][0];
    copy["task"] = "copy";
    run["eval"].push_back(copy);
  }
  Results results = parse_results(document);
  summarize(results);
  EXPECT_EQ(results.verdict[0], "lm: a has the lowest perplexity at the training length (5.00 at 128).");
  EXPECT_EQ(results.verdict[3], "copy: a has the lowest perplexity at the training length (5.00 at 128).");
}

TEST(ReportSummary, FixtureIsRepeatable) {
  FixtureOptions options;
  options.seeds = {0, 1, 2};
  Results first = parse_results(fixture_document(options)), second = first;
  summarize(first);
  summarize(second);
  EXPECT_EQ(json_text(to_json(first)), json_text(to_json(second)));
  EXPECT_EQ(first.summary.size(), 3u * (8 * 5 - 4));  // learned refuses four lengths
  EXPECT_TRUE(best_of(first, "lm", 128, "perplexity")->shown);
}

}  // namespace
}  // namespace torsor::report
