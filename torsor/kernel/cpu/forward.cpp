#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/decode.h"
#include "torsor/kernel/cpu/sets.h"

// Compiled once an instruction set; the best that the processor has is chosen when the function is called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torsor/kernel/cpu/forward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "torsor/kernel/cpu/scores-inl.h"
#include "torsor/kernel/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {
namespace {

/// Which tokens hold what is not a number.
class BadTokens {
 public:
  BadTokens(const Input& from, std::int64_t batch, std::int64_t heads, std::int64_t tokens, std::int64_t width,
            const Run& run)
      : extents_(from, batch, heads), tokens_(tokens) {
    const std::int64_t all = extents_.count() * tokens;
    bad_.resize(static_cast<std::size_t>(all));
    std::atomic<bool> any{false};
    run.executor(0, all, 256, [&](std::int64_t first, std::int64_t last) {
      bool found = false;
      for (std::int64_t n = first; n < last; ++n) {
        const std::int64_t head = n / tokens;
        const bool bad = !row_is_finite(from, head / extents_.heads, head % extents_.heads, n % tokens, width);
        bad_[static_cast<std::size_t>(n)] = bad;
        found = found || bad;
      }
      if (found) any.store(true, std::memory_order_relaxed);
    });
    if (!any.load()) bad_.clear();
  }
  bool any() const { return !bad_.empty(); }
  bool at(std::int64_t b, std::int64_t head, std::int64_t token) const {
    return bad_[static_cast<std::size_t>(extents_.index(b, head) * tokens_ + token)] != 0;
  }
  /// Takes them out of copied rows, so that they cannot reach a sum with the weight 0.
  void clean(Rows& rows) const {
    for (std::size_t n = 0; n < bad_.size(); ++n) {
      if (!bad_[n]) continue;
      float* row = rows.copy.get() + static_cast<std::int64_t>(n) * rows.channels;
      for (std::int64_t c = 0; c < rows.channels; ++c)
        if (!std::isfinite(row[c])) row[c] = 0;
    }
  }

 private:
  Extents extents_;
  std::int64_t tokens_;
  std::vector<char> bad_;
};

/// What a call needs once, whoever computes.
struct Packed {
  BadTokens bad_keys, bad_values, bad_carried;
  bool paired;
  Panels keys;
  Rows values, carried;
  PairPanels pair_keys;
  PairRows pair_values;
  std::vector<PackedBias> biases;
  std::optional<Reach> reach;
  std::int64_t value_row;  ///< value_width in whole vectors

  Packed(const Attention& call, const Run& run)
      : bad_keys(call.k, call.batch, call.key_heads, call.keys, call.width, run),
        bad_values(call.v, call.batch, call.key_heads, call.keys, call.value_width, run),
        bad_carried(call.carried.values, call.batch, carried_heads(call), call.keys, call.carried.width, run),
        paired(takes_pairs(call.q)),
        biases(pack_biases(call, run)),
        value_row(round_up(call.value_width, lanes())) {
    if (paired) {
      pair_keys = pack_pair_panels(call.k, call.batch, call.key_heads, call.keys, call.width, run);
      pair_values = pack_pair_rows(
          call.v, call.batch, call.key_heads, call.keys, call.value_width,
          [&](std::int64_t b, std::int64_t h, std::int64_t t) { return bad_values.any() && bad_values.at(b, h, t); },
          run);
    } else {
      keys = pack_panels(call.k, call.batch, call.key_heads, call.keys, call.width, run);
      values = pack_rows(call.v, call.batch, call.key_heads, call.keys, call.value_width, bad_values.any(), run);
      bad_values.clean(values);
    }
    if (Reach::useful(call) && !bad_keys.any() && !bad_values.any() && !bad_carried.any()) reach.emplace(call, run);
    if (call.carried.width == 0) return;
    carried = pack_rows(call.carried.values, call.batch, carried_heads(call), call.keys, call.carried.width,
                        bad_carried.any(), run);
    bad_carried.clean(carried);
  }
  static std::int64_t carried_heads(const Attention& call) {
    return call.carried.width == 0 ? 0 : call.heads / call.carried.group;
  }
};

/// The work of one thread: tiles of queries, one after the other.
class ForwardWorker {
 public:
  ForwardWorker(const Attention& call, const Packed& packed)
      : call_(call),
        packed_(packed),
        tile_(call, packed.keys, packed.pair_keys, packed.biases, packed.paired, packed.reach),
        weights_(pairs(packed.paired ? query_tile * key_tile / 2 : 0)),
        sums_(floats(query_tile * packed.value_row)),
        averages_(floats(query_tile * packed.carried.channels)) {}

