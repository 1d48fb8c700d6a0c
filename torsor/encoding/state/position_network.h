// TAPE's position network: a content-gated map over the head axis of a position state.
#pragma once

#include <ATen/ATen.h>

namespace torsor {

/// state + Dn diag(gate) Up state, the maps acting on the head axis alike for every column, as one matrix a token:
/// M_t = Dn diag(gate_t) Up. state (B, H, T, W), gate (B, T, I), up (I, H), down (H, I), all of one dtype, float32 or
/// float64. With gradients of all four; a gradient of a gradient throws Error.
/// Source: arXiv:2501.00712, section 3, in the form of the released code.
at::Tensor position_network(const at::Tensor& state, const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& down);

}  // namespace torsor
