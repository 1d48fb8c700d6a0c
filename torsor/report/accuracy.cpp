#include "torsor/report/accuracy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "torsor/report/groups.h"
#include "torsor/report/numbers.h"

namespace torsor::report {
namespace {

constexpr int kMostDecimals = 2;  // of a percentage

/// Equal shares have a deviation of rounding errors: one that prints as zero is none.
bool has_spread(const std::optional<double>& sd) { return sd && 100 * *sd >= 0.005; }

/// The metric itself, or its figure in one group: "accuracy: Agreement".
bool is_headline(const std::string& metric, const std::string& headline) {
  return metric == headline || metric.starts_with(headline + ": ");
}

}  // namespace

bool scored_by_accuracy(const Results& results, const std::string& task) {
  if (task == "addition" || task == "passkey") return true;
  return std::any_of(results.runs.begin(), results.runs.end(), [&task](const Run& run) {
    return std::any_of(run.eval.begin(), run.eval.end(),
                       [&task](const Eval& eval) { return eval.task == task && eval.accuracy; });
  });
}

std::string headline_metric(const Results& results, const std::string& task) {
  if (!scored_by_accuracy(results, task)) return "perplexity";
  for (const Run& run : results.runs)
    for (const Eval& eval : run.eval)
      if (eval.task == task && eval.score) return kScore;
  return kAccuracy;
}

bool higher_is_better(const std::string& metric) {
  return metric == kAccuracyInside || metric == kAccuracyBeyond || is_headline(metric, kAccuracy) ||
         is_headline(metric, kScore);
}

std::int64_t problems_of(const Eval& eval) {
  if (!eval.windows.empty()) return static_cast<std::int64_t>(eval.windows.size());
  std::int64_t count = 0;
  for (const EvalCell& cell : eval.cells) count += cell.count;
  return count;
}

std::vector<Pool> pools_of(const Results& results, const std::string& task) {
  if (!scored_by_accuracy(results, task) || !groups_of(results, task).empty()) return {};
  const std::int64_t trained = training_length(results);
  Pool inside{kAccuracyInside, "inside", {}}, beyond{kAccuracyBeyond, "beyond", {}};
  for (const std::int64_t length : lengths_of(results, task)) {
    (length <= trained ? inside : beyond).lengths.push_back(length);
  }
  std::vector<Pool> pools;
  for (Pool* pool : {&inside, &beyond}) {
    if (!pool->lengths.empty()) pools.push_back(std::move(*pool));
  }
  return pools;
}

std::vector<std::int64_t> row_lengths(const Results& results, const std::string& task, std::int64_t length,
                                      const std::string& metric) {
  for (const Pool& pool : pools_of(results, task)) {
    if (pool.metric == metric) return pool.lengths;
  }
  return {length};
}

std::optional<PooledAccuracy> pooled_accuracy(const Run& run, const std::string& task,
                                              const std::vector<std::int64_t>& lengths) {
  std::vector<const Eval*> evals;
  for (const std::int64_t length : lengths) {
    const Eval* eval = find_eval(run, task, length);
    if (eval == nullptr || eval->status != Status::ok || !eval->accuracy) return std::nullopt;
    evals.push_back(eval);
  }
  const auto all = [&evals](auto holds) { return std::all_of(evals.begin(), evals.end(), holds); };
  const bool counted = all([](const Eval* eval) { return problems_of(*eval) > 0; });
  const bool listed = all([](const Eval* eval) { return !eval->windows.empty(); });
  PooledAccuracy pooled;
  double right = 0, problems = 0;
  for (const Eval* eval : evals) {
    const double weight = counted ? static_cast<double>(problems_of(*eval)) : 1;
    right += weight * *eval->accuracy;
    problems += weight;
    if (listed) pooled.windows.insert(pooled.windows.end(), eval->windows.begin(), eval->windows.end());
  }
  pooled.value = problems > 0 ? right / problems : 0;
  return pooled;
}

std::vector<EvalCell> grid_of(const Results& results, const std::string& encoding, const std::string& task) {
  std::map<std::pair<std::int64_t, std::int64_t>, EvalCell> cells;
  for (const Run& run : results.runs) {
    if (run.encoding != encoding || run.status != Status::ok) continue;
    for (const Eval& eval : run.eval) {
      if (eval.task != task || eval.status != Status::ok) continue;
      for (const EvalCell& cell : eval.cells) {
        EvalCell& sum = cells.emplace(std::pair(cell.x, cell.y), EvalCell{cell.x, cell.y, 0, 0}).first->second;
        sum.correct += cell.correct;
        sum.count += cell.count;
      }
    }
  }
  std::vector<EvalCell> grid;
  grid.reserve(cells.size());
  for (const auto& [place, cell] : cells) grid.push_back(cell);
  return grid;
}

std::string length_unit(const std::string& task) { return task == "addition" ? "digits" : "tokens"; }

std::string format_percent(double share, const std::optional<double>& sd) {
  const double percent = 100 * share;
  if (has_spread(sd)) return format_decimals(percent, decimals_for_spread(100 * *sd, kMostDecimals));
  return share == 0 || share == 1 ? format_decimals(percent, 0) : format_decimals(percent, 1);
}

std::string format_percent_spread(const std::optional<double>& sd) {
  return has_spread(sd) ? format_decimals(100 * *sd, decimals_for_spread(100 * *sd, kMostDecimals)) : "";
}

std::string format_percent(const SummaryRow& row) {
  const std::string spread = format_percent_spread(row.sd);
  return format_percent(*row.mean, row.sd) + (spread.empty() ? "" : " \u00b1 " + spread) + " %";
}

}  // namespace torsor::report
