#include "torsor/base/json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <unordered_set>
#include <utility>

#include "torsor/base/file.h"
#include "torsor/base/json_events.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

/// Walks over the text and tells how far it has come: the events of nlohmann's parser carry no position.
class TrackingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackingIterator(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  TrackingIterator& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  TrackingIterator operator++(int) {
    const TrackingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const TrackingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const TrackingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** seen_;
};

/// Builds a tree, and refuses what a tree would hide: keys given twice, and depth without end.
class TreeBuilder final : public JsonEvents {
 public:
  explicit TreeBuilder(int max_depth) : max_depth_(static_cast<std::size_t>(std::max(max_depth, 0))) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { fail("binary values are not JSON"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    if (!levels_.back().keys.insert(value).second) fail(str("duplicate key ", quote(value)));
    levels_.back().key = std::move(value);
    return true;
  }

 private:
  struct Level {
    Json* container;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  Json* place(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.container->is_array()) {
      auto& items = level.container->get_ref<Json::array_t&>();
      return &items.emplace_back(std::move(value));
    }
    // Not through operator[], whose search for the key makes large objects (vocabularies) quadratic; the set above
    // has already shown that the key is new.
    auto& members = level.container->get_ref<Json::object_t&>();
    return &members.emplace_back(std::move(level.key), std::move(value)).second;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (levels_.size() == max_depth_) fail(str("nested deeper than ", max_depth_, " levels"));
    // The pointers of outer levels stay valid: their containers gain members only after the inner ones are closed.
    Json* placed = place(std::move(container));
    levels_.push_back({placed, {}, {}});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  std::size_t max_depth_;
  Json root_;
  std::vector<Level> levels_;
};

/// A value as it stands in a message: short and printable.
std::string shown(const Json& value) {
  const std::string text = quote(json_text(value), 60);
  return str(text.substr(1, text.size() - 2), " (", value.type_name(), ')');
}

/// The integer that a JSON number stands for, in the type T, if it is one: 3, 3.0 and 3e0 are the same number.
template <class T>
std::optional<T> integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (std::in_range<T>(number)) return static_cast<T>(number);
  } else if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    if (std::in_range<T>(number)) return static_cast<T>(number);
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    constexpr double exact = 9007199254740992.0;  // 2^53: beyond it a double no longer tells neighbours apart
    if (std::trunc(number) == number && std::abs(number) <= exact) {
      const auto whole = static_cast<std::int64_t>(number);
      if (std::in_range<T>(whole)) return static_cast<T>(whole);
    }
  }
  return std::nullopt;
}

}  // namespace

void JsonEvents::run(std::string_view text, const std::string& source) {
  text_ = text;
  source_ = source;
  next_ = text.data();
  const auto nul = text.find('\0');
  if (nul != std::string_view::npos) {
    // nlohmann's scanner takes a NUL for the end of the text and would not see what follows.
    next_ = text.data() + nul + 1;
    fail("a NUL byte");
  }
  const char* end = text.data() + text.size();
  Json::sax_parse(TrackingIterator(text.data(), &next_), TrackingIterator(end, &next_), this);
}

void JsonEvents::fail(const std::string& message) const {
  const auto consumed = static_cast<std::size_t>(next_ - text_.data());
  const std::size_t last = consumed == 0 ? 0 : consumed - 1;
  const std::string_view before = text_.substr(0, last);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? last + 1 : last - newline;
  throw Error(str(source_, ':', line, ':', column, ": ", message));
}

bool JsonEvents::parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...; last read: '{x'"
  std::string_view detail = error.what();
  if (const auto bracket = detail.find("] "); bracket != std::string_view::npos) detail.remove_prefix(bracket + 2);
  if (detail.starts_with("parse error at ")) {
    if (const auto colon = detail.find(": "); colon != std::string_view::npos) detail.remove_prefix(colon + 2);
  }
  const std::string printable = quote(detail);
  fail(str("not valid JSON: ", printable.substr(1, printable.size() - 2)));
}

Json parse_json(std::string_view text, const std::string& source, int max_depth) {
  TreeBuilder builder(max_depth);
  builder.run(text, source);
  return builder.take();
}

Json read_json(const std::string& path, int max_depth) { return parse_json(read_file(path), path, max_depth); }

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

JsonObject::JsonObject(const Json& value, std::string source, Blame blame)
    : value_(&value), source_(std::move(source)), blame_(blame) {
  if (!value.is_object()) fail(str("expected an object, got ", shown(value)));
}

bool JsonObject::has(const std::string& key) {
  const Json* value = find(key);
  return value != nullptr && !value->is_null();
}

JsonObject JsonObject::object(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr) missing(key);
  if (!value->is_object()) mismatch(key, "an object", *value);
  return JsonObject(*value, str(source_, ": ", key), blame_);
}

std::vector<std::string> JsonObject::unknown() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : value_->items())
    if (known_.count(key) == 0) keys.push_back(key);
  return keys;
}

void JsonObject::finish() const {
  const std::vector<std::string> keys = unknown();
  if (keys.empty()) return;
  std::string possible;
  for (const std::string& name : asked_) possible += (possible.empty() ? "" : ", ") + name;
  fail(str("unknown key ", quote(keys.front()), "; possible keys: ", possible.empty() ? "none" : possible));
}

void JsonObject::fail(const std::string& message) const {
  const std::string text = str(source_, ": ", message);
  if (blame_ == Blame::data) throw Error(text);
  throw UsageError(text);
}

const Json* JsonObject::find(const std::string& key) {
  if (known_.insert(key).second) asked_.push_back(key);
  const auto found = value_->find(key);
  return found == value_->end() ? nullptr : &*found;
}

void JsonObject::missing(const std::string& key) const { fail(str("key ", quote(key), " is missing")); }

void JsonObject::mismatch(const std::string& key, const char* expected, const Json& value) const {
  fail(str("key ", quote(key), " must be ", expected, ", got ", shown(value)));
}

void JsonObject::read(const std::string& key, const Json& value, bool& out) const {
  if (!value.is_boolean()) mismatch(key, "true or false", value);
  out = value.get<bool>();
}

void JsonObject::read(const std::string& key, const Json& value, std::int32_t& out) const {
  const auto number = integer<std::int32_t>(value);
  if (!number) mismatch(key, "an integer of 32 bits", value);
  out = *number;
}

void JsonObject::read(const std::string& key, const Json& value, std::int64_t& out) const {
  const auto number = integer<std::int64_t>(value);
  if (!number) mismatch(key, "an integer", value);
  out = *number;
}

void JsonObject::read(const std::string& key, const Json& value, std::uint64_t& out) const {
  const auto number = integer<std::uint64_t>(value);
  if (!number) mismatch(key, "an integer that is not negative", value);
  out = *number;
}

void JsonObject::read(const std::string& key, const Json& value, float& out) const {
  if (!value.is_number()) mismatch(key, "a number", value);
  out = static_cast<float>(value.get<double>());
  if (!std::isfinite(out)) mismatch(key, "a number within the range of float", value);
}

void JsonObject::read(const std::string& key, const Json& value, double& out) const {
  if (!value.is_number()) mismatch(key, "a number", value);
  out = value.get<double>();
}

void JsonObject::read(const std::string& key, const Json& value, std::string& out) const {
  if (!value.is_string()) mismatch(key, "a string", value);
  out = value.get<std::string>();
}

void JsonObject::read(const std::string&, const Json& value, Json& out) const { out = value; }

}  // namespace torsor
