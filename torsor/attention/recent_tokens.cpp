#include "torsor/attention/recent_tokens.h"

#include <algorithm>
#include <utility>

namespace torsor {

void RecentTokens::push(const NamedTensors& arriving, const std::vector<std::int64_t>& counts) {
  if (lengths_.empty()) lengths_ = oldest_ = std::vector<std::int64_t>(counts.size(), 0);
  for (const auto& [name, tensor] : arriving) {
    at::Tensor& ring = ring_[name];
    if (!ring.defined()) {
      std::vector<std::int64_t> shape = tensor.sizes().vec();
      shape[2] = kLength;
      ring = at::zeros(shape, tensor.options().requires_grad(false));
    }
    for (std::size_t b = 0; b < counts.size(); ++b) {
      // Of more tokens than the ring holds, the last ones.
      const std::int64_t last = counts[b], first = std::max<std::int64_t>(0, last - kLength);
      const std::int64_t row = static_cast<std::int64_t>(b);
      for (std::int64_t from = first;
           from < last;) {  // at most two stretches: up to the ring's end, and from its start
        const std::int64_t slot = (lengths_[b] + from) % kLength, count = std::min(last - from, kLength - slot);
        ring.select(0, row).narrow(1, slot, count).copy_(tensor.detach().select(0, row).narrow(1, from, count));
        from += count;
      }
    }
  }
  for (std::size_t b = 0; b < counts.size(); ++b) {
    lengths_[b] += counts[b];
    oldest_[b] = std::max(oldest_[b], lengths_[b] - kLength);
  }
}

NamedTensors RecentTokens::newest() const {
  NamedTensors all;
  for (const auto& [name, ring] : ring_) {
    std::vector<at::Tensor> rows;
    for (std::size_t b = 0; b < lengths_.size(); ++b) {
      const at::Tensor row = ring.narrow(0, static_cast<std::int64_t>(b), 1);
      rows.push_back(lengths_[b] == 0 ? at::zeros_like(row.narrow(2, 0, 1))
                                      : row.narrow(2, (lengths_[b] - 1) % kLength, 1));
    }
    all[name] = at::cat(rows, 0);
  }
  return all;
}

bool RecentTokens::reaches(std::size_t row, std::int64_t length) const {
  return ring_.empty() || length == 0 || length == lengths_[row] || length > oldest_[row];
}

void RecentTokens::truncate(const std::vector<std::int64_t>& lengths) {
  if (ring_.empty()) return;
  lengths_ = lengths;
  for (std::size_t b = 0; b < lengths.size(); ++b) oldest_[b] = std::min(oldest_[b], lengths[b]);
}

RecentTokens RecentTokens::of_rows(const std::vector<std::int64_t>& rows) const {
  RecentTokens result;
  if (ring_.empty()) return result;
  for (const auto& [name, ring] : ring_)
    result.ring_[name] = ring.index_select(0, at::tensor(rows, at::TensorOptions(at::kLong)).to(ring.device()));
  for (const std::int64_t row : rows) {
    result.lengths_.push_back(lengths_[static_cast<std::size_t>(row)]);
    result.oldest_.push_back(oldest_[static_cast<std::size_t>(row)]);
  }
  return result;
}

RecentTokens RecentTokens::of(NamedTensors ring, std::vector<std::int64_t> lengths, std::vector<std::int64_t> oldest) {
  RecentTokens result;
  result.ring_ = std::move(ring);
  result.lengths_ = std::move(lengths);
  result.oldest_ = std::move(oldest);
  return result;
}

std::int64_t RecentTokens::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [name, ring] : ring_) sum += static_cast<std::int64_t>(ring.nbytes());
  return sum;
}

}  // namespace torsor
