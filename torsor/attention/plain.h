// Between tensors and the kernels on plain pointers.
#pragma once

#include <ATen/ATen.h>

#include "torsor/kernel/element.h"

namespace torsor {

/// Whether the kernels can read the tensor's memory: on the CPU, in float32, float64 or bfloat16, and not conjugated or
/// negated lazily.
bool is_plain(const at::Tensor& tensor);

/// Throws Error for a dtype that is none of them.
kernel::Element element_of(at::ScalarType dtype);

/// True when no number of the tensor is infinite or NaN.
bool all_finite(const at::Tensor& tensor);

}  // namespace torsor
