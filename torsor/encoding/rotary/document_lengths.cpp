#include "torsor/encoding/rotary/document_lengths.h"

#include <algorithm>
#include <limits>

namespace torsor {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

at::Tensor documents_or_zero(const Side& side) {
  if (side.documents.defined()) return side.documents.to(at::kLong);
  return at::zeros({side.positions.size(0), side.positions.size(1)}, side.positions.options().dtype(at::kLong));
}

}  // namespace

at::Tensor document_lengths(const Side& asked, const Side& key) {
  const std::int64_t tokens = key.positions.size(1);
  const at::TensorOptions options = key.positions.options().dtype(at::kDouble);
  if (tokens == 0 || key.positions.size(0) == 0) return at::full({1, 1}, kNothing, options);
  at::Tensor largest = key.positions.to(at::kDouble).amax(-1) + 1;  // (B, Tk)

  at::Tensor exists;  // (B, Tk); undefined = all
  if (key.lengths.defined())
    exists = at::arange(tokens, options.dtype(at::kLong)).unsqueeze(0).lt(key.lengths.unsqueeze(1));
  if (!asked.documents.defined() && !key.documents.defined()) {
    if (exists.defined())
      largest = at::where(exists, largest, at::full({}, kNothing, options));
    else if (key.positions.stride(0) == 0)
      largest = largest.narrow(0, 0, 1);
    return largest.amax(1, true);
  }

  const at::Tensor key_documents = documents_or_zero(key), asked_documents = documents_or_zero(asked);
  const at::Tensor real = key_documents.ne(-1);
  exists = exists.defined() ? exists.logical_and(real) : real;
  largest = at::where(exists, largest, at::full({}, kNothing, options));
  const std::int64_t rows = std::max(largest.size(0), asked_documents.size(0));
  largest = largest.expand({rows, tokens});

  // Documents are numbered 0 ... count - 1, so that (row, document) is a slot of one flat maximum.
  const at::Tensor keys = key_documents.expand({rows, tokens}).reshape(-1);
  const at::Tensor queries = asked_documents.expand({rows, asked.tokens()}).reshape(-1);
  const auto [names, number] = at::_unique(at::cat({keys, queries}), true, true);
  const std::int64_t count = names.size(0);
  const at::Tensor row = at::arange(rows, number.options()).unsqueeze(1) * count;
  const at::Tensor key_slot = (number.narrow(0, 0, keys.size(0)).view({rows, tokens}) + row).reshape(-1);
  const at::Tensor asked_slot = number.narrow(0, keys.size(0), queries.size(0)).view({rows, asked.tokens()}) + row;
  const at::Tensor longest =
      at::full({rows * count}, kNothing, options).scatter_reduce(0, key_slot, largest.reshape(-1), "amax", true);
  return longest.index_select(0, asked_slot.reshape(-1)).view({rows, asked.tokens()});
}

}  // namespace torsor
