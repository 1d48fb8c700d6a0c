// The attention half of a block against whole modules of the released GRAPE models, with and without KV-shift: values
// and the gradient of every weight; and where QK-norm stands.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/golden_grape.h"
#include "torsor/model/attention_layer.h"
#include "torsor/model/kv_shift.h"

namespace torsor {
namespace {

at::Tensor tensor_of(const Json& json) {
  const NestedNumbers<Json> numbers(json);
  return at::tensor(numbers.values, at::kDouble).view(numbers.shape);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach().to(at::kDouble) - b.detach().to(at::kDouble).view(a.sizes())).abs().max().item<double>();
}

using GoldenModule = GoldenGrapeFile<Json>;

struct Kind {
  const char* name;                            ///< of the released module
  const char* encoding;                        ///< ours
  std::map<std::string, std::string> tensors;  ///< trained tensor by the name in the file
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"rope", "rope(orientation=minus)", {}},
      {"alibi", "alibi", {}},
      {"fox", "fox", {{"Wf", "fox.weight"}, {"bf", "fox.bias"}}},
      {"grape-a-k", "grape-a(gate=k)", {{"rho", "grape-a.rho"}, {"u", "grape-a.u"}}},
      {"grape-a-q", "grape-a(gate=q)", {{"rho", "grape-a.rho"}, {"v_gate", "grape-a.v"}}},
      {"grape-a-qk", "grape-a(gate=qk)", {{"rho", "grape-a.rho"}, {"u", "grape-a.u"}, {"v_gate", "grape-a.v"}}},
      {"grape-ap", "grape-ap(width=4)", {{"Wp", "grape-ap.weight"}}},
  };
  return all;
}

/// A sub-layer's weights by their names in the file, and what is computed from them.
using Leaves = std::map<std::string, at::Tensor>;

Leaves leaves_of(const Json& inputs, const Kind& kind, at::ScalarType dtype) {
  Leaves leaves;
  std::vector<std::string> names = {"x", "Wq", "Wk", "Wv", "Wo", "q_norm_w", "k_norm_w"};
  if (inputs.at("kv_shift").get<bool>()) names.insert(names.end(), {"Wk_shift", "Wv_shift"});
  for (const auto& [name, ours] : kind.tensors) names.push_back(name);
  for (const std::string& name : names)
    leaves[name] = tensor_of(inputs.at(name)).to(dtype).clone().requires_grad_(true);
  return leaves;
}

at::Tensor computed(const Json& inputs, const Kind& kind, const Leaves& leaves) {
  const std::int64_t heads = inputs.at("n_head").get<std::int64_t>();
  ModelConfig config;
  config.heads = heads;
  config.head_dim = inputs.at("head_dim").get<std::int64_t>();
  config.width = leaves.at("x").size(1);
  config.layers = 1;
  config.norm_eps = inputs.at("qk_norm_eps").get<double>();
  config.qk_norm = std::string(kind.name) == "rope" ? QkNorm::After : QkNorm::Before;
  config.kv_shift = inputs.at("kv_shift").get<bool>();
  config.encoding = kind.encoding;
  config.complete();
  const auto encoding = make_encoding(config.encoding, config.dimensions());
  AttentionWeights weights;
  weights.q = leaves.at("Wq"), weights.k = leaves.at("Wk"), weights.v = leaves.at("Wv"), weights.o = leaves.at("Wo");
  weights.q_norm = leaves.at("q_norm_w"), weights.k_norm = leaves.at("k_norm_w");
  if (config.kv_shift) weights.k_shift = leaves.at("Wk_shift"), weights.v_shift = leaves.at("Wv_shift");
  for (const ParameterInfo& info : encoding->parameters(0))
    for (const auto& [name, ours] : kind.tensors)
      if (ours == info.name) weights.position[info.name] = leaves.at(name).view(info.shape);
  const at::Tensor x = leaves.at("x").unsqueeze(0);
  return attention_layer(config, weights, *encoding, 0, x, {}, {}, nullptr, x.scalar_type()).mixed[0];
}

