// Operands laid out for the register tiles. Included inside an instruction set by the kernels.
#include <hwy/aligned_allocator.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "torsor/kernel/attention.h"
#include "torsor/kernel/cpu/pairs.h"
#include "torsor/kernel/cpu/tiles-inl.h"

#if defined(TORSOR_KERNEL_CPU_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TORSOR_KERNEL_CPU_PACK_INL_H
#undef TORSOR_KERNEL_CPU_PACK_INL_H
#else
#define TORSOR_KERNEL_CPU_PACK_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace torsor::kernel::HWY_NAMESPACE {

using Floats = hwy::AlignedFreeUniquePtr<float[]>;

HWY_INLINE Floats floats(std::int64_t count) {
  return hwy::AllocateAligned<float>(static_cast<std::size_t>(std::max<std::int64_t>(count, 1)));
}

HWY_INLINE std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }
HWY_INLINE std::int64_t round_down(std::int64_t value, std::int64_t step) { return value / step * step; }

/// One vector of numbers as float32.
HWY_INLINE Vec load_as_float(const float* from) { return hn::LoadU(Tag(), from); }
HWY_INLINE Vec load_as_float(const BFloat16* from) {
  const Tag d;
  const hn::RebindToUnsigned<Tag> wide;
  const hn::Rebind<std::uint16_t, Tag> narrow;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}

/// bf16 numbers as float32.
HWY_INLINE void widen_row(const BFloat16* HWY_RESTRICT from, std::int64_t count, float* HWY_RESTRICT to) {
  for (std::int64_t c = 0; c < count; ++c) to[c] = widen(from[c]);
}

/// One row of an input as float32: where it lies, or widened into `scratch`.
HWY_INLINE const float* read_row(const Input& from, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t count,
                                 float* scratch) {
  if (from.data) return from.row(b, h, t);
  widen_row(from.half + from.at(b, h, t), count, scratch);
  return scratch;
}

/// Writes `count` numbers times a factor where they belong.
HWY_INLINE void write_row(const Output& to, std::int64_t b, std::int64_t h, std::int64_t t,
                          const float* HWY_RESTRICT values, std::int64_t count, float factor) {
  const std::int64_t place = to.at(b, h, t);
  if (to.data)
    for (std::int64_t c = 0; c < count; ++c) to.data[place + c] = values[c] * factor;
  else
    for (std::int64_t c = 0; c < count; ++c) narrow(values[c] * factor, to.half[place + c]);
}

/// Which of the rows of the batch and heads lie apart: what has a stride of 0 is packed once.
struct Extents {
  std::int64_t batch = 1, heads = 1;
  Extents(const Input& from, std::int64_t batch_of, std::int64_t heads_of)
      : batch(from.strides[0] == 0 ? std::min<std::int64_t>(batch_of, 1) : batch_of),
        heads(from.strides[1] == 0 ? std::min<std::int64_t>(heads_of, 1) : heads_of) {}
  std::int64_t index(std::int64_t b, std::int64_t h) const { return (batch > 1 ? b * heads : 0) + (heads > 1 ? h : 0); }
  std::int64_t count() const { return batch * heads; }
};

/// Tokens of a panel: a full register tile's row, and no less than what a path sums at a time.
HWY_INLINE std::int64_t panel_tokens() { return std::max<std::int64_t>(panel_width(), 16); }

/// Tokens in panels, (head, panel, channel, token): the right-hand side of a product whose columns are tokens.
struct Panels {
  Extents extents{{}, 1, 1};
  std::int64_t width = 0, numbers = 0;
  Floats data;
  /// `token` is the first of a panel.
  const float* at(std::int64_t b, std::int64_t head, std::int64_t token) const {
    return data.get() + extents.index(b, head) * numbers + token * width;
  }
};

/// to[c * panel + t] = rows[t][c] for t < tokens, 0 for the rest of the panel.
inline HWY_NOINLINE void transpose_panel(const float* rows, std::int64_t row, std::int64_t tokens, std::int64_t width,
                                         float* to, std::int64_t panel) {
  std::int64_t whole = 0;  // tokens done four at a time
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  whole = round_down(tokens, 4);
  // A cache line of channels at a time: what is written then stays in the first cache until its lines are full.
  for (std::int64_t begin = 0; begin < width; begin += 16) {
    const std::int64_t end = std::min(width, begin + 16);
    for (std::int64_t t = 0; t < whole; t += 4) {
      const float* from = rows + t * row;
      std::int64_t c = begin;
      for (; c + 4 <= end; c += 4) {
        const auto r0 = hn::LoadU(d, from + c), r1 = hn::LoadU(d, from + row + c),
                   r2 = hn::LoadU(d, from + 2 * row + c), r3 = hn::LoadU(d, from + 3 * row + c);
        const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1)),
                   low23 = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3)),
                   high01 = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1)),
                   high23 = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
        float* place = to + c * panel + t;
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, low01, low23)), d, place);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23)), d, place + panel);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, high01, high23)), d, place + 2 * panel);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23)), d, place + 3 * panel);
      }
      for (; c < end; ++c)
        for (std::int64_t n = 0; n < 4; ++n) to[c * panel + t + n] = from[n * row + c];
    }
  }
