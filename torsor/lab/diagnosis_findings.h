// Findings from facts and from measures, unranked.
#pragma once

#include <vector>

#include "torsor/lab/diagnosis.h"

namespace torsor {

/// Nats a token by which the loss has to rise past the training length to count as worse, and as broken: 0.05 is 5 % of
/// a perplexity, 0.5 multiplies it by 1.65.
inline constexpr double kDegrading = 0.05, kBreaking = 0.5;

std::vector<Finding> expected_findings(const Diagnosis& diagnosis);
std::vector<Finding> measured_findings(const Diagnosis& diagnosis);

/// The loss past the training length beside that of the same targets within it.
struct LossVerdict {
  bool beyond = false;          ///< whether any target lies past it
  bool finite = true;           ///< every loss
  double difference = 0;        ///< mean over all of these
  double error = 0;             ///< its standard error
  std::int64_t from = 0;        ///< where the rise begins: the first bin that is shown to be worse
  double late = 0;              ///< mean over the last quarter of the bins beyond
  double loss = 0, inside = 0;  ///< means over the targets past the training length
};
LossVerdict loss_verdict(const Measures& measures, std::int64_t train_length);

}  // namespace torsor
