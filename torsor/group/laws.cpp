#include "torsor/group/laws.h"

#include <algorithm>

namespace torsor::group {
namespace {

double largest(const at::Tensor& error) { return error.numel() == 0 ? 0 : error.abs().max().item<double>(); }
at::Tensor one_like(const at::Tensor& matrix) { return at::eye(matrix.size(-1), matrix.options()); }

}  // namespace

double identity_error(const at::Tensor& at_zero) { return largest(at_zero - one_like(at_zero)); }

double composition_error(const at::Tensor& of_n, const at::Tensor& of_m, const at::Tensor& of_both) {
  return largest(at::matmul(of_n, of_m) - of_both);
}

double transpose_error(const at::Tensor& of_n, const at::Tensor& of_minus_n) {
  return largest(of_minus_n - of_n.transpose(-1, -2));
}

double inverse_error(const at::Tensor& of_n, const at::Tensor& of_minus_n) {
  return largest(at::matmul(of_n, of_minus_n) - one_like(of_n));
}

double norm_error(const at::Tensor& x, const at::Tensor& turned) {
  const auto length = [](const at::Tensor& rows) { return rows.to(at::kDouble).norm(2, {-1}); };
  return largest(length(turned) / length(x) - 1);
}

double orthogonality_error(const at::Tensor& of_n) {
  return largest(at::matmul(of_n.transpose(-1, -2), of_n) - one_like(of_n));
}

double determinant_error(const at::Tensor& of_n) { return largest(at::linalg_det(of_n) - 1); }

double row_composition_error(const at::Tensor& psi, const at::Tensor& b) {
  double worst = 0;
  const double size = std::max(1.0, largest(b));
  for (std::int64_t m = 0; m < psi.size(-1); ++m) {
    at::Tensor sum = b.select(-1, m).clone();
    for (std::int64_t j = m; j >= 0; --j) {
      worst = std::max(worst, largest(b.select(-1, j) - sum));
      sum = sum + psi.select(-1, j);
    }
  }
  return worst / size;
}

}  // namespace torsor::group
