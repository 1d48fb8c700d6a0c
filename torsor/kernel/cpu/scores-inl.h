// The scores of a tile of queries against a tile of keys, biases added and hidden keys at minus infinity: what the
// forward and the backward pass share. Included inside an instruction set by the kernels.
#include <hwy/aligned_allocator.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/mask.h"
#include "torsor/kernel/cpu/tiles-inl.h"

#if defined(TORSOR_KERNEL_CPU_SCORES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TORSOR_KERNEL_CPU_SCORES_INL_H
#undef TORSOR_KERNEL_CPU_SCORES_INL_H
#else
#define TORSOR_KERNEL_CPU_SCORES_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

/// Queries of a tile: a panel of 64 keys by 64 channels (16 KiB) stays in the first cache while so many rows pass it.
constexpr std::int64_t query_tile = 48;
/// Keys of a tile: its scores, 48 KiB, and its share of k and v stay in the second cache.
constexpr std::int64_t key_tile = 256;
/// Keys whose contributions are summed before they join a longer sum: stretches and their number grow alike, which
/// keeps the rounding of both small.
constexpr std::int64_t stretch = 64;

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

using Floats = hwy::AlignedFreeUniquePtr<float[]>;

HWY_INLINE Floats floats(std::int64_t count) {
  return hwy::AllocateAligned<float>(static_cast<std::size_t>(std::max<std::int64_t>(count, 1)));
}

HWY_INLINE std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

/// Tokens in panels, (head, panel, channel, token): the right-hand side of a product whose columns are tokens.
struct Panels {
  std::int64_t width = 0, panel = 0, numbers = 0;
  Floats data;
  /// `token` is the first of a panel.
  const float* at(std::int64_t head, std::int64_t token) const { return data.get() + head * numbers + token * width; }
};

/// Tokens in rows of `channels` numbers, the width rounded up to whole vectors with zeros: the right-hand side of a
/// product whose columns are channels. Where it is whole vectors already they are read where they lie.
struct Rows {
  std::int64_t channels = 0;
  std::int64_t heads = 1;  ///< of one row of the batch
  Input from;
  Floats copy;
  const float* at(std::int64_t head, std::int64_t token) const { return from.row(head / heads, head % heads, token); }
  std::int64_t row() const { return from.strides[2]; }
};

inline HWY_NOINLINE Panels pack_panels(const Input& from, std::int64_t batch, std::int64_t heads, std::int64_t tokens,
                                       std::int64_t width, const Run& run) {
  Panels packed;
  const std::int64_t panel = packed.panel = panel_width(), count = (tokens + panel - 1) / panel;
  packed.width = width;
  packed.numbers = count * panel * width;
  packed.data = floats(batch * heads * packed.numbers);
  run.executor(0, batch * heads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t head = first; head < last; ++head)
      for (std::int64_t t = 0; t < count * panel; ++t) {
        float* to = packed.data.get() + head * packed.numbers + t / panel * panel * width + t % panel;
        const float* row = t < tokens ? from.row(head / heads, head % heads, t) : nullptr;
        for (std::int64_t c = 0; c < width; ++c) to[c * panel] = row ? row[c] : 0.0F;
      }
  });
  return packed;
}

/// `copied`: also where the numbers could be read where they lie.
inline HWY_NOINLINE Rows pack_rows(const Input& from, std::int64_t batch, std::int64_t heads, std::int64_t tokens,
                                   std::int64_t width, bool copied, const Run& run) {
  Rows rows;
  rows.heads = heads;
  const std::int64_t channels = rows.channels = round_up(std::max<std::int64_t>(width, 1), lanes());
  if (channels == width && !copied) {
    rows.from = from;
    return rows;
  }
  rows.copy = floats(batch * heads * tokens * channels);
  rows.from = {rows.copy.get(), {heads * tokens * channels, tokens * channels, channels}};
  run.executor(0, batch * heads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t head = first; head < last; ++head)
      for (std::int64_t t = 0; t < tokens; ++t) {
        const float* row = from.row(head / heads, head % heads, t);
        float* to = rows.copy.get() + (head * tokens + t) * channels;
        std::copy(row, row + width, to);
        std::fill(to + width, to + channels, 0.0F);
      }
  });
  return rows;
}

