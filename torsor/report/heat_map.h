// Shares of problems solved by two properties of the problem, as a grid of colours: one small picture an encoding.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "torsor/report/charts.h"
#include "torsor/report/results.h"

namespace torsor::report {

/// Colours of shares 0, 0.1 .. 1 on light and on dark paper: one hue whose lightness alone tells the share, so that the
/// colour-blind and a grey print read the same. The further from the paper, the more was solved.
inline constexpr std::size_t kHeatSteps = 11;
const std::array<std::string, kHeatSteps>& light_heat();
const std::array<std::string, kHeatSteps>& dark_heat();

/// The step of a share: only 1 itself is the last and only 0 the first, so that "almost" shows.
std::size_t heat_step(double share);

struct HeatMap {
  std::string id;  ///< unique in the page; letters, digits, '-'
  std::string title;
  std::string description;
  std::string x_title;
  std::string y_title;
  std::vector<std::string> columns;  ///< from left to right
  std::vector<std::string> rows;     ///< from top to bottom
  /// Row x column; empty = not evaluated.
  std::vector<std::vector<std::optional<double>>> shares;
  std::vector<std::vector<std::string>> tips;  ///< row x column
  /// The outlined part, trained lengths: so many columns from the left and rows from the bottom; 0 outlines nothing.
  std::size_t outline_columns = 0;
  std::size_t outline_rows = 0;
};

/// The grid with its labels, values in percent where a cell has room for them, a tip a cell.
std::string heat_map(const HeatMap& map);

/// The scale of colours from 0 to 100 %.
std::string heat_key(const std::string& id);

struct HeatPicture {
  std::string encoding;
  std::string summary;         ///< the pooled accuracies in words
  std::optional<HeatMap> map;  ///< empty when nothing was evaluated
};

/// The grids of all encodings and the table of their numbers, a kind of problem a row, an encoding a column.
struct HeatPictures {
  std::vector<HeatPicture> pictures;
  Rows rows;
  std::string note;  ///< what the grids show, in words
};

/// Addition: digits of one operand by digits of the other, the trained square outlined. Passkey, and other tasks with
/// cells: y (depth) by x (length), the trained columns outlined. No pictures where no evaluation has cells.
HeatPictures heat_pictures(const Results& results, const std::string& task);

}  // namespace torsor::report
