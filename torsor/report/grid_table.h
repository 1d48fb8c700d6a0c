// A comparison of the cells of a grid as tables: what is varied down, what it is varied on across.
#pragma once

#include <string>
#include <vector>

#include "torsor/report/results.h"

namespace torsor::report {

struct GridTable {
  std::string title;                           ///< what the grid is about, the task and the figure
  std::vector<std::vector<std::string>> rows;  ///< a heading and a row a place; "-" where the grid has no cell
};

/// One a task, from `config.grid` ({"name", "title", "cells": [{"row", "column", "encoding"}]}); of tasks by length at
/// the trained one. Empty where the comparison is of no grid. Throws Error for a grid that is damaged.
std::vector<GridTable> grid_tables(const Results& results);

/// What the grid leaves out, and why.
std::vector<std::string> grid_notes(const Results& results);

/// All of it for a terminal; empty without a grid.
std::string grid_text(const Results& results);

}  // namespace torsor::report
