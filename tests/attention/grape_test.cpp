// The additive encodings by their properties: what they equal exactly, the laws that they keep, identities of their
// gradients, and the mistakes that are easily made with them.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/attention/call.h"

namespace torsor::attention_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::TensorOptions(at::kLong)); }

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
  }
  at::Tensor& operator[](const std::string& name) { return options.parameters.at(name); }
  Attended full(Path path = Path::Reference) const {
    AttendOptions call = options;
    call.path = path;
    call.need_lse = true;
    return attend_full(q, k, v, *encoding, call);
  }
  /// What is added to the logits, (B, H, T, T), -inf where hidden: weights of zero queries on unit values. Not for
  /// gates of the query.
  at::Tensor bias() const {
    const std::int64_t tokens = k.size(2);
    Drawn silent = *this;
    silent.q = at::zeros_like(q);
    silent.v = at::eye(tokens, k.options()).expand({k.size(0), k.size(1), tokens, tokens}).contiguous();
    const Attended one = silent.full();
    return one.out.log() + one.lse.unsqueeze(3);
  }
  KvCache cache(at::ScalarType dtype = at::kDouble) const {
    return KvCache(encoding, {.capacity = k.size(2), .batch = k.size(0), .dtype = dtype});
  }
  AttendOptions part(std::int64_t first, std::int64_t count) const {
    AttendOptions call = options;
    call.positions = options.positions.narrow(1, first, count);
    call.x = options.x.narrow(1, first, count);
    if (options.documents.defined()) call.documents = options.documents.narrow(1, first, count);
    return call;
  }
};

double largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

