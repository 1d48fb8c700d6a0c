// The scores of a tile of queries against a tile of keys, biases added and hidden keys at minus infinity: what the
// forward and the backward pass share. Included inside an instruction set by the kernels.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/biases-inl.h"
#include "torsor/kernel/cpu/mask.h"
#include "torsor/kernel/cpu/pack-inl.h"
#include "torsor/kernel/cpu/reach-inl.h"
#include "torsor/kernel/cpu/tiles-inl.h"

#if defined(TORSOR_KERNEL_CPU_SCORES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TORSOR_KERNEL_CPU_SCORES_INL_H
#undef TORSOR_KERNEL_CPU_SCORES_INL_H
#else
#define TORSOR_KERNEL_CPU_SCORES_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

/// Keys whose contributions are summed before they join a longer sum: stretches and their number grow alike, which
/// keeps the rounding of both small.
constexpr std::int64_t stretch = 64;

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

struct RowSpan {
  std::int64_t first = 0, last = 0;
  std::int64_t count() const { return last - first; }
};

/// One tile of queries of one head: its scaled queries, and its scores against any tile of keys.
class ScoreTile {
 public:
  /// `pair_keys` are read where `paired`, else `keys`. With a reach, steps end where nothing that weighs is left.
  ScoreTile(const Attention& call, const Panels& keys, const PairPanels& pair_keys,
            const std::vector<PackedBias>& packed, bool paired, const std::optional<Reach>& reach)
      : call_(call),
        reach_(reach),
        keys_(keys),
        pair_keys_(pair_keys),
        paired_(paired),
        mask_(call, 0),
        biases_(call, packed),
        query_row_(round_up(call.width, lanes())),
        queries_(floats(paired_ ? 0 : query_tile * query_row_)),
        pair_queries_(pairs(paired_ ? query_tile * pair_keys.width : 0)),
        scores_(floats(query_tile * key_tile)) {}

