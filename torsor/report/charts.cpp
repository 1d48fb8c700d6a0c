#include "torsor/report/charts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/report/accuracy.h"
#include "torsor/report/numbers.h"
#include "torsor/report/scale.h"
#include "torsor/report/statistics.h"
#include "torsor/report/table.h"

namespace torsor::report {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

SeriesStyle style_of(const Styles& styles, const std::string& encoding) {
  const auto found = styles.find(encoding);
  return found == styles.end() ? SeriesStyle{} : found->second;
}

std::string trained_text(std::int64_t length) { return str("trained at ", length); }

/// A figure of a table as it stands in a picture: accuracies in percent.
double scaled(const FigureTable& table, double value) { return table.metric == kAccuracy ? 100 * value : value; }

/// A sentence for those who cannot see the picture: every line from its first to its last value.
std::string describe(const LineChart& chart, const std::string& unit) {
  std::string text;
  for (const ChartSeries& series : chart.series) {
    if (series.points.empty()) continue;
    const ChartPoint& first = series.points.front();
    const ChartPoint& last = series.points.back();
    text += str(text.empty() ? "" : "; ", series.name, " ", format_significant(first.y), " at ", unit, " ", first.x);
    if (series.points.size() > 1) text += str(", ", format_significant(last.y), " at ", last.x);
  }
  return text.empty() ? "No values." : text + ".";
}

/// What several runs say about one x: their mean and spread.
struct Gathered {
  std::vector<double> values;
};

ChartPoint point_of(double x, const std::vector<double>& values, const std::string& what) {
  const std::optional<double> sd = sd_of(values);
  const double mean = mean_of(values);
  return {x, mean, sd.value_or(0), str(what, ": ", format_mean_sd(mean, sd))};
}

}  // namespace

Styles styles_of(const Results& results) {
  std::vector<std::string> names = encodings_of(results);
  for (const Effect& effect : results.effects) {
    if (std::find(names.begin(), names.end(), effect.encoding) == names.end()) names.push_back(effect.encoding);
  }
  const std::vector<SeriesStyle> list = series_styles(names);
  Styles styles;
  for (std::size_t i = 0; i < names.size(); ++i) styles.emplace(names[i], list[i]);
  return styles;
}

LinePicture length_picture(const Results& results, const std::string& task, const Styles& styles) {
  LinePicture picture;
  LineChart& chart = picture.chart;
  const std::int64_t trained = training_length(results);
  const FigureTable table = figure_table(results, task);
  const bool accuracy = table.metric == kAccuracy;
  chart.title = accuracy ? "Accuracy against problem length" : "Perplexity against evaluation length";
  chart.x_title = "evaluation length in tokens";
  chart.y_title = accuracy ? "problems solved in % (higher is better)" : "perplexity (lower is better)";
  chart.reference = static_cast<double>(trained);
  chart.reference_text = accuracy ? str("trained up to ", trained) : trained_text(trained);
  chart.percent = accuracy;
  if (task == "addition") {
    // Digits are few and evenly spaced: each one is a step harder.
    chart.x_title = "digits of the longer number";
    chart.log_x = false;
  } else if (task == "passkey") {
    chart.x_title = "context in tokens";
  }
  picture.rows.push_back({"encoding"});
  for (const std::int64_t length : table.lengths) {
    chart.x_ticks.push_back(static_cast<double>(length));
    picture.rows[0].push_back(str(length));
  }
  double worst_home = 0, worst = 0;
  for (const FigureRow& row : table.rows) {
    ChartSeries series{row.encoding, style_of(styles, row.encoding), "", {}};
    std::vector<std::string> cells = {row.encoding};
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      const FigureCell& cell = row.cells[i];
      cells.push_back(cell_text(cell));
      if (!cell.mean) continue;
      const SummaryRow* summary = find_summary(results, row.encoding, task, table.lengths[i], table.metric);
      series.points.push_back(
          {static_cast<double>(table.lengths[i]), scaled(table, *cell.mean), scaled(table, summary->sd.value_or(0)),
           str(row.encoding, " at ", table.lengths[i], ": ", cell_text(cell), accuracy ? " %" : "")});
      // A line that stops early says where its last value stands.
      const std::string figure = accuracy ? cell.text + " %" : format_mean_short(*cell.mean, summary->sd);
      series.end = figure + (i + 1 == row.cells.size() ? "" : str(" at ", table.lengths[i]));
      worst = std::max(worst, *cell.mean);
      // Before the home length is known to be there, the first value of a curve stands for it.
      if (table.lengths[i] == trained || series.points.size() == 1) worst_home = std::max(worst_home, *cell.mean);
    }
    picture.rows.push_back(std::move(cells));
    chart.series.push_back(std::move(series));
  }
  const double cap = 4 * worst_home;
  if (!accuracy && worst > 1.5 * cap && cap > 0) chart.cap = cap;
  chart.description = describe(chart, "length");
  return picture;
}

