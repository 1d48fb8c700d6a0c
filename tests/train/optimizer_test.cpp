#include "torsor/train/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "torsor/base/error.h"

namespace torsor {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The message of the Error that `action` throws, or "no error".
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// ((i * factor) mod divisor - divisor / 2) / divisor for i = 0, 1, ...: starting values without a data file.
at::Tensor ramp(std::vector<std::int64_t> shape, std::int64_t factor, std::int64_t divisor) {
  at::Tensor result = at::empty(shape, at::kFloat);
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    result.mutable_data_ptr<float>()[i] =
        static_cast<float>(static_cast<double>((i * factor) % divisor - divisor / 2) / static_cast<double>(divisor));
  }
  return result;
}

at::Tensor trained(const at::Tensor& tensor) { return tensor.detach().clone().requires_grad_(true); }

void expect_values(const at::Tensor& found, const std::vector<float>& expected, double relative, double absolute) {
  ASSERT_EQ(found.numel(), static_cast<std::int64_t>(expected.size()));
  const at::Tensor flat = found.detach().flatten().contiguous();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(flat.const_data_ptr<float>()[i], expected[i], absolute + relative * std::abs(expected[i])) << i;
  }
}

// Recorded from PyTorch 2.15 (torch.optim.AdamW, fused=True, one thread, and torch.nn.utils.clip_grad_norm_): eight
// steps of tanh(x w' + b) against y and a quartic in v, with decay 0.1 on w and v, none on b, betas (0.9, 0.95),
// clipped to 0.5, rate 0.01 (s + 1) / 8; v has no gradient in the third step.
TEST(AdamW, FollowsPyTorch) {
  const std::vector<float> losses = {1.76864576f, 1.75566387f, 0.677441895f, 1.71931505f,
                                     1.67058921f, 1.61147416f, 1.54299593f,  1.46637976f};
  const std::vector<float> norms = {2.93204808f, 2.91525435f, 1.08847666f, 2.87626648f,
                                    2.81072354f, 2.73007131f, 2.63507533f, 2.52665734f};
  const at::Tensor w = trained(ramp({3, 4}, 7, 11));
  const at::Tensor b = trained(ramp({3}, 5, 7));
  const at::Tensor v = trained(ramp({19}, 8, 17));
  const at::Tensor x = ramp({5, 4}, 3, 13);
  const at::Tensor y = ramp({5, 3}, 4, 9);
  AdamW optimizer({{"w", w}, {"v", v}, {"b", b, false}}, {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_gradients();
    at::Tensor loss = (at::tanh(at::matmul(x, w.t()) + b) - y).square().mean() * 4;
    if (step != 2) loss = loss + (v - 0.25).pow(4).sum();
    loss.backward();
    EXPECT_NEAR(loss.item<float>(), losses[step], 1e-6) << step;
    EXPECT_NEAR(optimizer.clip_gradients(0.5), norms[step], 2e-6) << step;
    optimizer.update(0.01 * (step + 1) / 8);
    if (step == 0) {
      expect_values(b, {-0.427321434f, 0.2844643f, 0.00124999997f}, 0, 1e-7);
      expect_values(w,
                    {-0.453238666f, 0.180545464f, -0.183045462f, 0.455738634f, 0.0896477327f, -0.271443188f,
                     0.364840925f, -0.00124999892f, -0.362340927f, 0.271443188f, -0.0921477303f, -0.453238666f},
                    0, 1e-7);
    }
  }
  EXPECT_EQ(optimizer.updates(), 8);
  expect_values(w,
                {-0.411550909f, 0.140248314f, -0.221841037f, 0.482464045f, 0.0501705408f, -0.230655804f, 0.402213573f,
                 -0.040781036f, -0.322726995f, 0.230678678f, -0.130796134f, -0.411747336f},
                0, 2e-7);
  expect_values(b, {-0.387732565f, 0.245054245f, 0.0406696945f}, 0, 2e-7);
  expect_values(v,
                {-0.427462786f, 0.0409433804f, 0.427805185f, -0.0175521281f, 0.369488806f, -0.076081939f, 0.311650991f,
                 -0.134629384f, 0.256635189f, -0.193186983f, 0.262560368f, -0.251750886f, 0.214752495f, -0.310318887f,
                 0.157554418f, -0.368889809f, 0.0993612334f, -0.427462786f, 0.0409433767f},
                0, 2e-7);
  const auto state = optimizer.state();
  ASSERT_EQ(state.size(), 9U);
  expect_values(state.at("first_moment.w"),
                {-0.0357041135f, 0.00954362936f, 0.0123871053f, -6.00999483e-05f, 0.00856583193f, -0.0352629796f,
                 -0.00461952807f, 0.00823726039f, -0.00389782223f, 0.0434637219f, 0.00587983197f, -0.0101691494f},
                2e-6, 2e-8);
  expect_values(state.at("second_moment.w"),
                {0.00158604269f, 0.000115920942f, 0.000193350366f, 4.78796558e-08f, 9.82152051e-05f, 0.00156557595f,
                 2.89862855e-05f, 8.60656146e-05f, 2.33516948e-05f, 0.00238447194f, 4.64563709e-05f, 0.000131529843f},
                1e-5, 1e-12);
  expect_values(state.at("first_moment.b"), {-0.0539378859f, 0.0557127483f, -0.0695455819f}, 2e-6, 0);
  expect_values(state.at("second_moment.b"), {0.0036990256f, 0.00402958319f, 0.00627103401f}, 2e-6, 0);
  EXPECT_EQ(state.at("updates.w").item<float>(), 8);
  EXPECT_EQ(state.at("updates.v").item<float>(), 7);  // not updated without a gradient
}

TEST(AdamW, Float64FollowsTheFormula) {
  const at::Tensor p = at::tensor({1.5, -0.25}, at::kDouble).requires_grad_(true);
  const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.3};
  AdamW optimizer({{"p", p}}, options);
  double value = 1.5, first = 0, second = 0;
  for (int t = 1; t <= 5; ++t) {
    optimizer.zero_gradients();
    p.pow(3).sum().backward();
    optimizer.update(0.07);
    const double gradient = 3 * value * value;
    value *= 1 - 0.07 * 0.3;
    first = 0.8 * first + 0.2 * gradient;
    second = 0.9 * second + 0.1 * gradient * gradient;
    value -= 0.07 * (first / (1 - std::pow(0.8, t))) / (std::sqrt(second / (1 - std::pow(0.9, t))) + 1e-3);
    EXPECT_NEAR(p.detach()[0].item<double>(), value, 1e-14) << t;
  }
}