/// One tile of queries of one head: its scaled queries, and its scores against any tile of keys.
class ScoreTile {
 public:
  ScoreTile(const Attention& call, const Panels& keys)
      : call_(call),
        keys_(keys),
        mask_(call, 0),
        query_row_(round_up(call.width, lanes())),
        queries_(floats(query_tile * query_row_)),
        scores_(floats(query_tile * key_tile)),
        offsets_(floats(key_tile)) {}

  /// Queries [first, first + rows) of query head `head` in row `b` of the batch.
  void move_to(std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t rows) {
    mask_ = RowMask(call_, b);
    b_ = b, head_ = head, first_ = first, rows_ = rows;
    key_head_ = head / (call_.heads / call_.key_heads);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* from = call_.q.row(b, head, first + r);
      const float factor = query_factor(r);
      float* to = queries_.get() + r * query_row_;
      for (std::int64_t c = 0; c < call_.width; ++c) to[c] = from[c] * factor;
      std::fill(to + call_.width, to + query_row_, 0.0F);
    }
  }

  float query_factor(std::int64_t r) const {
    if (!call_.query_scale) return call_.scale;
    return call_.scale * call_.query_scale[(head_ * call_.batch + b_) * call_.queries + first_ + r];
  }

  /// The keys that the tile's queries see, by index, in steps of at most key_tile from the last to the first, the order
  /// that running sums along the keys need: calls step(begin, end), begin at the first key of a panel.
  template <class Step>
  void for_each_step(const Step& step) const {
    const KeyRange keys = mask_.range(first_, first_ + rows_);
    if (keys.empty()) return;
    const std::int64_t start = keys.first / keys_.panel * keys_.panel;
    for (std::int64_t n = (keys.last - start + key_tile - 1) / key_tile - 1; n >= 0; --n)
      step(start + n * key_tile, std::min(keys.last, start + (n + 1) * key_tile));
  }

  /// Fills scores() for keys [begin, end) and up to width() of them with minus infinity.
  void compute(std::int64_t begin, std::int64_t end) {
    const std::int64_t panel = keys_.panel;
    width_ = round_up(end - begin, panel);
    const float* keys = keys_.at(kv_head(), begin);
    for (std::int64_t c = 0; c < width_; c += panel) {
      const std::int64_t skipped = rows_before(begin + c);
      product<false>(queries_.get() + skipped * query_row_, query_row_, 1, keys + c * call_.width, panel, call_.width,
                     row(skipped) + c, key_tile, rows_ - skipped, panel);
    }
    for (const Bias& bias : call_.biases)
      if (head_ >= bias.first_head && head_ < bias.last_head) add(bias, begin, end - begin);
    for (std::int64_t r = 0; r < rows_; ++r) hide(r, begin, end);
  }

  /// Rows from the first on that see no key at or past `key`, judged by index; a multiple of the register tile's rows.
  /// Products leave them out: causal order leaves the upper ones nothing near the diagonal.
  std::int64_t rows_before(std::int64_t key) const {
    std::int64_t row = 0;
    while (row + tile_rows <= rows_ && mask_.range(first_ + row + tile_rows - 1).last <= key) row += tile_rows;
    return row;
  }

  float* row(std::int64_t r) { return scores_.get() + r * key_tile; }
  std::int64_t width() const { return width_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t batch() const { return b_; }
  std::int64_t head() const { return head_; }
  std::int64_t key_head() const { return key_head_; }
  std::int64_t kv_head() const { return b_ * call_.key_heads + key_head_; }
  std::int64_t query(std::int64_t r) const { return first_ + r; }
  /// The scaled queries, query_row() numbers each with zeros behind the width.
  const float* queries() const { return queries_.get(); }
  std::int64_t query_row() const { return query_row_; }
  const RowMask& mask() const { return mask_; }

 private:
  void add(const Bias& bias, std::int64_t begin, std::int64_t keys) {
    switch (bias.kind) {
      case Bias::Kind::DistanceTable:
        return add_table(bias, begin, keys);
      case Bias::Kind::Slope:
        return add_slope(bias, begin, keys);
      case Bias::Kind::Potential:
        return add_potential(bias, begin, keys);
    }
  }

  HWY_INLINE void add_table(const Bias& bias, std::int64_t begin, std::int64_t keys) {
    const Tag d;
    const DistanceTable& form = bias.distance_table;
    const float* of_head = form.table + (head_ - bias.first_head) * form.count;
    for (std::int64_t r = 0; r < rows_; ++r) {
      const float* HWY_RESTRICT table = of_head + form.most - form.first_distance[b_] - query(r) + begin;
      float* HWY_RESTRICT scores = row(r);
      std::int64_t j = 0;
      for (; j + lanes() <= keys; j += lanes())
        hn::StoreU(hn::Add(hn::LoadU(d, scores + j), hn::LoadU(d, table + j)), d, scores + j);
      for (; j < keys; ++j) scores[j] += table[j];
    }
  }

  HWY_INLINE void add_slope(const Bias& bias, std::int64_t begin, std::int64_t keys) {
    const Tag d;
    const double* positions = bias.slope.key_positions + b_ * call_.keys + begin;
    // Relative to the tile's first key: whole distances stay exact up to 2^24.
    float* offsets = offsets_.get();
    for (std::int64_t j = 0; j < width_; ++j)
      offsets[j] = j < keys ? static_cast<float>(positions[j] - positions[0]) : 0.0F;
    const Vec slope = hn::Set(d, bias.slope.slope[head_ - bias.first_head]);
    for (std::int64_t r = 0; r < rows_; ++r) {
      const double own = bias.slope.query_positions[b_ * call_.queries + query(r)] - positions[0];
      const Vec position = hn::Set(d, static_cast<float>(own));
      float* HWY_RESTRICT scores = row(r);
      for (std::int64_t j = 0; j < width_; j += lanes()) {
        const Vec distance = hn::Abs(hn::Sub(position, hn::LoadU(d, offsets + j)));
        hn::StoreU(hn::NegMulAdd(slope, distance, hn::LoadU(d, scores + j)), d, scores + j);
      }
    }
  }

  /// In float64: near the diagonal two large sums cancel.
  void add_potential(const Bias& bias, std::int64_t begin, std::int64_t keys) {
    const Potential& form = bias.potential;
    const std::int64_t own = head_ - bias.first_head;
    const double* key = form.key + b_ * form.key_strides[0] + own * form.key_strides[1] + begin;
    const double* query = form.query + b_ * form.query_strides[0] + own * form.query_strides[1] + first_;
    for (std::int64_t r = 0; r < rows_; ++r) {
      float* HWY_RESTRICT scores = row(r);
      for (std::int64_t j = 0; j < keys; ++j) scores[j] += static_cast<float>(query[r] - key[j]);
    }
  }

  void hide(std::int64_t r, std::int64_t begin, std::int64_t end) {
    const KeyRange range = mask_.range(first_ + r);
    const std::int64_t first = std::clamp(range.first, begin, end) - begin,
                       last = std::clamp(range.last, begin, end) - begin;
    float* scores = row(r);
    std::fill(scores, scores + first, minus_infinity);
    std::fill(scores + std::max(first, last), scores + width_, minus_infinity);
    if (!mask_.has_documents()) return;
    for (std::int64_t j = first; j < last; ++j)
      if (!mask_.same_document(first_ + r, begin + j)) scores[j] = minus_infinity;
  }

  const Attention& call_;
  const Panels& keys_;
  RowMask mask_;
  std::int64_t query_row_;
  Floats queries_, scores_, offsets_;
  std::int64_t b_ = 0, head_ = 0, key_head_ = 0, first_ = 0, rows_ = 0, width_ = 0;
};

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
