#include "torsor/data/formula.h"

#include <charconv>
#include <cmath>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-'; }

bool near(double a, double b) { return std::abs(a - b) <= 1e-3 + 1e-5 * std::abs(b); }

// How tightly an operation binds; what binds less stands in brackets inside what binds more.
enum Level { kBool = 0, kComparison = 1, kSum = 2, kAtom = 3 };

}  // namespace

/// Recursive descent; each rule says whether it read a truth value or a number.
class FormulaParser {
 public:
  FormulaParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Formula run() {
    if (text_.size() > Formula::kLongest)
      throw Error(str(source_, ": expected a formula of at most ", Formula::kLongest, " bytes, found ", text_.size()));
    const bool truth = booleans();
    blanks();
    if (at_ < text_.size()) {
      const char c = text_[at_];
      fail(c == '<' || c == '>' || c == '=' ? "a comparison cannot be compared again; use brackets"
                                            : str("expected an operator or the end, found ", found()));
    }
    at_ = 0;
    blanks();
    if (!truth) fail("expected a comparison, found a number");
    return std::move(formula_);
  }

 private:
  using Operation = Formula::Operation;

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(str(source_, ": column ", at_ + 1, ": ", message));
  }
  [[noreturn]] void fail_at(std::size_t place, const std::string& message) {
    at_ = place;
    fail(message);
  }

  std::string found() const {
    if (at_ >= text_.size()) return "the end";
    return quote(text_.substr(at_, decode_utf8(text_, at_).size));
  }
  void blanks() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  char next() {
    blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void expect(char c, const char* what) {
    if (next() != c || at_ >= text_.size()) fail(str("expected ", what, ", found ", found()));
    ++at_;
  }

  bool booleans() {
    const std::size_t begin = start();
    const bool first = comparison();
    for (char c = next(); c == '&' || c == '|'; c = next()) {
      ++at_;
      if (!first) fail_at(begin, "expected a comparison beside '&' or '|', found a number");
      const std::size_t right = start();
      if (!comparison()) fail_at(right, str("expected a comparison after '", c, "', found a number"));
      formula_.steps_.push_back({c == '&' ? Operation::And : Operation::Or});
    }
    return first;
  }

  bool comparison() {
    const std::size_t begin = start();
    const bool truth = sum();
    const char c = next();
    if (c != '<' && c != '>' && c != '=') return truth;
    if (truth) fail_at(begin, str("expected a number before '", c, "', found a comparison"));
    ++at_;
    if (at_ < text_.size() && text_[at_] == '=') fail("comparisons are '<', '>' and '='");
    const std::size_t right = start();
    if (sum()) fail_at(right, str("expected a number after '", c, "', found a comparison"));
    formula_.steps_.push_back({c == '<' ? Operation::Less : c == '>' ? Operation::Greater : Operation::Equal});
    return true;
  }

  bool sum() {
    const std::size_t begin = start();
    const bool truth = atom();
    for (char c = next(); c == '+' || c == '-'; c = next()) {
      if (truth) fail_at(begin, str("expected a number before '", c, "', found a comparison"));
      ++at_;
      const std::size_t right = start();
      if (atom()) fail_at(right, str("expected a number after '", c, "', found a comparison"));
      formula_.steps_.push_back({c == '+' ? Operation::Add : Operation::Subtract});
    }
    return truth;
  }

  bool atom() {
    const char c = next();
    if (c == '(' && region()) return false;
    if (c == '(' || c == '[') {
      if (++depth_ > Formula::kDeepest)
        fail(str("expected at most ", Formula::kDeepest, " brackets inside each other"));
      ++at_;
      const bool truth = booleans();
      const char close = c == '(' ? ')' : ']';
      if (const char comparison = next(); comparison == '<' || comparison == '>' || comparison == '=')
        fail("a comparison cannot be compared again; use brackets");
      expect(close, c == '(' ? "')'" : "']'");
      --depth_;
      return truth;
    }
    if (is_digit(c) || c == '.') {
      number();
      return false;
    }
    fail(str("expected a region, a number or a bracket, found ", found()));
  }

  void number() {
    double value = 0;
    const char* const end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, value);
    if (error != std::errc() || !std::isfinite(value)) fail("expected a number that a double holds");
    at_ = static_cast<std::size_t>(stop - text_.data());
    if (at_ < text_.size() && (is_name(text_[at_]) && text_[at_] != '-'))
      fail(str("expected an operator after a number, found ", found()));
    formula_.steps_.push_back({Operation::Number, 0, value});
  }

  // "(7;%match%)". False, with nothing read, where the bracket groups instead.
  bool region() {
    const std::size_t begin = at_++;
    RegionReference reference;
    reference.column = begin + 1;
    const char c = next();
    const std::size_t digits = at_;
    if (c == '*') {
      reference.region = RegionReference::kAll;
      ++at_;
    } else {
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
      const auto [stop, error] = std::from_chars(text_.data() + digits, text_.data() + at_, reference.region);
      const bool whole = error == std::errc() && stop == text_.data() + at_ && at_ > digits;
      if (next() == ';' && at_ > digits && !whole) fail_at(digits, "expected the number of a region, or '*'");
    }
    if (next() != ';') {
      if (c == '*') fail(str("expected ';' after '*', found ", found()));
      at_ = begin;
      return false;
    }
    if (c != '*' && !is_digit(text_[digits])) fail_at(digits, "expected the number of a region, or '*'");
    ++at_;
    expect('%', "'%' before the name of a condition");
    const std::size_t name = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == name) fail(str("expected the name of a condition (letters, digits, '_', '-'), found ", found()));
    reference.condition = text_.substr(name, at_ - name);
    if (at_ >= text_.size() || text_[at_] != '%')
      fail(str("expected '%' after the name of a condition (letters, digits, '_', '-'), found ", found()));
    ++at_;
    expect(')', "')' after a region");
    std::size_t index = 0;
    while (index < formula_.references_.size() && !formula_.references_[index].same_as(reference)) ++index;
    if (index == formula_.references_.size()) formula_.references_.push_back(reference);
    formula_.steps_.push_back({Operation::Reference, index, 0});
    return true;
  }

  std::size_t start() {
    blanks();
    return at_;
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Formula formula_;
};

