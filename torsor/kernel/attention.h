// Fused attention on plain pointers: softmax(scale q k^T + biases + mask) v without ever holding a T x T array.
// No libtorch here: an engine that has none can use it, and the sanitizers can run over it alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "torsor/base/parallel.h"
#include "torsor/kernel/element.h"

namespace torsor::kernel {

/// Numbers (batch, head, token, channel); channels lie next to each other, the other strides are free and counted in
/// numbers (0 = shared). float32 in `data` or bf16 in `half`, the other null.
struct Input {
  const float* data = nullptr;
  std::array<std::int64_t, 3> strides{};
  const BFloat16* half = nullptr;
  std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return b * strides[0] + h * strides[1] + t * strides[2];
  }
  const float* row(std::int64_t b, std::int64_t h, std::int64_t t) const { return data + at(b, h, t); }
};
struct Output {
  float* data = nullptr;
  std::array<std::int64_t, 3> strides{};
  BFloat16* half = nullptr;
  std::int64_t at(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return b * strides[0] + h * strides[1] + t * strides[2];
  }
  float* row(std::int64_t b, std::int64_t h, std::int64_t t) const { return data + at(b, h, t); }
};

/// Which keys a query sees. With n_b keys in row b (key_lengths, else all) query i stands at index o_b + i of the row's
/// tokens, o_b = offsets[b], else n_b - queries (causal order is aligned bottom-right). Keys at or past n_b do not
/// exist; causal: j <= o_b + i; window W > 0: o_b + i - j < W, and j - o_b - i < W without causal order; documents:
/// seen only where equal, and -1 sees nothing and is not seen.
struct Visibility {
  bool causal = true;
  std::int64_t window = 0;
  const std::int64_t* key_lengths = nullptr;      ///< (batch)
  const std::int64_t* offsets = nullptr;          ///< (batch)
  const std::int64_t* query_documents = nullptr;  ///< (batch, queries), contiguous
  const std::int64_t* key_documents = nullptr;    ///< (batch, keys), contiguous
};

// Bias forms. Each holds for the query heads [first_head, last_head); "head" below counts from the first of them, and
// so do its arrays. Arrays are contiguous where no strides are given.

/// Positions of both sides, any real numbers: n = query_i - key_j is the distance.
struct Positions {
  const double* query = nullptr;  ///< (batch, queries)
  const double* key = nullptr;    ///< (batch, keys)
};

/// One number a head and whole distance, largest distance first: entry s of a head belongs to the distance most - s.
/// Serves every function of the distance where the positions of each side step by one: the distance of query i and key
/// j is first_distance[b] + i - j. `count` numbers a head must reach from `most` down to the smallest distance that
/// occurs.
struct DistanceTable {
  const float* table = nullptr;  ///< (heads, count)
  std::int64_t most = 0, count = 0;
  const std::int64_t* first_distance = nullptr;  ///< (batch): of the first query to the first key
};

/// The same table at any positions: the entry of the nearest whole distance, halves to even. What lies outside the
/// table reads its nearest entry.
struct DistanceLookup {
  const float* table = nullptr;  ///< (heads, count)
  std::int64_t most = 0, count = 0;
  Positions positions;
};

/// -slope_h |n|
struct Slope {
  const float* slope = nullptr;  ///< (heads)
  Positions positions;
};

/// Log: -r1 ln(1 + r2 |n|). Power: -r1 |n|^r2, 0 at 0. In float64 up to the result.
struct Curve {
  enum class Kind { Log, Power };
  Kind kind = Kind::Log;
  const float* r1 = nullptr;  ///< (heads)
  const float* r2 = nullptr;  ///< (heads)
  Positions positions;
};

/// A function of u = ln(1 + |c n|) / reach_i that is continuous and linear between breaks: slope[p] u + level[p] in
/// piece p, where breaks[p - 1] < u <= breaks[p]. Where every distance follows from first_distance (see DistanceTable)
/// that is given; elsewhere it is null.
struct Piecewise {
  double c = 0;
  const double* reach = nullptr;   ///< (batch, queries), positive
  const double* breaks = nullptr;  ///< (pieces - 1), ascending
  std::int64_t pieces = 0;
  const double* slope = nullptr;  ///< (heads, pieces)
  const double* level = nullptr;  ///< (heads, pieces)
  Positions positions;
  const std::int64_t* first_distance = nullptr;  ///< (batch) or null
};

