#include "torsor/encoding/bias/bucket.h"

#include <cmath>

#include "torsor/base/error.h"

namespace torsor {

std::vector<double> bucket_bounds(const Buckets& rule) {
  const std::int64_t count = rule.bidirectional ? rule.buckets / 2 : rule.buckets;
  const std::int64_t exact = count / 2;
  const double e = static_cast<double>(exact);
  const double limit = rule.far == Buckets::Far::Log ? kFarLogDistance : static_cast<double>(rule.max_distance);
  std::vector<double> bounds;
  bounds.reserve(static_cast<std::size_t>(count));
  for (std::int64_t bucket = 1; bucket <= exact; ++bucket) bounds.push_back(static_cast<double>(bucket));
  for (std::int64_t bucket = exact + 1; bucket < count; ++bucket) {
    // The real bound is e (M/e)^k with k = (bucket - e) / (B - e). Either it is a whole number, and pow comes within
    // rounding of it, or it is irrational, and then no whole distance up to 2^20 lies that near.
    const double part = static_cast<double>(bucket - exact) / static_cast<double>(count - exact);
    const double bound = e * std::pow(limit / e, part), whole = std::round(bound);
    bounds.push_back(std::abs(bound - whole) <= 1e-11 * whole ? whole : std::ceil(bound));
  }
  return bounds;
}

at::Tensor bucket_of(const Buckets& rule, const at::Tensor& distance) {
  const at::Tensor bounds =
      at::tensor(bucket_bounds(rule), at::TensorOptions().dtype(at::kDouble)).to(distance.device());
  at::Tensor whole = at::round(distance.to(at::kDouble)).contiguous();  // at::round takes halves to even
  at::Tensor after;
  if (rule.bidirectional) {
    after = whole.lt(0);
    whole = whole.abs();
  } else {
    whole = whole.clamp_min(0);
  }
  if (rule.far == Buckets::Far::Wrap) whole = at::fmod(whole, static_cast<double>(rule.max_distance));
  at::Tensor bucket = at::bucketize(whole, bounds, /*out_int32=*/false, /*right=*/true);
  if (rule.bidirectional) bucket = bucket.add(after.to(at::kLong), rule.buckets / 2);
  return bucket;
}

void check_buckets(const Buckets& rule, const std::string& who) {
  if (rule.bidirectional && (rule.buckets < 4 || rule.buckets % 2 != 0))
    throw UsageError(str(who, ": buckets=", rule.buckets, " must be even and at least 4 when bidirectional=true"));
  if (rule.buckets < 2) throw UsageError(str(who, ": buckets=", rule.buckets, " must be at least 2"));
  const std::int64_t exact = (rule.bidirectional ? rule.buckets / 2 : rule.buckets) / 2;
  if (rule.far == Buckets::Far::Log) {
    if (static_cast<double>(exact) >= kFarLogDistance)
      throw UsageError(str(who, ": buckets=", rule.buckets, " leaves no logarithmic half below 2^20, give fewer"));
  } else if (rule.max_distance <= exact) {
    throw UsageError(str(who, ": max_distance=", rule.max_distance, " must be larger than ", exact, ", as the first ",
                         exact, " distances have buckets of their own"));
  }
}

}  // namespace torsor
