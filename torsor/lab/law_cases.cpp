#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "torsor/encoding/syntax/sipe.h"
#include "torsor/lab/law_measures.h"
#include "torsor/model/fused.h"

namespace torsor::law {

Tester::Tester(std::shared_ptr<const Encoding> encoding, std::int64_t layer_number, std::uint64_t seed, QkNorm qk_norm)
    : whole(std::move(encoding)),
      layer(layer_encoding(whole, layer_number)),
      number(layer->traits().carries ? layer_number + whole->period() : layer_number),
      layers(layer->traits().carries ? number + 2 : std::max(whole->period(), number + 1)),
      norm(qk_norm),
      random(seed, stream_of("laws")) {
  for (const ParameterInfo& info : layer->parameters(number)) parameters[info.name] = draw(info);
  if (norm != QkNorm::None) {
    // Far from equal: gains of 1, as they start, hide where the norm stands.
    query_gains = (normal({whole->dimensions().head_dim}) * 0.5).exp();
    key_gains = (normal({whole->dimensions().head_dim}) * 0.5).exp();
  }
  if (!layer->traits().carries) return;
  // A given state is like the one that the layer hands on.
  const NamedTensors outputs = full(attention_case(1, 1));
  if (const auto state = outputs.find("state"); state != outputs.end()) {
    state_heads = state->second.size(1);
    state_width = state->second.size(3);
  }
}

at::Tensor Tester::normal(const std::vector<std::int64_t>& shape) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  double* values = tensor.data_ptr<double>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) values[i] = random.normal();
  return tensor;
}

/// A first value with some noise: tables that start at zero would make every law hold.
at::Tensor Tester::draw(const ParameterInfo& info) {
  const at::Tensor noise = normal(info.shape) * 0.1;
  return noise + first_value(info);
}

at::Tensor Tester::first_value(const ParameterInfo& info) {
  switch (info.initial.kind) {
    case Initial::Kind::Constant:
      return at::full(info.shape, info.initial.a, at::kDouble);
    case Initial::Kind::Normal:
      return info.initial.a + info.initial.b * normal(info.shape);
    case Initial::Kind::Uniform: {
      const at::Tensor uniform = at::empty(info.shape, at::kDouble);
      double* values = uniform.data_ptr<double>();
      for (std::int64_t i = 0; i < uniform.numel(); ++i)
        values[i] = info.initial.a + (info.initial.b - info.initial.a) * random.uniform();
      return uniform;
    }
    case Initial::Kind::Values:
      break;
  }
  return at::tensor(info.initial.values, at::kDouble).view(info.shape);
}

at::Tensor Tester::counted(std::int64_t batch, std::int64_t tokens) const {
  std::vector<at::Tensor> axes = {at::arange(tokens, at::kDouble)};
  for (std::int64_t axis = 1; axis < whole->traits().axes; ++axis)
    axes.push_back(at::arange(tokens, at::kDouble).mul(static_cast<double>(2 * axis + 1)).remainder(5));
  return at::stack(axes, 1).unsqueeze(0).expand({batch, tokens, whole->traits().axes}).contiguous();
}

ConformanceCase Tester::attention_case(std::int64_t batch, std::int64_t tokens) {
  const Dimensions& d = whole->dimensions();
  ConformanceCase c;
  c.q = normal({batch, d.heads, tokens, d.head_dim});
  c.k = normal({batch, d.kv_heads, tokens, d.head_dim});
  c.v = normal({batch, d.kv_heads, tokens, d.head_dim});
  c.x = normal({batch, tokens, d.width});
  c.positions_k = c.positions_q = counted(batch, tokens);
  c.parameters = parameters;
  c.layer = number;
  c.layers = layers;
  if (layer->traits().carries) c.mlp_out = normal({batch, tokens, d.width});
  c.named = drawn_inputs(batch, tokens);
  if (state_heads > 0) c.state = normal({batch, state_heads, tokens, state_width});
  return c;
}

/// Syntax of tokens whose arcs lead back to tokens of the same row.
NamedTensors Tester::drawn_inputs(std::int64_t batch, std::int64_t tokens) {
  NamedTensors named;
  const auto below = [&](const std::vector<std::int64_t>& shape, std::int64_t end) {
    const at::Tensor tensor = at::empty(shape, at::kDouble);
    double* values = tensor.data_ptr<double>();
    for (std::int64_t i = 0; i < tensor.numel(); ++i)
      values[i] = std::floor(random.uniform() * static_cast<double>(end));
    return tensor;
  };
  for (const std::string& name : whole->inputs()) {
    if (name == kSyntaxTags) {
      named[name] = at::stack({below({batch, tokens}, 3), below({batch, tokens}, 6)}, 2);
    } else if (name == kSyntaxVectors) {
      named[name] = normal({batch, tokens, kSyntaxVectorWidth}) * below({batch, tokens, 1}, 3).clamp_max(1);
    } else if (name == kSyntaxSentences) {
      named[name] = below({batch, tokens}, 3).div(2).floor().cumsum(1);
    } else {
      const at::Tensor reach = at::arange(tokens, at::kDouble).clamp_max(5).view({1, tokens, 1});
      named[name] =
          at::stack({at::zeros({batch, tokens, 1}, at::kDouble), at::minimum(below({batch, tokens, 1}, 6), reach)}, 3);
    }
  }
  return named;
}

at::Tensor Tester::normalised(const at::Tensor& x, Role role) const {
  return rms_norm(x, role == Role::Query ? query_gains : key_gains, ModelConfig().norm_eps);
}

AfterMoves Tester::after_moves() const {
  if (norm != QkNorm::After) return {};
  return [this](const at::Tensor& moved, Role role) { return normalised(moved, role); };
}

ConformanceCase Tester::before_moves(const ConformanceCase& c) const {
  if (norm != QkNorm::Before) return c;
  ConformanceCase other = c;
  other.q = normalised(c.q, Role::Query);
  other.k = normalised(c.k, Role::Key);
  return other;
}

NamedTensors Tester::full(const ConformanceCase& c) const {
  return compute_case(before_moves(c), *whole, at::kDouble, Path::Reference, after_moves());
}

NamedTensors Tester::cached(const ConformanceCase& c, std::int64_t tokens) const {
  return compute_through_cache(before_moves(c), whole, at::kDouble, tokens, after_moves());
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (a.sizes() != b.sizes()) return infinity;
  if (a.numel() == 0) return 0;
  const at::Tensor nothing = a.eq(-infinity);
  if (!nothing.equal(b.eq(-infinity))) return infinity;
  const at::Tensor x = a.masked_fill(nothing, 0), y = b.masked_fill(nothing, 0);
  const double error = (x - y).abs().max().item<double>();
  return error == 0 ? 0 : error / std::max(x.abs().max().item<double>(), 1e-300);
}

double distance(const NamedTensors& a, const NamedTensors& b) {
  double worst = 0;
  for (const auto& [name, tensor] : a)
    if (const auto found = b.find(name); found != b.end()) worst = std::max(worst, distance(tensor, found->second));
  return worst;
}

}  // namespace torsor::law
