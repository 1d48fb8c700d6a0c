// The fused kernel behind attend: float32 against the reference path in float64, values and every gradient.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/attention/call.h"
#include "tests/attention/test_encodings.h"
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
  /// Of an encoding that has no expression yet.
  std::function<std::shared_ptr<const Encoding>(const Dimensions&)> make = {};
  bool needs_causal = false;
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
                                           {"heads(kerple * 2, fire(hidden=4, length=99) * 2)", true},
                                           {"fox", true, false, {}, true},
                                           {"grape-a(gate=k)", true, false, {}, true},
                                           {"grape-a(gate=q)", true, false, {}, true},
                                           {"grape-a(gate=qk, learn_slopes=true)", true, false, {}, true},
                                           {"grape-a(gate=qk, variant=paper)", true, false, {}, true},
                                           {"grape-ap", true, false, {}, true},
                                           {"grape-ap(variant=paper, learn_alpha=true)", true, false, {}, true},
                                           {"grape-ap(variant=relative)", true, false, {}, true},
                                           {"grape-ap(tie=k)", true, false, {}, true}};
  return all;
}

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return (found.to(at::kDouble) - expected).norm().item<double>() / (expected.norm().item<double>() + 1e-30);
}

const std::vector<Subject>& subjects_without_expression() {
  static const std::vector<Subject> all = {{"carried", false, false, attention_test::make_test_carrier}};
  return all;
}

constexpr std::size_t kTokens = 4;  ///< q, k, v and x: what a call has for each token

/// The encoding's input x in the type of q; of the others, only what a bias reads is float32.
std::vector<at::Tensor> draw(const Encoding& encoding, const Subject& subject, std::int64_t tokens,
                             at::ScalarType type) {
  at::manual_seed(3);
  std::vector<at::Tensor> numbers;
  for (const std::int64_t heads : {4, 2, 2}) numbers.push_back(at::randn({2, heads, tokens, 16}, at::kFloat).to(type));
  numbers.push_back(at::randn({2, tokens, 64}, at::kFloat).to(type));
  for (const ParameterInfo& info : encoding.parameters(0))
    numbers.push_back(subject.centred ? at::randn(info.shape, at::kFloat) * 0.5
                                      : at::rand(info.shape, at::kFloat) + 0.1);
  return numbers;
}

struct Computed {
  at::Tensor out, lse, averages;      ///< lse is 0 where nothing is seen
  std::vector<at::Tensor> gradients;  ///< of what was drawn
};

Computed compute(const Encoding& encoding, const Layout& layout, const std::vector<at::Tensor>& numbers, bool fused) {
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
  options.x = leaves[3];
  at::manual_seed(5);
  options.state = at::randn({2, 2, numbers[0].size(2), 6}, at::kFloat).to(fused ? at::kFloat : at::kDouble);
  std::size_t next = kTokens;
  for (const ParameterInfo& info : encoding.parameters(0)) options.parameters[info.name] = leaves[next++];
  const Attended attended = attend_full(leaves[0], leaves[1], leaves[2], encoding, options);
  Computed computed{attended.out, attended.lse.masked_fill(attended.lse.isinf(), 0), attended.averages, {}};
  std::vector<at::Tensor> results = {computed.out, computed.lse}, upstream;
  if (attended.averages.defined()) results.push_back(attended.averages);
  at::manual_seed(7);
  for (const at::Tensor& result : results)
    upstream.push_back(at::randn(result.sizes(), at::kFloat).to(numbers[0].scalar_type()).to(result.scalar_type()));
  computed.gradients = torch::autograd::grad(results, leaves, upstream, false, false, true);
  return computed;
}

void expect_reference(const Subject& subject, const Layout& layout, std::int64_t tokens, at::ScalarType type) {
  SCOPED_TRACE(subject.expression + ", " + layout.name + (type == at::kFloat ? "" : ", bfloat16"));
  const Dimensions dimensions{.heads = 4, .kv_heads = 2, .head_dim = 16, .width = 64, .train_length = 64};
  const auto encoding = subject.make ? subject.make(dimensions) : make_encoding(subject.expression, dimensions);
  const std::vector<at::Tensor> numbers = draw(*encoding, subject, tokens, type);
  const Computed found = compute(*encoding, layout, numbers, true),
                 expected = compute(*encoding, layout, numbers, false);
  // The bounds of kernel.md, three times those of other forms for a path; q and k that were moved in bfloat16 were
  // rounded once more. Logits beyond 8 scale them.
  const bool half = type == at::kBFloat16;
  const double factor = std::max(1.0, expected.lse.abs().max().item<double>() / 8) * (half && subject.moves ? 3 : 1) *
                        (subject.expression.starts_with("grape-ap") ? 3 : 1);
  // In rows of 16 channels the rounding of a bfloat16 weight averages out less than in the wider ones of the bound.
  EXPECT_LE(attention_test::row_error(found.out, expected.out), (half ? 5e-3 : 2e-6) * factor);
  EXPECT_LE(error_of(found.out, expected.out), (half ? 4e-3 : 5e-7) * factor);
  EXPECT_LE(error_of(found.lse, expected.lse), (half ? 4e-3 : 5e-7) * factor);
  ASSERT_EQ(found.averages.defined(), expected.averages.defined());
  if (found.averages.defined()) {
    EXPECT_LE(attention_test::row_error(found.averages, expected.averages), (half ? 4e-3 : 2e-6) * factor);
  }
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    ASSERT_EQ(found.gradients[n].defined(), expected.gradients[n].defined()) << n;
    if (!found.gradients[n].defined()) continue;
    // Trained tensors, and what they read, are sums over pairs, whose terms cancel; fused_forms_test.cpp holds them to
    // those.
    const double bound = n < 3 ? (half ? 6e-3 : 1e-6) : (half ? 5e-2 : 3e-5);
    EXPECT_LE(error_of(found.gradients[n], expected.gradients[n]), bound * factor) << "gradient " << n;
  }
}

TEST(FusedPath, EqualsTheReferenceInEveryLayout) {
  const std::int64_t tokens = 150;
  for (const Subject& subject : subjects())
    for (const Layout& layout : layouts(tokens))
      if (layout.causal || !subject.needs_causal) expect_reference(subject, layout, tokens, at::kFloat);
}

TEST(FusedPath, EqualsTheReferenceForEncodingsToCome) {
  for (const Subject& subject : subjects_without_expression())
    for (const Layout& layout : layouts(150))
      if (layout.causal || !subject.needs_causal) expect_reference(subject, layout, 150, at::kFloat);
}

TEST(FusedPath, ComputesInBfloat16AsNearAsItsInputsAllow) {
  const std::int64_t tokens = 150;
  for (const Subject& subject : subjects())
    for (const Layout& layout : layouts(tokens))
      if (layout.causal || !subject.needs_causal) expect_reference(subject, layout, tokens, at::kBFloat16);
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
