#include "torsor/data/syntaxgym.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/utf8.h"

namespace torsor {

namespace {

constexpr std::array<std::string_view, 6> kMetrics = {"sum", "mean", "median", "range", "max", "min"};

bool is_gap(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
bool is_mark(char c) { return std::string_view(".,;:?!").find(c) != std::string_view::npos; }

std::string trimmed(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (!is_gap(c)) {
      result += c;
    } else if (!result.empty() && result.back() != ' ') {
      result += ' ';
    }
  }
  if (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

Json spans_to_json(const std::vector<ByteRange>& spans) {
  Json json = Json::array();
  for (const ByteRange& span : spans) json.push_back({span.begin, span.end});
  return json;
}

SuiteTree tree_from_json(JsonObject object, const std::string& sentence) {
  SuiteTree result;
  const auto spans = object.get<std::vector<std::vector<std::uint64_t>>>("words");
  const auto heads = object.get<std::vector<std::int32_t>>("heads");
  result.tree.relations = object.get<std::vector<std::string>>("relations");
  object.finish();
  std::size_t last = 0;
  for (const std::vector<std::uint64_t>& span : spans) {
    if (span.size() != 2 || span[0] < last || span[1] <= span[0] || span[1] > sentence.size())
      object.fail(str("words: expected rising pairs of bytes inside the sentence's ", sentence.size(), ", found ",
                      json_text(Json(span))));
    last = span[1];
    result.words.push_back({span[0], span[1]});
    result.tree.words.push_back(sentence.substr(span[0], span[1] - span[0]));
  }
  result.tree.heads.assign(heads.begin(), heads.end());
  try {
    check_tree(result.tree);
  } catch (const Error& error) {
    object.fail(error.what());
  }
  return result;
}

// Reads one suite; messages say where.
class SuiteReader {
 public:
  SuiteReader(const Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  Suite run() {
    JsonObject object = reader(json_, source_);
    read_meta(object.get<Json>("meta"));
    read_region_names(object.get<Json>("region_meta"));
    const Json items = object.get<Json>("items");
    const Json predictions = object.get<Json>("predictions", Json::array());
    object.finish();
    if (!items.is_array() || items.empty()) object.fail("items: expected a list with at least one");
    std::set<std::int64_t> numbers;
    for (const Json& item : items) {
      read_item(item);
      if (!numbers.insert(suite_.items.back().number).second)
        object.fail(str("item_number ", suite_.items.back().number, " is there twice"));
    }
    if (!predictions.is_array()) object.fail("predictions: expected a list");
    for (const Json& prediction : predictions) read_prediction(prediction);
    return std::move(suite_);
  }

 private:
  static JsonObject reader(const Json& json, const std::string& source) {
    return JsonObject(json, source, JsonObject::Blame::data);
  }

  void read_meta(const Json& json) {
    JsonObject meta = reader(json, source_ + ": meta");
    suite_.name = meta.get<std::string>("name");
    if (suite_.name.empty()) meta.fail("name must not be empty");
    const auto metric = meta.get<std::string>("metric", "sum");
    try {
      suite_.metric = metric == "all" ? RegionMetric::Sum : region_metric_of(metric);
    } catch (const Error& error) {
      meta.fail(error.what());
    }
    suite_.comment = meta.get<std::string>("comment", "");
    suite_.circuit = meta.get<std::string>("circuit", "");
    suite_.attach_marks = meta.get<bool>("attach_marks", false);
  }

  void read_region_names(const Json& json) {
    const std::string source = source_ + ": region_meta";
    if (!json.is_object()) reader(json, source).fail("expected an object");
    for (const auto& [key, name] : json.items()) {
      const bool digits = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      if (!digits || !name.is_string())
        throw Error(str(source, ": expected names by the number of a region, found ", quote(key)));
      suite_.region_names[std::stoll(key)] = name.get<std::string>();
    }
  }

  void read_item(const Json& json) {
    JsonObject object = reader(json, str(source_, ": items[", suite_.items.size(), "]"));
    SuiteItem item;
    item.number = object.get<std::int64_t>("item_number");
    const Json conditions = object.get<Json>("conditions");
    object.finish();
    if (!conditions.is_array() || conditions.empty()) object.fail("conditions: expected a list with at least one");
    for (const Json& condition : conditions) {
      item.conditions.push_back(read_condition(condition, str(source_, ": item ", item.number)));
      for (std::size_t c = 0; c + 1 < item.conditions.size(); ++c)
        if (item.conditions[c].name == item.conditions.back().name)
          object.fail(str("the condition ", quote(item.conditions[c].name), " is there twice"));
    }
    suite_.items.push_back(std::move(item));
  }

  SuiteCondition read_condition(const Json& json, const std::string& where) {
    JsonObject object = reader(json, where);
    SuiteCondition condition;
    condition.name = object.get<std::string>("condition_name");
    const std::string source = str(where, ", condition ", quote(condition.name));
    const Json regions = object.get<Json>("regions");
    const bool has_tree = object.has("tree");
    object.finish();
    if (!regions.is_array() || regions.empty()) throw Error(source + ": expected a list of regions");
    for (const Json& one : regions) {
      JsonObject region = reader(one, source);
      const auto number = region.get<std::int64_t>("region_number");
      const auto content = region.get<std::string>("content");
      region.allow("metric_value");  // files with results
      region.allow("oovs");
      region.finish();
      for (const SuiteRegion& earlier : condition.regions)
        if (earlier.number == number) region.fail(str("region_number ", number, " is there twice"));
      if (find_invalid_utf8(content) != std::string_view::npos)
        region.fail(str("region ", number, ": expected text in UTF-8"));
      if (content.find('\0') != std::string::npos) region.fail(str("region ", number, ": holds a zero byte"));
      condition.regions.push_back({number, content});
    }
    const std::string text = suite_sentence(suite_, condition).text;
    if (text.empty()) throw Error(source + ": expected a sentence, found empty regions alone");
    if (has_tree) condition.tree = tree_from_json(reader(json.at("tree"), source + ": tree"), text);
    return condition;
  }

  void read_prediction(const Json& json) {
    const std::string source = str(source_, ": prediction ", suite_.predictions.size() + 1);
    JsonObject object = reader(json, source);
    if (const auto type = object.get<std::string>("type"); type != "formula")
      object.fail(str("type must be formula, found ", quote(type)));
    const auto text = object.get<std::string>("formula");
    object.finish();
    const Formula formula = Formula::parse(text, source);
    for (const RegionReference& reference : formula.references())
      for (const SuiteItem& item : suite_.items) check(reference, item, source);
    suite_.predictions.push_back(formula);
  }

  void check(const RegionReference& reference, const SuiteItem& item, const std::string& source) const {
    for (const SuiteCondition& condition : item.conditions) {
      if (condition.name != reference.condition) continue;
      if (reference.region == RegionReference::kAll) return;
      for (const SuiteRegion& region : condition.regions)
        if (region.number == reference.region) return;
      throw Error(str(source, ": column ", reference.column, ": item ", item.number, " has no region ",
                      reference.region, " under ", quote(reference.condition)));
    }
    throw Error(str(source, ": column ", reference.column, ": item ", item.number, " has no condition ",
                    quote(reference.condition)));
  }

  const Json& json_;
  std::string source_;
  Suite suite_;
};

// Where a reference's value lies in an item.
double value_of(const RegionReference& reference, const SuiteItem& item,
                const std::vector<std::vector<double>>& values) {
  for (std::size_t c = 0; c < item.conditions.size(); ++c) {
    if (item.conditions[c].name != reference.condition) continue;
    double sum = 0;
    for (std::size_t r = 0; r < item.conditions[c].regions.size(); ++r)
      if (reference.region == RegionReference::kAll || item.conditions[c].regions[r].number == reference.region)
        sum += values[c][r];
    return sum;
  }
  throw Error(str("suite: item ", item.number, " has no condition ", quote(reference.condition)));
}

}  // namespace

std::string_view region_metric_name(RegionMetric metric) { return kMetrics[static_cast<std::size_t>(metric)]; }

RegionMetric region_metric_of(std::string_view name) {
  for (std::size_t m = 0; m < kMetrics.size(); ++m)
    if (kMetrics[m] == name) return static_cast<RegionMetric>(m);
  throw Error(str("metric must be sum, mean, median, range, max or min, found ", quote(name)));
}

double region_value(RegionMetric metric, std::span<const double> surprisals) {
  if (surprisals.empty()) return 0;
  double sum = 0;
  for (const double value : surprisals) sum += value;
  const auto [low, high] = std::minmax_element(surprisals.begin(), surprisals.end());
  switch (metric) {
    case RegionMetric::Sum:
      return sum;
    case RegionMetric::Mean:
      return sum / static_cast<double>(surprisals.size());
    case RegionMetric::Median: {
      std::vector<double> sorted(surprisals.begin(), surprisals.end());
      std::sort(sorted.begin(), sorted.end());
      const std::size_t half = sorted.size() / 2;
      return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
    }
    case RegionMetric::Range:
      return *high - *low;
    case RegionMetric::Max:
      return *high;
    case RegionMetric::Min:
      return *low;
  }
  return 0;
}

Suite suite_from_json(const Json& json, const std::string& source) { return SuiteReader(json, source).run(); }

Suite read_suite(const std::string& path) { return suite_from_json(read_json(path), path); }

Json suite_to_json(const Suite& suite) {
  Json json;
  Json& meta = json["meta"];
  meta["name"] = suite.name;
  meta["metric"] = region_metric_name(suite.metric);
  meta["comment"] = suite.comment;
  if (!suite.circuit.empty()) meta["circuit"] = suite.circuit;
  if (suite.attach_marks) meta["attach_marks"] = true;
  json["region_meta"] = Json::object();
  for (const auto& [number, name] : suite.region_names) json["region_meta"][str(number)] = name;
  json["predictions"] = Json::array();
  for (const Formula& formula : suite.predictions)
    json["predictions"].push_back({{"type", "formula"}, {"formula", formula.text()}});
  json["items"] = Json::array();
  for (const SuiteItem& item : suite.items) {
    Json conditions = Json::array();
    for (const SuiteCondition& condition : item.conditions) {
      Json one;
      one["condition_name"] = condition.name;
      one["regions"] = Json::array();
      for (const SuiteRegion& region : condition.regions)
        one["regions"].push_back({{"region_number", region.number}, {"content", region.content}});
      if (condition.tree) {
        one["tree"]["words"] = spans_to_json(condition.tree->words);
        one["tree"]["heads"] = condition.tree->tree.heads;
        one["tree"]["relations"] = condition.tree->tree.relations;
      }
      conditions.push_back(std::move(one));
    }
    json["items"].push_back({{"item_number", item.number}, {"conditions", std::move(conditions)}});
  }
  return json;
}

std::vector<Suite> load_suites(const std::vector<std::string>& paths) {
  std::vector<Suite> suites;
  std::map<std::string, std::string> seen;
  for (const std::string& path : paths) {
    const std::vector<std::string> files = list_files(path, {".json"});
    if (files.empty()) throw Error(str("suites: expected *.json files in the folder '", path, "', found none"));
    for (const std::string& file : files) {
      suites.push_back(read_suite(file));
      const auto [earlier, fresh] = seen.emplace(suites.back().name, file);
      if (!fresh)
        throw Error(str("two suites have the name ", quote(suites.back().name), ": ", earlier->second, " and ", file));
    }
  }
  return suites;
}

SuiteSentence suite_sentence(const Suite& suite, const SuiteCondition& condition, bool final_period) {
  SuiteSentence sentence;
  for (const SuiteRegion& region : condition.regions) {
    const std::size_t begin = sentence.text.size();
    const std::string content = trimmed(region.content);
    if (!content.empty()) {
      if (begin > 0 && !(suite.attach_marks && is_mark(content.front()))) sentence.text += ' ';
      sentence.text += content;
    }
    sentence.regions.push_back({begin, sentence.text.size()});
  }
  if (final_period && !sentence.text.empty() && !is_mark(sentence.text.back())) sentence.text += '.';
  return sentence;
}

std::vector<std::int64_t> regions_of_tokens(const SuiteSentence& sentence, std::span<const ByteRange> tokens) {
  std::vector<std::int64_t> result;
  for (const ByteRange& token : tokens) {
    if (token.begin > token.end || token.end > sentence.text.size())
      throw Error(str("suite: expected tokens inside the ", sentence.text.size(), " bytes of the sentence, found ",
                      token.begin, " to ", token.end));
    std::size_t first = token.begin;
    while (first < token.end && is_gap(sentence.text[first])) ++first;
    std::int64_t region = -1;
    for (std::size_t r = 0; r < sentence.regions.size() && first < token.end; ++r)
      if (first >= sentence.regions[r].begin && first < sentence.regions[r].end) region = static_cast<std::int64_t>(r);
    result.push_back(region);
  }
  return result;
}

std::vector<double> region_values(RegionMetric metric, const SuiteSentence& sentence, std::span<const ByteRange> tokens,
                                  std::span<const double> surprisals) {
  if (tokens.size() != surprisals.size())
    throw Error(str("suite: ", tokens.size(), " tokens have ", surprisals.size(), " surprisals"));
  std::vector<std::vector<double>> by_region(sentence.regions.size());
  const std::vector<std::int64_t> regions = regions_of_tokens(sentence, tokens);
  for (std::size_t t = 0; t < tokens.size(); ++t)
    if (regions[t] >= 0) by_region[static_cast<std::size_t>(regions[t])].push_back(surprisals[t]);
  std::vector<double> values;
  for (const std::vector<double>& region : by_region) values.push_back(region_value(metric, region));
  return values;
}

double SuiteResult::accuracy(std::size_t prediction) const {
  const std::vector<bool>& items = correct.at(prediction);
  return static_cast<double>(std::count(items.begin(), items.end(), true)) / static_cast<double>(items.size());
}

SuiteResult score_suite(const Suite& suite, const SuiteValues& values) {
  if (suite.predictions.empty()) throw Error(str("suite ", quote(suite.name), " has no predictions to score"));
  if (values.size() != suite.items.size())
    throw Error(
        str("suite ", quote(suite.name), ": expected values of ", suite.items.size(), " items, found ", values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::vector<SuiteCondition>& conditions = suite.items[i].conditions;
    bool fits = values[i].size() == conditions.size();
    for (std::size_t c = 0; fits && c < conditions.size(); ++c)
      fits = values[i][c].size() == conditions[c].regions.size();
    if (!fits) throw Error(str("suite ", quote(suite.name), ": values of item ", suite.items[i].number, " do not fit"));
  }
  SuiteResult result;
  result.suite = suite.name;
  result.circuit = circuit_of(suite);
  result.counted = counted_suite(suite.name);
  for (const Formula& formula : suite.predictions) {
    std::vector<bool>& correct = result.correct.emplace_back();
    for (std::size_t i = 0; i < suite.items.size(); ++i) {
      std::vector<double> read;
      for (const RegionReference& reference : formula.references())
        read.push_back(value_of(reference, suite.items[i], values[i]));
      correct.push_back(formula.holds(read));
    }
  }
  return result;
}

bool counted_suite(std::string_view name) {
  for (const std::string_view beginning : {"fgd-embed3", "fgd-embed4", "gardenpath", "nn-nv"})
    if (name.starts_with(beginning)) return false;
  return true;
}

std::string circuit_of(const Suite& suite) {
  if (!suite.circuit.empty()) return suite.circuit;
  static const std::vector<std::pair<std::string_view, const char*>> kCircuits = {
      {"npi", "Licensing"},
      {"reflexive", "Licensing"},
      {"fgd", "Long-Distance Dependencies"},
      {"cleft", "Long-Distance Dependencies"},
      {"number", "Agreement"},
      {"npz", "Garden-Path Effects"},
      {"mvrr", "Garden-Path Effects"},
      {"subordination", "Gross Syntactic State"},
      {"center", "Center Embedding"}};
  for (const auto& [beginning, circuit] : kCircuits)
    if (suite.name.starts_with(beginning)) return circuit;
  return "Other";
}

SuiteSummary summarize_suites(std::span<const SuiteResult> results) {
  SuiteSummary summary;
  for (const SuiteResult& result : results) {
    if (!result.counted) continue;
    ++summary.suites;
    summary.mean += result.accuracy();
    SuiteSummary::Circuit& circuit = summary.circuits[result.circuit];
    ++circuit.suites;
    circuit.mean += result.accuracy();
  }
  if (summary.suites > 0) summary.mean /= static_cast<double>(summary.suites);
  for (auto& [name, circuit] : summary.circuits) circuit.mean /= static_cast<double>(circuit.suites);
  return summary;
}

bool any_bare(const std::vector<Suite>& suites) {
  for (const Suite& suite : suites)
    for (const SuiteItem& item : suite.items)
      for (const SuiteCondition& condition : item.conditions)
        if (!condition.tree) return true;
  return false;
}

}  // namespace torsor
