// The laws of a one-parameter group of rotations, and of paths, as numbers: how far from holding they are.
//
// All matrices are (.., n, n); the answer is the largest entry of what should be zero.
#pragma once

#include <ATen/ATen.h>

namespace torsor::group {

/// G(0) - I
double identity_error(const at::Tensor& at_zero);
/// G(n) G(m) - G(n + m)
double composition_error(const at::Tensor& of_n, const at::Tensor& of_m, const at::Tensor& of_both);
/// G(-n) - G(n)^T
double transpose_error(const at::Tensor& of_n, const at::Tensor& of_minus_n);
/// G(n) G(-n) - I
double inverse_error(const at::Tensor& of_n, const at::Tensor& of_minus_n);
/// |G x| / |x| - 1 for rows x (.., D) and what became of them
double norm_error(const at::Tensor& x, const at::Tensor& turned);
/// G^T G - I: no direction becomes longer or shorter
double orthogonality_error(const at::Tensor& of_n);
/// det G - 1
double determinant_error(const at::Tensor& of_n);

/// A path along one row: psi (.., T) holds what each edge l adds for a query, b (.., T) what stands at each key j, with
/// b(j) = the sum of psi over l > j. The largest error of b(j) = b(m) + psi(j + 1) + ... + psi(m) over all j <= m, in
/// units of the largest |b| or 1: all that holds of a path whose edges depend on the query.
double row_composition_error(const at::Tensor& psi, const at::Tensor& b);

}  // namespace torsor::group
