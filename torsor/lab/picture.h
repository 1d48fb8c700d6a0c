// A picture of curves in plain characters, for terminals.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace torsor {

constexpr std::size_t kPictureColumns = 61;

/// One curve: a value for each x. Values that are not finite leave a gap.
struct Curve {
  std::string name;
  std::vector<double> values;
};

/// Curve 0 is drawn with '0', curve 1 with '1' ...; where curves meet, the first is seen. `x` has kPictureColumns
/// rising values, of which the ends are written below; the largest and smallest value are written at the left.
std::string picture(const std::vector<double>& x, const std::vector<Curve>& curves);

}  // namespace torsor
