#include "torsor/kernel/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

void check(const std::vector<float>& gate) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> up(gate.size()), g(gate.size()), y(gate.size()), dgate(gate.size()), dup(gate.size());
  for (float& value : up) value = normal(random);
  for (float& value : g) value = normal(random);
  const auto count = static_cast<std::int64_t>(gate.size());
  swiglu(gate.data(), up.data(), count, y.data());
  swiglu_back(gate.data(), up.data(), g.data(), count, dgate.data(), dup.data());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i], s = 1 / (1 + std::exp(-x)), silu = x * s;
    const double slope = s + silu * (1 - s);  // the two parts cancel near -1.28
    const double parts = s + std::abs(silu) * (1 - s);
    EXPECT_NEAR(y[i], silu * up[i], 1e-6 * std::abs(silu * up[i]) + 1e-35) << "gate " << x;
    EXPECT_NEAR(dup[i], silu * g[i], 1e-6 * std::abs(silu * g[i]) + 1e-35) << "gate " << x;
    EXPECT_NEAR(dgate[i], slope * up[i] * g[i], 1e-6 * parts * std::abs(up[i] * g[i]) + 1e-35) << "gate " << x;
  }
}

TEST(SwiGlu, ValuesAndGradients) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 4);
  testing::on_every_target([&] {
    for (const std::size_t count : {0u, 1u, 3u, 16u, 17u, 63u, 1000u}) {
      std::vector<float> gate(count);
      for (float& value : gate) value = normal(random);
      check(gate);
    }
    check({0.0F, -0.0F, 1e-20F, -1e-20F, 80.0F, 200.0F, 1e30F, -80.0F, -86.9F, -87.1F, -200.0F, -1e30F});
  });
}

TEST(SwiGlu, WhatIsNotANumberStaysSo) {
  testing::on_every_target([&] {
    const std::vector<float> gate(20, std::numeric_limits<float>::quiet_NaN()), up(20, 1.0F);
    std::vector<float> y(20);
    swiglu(gate.data(), up.data(), 20, y.data());
    for (const float value : y) EXPECT_TRUE(std::isnan(value));
  });
}

}  // namespace
}  // namespace torsor::kernel
