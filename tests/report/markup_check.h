// Checks of finished pages without a browser.
#pragma once

#include <cctype>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace torsor::report {

/// What is wrong with the tags of a page, or "": every element is closed in order, attributes are quoted and not
/// doubled, ids are unique, no bare < or & is left. The content of script and style is skipped.
inline std::string tag_fault(const std::string& html) {
  std::vector<std::string> open;
  std::set<std::string> ids;
  const auto entity = [&html](std::size_t at) {
    for (const char* name : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
      if (html.compare(at, std::char_traits<char>::length(name), name) == 0) return true;
    }
    return false;
  };
  for (std::size_t i = 0; i < html.size();) {
    if (html[i] == '&' && !entity(i)) return "bare & at " + html.substr(i, 30);
    if (html[i] != '<') {
      ++i;
      continue;
    }
    if (html.compare(i, 9, "<!DOCTYPE") == 0) {
      i = html.find('>', i) + 1;
      continue;
    }
    const bool closing = html[i + 1] == '/';
    std::size_t j = i + (closing ? 2 : 1);
    std::string name;
    while (j < html.size() && std::isalnum(static_cast<unsigned char>(html[j]))) name += html[j++];
    if (name.empty()) return "bare < at " + html.substr(i, 30);
    std::set<std::string> attributes;
    bool empty = false;
    while (html[j] != '>') {
      if (html.compare(j, 2, "/>") == 0) {
        empty = true;
        ++j;
        continue;
      }
      if (html[j] != ' ') return "expected a space in " + html.substr(i, 60);
      const std::size_t equals = html.find('=', ++j);
      const std::string key = html.substr(j, equals - j);
      if (html[equals + 1] != '"') return "attribute without quotes in " + html.substr(i, 60);
      const std::size_t end = html.find('"', equals + 2);
      const std::string value = html.substr(equals + 2, end - equals - 2);
      if (value.find_first_of("<>") != std::string::npos) return "< in an attribute of " + name;
      if (!attributes.insert(key).second) return "attribute " + key + " twice in " + name;
      if (key == "id" && !ids.insert(value).second) return "id " + value + " twice";
      j = end + 1;
    }
    i = j + 1;
    if (closing) {
      if (open.empty() || open.back() != name)
        return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
      open.pop_back();
    } else if (!empty) {
      open.push_back(name);
      if (name == "script" || name == "style") i = html.find("</" + name, i);
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> stays open";
}

/// How often `part` stands in `text`.
inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace torsor::report
