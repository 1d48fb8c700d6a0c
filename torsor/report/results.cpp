#include "torsor/report/results.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace torsor::report {
namespace {

using Blame = JsonObject::Blame;

template <class T>
void append_new(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

Status read_status(JsonObject& object) {
  const auto text = object.get<std::string>("status");
  if (text == "ok") return Status::ok;
  if (text == "refused") return Status::refused;
  if (text == "failed") return Status::failed;
  if (text == "stopped") return Status::stopped;
  object.fail(str("status: expected ok, refused, failed or stopped, got '", text, "'"));
}

/// The list under `key`, or an empty one where it is missing or null.
Json read_list(JsonObject& object, const std::string& key) {
  if (!object.has(key)) return Json::array();
  Json list = object.get<Json>(key);
  if (!list.is_array()) object.fail(str(key, ": expected a list, got ", list.type_name()));
  return list;
}

std::int64_t read_count(JsonObject& object, const std::string& key, std::int64_t smallest) {
  const auto value = object.get<std::int64_t>(key);
  if (value < smallest) object.fail(str(key, ": expected at least ", smallest, ", got ", value));
  return value;
}

/// A number, or nothing where it is null or not finite (a document that was never text can hold infinities).
std::optional<double> read_finite(JsonObject& object, const std::string& key) {
  const auto value = object.get<std::optional<double>>(key, std::nullopt);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

/// The same, and never negative.
std::optional<double> read_measure(JsonObject& object, const std::string& key) {
  const auto value = read_finite(object, key);
  if (value && *value < 0) object.fail(str(key, ": expected a number that is not negative, got ", *value));
  return value;
}

/// One place of a list of lists, checked; read by hand because such lists are long.
double number_at(const JsonObject& object, const std::string& key, std::size_t index, const Json& value) {
  if (!value.is_number()) object.fail(str(key, "[", index, "]: expected a number, got ", value.type_name()));
  const double number = value.get<double>();
  if (!std::isfinite(number)) object.fail(str(key, "[", index, "]: expected a finite number, got ", number));
  return number;
}

void expect_row(const JsonObject& object, const std::string& key, std::size_t index, const Json& row,
                std::size_t size) {
  if (!row.is_array() || row.size() != size) {
    object.fail(str(key, "[", index, "]: expected a list of ", size, " numbers, got ",
                    row.is_array() ? str(row.size(), " values") : std::string(row.type_name())));
  }
}

EvalCell read_cell(const Json& json, const std::string& source) {
  JsonObject object(json, source, Blame::data);
  EvalCell cell;
  cell.x = read_count(object, "x", 0);
  cell.y = read_count(object, "y", 0);
  cell.count = read_count(object, "count", 1);
  cell.correct = read_count(object, "correct", 0);
  if (cell.correct > cell.count) {
    object.fail(str("correct: expected at most count, ", cell.count, ", got ", cell.correct));
  }
  return cell;
}

/// A share, or a score that may be negative.
double read_share(const JsonObject& object, const char* key, double value, bool score) {
  if (value > 1 || value < (score ? -1 : 0))
    object.fail(str(key, ": expected a ", score ? "score in -1..1" : "share in 0..1", ", got ", value));
  return value;
}

EvalGroup read_group(const Json& json, const std::string& source, bool score) {
  JsonObject object(json, source, Blame::data);
  EvalGroup group;
  group.name = object.get<std::string>("name");
  const char* key = score ? "score" : "accuracy";
  group.value = read_share(object, key, object.get<double>(key), score);
  group.count = read_count(object, "count", 1);
  return group;
}

/// An accuracy with its cells and its problems: all that is there must tell of the same problems.
void check_accuracy(const JsonObject& object, const Eval& eval) {
  if (!eval.accuracy) {
    if (!eval.cells.empty()) object.fail("accuracy: expected the share of problems solved beside cells, got none");
    return;
  }
  read_share(object, eval.score ? "score" : "accuracy", *eval.accuracy, eval.score);
  std::int64_t correct = 0, count = 0;
  for (const EvalCell& cell : eval.cells) {
    correct += cell.correct;
    count += cell.count;
  }
  double right = 0;
  for (std::size_t i = 0; i < eval.windows.size(); ++i) {
    if (eval.windows[i] != 0 && eval.windows[i] != 1) {
      object.fail(str("windows[", i, "]: expected 0 or 1 for a problem, got ", eval.windows[i]));
    }
    right += eval.windows[i];
  }
  // A share survives being written with fewer digits; one problem in a million does not hide in that.
  const auto expect_share = [&](const char* key, double solved, double problems) {
    if (std::abs(*eval.accuracy - solved / problems) > 1e-6) {
      object.fail(str("accuracy: expected ", solved, " of ", problems, " as in ", key, ", got ", *eval.accuracy));
    }
  };
  if (count > 0) expect_share("cells", static_cast<double>(correct), static_cast<double>(count));
  if (!eval.windows.empty()) expect_share("windows", right, static_cast<double>(eval.windows.size()));
  if (count > 0 && !eval.windows.empty() && static_cast<std::size_t>(count) != eval.windows.size()) {
    object.fail(str("windows: expected ", count, " problems as in cells, got ", eval.windows.size()));
  }
}

Eval read_eval(const Json& json, const std::string& source) {
  JsonObject object(json, source, Blame::data);
  Eval eval;
  eval.task = object.get<std::string>("task");
  eval.length = read_count(object, "length", 1);
  eval.status = read_status(object);
  eval.reason = object.get<std::string>("reason", "");
  eval.loss = read_finite(object, "loss");
  eval.perplexity = read_measure(object, "perplexity");
  eval.joint_perplexity = read_measure(object, "joint_ppl");
  eval.bits_per_byte = read_finite(object, "bits_per_byte");
  std::size_t index = 0;
  for (const Json& row : read_list(object, "position_loss")) {
    expect_row(object, "position_loss", index, row, 3);
    const double from = number_at(object, "position_loss", index, row[0]);
    const double to = number_at(object, "position_loss", index, row[1]);
    if (!(from >= 0 && to > from && to < 9e15)) {
      object.fail(str("position_loss[", index, "]: expected 0 <= from < to, got ", from, " and ", to));
    }
    if (!row[2].is_null()) {  // a loss that is not finite has no place in a picture
      eval.position_loss.push_back({static_cast<std::int64_t>(from), static_cast<std::int64_t>(to),
                                    number_at(object, "position_loss", index, row[2])});
    }
    ++index;
  }
  const Json windows = read_list(object, "windows");
  // A window whose loss is not finite (null) leaves nothing to resample.
  if (std::none_of(windows.begin(), windows.end(), [](const Json& window) { return window.is_null(); })) {
    for (const Json& window : windows) {
      eval.windows.push_back(number_at(object, "windows", eval.windows.size(), window));
    }
  }
  eval.score = object.has("score");
  eval.accuracy = eval.score ? read_finite(object, "score") : read_measure(object, "accuracy");
  eval.leaks = object.get<bool>("leaks", false);
  for (const Json& item : read_list(object, "groups")) {
    eval.groups.push_back(read_group(item, str(source, ".groups[", eval.groups.size(), ']'), eval.score));
    for (std::size_t g = 0; g + 1 < eval.groups.size(); ++g)
      if (eval.groups[g].name == eval.groups.back().name)
        object.fail(str("groups: expected each name once, got '", eval.groups[g].name, "' again"));
  }
  std::set<std::pair<std::int64_t, std::int64_t>> places;
  for (const Json& item : read_list(object, "cells")) {
    eval.cells.push_back(read_cell(item, str(source, ".cells[", eval.cells.size(), ']')));
    const EvalCell& cell = eval.cells.back();
    if (!places.insert({cell.x, cell.y}).second) {
      object.fail(str("cells[", eval.cells.size() - 1, "]: expected each x and y once, got ", cell.x, " and ", cell.y,
                      " again"));
    }
  }
  check_accuracy(object, eval);
  return eval;
}

Train read_train(const Json& json, const std::string& source) {
  JsonObject object(json, source, Blame::data);
  Train train;
  train.steps = object.has("steps") ? read_count(object, "steps", 0) : 0;
  train.tokens = object.has("tokens") ? read_count(object, "tokens", 0) : 0;
  train.seconds = read_measure(object, "seconds").value_or(0);
  train.tokens_per_second = read_measure(object, "tokens_per_second");
  for (const Json& row : read_list(object, "losses")) {
    const std::size_t index = train.losses.size();
    expect_row(object, "losses", index, row, 2);
    TrainLoss loss;
    loss.step = static_cast<std::int64_t>(number_at(object, "losses", index, row[0]));
    if (!row[1].is_null()) loss.loss = number_at(object, "losses", index, row[1]);
    if (index > 0 && loss.step <= train.losses.back().step) {
      object.fail(str("losses[", index, "]: expected a step after ", train.losses.back().step, ", got ", loss.step));
    }
    train.losses.push_back(loss);
  }
  return train;
}

SyntaxDomain read_domain(const Json& json, const std::string& source) {
  JsonObject object(json, source, Blame::data);
  SyntaxDomain domain;
  domain.name = object.get<std::string>("domain");
  domain.verdict = object.get<std::string>("verdict");
  domain.fed = object.get<bool>("fed");
  domain.uas = read_measure(object, "uas");
  domain.las = read_measure(object, "las");
  domain.low = read_measure(object, "low");
  domain.high = read_measure(object, "high");
  domain.words = object.get<std::optional<std::int64_t>>("words", std::nullopt);
  domain.threshold = read_measure(object, "threshold");
  return domain;
}

SyntaxBlock read_syntax(const Json& json, const std::string& source) {
  JsonObject object(json, source, Blame::data);
  SyntaxBlock syntax;
  syntax.mode = object.get<std::string>("mode");
  syntax.prior = object.get<std::string>("prior");
  syntax.leaks = object.get<bool>("leaks");
  JsonObject parser = object.object("parser");
  syntax.parser = parser.get<std::string>("backend");
  for (const char* key : {"name", "version", "model_sha256"}) {
    const auto text = parser.get<std::optional<std::string>>(key, std::nullopt).value_or("");
    if (!text.empty()) syntax.parser += " " + (key == std::string("model_sha256") ? text.substr(0, 12) : text);
  }
  syntax.gate = object.get<std::string>("gate");
  for (const Json& item : read_list(object, "domains"))
    syntax.domains.push_back(read_domain(item, str(source, ".domains[", syntax.domains.size(), ']')));
  syntax.coverage = read_measure(object, "coverage");
  syntax.tokens = read_count(object, "tokens", 0);
  syntax.sentences = read_count(object, "sentences", 0);
  syntax.unparsed = read_count(object, "unparsed", 0);
  syntax.repaired = read_count(object, "repaired", 0);
  syntax.multi_word_tokens = read_count(object, "multi_word_tokens", 0);
  return syntax;
}

Run read_run(const Json& json, const std::string& source) {
  JsonObject object(json, source, Blame::data);
  Run run;
  run.encoding = object.get<std::string>("encoding");
  if (run.encoding.empty()) object.fail("encoding: expected an expression, got an empty text");
  run.seed = read_count(object, "seed", 0);
  run.status = read_status(object);
  run.reason = object.get<std::string>("reason", "");
  run.parameters = object.get<std::optional<std::int64_t>>("parameters", std::nullopt);
  if (object.has("train")) run.train = read_train(object.get<Json>("train"), str(source, ".train"));
  run.peak_memory_bytes = read_measure(object, "peak_memory_bytes");
  run.decode_tokens_per_second = read_measure(object, "decode_tokens_per_second");
  if (object.has("syntax")) run.syntax = read_syntax(object.get<Json>("syntax"), str(source, ".syntax"));
  if (object.has("perplexity_gate")) {
    JsonObject gate = object.object("perplexity_gate");
    run.watch = gate.get<std::string>("status");
    run.watch_rise = read_finite(gate, "rise");
  }
  for (const Json& item : read_list(object, "eval")) {
    run.eval.push_back(read_eval(item, str(source, ".eval[", run.eval.size(), ']')));
  }
  return run;
}

SummaryRow read_summary(const Json& json, const std::string& source) {
  JsonObject object(json, source, Blame::data);
  SummaryRow row;
  row.encoding = object.get<std::string>("encoding");
  row.task = object.get<std::string>("task");
  row.length = read_count(object, "length", 1);
  row.metric = object.get<std::string>("metric");
  row.mean = read_finite(object, "mean");
  row.sd = read_measure(object, "sd");
  row.n = read_count(object, "n", 0);
  row.leaks = object.get<bool>("leaks", false);
  if (object.has("difference_to_best")) {
    JsonObject difference = object.object("difference_to_best");
    row.difference_to_best =
        Interval{difference.get<double>("mean"), difference.get<std::optional<double>>("low", std::nullopt),
                 difference.get<std::optional<double>>("high", std::nullopt)};
  }
  return row;
}

Effect read_effect(const Json& json, const std::string& source) {
  JsonObject object(json, source, Blame::data);
  Effect effect;
  effect.encoding = object.get<std::string>("encoding");
  const auto kind = object.get<std::string>("kind");
  if (kind == "none") {
    effect.kind = Effect::Kind::none;
  } else if (kind == "bias") {
    effect.kind = Effect::Kind::bias;
  } else if (kind == "rotation") {
    effect.kind = Effect::Kind::rotation;
  } else if (kind == "content") {
    effect.kind = Effect::Kind::content;
  } else {
    object.fail(str("kind: expected none, bias, rotation or content, got '", kind, "'"));
  }
  for (const Json& distance : read_list(object, "distances")) {
    effect.distances.push_back(number_at(object, "distances", effect.distances.size(), distance));
  }
  for (const Json& row : read_list(object, "per_head")) {
    const std::size_t head = effect.per_head.size();
    expect_row(object, "per_head", head, row, effect.distances.size());
    std::vector<std::optional<double>> values;
    for (const Json& value : row) {
      values.push_back(value.is_null() ? std::nullopt : std::optional(number_at(object, "per_head", head, value)));
    }
    effect.per_head.push_back(std::move(values));
  }
  effect.note = object.get<std::string>("note", "");
  return effect;
}

/// The same kinds of problems, as many of each and in the same order.
bool same_kinds(const std::vector<EvalCell>& a, const std::vector<EvalCell>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const EvalCell& one, const EvalCell& other) {
    return one.x == other.x && one.y == other.y && one.count == other.count;
  });
}

bool same_groups(const std::vector<EvalGroup>& a, const std::vector<EvalGroup>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const EvalGroup& one, const EvalGroup& other) {
    return one.name == other.name && one.count == other.count;
  });
}

