// What each bias form adds to a tile of scores. Included inside an instruction set by the kernels.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <variant>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/mask.h"
#include "torsor/kernel/cpu/pack-inl.h"
#include "torsor/kernel/cpu/tiles-inl.h"

#if defined(TORSOR_KERNEL_CPU_BIASES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TORSOR_KERNEL_CPU_BIASES_INL_H
#undef TORSOR_KERNEL_CPU_BIASES_INL_H
#else
#define TORSOR_KERNEL_CPU_BIASES_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

/// Queries of a tile: a panel of 64 keys by 64 channels (16 KiB) stays in the first cache while so many rows pass it.
constexpr std::int64_t query_tile = 48;
/// Keys of a tile: its scores, 48 KiB, and its share of k and v stay in the second cache.
constexpr std::int64_t key_tile = 256;
/// Keys over which a path is summed in float32, by one product with a triangle of ones; from one such block to the next
/// the sum goes on in float64.
constexpr std::int64_t path_block = 16;

using DoubleTag = hn::CappedTag<double, 8>;
using DoubleVec = hn::Vec<DoubleTag>;

/// Where a tile lies: queries [first, first + rows) of a head against keys [begin, end), and which of these keys each
/// row may see by index, counted from `begin`. `width` is the number of keys rounded up to whole panels.
struct Tile {
  std::int64_t b = 0, head = 0, first = 0, rows = 0;
  std::int64_t begin = 0, end = 0, width = 0;
  std::int64_t low[query_tile] = {}, high[query_tile] = {};
  /// Whole vectors that cover [low, high): what lies outside is nobody's.
  std::int64_t from(std::int64_t r) const { return round_down(low[r], lanes()); }
  std::int64_t to(std::int64_t r) const { return high[r] > low[r] ? round_up(high[r], lanes()) : from(r); }
};

/// A number as the sum of two float32: differences of such numbers lose nothing where they cancel.
struct TwoFloats {
  float high = 0, low = 0;
  explicit TwoFloats(double value) : high(static_cast<float>(value)) {
    const double rest = value - static_cast<double>(high);
    low = std::isfinite(rest) ? static_cast<float>(rest) : 0.0F;
  }
};

/// What a call's biases need once, whoever computes.
struct PackedBias {
  Panels key, right;  ///< of a path or product, and of its factor
  /// Of a piecewise form, at falling whole distances, with a vector of zeros on either side: ln(1 + |c n|), and |c n| /
  /// (1 + |c n|), which is its derivative by c, times c.
  std::vector<float> curve, rate;
  std::int64_t most = 0;  ///< the first distance
};

HWY_INLINE const Positions* positions_of(const Bias& bias) {
  if (const auto* form = std::get_if<Slope>(&bias.form)) return &form->positions;
  if (const auto* form = std::get_if<Gated>(&bias.form)) return &form->positions;
  if (const auto* form = std::get_if<Curve>(&bias.form)) return &form->positions;
  if (const auto* form = std::get_if<Piecewise>(&bias.form)) return &form->positions;
  if (const auto* form = std::get_if<DistanceLookup>(&bias.form)) return &form->positions;
  return nullptr;
}

inline HWY_NOINLINE std::vector<PackedBias> pack_biases(const Attention& call, const Run& run) {
  std::vector<PackedBias> all(call.biases.size());
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Bias& bias = call.biases[n];
    PackedBias& packed = all[n];
    const std::int64_t heads = bias.last_head - bias.first_head;
    if (const Path* path = std::get_if<Path>(&bias.form))
      packed.key = pack_panels(path->key, call.batch, heads, call.keys, path->width, run);
    if (const Product* product = std::get_if<Product>(&bias.form))
      packed.key = pack_panels(product->key, call.batch, heads / product->key_group, call.keys, product->width, run);
    if (bias.factor && bias.factor->kind != Factor::Kind::Tag)
      packed.right = pack_panels(bias.factor->right, call.batch, heads, call.keys, bias.factor->width, run);
    if (const Piecewise* form = std::get_if<Piecewise>(&bias.form); form && form->first_distance && call.batch > 0) {
      const auto [least, most] = std::minmax_element(form->first_distance, form->first_distance + call.batch);
      packed.most = *most + call.queries - 1;
      const std::int64_t last = *least - call.keys + 1;
      const std::int64_t count = packed.most - last + 1;
      packed.curve.resize(static_cast<std::size_t>(count + 2 * lanes()));
      packed.rate.resize(packed.curve.size());
      for (std::int64_t s = 0; s < count; ++s) {
        const double product = std::abs(form->c * static_cast<double>(packed.most - s));
        packed.curve[static_cast<std::size_t>(lanes() + s)] = static_cast<float>(std::log1p(product));
        packed.rate[static_cast<std::size_t>(lanes() + s)] = static_cast<float>(product / (1 + product));
      }
    }
  }
  return all;
}

