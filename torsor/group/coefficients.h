// The two entire functions that a rotation in a plane is made of, and their derivatives.
#pragma once

#include <ATen/ATen.h>

namespace torsor::group {

/// Functions of w = angle^2, elementwise:
///
///   g1(w) = sin(sqrt w) / sqrt w          g1'(w) = (cos(sqrt w) - g1) / (2 w)
///   g2(w) = (1 - cos(sqrt w)) / w         g2'(w) = (g1 - 2 g2) / (2 w)
///
/// They have no singularity, and no root of w is ever differentiated. GRAPE, arXiv:2512.07805, appendix I, prints the
/// derivative by the angle, which is singular where the plane collapses.
struct Coefficients {
  at::Tensor g1, g2;
  at::Tensor slope1, slope2;  ///< g1' and g2'; undefined when they were not asked for
};

/// `w` of any shape, at least 0, float32 or float64; the answers are as w. A Horner series for w <= 1, the formulas
/// above it: the usual border of 1e-4 is far too low for the derivatives, which lose all their digits below it.
/// Largest error 1e-14 in float64, 2e-6 in float32: of the value up to w = 1, above it of the value or of 0.1,
/// whichever is larger (the functions have zeros there, where the rounding of sqrt w is what remains).
Coefficients coefficients(const at::Tensor& w, bool slopes);

}  // namespace torsor::group
