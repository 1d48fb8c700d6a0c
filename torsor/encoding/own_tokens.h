// A query's own token among the keys: where causal order, running sums and per-token inputs meet.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "torsor/encoding/encoding.h"

namespace torsor {

/// Of a tensor with one entry a key on `axis` (rows on axis 0, B or 1), the entries of the queries' own tokens, in the
/// order of the queries. Query i of row b is token offsets[b] + i of that row; offsets undefined = lengths[b] -
/// queries; lengths undefined = all keys. A query that has no token of its own (it stands before the row's first token
/// or past its last key) gets the nearest one: what it answers has no meaning or is zero. Without any key the entries
/// are zero. No copy where the queries are the last tokens of all rows.
at::Tensor own_tokens(const at::Tensor& per_key, std::int64_t axis, std::int64_t queries, const at::Tensor& lengths,
                      const at::Tensor& offsets);

/// The same for the queries of a question: `per_key` is what arrive() gave (`kept`), tokens on axis 2. This is how the
/// query's side of a running sum is read.
at::Tensor own_tokens(const Question& question, const at::Tensor& per_key);

}  // namespace torsor
