// What comparisons of every kind do with their results: files, a table, the verdict.
#pragma once

#include <cstddef>
#include <string>

#include "torsor/cli/common.h"
#include "torsor/report/results.h"

namespace torsor {

/// Writes results.json with summary and verdict into `folder`, and when the comparison is `whole` results.csv and
/// report.html; all from the results alone.
report::Results publish(const Json& document, const std::string& folder, bool whole);

/// A line on the newest run, once it is there: `told` counts the runs that had theirs.
void tell_newest_run(const CommonOptions& common, const report::Results& results, std::size_t& told);

/// The table and the verdict on standard output, or the document with --json. Returns 0; throws Error when a run
/// failed.
int print_results(const CommonOptions& common, const report::Results& results, const std::string& folder);

}  // namespace torsor
