// The door to attention with any encoding.
//
//   auto encoding = torsor::make_encoding("yarn(rope, factor=4) + alibi", {.heads = 8, .kv_heads = 2, .head_dim = 64, .train_length = 4096});
//   at::Tensor out = torsor::attend(q, k, v, *encoding, {.positions = positions, .causal = true});
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "torsor/attention/core.h"
#include "torsor/encoding/encoding.h"
#include "torsor/encoding/registry.h"

namespace torsor {

/// Who computes. Auto takes the fastest path that computes exactly this call.
enum class Path { Auto, Reference };

struct AttendOptions {
  at::Tensor positions;         ///< (B, Tk, axes) of the keys, any real dtype; undefined = 0, 1, 2 ...
  at::Tensor query_positions;   ///< (B, Tq, axes); undefined = those of the last Tq keys (of each row's own last Tq)
  at::Tensor documents;         ///< (B, Tk) integer, -1 = padding; undefined = one document
  at::Tensor query_documents;   ///< (B, Tq); undefined = those of the last Tq keys
  at::Tensor key_lengths;       ///< (B) integer in [0, Tk]; keys past a row's length do not exist
  at::Tensor query_offsets;     ///< (B) integer: index of the first query among the row's tokens; undefined = length - Tq
  bool causal = true;
  std::optional<std::int64_t> window;  ///< at least 1: how many tokens a query sees, its own included
  std::optional<double> scale;         ///< factor on q.k; unset = softmax_factor / sqrt(D)
  at::Tensor x;                        ///< (B, Tk, C) normalised block input, where the encoding reads it
  at::Tensor state;                    ///< position state that enters the layer, where the encoding has one
  NamedTensors parameters;             ///< this layer's trained tensors by name (`t5.table`)
  NamedTensors named;                  ///< per-token inputs that the encoding declares
  /// Applied to q and k after the encoding's moves (QK-norm after rotation, decisions.md 2); unset = nothing.
  std::function<at::Tensor(const at::Tensor&, Role)> after_moves;
  std::int64_t layer = 0;
  std::int64_t layers = 1;
  bool need_lse = false;
  Path path = Path::Auto;
};

/// softmax(scale q.k + biases + mask) v with q and k moved by the encoding.
/// q (B, Hq, Tq, D), k (B, Hk, Tk, D), v (B, Hk, Tk, Dv): one dtype of float64, float32, bfloat16, one device.
/// Returns (B, Hq, Tq, Dv). A row that sees nothing is zero and has zero gradient; NaN in a masked key stays there.
/// Throws Error naming the tensor and both shapes when something does not fit; a shape that would only broadcast is
/// refused as well.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& encoding,
                  const AttendOptions& options = {});

/// The same with the log-sum-exp (need_lse) and the averages of what the encoding carries along.
Attended attend_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& encoding,
                     const AttendOptions& options = {});

// ---------------------------------------------------------------------------------------------------------------------
// Parts of the door that the KV cache shares

/// Checks and completes positions and documents of both sides (float64, int64).
struct Sides {
  Side query, key;
};
Sides resolve_sides(const at::Tensor& q, const at::Tensor& k, const AttendOptions& options, const Traits& traits);

/// The keys of `question` after the encoding's moves and options.after_moves.
at::Tensor move_keys(const at::Tensor& keys, const Encoding& encoding, const Question& question,
                     const AttendOptions& options);

/// What the encoding answers for these queries, put together with moved keys into a core call.
/// `question` has everything filled in; `moved_keys` are the keys after their moves.
CoreInput ask_for_core(const Encoding& encoding, const Question& question, const at::Tensor& moved_keys,
                       const at::Tensor& values, const AttendOptions& options);

Attended run_core(const CoreInput& input, Path path);

}  // namespace torsor
