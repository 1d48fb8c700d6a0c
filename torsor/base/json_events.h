// The one strict JSON scanner of the library: events with a position, for parse_json and for formats that build no
// tree.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "torsor/base/json.h"

namespace torsor {

/// Receives the events of one JSON text; derived classes act on them and call fail() for what they do not accept.
/// Checks the syntax, and that nothing follows the value. Everything wrong is an Error "SOURCE:LINE:COLUMN: ...".
class JsonEvents : public nlohmann::json_sax<Json> {
 public:
  void run(std::string_view text, const std::string& source);

  bool parse_error(std::size_t position, const std::string& last_token, const nlohmann::detail::exception& error) final;

 protected:
  /// Throws with the position of the byte that was read last.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::string_view text_;
  std::string source_;
  const char* next_ = nullptr;
};

}  // namespace torsor