/// query_i - key_j, in float64: differences of running sums.
struct Potential {
  const double* query = nullptr;                               ///< (batch, heads, queries) with the strides below
  const double* key = nullptr;                                 ///< (batch, heads, keys)
  std::array<std::int64_t, 2> query_strides{}, key_strides{};  ///< batch (0 = shared), head
};

/// -n (query_i + key_j); either side may be null, which counts as 0.
struct Gated {
  const float* query = nullptr;                                ///< (batch, heads, queries) with the strides below
  const float* key = nullptr;                                  ///< (batch, heads, keys)
  std::array<std::int64_t, 2> query_strides{}, key_strides{};  ///< batch (0 = shared), head
  Positions positions;
};

/// alpha_h times the sum over the keys l > j that query i sees, of ln sigmoid(<query_i, key_l> / width): an integral
/// along the order of the keys, from the query backwards.
struct Path {
  Input query;  ///< (batch, heads, queries, width), float32
  Input key;    ///< (batch, heads, keys, width), float32
  std::int64_t width = 0;
  const float* alpha = nullptr;  ///< (heads)
};

/// <query_i, key_j>
struct Product {
  Input query;                 ///< (batch, heads, queries, width), float32
  Input key;                   ///< (batch, heads / key_group, keys, width), float32
  std::int64_t key_group = 1;  ///< heads that share keys
  std::int64_t width = 0;
};

/// A multiplier of one bias, exactly 1 where a key has no tag or the groups differ. Not of a Path.
struct Factor {
  enum class Kind {
    Tag,   ///< 1 + left[i, tag_j]
    Tanh,  ///< 1 + beta_h tanh <left_i, right_j>
    Exp    ///< exp(clamp(<left_i, right_j>, -bound, bound))
  };
  Kind kind = Kind::Tag;
  Input left;                          ///< (batch, heads, queries, width), float32; a head stride of 0 shares it
  Input right;                         ///< (batch, heads, keys, width), float32, for Tanh and Exp
  std::int64_t width = 0;              ///< of left and right; for Tag the number of tags
  const std::int64_t* tags = nullptr;  ///< (batch, keys), -1 = none, else below width; for Tag
  const float* beta = nullptr;         ///< (heads), for Tanh
  float bound = 2;                     ///< for Exp
  const std::int64_t* query_groups = nullptr;  ///< (batch, queries), -1 = none; null: all of one group
  const std::int64_t* key_groups = nullptr;    ///< (batch, keys)
};

struct Bias {
  std::int64_t first_head = 0, last_head = 0;
  std::variant<DistanceTable, DistanceLookup, Slope, Curve, Piecewise, Potential, Gated, Path, Product> form;
  std::optional<Factor> factor;
};

/// Values that are averaged with the same weights into float32, whatever the type of v.
struct Carried {
  Input values;            ///< (batch, heads / group, keys, width), float32
  std::int64_t group = 1;  ///< query heads that share values
  std::int64_t width = 0;  ///< 0 = nothing is carried
};

/// One call. Head h of q reads head h / (heads / key_heads) of k and v.
struct Attention {
  std::int64_t batch = 0, heads = 0, key_heads = 0, queries = 0, keys = 0, width = 0, value_width = 0;
  // Of one type; without gradients k and v may be bf16 beside q in float32, as a cache keeps them.
  Input q;  ///< (batch, heads, queries, width)
  Input k;  ///< (batch, key_heads, keys, width)
  Input v;  ///< (batch, key_heads, keys, value_width)
  float scale = 1;
  /// A factor of q.k a query, (heads, batch, queries) contiguous, or null.
  const float* query_scale = nullptr;
  Visibility visible;
  std::vector<Bias> biases;
  Carried carried;
};

