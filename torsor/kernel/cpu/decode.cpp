#include "torsor/kernel/cpu/decode.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/fetch.h"
#include "torsor/kernel/cpu/sets.h"

// Compiled once an instruction set; the best that the processor has is chosen when the function is called.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torsor/kernel/cpu/decode.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "torsor/kernel/cpu/pairs.h"
#include "torsor/kernel/cpu/scores-inl.h"
#include "torsor/kernel/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {
namespace {

/// Keys of a run: their keys and values (256 KiB at 64 channels) stay in the second cache while the heads that share
/// them pass.
constexpr std::int64_t run_keys = 512;

/// What one run of keys gives to one query, relative to its own largest score.
struct Partial {
  float* sums = nullptr;      ///< (value row)
  float* averages = nullptr;  ///< (carried row)
  float* largest = nullptr;
  float* total = nullptr;
};

/// A tile of rows, whole vectors wide: where it lies, or a copy with zeros in the place of what is not a number. Rows
/// that are not whole vectors wide are copied as float32, with zeros behind the width.
class TileRows {
 public:
  explicit TileRows(std::int64_t width) : width_(width), channels_(round_up(width, lanes())) {}

  void move_to(const Input& from, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t end) {
    from_ = &from, b_ = b, head_ = head, begin_ = begin, count_ = end - begin;
    rows_ = nullptr, halves_ = nullptr;
    row_ = from.strides[2];
    cleaned_ = false;
    if (channels_ != width_)
      copy();
    else if (from.data)
      rows_ = from.row(b, head, begin);
    else
      halves_ = from.half + from.at(b, head, begin);
  }
  /// Goes over to a copy, in which every number is finite. What was bf16 stays so, and with it the bits of the results.
  void clean() {
    if (cleaned_) return;
    if (!halves_) return copy();
    cleaned_ = true;
    bad_.assign(static_cast<std::size_t>(count_), 0);
    scratch_halves_.resize(static_cast<std::size_t>(count_ * width_));
    for (std::int64_t t = 0; t < count_; ++t)
      for (std::int64_t c = 0; c < width_; ++c) {
        const BFloat16 number = halves_[t * row_ + c];
        const bool finite = std::isfinite(widen(number));
        scratch_halves_[static_cast<std::size_t>(t * width_ + c)] = finite ? number : BFloat16{0};
        if (!finite) bad_[static_cast<std::size_t>(t)] = 1;
      }
    halves_ = scratch_halves_.data();
    row_ = width_;
  }
  /// body(rows, row stride), rows of either type.
  template <class Body>
  auto visit(const Body& body) const {
    return halves_ ? body(halves_, row_) : body(rows_, row_);
  }
  /// Whether visit's rows are bf16 and as wide as products of pairs need.
  bool pairs() const { return halves_ && width_ % 32 == 0; }
  std::int64_t channels() const { return channels_; }
  bool cleaned() const { return cleaned_; }
  /// Whether row t of a cleaned tile held what is not a number.
  bool bad(std::int64_t t) const { return bad_[static_cast<std::size_t>(t)] != 0; }

