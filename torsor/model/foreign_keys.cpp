#include "torsor/model/foreign_keys.h"

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor::foreign_keys {

std::string shown(const Json& value) {
  const std::string text = quote(json_text(value), 80);
  return text.substr(1, text.size() - 2);
}

std::int64_t integer(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback) {
  const Json value = keys.get<Json>(key, Json(nullptr));
  if (value.is_null() && fallback) return *fallback;
  if (!value.is_null() && !value.is_number_integer())
    keys.fail(str(quote(key), " must be a whole number, found ", shown(value)));
  return keys.get<std::int64_t>(key);
}

std::int64_t size(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback, std::int64_t most) {
  const std::int64_t value = integer(keys, key, fallback);
  if (value < 1) keys.fail(str(quote(key), " must be at least 1, found ", value));
  if (value > most) keys.fail(str(quote(key), " must be at most ", most, ", found ", value));
  return value;
}

std::int64_t layers(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback) {
  return size(keys, key, fallback, SizeLimits::kLayers);
}

std::int64_t vocabulary(JsonObject& keys, const std::string& key) {
  return size(keys, key, std::nullopt, SizeLimits::kVocabulary);
}

std::int64_t length(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback) {
  return size(keys, key, fallback, SizeLimits::kLength);
}

const char* either(JsonObject& keys, const char* first, const char* second) {
  if (!keys.has(second)) return first;
  if (!keys.has(first)) return second;
  const auto one = keys.get<Json>(first), other = keys.get<Json>(second);
  if (one != other)
    keys.fail(str(quote(first), " is ", shown(one), " and ", quote(second), ", another name of it, ", shown(other)));
  return first;
}

void expect(JsonObject& keys, const std::string& key, const Json& value) {
  const Json found = keys.get<Json>(key, value);
  if (found != value) keys.fail(str(quote(key), ": ", shown(found), " is not supported, only ", shown(value)));
}

void finish_positions(const JsonObject& keys) {
  for (const std::string& key : keys.unknown()) {
    std::string lower = key;
    for (char& c : lower)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    for (const char* part : {"rope", "rotary", "alibi", "position", "pos_emb", "rel_pos", "relative_att", "yarn",
                             "sliding", "window", "layer_types"})
      if (lower.find(part) != std::string::npos)
        keys.fail(str(quote(key), " is not known for this family, and it is about positions"));
  }
}

std::vector<std::int64_t> token_ids(JsonObject& keys, const std::string& key) {
  std::vector<std::int64_t> ids;
  if (const Json found = keys.get<Json>(key, Json(nullptr)); !found.is_null())
    for (const Json& one : found.is_array() ? found : Json::array({found})) {
      if (!one.is_number_integer())
        keys.fail(str(quote(key), " must be a whole number or a list of them, found ", shown(found)));
      ids.push_back(JsonObject(Json{{key, one}}, keys.source(), JsonObject::Blame::data).get<std::int64_t>(key));
    }
  return ids;
}

}  // namespace torsor::foreign_keys
