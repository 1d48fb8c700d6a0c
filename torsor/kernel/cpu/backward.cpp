#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/sets.h"

// Compiled once an instruction set; the best that the processor has is chosen when the function is called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torsor/kernel/cpu/backward.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "torsor/kernel/cpu/scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {
namespace {

/// A unit of work: the queries of one key head's group, or every `splits`-th tile of them. It owns what it sums.
struct Unit {
  std::int64_t b = 0, key_head = 0, split = 0, splits = 1;
};

/// What a unit sums for the biases: for each head of the group the table's entries, the slope, or the keys' share of a
/// potential.
struct UnitBias {
  std::vector<std::vector<double>> sums;  ///< (bias)(head of the group x numbers)
};

std::int64_t numbers_of(const Attention& call, const Bias& bias) {
  switch (bias.kind) {
    case Bias::Kind::DistanceTable:
      return bias.distance_table.count;
    case Bias::Kind::Slope:
      return 1;
    case Bias::Kind::Potential:
      return call.keys;
  }
  return 0;
}

/// The work of one thread. With P the weights, D_i = sum_c dout_ic out_ic - dlse_i and dP = dout v^T:
///   dS = P (dP - D);  dv = P^T dout;  dk = dS^T q';  dq' = dS k;  q' the scaled queries.
class BackwardWorker {
 public:
  BackwardWorker(const Attention& call, const Panels& keys, const Panels& values, const Rows& key_rows,
                 const Input& out, const float* lse, const Input& dout, const float* dlse, const Gradients& gradients)
      : call_(call),
        values_(values),
        key_rows_(key_rows),
        out_(out),
        lse_(lse),
        dout_(dout),
        dlse_(dlse),
        gradients_(gradients),
        tile_(call, keys),
        value_row_(round_up(call.value_width, lanes())),
        douts_(floats(query_tile * value_row_)),
        slopes_(floats(query_tile * key_tile)),
        dqueries_(floats(query_tile * tile_.query_row())),
        diagonals_(floats(query_tile + key_tile)) {}

  /// dkeys (keys, query_row) and dvalues (keys, value_row) are added to.
  void run(const Unit& unit, float* dkeys, float* dvalues, UnitBias& sums) {
    const std::int64_t group = call_.heads / call_.key_heads, tiles = (call_.queries + query_tile - 1) / query_tile;
    for (std::int64_t n = 0; n < group; ++n)
      for (std::int64_t tile = unit.split; tile < tiles; tile += unit.splits) {
        const std::int64_t first = tile * query_tile;
        tile_.move_to(unit.b, unit.key_head * group + n, first, std::min(query_tile, call_.queries - first));
        begin();
        tile_.for_each_step([&](std::int64_t from, std::int64_t to) { step(from, to, dkeys, dvalues, sums, n); });
        finish();
      }
  }

  std::int64_t key_row() const { return tile_.query_row(); }
  std::int64_t value_row() const { return value_row_; }

 private:
  void begin() {
    for (std::int64_t r = 0; r < tile_.rows(); ++r) {
      const std::int64_t i = tile_.query(r), b = tile_.batch(), head = tile_.head();
      const float *given = dout_.row(b, head, i), *result = out_.row(b, head, i);
      float* to = douts_.get() + r * value_row_;
      double sum = 0;
      for (std::int64_t c = 0; c < call_.value_width; ++c) {
        to[c] = given[c];
        sum += static_cast<double>(given[c]) * static_cast<double>(result[c]);
      }
      std::fill(to + call_.value_width, to + value_row_, 0.0F);
      const std::int64_t place = (b * call_.heads + head) * call_.queries + i;
      if (dlse_) sum -= static_cast<double>(dlse_[place]);
      shares_[r] = static_cast<float>(sum);
      // A query that sees nothing has no weights: any level serves, but minus infinity.
      levels_[r] = lse_[place] == minus_infinity ? 0.0F : lse_[place];
      query_sums_[r] = 0;
    }
    std::fill(dqueries_.get(), dqueries_.get() + tile_.rows() * tile_.query_row(), 0.0F);
  }

