#include "torsor/kernel/mix_heads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernel/targets.h"

namespace torsor::kernel {
namespace {

/// Against sums in long double, heads before tokens and the other way round.
template <class T>
void check(std::int64_t batch, std::int64_t heads, std::int64_t tokens, std::int64_t width, double tolerance) {
  SCOPED_TRACE(std::to_string(batch) + " " + std::to_string(heads) + " " + std::to_string(tokens) + " " +
               std::to_string(width));
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  const auto numbers = static_cast<std::size_t>(batch * heads * tokens * width);
  const auto entries = static_cast<std::size_t>(batch * tokens * heads * heads);
  std::vector<T> x(numbers), g(numbers), out(numbers), dx(numbers), matrix(entries), dmatrix(entries);
  for (std::vector<T>* each : {&x, &g, &matrix})
    for (T& value : *each) value = static_cast<T>(normal(random));
  const std::array<std::int64_t, 3> heads_first = {heads * tokens * width, tokens * width, width};
  const std::array<std::int64_t, 3> tokens_first = {heads * tokens * width, width, heads * width};
  HeadMix<T> mix;
  mix.sizes = {batch, heads, tokens};
  mix.width = width;
  mix.x = x.data();
  mix.x_strides = heads_first;
  mix.matrix = matrix.data();
  mix.out = out.data();
  mix.out_strides = tokens_first;
  const std::int64_t rows = batch * tokens;
  mix_heads(mix, 0, rows / 2);
  mix_heads(mix, rows / 2, rows);
  HeadMix<T> again = mix;
  again.out = dx.data();
  again.out_strides = heads_first;
  HeadMixBack<T> back;
  back.gradient = g.data();
  back.gradient_strides = tokens_first;
  back.matrix_gradient = dmatrix.data();
  mix_heads_back(again, back, 0, rows / 2);
  mix_heads_back(again, back, rows / 2, rows);

  const auto at = [](const std::vector<T>& of, const std::array<std::int64_t, 3>& strides, std::int64_t b,
                     std::int64_t h, std::int64_t t, std::int64_t i) {
    return static_cast<long double>(of[static_cast<std::size_t>(b * strides[0] + h * strides[1] + t * strides[2] + i)]);
  };
  const double size = 1 + std::sqrt(static_cast<double>(heads * width));
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto m = [&](std::int64_t h, std::int64_t e) {
        return static_cast<long double>(matrix[static_cast<std::size_t>(((b * tokens + t) * heads + h) * heads + e)]);
      };
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < width; ++i) {
          long double forward = at(x, heads_first, b, h, t, i), backward = at(g, tokens_first, b, h, t, i);
          for (std::int64_t e = 0; e < heads; ++e) {
            forward += m(h, e) * at(x, heads_first, b, e, t, i);
            backward += m(e, h) * at(g, tokens_first, b, e, t, i);
          }
          ASSERT_NEAR(static_cast<double>(at(out, tokens_first, b, h, t, i)), static_cast<double>(forward),
                      tolerance * size);
          ASSERT_NEAR(static_cast<double>(at(dx, heads_first, b, h, t, i)), static_cast<double>(backward),
                      tolerance * size);
        }
        for (std::int64_t e = 0; e < heads; ++e) {
          long double product = 0;
          for (std::int64_t i = 0; i < width; ++i)
            product += at(g, tokens_first, b, h, t, i) * at(x, heads_first, b, e, t, i);
          ASSERT_NEAR(
              static_cast<double>(dmatrix[static_cast<std::size_t>(((b * tokens + t) * heads + h) * heads + e)]),
              static_cast<double>(product), tolerance * size);
        }
      }
    }
}

TEST(MixHeads, IsAMatrixProductATokenForwardsAndBackwards) {
  for (const auto& [batch, heads, tokens, width] :
       std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>>{
           {1, 1, 1, 1}, {1, 2, 3, 2}, {2, 3, 5, 6}, {1, 12, 2, 64}, {2, 5, 3, 33}, {1, 4, 1, 19}, {3, 1, 7, 8}}) {
    testing::on_every_target([&, batch = batch, heads = heads, tokens = tokens, width = width] {
      check<float>(batch, heads, tokens, width, 2e-6);
      check<double>(batch, heads, tokens, width, 1e-14);
    });
  }
}

}  // namespace
}  // namespace torsor::kernel
