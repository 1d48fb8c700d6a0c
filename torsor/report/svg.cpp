#include "torsor/report/svg.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/report/markup.h"
#include "torsor/report/numbers.h"
#include "torsor/report/scale.h"
#include "torsor/report/svg_parts.h"

namespace torsor::report {
namespace {

constexpr double kBold = 13.7;       // the size of plain text as wide as a name, which is bold
constexpr double kLabelHeight = 16;  // of a name at the end of a line
constexpr double kMark = 3.6;        // radius
constexpr double kTouch = 10;        // radius of what reacts to a pointer

void mark(Markup& svg, const SeriesStyle& style, double x, double y, double radius = kMark) {
  svg.leaf("path", {{"class", "mark"}, {"d", mark_path(style.mark, x, y, radius)}});
}

/// What reacts to a pointer and holds the value for those without script.
void touch(Markup& svg, double x, double y, const std::string& tip) {
  svg.open(
      "circle",
      {{"class", "touch"}, {"cx", coordinate(x)}, {"cy", coordinate(y)}, {"r", coordinate(kTouch)}, {"data-tip", tip}});
  svg.element("title", {}, tip).close();
}

void open_series(Markup& svg, const ChartSeries& series) {
  svg.open("g", {{"class", "series " + series.style.classes()}, {"data-series", series.name}});
}

void y_axis(Markup& svg, const Scale& y, const Frame& frame, const std::vector<double>& ticks) {
  const std::vector<std::string> texts = tick_texts(ticks);
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    line(svg, "grid", frame.left, y(ticks[i]), frame.right, y(ticks[i]));
    words(svg, "tick end", frame.left - 7, y(ticks[i]) + 4, texts[i]);
  }
}

/// Texts under the axis; those that would touch the one before are left out, the last one stays.
void x_axis(Markup& svg, const Scale& x, const Frame& frame, const std::vector<double>& ticks) {
  line(svg, "axis", frame.left, frame.bottom, frame.right, frame.bottom);
  const std::vector<std::string> texts = tick_texts(ticks);
  const auto half = [&](std::size_t i) { return text_width(texts[i], kFont) / 2 + 3; };
  double free_from = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    const double place = x(ticks[i]);
    line(svg, "axis", place, frame.bottom, place, frame.bottom + 4);
    const std::size_t last = ticks.size() - 1;
    const bool hits_last = i != last && place + half(i) > x(ticks[last]) - half(last);
    if (place - half(i) < free_from || hits_last) continue;
    words(svg, "tick mid", place, frame.bottom + 18, texts[i]);
    free_from = place + half(i);
  }
}

