#include "torsor/model/kv_shift.h"

namespace torsor {
namespace {

constexpr const char* kKey = "kv_shift.k";
constexpr const char* kValue = "kv_shift.v";
constexpr const char* kDocument = "kv_shift.document";

/// Which token of the call, or which of the tokens before it, a token is mixed with.
struct Neighbours {
  at::Tensor previous;  ///< (B|1, T) the newest token before it that exists, in the call; -1 = none
  at::Tensor newest;    ///< (B|1, T) the same, itself included
  at::Tensor same;      ///< (B, T) whether `previous` is of its document; undefined = always
  at::Tensor document;  ///< (B, 1, T) of `newest`
};

/// Entries of tokens (B, heads, T, ...) at `index` (B|1, T); where it is -1, those of `before` (B, heads, 1, ...), or
/// zeros.
at::Tensor entries(const at::Tensor& tokens, const at::Tensor& index, const at::Tensor& before) {
  const at::Tensor first = before.defined() ? before.to(tokens.scalar_type()) : at::zeros_like(tokens.narrow(2, 0, 1));
  const at::Tensor all = at::cat({first, tokens}, 2);
  std::vector<std::int64_t> shape(static_cast<std::size_t>(tokens.dim()), 1);
  shape[0] = index.size(0), shape[2] = index.size(1);
  return all.gather(2, (index + 1).view(shape).expand(tokens.sizes()));
}

Neighbours neighbours_of(const at::Tensor& k, const at::Tensor& documents, const at::Tensor& counts,
                         const NamedTensors& before) {
  const std::int64_t rows = k.size(0), tokens = k.size(2);
  const at::TensorOptions whole = k.options().dtype(at::kLong);
  const at::Tensor index = at::arange(tokens, whole).unsqueeze(0);
  Neighbours all;
  if (!documents.defined() && !counts.defined()) {
    all.newest = index;
    all.previous = index - 1;
    all.document = at::zeros({rows, 1, tokens}, whole);
    return all;
  }
  at::Tensor real = at::ones({rows, tokens}, whole.dtype(at::kBool));
  if (documents.defined()) real = real.logical_and(documents.ne(-1));
  if (counts.defined()) real = real.logical_and(index.lt(counts.unsqueeze(1)));
  all.newest = std::get<0>(at::cummax(at::where(real, index, at::full({}, -1, whole)), 1));
  all.previous = at::cat({at::full({rows, 1}, -1, whole), all.newest.narrow(1, 0, tokens - 1)}, 1);
  const at::Tensor own = documents.defined() ? documents.to(whole) : at::zeros({rows, tokens}, whole);
  const auto known = before.find(kDocument);
  const at::Tensor first = known != before.end() ? known->second : at::full({rows, 1, 1}, -1, whole);
  all.document = entries(own.unsqueeze(1), all.newest, first);
  all.same = entries(own.unsqueeze(1), all.previous, first).squeeze(1).eq(own);
  return all;
}

at::Tensor mixed(const at::Tensor& y, const at::Tensor& x, const at::Tensor& weight, const Neighbours& neighbours,
                 const at::Tensor& before) {
  at::Tensor earlier = entries(y, neighbours.previous, before);
  if (neighbours.same.defined())
    earlier = earlier.masked_fill(neighbours.same.logical_not().view({y.size(0), 1, y.size(2), 1}), 0);
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor gate = at::sigmoid(at::linear(x.to(wide), weight.to(wide))).transpose(1, 2).unsqueeze(3);
  const at::Tensor now = y.to(wide);
  return (now + gate * (earlier.to(wide) - now)).to(y.scalar_type());
}

}  // namespace

Shifted kv_shift(const at::Tensor& k, const at::Tensor& v, const at::Tensor& x, const at::Tensor& k_weight,
                 const at::Tensor& v_weight, const at::Tensor& documents, const at::Tensor& counts,
                 const NamedTensors& before) {
  const auto remembered = [&](const char* name) {
    const auto found = before.find(name);
    return found != before.end() ? found->second : at::Tensor();
  };
  const at::Tensor old_k = remembered(kKey), old_v = remembered(kValue);
  if (k.size(2) == 0) return {k, v, {}};
  const Neighbours neighbours = neighbours_of(k, documents, counts, before);
  Shifted shifted;
  shifted.k = mixed(k, x, k_weight, neighbours, old_k);
  shifted.v = mixed(v, x, v_weight, neighbours, old_v);
  shifted.newest = {{kKey, entries(k, neighbours.newest, old_k)},
                    {kValue, entries(v, neighbours.newest, old_v)},
                    {kDocument, neighbours.document}};
  return shifted;
}

}  // namespace torsor
