#include "torsor/report/diagnosis_tables.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/report/diagnosis_pictures.h"
#include "torsor/report/numbers.h"

namespace torsor::report {

void check_diagnosis(const Json& diagnosis) {
  if (!diagnosis.is_object() || diagnosis.value("format", Json(nullptr)) != "torsor-diagnosis-1")
    throw Error("diagnosis: expected a document of format torsor-diagnosis-1");
}

std::string capital(std::string text) {
  // Names of encodings and commands stay as they are written.
  const std::size_t end = text.find_first_of(" ,:(");
  const std::string first = text.substr(0, end);
  const bool word = !first.empty() && first.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos &&
                    end != std::string::npos && text[end] == ' ';
  if (word) text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string finding_scope(const Json& finding) {
  return finding.at("basis").get<std::string>() +
         (finding.at("from_length").is_number()
              ? str(", from ", finding.at("from_length").get<std::int64_t>(), " tokens on")
              : std::string(", at every length"));
}

Rows dtype_rows(const Json& diagnosis) {
  Rows rows = {{"part", "made in", "wrong from position", "plane", "error in radians"}};
  for (const Json& rotation : diagnosis.at("facts").at("rotations"))
    for (const Json& one : rotation.at("dtypes")) {
      const bool found = one.at("first_position").is_number();
      rows.push_back(
          {part_title(rotation, diagnosis), one.at("dtype").get<std::string>(),
           found ? shown_number(one.at("first_position")) : str("none up to ", one.at("searched").get<std::int64_t>()),
           shown_number(one.at("plane")), shown_number(one.at("error"), 2)});
    }
  return rows;
}

Rows memory_rows(const Json& diagnosis) {
  const bool bias = !diagnosis.at("facts").at("biases").empty();
  Rows rows = {{"length"}};
  if (bias) rows[0].insert(rows[0].end(), {"naive bias a layer", "held a layer"});
  rows[0].insert(rows[0].end(), {"cache in bf16", "cache in float32"});
  const auto bytes = [](const Json& value) {
    return value.is_number() ? format_bytes(value.get<double>()) : std::string("-");
  };
  for (const Json& one : diagnosis.at("facts").at("memory")) {
    std::vector<std::string> row = {shown_number(one.at("length"))};
    if (bias) row.insert(row.end(), {bytes(one.at("naive_bias_bytes")), bytes(one.at("stored_bias_bytes"))});
    row.insert(row.end(), {bytes(one.at("cache_bf16_bytes")), bytes(one.at("cache_float32_bytes"))});
    rows.push_back(std::move(row));
  }
  return rows;
}

Rows row_rows(const Json& diagnosis) {
  Rows rows = {{"part", "length", "rows read", "never read in training", "from distance"}};
  for (const Json& bias : diagnosis.at("facts").at("biases"))
    for (const Json& one : bias.at("rows"))
      rows.push_back({part_title(bias, diagnosis), shown_number(one.at("length")), shown_number(one.at("read")),
                      one.at("unseen").empty() ? "none" : shown_ranges(one.at("unseen")),
                      shown_number(one.at("first_distance"))});
  return rows;
}

Rows temperature_rows(const Json& diagnosis) {
  Rows rows = {{"part"}};
  for (const Json& length : diagnosis.at("lengths")) rows[0].push_back(shown_number(length));
  for (const Json& one : diagnosis.at("facts").at("temperatures")) {
    std::vector<std::string> row = {one.at("term").get<std::string>()};
    for (const Json& factor : one.at("factor")) row.push_back(shown_number(factor, 4));
    rows.push_back(std::move(row));
  }
  return rows;
}

Rows claim_rows(const Json& diagnosis) {
  Rows rows = {{"part", "key", "length", "agrees with the model"}};
  for (const Json& one : diagnosis.at("facts").at("training_lengths"))
    rows.push_back({one.at("term").get<std::string>(), one.at("key").get<std::string>(), shown_number(one.at("length")),
                    one.at("agrees").get<bool>() ? "yes" : "no"});
  return rows;
}

Rows head_rows(const Json& diagnosis) {
  Rows rows = {{"head", "entropy inside", "beyond", "relative inside", "beyond", "first token inside", "beyond",
                "distance inside", "beyond"}};
  const Json& layers = diagnosis.at("measured").at("layers");
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const Json& heads = layers.at(layer).at("heads");
    for (std::size_t head = 0; head < heads.size(); ++head) {
      std::vector<std::string> row = {str("layer ", layer, " head ", head)};
      for (const char* key : {"entropy", "relative_entropy", "first_token", "distance"})
        for (const Json& value : heads.at(head).at(key)) row.push_back(shown_number(value));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

Rows channel_rows(const Json& diagnosis) {
  Rows rows = {{"positions"}};
  const Json &measured = diagnosis.at("measured"), &layers = measured.at("layers"), &bins = measured.at("bins");
  for (std::size_t layer = 0; layer < layers.size(); ++layer) rows[0].push_back(str("layer ", layer));
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    std::vector<std::string> row = {
        str(bins.at(bin).at("from").get<std::int64_t>(), " to ", bins.at(bin).at("to").get<std::int64_t>() - 1)};
    for (const Json& layer : layers)
      row.push_back(str(shown_number(layer.at("largest_channel").at(bin)), ": ",
                        shown_number(layer.at("largest_channel_mean").at(bin))));
    rows.push_back(std::move(row));
  }
  return rows;
}

Rows plane_rows(const Json& rotation, std::size_t most) {
  Rows rows = {{"plane", "frequency", "wavelength", "turns in training"}};
  const Json &planes = rotation.at("planes"), &lengths = rotation.at("lengths");
  const bool scaled = rotation.at("scaling").is_object();
  for (const Json& at : lengths) rows[0].push_back(str("turns at ", at.at("length").get<std::int64_t>()));
  if (scaled) rows[0].insert(rows[0].end(), {"slowed", ""});
  const std::size_t count = planes.size(), shown = std::min(count, most);
  for (std::size_t n = 0; n < shown; ++n) {
    const std::size_t i = shown == 1 ? 0 : n * (count - 1) / (shown - 1);
    const Json& plane = planes.at(i);
    std::vector<std::string> row = {
        str(i), shown_number(plane.at("frequency"), 6),
        plane.at("wavelength").is_number() ? shown_number(plane.at("wavelength"), 4) : "never turns",
        shown_number(plane.at("trained_turns"))};
    for (const Json& at : lengths) row.push_back(shown_number(at.at("turns").at(i)));
    if (scaled) {
      row.push_back(shown_number(lengths.back().at("slowed").at(i), 4));
      row.push_back(lengths.back().at("treatment").at(i).get<std::string>());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace torsor::report
