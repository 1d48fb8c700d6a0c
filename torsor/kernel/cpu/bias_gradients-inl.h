// The gradients of the bias forms from the slopes of a tile of scores. Included inside an instruction set by the
// backward pass.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/biases-inl.h"

#if defined(TORSOR_KERNEL_CPU_BIAS_GRADIENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TORSOR_KERNEL_CPU_BIAS_GRADIENTS_INL_H
#undef TORSOR_KERNEL_CPU_BIAS_GRADIENTS_INL_H
#else
#define TORSOR_KERNEL_CPU_BIAS_GRADIENTS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

/// Numbers a query head that a bias sums over pairs: its trained numbers, one of a key, one of a key of its factor.
struct BiasNumbers {
  std::int64_t own = 0, key = 0, right = 0, query = 0, left = 0;
};

inline BiasNumbers numbers_of(const Bias& bias) {
  BiasNumbers n;
  if (const auto* table = std::get_if<DistanceTable>(&bias.form)) n.own = table->count;
  if (const auto* lookup = std::get_if<DistanceLookup>(&bias.form)) n.own = lookup->count;
  if (std::holds_alternative<Slope>(bias.form)) n.own = 1;
  if (std::holds_alternative<Curve>(bias.form)) n.own = 2;  // r1, r2
  if (const auto* form = std::get_if<Piecewise>(&bias.form)) {
    n.own = 2 * form->pieces + 1;  // slopes, levels, c
    n.query = 1;
  }
  if (std::holds_alternative<Potential>(bias.form) || std::holds_alternative<Gated>(bias.form)) n.query = n.key = 1;
  if (const auto* path = std::get_if<Path>(&bias.form)) {
    n.own = 1;
    n.query = n.key = path->width;
  }
  if (const auto* product = std::get_if<Product>(&bias.form)) n.query = n.key = product->width;
  if (bias.factor) {
    n.own += bias.factor->kind == Factor::Kind::Tanh ? 1 : 0;  // beta, behind the form's
    n.left = bias.factor->width;
    n.right = bias.factor->kind == Factor::Kind::Tag ? 0 : bias.factor->width;
  }
  return n;
}

/// What one unit of work sums for a bias: (query head of the group, numbers), and with keys between for those of a key.
struct UnitBias {
  std::vector<double> own, key, right;
  UnitBias(const Bias& bias, std::int64_t group, std::int64_t keys) {
    const BiasNumbers n = numbers_of(bias);
    own.resize(static_cast<std::size_t>(group * n.own));
    key.resize(static_cast<std::size_t>(group * keys * n.key));
    right.resize(static_cast<std::size_t>(group * keys * n.right));
  }
};

/// Rows of a bias's keys, for the gradients of its queries.
struct BiasRows {
  Rows key, right;
};

inline HWY_NOINLINE std::vector<BiasRows> pack_bias_rows(const Attention& call, const Run& run) {
  std::vector<BiasRows> all(call.biases.size());
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Bias& bias = call.biases[n];
    const std::int64_t heads = bias.last_head - bias.first_head;
    if (const Path* path = std::get_if<Path>(&bias.form))
      all[n].key = pack_rows(path->key, call.batch, heads, call.keys, path->width, false, run);
    if (const Product* product = std::get_if<Product>(&bias.form))
      all[n].key =
          pack_rows(product->key, call.batch, heads / product->key_group, call.keys, product->width, false, run);
    if (bias.factor && bias.factor->kind != Factor::Kind::Tag)
      all[n].right = pack_rows(bias.factor->right, call.batch, heads, call.keys, bias.factor->width, false, run);
  }
  return all;
}

