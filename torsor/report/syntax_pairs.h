// Runs with syntax beside the same runs without, and beside their controls: the differences seed by seed, and the
// smallest that so many seeds could have shown.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "torsor/report/results.h"

namespace torsor::report {

/// The 97.5 % quantile of Student's t distribution with `freedom` degrees of freedom; with 0 there is none. From 31 on
/// the normal distribution's, 1.96.
std::optional<double> student_quantile(std::size_t freedom);

/// One figure of one encoding beside that of another, over the seeds that have both.
struct SyntaxPair {
  std::string encoding, beside;
  std::string figure;               ///< "perplexity at 128 (%)" or "syntax accuracy (points)"
  std::vector<double> differences;  ///< by seed: percent of the other's perplexity, or points
  double mean = 0;
  std::optional<double> sd;  ///< empty with one seed
  /// Half the width of the 95 % interval of the mean, t sd / sqrt(seeds): the smallest difference that these seeds
  /// could have shown.
  std::optional<double> smallest;
  bool shown() const { return smallest && (mean > *smallest || mean < -*smallest); }
};

/// Every sipe(E) beside E, and beside each "sipe(E) @ CONTROL", where both are among the encodings. A run that leaks is
/// compared by its joint_ppl, which is named.
std::vector<SyntaxPair> syntax_pairs(const Results& results);

/// The same as a heading and rows; empty without any.
std::vector<std::vector<std::string>> syntax_pair_rows(const Results& results);

}  // namespace torsor::report
