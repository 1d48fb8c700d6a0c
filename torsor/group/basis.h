// Learned orthogonal bases, made of free parameters: exactly orthogonal whatever the optimizer does to them.
//
// GRAPE, arXiv:2512.07805, algorithm 1, turns planes in a basis B and says neither how B is parametrized nor how it
// stays orthogonal; both ways here are ours.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace torsor::group {

/// The skew matrix with `upper` above its diagonal, row by row: (n (n - 1) / 2) to (n, n).
/// Throws Error when the number of entries is of no n.
at::Tensor skew_matrix(const at::Tensor& upper);

/// B = (I + S)^-1 (I - S) for skew S (n, n) float64: a rotation, I for S = 0; reaches every rotation without the
/// eigenvalue -1. Gradient of the free entries of S in closed form: with M = -(I + S)^-T Bbar (I + B)^T, S_ij receives
/// M_ij - M_ji (here half of it on each side of the diagonal, so that skew_matrix sums it up).
at::Tensor cayley(const at::Tensor& skew);

/// x (.., n) as rows times H_1 H_2 ... H_m with H = I - 2 v v^T / v.v and v the rows of `reflectors` (m, n): O(m n) a
/// vector. A reflector of zeros reflects nothing. The determinant is (-1)^m: a rotation needs an even number.
at::Tensor reflect(const at::Tensor& x, const at::Tensor& reflectors);
/// H_1 H_2 ... H_m as a matrix (n, n), float64.
at::Tensor householder(const at::Tensor& reflectors);

/// Rows (heads * n, ..) of a projection, each head's n rows multiplied by B^T from the left: then the projected vectors
/// come out as B^T q, and planes that turn in the basis B become plain planes. Exact, for q and k alike; the trailing B
/// of Algorithm 1 cancels in q.k. Throws Error when n does not divide the rows.
at::Tensor fold_basis(const at::Tensor& rows, const at::Tensor& basis);

}  // namespace torsor::group