TEST(AdamW, ReadsGradientsOfAnyStrides) {
  const at::Tensor start = ramp({6, 5}, 7, 29);
  const at::Tensor gradient = ramp({6, 5}, 4, 31);
  std::vector<at::Tensor> results;
  for (const bool strided : {false, true}) {
    const at::Tensor p = trained(start);
    AdamW optimizer({{"p", p}}, {});
    p.mutable_grad() = strided ? gradient.t().contiguous().t() : gradient.clone();
    ASSERT_EQ(p.grad().is_contiguous(), !strided);
    optimizer.update(0.1);
    results.push_back(p.detach());
  }
  EXPECT_TRUE(at::equal(results[0], results[1]));
  EXPECT_FALSE(at::equal(results[0], start));
}

TEST(AdamW, ClipsByTheNormOfAllGradientsTogether) {
  const at::Tensor a = at::zeros({2}, at::kFloat).requires_grad_(true);
  const at::Tensor b = at::zeros({1}, at::kDouble).requires_grad_(true);
  const at::Tensor unused = at::zeros({3}, at::kFloat).requires_grad_(true);
  const at::Tensor empty = at::zeros({0}, at::kFloat).requires_grad_(true);
  AdamW optimizer({{"a", a}, {"b", b}, {"unused", unused}, {"empty", empty}}, {});
  const auto set = [&] {
    a.mutable_grad() = at::tensor({3.0f, 0.0f});
    b.mutable_grad() = at::tensor({4.0}, at::kDouble);
    empty.mutable_grad() = at::zeros({0}, at::kFloat);
  };
  EXPECT_EQ(optimizer.clip_gradients(1), 0);  // no gradients at all
  set();
  EXPECT_DOUBLE_EQ(optimizer.clip_gradients(2.5), 5);
  EXPECT_NEAR(a.grad()[0].item<double>(), 1.5, 1e-6);
  EXPECT_NEAR(b.grad()[0].item<double>(), 2, 1e-6);
  set();
  EXPECT_DOUBLE_EQ(optimizer.clip_gradients(5.1), 5);  // below the limit: bits stay
  EXPECT_EQ(a.grad()[0].item<float>(), 3);
  EXPECT_EQ(b.grad()[0].item<double>(), 4);
  EXPECT_DOUBLE_EQ(optimizer.clip_gradients(infinity), 5);
  EXPECT_EQ(b.grad()[0].item<double>(), 4);
  EXPECT_THROW(optimizer.clip_gradients(0), UsageError);
  EXPECT_THROW(optimizer.clip_gradients(std::nan("")), UsageError);
}