/// What must hold between runs: each once, each evaluation once, the same windows and kinds of problems everywhere.
void check_runs(const std::vector<Run>& runs, const std::string& source) {
  std::set<std::pair<std::string, std::int64_t>> seen;
  std::map<std::pair<std::string, std::int64_t>, const std::vector<EvalCell>*> kinds;
  std::map<std::pair<std::string, std::int64_t>, std::size_t> windows;
  std::map<std::pair<std::string, std::int64_t>, const std::vector<EvalGroup>*> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    if (!seen.insert({run.encoding, run.seed}).second) {
      throw Error(str(source, ": runs[", i, "]: expected each encoding and seed once, got '", run.encoding,
                      "' with seed ", run.seed, " again"));
    }
    std::set<std::pair<std::string, std::int64_t>> evaluated;
    for (std::size_t j = 0; j < run.eval.size(); ++j) {
      const Eval& eval = run.eval[j];
      const auto key = std::make_pair(eval.task, eval.length);
      if (!evaluated.insert(key).second) {
        throw Error(str(source, ": runs[", i, "].eval[", j, "]: expected each task and length once, got '", eval.task,
                        "' at ", eval.length, " again"));
      }
      if (!eval.cells.empty()) {
        const auto [place, added] = kinds.emplace(key, &eval.cells);
        if (!added && !same_kinds(*place->second, eval.cells)) {
          throw Error(str(source, ": runs[", i, "].eval[", j,
                          "].cells: expected x, y and count as in the other runs of '", eval.task, "' at ", eval.length,
                          ", got others"));
        }
      }
      if (!eval.groups.empty()) {
        const auto [place, added] = groups.emplace(key, &eval.groups);
        if (!added && !same_groups(*place->second, eval.groups)) {
          throw Error(str(source, ": runs[", i, "].eval[", j, "].groups: expected those of the other runs of '",
                          eval.task, "', got others"));
        }
      }
      if (eval.windows.empty()) continue;
      const auto [place, added] = windows.emplace(key, eval.windows.size());
      if (!added && place->second != eval.windows.size()) {
        throw Error(str(source, ": runs[", i, "].eval[", j, "].windows: expected ", place->second,
                        eval.accuracy ? " problems" : " losses", " as in the other runs at length ", eval.length,
                        ", got ", eval.windows.size()));
      }
    }
  }
}

}  // namespace

