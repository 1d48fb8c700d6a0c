#include "torsor/lab/values.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <sstream>

#include "torsor/base/error.h"
#include "torsor/encoding/composition.h"
#include "torsor/lab/picture.h"

namespace torsor {
namespace {

/// One name of an expression, as it stands for a layer.
struct Leaf {
  std::shared_ptr<const Encoding> encoding;
  std::int64_t first_head = 0;
  PlainParameters initial;  ///< trained tensors whose first values are fixed numbers
  bool trained = false;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

void collect(const Expression& expression, const Dimensions& dimensions, std::int64_t layer, std::int64_t first_head,
             std::vector<Leaf>& leaves) {
  for (const Term& term : expression.terms) {
    if (find_name(term.name)->operand != Operand::Items) {
      Leaf leaf{make_encoding(Expression{{term}, expression.source}, dimensions), first_head, {}, false};
      for (const ParameterInfo& info : leaf.encoding->parameters(layer)) {
        leaf.trained = true;
        if (info.initial.kind == Initial::Kind::Values) leaf.initial[info.name] = info.initial.values;
      }
      leaves.push_back(std::move(leaf));
      continue;
    }
    if (term.name == "heads") {
      std::int64_t first = first_head;
      for (const Item& item : term.operands) {
        collect(item.expression, part_dimensions(dimensions, item.count), layer, first, leaves);
        first += item.count;
      }
      continue;
    }
    std::int64_t period = 0;
    for (const Item& item : term.operands) period += item.count;
    std::int64_t left = layer % period;
    for (const Item& item : term.operands) {
      if (left < item.count) {
        collect(item.expression, dimensions, layer, first_head, leaves);
        break;
      }
      left -= item.count;
    }
  }
}

/// An expression made for a layer, whole and in its parts.
struct Subject {
  explicit Subject(const ValuesRequest& request)
      : expression(parse(request.encoding)), whole(make_encoding(expression, request.dimensions)) {
    if (request.layer < 0) throw UsageError(str("layer must be at least 0, found ", request.layer));
    for (const double value : request.positions)
      if (!std::isfinite(value)) throw UsageError("positions must be finite numbers");
    for (const double value : request.distances)
      if (!std::isfinite(value)) throw UsageError("distances must be finite numbers");
    if (!std::isfinite(request.length) || request.length < 0)
      throw UsageError("length must be a finite number of at least 0");
    layer = layer_encoding(whole, request.layer);
    collect(expression, layer->dimensions(), request.layer, 0, leaves);
    length = request.length;
    if (length == 0)
      for (const double position : request.positions) length = std::max(length, position + 1);
    for (const Leaf& leaf : leaves) {
      const Traits traits = leaf.encoding->traits();
      if (!traits.forms.empty())
        bias = bias == No || leaf.trained || traits.content ? (leaf.trained || traits.content ? Free : Fixed) : bias;
      if (traits.absolute) embedding = leaf.trained || embedding == Free ? Free : Fixed;
    }
  }

