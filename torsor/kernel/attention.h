// Fused attention on plain pointers: softmax(scale q k^T + biases + mask) v without ever holding a T x T array.
// No libtorch here: an engine that has none can use it, and the sanitizers can run over it alone.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "torsor/base/parallel.h"

namespace torsor::kernel {

/// float32 numbers (batch, head, token, channel); channels lie next to each other, the other strides are free and
/// counted in numbers.
struct Input {
  const float* data = nullptr;
  std::array<std::int64_t, 3> strides{};
  const float* row(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return data + b * strides[0] + h * strides[1] + t * strides[2];
  }
};
struct Output {
  float* data = nullptr;
  std::array<std::int64_t, 3> strides{};
  float* row(std::int64_t b, std::int64_t h, std::int64_t t) const {
    return data + b * strides[0] + h * strides[1] + t * strides[2];
  }
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

// Bias forms. Each holds for the query heads [first_head, last_head); its arrays begin with the first of them.

/// One number a head and whole distance, largest distance first: entry s of a head belongs to the distance most - s.
/// Serves every function of the distance where the positions of each side step by one: the distance of query i and key
/// j is first_distance[b] + i - j. `count` numbers a head must reach from `most` down to the smallest distance that
/// occurs.
struct DistanceTable {
  const float* table = nullptr;  ///< (heads, count), contiguous
  std::int64_t most = 0, count = 0;
  const std::int64_t* first_distance = nullptr;  ///< (batch): of the first query to the first key
};

/// -slope_h |p_q - p_k| at any real positions.
struct Slope {
  const float* slope = nullptr;             ///< (heads)
  const double* query_positions = nullptr;  ///< (batch, queries), contiguous
  const double* key_positions = nullptr;    ///< (batch, keys), contiguous
};

/// query_i - key_j, in float64: differences of running sums.
struct Potential {
  const double* query = nullptr;                               ///< (batch, heads, queries) with the strides below
  const double* key = nullptr;                                 ///< (batch, heads, keys)
  std::array<std::int64_t, 2> query_strides{}, key_strides{};  ///< batch (0 = shared), head
};

struct Bias {
  enum class Kind { DistanceTable, Slope, Potential };
  Kind kind = Kind::DistanceTable;
  std::int64_t first_head = 0, last_head = 0;
  DistanceTable distance_table;
  Slope slope;
  Potential potential;
};

/// One call. Head h of q reads head h / (heads / key_heads) of k and v.
struct Attention {
  std::int64_t batch = 0, heads = 0, key_heads = 0, queries = 0, keys = 0, width = 0, value_width = 0;
  Input q;  ///< (batch, heads, queries, width)
  Input k;  ///< (batch, key_heads, keys, width)
  Input v;  ///< (batch, key_heads, keys, value_width)
  float scale = 1;
  /// A factor of q.k a query, (heads, batch, queries) contiguous, or null.
  const float* query_scale = nullptr;
  Visibility visible;
  std::vector<Bias> biases;
};

/// How a call is run: `threads` workers through `executor`, which may be fewer; results do not depend on either.
struct Run {
  Executor executor = serial_executor();
  std::int64_t threads = 1;
};

/// out (batch, heads, queries, value_width) and, where given, lse (batch, heads, queries) contiguous. A query that sees
/// nothing gives 0 and -inf. NaN and infinity of a key or value reach only the queries that see it.
/// Working memory: one packed copy of k and v, and a tile a thread.
///
/// Error against float64, on unit-normal inputs with head widths up to 128 and up to 4096 keys: at most 2e-6 of a row
/// and 5e-7 of the tensor (Euclidean), times max(1, largest logit / 8).
void attention_forward(const Attention& call, const Run& run, const Output& out, float* lse);

/// The gradient of a bias, in float64; each pointer may be null where nobody asks.
struct BiasGradient {
  double* table = nullptr;  ///< (heads, count), as DistanceTable::table
  double* slope = nullptr;  ///< (heads)
  double* query = nullptr;  ///< (batch, heads, queries) contiguous, of a potential
  double* key = nullptr;    ///< (batch, heads, keys) contiguous
};

struct Gradients {
  Output q, k, v;                    ///< shaped as what they are the gradients of; written, not added to
  std::vector<BiasGradient> biases;  ///< as many as the call has biases, or none
};

/// Gradients of a call from those of its results: dout (batch, heads, queries, value_width) and, where given, dlse
/// (batch, heads, queries). `out` and `lse` are what attention_forward gave. All numbers must be finite.
///
/// The same bits for the same number of threads; another number may cut the queries of a head differently, which moves
/// the gradients of k, v and the biases within the rounding of their sums (1e-6 of the tensor).
/// Working memory: a packed copy of k and v, a tile a thread, the gradient of one head's k and v a thread, and the
/// biases' gradients once for each head.
///
/// Error against float64 under the conditions of attention_forward: at most 1e-6 of each tensor, and of the sum of the
/// terms' magnitudes for what is summed over pairs.
void attention_backward(const Attention& call, const Run& run, const Input& out, const float* lse, const Input& dout,
                        const float* dlse, const Gradients& gradients);

}  // namespace torsor::kernel
