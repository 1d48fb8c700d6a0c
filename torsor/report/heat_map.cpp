#include "torsor/report/heat_map.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/report/accuracy.h"
#include "torsor/report/numbers.h"
#include "torsor/report/scale.h"
#include "torsor/report/svg_parts.h"
#include "torsor/report/table.h"

namespace torsor::report {
namespace {

constexpr double kWidth = 300;      // of one grid with its labels, in pixels at scale 1
constexpr double kCellFont = 9.5;   // of the values in the cells
constexpr double kMostHeight = 32;  // of a cell: few rows do not stretch to towers

using Colour = std::array<double, 3>;

/// Steps along a line through three colours.
std::array<std::string, kHeatSteps> steps_between(const Colour& first, const Colour& middle, const Colour& last) {
  std::array<std::string, kHeatSteps> steps;
  for (std::size_t i = 0; i < kHeatSteps; ++i) {
    const double place = 2 * static_cast<double>(i) / (kHeatSteps - 1);
    const Colour& from = place < 1 ? first : middle;
    const Colour& to = place < 1 ? middle : last;
    const double share = place < 1 ? place : place - 1;
    std::array<unsigned, 3> value{};
    for (std::size_t c = 0; c < 3; ++c)
      value[c] = static_cast<unsigned>(std::lround(from[c] + share * (to[c] - from[c])));
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "#%02x%02x%02x", value[0] & 0xffU, value[1] & 0xffU, value[2] & 0xffU);
    steps[i] = text.data();
  }
  return steps;
}

/// What a cell of the grid says in few characters: never 100 or 0 by rounding.
std::string short_percent(double share) {
  const std::string text = str(std::lround(100 * share));
  if (share < 1 && text == "100") return "99";
  if (share > 0 && text == "0") return "<1";
  return text;
}

}  // namespace

const std::array<std::string, kHeatSteps>& light_heat() {
  static const std::array<std::string, kHeatSteps> steps =
      steps_between({236, 240, 245}, {112, 168, 214}, {8, 45, 104});
  return steps;
}

const std::array<std::string, kHeatSteps>& dark_heat() {
  static const std::array<std::string, kHeatSteps> steps = steps_between({38, 44, 52}, {50, 116, 178}, {206, 232, 255});
  return steps;
}

std::size_t heat_step(double share) {
  if (!(share > 0)) return 0;
  if (share >= 1) return kHeatSteps - 1;
  const auto step = static_cast<std::size_t>(std::lround(share * (kHeatSteps - 1)));
  return std::clamp<std::size_t>(step, 1, kHeatSteps - 2);
}

