#include "torsor/report/diagnosis_pictures.h"

#include <algorithm>
#include <cmath>

#include "torsor/base/error.h"
#include "torsor/report/numbers.h"

namespace torsor::report {
namespace {

constexpr std::size_t kMostCurves = 8;
constexpr std::size_t kMostPanels = 12;
constexpr double kFloor = -10;  // of the axis of biases: a weight of 1/22026

double number(const Json& value) { return value.get<double>(); }

/// For those who cannot see the picture: every line from its first to its last value.
std::string describe_ends(const LineChart& chart, const std::string& unit) {
  std::string text;
  for (const ChartSeries& series : chart.series) {
    if (series.points.empty()) continue;
    const ChartPoint &first = series.points.front(), &last = series.points.back();
    text += str(text.empty() ? "" : "; ", series.name, ' ', format_significant(first.y), " at ", unit, ' ', first.x,
                ", ", format_significant(last.y), " at ", last.x);
  }
  return text.empty() ? "No values." : text + ".";
}

void add_reference(LineChart& chart, const Json& diagnosis) {
  const double trained = number(diagnosis.at("train_length"));
  chart.reference = trained;
  chart.reference_text = str("trained at ", diagnosis.at("train_length").get<std::int64_t>());
}

double centre(const Json& bin) { return (number(bin.at("from")) + number(bin.at("to"))) / 2; }

std::string bin_text(const Json& bin) {
  return str(bin.at("from").get<std::int64_t>(), " to ", bin.at("to").get<std::int64_t>() - 1);
}

LineChart position_chart(const Json& diagnosis, std::string title, std::string y_title) {
  LineChart chart;
  chart.title = std::move(title);
  chart.x_title = "position in the text";
  chart.y_title = std::move(y_title);
  chart.log_x = false;
  chart.marks = false;
  add_reference(chart, diagnosis);
  return chart;
}

struct LayerWords {
  const char* key;
  const char* title;
  const char* y;
};

const LayerWords& layer_words_of(const std::string& key) {
  static const LayerWords all[] = {
      {"entropy", "Entropy of attention by position", "entropy in nats"},
      {"relative_entropy", "Entropy of attention over the logarithm of the keys in sight",
       "share of the largest entropy"},
      {"first_token", "Attention to the first token by position", "share of attention in %"},
      {"distance", "Mean distance of what is attended to", "distance in tokens"},
      {"largest_logit", "Largest logit of attention by position", "logit"},
      {"rms", "Size of the residual stream by position", "root mean square"},
  };
  for (const LayerWords& one : all)
    if (key == one.key) return one;
  throw Error(str("a diagnosis has no curve '", key, "' a layer"));
}

void constant_line(LineChart& chart, const std::string& name, double first, double last, double y) {
  ChartSeries series{name, {}, "", {}};
  series.points = {{first, y, 0, ""}, {last, y, 0, ""}};
  chart.series.push_back(std::move(series));
}

void give_styles(LineChart& chart) {
  std::vector<std::string> names;
  for (const ChartSeries& series : chart.series) names.push_back(series.name);
  const std::vector<SeriesStyle> styles = series_styles(names);
  for (std::size_t i = 0; i < styles.size(); ++i) chart.series[i].style = styles[i];
}

}  // namespace

std::string shown_number(const Json& value, int digits) {
  if (!value.is_number()) return "-";
  if (value.is_number_integer()) return str(value.get<std::int64_t>());
  const double real = number(value);
  if (real == std::floor(real) && std::abs(real) < 1e6) return format_decimals(real, 0);
  return format_significant(real, digits);
}

std::string shown_ranges(const Json& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    const auto at = [&](std::size_t n) { return numbers[n].get<std::int64_t>(); };
    while (last + 1 < numbers.size() && at(last + 1) == at(last) + 1) ++last;
    text += str(text.empty() ? "" : ", ", at(i));
    if (last > i) text += str(last == i + 1 ? ", " : " to ", at(last));
    i = last + 1;
  }
  return text;
}

