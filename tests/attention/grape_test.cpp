// The additive encodings by their properties: the laws that they keep, identities of their gradients, what a cache does
// with them, and their words.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/attention/drawn.h"

namespace torsor::attention_test {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// ---------------------------------------------------------------------------------------------------------------------
// Laws

TEST(Grape, PathsAndPotentialsAreNeverPositiveAndFallWithDistance) {
  for (const char* expression : {"fox", "grape-ap", "grape-ap(variant=paper)", "grape-ap(variant=relative)",
                                 "grape-ap(tie=k)", "fox + grape-ap"}) {
    const at::Tensor bias = Drawn(expression, 2, 17).bias();
    const at::Tensor own = bias.diagonal(0, 2, 3), seen = at::ones({17, 17}, at::kBool).tril();
    EXPECT_LE(largest(own), 1e-15) << expression;
    EXPECT_LE(bias.masked_fill(seen.logical_not(), -1).max().item<double>(), 1e-15) << expression;
    // A farther key never has the larger bias.
    const at::Tensor step = bias.narrow(3, 1, 16) - bias.narrow(3, 0, 16);
    EXPECT_GE(step.masked_fill(seen.narrow(1, 1, 16).logical_not(), 0).min().item<double>(), -1e-15) << expression;
  }
}

// b(t, j) = b(t, m) + the edges from m back to j, which are those of a call that ends there.
TEST(Grape, RowsOfPathsCompose) {
  for (const std::string variant : {"released", "paper", "relative"}) {
    Drawn path(str("grape-ap(width=4, variant=", variant, ")"), 1, 15);
    const at::Tensor bias = path.bias()[0];
    const at::Tensor weight = path["grape-ap.weight"], x = path.options.x[0];
    for (std::int64_t h = 0; h < 4; ++h) {
      const double alpha = path.encoding->slopes().at(static_cast<std::size_t>(h));
      const at::Tensor p = x.matmul(weight[h].t());
      const at::Tensor unit = p / (p.square().mean(-1, true) + 1.1920929e-7).sqrt();
      const auto turned = [&](const at::Tensor& row, double angle) {
        const bool pairs = variant == "paper";
        at::Tensor y = at::empty_like(row);
        for (std::int64_t n = 0; n < 2; ++n) {
          const std::int64_t a = pairs ? 2 * n : n, b = pairs ? 2 * n + 1 : n + 2;
          y[a] = row[a] * std::cos(angle) - row[b] * std::sin(angle);
          y[b] = row[a] * std::sin(angle) + row[b] * std::cos(angle);
        }
        return y;
      };
      const double sign = variant == "paper" ? 1 : -1;
      for (const std::int64_t t : {0, 5, 14}) {
        at::Tensor query = variant == "paper" ? unit[t] : p[t];
        if (variant == "relative") query = turned(query, -static_cast<double>(t));
        double edges = 0;
        for (std::int64_t j = t; j > 0; --j) {
          const double z = (query * turned(unit[j], sign * static_cast<double>(j))).mean().item<double>();
          edges += -alpha * std::log1p(std::exp(-z));
          EXPECT_NEAR(bias[h][t][j - 1].item<double>(), edges, 1e-13) << variant;
          EXPECT_NEAR(bias[h][t][j - 1].item<double>() - bias[h][t][j].item<double>(),
                      -alpha * std::log1p(std::exp(-z)), 1e-13);
        }
      }
    }
  }
}

// The unipotent group law: at fixed content the penalty is proportional to the distance, wherever it begins.
TEST(Grape, AGatedSlopeIsLinearInTheDistance) {
  for (const char* expression : {"grape-a(gate=k)", "grape-a(gate=k, variant=paper)", "grape-a(gate=q)",
                                 "grape-a(gate=q, variant=paper)", "grape-a(gate=qk)"}) {
    Drawn gated(expression, 1, 11);
    const at::Tensor once = gated.bias();
    gated.options.positions = gated.options.positions + 1e5;
    EXPECT_LE(apart(gated.bias(), once), 1e-11) << expression;
    gated.options.positions = (gated.options.positions - 1e5) * 2.5;
    EXPECT_LE(apart(gated.bias(), once * 2.5), 1e-12) << expression;
  }
}

TEST(Grape, OnlyTheRelativePathIgnoresAShift) {
  for (const auto& [variant, relative] : {std::pair{"released", false}, {"paper", false}, {"relative", true}}) {
    Drawn path(str("grape-ap(variant=", variant, ")"), 1, 11);
    const at::Tensor once = path.bias();
    EXPECT_EQ(path.encoding->traits().relative, relative);
    double moved = 0;
    for (const double shift : {0.5, 5.0, 1e6}) {
      Drawn shifted = path;
      shifted.options.positions = path.options.positions + shift;
      moved = std::max(moved, apart(shifted.bias(), once));
    }
    if (relative)
      EXPECT_LE(moved, 1e-8);  // phases of a million radians are good to 1e-10
    else
      EXPECT_GT(moved, 1e-2);
  }
}

// Every tile shape of the kernel, against the dense formula.
TEST(Grape, TheFusedKernelEqualsTheReferenceAtEveryNumberOfTokens) {
  for (const char* expression : {"fox", "grape-a(gate=qk)", "grape-ap", "rope + fox + grape-ap(variant=paper)"})
    for (const std::int64_t tokens : {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200}) {
      const Drawn wide(expression, 1, tokens);
      Drawn narrow(expression, 1, tokens, at::kFloat);
      EXPECT_LE(row_error(narrow.full(Path::Fused).out, wide.full().out), 6e-6) << expression << ' ' << tokens;
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Identities of gradients

// No path leads over a row's first token: its gate and its probe are never used, as rows of softmax gradients sum to 0.
TEST(Grape, TheFirstTokenHasNoEdge) {
  for (const char* expression : {"fox", "grape-ap", "grape-ap(variant=paper)", "grape-ap(variant=relative)"})
    for (const Path path : {Path::Reference, Path::Fused}) {
      Drawn call(expression, 2, 70, path == Path::Fused ? at::kFloat : at::kDouble);
      const at::Tensor dx = gradients(call, {"x"}, path)[0];
      const double size = largest(dx);
      EXPECT_GT(size, 1e-3);
      EXPECT_LE(largest(dx.select(1, 0)), (path == Path::Fused ? 1e-5 : 1e-14) * size) << expression;
    }
}

// Gate vectors of length 1: no gradient along them. The slope and the scale stand in one product.
TEST(Grape, GradientsOfReleasedGates) {
  Drawn call("grape-a(gate=qk, learn_slopes=true)", 2, 12);
  const auto found = gradients(call, {"grape-a.u", "grape-a.v", "grape-a.rho", "grape-a.log_slopes"});
  for (const int n : {0, 1}) {
    const at::Tensor vector = call[n == 0 ? "grape-a.u" : "grape-a.v"];
    EXPECT_LE(largest((found[static_cast<std::size_t>(n)] * vector).sum(-1)), 1e-13);
    EXPECT_GT(largest(found[static_cast<std::size_t>(n)]), 1e-3);
  }
  const at::Tensor rho = call["grape-a.rho"];
  const at::Tensor by_scale = found[3] * at::sigmoid(rho) / at::log1p(rho.exp());
  EXPECT_LE(largest(found[2] - by_scale), 1e-13);
}

// Normalised on both sides, a probe's length does not matter: no gradient along it (up to the epsilon).
TEST(Grape, GradientsOfThePapersPathAreAcrossTheProbe) {
  Drawn call("grape-ap(tie=k, variant=paper)", 2, 12);
  call.q.zero_();  // the product has no part in it
  const at::Tensor dk = gradients(call, {"k"})[0];
  EXPECT_GT(largest(dk), 1e-3);
  EXPECT_LE(largest((dk * call.k).sum(-1)), 1e-6);
}

// A constant on all of a row's logits is invisible: so is the gate of a query's own token to its gradient of alpha.
TEST(Grape, TheSumOfPotentialsGradientsIsZero) {
  Drawn call("fox", 1, 20);
  const at::Tensor x = call.options.x.detach().clone();
  NamedTensors state;
  Question question;
  question.parameters = &call.options.parameters;
  question.x = x;
  question.k = call.k;
  question.key.positions = call.options.positions;
  const NamedTensors kept = call.encoding->arrive(question, state);
  const at::Tensor u = kept.at("fox.potential").detach().clone().requires_grad_(true);
  CoreInput input;
  input.q = call.q, input.k = call.k, input.v = call.v;
  input.scale = 0.4;
  input.biases = {{{0, 4}, PotentialForm{u, u}}};
  input.query_positions = input.key_positions = call.options.positions.select(2, 0);
  const at::Tensor out = reference_attention(input).out;
  const at::Tensor du = torch::autograd::grad({out}, {u}, {at::randn_like(out)})[0];
  EXPECT_GT(largest(du), 1e-3);
  EXPECT_LE(largest(du.sum(-1)), 1e-13);
}

// ---------------------------------------------------------------------------------------------------------------------
// The cache

TEST(GrapeCache, GoesBackAndOnWithDocumentsAndPadding) {
  for (const char* expression : {"fox", "fox + fox", "rope + fox + grape-ap", "heads(fox * 2, grape-a(gate=k) * 2)",
                                 "grape-ap(tie=k)", "layers(fox, rope)"}) {
    SCOPED_TRACE(expression);
    Drawn call(expression, 2, 12);
    call.options.documents =
        longs({-1, 0, 0, 0, 2, 2, -1, 2, 2, 5, 5, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0}).view({2, 12});
    const at::Tensor full = call.full().out;
    Drawn wrong = call;
    wrong.options.x = call.options.x + 1, wrong.k = call.k + 1, wrong.v = call.v + 1;
    KvCache cache = call.cache();
    const auto part = [](const at::Tensor& tensor, std::int64_t first, std::int64_t count) {
      return tensor.narrow(2, first, count);
    };
    cache.append(part(call.k, 0, 5), part(call.v, 0, 5), call.part(0, 5));
    for (const std::int64_t length : {5, 7, 9}) {
      // Speculate, be wrong, go back, go on.
      cache.append(part(wrong.k, length, 3), part(wrong.v, length, 3), wrong.part(length, 3));
      cache.truncate(length + 1);
      cache.truncate(length);
      const Attended one =
          cache.attend(part(call.q, length, 2), part(call.k, length, 2), part(call.v, length, 2), call.part(length, 2));
      EXPECT_LE(row_error(one.out, full.narrow(2, length, 2)), 1e-11) << length;
    }
    cache.truncate(std::int64_t{0});
    const Attended one = cache.attend(part(call.q, 0, 12), part(call.k, 0, 12), part(call.v, 0, 12), call.part(0, 12));
    EXPECT_LE(row_error(one.out, full), 1e-11);
  }
}

TEST(GrapeCache, AShiftOfKeptProbesEqualsAFreshPass) {
  for (const char* expression : {"grape-ap", "grape-ap(variant=paper)", "grape-ap(variant=relative)", "grape-ap(tie=k)",
                                 "fox + grape-ap + grape-a(gate=k)", "heads(fox * 2, grape-ap * 2)"}) {
    SCOPED_TRACE(expression);
    const Drawn call(expression, 2, 7);
    EXPECT_EQ(call.encoding->cache(0).shift, "exact");
    const auto kept_at = [&](const at::Tensor& offsets) {
      Question question;
      question.parameters = &call.options.parameters;
      question.x = call.options.x;
      question.k = call.k;
      question.v = call.v;
      question.key.positions = question.query.positions = call.options.positions + offsets.unsqueeze(2);
      NamedTensors state;
      return call.encoding->arrive(question, state);
    };
    const at::Tensor none = at::zeros({1, 1}, doubles());
    const at::Tensor offsets = at::cat({at::full({1, 7}, -17.5, doubles()), at::arange(7, doubles()).view({1, 7}) * 3});
    const NamedTensors before = kept_at(none), after = kept_at(offsets);
    const NamedTensors shifted = call.encoding->shift_kept(before, offsets);
    const NamedTensors back = call.encoding->shift_kept(shifted, -offsets);
    ASSERT_EQ(shifted.size(), after.size());
    for (const auto& [name, tensor] : after) {
      EXPECT_LE(largest(shifted.at(name) - tensor), 1e-13) << name;
      EXPECT_LE(largest(back.at(name) - before.at(name)), 1e-14) << name;
    }
  }
}

TEST(GrapeCache, SinksAreRefusedByPathsAlone) {
  for (const char* expression : {"fox", "grape-a", "grape-a(gate=qk)"})
    EXPECT_EQ(make_encoding(expression, {.heads = 2, .head_dim = 4})->cache(0).evict, "exact") << expression;
  for (const char* expression : {"grape-ap", "rope + grape-ap", "heads(fox, grape-ap)"}) {
    const std::string evict = make_encoding(expression, {.heads = 2, .head_dim = 4})->cache(0).evict;
    EXPECT_NE(evict.find("sinks"), std::string::npos) << evict;
  }
}

// Probes that are queries: a token that brings none cannot be walked over.
TEST(GrapeCache, TiedToQueriesNeedsThemAll) {
  for (const char* expression : {"grape-ap(tie=q)", "grape-ap(tie=q, variant=paper)", "rope + grape-ap(tie=q)"}) {
    const Drawn call(expression, 2, 9);
    const at::Tensor full = call.full().out;
    KvCache cache = call.cache();
    for (std::int64_t t = 0; t < 9; t += 3) {
      const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(2, t, 3); };
      EXPECT_LE(
          row_error(cache.attend(part(call.q), part(call.k), part(call.v), call.part(t, 3)).out, full.narrow(2, t, 3)),
          1e-12);
    }
    cache.truncate(6);
    const std::string refused =
        message_of([&] { cache.append(call.k.narrow(2, 6, 1), call.v.narrow(2, 6, 1), call.part(6, 1)); });
    EXPECT_NE(refused.find("as many queries as tokens"), std::string::npos) << refused;
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{6, 6}));
    EXPECT_THROW(attend(call.q.narrow(2, 6, 3), call.k, call.v, *call.encoding, call.options), Refusal);
    // Rows of their own lengths have their queries at the end.
    AttendOptions ragged = call.options;
    ragged.key_lengths = longs({9, 6});
    const at::Tensor q =
        at::cat({call.q.narrow(0, 0, 1),
                 at::cat({call.q.narrow(0, 1, 1).narrow(2, 6, 3), call.q.narrow(0, 1, 1).narrow(2, 0, 6)}, 2)});
    const at::Tensor out = attend(q, call.k, call.v, *call.encoding, ragged);
    EXPECT_LE(row_error(out.narrow(0, 0, 1), full.narrow(0, 0, 1)), 1e-12);
    EXPECT_LE(row_error(out.narrow(0, 1, 1).narrow(2, 3, 6), full.narrow(0, 1, 1).narrow(2, 0, 6)), 1e-12);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Words

TEST(GrapeWords, CanonicalForms) {
  EXPECT_EQ(print(parse("grape-a(variant=released,gate = qk)")), "grape-a(gate=qk)");
  EXPECT_EQ(print(parse("grape-ap(tie=none, width=8,variant=paper)")), "grape-ap(variant=paper)");
  EXPECT_EQ(print(parse("rope+fox + t5")), "rope + fox + t5");
  EXPECT_THROW(parse("fox(bias=1)"), ExpressionError);
  EXPECT_THROW(parse("grape-a(gate=v)"), ExpressionError);
  EXPECT_THROW(parse("grape-ap(width=1)"), ExpressionError);
}

TEST(GrapeWords, CombinationsWithoutMeaningAreRefused) {
  const auto refused = [](const std::string& expression, std::int64_t dim = 4) {
    return message_of([&] { make_encoding(expression, {.heads = 2, .head_dim = dim}); });
  };
  EXPECT_NE(refused("grape-a(variant=paper)").find("give gate=k, q or qk"), std::string::npos);
  EXPECT_NE(refused("grape-a(gate=k, variant=paper, learn_slopes=true)").find("learn_slopes"), std::string::npos);
  EXPECT_NE(refused("grape-ap(width=3)").find("must be even"), std::string::npos);
  EXPECT_NE(refused("grape-ap(width=4, tie=k)").find("as wide as the head"), std::string::npos);
  EXPECT_NE(refused("grape-ap(tie=q)", 5).find("even head_dim, found 5"), std::string::npos);
  EXPECT_EQ(refused("grape-ap(width=4)", 5), "");
}

TEST(GrapeWords, CallsThatHaveNoMeaningAreRefused) {
  for (const char* expression : {"fox", "grape-a(gate=k)", "grape-a(gate=q)", "grape-ap", "rope + fox"}) {
    Drawn call(expression, 1, 5);
    call.options.causal = false;
    const std::string message = message_of([&] { call.full(); });
    EXPECT_NE(message.find("needs causal attention"), std::string::npos) << expression << ": " << message;
  }
  for (const char* expression : {"fox", "grape-ap"}) {
    Drawn call(expression, 1, 5);
    call.options.x = at::Tensor();
    const std::string message = message_of([&] { call.full(); });
    EXPECT_NE(message.find(str(expression, " reads the block's input: x must be given")), std::string::npos) << message;
  }
}

TEST(GrapeWords, TensorsStartAsTheReleasedOnesDo) {
  const Dimensions dimensions{.heads = 6, .kv_heads = 3, .head_dim = 16, .width = 64};
  const auto of = [&](const std::string& expression) {
    std::map<std::string, ParameterInfo> all;
    const auto encoding = make_encoding(expression, dimensions);
    for (const ParameterInfo& info : encoding->parameters(0)) all[info.name] = info;
    return all;
  };
  const auto fox = of("fox");
  EXPECT_EQ(fox.at("fox.weight").shape, (std::vector<std::int64_t>{6, 64}));
  EXPECT_EQ(fox.at("fox.weight").initial.kind, Initial::Kind::Normal);
  EXPECT_DOUBLE_EQ(fox.at("fox.weight").initial.b, 0.5 / 8);
  EXPECT_EQ(fox.at("fox.bias").shape, (std::vector<std::int64_t>{6}));
  EXPECT_EQ(fox.at("fox.bias").initial.a, 0);
  const auto gated = of("grape-a(gate=qk, learn_slopes=true)");
  EXPECT_EQ(gated.at("grape-a.u").shape, (std::vector<std::int64_t>{3, 16}));
  EXPECT_EQ(gated.at("grape-a.v").shape, (std::vector<std::int64_t>{6, 16}));
  EXPECT_DOUBLE_EQ(gated.at("grape-a.u").initial.b, 0.25);
  EXPECT_NEAR(gated.at("grape-a.rho").initial.a, 0.541325, 1e-6);
  EXPECT_DOUBLE_EQ(gated.at("grape-a.log_slopes").initial.values.at(0), -2 * std::log(2.0));
  EXPECT_EQ(of("grape-a(gate=k)").size(), 2u);
  EXPECT_TRUE(of("grape-a").empty());
  const auto path = of("grape-ap(learn_alpha=true)");
  EXPECT_EQ(path.at("grape-ap.weight").shape, (std::vector<std::int64_t>{6, 8, 64}));
  EXPECT_DOUBLE_EQ(path.at("grape-ap.weight").initial.b, 0.5 / 8);
  EXPECT_TRUE(path.at("grape-ap.weight").decay);
  EXPECT_EQ(path.at("grape-ap.log_alpha").shape, (std::vector<std::int64_t>{6}));
  EXPECT_TRUE(of("grape-ap(tie=v)").empty());
}

}  // namespace
}  // namespace torsor::attention_test
