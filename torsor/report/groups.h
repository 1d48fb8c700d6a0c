// Tasks whose problems come in named groups: circuits of SyntaxGym suites, linguistic terms of BLiMP, tasks of GLUE.
// Encodings are compared by the mean over what counts, and shown group by group.
#pragma once

#include <string>
#include <vector>

#include "torsor/report/results.h"
#include "torsor/report/table.h"

namespace torsor::report {

/// The groups of a task with their counts, in the order of the first evaluation that has any; empty for other tasks.
std::vector<EvalGroup> groups_of(const Results& results, const std::string& task);

/// The summary's metric of one group: "accuracy: Agreement".
std::string group_metric(const std::string& headline, const std::string& group);

/// The first cell of a row is the figure over all, then one a group.
struct GroupTable {
  std::string title;  ///< "Accuracy by circuit"
  std::string note;
  std::vector<std::string> columns;  ///< "all", "Agreement (5)"
  std::vector<FigureRow> rows;       ///< costs are left out
};

/// From a filled summary (see summarize). Rows of encodings that leak say so behind their name.
GroupTable group_table(const Results& results, const std::string& task);

/// The table for a terminal, with a line above it that says what it shows and the reasons of failures below.
std::string group_text(const Results& results, const std::string& task);

/// The verdict of such a task, without refusals and failures: who is highest over all, whether that is shown, how small
/// a difference could have been shown, who is highest in each group.
std::vector<std::string> group_verdict(const Results& results, const std::string& task);

}  // namespace torsor::report
