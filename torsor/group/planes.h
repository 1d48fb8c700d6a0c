// Commuting planes: pairs of channels that turn, each by its own angle. RoPE is the case of canonical pairs.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace torsor {

/// Where the two channels of a plane lie inside a rotary span of `width` channels cut into `blocks` equal blocks.
///
///   half, 1 block          [a a a a b b b b]      plane i = channels (i, i + width/2)
///   interleaved, 1 block   [a b a b a b a b]      plane i = channels (2i, 2i + 1)
///   half, 2 blocks         [a a b b|c c d d]      each block half-split on its own
enum class Layout { Half, Interleaved };

namespace group {

/// The channels of every plane of a span, (.., blocks, planes of a block) each: views of it.
struct PlaneView {
  at::Tensor a, b;
};
PlaneView split_planes(const at::Tensor& span, Layout layout, std::int64_t blocks);
/// The span again, (.., width).
at::Tensor join_planes(const at::Tensor& a, const at::Tensor& b, Layout layout);

/// Every plane turned by its angle, the first channel towards the second: (x_a + i x_b) exp(i angle). This is
/// orientation "plus"; "minus" is the other sign of the angle, and exp(angle L(e_a, e_b)) is "minus" (GRAPE,
/// arXiv:2512.07805, proposition 3.1; its eq. 3.1 turns the other way).
/// x (B, H, T, width) float32 or float64; angle (B or 1, G or 1, T, width / 2) float64, planes numbered block by block,
/// G a divisor of H. Gradients of x and of the angles, which need the turned channels only: gy_b y_a - gy_a y_b.
/// Throws Error when the shapes do not fit.
at::Tensor turn_planes(const at::Tensor& x, const at::Tensor& angle, Layout layout, std::int64_t blocks = 1);

/// Trained log frequencies are kept times this number: the step of an optimizer that moves every tensor equally fast is
/// that much smaller in the frequencies (released code of arXiv:2512.07805).
inline constexpr double kSpectrumScale = 16;
/// ln(base^(-2i/width)) for i = 0 ... width/2 - 1: the spectrum of RoPE.
std::vector<double> log_spectrum(double base, std::int64_t width);

}  // namespace group
}  // namespace torsor
