// How the next token is chosen from logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "torsor/base/random.h"

namespace torsor {

struct Sampling {
  double temperature = 0;  ///< logits are divided by it; 0 = the most probable token, always
  std::int64_t top_k = 0;  ///< only the k most probable tokens; 0 = all
  double top_p = 1;        ///< of these only the most probable ones that together reach this share, in (0, 1]
  std::uint64_t seed = 0;

  /// Throws UsageError naming what is out of range.
  void check() const;
};

/// Draws the tokens of one row. What a row draws depends on the seed, the row's number and its own logits: a prompt is
/// continued alike whatever stands beside it in the batch.
class Sampler {
 public:
  Sampler(const Sampling& sampling, std::int64_t row);

  /// A token of `logits` (vocabulary), any floating type. The order is that of Hugging Face transformers: temperature,
  /// then the k most probable, then the share p of what is left. Of equal logits the smaller token counts as more
  /// probable. In float64. Throws Error where a logit is NaN or all are minus infinity.
  std::int64_t choose(const at::Tensor& logits);

 private:
  Sampling sampling_;
  Random random_;
};

}  // namespace torsor
