// The fused kernel behind attend: float32 against the reference path in float64, values and every gradient.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "torsor/attention/attend.h"

namespace torsor {
namespace {

struct Layout {
  std::string name;
  at::Tensor positions, documents, key_lengths;
  std::optional<std::int64_t> window;
  bool causal = true;
};

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); }

/// Two rows of `tokens` tokens.
std::vector<Layout> layouts(std::int64_t tokens) {
  const at::Tensor count = at::arange(tokens, at::kDouble);
  const auto rows = [](const at::Tensor& a, const at::Tensor& b) { return at::stack({a, b}).unsqueeze(-1); };
  const at::Tensor index = at::arange(tokens, at::kLong);
  const at::Tensor first = index.ge(tokens / 3).to(at::kLong), second = index.ge(tokens / 2).to(at::kLong);
  const at::Tensor padding = index.lt(5);
  return {{"plain", {}, {}, {}, {}, true},
          {"not causal", {}, {}, {}, {}, false},
          {"window", {}, {}, {}, 17, true},
          {"far away", rows(count + 1e6, count + 12345), {}, {}, {}, true},
          {"packed",
           rows(count - first * (tokens / 3), count - second * (tokens / 2)),
           at::stack({first, second + 4}),
           {},
           {},
           true},
          {"left-padded",
           rows(count - 5, count).masked_fill(at::stack({padding, at::zeros_like(padding)}).unsqueeze(-1), -77),
           at::stack({at::where(padding, -at::ones_like(index), at::zeros_like(index)), at::zeros_like(index)}),
           {},
           {},
           true},
          {"shorter rows", {}, {}, longs({tokens, tokens - 20}), {}, true}};
}

const std::vector<std::string>& expressions() {
  static const std::vector<std::string> all = {"none",
                                               "rope",
                                               "alibi",
                                               "alibi(learn=true)",
                                               "t5(buckets=8, max_distance=32)",
                                               "t5(buckets=8, max_distance=32, bidirectional=true)",
                                               "kerple",
                                               "kerple(kind=power)",
                                               "sandwich",
                                               "rope + t5(buckets=8) + alibi",
                                               "rope + logn",
                                               "heads(t5(buckets=8) * 2, alibi * 2)"};
  return all;
}

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return (found.to(at::kDouble) - expected).norm().item<double>() / (expected.norm().item<double>() + 1e-30);
}

TEST(FusedPath, EqualsTheReferenceInEveryLayout) {
  const std::int64_t tokens = 150;
  for (const std::string& expression : expressions())
    for (const Layout& layout : layouts(tokens)) {
      SCOPED_TRACE(expression + ", " + layout.name);
      const auto encoding = make_encoding(expression, {.heads = 4, .kv_heads = 2, .head_dim = 16, .train_length = 64});
      at::manual_seed(3);
      std::vector<at::Tensor> numbers = {at::randn({2, 4, tokens, 16}, at::kFloat),
                                         at::randn({2, 2, tokens, 16}, at::kFloat),
                                         at::randn({2, 2, tokens, 16}, at::kFloat)};
      std::vector<std::string> names;
      for (const ParameterInfo& info : encoding->parameters(0)) {
        names.push_back(info.name);
        numbers.push_back(at::rand(info.shape, at::kFloat) + 0.1);
      }
      const at::Tensor grad_out = at::randn({2, 4, tokens, 16}, at::kFloat),
                       grad_lse = at::randn({2, 4, tokens}, at::kFloat);
      const auto compute = [&](at::ScalarType type, Path path) {
        std::vector<at::Tensor> leaves;
        for (const at::Tensor& one : numbers) leaves.push_back(one.to(type).detach().requires_grad_(true));
        AttendOptions options;
        options.positions = layout.positions;
        options.documents = layout.documents;
        options.key_lengths = layout.key_lengths;
        options.window = layout.window;
        options.causal = layout.causal;
        options.need_lse = true;
        options.path = path;
        for (std::size_t n = 0; n < names.size(); ++n) options.parameters[names[n]] = leaves[3 + n];
        const Attended attended = attend_full(leaves[0], leaves[1], leaves[2], *encoding, options);
        const at::Tensor lse = attended.lse.masked_fill(attended.lse.isinf(), 0);
        std::vector<at::Tensor> results = {attended.out, lse};
        for (const at::Tensor& gradient : torch::autograd::grad(
                 {attended.out, lse}, leaves, {grad_out.to(type), grad_lse.to(type)}, false, false, true))
          results.push_back(gradient);
        return results;
      };
      const auto found = compute(at::kFloat, Path::Fused), expected = compute(at::kDouble, Path::Reference);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t n = 0; n < found.size(); ++n) {
        ASSERT_EQ(found[n].defined(), expected[n].defined()) << n;
        // Trained tensors are sums over pairs, whose terms cancel.
        if (found[n].defined()) {
          EXPECT_LE(error_of(found[n], expected[n]), n < 5 ? 3e-6 : 3e-5) << "result " << n;
        }
      }
    }
}

