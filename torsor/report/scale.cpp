#include "torsor/report/scale.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/report/numbers.h"

namespace torsor::report {
namespace {

void check_ends(double low, double high, const char* where) {
  if (!std::isfinite(low) || !std::isfinite(high) || low > high) {
    throw Error(str(where, ": expected finite ends in order, got ", low, " and ", high));
  }
}

std::vector<double> log_steps(double low, double high, const std::vector<double>& factors) {
  std::vector<double> ticks;
  const int first = static_cast<int>(std::floor(std::log10(low))) - 1;
  const int last = static_cast<int>(std::ceil(std::log10(high))) + 1;
  for (int power = first; power <= last; ++power) {
    for (const double factor : factors) {
      const double tick = power < 0 ? factor / std::pow(10.0, -power) : factor * std::pow(10.0, power);
      if (tick >= low * (1 - 1e-12) && tick <= high * (1 + 1e-12)) ticks.push_back(tick);
    }
  }
  return ticks;
}

double character_width(char32_t value) {
  if (value >= 0x2e80) return 1.0;
  switch (value) {
    case U'i':
    case U'j':
    case U'l':
    case U'I':
    case U'.':
    case U',':
    case U':':
    case U';':
    case U'\'':
    case U'|':
      return 0.3;
    case U' ':
    case U'f':
    case U't':
    case U'r':
    case U'(':
    case U')':
    case U'[':
    case U']':
    case U'-':
    case U'/':
      return 0.4;
    case U'm':
    case U'w':
    case U'M':
    case U'W':
    case U'@':
    case U'%':
      return 0.92;
    default:
      return value >= U'A' && value <= U'Z' ? 0.72 : 0.62;
  }
}

}  // namespace

double Scale::operator()(double value) const {
  const double span = log ? std::log(high / low) : high - low;
  if (span == 0) return (from + to) / 2;
  return from + (to - from) * (log ? std::log(value / low) : value - low) / span;
}

bool wants_log(double low, double high) { return low > 0 && high > 4 * low; }

std::vector<double> nice_ticks(double low, double high, int about) {
  check_ends(low, high, "nice_ticks");
  if (low == high) return {low};
  const double rough = (high - low) / std::max(about, 2);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double candidates[] = {1, 2, 5, 10};
  double step = 10 * power;
  for (const double factor : candidates) {
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  for (;;) {
    std::vector<double> ticks;
    const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
    for (double i = first; i <= last; ++i) ticks.push_back(i == 0 ? 0 : i * step);
    if (ticks.size() >= 2) return ticks;
    step /= 2;  // 0.5, 0.25: still readable
  }
}

std::vector<double> log_ticks(double low, double high, int about) {
  check_ends(low, high, "log_ticks");
  if (!(low > 0)) throw Error(str("log_ticks: expected positive ends, got ", low));
  if (low == high) return {low};
  std::vector<double> powers = log_steps(low, high, {1});
  if (static_cast<int>(powers.size()) > about + 1) {
    const auto stride = static_cast<std::size_t>(std::ceil(static_cast<double>(powers.size()) / about));
    std::vector<double> fewer;
    for (std::size_t i = 0; i < powers.size(); i += stride) fewer.push_back(powers[i]);
    return fewer;
  }
  for (const std::vector<double>& factors : {std::vector<double>{1}, {1, 2, 5}, {1, 1.5, 2, 3, 4, 5, 7}}) {
    std::vector<double> ticks = log_steps(low, high, factors);
    if (static_cast<int>(ticks.size()) >= std::max(about - 1, 2)) return ticks;
  }
  std::vector<double> finest = log_steps(low, high, {1, 1.5, 2, 3, 4, 5, 7});
  return finest.size() >= 3 ? finest : nice_ticks(low, high, about);
}

std::vector<std::string> tick_texts(const std::vector<double>& ticks) {
  std::vector<std::string> texts;
  double largest = 0, smallest = INFINITY;
  for (const double tick : ticks) {
    largest = std::max(largest, std::abs(tick));
    if (tick != 0) smallest = std::min(smallest, std::abs(tick));
  }
  if (largest >= 1e6 || (largest > 0 && largest < 1e-4)) {
    for (const double tick : ticks) {
      int power = tick == 0 ? 0 : static_cast<int>(std::floor(std::log10(std::abs(tick)) + 1e-9));
      texts.push_back(tick == 0 ? "0" : str(format_significant(tick / std::pow(10.0, power), 3), 'e', power));
      // "1.00e6" says no more than "1e6".
      std::string& text = texts.back();
      const std::size_t point = text.find('.'), mark = text.find('e');
      if (point == std::string::npos || mark == std::string::npos) continue;
      std::size_t end = mark;
      while (text[end - 1] == '0') --end;
      if (text[end - 1] == '.') --end;
      text.erase(end, mark - end);
    }
    return texts;
  }
  // Every tick in as many decimals as it needs itself would read 10, 12.5, 15: one number for all reads better, save on
  // a logarithmic axis, where 0.1 and 100 stand together.
  const auto needed = [](double tick) {
    int decimals = 0;
    while (decimals < 6 &&
           std::abs(tick * std::pow(10.0, decimals) - std::round(tick * std::pow(10.0, decimals))) > 1e-6) {
      ++decimals;
    }
    return decimals;
  };
  int most = 0;
  for (const double tick : ticks) most = std::max(most, needed(tick));
  const bool wide = smallest < INFINITY && largest > 50 * smallest;
  for (const double tick : ticks) texts.push_back(format_decimals(tick, wide ? needed(tick) : most));
  return texts;
}

std::vector<double> spread_labels(const std::vector<double>& wanted, double height, double top, double bottom) {
  const std::size_t count = wanted.size();
  std::vector<double> placed(count);
  if (count == 0) return placed;
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return wanted[a] < wanted[b]; });

