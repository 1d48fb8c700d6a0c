#include "torsor/report/html.h"

#include <algorithm>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/report/accuracy.h"
#include "torsor/report/charts.h"
#include "torsor/report/grid_table.h"
#include "torsor/report/groups.h"
#include "torsor/report/heat_map.h"
#include "torsor/report/numbers.h"
#include "torsor/report/page.h"
#include "torsor/report/statistics.h"
#include "torsor/report/syntax_pairs.h"
#include "torsor/report/syntax_table.h"
#include "torsor/report/table.h"

namespace torsor::report {
namespace {

/// A difference of accuracies in percentage points; any other as it is.
Interval in_points(const Interval& interval, bool accuracy) {
  if (!accuracy) return interval;
  const auto hundred = [](const std::optional<double>& value) {
    return value ? std::optional(100 * *value) : std::nullopt;
  };
  return {100 * interval.mean, hundred(interval.low), hundred(interval.high)};
}

class Page : private PageWriter {
 public:
  explicit Page(const Results& results) : results_(results), styles_(styles_of(results)) {}

  std::string write() {
    const std::vector<std::string> tasks = tasks_of(results_);
    const std::size_t count = encodings_of(results_).size();
    begin(str("Torsor: ", count, count == 1 ? " encoding" : " encodings", " compared"));
    verdict();
    for (const std::string& task : tasks) {
      const std::string suffix = tasks.size() > 1 ? ": " + task : "";
      if (!groups_of(results_, task).empty()) {
        group_section(task);
        continue;
      }
      length_section(task, suffix);
      heat_section(task, suffix);
      table_section(task, suffix);
      cost_section(task, suffix);
    }
    grid_section();
    syntax_section();
    training_section();
    for (const std::string& task : tasks) position_section(task, tasks.size() > 1 ? ": " + task : "");
    effect_section();
    published_section();
    settings_section();
    return end();
  }

 private:
  std::string facts() const {
    const std::size_t encodings = encodings_of(results_).size(), seeds = seeds_of(results_).size();
    std::string text = str("Torsor compared ", encodings, encodings == 1 ? " encoding" : " encodings");
    const std::vector<std::string> tasks = tasks_of(results_);
    const bool accuracy = tasks.size() == 1 && scored_by_accuracy(results_, tasks.front());
    if (accuracy) text += " \u00b7 " + tasks.front();
    if (const std::int64_t trained = training_length(results_); trained > 0) {
      text += str(" \u00b7 trained ", accuracy ? "up to " : "at ", trained, ' ',
                  accuracy ? length_unit(tasks.front()) : "tokens");
    }
    std::int64_t steps = 0;
    for (const Run& run : results_.runs) steps = std::max(steps, run.train.steps);
    if (steps > 0) text += str(" \u00b7 ", steps, " steps");
    text += str(" \u00b7 ", seeds, seeds == 1 ? " seed" : " seeds");
    if (const auto found = results_.config.find("profile"); found != results_.config.end() && found->is_string()) {
      text += " \u00b7 profile " + found->get<std::string>();
    }
    return text;
  }

  void verdict() {
    html_.element("p", {{"class", "facts"}}, facts()).raw("\n");
    const std::vector<std::string>& sentences = results_.verdict;
    html_.element("h1", {}, sentences.empty() ? "Nothing was run." : keep_together(sentences.front())).raw("\n");
    if (sentences.size() < 2) return;
    html_.open("ul", {{"class", "verdict"}});
    for (std::size_t i = 1; i < sentences.size(); ++i) html_.element("li", {}, keep_together(sentences[i]));
    html_.close().raw("\n");
  }

  void length_section(const std::string& task, const std::string& suffix) {
    section((scored_by_accuracy(results_, task) ? "Accuracy by length" : "Perplexity by length") + suffix,
            seeds_of(results_).size() > 1 ? "Lines are means over seeds, bands one standard deviation." : "");
    line_figure(length_picture(results_, task, styles_));
    end_section();
  }

  void panel_heading(const std::string& encoding) {
    html_.open("h3");
    if (const auto style = styles_.find(encoding); style != styles_.end()) html_.raw(mark_icon(style->second));
    html_.text(encoding).close();
  }

  /// Small multiples in one figure, with one scale and one table for all.
  void heat_section(const std::string& task, const std::string& suffix) {
    HeatPictures heat = heat_pictures(results_, task);
    if (heat.pictures.empty()) return;
    section("Accuracy by kind of problem" + suffix, heat.note);
    html_.open("figure").raw(heat_key(next_id())).open("div", {{"class", "panels"}}).raw("\n");
    for (HeatPicture& picture : heat.pictures) {
      html_.open("div", {{"class", "panel"}});
      panel_heading(picture.encoding);
      html_.element("p", {{"class", "panel-kind"}}, keep_together(picture.summary));
      if (picture.map) {
        picture.map->id = next_id();
        html_.raw(heat_map(*picture.map));
      }
      html_.close().raw("\n");
    }
    html_.close();
    folded(heat.rows, "Problems solved by kind of problem");
    html_.close().raw("\n");
    end_section();
  }

