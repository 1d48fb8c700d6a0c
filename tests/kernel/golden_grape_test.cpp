// The fused kernel on the shared golden values of GRAPE: FoX's potentials, gated slopes, path integrals. The file holds
// what models learn (gate vectors, forget gates, probes); how the kernel's numbers follow from them, and the gradients
// back, stands here in plain float64.
//
// The kernel's results are float32: 1e-5 of a tensor's Euclidean length everywhere, and of a bias 1e-5 of
// max(1, |bias|).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/golden_grape.h"
#include "tests/kernel/call.h"
#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

using Json = nlohmann::json;

constexpr double tolerance = 1e-5;

class GoldenGrape : public GoldenGrapeFile<Json> {
 protected:
  const Json& at(const std::string& id) const { return at_id(id); }
};

/// Nested lists, the last axes of a tensor; axes in front are 1. What is hidden is "-inf".
Tensor tensor_of(const Json& json) {
  NestedNumbers<Json> numbers(json);
  std::vector<std::int64_t>& extent = numbers.shape;
  while (extent.size() < 4) extent.insert(extent.begin(), 1);
  Tensor tensor(extent[0], extent[1], extent[2], extent[3]);
  for (std::size_t n = 0; n < numbers.values.size(); ++n) tensor.data[n] = numbers.values[n];
  return tensor;
}

/// One number a head, as the kernel's test has them.
Tensor of_heads(const Json& json) {
  Tensor tensor = tensor_of(json);
  tensor.extent = {1, tensor.extent[3], 1, 1};
  return tensor;
}
/// (heads, tokens) to one number a token.
Tensor of_tokens(const Json& json) {
  Tensor tensor = tensor_of(json);
  tensor.extent = {1, tensor.extent[2], tensor.extent[3], 1};
  return tensor;
}

void expect_near(const char* name, const Tensor& found, const Tensor& expected) {
  ASSERT_EQ(found.data.size(), expected.data.size()) << name;
  double error = 0, size = 0;
  for (std::size_t n = 0; n < expected.data.size(); ++n) {
    error += std::pow(found.data[n] - expected.data[n], 2);
    size += std::pow(expected.data[n], 2);
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(size)) << name;
}

Problem problem_of(const Json& inputs) {
  const Tensor q = tensor_of(inputs.at("q")), v = tensor_of(inputs.at("v"));
  const std::int64_t heads = q.extent[1], tokens = q.extent[2];
  Problem p = draw({1, heads, heads, tokens, tokens, q.extent[3], v.extent[3]});
  p.q = q, p.k = tensor_of(inputs.at("k")), p.v = v;
  return p;
}

BiasNumbers bias_for(const Problem& p, Form form) {
  BiasNumbers bias = draw_bias(p, form, 0, p.shape.heads);  // for the positions; its numbers are replaced
  bias.is = {};
  return bias;
}

/// The biases that the kernel adds: of queries of zeros and values that are rows of the unit matrix, what comes out is
/// the weights, whose logarithms are the biases.
void expect_biases(Problem p, const Tensor& expected) {
  const std::int64_t tokens = p.shape.keys;
  std::fill(p.q.data.begin(), p.q.data.end(), 0);
  p.shape.value_width = tokens;
  p.v = Tensor(1, p.shape.heads, tokens, tokens);
  for (std::int64_t h = 0; h < p.shape.heads; ++h)
    for (std::int64_t j = 0; j < tokens; ++j) p.v(0, h, j, j) = 1;
  const Result found = run_forward(p);
  for (std::int64_t h = 0; h < p.shape.heads; ++h)
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j < tokens; ++j) {
        const double bias = std::log(found.out(0, h, i, j)) + found.lse(0, h, i, 0), meant = expected(0, h, i, j);
        if (std::isinf(meant))
          EXPECT_EQ(bias, meant) << h << " " << i << " " << j;
        else
          EXPECT_NEAR(bias, meant, tolerance * std::max(1.0, std::abs(meant))) << h << " " << i << " " << j;
      }
}

Found run(const Problem& p, const Json& inputs) {
  Incoming in;
  in.dout = tensor_of(inputs.at("go"));
  return run_backward(p, in);
}

double softplus(double z) { return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))); }
double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }
double log_sigmoid(double z) { return -softplus(-z); }

double dot(const double* left, const double* right, std::int64_t width) {
  double sum = 0;
  for (std::int64_t c = 0; c < width; ++c) sum += left[c] * right[c];
  return sum;
}

