// How the configuration files of other libraries are read: strictly in what changes the model, above all in what is
// about positions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/model/config.h"

namespace torsor::foreign_keys {

/// A value as it stands in a message: on one line, cut where it is long.
std::string shown(const Json& value);

/// A whole number, written as one. Throws Error, as all of these, naming the file and the key.
std::int64_t integer(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback = std::nullopt);

/// The same, from 1 to `most`: here 0 would mean that something is derived, and more is no model but a damaged file.
std::int64_t size(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback = std::nullopt,
                  std::int64_t most = SizeLimits::kSize);
/// The same for counts of layers, for vocabularies and for lengths in tokens.
std::int64_t layers(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback = std::nullopt);
std::int64_t vocabulary(JsonObject& keys, const std::string& key);
std::int64_t length(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback = std::nullopt);

/// Which of two names of one key is there; `first` where neither is. Throws where both say different things.
const char* either(JsonObject& keys, const char* first, const char* second);

/// A key that changes the model, of which only one value (also given by leaving it out) is supported.
void expect(JsonObject& keys, const std::string& key, const Json& value);

/// Throws for a key that nobody asked for and whose name, in letters of any case, is about positions; others say
/// nothing that the model depends on.
void finish_positions(const JsonObject& keys);

/// Runs `complete`, whose refusal of a configuration is said of the file that it came from.
template <class Complete>
void completed(const JsonObject& keys, const Complete& complete) {
  try {
    complete();
  } catch (const UsageError& error) {
    keys.fail(error.what());
  }
}

/// One id or a list of them, each a whole number; none where the key is missing or null.
std::vector<std::int64_t> token_ids(JsonObject& keys, const std::string& key);

}  // namespace torsor::foreign_keys