Formula Formula::parse(std::string_view text, const std::string& source) { return FormulaParser(text, source).run(); }

bool Formula::holds(std::span<const double> values) const {
  if (values.size() != references_.size())
    throw Error(str("formula: expected ", references_.size(), " values, found ", values.size()));
  std::vector<double> stack;  // truth values as 1 and 0; the parser has kept the two apart
  for (const Step& step : steps_) {
    if (step.operation == Operation::Reference) {
      stack.push_back(values[step.reference]);
      continue;
    }
    if (step.operation == Operation::Number) {
      stack.push_back(step.number);
      continue;
    }
    const double b = stack.back();
    stack.pop_back();
    double& a = stack.back();
    switch (step.operation) {
      case Operation::Add:
        a += b;
        break;
      case Operation::Subtract:
        a -= b;
        break;
      case Operation::Less:
        a = a < b ? 1 : 0;
        break;
      case Operation::Greater:
        a = a > b ? 1 : 0;
        break;
      case Operation::Equal:
        a = near(a, b) ? 1 : 0;
        break;
      case Operation::And:
        a = a != 0 && b != 0 ? 1 : 0;
        break;
      default:
        a = a != 0 || b != 0 ? 1 : 0;
    }
  }
  return stack.back() != 0;
}

std::string Formula::text() const {
  struct Piece {
    std::string text;
    int level;
  };
  std::vector<Piece> stack;
  for (const Step& step : steps_) {
    if (step.operation == Operation::Reference) {
      const RegionReference& reference = references_[step.reference];
      const std::string region = reference.region == RegionReference::kAll ? "*" : str(reference.region);
      stack.push_back({str("(", region, ";%", reference.condition, "%)"), kAtom});
      continue;
    }
    if (step.operation == Operation::Number) {
      char digits[64];
      const auto end = std::to_chars(digits, digits + sizeof digits, step.number).ptr;
      stack.push_back({std::string(digits, end), kAtom});
      continue;
    }
    const char* sign = nullptr;
    int level = kBool;
    switch (step.operation) {
      case Operation::Add:
        sign = " + ", level = kSum;
        break;
      case Operation::Subtract:
        sign = " - ", level = kSum;
        break;
      case Operation::Less:
        sign = " < ", level = kComparison;
        break;
      case Operation::Greater:
        sign = " > ", level = kComparison;
        break;
      case Operation::Equal:
        sign = " = ", level = kComparison;
        break;
      case Operation::And:
        sign = " & ";
        break;
      default:
        sign = " | ";
    }
    const Piece right = std::move(stack.back());
    stack.pop_back();
    Piece& left = stack.back();
    const auto inside = [](const Piece& piece, bool bare) { return bare ? piece.text : "[" + piece.text + "]"; };
    left.text = inside(left, left.level >= level) + sign + inside(right, right.level > level);
    left.level = level;
  }
  return stack.back().text;
}

bool Formula::operator==(const Formula& other) const {
  if (steps_.size() != other.steps_.size() || references_.size() != other.references_.size()) return false;
  for (std::size_t i = 0; i < references_.size(); ++i)
    if (!references_[i].same_as(other.references_[i])) return false;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step &a = steps_[i], &b = other.steps_[i];
    if (a.operation != b.operation || a.reference != b.reference || a.number != b.number) return false;
  }
  return true;
}

}  // namespace torsor
