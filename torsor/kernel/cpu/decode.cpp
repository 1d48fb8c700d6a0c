#include "torsor/kernel/cpu/decode.h"

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
#define HWY_TARGET_INCLUDE "torsor/kernel/cpu/decode.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/cache_control.h>
#include <hwy/highway.h>

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

/// A tile of rows, whole vectors wide: where it lies, or a float32 copy with zeros behind the width. What is not a
/// number is found and, in a copy, taken out.
class TileRows {
 public:
  explicit TileRows(std::int64_t width) : width_(width), channels_(round_up(width, lanes())) {}

  void read(const Input& from, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t end) {
    const std::int64_t count = end - begin;
    halves_ = nullptr;
    if (channels_ != width_) {
      copy(from, b, head, begin, count);
    } else if (from.data) {
      rows_ = from.row(b, head, begin);
      row_ = from.strides[2];
    } else {
      halves_ = from.half + from.at(b, head, begin);
      row_ = from.strides[2];
    }
    bad_ = halves_ ? !halves_are_finite(count) : !floats_are_finite(count);
    if (!bad_) return;
    if (halves_ || rows_ != scratch_.get()) copy(from, b, head, begin, count);
    bad_rows_.assign(static_cast<std::size_t>(count), 0);
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t c = 0; c < width_; ++c) {
        float& number = scratch_[static_cast<std::size_t>(t * channels_ + c)];
        if (std::isfinite(number)) continue;
        bad_rows_[static_cast<std::size_t>(t)] = 1;
        number = 0;
      }
  }
  /// Calls body(rows, row stride), rows of either type.
  template <class Body>
  void visit(const Body& body) const {
    if (halves_)
      body(halves_, row_);
    else
      body(rows_, row_);
  }
  std::int64_t channels() const { return channels_; }
  bool bad() const { return bad_; }
  bool bad(std::int64_t t) const { return bad_ && bad_rows_[static_cast<std::size_t>(t)] != 0; }

 private:
  void copy(const Input& from, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t count) {
    if (!scratch_) scratch_ = floats(key_tile * channels_);
    for (std::int64_t t = 0; t < count; ++t) {
      float* to = scratch_.get() + t * channels_;
      const float* row = read_row(from, b, head, begin + t, width_, to);
      if (row != to) std::copy(row, row + width_, to);
      std::fill(to + width_, to + channels_, 0.0F);
    }
    rows_ = scratch_.get();
    halves_ = nullptr;
    row_ = channels_;
  }

  /// 0 times a finite number is 0, and NaN otherwise.
  HWY_INLINE bool floats_are_finite(std::int64_t count) const {
    const Tag d;
    const Vec zero = hn::Zero(d);
    Vec even = zero, odd = zero;
    for (std::int64_t t = 0; t < count; ++t) {
      const float* row = rows_ + t * row_;
      std::int64_t c = 0;
      for (; c + lanes() < channels_; c += 2 * lanes()) {
        even = hn::MulAdd(hn::LoadU(d, row + c), zero, even);
        odd = hn::MulAdd(hn::LoadU(d, row + c + lanes()), zero, odd);
      }
      if (c < channels_) even = hn::MulAdd(hn::LoadU(d, row + c), zero, even);
    }
    return hn::AllTrue(d, hn::Eq(hn::Add(even, odd), zero));
  }

  /// No exponent is all ones.
  HWY_INLINE bool halves_are_finite(std::int64_t count) const {
    const hn::Rebind<std::uint16_t, Tag> d;
    const auto rest = hn::Set(d, std::uint16_t{0x7fff});
    auto most = hn::Zero(d);
    for (std::int64_t t = 0; t < count; ++t) {
      const auto* row = reinterpret_cast<const std::uint16_t*>(halves_ + t * row_);
      for (std::int64_t c = 0; c < channels_; c += lanes()) most = hn::Max(most, hn::And(hn::LoadU(d, row + c), rest));
    }
    return hn::AllTrue(d, hn::Lt(most, hn::Set(d, std::uint16_t{0x7f80})));
  }

  std::int64_t width_, channels_;
  Floats scratch_;
  const float* rows_ = nullptr;
  const BFloat16* halves_ = nullptr;
  std::int64_t row_ = 0;
  bool bad_ = false;
  std::vector<char> bad_rows_;
};

