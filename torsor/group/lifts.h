// Unipotent lifts: matrices I + s A with A^2 = 0, whose products add what a bias adds (GRAPE-A of arXiv:2512.07805,
// sections 4 and 5, appendices C and E). Queries are multiplied by G(i), keys by the inverse transpose of G(j), and
// then the score is q^T G(j - i)^-T k.
//
// Everything here is float64, in vectors and matrices one size or two larger than the head: what the encodings compute
// directly, written as the group that it is.
#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace torsor::group {

/// E = e_(n) e_(n-1)^T in n = width + 2 dimensions, counted from 1.
at::Tensor lift_unit(std::int64_t width);
/// I + s A, which is exp(s A) exactly for A^2 = 0.
at::Tensor unipotent(const at::Tensor& nilpotent, double s);
/// The inverse transpose of that: I - s A^T.
at::Tensor unipotent_dual(const at::Tensor& nilpotent, double s);
/// Whether all products of two of the generators are zero, those with themselves as well: then any sum of their
/// multiples is again nilpotent and the biases add.
bool commuting_dictionary(const std::vector<at::Tensor>& generators);

/// One dimension more (section 4.1): q^ = [q; 1], k^ = [k; 1], A = [[0, u], [0, 0]]. The score is
/// q.k + 1 - (j - i) omega u.k; the 1 is invisible to a softmax.
at::Tensor lift_once(const at::Tensor& x);               ///< (d) to (d + 1)
at::Tensor once_generator(const at::Tensor& direction);  ///< u (d) to A (d + 1, d + 1)
double once_score(const at::Tensor& q, const at::Tensor& k, const at::Tensor& direction, double omega, double i,
                  double j);

/// Two dimensions more (section 4.2): q^ = [q; 1; 0], k^ = [k; 0; 1], A = -rate E. The score is
/// q.k + (j - i) omega rate, a penalty for j <= i and rate >= 0, without a constant.
at::Tensor lift_query(const at::Tensor& q);  ///< (d) to (d + 2)
at::Tensor lift_key(const at::Tensor& k);
at::Tensor twice_generator(std::int64_t width, double rate);
double twice_score(const at::Tensor& q, const at::Tensor& k, double omega, double rate, double i, double j);

/// The product over a path of I - psi_l E (section 5): I - (sum psi) E, which adds + sum psi to the score. The paper's
/// appendix C prints I + psi E, which subtracts it.
at::Tensor path_product(std::int64_t width, const at::Tensor& psi);

/// diag(L, -omega rate E'): one generator for a rotation L (d, d) and a slope (appendix E, whose displayed matrix is
/// already the inverse transpose).
at::Tensor joint_generator(const at::Tensor& rotation, double omega, double rate);
/// Its exponential at m in closed form, of the rotation's own: diag(turned, I - m omega rate E').
at::Tensor joint_exponential(const at::Tensor& turned, double omega, double rate, double m);

/// The two singular values of I + s E that are not 1, larger first: sqrt(1 + s^2/2 +- |s| sqrt(1 + s^2/4)); their
/// product is 1 though they differ ever more: a unipotent map keeps volumes, not lengths.
std::pair<double, double> unipotent_singular_values(double s);

}  // namespace torsor::group