/// ln sigmoid(z), and through `rate` its derivative sigmoid(-z). With e = exp(-|z|):
///   ln sigmoid(z) = min(z, 0) - ln(1 + e);   sigmoid(-z) = (z < 0 ? 1 : e) / (1 + e).
/// ln(1 + e) = 2 atanh(e / (2 + e)), a series in s = e / (2 + e) <= 1/3: the terms to s^13 leave 1e-8 of it.
HWY_INLINE Vec log_sigmoid(Vec z, Vec& rate) {
  const Tag d;
  const Vec one = hn::Set(d, 1.0F), zero = hn::Zero(d);
  const Vec e = exp_below_zero(hn::Neg(hn::Abs(z)));
  const Vec s = hn::Div(e, hn::Add(e, hn::Set(d, 2.0F)));
  const Vec t = hn::Mul(s, s);
  Vec p = hn::Set(d, 2.0F / 13);
  p = hn::MulAdd(p, t, hn::Set(d, 2.0F / 11));
  p = hn::MulAdd(p, t, hn::Set(d, 2.0F / 9));
  p = hn::MulAdd(p, t, hn::Set(d, 2.0F / 7));
  p = hn::MulAdd(p, t, hn::Set(d, 2.0F / 5));
  p = hn::MulAdd(p, t, hn::Set(d, 2.0F / 3));
  p = hn::MulAdd(p, t, hn::Set(d, 2.0F));
  rate = hn::Div(hn::IfThenElse(hn::Lt(z, zero), one, e), hn::Add(one, e));
  return hn::NegMulAdd(p, s, hn::Min(z, zero));
}

/// The lanes of the vector at v that lie in [from, until).
HWY_INLINE hn::Mask<Tag> within(std::int64_t v, std::int64_t from, std::int64_t until) {
  const auto first = [](std::int64_t count) {
    return hn::FirstN(Tag(), static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, lanes())));
  };
  return hn::AndNot(first(from - v), first(until - v));
}

/// The biases of one worker: what it keeps from tile to tile, and its scratch space.
class BiasTiles {
 public:
  BiasTiles(const Attention& call, const std::vector<PackedBias>& packed)
      : call_(call), packed_(packed), states_(call.biases.size()) {
    for (std::size_t n = 0; n < states_.size(); ++n) {
      const Bias& bias = call.biases[n];
      State& state = states_[n];
      if (std::holds_alternative<Path>(bias.form)) {
        state.inner = floats(query_tile * key_tile);
        state.sums = floats(query_tile * key_tile);
      }
      if (bias.factor) {
        state.base = floats(query_tile * key_tile);
        state.inner = floats(query_tile * key_tile);
        const std::int64_t numbers = std::max(bias.factor->width + 1, 2 * lanes());
        state.left = floats(numbers);
        std::fill(state.left.get(), state.left.get() + numbers, 0.0F);
      }
      if (const Piecewise* form = std::get_if<Piecewise>(&bias.form))
        state.bends.resize(static_cast<std::size_t>(query_tile * std::max<std::int64_t>(form->pieces - 1, 0)));
    }
    keys_high_ = floats(key_tile), keys_low_ = floats(key_tile), keys_rate_ = floats(key_tile);
    indices_.resize(static_cast<std::size_t>(key_tile));
    triangle_ = floats(path_block * path_block);
    for (std::int64_t l = 0; l < path_block; ++l)
      for (std::int64_t j = 0; j < path_block; ++j) triangle_[static_cast<std::size_t>(l * path_block + j)] = l > j;
  }

