#include "torsor/kernel/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

struct Case {
  std::int64_t rows, width;
  double scale, eps;
};

const std::vector<Case> cases = {{1, 1, 1, 1e-5},  {3, 2, 1, 1e-5},    {2, 15, 1, 1e-6},   {2, 16, 1, 1e-5},
                                 {5, 17, 1, 1e-5}, {4, 72, 100, 1e-5}, {7, 128, 1, 1e-5},  {3, 1000, 1e-3, 1e-5},
                                 {1, 33, 0, 1e-5}, {2, 31, 1, 0},      {6, 344, 1, 1e-12}, {2, 48, 1e-30, 1e-5}};

struct Numbers {
  std::vector<float> x, weight, g;
};

Numbers draw(const Case& c) {
  std::mt19937 random(static_cast<unsigned>(c.rows * 1000 + c.width));
  std::normal_distribution<float> normal;
  const auto size = static_cast<std::size_t>(c.rows * c.width);
  Numbers n{std::vector<float>(size), std::vector<float>(static_cast<std::size_t>(c.width)), std::vector<float>(size)};
  for (float& value : n.x) value = normal(random) * static_cast<float>(c.scale);
  for (float& value : n.weight) value = normal(random);
  for (float& value : n.g) value = normal(random);
  return n;
}

TEST(RmsNorm, ValuesAndGradients) {
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.rows << " x " << c.width << ", scale " << c.scale << ", eps " << c.eps);
    const Numbers n = draw(c);
    const auto at = [&](std::int64_t row, std::int64_t i) { return static_cast<std::size_t>(row * c.width + i); };
    testing::on_every_target([&] {
      std::vector<float> y(n.x.size()), inverse(static_cast<std::size_t>(c.rows)), dx(n.x.size());
      std::vector<float> dweight(n.weight.size(), 0.5F);  // what was there is added to
      const std::int64_t half = c.rows / 2;
      for (const auto& [first, last] : {std::pair{std::int64_t{0}, half}, std::pair{half, c.rows}}) {
        rms_norm(n.x.data(), n.weight.data(), static_cast<float>(c.eps), c.width, first, last, y.data(),
                 inverse.data());
        rms_norm_back(n.x.data(), n.weight.data(), inverse.data(), n.g.data(), c.width, first, last, dx.data(),
                      dweight.data());
      }
      std::vector<double> expected_dweight(n.weight.size(), 0.5), size_dweight(n.weight.size(), 0.5);
      for (std::int64_t row = 0; row < c.rows; ++row) {
        double squares = 0;
        for (std::int64_t i = 0; i < c.width; ++i) squares += double(n.x[at(row, i)]) * n.x[at(row, i)];
        const double r = 1 / std::sqrt(squares / static_cast<double>(c.width) + double(static_cast<float>(c.eps)));
        const auto norm = [&](const std::vector<double>& v) {
          double sum = 0;
          for (const double one : v) sum += one * one;
          return std::sqrt(sum);
        };
        std::vector<double> want_y, want_dx, off_y, off_dx;
        for (std::int64_t i = 0; i < c.width; ++i) {
          const double x = n.x[at(row, i)];
          want_y.push_back(x * r * n.weight[static_cast<std::size_t>(i)]);
          off_y.push_back(y[at(row, i)] - want_y.back());
          // The derivative by definition: d y_j / d x_i = w_j (r [i = j] - x_j x_i r^3 / width).
          double sum = 0;
          for (std::int64_t j = 0; j < c.width; ++j)
            sum += n.g[at(row, j)] * double(n.weight[static_cast<std::size_t>(j)]) *
                   ((i == j ? r : 0) - n.x[at(row, j)] * x * r * r * r / static_cast<double>(c.width));
          want_dx.push_back(sum);
          off_dx.push_back(dx[at(row, i)] - sum);
          expected_dweight[static_cast<std::size_t>(i)] += n.g[at(row, i)] * x * r;
          size_dweight[static_cast<std::size_t>(i)] += std::abs(n.g[at(row, i)] * x * r);
        }
        EXPECT_LE(norm(off_y), 1e-6 * norm(want_y));
        // Of one channel the two parts of dx cancel: judged by their size.
        double parts = 0;
        for (std::int64_t i = 0; i < c.width; ++i)
          parts += std::pow(n.g[at(row, i)] * double(n.weight[static_cast<std::size_t>(i)]) * r, 2);
        EXPECT_LE(norm(off_dx), 1e-6 * std::sqrt(parts));
      }
      for (std::size_t i = 0; i < dweight.size(); ++i)
        EXPECT_NEAR(dweight[i], expected_dweight[i], 1e-6 * size_dweight[i]) << i;
    });
  }
}

TEST(RmsNorm, EveryInstructionSetGivesTheSameBits) {
  for (const Case& c : cases) {
    const Numbers n = draw(c);
    std::vector<std::vector<float>> results;
    testing::on_every_target([&] {
      std::vector<float> y(n.x.size()), inverse(static_cast<std::size_t>(c.rows)), dx(n.x.size());
      std::vector<float> dweight(n.weight.size());
      rms_norm(n.x.data(), n.weight.data(), static_cast<float>(c.eps), c.width, 0, c.rows, y.data(), inverse.data());
      rms_norm_back(n.x.data(), n.weight.data(), inverse.data(), n.g.data(), c.width, 0, c.rows, dx.data(),
                    dweight.data());
      y.insert(y.end(), dx.begin(), dx.end());
      y.insert(y.end(), dweight.begin(), dweight.end());
      results.push_back(y);
    });
    for (const std::vector<float>& one : results) EXPECT_EQ(one, results.front()) << c.rows << " x " << c.width;
  }
}

}  // namespace
}  // namespace torsor::kernel
