#include "torsor/model/fused.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

namespace torsor {
namespace {

using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

at::Tensor drawn(at::IntArrayRef shape, std::uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(shape, at::kFloat);
}

double relative(const at::Tensor& found, const at::Tensor& expected) {
  return (found.to(at::kDouble) - expected).norm().item<double>() / (expected.norm().item<double>() + 1e-30);
}

/// `fused` in float32 against `plain` in float64: the value, the gradients and the gradients of a number made of them.
void compare(const Function& fused, const Function& plain, const std::vector<at::Tensor>& inputs) {
  const auto results = [&](const Function& f, at::ScalarType type) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) leaves.push_back(input.detach().to(type).requires_grad_(true));
    const at::Tensor y = f(leaves);
    const at::Tensor g = at::cos(at::arange(y.numel(), at::kDouble)).view(y.sizes()).to(type);
    std::vector<at::Tensor> all = {y};
    for (const at::Tensor& one : torch::autograd::grad({y}, leaves, {g})) all.push_back(one);
    const auto first = torch::autograd::grad({f(leaves)}, leaves, {g}, true, true);
    at::Tensor number = at::zeros({}, g.options());
    for (const at::Tensor& one : first) number = number + one.square().sum();
    for (const at::Tensor& one : torch::autograd::grad({number}, leaves)) all.push_back(one);
    return all;
  };
  const auto found = results(fused, at::kFloat), expected = results(plain, at::kDouble);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t n = 0; n < found.size(); ++n) {
    EXPECT_EQ(found[n].sizes(), expected[n].sizes());
    EXPECT_LE(relative(found[n], expected[n]), 3e-6) << "result " << n;
  }
}

at::Tensor plain_norm(const std::vector<at::Tensor>& in) {
  return in[0] * at::rsqrt(in[0].square().mean(-1, true) + 1e-5) * in[1];
}
at::Tensor plain_gate(const std::vector<at::Tensor>& in) { return in[0] / (1 + at::exp(-in[0])) * in[1]; }

TEST(Fused, RmsNormInEveryLayout) {
  const Function fused = [](const std::vector<at::Tensor>& in) { return rms_norm(in[0], in[1], 1e-5); };
  const std::vector<at::Tensor> layouts = {
      drawn({2, 5, 16}, 1),
      drawn({3, 700, 40}, 2),                  // several tasks
      drawn({2, 6, 4, 8}, 3).transpose(1, 2),  // heads before tokens, as queries are
      drawn({2, 5, 32}, 4).narrow(2, 3, 17),   // gaps between rows: the plain way
      drawn({2, 16, 5}, 5).transpose(1, 2),    // channels far apart: the plain way
      drawn({5, 2}, 6),
      drawn({1, 1, 300}, 7),
      drawn({4, 12}, 8).unsqueeze(0).expand({3, 4, 12})};
  for (const at::Tensor& x : layouts) {
    SCOPED_TRACE(::testing::Message() << x.sizes() << " strides " << x.strides());
    compare(fused, plain_norm, {x, drawn({x.size(-1)}, 9)});
  }
}

TEST(Fused, SwiGluInEveryLayout) {
  const Function fused = [](const std::vector<at::Tensor>& in) { return swiglu(in[0], in[1]); };
  compare(fused, plain_gate, {drawn({2, 5, 24}, 1), drawn({2, 5, 24}, 2)});
  compare(fused, plain_gate, {drawn({700, 129}, 3), drawn({700, 129}, 4)});
  compare(fused, plain_gate, {drawn({6, 7}, 5).t(), drawn({6, 7}, 6).t()});
  compare(fused, plain_gate, {drawn({6, 7}, 5).t(), drawn({7, 6}, 6)});  // two orders: the plain way
}

TEST(Fused, AGradientInAnotherOrderIsPutInPlace) {
  const at::Tensor x = drawn({2, 6, 4, 8}, 1).requires_grad_(true), weight = drawn({8}, 2).requires_grad_(true);
  const at::Tensor g = drawn({8, 2, 4, 6}, 3).permute({1, 3, 2, 0});
  const auto found = torch::autograd::grad({rms_norm(x, weight, 1e-5)}, {x, weight}, {g});
  const auto expected = torch::autograd::grad({rms_norm(x, weight, 1e-5)}, {x, weight}, {g.contiguous()});
  for (std::size_t n = 0; n < found.size(); ++n) EXPECT_TRUE(found[n].equal(expected[n]));
  EXPECT_GT(found[0].abs().min().item<double>(), 0);
}

TEST(Fused, ThreadsDoNotChangeTheBits) {
  const at::Tensor x = drawn({4000, 33}, 1).requires_grad_(true), weight = drawn({33}, 2).requires_grad_(true);
  const int before = at::get_num_threads();
  std::vector<std::vector<at::Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const at::Tensor y = rms_norm(x, weight, 1e-5);
    auto gradients = torch::autograd::grad({y}, {x, weight}, {at::sin(x.detach())});
    gradients.push_back(y);
    results.push_back(gradients);
  }
  at::set_num_threads(before);
  for (const auto& one : results)
    for (std::size_t n = 0; n < one.size(); ++n) EXPECT_TRUE(one[n].equal(results.front()[n])) << n;
}

TEST(Fused, OtherDtypesTakeThePlainWay) {
  const at::Tensor x = drawn({3, 8}, 1), w = drawn({8}, 2);
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    const double bound = type == at::kDouble ? 1e-14 : 1e-2;
    const at::Tensor a = x.to(type), b = w.to(type);
    EXPECT_EQ(rms_norm(a, b, 1e-5).scalar_type(), type);
    EXPECT_LE(relative(rms_norm(a, b, 1e-5), plain_norm({a.to(at::kDouble), b.to(at::kDouble)})), bound);
    EXPECT_LE(relative(swiglu(a, a), plain_gate({a.to(at::kDouble), a.to(at::kDouble)})), bound);
  }
}

TEST(Fused, NothingIsAResultToo) {
  const at::Tensor x = at::zeros({2, 0, 8}).requires_grad_(true), w = at::ones({8}).requires_grad_(true);
  EXPECT_EQ(rms_norm(x, w, 1e-5).sizes(), x.sizes());
  EXPECT_EQ(swiglu(x, x).sizes(), x.sizes());
}

}  // namespace
}  // namespace torsor
