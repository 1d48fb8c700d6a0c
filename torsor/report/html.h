// The report of a comparison: one HTML file that needs nothing else, neither network nor library.
#pragma once

#include <string>

#include "torsor/report/results.h"

namespace torsor::report {

/// The page, in this order: the verdict, perplexity (or accuracy) against length, for tasks with several kinds of
/// problems a heat map an encoding, the table, cost against quality, training loss,
/// loss by position, the effect of each encoding on a logit by distance, published figures if any were given, settings
/// and how to repeat. Every picture has its numbers folded under it. All text of `results` is escaped. Where the
/// summary is empty it is computed (see summarize).
std::string html_report(const Results& results);

}  // namespace torsor::report
