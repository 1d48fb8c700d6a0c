#include "torsor/base/unicode_forms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "torsor/base/utf8.h"

namespace torsor {
namespace {

struct Range {
  char32_t first, last;
};

/// A full decomposition; zeros behind it.
struct Decomposition {
  char32_t value;
  std::array<char32_t, 4> form;
};

/// Two code points that become one, the second the last of its decomposition. Sorted by both.
struct Composition {
  char32_t first, second, value;
};

/// Code points of one canonical combining class.
struct Combining {
  char32_t first, last;
  int value;
};

/// Every `step`th code point has its lower case at the same distance.
struct Lower {
  char32_t first, last;
  std::uint32_t step;
  std::int32_t distance;
};

#include "torsor/base/unicode_forms.inc"

/// The entry of a sorted table of ranges that holds `value`, or null.
template <class Entry, std::size_t count>
const Entry* find_range(const Entry (&table)[count], char32_t value) {
  const Entry* next = std::upper_bound(std::begin(table), std::end(table), value,
                                       [](char32_t one, const Entry& entry) { return one < entry.first; });
  if (next == std::begin(table) || value > (next - 1)->last) return nullptr;
  return next - 1;
}

int combining_class(char32_t value) {
  if (value < 0x300) return 0;
  const Combining* found = find_range(kCombining, value);
  return found == nullptr ? 0 : found->value;
}

// Hangul: a syllable is a leading consonant, a vowel and perhaps a trailing consonant (Unicode, section 3.12).
constexpr char32_t kSyllables = 0xAC00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadingCount = 19, kVowelCount = 21, kTrailingCount = 28, kSyllableCount = 11172;

void append_decomposed(std::u32string& text, char32_t value) {
  if (value < 0xC0) {
    text += value;
    return;
  }
  if (value >= kSyllables && value < kSyllables + kSyllableCount) {
    const char32_t index = value - kSyllables;
    text += kLeading + index / (kVowelCount * kTrailingCount);
    text += kVowels + index % (kVowelCount * kTrailingCount) / kTrailingCount;
    if (const char32_t trailing = index % kTrailingCount; trailing != 0) text += kTrailing + trailing;
    return;
  }
  const Decomposition* found =
      std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), value,
                       [](const Decomposition& entry, char32_t one) { return entry.value < one; });
  if (found == std::end(kDecompositions) || found->value != value) {
    text += value;
    return;
  }
  for (const char32_t part : found->form)
    if (part != 0) text += part;
}

/// What two neighbours become, or 0.
char32_t composition_of(char32_t first, char32_t second) {
  if (first >= kLeading && first < kLeading + kLeadingCount && second >= kVowels && second < kVowels + kVowelCount)
    return kSyllables + ((first - kLeading) * kVowelCount + (second - kVowels)) * kTrailingCount;
  if (first >= kSyllables && first < kSyllables + kSyllableCount && (first - kSyllables) % kTrailingCount == 0 &&
      second > kTrailing && second < kTrailing + kTrailingCount)
    return first + (second - kTrailing);
  const auto key = [](const Composition& one) { return std::pair(one.first, one.second); };
  const Composition* found = std::lower_bound(
      std::begin(kCompositions), std::end(kCompositions), std::pair(first, second),
      [&](const Composition& one, const std::pair<char32_t, char32_t>& pair) { return key(one) < pair; });
  return found != std::end(kCompositions) && key(*found) == std::pair(first, second) ? found->value : 0;
}

}  // namespace

bool is_nonspacing_mark(char32_t value) { return value >= 0x300 && find_range(kMarks, value) != nullptr; }

bool is_punctuation(char32_t value) { return find_range(kPunctuation, value) != nullptr; }

bool is_control(char32_t value) { return find_range(kControls, value) != nullptr; }

std::u32string decomposed(std::u32string_view text) {
  std::u32string apart;
  apart.reserve(text.size());
  for (const char32_t value : text) append_decomposed(apart, value);
  // Runs of marks in the order of their classes; those of one class stay as they are.
  for (std::size_t begin = 0; begin < apart.size();) {
    if (combining_class(apart[begin]) == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin + 1;
    while (end < apart.size() && combining_class(apart[end]) != 0) ++end;
    std::stable_sort(apart.begin() + static_cast<std::ptrdiff_t>(begin),
                     apart.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  return apart;
}

std::u32string composed(std::u32string_view text) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::u32string result;
  std::size_t starter = kNone;  // where a mark may go
  int last = -1;                // the class of what was kept behind it; -1 where nothing was
  for (const char32_t value : decomposed(text)) {
    const int mark = combining_class(value);
    if (starter != kNone && last < mark)
      if (const char32_t both = composition_of(result[starter], value); both != 0) {
        result[starter] = both;
        continue;
      }
    last = mark;
    if (mark == 0) {
      starter = result.size();
      last = -1;
    }
    result += value;
  }
  return result;
}

std::string composed_utf8(std::string_view text) {
  // Up to U+02FF nothing is changed.
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; }))
    return std::string(text);
  std::string result;
  std::u32string run;
  const auto flush = [&] {
    for (const char32_t value : composed(run)) append_utf8(result, value);
    run.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.valid) {
      run += point.value;
    } else {
      flush();
      result += text.substr(at, point.size);
    }
    at += point.size;
  }
  flush();
  return result;
}

void append_lower(std::u32string& text, char32_t value) {
  if (value < 0x80) {
    text += value >= U'A' && value <= U'Z' ? value + 32 : value;
    return;
  }
  if (value == 0x130) {  // I with a dot: i and the dot
    text += U"i\u0307";
    return;
  }
  const Lower* found = find_range(kLower, value);
  const bool has = found != nullptr && (value - found->first) % found->step == 0;
  text += has ? static_cast<char32_t>(static_cast<std::int32_t>(value) + found->distance) : value;
}

}  // namespace torsor