  void step(std::int64_t begin, std::int64_t end, float* dkeys, float* dvalues, UnitBias& sums, std::int64_t own) {
    const Tag d;
    tile_.compute(begin, end);
    const std::int64_t rows = tile_.rows(), width = tile_.width(), panel = panel_width();
    const float* values = values_.at(tile_.kv_head(), begin);
    for (std::int64_t c = 0; c < width; c += panel) {
      const std::int64_t skipped = tile_.rows_before(begin + c);
      product<false>(douts_.get() + skipped * value_row_, value_row_, 1, values + c * call_.value_width, panel,
                     call_.value_width, slopes(skipped) + c, key_tile, rows - skipped, panel);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const Vec level = hn::Set(d, levels_[r]), share = hn::Set(d, shares_[r]);
      float *weights = tile_.row(r), *slope = slopes(r);
      for (std::int64_t j = 0; j < width; j += lanes()) {
        const Vec score = hn::LoadU(d, weights + j);
        const Vec weight = exp_below_zero(hn::Sub(score, level));
        hn::StoreU(weight, d, weights + j);
        const Vec product_of = hn::Mul(weight, hn::Sub(hn::LoadU(d, slope + j), share));
        // Where nothing is seen no product was made: what lies there may be anything.
        hn::StoreU(hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), product_of), d, slope + j);
      }
    }
    // Stretches of keys: their gradients stay in the first cache while the queries pass.
    for (std::int64_t j = begin; j < end; j += stretch) {
      const std::int64_t skipped = tile_.rows_before(j), count = std::min(stretch, end - j), depth = rows - skipped;
      const float *weights = tile_.row(skipped) + (j - begin), *slope = slopes(skipped) + (j - begin);
      const std::int64_t key_row = tile_.query_row();
      product<true>(weights, 1, key_tile, douts_.get() + skipped * value_row_, value_row_, depth,
                    dvalues + j * value_row_, value_row_, count, value_row_);
      product<true>(slope, 1, key_tile, tile_.queries() + skipped * key_row, key_row, depth, dkeys + j * key_row,
                    key_row, count, key_row);
      product<true>(slope, key_tile, 1, key_rows_.at(tile_.kv_head(), j), key_rows_.row(), count,
                    dqueries_.get() + skipped * key_row, key_row, depth, key_row);
    }
    for (std::size_t n = 0; n < gradients_.biases.size(); ++n) {
      const Bias& bias = call_.biases[n];
      if (tile_.head() >= bias.first_head && tile_.head() < bias.last_head)
        add(bias, gradients_.biases[n], begin, end, sums.sums[n].data() + own * numbers_of(call_, bias));
    }
  }

  void add(const Bias& bias, const BiasGradient& wanted, std::int64_t begin, std::int64_t end, double* sums) {
    switch (bias.kind) {
      case Bias::Kind::DistanceTable:
        if (wanted.table) add_table(bias, begin, end, sums);
        return;
      case Bias::Kind::Slope:
        if (wanted.slope) add_slope(bias, begin, end, sums);
        return;
      case Bias::Kind::Potential:
        if (wanted.query || wanted.key) add_potential(begin, end, sums);
        return;
    }
  }

  /// One distance is one diagonal of the tile.
  HWY_INLINE void add_table(const Bias& bias, std::int64_t begin, std::int64_t end, double* sums) {
    const Tag d;
    const DistanceTable& form = bias.distance_table;
    const std::int64_t rows = tile_.rows(), keys = end - begin;
    float* diagonals = diagonals_.get();
    std::fill(diagonals, diagonals + rows + keys, 0.0F);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* HWY_RESTRICT to = diagonals + rows - 1 - r;
      const float* HWY_RESTRICT slope = slopes(r);
      std::int64_t j = 0;
      for (; j + lanes() <= keys; j += lanes())
        hn::StoreU(hn::Add(hn::LoadU(d, to + j), hn::LoadU(d, slope + j)), d, to + j);
      for (; j < keys; ++j) to[j] += slope[j];
    }
    double* first = sums + form.most - form.first_distance[tile_.batch()] - tile_.query(rows - 1) + begin;
    for (std::int64_t n = 0; n < rows + keys - 1; ++n) first[n] += static_cast<double>(diagonals[n]);
  }

  void add_slope(const Bias& bias, std::int64_t begin, std::int64_t end, double* sums) {
    const double* positions = bias.slope.key_positions + tile_.batch() * call_.keys + begin;
    for (std::int64_t r = 0; r < tile_.rows(); ++r) {
      const double own = bias.slope.query_positions[tile_.batch() * call_.queries + tile_.query(r)];
      const float* slope = slopes(r);
      double sum = 0;
      for (std::int64_t j = 0; j < end - begin; ++j)
        sum += static_cast<double>(slope[j]) * std::abs(own - positions[j]);
      *sums -= sum;
    }
  }

  void add_potential(std::int64_t begin, std::int64_t end, double* sums) {
    for (std::int64_t r = 0; r < tile_.rows(); ++r) {
      const float* slope = slopes(r);
      for (std::int64_t j = 0; j < end - begin; ++j) {
        query_sums_[r] += static_cast<double>(slope[j]);
        sums[begin + j] -= static_cast<double>(slope[j]);
      }
    }
  }

  void finish() {
    for (std::int64_t r = 0; r < tile_.rows(); ++r) {
      const std::int64_t i = tile_.query(r);
      const float factor = tile_.query_factor(r);
      const float* sums = dqueries_.get() + r * tile_.query_row();
      float* to = gradients_.q.row(tile_.batch(), tile_.head(), i);
      for (std::int64_t c = 0; c < call_.width; ++c) to[c] = sums[c] * factor;
      for (std::size_t n = 0; n < gradients_.biases.size(); ++n) {
        const Bias& bias = call_.biases[n];
        if (bias.kind != Bias::Kind::Potential || !gradients_.biases[n].query) continue;
        if (tile_.head() < bias.first_head || tile_.head() >= bias.last_head) continue;
        const std::int64_t heads = bias.last_head - bias.first_head, own = tile_.head() - bias.first_head;
        gradients_.biases[n].query[(tile_.batch() * heads + own) * call_.queries + i] = query_sums_[r];
      }
    }
  }

  float* slopes(std::int64_t r) { return slopes_.get() + r * key_tile; }

  const Attention& call_;
  const Panels& values_;
  const Rows& key_rows_;
  const Input& out_;
  const float* lse_;
  const Input& dout_;
  const float* dlse_;
  const Gradients& gradients_;
  ScoreTile tile_;
  std::int64_t value_row_;
  Floats douts_;      ///< (query_tile, value_row)
  Floats slopes_;     ///< (query_tile, key_tile): dP, then dS
  Floats dqueries_;   ///< (query_tile, query_row)
  Floats diagonals_;  ///< one number a distance within the tile
  float shares_[query_tile], levels_[query_tile];
  double query_sums_[query_tile];
};