std::string part_title(const Json& part, const Json& diagnosis) {
  std::string text = part.at("term").get<std::string>();
  const Json& heads = part.at("heads");
  if (heads.at(1).get<std::int64_t>() - heads.at(0).get<std::int64_t>() !=
      diagnosis.at("model").at("heads").get<std::int64_t>())
    text += str(", heads ", heads.at(0).get<std::int64_t>(), " to ", heads.at(1).get<std::int64_t>() - 1);
  if (part.contains("key_head") && part.at("key_head").is_number())
    text += str(", key head ", part.at("key_head").get<std::int64_t>());
  const Json& layers = part.at("layers");
  if (layers.size() != diagnosis.at("model").at("layers").get<std::size_t>())
    text += str(layers.size() == 1 ? ", layer " : ", layers ", shown_ranges(layers));
  return text;
}

LinePicture loss_picture(const Json& diagnosis) {
  const Json& measured = diagnosis.at("measured");
  const std::int64_t trained = diagnosis.at("train_length").get<std::int64_t>();
  LinePicture picture;
  LineChart& chart = picture.chart = position_chart(diagnosis, "Loss by position", "loss (nats a token)");
  ChartSeries whole{str("texts of ", measured.at("length").get<std::int64_t>()), {}, "", {}},
      inside{str("windows of ", trained), {}, "", {}};
  picture.rows.push_back({"positions", "targets", whole.name, inside.name, "difference", "standard error"});
  for (const Json& bin : measured.at("bins")) {
    const auto point = [&](ChartSeries& series, const char* key) {
      if (bin.at(key).is_number())
        series.points.push_back({centre(bin), number(bin.at(key)), 0,
                                 str(series.name, ", positions ", bin_text(bin), ": ", shown_number(bin.at(key)))});
    };
    point(whole, "loss");
    if (bin.at("to").get<std::int64_t>() > trained) point(inside, "inside");
    picture.rows.push_back({bin_text(bin), shown_number(bin.at("targets")), shown_number(bin.at("loss"), 4),
                            shown_number(bin.at("inside"), 4), shown_number(bin.at("difference")),
                            shown_number(bin.at("error"))});
  }
  chart.series = {whole, inside};
  give_styles(chart);
  chart.description = describe_ends(chart, "position");
  return picture;
}

LinePicture difference_picture(const Json& diagnosis) {
  const Json& measured = diagnosis.at("measured");
  LinePicture picture;
  LineChart& chart = picture.chart = position_chart(diagnosis, "What the longer text costs by position",
                                                    "nats a token more than within the training length");
  ChartSeries series{"difference", {}, "", {}};
  picture.rows.push_back({"positions", "difference", "standard error"});
  double last = 0;
  for (const Json& bin : measured.at("bins")) {
    picture.rows.push_back({bin_text(bin), shown_number(bin.at("difference")), shown_number(bin.at("error"))});
    if (!bin.at("difference").is_number()) continue;
    const double error = bin.at("error").is_number() ? number(bin.at("error")) : 0;
    series.points.push_back({centre(bin), number(bin.at("difference")), 2 * error,
                             str("positions ", bin_text(bin), ": ", shown_number(bin.at("difference")),
                                 " with a standard error of ", shown_number(bin.at("error")))});
    last = centre(bin);
  }
  if (!series.points.empty()) series.end = format_significant(series.points.back().y, 2);
  const double first = series.points.empty() ? 0 : series.points.front().x;
  chart.series.push_back(std::move(series));
  if (!chart.series.front().points.empty()) constant_line(chart, "none", first, last, 0);
  give_styles(chart);
  if (chart.series.size() > 1) chart.series.back().name = "no difference";
  chart.description = describe_ends(chart, "position");
  return picture;
}

