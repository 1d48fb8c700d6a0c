#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/sets.h"
#include "torsor/kernel/finite.h"

// Compiled once an instruction set; the best that the processor has is chosen when the function is called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torsor/kernel/cpu/forward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "torsor/kernel/cpu/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {
namespace {

/// Which keys and values hold what is not a number, (batch, key head, key): bit 0 for the key, bit 1 for the value.
/// Empty when everything is finite.
HWY_NOINLINE std::vector<char> find_bad(const Attention& call, const Run& run) {
  const std::int64_t heads = call.batch * call.key_heads;
  std::vector<char> bad(static_cast<std::size_t>(heads * call.keys));
  std::atomic<bool> any{false};
  run.executor(0, heads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t head = first; head < last; ++head)
      for (std::int64_t j = 0; j < call.keys; ++j) {
        const std::int64_t b = head / call.key_heads, h = head % call.key_heads;
        const bool key = !all_finite(Element::Float32, call.k.row(b, h, j), call.width);
        const bool value = !all_finite(Element::Float32, call.v.row(b, h, j), call.value_width);
        bad[static_cast<std::size_t>(head * call.keys + j)] = static_cast<char>((key ? 1 : 0) + (value ? 2 : 0));
        if (key || value) any.store(true, std::memory_order_relaxed);
      }
  });
  if (!any.load()) bad.clear();
  return bad;
}

/// Takes them out of the copied values, so that they cannot reach a sum with the weight 0.
HWY_NOINLINE void clean_values(const Attention& call, const std::vector<char>& bad, Rows& values) {
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(bad.size()); ++row)
    if (bad[static_cast<std::size_t>(row)] & 2) {
      float* value = values.copy.get() + row * values.channels;
      for (std::int64_t c = 0; c < call.value_width; ++c)
        if (!std::isfinite(value[c])) value[c] = 0;
    }
}

/// One pass of the online softmax over a row of scores: the scores become weights relative to the new largest one.
/// Returns the factor that brings what was summed before to the new scale.
HWY_INLINE float soften(float* HWY_RESTRICT row, std::int64_t width, float& largest, float& total) {
  const Tag d;
  Vec most = hn::Set(d, minus_infinity);
  auto bad = hn::FirstN(d, 0);
  for (std::int64_t j = 0; j < width; j += lanes()) {
    const Vec score = hn::LoadU(d, row + j);
    most = hn::Max(most, score);
    bad = hn::Or(bad, hn::IsNaN(score));  // Max may lose it
  }
  if (!hn::AllFalse(d, bad)) return largest = total = std::numeric_limits<float>::quiet_NaN();
  const float found = std::max(largest, hn::GetLane(hn::MaxOfLanes(d, most)));
  if (found == minus_infinity) {
    std::fill(row, row + width, 0.0F);
    return 1;
  }
  const Vec shift = hn::Set(d, found);
  float fresh = 0;
  for (std::int64_t begin = 0; begin < width; begin += stretch) {
    Vec sum = hn::Zero(d);
    for (std::int64_t j = begin; j < std::min(width, begin + stretch); j += lanes()) {
      const Vec weight = exp_below_zero(hn::Sub(hn::LoadU(d, row + j), shift));
      hn::StoreU(weight, d, row + j);
      sum = hn::Add(sum, weight);
    }
    fresh += hn::GetLane(hn::SumOfLanes(d, sum));
  }
  const float factor = largest == minus_infinity ? 0.0F : std::exp(largest - found);
  largest = found;
  total = total * factor + fresh;
  return factor;
}

/// The work of one thread: tiles of queries, one after the other.
class ForwardWorker {
 public:
  ForwardWorker(const Attention& call, const Panels& keys, const Rows& values, const std::vector<char>& bad)
      : call_(call), values_(values), bad_(bad), tile_(call, keys), sums_(floats(query_tile * values.channels)) {}

  void run(std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t rows, const Output& out, float* lse) {
    tile_.move_to(b, head, first, rows);
    bad_values_.clear();
    for (std::int64_t r = 0; r < rows; ++r) {
      largest_[r] = minus_infinity;
      total_[r] = 0;
      poisoned_[r] = !all_finite(Element::Float32, call_.q.row(b, head, first + r), call_.width);
    }
    std::fill(sums_.get(), sums_.get() + rows * values_.channels, 0.0F);
    tile_.for_each_step([&](std::int64_t begin, std::int64_t end) { step(begin, end); });
    for (std::int64_t r = 0; r < rows; ++r) finish(r, out.row(b, head, first + r), lse);
    for (const auto& [r, j] : bad_values_) {
      const float* value = call_.v.row(b, tile_.key_head(), j);
      for (std::int64_t c = 0; c < call_.value_width; ++c)
        if (!std::isfinite(value[c])) out.row(b, head, first + r)[c] = std::numeric_limits<float>::quiet_NaN();
    }
  }