  enum Kind { No, Fixed, Free };  // Free: trained, or made of content
  Expression expression;
  std::shared_ptr<const Encoding> whole, layer;
  std::vector<Leaf> leaves;
  double length = 0;
  Kind bias = No, embedding = No;
};

double bias_at(const Subject& subject, double distance, std::int64_t head, std::int64_t layer) {
  // A fixed bias depends on the distance alone; the query stands where its key still has a position.
  const double query = std::max({subject.length - 1, std::fabs(distance), 0.0}), key = query - distance;
  PlainPair pair;
  pair.pq = &query;
  pair.pk = &key;
  pair.head = head;
  pair.layer = layer;
  pair.length = subject.length;
  return subject.layer->define_bias(pair, {});
}

Json one_or_list(std::vector<Json> rows) {
  const bool alike = std::all_of(rows.begin(), rows.end(), [&](const Json& row) { return row == rows.front(); });
  return alike ? rows.front() : Json(rows);
}

Json rotation_to_json(const Leaf& leaf, const RotationInfo& rotation, const Subject& subject,
                      const ValuesRequest& request) {
  Json json;
  json["layout"] = rotation.layout == Layout::Half ? "half" : "interleaved";
  json["offset"] = rotation.offset;
  json["width"] = rotation.width;
  json["blocks"] = rotation.blocks;
  std::vector<Json> frequencies, cosines, sines;
  for (const std::vector<double>& planes : rotation.inv_freq) {
    frequencies.push_back(planes);
    Json cosine = Json::array(), sine = Json::array();
    for (const double position : request.positions) {
      std::vector<double> c, s;
      for (const double frequency : planes) {
        c.push_back(rotation.magnitude * std::cos(position * frequency));
        s.push_back(rotation.magnitude * std::sin(position * frequency));
      }
      cosine.push_back(c);
      sine.push_back(s);
    }
    cosines.push_back(cosine);
    sines.push_back(sine);
  }
  json["inv_freq"] = one_or_list(frequencies);
  json["axis"] = rotation.axis;
  json["magnitude"] = rotation.magnitude;
  json["softmax_factor"] = leaf.encoding->softmax_factor();
  json["cos"] = one_or_list(cosines);
  json["sin"] = one_or_list(sines);
  for (const Decay& decay : leaf.encoding->decays()) {
    const at::Tensor rate = decay.rate.contiguous();
    json["decay"] = std::vector<double>(rate.const_data_ptr<double>(), rate.const_data_ptr<double>() + rate.numel());
  }
  const std::int64_t heads = leaf.encoding->dimensions().heads;
  if (heads != subject.whole->dimensions().heads) json["heads"] = {leaf.first_head, leaf.first_head + heads};
  if (leaf.trained) json["initial"] = true;
  return json;
}

std::vector<Json> rotations(const Subject& subject, const ValuesRequest& request) {
  std::vector<Json> all;
  for (const Leaf& leaf : subject.leaves)
    if (const auto rotation = leaf.encoding->rotation(subject.length, leaf.initial))
      all.push_back(rotation_to_json(leaf, *rotation, subject, request));
  return all;
}

Json bias_to_json(const Subject& subject, const ValuesRequest& request) {
  if (subject.bias != Subject::Fixed) return nullptr;
  Json rows = Json::array();
  for (std::int64_t head = 0; head < request.dimensions.heads; ++head) {
    Json row = Json::array();
    for (const double distance : request.distances) row.push_back(bias_at(subject, distance, head, request.layer));
    rows.push_back(row);
  }
  Json json;
  json["distances"] = request.distances;
  json["per_head"] = rows;
  return json;
}

Json embedding_to_json(const Subject& subject, const ValuesRequest& request) {
  if (subject.embedding != Subject::Fixed) return nullptr;
  Json rows = Json::array();
  for (const double position : request.positions) {
    Json row = Json::array();
    for (std::int64_t channel = 0; channel < subject.whole->dimensions().width; ++channel)
      row.push_back(subject.whole->define_embedding(position, channel, {}));
    rows.push_back(row);
  }
  return rows;
}

Json temperature_to_json(const Subject& subject, const ValuesRequest& request) {
  const std::int64_t count = static_cast<std::int64_t>(request.positions.size()), axes = subject.layer->traits().axes;
  Question question;
  question.layer = request.layer;
  question.query.positions = at::tensor(request.positions, at::kDouble).view({1, -1, 1}).expand({1, count, axes});
  question.key = question.query;
  if (subject.layer->logit_scales(question).empty()) return nullptr;
  std::vector<Json> rows;
  for (std::int64_t head = 0; head < request.dimensions.heads; ++head) {
    Json row = Json::array();
    for (const double position : request.positions) {
      const std::vector<double> axis(static_cast<std::size_t>(axes), position);
      row.push_back(subject.layer->define_query_factor(axis.data(), head, request.layer));
    }
    rows.push_back(row);
  }
  return one_or_list(rows);
}

// --------------------------------------------------------------------------------------------------------------------
// For people

std::string number(double value, int digits = 6) {
  std::ostringstream text;
  text << std::setprecision(digits) << value;
  return text.str();
}

std::string padded_left(const std::string& text, std::size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

/// Columns under headings, right-aligned.
std::string table(const std::vector<std::string>& heads, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < heads.size(); ++c) {
    std::size_t width = heads[c].size();
    for (const auto& row : rows) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (std::size_t c = 0; c < cells.size(); ++c) text += "  " + padded_left(cells[c], widths[c]);
    text += "\n";
  };
  line(heads);
  for (const auto& row : rows) line(row);
  return text;
}

constexpr std::size_t kMostColumns = 12;  // heads or channels shown side by side
constexpr double kFullTurn = 6.283185307179586;

std::string rotation_text(const Json& rotation) {
  std::string text = str("Rotation: ", rotation["layout"].get<std::string>(), " layout, channels ", rotation["offset"],
                         " to ", rotation["offset"].get<std::int64_t>() + rotation["width"].get<std::int64_t>() - 1);
  if (rotation["blocks"] != 1) text += str(" in ", rotation["blocks"], " blocks");
  if (rotation.contains("heads"))
    text += str(", query heads ", rotation["heads"][0], " to ", rotation["heads"][1].get<std::int64_t>() - 1);
  text += str(", magnitude ", number(rotation["magnitude"], 10), ", softmax factor ",
              number(rotation["softmax_factor"], 10), "\n");
  if (rotation.contains("initial")) text += "  the frequencies are trained; these are the first ones\n";
  const bool by_head = rotation["inv_freq"][0].is_array();
  const Json lists = by_head ? rotation["inv_freq"] : Json::array({rotation["inv_freq"]});
  std::vector<std::string> heads = {"plane", "axis"};
  for (std::size_t h = 0; h < std::min(lists.size(), kMostColumns); ++h) {
    heads.push_back(by_head ? str("frequency, key head ", h) : "frequency");
    if (!by_head) heads.push_back("wavelength");
  }
  if (rotation.contains("decay")) heads.push_back("fading a position");
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < lists[0].size(); ++i) {
    std::vector<std::string> row = {str(i), str(rotation["axis"][i])};
    for (std::size_t h = 0; h < std::min(lists.size(), kMostColumns); ++h) {
      const double frequency = lists[h][i];
      row.push_back(number(frequency, 9));
      if (!by_head) row.push_back(frequency == 0 ? "never turns" : number(kFullTurn / std::fabs(frequency)));
    }
    if (rotation.contains("decay")) row.push_back(number(rotation["decay"][i]));
    rows.push_back(row);
  }
  return text + table(heads, rows);
}

std::string list_text(const std::string& title, const Json& heads, const std::string& name, const Json& values) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Json& value = values[i];
    rows.push_back(
        {heads.is_null() ? str(i) : number(heads[i], 10), value.is_number_float() ? number(value, 10) : str(value)});
  }
  return title + "\n" + table({name, "value"}, rows);
}

