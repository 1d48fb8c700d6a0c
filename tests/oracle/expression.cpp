#include "tests/oracle/expression.h"

#include <cctype>
#include <cstdlib>

namespace oracle {
namespace {

const std::map<std::string, std::set<std::string>>& vocabulary() {
  static const std::map<std::string, std::set<std::string>> names = {
      {"none", {}},
      {"sinusoidal", {"base", "order"}},
      {"learned", {"length"}},
      {"rope",
       {"base", "layout", "orientation", "dim", "part", "frequencies", "fraction", "axes", "sections", "arrangement",
        "learn", "allow"}},
      {"xpos", {"base", "scale_base", "gamma", "layout"}},
      {"linear", {"factor"}},
      {"ntk", {"factor"}},
      {"ntk-by-parts", {"factor", "train_length"}},
      {"dynamic", {"factor", "train_length"}},
      {"yarn",
       {"factor", "train_length", "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale",
        "mscale_all_dim"}},
      {"longrope", {"short", "long", "train_length", "factor", "attention_factor"}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor", "train_length"}},
      {"logn", {"train_length"}},
      {"llama4-scale", {"scale", "length"}},
      {"alibi", {"max_exponent", "learn"}},
      {"t5", {"buckets", "max_distance", "bidirectional", "far", "shared"}},
      {"kerple", {"kind"}},
      {"sandwich", {"width"}},
      {"fire", {"hidden", "length"}},
      {"cope", {"length"}},
      {"txl", {"order"}},
      {"fox", {}},
      {"grape-a", {"gate", "variant", "learn_slopes"}},
      {"grape-ap", {"width", "variant", "tie", "learn_alpha"}},
      {"grape-m",
       {"planes", "base", "rank", "basis", "reflectors", "context", "link", "axes", "per_head", "layout",
        "orientation"}},
      {"tape", {"post", "width", "mlp", "attention", "block", "from_layer", "gqa", "clip", "control"}},
      {"sipe",
       {"prior", "coupling", "factor", "mode", "inject", "inject_from", "beta_init", "subword", "cross_sentence",
        "same_sentence", "hops", "rank", "bound", "start", "fuse", "labels"}},
      {"heads", {}},
      {"layers", {}},
  };
  return names;
}

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  Sum whole() {
    Sum sum = read_sum();
    if (at_ != text_.size()) fail("the end");
    return sum;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    throw Error("expression '" + text_ + "', column " + std::to_string(at_ + 1) + ": expected " + expected);
  }

  void blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  bool take(char c) {
    blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    blanks();
    return true;
  }

  std::string word() {
    blanks();
    std::size_t end = at_;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) != 0 || text_[end] == '-' ||
                                  text_[end] == '_' || text_[end] == '.')) {
      ++end;
    }
    // 1e+6: the plus belongs to the number
    if (end < text_.size() && text_[end] == '+' && end > at_ && (text_[end - 1] == 'e' || text_[end - 1] == 'E') &&
        std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      ++end;
      while (end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end])) != 0) ++end;
    }
    if (end == at_) fail("a name or a value");
    std::string found = text_.substr(at_, end - at_);
    at_ = end;
    blanks();
    return found;
  }

  Value value() {
    Value v;
    if (!take('[')) {
      v.text = word();
      return v;
    }
    v.is_list = true;
    if (take(']')) return v;
    do {
      const std::string item = word();
      char* end = nullptr;
      v.list.push_back(std::strtod(item.c_str(), &end));
      if (*end != '\0') fail("a number in the list");
    } while (take(','));
    if (!take(']')) fail("']'");
    return v;
  }

  Sum read_sum() {
    Sum sum;
    do {
      sum.push_back(read_term());
    } while (take('+'));
    return sum;
  }

  Term read_term() {
    Term term;
    term.name = word();
    const auto known = vocabulary().find(term.name);
    if (known == vocabulary().end()) fail("a known name before here, not '" + term.name + "'");
    if (!take('(')) return term;
    if (take(')')) return term;
    do {
      blanks();
      const std::size_t start = at_;
      const std::string first = word();
      if (take('=')) {
        if (known->second.count(first) == 0) fail("a key that '" + term.name + "' has, not '" + first + "'");
        if (!term.options.emplace(first, value()).second) fail("'" + first + "' only once");
        continue;
      }
      at_ = start;
      Item item;
      item.sum = read_sum();
      if (take('*')) {
        const std::string count = word();
        item.count = std::atoi(count.c_str());
        if (item.count < 1 || std::to_string(item.count) != count) fail("a whole number above zero");
      }
      term.items.push_back(std::move(item));
    } while (take(','));
    if (!take(')')) fail("')'");
    return term;
  }

  std::string text_;
  std::size_t at_ = 0;
};

void number_names(Sum& sum, std::map<std::string, int>& seen) {
  for (Term& term : sum) {
    term.occurrence = ++seen[term.name];
    for (Item& item : term.items) number_names(item.sum, seen);
  }
}

}  // namespace

std::string Term::key() const { return occurrence == 1 ? name : name + "#" + std::to_string(occurrence); }

double Term::number(const std::string& option, double otherwise) const {
  return has(option) ? number(option) : otherwise;
}

double Term::number(const std::string& option) const {
  const auto found = options.find(option);
  if (found == options.end()) throw Error("'" + name + "' needs " + option + "=");
  char* end = nullptr;
  const double number = std::strtod(found->second.text.c_str(), &end);
  if (found->second.is_list || end == found->second.text.c_str() || *end != '\0') {
    throw Error("'" + name + "': " + option + " takes a number");
  }
  return number;
}

bool Term::flag(const std::string& option, bool otherwise) const {
  const std::string text = word(option, otherwise ? "true" : "false");
  if (text != "true" && text != "false") throw Error("'" + name + "': " + option + " takes true or false");
  return text == "true";
}

std::string Term::word(const std::string& option, const std::string& otherwise) const {
  const auto found = options.find(option);
  return found == options.end() ? otherwise : found->second.text;
}

std::vector<double> Term::list(const std::string& option) const {
  const auto found = options.find(option);
  if (found == options.end()) return {};
  if (found->second.is_list) return found->second.list;
  return {number(option)};
}

const Term& Term::inner() const {
  if (items.size() != 1 || items[0].sum.size() != 1 || items[0].count != 1) {
    throw Error("'" + name + "' takes one encoding in its brackets");
  }
  return items[0].sum[0];
}

Sum parse(const std::string& text) {
  Sum sum = Reader(text).whole();
  std::map<std::string, int> seen;
  number_names(sum, seen);
  return sum;
}

}  // namespace oracle