const char* status_name(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::refused:
      return "refused";
    case Status::failed:
      return "failed";
    case Status::stopped:
      return "stopped";
  }
  return "failed";
}

Results parse_results(const Json& document, const std::string& source) {
  JsonObject object(document, source, Blame::data);
  const auto format = object.get<std::string>("format");
  if (format != "torsor-results-1") object.fail(str("format: expected torsor-results-1, got '", format, "'"));
  Results results;
  results.document = document;
  for (const auto& [key, place] : {std::pair("config", &results.config), std::pair("machine", &results.machine)}) {
    *place = object.get<Json>(key, Json::object());
    if (!place->is_object()) object.fail(str(key, ": expected an object, got ", place->type_name()));
  }
  if (!object.get<Json>("runs").is_array()) object.fail("runs: expected a list");
  for (const Json& run : read_list(object, "runs")) {
    results.runs.push_back(read_run(run, str(source, ": runs[", results.runs.size(), ']')));
  }
  check_runs(results.runs, source);
  for (const Json& row : read_list(object, "summary")) {
    results.summary.push_back(read_summary(row, str(source, ": summary[", results.summary.size(), ']')));
  }
  results.verdict = object.get<std::vector<std::string>>("verdict", {});
  for (const Json& effect : read_list(object, "effects")) {
    results.effects.push_back(read_effect(effect, str(source, ": effects[", results.effects.size(), ']')));
  }
  results.published = object.get<std::vector<std::string>>("published", {});
  return results;
}