/// The released GRAPE-AP module written out, with the epsilon beside the mean square of a probe given: the released
/// code takes the smallest step of the input's type.
at::Tensor written_out(const Json& inputs, const Leaves& leaves, double epsilon) {
  const std::int64_t heads = inputs.at("n_head").get<std::int64_t>(), tokens = leaves.at("x").size(0);
  const at::Tensor& x = leaves.at("x");
  const auto split = [&](const at::Tensor& flat) { return flat.view({tokens, heads, -1}).transpose(0, 1); };
  const auto normal = [&](const at::Tensor& y, double eps) { return y / (y.square().mean(-1, true) + eps).sqrt(); };
  at::Tensor q = split(x.matmul(leaves.at("Wq").t())), k = split(x.matmul(leaves.at("Wk").t()));
  at::Tensor v = split(x.matmul(leaves.at("Wv").t()));
  if (inputs.at("kv_shift").get<bool>()) {
    const auto shifted = [&](const at::Tensor& y, const at::Tensor& gate) {
      std::vector<at::Tensor> rows;
      for (std::int64_t t = 0; t < tokens; ++t) {
        const at::Tensor a = at::sigmoid(gate.matmul(x[t])).unsqueeze(1), now = y.select(1, t);
        rows.push_back(t == 0 ? (1 - a) * now : a * y.select(1, t - 1) + (1 - a) * now);
      }
      return at::stack(rows, 1);
    };
    k = shifted(k, leaves.at("Wk_shift")), v = shifted(v, leaves.at("Wv_shift"));
  }
  const double norm_eps = inputs.at("qk_norm_eps").get<double>();
  q = normal(q, norm_eps) * leaves.at("q_norm_w"), k = normal(k, norm_eps) * leaves.at("k_norm_w");
  const at::Tensor p = split(x.matmul(leaves.at("Wp").t())), unit = normal(p, epsilon);
  const std::int64_t width = p.size(2);
  std::vector<at::Tensor> outs;
  for (std::int64_t h = 0; h < heads; ++h) {
    const double slope = std::pow(2.0, -8.0 * static_cast<double>(h + 1) / static_cast<double>(heads));
    std::vector<at::Tensor> rows;
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<at::Tensor> logits(static_cast<std::size_t>(t) + 1);
      at::Tensor path = at::zeros({}, x.options());
      for (std::int64_t j = t; j >= 0; --j) {
        logits[static_cast<std::size_t>(j)] =
            (q[h][t] * k[h][j]).sum() / std::sqrt(static_cast<double>(q.size(2))) + path;
        const double c = std::cos(static_cast<double>(j)), s = std::sin(static_cast<double>(j));
        const at::Tensor a = unit[h][j].narrow(0, 0, width / 2), b = unit[h][j].narrow(0, width / 2, width / 2);
        const at::Tensor turned = at::cat({a * c + b * s, b * c - a * s}, 0);  // by -j radians
        const at::Tensor z = (p[h][t] * turned).sum() / static_cast<double>(width);
        path = path - slope * at::log1p(at::exp(-z));
      }
      const at::Tensor weights = at::softmax(at::stack(logits), 0);
      rows.push_back((weights.unsqueeze(1) * v[h].narrow(0, 0, t + 1)).sum(0));
    }
    outs.push_back(at::stack(rows));
  }
  return at::stack(outs, 1).flatten(1).matmul(leaves.at("Wo").t());
}

struct Outcome {
  at::Tensor y;
  Leaves gradients;
};

Outcome outcome(const at::Tensor& y, const Leaves& leaves, const Json& inputs) {
  std::vector<at::Tensor> list;
  for (const auto& [name, tensor] : leaves) list.push_back(tensor);
  const auto gradients = torch::autograd::grad({y}, list, {tensor_of(inputs.at("gy")).to(y.scalar_type())});
  Outcome result{y, {}};
  std::size_t n = 0;
  for (const auto& [name, tensor] : leaves) result.gradients[name] = gradients[n++];
  return result;
}

void expect_golden(const Outcome& found, const Json& outputs, double bound) {
  EXPECT_LE(difference(found.y, tensor_of(outputs.at("y"))), bound) << "y";
  for (const auto& [name, gradient] : found.gradients)
    EXPECT_LE(difference(gradient, tensor_of(outputs.at("d_" + name))), bound) << "d_" << name;
}

TEST_F(GoldenModule, AttentionSubLayers) {
  for (const Kind& kind : kinds())
    for (const char* shift : {"", "_kvshift"})
      for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
        SCOPED_TRACE(str(kind.name, shift, ", ", dtype));
        const Json &one = at_id(str("module_", kind.name, shift)), &inputs = one.at("inputs");
        const Leaves leaves = leaves_of(inputs, kind, dtype);
        const Outcome found = outcome(computed(inputs, kind, leaves), leaves, inputs);
        if (dtype == at::kFloat) {
          expect_golden(found, one.at("outputs"), one.at("tol").at("f32_abs").get<double>());
        } else if (!inputs.contains("p_eps")) {
          expect_golden(found, one.at("outputs"), 1e-12);
        } else {
          // The file has float64's epsilon, ours is float32's in every type: the module written out leads from one to
          // the other.
          expect_golden(outcome(written_out(inputs, leaves, inputs.at("p_eps").get<double>()), leaves, inputs),
                        one.at("outputs"), 1e-12);
          const Outcome wanted = outcome(written_out(inputs, leaves, std::pow(2.0, -23)), leaves, inputs);
          EXPECT_LE(difference(found.y, wanted.y), 1e-12);
          for (const auto& [name, gradient] : wanted.gradients)
            EXPECT_LE(difference(found.gradients.at(name), gradient), 1e-12) << name;
        }
      }
}