  void encoding_cell(const std::string& encoding) {
    const auto style = styles_.find(encoding);
    html_.open("th", {{"scope", "row"}, {"class", "encoding"}});
    if (style != styles_.end()) html_.raw(mark_icon(style->second));
    html_.text(encoding).close();
  }

  void figure_cell(const FigureCell& cell, bool first) {
    std::string classes = first ? "first" : "";
    if (!cell.mean) classes += " none";
    if (cell.best) classes += " best";
    html_.open("td", {{"class", classes}, {"title", cell.reason}});
    html_.text(cell.text.empty() ? "-" : cell.text);
    if (!cell.spread.empty()) html_.text(" ").element("small", {}, "\u00b1\u00a0" + cell.spread);
    html_.close();
  }

  void cost_cell(const std::optional<double>& value, std::string (*format)(double), const char* unit,
                 bool first = false) {
    html_.element("td", {{"class", first ? "first" : ""}}, value ? format(*value) + unit : "-");
  }

  void table_section(const std::string& task, const std::string& suffix) {
    const FigureTable table = figure_table(results_, task);
    const bool accuracy = table.metric == kAccuracy;
    const std::int64_t trained = training_length(results_);
    section("Table" + suffix,
            str(accuracy
                    ? str("Problems solved in %, higher is better: mean and standard deviation over seeds. Inside: all "
                          "lengths up to the trained ",
                          trained, "; beyond: all others.")
                    : "Perplexity, lower is better: mean and standard deviation over seeds.",
                " A number is bold only where the 95 % interval of its lead over the runner-up excludes zero, with "
                "three seeds or more."));
    html_.open("div", {{"class", "scroll"},
                       {"role", "region"},
                       {"aria-label", str(accuracy ? "Accuracy" : "Perplexity", " and cost of each encoding")},
                       {"tabindex", "0"}});
    html_.open("table").open("thead").open("tr");
    html_.element("th", {{"scope", "col"}, {"rowspan", "2"}, {"class", "corner"}}, "encoding");
    html_.element("th",
                  {{"scope", "colgroup"},
                   {"class", "group"},
                   {"colspan", str(std::max<std::size_t>(table.pools.size() + table.lengths.size(), 1))}},
                  accuracy ? str("accuracy in %, pooled and by ", length_unit(task)) : "perplexity at length");
    html_.element("th", {{"scope", "colgroup"}, {"class", "group"}, {"colspan", "4"}}, "cost").close().open("tr");
    for (std::size_t i = 0; i < table.pools.size(); ++i) {
      html_.element("th", {{"scope", "col"}, {"class", i == 0 ? "first" : ""}}, table.pools[i].title);
    }
    for (std::size_t i = 0; i < table.lengths.size(); ++i) {
      html_.element("th", {{"scope", "col"}, {"class", i == 0 ? "first" : ""}}, str(table.lengths[i]));
    }
    html_.element("th", {{"scope", "col"}, {"class", "first"}}, "parameters");
    html_.element("th", {{"scope", "col"}}, "speed");
    html_.element("th", {{"scope", "col"}}, "memory");
    html_.element("th", {{"scope", "col"}}, "decode/s").close().close().open("tbody");
    for (const FigureRow& row : table.rows) {
      html_.open("tr");
      encoding_cell(row.encoding);
      for (std::size_t i = 0; i < row.pooled.size(); ++i) figure_cell(row.pooled[i], i == 0);
      for (std::size_t i = 0; i < row.cells.size(); ++i) figure_cell(row.cells[i], i == 0);
      cost_cell(row.cost.parameters, format_count, "", true);
      cost_cell(row.cost.relative_speed, format_factor, "\u00d7");
      cost_cell(row.cost.peak_memory_bytes, format_bytes, "");
      cost_cell(row.cost.decode_tokens_per_second, format_count, "");
      html_.close().raw("\n");
    }
    html_.close().close().close().raw("\n");
    reasons(table);
    html_.element(
        "p", {{"class", "note"}},
        str("Speed: training tokens a second relative to ", table.base,
            " in the same comparison, one encoding after the other: other load on the machine shows in it. Memory: "
            "peak. Decode: tokens a second, one at a time."));
    differences(task, table);
    if (!accuracy) {
      other_metric(task, "bits_per_byte", "Bits per byte");
      other_metric(task, "loss", "Loss in nats a token");
    }
    end_section();
  }

