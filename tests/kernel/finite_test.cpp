#include "torsor/kernel/finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace torsor::kernel {
namespace {

template <class T>
void check(Element element, T ordinary, const std::vector<T>& largest, const std::vector<T>& bad) {
  EXPECT_TRUE(all_finite(element, nullptr, 0));
  for (const std::size_t count : {1u, 7u, 64u, 4095u, 4096u, 4097u, 10000u}) {
    std::vector<T> numbers(count, ordinary);
    for (const T& value : largest) {
      numbers[count / 2] = value;
      EXPECT_TRUE(all_finite(element, numbers.data(), static_cast<std::int64_t>(count))) << count;
    }
    for (const T& value : bad)
      for (const std::size_t place : {std::size_t{0}, count / 2, count - 1}) {
        std::vector<T> spoilt = numbers;
        spoilt[place] = value;
        EXPECT_FALSE(all_finite(element, spoilt.data(), static_cast<std::int64_t>(count))) << count << " " << place;
        // A number behind the last one is not looked at.
        if (place == count - 1) {
          EXPECT_TRUE(all_finite(element, spoilt.data(), static_cast<std::int64_t>(count - 1)));
        }
      }
  }
}

TEST(Finite, FindsEveryInfinityAndNaN) {
  using F = std::numeric_limits<float>;
  using D = std::numeric_limits<double>;
  check<float>(Element::Float32, 1, {F::max(), F::lowest(), F::denorm_min(), -0.0F},
               {F::infinity(), -F::infinity(), F::quiet_NaN(), -F::quiet_NaN()});
  check<double>(Element::Float64, 1, {D::max(), D::lowest(), D::denorm_min(), -0.0},
                {D::infinity(), -D::infinity(), D::quiet_NaN(), -D::quiet_NaN()});
  check<BFloat16>(Element::BFloat16, {0x3f80}, {{0x7f7f}, {0xff7f}, {0x0001}, {0x8000}},
                  {{0x7f80}, {0xff80}, {0x7fc0}, {0xff81}});
}

}  // namespace
}  // namespace torsor::kernel