/// The bias gradients of one worker.
class BiasGradients {
 public:
  BiasGradients(const Attention& call, BiasTiles& tiles, const std::vector<BiasRows>& rows,
                const std::vector<BiasGradient>& wanted)
      : call_(call), tiles_(tiles), rows_(rows), wanted_(wanted), sums_(wanted.size()) {
    std::int64_t widest = 0;
    bool factors = false, paths = false;
    for (std::size_t n = 0; n < wanted.size(); ++n) {
      const Bias& bias = call.biases[n];
      const BiasNumbers numbers = numbers_of(bias);
      widest = std::max({widest, numbers.query, numbers.left});
      sums_[n].query = floats(query_tile * round_up(numbers.query, lanes()));
      sums_[n].left = floats(query_tile * round_up(numbers.left, lanes()));
      factors = factors || bias.factor;
      paths = paths || std::holds_alternative<Path>(bias.form);
    }
    if (wanted.empty()) return;
    diagonals_ = floats(query_tile + key_tile);
    distances_ = floats(key_tile);
    queries_ = floats(query_tile * round_up(widest, lanes()));
    keys_ = floats(key_tile * round_up(widest, lanes()));
    if (factors) of_base_ = floats(query_tile * key_tile);
    if (factors || paths) of_inner_ = floats(query_tile * key_tile);
  }

  /// Before the first tile of other queries; totals[r] is the sum of row r's slopes over all keys.
  void begin(const Tile& tile, const double* totals) {
    for (std::size_t n = 0; n < sums_.size(); ++n) {
      const BiasNumbers numbers = numbers_of(call_.biases[n]);
      std::fill(sums_[n].query.get(), sums_[n].query.get() + query_tile * round_up(numbers.query, lanes()), 0.0F);
      std::fill(sums_[n].left.get(), sums_[n].left.get() + query_tile * round_up(numbers.left, lanes()), 0.0F);
      std::fill(sums_[n].single, sums_[n].single + query_tile, 0.0);
      std::copy(totals, totals + tile.rows, sums_[n].carry);
    }
  }

  /// slopes (query_tile, key_tile), zero where nothing is seen, of the tile that was computed last. `member` is the
  /// head's number in its group.
  void add(const Tile& tile, const float* slopes, std::int64_t member, std::vector<UnitBias>& units) {
    for (std::size_t n = 0; n < sums_.size(); ++n) {
      const Bias& bias = call_.biases[n];
      if (!tiles_.holds(bias, tile.head)) continue;
      const BiasNumbers numbers = numbers_of(bias);
      double* own = units[n].own.data() + member * numbers.own;
      double* key = units[n].key.data() + (member * call_.keys + tile.begin) * numbers.key;
      const float* of_form = slopes;
      if (bias.factor) {
        double* right = units[n].right.data() + (member * call_.keys + tile.begin) * numbers.right;
        add_factor(bias, n, tile, slopes, numbers.own > 0 ? own + numbers.own - 1 : nullptr, right);
        of_form = of_base_.get();
      }
      const std::int64_t head = tile.head - bias.first_head;
      std::visit([&](const auto& form) { add(form, head, n, tile, of_form, own, key); }, bias.form);
    }
  }

  /// Writes what belongs to the tile's queries.
  void finish(const Tile& tile) {
    for (std::size_t n = 0; n < sums_.size(); ++n) {
      const Bias& bias = call_.biases[n];
      if (!tiles_.holds(bias, tile.head)) continue;
      const BiasNumbers numbers = numbers_of(bias);
      const std::int64_t heads = bias.last_head - bias.first_head;
      const std::int64_t first = (tile.b * heads + tile.head - bias.first_head) * call_.queries + tile.first;
      const bool single = std::holds_alternative<Potential>(bias.form) || std::holds_alternative<Gated>(bias.form) ||
                          std::holds_alternative<Piecewise>(bias.form);
      double* query = std::holds_alternative<Piecewise>(bias.form) ? wanted_[n].reach : wanted_[n].query;
      const double per = std::holds_alternative<Path>(bias.form) ? 1.0 / static_cast<double>(numbers.query) : 1.0;
      if (query)
        for (std::int64_t r = 0; r < tile.rows; ++r)
          for (std::int64_t c = 0; c < numbers.query; ++c)
            query[(first + r) * numbers.query + c] =
                single ? sums_[n].single[r]
                       : per * static_cast<double>(
                                   sums_[n].query[static_cast<std::size_t>(r * round_up(numbers.query, lanes()) + c)]);
      if (double* left = wanted_[n].left)
        for (std::int64_t r = 0; r < tile.rows; ++r)
          for (std::int64_t c = 0; c < numbers.left; ++c)
            left[(first + r) * numbers.left + c] =
                static_cast<double>(sums_[n].left[static_cast<std::size_t>(r * round_up(numbers.left, lanes()) + c)]);
    }
  }

