#include "torsor/report/table.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/report/grid_table.h"
#include "torsor/report/groups.h"
#include "torsor/report/numbers.h"
#include "torsor/report/statistics.h"
#include "torsor/report/syntax_table.h"

namespace torsor::report {
namespace {

template <class Read>
std::optional<double> mean_over(const Results& results, const std::string& encoding, Read read) {
  std::vector<double> values;
  for (const Run& run : results.runs) {
    if (run.encoding != encoding || run.status != Status::ok) continue;
    if (const auto value = read(run)) values.push_back(static_cast<double>(*value));
  }
  return values.empty() ? std::nullopt : std::optional(mean_of(values));
}

Cost cost_of(const Results& results, const std::string& encoding) {
  Cost cost;
  cost.parameters = mean_over(results, encoding, [](const Run& run) { return run.parameters; });
  cost.tokens_per_second = mean_over(results, encoding, [](const Run& run) { return run.train.tokens_per_second; });
  cost.peak_memory_bytes = mean_over(results, encoding, [](const Run& run) { return run.peak_memory_bytes; });
  cost.decode_tokens_per_second =
      mean_over(results, encoding, [](const Run& run) { return run.decode_tokens_per_second; });
  return cost;
}

/// The cell of an encoding that has no figure: what kept it from one, the worst first.
FigureCell cell_without_figure(const Results& results, const std::string& encoding, const std::string& task,
                               const std::vector<std::int64_t>& lengths) {
  FigureCell cell;
  const auto say = [&cell](Status status, const std::string& reason) {
    if (status == Status::ok || cell.text == "failed") return;
    if (status != Status::failed && !cell.text.empty()) return;
    cell.text = status_name(status);
    cell.reason = reason;
  };
  for (const Run& run : results.runs) {
    if (run.encoding != encoding) continue;
    say(run.status, run.reason);
    for (const std::int64_t length : lengths) {
      const Eval* eval = find_eval(run, task, length);
      if (eval == nullptr) continue;
      say(eval->status, eval->reason);
      if (eval->leaks && cell.text.empty()) cell.text = "leaks", cell.reason = eval->reason;
    }
  }
  return cell;
}

FigureCell cell_of(const Results& results, const std::string& encoding, const std::string& task, std::int64_t length,
                   const std::string& metric) {
  const SummaryRow* row = find_summary(results, encoding, task, length, metric);
  if (row == nullptr || row->n == 0) {
    return cell_without_figure(results, encoding, task, row_lengths(results, task, length, metric));
  }
  FigureCell cell;
  if (!row->mean) {
    cell.text = "not finite";
    for (const Run& run : results.runs) {
      if (run.encoding != encoding) continue;
      const Eval* eval = find_eval(run, task, length);
      if (eval != nullptr && !eval->perplexity && !eval->reason.empty() && cell.reason.empty())
        cell.reason = eval->reason;
    }
    return cell;
  }
  cell.mean = row->mean;
  if (higher_is_better(metric)) {
    cell.text = format_percent(*row->mean, row->sd);
    cell.spread = format_percent_spread(row->sd);
    return cell;
  }
  cell.text = format_mean(*row->mean, row->sd);
  if (row->sd && *row->sd > 0)
    cell.spread = format_mean_sd(*row->mean, row->sd).substr(cell.text.size() + 4);  // " +- "
  return cell;
}

/// Places of the lengths that a terminal has room for.
std::vector<std::size_t> shown_lengths(const FigureTable& table, std::int64_t trained) {
  constexpr std::size_t kRoom = 6;
  const std::size_t count = table.lengths.size();
  std::vector<std::size_t> shown;
  const bool all = table.metric != kAccuracy || count <= kRoom;
  for (std::size_t i = 0, next = 0; i < count; ++i) {
    const bool due = i * (kRoom - 1) >= next * (count - 1);
    next += due ? 1 : 0;
    if (all || due || table.lengths[i] == trained) shown.push_back(i);
  }
  return shown;
}

/// "perplexity by length, trained at 128", or the same for an accuracy.
std::string what_it_shows(const Results& results, const FigureTable& table) {
  const std::int64_t trained = training_length(results);
  if (table.metric != kAccuracy) return str("perplexity by length, trained at ", trained);
  const std::string unit = length_unit(table.task);
  return str("accuracy in % inside the trained lengths (up to ", trained, ' ', unit, "), beyond them and by ", unit);
}

std::string cost_text(const std::optional<double>& value, std::string (*format)(double)) {
  return value ? format(*value) : "";
}

void add_reasons(const FigureTable& table, std::string& text) {
  for (const FigureRow& row : table.rows) {
    std::vector<std::string> said;
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const FigureCell& cell = row.cells[i];
      if (cell.reason.empty() || std::find(said.begin(), said.end(), cell.reason) != said.end()) continue;
      said.push_back(cell.reason);
      text += str(one_line(row.encoding), ", ", table.lengths[i], ": ", cell.text, ", ", one_line(cell.reason), '\n');
    }
  }
}

}  // namespace

