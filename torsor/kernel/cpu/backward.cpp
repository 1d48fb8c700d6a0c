#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/sets.h"

// Compiled once an instruction set; the best that the processor has is chosen when the function is called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torsor/kernel/cpu/backward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "torsor/kernel/cpu/bias_gradients-inl.h"
#include "torsor/kernel/cpu/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {
namespace {

/// A unit of work: the queries of one key head's group, or every `splits`-th tile of them. It owns what it sums.
struct Unit {
  std::int64_t b = 0, key_head = 0, split = 0, splits = 1;
  Floats keys;     ///< (keys, key row)
  Floats values;   ///< (keys, value row)
  Floats carried;  ///< (heads of the group, keys, carried row)
  std::vector<UnitBias> biases;
};

/// What a call needs once, whoever computes.
struct Packed {
  bool paired;
  Panels keys, values, carried;
  Rows key_rows;
  PairPanels pair_keys, pair_values;
  PairRows pair_key_rows;
  std::vector<PackedBias> biases;
  std::vector<BiasRows> bias_rows;
  std::optional<Reach> reach;
  std::int64_t key_row, value_row, carried_row;  ///< widths in whole vectors

  Packed(const Attention& call, const Gradients& gradients, const Run& run)
      : paired(takes_pairs(call.q)),
        biases(pack_biases(call, run)),
        key_row(round_up(call.width, lanes())),
        value_row(round_up(call.value_width, lanes())),
        carried_row(round_up(call.carried.width, lanes())) {
    if (paired) {
      pair_keys = pack_pair_panels(call.k, call.batch, call.key_heads, call.keys, call.width, run);
      pair_values = pack_pair_panels(call.v, call.batch, call.key_heads, call.keys, call.value_width, run);
      const auto none = [](std::int64_t, std::int64_t, std::int64_t) { return false; };
      pair_key_rows = pack_pair_rows(call.k, call.batch, call.key_heads, call.keys, call.width, none, run);
    } else {
      keys = pack_panels(call.k, call.batch, call.key_heads, call.keys, call.width, run);
      values = pack_panels(call.v, call.batch, call.key_heads, call.keys, call.value_width, run);
      key_rows = pack_rows(call.k, call.batch, call.key_heads, call.keys, call.width, false, run);
    }
    if (call.carried.width > 0)
      carried = pack_panels(call.carried.values, call.batch, call.heads / call.carried.group, call.keys,
                            call.carried.width, run);
    if (!gradients.biases.empty()) bias_rows = pack_bias_rows(call, run);
    // The gradient of a far distance's number is made of nothing but weights that could be left out.
    bool tables = false;
    for (const BiasGradient& bias : gradients.biases) tables = tables || bias.table;
    if (Reach::useful(call) && !tables) reach.emplace(call, run);
  }
};

/// The work of one thread. With P the weights, D_i = sum_c dout_ic out_ic - dlse_i (what is carried counted as channels
/// of out and v) and dP = dout v^T:
///   dS = P (dP - D);  dv = P^T dout;  dk = dS^T q';  dq' = dS k;  q' the scaled queries.
class BackwardWorker {
 public:
  BackwardWorker(const Attention& call, const Packed& packed, const Upstream& upstream, const Gradients& gradients)
      : call_(call),
        packed_(packed),
        upstream_(upstream),
        gradients_(gradients),
        tile_(call, packed.keys, packed.pair_keys, packed.biases, packed.paired, packed.reach),
        biases_(call, tile_.biases(), packed.bias_rows, gradients.biases),
        douts_(floats(query_tile * packed.value_row)),
        daverages_(floats(query_tile * packed.carried_row)),
        slopes_(floats(query_tile * key_tile)),
        dqueries_(floats(query_tile * packed.key_row)) {
    if (!packed.paired) return;
    pair_douts_ = pairs(query_tile * packed.pair_values.width);
    dout_rows_ = pairs(query_tile / 2 * packed.value_row);
    query_rows_ = pairs(query_tile / 2 * packed.key_row);
    pair_weights_ = pairs(query_tile / 2 * key_tile);
    pair_slopes_ = pairs(query_tile / 2 * key_tile);
    slope_rows_ = pairs(query_tile * key_tile / 2);
  }

