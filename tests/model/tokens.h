// Tokens for tests of the model.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "torsor/model/decoder.h"

namespace torsor {

inline at::Tensor random_tokens(std::int64_t rows, std::int64_t count) {
  at::Tensor tokens = at::empty({rows, count}, at::kLong);
  std::int64_t value = 7;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t t = 0; t < count; ++t) tokens[r][t] = value = (value * 31 + 11 * r + t) % 50;
  return tokens;
}

inline TokenBatch batch_of(const at::Tensor& tokens) {
  TokenBatch batch;
  batch.tokens = tokens;
  return batch;
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace torsor