/// Asks for the row of a token ahead of its use: memory then works while arithmetic does.
class Fetch {
 public:
  Fetch(const Input& from, std::int64_t b, std::int64_t head, std::int64_t begin, std::int64_t width) {
    const std::int64_t place = from.at(b, head, begin), size = from.data ? 4 : 2;
    rows_ =
        from.data ? reinterpret_cast<const char*>(from.data + place) : reinterpret_cast<const char*>(from.half + place);
    row_ = from.strides[2] * size;
    bytes_ = width * size;
  }
  Fetch() = default;
  HWY_INLINE void operator()(std::int64_t j) const {
    for (std::int64_t byte = 0; byte < bytes_; byte += 64) hwy::Prefetch(rows_ + j * row_ + byte);
  }

 private:
  const char* rows_ = nullptr;
  std::int64_t row_ = 0, bytes_ = 0;
};

class DecodeWorker {
 public:
  DecodeWorker(const Attention& call, const std::vector<PackedBias>& biases)
      : call_(call),
        tile_(call, no_panels_, no_pair_panels_, biases, false, no_reach_),
        keys_(call.width),
        values_(call.value_width),
        carried_(call.carried.width) {}

  /// Every query of `head` over the keys [first, last); to(query) is where its part goes.
  template <class To>
  void run(std::int64_t b, std::int64_t head, std::int64_t first, std::int64_t last, const To& to) {
    tile_.move_to(b, head, 0, call_.queries);
    bool poisoned[most_decoded_queries] = {};
    std::vector<char> spoiled[most_decoded_queries], spoiled_carried[most_decoded_queries];
    Partial parts[most_decoded_queries];
    for (std::int64_t r = 0; r < call_.queries; ++r) {
      parts[r] = to(r);
      *parts[r].largest = minus_infinity;
      *parts[r].total = 0;
      std::fill(parts[r].sums, parts[r].sums + values_.channels(), 0.0F);
      std::fill(parts[r].averages, parts[r].averages + carried_.channels(), 0.0F);
    }
    tile_.for_each_step(first, last, nullptr, [&](std::int64_t begin, std::int64_t end) {
      keys_.read(call_.k, b, tile_.key_head(), begin, end);
      const Fetch of_values(call_.v, b, tile_.key_head(), begin, call_.value_width);
      keys_.visit([&](const auto* rows, std::int64_t row) { tile_.compute_from(rows, row, begin, end, of_values); });
      values_.read(call_.v, b, tile_.key_head(), begin, end);
      if (call_.carried.width > 0) carried_.read(call_.carried.values, b, head / call_.carried.group, begin, end);
      const Tile& tile = tile_.tile();
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        const std::int64_t from = tile.from(r);
        std::int64_t until = tile.to(r);
        if (from == until) continue;
        if (keys_.bad() || values_.bad() || carried_.bad())
          for (std::int64_t j = begin; j < end; ++j) {
            if (!tile_.mask().sees(tile_.query(r), j)) continue;
            poisoned[r] = poisoned[r] || keys_.bad(j - begin);
            if (values_.bad(j - begin)) mark(call_.v, tile_.key_head(), j, call_.value_width, spoiled[r]);
            if (carried_.bad(j - begin))
              mark(call_.carried.values, head / call_.carried.group, j, call_.carried.width, spoiled_carried[r]);
          }
        float* row = tile_.row(r);
        const float factor = soften(row, from, until, *parts[r].largest, *parts[r].total);
        if (factor != 1) {
          scale_row(parts[r].sums, values_.channels(), factor);
          scale_row(parts[r].averages, carried_.channels(), factor);
        }
        // Nothing lies behind the tile's last key.
        until = std::min(until, end - begin);
        const std::int64_t next = std::max(first, begin - key_tile);  // the keys that come after this tile
        const Fetch of_keys = r == 0 && next < begin ? Fetch(call_.k, b, tile_.key_head(), next, call_.width) : Fetch();
        add(values_, row, from, until, parts[r].sums, of_keys);
        if (call_.carried.width > 0) add(carried_, row, from, until, parts[r].averages, Fetch());
      }
    });
    for (std::int64_t r = 0; r < call_.queries; ++r) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      poisoned[r] = poisoned[r] || !row_is_finite(call_.q, b, head, r, call_.width);
      if (poisoned[r] && *parts[r].largest != minus_infinity) *parts[r].largest = *parts[r].total = nan;
      for (std::size_t c = 0; c < spoiled[r].size(); ++c)
        if (spoiled[r][c]) parts[r].sums[c] = nan;
      for (std::size_t c = 0; c < spoiled_carried[r].size(); ++c)
        if (spoiled_carried[r][c]) parts[r].averages[c] = nan;
    }
  }

 private:
  /// sums += weights of the keys [from, until) times their values.
  static HWY_INLINE void add(const TileRows& values, const float* weights, std::int64_t from, std::int64_t until,
                             float* sums, const Fetch& fetch) {
    values.visit([&](const auto* rows, std::int64_t row) {
      std::int64_t c = 0;
      const auto block = [&]<int vectors>() {
        for (; c + vectors * lanes() <= values.channels(); c += vectors * lanes())
          for (std::int64_t j = from; j < until; j += stretch)
            add_block<vectors>(rows + c, row, weights, j, std::min(until, j + stretch), sums + c,
                               c == 0 ? fetch : Fetch());
      };
      block.template operator()<8>();
      block.template operator()<4>();
      block.template operator()<1>();
    });
  }

  template <int vectors, class Number>
  static HWY_INLINE void add_block(const Number* rows, std::int64_t row, const float* weights, std::int64_t from,
                                   std::int64_t until, float* sums, const Fetch& fetch) {
    const Tag d;
    Vec sum[vectors];
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) sum[n] = hn::Zero(d);
    for (std::int64_t j = from; j < until; ++j) {
      fetch(j);
      const Vec weight = hn::Set(d, weights[j]);
#pragma GCC unroll 8
      for (int n = 0; n < vectors; ++n)
        sum[n] = hn::MulAdd(weight, load_as_float(rows + j * row + n * lanes()), sum[n]);
    }
#pragma GCC unroll 8
    for (int n = 0; n < vectors; ++n) {
      float* to = sums + n * lanes();
      hn::StoreU(hn::Add(hn::LoadU(d, to), sum[n]), d, to);
    }
  }

  /// The channels in which token j is not a number.
  void mark(const Input& from, std::int64_t head, std::int64_t j, std::int64_t width,
            std::vector<char>& spoiled) const {
    spoiled.resize(static_cast<std::size_t>(width));
    const std::int64_t place = from.at(tile_.tile().b, head, j);
    for (std::int64_t c = 0; c < width; ++c)
      if (!std::isfinite(from.data ? from.data[place + c] : widen(from.half[place + c])))
        spoiled[static_cast<std::size_t>(c)] = 1;
  }

  const Attention& call_;
  const Panels no_panels_;
  const PairPanels no_pair_panels_;
  const std::optional<Reach> no_reach_;
  ScoreTile tile_;
  TileRows keys_, values_, carried_;
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
      for (std::int64_t head = key_head * group; head < (key_head + 1) * group; ++head)
        worker.run(b, head, n * length, std::min(call.keys, (n + 1) * length),
                   [&](std::int64_t query) { return part(b, head, query, n); });
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
