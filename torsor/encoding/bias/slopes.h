// ALiBi's slopes, which several encodings start from.
#pragma once

#include <cstdint>
#include <vector>

namespace torsor {

/// The slope of each of `heads` heads: 2^(-max_exponent (h + 1) / P) for the first P, the largest power of two up to
/// heads, then every other one of the 2P slopes of twice as many. Press, Smith, Lewis 2022, section 3.
std::vector<double> alibi_slopes(std::int64_t heads, double max_exponent = 8);

/// The same for one head, written down once more for the definitions, which share nothing with the answers.
double define_alibi_slope(std::int64_t head, std::int64_t heads, double max_exponent = 8);

}  // namespace torsor