 private:
  void copy() {
    cleaned_ = true;
    if (!scratch_) scratch_ = floats(key_tile * channels_);
    bad_.assign(static_cast<std::size_t>(count_), 0);
    for (std::int64_t t = 0; t < count_; ++t) {
      float* to = scratch_.get() + t * channels_;
      const float* row = read_row(*from_, b_, head_, begin_ + t, width_, to);
      for (std::int64_t c = 0; c < width_; ++c) {
        const bool finite = std::isfinite(row[c]);
        to[c] = finite ? row[c] : 0.0F;
        if (!finite) bad_[static_cast<std::size_t>(t)] = 1;
      }
      std::fill(to + width_, to + channels_, 0.0F);
    }
    rows_ = scratch_.get();
    halves_ = nullptr;
    row_ = channels_;
  }
  std::int64_t width_, channels_;
  const Input* from_ = nullptr;
  std::int64_t b_ = 0, head_ = 0, begin_ = 0, count_ = 0, row_ = 0;
  const float* rows_ = nullptr;
  const BFloat16* halves_ = nullptr;
  bool cleaned_ = false;
  Floats scratch_;
  std::vector<BFloat16> scratch_halves_;
  std::vector<char> bad_;
};

/// Heads of a group that read keys and values together.
constexpr std::int64_t most_members = 4;
/// Rows, of one head or several, that share one pass over keys or values.
constexpr std::int64_t most_rows = 4;

/// A row of scores or weights of one query.
struct DecodeRow {
  const float* query = nullptr;  ///< scaled
  float* scores = nullptr;
  Partial part;
  // Where keys or values are taken in pairs.
  const BFloat16* half_query = nullptr;  ///< not scaled
  float factor = 0;
  BFloat16* weights = nullptr;  ///< (key_tile)
};

#if HWY_TARGET != HWY_SCALAR
/// Sums of neighbours: of a's lanes, then of b's.
HWY_INLINE Vec add_neighbours(Vec a, Vec b) {
  const Tag d;
  return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
}
#endif

/// The lanes' sums of as many vectors as there are lanes; the vectors are used up.
HWY_INLINE Vec sums_of_lanes(Vec* of) {
#if HWY_TARGET != HWY_SCALAR
  for (std::int64_t count = lanes() / 2; count > 0; count /= 2)
    for (std::int64_t n = 0; n < count; ++n) of[n] = add_neighbours(of[2 * n], of[2 * n + 1]);
#endif
  return of[0];
}

/// scores = <query, key> of `rows` queries with keys [from, until), a vector of keys at a time: their sums of lanes are
/// then taken together. False where a score is not finite, as where a key holds what is not a number.
template <int rows, class Number>
HWY_INLINE bool dots(const DecodeRow* of, const Number* keys, std::int64_t row_of_keys, std::int64_t width,
                     std::int64_t from, std::int64_t until) {
  const Tag d;
  const Vec zero = hn::Zero(d);
  Vec bad = zero;  // 0 times a finite number is 0, and NaN otherwise
  for (std::int64_t j = from; j < until; j += lanes()) {
    Vec sums[rows][hn::MaxLanes(Tag())];
    for (std::int64_t n = 0; n < lanes(); ++n) {
      const Number* HWY_RESTRICT key = keys + std::min(j + n, until - 1) * row_of_keys;
      fetch_ahead(key, width * static_cast<std::int64_t>(sizeof(Number)));
      // Two sums a row: one would wait for itself.
      Vec even[rows], odd[rows];
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) even[r] = odd[r] = zero;
      std::int64_t c = 0;
      for (; c + lanes() < width; c += 2 * lanes()) {
        const Vec first = load_as_float(key + c), second = load_as_float(key + c + lanes());
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
          even[r] = hn::MulAdd(hn::LoadU(d, of[r].query + c), first, even[r]);
          odd[r] = hn::MulAdd(hn::LoadU(d, of[r].query + c + lanes()), second, odd[r]);
        }
      }
      if (c < width) {
        const Vec last = load_as_float(key + c);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) even[r] = hn::MulAdd(hn::LoadU(d, of[r].query + c), last, even[r]);
      }
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sums[r][n] = hn::Add(even[r], odd[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const Vec found = sums_of_lanes(sums[r]);
      bad = hn::MulAdd(zero, found, bad);
      hn::BlendedStore(found, hn::FirstN(d, static_cast<std::size_t>(std::min(lanes(), until - j))), d,
                       of[r].scores + j);
    }
  }
  return hn::AllTrue(d, hn::Eq(bad, zero));
}

/// sums += weights times values of the keys [from, until) for `rows` queries, `vectors` of channels from channel c on.
/// The first channels ask for the memory of whole rows, in the order in which it lies.
template <int rows, int vectors, class Number>
HWY_INLINE void weighted(const DecodeRow* of, float* Partial::*sums, const Number* values, std::int64_t row_of_values,
                         std::int64_t channels, std::int64_t c, std::int64_t from, std::int64_t until) {
  const Tag d;
  Vec sum[rows][vectors];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) sum[r][n] = hn::Zero(d);
  for (std::int64_t j = from; j < until; ++j) {
    const Number* HWY_RESTRICT value = values + j * row_of_values + c;
    if (c == 0) fetch_ahead(value, channels * static_cast<std::int64_t>(sizeof(Number)));
    Vec numbers[vectors];
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) numbers[n] = load_as_float(value + n * lanes());
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const Vec weight = hn::Set(d, of[r].scores[j]);
#pragma GCC unroll 4
      for (int n = 0; n < vectors; ++n) sum[r][n] = hn::MulAdd(weight, numbers[n], sum[r][n]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < vectors; ++n) {
      float* to = of[r].part.*sums + c + n * lanes();
      hn::StoreU(hn::Add(hn::LoadU(d, to), sum[r][n]), d, to);
    }
}

