#include "torsor/model/extend.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "torsor/encoding/registry.h"

namespace torsor {
namespace {

bool is_scaling(const Term& term) {
  for (const char* name : {"linear", "ntk", "ntk-by-parts", "dynamic", "yarn", "longrope", "llama3"})
    if (term.name == name) return true;
  return false;
}

/// The rotations of an expression, scaled or not, in the order written.
void find_rotations(Expression& expression, std::vector<Term*>& found) {
  for (Term& term : expression.terms) {
    if (is_scaling(term) || term.name == "rope")
      found.push_back(&term);
    else
      for (Item& item : term.operands) find_rotations(item.expression, found);
  }
}

std::vector<Term*> rotations_of(Expression& expression) {
  std::vector<Term*> found;
  find_rotations(expression, found);
  return found;
}

/// The rope inside a rotation; nothing where another rotation stands there.
Term* rope_of(Term& rotation) {
  if (rotation.name == "rope") return &rotation;
  if (rotation.operands.empty() || rotation.operands.front().expression.terms.size() != 1) return nullptr;
  Term& inner = rotation.operands.front().expression.terms.front();
  return inner.name == "rope" ? &inner : nullptr;
}

const Argument* find(const Term& term, const std::string& key) {
  for (const Argument& argument : term.arguments)
    if (argument.key == key) return &argument;
  return nullptr;
}

std::optional<double> number_of(const Term& term, const std::string& key) {
  const Argument* argument = find(term, key);
  const double* value = argument != nullptr ? std::get_if<double>(&argument->value) : nullptr;
  return value != nullptr ? std::optional<double>(*value) : std::nullopt;
}

bool has_key(const Term& term, const std::string& key) {
  const NameInfo* info = find_name(term.name);
  return info != nullptr &&
         std::any_of(info->keys.begin(), info->keys.end(), [&](const KeyInfo& one) { return one.name == key; });
}

void note(std::vector<std::string>& notes, const std::string& one) {
  if (std::find(notes.begin(), notes.end(), one) == notes.end()) notes.push_back(one);
}

/// Whether a scaling leaves something to fill in that the language of expressions asks for.
bool is_open(const Term& scaling) {
  return is_scaling(scaling) &&
         (find(scaling, "factor") == nullptr || (scaling.name == "longrope" && find(scaling, "short") == nullptr));
}

/// Keys that say together which channels turn, or what their axes are: one that is given leaves no other to inherit.
const std::vector<std::vector<std::string>> kTogether = {{"dim", "fraction", "part", "frequencies"},
                                                         {"axes", "sections", "arrangement"}};

class Planning {
 public:
  Planning(const ModelConfig& config, const ExtendRequest& request) : config_(config), request_(request) {
    own_ = parse(config.encoding);
  }

  Extension run() {
    const std::vector<Term*> own = rotations_of(own_);
    if (own.empty())
      throw Refusal(
          str("the checkpoint's encoding '", config_.encoding, "' has no rope, and only rope is extended here"));
    for (Term* rotation : own)
      if (rope_of(*rotation) == nullptr)
        throw Refusal(str("'", print(*rotation), "' is no rope that could be scaled anew"));
    learn_length(own);
    Expression asked = request_.method.empty() ? read() : around_own();
    const std::vector<Term*> rotations = rotations_of(asked);
    if (rotations.empty())
      throw Refusal(
          str("'", request_.encoding, "' has no rope, the checkpoint's encoding is '", config_.encoding, "'"));
    inherit(own, rotations);
    double longest = 0;
    for (Term* rotation : rotations) longest = std::max(longest, fill(*rotation));
    result_.encoding = print(parse(print(asked)));
    check_rest(result_.encoding);
    make_encoding(result_.encoding, config_.dimensions());  // that numbers a plane are as many, say
    result_.length = request_.length > 0 ? request_.length : static_cast<std::int64_t>(std::llround(longest));
    if (result_.length <= result_.trained)
      throw UsageError(str("a text of ", result_.length, " tokens is no longer than those of the training (",
                           result_.trained, "); give a larger --length or a factor"));
    return result_;
  }

 private:
  /// The length that the checkpoint was trained on: a scaling may tell it.
  void learn_length(const std::vector<Term*>& own) {
    result_.trained = config_.train_length;
    for (const Term* rotation : own)
      if (const auto told = number_of(*rotation, "train_length"))
        result_.trained = static_cast<std::int64_t>(std::llround(*told));
    if (request_.trained > 0) result_.trained = request_.trained;
    if (result_.trained < 1) throw UsageError("the checkpoint tells no training length; give --train-length");
  }

  Expression read() const {
    Expression asked = parse_grammar(request_.encoding);
    const std::vector<Term*> rotations = rotations_of(asked);
    // What is whole, or misspelt, is checked as it was written, so that columns in messages are right.
    const auto misspelt = [](const Term* one) {
      return std::any_of(one->arguments.begin(), one->arguments.end(),
                         [&](const Argument& argument) { return !has_key(*one, argument.key); });
    };
    if (std::none_of(rotations.begin(), rotations.end(), [](const Term* one) { return is_open(*one); }) ||
        std::any_of(rotations.begin(), rotations.end(), misspelt))
      parse(request_.encoding);
    return asked;
  }

  Expression around_own() const {
    Expression asked = own_;
    for (Term* rotation : rotations_of(asked)) {
      Expression rope;
      rope.terms.push_back(*rope_of(*rotation));
      Term scaled;
      scaled.name = request_.method;
      scaled.operands.push_back({std::move(rope), 1});
      *rotation = std::move(scaled);
    }
    return asked;
  }