TEST(FusedPath, SaysWhatDoesNotLower) {
  const auto ask = [](const std::string& expression, at::ScalarType type, const at::Tensor& positions = {}) {
    const auto encoding = make_encoding(expression, {.heads = 2, .head_dim = 8, .train_length = 64});
    AttendOptions options;
    options.path = Path::Fused;
    options.positions = positions;
    for (const ParameterInfo& info : encoding->parameters(0))
      options.parameters[info.name] = at::rand(info.shape, at::kFloat).to(type);
    const at::Tensor x = at::randn({1, 2, 6, 8}, at::kFloat).to(type);
    return attend(x, x, x, *encoding, options);
  };
  EXPECT_EQ(ask("rope", at::kFloat).sizes(), at::IntArrayRef({1, 2, 6, 8}));
  EXPECT_THROW(ask("rope", at::kDouble), NotFused);
  EXPECT_EQ(ask("rope", at::kBFloat16).scalar_type(), at::kBFloat16);
  EXPECT_THROW(ask("xpos", at::kFloat), NotFused);
  EXPECT_THROW(ask("cope", at::kFloat), NotFused);
  const at::Tensor half_steps = (at::arange(6, at::kDouble) * 0.5).view({1, 6, 1});
  for (const char* expression : {"alibi", "t5", "kerple", "sandwich", "fire", "txl"})
    EXPECT_EQ(ask(expression, at::kFloat, half_steps).sizes(), at::IntArrayRef({1, 2, 6, 8}));  // any positions
}

TEST(FusedPath, AGradientOfAGradientIsRefusedInWords) {
  const auto encoding = make_encoding("alibi", {.heads = 2, .head_dim = 8});
  const at::Tensor x = at::randn({1, 2, 6, 8}, at::kFloat).requires_grad_(true);
  AttendOptions options;
  options.path = Path::Fused;
  const at::Tensor out = attend(x, x, x, *encoding, options);
  try {
    torch::autograd::grad({out.sum()}, {x}, {}, true, true);
    FAIL() << "expected an error";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("Path::Reference"), std::string::npos) << error.what();
  }
}

TEST(FusedPath, AutoTakesItForManyKeys) {
  const auto encoding = make_encoding("rope", {.heads = 2, .head_dim = 16});
  at::manual_seed(1);
  const at::Tensor q = at::randn({1, 2, 600, 16}), k = at::randn({1, 2, 600, 16}), v = at::randn({1, 2, 600, 16});
  AttendOptions options;
  const at::Tensor chosen = attend(q, k, v, *encoding, options);
  options.path = Path::Fused;
  EXPECT_TRUE(chosen.equal(attend(q, k, v, *encoding, options)));
}

TEST(FusedPath, OneHeadOver131072KeysIsRightOnSampledRows) {
  const std::int64_t tokens = 131072;
  const auto encoding = make_encoding("alibi", {.heads = 1, .head_dim = 16});
  at::manual_seed(5);
  const at::Tensor k = at::randn({1, 1, tokens, 16}), v = at::randn({1, 1, tokens, 16});
  const at::Tensor q = at::randn({1, 1, 40, 16});
  AttendOptions options;  // the last queries: causal order is aligned bottom-right
  options.path = Path::Fused;
  const at::Tensor out = attend(q, k, v, *encoding, options);
  for (const std::int64_t row : {0, 17, 39}) {
    const std::int64_t seen = tokens - 40 + row + 1;
    const at::Tensor keys = k.to(at::kDouble)[0][0].narrow(0, 0, seen),
                     values = v.to(at::kDouble)[0][0].narrow(0, 0, seen);
    const at::Tensor distance = (seen - 1) - at::arange(seen, at::kDouble);
    const at::Tensor logits = keys.matmul(q.to(at::kDouble)[0][0][row]) / 4 - distance * std::exp2(-8.0);
    EXPECT_LE(error_of(out[0][0][row], at::softmax(logits, 0).matmul(values)), 2e-6) << row;
  }
}

}  // namespace
}  // namespace torsor