/// The largest difference of two tensors with -inf in the same places.
double apart(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor hidden = a.isinf();
  if (!hidden.equal(b.isinf())) return std::numeric_limits<double>::infinity();
  return largest(a.masked_fill(hidden, 0) - b.masked_fill(hidden, 0));
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// ---------------------------------------------------------------------------------------------------------------------
// What is recovered exactly

TEST(Grape, WithoutAGateItIsAlibiBitForBit) {
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

TEST(Grape, AForgetGateThatDoesNotChangeIsAlibi) {
  Drawn fox("fox", 2, 40);
  const Drawn alibi("alibi", 2, 40);
  const at::Tensor slopes = at::tensor(alibi.encoding->slopes(), doubles());
  fox["fox.weight"].zero_();
  fox["fox.bias"] = -at::expm1(slopes).log();  // ln sigmoid(z) = -slope
  EXPECT_LE(apart(fox.bias(), alibi.bias()), 1e-13);
  EXPECT_LE(row_error(fox.full().out, alibi.full().out), 1e-13);
}

TEST(Grape, AGateThatDoesNotChangeIsAlibi) {
  for (const std::string gate : {"k", "q", "qk"}) {
    Drawn gated(str("grape-a(gate=", gate, ")"), 2, 20);
    if (gate != "q") gated["grape-a.u"].zero_();
    if (gate != "k") gated["grape-a.v"].zero_();
    const double rate = std::log(2.0) * (gate == "qk" ? 2 : 1);  // softplus(0)
    gated["grape-a.rho"].fill_(std::log(std::expm1(1 / rate)));
    EXPECT_LE(row_error(gated.full().out, Drawn("alibi", 2, 20).full().out), 1e-13) << gate;
  }
}

TEST(Grape, APathOfEqualEdgesIsAlibi) {
  for (const char* variant : {"released", "paper", "relative"}) {
    Drawn path(str("grape-ap(learn_alpha=true, variant=", variant, ")"), 2, 30);
    const Drawn alibi("alibi", 2, 30);
    path["grape-ap.weight"].zero_();
    path["grape-ap.log_alpha"] = (at::tensor(alibi.encoding->slopes(), doubles()) / std::log(2.0)).log();
    EXPECT_LE(row_error(path.full().out, alibi.full().out), 1e-13) << variant;
  }
}

// Edges that do not depend on the query are forget gates.
TEST(Grape, APathThatNoQueryChangesIsFox) {
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
  for (const char* expression : {"grape-a(gate=k)", "grape-a(gate=k, variant=paper)"}) {
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

std::vector<at::Tensor> gradients(Drawn& call, const std::vector<std::string>& names, Path path = Path::Reference) {
  std::vector<at::Tensor> leaves;
  for (const std::string& name : names) {
    at::Tensor& leaf = name == "q" ? call.q : name == "k" ? call.k : name == "x" ? call.options.x : call[name];
    leaves.push_back(leaf = leaf.detach().clone().requires_grad_(true));
  }
  const at::Tensor out = call.full(path).out;
  return torch::autograd::grad({out}, leaves, {at::randn(out.sizes(), doubles()).to(out.scalar_type())});
}

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
// Mistakes that are easily made

// ln(sigmoid(z)) by its parts is -inf from z = -745 on, and softplus by its parts infinite from 710 on.
TEST(GrapeTraps, GatesFarFromZeroStayFinite) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    Drawn fox("fox", 1, 6, dtype);
    fox["fox.weight"].zero_();
    fox["fox.bias"] = at::tensor({-2000.0, -90.0, 0.0, 2000.0}, doubles()).to(dtype);
    const at::Tensor bias = fox.bias()[0];
    EXPECT_TRUE(fox.full().out.isfinite().all().item<bool>());
    EXPECT_NEAR(bias[3][5][0].item<double>(), 0, 1e-12);
    EXPECT_NEAR(bias[2][5][0].item<double>(), -5 * std::log(2.0), 2e-6);
    const auto found = gradients(fox, {"fox.bias", "x"});
    for (const at::Tensor& one : found) EXPECT_TRUE(one.isfinite().all().item<bool>());
    Drawn gated("grape-a(gate=k, variant=paper)", 1, 6, dtype);
    gated["grape-a.rho"].fill_(900);
    gated["grape-a.u"].mul_(1e4);
    EXPECT_TRUE(gated.full().out.isfinite().all().item<bool>());
    for (const at::Tensor& one : gradients(gated, {"grape-a.u", "grape-a.rho", "k"}))
      EXPECT_TRUE(one.isfinite().all().item<bool>());
  }
}

// at::softplus answers its argument from 20 on, which is 2e-9 too little.
TEST(GrapeTraps, TheScaleIsSmoothAtTwenty) {
  Drawn gated("grape-a(gate=k, variant=paper)", 1, 3);
  gated["grape-a.u"].zero_();
  gated["grape-a.rho"].fill_(20.5);
  const double omega = 20.5 + std::log1p(std::exp(-20.5));
  EXPECT_NEAR(gated.bias()[0][0][2][0].item<double>() / (-2 * omega * std::log(2.0)), 1, 1e-14);
}

// The query's own gate counts, the key's does not.
TEST(GrapeTraps, TheForgetGatesOfAQueryAreInclusive) {
  Drawn fox("fox", 1, 8);
  const at::Tensor before = fox.bias();
  fox.options.x = fox.options.x.clone();
  fox.options.x.select(1, 4).add_(1);
  const at::Tensor change = (fox.bias() - before)[0].select(0, 0).nan_to_num(0);
  for (std::int64_t i = 0; i < 8; ++i)
    for (std::int64_t j = 0; j <= i; ++j)
      EXPECT_EQ(std::abs(change[i][j].item<double>()) > 1e-9, j < 4 && i >= 4) << i << ' ' << j;
}

TEST(GrapeTraps, ABiasIsNotScaled) {
  for (const char* expression : {"fox", "grape-a(gate=k)", "grape-a", "grape-ap"}) {
    Drawn call(expression, 1, 9);
    const at::Tensor bias = call.bias();
    call.options.scale = 0.01;
    EXPECT_LE(apart(call.bias(), bias), 1e-14) << expression;
    call.options.scale = 7;
    EXPECT_LE(apart(call.bias(), bias), 1e-14) << expression;
  }
}

// A gate reads q and k as they are before any rotation.
TEST(GrapeTraps, GatesReadUnmovedTokens) {
  for (const char* gate : {"k", "q", "qk"}) {
    const auto logits = [&](const std::string& expression) {
      Drawn call(expression, 1, 9);
      call.options.positions = call.options.positions + 1000;
      call.v = at::eye(9, doubles()).expand({1, 2, 9, 9}).contiguous();
      const Attended one = call.full();
      return one.out.log() + one.lse.unsqueeze(3);
    };
    const std::string gated = str("grape-a(gate=", gate, ")");
    const at::Tensor alone = logits(gated) - logits("none"), turned = logits("rope + " + gated) - logits("rope");
    EXPECT_LE(largest((alone - turned).nan_to_num(0)), 1e-12) << gate;
    EXPECT_GT(largest(alone.nan_to_num(0)), 1e-2);
  }
}

// What a pad holds must not enter a sum, and a document's path begins anew: x of padding and of the first document are
// spoilt, the second document does not notice. That numbers are right is the spine's business.
TEST(GrapeTraps, PaddingAndOtherDocumentsAddNothing) {
  for (const char* expression : {"fox", "grape-a(gate=qk)", "grape-ap", "grape-ap(variant=paper)", "grape-ap(tie=v)"}) {
    SCOPED_TRACE(expression);
    Drawn call(expression, 1, 12);
    call.options.documents = longs({-1, -1, 0, 0, 0, -1, 1, 1, 1, -1, 1, 1}).view({1, 12});
    call.options.positions = at::tensor({0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 1.0, 2.0, 0.0, 3.0, 4.0}, doubles());
    call.options.positions = call.options.positions.view({1, 12, 1});
    const at::Tensor clean = call.full().out;
    Drawn dirty = call;
    const at::Tensor other = call.options.documents.ne(1);
    dirty.options.x = call.options.x.masked_fill(other.unsqueeze(2), 50);
    dirty.k = call.k.masked_fill(other.view({1, 1, 12, 1}), 50);
    dirty.v = call.v.masked_fill(other.view({1, 1, 12, 1}), 50);
    const at::Tensor found = dirty.full().out;
    for (const std::int64_t t : {6, 7, 8, 10, 11})
      EXPECT_TRUE(same_bits(found.narrow(2, t, 1), clean.narrow(2, t, 1))) << t;
    const at::Tensor padding = call.options.documents.eq(-1);
    dirty.options.x = call.options.x.masked_fill(padding.unsqueeze(2), kNaN);
    EXPECT_TRUE(dirty.full().out.narrow(2, 6, 6).isfinite().all().item<bool>());
  }
}

// A text of two documents whose first comes back: the gates between do not count.
TEST(GrapeTraps, ADocumentThatComesBackGoesOn) {
  for (const char* expression : {"fox", "grape-ap"}) {
    Drawn call(expression, 1, 9);
    call.options.documents = longs({0, 0, 0, 1, 1, 1, 0, 0, 0}).view({1, 9});
    call.options.positions = at::tensor({0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0}, doubles()).view({1, 9, 1});
    const at::Tensor own = longs({0, 1, 2, 6, 7, 8});
    Drawn alone = call;
    for (at::Tensor* tensor : {&alone.q, &alone.k, &alone.v}) *tensor = tensor->index_select(2, own);
    alone.options.x = call.options.x.index_select(1, own);
    alone.options.positions = call.options.positions.index_select(1, own);
    alone.options.documents = at::Tensor();
    const at::Tensor wanted = alone.full().out;
    EXPECT_LE(row_error(call.full().out.index_select(2, own), wanted), 1e-13) << expression;
    KvCache cache = call.cache();
    std::vector<at::Tensor> steps;
    for (std::int64_t t = 0; t < 9; ++t)
      steps.push_back(
          cache.attend(call.q.narrow(2, t, 1), call.k.narrow(2, t, 1), call.v.narrow(2, t, 1), call.part(t, 1)).out);
    EXPECT_LE(row_error(at::cat(steps, 2).index_select(2, own), wanted), 1e-13) << expression;
  }
}

// Total minus running sum loses digits where they count; a suffix sum keeps them: the 64 nearest of 4096 keys.
TEST(GrapeTraps, NearKeysAreExactHoweverLongThePath) {
  const std::int64_t tokens = 4096, near = 64;
  for (const char* expression : {"grape-ap", "fox"}) {
    Drawn wide(expression, 1, tokens, at::kDouble, {1, 1}, 8);
    Drawn narrow(expression, 1, tokens, at::kFloat, {1, 1}, 8);
    const auto nearest = [&](const Drawn& call, Path path) {
      AttendOptions options = call.options;
      options.path = path;
      options.need_lse = true;
      options.query_positions = call.options.positions.narrow(1, tokens - 1, 1);
      at::Tensor v = at::zeros({1, 1, tokens, near}, call.k.options());
      v.narrow(2, tokens - near, near).copy_(at::eye(near, call.k.options()));
      const Attended one = attend_full(at::zeros({1, 1, 1, 8}, call.q.options()), call.k, v, *call.encoding, options);
      return one.out.to(at::kDouble).log() + one.lse.to(at::kDouble).unsqueeze(3);
    };
    const at::Tensor wanted = nearest(wide, Path::Reference);
    // What float32 can say of a bias of this size, and of a weight.
    const double bound = 1e-5 + 1e-6 * largest(wanted);
    for (const Path path : {Path::Reference, Path::Fused}) {
      const at::Tensor found = nearest(narrow, path), close = wanted.gt(-40);
      EXPECT_LE(largest((found - wanted).masked_fill(close.logical_not(), 0)), bound) << expression;
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// A million tokens

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

// The rotation of a probe a million tokens in: a float32 angle there is 2e-2 off.
TEST(GrapeLong, ProbesOfAMillionTokensAreTurnedExactly) {
  Drawn wide("grape-ap", 1, 8), narrow("grape-ap", 1, 8, at::kFloat);
  wide.options.positions = narrow.options.positions = wide.options.positions + 1e6 - 0.5;
  EXPECT_LE(apart(narrow.bias().to(at::kDouble), wide.bias()), 5e-6);
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
