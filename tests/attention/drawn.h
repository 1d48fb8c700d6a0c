// One call of one expression with everything drawn, and what is read off it.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/attention/call.h"

namespace torsor::attention_test {

inline at::Tensor longs(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::TensorOptions(at::kLong));
}

/// Tokens of one encoding with drawn trained tensors.
struct Drawn {
  std::shared_ptr<const Encoding> encoding;
  at::Tensor q, k, v;
  AttendOptions options;

  Drawn(const std::string& expression, std::int64_t rows, std::int64_t tokens, at::ScalarType dtype = at::kDouble,
        HeadCounts heads = {4, 2}, std::int64_t dim = 6) {
    encoding = make_encoding(expression,
                             {.heads = heads.heads, .kv_heads = heads.kv_heads, .head_dim = dim, .width = kCaseWidth});
    at::manual_seed(11);
    const auto normal = [&](std::vector<std::int64_t> shape) { return at::randn(shape, doubles()).to(dtype); };
    q = normal({rows, heads.heads, tokens, dim});
    k = normal({rows, heads.kv_heads, tokens, dim});
    v = normal({rows, heads.kv_heads, tokens, dim});
    options.x = normal({rows, tokens, kCaseWidth});
    options.positions = at::arange(tokens, doubles()).view({1, tokens, 1}).expand({rows, tokens, 1});
    for (const ParameterInfo& info : encoding->parameters(0))
      options.parameters[info.name] = (at::randn(info.shape, doubles()) * 0.5).to(dtype);
    options.named = draw_syntax(encoding->inputs(), rows, tokens);
  }
  at::Tensor& operator[](const std::string& name) { return options.parameters.at(name); }
  Attended full(Path path = Path::Reference) const {
    AttendOptions call = options;
    call.path = path;
    call.need_lse = true;
    return attend_full(q, k, v, *encoding, call);
  }
  /// The logits, (B, H, T, T), -inf where hidden, from weights on unit values. Not for probes that are values.
  at::Tensor logits() const {
    const std::int64_t tokens = k.size(2);
    Drawn on_units = *this;
    on_units.v = at::eye(tokens, k.options()).expand({k.size(0), k.size(1), tokens, tokens}).contiguous();
    const Attended one = on_units.full();
    return one.out.log() + one.lse.unsqueeze(3);
  }
  /// What is added to the logits: a scale of 0 leaves nothing else.
  at::Tensor bias() const {
    Drawn silent = *this;
    silent.options.scale = 0;
    return silent.logits();
  }
  KvCache cache(at::ScalarType dtype = at::kDouble) const {
    return KvCache(encoding, {.capacity = k.size(2), .batch = k.size(0), .dtype = dtype});
  }
  AttendOptions part(std::int64_t first, std::int64_t count) const {
    AttendOptions call = options;
    call.positions = options.positions.narrow(1, first, count);
    call.x = options.x.narrow(1, first, count);
    if (options.documents.defined()) call.documents = options.documents.narrow(1, first, count);
    for (auto& [name, tensor] : call.named) tensor = tensor.narrow(1, first, count);
    return call;
  }
};

inline double largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

/// The largest difference of two tensors with -inf in the same places.
inline double apart(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor hidden = a.isinf();
  if (!hidden.equal(b.isinf())) return std::numeric_limits<double>::infinity();
  return largest(a.masked_fill(hidden, 0) - b.masked_fill(hidden, 0));
}

/// Gradients of a drawn sum of the outputs by q, k, x and trained tensors, in the order of their names.
inline std::vector<at::Tensor> gradients(Drawn& call, const std::vector<std::string>& names,
                                         Path path = Path::Reference) {
  std::vector<at::Tensor> leaves;
  for (const std::string& name : names) {
    at::Tensor& leaf = name == "q" ? call.q : name == "k" ? call.k : name == "x" ? call.options.x : call[name];
    leaves.push_back(leaf = leaf.detach().clone().requires_grad_(true));
  }
  const at::Tensor out = call.full(path).out;
  return torch::autograd::grad({out}, leaves, {at::randn(out.sizes(), doubles()).to(out.scalar_type())});
}

}  // namespace torsor::attention_test