/// How a call is run: `threads` workers through `executor`, which may be fewer; results do not depend on either.
struct Run {
  Executor executor = serial_executor();
  std::int64_t threads = 1;
};

struct Results {
  /// (batch, heads, queries, value_width), of the type of q, or float32: gradients in bf16 are nearer by a good deal
  /// when the result that they are given is not rounded.
  Output out;
  float* lse = nullptr;  ///< (batch, heads, queries) contiguous, or null
  Output averages;       ///< (batch, heads, queries, carried.width), float32, where something is carried
};

/// A query that sees nothing gives 0 and -inf. NaN and infinity of a key, a value or what is carried reach only the
/// queries that see it.
/// Working memory: one packed copy of k and v, and a tile a thread.
///
/// Error against float64, on unit-normal inputs with head widths up to 128 and up to 4096 keys: in float32 at most 2e-6
/// of a row and 5e-7 of the tensor (Euclidean), times max(1, largest logit / 8); with a path 6e-6 of a row. In bf16,
/// against float64 on the same rounded inputs: 4e-3 of a row; up to 5e-3 was seen where three or four keys hold all the
/// weight and their values nearly cancel, since weights are rounded too. Keys before some key that together weigh less
/// than the rounding of a row's sum are left out (falling biases), each query judged by itself.
void attention_forward(const Attention& call, const Run& run, const Results& results);

/// The gradients of a bias, in float64, written and not added to; each pointer may be null where nobody asks.
struct BiasGradient {
  double* table = nullptr;  ///< (heads, count): DistanceTable, DistanceLookup
  double* slope = nullptr;  ///< (heads): Slope; (heads, pieces): Piecewise
  double* level = nullptr;  ///< (heads, pieces): Piecewise
  double* c = nullptr;      ///< (heads), whose sum is the gradient: Piecewise
  double* reach = nullptr;  ///< (batch, heads, queries), whose sum over heads is the gradient: Piecewise
  double* r1 = nullptr;     ///< (heads): Curve
  double* r2 = nullptr;     ///< (heads): Curve
  double* alpha = nullptr;  ///< (heads): Path
  double* query = nullptr;  ///< (batch, heads, queries[, width]): Potential, Gated, Path, Product
  double* key = nullptr;    ///< (batch, heads, keys[, width]), a query head each: Potential, Gated, Path, Product
  double* left = nullptr;   ///< (batch, heads, queries, width): the factor's
  double* right = nullptr;  ///< (batch, heads, keys, width): the factor's
  double* beta = nullptr;   ///< (heads): the factor's
};

struct Gradients {
  Output q, k, v;                    ///< shaped and typed as what they are the gradients of; written, not added to
  std::vector<BiasGradient> biases;  ///< as many as the call has biases, or none
  double* carried = nullptr;         ///< (batch, heads, keys, carried.width) contiguous, a query head each, or null
};

/// What came of the forward pass and the gradients of it. Outputs that nobody asked about have no data.
struct Upstream {
  Input out;                   ///< as attention_forward gave it
  const float* lse = nullptr;  ///< as attention_forward gave it
  Input averages;              ///< as attention_forward gave it, where something is carried
  Input dout;                  ///< (batch, heads, queries, value_width), of the type of q
  const float* dlse = nullptr;
  Input daverages;  ///< (batch, heads, queries, carried.width), float32
};

/// Gradients of a call from those of its results. All numbers must be finite.
///
/// The same bits for the same number of threads; another number may cut the queries of a head differently, which moves
/// the gradients of k, v and the biases within the rounding of their sums (1e-6 of the tensor).
/// Working memory: a packed copy of k and v, a tile a thread, the gradient of one head's k and v a thread, and the
/// biases' gradients once for each head.
///
/// Error against float64 under the conditions of attention_forward: in float32 at most 1e-6 of each tensor, and of the
/// sum of the terms' magnitudes for what is summed over pairs; 1.2e-6 was seen for the probes of a path of small alpha.
/// In bf16 6e-3 of each tensor.
void attention_backward(const Attention& call, const Run& run, const Upstream& upstream, const Gradients& gradients);

}  // namespace torsor::kernel
