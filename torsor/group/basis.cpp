#include "torsor/group/basis.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "torsor/base/error.h"

namespace torsor::group {
namespace {

struct Cayley : public torch::autograd::Function<Cayley> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& skew) {
    const at::Tensor one = at::eye(skew.size(0), skew.options());
    at::Tensor basis = at::linalg_solve(one + skew, one - skew);
    context->save_for_backward({skew, basis});
    return basis;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor one = at::eye(saved[0].size(0), saved[0].options());
    const at::Tensor full = -at::linalg_solve((one + saved[0]).t(), at::matmul(gradients[0], (one + saved[1]).t()));
    // S is skew, so only this part of the gradient is seen; taking it here keeps S skew under any step.
    return {(full - full.t()) * 0.5};
  }
};

}  // namespace

at::Tensor skew_matrix(const at::Tensor& upper) {
  const std::int64_t entries = upper.numel();
  const std::int64_t n =
      static_cast<std::int64_t>(std::llround((1 + std::sqrt(1 + 8 * static_cast<double>(entries))) / 2));
  if (upper.dim() != 1 || n * (n - 1) / 2 != entries)
    throw Error(str("skew_matrix: n (n - 1) / 2 entries above the diagonal are needed, found ", upper.sizes()));
  const at::Tensor place = at::triu_indices(n, n, 1, at::TensorOptions(at::kLong).device(upper.device()));
  const at::Tensor half = at::zeros({n, n}, upper.options()).index_put({place.select(0, 0), place.select(0, 1)}, upper);
  return half - half.t();
}

at::Tensor cayley(const at::Tensor& skew) {
  if (skew.dim() != 2 || skew.size(0) != skew.size(1))
    throw Error(str("cayley: a square skew matrix is needed, found ", skew.sizes()));
  return Cayley::apply(skew.to(at::kDouble));
}

at::Tensor reflect(const at::Tensor& x, const at::Tensor& reflectors) {
  if (reflectors.dim() != 2 || reflectors.size(1) != x.size(-1))
    throw Error(str("reflect: reflectors must have shape (count, ", x.size(-1), "), found ", reflectors.sizes()));
  at::Tensor y = x;
  for (const at::Tensor& wide : reflectors.unbind(0)) {
    const at::Tensor v = wide.to(x.scalar_type());
    const at::Tensor length = (v * v).sum();
    y = y - (y * v).sum(-1, true) * (2 * v / length.masked_fill(length.eq(0), 1));
  }
  return y;
}

at::Tensor householder(const at::Tensor& reflectors) {
  return reflect(at::eye(reflectors.size(-1), reflectors.options().dtype(at::kDouble)), reflectors);
}

at::Tensor fold_basis(const at::Tensor& rows, const at::Tensor& basis) {
  const std::int64_t n = basis.size(0);
  if (basis.dim() != 2 || basis.size(1) != n || rows.dim() < 1 || rows.size(0) % n != 0)
    throw Error(str("fold_basis: rows (heads * n, ...) and a basis (n, n) are needed, found ", rows.sizes(), " and ",
                    basis.sizes()));
  const at::Tensor heads = rows.to(at::kDouble).reshape({rows.size(0) / n, n, -1});
  return at::matmul(basis.to(at::kDouble).t(), heads).reshape(rows.sizes()).to(rows.scalar_type());
}

}  // namespace torsor::group