std::string matrix_text(const std::string& title, const std::string& row_name, const std::vector<double>& row_heads,
                        const std::string& column_name, const std::function<double(std::size_t, std::size_t)>& at,
                        std::size_t columns) {
  std::vector<std::string> heads = {row_name};
  const std::size_t shown = std::min(columns, kMostColumns);
  for (std::size_t c = 0; c < shown; ++c) heads.push_back(str(column_name, ' ', c));
  std::vector<std::vector<std::string>> rows;
  for (std::size_t r = 0; r < row_heads.size(); ++r) {
    rows.push_back({number(row_heads[r], 10)});
    for (std::size_t c = 0; c < shown; ++c) rows.back().push_back(number(at(r, c)));
  }
  return title + (shown < columns ? str(" (the first ", shown, " of ", columns, ")") : "") + "\n" + table(heads, rows);
}

/// Whole distances from 0 to the largest asked for.
std::vector<double> picture_distances(const ValuesRequest& request) {
  double longest = 16;  // a shorter picture shows nothing
  for (const double distance : request.distances) longest = std::max(longest, std::fabs(distance));
  std::vector<double> distances;
  for (std::size_t c = 0; c < kPictureColumns; ++c)
    distances.push_back(std::round(longest * static_cast<double>(c) / static_cast<double>(kPictureColumns - 1)));
  return distances;
}

std::string bias_picture(const Subject& subject, const ValuesRequest& request) {
  const std::vector<double> distances = picture_distances(request);
  std::vector<Curve> curves;
  // Neighbouring heads look alike: at most four, spread over all.
  const std::int64_t heads = request.dimensions.heads, step = std::max<std::int64_t>(1, (heads + 3) / 4);
  for (std::int64_t head = 0; head < heads; head += step) {
    Curve curve{str("head ", head), {}};
    for (const double distance : distances) curve.values.push_back(bias_at(subject, distance, head, request.layer));
    curves.push_back(std::move(curve));
  }
  return "Bias by distance\n" + picture(distances, curves);
}

std::string cosine_picture(const std::vector<Json>& all, const ValuesRequest& request) {
  const std::vector<double> distances = picture_distances(request);
  std::vector<Curve> curves;
  for (const Json& rotation : all) {
    const bool by_head = rotation["inv_freq"][0].is_array();
    const Json lists = by_head ? rotation["inv_freq"] : Json::array({rotation["inv_freq"]});
    for (std::size_t h = 0; h < lists.size() && curves.size() < 4; ++h) {
      Curve curve{by_head          ? str("key head ", h)
                  : all.size() > 1 ? str("rotation ", curves.size() + 1)
                                   : "all heads",
                  {}};
      for (const double distance : distances) {
        double sum = 0;
        for (const Json& frequency : lists[h]) sum += std::cos(distance * frequency.get<double>());
        curve.values.push_back(sum / static_cast<double>(lists[h].size()));
      }
      curves.push_back(std::move(curve));
    }
  }
  return "Mean cosine over the planes by distance: what q.k keeps where q equals k\n" + picture(distances, curves);
}

}  // namespace

