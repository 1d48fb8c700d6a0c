// Charts as SVG text. Colours come from CSS classes, never from attributes, so that light, dark and printed pages can
// each have their own: c0..c7 the series, d0..d3 their dashes, and the names listed in html_style.h.
//
// Every chart carries role="img", a title and a description; every point carries its value as a <title> (a tip without
// script) and as data-tip. A chart is a pure function of what it is given.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "torsor/report/style.h"

namespace torsor::report {

struct ChartPoint {
  double x = 0;
  double y = 0;
  double spread = 0;  ///< half the height of the band (line chart) or of the bar (scatter); 0 draws none
  std::string tip;
};

struct ChartSeries {
  std::string name;
  SeriesStyle style;
  std::string end;                 ///< written after the name at the end of the line, such as the last value
  std::vector<ChartPoint> points;  ///< ascending x; the y of each is finite
};

/// Chart sizes in CSS pixels at scale 1. A page shows the wide or the narrow one by its width.
struct ChartSize {
  double width = 1000;
  double height = 470;
  bool narrow = false;
};

inline constexpr ChartSize kWideChart = {1000, 470, false};
inline constexpr ChartSize kNarrowChart = {360, 380, true};

struct LineChart {
  std::string id;  ///< unique in the page; letters, digits, '-'
  std::string title;
  std::string description;
  std::string x_title;
  std::string y_title;
  std::vector<ChartSeries> series;
  bool log_x = true;
  bool marks = true;                ///< a mark at every point (else only at the end)
  std::vector<double> x_ticks;      ///< empty: chosen
  std::optional<double> reference;  ///< x of the vertical line
  std::string reference_text;
  std::optional<double> cap;     ///< values above are drawn as arrows at the top that say the value
  std::optional<double> y_high;  ///< where the y axis ends; lines leave through it without an arrow
  bool percent = false;          ///< the y axis is 0 to 100, linear
};

/// Lines over x with bands, their names at their ends. The y axis is logarithmic when wants_log says so. Series without
/// points get no line and no label. An empty chart says so in words.
std::string line_chart(const LineChart& chart, const ChartSize& size);

struct ScatterChart {
  std::string id;
  std::string title;
  std::string description;
  std::string x_title;
  std::string y_title;
  std::string better;               ///< which corner is good, in words
  bool percent = false;             ///< the y axis is 0 to 100, linear
  std::vector<ChartSeries> series;  ///< one point each
};

/// Points with their names beside them.
std::string scatter_chart(const ScatterChart& chart, const ChartSize& size);

/// One of several small pictures of the same kind: a line a head above, a heat strip a head below.
struct PanelChart {
  std::string id;
  std::string title;
  std::string description;
  SeriesStyle style;
  std::vector<double> x;                                 ///< distances, ascending, not negative
  std::vector<std::vector<std::optional<double>>> rows;  ///< head x distance; empty = minus infinity
  double low = 0;                                        ///< the y axis; lower values leave through the bottom
  double high = 1;
  double heat = 1;  ///< |value| with the strongest colour
  std::optional<double> reference;
};

std::string panel_chart(const PanelChart& chart);

/// The class of a value in a heat strip: "h-4".."h4" as "n4".."n1", "z", "p1".."p4", by value / full.
std::string heat_class(double value, double full);

/// A mark as a picture of its own, for tables.
std::string mark_icon(const SeriesStyle& style);

}  // namespace torsor::report
