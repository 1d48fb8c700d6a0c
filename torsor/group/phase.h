// Contextual phases: content decides how far a token turns (GRAPE-M-ctx of arXiv:2512.07805 and its released code). The
// phase of a token is the running sum of rates before it.
#pragma once

#include <ATen/ATen.h>

namespace torsor::group {

/// How a gate becomes a rate. Released: sigmoid(gate / 16), below 1; Softplus: ln(1 + exp(gate)), what the paper's text
/// says. They start far apart: a gate of softplus^-1(1e-3) = -6.907 gives 1e-3 under softplus and 0.394 as released.
enum class PhaseLink { Released, Softplus };
inline constexpr double kPhaseScale = 16;

/// Rates (any shape) of gates, positive, in the dtype of the gates.
at::Tensor phase_rate(const at::Tensor& gate, PhaseLink link);

/// Sums over tokens, float64.
struct RunningSums {
  at::Tensor before;   ///< (B, G, T) of what stands before each token: its own value is not in it
  at::Tensor through;  ///< (B, G, T) the same with its own value
};

/// `values` (B, G, T) and the sum in front of the first token (B or 1, G), summed in float64. The gradient of a value
/// is the sum of the gradients of all later sums, taken from the end; nothing is subtracted.
RunningSums running_sums(const at::Tensor& values, const at::Tensor& start);

}  // namespace torsor::group