namespace {

/// Training speed against one column of the table; `metric` and `length` name the rows of the summary behind it.
ScatterPicture cost_of_column(const Results& results, const FigureTable& table, std::size_t column, bool pooled,
                              const Styles& styles) {
  ScatterPicture picture;
  ScatterChart& chart = picture.chart;
  const bool relative = std::any_of(table.rows.begin(), table.rows.end(),
                                    [](const FigureRow& row) { return row.cost.relative_speed.has_value(); });
  const std::int64_t length = pooled ? table.pools[column].lengths.back() : table.lengths[column];
  const std::string metric = pooled ? table.pools[column].metric : table.metric;
  const std::string what =
      pooled ? str("accuracy ", table.pools[column].title, " the trained lengths") : str(table.metric, " at ", length);
  chart.percent = table.metric == kAccuracy;
  chart.title = "Training speed against " + what;
  chart.x_title = relative ? "training speed relative to " + table.base : "training tokens a second";
  chart.y_title = what + (chart.percent ? " in %" : "");
  chart.better = higher_is_better(metric) ? "better: up and right" : "better: down and right";
  picture.rows.push_back({"encoding", chart.x_title, chart.y_title});
  for (const FigureRow& row : table.rows) {
    const auto speed = relative ? row.cost.relative_speed : row.cost.tokens_per_second;
    if (!speed) continue;
    const FigureCell& cell = pooled ? row.pooled[column] : row.cells[column];
    const std::string fast = relative ? format_factor(*speed) : format_count(*speed);
    picture.rows.push_back({row.encoding, fast, cell_text(cell)});
    if (!cell.mean) continue;
    const SummaryRow* summary = find_summary(results, row.encoding, table.task, length, metric);
    ChartSeries series{row.encoding, style_of(styles, row.encoding), "", {}};
    series.points.push_back({*speed, scaled(table, *cell.mean), scaled(table, summary->sd.value_or(0)),
                             str(row.encoding, ": ", table.metric, ' ', cell_text(cell), chart.percent ? " %" : "",
                                 ", speed ", fast, relative ? "x" : "")});
    chart.description += str(chart.description.empty() ? "" : "; ", series.points[0].tip);
    chart.series.push_back(std::move(series));
  }
  if (chart.description.empty()) chart.description = "No values.";
  return picture;
}

}  // namespace

std::vector<ScatterPicture> cost_pictures(const Results& results, const std::string& task, const Styles& styles) {
  const FigureTable table = figure_table(results, task);
  std::vector<ScatterPicture> pictures;
  for (std::size_t i = 0; i < table.pools.size(); ++i) {
    pictures.push_back(cost_of_column(results, table, i, true, styles));
  }
  if (table.pools.empty() && !table.lengths.empty()) {
    const auto home = std::find(table.lengths.begin(), table.lengths.end(), training_length(results));
    const std::size_t last = table.lengths.size() - 1;
    const std::size_t first = home == table.lengths.end() ? 0 : static_cast<std::size_t>(home - table.lengths.begin());
    pictures.push_back(cost_of_column(results, table, first, false, styles));
    if (last != first) pictures.push_back(cost_of_column(results, table, last, false, styles));
  }
  return pictures;
}