LinePicture layer_picture(const Json& diagnosis, const std::string& key) {
  const LayerWords& words = layer_words_of(key);
  const Json &measured = diagnosis.at("measured"), &bins = measured.at("bins"), &layers = measured.at("layers");
  LinePicture picture;
  LineChart& chart = picture.chart = position_chart(diagnosis, words.title, words.y);
  const bool share = key == "first_token";
  double most = 0;
  std::vector<std::string> heads = {"positions"};
  for (std::size_t layer = 0; layer < layers.size(); ++layer) heads.push_back(str("layer ", layer));
  if (key == "rms") heads.push_back("at the end");
  picture.rows.push_back(heads);
  const auto value = [&](std::size_t layer, std::size_t bin) -> const Json& {
    return layer == layers.size() ? measured.at("last_rms").at(bin) : layers.at(layer).at(key).at(bin);
  };
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    std::vector<std::string> row = {bin_text(bins.at(bin))};
    for (std::size_t layer = 0; layer + 1 < heads.size(); ++layer) row.push_back(shown_number(value(layer, bin)));
    picture.rows.push_back(std::move(row));
  }
  const std::size_t count = heads.size() - 1, curves = std::min(count, kMostCurves);
  for (std::size_t i = 0; i < curves; ++i) {
    const std::size_t layer = curves == 1 ? 0 : i * (count - 1) / (curves - 1);
    ChartSeries series{heads[layer + 1], {}, "", {}};
    for (std::size_t bin = 0; bin < bins.size(); ++bin)
      if (const Json& one = value(layer, bin); one.is_number()) {
        most = std::max(most, number(one));
        series.points.push_back({centre(bins.at(bin)), number(one) * (share ? 100 : 1), 0,
                                 str(series.name, ", positions ", bin_text(bins.at(bin)), ": ",
                                     share ? format_significant(100 * number(one), 3) + " %" : shown_number(one))});
      }
    chart.series.push_back(std::move(series));
  }
  chart.percent = share && most > 0.3;  // small shares have an axis of their own
  give_styles(chart);
  chart.description = describe_ends(chart, "position");
  return picture;
}

LinePicture wavelength_picture(const Json& rotation, const Json& diagnosis) {
  LinePicture picture;
  LineChart& chart = picture.chart;
  chart.title = "Wavelength of each plane: " + part_title(rotation, diagnosis);
  chart.x_title = "plane";
  chart.y_title = "positions of one full turn";
  chart.log_x = false;
  const Json &planes = rotation.at("planes"), &lengths = rotation.at("lengths");
  const bool scaled = rotation.at("scaling").is_object();
  ChartSeries own{"wavelength", {}, "", {}}, plain{"unscaled", {}, "", {}};
  std::vector<std::string> heads = {"plane", "frequency", "wavelength", "turns in training"};
  for (const Json& at : lengths) heads.push_back(str("turns at ", at.at("length").get<std::int64_t>()));
  picture.rows.push_back(heads);
  for (std::size_t i = 0; i < planes.size(); ++i) {
    const Json& plane = planes.at(i);
    const double x = static_cast<double>(i);
    std::vector<std::string> row = {str(i), shown_number(plane.at("frequency"), 6),
                                    shown_number(plane.at("wavelength"), 4), shown_number(plane.at("trained_turns"))};
    for (const Json& at : lengths) row.push_back(shown_number(at.at("turns").at(i)));
    picture.rows.push_back(std::move(row));
    if (plane.at("wavelength").is_number())
      own.points.push_back({x, number(plane.at("wavelength")), 0,
                            str("plane ", i, ": ", shown_number(plane.at("wavelength")), " positions, ",
                                shown_number(plane.at("trained_turns")), " turns in training")});
    if (const double frequency = number(plane.at("plain_frequency")); scaled && frequency > 0)
      plain.points.push_back({x, 6.283185307179586 / frequency, 0,
                              str("plane ", i, " unscaled: ", format_significant(6.283185307179586 / frequency))});
  }
  const double last = static_cast<double>(planes.size()) - 1;
  chart.marks = planes.size() <= 40;
  chart.series.push_back(std::move(own));
  if (scaled) chart.series.push_back(std::move(plain));
  constant_line(chart, str("trained at ", diagnosis.at("train_length").get<std::int64_t>()), 0, last,
                number(diagnosis.at("train_length")));
  const Json& longest = lengths.back();
  if (longest.at("length") != diagnosis.at("train_length"))
    constant_line(chart, str("length ", longest.at("length").get<std::int64_t>()), 0, last,
                  number(longest.at("length")));
  give_styles(chart);
  chart.description = describe_ends(chart, "plane");
  return picture;
}

