// What the additive encodings of GRAPE equal exactly: each other, ALiBi, FoX, and the group that they are written as.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/attention/drawn.h"
#include "torsor/group/lifts.h"

namespace torsor::attention_test {
namespace {

TEST(GrapeRecovery, WithoutAGateItIsAlibiBitForBit) {
  for (const std::int64_t heads : {1, 4, 6}) {
    const Drawn ours("grape-a", 2, 12, at::kDouble, {heads, heads}), alibi("alibi", 2, 12, at::kDouble, {heads, heads});
    for (const bool causal : {true, false})
      for (const Path path : {Path::Reference, Path::Auto}) {
        AttendOptions options = ours.options;
        options.causal = causal;
        options.path = path;
        EXPECT_TRUE(same_bits(attend(ours.q, ours.k, ours.v, *ours.encoding, options),
                              attend(ours.q, ours.k, ours.v, *alibi.encoding, options)));
      }
  }
  Drawn learned("grape-a(learn_slopes=true)", 1, 9);
  learned["grape-a.log_slopes"] = at::tensor(learned.encoding->parameters(0).at(0).initial.values, doubles());
  EXPECT_LE(row_error(learned.full().out, Drawn("alibi", 1, 9).full().out), 1e-14);
}

TEST(GrapeRecovery, AForgetGateThatDoesNotChangeIsAlibi) {
  Drawn fox("fox", 2, 40);
  const Drawn alibi("alibi", 2, 40);
  const at::Tensor slopes = at::tensor(alibi.encoding->slopes(), doubles());
  fox["fox.weight"].zero_();
  fox["fox.bias"] = -at::expm1(slopes).log();  // ln sigmoid(z) = -slope
  EXPECT_LE(apart(fox.bias(), alibi.bias()), 1e-13);
  EXPECT_LE(row_error(fox.full().out, alibi.full().out), 1e-13);
}

TEST(GrapeRecovery, AGateThatDoesNotChangeIsAlibi) {
  for (const std::string gate : {"k", "q", "qk"}) {
    Drawn gated(str("grape-a(gate=", gate, ")"), 2, 20);
    if (gate != "q") gated["grape-a.u"].zero_();
    if (gate != "k") gated["grape-a.v"].zero_();
    const double rate = std::log(2.0) * (gate == "qk" ? 2 : 1);  // softplus(0)
    gated["grape-a.rho"].fill_(std::log(std::expm1(1 / rate)));
    EXPECT_LE(row_error(gated.full().out, Drawn("alibi", 2, 20).full().out), 1e-13) << gate;
  }
}

TEST(GrapeRecovery, APathOfEqualEdgesIsAlibi) {
  for (const char* variant : {"released", "paper", "relative"}) {
    Drawn path(str("grape-ap(learn_alpha=true, variant=", variant, ")"), 2, 30);
    const Drawn alibi("alibi", 2, 30);
    path["grape-ap.weight"].zero_();
    path["grape-ap.log_alpha"] = (at::tensor(alibi.encoding->slopes(), doubles()) / std::log(2.0)).log();
    EXPECT_LE(row_error(path.full().out, alibi.full().out), 1e-13) << variant;
  }
}

// Edges that do not depend on the query are forget gates.
TEST(GrapeRecovery, APathThatNoQueryChangesIsFox) {
  const std::int64_t tokens = 25;
  Drawn path("grape-ap(width=2, variant=relative, tie=none)", 1, tokens, at::kDouble, {1, 1});
  Drawn fox("fox", 1, tokens, at::kDouble, {1, 1});
  // All tokens at one place, the query's probe always (1, 1); the key's is (cos, sin) of an angle of its own, times
  // sqrt 2 for its root mean square.
  path.options.positions = at::zeros({1, tokens, 1}, doubles());
  const at::Tensor angle = at::rand({tokens}, doubles()) * 3;
  const double far = 1e4;  // long against the epsilon
  const at::Tensor direction = at::stack({angle.cos(), angle.sin()}, 1) * far;
  path.options.x = at::constant_pad_nd(direction, {0, kCaseWidth - 2}).unsqueeze(0);
  path["grape-ap.weight"] = at::eye(kCaseWidth, doubles()).narrow(0, 0, 2).unsqueeze(0).contiguous();
  // Row by row: the gate of token l as query i sees it is that of FoX with the logit z(i, l).
  const double alpha = path.encoding->slopes().at(0);
  const at::Tensor bias = path.bias()[0][0];
  const at::Tensor z = direction.matmul((direction / far * std::sqrt(2.0)).t()) / 2;
  for (const std::int64_t i : {0, 7, 24}) {
    fox["fox.weight"].zero_(), fox["fox.bias"].zero_();
    fox.options.x = at::constant_pad_nd(z[i].unsqueeze(1), {0, kCaseWidth - 1}).unsqueeze(0);
    fox["fox.weight"][0][0] = 1;
    const at::Tensor gates = fox.bias()[0][0][i] * alpha;
    const at::Tensor seen = gates.narrow(0, 0, i + 1), found = bias[i].narrow(0, 0, i + 1);
    EXPECT_LE(largest(seen - found) / std::max(1.0, largest(seen)), 1e-10) << i;
  }
}

// Edges that read the key alone: every query's probe is the same, and a token's place turns its own, so that its gate
// is its own. The whole is a forget gate with that logit, for all rows and heads at once.
TEST(GrapeRecovery, APathWhoseEdgesReadTheKeyAloneIsFox) {
  const std::int64_t tokens = 24;
  for (const std::string variant : {"released", "paper"}) {
    Drawn path(str("grape-ap(width=2, learn_alpha=true, variant=", variant, ")"), 2, tokens), fox("fox", 2, tokens);
    const at::Tensor places = (at::rand({2, tokens, 1}, doubles()) * 3 + 0.2).cumsum(1);
    path.options.positions = fox.options.positions = places;
    path.options.x.select(2, 0).fill_(1);
    path.options.x.select(2, 1).copy_(places.select(2, 0).cos());
    fox.options.x = path.options.x;
    path["grape-ap.weight"].zero_();
    path["grape-ap.log_alpha"].zero_();
    fox["fox.weight"].zero_();
    fox["fox.bias"].zero_();
    for (std::int64_t h = 0; h < 4; ++h) {
      const double length = 0.5 + static_cast<double>(h), unit = length / std::sqrt(length * length / 2 + 1.1920929e-7);
      path["grape-ap.weight"][h][0][0] = length;
      fox["fox.weight"][h][1] = (variant == "paper" ? unit : length) * unit / 2;
    }
    EXPECT_GT((fox.bias().select(3, 0) * -1).nan_to_num(0, 0, 0).diff(1, 2).std().item<double>(), 0.1);  // gates differ
    EXPECT_LE(apart(path.bias(), fox.bias()), 1e-13) << variant;
    EXPECT_LE(row_error(path.full().out, fox.full().out), 1e-13) << variant;
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Products of unipotent matrices on vectors of two dimensions more, multiplied out, are the library's logits

/// The logits of row 0, (H, T, T): q^ . (of_path(h, i, j))^-T k^, with q scaled.
template <class OfPath>
at::Tensor lifted(const Drawn& call, OfPath of_path) {
  const std::int64_t heads = call.q.size(1), group = heads / call.k.size(1), tokens = call.q.size(2),
                     d = call.q.size(3);
  at::Tensor all = at::full({heads, tokens, tokens}, -HUGE_VAL, doubles());
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        const at::Tensor q = group::lift_query(call.q[0][h][i] / std::sqrt(static_cast<double>(d)));
        const at::Tensor k = group::lift_key(call.k[0][h / group][j]);
        all[h][i][j] = at::dot(q, at::mv(at::linalg_inv(of_path(h, i, j)).t(), k));
      }
  return all;
}

/// The product of I - psi(i, l) E over l from j + 1 to i.
at::Tensor steps(std::int64_t width, std::int64_t i, std::int64_t j, const std::function<double(std::int64_t)>& psi) {
  at::Tensor product = at::eye(width + 2, doubles());
  for (std::int64_t l = j + 1; l <= i; ++l)
    product = at::matmul(product, group::unipotent(group::lift_unit(width), -psi(l)));
  return product;
}

double log_sigmoid(double z) { return z < 0 ? z - std::log1p(std::exp(z)) : -std::log1p(std::exp(-z)); }
double softplus(double z) { return -log_sigmoid(-z); }

TEST(GrapeRecovery, EqualStepsAreAlibi) {
  for (const char* expression : {"alibi", "grape-a"}) {
    const Drawn alibi(expression, 1, 9);
    const std::vector<double> slopes = alibi.encoding->slopes();
    const auto product = [&](std::int64_t h, std::int64_t i, std::int64_t j) {
      return steps(6, i, j, [&](std::int64_t) { return -slopes.at(static_cast<std::size_t>(h)); });
    };
    EXPECT_LE(apart(alibi.logits()[0], lifted(alibi, product)), 1e-13);
  }
}

TEST(GrapeRecovery, StepsOfForgetGatesAreFox) {
  Drawn fox("fox", 1, 9);
  const at::Tensor z = at::matmul(fox.options.x[0], fox["fox.weight"].t()) + fox["fox.bias"];
  const auto product = [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    return steps(6, i, j, [&](std::int64_t l) { return log_sigmoid(z[l][h].item<double>()); });
  };
  EXPECT_LE(apart(fox.logits()[0], lifted(fox, product)), 1e-13);
}

// A path of its own for every row: the probe of query i takes part in all of the row's steps.
TEST(GrapeRecovery, StepsOfARowAreItsPath) {
  Drawn path("grape-ap(width=2)", 1, 9);
  const std::vector<double> alpha = path.encoding->slopes();
  const at::Tensor p = at::matmul(path.options.x[0], path["grape-ap.weight"].transpose(1, 2));  // (H, T, 2)
  const auto product = [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    return steps(6, i, j, [&](std::int64_t l) {
      const double a = p[h][l][0].item<double>(), b = p[h][l][1].item<double>(), n = static_cast<double>(l);
      const double length = std::sqrt((a * a + b * b) / 2 + 1.1920929e-7);
      const double turned_a = a * std::cos(n) + b * std::sin(n), turned_b = b * std::cos(n) - a * std::sin(n);
      const double z = p[h][i][0].item<double>() * turned_a + p[h][i][1].item<double>() * turned_b;
      return alpha.at(static_cast<std::size_t>(h)) * log_sigmoid(z / length / 2);
    });
  };
  EXPECT_LE(apart(path.logits()[0], lifted(path, product)), 1e-13);
}

// No path but one generator for each query and key, at the difference of their positions.
TEST(GrapeRecovery, AGeneratorForEveryPairIsAGatedSlope) {
  Drawn gated("grape-a(gate=qk, variant=paper)", 1, 9);
  gated.options.positions = (at::rand({1, 9, 1}, doubles()) * 2).cumsum(1);
  const auto rate = [&](const at::Tensor& vector, const at::Tensor& token) {
    return softplus(at::dot(vector, token).item<double>() / std::sqrt(6.0));
  };
  const auto product = [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    const double both =
        rate(gated["grape-a.v"][h], gated.q[0][h][i]) + rate(gated["grape-a.u"][h / 2], gated.k[0][h / 2][j]);
    const double omega = softplus(gated["grape-a.rho"][h].item<double>());
    const double m = (gated.options.positions[0][j][0] - gated.options.positions[0][i][0]).item<double>();
    return group::unipotent(group::twice_generator(6, both), m * omega);
  };
  EXPECT_LE(apart(gated.logits()[0], lifted(gated, product)), 1e-13);
}

}  // namespace
}  // namespace torsor::attention_test