Results read_results(const std::string& path) { return parse_results(read_json(path), path); }

Json to_json(const Results& results) {
  Json document = results.document;
  Json summary = Json::array();
  for (const SummaryRow& row : results.summary) {
    Json item = {{"encoding", row.encoding},
                 {"task", row.task},
                 {"length", row.length},
                 {"metric", row.metric},
                 {"mean", json_or_null(row.mean)},
                 {"sd", json_or_null(row.sd)},
                 {"n", row.n}};
    if (row.leaks) item["leaks"] = true;
    item["difference_to_best"] = nullptr;
    if (const auto& difference = row.difference_to_best) {
      item["difference_to_best"] = {
          {"mean", difference->mean}, {"low", json_or_null(difference->low)}, {"high", json_or_null(difference->high)}};
    }
    summary.push_back(std::move(item));
  }
  document["summary"] = std::move(summary);
  document["verdict"] = results.verdict;
  return document;
}

std::int64_t training_length(const Results& results) {
  if (const auto found = results.config.find("length"); found != results.config.end() && found->is_number()) {
    return found->get<std::int64_t>();
  }
  std::int64_t shortest = 0;
  for (const Run& run : results.runs) {
    for (const Eval& eval : run.eval) shortest = shortest == 0 ? eval.length : std::min(shortest, eval.length);
  }
  return shortest;
}

