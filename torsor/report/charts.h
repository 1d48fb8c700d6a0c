// The pictures of the report, each with the table that stands under it, from results alone.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "torsor/report/results.h"
#include "torsor/report/svg.h"

namespace torsor::report {

/// A style an encoding, by name.
using Styles = std::map<std::string, SeriesStyle>;

Styles styles_of(const Results& results);

/// Rows of cells; the first row holds the headings.
using Rows = std::vector<std::vector<std::string>>;

struct LinePicture {
  LineChart chart;
  Rows rows;
};

struct ScatterPicture {
  ScatterChart chart;
  Rows rows;
};

struct PanelPicture {
  std::string encoding;
  std::string kind;  ///< what the panel shows, in words
  std::string note;
  std::optional<PanelChart> chart;
  Rows rows;
};

/// Perplexity, or accuracy in percent, against length, from a filled summary. Where a curve of perplexity leaves the
/// others far behind, the axis ends at four times the worst one at the training length.
LinePicture length_picture(const Results& results, const std::string& task, const Styles& styles);

/// Training speed against perplexity at the training length (or the shortest) and at the longest; for a task scored by
/// accuracy against that inside and beyond the trained lengths. No points without speeds.
std::vector<ScatterPicture> cost_pictures(const Results& results, const std::string& task, const Styles& styles);

/// Training loss against step, averaged over short stretches of steps, then over seeds.
LinePicture training_picture(const Results& results, const Styles& styles);

/// Loss against position at the longest length that has it, averaged over seeds.
LinePicture position_picture(const Results& results, const std::string& task, const Styles& styles);

/// What each encoding does to a logit, by distance; biases share one axis, cut at -10 (a weight of 5e-5).
std::vector<PanelPicture> effect_pictures(const Results& results, const Styles& styles);

}  // namespace torsor::report