TEST(AdamW, NamesTheStepAndParameterOfABadGradient) {
  const at::Tensor a = at::ones({2}, at::kFloat).requires_grad_(true);
  const at::Tensor b = at::ones({2}, at::kFloat).requires_grad_(true);
  AdamW optimizer({{"layer.a", a}, {"layer.b", b}}, {});
  a.mutable_grad() = at::ones({2}, at::kFloat);
  b.mutable_grad() = at::ones({2}, at::kFloat);
  optimizer.update(0.1);
  b.mutable_grad() = at::tensor({1.0f, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(error_of([&] { optimizer.clip_gradients(1); }),
            "step 2: the norm of the gradients is nan: first in parameter 'layer.b'");
  EXPECT_EQ(a.grad()[0].item<float>(), 1);
  b.mutable_grad() = at::tensor({1e30f, 0.0f});
  EXPECT_EQ(error_of([&] { optimizer.clip_gradients(1); }),
            "step 2: the norm of the gradients is inf: the gradients are finite but too large to square");
}

TEST(AdamW, RefusesWhatItCannotTrain) {
  const at::Tensor good = at::ones({2, 3}, at::kFloat).requires_grad_(true);
  const auto make = [](std::vector<NamedParameter> parameters) {
    return error_of([&] { AdamW optimizer(std::move(parameters), {}); });
  };
  EXPECT_EQ(make({{"p", good}}), "no error");
  EXPECT_EQ(make({{"p", at::Tensor()}}), "parameter 'p' cannot be trained: it is undefined");
  EXPECT_EQ(make({{"p", at::ones({2}, at::kBFloat16).requires_grad_(true)}}),
            "parameter 'p' cannot be trained: expected float32 or float64, got bfloat16 [2]");
  EXPECT_EQ(make({{"p", at::ones({2})}}), "parameter 'p' cannot be trained: it is no leaf that requires a gradient");
  EXPECT_EQ(make({{"p", good * 2}}), "parameter 'p' cannot be trained: it is no leaf that requires a gradient");
  EXPECT_EQ(make({{"p", at::ones({2, 3}).t().requires_grad_(true)}}),
            "parameter 'p' cannot be trained: it is not contiguous: float32 [3, 2]");
  EXPECT_EQ(make({{"p", good}, {"p", trained(good)}}), "parameter 'p' is given twice");
  EXPECT_EQ(make({{"p", good}, {"q", good}}), "parameters 'p' and 'q' share their memory: give one");
  EXPECT_THROW(AdamW({{"p", good}}, {.beta1 = 1}), UsageError);
  EXPECT_THROW(AdamW({{"p", good}}, {.beta2 = -0.1}), UsageError);
  EXPECT_THROW(AdamW({{"p", good}}, {.epsilon = infinity}), UsageError);
  EXPECT_THROW(AdamW({{"p", good}}, {.weight_decay = -1}), UsageError);
  AdamW optimizer({{"p", good}}, {});
  EXPECT_EQ(error_of([&] { optimizer.update(0.1); }), "step 1: no parameter has a gradient");
}

TEST(AdamW, RestoresWhatStateGave) {
  const at::Tensor p = trained(ramp({4}, 3, 7));
  AdamW optimizer({{"p", p}}, {});
  const auto advance = [](AdamW& one, const at::Tensor& parameter) {
    one.zero_gradients();
    parameter.pow(2).sum().backward();
    one.update(0.1);
  };
  advance(optimizer, p);
  const at::Tensor q = trained(p);
  AdamW copy({{"p", q}}, {});
  copy.restore(optimizer.state(), optimizer.updates(), "s");
  EXPECT_EQ(copy.updates(), 1);
  advance(optimizer, p);
  advance(copy, q);
  EXPECT_TRUE(at::equal(p, q));

  auto state = optimizer.state();
  state["second_moment.p"] = at::zeros({5});
  EXPECT_EQ(error_of([&] { copy.restore(state, 2, "s"); }),
            "s: tensor 'second_moment.p' must be float32 [4], found float32 [5]");
  state["second_moment.p"] = at::zeros({4}, at::kDouble);
  EXPECT_EQ(error_of([&] { copy.restore(state, 2, "s"); }),
            "s: tensor 'second_moment.p' must be float32 [4], found float64 [4]");
  state.erase("second_moment.p");
  EXPECT_EQ(error_of([&] { copy.restore(state, 2, "s"); }),
            "s: tensor 'second_moment.p' is missing, expected float32 [4]");
}

}  // namespace
}  // namespace torsor
