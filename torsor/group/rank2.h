// Rotations in one plane: the exponential of L(a, b) = a b^T - b a^T in closed form, forward and backward.
//
// Sources: GRAPE, arXiv:2512.07805, section 2 and appendix I (its coefficients lack the factors n omega and
// (n omega)^2; they stand here).
#pragma once

#include <ATen/ATen.h>

namespace torsor::group {

/// L(a, b) written with a and the part of b that is orthogonal to it: L(a, b) = L(a, b') for every multiple of a that
/// is taken from b. Then nothing cancels and parallel vectors need no case: alpha beta - gamma^2 would go negative.
struct PlaneGauge {
  at::Tensor a, b;         ///< (G, D) float64; a.b = 0
  at::Tensor shear;        ///< (G) how much of a was taken from b
  at::Tensor alpha, beta;  ///< (G) a.a and b.b
};

/// `a` and `b` (G, D) with D >= 1. Where a is zero, L is zero and b stays as it is.
PlaneGauge fix_gauge(const at::Tensor& a, const at::Tensor& b);

/// y = exp(eta L(a, b)) x in each head: the rotation by eta sqrt((a.a)(b.b) - (a.b)^2) in span{a, b}, the identity
/// across it. Two dot products and two sums of vectors a token, no matrix.
///
/// x (B, H, T, D) float32 or float64; a and b (G, D) float64, G divides H and head h reads row h / (H / G);
/// eta (B or 1, G or 1, T) float64, real. Gradients of x, a, b and eta, of any order.
/// exp is orthogonal to 1e-14 in float64 and 5e-7 in float32, also where a and b are parallel.
/// Throws Error when the shapes do not fit.
at::Tensor turn_in_plane(const at::Tensor& x, const at::Tensor& a, const at::Tensor& b, const at::Tensor& eta);

/// a turned by 90 degrees in every pair of channels, first to second: (-a_second, a_first). `interleaved` pairs
/// (2i, 2i + 1), else (i, i + D/2). With b = J a the plane of exp(eta L(a, b)) turns by -eta (a.a) in J's sense
/// (section 2.3). `a` (.., D), D even: an odd last channel would stay under J, and then a.Ja is not zero.
at::Tensor quarter_turn(const at::Tensor& a, bool interleaved);

/// L(a, b) as matrices: a and b (.., D) to (.., D, D).
at::Tensor plane_generator(const at::Tensor& a, const at::Tensor& b);

}  // namespace torsor::group
