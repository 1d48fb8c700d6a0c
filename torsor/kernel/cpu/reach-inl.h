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

  /// An upper bound of the scores of row r of the tile with all keys before `end`, a panel's first key. `norm` is the
  /// Euclidean norm of its scaled query.
  double most(const Tile& tile, std::int64_t r, double norm, std::int64_t end, BiasTiles& tiles) const {
    const std::int64_t p = end / panel() - 1;
    const std::int64_t key_head = tile.head / (call_.heads / call_.key_heads);
    double bound =
        1.00001 * norm * norms_[static_cast<std::size_t>((tile.b * call_.key_heads + key_head) * panels_ + p)];
    for (std::size_t n = 0; n < biases_.size(); ++n) {
      const Bias& bias = call_.biases[n];
      if (!tiles.holds(bias, tile.head)) continue;
      const Place place{n, tile.head - bias.first_head, tile.b, tile.first + r, end, p, tiles.state(n).carry[r]};
      bound += std::visit([&](const auto& form) { return bound_of(form, place); }, bias.form);
    }
    return bound;
  }

  /// Scores that lie so far below a row's level weigh, all together, less than half of the last place of the row's sum.
  double margin() const { return std::log(static_cast<double>(call_.keys)) + 27 * std::log(2.0); }

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

  /// A bias, a query and the keys before `end`, the end of panel p.
  struct Place {
    std::size_t n;
    std::int64_t own, b, query, end, p;
    double carry;  ///< of a path: its sum over the keys from `end` on
  };

  /// The smallest distance from the query to the keys; below 0 where not all lie behind.
  double nearest(const Positions& positions, const Place& at) const {
    return positions.query[at.b * call_.queries + at.query] -
           biases_[at.n].position[static_cast<std::size_t>(at.b * panels_ + at.p)];
  }
  double number(const Place& at) const {
    const std::int64_t heads = call_.biases[at.n].last_head - call_.biases[at.n].first_head;
    return biases_[at.n].number[static_cast<std::size_t>((at.b * heads + at.own) * panels_ + at.p)];
  }

  double bound_of(const DistanceTable& form, const Place& at) const {
    const std::int64_t s = form.most - form.first_distance[at.b] - at.query + at.end - 1;
    return static_cast<double>(
        biases_[at.n]
            .table[static_cast<std::size_t>(at.own * form.count + std::clamp<std::int64_t>(s, 0, form.count - 1))]);
  }
  double bound_of(const Slope& form, const Place& at) const {
    const double slope = static_cast<double>(form.slope[at.own]);
    return slope >= 0 ? -slope * std::max(0.0, nearest(form.positions, at)) : endless;
  }
  double bound_of(const Potential& form, const Place& at) const {
    return form.query[at.b * form.query_strides[0] + at.own * form.query_strides[1] + at.query] - number(at);
  }
  double bound_of(const Gated& form, const Place& at) const {
    double rate = number(at);
    if (form.query)
      rate += static_cast<double>(form.query[at.b * form.query_strides[0] + at.own * form.query_strides[1] + at.query]);
    const double distance = nearest(form.positions, at);
    return rate >= 0 && distance >= 0 ? -distance * rate : endless;
  }
  double bound_of(const Path& form, const Place& at) const {
    const double alpha = static_cast<double>(form.alpha[at.own]);
    return alpha >= 0 ? alpha * at.carry : endless;
  }
  template <class Form>
  double bound_of(const Form&, const Place&) const {
    return endless;
  }

  const Attention& call_;
  std::int64_t panels_;
  std::vector<double> norms_;  ///< (batch, key heads, panels): the largest Euclidean norm of a key so far
  std::vector<Keys> biases_;
};

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
