#include "torsor/encoding/registry.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "torsor/encoding/composition.h"
#include "torsor/encoding/names.h"

namespace torsor {
namespace {

bool is_required(const KeyInfo& key) {
  const std::string* word = std::get_if<std::string>(&key.fallback);
  return word && word->empty() && key.type != KeyInfo::Type::Word;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = corner + (a[i - 1] != b[j - 1]);
      corner = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

template <class Range, class Name>
std::string join(const Range& range, Name name) {
  std::string text;
  for (const auto& one : range) text += (text.empty() ? "" : ", ") + std::string(name(one));
  return text;
}

/// "; did you mean 'rope'?" when something is near, else nothing.
template <class Range, class Name>
std::string nearest(std::string_view word, const Range& range, Name name) {
  std::string best;
  std::size_t least = 3;
  for (const auto& one : range) {
    const std::size_t distance = edit_distance(word, name(one));
    if (distance < least && distance < word.size()) {
      least = distance;
      best = name(one);
    }
  }
  return best.empty() ? "" : str("; did you mean '", best, "'?");
}

std::string range_text(const KeyInfo& key) {
  std::string text;
  if (key.low > -1e300) text += str(key.open_low ? " above " : " of at least ", print(Value(key.low)));
  if (key.high < 1e300) text += str(text.empty() ? "" : " and", " at most ", print(Value(key.high)));
  return text;
}

class Checker {
 public:
  explicit Checker(std::string_view source) : source_(source) {}

  Expression check(Expression expression) {
    for (Term& term : expression.terms) check(term, nullptr);
    check_sum(expression);
    return expression;
  }

 private:
  [[noreturn]] void fail(std::size_t column, const std::string& problem) const {
    throw ExpressionError(source_, column, problem);
  }

  const NameInfo& info_of(const Term& term) const {
    if (const NameInfo* info = find_name(term.name)) return *info;
    const auto name = [](const NameInfo& one) { return one.name; };
    fail(term.column, str("unknown encoding '", term.name, "'", nearest(term.name, registry(), name),
                          "; there are: ", join(registry(), name)));
  }

  void check(Term& term, const Term* outer) {
    const NameInfo& info = info_of(term);
    check_operands(term, info);
    check_keys(term, info);
    if (outer && outer->name == term.name && info.operand == Operand::Items)
      fail(term.column, str("'", term.name, "' inside '", term.name, "' has no meaning"));
  }

  void check_operands(Term& term, const NameInfo& info) {
    if (info.operand == Operand::None) {
      if (term.operands.empty()) return;
      fail(term.operands.front().expression.terms.front().column,
           str("'", term.name, "' takes no operand, only keys: ", key_list(info)));
    }
    if (info.operand == Operand::Items) {
      if (term.operands.empty())
        fail(term.column,
             str("'", term.name, "' needs operands with counts, for example ", term.name, "(rope * 2, none * 2)"));
      for (Item& item : term.operands) {
        for (Term& inner : item.expression.terms) {
          check(inner, &term);
          if (find_name(core(inner).name)->absolute)
            fail(inner.column, str("'", inner.name, "' adds to the token embedding, which has no heads or layers"));
        }
        check_sum(item.expression);
      }
      return;
    }
    const bool listed = info.operand == Operand::Listed;
    const auto fits = [&](const NameInfo& one) {
      return listed ? std::find(info.operands.begin(), info.operands.end(), one.name) != info.operands.end()
                    : one.rotary;
    };
    const auto names = [&] {
      std::string text;
      for (const NameInfo& one : registry())
        if (fits(one)) text += (text.empty() ? "" : ", ") + one.name;
      return text;
    };
    if (term.operands.size() != 1)
      fail(term.column, str("'", term.name, "' takes one ", listed ? "" : "rotary ", "operand (", names(), "), found ",
                            term.operands.size()));
    Item& item = term.operands.front();
    if (item.count != 1)
      fail(term.column, str("a count has no meaning inside '", term.name, "', only inside heads and layers"));
    if (item.expression.terms.size() != 1)
      fail(item.expression.terms[1].column,
           str("'", term.name, "' takes one ", listed ? "" : "rotary ", "term, not a sum"));
    Term& inner = item.expression.terms.front();
    if (!fits(info_of(inner)))
      fail(inner.column, str("'", term.name, "' takes ", listed ? "one of " : "a rotary encoding (", names(),
                             listed ? "" : ")", ", not '", inner.name, "'"));
    check(inner, &term);
  }

  /// The term that stands for the position: where another is listed to stand around it, the inner one.
  static const Term& core(const Term& term) {
    return find_name(term.name)->operand == Operand::Listed ? core(term.operands.front().expression.terms.front())
                                                            : term;
  }

  std::string key_list(const NameInfo& info) const {
    return info.keys.empty() ? "none" : join(info.keys, [](const KeyInfo& key) { return key.name; });
  }

  void check_keys(Term& term, const NameInfo& info) {
    for (Argument& argument : term.arguments) {
      const auto key = std::find_if(info.keys.begin(), info.keys.end(),
                                    [&](const KeyInfo& one) { return one.name == argument.key; });
      if (key == info.keys.end())
        fail(argument.column, str("'", term.name, "' has no key '", argument.key, "'",
                                  nearest(argument.key, info.keys, [](const KeyInfo& one) { return one.name; }),
                                  "; its keys: ", key_list(info)));
      check_value(term, *key, argument);
    }
    std::vector<Argument> ordered;
    for (const KeyInfo& key : info.keys) {
      const auto given = std::find_if(term.arguments.begin(), term.arguments.end(),
                                      [&](const Argument& one) { return one.key == key.name; });
      if (given == term.arguments.end()) {
        if (is_required(key)) fail(term.column, str("'", term.name, "' needs ", key.name, "= (", key.about, ")"));
        continue;
      }
      if (given->value != key.fallback) ordered.push_back(*given);
    }
    term.arguments = std::move(ordered);
  }

  void check_value(const Term& term, const KeyInfo& key, Argument& argument) const {
    using Type = KeyInfo::Type;
    const auto expected = [&](const std::string& what) {
      fail(argument.column, str(term.name, ": ", key.name, " expects ", what, ", found ", print(argument.value)));
    };
    const bool* flag = std::get_if<bool>(&argument.value);
    const double* number = std::get_if<double>(&argument.value);
    const std::string* word = std::get_if<std::string>(&argument.value);
    const std::vector<double>* list = std::get_if<std::vector<double>>(&argument.value);
    const auto in_range = [&](double value) {
      return value >= key.low && value <= key.high && !(key.open_low && value == key.low);
    };
    switch (key.type) {
      case Type::Boolean:
        if (!flag) expected("true or false");
        break;
      case Type::Word:
        if (!word || std::find(key.words.begin(), key.words.end(), *word) == key.words.end())
          expected(str("one of ", join(key.words, [](const std::string& one) { return one; })));
        break;
      case Type::NumberOrAuto:
        if (word && *word == "auto") break;
        if (!number || !in_range(*number)) expected(str("auto or a number", range_text(key)));
        break;
      case Type::Integer:
        if (!number || *number != std::floor(*number) || std::fabs(*number) > 9e15 || !in_range(*number))
          expected(str("a whole number", range_text(key)));
        break;
      case Type::Number:
        if (!number || !in_range(*number)) expected(str("a number", range_text(key)));
        break;
      case Type::NumberOrList:
        if (number && in_range(*number)) break;
        [[fallthrough]];
      case Type::List:
        if (!list || (list->empty() && key.fallback != Value(*list)) ||
            !std::all_of(list->begin(), list->end(), in_range))
          expected(
              str(key.type == Type::List ? "a list of numbers" : "a number or a list of numbers", range_text(key)));
        break;
    }
  }

  static bool rotates(const Term& term) {
    const NameInfo& info = *find_name(term.name);
    if (info.rotary || info.turns || info.operand == Operand::Rotary) return true;
    for (const Item& item : term.operands)
      for (const Term& inner : item.expression.terms)
        if (rotates(inner)) return true;
    return false;
  }

  static bool allows_absolute(const Term& term) {
    for (const Argument& argument : term.arguments)
      if (argument.key == "allow" && argument.value == Value(std::string("absolute"))) return true;
    for (const Item& item : term.operands)
      for (const Term& inner : item.expression.terms)
        if (rotates(inner) && allows_absolute(inner)) return true;
    return false;
  }

  static bool can_allow_absolute(const Term& term) {
    const std::vector<KeyInfo>& keys = find_name(term.name)->keys;
    return !term.operands.empty() ||
           std::any_of(keys.begin(), keys.end(), [](const KeyInfo& key) { return key.name == "allow"; });
  }

  static bool whole_head(const Term& term) {
    if (find_name(term.name)->operand == Operand::Items) return false;
    if (!term.operands.empty()) return whole_head(term.operands.front().expression.terms.front());
    for (const Argument& argument : term.arguments)
      if (argument.key == "dim") return false;
    return true;
  }

  void check_sum(const Expression& expression) const {
    const Term* rotation = nullptr;
    const Term* absolute = nullptr;
    const Term* unturned = nullptr;
    for (const Term& term : expression.terms) {
      const NameInfo& info = *find_name(core(term).name);
      if (find_name(term.name)->alone && expression.terms.size() > 1)
        fail(term.column, str("'", term.name, "' has no meaning in a sum; leave it out"));
      if (info.absolute) absolute = &term;
      if (info.no_rotation) unturned = &term;
      if (!rotates(term)) continue;
      if (rotation && (whole_head(*rotation) || whole_head(term)))
        fail(term.column, str("two rotations on the same planes: '", rotation->name, "' and '", term.name,
                              find_name(core(*rotation).name)->turns || info.turns
                                  ? "'; one of them turns the whole head"
                                  : "'; give them different spans with dim= and part="));
      rotation = &term;
    }
    if (rotation && absolute && !allows_absolute(*rotation))
      fail(absolute->column,
           str("'", absolute->name, "' beside the rotation '", rotation->name, "' gives the position twice; ",
               can_allow_absolute(*rotation) ? "write allow=absolute on the rotary name to do it on purpose"
                                             : "rope takes it with allow=absolute"));
    if (rotation && unturned)
      fail(rotation->column, str("'", unturned->name, "' holds its own position term and takes no rotation beside it"));
  }

  std::string_view source_;
};

class Maker {
 public:
  EncodingPointer sum(const Expression& expression, const Dimensions& dimensions) {
    std::vector<EncodingPointer> parts;
    for (const Term& term : expression.terms) parts.push_back(part(term, dimensions));
    return make_sum(std::move(parts), dimensions);
  }

 private:
  EncodingPointer part(const Term& term, const Dimensions& dimensions) {
    const NameInfo& info = *find_name(term.name);
    if (info.operand != Operand::Items) return leaf(term, dimensions);
    std::vector<EncodingPointer> parts;
    if (term.name == "heads") {
      for (const Item& item : term.operands)
        parts.push_back(sum(item.expression, part_dimensions(dimensions, item.count)));
      return make_heads(std::move(parts), dimensions);
    }
    for (const Item& item : term.operands)
      parts.insert(parts.end(), static_cast<std::size_t>(item.count), sum(item.expression, dimensions));
    return make_layers(std::move(parts), dimensions);
  }

  std::unique_ptr<Encoding> leaf(const Term& term, const Dimensions& dimensions) {
    const NameInfo& info = *find_name(term.name);
    const int number = ++seen_[term.name];
    MakeRequest request{
        term, Settings(term, info.keys), dimensions, number == 1 ? term.name : str(term.name, "#", number), {}};
    if (info.operand == Operand::Rotary || info.operand == Operand::Listed)
      request.operands.push_back(leaf(term.operands.front().expression.terms.front(), dimensions));
    return info.make(request);
  }

  std::map<std::string, int> seen_;
};

std::vector<NameInfo> all_names() {
  std::vector<NameInfo> names = {
      none_name(),    sinusoidal_name(),   learned_name(), rope_name(), xpos_name(),     linear_name(),
      ntk_name(),     ntk_by_parts_name(), dynamic_name(), yarn_name(), longrope_name(), llama3_name(),
      logn_name(),    llama4_scale_name(), alibi_name(),   t5_name(),   kerple_name(),   sandwich_name(),
      fire_name(),    cope_name(),         txl_name(),     fox_name(),  grape_a_name(),  grape_ap_name(),
      grape_m_name(), tape_name(),         sipe_name(),
  };
  NameInfo heads;
  heads.name = "heads";
  heads.summary = "gives each range of query heads its own encoding";
  heads.formula = "heads(E * n, F * m): E on the first n query heads, F on the next m, each as if it were alone";
  heads.source = "head mixtures; architecture of this project";
  heads.page = "heads";
  heads.operand = Operand::Items;
  NameInfo layers = heads;
  layers.name = "layers";
  layers.summary = "gives each layer of a repeated pattern its own encoding";
  layers.formula = "layers(E * n, F * m): E on n layers, F on the next m, repeated";
  layers.source = "interleaved rotary and position-free layers (Llama 4, SmolLM3); per-layer bases (Gemma 3)";
  layers.page = "layers";
  names.push_back(heads);
  names.push_back(layers);
  return names;
}

}  // namespace

Settings::Settings(const Term& term, const std::vector<KeyInfo>& keys) : term_(&term), keys_(&keys) {}

const Value& Settings::at(std::string_view key) const {
  for (const Argument& argument : term_->arguments)
    if (argument.key == key) return argument.value;
  for (const KeyInfo& info : *keys_)
    if (info.name == key) return info.fallback;
  throw std::logic_error(str("the key '", key, "' is not in the registry's list for '", term_->name, "'"));
}

double Settings::number(std::string_view key) const { return std::get<double>(at(key)); }
std::int64_t Settings::integer(std::string_view key) const { return static_cast<std::int64_t>(number(key)); }
bool Settings::boolean(std::string_view key) const { return std::get<bool>(at(key)); }
const std::string& Settings::word(std::string_view key) const { return std::get<std::string>(at(key)); }

std::vector<double> Settings::list(std::string_view key) const {
  const Value& value = at(key);
  if (const double* number = std::get_if<double>(&value)) return {*number};
  return std::get<std::vector<double>>(value);
}

bool Settings::is_auto(std::string_view key) const {
  const std::string* word = std::get_if<std::string>(&at(key));
  return word && *word == "auto";
}

bool Settings::given(std::string_view key) const {
  return std::any_of(term_->arguments.begin(), term_->arguments.end(),
                     [&](const Argument& one) { return one.key == key; });
}

const std::vector<NameInfo>& registry() {
  static const std::vector<NameInfo> names = all_names();
  return names;
}

const NameInfo* find_name(std::string_view name) {
  for (const NameInfo& info : registry())
    if (info.name == name) return &info;
  return nullptr;
}

Expression parse(std::string_view text) { return Checker(text).check(parse_grammar(text)); }

std::shared_ptr<const Encoding> make_encoding(const Expression& expression, const Dimensions& given) {
  Dimensions dimensions = given;
  if (dimensions.heads < 1) throw UsageError(str("heads must be at least 1, found ", dimensions.heads));
  if (dimensions.kv_heads == 0) dimensions.kv_heads = dimensions.heads;
  if (dimensions.kv_heads < 1 || dimensions.heads % dimensions.kv_heads != 0)
    throw UsageError(str("kv_heads must divide heads: heads ", dimensions.heads, ", kv_heads ", dimensions.kv_heads));
  if (dimensions.head_dim < 1) throw UsageError(str("head_dim must be at least 1, found ", dimensions.head_dim));
  if (dimensions.width == 0) dimensions.width = dimensions.heads * dimensions.head_dim;
  if (dimensions.width < 1) throw UsageError(str("width must be at least 1, found ", dimensions.width));
  if (dimensions.train_length < 0)
    throw UsageError(str("train_length must not be negative, found ", dimensions.train_length));
  if (dimensions.layers < 1) throw UsageError(str("layers must be at least 1, found ", dimensions.layers));
  EncodingPointer made = Maker().sum(expression, dimensions);
  std::const_pointer_cast<Encoding>(made)->set_expression(print(expression));  // made here, shared with nobody yet
  return made;
}

std::shared_ptr<const Encoding> make_encoding(std::string_view text, const Dimensions& dimensions) {
  return make_encoding(parse(text), dimensions);
}

std::shared_ptr<const Encoding> layer_encoding(const std::shared_ptr<const Encoding>& encoding, std::int64_t layer) {
  std::shared_ptr<const Encoding> chosen = encoding->at_layer(layer);
  return chosen ? chosen : encoding;
}

void check_parameters(const Encoding& encoding, std::int64_t layer, const NamedTensors& parameters) {
  const std::vector<ParameterInfo> infos = encoding.parameters(layer);
  for (const ParameterInfo& info : infos) {
    const auto found = parameters.find(info.name);
    if (found == parameters.end() || !found->second.defined())
      throw Error(str("the trained tensor '", info.name, "' of shape ", at::IntArrayRef(info.shape), " is missing"));
    const std::vector<std::int64_t> shape = found->second.sizes().vec();
    if (shape == info.shape || std::find(info.also.begin(), info.also.end(), shape) != info.also.end()) continue;
    throw Error(str("the trained tensor '", info.name, "' must have shape ", at::IntArrayRef(info.shape), ", found ",
                    found->second.sizes()));
  }
  for (const auto& [name, tensor] : parameters) {
    const bool known = std::any_of(infos.begin(), infos.end(),
                                   [&, &key = name](const ParameterInfo& info) { return info.name == key; });
    if (!known)
      throw Error(str("the encoding has no trained tensor '", name, "'; it has: ",
                      infos.empty() ? "none" : join(infos, [](const ParameterInfo& info) { return info.name; })));
  }
}

}  // namespace torsor