  void run(Unit& unit) {
    const std::int64_t group = call_.heads / call_.key_heads, tiles = (call_.queries + query_tile - 1) / query_tile;
    for (std::int64_t member = 0; member < group; ++member)
      for (std::int64_t n = unit.split; n < tiles; n += unit.splits) {
        const std::int64_t first = n * query_tile;
        tile_.move_to(unit.b, unit.key_head * group + member, first, std::min(query_tile, call_.queries - first));
        begin();
        tile_.for_each_step(0, call_.keys, levels_,
                            [&](std::int64_t from, std::int64_t to) { step(from, to, unit, member); });
        finish();
      }
  }

 private:
  void begin() {
    const Tile& tile = tile_.tile();
    double totals[query_tile];
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const std::int64_t place = (tile.b * call_.heads + tile.head) * call_.queries + tile_.query(r);
      double sum = read_upstream(upstream_.dout, upstream_.out, r, call_.value_width,
                                 douts_.get() + r * packed_.value_row, packed_.value_row);
      if (packed_.carried_row)
        sum += read_upstream(upstream_.daverages, upstream_.averages, r, call_.carried.width,
                             daverages_.get() + r * packed_.carried_row, packed_.carried_row);
      totals[r] = upstream_.dlse ? static_cast<double>(upstream_.dlse[place]) : 0.0;
      shares_[r] = static_cast<float>(sum - totals[r]);
      const bool nothing = upstream_.lse[place] == minus_infinity;
      // A query that sees nothing has no weights: any level serves, but minus infinity.
      levels_[r] = nothing ? 0.0F : upstream_.lse[place];
      if (nothing) totals[r] = 0;
    }
    std::fill(dqueries_.get(), dqueries_.get() + tile.rows * packed_.key_row, 0.0F);
    if (packed_.paired) pair_rows_of_tile();
    biases_.begin(tile, totals);
  }

  /// dout in pairs of channels, and dout and the queries in pairs of rows.
  void pair_rows_of_tile() {
    const Tile& tile = tile_.tile();
    const std::int64_t value_row = packed_.value_row, key_row = packed_.key_row;
    const auto of_rows = [&](const BFloat16* first, const BFloat16* second, std::int64_t width, std::int64_t row,
                             Pair* to) {
      pair_tokens(first, second, width, to);
      std::fill(to + width, to + row, Pair{0});
    };
    std::vector<BFloat16> nothing;  // stands for a dout that nobody gave
    if (!upstream_.dout.half) nothing.resize(static_cast<std::size_t>(call_.value_width), BFloat16{0});
    const auto dout = [&](std::int64_t r) {
      return upstream_.dout.half ? upstream_.dout.half + upstream_.dout.at(tile.b, tile.head, tile_.query(r))
                                 : nothing.data();
    };
    const auto query = [&](std::int64_t r) { return call_.q.half + call_.q.at(tile.b, tile.head, tile_.query(r)); };
    for (std::int64_t r = 0; r < tile.rows; ++r)
      pair_channels(dout(r), call_.value_width, pair_douts_.get() + r * packed_.pair_values.width);
    for (std::int64_t r = 0; r < tile.rows; r += 2) {
      const bool two = r + 1 < tile.rows;
      of_rows(dout(r), two ? dout(r + 1) : nullptr, call_.value_width, value_row, dout_rows_.get() + r / 2 * value_row);
      of_rows(query(r), two ? query(r + 1) : nullptr, call_.width, key_row, query_rows_.get() + r / 2 * key_row);
    }
  }

  /// Reads the gradient of a row of results into whole vectors and returns its product with the row. What nobody asked
  /// about counts as zeros.
  double read_upstream(const Input& gradient, const Input& result, std::int64_t r, std::int64_t width, float* to,
                       std::int64_t row) const {
    const Tile& tile = tile_.tile();
    std::fill(to, to + row, 0.0F);
    if (!gradient.data && !gradient.half) return 0;
    const float* given = read_row(gradient, tile.b, tile.head, tile_.query(r), width, to);
    if (given != to) std::copy(given, given + width, to);
    double sum = 0;
    const std::int64_t place = result.at(tile.b, tile.head, tile_.query(r));
    for (std::int64_t c = 0; c < width; ++c)
      sum += static_cast<double>(to[c]) *
             static_cast<double>(result.data ? result.data[place + c] : widen(result.half[place + c]));
    return sum;
  }

