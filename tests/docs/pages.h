// Reads the pages of the documentation for their tests.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace torsor {

/// A page's lines; `path` from the root of the project.
struct DocsPage {
  std::string path;
  std::vector<std::string> lines;
};

inline std::filesystem::path docs_root() { return TORSOR_SOURCE_DIR; }

inline DocsPage read_page(const std::string& path) {
  std::ifstream in(docs_root() / path);
  DocsPage page{path, {}};
  for (std::string line; std::getline(in, line);) page.lines.push_back(line);
  return page;
}

/// README.md and everything under docs/, in the order of their paths.
inline std::vector<DocsPage> all_pages() {
  std::vector<std::string> paths = {"README.md"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(docs_root() / "docs"))
    if (entry.path().extension() == ".md")
      paths.push_back(std::filesystem::relative(entry.path(), docs_root()).generic_string());
  std::sort(paths.begin(), paths.end());
  std::vector<DocsPage> pages;
  for (const std::string& path : paths) pages.push_back(read_page(path));
  return pages;
}

inline std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// The rows of the table whose heading row is `heading` ("| a | b |"), as trimmed cells; none when there is no such
/// table.
inline std::vector<std::vector<std::string>> table_rows(const DocsPage& page, const std::string& heading) {
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (const std::string& line : page.lines) {
    if (line == heading) {
      inside = true;
      continue;
    }
    if (!inside) continue;
    if (line.empty() || line.front() != '|') break;
    if (line.find_first_not_of("|-: ") == std::string::npos && line.find('-') != std::string::npos) continue;
    std::vector<std::string> cells;
    std::stringstream rest(line.substr(1));
    for (std::string cell; std::getline(rest, cell, '|');) cells.push_back(trimmed(cell));
    rows.push_back(cells);
  }
  return rows;
}

/// What stands between single backticks in a text.
inline std::vector<std::string> quoted(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t open = text.find('`'); open != std::string::npos;) {
    const std::size_t close = text.find('`', open + 1);
    if (close == std::string::npos) break;
    found.push_back(text.substr(open + 1, close - open - 1));
    open = text.find('`', close + 1);
  }
  return found;
}

/// The lines of code blocks (indented by four spaces, or fenced), unindented, with continued lines joined.
inline std::vector<std::string> code_lines(const DocsPage& page) {
  std::vector<std::string> lines;
  bool fenced = false, joined = false;
  for (const std::string& line : page.lines) {
    if (line.rfind("```", 0) == 0) {
      fenced = !fenced;
      continue;
    }
    if (!fenced && line.rfind("    ", 0) != 0) continue;
    std::string text = trimmed(line);
    const bool more = !text.empty() && text.back() == '\\';
    if (more) text.pop_back();
    if (joined)
      lines.back() += text;
    else
      lines.push_back(text);
    joined = more;
  }
  return lines;
}

}  // namespace torsor
