// The additive encodings against the shared golden values of GRAPE and FoX, values and every gradient: the reference
// path in float64 and float32, the fused kernel in float32.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/golden_grape.h"
#include "torsor/attention/attend.h"
#include "torsor/base/json.h"

namespace torsor {
namespace {

at::Tensor tensor_of(const Json& json) {
  const NestedNumbers<Json> numbers(json);
  return at::tensor(numbers.values, at::kDouble).view(numbers.shape);
}

void expect_near(const at::Tensor& found, const Json& golden, double bound, const std::string& what) {
  ASSERT_TRUE(found.defined()) << what;
  const at::Tensor wanted = tensor_of(golden), hidden = wanted.isinf();
  ASSERT_EQ(found.numel(), wanted.numel()) << what;
  const at::Tensor plain = found.detach().to(at::kDouble).reshape(wanted.sizes());
  EXPECT_TRUE(plain.isinf().equal(hidden)) << what;
  const at::Tensor error = (plain.masked_fill(hidden, 0) - wanted.masked_fill(hidden, 0)).abs();
  EXPECT_LE(error.max().item<double>(), bound) << what;
}

/// How a case is computed.
struct Way {
  const char* name;
  at::ScalarType dtype;
  Path path;
};
constexpr Way kWays[] = {{"reference, float64", at::kDouble, Path::Reference},
                         {"reference, float32", at::kFloat, Path::Reference},
                         {"fused, float32", at::kFloat, Path::Fused}};

/// One row of tokens with trained tensors: q, k, v (H, T, D), x (T, C).
struct Call {
  std::string encoding;
  at::Tensor q, k, v, x, go;
  NamedTensors parameters;
  std::optional<double> scale;
  double first_position = 0;
};

struct Answer {
  at::Tensor out, lse;
  std::map<std::string, at::Tensor> gradient;  ///< of sum(go * out), by name: q, k, v, x, trained tensors
};

Answer answer(const Call& call, const Way& way) {
  Dimensions dimensions{.heads = call.q.size(0), .head_dim = call.q.size(2)};
  if (call.x.defined()) dimensions.width = call.x.size(1);
  const auto encoding = make_encoding(call.encoding, dimensions);
  std::map<std::string, at::Tensor> leaves;
  const auto leaf = [&](const std::string& name, const at::Tensor& tensor) {
    return leaves[name] = tensor.to(way.dtype).clone().requires_grad_(true);
  };
  AttendOptions options;
  options.path = way.path;
  options.need_lse = true;
  options.scale = call.scale;
  options.positions = (at::arange(call.q.size(1), at::kDouble) + call.first_position).view({1, -1, 1});
  if (call.x.defined()) options.x = leaf("x", call.x.unsqueeze(0));
  for (const auto& [name, tensor] : call.parameters) options.parameters[name] = leaf(name, tensor);
  const Attended attended = attend_full(leaf("q", call.q.unsqueeze(0)), leaf("k", call.k.unsqueeze(0)),
                                        leaf("v", call.v.unsqueeze(0)), *encoding, options);
  Answer result{attended.out, attended.lse, {}};
  if (!call.go.defined()) return result;
  std::vector<at::Tensor> list;
  for (const auto& [name, tensor] : leaves) list.push_back(tensor);
  const auto gradients = torch::autograd::grad({attended.out}, list, {call.go.unsqueeze(0).to(way.dtype)});
  std::size_t n = 0;
  for (const auto& [name, tensor] : leaves) result.gradient[name] = gradients[n++];
  return result;
}

/// Finished logits (H, T, T): values that are unit vectors make the output the weights.
at::Tensor logits(Call call, const Way& way) {
  const std::int64_t tokens = call.q.size(1);
  call.v = at::eye(tokens, at::kDouble).expand({call.q.size(0), tokens, tokens}).contiguous();
  call.go = at::Tensor();
  const Answer one = answer(call, way);
  return one.out.detach().to(at::kDouble).log()[0] + one.lse.detach().to(at::kDouble)[0].unsqueeze(2);
}

class GrapeGolden : public GoldenGrapeFile<Json> {
 protected:
  static Call call_of(const Json& inputs) {
    Call call;
    call.q = tensor_of(inputs.at("q")), call.k = tensor_of(inputs.at("k")), call.v = tensor_of(inputs.at("v"));
    call.go = tensor_of(inputs.at("go"));
    return call;
  }
  static double bound(const Json& one, const Way& way) {
    return one.at("tol").at(way.dtype == at::kDouble ? "f64_abs" : "f32_abs").get<double>();
  }
  static void expect_common(const Answer& found, const Json& outputs, double tolerance, const char* prefix) {
    expect_near(found.out, outputs.at("out"), tolerance, "out");
    for (const char* name : {"q", "k", "v"})
      expect_near(found.gradient.at(name), outputs.at(std::string(prefix) + name), tolerance, name);
  }
};

TEST_F(GrapeGolden, Fox) {
  const Json &one = at_id("fox"), &inputs = one.at("inputs"), &outputs = one.at("outputs");
  Call call = call_of(inputs);
  call.encoding = "fox";
  call.x = tensor_of(inputs.at("x"));
  call.parameters = {{"fox.weight", tensor_of(inputs.at("W"))}, {"fox.bias", tensor_of(inputs.at("b"))}};
  // The gates' logits themselves as x: their gradient is that of x.
  Call direct = call;
  direct.x = tensor_of(outputs.at("gate_logit")).t().contiguous();
  direct.parameters = {{"fox.weight", at::eye(2, at::kDouble)}, {"fox.bias", at::zeros({2}, at::kDouble)}};
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const double tolerance = bound(one, way);
    expect_near(logits(call, way), outputs.at("logits"), tolerance, "logits");
    Call biases = call;
    biases.q = at::zeros_like(call.q);
    expect_near(logits(biases, way), outputs.at("D"), tolerance, "D");
    const Answer found = answer(call, way);
    expect_common(found, outputs, tolerance, "d");
    expect_near(found.gradient.at("fox.weight"), outputs.at("dW"), tolerance, "dW");
    expect_near(found.gradient.at("fox.bias"), outputs.at("db"), tolerance, "db");
    expect_near(found.gradient.at("x"), outputs.at("dx"), tolerance, "dx");
    expect_near(answer(direct, way).gradient.at("x")[0].t(), outputs.at("d_gate_logit"), tolerance, "d_gate_logit");
  }
}

TEST_F(GrapeGolden, PotentialsAreInclusiveSums) {
  const Json &one = at_id("fox"), &inputs = one.at("inputs");
  const auto encoding = make_encoding("fox", {.heads = 2, .head_dim = 4, .width = 8});
  const NamedTensors parameters = {{"fox.weight", tensor_of(inputs.at("W"))}, {"fox.bias", tensor_of(inputs.at("b"))}};
  Question question;
  question.parameters = &parameters;
  question.x = tensor_of(inputs.at("x")).unsqueeze(0);
  question.k = tensor_of(inputs.at("k")).unsqueeze(0);
  question.key.positions = at::arange(6, at::kDouble).view({1, 6, 1});
  NamedTensors state;
  const NamedTensors kept = encoding->arrive(question, state);
  expect_near(kept.at("fox.potential"), one.at("outputs").at("U_inclusive"), 1e-14, "U");
}

TEST_F(GrapeGolden, GatedSlopes) {
  for (const std::string gate : {"k", "q", "qk"})
    for (const std::string variant : {"released", "paper"})
      for (const Way& way : kWays) {
        SCOPED_TRACE(str("gate ", gate, ", ", variant, ", ", way.name));
        const Json &one = at_id("a_gated_" + gate), &inputs = one.at("inputs"),
                   &outputs = one.at("outputs").at(variant);
        const double tolerance = bound(one, way);
        Call call = call_of(inputs);
        call.encoding = str("grape-a(gate=", gate, ", variant=", variant, ")");
        call.parameters["grape-a.rho"] = tensor_of(inputs.at("rho"));
        if (gate != "q") call.parameters["grape-a.u"] = tensor_of(inputs.at("u"));
        if (gate != "k") call.parameters["grape-a.v"] = tensor_of(inputs.at("v_gate"));
        expect_near(logits(call, way), outputs.at("logits"), tolerance, "logits");
        const Answer found = answer(call, way);
        expect_common(found, outputs, tolerance, "d");
        expect_near(found.gradient.at("grape-a.rho"), outputs.at("d_rho"), tolerance, "d_rho");
        if (gate != "q") expect_near(found.gradient.at("grape-a.u"), outputs.at("d_u"), tolerance, "d_u");
        if (gate != "k") expect_near(found.gradient.at("grape-a.v"), outputs.at("d_v_gate"), tolerance, "d_v_gate");
      }
}

TEST_F(GrapeGolden, GatesAreWhatTheFileSays) {
  const Json &one = at_id("a_gated_qk"), &inputs = one.at("inputs");
  for (const std::string variant : {"released", "paper"}) {
    const Json& outputs = one.at("outputs").at(variant);
    const auto encoding =
        make_encoding(str("grape-a(gate=qk, variant=", variant, ")"), {.heads = 2, .kv_heads = 2, .head_dim = 4});
    const NamedTensors parameters = {{"grape-a.rho", tensor_of(inputs.at("rho"))},
                                     {"grape-a.u", tensor_of(inputs.at("u"))},
                                     {"grape-a.v", tensor_of(inputs.at("v_gate"))}};
    Question question;
    question.parameters = &parameters;
    question.q = tensor_of(inputs.at("q")).unsqueeze(0);
    question.k = tensor_of(inputs.at("k")).unsqueeze(0);
    question.key.positions = question.query.positions = at::arange(5, at::kDouble).view({1, 5, 1});
    NamedTensors state;
    const NamedTensors kept = encoding->arrive(question, state);
    question.kept = &kept;
    const GatedForm form = std::get<GatedForm>(encoding->biases(question).at(0).form);
    expect_near(form.omega, outputs.at("omega"), 1e-14, "omega");
    expect_near(form.key, outputs.at("lambda_k"), 1e-14, "lambda_k");
    expect_near(form.query, outputs.at("lambda_q"), 1e-14, "lambda_q");
  }
}

TEST_F(GrapeGolden, Paths) {
  const Json &one = at_id("ap"), &inputs = one.at("inputs");
  // The probes of both heads side by side are x; each head's weight picks its own.
  const at::Tensor p = tensor_of(inputs.at("p"));  // (2, 7, 4)
  for (const std::string variant : {"released", "paper", "relative"})
    for (const Way& way : kWays) {
      SCOPED_TRACE(str(variant, ", ", way.name));
      const Json& outputs = one.at("outputs").at(variant);
      const double tolerance = bound(one, way);
      Call call = call_of(inputs);
      call.encoding = str("grape-ap(width=4, variant=", variant, ", learn_alpha=true)");
      call.x = p.transpose(0, 1).flatten(1).contiguous();
      const at::Tensor alpha = tensor_of(inputs.at("alpha"));
      call.parameters = {{"grape-ap.weight", at::eye(8, at::kDouble).view({2, 4, 8})},
                         {"grape-ap.log_alpha", alpha.log()}};
      expect_near(logits(call, way), outputs.at("logits"), tolerance, "logits");
      Call biases = call;
      biases.q = at::zeros_like(call.q);
      const at::Tensor b = logits(biases, way);
      expect_near(b, outputs.at("b"), tolerance, "b");
      biases.first_position = 5;
      const at::Tensor moved = logits(biases, way), visible = b.isfinite();
      const double change = (moved - b).masked_select(visible).abs().max().item<double>();
      EXPECT_NEAR(change, outputs.at("max_bias_change_when_all_positions_shift_by_5").get<double>(), 4 * tolerance);
      if (variant == "released")
        expect_near(moved, outputs.at("b_when_first_position_is_5"), tolerance, "b from position 5");
      const Answer found = answer(call, way);
      expect_common(found, outputs, tolerance, "d");
      expect_near(found.gradient.at("x").view({7, 2, 4}).transpose(0, 1), outputs.at("dp"), tolerance, "dp");
      expect_near(found.gradient.at("grape-ap.log_alpha") / alpha.to(way.dtype), outputs.at("d_alpha"), tolerance,
                  "d_alpha");
    }
}

TEST_F(GrapeGolden, KeptProbesAreTurnedAsTheFileSays) {
  const Json &one = at_id("ap"), &inputs = one.at("inputs");
  const at::Tensor p = tensor_of(inputs.at("p"));
  const auto encoding = make_encoding("grape-ap(width=4)", {.heads = 2, .head_dim = 4, .width = 8});
  const NamedTensors parameters = {{"grape-ap.weight", at::eye(8, at::kDouble).view({2, 4, 8})}};
  Question question;
  question.parameters = &parameters;
  question.x = p.transpose(0, 1).flatten(1).unsqueeze(0);
  question.k = tensor_of(inputs.at("k")).unsqueeze(0);
  question.key.positions = at::arange(7, at::kDouble).view({1, 7, 1});
  NamedTensors state;
  expect_near(encoding->arrive(question, state).at("grape-ap.probe"), one.at("outputs").at("p_rot_released"), 1e-14,
              "turned probes");
}

// Both sides normalised: no edge can cost less than alpha * 0.3133 or more than alpha * 1.3133.
TEST_F(GrapeGolden, RangeOfAnEdgeInThePaper) {
  const Json& outputs = at_id("ap_range").at("outputs");
  Call call;
  call.encoding = "grape-ap(width=2, variant=paper, learn_alpha=true)";
  call.q = at::zeros({1, 3, 2}, at::kDouble), call.k = at::zeros({1, 3, 2}, at::kDouble);
  call.v = call.k;
  // Long, so that the epsilon beside the mean square does not matter; all at position 0 but the last edge's own turn.
  call.x = at::tensor({3e8, 4e8, -3e8, -4e8, 3e8, 4e8}, at::kDouble).view({3, 2});
  call.parameters = {{"grape-ap.weight", at::eye(2, at::kDouble).unsqueeze(0)},
                     {"grape-ap.log_alpha", at::zeros({1}, at::kDouble)}};
  const auto encoding = make_encoding(call.encoding, {.heads = 1, .head_dim = 2});
  AttendOptions options;
  options.positions = at::zeros({1, 3, 1}, at::kDouble);
  options.x = call.x.unsqueeze(0);
  options.parameters = call.parameters;
  options.need_lse = true;
  const at::Tensor unit = at::eye(3, at::kDouble).view({1, 1, 3, 3});
  const Attended found = attend_full(call.q.unsqueeze(0), call.k.unsqueeze(0), unit, *encoding, options);
  const at::Tensor b = (found.out.log() + found.lse.unsqueeze(3))[0][0][2];
  const double nearest = (b[1] - b[2]).item<double>(), next = (b[0] - b[1]).item<double>();
  EXPECT_NEAR(nearest, outputs.at("psi_over_alpha_max").get<double>(), 1e-14);
  EXPECT_NEAR(next, outputs.at("psi_over_alpha_min").get<double>(), 1e-14);
}

TEST_F(GrapeGolden, LongPath) {
  const Json &one = at_id("long_ap"), &inputs = one.at("inputs"), &outputs = one.at("outputs");
  Call call = call_of(inputs);
  call.encoding = "grape-ap(learn_alpha=true)";
  call.x = tensor_of(inputs.at("p"))[0];
  const at::Tensor alpha = tensor_of(inputs.at("alpha"));
  call.parameters = {{"grape-ap.weight", at::eye(8, at::kDouble).unsqueeze(0)}, {"grape-ap.log_alpha", alpha.log()}};
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const double tolerance = bound(one, way);
    const Answer found = answer(call, way);
    expect_common(found, outputs, tolerance, "d_");
    expect_near(found.lse, outputs.at("lse"), tolerance, "lse");
    expect_near(found.gradient.at("x"), outputs.at("d_p"), tolerance, "d_p");
    expect_near(found.gradient.at("grape-ap.log_alpha") / alpha.to(way.dtype), outputs.at("d_alpha"), tolerance,
                "d_alpha");
  }
}