 private:
  void step(std::int64_t begin, std::int64_t end) {
    const Tag d;
    tile_.compute(begin, end);
    if (!bad_.empty()) look_for_bad(begin, end);
    for (std::int64_t r = 0; r < tile_.rows(); ++r) {
      const float factor = soften(tile_.row(r), tile_.width(), largest_[r], total_[r]);
      if (factor == 1) continue;
      float* sums = sums_.get() + r * values_.channels;
      const Vec by = hn::Set(d, factor);
      for (std::int64_t c = 0; c < values_.channels; c += lanes())
        hn::StoreU(hn::Mul(hn::LoadU(d, sums + c), by), d, sums + c);
    }
    // A stretch of keys at a time: its values stay in the first cache while the rows pass.
    for (std::int64_t j = begin; j < end; j += stretch) {
      const std::int64_t skipped = tile_.rows_before(j);
      product<true>(tile_.row(skipped) + (j - begin), key_tile, 1, values_.at(tile_.kv_head(), j), values_.row(),
                    std::min(stretch, end - j), sums_.get() + skipped * values_.channels, values_.channels,
                    tile_.rows() - skipped, values_.channels);
    }
  }

  /// Finds the queries that see what is not a number, and gives those that see a bad key plain scores: their row is NaN
  /// whatever they are.
  void look_for_bad(std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      const char bad = bad_[static_cast<std::size_t>(tile_.kv_head() * call_.keys + j)];
      if (bad == 0) continue;
      for (std::int64_t r = 0; r < tile_.rows(); ++r) {
        if (!tile_.mask().sees(tile_.query(r), j)) continue;
        if (bad & 1) {
          poisoned_[r] = true;
          tile_.row(r)[j - begin] = 0;
        }
        if (bad & 2) bad_values_.push_back({r, j});
      }
    }
  }

  void finish(std::int64_t r, float* out, float* lse) const {
    const float* sums = sums_.get() + r * values_.channels;
    const bool nothing = largest_[r] == minus_infinity;
    float level = nothing ? minus_infinity : largest_[r] + std::log(total_[r]);
    const float factor = nothing ? 0.0F : 1.0F / total_[r];
    for (std::int64_t c = 0; c < call_.value_width; ++c) out[c] = sums[c] * factor;
    if (poisoned_[r] && !nothing) {
      level = std::numeric_limits<float>::quiet_NaN();
      std::fill(out, out + call_.value_width, level);
    }
    if (lse) lse[(tile_.batch() * call_.heads + tile_.head()) * call_.queries + tile_.query(r)] = level;
  }

  const Attention& call_;
  const Rows& values_;
  const std::vector<char>& bad_;
  ScoreTile tile_;
  Floats sums_;  ///< (query_tile, values' row): the weighted values so far
  float largest_[query_tile], total_[query_tile];
  bool poisoned_[query_tile];
  std::vector<std::pair<std::int64_t, std::int64_t>> bad_values_;
};

HWY_NOINLINE void forward_all(const Attention& call, const Run& run, const Output& out, float* lse) {
  const std::vector<char> bad = find_bad(call, run);
  const Panels keys = pack_panels(call.k, call.batch, call.key_heads, call.keys, call.width, run);
  Rows values = pack_rows(call.v, call.batch, call.key_heads, call.keys, call.value_width, !bad.empty(), run);
  if (!bad.empty()) clean_values(call, bad, values);

  // Tiles are handed out one by one, those with the most keys first: causal work is uneven. A tile's result does not
  // depend on who computes it.
  const std::int64_t tiles = (call.queries + query_tile - 1) / query_tile, heads = call.batch * call.heads;
  std::atomic<std::int64_t> next{0};
  run.executor(0, std::max<std::int64_t>(1, run.threads), 1, [&](std::int64_t, std::int64_t) {
    ForwardWorker worker(call, keys, values, bad);
    for (std::int64_t task; (task = next.fetch_add(1)) < tiles * heads;) {
      const std::int64_t head = task % heads, first = (tiles - 1 - task / heads) * query_tile;
      worker.run(head / call.heads, head % call.heads, first, std::min(query_tile, call.queries - first), out, lse);
    }
  });
}

}  // namespace
}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torsor::kernel {

HWY_EXPORT(forward_all);

void attention_forward(const Attention& call, const Run& run, const Output& out, float* lse) {
  HWY_DYNAMIC_DISPATCH(forward_all)(call, run, out, lse);
}

}  // namespace torsor::kernel
#endif  // HWY_ONCE