 private:
  struct Sums {
    Floats query, left;  ///< (query_tile, width in whole vectors)
    double single[query_tile] = {};
    double carry[query_tile] = {};  ///< of a path: the sum of the slopes of the keys before the tile and in it
  };

  static HWY_INLINE double sum_of(const float* row, std::int64_t from, std::int64_t to) {
    const Tag d;
    Vec sum = hn::Zero(d);
    for (std::int64_t j = from; j < to; j += lanes()) sum = hn::Add(sum, hn::LoadU(d, row + j));
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }

  /// One distance is one diagonal of the tile.
  HWY_INLINE void add(const DistanceTable& form, std::int64_t, std::size_t n, const Tile& tile, const float* slopes,
                      double* own, double*) {
    if (!wanted_[n].table) return;
    const Tag d;
    const std::int64_t rows = tile.rows, keys = tile.end - tile.begin;
    float* diagonals = diagonals_.get();
    std::fill(diagonals, diagonals + rows + keys, 0.0F);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* HWY_RESTRICT to = diagonals + rows - 1 - r;
      const float* HWY_RESTRICT slope = slopes + r * key_tile;
      std::int64_t j = tile.low[r];
      for (; j + lanes() <= tile.high[r]; j += lanes())
        hn::StoreU(hn::Add(hn::LoadU(d, to + j), hn::LoadU(d, slope + j)), d, to + j);
      for (; j < tile.high[r]; ++j) to[j] += slope[j];
    }
    double* first = own + form.most - form.first_distance[tile.b] - (tile.first + rows - 1) + tile.begin;
    for (std::int64_t s = 0; s < rows + keys - 1; ++s)
      if (diagonals[s] != 0) first[s] += static_cast<double>(diagonals[s]);
  }

  HWY_INLINE void add(const DistanceLookup& form, std::int64_t, std::size_t n, const Tile& tile, const float* slopes,
                      double* own, double*) {
    if (!wanted_[n].table) return;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const std::int32_t* entry = tiles_.entries(form, tile, r);
      for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j)
        own[entry[j]] += static_cast<double>(slopes[r * key_tile + j]);
    }
  }

  HWY_INLINE void add(const Slope& form, std::int64_t, std::size_t n, const Tile& tile, const float* slopes,
                      double* own, double*) {
    if (!wanted_[n].slope) return;
    const Tag d;
    tiles_.key_offsets(form.positions, tile);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const TwoFloats query = tiles_.query_offset(form.positions, tile, r);
      const float* slope = slopes + r * key_tile;
      Vec sum = hn::Zero(d);
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes())
        sum = hn::MulAdd(hn::Abs(tiles_.distances(query, j)), hn::LoadU(d, slope + j), sum);
      *own -= static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
    }
  }

  HWY_INLINE void add(const Curve& form, std::int64_t head, std::size_t n, const Tile& tile, const float* slopes,
                      double* own, double*) {
    if (!wanted_[n].r1 && !wanted_[n].r2) return;
    const double r1 = static_cast<double>(form.r1[head]), r2 = static_cast<double>(form.r2[head]);
    const double* key = form.positions.key + tile.b * call_.keys + tile.begin;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const double query = form.positions.query[tile.b * call_.queries + tile.first + r];
      for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j) {
        const double distance = std::abs(query - key[j]), slope = static_cast<double>(slopes[r * key_tile + j]);
        if (distance == 0 || slope == 0) continue;
        if (form.kind == Curve::Kind::Log) {
          own[0] -= slope * std::log1p(r2 * distance);
          own[1] -= slope * r1 * distance / (1 + r2 * distance);
        } else {
          const double log = std::log(distance), power = std::exp(r2 * log);
          own[0] -= slope * power;
          own[1] -= slope * r1 * power * log;
        }
      }
    }
  }

  HWY_INLINE void add(const Piecewise& form, std::int64_t head, std::size_t n, const Tile& tile, const float* slopes,
                      double* own, double*) {
    const Tag d;
    const std::int64_t pieces = form.pieces;
    double *of_slope = own, *of_level = own + pieces, *of_c = own + 2 * pieces;
    const double* slope = form.slope + head * pieces;
    const double c = form.c;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float* HWY_RESTRICT ds = slopes + r * key_tile;
      const double reach = form.reach[tile.b * call_.queries + tile.first + r];
      const auto put = [&](std::int64_t piece, double plain, double by_log, double by_rate) {
        of_level[piece] += plain;
        of_slope[piece] += by_log / reach;
        sums_[n].single[r] -= slope[piece] * by_log / (reach * reach);
        *of_c += slope[piece] * by_rate / reach;
      };
      if (BiasTiles::in_runs(form)) {
        const float *HWY_RESTRICT logs = tiles_.curve(form, n, tile, r),
                                  *HWY_RESTRICT rates = tiles_.rate(form, n, tile, r);
        tiles_.for_each_piece(form, n, tile, r, [&](std::int64_t piece, std::int64_t j, std::int64_t end) {
          Vec plain = hn::Zero(d), by_log = hn::Zero(d), by_rate = hn::Zero(d);
          for (std::int64_t v = round_down(j, lanes()); v < end; v += lanes()) {
            const Vec here = hn::IfThenElseZero(within(v, j, end), hn::LoadU(d, ds + v));
            plain = hn::Add(plain, here);
            by_log = hn::MulAdd(here, hn::LoadU(d, logs + v), by_log);
            by_rate = hn::MulAdd(here, hn::LoadU(d, rates + v), by_rate);
          }
          put(piece, static_cast<double>(hn::GetLane(hn::SumOfLanes(d, plain))),
              static_cast<double>(hn::GetLane(hn::SumOfLanes(d, by_log))),
              static_cast<double>(hn::GetLane(hn::SumOfLanes(d, by_rate))) / c);
        });
        continue;
      }
      const double* key = form.positions.key + tile.b * call_.keys + tile.begin;
      const double query = form.positions.query[tile.b * call_.queries + tile.first + r];
      for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j) {
        const auto here = static_cast<double>(ds[j]);
        if (here == 0) continue;
        const double distance = std::abs(query - key[j]), log = std::log1p(std::abs(c) * distance);
        const double sign = c > 0 ? 1.0 : c < 0 ? -1.0 : 0.0;
        put(BiasTiles::piece_of(form, log / reach), here, here * log,
            here * sign * distance / (1 + std::abs(c) * distance));
      }
    }
  }

  HWY_INLINE void add(const Potential&, std::int64_t, std::size_t n, const Tile& tile, const float* slopes, double*,
                      double* key) {
    const Tag d;
    if (wanted_[n].query)
      for (std::int64_t r = 0; r < tile.rows; ++r)
        sums_[n].single[r] += sum_of(slopes + r * key_tile, tile.from(r), tile.to(r));
    if (!wanted_[n].key) return;
    float* HWY_RESTRICT columns = distances_.get();
    std::fill(columns, columns + tile.width, 0.0F);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float* HWY_RESTRICT slope = slopes + r * key_tile;
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes())
        hn::Store(hn::Add(hn::Load(d, columns + j), hn::LoadU(d, slope + j)), d, columns + j);
    }
    for (std::int64_t j = 0; j < tile.end - tile.begin; ++j) key[j] -= static_cast<double>(columns[j]);
  }

  HWY_INLINE void add(const Gated& form, std::int64_t, std::size_t n, const Tile& tile, const float* slopes, double*,
                      double* key) {
    const Tag d;
    tiles_.key_offsets(form.positions, tile);
    float* HWY_RESTRICT columns = distances_.get();
    std::fill(columns, columns + tile.width, 0.0F);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const TwoFloats query = tiles_.query_offset(form.positions, tile, r);
      const float* HWY_RESTRICT slope = slopes + r * key_tile;
      Vec sum = hn::Zero(d);
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes()) {
        const Vec change = hn::Mul(tiles_.distances(query, j), hn::LoadU(d, slope + j));
        sum = hn::Add(sum, change);
        hn::Store(hn::Add(hn::Load(d, columns + j), change), d, columns + j);
      }
      sums_[n].single[r] -= static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
    }
    if (wanted_[n].key)
      for (std::int64_t j = 0; j < tile.end - tile.begin; ++j) key[j] -= static_cast<double>(columns[j]);
  }

  HWY_INLINE void add(const Product& form, std::int64_t head, std::size_t n, const Tile& tile, const float* slopes,
                      double*, double* key) {
    of_product(form.query, head, rows_[n].key, head / form.key_group, form.width, tile, slopes,
               wanted_[n].query ? sums_[n].query.get() : nullptr, wanted_[n].key ? key : nullptr, 1);
  }

  /// From the slopes of products <left, right>: lefts (query_tile, width) += slopes right, and rights (keys, width) +=
  /// per slopes^T left.
  HWY_INLINE void of_product(const Input& left, std::int64_t left_head, const Rows& right, std::int64_t right_head,
                             std::int64_t width, const Tile& tile, const float* slopes, float* lefts, double* rights,
                             double per) {
    const std::int64_t row = round_up(width, lanes()), keys = tile.end - tile.begin;
    if (lefts)
      product<true>(slopes, key_tile, 1, right.at(tile.b, right_head, tile.begin), right.row(), keys, lefts, row,
                    tile.rows, row);
    if (!rights) return;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float* from = left.row(tile.b, left_head, tile.first + r);
      float* to = queries_.get() + r * row;
      std::copy(from, from + width, to);
      std::fill(to + width, to + row, 0.0F);
    }
    product<false>(slopes, 1, key_tile, queries_.get(), row, tile.rows, keys_.get(), row, keys, row);
    for (std::int64_t j = 0; j < keys; ++j)
      for (std::int64_t c = 0; c < width; ++c)
        rights[j * width + c] += per * static_cast<double>(keys_[static_cast<std::size_t>(j * row + c)]);
  }

  /// With psi_l = ln sigmoid(z_l) and b_j = alpha sum of psi over l > j: d psi_l = alpha sum of dS over j < l, the
  /// row's total less the sum over j >= l, which runs from the last key to the first.
  HWY_INLINE void add(const Path& form, std::int64_t head, std::size_t n, const Tile& tile, const float* slopes,
                      double* own, double* key) {
    const Tag d;
    BiasTiles::State& state = tiles_.state(n);
    float* inner = of_inner_.get();
    const float alpha = form.alpha[head];
    alignas(64) float block[query_tile * path_block];
    double of_alpha = 0;
    for (std::int64_t c = tile.width - path_block; c >= 0; c -= path_block) {
      product<false>(slopes + c, key_tile, 1, tiles_.triangle(), path_block, path_block, block, path_block, tile.rows,
                     path_block);
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        double& carry = sums_[n].carry[r];
        const float* slope = slopes + r * key_tile + c;
        float* HWY_RESTRICT to = inner + r * key_tile + c;
        if (c < tile.to(r) && c + path_block > tile.from(r)) {
          const float* HWY_RESTRICT psi = state.sums.get() + r * key_tile + c;
          const float* HWY_RESTRICT rate = state.inner.get() + r * key_tile + c;
          const Vec before = hn::Set(d, static_cast<float>(carry)), times = hn::Set(d, alpha);
          Vec sum = hn::Zero(d);
          for (std::int64_t j = 0; j < path_block; j += lanes()) {
            const Vec edge = hn::Sub(hn::Sub(before, hn::Load(d, block + r * path_block + j)), hn::LoadU(d, slope + j));
            const Vec value = hn::LoadU(d, psi + j);
            sum = hn::MulAdd(edge, value, sum);
            // psi is 0 where nothing is seen, and nowhere else.
            const Vec change = hn::Mul(hn::Mul(times, edge), hn::LoadU(d, rate + j));
            hn::StoreU(hn::IfThenZeroElse(hn::Eq(value, hn::Zero(d)), change), d, to + j);
          }
          of_alpha += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
        } else {
          std::fill(to, to + path_block, 0.0F);
        }
        carry -= static_cast<double>(block[r * path_block]) + static_cast<double>(slope[0]);
      }
    }
    *own += of_alpha;
    of_product(form.query, head, rows_[n].key, head, form.width, tile, inner,
               wanted_[n].query ? sums_[n].query.get() : nullptr, wanted_[n].key ? key : nullptr,
               1.0 / static_cast<double>(form.width));
  }

  /// of_base_ = the slopes of the form under the factor; the factor's own numbers are summed.
  HWY_INLINE void add_factor(const Bias& bias, std::size_t n, const Tile& tile, const float* slopes, double* beta,
                             double* right) {
    const Tag d;
    const Factor& factor = *bias.factor;
    const std::int64_t own = tile.head - bias.first_head, row = round_up(factor.width, lanes());
    BiasTiles::State& state = tiles_.state(n);
    const std::int64_t* tags = factor.tags ? factor.tags + tile.b * call_.keys + tile.begin : nullptr;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float* HWY_RESTRICT slope = slopes + r * key_tile;
      const float* HWY_RESTRICT inner = state.inner.get() + r * key_tile;
      const float* HWY_RESTRICT base = state.base.get() + r * key_tile;
      float* HWY_RESTRICT of_base = of_base_.get() + r * key_tile;
      float* HWY_RESTRICT of_inner = of_inner_.get() + r * key_tile;
      std::fill(of_base, of_base + tile.width, 0.0F);
      std::fill(of_inner, of_inner + tile.width, 0.0F);
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes()) {
        const Vec here = hn::LoadU(d, slope + j), x = hn::LoadU(d, inner + j);
        // What lies beside the row's keys may be anything.
        const auto nothing = hn::Eq(here, hn::Zero(d));
        const Vec more = BiasTiles::beside_one(factor, own, x);
        hn::StoreU(hn::IfThenZeroElse(nothing, hn::MulAdd(here, more, here)), d, of_base + j);
        hn::StoreU(hn::IfThenZeroElse(nothing, hn::Mul(here, hn::LoadU(d, base + j))), d, of_inner + j);
      }
      tiles_.clear_other_groups(factor, tile, r, of_inner);
      if (factor.kind == Factor::Kind::Tag) {
        float* left = sums_[n].left.get() + r * row;
        for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j)
          if (tags[j] >= 0) left[tags[j]] += of_inner[j];
        continue;
      }
      Vec sum = hn::Zero(d);
      for (std::int64_t j = tile.from(r); j < tile.to(r); j += lanes()) {
        const Vec here = hn::LoadU(d, of_inner + j), x = hn::LoadU(d, inner + j);
        Vec change;
        if (factor.kind == Factor::Kind::Tanh) {
          sum = hn::Add(sum, hn::IfThenZeroElse(hn::Eq(here, hn::Zero(d)), hn::Mul(here, x)));
          change = hn::Mul(hn::Mul(hn::Set(d, factor.beta[own]), here), hn::NegMulAdd(x, x, hn::Set(d, 1.0F)));
        } else {
          const Vec whole = hn::Add(BiasTiles::beside_one(factor, own, x), hn::Set(d, 1.0F));
          change = hn::IfThenElseZero(hn::Le(hn::Abs(x), hn::Set(d, factor.bound)), hn::Mul(here, whole));
        }
        hn::StoreU(hn::IfThenZeroElse(hn::Eq(here, hn::Zero(d)), change), d, of_inner + j);
      }
      if (factor.kind == Factor::Kind::Tanh) *beta += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
    }
    if (factor.kind != Factor::Kind::Tag)
      of_product(factor.left, own, rows_[n].right, own, factor.width, tile, of_inner_.get(),
                 wanted_[n].left ? sums_[n].left.get() : nullptr, wanted_[n].right ? right : nullptr, 1);
  }

  const Attention& call_;
  BiasTiles& tiles_;
  const std::vector<BiasRows>& rows_;
  const std::vector<BiasGradient>& wanted_;
  std::vector<Sums> sums_;
  Floats diagonals_, distances_, queries_, keys_, of_base_, of_inner_;
};

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
