#include "torsor/model/foreign_keys.h"

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor::foreign_keys {

std::int64_t integer(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback) {
  const Json value = keys.get<Json>(key, Json(nullptr));
  if (value.is_null() && fallback) return *fallback;
  if (!value.is_null() && !value.is_number_integer())
    keys.fail(str(quote(key), " must be a whole number, found ", json_text(value)));
  return keys.get<std::int64_t>(key);
}

std::int64_t size(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback) {
  const std::int64_t value = integer(keys, key, fallback);
  if (value < 1) keys.fail(str(quote(key), " must be at least 1, found ", value));
  return value;
}

void expect(JsonObject& keys, const std::string& key, const Json& value) {
  const Json found = keys.get<Json>(key, value);
  if (found != value) keys.fail(str(quote(key), ": ", json_text(found), " is not supported, only ", json_text(value)));
}

void finish_positions(const JsonObject& keys) {
  for (const std::string& key : keys.unknown())
    for (const char* part : {"rope", "rotary", "alibi", "position", "relative_att", "sliding", "window", "layer_types"})
      if (key.find(part) != std::string::npos)
        keys.fail(str(quote(key), " is not known for this family, and it is about positions"));
}

std::vector<std::int64_t> token_ids(JsonObject& keys, const std::string& key) {
  std::vector<std::int64_t> ids;
  if (const Json found = keys.get<Json>(key, Json(nullptr)); !found.is_null())
    for (const Json& one : found.is_array() ? found : Json::array({found}))
      if (one.is_number_integer()) ids.push_back(one.get<std::int64_t>());
  return ids;
}

}  // namespace torsor::foreign_keys
