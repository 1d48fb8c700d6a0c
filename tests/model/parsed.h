// The syntax of tokens for tests of the model.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "torsor/encoding/syntax/sipe.h"

namespace torsor {

/// What a parser that reads no further than a token would say of it: a function of the tokens so far. With `ahead` it
/// looks at the whole row, as a parser of whole sentences does.
inline NamedTensors parsed(const at::Tensor& tokens, bool ahead = false) {
  const std::int64_t rows = tokens.size(0), count = tokens.size(1);
  const at::Tensor sums = ahead ? tokens.sum(1, true).expand_as(tokens) : tokens.cumsum(1);
  const at::Tensor index = at::arange(count, at::kLong).expand({rows, count});
  NamedTensors named;
  named[kSyntaxTags] = at::stack({sums.remainder(3), (sums + index).remainder(6)}, 2);
  named[kSyntaxSentences] = index / 5;
  named[kSyntaxSentences] = named[kSyntaxSentences].to(at::kLong);
  const at::Tensor back = at::minimum(sums.remainder(4), index.remainder(5));
  named[kSyntaxLinks] = at::stack({at::zeros_like(back), back}, 2).unsqueeze(2);
  const at::Tensor wave = at::arange(64, at::kFloat) * 0.1;
  named[kSyntaxVectors] =
      (sums.to(at::kFloat).unsqueeze(2) * 0.37 + wave).sin() * (sums + index).remainder(5).ne(0).unsqueeze(2);
  return named;
}

}  // namespace torsor
