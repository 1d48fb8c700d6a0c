// The bench: its statistics on fixed numbers, its biases against each other, and the document of a tiny run. No test
// looks at a time.
#include "torsor/lab/bench.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <set>
#include <sstream>

#include "torsor/attention/attend.h"
#include "torsor/attention/evaluate.h"
#include "torsor/lab/bench_case.h"
#include "torsor/lab/bench_forms.h"

namespace torsor {
namespace {

// ---------------------------------------------------------------------------------------------------------------------
// Statistics

TEST(BenchStatistics, SpreadIsOfOrderStatistics) {
  const Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.most, 3);
  EXPECT_EQ(spread_of({4, 1, 2, 10}).median, 3);
  EXPECT_EQ(spread_of({7}).median, 7);
  EXPECT_THROW(spread_of({}), Error);
}

TEST(BenchStatistics, BarsHaveTwoSenses) {
  EXPECT_TRUE(holds(at_least(1.25), 1.25));
  EXPECT_FALSE(holds(at_least(1.25), 1.2));
  EXPECT_TRUE(holds(at_most(1.05), 1.05));
  EXPECT_FALSE(holds(at_most(1.05), 1.06));
  EXPECT_DOUBLE_EQ(shortfall(at_least(2), 1.5), 0.25);
  EXPECT_DOUBLE_EQ(shortfall(at_most(2), 3), 0.5);
  EXPECT_EQ(shortfall(at_most(2), 1), 0);
  EXPECT_EQ(bar_text(at_least(1.25)), ">= 1.25");
  EXPECT_EQ(bar_text(at_most(2)), "<= 2");
}

TEST(BenchStatistics, RatiosOfMediansAndOfPairs) {
  const PairTimes times{{1, 2, 4}, {4, 4, 6}};
  const Ratio speed = ratio_of(times, 1, Bar::Sense::AtLeast);
  EXPECT_DOUBLE_EQ(speed.value, 2);    // 4 / 2
  EXPECT_DOUBLE_EQ(speed.least, 1.5);  // 6 / 4
  EXPECT_DOUBLE_EQ(speed.most, 4);     // 4 / 1
  const Ratio cost = ratio_of(times, 1, Bar::Sense::AtMost);
  EXPECT_DOUBLE_EQ(cost.value, 0.5);
  EXPECT_DOUBLE_EQ(cost.least, 0.25);
  EXPECT_DOUBLE_EQ(cost.most, 1 / 1.5);
  // Half the peer's work in half its time is the same speed.
  EXPECT_DOUBLE_EQ(ratio_of(times, 0.5, Bar::Sense::AtLeast).value, 1);
  EXPECT_THROW(ratio_of({{1}, {}}, 1, Bar::Sense::AtLeast), Error);
  EXPECT_THROW(ratio_of({}, 1, Bar::Sense::AtLeast), Error);
}

TEST(BenchStatistics, FewerRoundsWhereARowWouldTakeTooLong) {
  const Repeats nine{.wanted = 9, .seconds = 30, .least = 3};
  EXPECT_EQ(rounds_for(nine, 1), 9);
  EXPECT_EQ(rounds_for(nine, 5), 6);
  EXPECT_EQ(rounds_for(nine, 100), 3);
  EXPECT_EQ(rounds_for({.wanted = 9, .seconds = 0}, 1000), 9);
  EXPECT_EQ(rounds_for({.wanted = 2, .seconds = 1, .least = 3}, 100), 2);
}

TEST(BenchStatistics, PairsAlternateAfterARoundThatDoesNotCount) {
  double now = 0;
  std::string order;
  const Pair pair{[&] { order += 'a', now += 1; }, [&] { order += 'b', now += 3; }, 1};
  const PairTimes times = time_pair(pair, {.wanted = 3}, [&] { return now; });
  EXPECT_EQ(order, "abababab");
  EXPECT_EQ(times.ours, std::vector<double>({1, 1, 1}));
  EXPECT_EQ(times.peer, std::vector<double>({3, 3, 3}));
}

TEST(BenchStatistics, QuickWorkIsRepeatedWithinASample) {
  double now = 0;
  int ours = 0, peer = 0;
  const Pair pair{[&] { ++ours, now += 0.25; }, [&] { ++peer, now += 2; }, 1};
  const PairTimes times = time_pair(pair, {.wanted = 2, .shortest = 1}, [&] { return now; });
  EXPECT_EQ(ours, 1 + 2 * 4);
  EXPECT_EQ(peer, 1 + 2);
  EXPECT_EQ(times.ours, std::vector<double>({0.25, 0.25}));
}

// ---------------------------------------------------------------------------------------------------------------------
// Biases

at::Tensor with_mask(const BenchTensors& tensors, const at::Tensor& mask) {
  return at::scaled_dot_product_attention(tensors.q, tensors.k, tensors.v, mask);
}

// Both sides of a row must compute the same thing, in value and in the gradients of what both have.
TEST(BenchForms, EveryFormAgreesWithItsMask) {
  const BenchShape shape{2, 4, 8};
  constexpr std::int64_t kTokens = 19;
  for (const std::string& name : form_names()) {
    SCOPED_TRACE(name);
    const BenchTensors tensors = bench_tensors(shape, kTokens, kTokens, at::kFloat, 1, true);
    const FormCase bias = make_form(name, shape, kTokens, 1, true);
    ASSERT_FALSE(bias.trained.empty());
    CoreInput input = bench_input(tensors);
    input.biases = {bias.form()};
    const at::Tensor mask = materialised_mask(bias.form(), input);
    EXPECT_FALSE(mask.requires_grad());
    EXPECT_TRUE(mask.triu(1).isneginf().sum().item<std::int64_t>() == mask.isneginf().sum().item<std::int64_t>());
    EXPECT_GT(mask.masked_fill(mask.isneginf(), 0).abs().max().item<double>(), 0.1);

    const auto ours = [&] { return run_core(input, Path::Reference).out; };
    const auto peer = [&] { return with_mask(tensors, mask); };
    EXPECT_LT(worst_row(forward_of(ours)(), forward_of(peer)()), 1e-5);
    const std::vector<at::Tensor> leaves = {tensors.q, tensors.k, tensors.v};
    std::vector<at::Tensor> all = leaves;
    all.insert(all.end(), bias.trained.begin(), bias.trained.end());
    const auto a = torch::autograd::grad({ours()}, all, {tensors.dout}),
               b = torch::autograd::grad({peer()}, leaves, {tensors.dout});
    for (std::size_t n = 0; n < leaves.size(); ++n) EXPECT_LT((a[n] - b[n]).norm().item<double>(), 1e-4);
    for (std::size_t n = leaves.size(); n < all.size(); ++n) EXPECT_TRUE(a[n].isfinite().all().item<bool>());
  }
  EXPECT_THROW(make_form("cubic", shape, kTokens, 1, true), Error);
}

TEST(BenchForms, UntrainedFormsHaveNoLeaves) {
  for (const std::string& name : form_names()) EXPECT_TRUE(make_form(name, {1, 2, 8}, 5, 1, false).trained.empty());
}

// The mask is cut into blocks of queries when it is made; the cuts must not show.
TEST(BenchForms, MasksDoNotDependOnTheirBlocks) {
  const BenchShape shape{1, 2, 4};
  constexpr std::int64_t kTokens = 1500;  // more than a block of queries
  CoreInput input = bench_input(bench_tensors(shape, kTokens, kTokens, at::kFloat, 1, false));
  const BiasForm bias = make_form("potential", shape, kTokens, 1, false).form();
  Block whole;
  whole.queries = whole.keys = kTokens;
  whole.query_positions = input.query_positions;
  whole.key_positions = input.key_positions;
  whole.visible = at::ones({kTokens, kTokens}, at::kBool).tril_().unsqueeze(0).unsqueeze(0);
  const at::Tensor expected =
      evaluate_form(bias, whole).masked_fill(whole.visible.logical_not(), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(materialised_mask(bias, input).equal(expected.to(at::kFloat)));
}

TEST(BenchForms, TheCausalMaskIsCausal) {
  const at::Tensor mask = causal_mask({1, 2, 4}, 5);
  EXPECT_TRUE(mask.isneginf().equal(at::ones({1, 2, 5, 5}, at::kBool).triu_(1)));
  EXPECT_EQ(mask.tril().abs().max().item<double>(), 0);
}

TEST(BenchForms, TheAuthorsPathIsTheFormOfTheReference) {
  const BenchShape shape{2, 4, 16};
  constexpr std::int64_t kTokens = 33;
  const BenchTensors tensors = bench_tensors(shape, kTokens, kTokens, at::kFloat, 3, true);
  const Probes probes = authors_probes(shape, kTokens, 3, true);
  const at::Tensor future = at::ones({kTokens, kTokens}, at::kBool).triu_(1);
  CoreInput input = bench_input(tensors);
  input.biases = {path_form(probes.p, probes.slope)};

  const at::Tensor theirs = authors_path_mask(probes.p, probes.slope, future).detach();
  const at::Tensor ours = materialised_mask(input.biases[0], input);
  EXPECT_TRUE(theirs.isneginf().equal(ours.isneginf()));
  EXPECT_LT((theirs - ours).masked_fill(theirs.isneginf(), 0).abs().max().item<double>(), 2e-5);
  EXPECT_LT(theirs.diagonal(0, -2, -1).abs().max().item<double>(), 2e-5);
  EXPECT_LT(theirs.select(-1, 0).select(-1, kTokens - 1).max().item<double>(), -0.05);

  const std::vector<at::Tensor> leaves = {tensors.q, tensors.k, tensors.v, probes.p};
  const at::Tensor a = run_core(input, Path::Reference).out;
  const at::Tensor b = authors_path_attention(tensors, probes.p, probes.slope, future);
  EXPECT_LT(worst_row(a, b), 1e-4);
  const auto da = torch::autograd::grad({a}, leaves, {tensors.dout}),
             db = torch::autograd::grad({b}, leaves, {tensors.dout});
  for (std::size_t n = 0; n < leaves.size(); ++n)
    EXPECT_LT((da[n] - db[n]).norm().item<double>(), 1e-4 * da[n].norm().item<double>()) << n;
}

// ---------------------------------------------------------------------------------------------------------------------
// Rows

std::vector<std::string> names_of(const BenchOptions& options) {
  std::vector<std::string> names;
  for (const BenchRow& row : plan_bench(options).rows) names.push_back(row_name(row));
  return names;
}

TEST(BenchPlan, EveryRowHasANameOfItsOwn) {
  const BenchPlan plan = plan_bench({.full = true});
  std::set<std::string> names;
  std::size_t bars = 0;
  for (const BenchRow& row : plan.rows) {
    EXPECT_TRUE(names.insert(row_name(row)).second) << row_name(row);
    bars += row.bar.has_value();
  }
  EXPECT_GE(bars, 60u);
  EXPECT_GT(plan.seconds, 60);
}

TEST(BenchPlan, FiltersByPartsOfNamesInAnyOrder) {
  const std::vector<std::string> names = names_of({.filter = "T=2048, BACKWARD,  No bias "});
  ASSERT_EQ(names.size(), 6u);
  for (const std::string& name : names) EXPECT_EQ(name.rfind("no bias, backward, ", 0), 0u) << name;
  EXPECT_EQ(names_of({.filter = "H=32/8"}).size(), 4u);
  try {
    plan_bench({.filter = "cubic"});
    ADD_FAILURE() << "no row is cubic";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("cubic"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("decode"), std::string::npos);
  }
}

TEST(BenchPlan, LongRowsAreAskedFor) {
  const auto has_long = [](const BenchOptions& options) {
    for (const std::string& name : names_of(options))
      if (name.rfind("long", 0) == 0) return true;
    return false;
  };
  EXPECT_FALSE(has_long({}));
  EXPECT_FALSE(has_long({.filter = "no bias"}));
  EXPECT_TRUE(has_long({.filter = "long"}));
  EXPECT_TRUE(has_long({.full = true}));
}

TEST(BenchPlan, QuickLeavesOutWhatTakesLong) {
  const BenchPlan quick = plan_bench({.quick = true}), all = plan_bench({});
  EXPECT_LT(quick.rows.size(), all.rows.size());
  EXPECT_LT(quick.seconds, all.seconds / 4);
}

BenchOptions tiny_bench() {
  BenchOptions options;
  options.full = true;
  options.repeats = {.wanted = 2, .shortest = 0};
  BenchSizes& sizes = options.sizes;
  sizes.shapes = {{1, 2, 8}};
  sizes.forward_lengths = sizes.backward_lengths = {16};
  sizes.form_shape = sizes.authors_shape = {1, 2, 8};
  sizes.form_lengths = {16};
  sizes.authors_length = 16;
  sizes.cost_shapes = {{1, 2, 8}};
  sizes.cost_lengths = sizes.share_lengths = {16};
  sizes.decode_shapes = {{1, 4, 8, 2}};
  sizes.decode_lengths = {16};
  sizes.memory_length = 32;
  sizes.memory_warm_length = 8;
  sizes.growth_lengths = {16, 32};
  sizes.long_length = 64;
  sizes.product_limit = 32;
  sizes.copy_bytes = 1 << 20;
  return options;
}

TEST(Bench, TheDocumentOfATinyRun) {
  const BenchReport report = run_bench(tiny_bench(), {});
  const Json document = parse_json(json_text(bench_json(report)), "bench");
  EXPECT_EQ(document.at("format"), "torsor-bench-1");
  EXPECT_TRUE(document.at("machine").contains("processor"));
  EXPECT_GE(document.at("threads"), 1);
  EXPECT_GT(document.at("matmul_gflops").at("float32"), 0);
  EXPECT_GT(document.at("matmul_gflops").at("bf16"), 0);
  EXPECT_EQ(document.at("matmul_size").at("float32"), 32);
  EXPECT_GT(document.at("copy_gb_per_s"), 0);
  EXPECT_EQ(document.at("stopped"), false);
  ASSERT_EQ(document.at("rows").size(), plan_bench(tiny_bench()).rows.size());
  std::set<std::string> passes, measured;
  for (const Json& row : document.at("rows")) {
    SCOPED_TRACE(json_text(row));
    for (const char* key : {"subject", "peer", "shape", "dtype", "pass", "status", "note"})
      EXPECT_TRUE(row.at(key).is_string()) << key;
    passes.insert(row.at("pass").get<std::string>());
    EXPECT_EQ(row.at("bar").is_null(), row.at("holds").is_null());
    EXPECT_EQ(row.at("bar").is_null(), row.at("sense").is_null());
    EXPECT_TRUE(row.at("bar").is_null() || row.at("ratio").is_number());
    if (row.at("status") != "ok") {
      EXPECT_NE(row.at("holds"), Json(true));
      continue;
    }
    measured.insert(row.at("subject").get<std::string>());
    for (const char* side : {"ours_ms", "peer_ms"}) {
      const Json& times = row.at(side);
      if (times.is_null()) continue;
      ASSERT_EQ(times.size(), 3u);
      EXPECT_GT(times[0], 0);
      EXPECT_LE(times[0], times[1]);
      EXPECT_LE(times[1], times[2]);
    }
    if (row.at("difference").is_number()) {
      EXPECT_LT(row.at("difference").get<double>(), row.at("dtype") == "bf16" ? 3e-2 : 1e-4);
    }
    EXPECT_EQ(row.at("note").get<std::string>().find("differ"), std::string::npos);
  }
  EXPECT_EQ(passes, (std::set<std::string>{"forward", "backward", "decode"}));
  for (const char* subject : {"no bias", "every form, linear", "cost of a bias, table", "carried values",
                              "share of the machine", "decode", "growth", "long, no bias", "long, linear"})
    EXPECT_TRUE(measured.count(subject)) << subject;
}

TEST(Bench, StopsAfterTheRowAtWork) {
  BenchOptions options = tiny_bench();
  options.filter = "decode, growth";
  EXPECT_THROW(run_bench(options, {}), UsageError);  // no row is both
  options.filter = "no bias";
  ASSERT_GE(plan_bench(options).rows.size(), 3u);
  std::atomic<bool> stop{false};
  std::ostringstream out;
  // The reporter asks for the time when it is made and before every row: the second row finds a request to stop.
  Progress::Options shown{.out = out};
  shown.clock = [&stop, asked = 0]() mutable {
    if (++asked == 2) stop = true;
    return static_cast<double>(asked);
  };
  const BenchReport report = run_bench(options, {.stop = &stop, .progress = shown});
  EXPECT_EQ(report.rows.size(), 1u);
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(bench_json(report).at("stopped"), true);
}

TEST(Bench, WhatDoesNotLowerHasNoSpeedAndDoesNotHold) {
  BenchReport report;
  report.machine = Json::object();
  BenchRow row;
  row.status = BenchRow::Status::NotFused;
  row.bar = at_most(1.5);
  report.rows = {row};
  const Json json = bench_json(report).at("rows")[0];
  EXPECT_EQ(json.at("status"), "not fused");
  EXPECT_EQ(json.at("ratio"), 0);
  EXPECT_EQ(json.at("holds"), false);
  EXPECT_TRUE(json.at("ours_ms").is_null());

  report.rows[0].status = BenchRow::Status::NotMeasured;
  const Json unknown = bench_json(report).at("rows")[0];
  EXPECT_TRUE(unknown.at("bar").is_null());
  EXPECT_TRUE(unknown.at("holds").is_null());
}

}  // namespace
}  // namespace torsor
