#include "torsor/encoding/bias/slopes.h"

#include <cmath>

namespace torsor {

std::vector<double> alibi_slopes(std::int64_t heads, double max_exponent) {
  std::int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  std::vector<double> slopes;
  for (std::int64_t i = 1; i <= power; ++i)
    slopes.push_back(std::exp2(-max_exponent * static_cast<double>(i) / static_cast<double>(power)));
  for (std::int64_t i = 1; static_cast<std::int64_t>(slopes.size()) < heads; i += 2)
    slopes.push_back(std::exp2(-max_exponent * static_cast<double>(i) / static_cast<double>(2 * power)));
  return slopes;
}

double define_alibi_slope(std::int64_t head, std::int64_t heads, double max_exponent) {
  const double own = static_cast<double>(head);
  const double power = std::pow(2.0, std::floor(std::log2(static_cast<double>(heads))));
  return own < power ? std::pow(2.0, -max_exponent * (own + 1) / power)
                     : std::pow(2.0, -max_exponent * (2 * (own - power) + 1) / (2 * power));
}

}  // namespace torsor