/// Calls body.operator()<count>() for 1 <= count <= most_rows.
template <class Body>
auto with_rows(std::int64_t count, const Body& body) {
  switch (count) {
    case 1:
      return body.template operator()<1>();
    case 2:
      return body.template operator()<2>();
    case 3:
      return body.template operator()<3>();
    default:
      return body.template operator()<4>();
  }
}

class DecodeWorker {
 public:
  DecodeWorker(const Attention& call, const std::vector<PackedBias>& biases)
      : call_(call),
        paired_(takes_pairs(call.q)),
        keys_(call.width),
        values_(call.value_width),
        carried_(call.carried.width) {
    const std::int64_t group = call.key_heads == 0 ? 0 : call.heads / call.key_heads;
    for (std::int64_t m = 0; m < std::min(group, most_members); ++m)
      tiles_.push_back(std::make_unique<ScoreTile>(call, no_panels_, no_pair_panels_, biases, false, no_reach_));
    if (paired_) weights_ = pairs(std::min(group, most_members) * call.queries * key_tile / 2);
  }

  /// Every query of the heads [head, head + members) of one group over the keys [first, last); part(head, query) is
  /// where its part goes.
  template <class Part>
  void run(std::int64_t b, std::int64_t head, std::int64_t members, std::int64_t first, std::int64_t last,
           const Part& part) {
    b_ = b, key_head_ = head / (call_.heads / call_.key_heads);
    rows_.clear();
    for (std::int64_t m = 0; m < members; ++m) {
      ScoreTile& tile = *tiles_[static_cast<std::size_t>(m)];
      tile.move_to(b, head + m, 0, call_.queries);
      for (std::int64_t r = 0; r < call_.queries; ++r) {
        DecodeRow row{tile.queries() + r * tile.query_row(), tile.row(r), part(head + m, r)};
        if (paired_) {
          row.half_query = call_.q.half + call_.q.at(b, head + m, r);
          row.factor = tile.query_factor(r);
          row.weights =
              reinterpret_cast<BFloat16*>(weights_.get()) + static_cast<std::int64_t>(rows_.size()) * key_tile;
        }
        *row.part.largest = minus_infinity;
        *row.part.total = 0;
        std::fill(row.part.sums, row.part.sums + values_.channels(), 0.0F);
        std::fill(row.part.averages, row.part.averages + carried_.channels(), 0.0F);
        rows_.push_back(row);
      }
    }
    poisoned_.assign(rows_.size(), 0);
    spoiled_.assign(rows_.size(), {});
    spoiled_carried_.assign(rows_.size(), {});
    tiles_[0]->for_each_step(first, last, nullptr,
                             [&](std::int64_t begin, std::int64_t end) { step(members, begin, end); });
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (std::size_t n = 0; n < rows_.size(); ++n) {
      const std::int64_t r = static_cast<std::int64_t>(n) % call_.queries;
      const Partial& to = rows_[n].part;
      const bool bad = poisoned_[n] ||
                       !row_is_finite(call_.q, b, head + static_cast<std::int64_t>(n) / call_.queries, r, call_.width);
      if (bad && *to.largest != minus_infinity) *to.largest = *to.total = nan;
      for (std::size_t c = 0; c < spoiled_[n].size(); ++c)
        if (spoiled_[n][c]) to.sums[c] = nan;
      for (std::size_t c = 0; c < spoiled_carried_[n].size(); ++c)
        if (spoiled_carried_[n][c]) to.averages[c] = nan;
    }
  }

