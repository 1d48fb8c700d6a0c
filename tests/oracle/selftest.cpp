#include "tests/oracle/selftest.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "tests/oracle/attention.h"
#include "tests/oracle/bias.h"
#include "tests/oracle/compare.h"
#include "tests/oracle/make.h"
#include "tests/oracle/rotary.h"

namespace oracle {
namespace {

int failures = 0;
int checks = 0;

void expect(bool holds, const std::string& what) {
  ++checks;
  if (holds) return;
  ++failures;
  std::printf("FAIL  %s\n", what.c_str());
}

void expect_near(double got, double want, const std::string& what, double relative = 1e-6) {
  expect(std::abs(got - want) <= relative * std::abs(want),
         what + ": " + std::to_string(got) + ", not " + std::to_string(want));
}

/// The tensor of `c` that the gradient called `name` belongs to.
Tensor& tensor_of(Case& c, const std::string& name) {
  if (name == "grad.q") return c.q;
  if (name == "grad.k") return c.k;
  if (name == "grad.v") return c.v;
  if (name == "grad.x") return *c.x;
  if (name == "grad.state") return *c.state;
  return c.parameters.at(name.substr(std::string("grad.parameters.").size()));
}

double moved(Case c, const std::string& name, const Tensor& direction, double by) {
  Tensor& tensor = tensor_of(c, name);
  for (std::size_t n = 0; n < tensor.data.size(); ++n) tensor.data[n] += by * direction.data[n];
  return objective(c);
}

/// The gradient along a few directions against central differences. A direction of many numbers may step over a kink
/// (a clamp, a ReLU); that is why a failing one gets a second try with a smaller step.
void check_gradients(const Case& c) {
  const Computed computed = compute(c);
  unsigned state = 12345;
  for (const auto& [name, gradient] : computed.outputs) {
    if (name.compare(0, 5, "grad.") != 0) continue;
    for (int round = 0; round < 2; ++round) {
      Tensor direction(gradient.shape);
      double along = 0.0, size = 0.0;
      for (std::size_t n = 0; n < direction.data.size(); ++n) {
        state = state * 1664525u + 1013904223u;
        direction.data[n] = static_cast<double>(state >> 8) / 8388608.0 - 1.0;
        along += direction.data[n] * gradient.data[n];
        size += std::abs(direction.data[n] * gradient.data[n]);
      }
      bool holds = false;
      double difference = 0.0;
      for (double step : {1e-5, 1e-6, 1e-7}) {
        difference = (moved(c, name, direction, step) - moved(c, name, direction, -step)) / (2.0 * step);
        const double roundoff = 1e-14 / step * (1.0 + computed.largest_logit);
        holds = holds || std::abs(difference - along) <= 1e-6 * size + 1e-8 + roundoff;
      }
      expect(holds, c.id + ": " + name + " along a direction is " + std::to_string(along) + ", differences say " +
                        std::to_string(difference));
    }
  }
}

double frequency(const std::string& encoding, int head_dim, int plane, double total = 0.0) {
  const Sum sum = parse(encoding);
  Part part;
  part.term = &sum[0];
  part.heads = part.key_heads = 1;
  return Rotary(part, head_dim, {}).frequencies(0, total)[static_cast<std::size_t>(plane)].value;
}

double magnitude(const std::string& encoding, int head_dim, bool softmax = false) {
  const Sum sum = parse(encoding);
  Part part;
  part.term = &sum[0];
  part.heads = part.key_heads = 1;
  const Rotary rotary(part, head_dim, {});
  return softmax ? rotary.softmax_factor() : rotary.magnitude();
}

/// The figures of encodings.md.
void check_design_values() {
  expect_near(frequency("rope", 64, 1), 0.749894209, "default 1");
  expect_near(frequency("rope", 64, 31), 1.33352143e-4, "default 31");
  const std::string yarn = "yarn(rope, factor=4, train_length=2048";
  expect_near(frequency(yarn + ")", 64, 8), 0.1, "yarn 8");
  expect_near(frequency(yarn + ")", 64, 16), 0.00538461538, "yarn 16");
  expect_near(frequency(yarn + ")", 64, 20), 9.73008511e-4, "yarn 20");
  expect_near(frequency(yarn + ")", 64, 31), 3.33380358e-5, "yarn 31");
  expect_near(magnitude(yarn + ")", 64), 1.138629436, "yarn m");
  expect_near(frequency(yarn + ", truncate=false)", 64, 16), 0.00505697152, "yarn untruncated 16");
  expect_near(frequency(yarn + ", truncate=false)", 64, 20), 8.11290382e-4, "yarn untruncated 20");
  const std::string qwen = "yarn(rope(base=1000000), factor=4, train_length=32768)";
  expect_near(frequency(qwen, 128, 23), 0.00697830585, "qwen 23");
  expect_near(frequency(qwen, 128, 30), 0.00106436098, "qwen 30");
  expect_near(frequency(qwen, 128, 63), 3.1023444e-7, "qwen 63");
  const std::string oss = "yarn(rope(base=150000), factor=32, train_length=4096, truncate=false)";
  expect_near(frequency(oss, 64, 9), 0.0317056962, "gpt-oss 9");
  expect_near(frequency(oss, 64, 17), 1.29318701e-4, "gpt-oss 17");
  expect_near(magnitude(oss, 64), 1.346573590, "gpt-oss m");
  const std::string deep = "yarn(rope, factor=40, train_length=4096, mscale=1, mscale_all_dim=1)";
  expect_near(frequency(deep, 64, 11), 0.0390069266, "deepseek 11");
  expect_near(frequency(deep, 64, 20), 7.90569415e-4, "deepseek 20");
  expect_near(magnitude(deep, 64, true), 1.873854207, "deepseek softmax factor");
  const std::string lite = "yarn(rope, factor=40, train_length=4096, mscale=0.707, mscale_all_dim=0.707)";
  expect_near(magnitude(lite, 64), 1.0, "deepseek lite m");
  expect_near(magnitude(lite, 64, true), 1.589626165, "deepseek lite softmax factor");
  const std::string llama = "llama3(rope(base=500000), factor=8)";
  expect_near(frequency(llama, 128, 28), 0.00321144599, "llama3 28");
  expect_near(frequency(llama, 128, 29), 0.00216657076, "llama3 29");
  expect_near(frequency(llama, 128, 34), 1.78507813e-4, "llama3 34");
  expect_near(frequency(llama, 128, 63), 3.06892599e-7, "llama3 63");
  expect_near(frequency("llama3(rope(base=500000), factor=32)", 64, 15), 0.00129054793, "llama3 s32 15");
  // pair 1 of d = 64 is base^(-1/32)
  const auto base_of = [](double theta) { return std::pow(theta, -32.0); };
  const std::string dynamic = "dynamic(rope, factor=2, train_length=2048)";
  expect_near(base_of(frequency(dynamic, 64, 1, 2049)), 10010.0808039, "dynamic 2049");
  expect_near(base_of(frequency(dynamic, 64, 1, 4096)), 31082.2366672, "dynamic 4096");
  expect_near(base_of(frequency(dynamic, 64, 1, 8192)), 74534.8303181, "dynamic 8192");
  expect_near(base_of(frequency("ntk(rope, factor=4)", 64, 1)), 41829.36592889948, "ntk base");
  const std::string gemma = "rope(base=1000000, frequencies=proportional, fraction=0.25)";
  expect_near(frequency(gemma, 512, 63), 0.0333762469, "gemma 63");
  expect(frequency(gemma, 512, 64) == 0.0, "gemma 64 stands still");
  std::string ones = "[1";
  for (int n = 1; n < 48; ++n) ones += ", 1";
  ones += "]";
  expect_near(magnitude("longrope(rope, short=" + ones + ", long=" + ones + ", train_length=4096, factor=32)", 96),
              1.1902380714238083, "longrope m", 1e-14);

  const std::vector<double> six = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  expect(alibi_slopes(6, 8.0) == six, "alibi slopes of six heads");
  expect_near(alibi_slopes(12, 8.0)[11], 0.08838835, "alibi slope 12 of 12");
  expect_near(alibi_slopes(40, 8.0)[39], 0.27262693, "alibi slope 40 of 40");
  expect(alibi_slopes(1, 8.0)[0] == 1.0 / 256.0, "alibi slope of one head");
  const Term t5 = parse("t5")[0];
  const std::vector<std::pair<int, int>> causal = {{15, 15}, {16, 16}, {18, 16}, {19, 17},  {20, 17},
                                                   {21, 18}, {32, 21}, {64, 26}, {127, 31}, {128, 31}};
  for (const auto& [n, bucket] : causal) {
    expect(t5_bucket(t5, -n) == bucket, "t5 bucket of " + std::to_string(n));
    expect(t5_bucket(t5, n) == 0, "t5 bucket of a later key");
  }
  const Term both = parse("t5(bidirectional=true)")[0];
  const std::vector<std::pair<int, int>> sided = {{7, 7}, {8, 8}, {12, 9}, {16, 10}, {64, 14}, {91, 15}};
  for (const auto& [n, bucket] : sided) {
    expect(t5_bucket(both, -n) == bucket, "t5 bucket of a key " + std::to_string(n) + " before");
    expect(t5_bucket(both, n) == bucket + 16, "t5 bucket of a key " + std::to_string(n) + " after");
  }
  expect_near(sandwich_sum(0, 128), 64.0, "sandwich 0");
  expect_near(sandwich_sum(1, 128), 62.0937, "sandwich 1", 1e-5);
  expect_near(sandwich_sum(100, 128), 30.5435, "sandwich 100", 1e-5);
  expect_near(query_factor(parse("logn(train_length=2048)")[0], 8191), 1.1818, "logn", 1e-4);

  // FIRE with a network that passes its input on: the bias is the normalised distance
  const Sum fire = parse("fire(hidden=1)");
  Part part;
  part.term = &fire[0];
  part.heads = 1;
  Parameters network;
  const std::vector<std::pair<std::string, double>> values = {{"w1", 1}, {"b1", 0}, {"b2", 0}, {"c", 0.1}, {"mu", 1}};
  for (const auto& [name, value] : values) network["fire." + name] = VarTensor{{1}, {Var(value)}};
  network["fire.w2"] = VarTensor{{1, 1}, {Var(1.0)}};
  expect_near(plain_bias(part, network, 0, 10, 0).value, 0.175255, "fire (10, 0)", 1e-5);
  expect_near(plain_bias(part, network, 0, 1023, 1000).value, 0.257442, "fire (1023, 1000)", 1e-5);
}

/// A number moved by ten tolerances, a row that sees nothing where something is stored, a missing tensor.
void check_that_errors_are_noticed() {
  const Case c = draw(mask_specs().front());
  const Outputs good = compute(c).outputs;
  expect(compare(good, good, 1e-11, 1e-12).holds, "a case agrees with itself");
  for (const auto& [name, tensor] : good) {
    Outputs wrong = good;
    double largest = 0.0;
    for (double x : tensor.data) largest = std::max(largest, std::abs(x));
    wrong[name].data.back() += 10.0 * (1e-12 + 1e-11 * largest);
    expect(!compare(good, wrong, 1e-11, 1e-12).holds, "an error in " + name + " is noticed");
    wrong[name].data.back() = std::nan("");
    expect(!compare(good, wrong, 1e-11, 1e-12).holds, "a NaN in " + name + " is noticed");
    wrong.erase(name);
    expect(!compare(good, wrong, 1e-11, 1e-12).holds, "a missing " + name + " is noticed");
  }
  Outputs blind = good;
  blind["lse"].data[0] = -INFINITY;
  expect(!compare(good, blind, 1e-11, 1e-12).holds, "minus infinity for a number is noticed");
  expect(!compare(blind, good, 1e-11, 1e-12).holds, "a number for minus infinity is noticed");
}

void expect_refused(const std::string& expression) {
  bool refused = false;
  try {
    parse(expression);
  } catch (const Error&) {
    refused = true;
  }
  expect(refused, "'" + expression + "' is refused");
}

}  // namespace

int selftest() {
  check_design_values();
  check_that_errors_are_noticed();
  for (const char* wrong : {"roep", "rope(bose=3)", "rope(", "rope +", "rope(base=1, base=2)", "heads(rope * 0)",
                            "rope rope", "t5(buckets=8", ""}) {
    expect_refused(wrong);
  }
  for (const Group& group : groups()) {
    for (const Spec& spec : group.specs) {
      // Head widths beyond 16 add work here and no new path.
      if (spec.head_dim <= 16) check_gradients(draw(spec));
    }
  }
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace oracle
