// How far back a query must look. Where a bias falls with the distance, the weights of all keys before some key
// together are less than the rounding of the sum: they are left out (adaptive computation pruning, arXiv 2504.06949, by
// other means). Every query is judged by itself, so that no result depends on a later token. Included inside an
// instruction set by the kernels.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <variant>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/biases-inl.h"
#include "torsor/kernel/cpu/pack-inl.h"

#if defined(TORSOR_KERNEL_CPU_REACH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TORSOR_KERNEL_CPU_REACH_INL_H
#undef TORSOR_KERNEL_CPU_REACH_INL_H
#else
#define TORSOR_KERNEL_CPU_REACH_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

/// Bounds over all keys before a key, for the first keys of the panels: entry p is over the keys before panel p + 1.
class Reach {
 public:
  /// Of a call whose keys and values are all finite and for which it is useful.
  Reach(const Attention& call, const Run& run) : call_(call), panels_((call.keys + panel() - 1) / panel()) {
    biases_.resize(call.biases.size());
    for (std::size_t n = 0; n < biases_.size(); ++n) bound_keys(call.biases[n], biases_[n]);
    norms_.resize(static_cast<std::size_t>(call.batch * call.key_heads * panels_));
    run.executor(0, call.batch * call.key_heads, 1, [&](std::int64_t first, std::int64_t last) {
      Floats scratch = floats(call.width);
      for (std::int64_t head = first; head < last; ++head) {
        double most = 0;
        for (std::int64_t p = 0; p < panels_; ++p) {
          for (std::int64_t j = p * panel(); j < std::min(call.keys, (p + 1) * panel()); ++j)
            most = std::max(most, squares(read_row(call.k, head / call.key_heads, head % call.key_heads, j, call.width,
                                                   scratch.get()),
                                          call.width));
          norms_[static_cast<std::size_t>(head * panels_ + p)] = std::sqrt(most);
        }
      }
    });
  }