  const double room = bottom - top;
  if (height * static_cast<double>(count) >= room) {
    for (std::size_t i = 0; i < count; ++i) {
      placed[order[i]] = top + room * (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    }
    return placed;
  }
  // With u_i = y_i - i * height the condition is that u ascends: isotonic regression, solved by pooling neighbours that
  // violate the order into blocks that sit at the mean of their wishes.
  struct Block {
    double sum;
    std::size_t size;
    double mean() const { return sum / static_cast<double>(size); }
  };
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    blocks.push_back({wanted[order[i]] - height * static_cast<double>(i), 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean() >= blocks.back().mean()) {
      const Block last = blocks.back();
      blocks.pop_back();
      blocks.back().sum += last.sum;
      blocks.back().size += last.size;
    }
  }
  const double lowest = top + height / 2;
  const double highest = bottom - height / 2 - height * static_cast<double>(count - 1);
  std::size_t i = 0;
  for (const Block& block : blocks) {
    const double base = std::clamp(block.mean(), lowest, highest);
    for (std::size_t k = 0; k < block.size; ++k, ++i) placed[order[i]] = base + height * static_cast<double>(i);
  }
  return placed;
}

double text_width(const std::string& text, double size) {
  double width = 0;
  for (std::size_t offset = 0; offset < text.size();) {
    const CodePoint point = decode_utf8(text, offset);
    width += character_width(point.value);
    offset += point.size;
  }
  return width * size;
}

std::string fit_text(const std::string& text, double size, double room) {
  std::size_t columns = display_width(text);
  std::string fitted = text;
  while (columns > 1 && text_width(fitted, size) > room + 1e-6) fitted = shorten(text, --columns);
  return fitted;
}

std::vector<std::string> fit_texts(const std::vector<std::string>& texts, double size,
                                   const std::vector<double>& rooms) {
  std::vector<std::string> fitted;
  for (std::size_t i = 0; i < texts.size(); ++i) fitted.push_back(fit_text(texts[i], size, rooms[i]));
  std::map<std::string, std::size_t> uses;
  for (const std::string& text : fitted) ++uses[text];
  for (std::size_t i = 0; i < fitted.size(); ++i) {
    if (uses[fitted[i]] < 2) continue;
    const std::string place = str('#', i + 1);
    fitted[i] = fit_text(texts[i], size, rooms[i] - text_width(place + ' ', size)) + ' ' + place;
  }
  return fitted;
}

}  // namespace torsor::report