struct Ends {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

/// The scale of values with some air around them. `from` and `to` are places on the page.
Scale padded(Ends ends, bool log, double air, double from, double to) {
  if (ends.low == ends.high) {
    const double by = ends.low == 0 ? 1 : std::abs(ends.low) * 0.1;
    return log ? Scale{ends.low / 1.5, ends.high * 1.5, from, to, true}
               : Scale{ends.low - by, ends.high + by, from, to, false};
  }
  if (log) {
    const double by = std::pow(ends.high / ends.low, air);
    return {ends.low / by, ends.high * by, from, to, true};
  }
  const double by = (ends.high - ends.low) * air;
  return {ends.low - by, ends.high + by, from, to, false};
}

/// The axis of a share in percent, with room for marks at both ends.
Scale percent_axis(const Frame& frame) { return {-3, 103, frame.bottom, frame.top, false}; }

std::vector<double> ticks_of(const Scale& scale, int about) {
  return scale.log ? log_ticks(scale.low, scale.high, about) : nice_ticks(scale.low, scale.high, about);
}

std::string nothing(const std::string& id, const std::string& title, const std::string& description,
                    const ChartSize& size) {
  Markup svg;
  begin_picture(svg, id, title, description, size.width, 80, size.narrow ? "chart narrow" : "chart wide");
  words(svg, "tick mid", size.width / 2, 44, "Nothing to draw: no finite values.");
  return svg.close().finish();
}

Ends x_ends(const std::vector<ChartSeries>& series) {
  Ends ends;
  for (const ChartSeries& one : series) {
    for (const ChartPoint& point : one.points) ends.add(point.x);
  }
  return ends;
}

Ends y_ends(const std::vector<ChartSeries>& series, double cap) {
  Ends ends;
  for (const ChartSeries& one : series) {
    for (const ChartPoint& point : one.points) {
      const double y = std::min(point.y, cap);
      ends.add(y);
      if (point.spread > 0) {
        ends.add(std::min(y + point.spread, cap));
        if (y - point.spread > 0 || y <= 0) ends.add(y - point.spread);
      }
    }
  }
  return ends;
}

std::string path_through(const std::vector<ChartPoint>& points, const Scale& x, const Scale& y) {
  std::string path;
  for (const ChartPoint& point : points) {
    path += path.empty() ? 'M' : 'L';
    path += coordinate(x(point.x)) + ' ' + coordinate(y(point.y));
  }
  return path;
}

std::string band_around(const std::vector<ChartPoint>& points, const Scale& x, const Scale& y) {
  std::string path;
  const auto below = [&](const ChartPoint& point) {
    return y.log ? std::max(point.y - point.spread, y.low / 10) : point.y - point.spread;
  };
  for (const ChartPoint& point : points) {
    path += path.empty() ? 'M' : 'L';
    path += coordinate(x(point.x)) + ' ' + coordinate(y(point.y + point.spread));
  }
  for (auto point = points.rbegin(); point != points.rend(); ++point) {
    path += 'L' + coordinate(x(point->x)) + ' ' + coordinate(y(below(*point)));
  }
  return path + 'Z';
}

/// A value beyond the top of the picture; `room` is what its text may take at the right.
void draw_arrow(Markup& svg, double x, double y, const std::string& text, double room) {
  svg.leaf("path", {{"class", "mark"},
                    {"d", str('M', coordinate(x), ' ', coordinate(y - 5), 'L', coordinate(x + 4.5), ' ',
                              coordinate(y + 4), 'L', coordinate(x - 4.5), ' ', coordinate(y + 4), 'Z')}});
  if (8 + text_width(text, kFont) + 5 <= room) words(svg, "value", x + 8, y + 4, text);
}

void draw_series(Markup& svg, const LineChart& chart, const ChartSeries& one, const Scale& x, const Scale& y,
                 const Frame& frame, double cap, std::vector<std::pair<double, int>>& arrows) {
  open_series(svg, one);
  svg.open("g", {{"clip-path", str("url(#", chart.id, "-clip)")}});
  const bool spread =
      std::any_of(one.points.begin(), one.points.end(), [](const ChartPoint& p) { return p.spread > 0; });
  if (spread && one.points.size() > 1) svg.leaf("path", {{"class", "band"}, {"d", band_around(one.points, x, y)}});
  if (one.points.size() > 1) svg.leaf("path", {{"class", "line"}, {"d", path_through(one.points, x, y)}});
  svg.close();
  for (std::size_t i = 0; i < one.points.size(); ++i) {
    const ChartPoint& point = one.points[i];
    const double px = x(point.x);
    if (point.y > cap) {
      // Arrows of several series at one x stand under each other.
      auto used = std::find_if(arrows.begin(), arrows.end(), [&](const auto& arrow) { return arrow.first == point.x; });
      if (used == arrows.end()) used = arrows.insert(arrows.end(), {point.x, 0});
      const double py = frame.top + 8 + 15 * used->second++;
      const double next = i + 1 < one.points.size() ? x(one.points[i + 1].x) : frame.right + 16;
      draw_arrow(svg, px, py, format_significant(point.y, 2), next - px);
      touch(svg, px, py, point.tip);
      continue;
    }
    if (y(point.y) < frame.top) continue;
    if (chart.marks || i + 1 == one.points.size()) mark(svg, one.style, px, y(point.y), chart.marks ? kMark : 2.8);
    if (!point.tip.empty()) touch(svg, px, y(point.y), point.tip);
  }
  svg.close();
}

/// Names at the ends of the lines, each with its mark, tied to the end of its line where it had to move.
void draw_names(Markup& svg, const std::vector<const ChartSeries*>& drawn, const std::vector<std::string>& names,
                const std::vector<bool>& with_figure, const Scale& x, const Scale& y, const Frame& frame, double cap) {
  std::vector<double> wanted;
  for (const ChartSeries* one : drawn) {
    const double end = one->points.back().y;
    wanted.push_back(end > cap ? frame.top : std::clamp(y(end), frame.top, frame.bottom));
  }
  const std::vector<double> places = spread_labels(wanted, kLabelHeight, frame.top - 8, frame.bottom + 10);
  const double at = frame.right + 16;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const ChartSeries& one = *drawn[i];
    open_series(svg, one);
    const double end_x = x(one.points.back().x);
    if (end_x > frame.right - 30 && one.points.back().y <= cap) {
      line(svg, "leader", end_x + 6, wanted[i], at - 7, places[i]);
    }
    mark(svg, one.style, at, places[i], 3.2);
    svg.open("text", {{"class", "name"}, {"x", coordinate(at + 9)}, {"y", coordinate(places[i] + 4)}});
    if (names[i] != one.name) svg.element("title", {}, one.name);
    svg.text(names[i]);
    if (with_figure[i]) svg.text(" ").element("tspan", {{"class", "figure"}}, one.end);
    svg.close().close();
  }
}

}  // namespace

