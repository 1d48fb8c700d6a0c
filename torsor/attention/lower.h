// From the answers of an encoding to one call of the fused kernel: plain numbers, and the tensors that gradients flow
// through.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "torsor/attention/core.h"
#include "torsor/kernel/attention.h"

namespace torsor {

/// What a part is to its bias; named as the gradients in kernel::BiasGradient.
enum class Slot { Table, Slope, Level, C, Reach, R1, R2, Alpha, Query, Key, Left, Right, Beta };
inline constexpr std::size_t kSlots = 13;

/// Place of a tensor among the parts of a call.
using Place = std::optional<std::size_t>;

/// A bias as the kernel takes it.
struct LoweredBias {
  kernel::Bias bias;                ///< everything but the pointers to parts
  std::array<Place, kSlots> parts;  ///< by Slot
};

/// Everything of a call but q, k, v and the parts. It owns what its plain structs point at.
struct Lowered {
  kernel::Attention call;             ///< without q, k, v, sizes, biases, and pointers to parts
  std::vector<LoweredBias> biases;    ///< in the order of the input's
  Place query_scale, carried;         ///< parts that belong to no bias
  std::vector<at::ScalarType> types;  ///< of the parts, as the kernel reads them
  std::vector<at::Tensor> held;       ///< memory behind the pointers
};

/// A call of the kernel. `parts` may hang on trained tensors through operations of libtorch; a part in float64 that the
/// kernel reads in float32 is rounded at the call, so that its gradient is not.
struct LoweredCall {
  std::shared_ptr<const Lowered> lowered;
  std::vector<at::Tensor> parts;
};

/// Nothing where the kernel has no form for the call. Throws Error where a form refuses a negative distance, as
/// evaluate_form does.
std::optional<LoweredCall> lower(const CoreInput& input);

/// The tensor with channels next to each other; other strides are free.
at::Tensor with_unit_stride(const at::Tensor& tensor);

/// (B, H, T, channels) or (B, H, T) as the kernel takes it, float32 or bfloat16; an extent of 1 gets the stride 0.
kernel::Input input_of(const at::Tensor& tensor);
kernel::Output output_of(const at::Tensor& tensor);

/// The kernel's call. `parts` are of the types that `lowered` says, and live until it has run, as q, k and v do.
kernel::Attention call_of(const Lowered& lowered, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          at::ArrayRef<at::Tensor> parts);

/// The shape of what the kernel gives as the gradient of a part, float64; summed over what the part is shared by, it
/// is the part's.
std::vector<std::int64_t> gradient_shape(const LoweredBias& bias, Slot slot, const at::Tensor& part,
                                         std::int64_t batch);

/// `gradient` summed over rows and heads that share one entry of a tensor of shape `sizes`.
at::Tensor summed_to(const at::Tensor& gradient, at::IntArrayRef sizes);

/// The member that takes the gradient of a slot.
double*& gradient_of(kernel::BiasGradient& gradient, Slot slot);

}  // namespace torsor