  void step(std::int64_t begin, std::int64_t end, Unit& unit, std::int64_t member) {
    tile_.compute(begin, end);
    const Tile& tile = tile_.tile();
    const std::int64_t panel = panel_tokens();
    const float* carried =
        packed_.carried_row ? packed_.carried.at(tile.b, tile.head / call_.carried.group, begin) : nullptr;
    for (std::int64_t c = 0; c < tile.width; c += panel) {
      tile_.for_each_group(c, panel, [&](const RowSpan& rows, std::int64_t seen) {
        if (packed_.paired)
          pair_product(pair_douts_.get() + rows.first * packed_.pair_values.width, packed_.pair_values.width, 1,
                       packed_.pair_values.at(tile.b, tile_.key_head(), begin + c), panel, packed_.pair_values.width,
                       slopes(rows.first) + c, key_tile, rows.count(), seen, nullptr, false);
        else
          product<false>(douts_.get() + rows.first * packed_.value_row, packed_.value_row, 1,
                         packed_.values.at(tile.b, tile_.key_head(), begin + c), panel, call_.value_width,
                         slopes(rows.first) + c, key_tile, rows.count(), seen);
        if (carried)
          product<true>(daverages_.get() + rows.first * packed_.carried_row, packed_.carried_row, 1,
                        carried + c * call_.carried.width, panel, call_.carried.width, slopes(rows.first) + c, key_tile,
                        rows.count(), seen);
      });
    }
    if (packed_.paired)
      weigh_in_pairs();
    else
      for (std::int64_t r = 0; r < tile.rows; ++r) weigh(r);

    // Stretches of keys: their gradients stay in the first cache while the queries pass.
    for (std::int64_t j = 0; j < end - begin; j += stretch) {
      const std::int64_t count = std::min(stretch, end - begin - j);
      add_to_queries(j, count);
      // Along the diagonal a few keys at a time: the rows above see none of them.
      const bool cut = tile_.rows_of(j, j + 1).count() != tile_.rows_of(j + count - 1, j + count).count();
      const std::int64_t keys = cut ? 2 * tile_rows : stretch;
      for (std::int64_t own = j; own < j + count; own += keys)
        add_to_keys(tile_.rows_of(own, own + keys), own, std::min(keys, j + count - own), unit, member);
    }
    if (!gradients_.biases.empty()) biases_.add(tile, slopes(0), member, unit.biases);
  }

  /// What `count` keys from the tile's key j on give to dq; pairs are of keys.
  void add_to_queries(std::int64_t j, std::int64_t count) {
    const Tile& tile = tile_.tile();
    const std::int64_t key = tile.begin + j, key_row = packed_.key_row;
    tile_.for_each_group(j, stretch, [&](const RowSpan& rows, std::int64_t seen) {
      float* to = dqueries_.get() + rows.first * key_row;
      if (packed_.paired)
        pair_product(slope_rows_.get() + (rows.first * key_tile + j) / 2, key_tile / 2, 1,
                     packed_.pair_key_rows.at(tile.b, tile_.key_head(), key), packed_.pair_key_rows.channels,
                     (std::min(seen, count) + 1) / 2, to, key_row, rows.count(), key_row, nullptr, true);
      else
        product<true>(slopes(rows.first) + j, key_tile, 1, packed_.key_rows.at(tile.b, tile_.key_head(), key),
                      packed_.key_rows.row(), std::min(seen, count), to, key_row, rows.count(), key_row);
    });
  }

