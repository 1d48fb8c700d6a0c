// Rotations of rank r that do not commute plane by plane: exp(n L) with L = sum_i theta_i L(a_i, b_i).
//
// GRAPE, arXiv:2512.07805, appendix D, states L = E L_r E^T and stops there; evaluation and backward are ours. The
// product of the single exponentials is not a one-parameter group and is never formed.
#pragma once

#include <ATen/ATen.h>

namespace torsor::group {

/// The planes in which a mixture turns: A = E R (thin QR), L = E (R K R^T) E^T, and the Hermitian eigenproblem of
/// -i R K R^T, r x r in complex128. Pairs of eigenvalues +-angle with v = (x + i y) / sqrt(2) give orthonormal x and y,
/// also where angles are equal, and L = sum_t angle_t L(E x_t, E y_t). One small problem a parameter update.
struct MixturePlanes {
  at::Tensor frame;    ///< E (G, D, r') float64, orthonormal columns; r' = min(D, r)
  at::Tensor upper;    ///< R (G, r', r) float64, A = E R
  at::Tensor values;   ///< (G, r') float64, all eigenvalues, ascending
  at::Tensor vectors;  ///< (G, r', r') complex128, their eigenvectors in the columns
};

/// `mix` (G, D, r) with columns a_0 b_0 a_1 b_1 ..., r even; `theta` (G, r / 2). Dependent columns are fine.
MixturePlanes mixture_planes(const at::Tensor& mix, const at::Tensor& theta);

/// y = exp(n L) x in each head, in O(r D) a vector, forward and backward.
///
/// x (B, H, T, D) float32 or float64; mix and theta as above, float64, G a divisor of H; turn n (B or 1, G or 1, T)
/// float64, real. Gradients of x, mix, theta and turn, of first order: divided differences instead of derivatives of
/// eigenvectors, so equal angles are no singularity; exact in and outside the span of the mix.
/// Throws Error when the shapes do not fit.
at::Tensor turn_mixture(const at::Tensor& x, const at::Tensor& mix, const at::Tensor& theta, const at::Tensor& turn);

/// L as matrices (G, D, D).
at::Tensor mixture_generator(const at::Tensor& mix, const at::Tensor& theta);

}  // namespace torsor::group