  void run(std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t rows, const Results& results) {
    tile_.move_to(b, head, first, rows);
    bad_values_.clear();
    bad_carried_.clear();
    for (std::int64_t r = 0; r < rows; ++r) {
      largest_[r] = minus_infinity;
      total_[r] = 0;
      poisoned_[r] = !row_is_finite(call_.q, b, head, first + r, call_.width);
    }
    std::fill(sums_.get(), sums_.get() + rows * packed_.value_row, 0.0F);
    std::fill(averages_.get(), averages_.get() + rows * packed_.carried.channels, 0.0F);
    tile_.for_each_step(0, call_.keys, largest_, [&](std::int64_t begin, std::int64_t end) { step(begin, end); });
    for (std::int64_t r = 0; r < rows; ++r) finish(r, results);
    for (const auto& [r, j] : bad_values_) spoil(call_.v, tile_.key_head(), j, call_.value_width, r, results.out);
    for (const auto& [r, j] : bad_carried_)
      spoil(call_.carried.values, head / call_.carried.group, j, call_.carried.width, r, results.averages);
  }

 private:
  void step(std::int64_t begin, std::int64_t end) {
    tile_.compute(begin, end);
    if (packed_.bad_keys.any() || packed_.bad_values.any() || packed_.bad_carried.any()) look_for_bad();
    const Tile& tile = tile_.tile();
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const std::int64_t from = tile.from(r), to = tile.to(r);
      float* row = tile_.row(r);
      std::fill(row, row + from, 0.0F);
      std::fill(row + to, row + tile.width, 0.0F);
      BFloat16* halves = packed_.paired ? reinterpret_cast<BFloat16*>(weights_.get() + r * key_tile / 2) : nullptr;
      if (halves) {
        std::fill(halves, halves + from, BFloat16{0});
        std::fill(halves + to, halves + tile.width, BFloat16{0});
      }
      if (from == to) continue;
      const float factor =
          halves ? soften_pairs(row, from, to, largest_[r], total_[r], halves, packed_.carried.channels > 0)
                 : soften(row, from, to, largest_[r], total_[r]);
      if (factor == 1) continue;
      scale_row(sums_.get() + r * packed_.value_row, packed_.value_row, factor);
      scale_row(averages_.get() + r * packed_.carried.channels, packed_.carried.channels, factor);
    }
    if (packed_.paired)
      add_weighted_pairs();
    else
      add_weighted(packed_.values, tile_.key_head(), sums_.get());
    if (packed_.carried.channels) add_weighted(packed_.carried, tile.head / call_.carried.group, averages_.get());
  }

  /// A stretch of keys at a time: its values stay in the first cache while the rows pass.
  void add_weighted(const Rows& values, std::int64_t head, float* sums) {
    const Tile& tile = tile_.tile();
    for (std::int64_t j = 0; j < tile.end - tile.begin; j += stretch) {
      tile_.for_each_group(j, stretch, [&](const RowSpan& rows, std::int64_t seen) {
        product<true>(tile_.row(rows.first) + j, key_tile, 1, values.at(tile.b, head, tile.begin + j), values.row(),
                      std::min(seen, tile.end - tile.begin - j), sums + rows.first * values.channels, values.channels,
                      rows.count(), values.channels);
      });
    }
  }

  /// The same for pairs, whose stretches take half the space.
  void add_weighted_pairs() {
    const Tile& tile = tile_.tile();
    const PairRows& values = packed_.pair_values;
    for (std::int64_t j = 0; j < tile.end - tile.begin; j += 2 * stretch) {
      tile_.for_each_group(j, 2 * stretch, [&](const RowSpan& rows, std::int64_t seen) {
        const std::int64_t count = std::min(seen, tile.end - tile.begin - j);
        pair_product(weights_.get() + (rows.first * key_tile + j) / 2, key_tile / 2, 1,
                     values.at(tile.b, tile_.key_head(), tile.begin + j), values.channels, (count + 1) / 2,
                     sums_.get() + rows.first * values.channels, values.channels, rows.count(), values.channels,
                     nullptr, true);
      });
    }
  }

