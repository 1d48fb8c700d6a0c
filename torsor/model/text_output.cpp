#include "torsor/model/text_output.h"

#include <algorithm>
#include <utility>

#include "torsor/base/error.h"

namespace torsor {
namespace {

/// Bytes at the end of `text` that begin a code point and do not complete it.
std::size_t open_code_point(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;
    const std::size_t length = byte >= 0xF8U ? 1 : byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

TextOutput::TextOutput(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_)
    if (stop.empty()) throw UsageError("generate: a stop string must not be empty");
}

std::string TextOutput::add(std::string_view bytes) {
  if (ended_) return {};
  const std::size_t fresh = waiting_.size();
  waiting_ += bytes;
  // The one that is complete first; a stop string may begin in what waited and end in what came.
  std::size_t end = std::string::npos, begin = 0;
  for (const std::string& stop : stops_) {
    const std::size_t from = fresh >= stop.size() ? fresh - stop.size() + 1 : 0;
    const std::size_t at = waiting_.find(stop, from);
    if (at == std::string::npos) continue;
    const std::size_t own = at + stop.size();
    if (own < end || (own == end && at < begin)) end = own, begin = at;
  }
  if (end != std::string::npos) {
    ended_ = true;
    std::string shown = waiting_.substr(0, begin);
    waiting_.clear();
    return shown;
  }
  std::size_t held = open_code_point(waiting_);
  for (const std::string& stop : stops_)
    for (std::size_t part = std::min(stop.size() - 1, waiting_.size()); part > held; --part)
      if (std::string_view(waiting_).substr(waiting_.size() - part) == std::string_view(stop).substr(0, part)) {
        held = part;
        break;
      }
  std::string shown = waiting_.substr(0, waiting_.size() - held);
  waiting_.erase(0, waiting_.size() - held);
  return shown;
}

std::string TextOutput::rest() { return std::exchange(waiting_, {}); }

}  // namespace torsor
