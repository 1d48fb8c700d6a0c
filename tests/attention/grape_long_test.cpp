// The GRAPE family a million tokens in: sums, phases and angles that float32 would lose.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/attention/drawn.h"

namespace torsor::attention_test {
namespace {

TEST(GrapeLong, PotentialsOfAMillionTokensKeepTheirPrecision) {
  const std::int64_t tokens = 1'000'000, chunk = 65'536;
  const auto encoding = make_encoding("fox", {.heads = 1, .head_dim = 2, .width = 1});
  const NamedTensors parameters = {{"fox.weight", at::ones({1, 1})}, {"fox.bias", at::zeros({1})}};
  at::manual_seed(5);
  const at::Tensor x = at::randn({1, tokens, 1});  // float32
  const auto arrive = [&](std::int64_t first, std::int64_t count, NamedTensors& state) {
    Question question;
    question.parameters = &parameters;
    question.x = x.narrow(1, first, count);
    question.k = at::zeros({1, 1, count, 2});
    question.key.positions = at::arange(first, first + count, doubles()).view({1, count, 1});
    return encoding->arrive(question, state).at("fox.potential").flatten();
  };
  NamedTensors whole, parts;
  const at::Tensor potential = arrive(0, tokens, whole);
  EXPECT_EQ(potential.scalar_type(), at::kDouble);
  // The same logarithms, summed in extended precision over the last 256 tokens.
  const float* gate = x.const_data_ptr<float>();
  const double* u = potential.const_data_ptr<double>();
  long double sum = 0;
  double worst = 0;
  for (std::int64_t j = tokens - 1; j >= tokens - 256; --j) {
    worst = std::max(worst, std::abs(u[tokens - 1] - u[j] - static_cast<double>(sum)));
    const long double z = gate[j];
    sum += z < 0 ? z - std::log1p(std::exp(z)) : -std::log1p(std::exp(-z));
  }
  EXPECT_LT(u[tokens - 1], -7e5);
  EXPECT_LE(worst, 1e-7);  // a running sum in float32 is 0.2 off here
  // In chunks, as a cache gets them: the same differences.
  std::vector<at::Tensor> pieces;
  for (std::int64_t first = 0; first < tokens; first += chunk)
    pieces.push_back(arrive(first, std::min(chunk, tokens - first), parts));
  const at::Tensor chunked = at::cat(pieces);
  EXPECT_LE(largest((chunked - potential).narrow(0, tokens - 256, 256) - (chunked - potential)[tokens - 1]), 1e-8);

  // Through attention: the weights of the nearest keys under a query of zeros are their biases.
  at::Tensor v = at::zeros({1, 1, tokens, 16});
  v.narrow(2, tokens - 16, 16).copy_(at::eye(16));
  for (const Path path : {Path::Reference, Path::Fused}) {
    AttendOptions options;
    options.parameters = parameters;
    options.x = x;
    options.path = path;
    options.need_lse = true;
    const Attended one = attend_full(at::zeros({1, 1, 1, 2}), at::zeros({1, 1, tokens, 2}), v, *encoding, options);
    const at::Tensor bias = (one.out.to(at::kDouble).log() + one.lse.to(at::kDouble).unsqueeze(3)).flatten();
    EXPECT_LE(largest(bias - (potential[tokens - 1] - potential.narrow(0, tokens - 16, 16))), 5e-6);
  }
}

/// One query of zeros at the end of `tokens` tokens: what is added to the logits of the nearest 16, (16), all farther
/// ones hidden by a window. q and k (1, 1, T, D).
at::Tensor nearest(const Encoding& encoding, const at::Tensor& q, const at::Tensor& k, AttendOptions options,
                   Path path) {
  const std::int64_t tokens = k.size(2);
  at::Tensor v = at::zeros({1, 1, tokens, 16});
  v.narrow(2, tokens - 16, 16).copy_(at::eye(16));
  options.path = path;
  options.need_lse = true;
  options.window = 16;
  const Attended one = attend_full(q, k, v, encoding, options);
  return (one.out.to(at::kDouble).log() + one.lse.to(at::kDouble).unsqueeze(3)).flatten();
}

// The phases of a million tokens of which each decides how far it goes. In float32 the sum is 0.03 off here, or stops.
TEST(GrapeLong, PhasesOfAMillionTokensKeepTheirPrecision) {
  const std::int64_t tokens = 1'000'000, chunk = 65'536;
  const auto encoding = make_encoding("grape-m(context=true)", {.heads = 1, .head_dim = 2, .width = 1});
  const NamedTensors parameters = {{"grape-m.log_freq", at::zeros({1, 1})},
                                   {"grape-m.gate_weight", at::full({1, 1}, 16.0)},
                                   {"grape-m.gate_bias", at::zeros({1})}};
  at::manual_seed(6);
  const at::Tensor x = at::randn({1, tokens, 1});  // float32
  const auto arrive = [&](std::int64_t first, std::int64_t count, NamedTensors& state) {
    Question question;
    question.parameters = &parameters;
    question.x = x.narrow(1, first, count);
    question.k = at::zeros({1, 1, count, 2});
    question.key.positions = at::arange(first, first + count, doubles()).view({1, count, 1});
    return encoding->arrive(question, state).at("grape-m.phase").flatten();
  };
  NamedTensors whole, parts;
  const at::Tensor phase = arrive(0, tokens, whole);
  EXPECT_EQ(phase.scalar_type(), at::kDouble);
  // The same rates, summed in extended precision over the last 256 tokens: the key's own is in, the query's is not.
  const float* gate = x.const_data_ptr<float>();
  const double* of = phase.const_data_ptr<double>();
  long double sum = 0;
  std::vector<double> turned = {1};  // cos of the angle between the last token and the one so many before it
  double worst = 0;
  for (std::int64_t j = tokens - 2; j >= tokens - 256; --j) {
    sum += 1 / (1 + std::exp(-static_cast<long double>(gate[j])));
    worst = std::max(worst, std::abs(of[tokens - 1] - of[j] - static_cast<double>(sum)));
    turned.push_back(static_cast<double>(std::cos(sum)));
  }
  EXPECT_GT(of[tokens - 1], 4e5);
  EXPECT_LE(worst, 1e-8);
  std::vector<at::Tensor> pieces;
  for (std::int64_t first = 0; first < tokens; first += chunk)
    pieces.push_back(arrive(first, std::min(chunk, tokens - first), parts));
  EXPECT_TRUE(at::cat(pieces).equal(phase));

  // Through attention, whose q and k are float32: unit vectors have the cosine of the angle between them as logit.
  const at::Tensor unit = at::tensor({1.0F, 0.0F}).view({1, 1, 1, 2});
  AttendOptions options;
  options.parameters = parameters;
  options.x = x;
  options.scale = 1;
  for (const Path path : {Path::Reference, Path::Fused}) {
    const at::Tensor found = nearest(*encoding, unit, unit.expand({1, 1, tokens, 2}), options, path);
    for (std::size_t n = 0; n < 16; ++n)
      EXPECT_NEAR(found[15 - static_cast<std::int64_t>(n)].item<double>(), turned[n], 2e-6) << n;
  }
}

// A path over a million edges: what stands at the nearest keys is the sum of the nearest edges, whose probes are turned
// by a million radians. The sum of all edges minus a running one would leave 0.1 of it in float32.
TEST(GrapeLong, PathsOverAMillionTokensKeepTheirPrecision) {
  const std::int64_t tokens = 1'000'000;
  const auto encoding = make_encoding("grape-ap(width=2, learn_alpha=true)", {.heads = 1, .head_dim = 2, .width = 1});
  const float w[2] = {0.75F, -1.25F};
  AttendOptions options;
  options.parameters = {{"grape-ap.weight", at::tensor({w[0], w[1]}).view({1, 2, 1})},
                        {"grape-ap.log_alpha", at::zeros({1})}};
  at::manual_seed(7);
  options.x = at::randn({1, tokens, 1});
  const float* x = options.x.const_data_ptr<float>();
  const auto edge = [&](std::int64_t i, std::int64_t l) {
    const long double a = static_cast<long double>(w[0]) * x[l], b = static_cast<long double>(w[1]) * x[l];
    const long double n = l, length = std::sqrt((a * a + b * b) / 2 + 1.1920929e-7L);
    const long double turned_a = a * std::cos(n) + b * std::sin(n), turned_b = b * std::cos(n) - a * std::sin(n);
    const long double z = x[i] * (w[0] * turned_a + w[1] * turned_b) / length / 2;
    return z < 0 ? z - std::log1p(std::exp(z)) : -std::log1p(std::exp(-z));
  };
  for (const Path path : {Path::Reference, Path::Fused}) {
    const at::Tensor found = nearest(*encoding, at::zeros({1, 1, 1, 2}), at::zeros({1, 1, tokens, 2}), options, path);
    long double sum = 0;
    for (std::int64_t n = 0; n < 16; ++n) {
      EXPECT_NEAR(found[15 - n].item<double>(), static_cast<double>(sum), 5e-6) << n;
      sum += edge(tokens - 1, tokens - 1 - n);
    }
    EXPECT_LT(sum, -5);
  }
}

// Where nothing depends on where a text begins, a float32 call whose text begins a million positions on gives what a
// float64 call gives at the beginning. Thirds of a position, whose products with a frequency float32 has 0.03 off
// there.
TEST(GrapeLong, TextsThatBeginAtAMillionKeepTheirPrecision) {
  const double turn = 2 * std::acos(-1.0);  // probes read their position up to this
  for (const auto& [expression, shift] : std::vector<std::pair<const char*, double>>{
           {"grape-m", 1e6},
           {"grape-m(per_head=true, layout=interleaved, orientation=minus)", 1e6},
           {"grape-m(planes=general)", 1e6},
           {"grape-m(planes=ja)", 1e6},
           {"grape-m(rank=4)", 1e6},
           {"grape-m(basis=cayley)", 1e6},
           {"grape-a", 1e6},
           {"grape-a(gate=k)", 1e6},
           {"grape-a(gate=q, learn_slopes=true)", 1e6},
           {"grape-a(gate=qk, variant=paper)", 1e6},
           {"grape-ap(variant=relative)", 1e6},
           {"grape-ap", 159'155 * turn},
           {"grape-ap(variant=paper)", 159'155 * turn}}) {
    SCOPED_TRACE(expression);
    Drawn wide(expression, 2, 20), narrow(expression, 2, 20, at::kFloat);
    for (const auto& [name, tensor] : wide.options.parameters) narrow[name] = tensor.to(at::kFloat);
    for (const auto& [name, tensor] : narrow.options.parameters) wide[name] = tensor.to(at::kDouble);
    for (const auto& [to, from] : {std::pair{&wide.q, &narrow.q},
                                   {&wide.k, &narrow.k},
                                   {&wide.v, &narrow.v},
                                   {&wide.options.x, &narrow.options.x}})
      *to = from->to(at::kDouble);
    wide.options.positions = wide.options.positions / 3;
    narrow.options.positions = wide.options.positions + shift;
    const at::Tensor wanted = wide.full().out;
    for (const Path path : {Path::Reference, Path::Fused})
      EXPECT_LE(row_error(narrow.full(path).out, wanted), 5e-6) << (path == Path::Fused ? "fused" : "reference");
    // That positions matter at all.
    wide.options.positions = wide.options.positions * 1.01;
    EXPECT_GT(row_error(wide.full().out, wanted), 1e-4);
  }
}

}  // namespace
}  // namespace torsor::attention_test
