#include <algorithm>
#include <sstream>

#include "torsor/base/error.h"
#include "torsor/report/diagnosis.h"
#include "torsor/report/diagnosis_pictures.h"
#include "torsor/report/diagnosis_tables.h"
#include "torsor/report/numbers.h"
#include "torsor/report/table.h"

namespace torsor::report {
namespace {

constexpr std::size_t kColumns = 100;    // of a line of text
constexpr std::size_t kMostPlanes = 16;  // rows of a table of planes
constexpr std::size_t kMostParts = 4;    // of a kind; the document has them all

/// Words over lines of kColumns, each behind `indent` blanks; the first behind `first`.
std::string wrapped(const std::string& text, const std::string& first, std::size_t indent) {
  std::istringstream words(one_line(text));
  std::string result, line = first;
  bool any = false;
  for (std::string word; words >> word;) {
    if (any && display_width(line) + 1 + display_width(word) > kColumns) {
      result += line + "\n";
      line = std::string(indent, ' ');
      any = false;
    }
    line += (any ? " " : "") + word;
    any = true;
  }
  return result + line + "\n";
}

std::string table(const std::string& title, const Rows& rows) {
  if (rows.size() < 2) return "";
  std::string text = "\n" + title + "\n", lines = align_columns(rows);
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) text += "  " + line + "\n";
  return text;
}

/// Losses of some bins, and what attention looks like there, in means over the layers.
Rows position_rows(const Json& diagnosis) {
  const Json &measured = diagnosis.at("measured"), &bins = measured.at("bins"), &layers = measured.at("layers");
  const std::int64_t trained = diagnosis.at("train_length").get<std::int64_t>();
  Rows rows = {{"positions", "loss", str("within ", trained), "difference", "error", "entropy", "relative",
                "first token", "distance"}};
  const auto mean = [&](const char* key, std::size_t bin) -> Json {
    double sum = 0, count = 0;
    for (const Json& layer : layers)
      if (const Json& value = layer.at(key).at(bin); value.is_number()) sum += value.get<double>(), ++count;
    return count > 0 ? Json(sum / count) : Json(nullptr);
  };
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    const Json& one = bins.at(bin);
    rows.push_back({str(one.at("from").get<std::int64_t>(), " to ", one.at("to").get<std::int64_t>() - 1),
                    shown_number(one.at("loss"), 4), shown_number(one.at("inside"), 4),
                    shown_number(one.at("difference"), 2), shown_number(one.at("error"), 2),
                    shown_number(mean("entropy", bin)), shown_number(mean("relative_entropy", bin)),
                    shown_number(mean("first_token", bin)), shown_number(mean("distance", bin))});
  }
  return rows;
}

/// Layers at the last bin within the training length and at the last of all.
Rows layer_rows(const Json& diagnosis) {
  const Json &measured = diagnosis.at("measured"), &bins = measured.at("bins"), &layers = measured.at("layers");
  const std::int64_t trained = diagnosis.at("train_length").get<std::int64_t>();
  std::size_t inside = 0;
  for (std::size_t bin = 0; bin < bins.size(); ++bin)
    if (bins.at(bin).at("to").get<std::int64_t>() <= trained) inside = bin;
  const std::size_t last = bins.size() - 1;
  Rows rows = {
      {"layer", "entropy", "", "relative", "", "first token", "", "distance", "", "rms", "", "largest logit", ""}};
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    std::vector<std::string> row = {str(layer)};
    for (const char* key : {"entropy", "relative_entropy", "first_token", "distance", "rms", "largest_logit"})
      for (const std::size_t bin : {inside, last}) row.push_back(shown_number(layers.at(layer).at(key).at(bin)));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string write(const Json& diagnosis) {
  const Json &model = diagnosis.at("model"), &facts = diagnosis.at("facts");
  std::string text = one_line(diagnosis.at("encoding").get<std::string>()) + "\n";
  if (diagnosis.at("checkpoint").is_string())
    text += str(one_line(diagnosis.at("checkpoint").get<std::string>()), ": ", model.at("layers").get<std::int64_t>(),
                " layers, ");
  text += str(model.at("heads").get<std::int64_t>(), " query heads and ", model.at("kv_heads").get<std::int64_t>(),
              " key heads of width ", model.at("head_dim").get<std::int64_t>(), ", trained at ",
              diagnosis.at("train_length").get<std::int64_t>(), " positions\n\nVerdict\n");
  for (const Json& sentence : diagnosis.at("verdict")) text += wrapped(sentence.get<std::string>(), "  ", 4);
  text += "\nFindings\n";
  if (diagnosis.at("findings").empty()) text += "  none\n";
  for (const Json& finding : diagnosis.at("findings")) {
    text += wrapped(str(finding.at("severity").get<std::string>(), " (", finding_scope(finding),
                        "): ", finding.at("what").get<std::string>()),
                    "  ", 4);
    text += wrapped("why: " + finding.at("why").get<std::string>(), "    ", 9);
    // Commands stay on one line, to be copied.
    for (const Json& one : finding.at("do")) text += "    do:  " + one_line(one.get<std::string>()) + "\n";
  }
  std::size_t shown = 0;
  for (const Json& rotation : facts.at("rotations")) {
    if (shown++ == kMostParts) break;
    const std::size_t planes = rotation.at("planes").size();
    text += table(str("Planes of ", part_title(rotation, diagnosis),
                      planes > kMostPlanes ? str(" (", kMostPlanes, " of ", planes, ")") : ""),
                  plane_rows(rotation, kMostPlanes));
  }
  shown = 0;
  for (const Json& bias : facts.at("biases")) {
    if (bias.at("sight").empty() || shown++ == kMostParts) continue;
    Rows rows = {{"head", "sees up to", "bias at the training length", "bias at the longest"}};
    const Json &distances = bias.at("distances"), &sight = bias.at("sight");
    const double trained = diagnosis.at("train_length").get<double>() - 1;
    std::size_t near = 0;
    while (near + 1 < distances.size() && distances.at(near + 1).get<double>() <= trained) ++near;
    for (std::size_t head = 0; head < std::min<std::size_t>(sight.size(), 32); ++head) {
      const Json& row = bias.at("per_head").at(head);
      rows.push_back({str(head), sight.at(head).is_number() ? shown_number(sight.at(head)) : "all",
                      shown_number(row.at(near)), shown_number(row.back())});
    }
    text += table("How far heads see: " + part_title(bias, diagnosis), rows);
  }
  text += table("Rows of tables", row_rows(diagnosis));
  text += table("Angles in small numbers", dtype_rows(diagnosis));
  text += table("Factor on the logits of the last query", temperature_rows(diagnosis));
  text += table("Lengths taken as trained", claim_rows(diagnosis));
  text += table("Memory", memory_rows(diagnosis));
  if (diagnosis.at("measured").is_object()) {
    text += table("By position (attention: means over layers and heads)", position_rows(diagnosis));
    text += table("By layer, before the training length and at the end", layer_rows(diagnosis));
  }
  return text;
}

}  // namespace

std::string diagnosis_text(const Json& diagnosis) {
  check_diagnosis(diagnosis);
  try {
    return write(diagnosis);
  } catch (const Json::exception& error) {
    throw Error(str("diagnosis: not the document that docs/diagnose.md describes: ", error.what()));
  }
}

}  // namespace torsor::report
