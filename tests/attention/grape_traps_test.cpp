// The mistakes that are easily made with the additive encodings, each with what would tell it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/attention/drawn.h"

namespace torsor::attention_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

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

// The same for a path: a query that thinks the opposite of all keys before it, by 3000.
TEST(GrapeTraps, EdgesFarFromZeroStayFinite) {
  for (const auto& [dtype, way] :
       {std::pair{at::kDouble, Path::Reference}, {at::kFloat, Path::Reference}, {at::kFloat, Path::Fused}}) {
    Drawn path("grape-ap(width=2, learn_alpha=true)", 1, 6, dtype, {1, 1});
    path.options.positions = at::zeros({1, 6, 1}, doubles());
    path.options.x = at::ones_like(path.options.x);
    path.options.x.select(1, 5).neg_();
    path["grape-ap.weight"].fill_(3000.0 / kCaseWidth);
    path["grape-ap.log_alpha"].zero_();
    EXPECT_TRUE(path.full(way).out.isfinite().all().item<bool>());
    // ln sigmoid(3000) is 0: of all rows before, and of the edge of the last query to itself. The next one is -3000.
    const double bound = dtype == at::kDouble ? 1e-14 : 1e-6;  // of the weights that the bias is read from
    const at::Tensor bias = path.bias()[0][0];
    for (std::int64_t j = 0; j < 5; ++j) EXPECT_NEAR(bias[4][j].item<double>(), 0, bound) << j;
    EXPECT_NEAR(bias[5][4].item<double>(), 0, bound);
    EXPECT_LT(bias[5][3].item<double>(), -80);
    for (const at::Tensor& one : gradients(path, {"grape-ap.weight", "grape-ap.log_alpha", "x"}, way))
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
  for (const char* expression :
       {"fox", "grape-a(gate=k)", "grape-a(gate=q)", "grape-a(gate=qk)", "grape-a", "grape-ap", "grape-ap(tie=q)"}) {
    Drawn call(expression, 1, 9), bare("none", 1, 9);
    const at::Tensor bias = call.bias();
    EXPECT_GT(largest(bias.nan_to_num(0, 0, 0)), 1e-2) << expression;
    for (const double scale : {0.01, 0.4, 7.0}) {
      call.options.scale = bare.options.scale = scale;
      const at::Tensor added = (call.logits() - bare.logits()).masked_fill(bias.isinf(), -HUGE_VAL);
      EXPECT_LE(apart(added, bias), 1e-13 * (1 + 5 * scale)) << expression << ' ' << scale;
    }
  }
}

// Under bfloat16 the released masks are rounded to it: 8 digits of a bias of 20. Ours are not, however q, k and v come:
// with a scale of 0 the log-sum-exp, which is float32, holds biases alone, here those of keys 4000 positions away.
TEST(GrapeTraps, ABiasIsNotRoundedToBfloat16) {
  for (const char* expression :
       {"alibi", "grape-a", "grape-a(gate=k)", "grape-a(gate=qk)", "fox", "grape-ap", "grape-ap(tie=k)"}) {
    Drawn half(expression, 1, 12, at::kBFloat16, {8, 8});
    for (auto& [name, tensor] : half.options.parameters) tensor = tensor.to(at::kFloat);
    half.options.query_positions = half.options.positions + (4000 + 1.0 / 3);
    half.options.scale = 0;
    Drawn wide = half;
    for (at::Tensor* tensor : {&wide.q, &wide.k, &wide.v, &wide.options.x}) *tensor = tensor->to(at::kDouble);
    for (auto& [name, tensor] : wide.options.parameters) tensor = tensor.to(at::kDouble);
    const at::Tensor wanted = wide.full().lse, unit = wanted.abs().clamp_min(1);
    EXPECT_GT(largest(wanted), 0.1) << expression;
    for (const Path path : {Path::Reference, Path::Fused}) {
      const at::Tensor found = half.full(path).lse;
      EXPECT_EQ(found.scalar_type(), at::kFloat);
      EXPECT_LE(largest((found.to(at::kDouble) - wanted) / unit), 2e-6) << expression;
    }
  }
}

// A gate reads q and k as they are before any rotation.
TEST(GrapeTraps, GatesReadUnmovedTokens) {
  for (const char* gate : {"k", "q", "qk"}) {
    const auto logits = [&](const std::string& expression) {
      Drawn call(expression, 1, 9);
      call.options.positions = call.options.positions + 1000;
      return call.logits();
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

}  // namespace
}  // namespace torsor::attention_test