std::string line_chart(const LineChart& chart, const ChartSize& size) {
  const double cap = chart.cap.value_or(std::numeric_limits<double>::infinity());
  const Ends xs = x_ends(chart.series), ys = y_ends(chart.series, std::min(cap, chart.y_high.value_or(cap)));
  if (xs.empty() || ys.empty()) return nothing(chart.id, chart.title, chart.description, size);

  std::vector<const ChartSeries*> drawn;
  for (const ChartSeries& one : chart.series) {
    if (!one.points.empty()) drawn.push_back(&one);
  }
  // The room for names: as much as they need, up to a share of the width.
  double name_room = 0;
  std::vector<std::string> names;
  std::vector<double> rooms;
  for (const ChartSeries* one : drawn) {
    rooms.push_back(one->end.empty() ? 0 : text_width(' ' + one->end, kFont));
    name_room = std::max(name_room, text_width(one->name, kBold) + rooms.back());
    names.push_back(one->name);
  }
  name_room = std::min(name_room, size.width * (size.narrow ? 0.4 : 0.28));
  std::vector<bool> with_figure;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    // A whole name says more than half a name with a figure.
    const double name = text_width(names[i], kBold);
    with_figure.push_back(rooms[i] > 0 && (name + rooms[i] <= name_room + 1e-6 || name > name_room));
    rooms[i] = name_room - (with_figure[i] ? rooms[i] : 0);
  }
  names = fit_texts(names, kBold, rooms);

  // Many names need a tall picture.
  const double height = std::max(size.height, 84 + kLabelHeight * static_cast<double>(drawn.size() + 1));
  Frame frame{size.narrow ? 40.0 : 50.0, size.width - name_room - 28, 44, height - 44};
  const bool log_y = wants_log(ys.low, ys.high);
  Scale y = chart.percent ? percent_axis(frame) : padded(ys, log_y, 0.06, frame.bottom, frame.top);
  const bool capped =
      std::isfinite(cap) && std::any_of(chart.series.begin(), chart.series.end(), [cap](const ChartSeries& s) {
        return std::any_of(s.points.begin(), s.points.end(), [cap](const ChartPoint& p) { return p.y > cap; });
      });
  if (capped) y.high = cap;
  if (chart.y_high) y.high = *chart.y_high;
  const Scale x = padded(xs, chart.log_x && xs.low > 0, 0.03, frame.left, frame.right);

  Markup svg;
  begin_picture(svg, chart.id, chart.title, chart.description, size.width, height,
                size.narrow ? "chart narrow" : "chart wide");
  svg.open("defs").open("clipPath", {{"id", chart.id + "-clip"}});
  svg.leaf("rect", {{"x", coordinate(frame.left)},
                    {"y", coordinate(frame.top)},
                    {"width", coordinate(frame.right - frame.left)},
                    {"height", coordinate(frame.bottom - frame.top)}});
  svg.close().close();
  words(svg, "axis-title", 2, 14, chart.y_title + (y.log ? ", logarithmic" : ""));
  const bool beyond = chart.reference && *chart.reference >= x.low && *chart.reference <= x.high;
  if (beyond) {
    svg.leaf("rect", {{"class", "beyond"},
                      {"x", coordinate(x(*chart.reference))},
                      {"y", coordinate(frame.top)},
                      {"width", coordinate(frame.right - x(*chart.reference))},
                      {"height", coordinate(frame.bottom - frame.top)}});
  }
  y_axis(svg, y, frame, ticks_of(y, size.narrow ? 5 : 6));
  std::vector<double> x_ticks = chart.x_ticks;
  if (x_ticks.empty()) x_ticks = ticks_of(x, size.narrow ? 4 : 7);
  x_axis(svg, x, frame, x_ticks);
  const std::string x_title = chart.x_title + (x.log ? ", logarithmic" : "");
  const double middle = std::max((frame.left + frame.right) / 2, text_width(x_title, kFont) / 2);
  words(svg, "axis-title mid", middle, frame.bottom + 37, x_title);
  if (beyond) {
    const double at = x(*chart.reference);
    line(svg, "reference", at, frame.top - 8, at, frame.bottom);
    const bool left = at - frame.left > (frame.right - frame.left) * 0.6;
    words(svg, left ? "reference-text end" : "reference-text", left ? at - 4 : at + 4, frame.top - 7,
          chart.reference_text);
  }
  std::vector<std::pair<double, int>> arrows;
  for (const ChartSeries* one : drawn) draw_series(svg, chart, *one, x, y, frame, cap, arrows);
  draw_names(svg, drawn, names, with_figure, x, y, frame, cap);
  return svg.close().finish();
}

