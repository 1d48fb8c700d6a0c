#include "torsor/model/sampling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "torsor/base/error.h"

namespace torsor {

void Sampling::check() const {
  if (!(temperature >= 0) || !std::isfinite(temperature))
    throw UsageError(str("sampling: temperature must be 0 or more, found ", temperature));
  if (top_k < 0) throw UsageError(str("sampling: top_k must be 0 or more, found ", top_k));
  if (!(top_p > 0 && top_p <= 1)) throw UsageError(str("sampling: top_p must lie in (0, 1], found ", top_p));
}

Sampler::Sampler(const Sampling& sampling, std::int64_t row)
    : sampling_(sampling), random_(sampling.seed, stream_of("generate") + static_cast<std::uint64_t>(row)) {
  sampling.check();
}

std::int64_t Sampler::choose(const at::Tensor& logits) {
  const at::Tensor plain = logits.to(at::kCPU, at::kDouble).contiguous();
  if (plain.dim() != 1 || plain.numel() == 0)
    throw Error(str("sampling: logits must have shape (vocabulary), found ", logits.sizes()));
  const double* values = plain.const_data_ptr<double>();
  const std::int64_t count = plain.numel();
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::isnan(values[i])) throw Error(str("sampling: the logit of token ", i, " is not a number"));
    if (values[i] > values[best]) best = i;
  }
  if (std::isinf(values[best]))
    throw Error(str("sampling: the largest logit, of token ", best, ", is not finite: ", values[best]));
  if (sampling_.temperature == 0) return best;

  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto before = [&](std::int64_t a, std::int64_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  };
  std::size_t most = order.size();
  if (sampling_.top_k > 0) most = std::min(most, static_cast<std::size_t>(sampling_.top_k));
  // Without a limit the order of the tokens plays no part in who is drawn how often.
  const bool ordered = most < order.size() || sampling_.top_p < 1;
  if (ordered) std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(), before);
  order.resize(most);
  std::vector<double> weights(most);
  double total = 0;
  for (std::size_t i = 0; i < most; ++i)
    total += weights[i] = std::exp((values[order[i]] - values[best]) / sampling_.temperature);
  if (sampling_.top_p < 1) {
    double sum = 0;
    std::size_t kept = 0;
    while (kept < most && (kept == 0 || sum < sampling_.top_p * total)) sum += weights[kept++];
    weights.resize(kept);
    total = sum;
  }
  double left = random_.uniform() * total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  // Rounding of the sums: the last one that can be drawn at all.
  std::size_t last = weights.size() - 1;
  while (last > 0 && weights[last] == 0) --last;
  return order[last];
}

}  // namespace torsor
