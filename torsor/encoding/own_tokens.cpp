#include "torsor/encoding/own_tokens.h"

#include <algorithm>
#include <vector>

namespace torsor {

at::Tensor own_tokens(const at::Tensor& per_key, std::int64_t axis, std::int64_t queries, const at::Tensor& lengths,
                      const at::Tensor& offsets) {
  const std::int64_t keys = per_key.size(axis);
  if (!lengths.defined() && !offsets.defined() && queries <= keys)
    return queries == keys ? per_key : per_key.narrow(axis, keys - queries, queries);
  std::vector<std::int64_t> shape = per_key.sizes().vec();
  shape[static_cast<std::size_t>(axis)] = queries;
  if (keys == 0) return at::zeros(shape, per_key.options());

  const at::TensorOptions whole = at::TensorOptions(at::kLong).device(per_key.device());
  at::Tensor first = at::full({1}, keys - queries, whole);
  if (offsets.defined())
    first = offsets;
  else if (lengths.defined())
    first = lengths - queries;
  at::Tensor index = (first.unsqueeze(1) + at::arange(queries, whole)).clamp(0, keys - 1);  // (B|1, queries)
  shape[0] = std::max(per_key.size(0), index.size(0));
  std::vector<std::int64_t> placed(shape.size(), 1), from = shape;
  placed[0] = index.size(0);
  placed[static_cast<std::size_t>(axis)] = queries;
  from[static_cast<std::size_t>(axis)] = keys;
  return per_key.expand(from).gather(axis, index.view(placed).expand(shape));
}

at::Tensor own_tokens(const Question& question, const at::Tensor& per_key) {
  return own_tokens(per_key, 2, question.query.tokens(), question.key.lengths, question.offsets);
}

}  // namespace torsor