namespace {

struct Box {
  double left, top, right, bottom;
  bool overlaps(const Box& other) const {
    return std::min(right, other.right) > std::max(left, other.left) &&
           std::min(bottom, other.bottom) > std::max(top, other.top);
  }
};

/// The place beside a point that is free and inside the frame, if there is one.
std::optional<Box> place_name(double px, double py, double width, const Frame& frame, const std::vector<Box>& taken) {
  constexpr double kGap = 9;
  const double h = kLabelHeight - 2;
  const Box candidates[] = {
      {px + kGap, py - h / 2, px + kGap + width, py + h / 2},
      {px - kGap - width, py - h / 2, px - kGap, py + h / 2},
      {px - width / 2, py - kGap - h, px + width / 2, py - kGap},
      {px - width / 2, py + kGap, px + width / 2, py + kGap + h},
      {px + kGap, py - h - 2, px + kGap + width, py - 2},
      {px + kGap, py + 2, px + kGap + width, py + 2 + h},
      {px - kGap - width, py - h - 2, px - kGap, py - 2},
      {px - kGap - width, py + 2, px - kGap, py + 2 + h},
  };
  for (const Box& box : candidates) {
    const bool inside =
        box.left >= frame.left && box.right <= frame.right + 8 && box.top >= frame.top && box.bottom <= frame.bottom;
    if (inside && std::none_of(taken.begin(), taken.end(), [&box](const Box& other) { return box.overlaps(other); }))
      return box;
  }
  return std::nullopt;
}

/// A place for every name beside its point, or nothing when some have to overlap.
std::vector<Box> place_names(const std::vector<const ChartSeries*>& drawn, const std::vector<std::string>& names,
                             const Scale& x, const Scale& y, const Frame& frame) {
  std::vector<Box> taken, places;
  for (const ChartSeries* one : drawn) {
    const double px = x(one->points.front().x), py = y(one->points.front().y);
    taken.push_back({px - 6, py - 6, px + 6, py + 6});
  }
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const ChartPoint& point = drawn[i]->points.front();
    const auto box = place_name(x(point.x), y(point.y), text_width(names[i], kBold), frame, taken);
    if (!box) return {};
    taken.push_back(*box);
    places.push_back(*box);
  }
  return places;
}

}  // namespace

