// Syntax beside its base and its controls, by hand.
#include "torsor/report/syntax_pairs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/test_folder.h"
#include "torsor/report/results.h"

namespace torsor::report {
namespace {

Json run_of(const std::string& encoding, int seed, const Json& lm, double accuracy) {
  Json entry = {{"task", "lm"}, {"length", 128}, {"status", "ok"}};
  entry.update(lm);
  return {{"encoding", encoding},
          {"seed", seed},
          {"status", "ok"},
          {"eval", {entry, {{"task", "syntax"}, {"length", 128}, {"status", "ok"}, {"accuracy", accuracy}}}}};
}

Json perplexity(double value) { return {{"perplexity", value}, {"loss", std::log(value)}}; }

Results results() {
  Json runs = Json::array();
  const double base[] = {10, 11, 12}, ours[] = {9.9, 10.78, 11.88}, mixed[] = {10.1, 11, 12};
  for (int seed = 0; seed < 3; ++seed) {
    runs.push_back(run_of("txl", seed, perplexity(base[seed]), 0.5));
    runs.push_back(run_of("sipe(txl)", seed, perplexity(ours[seed]), 0.5 + 0.1 * seed));
    runs.push_back(run_of("sipe(txl) @ shuffled", seed, perplexity(mixed[seed]), 0.5));
    Json oracle =
        run_of("sipe(txl, mode=oracle)", seed,
               {{"perplexity", nullptr}, {"cond_ppl", 5.0}, {"joint_ppl", 2 * base[seed]}, {"leaks", true}}, 0.9);
    oracle["syntax"] = {{"mode", "oracle"},    {"leaks", true},
                        {"prior", "hexatags"}, {"parser", {{"backend", "gold"}}},
                        {"gate", "not asked"}, {"domains", Json::array()},
                        {"coverage", 1.0},     {"tokens", 9},
                        {"sentences", 3},      {"unparsed", 0},
                        {"repaired", 0},       {"multi_word_tokens", 0}};
    runs.push_back(oracle);
  }
  return parse_results({{"format", "torsor-results-1"}, {"runs", runs}});
}

TEST(SyntaxPairs, AreDifferencesSeedBySeed) {
  const std::vector<SyntaxPair> pairs = syntax_pairs(results());
  ASSERT_EQ(pairs.size(), 8u);
  // sipe(txl) beside txl: -1, -2 and -1 %.
  EXPECT_EQ(pairs[0].encoding, "sipe(txl)");
  EXPECT_EQ(pairs[0].beside, "txl");
  EXPECT_EQ(pairs[0].figure, "perplexity at 128 (%)");
  EXPECT_NEAR(pairs[0].mean, -4.0 / 3, 1e-9);
  EXPECT_NEAR(*pairs[0].sd, std::sqrt(1.0 / 3), 1e-9);
  EXPECT_NEAR(*pairs[0].smallest, 4.3027 * std::sqrt(1.0 / 3) / std::sqrt(3.0), 1e-9);  // 1.434: not shown
  EXPECT_FALSE(pairs[0].shown());
  EXPECT_EQ(pairs[1].figure, "syntax accuracy (points)");
  EXPECT_NEAR(pairs[1].mean, 10, 1e-9);
  EXPECT_NEAR(*pairs[1].sd, 10, 1e-9);
  // Beside its control.
  EXPECT_EQ(pairs[2].beside, "sipe(txl) @ shuffled");
  EXPECT_NEAR(pairs[2].differences[0], 100 * (9.9 / 10.1 - 1), 1e-9);
  // The control beside the base; twice the same perplexity for the oracle's bound, exactly.
  EXPECT_EQ(pairs[4].encoding, "sipe(txl) @ shuffled");
  EXPECT_EQ(pairs[4].beside, "txl");
  EXPECT_EQ(pairs[6].figure, "joint beside plain perplexity at 128 (%)");
  EXPECT_NEAR(pairs[6].mean, 100, 1e-9);
  EXPECT_NEAR(*pairs[6].smallest, 0, 1e-9);
  EXPECT_TRUE(pairs[6].shown());
  EXPECT_NEAR(pairs[7].mean, 40, 1e-9);
}

TEST(SyntaxPairs, RowsSayWhatCouldHaveBeenShown) {
  const auto rows = syntax_pair_rows(results());
  ASSERT_EQ(rows.size(), 9u);
  EXPECT_EQ(rows[1], (std::vector<std::string>{"sipe(txl)", "txl", "perplexity at 128 (%)", "3", "-1.33", "0.58",
                                               "-2.77 to +0.10", "1.43", "no"}));
  EXPECT_EQ(rows[7].back(), "yes");
  Results two = results();
  std::erase_if(two.runs, [](const report::Run& run) { return run.seed == 2; });
  EXPECT_EQ(syntax_pair_rows(two)[7].back(), "too few seeds");
  std::erase_if(two.runs, [](const report::Run& run) { return run.seed == 1; });
  EXPECT_EQ(syntax_pair_rows(two)[1][6], "-");
  std::erase_if(two.runs, [](const report::Run& run) { return run.encoding == "txl"; });
  EXPECT_EQ(syntax_pair_rows(two).size(), 3u);  // beside the control alone
  for (report::Run& run : two.runs) run.encoding = "no expression (";
  EXPECT_TRUE(syntax_pair_rows(two).empty());
}

TEST(SyntaxPairs, StudentsQuantiles) {
  EXPECT_FALSE(student_quantile(0));
  EXPECT_DOUBLE_EQ(*student_quantile(1), 12.7062);
  EXPECT_DOUBLE_EQ(*student_quantile(2), 4.3027);
  EXPECT_DOUBLE_EQ(*student_quantile(30), 2.0423);
  EXPECT_DOUBLE_EQ(*student_quantile(31), 1.96);
  // Against the density itself: the tail beyond the quantile holds 2.5 %.
  for (const std::size_t freedom : {std::size_t{2}, std::size_t{5}, std::size_t{17}}) {
    const auto v = static_cast<double>(freedom), q = *student_quantile(freedom);
    const double scale = std::tgamma((v + 1) / 2) / (std::sqrt(v * 3.14159265358979323846) * std::tgamma(v / 2));
    double inside = 0;
    const int steps = 200'000;
    for (int n = 0; n < steps; ++n) {
      const double x = q * (n + 0.5) / steps;
      inside += scale * std::pow(1 + x * x / v, -(v + 1) / 2) * q / steps;
    }
    EXPECT_NEAR(inside, 0.475, 1e-5);
  }
}

}  // namespace
}  // namespace torsor::report
