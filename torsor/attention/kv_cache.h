// A KV cache that is right for every encoding: what it keeps follows from the encoding's sixth answer.
//
// Tokens of a row lie in slots 0, 1, 2 ... in the order of arrival; each row has its own length, so a batch may hold
// prompts of different lengths. Positions and documents are data kept beside the keys. Slots past a row's length hold
// nothing and are never read, whatever is in them. A layer whose tokens see a window of keys may forget what no window
// reaches any more: its slots then begin with the oldest token that it still holds.
//
// Positions can be changed afterwards: shift() moves tokens of a row, evict() drops some and can close the gap. Nothing
// that was stored is changed by that. Each row has an origin in float64 that is added to the positions of all its
// tokens, and tokens that stand elsewhere have an offset of their own; their keys, kept as they arrived, are turned by
// the whole offset at once. So a thousand shifts leave the bits of one, and endless generation (evict with sinks, again
// and again) turns the few sinks alone.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/attention/attend.h"
#include "torsor/attention/recent_tokens.h"
#include "torsor/encoding/encoding.h"

namespace torsor {

struct CacheOptions {
  std::int64_t capacity = 0;  ///< most tokens that a row holds; storage grows up to it as tokens arrive
  /// The window of each layer's calls, one a layer or one for all; 0 or empty = tokens see all keys. A layer with a
  /// window holds its newest window - 1 + `rollback` tokens and a few more, however many arrive; `capacity` does not
  /// bound it. A layer whose encoding cannot do without evicted tokens (CacheContract::evict) holds them all.
  std::vector<std::int64_t> window;
  std::int64_t rollback = RecentTokens::kLength;  ///< tokens by which a row can always go back, in layers with a window
  std::int64_t batch = 1;
  std::int64_t layers = 1;
  std::int64_t value_dim = 0;         ///< Dv; 0 = head_dim
  at::ScalarType dtype = at::kFloat;  ///< of stored keys and values: float64, float32 or bfloat16
  /// Keeps keys as they are given, moved at each read, where the encoding would have them kept moved. Slower; it makes
  /// every shift exact where calls change keys behind the moves (AttendOptions::after_moves). Not for an encoding whose
  /// moves read a position state.
  bool raw_keys = false;
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

/// A cache as named tensors and one line of JSON.
struct CacheContents {
  std::map<std::string, at::Tensor> tensors;
  std::string about;
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
  /// `options` speaks of the n new tokens: positions (B, n, axes), documents (B, n), x (B, n, C), named (B, n, ...).
  /// Undefined positions
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
  /// (B, n, axes) float64: where the tokens that a layer holds stand now, n the longest row; what lies past a row's
  /// tokens has no meaning. Undefined before the first token.
  at::Tensor positions(std::int64_t layer = 0) const;

  /// Moves the tokens of every row whose position on axis 0 lies in [from, to) by `offsets`, (B|1) or (B|1, axes) real
  /// numbers, in every layer. Tokens that arrive later and bring no positions go on behind the newest one.
  /// Moving all tokens of a row costs nothing; tokens that are moved away from the others have their keys turned at the
  /// next read, from what was stored: R(n) applied once, without the magnitude that the key already carries.
  /// Throws Error for a shape that does not fit or an offset that is not finite, and a Refusal, before anything
  /// changes, where the encoding has no exact shift (CacheContract::shift).
  void shift(const at::Tensor& offsets, double from = -std::numeric_limits<double>::infinity(),
             double to = std::numeric_limits<double>::infinity());
  void shift(double offset);

  /// Drops tokens: each row keeps its `sinks` oldest and its `newest` newest (at least one) in every layer; a row with
  /// no more than that stays as it is. With `close` what follows the gap moves up to the sinks (or, without sinks, to
  /// where the row began), so that positions go on without a step; else tokens keep their positions. Running sums keep
  /// what the dropped tokens added. Throws a Refusal, before anything changes, where the encoding needs the dropped
  /// tokens (CacheContract::evict, evict_oldest), where a layer with a window would keep sinks, where a
  /// second gap would arise in a row that has lost tokens already, or as shift() does.
  void evict(std::int64_t sinks, std::int64_t newest, bool close = false);
  /// The same with a number of newest tokens for each row.
  void evict_rows(std::int64_t sinks, const std::vector<std::int64_t>& newest, bool close = false);

  /// A cache of its own whose row b is a copy of row rows[b], for searches that go on in several ways. Throws Error for
  /// a row that is not there.
  KvCache fork(const std::vector<std::int64_t>& rows) const;