std::vector<std::string> encodings_of(const Results& results) {
  std::vector<std::string> names;
  for (const Run& run : results.runs) append_new(names, run.encoding);
  return names;
}

std::vector<std::string> tasks_of(const Results& results) {
  std::vector<std::string> tasks;
  for (const Run& run : results.runs) {
    for (const Eval& eval : run.eval) append_new(tasks, eval.task);
  }
  return tasks;
}

std::vector<std::int64_t> seeds_of(const Results& results) {
  std::vector<std::int64_t> seeds;
  for (const Run& run : results.runs) append_new(seeds, run.seed);
  return seeds;
}

std::vector<std::int64_t> lengths_of(const Results& results, const std::string& task) {
  std::set<std::int64_t> lengths;
  for (const Run& run : results.runs) {
    for (const Eval& eval : run.eval) {
      if (eval.task == task) lengths.insert(eval.length);
    }
  }
  return {lengths.begin(), lengths.end()};
}

std::string base_encoding(const Results& results) {
  const std::vector<std::string> names = encodings_of(results);
  if (std::find(names.begin(), names.end(), "none") != names.end()) return "none";
  return names.empty() ? std::string() : names.front();
}

const Eval* find_eval(const Run& run, const std::string& task, std::int64_t length) {
  for (const Eval& eval : run.eval) {
    if (eval.length == length && eval.task == task) return &eval;
  }
  return nullptr;
}

const SummaryRow* find_summary(const Results& results, const std::string& encoding, const std::string& task,
                               std::int64_t length, const std::string& metric) {
  for (const SummaryRow& row : results.summary) {
    if (row.length == length && row.encoding == encoding && row.task == task && row.metric == metric) return &row;
  }
  return nullptr;
}

}  // namespace torsor::report
