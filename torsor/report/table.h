// The table of a comparison: its cells, which the HTML report shares, and the text for a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/report/results.h"

namespace torsor::report {

/// One encoding's figure at one length. `text` is "7.42", "refused", "failed", "not finite" or "" (not evaluated).
struct FigureCell {
  std::string text;
  std::string spread;  ///< the standard deviation with its digits, or empty
  std::string reason;  ///< why it was refused, failed, or is not finite
  std::optional<double> mean;
  bool best = false;  ///< shown to be the best of its column (bold)
};

/// What an encoding costs: means over its runs that ended.
struct Cost {
  std::optional<double> parameters;
  std::optional<double> tokens_per_second;
  std::optional<double> relative_speed;  ///< tokens a second over those of the base encoding
  std::optional<double> peak_memory_bytes;
  std::optional<double> decode_tokens_per_second;
};

struct FigureRow {
  std::string encoding;
  std::vector<FigureCell> cells;  ///< one a length of the table
  Cost cost;
};

/// Encodings down, lengths across, for one task.
struct FigureTable {
  std::string task;
  std::vector<std::int64_t> lengths;
  std::vector<FigureRow> rows;
  std::string base;  ///< the encoding that speeds are relative to
};

/// From a filled summary (see summarize).
FigureTable figure_table(const Results& results, const std::string& task, const std::string& metric = "perplexity");

/// Rows of cells as text with columns two spaces apart: the first aligned left, the others right, widths in terminal
/// columns. Lines have no trailing spaces; every line ends in a newline. Short rows leave their last columns empty.
std::string align_columns(const std::vector<std::vector<std::string>>& rows);

/// The table of every task for a terminal, each with a line above it that says what it shows, and the reasons of
/// failures below. A star marks a figure shown to be the best of its column.
std::string text_table(const Results& results);

}  // namespace torsor::report
