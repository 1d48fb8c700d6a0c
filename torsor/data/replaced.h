// Exchanging one text for another wherever it stands.
#pragma once

#include <string>
#include <string_view>

namespace torsor {

/// `text` with every `from`, which is not empty, exchanged for `to`, from left to right; what was put in is not looked
/// at again.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(from, begin)) != std::string_view::npos; begin = at + from.size())
    result.append(text.substr(begin, at - begin)).append(to);
  return result.append(text.substr(begin));
}

}  // namespace torsor
