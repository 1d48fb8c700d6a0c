// How the configuration files of other libraries are read: strictly in what changes the model, above all in what is
// about positions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"

namespace torsor::foreign_keys {

/// A whole number, written as one. Throws Error, as all of these, naming the file and the key.
std::int64_t integer(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback = std::nullopt);

/// The same, at least 1: here 0 would mean that something is derived.
std::int64_t size(JsonObject& keys, const std::string& key, std::optional<std::int64_t> fallback = std::nullopt);

/// A key that changes the model, of which only one value (also given by leaving it out) is supported.
void expect(JsonObject& keys, const std::string& key, const Json& value);

/// Throws for a key that nobody asked for and whose name is about positions; others say nothing that the model depends
/// on.
void finish_positions(const JsonObject& keys);

/// One id or a list of them; none where the key is missing or null.
std::vector<std::int64_t> token_ids(JsonObject& keys, const std::string& key);

}  // namespace torsor::foreign_keys