  /// Finds the queries that see what is not a number, and gives those that see a bad key plain scores: their row is NaN
  /// whatever they are.
  void look_for_bad() {
    const Tile& tile = tile_.tile();
    for (std::int64_t j = tile.begin; j < tile.end; ++j) {
      const bool key = packed_.bad_keys.any() && packed_.bad_keys.at(tile.b, tile_.key_head(), j);
      const bool value = packed_.bad_values.any() && packed_.bad_values.at(tile.b, tile_.key_head(), j);
      const bool carried =
          packed_.bad_carried.any() && packed_.bad_carried.at(tile.b, tile.head / call_.carried.group, j);
      if (!key && !value && !carried) continue;
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        if (!tile_.mask().sees(tile_.query(r), j)) continue;
        if (key) {
          poisoned_[r] = true;
          tile_.row(r)[j - tile.begin] = 0;
        }
        if (value) bad_values_.push_back({r, j});
        if (carried) bad_carried_.push_back({r, j});
      }
    }
  }

  void finish(std::int64_t r, const Results& results) {
    const Tile& tile = tile_.tile();
    const bool nothing = largest_[r] == minus_infinity;
    float level = nothing ? minus_infinity : largest_[r] + std::log(total_[r]);
    float factor = nothing ? 0.0F : 1.0F / total_[r];
    if (poisoned_[r] && !nothing) level = factor = std::numeric_limits<float>::quiet_NaN();
    write_row(results.out, tile.b, tile.head, tile_.query(r), sums_.get() + r * packed_.value_row, call_.value_width,
              factor);
    if (packed_.carried.channels)
      write_row(results.averages, tile.b, tile.head, tile_.query(r), averages_.get() + r * packed_.carried.channels,
                call_.carried.width, factor);
    if (results.lse) results.lse[(tile.b * call_.heads + tile.head) * call_.queries + tile_.query(r)] = level;
  }

  /// NaN in the channels where a value that the row sees is not a number.
  void spoil(const Input& values, std::int64_t head, std::int64_t j, std::int64_t width, std::int64_t r,
             const Output& to) {
    const Tile& tile = tile_.tile();
    const std::int64_t from = values.at(tile.b, head, j), place = to.at(tile.b, tile.head, tile_.query(r));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t c = 0; c < width; ++c) {
      if (std::isfinite(values.data ? values.data[from + c] : widen(values.half[from + c]))) continue;
      if (to.data)
        to.data[place + c] = nan;
      else
        narrow(nan, to.half[place + c]);
    }
  }

  const Attention& call_;
  const Packed& packed_;
  ScoreTile tile_;
  Pairs weights_;           ///< (query_tile, key_tile) bf16 numbers
  Floats sums_, averages_;  ///< (query_tile, channels): the weighted values so far
  float largest_[query_tile], total_[query_tile];
  bool poisoned_[query_tile];
  std::vector<std::pair<std::int64_t, std::int64_t>> bad_values_, bad_carried_;  ///< (row, key)
};

HWY_NOINLINE void forward_all(const Attention& call, const Run& run, const Results& results) {
  const Packed packed(call, run);

  // Tiles are handed out one by one: a head at a time, whose keys and values then stay in the caches, and of a head
  // those with the most keys first, since causal work is uneven. A tile's result does not depend on who computes it.
  const std::int64_t tiles = (call.queries + query_tile - 1) / query_tile, heads = call.batch * call.heads;
  std::atomic<std::int64_t> next{0};
  run.executor(0, std::max<std::int64_t>(1, run.threads), 1, [&](std::int64_t, std::int64_t) {
    ForwardWorker worker(call, packed);
    for (std::int64_t task; (task = next.fetch_add(1)) < tiles * heads;) {
      const std::int64_t head = task / tiles, first = (tiles - 1 - task % tiles) * query_tile;
      worker.run(head / call.heads, head % call.heads, first, std::min(query_tile, call.queries - first), results);
    }
  });
}

}  // namespace
}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torsor::kernel {

HWY_EXPORT(forward_all);

void attention_forward(const Attention& call, const Run& run, const Results& results) {
  if (call.queries <= most_decoded_queries) return attention_decode(call, run, results);
  HWY_DYNAMIC_DISPATCH(forward_all)(call, run, results);
}

}  // namespace torsor::kernel
#endif  // HWY_ONCE
