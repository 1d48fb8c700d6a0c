// What pages share: the frame around them, sections, tables that scroll, pictures with their numbers folded under them.
#pragma once

#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/report/charts.h"
#include "torsor/report/markup.h"

namespace torsor::report {

/// A percentage and its sign, or a number and its spread, stay on one line.
std::string keep_together(std::string text);

/// Writes one page that needs nothing else. What it is given is escaped.
class PageWriter {
 protected:
  /// From the first byte to the open main element.
  void begin(const std::string& title);
  /// Closes everything; the whole page.
  std::string end();

  /// Begins a section with its heading; the caller closes it.
  void section(const std::string& title, const std::string& note = "");
  void end_section() { html_.close().raw("\n"); }
  std::string next_id();

  /// A table in a box of its own that scrolls. The first row holds the headings, the first column names its row.
  void rows_table(const Rows& rows, const std::string& caption, bool tall);
  void folded(const Rows& rows, const std::string& caption);
  /// A chart in two sizes, of which the page shows one, and its numbers.
  void line_figure(LinePicture picture);
  static bool drawn(const std::vector<ChartSeries>& series);
  /// One row a value of an object: nested keys joined by points, lists of plain values on one line.
  void plain_table(const Json& object, const std::string& caption);

  Markup html_;

 private:
  int sections_ = 0;
  int charts_ = 0;
};

}  // namespace torsor::report
