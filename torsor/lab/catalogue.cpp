#include "torsor/lab/catalogue.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/encoding/registry.h"

namespace torsor {
namespace {

// Sizes that no default of a key equals, so that a number in a shape tells where it comes from.
constexpr std::int64_t kHeads = 26, kKeyHeads = 13, kHeadDim = 46, kWidth = 1010, kTrainLength = 2003;
constexpr std::int64_t kLayers = 3, kLayer = 1;  // a middle layer: the first and the last may keep less
constexpr double kExampleFactor = 4;

const Dimensions& example_dimensions() {
  static const Dimensions dimensions{.heads = kHeads,
                                     .kv_heads = kKeyHeads,
                                     .head_dim = kHeadDim,
                                     .width = kWidth,
                                     .train_length = kTrainLength,
                                     .layers = kLayers};
  return dimensions;
}

Json symbolic(const std::vector<std::int64_t>& shape) {
  Json json = Json::array();
  for (const std::int64_t extent : shape) {
    if (extent == kHeads)
      json.push_back("H");
    else if (extent == 4 * kHeads)
      json.push_back("4H");
    else if (extent == kKeyHeads)
      json.push_back("K");
    else if (extent == kHeadDim)
      json.push_back("D");
    else if (extent == kHeadDim / 2)
      json.push_back("D/2");
    else if (extent == kHeadDim * (kHeadDim - 1) / 2)
      json.push_back("D(D-1)/2");
    else if (extent == kWidth)
      json.push_back("C");
    else if (extent == kTrainLength)
      json.push_back("L");
    else
      json.push_back(extent);
  }
  return json;
}

bool required(const KeyInfo& key) {
  const std::string* word = std::get_if<std::string>(&key.fallback);
  return word != nullptr && word->empty() && key.type != KeyInfo::Type::Word;
}

const char* type_name(KeyInfo::Type type) {
  switch (type) {
    case KeyInfo::Type::Boolean:
      return "true or false";
    case KeyInfo::Type::Integer:
      return "whole number";
    case KeyInfo::Type::Number:
      return "number";
    case KeyInfo::Type::NumberOrAuto:
      return "number or auto";
    case KeyInfo::Type::NumberOrList:
      return "number or list";
    case KeyInfo::Type::List:
      return "list";
    case KeyInfo::Type::Word:
      return "word";
  }
  return "";
}

Json value_json(const Value& value) {
  return std::visit([](const auto& one) { return Json(one); }, value);
}

std::string range(const KeyInfo& key) {
  std::string text;
  if (key.low > -1e300) text = str(key.open_low ? "above " : "at least ", print(Value(key.low)));
  if (key.high < 1e300) text += str(text.empty() ? "" : ", ", "at most ", print(Value(key.high)));
  return text;
}

Json key_to_json(const KeyInfo& key) {
  Json json;
  json["name"] = key.name;
  json["type"] = type_name(key.type);
  json["default"] = required(key) ? Json(nullptr) : value_json(key.fallback);
  json["required"] = required(key);
  json["range"] = range(key);
  json["words"] = key.words;
  json["about"] = key.about;
  return json;
}

/// Encodings without trained tensors that may stand inside, so that all those seen are the name's own.
std::vector<std::string> example_operands(const NameInfo& info) {
  if (info.operand == Operand::Rotary) return {"rope"};
  if (info.operand == Operand::Listed) return {"alibi", "rope"};
  return {""};
}

/// An expression of the name around `operand` with what it cannot do without, and `extra` keys.
Expression example(const NameInfo& info, const std::string& operand, const std::vector<Argument>& extra) {
  Term term;
  term.name = info.name;
  if (!operand.empty()) {
    Term inner;
    inner.name = operand;
    term.operands.push_back(Item{Expression{{inner}, ""}, 1});
  }
  for (const KeyInfo& key : info.keys)
    if (required(key))
      term.arguments.push_back({key.name, key.type == KeyInfo::Type::List
                                              ? Value(std::vector<double>(kHeadDim / 2, 1.0))
                                              : Value(kExampleFactor)});
  term.arguments.insert(term.arguments.end(), extra.begin(), extra.end());
  return parse(print(Expression{{term}, ""}));
}

std::shared_ptr<const Encoding> made(const NameInfo& info, const std::string& operand,
                                     const std::vector<Argument>& extra = {}) {
  return make_encoding(example(info, operand, extra), example_dimensions());
}

/// Every key with each of its values that may bring tensors.
std::vector<Argument> changes_of(const NameInfo& info) {
  std::vector<Argument> all;
  for (const KeyInfo& key : info.keys) {
    std::vector<Value> others;
    if (key.type == KeyInfo::Type::Boolean) others.emplace_back(!std::get<bool>(key.fallback));
    for (const std::string& word : key.words) others.emplace_back(word);
    // A number that is off at 0 may bring tensors when it is on (rank).
    if (key.type == KeyInfo::Type::Integer && key.fallback == Value(0.0)) others.emplace_back(kExampleFactor);
    for (const Value& other : others)
      if (other != key.fallback) all.push_back({key.name, other});
  }
  return all;
}

/// The tensors under the defaults, and those that one changed key brings: "gate=k or qk".
Json trained_tensors(const NameInfo& info, const Encoding& plain) {
  Json all = Json::array();
  const auto add = [&](const Encoding& encoding, const std::string& key, const std::string& value) {
    for (const ParameterInfo& parameter : encoding.parameters(kLayer)) {
      const auto known =
          std::find_if(all.begin(), all.end(), [&](const Json& one) { return one["name"] == parameter.name; });
      const Json with = key.empty() ? Json(nullptr) : Json(str(key, '=', value));
      if (known != all.end()) {
        Json& text = (*known)["with"];
        const std::string old = text.is_string() ? text.get<std::string>() : "";
        // Around another encoding the same value says nothing new.
        const bool there = old.ends_with("=" + value) || old.ends_with(" or " + value) ||
                           old.find(" or " + value + " or ") != std::string::npos ||
                           old.find("=" + value + " or ") != std::string::npos;
        if (!key.empty() && old.starts_with(key + "=") && !there) text = str(old, " or ", value);
        continue;
      }
      Json json;
      json["name"] = parameter.name;
      json["shape"] = symbolic(parameter.shape);
      Json also = Json::array();
      for (const std::vector<std::int64_t>& shape : parameter.also) also.push_back(symbolic(shape));
      if (!also.empty()) json["also"] = also;
      json["with"] = with;
      json["shared_by_layers"] = parameter.shared;
      all.push_back(json);
    }
  };
  add(plain, "", "");
  const std::vector<Argument> changes = changes_of(info);
  const auto try_with = [&](const std::string& operand, const std::vector<Argument>& extra) {
    try {
      const Argument& last = extra.back();
      const std::string before = extra.size() > 1 ? str(extra[0].key, '=', print(extra[0].value), ", ") : "";
      add(*made(info, operand, extra), before + last.key, print(last.value));
    } catch (const UsageError&) {
      // Such a word needs another key beside it, or another encoding inside.
    }
  };
  const std::vector<std::string> operands = example_operands(info);
  for (std::size_t n = 0; n < operands.size(); ++n) {
    if (n > 0) add(*made(info, operands[n]), "inside", operands[n]);
    for (const Argument& change : changes) try_with(operands[n], {change});
  }
  // What changes another encoding has keys that need each other.
  if (info.operand == Operand::Listed)
    for (const std::string& operand : example_operands(info))
      for (std::size_t i = 0; i < changes.size(); ++i)
        for (std::size_t j = i + 1; j < changes.size(); ++j)
          if (changes[i].key != changes[j].key) try_with(operand, {changes[i], changes[j]});
  return all;
}

Json name_entry(const NameInfo& info) {
  Json json;
  json["name"] = info.name;
  json["summary"] = info.summary;
  json["formula"] = info.formula;
  json["source"] = info.source;
  json["keys"] = Json::array();
  for (const KeyInfo& key : info.keys) json["keys"].push_back(key_to_json(key));
  std::string listed;
  for (const std::string& name : info.operands) listed += (listed.empty() ? "one of " : ", ") + name;
  json["takes"] = info.operand == Operand::Rotary   ? Json("one rotary encoding")
                  : info.operand == Operand::Listed ? Json(listed)
                  : info.operand == Operand::Items  ? Json("encodings with counts")
                                                    : Json(nullptr);
  if (info.operand == Operand::Items) {
    for (const char* key : {"trained", "bias_forms", "rotates", "adds_to_embedding", "relative", "length_dependent",
                            "reads_content", "cache"})
      json[key] = nullptr;
    return json;
  }
  const std::shared_ptr<const Encoding> encoding = made(info, example_operands(info).front());
  json["trained"] = trained_tensors(info, *encoding);
  const Traits traits = encoding->traits();
  json["bias_forms"] = traits.forms;
  json["rotates"] = traits.rotates;
  json["adds_to_embedding"] = traits.absolute;
  json["relative"] = traits.relative;
  json["length_dependent"] = traits.length_dependent;
  json["reads_content"] = traits.content;
  const CacheContract contract = encoding->cache(kLayer);
  Json cache;
  cache["keys"] = contract.key == CacheContract::Key::Rotated ? "as moved at arrival" : "unmoved, moved at each read";
  cache["kept"] = contract.kept;
  const auto answer = [](const std::string& text) { return CacheContract::exact(text) ? "exact" : text; };
  cache["shift"] = answer(contract.shift);
  cache["evict"] = answer(contract.evict);
  cache["evict_oldest"] = answer(contract.oldest());
  cache["note"] = contract.note;
  json["cache"] = cache;
  return json;
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}

std::string plain_text(const Json& value) { return value.is_string() ? value.get<std::string>() : json_text(value); }

std::string shape_text(const Json& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + plain_text(shape[i]);
  return text + ")";
}

std::string key_line(const NameInfo& info, const KeyInfo& key) {
  std::size_t width = 0;
  for (const KeyInfo& one : info.keys) width = std::max(width, one.name.size());
  std::string value = required(key) ? "required" : print(key.fallback);
  if (value.empty()) value = "not given";
  std::string may;
  for (const std::string& word : key.words) may += (may.empty() ? "" : " | ") + word;
  if (may.empty()) may = type_name(key.type) + (range(key).empty() ? "" : ", " + range(key));
  return str("  ", padded(key.name, width), "  ", value, "  (", may, ")  ", key.about, "\n");
}

}  // namespace

Json catalogue() {
  Json all = Json::array();
  for (const NameInfo& info : registry()) all.push_back(name_entry(info));
  return all;
}

Json catalogue_entry(const std::string& name) {
  if (const NameInfo* info = find_name(name)) return name_entry(*info);
  parse(name);  // says what there is, and what may have been meant
  throw UsageError(str("unknown encoding '", name, "'"));
}

std::string catalogue_text() {
  std::size_t width = 0;
  for (const NameInfo& info : registry()) width = std::max(width, info.name.size());
  std::string text;
  for (const NameInfo& info : registry()) text += padded(info.name, width) + "  " + info.summary + "\n";
  return text + "\nMore about one: torsor encodings NAME. They add with +, as in 'rope + alibi'.\n";
}

std::string catalogue_text(const std::string& name) {
  const Json json = catalogue_entry(name);
  const NameInfo& info = *find_name(name);
  std::string text = str(info.name, ": ", info.summary, "\n\n  ", info.formula, "\n\n");
  if (!json["takes"].is_null()) text += str("Takes ", plain_text(json["takes"]), ".\n\n");
  text += info.keys.empty() ? "No keys.\n" : "Keys, with their defaults:\n";
  for (const KeyInfo& key : info.keys) text += key_line(info, key);
  if (info.operand != Operand::Items) {
    text += json["trained"].empty() ? "\nTrains nothing.\n"
                                    : "\nTrained tensors (H query heads, K key heads, D head width, C model width, L "
                                      "training length):\n";
    for (const Json& tensor : json["trained"]) {
      text += str("  ", plain_text(tensor["name"]), " ", shape_text(tensor["shape"]));
      if (tensor.contains("also"))
        for (const Json& shape : tensor["also"]) text += " or " + shape_text(shape);
      text += str(tensor["shared_by_layers"] == true ? ", one for all layers" : "",
                  tensor["with"].is_null() ? "" : ", with " + plain_text(tensor["with"]), "\n");
    }
    std::string forms;
    for (const Json& form : json["bias_forms"]) forms += (forms.empty() ? "" : ", ") + plain_text(form);
    text += str("\nBias forms: ", forms.empty() ? "none" : forms, "\n");
    text += str("Relative (unchanged when all positions move alike): ", json["relative"] == true ? "yes" : "no", "\n");
    const Json& cache = json["cache"];
    text += str("\nKV cache: keys ", plain_text(cache["keys"]), "\n  shift: ", plain_text(cache["shift"]),
                "\n  evict: ", plain_text(cache["evict"]), "\n");
    if (cache["evict_oldest"] != cache["evict"])
      text += str("  evict a row's oldest tokens: ", plain_text(cache["evict_oldest"]), "\n");
    if (!plain_text(cache["note"]).empty()) text += str("  ", plain_text(cache["note"]), "\n");
  }
  return text + str("\nSource: ", info.source, "\nMore: docs/encodings/", info.page, ".md\n");
}

}  // namespace torsor