 private:
  void step(std::int64_t members, std::int64_t begin, std::int64_t end) {
    keys_.move_to(call_.k, b_, key_head_, begin, end);
    for (std::int64_t m = 0; m < members; ++m) tiles_[static_cast<std::size_t>(m)]->start(begin, end);
    // What the mask leaves to a query is the same in every head.
    const Tile& tile = tiles_[0]->tile();
    std::int64_t low = end - begin, high = 0;
    for (std::int64_t r = 0; r < tile.rows; ++r)
      if (tile.low[r] < tile.high[r]) low = std::min(low, tile.low[r]), high = std::max(high, tile.high[r]);
    if (low >= high) return;
    const auto score = [&](const auto* keys, std::int64_t row) {
      bool finite = true;
      for (std::size_t n = 0; n < rows_.size(); n += most_rows)
        finite &= with_rows(std::min<std::int64_t>(most_rows, static_cast<std::int64_t>(rows_.size() - n)),
                            [&]<int count>() { return dots_of<count>(rows_.data() + n, keys, row, low, high); });
      return finite;
    };
    if (!keys_.visit(score)) {
      keys_.clean();
      keys_.visit(score);
    }
    for (std::int64_t m = 0; m < members; ++m) tiles_[static_cast<std::size_t>(m)]->finish();
    values_.move_to(call_.v, b_, key_head_, begin, end);
    for (std::size_t n = 0; n < rows_.size(); ++n) weigh(n, tile, low, high);
    add(values_, &Partial::sums, 0, rows_.size(), low, high);
    if (values_.cleaned())
      for (std::size_t n = 0; n < rows_.size(); ++n)
        mark(values_, call_.v, key_head_, n, call_.value_width, spoiled_[n]);
    if (call_.carried.width > 0) add_carried(members, begin, end, low, high);
  }

  template <int count, class Number>
  bool dots_of(const DecodeRow* rows, const Number* keys, std::int64_t row, std::int64_t low, std::int64_t high) {
    if constexpr (std::is_same_v<Number, BFloat16>) {
      if (paired_ && keys_.pairs()) {
        const BFloat16* queries[count];
        float factors[count];
        float* scores[count];
        for (int r = 0; r < count; ++r)
          queries[r] = rows[r].half_query, factors[r] = rows[r].factor, scores[r] = rows[r].scores;
        return pair_dots(queries, factors, count, keys, row, call_.width, low, high, scores);
      }
    }
    return dots<count>(rows, keys, row, keys_.channels(), low, high);
  }

