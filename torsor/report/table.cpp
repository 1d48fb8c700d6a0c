#include "torsor/report/table.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/report/numbers.h"
#include "torsor/report/statistics.h"

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
                               std::int64_t length) {
  FigureCell cell;
  const auto say = [&cell](Status status, const std::string& reason) {
    if (status == Status::ok || cell.text == "failed") return;
    if (status == Status::refused && !cell.text.empty()) return;
    cell.text = status_name(status);
    cell.reason = reason;
  };
  for (const Run& run : results.runs) {
    if (run.encoding != encoding) continue;
    say(run.status, run.reason);
    if (const Eval* eval = find_eval(run, task, length); eval != nullptr) say(eval->status, eval->reason);
  }
  return cell;
}

FigureCell cell_of(const Results& results, const std::string& encoding, const std::string& task, std::int64_t length,
                   const std::string& metric) {
  const SummaryRow* row = find_summary(results, encoding, task, length, metric);
  if (row == nullptr || row->n == 0) return cell_without_figure(results, encoding, task, length);
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
  cell.text = format_mean(*row->mean, row->sd);
  if (row->sd && *row->sd > 0)
    cell.spread = format_mean_sd(*row->mean, row->sd).substr(cell.text.size() + 4);  // " +- "
  return cell;
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

FigureTable figure_table(const Results& results, const std::string& task, const std::string& metric) {
  FigureTable table;
  table.task = task;
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
    for (const std::int64_t length : table.lengths)
      row.cells.push_back(cell_of(results, encoding, task, length, metric));
    table.rows.push_back(std::move(row));
  }
  for (std::size_t i = 0; i < table.lengths.size(); ++i) {
    const auto best = best_of(results, task, table.lengths[i], metric);
    if (!best || !best->shown) continue;
    for (FigureRow& row : table.rows) row.cells[i].best = row.encoding == best->encoding;
  }
  return table;
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
    const FigureTable table = figure_table(results, task);
    const std::size_t seeds = seeds_of(results).size();
    bool marked = false;
    std::vector<std::vector<std::string>> rows(1);
    rows[0].push_back("encoding");
    for (const std::int64_t length : table.lengths) rows[0].push_back(std::to_string(length));
    for (const char* title : {"parameters", "speed", "memory", "decode/s"}) rows[0].push_back(title);
    for (const FigureRow& row : table.rows) {
      std::vector<std::string> cells = {shorten(one_line(row.encoding), 40)};
      for (const FigureCell& cell : row.cells) {
        std::string figure = cell.text;
        if (!cell.spread.empty()) figure += " \u00b1 " + cell.spread;
        if (cell.best) figure += '*';
        marked = marked || cell.best;
        cells.push_back(figure.empty() ? "-" : figure);
      }
      cells.push_back(cost_text(row.cost.parameters, format_count));
      cells.push_back(row.cost.relative_speed ? format_factor(*row.cost.relative_speed) + "x" : "");
      cells.push_back(cost_text(row.cost.peak_memory_bytes, format_bytes));
      cells.push_back(cost_text(row.cost.decode_tokens_per_second, format_count));
      rows.push_back(std::move(cells));
    }
    if (!text.empty()) text += '\n';
    text += str(task, ": perplexity by length, trained at ", training_length(results), ", ", seeds,
                seeds == 1 ? " seed" : " seeds (mean \u00b1 sd)", "; speed relative to ", table.base, '\n');
    text += align_columns(rows);
    if (marked) text += "* the 95 % interval of its lead over the runner-up excludes zero\n";
    add_reasons(table, text);
  }
  return text;
}

}  // namespace torsor::report