#endif
  for (std::int64_t t = whole; t < panel; ++t)
    for (std::int64_t c = 0; c < width; ++c) to[c * panel + t] = t < tokens ? rows[t * row + c] : 0.0F;
}

inline HWY_NOINLINE Panels pack_panels(const Input& from, std::int64_t batch, std::int64_t heads, std::int64_t tokens,
                                       std::int64_t width, const Run& run) {
  Panels packed;
  packed.extents = Extents(from, batch, heads);
  const std::int64_t panel = panel_tokens(), count = (tokens + panel - 1) / panel;
  packed.width = width;
  packed.numbers = count * panel * width;
  packed.data = floats(packed.extents.count() * packed.numbers);
  run.executor(0, packed.extents.count() * count, std::max<std::int64_t>(1, 4096 / (panel * (width + 1))),
               [&](std::int64_t first, std::int64_t last) {
                 Floats wide;
                 if (from.half) wide = floats(panel * width);
                 for (std::int64_t n = first; n < last; ++n) {
                   const std::int64_t head = n / count, b = head / packed.extents.heads,
                                      h = head % packed.extents.heads, t = n % count * panel,
                                      own = std::min(panel, tokens - t);
                   float* to = packed.data.get() + head * packed.numbers + t * width;
                   if (from.half) {
                     for (std::int64_t r = 0; r < own; ++r)
                       widen_row(from.half + from.at(b, h, t + r), width, wide.get() + r * width);
                     transpose_panel(wide.get(), width, own, width, to, panel);
                   } else {
                     transpose_panel(from.row(b, h, t), from.strides[2], own, width, to, panel);
                   }
                 }
               });
  return packed;
}

/// Tokens in rows of `channels` numbers, the width rounded up to whole vectors with zeros: the right-hand side of a
/// product whose columns are channels. Where it is whole vectors already they are read where they lie.
struct Rows {
  std::int64_t channels = 0;
  Input from;
  Floats copy;
  const float* at(std::int64_t b, std::int64_t head, std::int64_t token) const { return from.row(b, head, token); }
  std::int64_t row() const { return from.strides[2]; }
};

/// `copied`: also where the numbers could be read where they lie.
inline HWY_NOINLINE Rows pack_rows(const Input& from, std::int64_t batch, std::int64_t heads, std::int64_t tokens,
                                   std::int64_t width, bool copied, const Run& run) {
  Rows rows;
  const std::int64_t channels = rows.channels = round_up(std::max<std::int64_t>(width, 1), lanes());
  if (from.data && channels == width && !copied) {
    rows.from = from;
    return rows;
  }
  const Extents extents(from, batch, heads);
  rows.copy = floats(extents.count() * tokens * channels);
  rows.from.data = rows.copy.get();
  rows.from.strides = {extents.batch > 1 ? extents.heads * tokens * channels : 0,
                       extents.heads > 1 ? tokens * channels : 0, channels};
  run.executor(0, extents.count() * tokens, std::max<std::int64_t>(1, 16384 / channels),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t n = first; n < last; ++n) {
                   const std::int64_t head = n / tokens, b = head / extents.heads, h = head % extents.heads;
                   float* to = rows.copy.get() + n * channels;
                   const float* row = read_row(from, b, h, n % tokens, width, to);
                   if (row != to) std::copy(row, row + width, to);
                   std::fill(to + width, to + channels, 0.0F);
                 }
               });
  return rows;
}

// bf16 numbers in pairs (pairs.h).

/// Whether a call of bf16 numbers is computed by products of pairs: in the instruction sets that belong to them.
HWY_INLINE bool takes_pairs(const Input& from) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return from.half && has_pair_products();
#else
  (void)from;
  return false;
#endif
}

using Pairs = hwy::AlignedFreeUniquePtr<Pair[]>;

HWY_INLINE Pairs pairs(std::int64_t count) {
  return hwy::AllocateAligned<Pair>(static_cast<std::size_t>(std::max<std::int64_t>(count, 1)));
}

