// The cells of the ablations (sipe.md, section 5) as encodings that one comparison runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/base/json.h"

namespace torsor {

/// A cell of a grid: a place in a table and what stands there.
struct Cell {
  std::string row, column;
  std::string encoding;  ///< canonical, with a control behind '@' where it has one
};

struct CellGrid {
  std::string name, title;
  bool encoder = false;  ///< of models that read in both directions: for --task glue
  std::vector<Cell> cells;
  std::vector<std::string> unsaid;  ///< cells of the grid that no expression says, and why
};

/// "decoder", "depth", "coupling", "controls", "encoder", "fusion", "labels".
const std::vector<std::string>& grid_names();

/// The grid of a name for models of `layers` layers. Throws UsageError for another name.
CellGrid cell_grid(const std::string& name, std::int64_t layers);

/// The encodings of a grid, each once: what a comparison runs, bases ahead of what builds on them.
std::vector<std::string> grid_encodings(const CellGrid& grid);

/// {"name", "title", "cells": [{"row", "column", "encoding"}], "unsaid": [...]}: what results.json says of it.
Json grid_to_json(const CellGrid& grid);

/// A readable list.
std::string grid_text(const CellGrid& grid);

}  // namespace torsor
