// Steps of a block that would take many passes over memory as single tensor operations, in one pass each, with their
// gradients. On other devices, dtypes and layouts they are the plain operations.
#pragma once

#include <ATen/ATen.h>

namespace torsor {

/// x / sqrt(mean(x^2) + eps) * weight over the last axis; weight (C). Zhang and Sennrich 2019.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// silu(gate) * up, elementwise; Shazeer 2020.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace torsor
