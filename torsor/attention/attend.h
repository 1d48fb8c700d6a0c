// The door to attention with any encoding.
//
//   auto encoding = torsor::make_encoding("yarn(rope, factor=4) + alibi", {.heads = 8, .kv_heads = 2, .head_dim = 64,
//   .train_length = 4096}); at::Tensor out = torsor::attend(q, k, v, *encoding, {.positions = positions, .causal =
//   true});
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "torsor/attention/core.h"
#include "torsor/encoding/encoding.h"
#include "torsor/encoding/registry.h"

namespace torsor {

/// Who computes. Auto takes the fastest path that computes exactly this call; Fused throws NotFused where the fused
/// kernel does not.
enum class Path { Auto, Reference, Fused };

/// A call that was asked of the fused kernel and has no form there.
class NotFused : public Refusal {
 public:
  using Refusal::Refusal;
};

struct AttendOptions {
  at::Tensor positions;        ///< (B, Tk, axes) of the keys, any real dtype; undefined = 0, 1, 2 ...
  at::Tensor query_positions;  ///< (B, Tq, axes); undefined = those of the queries' own tokens (query_offsets)
  at::Tensor documents;        ///< (B, Tk) integer, -1 = padding; undefined = one document
  at::Tensor query_documents;  ///< (B, Tq); undefined = those of the queries' own tokens
  at::Tensor key_lengths;      ///< (B) integer in [0, Tk]; keys past a row's length do not exist
  at::Tensor query_offsets;  ///< (B) integer: index of the first query among the row's tokens; undefined = length - Tq
  bool causal = true;
  std::optional<std::int64_t> window;  ///< at least 1: how many tokens a query sees, its own included
  std::optional<double> scale;         ///< factor on q.k; unset = softmax_factor / sqrt(D)
  at::Tensor x;                        ///< (B, Tk, C) normalised block input, where the encoding reads it
  at::Tensor state;                    ///< (B, Hs, Tk, 2F) position state that enters the layer, where there is one
  NamedTensors parameters;             ///< this layer's trained tensors by name (`t5.table`)
  NamedTensors named;                  ///< per-token inputs that the encoding declares, (B, Tk, ...)
  /// Applied to q and k after the encoding's moves (QK-norm after rotation, decisions.md 2); unset = nothing.
  std::function<at::Tensor(const at::Tensor&, Role)> after_moves;
  /// Shown what the encoding answered, before the core runs; unset = nobody looks.
  std::function<void(const CoreInput&)> look;
  std::int64_t layer = 0;
  std::int64_t layers = 1;
  bool need_lse = false;
  Path path = Path::Auto;
};

/// softmax(scale q.k + biases + mask) v with q and k moved by the encoding.
/// q (B, Hq, Tq, D), k (B, Hk, Tk, D), v (B, Hk, Tk, Dv): one dtype of float64, float32, bfloat16, one device.
/// Returns (B, Hq, Tq, Dv). A row that sees nothing is zero and has zero gradient. NaN and infinity in a key or value
/// make the rows NaN that see it; they reach no other row and no gradient.
/// Throws Error naming the tensor and both shapes when something does not fit; a shape that would only broadcast is
/// refused as well.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& encoding,
                  const AttendOptions& options = {});

/// The same with the log-sum-exp (need_lse) and the averages of what the encoding carries along.
Attended attend_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Encoding& encoding,
                     const AttendOptions& options = {});

// ---------------------------------------------------------------------------------------------------------------------
// Parts of the door that the KV cache shares

/// Positions and documents of both sides, checked and completed (float64, int64).
struct Sides {
  Side query, key;
  at::Tensor offsets;         ///< (B) int64 as given, or undefined
  at::Tensor absent_keys;     ///< (B, Tk) bool: keys past their row's length or padding; undefined = none
  at::Tensor absent_queries;  ///< (B, Tq) bool: padding; undefined = none
};
Sides resolve_sides(const at::Tensor& q, const at::Tensor& k, const AttendOptions& options, const Traits& traits);

/// Checks what does not depend on q, k, v: layer, trained tensors, window, scale, x and the declared inputs, of which
/// there are `tokens` a row.
void check_call(const Encoding& encoding, const AttendOptions& options, std::int64_t batch, std::int64_t tokens);

/// The question that arrive() and moves(Role::Key) are asked about the tokens of sides.key; k, v and options.x are
/// theirs, and q is where every one of them has a query (else undefined). Tokens that do not exist are zeros in it,
/// whatever they held. It points into `options`.
Question arrival_question(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Sides& sides,
                          const AttendOptions& options);

/// The question that everything else is asked about the queries; x, named and state of `options` are theirs. It points
/// into `options` and `kept`.
Question query_question(const at::Tensor& q, const Sides& sides, const NamedTensors& kept, const Encoding& encoding,
                        const AttendOptions& options);

/// The question that after_layer() is asked about `tokens` tokens a row, whose positions, documents and state `options`
/// brings. Its q and k hold no channel: they only say the dtype and device of the call (`kind`). It points into
/// `options`.
Question layer_question(const AttendOptions& options, std::int64_t batch, std::int64_t tokens, const Encoding& encoding,
                        const at::TensorOptions& kind);

/// The keys of `question` after the encoding's moves and options.after_moves.
at::Tensor move_keys(const at::Tensor& keys, const Encoding& encoding, const Question& question,
                     const AttendOptions& options);

/// What the encoding answers for these queries, put together with moved keys into a core call.
/// `question` has everything filled in; `moved_keys` are the keys after their moves.
CoreInput ask_for_core(const Encoding& encoding, const Question& question, const at::Tensor& moved_keys,
                       const at::Tensor& values, const AttendOptions& options);

/// ask_for_core() computed, with what the averages add to it.
Attended ask_and_run(const Encoding& encoding, const Question& question, const at::Tensor& moved_keys,
                     const at::Tensor& values, const AttendOptions& options);

Attended run_core(const CoreInput& input, Path path);

}  // namespace torsor