  void reasons(const FigureTable& table) {
    std::vector<std::string> items;
    for (const FigureRow& row : table.rows) {
      for (std::size_t i = 0; i < row.cells.size(); ++i) {
        const FigureCell& cell = row.cells[i];
        const bool said = i > 0 && cell.reason == row.cells[i - 1].reason;
        if (!cell.reason.empty() && !said)
          items.push_back(str(row.encoding, ", ", table.lengths[i], ": ", cell.text, ", ", cell.reason));
      }
    }
    if (items.empty()) return;
    html_.open("ul", {{"class", "reasons"}});
    for (const std::string& item : items) html_.element("li", {}, item);
    html_.close().raw("\n");
  }

  void differences(const std::string& task, const FigureTable& table) {
    if (table.rows.size() < 2) return;
    const bool higher = higher_is_better(table.metric);
    Rows rows = {{"encoding"}};
    std::vector<std::pair<std::string, std::int64_t>> columns;  // metric and length of the summary's rows
    for (const Pool& pool : table.pools) {
      columns.emplace_back(pool.metric, pool.lengths.back());
      rows[0].push_back(pool.title);
    }
    for (const std::int64_t length : table.lengths) {
      columns.emplace_back(table.metric, length);
      rows[0].push_back(str(length));
    }
    for (const FigureRow& row : table.rows) rows.push_back({row.encoding});
    for (const auto& [metric, length] : columns) {
      const auto best = best_of(results_, task, length, metric);
      for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const std::string& encoding = table.rows[i].encoding;
        const SummaryRow* summary = find_summary(results_, encoding, task, length, metric);
        if (summary == nullptr || !summary->difference_to_best) {
          rows[i + 1].push_back("-");
        } else if (best && best->encoding == encoding) {
          rows[i + 1].push_back(higher ? "highest" : "lowest");
        } else {
          const Interval interval = in_points(*summary->difference_to_best, higher);
          const std::string ends = format_interval(interval);
          rows[i + 1].push_back(format_significant(interval.mean, 2) + (ends.empty() ? "" : " (" + ends + ")"));
        }
      }
    }
    const std::string extreme = higher ? "highest" : "lowest";
    html_.open("details").element("summary", {}, "Differences to the " + extreme);
    rows_table(rows,
               str(higher ? "Accuracy minus the highest at each length, in percentage points,"
                          : "Perplexity minus the lowest at each length,",
                   " with the 95 % interval (paired bootstrap over seeds, then ", higher ? "problems)" : "windows)"),
               false);
    html_.close().raw("\n");
  }

  void other_metric(const std::string& task, const std::string& metric, const std::string& title) {
    const FigureTable table = figure_table(results_, task, metric);
    Rows rows = {{"encoding"}};
    bool any = false;
    for (const std::int64_t length : table.lengths) rows[0].push_back(str(length));
    for (const FigureRow& row : table.rows) {
      std::vector<std::string> cells = {row.encoding};
      for (const FigureCell& cell : row.cells) {
        any = any || cell.mean;
        cells.push_back(cell_text(cell));
      }
      rows.push_back(std::move(cells));
    }
    if (!any) return;
    html_.open("details").element("summary", {}, title);
    rows_table(rows, title + " at each length, lower is better", false);
    html_.close().raw("\n");
  }

  void cost_section(const std::string& task, const std::string& suffix) {
    std::vector<ScatterPicture> pictures;
    for (ScatterPicture& picture : cost_pictures(results_, task, styles_)) {
      if (drawn(picture.chart.series)) pictures.push_back(std::move(picture));
    }
    if (pictures.empty()) return;
    section("Cost against quality" + suffix);
    html_.open("div", {{"class", "pair"}});
    for (ScatterPicture& picture : pictures) {
      html_.open("figure");
      for (const ChartSize& size : {ChartSize{490, 370, false}, ChartSize{360, 320, true}}) {
        picture.chart.id = next_id();
        html_.raw(scatter_chart(picture.chart, size)).raw("\n");
      }
      folded(picture.rows, picture.chart.title);
      html_.close().raw("\n");
    }
    html_.close().raw("\n");
    end_section();
  }

  /// Encodings down, groups of problems across.
  void group_section(const std::string& task) {
    const GroupTable table = group_table(results_, task);
    section(table.title, table.note);
    html_.open("div", {{"class", "scroll"}, {"role", "region"}, {"aria-label", table.title}, {"tabindex", "0"}});
    html_.open("table").open("thead").open("tr");
    html_.element("th", {{"scope", "col"}, {"class", "corner"}}, "encoding");
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      html_.element("th", {{"scope", "col"}, {"class", i < 2 ? "first" : ""}}, table.columns[i]);
    html_.close().close().open("tbody");
    for (const FigureRow& row : table.rows) {
      html_.open("tr");
      encoding_cell(row.encoding);
      for (std::size_t i = 0; i < row.cells.size(); ++i) figure_cell(row.cells[i], i < 2);
      html_.close().raw("\n");
    }
    html_.close().close().close().raw("\n");
    end_section();
  }