  void inherit(const std::vector<Term*>& own, const std::vector<Term*>& rotations) {
    std::map<std::string, Term*> distinct;
    for (Term* rotation : own) distinct.emplace(print(*rope_of(*rotation)), rope_of(*rotation));
    if (distinct.size() > 1 && own.size() != rotations.size())
      throw UsageError(str("the checkpoint's encoding '", config_.encoding, "' has ", own.size(),
                           " rotations that differ; name as many, in its order"));
    for (std::size_t n = 0; n < rotations.size(); ++n) {
      Term* rope = rope_of(*rotations[n]);
      if (rope == nullptr) continue;  // another rotation: the comparison of what is left says so
      const Term& from = distinct.size() > 1 ? *rope_of(*own[n]) : *distinct.begin()->second;
      const Term given = *rope;
      for (const Argument& argument : from.arguments) {
        if (find(given, argument.key) != nullptr || told_together(given, argument.key)) continue;
        rope->arguments.push_back(argument);
        if (request_.method.empty()) note(result_.kept, str(argument.key, "=", print(argument.value)));
      }
    }
  }

  static bool told_together(const Term& given, const std::string& key) {
    for (const auto& group : kTogether)
      if (std::find(group.begin(), group.end(), key) != group.end())
        for (const std::string& other : group)
          if (find(given, other) != nullptr) return true;
    return false;
  }

  /// Fills in what a rotation leaves open; how long texts may become under it.
  double fill(Term& rotation) {
    const auto trained = static_cast<double>(result_.trained);
    if (!is_scaling(rotation)) return 0;
    const auto set = [&](const char* key, const Value& value) {
      rotation.arguments.push_back({key, value});
      note(result_.filled, str(key, "=", print(value)));
    };
    if (has_key(rotation, "train_length") && find(rotation, "train_length") == nullptr) set("train_length", trained);
    const double length = number_of(rotation, "train_length").value_or(trained);
    if (find(rotation, "factor") == nullptr) {
      if (request_.length < 1)
        throw UsageError(str(rotation.name, ": give factor=, or --length of the texts that are to be read"));
      const double factor = static_cast<double>(request_.length) / length;
      if (factor <= 1)
        throw UsageError(str("a text of ", request_.length, " tokens is no longer than those of the training (", length,
                             "); give a larger --length"));
      set("factor", factor);
    }
    const double factor = number_of(rotation, "factor").value_or(1);
    if (rotation.name == "longrope" && find(rotation, "short") == nullptr && find(rotation, "long") == nullptr)
      fill_lists(rotation, factor);
    return factor * length;
  }

  void fill_lists(Term& rotation, double factor) {
    Expression rope;
    if (rope_of(rotation) == nullptr) return;
    rope.terms.push_back(*rope_of(rotation));
    const auto info = make_encoding(print(rope), config_.dimensions())->rotation(1, {});
    if (!info || info->blocks != 1 || info->width < 4)
      throw UsageError("longrope: lists for this rotation are not made here; give short=[...] and long=[...]");
    const double width = static_cast<double>(info->width);
    std::vector<double> ones(static_cast<std::size_t>(info->width / 2), 1.0), slowed;
    for (std::size_t i = 0; i < ones.size(); ++i)
      slowed.push_back(std::pow(factor, 2 * static_cast<double>(i) / (width - 2)));
    rotation.arguments.push_back({"short", ones});
    rotation.arguments.push_back({"long", slowed});
    note(result_.filled, "short=1, long=factor^(2i/(d - 2))");
  }

  /// The expression without scalings and bases, and without temperatures.
  static std::string rest_of(const std::string& encoding) {
    Expression expression = parse(encoding);
    for (Term* rotation : rotations_of(expression)) {
      Term* inner = rope_of(*rotation);
      if (inner == nullptr) continue;
      Term rope = *inner;
      std::erase_if(rope.arguments, [](const Argument& argument) { return argument.key == "base"; });
      *rotation = std::move(rope);
    }
    if (expression.terms.size() > 1)
      std::erase_if(expression.terms,
                    [](const Term& term) { return term.name == "logn" || term.name == "llama4-scale"; });
    return print(parse(print(expression)));
  }

  void check_rest(const std::string& encoding) const {
    const std::string own = rest_of(config_.encoding), asked = rest_of(encoding);
    if (own != asked)
      throw Refusal(str("'", encoding, "' changes more than how the rotation of '", config_.encoding,
                        "' is scaled; torsor convert and torsor tune move a checkpoint to another encoding"));
  }

  const ModelConfig& config_;
  const ExtendRequest& request_;
  Expression own_;
  Extension result_;
};

}  // namespace

const std::vector<std::string>& extend_methods() {
  static const std::vector<std::string> names = {"linear", "ntk", "dynamic", "yarn", "longrope", "llama3"};
  return names;
}

Extension plan_extension(const ModelConfig& config, const ExtendRequest& request) {
  if (request.encoding.empty() == request.method.empty())
    throw UsageError("extend needs --encoding or --method, one of them");
  if (!request.method.empty()) {
    const auto& names = extend_methods();
    if (std::find(names.begin(), names.end(), request.method) == names.end())
      throw UsageError(
          str("method must be one of linear, ntk, dynamic, yarn, longrope, llama3, found ", request.method));
  }
  return Planning(config, request).run();
}

Decoder extended(const Decoder& model, const Extension& extension) {
  ModelConfig config = model.config();
  config.encoding = extension.encoding;
  config.train_length = extension.trained;
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : model.parameters()) weights[parameter.name] = parameter.tensor;
  return Decoder(config, weights, "the checkpoint");
}

}  // namespace torsor
