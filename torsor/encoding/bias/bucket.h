// Distance buckets: which row of a relative table a distance reads.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "torsor/encoding/forms.h"

namespace torsor {

/// Where the logarithmic half of `far=log` ends: 2^20 tokens.
inline constexpr double kFarLogDistance = 1048576;

/// The smallest whole distance of each bucket but the first, in ascending order, of one direction: bucket(n) = how many
/// of these are at most n, for n >= 0 (after the wrap of Far::Wrap). Buckets that no whole distance reaches repeat the
/// next bucket's bound. Exact where n/e is an exact power: the bounds are whole numbers found once, so a rounded
/// logarithm cannot move a distance into the neighbouring bucket.
std::vector<double> bucket_bounds(const Buckets& rule);

/// The bucket of each distance n = p_q - p_k (float64, any shape) -> int64 of the same shape and device.
///
/// The nearest whole distance is taken, halves to even. Causal: max(n, 0). Bidirectional: the first half of the buckets
/// is for keys before the query (n >= 0), the second for keys after it. With B buckets a direction, e = B / 2 and M =
/// max_distance: n < e has a bucket of its own; the others share e + floor(ln(n/e) / ln(M/e) * (B - e)), at most B - 1.
/// Far::Wrap takes n modulo M first where n >= M; Far::Log sets M = kFarLogDistance. (Raffel et al. 2020, section 2.1
/// and the authors' code; wrap and log are Torsor's.)
at::Tensor bucket_of(const Buckets& rule, const at::Tensor& distance);

/// Throws UsageError, starting with `who`, unless the rule has a meaning: at least 2 buckets (an even number from 4 on
/// when bidirectional) and max_distance beyond the distances that have a bucket of their own.
void check_buckets(const Buckets& rule, const std::string& who);

}  // namespace torsor