  /// What the rows give to dv, dk and the carried values of `count` keys from the tile's key j on; pairs are of rows,
  /// whose spans begin at even ones.
  void add_to_keys(const RowSpan& rows, std::int64_t j, std::int64_t count, Unit& unit, std::int64_t member) {
    const Tile& tile = tile_.tile();
    const std::int64_t key = tile.begin + j, key_row = packed_.key_row, value_row = packed_.value_row;
    float *to_keys = unit.keys.get() + key * key_row, *to_values = unit.values.get() + key * value_row;
    if (packed_.paired) {
      const std::int64_t first = rows.first / 2, depth = (rows.count() + 1) / 2;
      pair_product(pair_weights_.get() + first * key_tile + j, 1, key_tile, dout_rows_.get() + first * value_row,
                   value_row, depth, to_values, value_row, count, value_row, nullptr, true);
      pair_product(pair_slopes_.get() + first * key_tile + j, 1, key_tile, query_rows_.get() + first * key_row, key_row,
                   depth, to_keys, key_row, count, key_row, nullptr, true);
    } else {
      product<true>(tile_.row(rows.first) + j, 1, key_tile, douts_.get() + rows.first * value_row, value_row,
                    rows.count(), to_values, value_row, count, value_row);
      product<true>(slopes(rows.first) + j, 1, key_tile, tile_.queries() + rows.first * key_row, key_row, rows.count(),
                    to_keys, key_row, count, key_row);
    }
    if (!packed_.carried_row) return;
    const std::int64_t row = packed_.carried_row;
    product<true>(tile_.row(rows.first) + j, 1, key_tile, daverages_.get() + rows.first * row, row, rows.count(),
                  unit.carried.get() + (member * call_.keys + key) * row, row, count, row);
  }

  void weigh_in_pairs() {
    const Tile& tile = tile_.tile();
    const auto row_of = [&](std::int64_t r) {
      SlopeRow row;
      if (r >= tile.rows) return row;
      row.scores = tile_.row(r), row.slopes = slopes(r);
      row.from = tile.from(r), row.to = tile.to(r);
      row.level = levels_[r], row.share = shares_[r], row.factor = tile_.query_factor(r);
      row.scaled = reinterpret_cast<BFloat16*>(slope_rows_.get() + r * key_tile / 2);
      return row;
    };
    const bool keep = packed_.carried_row > 0 || !gradients_.biases.empty();
    for (std::int64_t r = 0; r < tile.rows; r += 2)
      weigh_pairs(row_of(r), row_of(r + 1), tile.width, pair_weights_.get() + r / 2 * key_tile,
                  pair_slopes_.get() + r / 2 * key_tile, keep);
  }

  /// Row r of the scores becomes weights, and dP beside it dS.
  HWY_INLINE void weigh(std::int64_t r) {
    const Tag d;
    const Tile& tile = tile_.tile();
    const std::int64_t from = tile.from(r), to = tile.to(r);
    float *weights = tile_.row(r), *slope = slopes(r);
    std::fill(weights, weights + from, 0.0F);
    std::fill(weights + to, weights + tile.width, 0.0F);
    std::fill(slope, slope + from, 0.0F);
    std::fill(slope + to, slope + tile.width, 0.0F);
    const Vec level = hn::Set(d, levels_[r]), share = hn::Set(d, shares_[r]);
    for (std::int64_t j = from; j < to; j += lanes()) {
      const Vec weight = exp_below_zero(hn::Sub(hn::LoadU(d, weights + j), level));
      hn::StoreU(weight, d, weights + j);
      hn::StoreU(hn::Mul(weight, hn::Sub(hn::LoadU(d, slope + j), share)), d, slope + j);
    }
  }

  void finish() {
    const Tile& tile = tile_.tile();
    for (std::int64_t r = 0; r < tile.rows; ++r)
      write_row(gradients_.q, tile.b, tile.head, tile_.query(r), dqueries_.get() + r * packed_.key_row, call_.width,
                packed_.paired ? 1.0F : tile_.query_factor(r));  // pairs of slopes carry the factor
    biases_.finish(tile);
  }

  float* slopes(std::int64_t r) { return slopes_.get() + r * key_tile; }

  const Attention& call_;
  const Packed& packed_;
  const Upstream& upstream_;
  const Gradients& gradients_;
  ScoreTile tile_;
  BiasGradients biases_;
  Floats douts_;      ///< (query_tile, value row)
  Floats daverages_;  ///< (query_tile, carried row)
  Floats slopes_;     ///< (query_tile, key_tile): dP, then dS
  Floats dqueries_;   ///< (query_tile, key row)
  // Of pairs.
  Pairs pair_douts_;    ///< (query_tile, pairs of channels)
  Pairs dout_rows_;     ///< (pairs of rows, value row)
  Pairs query_rows_;    ///< (pairs of rows, key row), not scaled
  Pairs pair_weights_;  ///< (pairs of rows, key_tile)
  Pairs pair_slopes_;   ///< (pairs of rows, key_tile), with the rows' factors
  Pairs slope_rows_;    ///< (query_tile, pairs of keys), with the rows' factors
  float shares_[query_tile], levels_[query_tile];
};