std::string heat_map(const HeatMap& map) {
  const std::size_t columns = map.columns.size(), rows = map.rows.size();
  double left = 0;
  for (const std::string& row : map.rows) left = std::max(left, text_width(row, kFont));
  left = std::ceil(left) + 10;
  const Frame wide{left, kWidth - 4, 24, 24};
  const double cell_width = (wide.right - wide.left) / static_cast<double>(std::max<std::size_t>(columns, 1));
  const double cell_height = std::min(cell_width, kMostHeight);
  const Frame frame{wide.left, wide.right, wide.top, wide.top + cell_height * static_cast<double>(rows)};
  const double height = frame.bottom + 42;

  Markup svg;
  begin_picture(svg, map.id, map.title, map.description, kWidth, height, "chart panel");
  words(svg, "axis-title", 2, 14, map.y_title);
  svg.open("g", {{"class", "grid-cells"}});
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::optional<double>& share = map.shares[row][column];
      const std::string& tip = map.tips[row][column];
      const double x = frame.left + cell_width * static_cast<double>(column);
      const double y = frame.top + cell_height * static_cast<double>(row);
      svg.open("rect", {{"class", share ? str("q", heat_step(*share)) : "gap"},
                        {"x", coordinate(x)},
                        {"y", coordinate(y)},
                        {"width", coordinate(cell_width)},
                        {"height", coordinate(cell_height)},
                        {"data-tip", tip}});
      svg.element("title", {}, tip).close();
    }
  }
  svg.close();
  const bool values = cell_width >= text_width("100", kCellFont) + 1 && cell_height >= kCellFont + 3;
  for (std::size_t row = 0; values && row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::optional<double>& share = map.shares[row][column];
      if (!share) continue;
      words(svg, str("cell on", heat_step(*share)), frame.left + cell_width * (static_cast<double>(column) + 0.5),
            frame.top + cell_height * (static_cast<double>(row) + 0.5) + 3.5, short_percent(*share));
    }
  }
  if (map.outline_columns > 0 && map.outline_rows > 0) {
    const double outline_height = cell_height * static_cast<double>(std::min(map.outline_rows, rows));
    // Orange on a line of paper: stands out from blue and from pale cells, for every kind of sight.
    for (const char* part : {"outline halo", "outline"}) {
      svg.leaf("rect", {{"class", part},
                        {"x", coordinate(frame.left)},
                        {"y", coordinate(frame.bottom - outline_height)},
                        {"width", coordinate(cell_width * static_cast<double>(std::min(map.outline_columns, columns)))},
                        {"height", coordinate(outline_height)}});
    }
  }
  // Labels that would touch the one before are left out.
  double free_from = 0;
  for (std::size_t column = 0; column < columns; ++column) {
    const double x = frame.left + cell_width * (static_cast<double>(column) + 0.5);
    const double half = text_width(map.columns[column], kFont) / 2 + 2;
    if (x - half < free_from) continue;
    words(svg, "tick mid", x, frame.bottom + 16, map.columns[column]);
    free_from = x + half;
  }
  double free_to = height;
  for (std::size_t row = rows; row-- > 0;) {
    const double y = frame.top + cell_height * (static_cast<double>(row) + 0.5);
    if (y + kFont / 2 > free_to) continue;
    words(svg, "tick end", frame.left - 6, y + 4, map.rows[row]);
    free_to = y - kFont / 2;
  }
  words(svg, "axis-title mid", (frame.left + frame.right) / 2, frame.bottom + 35, map.x_title);
  return svg.close().finish();
}

std::string heat_key(const std::string& id) {
  constexpr double kSwatch = 20, kTop = 6;
  const double left = text_width("problems solved", kFont) + 12;
  const double right = left + kSwatch * kHeatSteps;
  Markup svg;
  begin_picture(svg, id, "The scale of colours",
                "From 0 % of the problems solved, near the paper, to 100 %, far from it.", right + 16, 42,
                "chart heat-key");
  words(svg, "axis-title", 2, kTop + 14, "problems solved");
  for (std::size_t i = 0; i < kHeatSteps; ++i) {
    const double x = left + kSwatch * static_cast<double>(i);
    svg.leaf("rect", {{"class", str("q", i)},
                      {"x", coordinate(x)},
                      {"y", coordinate(kTop)},
                      {"width", coordinate(kSwatch)},
                      {"height", "16"}});
    if (i % 5 == 0) {
      words(svg, "tick mid", x + kSwatch / 2, kTop + 30,
            str(i * 100 / (kHeatSteps - 1), i + 1 == kHeatSteps ? " %" : ""));
    }
  }
  return svg.close().finish();
}

namespace {

/// "7 + 12 digits" or "512 tokens, depth 25 %".
std::string kind_of_problem(const std::string& task, std::int64_t x, std::int64_t y) {
  if (task == "addition") return str(x, " + ", y, " digits");
  if (task == "passkey") return str(x, " tokens, depth ", y, " %");
  return str(x, ", ", y);
}

std::string solved_text(const EvalCell& cell) {
  return str(format_percent(static_cast<double>(cell.correct) / static_cast<double>(cell.count)), " % (", cell.correct,
             " of ", cell.count, ')');
}

/// "99.1 % inside the trained lengths, 37.4 % beyond", with what stands in place of a figure.
std::string pooled_words(const FigureTable& table, const FigureRow& row) {
  std::string text;
  for (std::size_t i = 0; i < table.pools.size(); ++i) {
    const FigureCell& cell = row.pooled[i];
    if (!text.empty()) text += ", ";
    text += str(table.pools[i].title, ' ', cell_text(cell), cell.mean ? " %" : "");
  }
  return text;
}

}  // namespace

