// Means, spreads and paired bootstrap intervals over seeds and windows, and the verdict in plain words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/report/results.h"

namespace torsor::report {

/// Arithmetic mean. Throws Error when there is no value.
double mean_of(const std::vector<double>& values);

/// Standard deviation of a sample (n - 1 in the denominator); empty with fewer than two values.
std::optional<double> sd_of(const std::vector<double>& values);

/// The `p`-quantile (0..1) of ascending values, linear between the order statistics (type 7 of Hyndman and Fan, "Sample
/// quantiles in statistical packages", 1996). Throws Error when there is no value or p is out of range.
double quantile(const std::vector<double>& ascending, double p);

/// The three figures of a language model, better when lower, and the share of problems solved, better when higher.
enum class Metric { perplexity, bits_per_byte, loss, accuracy };

const char* metric_name(Metric metric);

/// What one run measured at one length: the figure, its loss in nats a token, and the loss of every window (may be
/// empty). For an accuracy the windows are its problems, 1 where solved and 0 elsewhere, and there is no loss.
struct Sample {
  double value = 0;
  double loss = 0;
  std::vector<double> windows;
};

struct BootstrapOptions {
  std::size_t replicates = 4000;
  double confidence = 0.95;
  std::uint64_t seed = 0;  ///< the same results always give the same interval
};

/// The interval of mean(a) - mean(b), where a[s] and b[s] come from the same seed. Each replicate draws seeds with
/// replacement, and for each drawn seed windows with replacement, the same for a and b; a figure moves with the mean of
/// its windows (perplexity by the factor exp(change of loss), bits per byte in proportion to the loss). Long lists of
/// windows are first averaged to 256 neighbouring blocks: neighbours in a text are not independent. Problems of an
/// accuracy are independent but stand in order of their kind, so that there a block is every 256th of them. Windows
/// count only when every sample has them. The ends of the interval are the percentiles; they are empty with one seed
/// and no windows, since nothing can be resampled then. Throws Error when a and b are empty or differ in size or in
/// windows.
Interval paired_bootstrap(Metric metric, const std::vector<Sample>& a, const std::vector<Sample>& b,
                          const BootstrapOptions& options = {});

/// Fewer seeds than this, and no difference counts as shown (evaluation rule of the project).
inline constexpr std::int64_t kSeedsToShow = 3;

/// The best of a column and whether it is shown to be so.
struct Best {
  std::string encoding;
  std::string runner_up;         ///< empty when there is none
  std::optional<Interval> lead;  ///< runner-up minus best, paired; empty without a runner-up or a common seed
  std::int64_t pairs = 0;        ///< seeds that both have
  bool shown = false;            ///< the interval excludes zero and there are at least kSeedsToShow pairs
};

/// From the summary: the lowest, or of an accuracy the highest, the first among equals. Empty when no encoding has a
/// finite figure.
std::optional<Best> best_of(const Results& results, const std::string& task, std::int64_t length,
                            const std::string& metric);

/// Fills `summary` and `verdict` from `runs`.
///
/// A row stands for every encoding with at least one evaluation that ended. Its mean is empty when a seed's figure was
/// not finite: leaving the worst seeds out would flatter. The best is the lowest mean, of accuracies the highest;
/// differences are paired by seed. A task scored by accuracy has beside its lengths two pooled figures (accuracy.h).
void summarize(Results& results, const BootstrapOptions& options = {});

/// The sentences of the verdict for one task, from a filled summary: first which encoding is lowest at the training
/// length and at the longest, then whether that is shown, then which stay flat (perplexity at their longest length
/// within 5 % of that at the training length), which rise, fall, refuse or failed. For a task scored by accuracy:
/// whether the table shows anything yet (two encodings reach 90 % inside the trained lengths), who is highest inside
/// and beyond, whether that is shown, who reaches 90 % inside and who holds it beyond, the chance level.
std::vector<std::string> verdict_sentences(const Results& results, const std::string& task);

}  // namespace torsor::report