TEST_F(GrapeGolden, LongFox) {
  const Json &one = at_id("long_fox"), &outputs = one.at("outputs");
  Call call = call_of(at_id("long_ap").at("inputs"));
  call.encoding = "fox";
  // x is the gate's logit; f = sigmoid(z), so d ln f / dz = 1 - f.
  const at::Tensor log_gate = tensor_of(one.at("inputs").at("log_f"))[0], rest = -at::expm1(log_gate);
  call.x = (log_gate - rest.log()).unsqueeze(1);
  call.parameters = {{"fox.weight", at::ones({1, 1}, at::kDouble)}, {"fox.bias", at::zeros({1}, at::kDouble)}};
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const double tolerance = bound(one, way);
    const Answer found = answer(call, way);
    expect_common(found, outputs, tolerance, "d_");
    expect_near(found.lse, outputs.at("lse"), tolerance, "lse");
    expect_near(found.gradient.at("x")[0].select(1, 0) / rest, outputs.at("d_log_f"), tolerance, "d_log_f");
  }
}

TEST_F(GrapeGolden, LongGatedSlopes) {
  const Json &one = at_id("long_a_qk"), &inputs = one.at("inputs"), &outputs = one.at("outputs");
  Call call = call_of(at_id("long_ap").at("inputs"));
  call.encoding = "grape-a(gate=qk, variant=paper)";
  call.scale = 1 / std::sqrt(8.0);
  // Two more channels carry the gates' logits past the product: one is read of q alone, the other of k alone.
  const auto before_softplus = [](const at::Tensor& y) { return at::expm1(y).log(); };
  const at::Tensor gate_q = before_softplus(tensor_of(inputs.at("lambda_q"))).unsqueeze(2),
                   gate_k = before_softplus(tensor_of(inputs.at("lambda_k"))).unsqueeze(2);
  const double omega = inputs.at("omega").get<double>(), rho = std::log(std::expm1(omega)), root = std::sqrt(10.0);
  call.q = at::cat({call.q, gate_q, at::zeros_like(gate_q)}, 2);
  call.k = at::cat({call.k, at::zeros_like(gate_k), gate_k}, 2);
  at::Tensor v = at::zeros({1, 10}, at::kDouble), u = v.clone();
  v[0][8] = root, u[0][9] = root;
  call.parameters = {{"grape-a.v", v}, {"grape-a.u", u}, {"grape-a.rho", at::full({1}, rho, at::kDouble)}};
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const double tolerance = bound(one, way);
    const Answer found = answer(call, way);
    expect_near(found.out, outputs.at("out"), tolerance, "out");
    expect_near(found.lse, outputs.at("lse"), tolerance, "lse");
    const at::Tensor dq = found.gradient.at("q"), dk = found.gradient.at("k");
    expect_near(dq.narrow(3, 0, 8), outputs.at("d_q"), tolerance, "d_q");
    expect_near(dk.narrow(3, 0, 8), outputs.at("d_k"), tolerance, "d_k");
    expect_near(found.gradient.at("v"), outputs.at("d_v"), tolerance, "d_v");
    expect_near(dq.select(3, 8) / at::sigmoid(gate_q.squeeze(2)), outputs.at("d_lambda_q"), tolerance, "d_lambda_q");
    expect_near(dk.select(3, 9) / at::sigmoid(gate_k.squeeze(2)), outputs.at("d_lambda_k"), tolerance, "d_lambda_k");
    // The sum over all pairs, which float32 rounds in each of its terms.
    EXPECT_NEAR(found.gradient.at("grape-a.rho").item<double>() * (1 + std::exp(-rho)),
                outputs.at("d_omega").get<double>(), (way.dtype == at::kDouble ? 20 : 10) * tolerance);
  }
}

TEST_F(GrapeGolden, SlopesAreAlibis) {
  const Json &one = at_id("alibi_slopes"), &inputs = one.at("inputs"), &outputs = one.at("outputs");
  for (std::size_t n = 0; n < inputs.at("heads").size(); ++n) {
    const std::int64_t heads = inputs.at("heads").at(n).get<std::int64_t>();
    const std::vector<double> wanted = outputs.at("slopes").at(n).get<std::vector<double>>();
    for (const char* expression : {"grape-a", "grape-a(gate=qk)", "grape-ap", "alibi"}) {
      const std::vector<double> found = make_encoding(expression, {.heads = heads, .head_dim = 2})->slopes();
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t h = 0; h < wanted.size(); ++h) EXPECT_NEAR(found[h] / wanted[h], 1, 1e-15) << expression;
    }
  }
}

}  // namespace
}  // namespace torsor
