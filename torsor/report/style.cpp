#include "torsor/report/style.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "torsor/base/error.h"
#include "torsor/report/markup.h"

namespace torsor::report {
namespace {

constexpr double kPi = 3.14159265358979323846;

std::array<int, 3> channels(const std::string& colour) {
  std::array<int, 3> values{};
  const bool fits = colour.size() == 7 && colour[0] == '#' &&
                    colour.find_first_not_of("0123456789abcdefABCDEF", 1) == std::string::npos;
  if (!fits) throw Error(str("colour: expected #rrggbb, got '", colour, "'"));
  for (std::size_t i = 0; i < 3; ++i) values[i] = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16);
  return values;
}

double luminance(const std::string& colour) {
  const std::array<double, 3> weights = {0.2126, 0.7152, 0.0722};  // sRGB, as WCAG 2.1 defines relative luminance
  double sum = 0;
  const auto values = channels(colour);
  for (std::size_t i = 0; i < 3; ++i) {
    const double v = values[i] / 255.0;
    sum += weights[i] * (v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4));
  }
  return sum;
}

/// A closed path through points given as angle (turns, from the top, clockwise) and distance.
std::string polygon(double x, double y, const std::vector<std::pair<double, double>>& corners) {
  std::string path;
  for (const auto& [turn, distance] : corners) {
    path += path.empty() ? 'M' : 'L';
    path +=
        coordinate(x + distance * std::sin(2 * kPi * turn)) + ' ' + coordinate(y - distance * std::cos(2 * kPi * turn));
  }
  return path + 'Z';
}

std::vector<std::pair<double, double>> regular(int corners, double first, double radius) {
  std::vector<std::pair<double, double>> result;
  for (int i = 0; i < corners; ++i) result.emplace_back(first + static_cast<double>(i) / corners, radius);
  return result;
}

std::string cross(double x, double y, double radius, double first) {
  const double arm = 0.32 * radius;  // half the width of an arm
  const double far = std::hypot(radius, arm), angle = std::atan2(arm, radius) / (2 * kPi);
  std::vector<std::pair<double, double>> corners;
  for (int i = 0; i < 4; ++i) {
    const double turn = first + i / 4.0;
    corners.insert(corners.end(), {{turn - angle, far}, {turn + angle, far}, {turn + 0.125, arm * std::sqrt(2.0)}});
  }
  return polygon(x, y, corners);
}

}  // namespace

std::string SeriesStyle::classes() const { return str('c', colour, " d", dash); }

std::vector<SeriesStyle> series_styles(const std::vector<std::string>& encodings) {
  std::vector<SeriesStyle> styles;
  constexpr std::size_t hues = kColours - 1;
  std::size_t next = 0;
  for (const std::string& encoding : encodings) {
    if (encoding == "none") {
      styles.push_back({kColours - 1, kMarks - 1, 0});
      continue;
    }
    const std::size_t round = next / hues;
    // The mark moves on with each round too, so that a colour does not come back with its old mark.
    styles.push_back({next % hues, (next + round) % (kMarks - 1), round % kDashes});
    ++next;
  }
  return styles;
}

std::string mark_path(std::size_t mark, double x, double y, double radius) {
  const std::string r = coordinate(radius), twice = coordinate(2 * radius);
  switch (mark % kMarks) {
    case 0:
      return str('M', coordinate(x - radius), ' ', coordinate(y), 'a', r, ' ', r, " 0 1 0 ", twice, " 0a", r, ' ', r,
                 " 0 1 0 -", twice, " 0Z");
    case 1:
      return polygon(x, y, regular(4, 0.125, 1.25 * radius));  // square
    case 2:
      return polygon(x, y, regular(3, 0, 1.35 * radius));  // triangle
    case 3:
      return polygon(x, y, regular(4, 0, 1.4 * radius));  // diamond
    case 4:
      return polygon(x, y, regular(3, 0.5, 1.35 * radius));  // triangle on its tip
    case 5:
      return cross(x, y, 1.2 * radius, 0);
    case 6: {
      std::vector<std::pair<double, double>> star;
      for (int i = 0; i < 10; ++i) star.emplace_back(i / 10.0, i % 2 == 0 ? 1.5 * radius : 0.62 * radius);
      return polygon(x, y, star);
    }
    default:
      return cross(x, y, 1.2 * radius, 0.125);
  }
}

double contrast(const std::string& a, const std::string& b) {
  const double first = luminance(a), second = luminance(b);
  return (std::max(first, second) + 0.05) / (std::min(first, second) + 0.05);
}

std::string legible(const std::string& colour, const std::string& paper) {
  const double target = luminance(paper) > 0.4 ? 0 : 255;
  std::string mixed = colour;
  for (int step = 1; step <= 20 && contrast(mixed, paper) < 4.5; ++step) {
    const auto values = channels(colour);
    std::array<char, 8> text{};
    std::array<int, 3> v{};
    for (std::size_t i = 0; i < 3; ++i)
      v[i] = static_cast<int>(std::lround(values[i] + (target - values[i]) * step / 20.0));
    std::snprintf(text.data(), text.size(), "#%02x%02x%02x", static_cast<unsigned>(v[0]), static_cast<unsigned>(v[1]),
                  static_cast<unsigned>(v[2]));
    mixed = text.data();
  }
  return mixed;
}

}  // namespace torsor::report