  bool any() const { return !states_.empty(); }
  bool holds(const Bias& bias, std::int64_t head) const { return head >= bias.first_head && head < bias.last_head; }

  /// Before the first tile of other queries, whose keys are then taken from the last to the first.
  void begin(const Tile& tile) {
    for (std::size_t n = 0; n < states_.size(); ++n) {
      const Bias& bias = call_.biases[n];
      if (!holds(bias, tile.head)) continue;
      std::fill(states_[n].carry, states_[n].carry + query_tile, 0.0);
      if (const Piecewise* form = std::get_if<Piecewise>(&bias.form)) find_bends(*form, states_[n], tile);
    }
  }

  /// scores[r * key_tile + j] += every bias of the tile's head.
  void add(const Tile& tile, const RowMask& mask, float* scores) {
    for (std::size_t n = 0; n < states_.size(); ++n) {
      const Bias& bias = call_.biases[n];
      if (!holds(bias, tile.head)) continue;
      if (!bias.factor) {
        add_form(n, tile, mask, scores);
        continue;
      }
      State& state = states_[n];
      for (std::int64_t r = 0; r < tile.rows; ++r)
        std::fill(state.base.get() + r * key_tile, state.base.get() + r * key_tile + tile.width, 0.0F);
      add_form(n, tile, mask, state.base.get());
      multiply(bias, n, tile, scores);
    }
  }

  // What the gradients need of the last tile.

  struct State {
    /// (query_tile, key_tile): the derivative of ln sigmoid for a path; for a factor what it reads: the tag's number,
    /// tanh <left, right> or <left, right>, and 0 where the factor is 1.
    Floats inner;
    Floats sums;                    ///< (query_tile, key_tile): ln sigmoid of a path, 0 where nothing is seen
    Floats base;                    ///< (query_tile, key_tile): the form alone where it has a factor
    Floats left;                    ///< a row of a factor, with a 0 behind it for keys without a tag
    double carry[query_tile] = {};  ///< of a path: the sum over the keys behind the tile
    std::vector<double> bends;      ///< (query_tile, pieces - 1): distances beyond which a break is passed
  };
  State& state(std::size_t n) { return states_[n]; }
  const PackedBias& packed(std::size_t n) const { return packed_[n]; }
  const float* triangle() const { return triangle_.get(); }

  /// What the factor holds beside 1, from what it reads.
  static HWY_INLINE Vec beside_one(const Factor& factor, std::int64_t own, Vec inner) {
    const Tag d;
    if (factor.kind == Factor::Kind::Tag) return inner;
    if (factor.kind == Factor::Kind::Tanh) return hn::Mul(hn::Set(d, factor.beta[own]), inner);
    return hn::Expm1(d, hn::Min(hn::Set(d, factor.bound), hn::Max(hn::Set(d, -factor.bound), inner)));
  }

  /// Zeros where the groups differ. Groups that do not fall along the keys, as sentences do not, are one run each.
  HWY_INLINE void clear_other_groups(const Factor& factor, const Tile& tile, std::int64_t r, float* row) const {
    if (!factor.query_groups) return;
    const std::int64_t own = factor.query_groups[tile.b * call_.queries + tile.first + r];
    const std::int64_t* HWY_RESTRICT keys = factor.key_groups + tile.b * call_.keys + tile.begin;
    const std::int64_t low = tile.low[r], high = tile.high[r];
    if (own < 0) {
      std::fill(row + low, row + high, 0.0F);
    } else if (groups_rise_) {
      const auto [first, last] = std::equal_range(keys + low, keys + high, own);
      std::fill(row + low, row + (first - keys), 0.0F);
      std::fill(row + (last - keys), row + high, 0.0F);
    } else {
      for (std::int64_t j = low; j < high; ++j) row[j] = keys[j] == own ? row[j] : 0.0F;
    }
  }

