// softmax(scale q.k + biases + mask) v with its gradients, one pair of tokens at a time.
#pragma once

#include "tests/oracle/case.h"

namespace oracle {

struct Computed {
  Outputs outputs;
  /// For each gradient, the largest sum of the magnitudes of the terms that add up to one of its numbers: beside the
  /// gradient itself it tells how much of a rounding error is left after cancellation.
  std::map<std::string, double> term_sums;
  double largest_logit = 0.0;  ///< in magnitude, over the pairs that see each other
};

/// Whether query i of row b sees key j (expressions.md).
bool sees(const Case& c, int b, int i, int j);

/// Everything that the case's outputs hold; gradients where it has grad_out and `gradients` is true.
Computed compute(const Case& c, bool gradients = true);

/// The loss whose gradient is taken: the sum of grad_out * out.
double objective(const Case& c);

}  // namespace oracle