// ---------------------------------------------------------------------------------------------------------------------
// FoX: running sums of ln(forget gate)

Tensor running_sums(const Tensor& log_gates) {
  Tensor sums = log_gates;
  for (std::int64_t h = 0; h < sums.extent[1]; ++h)
    for (std::int64_t t = 1; t < sums.extent[2]; ++t) sums(0, h, t, 0) += sums(0, h, t - 1, 0);
  return sums;
}

/// Of ln(gate), from those of both sides' sums: every later sum holds the gate.
Tensor gate_gradients(const Parameters& bias) {
  Tensor gates = bias.query;
  for (std::int64_t h = 0; h < gates.extent[1]; ++h) {
    double sum = 0;
    for (std::int64_t t = gates.extent[2] - 1; t >= 0; --t)
      gates(0, h, t, 0) = sum += bias.query(0, h, t, 0) + bias.key(0, h, t, 0);
  }
  return gates;
}

TEST_F(GoldenGrape, Fox) {
  const Json &inputs = at("fox").at("inputs"), &outputs = at("fox").at("outputs");
  Problem p = problem_of(inputs);
  const Tensor x = tensor_of(inputs.at("x")), w = tensor_of(inputs.at("W")), b = of_heads(inputs.at("b"));
  const std::int64_t heads = p.shape.heads, tokens = p.shape.keys, width = x.extent[3];
  Tensor gate(1, heads, tokens, 1), log_gate = gate;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t t = 0; t < tokens; ++t) {
      gate(0, h, t, 0) = dot(x.row(0, 0, t), w.row(0, 0, h), width) + b(0, h, 0, 0);
      log_gate(0, h, t, 0) = log_sigmoid(gate(0, h, t, 0));
    }
  p.biases = {bias_for(p, Form::Potential)};
  p.biases[0].is.query = p.biases[0].is.key = running_sums(log_gate);
  testing::on_every_target([&] {
    expect_biases(p, tensor_of(outputs.at("D")));
    const Found found = run(p, inputs);
    expect_near("out", found.result.out, tensor_of(outputs.at("out")));
    expect_near("dq", found.gradients.q, tensor_of(outputs.at("dq")));
    expect_near("dk", found.gradients.k, tensor_of(outputs.at("dk")));
    expect_near("dv", found.gradients.v, tensor_of(outputs.at("dv")));
    Tensor dgate = gate_gradients(found.gradients.biases[0]), dw = w, db = b, dx = x;
    for (Tensor* sum : {&dw, &db, &dx}) std::fill(sum->data.begin(), sum->data.end(), 0);
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t t = 0; t < tokens; ++t) {
        const double slope = dgate(0, h, t, 0) *= sigmoid(-gate(0, h, t, 0));
        db(0, h, 0, 0) += slope;
        for (std::int64_t c = 0; c < width; ++c) {
          dw(0, 0, h, c) += slope * x(0, 0, t, c);
          dx(0, 0, t, c) += slope * w(0, 0, h, c);
        }
      }
    expect_near("d_gate_logit", dgate, of_tokens(outputs.at("d_gate_logit")));
    expect_near("dW", dw, tensor_of(outputs.at("dW")));
    expect_near("db", db, of_heads(outputs.at("db")));
    expect_near("dx", dx, tensor_of(outputs.at("dx")));
  });
}

/// What the three long cases share: out, lse and the gradients of q, k and v.
void expect_long(const Found& found, const Json& outputs) {
  expect_near("out", found.result.out, tensor_of(outputs.at("out")));
  expect_near("lse", found.result.lse, of_tokens(outputs.at("lse")));
  expect_near("d_q", found.gradients.q, tensor_of(outputs.at("d_q")));
  expect_near("d_k", found.gradients.k, tensor_of(outputs.at("d_k")));
  expect_near("d_v", found.gradients.v, tensor_of(outputs.at("d_v")));
}

