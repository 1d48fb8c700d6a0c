#include "torsor/data/bpe_split.h"

#include "torsor/base/unicode_classes.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

struct Step {
  UnicodeClass kind;
  std::size_t end;
};

Step step_at(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {unicode_class(byte), at + 1};
  const CodePoint point = decode_utf8(text, at);
  return {point.valid ? unicode_class(point.value) : UnicodeClass::other, at + point.size};
}

/// The length of a contraction such as 'll at `at`, where an apostrophe stands; 0 for none.
std::size_t contraction(std::string_view text, std::size_t at) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.substr(at, ending.size()) == ending) return ending.size();
  return 0;
}

/// The end of the run of `kind` that goes on at `at`.
std::size_t run_end(std::string_view text, std::size_t at, UnicodeClass kind) {
  while (at < text.size()) {
    const Step step = step_at(text, at);
    if (step.kind != kind) break;
    at = step.end;
  }
  return at;
}

}  // namespace

std::size_t piece_end(std::string_view text, std::size_t begin) {
  if (text[begin] == '\'')
    if (const std::size_t size = contraction(text, begin); size > 0) return begin + size;
  const Step first = step_at(text, begin);
  if (first.kind != UnicodeClass::space) return run_end(text, first.end, first.kind);
  if (text[begin] == ' ' && first.end < text.size()) {
    const Step second = step_at(text, first.end);
    if (second.kind != UnicodeClass::space) return run_end(text, second.end, second.kind);
  }
  // White space: all of it at the end of the text, else all but its last character, which the next piece takes where it
  // is a space and which stands alone where it is not.
  std::size_t last = begin, end = first.end;
  while (end < text.size()) {
    const Step step = step_at(text, end);
    if (step.kind != UnicodeClass::space) return last > begin ? last : end;
    last = end;
    end = step.end;
  }
  return end;
}

}  // namespace torsor
