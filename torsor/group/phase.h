// Contextual phases: content decides how far a token turns (GRAPE-M-ctx of arXiv:2512.07805 and its released code).
#pragma once

#include <ATen/ATen.h>

namespace torsor::group {

/// How a gate becomes a rate. Released: sigmoid(gate / 16), below 1; Softplus: ln(1 + exp(gate)), what the paper's text
/// says. They start far apart: a gate of softplus^-1(1e-3) = -6.907 gives 1e-3 under softplus and 0.394 as released.
enum class PhaseLink { Released, Softplus };
inline constexpr double kPhaseScale = 16;

/// Rates (any shape) of gates, positive, in the dtype of the gates.
at::Tensor phase_rate(const at::Tensor& gate, PhaseLink link);

/// Running sums over tokens.
struct Phases {
  at::Tensor phase;  ///< (B, G, T) what stands before each token: the token's own rate is not in it
  at::Tensor reach;  ///< (B, G, T) the same with the token's own rate
};

/// `rate` (B, G, T) and the sum `before` the first token (B or 1, G), both summed in float64. The gradient of a rate is
/// the sum of the phases' gradients of all later tokens, summed from the end; nothing is subtracted.
Phases running_phases(const at::Tensor& rate, const at::Tensor& before);

}  // namespace torsor::group