/// Sums of the units of one key head, in the order of the splits, written where they belong.
void write_rows(const Unit* units, Floats Unit::*part, std::int64_t row, std::int64_t tokens, std::int64_t width,
                const Output& to) {
  Floats sum = floats(width);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::fill(sum.get(), sum.get() + width, 0.0F);
    for (std::int64_t s = 0; s < units->splits; ++s) {
      const float* from = (units[s].*part).get() + t * row;
      for (std::int64_t c = 0; c < width; ++c) sum[static_cast<std::size_t>(c)] += from[c];
    }
    write_row(to, units->b, units->key_head, t, sum.get(), width, 1);
  }
}

/// What belongs to the keys of one key head, after which its units' arrays are let go.
void write_keys(const Attention& call, const Packed& packed, const Gradients& gradients, Unit* units) {
  const std::int64_t group = call.heads / call.key_heads;
  write_rows(units, &Unit::keys, packed.key_row, call.keys, call.width, gradients.k);
  write_rows(units, &Unit::values, packed.value_row, call.keys, call.value_width, gradients.v);
  for (std::int64_t member = 0; member < group; ++member) {
    const std::int64_t head = units->key_head * group + member;
    if (gradients.carried && packed.carried_row) {
      double* to = gradients.carried + (units->b * call.heads + head) * call.keys * call.carried.width;
      for (std::int64_t t = 0; t < call.keys; ++t)
        for (std::int64_t c = 0; c < call.carried.width; ++c) {
          double sum = 0;
          for (std::int64_t s = 0; s < units->splits; ++s)
            sum += static_cast<double>(
                units[s].carried[static_cast<std::size_t>((member * call.keys + t) * packed.carried_row + c)]);
          to[t * call.carried.width + c] = sum;
        }
    }
    for (std::size_t n = 0; n < gradients.biases.size(); ++n) {
      const Bias& bias = call.biases[n];
      if (head < bias.first_head || head >= bias.last_head) continue;
      const std::int64_t place = units->b * (bias.last_head - bias.first_head) + head - bias.first_head;
      const auto write = [&](double* to, std::vector<double> UnitBias::*part, std::int64_t width) {
        if (!to || width == 0) return;
        const std::int64_t count = call.keys * width;
        std::fill(to + place * count, to + (place + 1) * count, 0.0);
        for (std::int64_t s = 0; s < units->splits; ++s)
          for (std::int64_t i = 0; i < count; ++i)
            to[place * count + i] += (units[s].biases[n].*part)[static_cast<std::size_t>(member * count + i)];
      };
      write(gradients.biases[n].key, &UnitBias::key, numbers_of(bias).key);
      write(gradients.biases[n].right, &UnitBias::right, numbers_of(bias).right);
    }
  }
  for (std::int64_t s = 0; s < units->splits; ++s) {
    units[s].keys.reset(), units[s].values.reset(), units[s].carried.reset();
    for (UnitBias& bias : units[s].biases) std::vector<double>().swap(bias.key), std::vector<double>().swap(bias.right);
  }
}

