// grape-ap: a path integral of edges that read the content.
#pragma once

#include "torsor/encoding/registry.h"

namespace torsor {

/// `grape-ap(width=8, variant=released, tie=none, learn_alpha=false)`: every token between a key and a query costs what
/// the query thinks of it (GRAPE-AP; Zhang et al. 2026, arXiv 2512.07805, Eq. (5.1)).
///
///     b(i, j) = alpha_h * (g(i, j+1) + ... + g(i, i)),   g(i, l) = ln sigmoid(<a_i, R_l r_l> / P) < 0
///
/// With p = weight_h x the probes of width P of a token: r_l is p_l over its root mean square (epsilon 2^-23), and R_l
/// turns each of its planes by the token's position in radians. `released` (the authors' code): a_i = p_i raw, turned
/// by -l, planes (c, c + P/2); `paper`: a_i normalised too, turned by +l, planes (2c, 2c + 1); `relative`: released,
/// with a_i turned by minus its own position as well. Only `relative` is unchanged when all positions move alike.
///
/// Trained: `weight` (H, width, C), normal with deviation 0.5 / sqrt(C), of query heads; `tie=q, k, v` takes the
/// projections themselves as probes (P = their width, which must be even) and trains none. alpha_h is ALiBi's slope;
/// with `learn_alpha=true` `log_alpha` (H) starts there. The sum runs over the tokens that the query sees, in token
/// order; padding and other documents add nothing. Causal attention only. With `tie=q` a call must bring a query of
/// every token (Refusal).
NameInfo grape_ap_name();

}  // namespace torsor
