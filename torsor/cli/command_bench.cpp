// torsor bench
#include <filesystem>
#include <iostream>

#include "torsor/base/file.h"
#include "torsor/cli/common.h"
#include "torsor/lab/bench.h"
#include "torsor/report/bench_table.h"

namespace torsor {
namespace {

constexpr std::int64_t kMostRepeats = 10000;
/// A quick bench spends about so many seconds on a row, and a usual one the default of BenchOptions.
constexpr double kQuickSeconds = 2;
constexpr std::int64_t kQuickProduct = 1024;

struct BenchArguments {
  BenchOptions options;
  std::int64_t repeat = 0;  ///< 0 = nine, and fewer for what takes long
};

int run_bench(const BenchArguments& arguments, const CommonOptions& common) {
  if (!common.out.empty() && !common.force && std::filesystem::exists(common.out))
    throw Error(str("'", common.out, "' exists; replace it with --force"));
  BenchOptions options = arguments.options;
  options.seed = common.seed;
  if (options.quick) {
    options.repeats.seconds = kQuickSeconds;
    options.sizes.product_limit = kQuickProduct;
  }
  if (arguments.repeat > 0) {
    options.repeats.wanted = arguments.repeat;
    options.repeats.seconds = 0;
  }
  const BenchPlan plan = plan_bench(options);
  say(common, str("bench: ", plan.rows.size(), plan.rows.size() == 1 ? " row" : " rows", ", about ",
                  format_duration(plan.seconds), " where two server cores have nothing else to do"));
  const BenchReport report =
      run_bench(options, {.stop = &stop_requested, .progress = progress_options(common, "bench")});
  const Json document = bench_json(report);
  // Shown first: a file that cannot be written loses nothing.
  std::cout << (common.json ? json_text(document, 1) + "\n" : report::bench_table(document));
  std::cout.flush();
  if (!common.out.empty()) write_file_atomic(common.out, json_text(document, 1) + "\n");
  if (!report.stopped) return 0;
  throw Interrupted(str("bench was stopped after ", report.rows.size(), " of ", report.planned, " rows"));
}

}  // namespace

void add_bench_command(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<BenchArguments>();
  Command* command = app.add_subcommand("bench", "the kernel beside its peers on this machine");
  command->footer(
      "Bars that are missed are shown and do not change the exit code. --out keeps the JSON document in a file.\n"
      "Rows whose round takes long are repeated fewer times unless --repeat is given; each says how often.\n"
      "Ctrl-C ends after the present row and prints what there is.\n"
      "Example: torsor bench --quick --filter 'no bias, forward, float32, H=8 T=512'");
  command->add_option("--filter", arguments->options.filter,
                      "only these rows: parts of their subject, pass, dtype, shape or peer, with commas between");
  command->add_option("--repeat", arguments->repeat, "samples of each side of a row; left out: 9, fewer where slow")
      ->check(whole_number(1, kMostRepeats));
  command->add_flag("--quick", arguments->options.quick, "only rows that take less than about a second a round");
  command->add_flag("--full", arguments->options.full, "also the sequence of 131072 tokens, about a minute");
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_bench(*arguments, common); }; });
}

}  // namespace torsor
