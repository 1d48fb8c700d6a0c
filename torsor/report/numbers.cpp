#include "torsor/report/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor::report {
namespace {

constexpr const char* kPlusMinus = " \u00b1 ";
constexpr const char* kEllipsis = "\u2026";

/// The power of ten of the first digit once `value` > 0 is rounded to `digits` significant digits: 999.6 with three
/// digits is 1000, so 3.
int leading_power(double value, int digits) {
  std::array<char, 64> buffer{};
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific, digits - 1);
  const char* mark = std::find(buffer.data(), end, 'e') + 1;
  if (*mark == '+') ++mark;
  int power = 0;
  std::from_chars(mark, end, power);
  return error == std::errc{} ? power : 0;
}

std::string with_unit(double value, double base, const std::array<const char*, 6>& units) {
  std::size_t unit = 0;
  double scaled = value;
  // 999.6 would print as 1000 in the smaller unit.
  while (unit + 1 < units.size() && std::abs(scaled) >= 999.5) {
    scaled /= base;
    ++unit;
  }
  std::string text = format_significant(scaled, 3);
  if (unit == 0 && scaled == std::floor(scaled)) text = format_decimals(scaled, 0);
  return units[unit][0] == '\0' ? text : text + ' ' + units[unit];
}

struct Range {
  char32_t first;
  char32_t last;
};

bool within(char32_t value, const Range* begin, const Range* end) {
  return std::any_of(begin, end, [value](const Range& range) { return range.first <= value && value <= range.last; });
}

// Blocks of Unicode 15: coarse, since the cost of an error is a crooked column.
constexpr Range kZeroWidth[] = {{0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x064b, 0x065f},
                                {0x0e31, 0x0e31}, {0x0e34, 0x0e3a}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
                                {0x200b, 0x200f}, {0x202a, 0x202e}, {0x2060, 0x2064}, {0x20d0, 0x20ff},
                                {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}};
constexpr Range kWide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xac00, 0xd7a3},
                           {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
                           {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff}, {0x20000, 0x3fffd}};

std::size_t width_of(char32_t value) {
  if (value < 0x20 || (value >= 0x7f && value < 0xa0)) return 0;
  if (within(value, std::begin(kZeroWidth), std::end(kZeroWidth))) return 0;
  return within(value, std::begin(kWide), std::end(kWide)) ? 2 : 1;
}

}  // namespace

std::string format_decimals(double value, int decimals) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (decimals < 0) {
    const double unit = std::pow(10.0, -decimals);
    value = std::round(value / unit) * unit;
  }
  std::array<char, 400> buffer{};  // the largest double has 309 digits before the point
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed,
                                          std::clamp(decimals, 0, 20));
  std::string text(buffer.data(), error == std::errc{} ? end : buffer.data());
  if (text.find_first_of("123456789") == std::string::npos && !text.empty() && text[0] == '-') text.erase(0, 1);
  return text;
}

std::string format_significant(double value, int digits) {
  if (!std::isfinite(value)) return format_decimals(value, 0);
  if (value == 0) return "0";
  const int power = leading_power(std::abs(value), digits);
  if (power >= -4 && power < 6) return format_decimals(value, digits - 1 - power);
  std::array<char, 64> buffer{};
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific, digits - 1);
  const std::string text(buffer.data(), error == std::errc{} ? end : buffer.data());
  const std::size_t mark = text.find('e');
  return str(text.substr(0, mark), 'e', power);
}

int decimals_for_spread(double sd, int limit) {
  if (!(sd > 0) || !std::isfinite(sd)) throw Error(str("decimals_for_spread: expected a positive number, got ", sd));
  const int power = leading_power(sd, 2);  // of the rounded value: 0.0996 begins with 1
  const bool begins_with_1 = sd < 1.95 * std::pow(10.0, power);
  const int decimals = begins_with_1 ? 1 - power : -power;
  return std::min(decimals, limit);
}

namespace {

/// Whether there is a spread to show. Below a billionth of the mean it is rounding: the same figure several times.
bool spreads(double mean, const std::optional<double>& sd) {
  return sd && std::isfinite(mean) && std::isfinite(*sd) && *sd > 1e-9 * std::abs(mean);
}

}  // namespace