  /// Row n of the scores becomes weights, zeros where it sees nothing.
  void weigh(std::size_t n, const Tile& tile, std::int64_t low, std::int64_t high) {
    const std::int64_t r = static_cast<std::int64_t>(n) % call_.queries, from = tile.from(r), to = tile.to(r);
    const DecodeRow& row = rows_[n];
    if (keys_.cleaned())
      for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j)
        if (keys_.bad(j) && tiles_[0]->mask().sees(r, tile.begin + j)) poisoned_[n] = 1;
    if (from < to) {
      float &largest = *row.part.largest, &total = *row.part.total;
      const float factor = values_.pairs() && paired_ ? soften_pairs(row.scores, from, to, largest, total, row.weights,
                                                                     call_.carried.width > 0)
                                                      : soften(row.scores, from, to, largest, total);
      if (factor != 1) {
        scale_row(row.part.sums, values_.channels(), factor);
        scale_row(row.part.averages, carried_.channels(), factor);
      }
    }
    std::fill(row.scores + std::min(low, from), row.scores + from, 0.0F);
    std::fill(row.scores + to, row.scores + std::max(to, high), 0.0F);
    if (!values_.pairs() || !paired_) return;
    // Pairs begin at an even key.
    const std::int64_t first = std::min(round_down(low, 2), from), last = std::max(to, round_up(high, 2));
    std::fill(row.weights + first, row.weights + from, BFloat16{0});
    std::fill(row.weights + to, row.weights + last, BFloat16{0});
  }

  /// Adds the values of the keys [low, high) to rows [first, last), cleaned where they must be.
  void add(TileRows& values, float* Partial::*sums, std::size_t first, std::size_t last, std::int64_t low,
           std::int64_t high) {
    before_.clear();
    for (std::size_t n = first; n < last; ++n)
      before_.insert(before_.end(), rows_[n].part.*sums, rows_[n].part.*sums + values.channels());
    // What is not a number makes its sum so, whatever the weight.
    const auto add_all = [&](const auto* numbers, std::int64_t row) {
      for (std::size_t n = first; n < last; n += most_rows)
        with_rows(std::min<std::int64_t>(most_rows, static_cast<std::int64_t>(last - n)),
                  [&]<int count>() { add_to<count>(rows_.data() + n, sums, values, numbers, row, low, high); });
      bool finite = true;
      for (std::size_t n = first; n < last; ++n)
        finite = finite && all_finite(Element::Float32, rows_[n].part.*sums, values.channels());
      return finite;
    };
    if (values.visit(add_all)) return;
    const float* back = before_.data();
    for (std::size_t n = first; n < last; ++n, back += values.channels())
      std::copy(back, back + values.channels(), rows_[n].part.*sums);
    values.clean();
    values.visit(add_all);
  }

  template <int count, class Number>
  void add_to(const DecodeRow* rows, float* Partial::*sums, const TileRows& values, const Number* numbers,
              std::int64_t row, std::int64_t low, std::int64_t high) {
    const std::int64_t channels = values.channels();
    if constexpr (std::is_same_v<Number, BFloat16>) {
      if (paired_ && values.pairs()) {
        const BFloat16* weights[count];
        float* to[count];
        for (int r = 0; r < count; ++r) weights[r] = rows[r].weights, to[r] = rows[r].part.*sums;
        return pair_weighted(weights, count, numbers, row, channels, round_down(low, 2), high, to);
      }
    }
    for (std::int64_t j = low; j < high; j += stretch) {
      const std::int64_t end = std::min(high, j + stretch);
      std::int64_t c = 0;
      for (; c + 4 * lanes() <= channels; c += 4 * lanes())
        weighted<count, 4>(rows, sums, numbers, row, channels, c, j, end);
      for (; c < channels; c += lanes()) weighted<count, 1>(rows, sums, numbers, row, channels, c, j, end);
    }
  }

  /// Heads of a group may carry values of their own.
  void add_carried(std::int64_t members, std::int64_t begin, std::int64_t end, std::int64_t low, std::int64_t high) {
    for (std::int64_t m = 0; m < members; ++m) {
      const std::int64_t head = tiles_[static_cast<std::size_t>(m)]->tile().head / call_.carried.group;
      const auto first = static_cast<std::size_t>(m * call_.queries),
                 last = first + static_cast<std::size_t>(call_.queries);
      carried_.move_to(call_.carried.values, b_, head, begin, end);
      add(carried_, &Partial::averages, first, last, low, high);
      if (carried_.cleaned())
        for (std::size_t n = first; n < last; ++n)
          mark(carried_, call_.carried.values, head, n, call_.carried.width, spoiled_carried_[n]);
    }
  }

  /// Marks the channels in which values that row n sees are not numbers.
  void mark(const TileRows& values, const Input& from, std::int64_t head, std::size_t n, std::int64_t width,
            std::vector<char>& spoiled) const {
    spoiled.resize(static_cast<std::size_t>(width));
    const Tile& tile = tiles_[0]->tile();
    const std::int64_t r = static_cast<std::int64_t>(n) % call_.queries;
    for (std::int64_t j = tile.low[r]; j < tile.high[r]; ++j) {
      if (!values.bad(j) || !tiles_[0]->mask().sees(r, tile.begin + j)) continue;
      const std::int64_t place = from.at(b_, head, tile.begin + j);
      for (std::int64_t c = 0; c < width; ++c)
        if (!std::isfinite(from.data ? from.data[place + c] : widen(from.half[place + c])))
          spoiled[static_cast<std::size_t>(c)] = 1;
    }
  }

  const Attention& call_;
  const Panels no_panels_;
  const PairPanels no_pair_panels_;
  const std::optional<Reach> no_reach_;
  std::vector<std::unique_ptr<ScoreTile>> tiles_;  ///< a head each
  bool paired_;                                    ///< keys and values that are bf16 and wide enough are taken in pairs
  TileRows keys_, values_, carried_;
  Pairs weights_;  ///< (rows, key_tile) bf16 numbers
  std::int64_t b_ = 0, key_head_ = 0;
  std::vector<DecodeRow> rows_;  ///< (heads, queries)
  std::vector<char> poisoned_;
  std::vector<std::vector<char>> spoiled_, spoiled_carried_;  ///< channels, a row each
  std::vector<float> before_;
};

