// Text that is being written: what may be shown so far, and where it ends.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace torsor {

/// Takes the bytes of one row's tokens as they come and gives them on as soon as they are final: bytes that could still
/// become a stop string wait, and so does a code point of which bytes are missing.
class TextOutput {
 public:
  /// The text ends before the first of `stops` that occurs in it; of those that end with the same byte before the
  /// longest. Throws UsageError for an empty one.
  explicit TextOutput(std::vector<std::string> stops = {});

  /// Adds bytes and returns those that may be shown now. Nothing after the end.
  std::string add(std::string_view bytes);
  /// Whether a stop string was found.
  bool ended() const { return ended_; }
  /// What still waits when no more bytes come.
  std::string rest();

 private:
  std::vector<std::string> stops_;
  std::string waiting_;
  bool ended_ = false;
};

}  // namespace torsor