HeatPictures heat_pictures(const Results& results, const std::string& task) {
  HeatPictures all;
  const bool addition = task == "addition", passkey = task == "passkey";
  const std::int64_t trained = training_length(results);
  const FigureTable table = figure_table(results, task);
  std::map<std::string, std::map<std::pair<std::int64_t, std::int64_t>, EvalCell>> grids;
  std::set<std::int64_t> xs, ys;
  for (const FigureRow& row : table.rows) {
    for (const EvalCell& cell : grid_of(results, row.encoding, task)) {
      grids[row.encoding].emplace(std::pair(cell.x, cell.y), cell);
      xs.insert(cell.x);
      ys.insert(cell.y);
    }
  }
  if (xs.empty()) return all;
  if (addition) {
    all.note =
        "Problems solved by the digits of both numbers; an answer counts when all of it is right. The outlined square "
        "holds the trained lengths.";
  } else {
    all.note =
        str(passkey ? "Problems solved by the length of the context and the depth of the key in it, 0 % being the "
                      "beginning."
                    : "Problems solved by kind.",
            " The outlined columns hold the trained lengths.");
  }
  // Depth runs downwards as a text does, digits upwards as on any axis.
  std::vector<std::int64_t> down(ys.begin(), ys.end());
  if (addition) std::reverse(down.begin(), down.end());
  const auto within = [trained](const auto& values) {
    return static_cast<std::size_t>(
        std::count_if(values.begin(), values.end(), [trained](std::int64_t value) { return value <= trained; }));
  };

  all.rows.push_back({addition ? "digits" : passkey ? "context, depth" : "kind"});
  for (const FigureRow& row : table.rows) {
    all.rows[0].push_back(row.encoding);
    HeatPicture& picture = all.pictures.emplace_back();
    picture.encoding = row.encoding;
    picture.summary = pooled_words(table, row);
    const auto grid = grids.find(row.encoding);
    if (grid == grids.end()) continue;
    HeatMap map;
    map.title = str("Problems solved by ", row.encoding, addition ? ", by digits of both numbers" : ", by x and y");
    if (passkey) map.title = str("Keys found by ", row.encoding, ", by context and depth");
    map.x_title = addition ? "digits of the first number" : passkey ? "context in tokens" : "x";
    map.y_title = addition ? "digits of the second number" : passkey ? "depth in %" : "y";
    map.outline_columns = within(xs);
    map.outline_rows = addition ? within(ys) : down.size();
    const EvalCell* lowest = nullptr;
    for (const std::int64_t x : xs) map.columns.push_back(str(x));
    for (const std::int64_t y : down) {
      map.rows.push_back(str(y));
      auto& shares = map.shares.emplace_back();
      auto& tips = map.tips.emplace_back();
      for (const std::int64_t x : xs) {
        const auto found = grid->second.find({x, y});
        if (found == grid->second.end()) {
          shares.emplace_back();
          tips.push_back(kind_of_problem(task, x, y) + ": not evaluated");
          continue;
        }
        const EvalCell& cell = found->second;
        shares.emplace_back(static_cast<double>(cell.correct) / static_cast<double>(cell.count));
        tips.push_back(kind_of_problem(task, x, y) + ": " + solved_text(cell));
        if (lowest == nullptr || cell.correct * lowest->count < lowest->correct * cell.count) lowest = &cell;
      }
    }
    if (!picture.summary.empty()) map.description = str("Problems solved: ", picture.summary, ". ");
    map.description += str("Lowest: ", solved_text(*lowest), " at ", kind_of_problem(task, lowest->x, lowest->y), ".");
    picture.map = std::move(map);
  }
  for (const std::int64_t x : xs) {
    for (const std::int64_t y : ys) {
      std::vector<std::string> cells = {kind_of_problem(task, x, y)};
      bool any = false;
      for (const FigureRow& row : table.rows) {
        const auto grid = grids.find(row.encoding);
        const bool there = grid != grids.end() && grid->second.count({x, y}) > 0;
        cells.push_back(there ? solved_text(grid->second.at({x, y})) : "-");
        any = any || there;
      }
      if (any) all.rows.push_back(std::move(cells));
    }
  }
  return all;
}

}  // namespace torsor::report
