// Products with a model's matrices.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace torsor {

/// x W^T, from and to whatever the caller holds, computed in `dtype`. A matrix in float16 or bfloat16 with `dtype`
/// float32 is read as it is, where a few vectors are multiplied and no gradient is asked for (kernel/half_product.h),
/// and widened else.
at::Tensor project(const at::Tensor& x, const at::Tensor& weight, at::ScalarType dtype);
/// The same with several matrices that read the same x, in one pass where there is one.
std::vector<at::Tensor> project_all(const at::Tensor& x, const std::vector<at::Tensor>& weights, at::ScalarType dtype);

/// x + bias, or x where there is none.
at::Tensor with_bias(const at::Tensor& x, const at::Tensor& bias);
/// x W^T + bias, given back in the type of `x`.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::ScalarType dtype);

/// Whether a type is one that matrices may be kept in beside float32 and float64: float16 or bfloat16.
bool is_half(at::ScalarType type);
/// Those types, the one that any float32 fits into first.
inline constexpr at::ScalarType kHalves[] = {at::kBFloat16, at::kHalf};

}  // namespace torsor
