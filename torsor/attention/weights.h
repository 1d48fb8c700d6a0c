// The attention weights of a call, for those who study a model: what the reference path computes, a block of queries at
// a time, so that no T x T array is ever there.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "torsor/attention/core.h"

namespace torsor {

/// What a block of queries gives to the keys that any of them may see.
struct BlockWeights {
  std::int64_t first_key = 0;
  at::Tensor logits;   ///< (B, Hq, queries, keys) biases included, -inf where masked
  at::Tensor weights;  ///< (B, Hq, queries, keys) their softmax; zeros in the row of a query that sees nothing
  at::Tensor visible;  ///< (B|1, 1, queries, keys) bool
};

/// Weights of queries [first_query, first_query + queries) of the call, as reference_attention() computes them:
/// float32, or float64 where q is. Without keys that may be seen, the tensors have no keys. A key that is not finite
/// counts as zeros. reference_block() says how many queries at once are little memory.
BlockWeights block_weights(const CoreInput& input, std::int64_t first_query, std::int64_t queries);

}  // namespace torsor
