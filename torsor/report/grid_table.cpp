#include "torsor/report/grid_table.h"

#include <algorithm>
#include <map>

#include "torsor/base/error.h"
#include "torsor/report/groups.h"
#include "torsor/report/numbers.h"
#include "torsor/report/statistics.h"
#include "torsor/report/table.h"

namespace torsor::report {
namespace {

struct Place {
  std::string row, column, encoding;
};

std::vector<Place> places_of(const Results& results) {
  std::vector<Place> places;
  const auto found = results.config.find("grid");
  if (found == results.config.end()) return places;
  JsonObject grid(*found, "results.json: config: grid", JsonObject::Blame::data);
  for (const Json& item : grid.get<std::vector<Json>>("cells")) {
    JsonObject cell(item, "results.json: config: grid: cells", JsonObject::Blame::data);
    places.push_back(
        {cell.get<std::string>("row"), cell.get<std::string>("column"), cell.get<std::string>("encoding")});
  }
  return places;
}

/// Every encoding's one figure in a task.
std::map<std::string, std::string> figures_of(const Results& results, const std::string& task, std::string& shown) {
  std::map<std::string, std::string> figures;
  const std::vector<std::string> encodings = encodings_of(results);
  if (!groups_of(results, task).empty()) {
    const GroupTable table = group_table(results, task);
    shown = "in %, the mean over all groups";
    for (std::size_t i = 0; i < table.rows.size(); ++i) figures[encodings[i]] = cell_text(table.rows[i].cells.front());
    return figures;
  }
  const FigureTable table = figure_table(results, task);
  if (table.lengths.empty()) return figures;
  const auto trained = std::find(table.lengths.begin(), table.lengths.end(), training_length(results));
  const std::size_t at = trained == table.lengths.end() ? 0 : static_cast<std::size_t>(trained - table.lengths.begin());
  shown = str(table.metric, " at ", table.lengths[at]);
  for (const FigureRow& row : table.rows)
    figures[row.encoding] = cell_text(row.cells[at]) + (row.cells[at].best ? "*" : "");
  return figures;
}

}  // namespace

std::vector<GridTable> grid_tables(const Results& results) {
  const std::vector<Place> places = places_of(results);
  std::vector<GridTable> tables;
  if (places.empty()) return tables;
  std::vector<std::string> rows, columns;
  const auto index = [](std::vector<std::string>& names, const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    names.push_back(name);
    return names.size() - 1;
  };
  for (const Place& place : places) index(rows, place.row), index(columns, place.column);
  const auto title = results.config.at("grid").value("title", std::string("grid"));
  for (const std::string& task : tasks_of(results)) {
    std::string shown;
    const std::map<std::string, std::string> figures = figures_of(results, task, shown);
    GridTable& table = tables.emplace_back();
    table.title = str(title, ": ", task, ", ", shown);
    table.rows.assign(rows.size() + 1, std::vector<std::string>(columns.size() + 1, "-"));
    table.rows[0][0] = "cell";
    for (std::size_t c = 0; c < columns.size(); ++c) table.rows[0][c + 1] = columns[c];
    for (std::size_t r = 0; r < rows.size(); ++r) table.rows[r + 1][0] = rows[r];
    for (const Place& place : places) {
      const auto found = figures.find(place.encoding);
      table.rows[index(rows, place.row) + 1][index(columns, place.column) + 1] =
          found == figures.end() ? "not run" : found->second;
    }
  }
  return tables;
}

std::vector<std::string> grid_notes(const Results& results) {
  const auto found = results.config.find("grid");
  if (found == results.config.end() || !found->contains("unsaid")) return {};
  std::vector<std::string> notes;
  for (const Json& one : found->at("unsaid"))
    if (one.is_string()) notes.push_back("Not in the grid: " + one.get<std::string>());
  return notes;
}

std::string grid_text(const Results& results) {
  std::string text;
  for (const GridTable& table : grid_tables(results))
    text += str(text.empty() ? "" : "\n", table.title, "\n", align_columns(table.rows));
  if (!text.empty())
    for (const std::string& note : grid_notes(results)) text += one_line(note) + "\n";
  return text;
}

}  // namespace torsor::report
