#include "torsor/lab/bench.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <sstream>

#include "torsor/attention/attend.h"
#include "torsor/base/error.h"
#include "torsor/lab/bench_case.h"
#include "torsor/lab/machine.h"

namespace torsor {
namespace {

/// A round of a quick bench takes about as long at most, by the estimate.
constexpr double kQuickRound = 1;
/// Samples of what the machine can do.
constexpr int kMachineSamples = 5;
/// Results that differ by more were not computed from the same thing: ten times what rounding does to a row.
constexpr double kSameFloat = 1e-4, kSameHalf = 3e-2;

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// "no bias, T=512" -> {"no bias", "t=512"}
std::vector<std::string> parts_of(const std::string& filter) {
  std::istringstream stream(lower_case(filter));
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, ',');) {
    const std::size_t begin = part.find_first_not_of(' ');
    if (begin != std::string::npos) parts.push_back(part.substr(begin, part.find_last_not_of(' ') - begin + 1));
  }
  return parts;
}

/// "memory, linear" -> "memory"
std::string head_of(const std::string& subject) { return subject.substr(0, subject.find(',')); }

bool chosen(const BenchCase& one, const BenchOptions& options, const std::vector<std::string>& parts) {
  const std::string name = lower_case(row_name(one.row)), head = lower_case(head_of(one.row.subject));
  const auto in = [](const std::string& text) {
    return [&text](const std::string& part) { return text.find(part) != std::string::npos; };
  };
  if (!std::all_of(parts.begin(), parts.end(), in(name))) return false;
  // What takes a minute is asked for by its subject.
  if (one.extra) return options.full || std::any_of(parts.begin(), parts.end(), in(head));
  return !options.quick || one.seconds <= kQuickRound;
}

std::vector<BenchCase> plan(const BenchOptions& options, const BenchFeatures& features) {
  std::vector<BenchCase> all, cases;
  // Memory first: what later rows leave in the process cannot hide what is held.
  add_memory_cases(options, all);
  add_speed_cases(options, features, all);
  add_form_cases(options, all);
  const std::vector<std::string> parts = parts_of(options.filter);
  std::set<std::string> subjects;
  for (BenchCase& one : all) {
    subjects.insert(head_of(one.row.subject));
    if (chosen(one, options, parts)) cases.push_back(std::move(one));
  }
  if (!cases.empty()) return cases;
  std::string list;
  for (const std::string& subject : subjects) list += (list.empty() ? "" : ", ") + subject;
  throw UsageError(str("no row of the bench is called '", options.filter, "'", options.quick ? " and is quick" : "",
                       "; the subjects are ", list));
}

/// Says what a reader of the figures must know: a bar that is missed, results that differ.
void conclude(BenchRow& row) {
  const auto add = [&](const std::string& text) { row.note += (row.note.empty() ? "" : "; ") + text; };
  if (row.bar && row.ratio && !holds(*row.bar, row.ratio->value))
    add(str("misses its bar by ", static_cast<std::int64_t>(std::ceil(100 * shortfall(*row.bar, row.ratio->value))),
            " %"));
  // Not (a <= b), so that NaN is noticed.
  const double same = row.dtype == "bf16" ? kSameHalf : kSameFloat;
  if (row.difference && !(*row.difference <= same)) add("the results differ by more than rounding");
}

double median_seconds(const std::function<at::Tensor()>& work) {
  const std::function<void()> run = [&] { work(); };
  return spread_of(time_pair({run, [] {}}, {.wanted = kMachineSamples, .shortest = 0}).ours).median;
}

}  // namespace

std::string row_name(const BenchRow& row) {
  return str(row.subject, ", ", row.pass, ", ", row.dtype, ", ", row.shape, ", ", row.peer);
}

const char* status_name(BenchRow::Status status) {
  if (status == BenchRow::Status::Ok) return "ok";
  return status == BenchRow::Status::NotFused ? "not fused" : "not measured";
}

BenchPlan plan_bench(const BenchOptions& options) {
  BenchPlan chosen_rows;
  for (const BenchCase& one : plan(options, features_of(describe_machine()))) {
    chosen_rows.rows.push_back(one.row);
    const std::int64_t rounds = one.once ? 1 : 1 + rounds_for(options.repeats, one.seconds);
    chosen_rows.seconds += one.seconds * static_cast<double>(rounds);
  }
  return chosen_rows;
}

BenchReport run_bench(const BenchOptions& options, const BenchControl& control) {
  BenchReport report;
  report.machine = describe_machine();
  report.threads = at::get_num_threads();
  const std::vector<BenchCase> cases = plan(options, features_of(report.machine));
  report.planned = static_cast<std::int64_t>(cases.size());

  BenchContext context;
  context.repeats = options.repeats;
  context.seed = options.seed;
  context.copy_bytes = options.sizes.copy_bytes;
  if (report.machine.at("memory_bytes").is_number()) context.memory_bytes = report.machine.at("memory_bytes");
  for (const char* dtype : {"float32", "bf16"}) {
    const std::int64_t size = product_size(dtype, options.sizes.product_limit);
    context.product[dtype] = size;
    report.product_size[dtype] = size;
    report.product_gflops[dtype] = product_gflop(size) / median_seconds(matrix_product(context, dtype));
  }
  report.copy_gb_per_s = 2e-9 * static_cast<double>(context.copy_bytes) / median_seconds(large_copy(context));

  std::optional<Progress> progress;
  if (control.progress) {
    Progress::Options shown = *control.progress;
    shown.total = report.planned;
    progress.emplace(std::move(shown));
  }
  for (const BenchCase& one : cases) {
    if (control.stop != nullptr && *control.stop) {
      report.stopped = true;
      break;
    }
    BenchRow row = one.row;
    if (progress) progress->update(static_cast<std::int64_t>(report.rows.size()), row_name(row));
    try {
      one.measure(row, context);
      conclude(row);
    } catch (const NotFused&) {
      row.status = BenchRow::Status::NotFused;
      row.note = "the fused kernel has no form for it";
    }
    report.rows.push_back(std::move(row));
  }
  if (progress) {
    progress->update(static_cast<std::int64_t>(report.rows.size()));
    progress->finish();
  }
  return report;
}

}  // namespace torsor