Json encoding_values(const ValuesRequest& request) {
  const Subject subject(request);
  const std::vector<Json> all = rotations(subject, request);
  Json json;
  json["encoding"] = print(subject.expression);
  if (subject.whole->period() > 1) json["layer"] = request.layer;
  json["rotation"] = all.empty() ? Json(nullptr) : all.front();
  if (all.size() > 1) json["further_rotations"] = std::vector<Json>(all.begin() + 1, all.end());
  json["bias"] = bias_to_json(subject, request);
  const std::vector<double> slopes = subject.layer->slopes();
  json["slopes"] = slopes.empty() ? Json(nullptr) : Json(slopes);
  const std::vector<std::int64_t> buckets = subject.layer->buckets(request.distances);
  json["buckets"] = buckets.empty() ? Json(nullptr) : Json(buckets);
  json["embedding"] = embedding_to_json(subject, request);
  json["temperature"] = temperature_to_json(subject, request);
  json["content"] = subject.layer->content();
  Json trained = Json::array();
  for (const ParameterInfo& info : subject.layer->parameters(request.layer))
    trained.push_back(info.name + " " + shape_text(info.shape));
  json["trained"] = trained;
  return json;
}

std::string values_text(const ValuesRequest& request) {
  const Subject subject(request);
  const Json json = encoding_values(request);
  const Dimensions& dimensions = subject.whole->dimensions();
  std::string text =
      str(json["encoding"].get<std::string>(), "\n", dimensions.heads, " query heads and ", dimensions.kv_heads,
          " key heads of width ", dimensions.head_dim, ", a document of ", number(subject.length, 10), " tokens",
          json.contains("layer") ? str(", layer ", request.layer) : "", "\n");
  const std::vector<Json> all = rotations(subject, request);
  for (const Json& rotation : all) text += "\n" + rotation_text(rotation);
  if (!all.empty()) text += "\n" + cosine_picture(all, request);
  if (!json["slopes"].is_null()) text += "\n" + list_text("Slopes", nullptr, "head", json["slopes"]);
  if (!json["buckets"].is_null()) text += "\n" + list_text("Buckets", request.distances, "distance", json["buckets"]);
  if (!json["bias"].is_null()) {
    const Json& rows = json["bias"]["per_head"];
    text += "\n" + matrix_text(
                       "Bias", "distance", request.distances, "head",
                       [&](std::size_t r, std::size_t c) { return rows[c][r].get<double>(); }, rows.size());
    text += "\n" + bias_picture(subject, request);
  }
  if (!json["embedding"].is_null()) {
    const Json& rows = json["embedding"];
    text += "\n" + matrix_text(
                       "Embedding", "position", request.positions, "channel",
                       [&](std::size_t r, std::size_t c) { return rows[r][c].get<double>(); },
                       static_cast<std::size_t>(dimensions.width));
  }
  if (!json["temperature"].is_null()) {
    const Json& factors = json["temperature"];
    const bool by_head = !factors.empty() && factors[0].is_array();
    text +=
        "\n" + matrix_text(
                   "Factor on the logits of a query", "position", request.positions, by_head ? "head" : "heads",
                   [&](std::size_t r, std::size_t c) { return (by_head ? factors[c][r] : factors[r]).get<double>(); },
                   by_head ? factors.size() : 1);
  }
  for (const Json& line : json["content"]) text += str("\nDepends on content: ", line.get<std::string>(), "\n");
  for (const Json& line : json["trained"]) text += str("\nTrained: ", line.get<std::string>(), "\n");
  if (subject.bias == Subject::Free) text += "\nThe bias has no fixed values: it is trained or depends on content.\n";
  if (subject.embedding == Subject::Free) text += "\nThe embedding has no fixed values: it is trained.\n";
  if (print(subject.expression) == "none") text += "\nNothing is added, moved or scaled.\n";
  return text;
}

std::int64_t fitting_heads(const std::string& encoding, const Dimensions& usual) {
  const Expression expression = parse(encoding);
  const auto fits = [&](std::int64_t heads) {
    Dimensions dimensions = usual;
    dimensions.heads = heads;
    try {
      make_encoding(expression, dimensions);
      return true;
    } catch (const UsageError&) {
      return false;
    }
  };
  for (std::int64_t heads = 0; heads <= 128; ++heads)
    if (fits(heads == 0 ? usual.heads : heads)) return heads == 0 ? usual.heads : heads;
  return usual.heads;
}

}  // namespace torsor