std::vector<std::string> shown_names(const std::vector<FigureRow>& rows, std::size_t width) {
  std::vector<std::string> names;
  for (const FigureRow& row : rows) names.push_back(one_line(row.encoding));
  return shorten_apart(names, width);
}

FigureTable figure_table(const Results& results, const std::string& task, const std::string& metric) {
  FigureTable table;
  table.task = task;
  table.metric = metric.empty() ? headline_metric(results, task) : metric;
  if (table.metric == kAccuracy) table.pools = pools_of(results, task);
  table.lengths = lengths_of(results, task);
  table.base = base_encoding(results);
  const Cost base = cost_of(results, table.base);
  for (const std::string& encoding : encodings_of(results)) {
    FigureRow row;
    row.encoding = encoding;
    row.cost = cost_of(results, encoding);
    if (row.cost.tokens_per_second && base.tokens_per_second && *base.tokens_per_second > 0) {
      row.cost.relative_speed = *row.cost.tokens_per_second / *base.tokens_per_second;
    }
    for (const Pool& pool : table.pools)
      row.pooled.push_back(cell_of(results, encoding, task, pool.lengths.back(), pool.metric));
    for (const std::int64_t length : table.lengths)
      row.cells.push_back(cell_of(results, encoding, task, length, table.metric));
    table.rows.push_back(std::move(row));
  }
  const auto mark_best = [&](std::int64_t length, const std::string& name, auto cell) {
    const auto best = best_of(results, task, length, name);
    if (!best || !best->shown) return;
    for (FigureRow& row : table.rows) cell(row).best = row.encoding == best->encoding;
  };
  for (std::size_t i = 0; i < table.pools.size(); ++i) {
    mark_best(table.pools[i].lengths.back(), table.pools[i].metric,
              [i](FigureRow& row) -> FigureCell& { return row.pooled[i]; });
  }
  for (std::size_t i = 0; i < table.lengths.size(); ++i)
    mark_best(table.lengths[i], table.metric, [i](FigureRow& row) -> FigureCell& { return row.cells[i]; });
  return table;
}

std::string cell_text(const FigureCell& cell) {
  if (cell.text.empty()) return "-";
  return cell.spread.empty() ? cell.text : cell.text + " \u00b1 " + cell.spread;
}

std::string align_columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - display_width(row[i]), ' ');
      line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string text_table(const Results& results) {
  std::string text;
  for (const std::string& task : tasks_of(results)) {
    if (!groups_of(results, task).empty()) {
      text += (text.empty() ? "" : "\n") + group_text(results, task);
      continue;
    }
    const FigureTable table = figure_table(results, task);
    const std::size_t seeds = seeds_of(results).size();
    bool marked = false;
    std::vector<std::vector<std::string>> rows(1);
    const std::vector<std::size_t> shown = shown_lengths(table, training_length(results));
    rows[0].push_back("encoding");
    for (const Pool& pool : table.pools) rows[0].push_back(pool.title);
    for (const std::size_t i : shown) rows[0].push_back(std::to_string(table.lengths[i]));
    for (const char* title : {"parameters", "speed", "memory", "decode/s"}) rows[0].push_back(title);
    const std::vector<std::string> names = shown_names(table.rows, 40);
    for (const FigureRow& row : table.rows) {
      std::vector<std::string> cells = {names[rows.size() - 1]};
      const auto add = [&](const FigureCell& cell) {
        marked = marked || cell.best;
        cells.push_back(cell_text(cell) + (cell.best ? "*" : ""));
      };
      for (const FigureCell& cell : row.pooled) add(cell);
      for (const std::size_t i : shown) add(row.cells[i]);
      cells.push_back(cost_text(row.cost.parameters, format_count));
      cells.push_back(row.cost.relative_speed ? format_factor(*row.cost.relative_speed) + "x" : "");
      cells.push_back(cost_text(row.cost.peak_memory_bytes, format_bytes));
      cells.push_back(cost_text(row.cost.decode_tokens_per_second, format_count));
      rows.push_back(std::move(cells));
    }
    if (!text.empty()) text += '\n';
    text += str(task, ": ", what_it_shows(results, table), ", ", seeds,
                seeds == 1 ? " seed" : " seeds (mean \u00b1 sd)", "; speed relative to ", table.base, '\n');
    text += align_columns(rows);
    if (marked) text += "* the 95 % interval of its lead over the runner-up excludes zero\n";
    add_reasons(table, text);
  }
  if (const std::string grid = grid_text(results); !grid.empty()) text += "\n" + grid;
  if (const std::string syntax = syntax_text(results); !syntax.empty()) text += (text.empty() ? "" : "\n") + syntax;
  return text;
}

}  // namespace torsor::report