LinePicture scaling_picture(const Json& rotation, const Json& diagnosis) {
  LinePicture picture;
  LineChart& chart = picture.chart;
  chart.title = str("What ", rotation.at("scaling").at("name").get<std::string>(),
                    " does to each plane: ", part_title(rotation, diagnosis));
  chart.x_title = "plane";
  chart.y_title = "times slower than unscaled";
  chart.log_x = false;
  const Json& lengths = rotation.at("lengths");
  const std::size_t planes = rotation.at("planes").size();
  chart.marks = planes <= 40;
  const bool by_length = rotation.at("length_dependent").get<bool>();
  std::vector<std::string> heads = {"plane"};
  std::vector<const Json*> used;
  for (const Json& at : lengths)
    if (by_length || &at == &lengths.back()) {
      used.push_back(&at);
      const std::string name = by_length ? str("length ", at.at("length").get<std::int64_t>()) : "every length";
      heads.push_back(name);
      heads.push_back("");
      ChartSeries series{name, {}, "", {}};
      for (std::size_t i = 0; i < planes; ++i)
        series.points.push_back({static_cast<double>(i), number(at.at("slowed").at(i)), 0,
                                 str("plane ", i, ": ", at.at("treatment").at(i).get<std::string>(), ", ",
                                     shown_number(at.at("slowed").at(i)), " times slower")});
      chart.series.push_back(std::move(series));
    }
  picture.rows.push_back(heads);
  for (std::size_t i = 0; i < planes; ++i) {
    std::vector<std::string> row = {str(i)};
    for (const Json* at : used) {
      row.push_back(shown_number(at->at("slowed").at(i), 4));
      row.push_back(at->at("treatment").at(i).get<std::string>());
    }
    picture.rows.push_back(std::move(row));
  }
  give_styles(chart);
  chart.description = describe_ends(chart, "plane");
  return picture;
}

std::vector<PanelPicture> bias_panels(const Json& diagnosis) {
  std::vector<PanelPicture> panels;
  double low = 0, high = 0, heat = 0;
  for (const Json& bias : diagnosis.at("facts").at("biases"))
    for (const Json& row : bias.at("per_head"))
      for (const Json& value : row) {
        const double one = value.is_number() ? std::max(number(value), kFloor) : kFloor;
        low = std::min(low, one), high = std::max(high, one), heat = std::max(heat, std::abs(one));
      }
  if (high == low) high = low + 1;
  for (const Json& bias : diagnosis.at("facts").at("biases")) {
    if (bias.at("distances").empty() || panels.size() == kMostPanels) continue;
    PanelPicture panel;
    panel.encoding = part_title(bias, diagnosis);
    panel.kind = bias.at("initial").get<bool>() ? "bias by distance, first values" : "bias by distance";
    PanelChart chart;
    chart.title = "Bias by distance: " + panel.encoding;
    chart.low = low, chart.high = high, chart.heat = heat > 0 ? heat : 1;
    chart.reference = number(diagnosis.at("train_length"));
    std::vector<std::string> heads = {"distance"};
    for (std::size_t head = 0; head < bias.at("per_head").size(); ++head) heads.push_back(str("head ", head));
    panel.rows.push_back(heads);
    for (const Json& distance : bias.at("distances")) chart.x.push_back(number(distance));
    for (const Json& row : bias.at("per_head")) {
      std::vector<std::optional<double>> values;
      for (const Json& value : row) values.push_back(value.is_number() ? std::optional(number(value)) : std::nullopt);
      chart.rows.push_back(std::move(values));
    }
    for (std::size_t i = 0; i < chart.x.size(); ++i) {
      std::vector<std::string> row = {shown_number(bias.at("distances").at(i))};
      for (const auto& values : chart.rows) row.push_back(values[i] ? format_significant(*values[i]) : "-inf");
      panel.rows.push_back(std::move(row));
    }
    const Json& sight = bias.at("sight");
    std::vector<std::string> words;
    for (std::size_t head = 0; head < sight.size() && head < 32; ++head)
      words.push_back(sight.at(head).is_number() ? shown_number(sight.at(head)) : "all");
    for (std::size_t head = 0; head < words.size(); ++head)
      panel.note += (head ? ", " : "Heads see up to: ") + words[head];
    chart.description = panel.note.empty() ? "No values." : panel.note + ".";
    panel.chart = std::move(chart);
    panels.push_back(std::move(panel));
  }
  return panels;
}

}  // namespace torsor::report
