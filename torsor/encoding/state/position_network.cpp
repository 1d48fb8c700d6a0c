#include "torsor/encoding/state/position_network.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <functional>

#include "torsor/base/error.h"
#include "torsor/kernel/mix_heads.h"

namespace torsor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::array<std::int64_t, 3> leading_strides(const at::Tensor& tensor) {
  return {tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

at::Tensor with_dense_rows(const at::Tensor& tensor) {
  return tensor.size(3) == 1 || tensor.stride(3) == 1 ? tensor : tensor.contiguous();
}

/// (B, H, T, W) with a token's heads side by side in memory: the kernel and the projections walk token by token.
at::Tensor empty_state(const at::Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

void for_tokens(const at::Tensor& state, const std::function<void(std::int64_t first, std::int64_t last)>& work) {
  const std::int64_t each = std::max<std::int64_t>(1, state.size(1) * state.size(1) * state.size(3));
  at::parallel_for(0, state.size(0) * state.size(2), std::max<std::int64_t>(1, 65536 / each), work);
}

template <class T>
kernel::HeadMix<T> mix_of(const at::Tensor& state, const at::Tensor& matrix, const at::Tensor& out) {
  kernel::HeadMix<T> mix;
  mix.sizes = {state.size(0), state.size(1), state.size(2)};
  mix.width = state.size(3);
  mix.x = state.const_data_ptr<T>();
  mix.x_strides = leading_strides(state);
  mix.matrix = matrix.const_data_ptr<T>();
  mix.out = out.data_ptr<T>();
  mix.out_strides = leading_strides(out);
  return mix;
}

/// state + matrix state for every token; matrix (B, T, H, H).
struct MixHeads : public torch::autograd::Function<MixHeads> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given, const at::Tensor& given_matrix) {
    const at::Tensor state = with_dense_rows(given), matrix = given_matrix.contiguous();
    const at::Tensor out = empty_state(state);
    AT_DISPATCH_FLOATING_TYPES(state.scalar_type(), "mix_heads", [&] {
      const auto mix = mix_of<scalar_t>(state, matrix, out);
      for_tokens(state, [&](std::int64_t first, std::int64_t last) { kernel::mix_heads(mix, first, last); });
    });
    context->save_for_backward({state, matrix});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (at::GradMode::is_enabled()) throw Error("position_network: the gradient of a gradient is not there");
    const auto saved = context->get_saved_variables();
    const at::Tensor &state = saved[0], &matrix = saved[1], g = with_dense_rows(gradients[0]);
    const at::Tensor dstate = empty_state(state), dmatrix = at::empty_like(matrix);
    AT_DISPATCH_FLOATING_TYPES(state.scalar_type(), "mix_heads_back", [&] {
      const auto mix = mix_of<scalar_t>(state, matrix, dstate);
      kernel::HeadMixBack<scalar_t> back;
      back.gradient = g.const_data_ptr<scalar_t>();
      back.gradient_strides = leading_strides(g);
      back.matrix_gradient = dmatrix.data_ptr<scalar_t>();
      for_tokens(state, [&](std::int64_t first, std::int64_t last) { kernel::mix_heads_back(mix, back, first, last); });
    });
    return {dstate, dmatrix};
  }
};

}  // namespace

at::Tensor position_network(const at::Tensor& state, const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& down) {
  const std::int64_t inner = up.size(0), heads = up.size(1);
  // kernel[i, h, e] = Dn[h, i] Up[i, e], so that one product with the gates gives every token's matrix.
  const at::Tensor parts = (down.t().unsqueeze(2) * up.unsqueeze(1)).reshape({inner, heads * heads});
  const at::Tensor matrix = at::matmul(gate, parts).unflatten(-1, {heads, heads});
  if (state.is_cpu()) return MixHeads::apply(state, matrix);
  return state + at::matmul(matrix, state.transpose(1, 2)).transpose(1, 2);
}

}  // namespace torsor