LinePicture training_picture(const Results& results, const Styles& styles) {
  constexpr std::size_t kStretches = 60;
  LinePicture picture;
  LineChart& chart = picture.chart;
  chart.title = "Training loss against step";
  chart.x_title = "training step";
  chart.y_title = "training loss (nats a token)";
  chart.log_x = false;
  chart.marks = false;
  std::int64_t last = 0;
  for (const Run& run : results.runs) {
    if (!run.train.losses.empty()) last = std::max(last, run.train.losses.back().step);
  }
  const double width = std::max(1.0, static_cast<double>(last + 1) / kStretches);
  picture.rows.push_back({"encoding", "first", "half way", "last"});
  double high = -kInfinity;
  for (const std::string& encoding : encodings_of(results)) {
    std::map<std::int64_t, Gathered> stretches;  // by number, one value a seed
    for (const Run& run : results.runs) {
      if (run.encoding != encoding) continue;
      std::map<std::int64_t, std::vector<double>> own;
      for (const TrainLoss& loss : run.train.losses) {
        if (loss.loss) own[static_cast<std::int64_t>(static_cast<double>(loss.step) / width)].push_back(*loss.loss);
      }
      for (const auto& [stretch, values] : own) stretches[stretch].values.push_back(mean_of(values));
    }
    ChartSeries series{encoding, style_of(styles, encoding), "", {}};
    for (const auto& [stretch, gathered] : stretches) {
      const double step = std::min((static_cast<double>(stretch) + 0.5) * width, static_cast<double>(last));
      series.points.push_back(point_of(step, gathered.values, str(encoding, ", step ", std::lround(step))));
      // The fall of the first tenth would squeeze what follows: the axis is for the rest.
      if (step > 0.1 * static_cast<double>(last)) high = std::max(high, series.points.back().y);
    }
    if (!series.points.empty()) {
      const auto text = [&](std::size_t i) { return format_significant(series.points[i].y, 3); };
      series.end = text(series.points.size() - 1);
      picture.rows.push_back({encoding, text(0), text(series.points.size() / 2), series.end});
    }
    chart.series.push_back(std::move(series));
  }
  double low = kInfinity, top = -kInfinity;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      low = std::min(low, point.y);
      top = std::max(top, point.y);
    }
  }
  if (high > low && top > high + 0.3 * (high - low)) chart.y_high = high + 0.1 * (high - low);
  chart.description = describe(chart, "step");
  return picture;
}

LinePicture position_picture(const Results& results, const std::string& task, const Styles& styles) {
  constexpr double kPoints = 48;  // about as many along the logarithmic axis; finer bins are averaged
  LinePicture picture;
  LineChart& chart = picture.chart;
  std::int64_t length = 0;
  for (const Run& run : results.runs) {
    for (const Eval& eval : run.eval) {
      if (eval.task == task && !eval.position_loss.empty()) length = std::max(length, eval.length);
    }
  }
  chart.title = str("Loss by position in windows of ", length, " tokens");
  chart.x_title = "position in the window";
  chart.y_title = "loss (nats a token)";
  chart.marks = false;
  const std::int64_t trained = training_length(results);
  chart.reference = static_cast<double>(trained);
  chart.reference_text = trained_text(trained);

  std::map<std::pair<std::int64_t, std::int64_t>, std::map<std::string, Gathered>> bins;
  for (const Run& run : results.runs) {
    const Eval* eval = find_eval(run, task, length);
    if (eval == nullptr || eval->status != Status::ok) continue;
    for (const PositionLoss& bin : eval->position_loss)
      bins[{bin.from, bin.to}][run.encoding].values.push_back(bin.loss);
  }
  const std::vector<std::string> encodings = encodings_of(results);
  std::vector<std::string> head = {"positions"};
  for (const std::string& encoding : encodings) head.push_back(encoding);
  picture.rows.push_back(head);
  for (const auto& [range, by_encoding] : bins) {
    std::vector<std::string> cells = {str(range.first, " to ", range.second - 1)};
    for (const std::string& encoding : encodings) {
      const auto found = by_encoding.find(encoding);
      cells.push_back(found == by_encoding.end() ? "-" : format_significant(mean_of(found->second.values)));
    }
    picture.rows.push_back(std::move(cells));
  }
  const double span = std::log(static_cast<double>(length) + 1) / kPoints;
  for (const std::string& encoding : encodings) {
    ChartSeries series{encoding, style_of(styles, encoding), "", {}};
    double from = 0, weight = 0;
    std::vector<double> sums;  // one a seed, weighted by the width of the bins
    for (auto bin = bins.begin(); bin != bins.end(); ++bin) {
      const auto found = bin->second.find(encoding);
      if (found == bin->second.end()) continue;
      const double width = static_cast<double>(bin->first.second - bin->first.first);
      const std::vector<double>& values = found->second.values;
      if (weight == 0 || values.size() != sums.size()) {
        from = static_cast<double>(bin->first.first);
        weight = 0;
        sums.assign(values.size(), 0);
      }
      for (std::size_t i = 0; i < values.size(); ++i) sums[i] += width * values[i];
      weight += width;
      const double to = static_cast<double>(bin->first.second);
      if (std::log((to + 1) / (from + 1)) < span && std::next(bin) != bins.end()) continue;
      std::vector<double> means;
      for (const double sum : sums) means.push_back(sum / weight);
      series.points.push_back(point_of(
          (from + to) / 2, means,
          str(encoding, ", positions ", bin->first.second - std::lround(weight), " to ", bin->first.second - 1)));
      weight = 0;
    }
    if (!series.points.empty()) series.end = format_significant(series.points.back().y, 3);
    chart.series.push_back(std::move(series));
  }
  chart.description = describe(chart, "position");
  return picture;
}

