#include "torsor/lab/picture.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

namespace torsor {
namespace {

constexpr std::size_t kRows = 11;

std::string short_number(double value) {
  std::ostringstream text;
  text << std::setprecision(4) << value;
  return text.str();
}

}  // namespace

std::string picture(const std::vector<double>& x, const std::vector<Curve>& curves) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const Curve& curve : curves)
    for (const double value : curve.values)
      if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
  if (!(low <= high)) return "  nothing to draw\n";
  const double span = high > low ? high - low : 1;
  std::vector<std::string> rows(kRows, std::string(kPictureColumns, ' '));
  for (std::size_t c = curves.size(); c-- > 0;)
    for (std::size_t i = 0; i < std::min(curves[c].values.size(), kPictureColumns); ++i) {
      const double value = curves[c].values[i];
      if (!std::isfinite(value)) continue;
      const double place = (high - value) / span * static_cast<double>(kRows - 1);
      rows[static_cast<std::size_t>(std::lround(place))][i] = static_cast<char>('0' + c % 10);
    }
  const std::string top = short_number(high), bottom = short_number(low);
  const std::size_t margin = std::max(top.size(), bottom.size());
  std::string text;
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::string label = r == 0 ? top : r + 1 == kRows && high > low ? bottom : "";
    rows[r].erase(rows[r].find_last_not_of(' ') + 1);
    text += "  " + std::string(margin - label.size(), ' ') + label + " |" + rows[r] + "\n";
  }
  const std::string first = short_number(x.front()), last = short_number(x.back());
  text += "  " + std::string(margin + 1, ' ') + "+" + std::string(kPictureColumns, '-') + "\n";
  text += "  " + std::string(margin + 2, ' ') + first +
          std::string(kPictureColumns - std::min(kPictureColumns, first.size() + last.size()), ' ') + last + "\n";
  if (curves.size() > 1 || !curves.front().name.empty()) {
    text += "  " + std::string(margin + 2, ' ');
    for (std::size_t c = 0; c < curves.size(); ++c)
      text += (c ? ", " : "") + std::string(1, static_cast<char>('0' + c % 10)) + " = " + curves[c].name;
    text += "\n";
  }
  return text;
}

}  // namespace torsor