/// The channels of a token in pairs, a 0 behind an odd width.
HWY_INLINE void pair_channels(const BFloat16* HWY_RESTRICT row, std::int64_t width, Pair* HWY_RESTRICT to) {
  for (std::int64_t c = 0; c + 1 < width; c += 2) to[c / 2] = pair_of(row[c], row[c + 1]);
  if (width % 2) to[width / 2] = pair_of(row[width - 1], BFloat16{0});
}

/// Two tokens in pairs, a channel each; without a second one 0.
HWY_INLINE void pair_tokens(const BFloat16* HWY_RESTRICT first, const BFloat16* HWY_RESTRICT second, std::int64_t width,
                            Pair* HWY_RESTRICT to) {
  if (second)
    for (std::int64_t c = 0; c < width; ++c) to[c] = pair_of(first[c], second[c]);
  else
    for (std::int64_t c = 0; c < width; ++c) to[c] = pair_of(first[c], BFloat16{0});
}

/// Tokens in panels, (head, panel, pair of channels, token).
struct PairPanels {
  Extents extents{{}, 1, 1};
  std::int64_t width = 0, numbers = 0;  ///< in pairs
  Pairs data;
  const Pair* at(std::int64_t b, std::int64_t head, std::int64_t token) const {
    return data.get() + extents.index(b, head) * numbers + token * width;
  }
};

inline HWY_NOINLINE PairPanels pack_pair_panels(const Input& from, std::int64_t batch, std::int64_t heads,
                                                std::int64_t tokens, std::int64_t width, const Run& run) {
  PairPanels packed;
  packed.extents = Extents(from, batch, heads);
  const std::int64_t panel = panel_tokens(), count = (tokens + panel - 1) / panel;
  packed.width = (width + 1) / 2;
  packed.numbers = count * panel * packed.width;
  packed.data = pairs(packed.extents.count() * packed.numbers);
  run.executor(0, packed.extents.count() * count, 1, [&](std::int64_t first, std::int64_t last) {
    Floats rows = floats(panel * packed.width);  // four bytes a number, as a pair has: transposed as such
    for (std::int64_t n = first; n < last; ++n) {
      const std::int64_t head = n / count, t = n % count * panel, own = std::min(panel, tokens - t);
      for (std::int64_t r = 0; r < own; ++r)
        pair_channels(from.half + from.at(head / packed.extents.heads, head % packed.extents.heads, t + r), width,
                      reinterpret_cast<Pair*>(rows.get()) + r * packed.width);
      transpose_panel(rows.get(), packed.width, own, packed.width,
                      reinterpret_cast<float*>(packed.data.get() + head * packed.numbers + t * packed.width), panel);
    }
  });
  return packed;
}

/// Tokens in pairs of rows, (head, pair of tokens, channel), the channels rounded up to whole vectors.
struct PairRows {
  Extents extents{{}, 1, 1};
  std::int64_t channels = 0, numbers = 0;
  Pairs data;
  /// `token` is even.
  const Pair* at(std::int64_t b, std::int64_t head, std::int64_t token) const {
    return data.get() + extents.index(b, head) * numbers + token / 2 * channels;
  }
};

/// `bad(b, head, token)`: tokens whose numbers that are not finite are taken out.
template <class Bad>
HWY_NOINLINE PairRows pack_pair_rows(const Input& from, std::int64_t batch, std::int64_t heads, std::int64_t tokens,
                                     std::int64_t width, const Bad& bad, const Run& run) {
  PairRows packed;
  packed.extents = Extents(from, batch, heads);
  packed.channels = round_up(width, lanes());
  const std::int64_t count = (tokens + 1) / 2;
  packed.numbers = count * packed.channels;
  packed.data = pairs(packed.extents.count() * packed.numbers);
  run.executor(0, packed.extents.count() * count, std::max<std::int64_t>(1, 16384 / (packed.channels + 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<BFloat16> cleaned[2];
                 for (std::int64_t n = begin; n < end; ++n) {
                   const std::int64_t head = n / count, b = head / packed.extents.heads,
                                      h = head % packed.extents.heads, t = n % count * 2;
                   const BFloat16* rows[2] = {nullptr, nullptr};
                   for (std::int64_t s = 0; s < 2 && t + s < tokens; ++s) {
                     rows[s] = from.half + from.at(b, h, t + s);
                     if (!bad(b, h, t + s)) continue;
                     cleaned[s].assign(rows[s], rows[s] + width);
                     for (BFloat16& number : cleaned[s])
                       if ((number.bits & 0x7f80U) == 0x7f80U) number.bits = 0;
                     rows[s] = cleaned[s].data();
                   }
                   Pair* to = packed.data.get() + n * packed.channels;
                   pair_tokens(rows[0], rows[1], width, to);
                   std::fill(to + width, to + packed.channels, Pair{0});
                 }
               });
  return packed;
}

}  // namespace torsor::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
