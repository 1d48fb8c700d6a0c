#include "torsor/lab/diagnosis_words.h"

#include <array>
#include <cmath>
#include <sstream>

#include "torsor/base/error.h"

namespace torsor {

std::string shown(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e6) return str(static_cast<std::int64_t>(value));
  std::ostringstream text;
  if (std::abs(value) >= 1000 && std::abs(value) < 1e6) {
    text << std::llround(value);
    return text.str();
  }
  text.precision(3);
  text << value;
  std::string result = text.str();
  // 1.2e+09 -> 1.2e9
  if (const std::size_t e = result.find("e+0"); e != std::string::npos) result.erase(e + 1, 2);
  if (const std::size_t e = result.find("e+"); e != std::string::npos) result.erase(e + 1, 1);
  return result;
}

std::string ranges(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + str(numbers[i]);
    if (last > i) text += str(last == i + 1 ? ", " : " to ", numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string shell_word(const std::string& text) {
  const bool plain =
      !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=") ==
                           std::string::npos;
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shown_bytes(double bytes) {
  constexpr std::array<const char*, 6> units = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < units.size()) bytes /= 1024, ++unit;
  return shown(bytes) + " " + units[unit];
}

}  // namespace torsor
