// Tasks whose problems are right or wrong (addition, passkey): what an accuracy is to the summary, and how it is
// written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/report/results.h"

namespace torsor::report {

/// The share of problems solved at one length: a metric of the summary, 0..1.
inline constexpr const char* kAccuracy = "accuracy";
/// The same over all lengths up to the trained one, and over all beyond it. Their rows carry the longest pooled length.
inline constexpr const char* kAccuracyInside = "accuracy_inside";
inline constexpr const char* kAccuracyBeyond = "accuracy_beyond";

/// The mean of scores of several tasks, -1..1, of which correlations may be a part.
inline constexpr const char* kScore = "score";

/// An encoding that solves fewer inside the trained lengths has not learned the task: its score beyond says nothing.
inline constexpr double kLearned = 0.9;

/// Whether a task is scored by accuracy: one of the two that always are, or any evaluation of it that has one.
bool scored_by_accuracy(const Results& results, const std::string& task);

/// The metric that the table and the first picture show: "accuracy", "score" or "perplexity".
std::string headline_metric(const Results& results, const std::string& task);

/// True for accuracies, false for the figures of a language model.
bool higher_is_better(const std::string& metric);

/// Problems of an evaluation, by its windows or else its cells; 0 when it lists neither.
std::int64_t problems_of(const Eval& eval);

/// Lengths that are pooled in one figure.
struct Pool {
  std::string metric;  ///< kAccuracyInside or kAccuracyBeyond
  std::string title;   ///< "inside" or "beyond"
  std::vector<std::int64_t> lengths;
};

/// The pools of a task: lengths up to the trained one, lengths beyond it. Empty ones are left out; none for a task that
/// is not scored by accuracy, or has its problems in groups (groups.h).
std::vector<Pool> pools_of(const Results& results, const std::string& task);

/// The lengths that a row of the summary speaks of: those of its pool, or the one.
std::vector<std::int64_t> row_lengths(const Results& results, const std::string& task, std::int64_t length,
                                      const std::string& metric);

/// The accuracy of a run over all problems of some lengths: right ones over all (lengths count alike where an
/// evaluation does not list its problems), with the windows of all when each has them. Empty unless the run ended at
/// every one of the lengths: leaving out those that it refuses would flatter.
struct PooledAccuracy {
  double value = 0;
  std::vector<double> windows;
};
std::optional<PooledAccuracy> pooled_accuracy(const Run& run, const std::string& task,
                                              const std::vector<std::int64_t>& lengths);

/// Right ones of all problems of a kind, added over the seeds of an encoding, ordered by x, then y.
std::vector<EvalCell> grid_of(const Results& results, const std::string& encoding, const std::string& task);

/// What lengths of a task count: "digits" for addition, else "tokens".
std::string length_unit(const std::string& task);

/// A share 0..1 in percent without the sign: by the digits of its spread, else with one decimal ("37.4"); 1 is "100"
/// and 0 is "0", which no rounding ever gives ("100.0", "0.0").
std::string format_percent(double share, const std::optional<double>& sd = std::nullopt);

/// The spread of a share in percent with its digits; empty where it is not known or zero.
std::string format_percent_spread(const std::optional<double>& sd);

/// The mean of a share with its spread: "37.4 ± 1.2 %".
std::string format_percent(const SummaryRow& row);

}  // namespace torsor::report