TEST_F(GoldenModule, KvShift) {
  const Json &one = at_id("kv_shift"), &inputs = one.at("inputs"), &outputs = one.at("outputs");
  // (T, heads, D) to (1, heads, T, D); x holds the gates' logits, which the weight hands on as they are.
  const at::Tensor y = tensor_of(inputs.at("y")).transpose(0, 1).unsqueeze(0), a = tensor_of(inputs.at("a"));
  const at::Tensor g = tensor_of(inputs.at("g")).transpose(0, 1).unsqueeze(0);
  for (const bool value : {false, true})
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      const double bound = one.at("tol").at(dtype == at::kDouble ? "f64_abs" : "f32_abs").get<double>();
      const at::Tensor leaf = y.to(dtype).clone().requires_grad_(true);
      const at::Tensor x = (a / (1 - a)).log().unsqueeze(0).to(dtype).clone().requires_grad_(true);
      const at::Tensor pass = at::eye(2, at::TensorOptions(dtype)), closed = at::full({2, 2}, -1e3, x.options());
      const Shifted shifted = value ? kv_shift(y.to(dtype), leaf, x, closed, pass, {}, {}, {})
                                    : kv_shift(leaf, y.to(dtype), x, pass, closed, {}, {}, {});
      const at::Tensor out = value ? shifted.v : shifted.k;
      EXPECT_LE(difference(out[0].transpose(0, 1), tensor_of(outputs.at("out"))), bound);
      const auto gradients = torch::autograd::grad({out}, {leaf, x}, {g.to(dtype)});
      EXPECT_LE(difference(gradients[0][0].transpose(0, 1), tensor_of(outputs.at("dy"))), bound);
      const at::Tensor da = gradients[1][0].to(at::kDouble) / (a * (1 - a));
      EXPECT_LE(difference(da, tensor_of(outputs.at("da"))), dtype == at::kDouble ? bound : 2e-6);
    }
}

// Two tokens, three apart: the key's content in the first, the query's in the second. The logit between them is read
// off the output, which is the weight of the first.
TEST_F(GoldenModule, QkNormBeforeAndAfterTheRotation) {
  const Json &one = at_id("qknorm_order"), &inputs = one.at("inputs"), &outputs = one.at("outputs");
  const at::Tensor q = tensor_of(inputs.at("q")), k = tensor_of(inputs.at("k")), w = tensor_of(inputs.at("w"));
  const at::Tensor zeros = at::zeros({8, 8}, at::kDouble), eye = at::eye(8, at::kDouble);
  ModelConfig config;
  config.heads = 1, config.head_dim = 8, config.width = 17, config.layers = 1;
  config.encoding = "rope(orientation=minus)";
  config.complete();
  const auto encoding = make_encoding(config.encoding, config.dimensions());
  AttentionWeights weights;
  const at::Tensor nothing = at::zeros({8, 1}, at::kDouble);
  weights.q = at::cat({eye, zeros, nothing}, 1), weights.k = at::cat({zeros, eye, nothing}, 1);
  weights.v = at::zeros({8, 17}, at::kDouble), weights.o = at::zeros({17, 8}, at::kDouble);
  weights.v[0][16] = weights.o[0][0] = 1;
  at::Tensor x = at::zeros({1, 2, 17}, at::kDouble);
  x[0][0].narrow(0, 8, 8).copy_(k), x[0][1].narrow(0, 0, 8).copy_(q);
  x[0][0][16] = 1;
  const auto logit = [&](QkNorm order, const at::Tensor& weight, double origin) {
    config.qk_norm = order;
    weights.q_norm = weights.k_norm = weight;
    AttendOptions options;
    options.positions = at::tensor({origin, origin + 3}, at::kDouble).view({1, 2, 1});
    const double share = attention_layer(config, weights, *encoding, 0, x, options, {}, nullptr, at::kDouble)
                             .mixed[0][1][0]
                             .item<double>();
    return std::log(share) - std::log1p(-share);  // the query's own key is zero, and so is its logit
  };
  const std::vector<double> origins = inputs.at("origins").get<std::vector<double>>();
  for (std::size_t n = 0; n < origins.size(); ++n) {
    EXPECT_NEAR(logit(QkNorm::After, w, origins[n]), outputs.at("rotate_then_norm").at(n).get<double>(), 1e-12);
    EXPECT_NEAR(logit(QkNorm::Before, w, origins[n]), outputs.at("norm_then_rotate").at(n).get<double>(), 1e-12);
    EXPECT_NEAR(logit(QkNorm::After, at::ones_like(w), origins[n]),
                outputs.at("rotate_then_norm_unit_w").at(n).get<double>(), 1e-12);
  }
}

}  // namespace
}  // namespace torsor
