// The attention core: what is left of a call once the encoding has answered. No encoding is known here, only its
// answers.
//
// logit(i, j) = scale * logit_scale_i * <q_i, k_j>  +  sum of bias forms;  then the mask, then the softmax over j.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// Which keys a query sees. With len_b the length of row b (Tk without `key_lengths`) and o_b its offset (len_b - Tq
/// when undefined, which aligns causal order bottom-right), query i stands at index o_b + i of the row's tokens:
///   keys at or past len_b do not exist, whatever they hold;
///   causal: j <= o_b + i;
///   window W: o_b + i - j < W, and j - o_b - i < W without causal order;
///   documents: seen only where equal; -1 is padding, sees nothing and is not seen.
struct Mask {
  bool causal = true;
  std::optional<std::int64_t> window;  ///< at least 1; counts the query's own token
  at::Tensor key_lengths;              ///< (B) int64 or undefined
  at::Tensor offsets;                  ///< (B) int64 or undefined
  at::Tensor query_documents;          ///< (B, Tq) int64 or undefined
  at::Tensor key_documents;            ///< (B, Tk) int64 or undefined
};

/// q (B, Hq, Tq, D) and k (B, Hk, Tk, D) moved; v (B, Hk, Tk, Dv); all of one dtype among float32, float64, bf16, or k
/// and v in bf16 beside q in float32: a cache that is read as it lies.
struct CoreInput {
  at::Tensor q, k, v;
  double scale = 1;
  std::vector<LogitScale> logit_scales;
  std::vector<Decay> decays;
  std::vector<BiasForm> biases;
  std::optional<Carried> carried;
  at::Tensor query_positions;  ///< (B, Tq) float64, axis 0
  at::Tensor key_positions;    ///< (B, Tk) float64
  Mask mask;
  bool need_lse = true;
};

struct Attended {
  at::Tensor out;       ///< (B, Hq, Tq, Dv) in the dtype of q
  at::Tensor lse;       ///< (B, Hq, Tq) float32 (float64 for float64 inputs); -inf where nothing is seen
  at::Tensor averages;  ///< (B, Hq, Tq, Dw) of the carried values, a query head each; undefined without them
};

/// What the reference path may hold; tests make it small.
struct ReferenceLimits {
  /// Logits in one block of queries (16 MiB of float32): large enough for the matrix product, small enough for the
  /// cache of a server core to matter. Measured flat between 2^20 and 2^23 on the compare model.
  std::int64_t block_numbers = std::int64_t{1} << 22;
  /// Above this many logits the backward pass recomputes blocks instead of keeping them (512 MiB of float32 a layer).
  std::int64_t kept_numbers = std::int64_t{1} << 27;
};

/// Queries of one block of the reference path.
std::int64_t reference_block(const CoreInput& input, const ReferenceLimits& limits = {});

/// The reference path: blocked over queries, every bias form, float32, float64 and bf16 (computed in float32),
/// autograd. Holds O(B Hq block Tk) numbers at a time; where the whole T x T problem is large, the backward pass
/// recomputes each block instead of keeping it, to the same bits.
Attended reference_attention(const CoreInput& input, const ReferenceLimits& limits = {});

/// The fused kernel (kernel/attention.h), with autograd: gradients of q, k, v, carried values and every trained tensor,
/// once (a gradient of a gradient throws Error). O(T) memory. Nothing where the kernel does not compute this call. It
/// takes float32 and bfloat16 on the CPU with any mask, every bias form but the content position, and factors of all of
/// these but a path and another factor. It takes no decay; no table whose distances wrap where positions do not step by
/// one and spread far wider than the sequences; and no number that is not finite in a bias, or anywhere where a
/// gradient is asked for. Throws Error where a gated or path form meets a negative distance, as the reference path
/// does.
std::optional<Attended> fused_attention(const CoreInput& input);

/// The mean of |F - 1| over heads and visible pairs, F being the factors by which forms of the call multiply other
/// forms (or stretch angles); of the last `most_queries` queries of every row, since it costs a number a pair. Nothing
/// where the call has no factor, or no pair is visible.
std::optional<double> mean_factor_effect(const CoreInput& input, std::int64_t most_queries = 64);

/// True when libtorch's scaled_dot_product_attention computes exactly this call: no bias, no decay, no factor a query,
/// nothing carried, nothing masked beyond causal order of square shapes, and every number finite (it carries NaN of a
/// value to queries that do not see it, and loses NaN of a query on the way).
bool plain_attention_applies(const CoreInput& input);
Attended plain_attention(const CoreInput& input);

}  // namespace torsor
