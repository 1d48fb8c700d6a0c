// Figures of classifiers and regressions. Where one is not defined (no class occurs, nothing varies) it is 0 and says
// so.
#pragma once

#include <cstdint>
#include <vector>

namespace torsor {

struct Figure {
  double value = 0;
  bool defined = true;
};

/// All lists must be of one size and not empty, else Error.
Figure accuracy_of(const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& gold);

/// The harmonic mean of precision and recall of class 1: 2 TP / (2 TP + FP + FN); not defined where that is 0 / 0.
Figure f1_of(const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& gold);

/// Matthews' correlation of two classes, 0 and 1; not defined where one list has one class alone.
Figure matthews_of(const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& gold);

/// Not defined where one list is constant or holds a number that is not finite.
Figure pearson_of(const std::vector<double>& predicted, const std::vector<double>& gold);

/// Pearson's correlation of the ranks; equal numbers share the mean of their ranks.
Figure spearman_of(const std::vector<double>& predicted, const std::vector<double>& gold);

/// Ranks from 1, ties averaged.
std::vector<double> average_ranks(const std::vector<double>& values);

}  // namespace torsor
