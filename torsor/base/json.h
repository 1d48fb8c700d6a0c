// JSON that is read strictly: what is misspelt, doubled or out of range is an error, never a silent default.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/base/error.h"

namespace torsor {

/// Objects keep the order of their keys. Doubles are written so that they read back to the same bits. Looking up a key
/// takes time in proportion to the size of the object: iterate over large ones.
using Json = nlohmann::ordered_json;

/// Parses one JSON value. Throws Error "SOURCE:LINE:COLUMN: ..." (columns count bytes) for anything outside RFC 8259
/// and also for a key given twice, nesting deeper than `max_depth` containers, NUL bytes, numbers too large for a
/// double, and text after the value. A byte-order mark is skipped.
Json parse_json(std::string_view text, const std::string& source, int max_depth = 64);

/// parse_json of a file's content, with the path as source.
Json read_json(const std::string& path, int max_depth = 64);

/// The text of a value: on one line, or with `indent` spaces a level. NaN and infinities, which JSON lacks, become
/// null; bytes that are not UTF-8 become U+FFFD. read_json(write) gives the same value otherwise.
std::string json_text(const Json& value, int indent = -1);

/// The value, or null for none.
template <class T>
Json json_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Reads the keys of one object with checked types, and refuses keys that nobody asked for:
///
///     JsonObject object(json, "run.json");
///     const auto steps = object.get<std::int64_t>("steps");           // must be there
///     const auto rate = object.get<double>("learning_rate", 1e-3);    // or the default, also for null
///     object.finish();                                                // an unknown key is an error
///
/// Types: bool, int, int64_t, uint64_t, float, double, string, Json (anything), and vector, optional and
/// map<string, .> of these. Integers may be written as 1e6; numbers that do not fit the type are refused. Errors are
/// UsageError (the object is a request, such as a config) or, for Blame::data, Error. The Json must outlive the reader.
class JsonObject {
 public:
  enum class Blame { request, data };

  /// Throws when `value` is not an object. `source` names it in messages.
  JsonObject(const Json& value, std::string source, Blame blame = Blame::request);

  /// The value of a key that must be there.
  template <class T>
  T get(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr) missing(key);
    return convert<T>(key, *value);
  }

  /// The value of a key, or `fallback` when it is missing or null.
  template <class T>
  T get(const std::string& key, T fallback) {
    const Json* value = find(key);
    return value == nullptr || value->is_null() ? fallback : convert<T>(key, *value);
  }

  /// Whether the key is there and not null; the key counts as asked for.
  bool has(const std::string& key);

  /// A reader for the object under a key that must be there; its source is "SOURCE: KEY".
  JsonObject object(const std::string& key);

  /// Counts `key` as possible without reading it.
  void allow(const std::string& key) { find(key); }

  /// Throws for a key of the object that was never asked for, naming it and the keys that are possible.
  void finish() const;
  /// The keys that were never asked for, for readers of foreign files, which may hold what says nothing here.
  std::vector<std::string> unknown() const;

  /// Throws "SOURCE: MESSAGE" with the type of error that fits the blame; for checks of the caller's own.
  [[noreturn]] void fail(const std::string& message) const;

  const std::string& source() const { return source_; }

 private:
  const Json* find(const std::string& key);
  [[noreturn]] void missing(const std::string& key) const;
  [[noreturn]] void mismatch(const std::string& key, const char* expected, const Json& value) const;

  void read(const std::string& key, const Json& value, bool& out) const;
  void read(const std::string& key, const Json& value, std::int32_t& out) const;
  void read(const std::string& key, const Json& value, std::int64_t& out) const;
  void read(const std::string& key, const Json& value, std::uint64_t& out) const;
  void read(const std::string& key, const Json& value, float& out) const;
  void read(const std::string& key, const Json& value, double& out) const;
  void read(const std::string& key, const Json& value, std::string& out) const;
  void read(const std::string& key, const Json& value, Json& out) const;

  template <class T>
  void read(const std::string& key, const Json& value, std::vector<T>& out) const {
    if (!value.is_array()) mismatch(key, "a list", value);
    out.clear();
    for (const Json& item : value) out.push_back(convert<T>(str(key, '[', out.size(), ']'), item));
  }
  template <class T>
  void read(const std::string& key, const Json& value, std::map<std::string, T>& out) const {
    if (!value.is_object()) mismatch(key, "an object", value);
    out.clear();
    for (const auto& [name, item] : value.items()) out.emplace(name, convert<T>(str(key, '.', name), item));
  }
  template <class T>
  void read(const std::string& key, const Json& value, std::optional<T>& out) const {
    if (!value.is_null()) out = convert<T>(key, value);
  }

  template <class T>
  T convert(const std::string& key, const Json& value) const {
    T out{};
    read(key, value, out);
    return out;
  }

  const Json* value_;
  std::string source_;
  Blame blame_;
  std::vector<std::string> asked_;  // in the order of asking, each once
  std::set<std::string> known_;
};

}  // namespace torsor