std::vector<PanelPicture> effect_pictures(const Results& results, const Styles& styles) {
  constexpr double kFloor = -10;  // exp(-10) = 5e-5: below, a key hardly counts
  double low = 0, high = 0;
  for (const Effect& effect : results.effects) {
    if (effect.kind != Effect::Kind::bias) continue;
    for (const auto& row : effect.per_head) {
      for (const auto& value : row) {
        low = std::min(low, std::max(value.value_or(kFloor), kFloor));
        high = std::max(high, value.value_or(0));
      }
    }
  }
  std::vector<PanelPicture> pictures;
  for (const Effect& effect : results.effects) {
    PanelPicture& picture = pictures.emplace_back();
    picture.encoding = effect.encoding;
    picture.note = effect.note;
    switch (effect.kind) {
      case Effect::Kind::none:
        picture.kind = "adds nothing by distance";
        break;
      case Effect::Kind::content:
        picture.kind = "depends on content";
        break;
      case Effect::Kind::bias:
        picture.kind = "added to the logit, a line a head";
        break;
      case Effect::Kind::rotation:
        picture.kind = "mean cosine of its rotations";
        break;
    }
    if (!effect.distances.empty() && !effect.per_head.empty() &&
        std::is_sorted(effect.distances.begin(), effect.distances.end()) && effect.distances.front() >= 0) {
      PanelChart chart;
      chart.title = str("Effect of ", effect.encoding, " on a logit by distance: ", picture.kind);
      chart.style = style_of(styles, effect.encoding);
      chart.x = effect.distances;
      chart.rows = effect.per_head;
      chart.reference = static_cast<double>(training_length(results));
      if (effect.kind == Effect::Kind::rotation) {
        double least = 0;
        for (const auto& row : effect.per_head) {
          for (const auto& value : row) least = std::min(least, value.value_or(0));
        }
        chart.low = std::max(least, -1.0) - 0.05;
        chart.high = 1.05;
        chart.heat = 1;
      } else {
        const double air = std::max(0.05 * (high - low), 0.05);
        chart.low = low - air;
        chart.high = high + air;
        chart.heat = std::max(std::max(-low, high), 1e-9);
      }
      picture.rows.push_back({"distance"});
      for (std::size_t head = 0; head < effect.per_head.size(); ++head) {
        picture.rows[0].push_back(effect.per_head.size() == 1 ? "value" : str("head ", head));
      }
      for (std::size_t i = 0; i < effect.distances.size(); ++i) {
        std::vector<std::string> cells = {str(effect.distances[i])};
        for (const auto& row : effect.per_head) cells.push_back(row[i] ? format_significant(*row[i]) : "-inf");
        picture.rows.push_back(std::move(cells));
      }
      const auto& first = effect.per_head.front();
      chart.description = str(effect.per_head.size() == 1 ? "" : "First head: ",
                              first.front() ? format_significant(*first.front()) : "-inf", " at distance ",
                              effect.distances.front(), ", ", first.back() ? format_significant(*first.back()) : "-inf",
                              " at distance ", effect.distances.back(), ".");
      picture.chart = std::move(chart);
    }
  }
  return pictures;
}

}  // namespace torsor::report