HWY_NOINLINE void decode_all(const Attention& call, const Run& run, const Results& results) {
  const std::vector<PackedBias> biases = pack_biases(call, run);
  bool paths = false;  // sums along all keys: one run
  for (const Bias& bias : call.biases) paths = paths || std::holds_alternative<Path>(bias.form);
  const std::int64_t length = paths ? round_up(std::max<std::int64_t>(call.keys, 1), run_keys) : run_keys;
  const std::int64_t runs = std::max<std::int64_t>(1, (call.keys + length - 1) / length);
  const std::int64_t value_row = round_up(call.value_width, lanes()),
                     carried_row = round_up(call.carried.width, lanes());
  const std::int64_t group = call.key_heads == 0 ? 0 : call.heads / call.key_heads;
  const std::int64_t rows = call.batch * call.heads * call.queries, row = value_row + carried_row;
  Floats sums = floats(rows * runs * row), levels = floats(rows * runs * 2);
  const auto part = [&](std::int64_t b, std::int64_t head, std::int64_t query, std::int64_t n) {
    const std::int64_t place = ((b * call.heads + head) * call.queries + query) * runs + n;
    float* of_row = sums.get() + place * row;
    return Partial{of_row, of_row + value_row, levels.get() + 2 * place, levels.get() + 2 * place + 1};
  };
  // The heads that share keys take a run one after the other.
  const std::int64_t tasks = call.batch * call.key_heads * runs;
  std::atomic<std::int64_t> next{0};
  run.executor(0, std::max<std::int64_t>(1, run.threads), 1, [&](std::int64_t, std::int64_t) {
    DecodeWorker worker(call, biases);
    for (std::int64_t task; (task = next.fetch_add(1)) < tasks;) {
      const std::int64_t n = task % runs, b = task / runs / call.key_heads, key_head = task / runs % call.key_heads;
      for (std::int64_t head = key_head * group; head < (key_head + 1) * group; head += most_members)
        worker.run(b, head, std::min(most_members, (key_head + 1) * group - head), n * length,
                   std::min(call.keys, (n + 1) * length),
                   [&](std::int64_t own, std::int64_t query) { return part(b, own, query, n); });
    }
  });

  Floats sum = floats(row);
  for (std::int64_t b = 0; b < call.batch; ++b)
    for (std::int64_t head = 0; head < call.heads; ++head)
      for (std::int64_t query = 0; query < call.queries; ++query) {
        float largest = minus_infinity, total = 0;
        bool nan = false;
        for (std::int64_t n = 0; n < runs; ++n) {
          const Partial one = part(b, head, query, n);
          nan = nan || std::isnan(*one.largest);
          largest = std::max(largest, *one.largest);
        }
        std::fill(sum.get(), sum.get() + row, 0.0F);
        for (std::int64_t n = 0; n < runs; ++n) {
          const Partial one = part(b, head, query, n);
          if (*one.largest == minus_infinity) continue;
          const float weight = std::exp(*one.largest - largest);
          total += weight * *one.total;
          for (std::int64_t c = 0; c < row; ++c) sum[static_cast<std::size_t>(c)] += weight * one.sums[c];
        }
        const bool nothing = largest == minus_infinity && !nan;
        const float bad = std::numeric_limits<float>::quiet_NaN();
        const float factor = nothing ? 0.0F : nan ? bad : 1.0F / total;
        write_row(results.out, b, head, query, sum.get(), call.value_width, factor);
        if (call.carried.width > 0)
          write_row(results.averages, b, head, query, sum.get() + value_row, call.carried.width, factor);
        if (results.lse)
          results.lse[(b * call.heads + head) * call.queries + query] = nothing ? minus_infinity
                                                                        : nan   ? bad
                                                                                : largest + std::log(total);
      }
}

}  // namespace
}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torsor::kernel {

HWY_EXPORT(decode_all);

void attention_decode(const Attention& call, const Run& run, const Results& results) {
  HWY_DYNAMIC_DISPATCH(decode_all)(call, run, results);
}

}  // namespace torsor::kernel
#endif  // HWY_ONCE