  /// Everything that the cache holds, for a file (torsor/model/cache_file.h), and a cache from it, of the same
  /// encoding, whose options are those of the contents. restore() throws Error naming `source` where the contents are
  /// not whole, contradict themselves or are of another encoding.
  CacheContents contents() const;
  static KvCache restore(std::shared_ptr<const Encoding> encoding, const CacheContents& contents,
                         const std::string& source, at::Device device = at::kCPU);

  /// For a model that mixes neighbours before attention: keeps tensors (B, heads, n, ...) of the n tokens that the
  /// layer's last attend() or append() brought (`counts` as there), for the newest RecentTokens::kLength tokens of each
  /// row. Throws Error when they are not those tokens.
  void remember(std::int64_t layer, const NamedTensors& arriving, const at::Tensor& counts = {});
  /// What was remembered of each row's newest token, (B, heads, 1, ...), zeros for a row without tokens; empty when
  /// nothing ever was.
  NamedTensors newest(std::int64_t layer) const;

  /// Drops the newest tokens: row b keeps what it holds of its first lengths[b] in every layer. Running states go back
  /// with them, from what is kept of the tokens that stay. Throws Error when a row has had fewer, and a Refusal when
  /// the encoding cannot take its running state back, what is remembered does not reach so far, or a token that the row
  /// would end with was dropped; then nothing has changed.
  void truncate(const std::vector<std::int64_t>& lengths);
  void truncate(std::int64_t length);

 private:
  struct Layer {
    std::int64_t window = 0;              ///< 0 = none
    std::vector<std::int64_t> lengths;    ///< tokens that a row has had
    std::vector<std::int64_t> forgotten;  ///< of these, the ones behind the sinks that are no longer held
    std::vector<std::int64_t> sinks;      ///< tokens of a row before the gap
    std::vector<std::int64_t> held() const;
    at::Tensor keys, values, documents;  ///< (B, Hk, slots, ...), (B, slots)
    /// (B, slots, axes) float64: where tokens stood when they arrived, less the row's origin then. Keys and what is
    /// kept of tokens were made at these.
    at::Tensor positions;
    at::Tensor origin;   ///< (B, 1, axes) float64, added to the position of every token of a row; undefined = 0
    at::Tensor offsets;  ///< (B, slots, axes) float64, added to a token's own; undefined = 0
    at::Tensor arrived;  ///< (B, Hk, slots, D): keys before they were turned by their offsets, where some are
    bool turned = true;  ///< whether `keys` follow from `arrived` and the offsets of now
    NamedTensors kept;
    NamedTensors state;
    RecentTokens recent;
  };

  const Encoding& of_layer(std::int64_t layer) const;
  /// append() with the queries of the arriving tokens, or undefined; `known` are their sides where they are known.
  void arrive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttendOptions& options,
              const at::Tensor& counts, const Sides* known);
  CacheContract::Key key_kind(std::int64_t layer) const;
  /// Whether the encoding is told positions without the origin: where it reads differences alone.
  bool sees_frame() const { return encoding_->traits().relative; }
  /// read() for queries whose positions, less the origin, are `frame`.
  Attended ask(const at::Tensor& q, const AttendOptions& options, const at::Tensor& frame) const;
  /// view() with the positions that the encoding is told.
  CacheView seen(std::int64_t layer, const AttendOptions& options) const;
  /// What was kept of the tokens in the first slots, as if they had arrived where the encoding is told that they stand.
  NamedTensors seen_kept(std::int64_t layer, std::int64_t slots) const;
  /// Brings `keys` up to date with the offsets.
  void turn_keys(std::int64_t layer, const AttendOptions& options) const;
  /// Turns queries back by the origin, where keys are kept without it and the encoding was told positions with it.
  void turn_back(AttendOptions& options, const at::Tensor& q, std::int64_t layer) const;
  void check_shift() const;
  at::Tensor checked_offsets(const at::Tensor& offsets) const;
  /// Moves the tokens in `which` (B, slots) bool by offsets (B, 1, axes).
  void move_tokens(std::int64_t layer, const at::Tensor& offsets, const at::Tensor& which);
  /// Takes gap[b] tokens behind the first sinks[b] out of every row; storage gets `slots` slots.
  void drop(Layer& layer, const std::vector<std::int64_t>& sinks, const std::vector<std::int64_t>& gap,
            std::int64_t slots);
  /// The slot in which token `index` of a row lies, or would.
  static std::int64_t slot_of(const Layer& layer, std::size_t row, std::int64_t index) {
    return index <= layer.sinks[row] ? index : index - layer.forgotten[row];
  }
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
  mutable std::vector<Layer> layers_;  // turn_keys() only brings up to date what follows from the rest
};

}  // namespace torsor