  void grid_section() {
    const std::vector<GridTable> tables = grid_tables(results_);
    if (tables.empty()) return;
    section("By cell", "What is varied down, what it is varied on across; a column with a star knows later words.");
    for (const GridTable& table : tables) rows_table(table.rows, table.title, false);
    const std::vector<std::string> notes = grid_notes(results_);
    if (!notes.empty()) {
      html_.open("ul", {{"class", "reasons"}});
      for (const std::string& note : notes) html_.element("li", {}, note);
      html_.close().raw("\n");
    }
    end_section();
  }

  void syntax_section() {
    const SyntaxTable table = syntax_table(results_);
    if (table.rows.empty()) return;
    section("Syntax",
            "Where the trees came from, on which domains they were good enough, and how much of the text they cover. A "
            "domain that its gate closed has no syntax: there the encoding is the one inside, bit for bit.");
    rows_table(table.rows, "Syntax by encoding", false);
    if (!table.domains.empty()) rows_table(table.domains, "Parser by domain", false);
    if (const auto pairs = syntax_pair_rows(results_); !pairs.empty())
      rows_table(pairs, "With syntax beside the same without, and beside controls, seed by seed", false);
    if (!table.notes.empty()) {
      html_.open("ul", {{"class", "reasons"}});
      for (const std::string& note : table.notes) html_.element("li", {}, note);
      html_.close().raw("\n");
    }
    end_section();
  }

  void training_section() {
    LinePicture picture = training_picture(results_, styles_);
    if (!drawn(picture.chart.series)) return;
    section("Training loss",
            "Averaged over short stretches of steps. The fall of the first steps may leave the picture.");
    line_figure(std::move(picture));
    end_section();
  }

  void position_section(const std::string& task, const std::string& suffix) {
    LinePicture picture = position_picture(results_, task, styles_);
    if (!drawn(picture.chart.series)) return;
    section("Loss by position" + suffix, picture.chart.title +
                                             ": past the training length a falling line still uses the "
                                             "longer context, a rising one is harmed by it.");
    line_figure(std::move(picture));
    end_section();
  }

  void effect_section() {
    std::vector<PanelPicture> pictures = effect_pictures(results_, styles_);
    if (pictures.empty()) return;
    section("Effect on a logit by distance",
            "Lines above, the same as a strip of colour below: blue lowers, orange raises. Biases share one axis, "
            "which ends "
            "at -10, where a key keeps 1/22000 of its weight. The dashed line is the training length.");
    html_.open("div", {{"class", "panels"}}).raw("\n");
    for (PanelPicture& picture : pictures) {
      html_.open("figure", {{"class", "panel"}});
      panel_heading(picture.encoding);
      html_.element("p", {{"class", "panel-kind"}}, picture.kind);
      if (picture.chart) {
        picture.chart->id = next_id();
        html_.raw(panel_chart(*picture.chart));
      }
      if (!picture.note.empty()) html_.element("p", {{"class", "note"}}, picture.note);
      if (!picture.rows.empty()) folded(picture.rows, str("Effect of ", picture.encoding, " by distance"));
      html_.close().raw("\n");
    }
    html_.close().raw("\n");
    end_section();
  }

  void published_section() {
    if (results_.published.empty()) return;
    section("Published figures, for orientation only",
            "Measured by others under other conditions: not comparable with the numbers above.");
    html_.open("ul");
    for (const std::string& item : results_.published) html_.element("li", {}, item);
    html_.close().raw("\n");
    end_section();
  }

  void settings_section() {
    const auto repeat = results_.config.find("repeat");
    const bool told = repeat != results_.config.end() && repeat->is_string();
    section("Settings and how to repeat",
            told ? "The same runs again:" : "The same runs again, from the file that this page was made of:");
    html_.open("pre")
        .element("code", {}, told ? repeat->get<std::string>() : "torsor compare --from results.json")
        .close()
        .raw("\n");
    if (!results_.config.empty()) plain_table(results_.config, "Configuration");
    if (!results_.machine.empty()) plain_table(results_.machine, "Machine");
    end_section();
  }

  const Results& results_;
  Styles styles_;
};

}  // namespace

std::string html_report(const Results& results) {
  if (!results.summary.empty() && !results.verdict.empty()) return Page(results).write();
  Results filled = results;
  summarize(filled);
  return Page(filled).write();
}

}  // namespace torsor::report
