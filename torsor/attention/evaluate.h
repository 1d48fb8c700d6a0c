// Evaluates bias forms on a block of queries, for the reference path.
#pragma once

#include <ATen/ATen.h>

#include "torsor/encoding/forms.h"

namespace torsor {

/// The tokens of a block of queries and the keys that it reads.
struct Block {
  std::int64_t first_query = 0, queries = 0;  ///< of the call's queries
  std::int64_t first_key = 0, keys = 0;       ///< of the call's keys
  at::Tensor query_positions;                 ///< (B, queries) float64
  at::Tensor key_positions;                   ///< (B, keys) float64
  at::Tensor visible;                         ///< (B|1, 1, queries, keys) bool
  at::ScalarType dtype = at::kFloat;          ///< of the logits
  std::int64_t group = 1;                     ///< query heads that read one key head
};

/// (B|1, heads in the form's range | 1, queries, keys) in the block's dtype. ContentForm is not evaluated here.
/// Throws Error when a gated or path form meets a visible pair with a negative distance.
at::Tensor evaluate_form(const BiasForm& bias, const Block& block);

/// What a form is called when it refuses a negative distance.
inline constexpr const char* kGatedName = "a gated slope";
inline constexpr const char* kPathName = "a path integral";
/// Throws the Error of a form that has no meaning where a query sees a key with a larger position.
[[noreturn]] void refuse_negative_distance(const char* what);

/// The values of a form at the distances n (S) float64, (heads, S) in `dtype`; undefined for a form that reads more
/// than the distance of a pair.
at::Tensor evaluate_at_distances(const BiasForm& bias, const at::Tensor& n, at::ScalarType dtype);

/// CoPE's bias from the finished logits (B, H, queries, keys) of its heads, -inf where masked.
at::Tensor evaluate_content(const ContentForm& form, const at::Tensor& logits, const Block& block);

}  // namespace torsor