/// Sums of the units of one key head, in the order of the splits, written where they belong.
void write_rows(const std::vector<Floats>& parts, std::size_t first, std::int64_t splits, std::int64_t row,
                std::int64_t tokens, std::int64_t width, const Output& to, std::int64_t b, std::int64_t head) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    float* out = to.row(b, head, t);
    for (std::int64_t c = 0; c < width; ++c) {
      float sum = 0;
      for (std::int64_t s = 0; s < splits; ++s)
        sum += parts[first + static_cast<std::size_t>(s)][static_cast<std::size_t>(t * row + c)];
      out[c] = sum;
    }
  }
}

void write_biases(const Attention& call, const std::vector<UnitBias>& units, std::int64_t splits,
                  const Gradients& gradients) {
  const std::int64_t group = call.heads / call.key_heads;
  for (std::size_t n = 0; n < gradients.biases.size(); ++n) {
    const Bias& bias = call.biases[n];
    const BiasGradient& wanted = gradients.biases[n];
    const std::int64_t numbers = numbers_of(call, bias), heads = bias.last_head - bias.first_head;
    const bool potential = bias.kind == Bias::Kind::Potential;
    double* to = potential ? wanted.key : bias.kind == Bias::Kind::Slope ? wanted.slope : wanted.table;
    if (!to) continue;
    std::fill(to, to + (potential ? call.batch : 1) * heads * numbers, 0.0);
    for (std::size_t u = 0; u < units.size(); ++u) {
      const std::int64_t head = static_cast<std::int64_t>(u) / splits, b = head / call.key_heads;
      for (std::int64_t g = 0; g < group; ++g) {
        const std::int64_t own = head % call.key_heads * group + g - bias.first_head;
        if (own < 0 || own >= heads) continue;
        double* place = to + ((potential ? b * heads : 0) + own) * numbers;
        const double* sums = units[u].sums[n].data() + g * numbers;
        for (std::int64_t i = 0; i < numbers; ++i) place[i] += sums[i];
      }
    }
  }
}