  /// Queries [first, first + rows) of query head `head` in row `b` of the batch.
  void move_to(std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t rows) {
    mask_ = RowMask(call_, b);
    tile_.b = b, tile_.head = head, tile_.first = first, tile_.rows = rows;
    key_head_ = head / (call_.heads / call_.key_heads);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float factor = factors_[r] = query_factor(r);
      if (paired_) {  // bf16 numbers as they are: their products are scaled
        pair_channels(call_.q.half + call_.q.at(b, head, first + r), call_.width,
                      pair_queries_.get() + r * pair_keys_.width);
        continue;
      }
      float* to = queries_.get() + r * query_row_;
      const float* from = read_row(call_.q, b, head, first + r, call_.width, to);
      for (std::int64_t c = 0; c < call_.width; ++c) to[c] = from[c] * factor;
      std::fill(to + call_.width, to + query_row_, 0.0F);
    }
    if (biases_.any()) biases_.begin(tile_);
    if (!reach_) return;
    std::vector<float> scratch(static_cast<std::size_t>(call_.width));
    for (std::int64_t r = 0; r < rows; ++r) {
      const double factor = static_cast<double>(factors_[r]);
      const float* query = read_row(call_.q, b, head, first + r, call_.width, scratch.data());
      norms_[r] = std::abs(factor) * std::sqrt(Reach::squares(query, call_.width));
      done_[r] = false;
    }
  }

  float query_factor(std::int64_t r) const {
    if (!call_.query_scale) return call_.scale;
    return call_.scale * call_.query_scale[(tile_.head * call_.batch + tile_.b) * call_.queries + tile_.first + r];
  }

  /// The keys among [first, last) that the tile's queries see, by index, in steps of at most key_tile from the last to
  /// the first, the order that running sums along the keys need: calls step(begin, end), begin at the first key of a
  /// panel, as `first` must be. levels[r]: a level of the row's sum so far, for the reach.
  template <class Step>
  void for_each_step(std::int64_t first, std::int64_t last, const float* levels, const Step& step) {
    const KeyRange keys = mask_.range(tile_.first, tile_.first + tile_.rows);
    last = std::min(last, keys.last);
    first = std::max(first, round_down(keys.first, panel_tokens()));
    if (first >= last) return;
    const std::int64_t steps = (last - first + key_tile - 1) / key_tile;
    for (std::int64_t n = steps - 1; n >= 0; --n) {
      const std::int64_t begin = first + n * key_tile, end = std::min(last, begin + key_tile);
      if (reach_ && n < steps - 1 && nothing_left(end, levels)) return;
      step(begin, end);
    }
  }

  /// Fills row(r) from tile().from(r) to tile().to(r) with the scores of keys [begin, end).
  void compute(std::int64_t begin, std::int64_t end) {
    const std::int64_t panel = panel_tokens();
    place(begin, end);
    for (std::int64_t c = 0; c < tile_.width; c += panel) {
      for_each_group(c, panel, [&](const RowSpan& rows, std::int64_t seen) {
        if (paired_)
          pair_product(pair_queries_.get() + rows.first * pair_keys_.width, pair_keys_.width, 1,
                       pair_keys_.at(tile_.b, key_head_, begin + c), panel, pair_keys_.width, row(rows.first) + c,
                       key_tile, rows.count(), seen, factors_ + rows.first, false);
        else
          product<false>(queries_.get() + rows.first * query_row_, query_row_, 1,
                         keys_.at(tile_.b, key_head_, begin) + c * call_.width, panel, call_.width, row(rows.first) + c,
                         key_tile, rows.count(), seen);
      });
    }
    finish();
  }

  /// The same in two steps for scores that somebody else fills in, of keys [low, high) of every row.
  void start(std::int64_t begin, std::int64_t end) { place(begin, end); }
  void finish() {
    if (biases_.any()) biases_.add(tile_, mask_, scores_.get());
    for (std::int64_t r = 0; r < tile_.rows; ++r) hide(r);
  }

  /// Rows among which are all that see any of the keys [from, to), counted from the tile's first: products leave the
  /// others out. Begins at a register tile's first row.
  RowSpan rows_of(std::int64_t from, std::int64_t to) const {
    const auto sees = [&](std::int64_t r) {
      return tile_.low[r] < tile_.high[r] && tile_.high[r] > from && tile_.low[r] < to;
    };
    RowSpan span{0, tile_.rows};
    while (span.first < span.last && !sees(span.first)) ++span.first;
    while (span.last > span.first && !sees(span.last - 1)) --span.last;
    span.first = round_down(span.first, tile_rows);
    return span;
  }

  /// The same rows in register tiles: body(rows, seen) with the keys [from, from + seen) that these rows see a part
  /// of, seen <= count in whole vectors. Along the diagonal a tile of rows has nothing to do with half of its keys.
  template <class Body>
  void for_each_group(std::int64_t from, std::int64_t count, const Body& body) const {
    const RowSpan all = rows_of(from, from + count);
    const auto seen_from = [&](std::int64_t first) {
      std::int64_t last = from;
      for (std::int64_t r = first; r < std::min(all.last, first + tile_rows); ++r) last = std::max(last, tile_.to(r));
      return std::min(count, last - from);
    };
    for (RowSpan rows{all.first, all.first}; rows.first < all.last; rows.first = rows.last) {
      const std::int64_t seen = seen_from(rows.first);
      do rows.last = std::min(all.last, rows.last + tile_rows);
      while (rows.last < all.last && seen_from(rows.last) == seen);
      if (seen > 0) body(rows, seen);
    }
  }

  float* row(std::int64_t r) { return scores_.get() + r * key_tile; }
  const Tile& tile() const { return tile_; }
  std::int64_t rows() const { return tile_.rows; }
  std::int64_t key_head() const { return key_head_; }
  std::int64_t query(std::int64_t r) const { return tile_.first + r; }
  bool paired() const { return paired_; }
  /// The scaled queries, query_row() numbers each with zeros behind the width; not where paired().
  const float* queries() const { return queries_.get(); }
  std::int64_t query_row() const { return query_row_; }
  const RowMask& mask() const { return mask_; }
  BiasTiles& biases() { return biases_; }

 private:
  /// Takes leave of the rows to which the keys before `end` give nothing; true where no row is left.
  bool nothing_left(std::int64_t end, const float* levels) {
    double bounds[query_tile];
    reach_->bound(tile_, norms_, end, biases_, bounds);
    const double margin = reach_->margin();
    bool all = true;
    for (std::int64_t r = 0; r < tile_.rows; ++r) {
      done_[r] = done_[r] || bounds[r] + margin < static_cast<double>(levels[r]);
      all = all && done_[r];
    }
    return all;
  }

  void place(std::int64_t begin, std::int64_t end) {
    tile_.begin = begin, tile_.end = end, tile_.width = round_up(end - begin, panel_tokens());
    for (std::int64_t r = 0; r < tile_.rows; ++r) {
      const KeyRange range = mask_.range(tile_.first + r);
      tile_.low[r] = std::clamp(range.first, begin, end) - begin;
      tile_.high[r] = std::max(tile_.low[r], std::clamp(range.last, begin, end) - begin);
      if (done_[r]) tile_.high[r] = tile_.low[r];
    }
  }

  void hide(std::int64_t r) {
    if (tile_.low[r] == tile_.high[r]) return;
    float* scores = row(r);
    std::fill(scores + tile_.from(r), scores + tile_.low[r], minus_infinity);
    std::fill(scores + tile_.high[r], scores + tile_.to(r), minus_infinity);
    if (!mask_.has_documents()) return;
    for (std::int64_t j = tile_.low[r]; j < tile_.high[r]; ++j)
      if (!mask_.same_document(tile_.first + r, tile_.begin + j)) scores[j] = minus_infinity;
  }

  const Attention& call_;
  const std::optional<Reach>& reach_;
  double norms_[query_tile] = {};  ///< Euclidean norms of the scaled queries
  bool done_[query_tile] = {};     ///< nothing that weighs is left for the row
  const Panels& keys_;
  const PairPanels& pair_keys_;
  bool paired_;
  RowMask mask_;
  BiasTiles biases_;
  Tile tile_;
  std::int64_t query_row_;
  Floats queries_;
  Pairs pair_queries_;
  Floats scores_;
  float factors_[query_tile] = {};
  std::int64_t key_head_ = 0;
};

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
