// Exact conversion of projection rows between the four ways of pairing channels.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "torsor/encoding/forms.h"

namespace torsor {

/// How a checkpoint pairs the channels of a head, and which way it turns them.
struct RotaryForm {
  Layout layout = Layout::Half;
  bool minus = false;
  bool operator==(const RotaryForm&) const = default;
};

/// The rotary channels of a head: `blocks` equal blocks from `offset` on, `width` channels in all.
struct RotarySpan {
  std::int64_t offset = 0;
  std::int64_t width = 0;
  std::int64_t blocks = 1;
};

/// Channel c of the converted head is channel result[c] of the source. A turn the other way is a turn of the swapped
/// pair, so every conversion is a permutation: it holds for weights, biases, q/k-norm gains, LoRA-B rows and per-row
/// scales alike, of q and of k (never of v or o), and back again bit for bit.
/// Throws Error when the span does not fit a head of `head_dim` channels or its blocks cannot be cut into pairs.
std::vector<std::int64_t> rotary_permutation(std::int64_t head_dim, RotarySpan span, RotaryForm from, RotaryForm to);

/// Converts the first extent of `rows` (heads * head_dim, ...), heads of q or key heads of k. Throws Error when
/// head_dim does not divide it.
at::Tensor convert_rotary_rows(const at::Tensor& rows, std::int64_t head_dim, RotarySpan span, RotaryForm from,
                               RotaryForm to);

}  // namespace torsor
