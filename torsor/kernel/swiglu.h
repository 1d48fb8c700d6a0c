// The gate of a SwiGLU block, silu(gate) * up, and its gradients, each in one pass over memory.
#pragma once

#include <cstdint>

namespace torsor::kernel {

/// y_i = gate_i / (1 + exp(-gate_i)) * up_i for i < count. The factor of gate_i is 0 below -87, where it is less
/// than 2e-38.
void swiglu(const float* gate, const float* up, std::int64_t count, float* y);

/// From the gradient g of y: dgate and dup.
void swiglu_back(const float* gate, const float* up, const float* g, std::int64_t count, float* dgate, float* dup);

}  // namespace torsor::kernel
