#include "torsor/data/glue_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "torsor/base/error.h"

namespace torsor {

namespace {

void check_sizes(std::size_t predicted, std::size_t gold) {
  if (predicted != gold || gold == 0)
    throw Error(str("metrics: expected as many answers as labels and at least one, found ", predicted, " and ", gold));
}

struct Counts {
  double true_positive = 0, false_positive = 0, false_negative = 0, true_negative = 0;
};

Counts count(const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& gold) {
  check_sizes(predicted.size(), gold.size());
  Counts counts;
  for (std::size_t i = 0; i < gold.size(); ++i) {
    double& one = predicted[i] == 1 ? (gold[i] == 1 ? counts.true_positive : counts.false_positive)
                                    : (gold[i] == 1 ? counts.false_negative : counts.true_negative);
    one += 1;
  }
  return counts;
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

}  // namespace

Figure accuracy_of(const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& gold) {
  check_sizes(predicted.size(), gold.size());
  std::size_t correct = 0;
  for (std::size_t i = 0; i < gold.size(); ++i) correct += predicted[i] == gold[i] ? 1 : 0;
  return {static_cast<double>(correct) / static_cast<double>(gold.size())};
}

Figure f1_of(const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& gold) {
  const Counts c = count(predicted, gold);
  const double all = 2 * c.true_positive + c.false_positive + c.false_negative;
  if (all == 0) return {0, false};
  return {2 * c.true_positive / all};
}

Figure matthews_of(const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& gold) {
  const Counts c = count(predicted, gold);
  const double square = (c.true_positive + c.false_positive) * (c.true_positive + c.false_negative) *
                        (c.true_negative + c.false_positive) * (c.true_negative + c.false_negative);
  if (square == 0) return {0, false};
  return {(c.true_positive * c.true_negative - c.false_positive * c.false_negative) / std::sqrt(square)};
}

Figure pearson_of(const std::vector<double>& predicted, const std::vector<double>& gold) {
  check_sizes(predicted.size(), gold.size());
  if (!all_finite(predicted) || !all_finite(gold)) return {0, false};
  // A constant list can have a mean that differs from it by rounding, so constancy is asked of the numbers themselves.
  const auto constant = [](const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [&](double value) { return value == values.front(); });
  };
  if (constant(predicted) || constant(gold)) return {0, false};
  const double n = static_cast<double>(gold.size());
  const double mean_p = std::accumulate(predicted.begin(), predicted.end(), 0.0) / n;
  const double mean_g = std::accumulate(gold.begin(), gold.end(), 0.0) / n;
  double pg = 0, pp = 0, gg = 0;
  for (std::size_t i = 0; i < gold.size(); ++i) {
    const double p = predicted[i] - mean_p, g = gold[i] - mean_g;
    pg += p * g, pp += p * p, gg += g * g;
  }
  const double root = std::sqrt(pp) * std::sqrt(gg);
  if (!(root > 0) || !std::isfinite(root)) return {0, false};
  return {std::clamp(pg / root, -1.0, 1.0)};
}

std::vector<double> average_ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    const double rank = static_cast<double>(first + 1 + end) / 2;  // the mean of first + 1 .. end
    for (; first < end; ++first) ranks[order[first]] = rank;
  }
  return ranks;
}

Figure spearman_of(const std::vector<double>& predicted, const std::vector<double>& gold) {
  check_sizes(predicted.size(), gold.size());
  if (!all_finite(predicted) || !all_finite(gold)) return {0, false};
  return pearson_of(average_ranks(predicted), average_ranks(gold));
}

}  // namespace torsor