  /// Distances are taken relative to the tile's first key.
  HWY_INLINE void key_offsets(const Positions& positions, const Tile& tile) {
    const double* key = positions.key + tile.b * call_.keys + tile.begin;
    origin_ = key[0];
    whole_ = true;
    for (std::int64_t j = 0; j < tile.width; ++j) {
      const TwoFloats offset(tile.begin + j < tile.end ? key[j] - origin_ : 0.0);
      keys_high_[static_cast<std::size_t>(j)] = offset.high;
      keys_low_[static_cast<std::size_t>(j)] = offset.low;
      whole_ = whole_ && offset.low == 0;
    }
  }
  HWY_INLINE TwoFloats query_offset(const Positions& positions, const Tile& tile, std::int64_t r) const {
    return TwoFloats(positions.query[tile.b * call_.queries + tile.first + r] - origin_);
  }
  /// Distances n of a row from vector j on.
  HWY_INLINE Vec distances(const TwoFloats& own, std::int64_t j) const {
    const Tag d;
    const Vec n = hn::Sub(hn::Set(d, own.high), hn::Load(d, keys_high_.get() + j));
    if (whole_ && own.low == 0) return n;
    return hn::Add(n, hn::Sub(hn::Set(d, own.low), hn::Load(d, keys_low_.get() + j)));
  }

  /// Calls run(piece, j, end) for the runs of keys of row r that lie in one piece of a piecewise form at whole
  /// distances.
  template <class Body>
  void for_each_piece(const Piecewise& form, std::size_t n, const Tile& tile, std::int64_t r, const Body& run) const {
    // Key j, counted from the tile's first, lies at the distance at_first - j.
    const std::int64_t at_first = form.first_distance[tile.b] + tile.first + r - tile.begin;
    const double* bends = states_[n].bends.data() + r * (form.pieces - 1);
    const std::int64_t low = tile.low[r], high = tile.high[r];
    const std::int64_t turn = std::clamp<std::int64_t>(at_first + 1, low, high);  // from here on distances are negative
    // The largest whole distance of a piece, as far as the row goes.
    const std::int64_t farthest = std::max(std::abs(at_first - low), std::abs(at_first - high)) + 1;
    const auto reaches = [&](std::int64_t piece) {
      if (piece == form.pieces - 1) return farthest;
      return static_cast<std::int64_t>(std::min(std::floor(bends[piece]), static_cast<double>(farthest)));
    };
    // A tile far from the diagonal lies in a piece or two: the others are not looked at.
    const std::int64_t nearest = std::max<std::int64_t>({0, at_first - high + 1, low - at_first});
    std::int64_t before = nearest - 1;  // largest distance of the pieces so far
    for (std::int64_t piece = std::lower_bound(bends, bends + form.pieces - 1, static_cast<double>(nearest)) - bends;
         piece < form.pieces && before < farthest; ++piece) {
      const std::int64_t last = reaches(piece);
      if (last <= before) continue;
      // before < |n| <= last, on either side.
      const std::int64_t a = std::max(low, at_first - last), e = std::min(turn, at_first - before);
      if (a < e) run(piece, a, e);
      const std::int64_t f = std::max(turn, at_first + before + 1), g = std::min(high, at_first + last + 1);
      if (f < g) run(piece, f, g);
      before = last;
    }
  }

  /// What PackedBias holds of the tile's first key in row r, and on from there with the keys.
  const float* curve(const Piecewise& form, std::size_t n, const Tile& tile, std::int64_t r) const {
    return packed_[n].curve.data() + place_of(form, n, tile, r);
  }
  const float* rate(const Piecewise& form, std::size_t n, const Tile& tile, std::int64_t r) const {
    return packed_[n].rate.data() + place_of(form, n, tile, r);
  }
  std::int64_t place_of(const Piecewise& form, std::size_t n, const Tile& tile, std::int64_t r) const {
    return lanes() + packed_[n].most - (form.first_distance[tile.b] + tile.first + r - tile.begin);
  }
  /// The piece that u lies in.
  static std::int64_t piece_of(const Piecewise& form, double u) {
    return std::lower_bound(form.breaks, form.breaks + form.pieces - 1, u) - form.breaks;
  }
  /// Whether whole distances give runs of pieces: a constant has none to give.
  static bool in_runs(const Piecewise& form) { return form.first_distance && form.c != 0; }

