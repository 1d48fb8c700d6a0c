// The fused kernel behind attend: float32 against the reference path in float64, values and every gradient.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "tests/attention/call.h"
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
          {"shorter rows", {}, {}, longs({tokens, tokens - 20}), {}, true},
          {"half steps", rows(count * 0.5 + 7, count * 1.5), {}, {}, {}, true},
          {"any steps, windowed", rows((count * 0.37).cos() + count, count.square() * 0.02), {}, {}, 40, false},
          {"real positions, packed",
           rows(count * 0.7 - first * 20, count * 1.1),
           at::stack({first, second + 4}),
           {},
           {},
           true}};
}

struct Subject {
  std::string expression;
  bool centred = false;  ///< its trained tensors are drawn around 0, else above it
  bool moves = false;    ///< changes q and k, which rounds them in bfloat16
};

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = {{"none"},
                                           {"rope", false, true},
                                           {"alibi"},
                                           {"alibi(learn=true)"},
                                           {"t5(buckets=8, max_distance=32)"},
                                           {"t5(buckets=8, max_distance=32, bidirectional=true)"},
                                           {"t5(buckets=8, max_distance=32, far=wrap)"},
                                           {"kerple"},
                                           {"kerple(kind=power)"},
                                           {"sandwich(width=16)"},
                                           {"fire(hidden=12, length=64)", true},
                                           {"txl", true, true},
                                           {"rope + t5(buckets=8) + alibi", false, true},
                                           {"rope + logn", false, true},
                                           {"alibi + fire(hidden=5, length=40)", true},
                                           {"heads(t5(buckets=8) * 2, alibi * 2)"},
                                           {"heads(kerple * 2, fire(hidden=4, length=99) * 2)", true}};
  return all;
}

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return (found.to(at::kDouble) - expected).norm().item<double>() / (expected.norm().item<double>() + 1e-30);
}

/// out, lse and the gradients of q, k, v and the trained tensors.
std::vector<at::Tensor> compute(const Encoding& encoding, const Layout& layout, const std::vector<at::Tensor>& numbers,
                                bool fused) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& one : numbers)
    leaves.push_back((fused ? one.clone() : one.to(at::kDouble)).detach().requires_grad_(true));
  AttendOptions options;
  options.positions = layout.positions;
  options.documents = layout.documents;
  options.key_lengths = layout.key_lengths;
  options.window = layout.window;
  options.causal = layout.causal;
  options.need_lse = true;
  options.path = fused ? Path::Fused : Path::Reference;
  std::size_t next = 3;
  for (const ParameterInfo& info : encoding.parameters(0)) options.parameters[info.name] = leaves[next++];
  const Attended attended = attend_full(leaves[0], leaves[1], leaves[2], encoding, options);
  const at::Tensor lse = attended.lse.masked_fill(attended.lse.isinf(), 0);
  at::manual_seed(7);
  const at::Tensor grad_out = at::randn(attended.out.sizes(), at::kFloat).to(numbers[0].scalar_type()),
                   grad_lse = at::randn(lse.sizes(), at::kFloat);
  std::vector<at::Tensor> results = {attended.out, lse};
  for (const at::Tensor& gradient : torch::autograd::grad(
           {attended.out, lse}, leaves, {grad_out.to(attended.out.scalar_type()), grad_lse.to(lse.scalar_type())},
           false, false, true))
    results.push_back(gradient);
  return results;
}

void expect_reference(const Subject& subject, const Layout& layout, std::int64_t tokens, at::ScalarType type) {
  SCOPED_TRACE(subject.expression + ", " + layout.name + (type == at::kFloat ? "" : ", bfloat16"));
  const auto encoding =
      make_encoding(subject.expression, {.heads = 4, .kv_heads = 2, .head_dim = 16, .train_length = 64});
  at::manual_seed(3);
  std::vector<at::Tensor> numbers;
  for (const std::int64_t heads : {4, 2, 2}) numbers.push_back(at::randn({2, heads, tokens, 16}, at::kFloat).to(type));
  for (const ParameterInfo& info : encoding->parameters(0))
    numbers.push_back(subject.centred ? at::randn(info.shape, at::kFloat) * 0.5
                                      : at::rand(info.shape, at::kFloat) + 0.1);
  const auto found = compute(*encoding, layout, numbers, true), expected = compute(*encoding, layout, numbers, false);
  ASSERT_EQ(found.size(), expected.size());
  const double logits = std::max(1.0, expected[1].abs().max().item<double>() / 8);
  const bool half = type == at::kBFloat16;
  // The bounds of kernel.md; q and k that were moved in bfloat16 were rounded once more.
  const double moved = half && subject.moves ? 3 : 1;
  // In rows of 16 channels the rounding of a bfloat16 weight averages out less than in the wider ones of the bound.
  EXPECT_LE(attention_test::row_error(found[0], expected[0]), (half ? 5e-3 : 2e-6) * logits * moved);
  for (std::size_t n = 0; n < found.size(); ++n) {
    ASSERT_EQ(found[n].defined(), expected[n].defined()) << n;
    if (!found[n].defined()) continue;
    // Trained tensors are sums over pairs, whose terms cancel; fused_forms_test.cpp holds them to those.
    const double bound = n < 2 ? (half ? 4e-3 : 5e-7) : n < 5 ? (half ? 6e-3 : 1e-6) : (half ? 5e-2 : 3e-5);
    EXPECT_LE(error_of(found[n], expected[n]), bound * logits * moved) << "result " << n;
  }
}

TEST(FusedPath, EqualsTheReferenceInEveryLayout) {
  const std::int64_t tokens = 150;
  for (const Subject& subject : subjects())
    for (const Layout& layout : layouts(tokens)) expect_reference(subject, layout, tokens, at::kFloat);
}

TEST(FusedPath, ComputesInBfloat16AsNearAsItsInputsAllow) {
  const std::int64_t tokens = 150;
  for (const Subject& subject : subjects())
    for (const Layout& layout : layouts(tokens)) expect_reference(subject, layout, tokens, at::kBFloat16);
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