std::string format_mean(double mean, const std::optional<double>& sd) {
  if (!spreads(mean, sd)) return format_significant(mean, 3);
  if (std::abs(mean) >= 1e6) return format_significant(mean, 3);
  return format_decimals(mean, decimals_for_spread(*sd));
}

std::string format_mean_short(double mean, const std::optional<double>& sd) {
  const std::string three = format_significant(mean, 3), allowed = format_mean(mean, sd);
  return allowed.size() < three.size() ? allowed : three;
}

std::string format_mean_sd(double mean, const std::optional<double>& sd) {
  std::string text = format_mean(mean, sd);
  if (!spreads(mean, sd)) return text;
  if (std::abs(mean) >= 1e6) return text + kPlusMinus + format_significant(*sd, 2);
  return text + kPlusMinus + format_decimals(*sd, decimals_for_spread(*sd));
}

std::string format_interval(const Interval& interval) {
  if (!interval.low || !interval.high) return "";
  const double low = *interval.low, high = *interval.high;
  const double width = high - low;
  if (!(width > 0)) return str(format_significant(low), " to ", format_significant(high));
  // A quarter of a 95 % interval is about one standard deviation of the mean. An end that is not zero must not print
  // as zero: whether the interval holds zero is the question.
  const double size = std::max(std::abs(low), std::abs(high));
  int decimals = std::clamp(std::min(-leading_power(width / 4, 1), 2 - leading_power(size, 3)), 0, 6);
  const auto hides_sign = [](double value, int places) {
    return value != 0 && format_decimals(value, places).find_first_of("123456789") == std::string::npos;
  };
  while (decimals < 6 && (hides_sign(low, decimals) || hides_sign(high, decimals))) ++decimals;
  return str(format_decimals(low, decimals), " to ", format_decimals(high, decimals));
}

std::string format_count(double value) { return with_unit(value, 1000, {"", "k", "M", "G", "T", "P"}); }

std::string format_bytes(double value) { return with_unit(value, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}); }

std::string format_factor(double value) {
  if (!std::isfinite(value) || std::abs(value) < 0.1) return format_significant(value, 2);
  return std::abs(value) < 9.995 ? format_decimals(value, 2) : format_significant(value, 3);
}

std::string one_line(std::string_view text) {
  std::string line;
  for (std::size_t offset = 0; offset < text.size();) {
    const CodePoint point = decode_utf8(text, offset);
    if (point.value < 0x20 || (point.value >= 0x7f && point.value < 0xa0)) {
      line += ' ';
    } else {
      append_utf8(line, point.value);  // U+FFFD for what was not UTF-8
    }
    offset += point.size;
  }
  return line;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t offset = 0; offset < text.size();) {
    const CodePoint point = decode_utf8(text, offset);
    width += width_of(point.value);
    offset += point.size;
  }
  return width;
}

std::string shorten(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return "";
  const std::size_t tail_width = (width - 1) / 2;
  const std::size_t head_width = width - 1 - tail_width;
  std::string head;
  std::size_t taken = 0, offset = 0;
  while (offset < text.size()) {
    const CodePoint point = decode_utf8(text, offset);
    if (taken + width_of(point.value) > head_width) break;
    taken += width_of(point.value);
    head.append(text.substr(offset, point.size));
    offset += point.size;
  }
  // Drop characters from the front of the rest until it fits: never cuts a character.
  std::size_t start = offset;
  while (start < text.size() && display_width(text.substr(start)) > tail_width) {
    start += decode_utf8(text, start).size;
  }
  return head + kEllipsis + std::string(text.substr(start));
}

std::vector<std::string> shorten_apart(const std::vector<std::string>& names, std::size_t width) {
  std::map<std::string, std::set<std::string>> behind;
  for (const std::string& name : names) behind[shorten(name, width)].insert(name);
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    const std::string cut = shorten(name, width);
    shown.push_back(behind.at(cut).size() == 1 ? cut : name);
  }
  return shown;
}

}  // namespace torsor::report
