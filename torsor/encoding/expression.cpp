#include "torsor/encoding/expression.h"

#include <charconv>
#include <cmath>

namespace torsor {
namespace {

// Deep enough for any meaning (layers(heads(tape(yarn(rope))))), shallow enough that hostile nesting costs nothing.
constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxLength = 65536;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class GrammarReader {
 public:
  explicit GrammarReader(std::string_view text) : text_(text) {}

  Expression read() {
    if (text_.size() > kMaxLength) fail(kMaxLength, str("longer than ", kMaxLength, " bytes"));
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const unsigned char c = static_cast<unsigned char>(text_[i]);
      if (c < 32 || c > 126) fail(i, str("byte ", static_cast<int>(c), " is not printable ASCII"));
    }
    Expression expression = sum(0);
    skip_spaces();
    if (at_ < text_.size()) fail(at_, str("expected '+' or the end, found '", text_[at_], "'"));
    expression.source = std::string(text_);
    return expression;
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& problem) const {
    throw ExpressionError(text_, at + 1, problem);
  }

  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool accept(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string found() const { return at_ < text_.size() ? str("'", text_[at_], "'") : std::string("the end"); }

  std::string word() {
    skip_spaces();
    const std::size_t begin = at_;
    if (at_ < text_.size() && is_letter(text_[at_])) {
      ++at_;
      while (at_ < text_.size()) {
        const char c = text_[at_];
        // A hyphen belongs to a name (grape-ap) only when a letter or digit follows.
        const bool hyphen =
            c == '-' && at_ + 1 < text_.size() && (is_letter(text_[at_ + 1]) || is_digit(text_[at_ + 1]));
        if (!is_letter(c) && !is_digit(c) && !hyphen) break;
        ++at_;
      }
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  double number() {
    skip_spaces();
    const std::size_t begin = at_;
    std::size_t from = at_;
    if (from < text_.size() && text_[from] == '+') ++from;
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + from, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) fail(begin, "number outside the range of double");
    if (error != std::errc() || end == text_.data() + from) fail(begin, str("expected a number, found ", found()));
    at_ = static_cast<std::size_t>(end - text_.data());
    if (!std::isfinite(value)) fail(begin, "expected a finite number");
    if (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '.'))
      fail(at_, str("unexpected '", text_[at_], "' after a number"));
    return value;
  }

  bool number_ahead() const {
    if (at_ >= text_.size()) return false;
    const char c = text_[at_];
    return is_digit(c) || c == '-' || c == '+' || c == '.';
  }

  Value value() {
    skip_spaces();
    if (accept('[')) {
      std::vector<double> list;
      if (accept(']')) return list;
      do list.push_back(number());
      while (accept(','));
      if (!accept(']')) fail(at_, str("expected ',' or ']', found ", found()));
      return list;
    }
    if (number_ahead()) return number();
    const std::size_t begin = at_;
    const std::string text = word();
    if (text.empty()) fail(begin, str("expected a value, found ", found()));
    if (text == "true") return true;
    if (text == "false") return false;
    if (text == "nan" || text == "inf" || text == "infinity")
      fail(begin, str("expected a finite number, found ", text));
    return text;
  }

  std::int64_t count() {
    skip_spaces();
    const std::size_t begin = at_;
    const double value = number();
    if (value != std::floor(value) || value < 1 || value > 1e6) fail(begin, "expected a whole count of at least 1");
    return static_cast<std::int64_t>(value);
  }

  Expression sum(int depth) {
    if (depth > kMaxDepth) fail(at_, str("nested deeper than ", kMaxDepth));
    Expression expression;
    skip_spaces();
    const std::size_t begin = at_;
    do expression.terms.push_back(term(depth));
    while (accept('+'));
    expression.source = std::string(text_.substr(begin, at_ - begin));
    return expression;
  }

  Term term(int depth) {
    skip_spaces();
    Term term;
    term.column = at_ + 1;
    term.name = word();
    if (term.name.empty()) fail(at_, str("expected the name of an encoding, found ", found()));
    if (!accept('(')) return term;
    if (accept(')')) return term;
    do argument(term, depth);
    while (accept(','));
    if (!accept(')')) fail(at_, str("expected ',' or ')', found ", found()));
    return term;
  }

  void argument(Term& term, int depth) {
    skip_spaces();
    const std::size_t begin = at_;
    const std::string key = word();
    if (!key.empty() && accept('=')) {
      for (const Argument& earlier : term.arguments)
        if (earlier.key == key) fail(begin, str("'", key, "' is given twice"));
      term.arguments.push_back({key, value(), begin + 1});
      return;
    }
    if (!term.arguments.empty()) fail(begin, str("operands of '", term.name, "' come before its keys"));
    at_ = begin;
    Item item;
    item.expression = sum(depth + 1);
    if (accept('*')) item.count = count();
    term.operands.push_back(std::move(item));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string shown(std::string_view source) {
  constexpr std::size_t kMost = 80;
  std::string text;
  for (const char c : source.substr(0, kMost)) text += (c >= 32 && c <= 126) ? c : '?';
  return source.size() > kMost ? text + "..." : text;
}

std::string print_number(double value) {
  // Whole numbers print without exponent (10000, not 1e+04), as people write them.
  char buffer[64];
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, static_cast<std::int64_t>(value));
    return {buffer, result.ptr};
  }
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, result.ptr};
}

}  // namespace

ExpressionError::ExpressionError(std::string_view source, std::size_t column, const std::string& problem)
    : UsageError(str("encoding '", shown(source), "', column ", column, ": ", problem)), column_(column) {}

Expression parse_grammar(std::string_view text) { return GrammarReader(text).read(); }

std::string print(const Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const double* number = std::get_if<double>(&value)) return print_number(*number);
  if (const std::string* text = std::get_if<std::string>(&value)) return *text;
  std::string text = "[";
  for (const double number : std::get<std::vector<double>>(value)) {
    if (text.size() > 1) text += ", ";
    text += print_number(number);
  }
  return text + "]";
}

std::string print(const Term& term) {
  std::string inside;
  for (const Item& item : term.operands) {
    if (!inside.empty()) inside += ", ";
    inside += print(item.expression);
    if (item.count != 1) inside += str(" * ", item.count);
  }
  for (const Argument& argument : term.arguments) {
    if (!inside.empty()) inside += ", ";
    inside += str(argument.key, "=", print(argument.value));
  }
  return inside.empty() ? term.name : str(term.name, "(", inside, ")");
}

std::string print(const Expression& expression) {
  std::string text;
  for (const Term& term : expression.terms) {
    if (!text.empty()) text += " + ";
    text += print(term);
  }
  return text;
}

Expression unwrapped(const Expression& expression, std::string_view wrapper) {
  Expression result;
  for (const Term& term : expression.terms) {
    if (term.name == wrapper && !term.operands.empty()) {
      for (Term& one : unwrapped(term.operands.front().expression, wrapper).terms)
        result.terms.push_back(std::move(one));
      continue;
    }
    Term copy = term;
    for (Item& item : copy.operands) item.expression = unwrapped(item.expression, wrapper);
    result.terms.push_back(std::move(copy));
  }
  return result;
}

}  // namespace torsor
