// A KV cache that is right for every encoding: what it keeps follows from the encoding's sixth answer.
//
// Tokens of a row lie in slots 0, 1, 2 ... in the order of arrival; each row has its own length, so a batch may hold
// prompts of different lengths. Positions and documents are data kept beside the keys. Slots past a row's length hold
// nothing and are never read, whatever is in them. A layer whose tokens see a window of keys may forget what no window
// reaches any more: its slots then begin with the oldest token that it still holds.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "torsor/attention/attend.h"
#include "torsor/attention/recent_tokens.h"
#include "torsor/encoding/encoding.h"

namespace torsor {

struct CacheOptions {
  std::int64_t capacity = 0;  ///< most tokens a row; storage grows up to it as tokens arrive
  /// The window of each layer's calls, one a layer or one for all; 0 or empty = tokens see all keys. A layer with a
  /// window holds its newest window - 1 + `rollback` tokens and a few more, however many arrive; `capacity` does not
  /// bound it. That is exact under every encoding: an answer reads no key that the query does not see.
  std::vector<std::int64_t> window;
  std::int64_t rollback = RecentTokens::kLength;  ///< tokens by which a row can always go back, in layers with a window
  std::int64_t batch = 1;
  std::int64_t layers = 1;
  std::int64_t value_dim = 0;         ///< Dv; 0 = head_dim
  at::ScalarType dtype = at::kFloat;  ///< of stored keys and values: float64, float32 or bfloat16
  at::Device device = at::kCPU;
};

/// What attention reads: all tokens that a layer holds, (B, Hk, n, D) and so on with n the longest row.
struct CacheView {
  at::Tensor keys;  ///< moved, ready for the product
  at::Tensor values;
  at::Tensor positions;  ///< (B, n, axes) float64
  at::Tensor documents;  ///< (B, n) int64 or undefined
  at::Tensor lengths;    ///< (B) int64, tokens held
  NamedTensors kept;     ///< (B, heads, n, ...)
};

class KvCache {
 public:
  /// The encoding is shared with the cache. Throws UsageError when a size is not positive or `window` is of another
  /// length.
  KvCache(std::shared_ptr<const Encoding> encoding, const CacheOptions& options);
  /// For an encoding that outlives the cache.
  KvCache(const Encoding& encoding, const CacheOptions& options);

  /// Tokens that each row has had, forgotten ones included, of layer 0 unless said.
  const std::vector<std::int64_t>& lengths(std::int64_t layer = 0) const;
  /// Tokens of each row that a layer still holds: the newest ones.
  std::vector<std::int64_t> held(std::int64_t layer = 0) const;
  std::int64_t capacity() const { return options_.capacity; }
  /// Bytes held.
  std::int64_t bytes() const;

  /// Appends n tokens a row and attends from them: q (B, Hq, n, D), k and v (B, Hk, n, ...) before any move.
  /// `options` speaks of the n new tokens: positions (B, n, axes), documents (B, n), x (B, n, C). Undefined positions
  /// go on from the row's last position by steps of one. `counts` (B) says how many of the n belong to each row
  /// (undefined = all); what a row's further queries answer has no meaning. Causal only.
  /// Throws Error and leaves the cache as it was when a row would grow past the capacity, a shape does not fit, or the
  /// encoding refuses the tokens.
  Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttendOptions& options,
                  const at::Tensor& counts = {});

  /// Appends without attending. Refused by an encoding that reads the query of every token (grape-ap(tie=q)).
  void append(const at::Tensor& k, const at::Tensor& v, const AttendOptions& options, const at::Tensor& counts = {});

  /// Attends from queries (B, Hq, n, D) to what is there; options.query_positions and, where documents are kept,
  /// options.query_documents must be given; options.query_offsets as in AttendOptions.
  Attended read(const at::Tensor& q, const AttendOptions& options) const;

  /// All tokens of a layer with their keys moved; of `options` the layer's trained tensors and after_moves are read.
  CacheView view(std::int64_t layer, const AttendOptions& options) const;

  /// (B, 1, 1) float64: the position that follows each row's newest token by one; 0 for an empty row.
  at::Tensor next_positions(std::int64_t layer = 0) const;

  /// For a model that mixes neighbours before attention: keeps tensors (B, heads, n, ...) of the n tokens that the
  /// layer's last attend() or append() brought (`counts` as there), for the newest RecentTokens::kLength tokens of each
  /// row. Throws Error when they are not those tokens.
  void remember(std::int64_t layer, const NamedTensors& arriving, const at::Tensor& counts = {});
  /// What was remembered of each row's newest token, (B, heads, 1, ...), zeros for a row without tokens; empty when
  /// nothing ever was.
  NamedTensors newest(std::int64_t layer) const;

  /// Drops the newest tokens: row b keeps its first lengths[b] in every layer. Running states go back with them, from
  /// what is kept of the tokens that stay. Throws Error when a row has fewer, and a Refusal when the encoding cannot
  /// take its running state back or what is remembered does not reach so far; then nothing has changed.
  void truncate(const std::vector<std::int64_t>& lengths);
  void truncate(std::int64_t length);

 private:
  struct Layer {
    std::int64_t window = 0;              ///< 0 = none
    std::vector<std::int64_t> lengths;    ///< tokens that a row has had
    std::vector<std::int64_t> forgotten;  ///< of these, the oldest ones that are no longer held
    std::vector<std::int64_t> held() const;
    at::Tensor keys, values, positions, documents;  ///< (B, Hk, slots, ...), (B, slots, axes), (B, slots)
    NamedTensors kept;
    NamedTensors state;
    RecentTokens recent;
  };

  const Encoding& of_layer(std::int64_t layer) const;
  /// append() with the queries of the arriving tokens, or undefined.
  void arrive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttendOptions& options,
              const at::Tensor& counts);
  NamedTensors rewound(const Layer& layer, std::int64_t index, const std::vector<std::int64_t>& lengths) const;
  at::Tensor next_of(const Layer& layer) const;
  void check_arrival(const Layer& layer, const at::Tensor& k, const at::Tensor& v, const AttendOptions& options,
                     const std::vector<std::int64_t>& counts) const;
  void check_query(const at::Tensor& q) const;
  static bool is_empty(const Layer& layer);
  Sides arriving_sides(const Layer& layer, const at::Tensor& k, const AttendOptions& options,
                       const at::Tensor& counts) const;
  at::Tensor asking_positions(const Layer& layer, const at::Tensor& arriving,
                              const std::vector<std::int64_t>& counts) const;
  void reserve(Layer& layer, std::int64_t slots, std::int64_t axes, bool documents);
  /// Makes room for `arriving` tokens in a layer with a window, by forgetting what no window reaches any more.
  void forget(Layer& layer, std::int64_t arriving);
  /// Tokens of a row with a window that must stay, and the slots that it gets: the eighth more makes forgetting rare.
  std::int64_t needed(const Layer& layer) const { return layer.window - 1 + options_.rollback; }
  std::int64_t room(const Layer& layer) const { return needed(layer) + std::max<std::int64_t>(16, needed(layer) / 8); }

  std::shared_ptr<const Encoding> encoding_;
  CacheOptions options_;
  std::vector<std::shared_ptr<const Encoding>> by_layer_;
  std::vector<Layer> layers_;
};

}  // namespace torsor
