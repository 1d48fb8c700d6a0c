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

bool is_line_end(char c) { return c == '\r' || c == '\n'; }

/// As contraction(), in either case. Without regard to case the long s (U+017F) is an s too.
std::size_t contraction_any_case(std::string_view text, std::size_t at) {
  const auto lower = [&](std::size_t i) {
    const char c = at + i < text.size() ? text[at + i] : '\0';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  switch (lower(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return lower(2) == 'e' ? 3 : 0;
    case 'l':
      return lower(2) == 'l' ? 3 : 0;
    default:
      return text.substr(at + 1).starts_with("\xC5\xBF") ? 3 : 0;
  }
}

/// The end of a piece by the rule llama3, with at most `most` digits in one.
std::size_t llama3_end(std::string_view text, std::size_t begin, int most) {
  if (text[begin] == '\'')
    if (const std::size_t size = contraction_any_case(text, begin); size > 0) return begin + size;
  const Step first = step_at(text, begin);
  if (first.kind == UnicodeClass::letter) return run_end(text, first.end, UnicodeClass::letter);
  if (first.kind == UnicodeClass::number) {
    std::size_t end = first.end;
    for (int count = 1; count < most && end < text.size(); ++count) {
      const Step step = step_at(text, end);
      if (step.kind != UnicodeClass::number) break;
      end = step.end;
    }
    return end;
  }
  const bool last = first.end == text.size();
  const UnicodeClass second = last ? UnicodeClass::space : step_at(text, first.end).kind;
  if (second == UnicodeClass::letter && !is_line_end(text[begin]))
    return run_end(text, first.end, UnicodeClass::letter);
  if (first.kind == UnicodeClass::other || (text[begin] == ' ' && second == UnicodeClass::other)) {
    std::size_t end = run_end(text, first.end, UnicodeClass::other);
    while (end < text.size() && is_line_end(text[end])) ++end;
    return end;
  }
  // White space up to its last line end; where it has none, as gpt2.
  std::size_t line_end = 0, before = begin, end = begin;
  while (end < text.size()) {
    const Step step = step_at(text, end);
    if (step.kind != UnicodeClass::space) break;
    if (is_line_end(text[end])) line_end = step.end;
    before = end;
    end = step.end;
  }
  if (line_end > 0) return line_end;
  return end < text.size() && before > begin ? before : end;
}

}  // namespace

bool PieceReader::next(std::string_view& piece) {
  if (at_ == text_.size()) return false;
  std::size_t end = 0;
  switch (split_) {
    case BpeSplit::gpt2:
      end = piece_end(text_, at_);
      break;
    case BpeSplit::llama3:
      end = llama3_end(text_, at_, 3);
      break;
    case BpeSplit::qwen2:
      end = llama3_end(text_, at_, 1);
      break;
    case BpeSplit::digits:
      if (at_ == part_end_)
        while (part_end_ < text_.size()) {
          const Step step = step_at(text_, part_end_);
          if (step.kind == UnicodeClass::number) {
            if (part_end_ == at_) part_end_ = step.end;
            break;
          }
          part_end_ = step.end;
        }
      end = piece_end(text_.substr(0, part_end_), at_);
      break;
  }
  piece = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

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