HWY_NOINLINE void backward_all(const Attention& call, const Run& run, const Input& out, const float* lse,
                               const Input& dout, const float* dlse, const Gradients& gradients) {
  const Panels keys = pack_panels(call.k, call.batch, call.key_heads, call.keys, call.width, run);
  const Panels values = pack_panels(call.v, call.batch, call.key_heads, call.keys, call.value_width, run);
  const Rows key_rows = pack_rows(call.k, call.batch, call.key_heads, call.keys, call.width, false, run);

  // One unit a key head, unless that leaves threads without work; then each head's tiles are dealt out in turn.
  const std::int64_t threads = std::max<std::int64_t>(1, run.threads), kv_heads = call.batch * call.key_heads;
  const std::int64_t splits = kv_heads == 0 || kv_heads >= 4 * threads || kv_heads % threads == 0
                                  ? 1
                                  : std::min((2 * threads + kv_heads - 1) / kv_heads,
                                             std::max<std::int64_t>(1, (call.queries + query_tile - 1) / query_tile));
  const std::int64_t units = kv_heads * splits;
  std::vector<UnitBias> sums(static_cast<std::size_t>(gradients.biases.empty() ? 0 : units));
  for (UnitBias& unit : sums)
    for (const Bias& bias : call.biases)
      unit.sums.emplace_back(static_cast<std::size_t>(call.heads / call.key_heads * numbers_of(call, bias)));
  UnitBias no_bias;
  std::vector<Floats> dkeys(static_cast<std::size_t>(units)), dvalues(static_cast<std::size_t>(units));
  const std::int64_t key_row = round_up(call.width, lanes()), value_row = round_up(call.value_width, lanes());
  const auto write = [&](std::size_t first) {
    const std::int64_t head = static_cast<std::int64_t>(first) / splits, b = head / call.key_heads,
                       h = head % call.key_heads;
    write_rows(dkeys, first, splits, key_row, call.keys, call.width, gradients.k, b, h);
    write_rows(dvalues, first, splits, value_row, call.keys, call.value_width, gradients.v, b, h);
    for (std::int64_t s = 0; s < splits; ++s) {
      dkeys[first + static_cast<std::size_t>(s)].reset();
      dvalues[first + static_cast<std::size_t>(s)].reset();
    }
  };
  std::atomic<std::int64_t> next{0};
  run.executor(0, threads, 1, [&](std::int64_t, std::int64_t) {
    BackwardWorker worker(call, keys, values, key_rows, out, lse, dout, dlse, gradients);
    for (std::int64_t n; (n = next.fetch_add(1)) < units;) {
      const auto unit = static_cast<std::size_t>(n);
      const std::int64_t head = n / splits;
      dkeys[unit] = floats(call.keys * key_row);
      dvalues[unit] = floats(call.keys * value_row);
      std::fill(dkeys[unit].get(), dkeys[unit].get() + call.keys * key_row, 0.0F);
      std::fill(dvalues[unit].get(), dvalues[unit].get() + call.keys * value_row, 0.0F);
      worker.run({head / call.key_heads, head % call.key_heads, n % splits, splits}, dkeys[unit].get(),
                 dvalues[unit].get(), sums.empty() ? no_bias : sums[unit]);
      if (splits == 1) write(unit);
    }
  });
  if (splits > 1)
    run.executor(0, kv_heads, 1, [&](std::int64_t first, std::int64_t last) {
      for (; first < last; ++first) write(static_cast<std::size_t>(first * splits));
    });
  if (!sums.empty()) write_biases(call, sums, splits, gradients);
}

}  // namespace
}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torsor::kernel {

HWY_EXPORT(backward_all);

void attention_backward(const Attention& call, const Run& run, const Input& out, const float* lse, const Input& dout,
                        const float* dlse, const Gradients& gradients) {
  HWY_DYNAMIC_DISPATCH(backward_all)(call, run, out, lse, dout, dlse, gradients);
}

}  // namespace torsor::kernel
#endif  // HWY_ONCE