std::string scatter_chart(const ScatterChart& chart, const ChartSize& size) {
  const Ends xs = x_ends(chart.series);
  const Ends ys = y_ends(chart.series, std::numeric_limits<double>::infinity());
  if (xs.empty() || ys.empty()) return nothing(chart.id, chart.title, chart.description, size);
  std::vector<const ChartSeries*> drawn;
  std::vector<std::string> names;
  for (const ChartSeries& one : chart.series) {
    if (one.points.empty()) continue;
    drawn.push_back(&one);
    names.push_back(one.name);
  }
  const std::vector<std::string> full_names = names;
  names = fit_texts(full_names, kBold, std::vector<double>(names.size(), size.width * 0.3));

  Frame frame{size.narrow ? 40.0 : 46.0, size.width - 12, 44, size.height - 44};
  const Scale y =
      chart.percent ? percent_axis(frame) : padded(ys, wants_log(ys.low, ys.high), 0.1, frame.bottom, frame.top);
  Scale x = padded(xs, false, 0.14, frame.left, frame.right);
  const std::vector<Box> beside = place_names(drawn, names, x, y, frame);
  double height = size.height;
  if (beside.empty()) {  // a key at the right, ordered by height
    double room = 0;
    for (const std::string& name : full_names) room = std::max(room, text_width(name, kBold));
    room = std::min(room, size.width * 0.36);
    names = fit_texts(full_names, kBold, std::vector<double>(names.size(), room));
    frame.right -= room + 18;
    x = padded(xs, false, 0.05, frame.left, frame.right);
    height = std::max(height, 84 + kLabelHeight * static_cast<double>(drawn.size() + 1));
  }

  Markup svg;
  begin_picture(svg, chart.id, chart.title, chart.description, size.width, height,
                size.narrow ? "chart narrow" : "chart half");
  words(svg, "axis-title", 2, 14, chart.y_title + (y.log ? ", logarithmic" : ""));
  words(svg, "reference-text end", frame.right, frame.top - 9, chart.better);
  y_axis(svg, y, frame, ticks_of(y, 5));
  x_axis(svg, x, frame, ticks_of(x, size.narrow || beside.empty() ? 4 : 5));
  words(svg, "axis-title mid", (frame.left + frame.right) / 2, frame.bottom + 37, chart.x_title);
  std::vector<double> rows;
  for (const ChartSeries* one : drawn) rows.push_back(y(one->points.front().y));
  rows = spread_labels(rows, kLabelHeight, frame.top - 8, height - 30);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const ChartSeries& one = *drawn[i];
    const ChartPoint& point = one.points.front();
    const double px = x(point.x), py = y(point.y);
    open_series(svg, one);
    if (point.spread > 0) {
      const double low = y.log ? std::max(point.y - point.spread, y.low) : point.y - point.spread;
      line(svg, "spread", px, y(point.y + point.spread), px, y(low));
    }
    mark(svg, one.style, px, py, 4.6);
    if (beside.empty()) {
      mark(svg, one.style, frame.right + 12, rows[i], 3.6);
      words(svg, "name", frame.right + 21, rows[i] + 4, names[i]);
    } else {
      words(svg, "name mid", (beside[i].left + beside[i].right) / 2, beside[i].bottom - 3, names[i]);
    }
    touch(svg, px, py, point.tip);
    svg.close();
  }
  return svg.close().finish();
}

std::string heat_class(double value, double full) {
  if (!(full > 0) || std::isnan(value)) return "z";
  const double share = std::clamp(value / full, -1.0, 1.0);
  const int step = static_cast<int>(std::lround(share * 4));
  if (step == 0) return "z";
  return str(step < 0 ? 'n' : 'p', std::abs(step));
}

