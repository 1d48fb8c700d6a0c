// grape-m: rotations whose planes, frequencies or clock are trained.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// exp(n L) applied to q and k, L skew, n the position or a phase that the content decides (GRAPE-M of
/// arXiv:2512.07805, sections 2 and 3, appendices D and G, and its released code). What L is:
///
///   planes=canonical   pairs of channels as in rope; frequency exp(log_freq / 16), with context exp(log_freq)
///   planes=general     one plane a key head: omega L(a, b)
///   planes=ja          the same with b = a turned by 90 degrees in every pair of channels
///   rank=r             r / 2 planes a key head that need not be orthogonal: sum of theta_i L(a_i, b_i)
///   basis=...          canonical planes in a trained orthogonal basis, one for all heads
///
/// with L(a, b) = a b^T - b a^T, so exp(n L(a, b)) turns a towards minus b. n is real, also beside half steps. With
/// context=true the position is not read: n of a token is the sum over the earlier tokens of its document of
/// sigmoid(gate / 16), or softplus(gate), gate = gate_weight.x + gate_bias. Its own rate is not in it.
///
/// Trained tensors (K key heads, D head width, C model width): log_freq (K or 1, D/2); a, b (K, D) and omega (K); mix
/// (K, D, r), columns a_0 b_0 a_1 b_1 ..., and theta (K, r/2); skew (D (D - 1) / 2), the entries above the diagonal row
/// by row; reflectors (m, D); gate_weight (1 or K, C) and gate_bias (1 or K). None of them decays.
/// Throws UsageError where keys have no meaning together or the head does not fit them.
NameInfo grape_m_name();

}  // namespace torsor