  /// The entries of a lookup that row r reads, for keys [low, high).
  HWY_INLINE const std::int32_t* entries(const DistanceLookup& form, const Tile& tile, std::int64_t r) {
    const double* key = form.positions.key + tile.b * call_.keys + tile.begin;
    const double own = form.positions.query[tile.b * call_.queries + tile.first + r];
    const double most = static_cast<double>(form.most), last = static_cast<double>(form.count - 1);
    for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j)
      indices_[static_cast<std::size_t>(j)] =
          static_cast<std::int32_t>(std::min(std::max(most - std::nearbyint(own - key[j]), 0.0), last));
    return indices_.data();
  }

 private:
  void add_form(std::size_t n, const Tile& tile, const RowMask& mask, float* to) {
    const Bias& bias = call_.biases[n];
    const std::int64_t own = tile.head - bias.first_head;
    std::visit(
        [&](const auto& form) {
          using Form = std::decay_t<decltype(form)>;
          if constexpr (std::is_same_v<Form, Path>)
            add(form, own, n, tile, mask, to);
          else
            add(form, own, n, tile, to);
        },
        bias.form);
  }

  HWY_INLINE void add(const DistanceTable& form, std::int64_t own, std::size_t, const Tile& tile, float* to) {
    const Tag d;
    const float* of_head = form.table + own * form.count + form.most - form.first_distance[tile.b] + tile.begin;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float* HWY_RESTRICT table = of_head - (tile.first + r);
      float* HWY_RESTRICT scores = to + r * key_tile;
      std::int64_t j = tile.low[r];
      for (; j + lanes() <= tile.high[r]; j += lanes())
        hn::StoreU(hn::Add(hn::LoadU(d, scores + j), hn::LoadU(d, table + j)), d, scores + j);
      for (; j < tile.high[r]; ++j) scores[j] += table[j];
    }
  }

  HWY_INLINE void add(const DistanceLookup& form, std::int64_t own, std::size_t, const Tile& tile, float* to) {
    const float* table = form.table + own * form.count;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const std::int32_t* entry = entries(form, tile, r);
      float* scores = to + r * key_tile;
      for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j) scores[j] += table[entry[j]];
    }
  }

  HWY_INLINE void add(const Slope& form, std::int64_t own, std::size_t, const Tile& tile, float* to) {
    const Tag d;
    key_offsets(form.positions, tile);
    const Vec slope = hn::Set(d, form.slope[own]);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const TwoFloats query = query_offset(form.positions, tile, r);
      float* HWY_RESTRICT scores = to + r * key_tile;
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes())
        hn::StoreU(hn::NegMulAdd(slope, hn::Abs(distances(query, j)), hn::LoadU(d, scores + j)), d, scores + j);
    }
  }

  HWY_INLINE void add(const Curve& form, std::int64_t own, std::size_t, const Tile& tile, float* to) {
    const DoubleTag d;
    const Positions& positions = form.positions;
    const auto step = static_cast<std::int64_t>(hn::Lanes(d));
    const double r1 = static_cast<double>(form.r1[own]), r2 = static_cast<double>(form.r2[own]);
    alignas(64) double values[8];
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const double* key = positions.key + tile.b * call_.keys + tile.begin;
      const double query = positions.query[tile.b * call_.queries + tile.first + r];
      float* scores = to + r * key_tile;
      for (std::int64_t j = tile.low[r]; j < tile.high[r]; j += step) {
        const std::int64_t count = std::min(step, tile.high[r] - j);
        for (std::int64_t n = 0; n < step; ++n) values[n] = n < count ? std::abs(query - key[j + n]) : 1.0;
        const DoubleVec distance = hn::Load(d, values);
        DoubleVec value;
        if (form.kind == Curve::Kind::Log) {
          value = hn::Log1p(d, hn::Mul(hn::Set(d, r2), distance));
        } else {
          const auto zero = hn::Eq(distance, hn::Zero(d));
          const DoubleVec safe = hn::IfThenElse(zero, hn::Set(d, 1.0), distance);
          value = hn::IfThenZeroElse(zero, hn::Exp(d, hn::Mul(hn::Set(d, r2), hn::Log(d, safe))));
        }
        hn::Store(hn::Mul(hn::Set(d, -r1), value), d, values);
        for (std::int64_t n = 0; n < count; ++n) scores[j + n] += static_cast<float>(values[n]);
      }
    }
  }

  void find_bends(const Piecewise& form, State& state, const Tile& tile) const {
    if (!in_runs(form)) return;
    const std::int64_t count = form.pieces - 1;
    const double* reach = form.reach + tile.b * call_.queries + tile.first;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      double* bends = state.bends.data() + r * count;
      if (r > 0 && reach[r] == reach[r - 1]) {
        std::copy(bends - count, bends, bends);
        continue;
      }
      for (std::int64_t p = 0; p < count; ++p) bends[p] = std::expm1(form.breaks[p] * reach[r]) / std::abs(form.c);
    }
  }

  HWY_INLINE void add(const Piecewise& form, std::int64_t own, std::size_t n, const Tile& tile, float* to) {
    const Tag d;
    const double *slopes = form.slope + own * form.pieces, *levels = form.level + own * form.pieces;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      float* HWY_RESTRICT scores = to + r * key_tile;
      const double reach = form.reach[tile.b * call_.queries + tile.first + r];
      if (in_runs(form)) {
        const float* HWY_RESTRICT logs = curve(form, n, tile, r);
        for_each_piece(form, n, tile, r, [&](std::int64_t piece, std::int64_t j, std::int64_t end) {
          const auto slope = static_cast<float>(slopes[piece] / reach), level = static_cast<float>(levels[piece]);
          const Vec by = hn::Set(d, slope), up = hn::Set(d, level);
          for (std::int64_t v = round_down(j, lanes()); v < end; v += lanes()) {
            const Vec value = hn::IfThenElseZero(within(v, j, end), hn::MulAdd(by, hn::LoadU(d, logs + v), up));
            hn::StoreU(hn::Add(value, hn::LoadU(d, scores + v)), d, scores + v);
          }
        });
        continue;
      }
      const double* key = form.positions.key + tile.b * call_.keys + tile.begin;
      const double query = form.positions.query[tile.b * call_.queries + tile.first + r];
      for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j) {
        const double u = std::log1p(std::abs(form.c * (query - key[j]))) / reach;
        const std::int64_t piece = piece_of(form, u);
        scores[j] += static_cast<float>(slopes[piece] * u + levels[piece]);
      }
    }
  }

  /// Two large sums cancel near the diagonal: both are taken relative to the tile's first key, as two float32 each.
  HWY_INLINE void add(const Potential& form, std::int64_t own, std::size_t, const Tile& tile, float* to) {
    const Tag d;
    const double* key = form.key + tile.b * form.key_strides[0] + own * form.key_strides[1] + tile.begin;
    const double* query = form.query + tile.b * form.query_strides[0] + own * form.query_strides[1] + tile.first;
    const double origin = std::isfinite(key[0]) ? key[0] : 0.0;
    for (std::int64_t j = 0; j < tile.width; ++j) {
      const TwoFloats offset(tile.begin + j < tile.end ? key[j] - origin : 0.0);
      keys_high_[static_cast<std::size_t>(j)] = offset.high;
      keys_low_[static_cast<std::size_t>(j)] = offset.low;
    }
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const TwoFloats own_sum(query[r] - origin);
      const Vec high = hn::Set(d, own_sum.high), low = hn::Set(d, own_sum.low);
      float* HWY_RESTRICT scores = to + r * key_tile;
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes()) {
        const Vec rest = hn::Sub(low, hn::Load(d, keys_low_.get() + j));
        const Vec difference = hn::Add(hn::Sub(high, hn::Load(d, keys_high_.get() + j)), rest);
        hn::StoreU(hn::Add(hn::LoadU(d, scores + j), difference), d, scores + j);
      }
    }
  }

  HWY_INLINE void add(const Gated& form, std::int64_t own, std::size_t, const Tile& tile, float* to) {
    const Tag d;
    key_offsets(form.positions, tile);
    float* rates = keys_rate_.get();
    std::fill(rates, rates + tile.width, 0.0F);
    if (form.key) {
      const float* key = form.key + tile.b * form.key_strides[0] + own * form.key_strides[1];
      std::copy(key + tile.begin, key + tile.end, rates);
    }
    const float* query =
        form.query ? form.query + tile.b * form.query_strides[0] + own * form.query_strides[1] + tile.first : nullptr;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const TwoFloats offset = query_offset(form.positions, tile, r);
      const Vec rate = hn::Set(d, query ? query[r] : 0.0F);
      float* HWY_RESTRICT scores = to + r * key_tile;
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes()) {
        const Vec sum = hn::Add(rate, hn::Load(d, rates + j));
        hn::StoreU(hn::NegMulAdd(sum, distances(offset, j), hn::LoadU(d, scores + j)), d, scores + j);
      }
    }
  }

  HWY_INLINE void add(const Product& form, std::int64_t own, std::size_t n, const Tile& tile, float* to) {
    product_of(form.query, own, packed_[n].key, own / form.key_group, form.width, tile, to, true);
  }

  /// to (+)= <left_i, right_j> for every pair of the tile.
  HWY_INLINE void product_of(const Input& left, std::int64_t left_head, const Panels& right, std::int64_t right_head,
                             std::int64_t width, const Tile& tile, float* to, bool added) const {
    const float* queries = left.row(tile.b, left_head, tile.first);
    const float* keys = right.at(tile.b, right_head, tile.begin);
    for (std::int64_t c = 0; c < tile.width; c += panel_tokens()) {
      if (added)
        product<true>(queries, left.strides[2], 1, keys + c * width, panel_tokens(), width, to + c, key_tile, tile.rows,
                      panel_tokens());
      else
        product<false>(queries, left.strides[2], 1, keys + c * width, panel_tokens(), width, to + c, key_tile,
                       tile.rows, panel_tokens());
    }
  }

  HWY_INLINE void add(const Path& form, std::int64_t own, std::size_t n, const Tile& tile, const RowMask& mask,
                      float* to) {
    const Tag d;
    State& state = states_[n];
    float *inner = state.inner.get(), *sums = state.sums.get();
    product_of(form.query, own, packed_[n].key, own, form.width, tile, inner, false);
    const Vec per = hn::Set(d, 1.0F / static_cast<float>(form.width));
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      float* HWY_RESTRICT z = inner + r * key_tile;
      float* HWY_RESTRICT psi = sums + r * key_tile;
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes()) {
        const Vec scaled = hn::Mul(hn::LoadU(d, z + j), per);
        Vec rate;
        hn::StoreU(log_sigmoid(scaled, rate), d, psi + j);
        hn::StoreU(rate, d, z + j);
      }
      clear_hidden(tile, mask, r, psi);
    }
    const float alpha = form.alpha[own];
    const auto with = static_cast<double>(alpha);
    alignas(64) float block[query_tile * path_block];
    for (std::int64_t c = tile.width - path_block; c >= 0; c -= path_block) {
      product<false>(sums + c, key_tile, 1, triangle_.get(), path_block, path_block, block, path_block, tile.rows,
                     path_block);
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        double& carry = state.carry[r];
        const float* HWY_RESTRICT behind = block + r * path_block;
        if (c < tile.to(r) && c + path_block > tile.from(r)) {
          float* HWY_RESTRICT scores = to + r * key_tile + c;
          const Vec so_far = hn::Set(d, static_cast<float>(carry * with)), times = hn::Set(d, alpha);
          for (std::int64_t j = 0; j < path_block; j += lanes())
            hn::StoreU(hn::Add(hn::LoadU(d, scores + j), hn::MulAdd(times, hn::Load(d, behind + j), so_far)), d,
                       scores + j);
        }
        carry += static_cast<double>(behind[0]) + static_cast<double>(sums[r * key_tile + c]);
      }
    }
  }

  /// Edges over keys that the row does not see add nothing.
  static HWY_INLINE void clear_hidden(const Tile& tile, const RowMask& mask, std::int64_t r, float* row) {
    std::fill(row, row + tile.low[r], 0.0F);
    std::fill(row + tile.high[r], row + tile.width, 0.0F);
    if (!mask.has_documents()) return;
    for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j)
      if (!mask.same_document(tile.first + r, tile.begin + j)) row[j] = 0;
  }

  /// to[j] = table[index of key j] for the vectors [from, until); the table has `count` numbers and room for two
  /// vectors.
  HWY_INLINE void look_up(const float* HWY_RESTRICT table, std::int64_t count, std::int64_t from, std::int64_t until,
                          float* HWY_RESTRICT to) const {
    const Tag d;
    const hn::RebindToSigned<Tag> di;
    const std::int32_t* HWY_RESTRICT index = indices_.data();
    if (count > 2 * lanes()) {
      for (std::int64_t j = from; j < until; j += lanes())
        hn::StoreU(hn::GatherIndex(d, table, hn::LoadU(di, index + j)), d, to + j);
      return;
    }
    // A table of two vectors stays in registers, where looking up is cheaper than a gather.
    const Vec low = hn::LoadU(d, table), high = hn::LoadU(d, table + lanes());
    const auto last = hn::Set(di, static_cast<std::int32_t>(lanes() - 1));
    for (std::int64_t j = from; j < until; j += lanes()) {
      const auto place = hn::LoadU(di, index + j);
      const auto lane = hn::IndicesFromVec(d, hn::And(place, last));
      const Vec found = hn::IfThenElse(hn::RebindMask(d, hn::Gt(place, last)), hn::TableLookupLanes(high, lane),
                                       hn::TableLookupLanes(low, lane));
      hn::StoreU(found, d, to + j);
    }
  }

  /// scores += base * factor
  HWY_INLINE void multiply(const Bias& bias, std::size_t n, const Tile& tile, float* to) {
    const Tag d;
    const Factor& factor = *bias.factor;
    State& state = states_[n];
    const std::int64_t own = tile.head - bias.first_head;
    if (factor.query_groups) {
      const std::int64_t* keys = factor.key_groups + tile.b * call_.keys;
      groups_rise_ = std::is_sorted(keys + tile.begin, keys + tile.end);
    }
    const bool tagged = factor.kind == Factor::Kind::Tag;
    const std::int64_t* tags = tagged ? factor.tags + tile.b * call_.keys + tile.begin : nullptr;
    if (tagged)
      for (std::int64_t j = 0; j < tile.width; ++j)
        indices_[static_cast<std::size_t>(j)] =
            static_cast<std::int32_t>(j >= tile.end - tile.begin || tags[j] < 0 ? factor.width : tags[j]);
    else
      product_of(factor.left, own, packed_[n].right, own, factor.width, tile, state.inner.get(), false);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      float* HWY_RESTRICT inner = state.inner.get() + r * key_tile;
      const float* HWY_RESTRICT base = state.base.get() + r * key_tile;
      float* HWY_RESTRICT scores = to + r * key_tile;
      if (tagged) {
        const float* left = factor.left.row(tile.b, own, tile.first + r);
        float* HWY_RESTRICT row = state.left.get();
        std::copy(left, left + factor.width, row);
        row[factor.width] = 0;
        look_up(row, factor.width + 1, tile.from(r), tile.to(r), inner);
      } else {
        if (factor.kind == Factor::Kind::Tanh)
          for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes())
            hn::StoreU(hn::Tanh(d, hn::LoadU(d, inner + j)), d, inner + j);
      }
      clear_other_groups(factor, tile, r, inner);
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes()) {
        const Vec form = hn::LoadU(d, base + j), more = beside_one(factor, own, hn::LoadU(d, inner + j));
        hn::StoreU(hn::Add(hn::LoadU(d, scores + j), hn::MulAdd(form, more, form)), d, scores + j);
      }
    }
  }

  const Attention& call_;
  const std::vector<PackedBias>& packed_;
  std::vector<State> states_;
  Floats keys_high_, keys_low_, keys_rate_, triangle_;
  std::vector<std::int32_t> indices_;
  double origin_ = 0;
  bool whole_ = true;
  bool groups_rise_ = false;  ///< along the keys of the tile that was computed last
};

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