std::string panel_chart(const PanelChart& chart) {
  constexpr double kWidth = 300, kLines = 150, kStrip = 48;
  const bool empty = chart.x.empty() || chart.rows.empty();
  const double height = empty ? 60 : 24 + kLines + 14 + kStrip + 34;
  Markup svg;
  begin_picture(svg, chart.id, chart.title, chart.description, kWidth, height, "chart panel");
  if (empty) {
    words(svg, "tick mid", kWidth / 2, 34, "no curve by distance");
    return svg.close().finish();
  }
  const Frame frame{46, kWidth - 10, 14, 14 + kLines};
  // Distance 0 matters and a logarithm cannot show it: the axis is log(1 + distance).
  const Scale y{chart.low, chart.high, frame.bottom, frame.top, false};
  const Scale x{1, std::max(chart.x.back() + 1, 2.0), frame.left, frame.right, true};
  svg.open("defs").open("clipPath", {{"id", chart.id + "-clip"}});
  svg.leaf("rect", {{"x", coordinate(frame.left)},
                    {"y", coordinate(frame.top)},
                    {"width", coordinate(frame.right - frame.left)},
                    {"height", coordinate(frame.bottom - frame.top)}});
  svg.close().close();
  y_axis(svg, y, frame, nice_ticks(y.low, y.high, 4));
  if (chart.reference && *chart.reference + 1 <= x.high) {
    line(svg, "reference", x(*chart.reference + 1), frame.top, x(*chart.reference + 1), frame.bottom);
  }
  svg.open("g", {{"class", "series " + chart.style.classes()}, {"clip-path", str("url(#", chart.id, "-clip)")}});
  for (const auto& row : chart.rows) {
    std::string path;
    for (std::size_t i = 0; i < row.size(); ++i) {
      path += path.empty() ? 'M' : 'L';
      // Minus infinity and very low values leave through the bottom.
      const double value = std::max(row[i].value_or(y.low - 10 * (y.high - y.low)), y.low - 10 * (y.high - y.low));
      path += coordinate(x(chart.x[i] + 1)) + ' ' + coordinate(y(value));
    }
    svg.leaf("path", {{"class", chart.rows.size() > 1 ? "line head" : "line"}, {"d", path}});
  }
  svg.close();

  const double strip_top = frame.bottom + 14, row_height = kStrip / static_cast<double>(chart.rows.size());
  svg.open("g", {{"class", "heat"}});
  for (std::size_t head = 0; head < chart.rows.size(); ++head) {
    for (std::size_t i = 0; i < chart.x.size(); ++i) {
      const double here = x(chart.x[i] + 1);
      const double from = i == 0 ? frame.left : (x(chart.x[i - 1] + 1) + here) / 2;
      const double to = i + 1 == chart.x.size() ? frame.right : (x(chart.x[i + 1] + 1) + here) / 2;
      const auto& value = chart.rows[head][i];
      const std::string text = value ? format_significant(*value, 3) : "minus infinity";
      const std::string tip =
          str(chart.rows.size() > 1 ? str("head ", head, ", ") : "", "distance ", chart.x[i], ": ", text);
      svg.open("rect", {{"class", value ? heat_class(*value, chart.heat) : "n4"},
                        {"x", coordinate(from)},
                        {"y", coordinate(strip_top + row_height * static_cast<double>(head))},
                        {"width", coordinate(to - from)},
                        {"height", coordinate(row_height)},
                        {"data-tip", tip}});
      svg.element("title", {}, tip).close();
    }
  }
  svg.close();
  words(svg, "tick end", frame.left - 7, strip_top + kStrip / 2 + 4, chart.rows.size() > 1 ? "heads" : "");

  const double axis = strip_top + kStrip;
  double free_from = 0;
  for (double distance = 0; distance <= chart.x.back(); distance = distance == 0 ? 1 : distance * 4) {
    const std::string text = str(distance);
    const double place = x(distance + 1), half = text_width(text, kFont) / 2 + 2;
    if (place - half < free_from) continue;
    words(svg, "tick mid", place, axis + 15, text);
    free_from = place + half;
  }
  words(svg, "axis-title mid", (frame.left + frame.right) / 2, axis + 31, "distance");
  return svg.close().finish();
}

std::string mark_icon(const SeriesStyle& style) {
  Markup svg;
  svg.open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                   {"class", "icon " + style.classes()},
                   {"viewBox", "0 0 26 12"},
                   {"aria-hidden", "true"},
                   {"focusable", "false"}});
  svg.leaf("path", {{"class", "line"}, {"d", "M1 6L25 6"}});
  svg.leaf("path", {{"class", "mark"}, {"d", mark_path(style.mark, 13, 6, 3.4)}});
  return svg.close().finish();
}

}  // namespace torsor::report
