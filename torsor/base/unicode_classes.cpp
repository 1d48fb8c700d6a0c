#include "torsor/base/unicode_classes.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace torsor {
namespace {

struct Run {
  char32_t first, last;
  UnicodeClass value;
};

constexpr UnicodeClass letter = UnicodeClass::letter, number = UnicodeClass::number, space = UnicodeClass::space;

constexpr Run runs[] = {
#include "torsor/base/unicode_classes.inc"
};

UnicodeClass search(char32_t value) {
  const Run* next = std::upper_bound(std::begin(runs), std::end(runs), value,
                                     [](char32_t one, const Run& run) { return one < run.first; });
  if (next == std::begin(runs)) return UnicodeClass::other;
  const Run& run = *(next - 1);
  return value <= run.last ? run.value : UnicodeClass::other;
}

/// The classes of ASCII, which is most of most texts.
const std::array<UnicodeClass, 128>& ascii() {
  static const std::array<UnicodeClass, 128> classes = [] {
    std::array<UnicodeClass, 128> made{};
    for (char32_t value = 0; value < 128; ++value) made[value] = search(value);
    return made;
  }();
  return classes;
}

}  // namespace

UnicodeClass unicode_class(char32_t value) { return value < 128 ? ascii()[value] : search(value); }

}  // namespace torsor