/// Trained numbers of a bias, summed over the batch.
void write_biases(const Attention& call, const std::vector<Unit>& units, const Gradients& gradients) {
  const std::int64_t group = call.heads / call.key_heads;
  for (std::size_t n = 0; n < gradients.biases.size(); ++n) {
    const Bias& bias = call.biases[n];
    const BiasGradient& wanted = gradients.biases[n];
    const std::int64_t numbers = numbers_of(bias).own, heads = bias.last_head - bias.first_head;
    std::vector<double> sums(static_cast<std::size_t>(heads * numbers));
    for (const Unit& unit : units)
      for (std::int64_t member = 0; member < group; ++member) {
        const std::int64_t own = unit.key_head * group + member - bias.first_head;
        if (own < 0 || own >= heads) continue;
        for (std::int64_t i = 0; i < numbers; ++i)
          sums[static_cast<std::size_t>(own * numbers + i)] +=
              unit.biases[n].own[static_cast<std::size_t>(member * numbers + i)];
      }
    const auto write = [&](double* to, std::int64_t first, std::int64_t count) {
      if (!to) return;
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < count; ++i)
          to[h * count + i] = sums[static_cast<std::size_t>(h * numbers + first + i)];
    };
    if (std::holds_alternative<DistanceTable>(bias.form) || std::holds_alternative<DistanceLookup>(bias.form))
      write(wanted.table, 0, numbers - (bias.factor && bias.factor->kind == Factor::Kind::Tanh));
    if (std::holds_alternative<Slope>(bias.form)) write(wanted.slope, 0, 1);
    if (std::holds_alternative<Curve>(bias.form)) write(wanted.r1, 0, 1), write(wanted.r2, 1, 1);
    if (const Piecewise* form = std::get_if<Piecewise>(&bias.form)) {
      write(wanted.slope, 0, form->pieces);
      write(wanted.level, form->pieces, form->pieces);
      write(wanted.c, 2 * form->pieces, 1);
    }
    if (std::holds_alternative<Path>(bias.form)) write(wanted.alpha, 0, 1);
    if (bias.factor && bias.factor->kind == Factor::Kind::Tanh) write(wanted.beta, numbers - 1, 1);
  }
}

HWY_NOINLINE void backward_all(const Attention& call, const Run& run, const Upstream& upstream,
                               const Gradients& gradients) {
  const Packed packed(call, gradients, run);

  // One unit a key head, unless that leaves threads without work; then each head's tiles are dealt out in turn.
  const std::int64_t threads = std::max<std::int64_t>(1, run.threads), kv_heads = call.batch * call.key_heads;
  const std::int64_t splits = kv_heads == 0 || kv_heads >= 4 * threads || kv_heads % threads == 0
                                  ? 1
                                  : std::min((2 * threads + kv_heads - 1) / kv_heads,
                                             std::max<std::int64_t>(1, (call.queries + query_tile - 1) / query_tile));
  const std::int64_t group = kv_heads == 0 ? 0 : call.heads / call.key_heads;
  std::vector<Unit> units(static_cast<std::size_t>(kv_heads * splits));
  for (std::size_t n = 0; n < units.size(); ++n) {
    const std::int64_t head = static_cast<std::int64_t>(n) / splits;
    units[n].b = head / call.key_heads, units[n].key_head = head % call.key_heads;
    units[n].split = static_cast<std::int64_t>(n) % splits, units[n].splits = splits;
  }
  const auto zeros = [](std::int64_t count) {
    Floats numbers = floats(count);
    std::fill(numbers.get(), numbers.get() + count, 0.0F);
    return numbers;
  };
  std::atomic<std::size_t> next{0};
  run.executor(0, threads, 1, [&](std::int64_t, std::int64_t) {
    BackwardWorker worker(call, packed, upstream, gradients);
    for (std::size_t n; (n = next.fetch_add(1)) < units.size();) {
      Unit& unit = units[n];
      unit.keys = zeros(call.keys * packed.key_row);
      unit.values = zeros(call.keys * packed.value_row);
      unit.carried = zeros(group * call.keys * packed.carried_row);
      if (!gradients.biases.empty())
        for (const Bias& bias : call.biases) unit.biases.emplace_back(bias, group, call.keys);
      worker.run(unit);
      if (splits == 1) write_keys(call, packed, gradients, &unit);
    }
  });
  if (splits > 1)
    run.executor(0, kv_heads, 1, [&](std::int64_t first, std::int64_t last) {
      for (; first < last; ++first)
        write_keys(call, packed, gradients, &units[static_cast<std::size_t>(first * splits)]);
    });
  if (!gradients.biases.empty()) write_biases(call, units, gradients);
}

}  // namespace
}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torsor::kernel {

HWY_EXPORT(backward_all);

void attention_backward(const Attention& call, const Run& run, const Upstream& upstream, const Gradients& gradients) {
  HWY_DYNAMIC_DISPATCH(backward_all)(call, run, upstream, gradients);
}

}  // namespace torsor::kernel
#endif  // HWY_ONCE
