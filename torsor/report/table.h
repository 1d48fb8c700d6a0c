// The table of a comparison: its cells, which the HTML report shares, and the text for a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "torsor/report/accuracy.h"
#include "torsor/report/results.h"

namespace torsor::report {

/// One encoding's figure at one length. `text` is "7.42", an accuracy in percent ("37.4"), "refused", "failed", "not
/// finite" or "" (not evaluated).
struct FigureCell {
  std::string text;
  std::string spread;          ///< the standard deviation with its digits, or empty
  std::string reason;          ///< why it was refused, failed, or is not finite
  std::optional<double> mean;  ///< as in the summary: an accuracy is a share
  bool best = false;           ///< shown to be the best of its column (bold)
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
  std::vector<FigureCell> pooled;  ///< one a pool of the table
  std::vector<FigureCell> cells;   ///< one a length of the table
  Cost cost;
};

/// What the rows are called in a table for a terminal of `width` columns a name (shorten_apart).
std::vector<std::string> shown_names(const std::vector<FigureRow>& rows, std::size_t width);

/// Encodings down, lengths across, for one task.
struct FigureTable {
  std::string task;
  std::string metric;
  std::vector<Pool> pools;  ///< lengths that share a figure; none unless the metric is the accuracy
  std::vector<std::int64_t> lengths;
  std::vector<FigureRow> rows;
  std::string base;  ///< the encoding that speeds are relative to
};

/// From a filled summary (see summarize). Without a metric: the one that the task is about, see headline_metric.
FigureTable figure_table(const Results& results, const std::string& task, const std::string& metric = "");

/// A figure with its spread: "7.42 +- 0.03" with the sign U+00B1, or what stands in place of it, or "-".
std::string cell_text(const FigureCell& cell);

/// Rows of cells as text with columns two spaces apart: the first aligned left, the others right, widths in terminal
/// columns. Lines have no trailing spaces; every line ends in a newline. Short rows leave their last columns empty.
std::string align_columns(const std::vector<std::vector<std::string>>& rows);

/// The table of every task for a terminal, each with a line above it that says what it shows, and the reasons of
/// failures below. A star marks a figure shown to be the best of its column. Of many lengths of an accuracy only some
/// are there: the shortest, the trained one, the longest and some between.
std::string text_table(const Results& results);

}  // namespace torsor::report
