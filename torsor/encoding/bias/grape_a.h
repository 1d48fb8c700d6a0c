// grape-a: slopes with gates that read the content.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `grape-a(gate=none, variant=released, learn_slopes=false)`: a penalty in a straight line whose slope depends on the
/// key, the query or both (GRAPE-A; Zhang et al. 2026, arXiv 2512.07805, Eq. (4.6)).
///
///     b = -(p_q - p_k) * omega_h * rate;   rate = lambda_k(j), lambda_q(i) or their sum
///     lambda_k(j) = softplus(u . k_j / sqrt(D)),   lambda_q(i) = softplus(v . q_i / sqrt(D))
///
/// k and q are read before any move. `released` (the authors' code): u and v of length 1, omega = softplus(rho) * slope
/// with ALiBi's slope; `paper`: u and v as they are, omega = softplus(rho). Without a gate it is ALiBi: b = -slope_h *
/// |p_q - p_k|, and there is nothing that a variant could change.
///
/// Trained with gates: `u` (K, D), `v` (H, D), normal with deviation 1 / sqrt(D), and `rho` (H), such that
/// softplus(rho) starts at 1. With `learn_slopes=true`: `log_slopes` (H), from ALiBi's slopes; refused where no slope
/// is read. Gates need causal attention and refuse a negative distance.
NameInfo grape_a_name();

}  // namespace torsor