  /// The square of a row's Euclidean norm.
  static HWY_INLINE double squares(const float* row, std::int64_t width) {
    const Tag d;
    Vec sums = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + lanes() <= width; c += lanes()) {
      const Vec numbers = hn::LoadU(d, row + c);
      sums = hn::MulAdd(numbers, numbers, sums);
    }
    float sum = hn::GetLane(hn::SumOfLanes(d, sums));
    for (; c < width; ++c) sum += row[c] * row[c];
    return static_cast<double>(sum);
  }

  /// Whether anything may be left out: there are biases of kinds that may fall, and keys enough to be worth the bounds.
  static bool useful(const Attention& call) {
    if (call.biases.empty() || call.keys < 2 * key_tile) return false;
    bool falls = false;
    for (const Bias& bias : call.biases) {
      if (bias.factor) return false;
      if (std::holds_alternative<Product>(bias.form) || std::holds_alternative<Piecewise>(bias.form) ||
          std::holds_alternative<Curve>(bias.form) || std::holds_alternative<DistanceLookup>(bias.form))
        return false;
      falls = true;
    }
    return falls;
  }

  /// Upper bounds of the scores of each row of the tile with all keys before `end`, a panel's first key. `norms` are
  /// the Euclidean norms of the scaled queries.
  void bound(const Tile& tile, const double* norms, std::int64_t end, BiasTiles& tiles, double* bounds) const {
    const std::int64_t p = end / panel() - 1;
    const std::int64_t key_head = tile.head / (call_.heads / call_.key_heads);
    const double longest =
        1.00001 * norms_[static_cast<std::size_t>((tile.b * call_.key_heads + key_head) * panels_ + p)];
    for (std::int64_t r = 0; r < tile.rows; ++r) bounds[r] = longest * norms[r];
    for (std::size_t n = 0; n < biases_.size(); ++n) {
      const Bias& bias = call_.biases[n];
      if (!tiles.holds(bias, tile.head)) continue;
      const Place place{n, tile.head - bias.first_head, tile.b, tile.first, tile.rows, end, p, tiles.state(n).carry};
      std::visit([&](const auto& form) { add_bounds(form, place, bounds); }, bias.form);
    }
  }

  /// Scores that lie so far below a row's level weigh, all together, less than half of the last place of the row's sum.
  double margin() const { return margin_; }

 private:
  static std::int64_t panel() { return panel_tokens(); }
  static constexpr double endless = std::numeric_limits<double>::infinity();

  /// Bounds of a bias's keys: (row of the batch, head where its keys have heads, panel).
  struct Keys {
    std::vector<double> position;  ///< largest
    std::vector<double> number;    ///< smallest of a potential or gate
    std::vector<float> table;      ///< (heads, count): largest entry up to here
  };

  void bound_keys(const Bias& bias, Keys& keys) const {
    const std::int64_t heads = bias.last_head - bias.first_head;
    if (const auto* form = std::get_if<DistanceTable>(&bias.form)) {
      keys.table.assign(form->table, form->table + heads * form->count);
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t s = 1; s < form->count; ++s) {
          float& entry = keys.table[static_cast<std::size_t>(h * form->count + s)];
          const float before = keys.table[static_cast<std::size_t>(h * form->count + s - 1)];
          if (!(entry >= before)) entry = before > entry ? before : std::numeric_limits<float>::infinity();  // NaN
        }
    }
    if (const Positions* positions = positions_of(bias)) {
      for (std::int64_t b = 0; b < call_.batch; ++b)
        running(keys.position, [&](std::int64_t j) { return -positions->key[b * call_.keys + j]; });
      for (double& position : keys.position) position = -position;
    }
    const auto of_heads = [&](const auto* numbers, const std::array<std::int64_t, 2>& strides) {
      for (std::int64_t b = 0; b < call_.batch; ++b)
        for (std::int64_t h = 0; h < heads; ++h)
          running(keys.number, [&](std::int64_t j) {
            return numbers ? static_cast<double>(numbers[b * strides[0] + h * strides[1] + j]) : 0.0;
          });
    };
    if (const auto* form = std::get_if<Potential>(&bias.form)) of_heads(form->key, form->key_strides);
    if (const auto* form = std::get_if<Gated>(&bias.form)) of_heads(form->key, form->key_strides);
  }

  /// Appends the smallest number of all keys up to the end of each panel.
  template <class Number>
  void running(std::vector<double>& to, const Number& number) const {
    double least = endless;
    for (std::int64_t p = 0; p < panels_; ++p) {
      for (std::int64_t j = p * panel(); j < std::min(call_.keys, (p + 1) * panel()); ++j) {
        const double one = number(j);
        least = one >= least ? least : std::isnan(one) ? -endless : one;
      }
      to.push_back(least);
    }
  }

  /// A bias, the rows of a tile and the keys before `end`, the end of panel p.
  struct Place {
    std::size_t n;
    std::int64_t own, b, first, rows, end, p;
    const double* carry;  ///< of a path: its sums over the keys from `end` on
  };

  double number(const Place& at) const {
    const std::int64_t heads = call_.biases[at.n].last_head - call_.biases[at.n].first_head;
    return biases_[at.n].number[static_cast<std::size_t>((at.b * heads + at.own) * panels_ + at.p)];
  }
  /// The smallest distance from row r to the keys is this[r] - farthest(): below 0 where not all lie behind.
  const double* positions(const Positions& positions, const Place& at) const {
    return positions.query + at.b * call_.queries + at.first;
  }
  double farthest(const Place& at) const {
    return biases_[at.n].position[static_cast<std::size_t>(at.b * panels_ + at.p)];
  }

  void add_bounds(const DistanceTable& form, const Place& at, double* bounds) const {
    const float* table = biases_[at.n].table.data() + at.own * form.count;
    const std::int64_t s = form.most - form.first_distance[at.b] - at.first + at.end - 1;
    for (std::int64_t r = 0; r < at.rows; ++r)
      bounds[r] += static_cast<double>(table[std::clamp<std::int64_t>(s - r, 0, form.count - 1)]);
  }
  void add_bounds(const Slope& form, const Place& at, double* bounds) const {
    const double slope = static_cast<double>(form.slope[at.own]), last = farthest(at);
    const double* query = positions(form.positions, at);
    for (std::int64_t r = 0; r < at.rows; ++r)
      bounds[r] = slope >= 0 ? bounds[r] - slope * std::max(0.0, query[r] - last) : endless;
  }
  void add_bounds(const Potential& form, const Place& at, double* bounds) const {
    const double* query = form.query + at.b * form.query_strides[0] + at.own * form.query_strides[1] + at.first;
    const double least = number(at);
    for (std::int64_t r = 0; r < at.rows; ++r) bounds[r] += query[r] - least;
  }
  void add_bounds(const Gated& form, const Place& at, double* bounds) const {
    const double last = farthest(at), least = number(at);
    const double* query = positions(form.positions, at);
    const float* gate =
        form.query ? form.query + at.b * form.query_strides[0] + at.own * form.query_strides[1] + at.first : nullptr;
    for (std::int64_t r = 0; r < at.rows; ++r) {
      const double rate = least + (gate ? static_cast<double>(gate[r]) : 0.0), distance = query[r] - last;
      bounds[r] = rate >= 0 && distance >= 0 ? bounds[r] - distance * rate : endless;
    }
  }
  void add_bounds(const Path& form, const Place& at, double* bounds) const {
    const double alpha = static_cast<double>(form.alpha[at.own]);
    for (std::int64_t r = 0; r < at.rows; ++r) bounds[r] = alpha >= 0 ? bounds[r] + alpha * at.carry[r] : endless;
  }
  template <class Form>
  void add_bounds(const Form&, const Place& at, double* bounds) const {
    std::fill(bounds, bounds + at.rows, endless);
  }

  const Attention& call_;
  std::int64_t panels_;
  double margin_ = std::log(static_cast<double>(call_.keys)) + 27 * std::log(2.0);
  std::vector<double> norms_;  ///< (batch, key heads, panels): the largest Euclidean norm of a key so far
  std::vector<Keys> biases_;
};

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
