// What a call of fused attention means, and its gradients: one pair of a query and a key after the other, in float64.
#pragma once

#include <vector>

#include "tests/kernel/problem.h"

namespace torsor::kernel {

struct Result {
  Tensor out, lse, averages;
  Tensor out_sizes, averages_sizes;  ///< averages of the values' magnitudes
  double largest_logit = 0;          ///< of those that are finite
};
Result define(const Problem& p);

/// In the shapes that the kernel writes: what is shared has a gradient for each that shares it.
struct GradientNumbers {
  Tensor q, k, v, carried;
  std::vector<Parameters> biases;
};

/// All zeros.
GradientNumbers gradient_shapes(const Problem& p);

struct Defined {
  GradientNumbers sums;
  /// The same sums of the terms' magnitudes. The slope of a logit is itself a difference, weight (slope of this key -
  /// mean slope), and the magnitude of such a term is that of its parts.
  GradientNumbers sizes;
};
Defined define_gradients(const Problem& p, const Incoming& in);

}  // namespace torsor::kernel