TEST_F(GoldenGrape, LongFox) {
  const Json &inputs = at("long_ap").at("inputs"), &outputs = at("long_fox").at("outputs");
  Problem p = problem_of(inputs);
  p.biases = {bias_for(p, Form::Potential)};
  p.biases[0].is.query = p.biases[0].is.key = running_sums(of_tokens(at("long_fox").at("inputs").at("log_f")));
  testing::on_every_target([&] {
    const Found found = run(p, inputs);
    expect_long(found, outputs);
    expect_near("d_log_f", gate_gradients(found.gradients.biases[0]), of_tokens(outputs.at("d_log_f")));
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Gated slopes

/// One side's gate: softplus(<vector of the head, token> / sqrt(width)), the vector as it is or of length 1.
struct Gate {
  Tensor vector, length, logit;

  Gate(const Json& vectors, const Tensor& tokens, bool unit) : vector(tensor_of(vectors)), tokens_(tokens) {
    const std::int64_t heads = tokens.extent[1], width = tokens.extent[3];
    length = Tensor(1, heads, 1, 1), logit = Tensor(1, heads, tokens.extent[2], 1);
    for (std::int64_t h = 0; h < heads; ++h) {
      double* of_head = vector.row(0, 0, h);
      length(0, h, 0, 0) = unit ? std::sqrt(dot(of_head, of_head, width)) : 1;
      for (std::int64_t c = 0; c < width; ++c) of_head[c] /= length(0, h, 0, 0);
      for (std::int64_t t = 0; t < tokens.extent[2]; ++t)
        logit(0, h, t, 0) = dot(of_head, tokens.row(0, h, t), width) / std::sqrt(static_cast<double>(width));
    }
    unit_ = unit;
  }
  Tensor values() const {
    Tensor gates = logit;
    for (double& value : gates.data) value = softplus(value);
    return gates;
  }
  /// From the gradients of the gates: those of the vectors, and what comes to the tokens.
  Tensor pull(const Tensor& of_gates, Tensor& of_tokens) const {
    Tensor of_vectors = vector;
    std::fill(of_vectors.data.begin(), of_vectors.data.end(), 0);
    const std::int64_t width = vector.extent[3];
    for (std::int64_t h = 0; h < tokens_.extent[1]; ++h) {
      const double* of_head = vector.row(0, 0, h);
      double* sum = of_vectors.row(0, 0, h);
      for (std::int64_t t = 0; t < tokens_.extent[2]; ++t) {
        const double slope = of_gates(0, h, t, 0) * sigmoid(logit(0, h, t, 0)) / std::sqrt(static_cast<double>(width));
        for (std::int64_t c = 0; c < width; ++c) {
          sum[c] += slope * tokens_(0, h, t, c);
          of_tokens(0, h, t, c) += slope * of_head[c];
        }
      }
      if (!unit_) continue;
      const double along = dot(of_head, sum, width);
      for (std::int64_t c = 0; c < width; ++c) sum[c] = (sum[c] - along * of_head[c]) / length(0, h, 0, 0);
    }
    return of_vectors;
  }

 private:
  const Tensor& tokens_;
  bool unit_;
};

/// omega times the gates.
Tensor rates(const Tensor& gates, const Tensor& omega) {
  Tensor product = gates;
  for (std::int64_t h = 0; h < gates.extent[1]; ++h)
    for (std::int64_t t = 0; t < gates.extent[2]; ++t) product(0, h, t, 0) *= omega(0, h, 0, 0);
  return product;
}

/// Adds what omega gets from one side's rates.
void add_omega(const Tensor& of_rates, const Tensor& gates, Tensor& domega) {
  for (std::int64_t h = 0; h < gates.extent[1]; ++h)
    for (std::int64_t t = 0; t < gates.extent[2]; ++t) domega(0, h, 0, 0) += of_rates(0, h, t, 0) * gates(0, h, t, 0);
}

void check_gated(const Json& inputs, const Json& outputs, bool by_query, bool by_key, bool released) {
  Problem p = problem_of(inputs);
  const Tensor rho = of_heads(inputs.at("rho")), slopes = of_heads(inputs.at("slopes"));
  Tensor omega = rho, of_rho = rho;
  for (std::size_t h = 0; h < omega.data.size(); ++h) {
    const double slope = released ? slopes.data[h] : 1;
    omega.data[h] = softplus(rho.data[h]) * slope;
    of_rho.data[h] = sigmoid(rho.data[h]) * slope;
  }
  const Gate query(inputs.at("v_gate"), p.q, released), key(inputs.at("u"), p.k, released);
  const Tensor query_gates = query.values(), key_gates = key.values();
  p.biases = {bias_for(p, Form::Gated)};
  if (by_query) p.biases[0].is.query = rates(query_gates, omega);
  if (by_key) p.biases[0].is.key = rates(key_gates, omega);
  testing::on_every_target([&] {
    expect_biases(p, tensor_of(outputs.at("bias")));
    const Found found = run(p, inputs);
    const Parameters& bias = found.gradients.biases[0];
    Tensor dq = found.gradients.q, dk = found.gradients.k, domega(1, p.shape.heads, 1, 1);
    if (by_query) {
      add_omega(bias.query, query_gates, domega);
      expect_near("d_v_gate", query.pull(rates(bias.query, omega), dq), tensor_of(outputs.at("d_v_gate")));
      expect_near("lambda_q", query_gates, of_tokens(outputs.at("lambda_q")));
    }
    if (by_key) {
      add_omega(bias.key, key_gates, domega);
      expect_near("d_u", key.pull(rates(bias.key, omega), dk), tensor_of(outputs.at("d_u")));
      expect_near("lambda_k", key_gates, of_tokens(outputs.at("lambda_k")));
    }
    expect_near("out", found.result.out, tensor_of(outputs.at("out")));
    expect_near("dq", dq, tensor_of(outputs.at("dq")));
    expect_near("dk", dk, tensor_of(outputs.at("dk")));
    expect_near("dv", found.gradients.v, tensor_of(outputs.at("dv")));
    for (std::size_t h = 0; h < domega.data.size(); ++h) domega.data[h] *= of_rho.data[h];
    expect_near("d_rho", domega, of_heads(outputs.at("d_rho")));
  });
}

TEST_F(GoldenGrape, GatedSlopes) {
  for (const std::string sides : {"k", "q", "qk"})
    for (const bool released : {true, false}) {
      SCOPED_TRACE(sides + (released ? ", released" : ", paper"));
      const Json& one = at("a_gated_" + sides);
      check_gated(one.at("inputs"), one.at("outputs").at(released ? "released" : "paper"), sides != "k", sides != "q",
                  released);
    }
}

TEST_F(GoldenGrape, LongGatedSlopes) {
  const Json& one = at("long_a_qk");
  const Json &inputs = at("long_ap").at("inputs"), &outputs = one.at("outputs");
  Problem p = problem_of(inputs);
  Tensor omega(1, 1, 1, 1), domega = omega;
  omega.data[0] = one.at("inputs").at("omega").get<double>();
  const Tensor query = of_tokens(one.at("inputs").at("lambda_q")), key = of_tokens(one.at("inputs").at("lambda_k"));
  p.biases = {bias_for(p, Form::Gated)};
  p.biases[0].is.query = rates(query, omega), p.biases[0].is.key = rates(key, omega);
  testing::on_every_target([&] {
    const Found found = run(p, inputs);
    expect_long(found, outputs);
    const Parameters& bias = found.gradients.biases[0];
    expect_near("d_lambda_q", rates(bias.query, omega), of_tokens(outputs.at("d_lambda_q")));
    expect_near("d_lambda_k", rates(bias.key, omega), of_tokens(outputs.at("d_lambda_k")));
    domega.data[0] = 0;
    add_omega(bias.query, query, domega), add_omega(bias.key, key, domega);
    EXPECT_NEAR(domega.data[0], outputs.at("d_omega").get<double>(), tolerance * 5.3);
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Path integrals

/// How a side's probes come from the projections p.
struct Side {
  bool normalised;
  double turn;  ///< radians a token: every plane turns by turn * position
  bool halves;  ///< planes (c, c + width / 2), else (2 c, 2 c + 1)

  void turn_row(double* row, std::int64_t width, double angle) const {
    for (std::int64_t c = 0; c < width / 2; ++c) {
      double &one = row[halves ? c : 2 * c], &two = row[halves ? c + width / 2 : 2 * c + 1];
      const double turned = one * std::cos(angle) - two * std::sin(angle);
      two = one * std::sin(angle) + two * std::cos(angle);
      one = turned;
    }
  }
  static double root(const double* row, std::int64_t width, double epsilon) {
    return std::sqrt(dot(row, row, width) / static_cast<double>(width) + epsilon);
  }
  Tensor probes(const Tensor& p, double epsilon, double first_position) const {
    Tensor probe = p;
    const std::int64_t width = p.extent[3];
    for (std::int64_t h = 0; h < p.extent[1]; ++h)
      for (std::int64_t t = 0; t < p.extent[2]; ++t) {
        double* row = probe.row(0, h, t);
        const double by = normalised ? root(row, width, epsilon) : 1;
        for (std::int64_t c = 0; c < width; ++c) row[c] /= by;
        turn_row(row, width, turn * (first_position + static_cast<double>(t)));
      }
    return probe;
  }
  /// Adds to the gradient of p what comes from that of the probes.
  void pull(const Tensor& p, const Tensor& of_probes, double epsilon, Tensor& sum) const {
    const std::int64_t width = p.extent[3];
    for (std::int64_t h = 0; h < p.extent[1]; ++h)
      for (std::int64_t t = 0; t < p.extent[2]; ++t) {
        std::vector<double> back(of_probes.row(0, h, t), of_probes.row(0, h, t) + width);
        turn_row(back.data(), width, -turn * static_cast<double>(t));
        const double* row = p.row(0, h, t);
        const double by = normalised ? root(row, width, epsilon) : 1;
        const double along = normalised ? dot(row, back.data(), width) / (by * by * static_cast<double>(width)) : 0;
        for (std::int64_t c = 0; c < width; ++c)
          sum(0, h, t, c) += (back[static_cast<std::size_t>(c)] - along * row[c]) / by;
      }
  }
};

struct Variant {
  const char* name;
  Side query, key;
};
const std::vector<Variant> variants = {{"released", {false, 0, true}, {true, -1, true}},
                                       {"paper", {true, 0, false}, {true, 1, false}},
                                       {"relative", {false, -1, true}, {true, -1, true}}};

Problem path_problem(const Json& inputs, const Variant& variant, double first_position) {
  Problem p = problem_of(inputs);
  const Tensor projections = tensor_of(inputs.at("p"));
  const double epsilon = inputs.at("p_eps").get<double>();
  p.biases = {bias_for(p, Form::Path)};
  p.biases[0].is.query = variant.query.probes(projections, epsilon, first_position);
  p.biases[0].is.key = variant.key.probes(projections, epsilon, first_position);
  p.biases[0].is.alpha = of_heads(inputs.at("alpha"));
  return p;
}

Tensor projection_gradients(const Json& inputs, const Variant& variant, const Parameters& bias) {
  const Tensor projections = tensor_of(inputs.at("p"));
  Tensor sum = projections;
  std::fill(sum.data.begin(), sum.data.end(), 0);
  const double epsilon = inputs.at("p_eps").get<double>();
  variant.query.pull(projections, bias.query, epsilon, sum);
  variant.key.pull(projections, bias.key, epsilon, sum);
  return sum;
}

TEST_F(GoldenGrape, Paths) {
  const Json& inputs = at("ap").at("inputs");
  expect_near("p_rot_released", path_problem(inputs, variants[0], 0).biases[0].is.key,
              tensor_of(at("ap").at("outputs").at("p_rot_released")));
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    const Json& outputs = at("ap").at("outputs").at(variant.name);
    const Problem p = path_problem(inputs, variant, 0);
    testing::on_every_target([&] {
      expect_biases(p, tensor_of(outputs.at("b")));
      if (outputs.contains("b_when_first_position_is_5"))
        expect_biases(path_problem(inputs, variant, 5), tensor_of(outputs.at("b_when_first_position_is_5")));
      const Found found = run(p, inputs);
      const Parameters& bias = found.gradients.biases[0];
      expect_near("out", found.result.out, tensor_of(outputs.at("out")));
      expect_near("dq", found.gradients.q, tensor_of(outputs.at("dq")));
      expect_near("dk", found.gradients.k, tensor_of(outputs.at("dk")));
      expect_near("dv", found.gradients.v, tensor_of(outputs.at("dv")));
      expect_near("d_alpha", bias.alpha, of_heads(outputs.at("d_alpha")));
      expect_near("dp", projection_gradients(inputs, variant, bias), tensor_of(outputs.at("dp")));
    });
  }
}

TEST_F(GoldenGrape, LongPath) {
  const Json &inputs = at("long_ap").at("inputs"), &outputs = at("long_ap").at("outputs");
  const Problem p = path_problem(inputs, variants[0], 0);
  testing::on_every_target([&] {
    const Found found = run(p, inputs);
    expect_long(found, outputs);
    const Parameters& bias = found.gradients.biases[0];
    expect_near("d_alpha", bias.alpha, of_heads(outputs.at("d_alpha")));
    expect_near("d_p", projection_gradients(inputs, variants[0], bias), tensor_of(outputs.at("d_p")));
  });
}

}  // namespace
}  // namespace torsor::kernel
