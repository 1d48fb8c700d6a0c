#include "torsor/model/fused.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "torsor/kernel/norm.h"
#include "torsor/kernel/swiglu.h"

// at::parallel_for is a template: compiled without the threads that libtorch uses it would run in one.
#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "compile for OpenMP, as Torsor::torch asks for"
#endif

namespace torsor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t grain = 1 << 15;  // numbers a task

/// Memory that the kernels walk through from end to end, the last axis innermost.
bool is_dense_float(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided &&
         !tensor.is_neg() && tensor.is_non_overlapping_and_dense() && tensor.dim() > 0 && tensor.numel() > 0 &&
         (tensor.size(-1) == 1 || tensor.stride(-1) == 1);
}

/// `tensor` with its numbers in the order in memory of `like`, which has the same shape.
at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like) {
  if (tensor.strides() == like.strides()) return tensor;
  return at::empty_like(like).copy_(tensor);
}

struct RmsNorm : public torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double eps) {
    const auto [y, inverse] = normalized(x, weight, eps);
    context->save_for_backward({x, weight, inverse});
    context->saved_data["eps"] = eps;
    return y;
  }

  /// The result, and the inverse of each row's root mean square.
  static std::pair<at::Tensor, at::Tensor> normalized(const at::Tensor& x, const at::Tensor& weight, double eps) {
    at::Tensor y = at::empty_like(x), inverse = at::empty({x.numel() / x.size(-1)}, x.options());
    at::parallel_for(0, inverse.numel(), rows_a_task(x), [&](std::int64_t first, std::int64_t last) {
      kernel::rms_norm(x.const_data_ptr<float>(), weight.const_data_ptr<float>(), static_cast<float>(eps), x.size(-1),
                       first, last, y.data_ptr<float>(), inverse.data_ptr<float>());
    });
    return {y, inverse};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &inverse = saved[2];
    if (at::GradMode::is_enabled())
      return differentiable(x, weight, gradients[0], context->saved_data["eps"].toDouble());
    const at::Tensor g = in_order_of(gradients[0], x);
    // The rows are cut into tasks by their number alone, so the sum does not depend on the threads.
    const std::int64_t rows = inverse.numel(), width = x.size(-1), each = rows_a_task(x);
    const std::int64_t tasks = (rows + each - 1) / each;
    const at::Tensor dx = at::empty_like(x), parts = at::zeros({tasks, width}, x.options());
    at::parallel_for(0, tasks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task)
        kernel::rms_norm_back(x.const_data_ptr<float>(), weight.const_data_ptr<float>(),
                              inverse.const_data_ptr<float>(), g.const_data_ptr<float>(), width, task * each,
                              std::min(rows, (task + 1) * each), dx.data_ptr<float>(),
                              parts.data_ptr<float>() + task * width);
    });
    return {dx, parts.sum(0), at::Tensor()};
  }

 private:
  static std::int64_t rows_a_task(const at::Tensor& x) { return std::max<std::int64_t>(1, grain / x.size(-1)); }

  /// For a gradient of the gradient: the same through the plain operations.
  static variable_list differentiable(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& g, double eps) {
    const at::Tensor r = at::rsqrt(x.square().mean(-1, true) + eps), straight = g * weight;
    const at::Tensor dx = r * (straight - x * r.square() * (straight * x).mean(-1, true));
    return {dx, (g * x * r).reshape({-1, x.size(-1)}).sum(0), at::Tensor()};
  }
};

struct SwiGlu : public torch::autograd::Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return gated(gate, up);
  }

  static at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) {
    at::Tensor y = at::empty_like(gate);
    at::parallel_for(0, gate.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      kernel::swiglu(gate.const_data_ptr<float>() + begin, up.const_data_ptr<float>() + begin, end - begin,
                     y.data_ptr<float>() + begin);
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    if (at::GradMode::is_enabled()) {
      const at::Tensor s = at::sigmoid(gate), silu = gate * s;
      return {gradients[0] * up * (s + silu * (1 - s)), gradients[0] * silu};
    }
    const at::Tensor g = in_order_of(gradients[0], gate);
    const at::Tensor dgate = at::empty_like(gate), dup = at::empty_like(gate);
    at::parallel_for(0, gate.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      kernel::swiglu_back(gate.const_data_ptr<float>() + begin, up.const_data_ptr<float>() + begin,
                          g.const_data_ptr<float>() + begin, end - begin, dgate.data_ptr<float>() + begin,
                          dup.data_ptr<float>() + begin);
    });
    return {dgate, dup};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (is_dense_float(x) && is_dense_float(weight) && weight.dim() == 1 && weight.size(0) == x.size(-1))
    return at::GradMode::is_enabled() ? RmsNorm::apply(x, weight, eps) : RmsNorm::normalized(x, weight, eps).first;
  return at::rms_norm(x, {x.size(-1)}, weight, eps);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (is_dense_float(gate) && is_dense_float(up) && gate.sizes() == up.sizes() && gate.strides() == up.strides())
    return at::GradMode::is_enabled() ? SwiGlu::apply(gate, up) : SwiGlu::gated(gate, up);
  return at::silu(gate) * up;
}

}  // namespace torsor
