#include "torsor/data/glue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/utf8.h"

namespace torsor {

namespace {

const std::vector<GlueInfo>& infos() {
  static const std::vector<std::string> kBits = {"0", "1"}, kEntails = {"not_entailment", "entailment"};
  using enum GlueMetric;
  static const std::vector<GlueInfo> all = {
      {GlueTask::CoLA, "CoLA", false, kBits, Matthews, true},
      {GlueTask::SST2, "SST-2", false, kBits, Accuracy, true},
      {GlueTask::MRPC, "MRPC", true, kBits, AccuracyAndF1, true},
      {GlueTask::QQP, "QQP", true, kBits, AccuracyAndF1, true},
      {GlueTask::STSB, "STS-B", true, {}, PearsonAndSpearman, true},
      {GlueTask::MNLI, "MNLI", true, {"contradiction", "entailment", "neutral"}, Accuracy, true},
      {GlueTask::QNLI, "QNLI", true, kEntails, Accuracy, true},
      {GlueTask::RTE, "RTE", true, kEntails, Accuracy, true},
      {GlueTask::WNLI, "WNLI", true, kBits, Accuracy, false}};
  return all;
}

// Where a part keeps what. A column of -1 is not there.
struct Layout {
  std::size_t columns = 0;  // in the header and in every row
  bool header = true;
  int first = -1, second = -1, label = -1;
  const char *first_name = "", *second_name = "", *label_name = "";  // in the header
};

Layout layout_of(GlueTask task, GlueSplit split) {
  const bool train = split == GlueSplit::Train;
  const bool test = split == GlueSplit::Test || split == GlueSplit::TestMismatched;
  switch (task) {
    case GlueTask::CoLA:
      if (test) return {2, true, 1, -1, -1, "sentence"};
      return {4, false, 3, -1, 1};
    case GlueTask::SST2:
      if (test) return {2, true, 1, -1, -1, "sentence"};
      return {2, true, 0, -1, 1, "sentence", "", "label"};
    case GlueTask::MRPC:
      return {5, true, 3, 4, test ? -1 : 0, "#1 String", "#2 String", "Quality"};
    case GlueTask::QQP:
      if (test) return {3, true, 1, 2, -1, "question1", "question2"};
      return {6, true, 3, 4, 5, "question1", "question2", "is_duplicate"};
    case GlueTask::STSB:
      return {test ? 9U : 10U, true, 7, 8, test ? -1 : 9, "sentence1", "sentence2", "score"};
    case GlueTask::MNLI:
      if (test) return {10, true, 8, 9, -1, "sentence1", "sentence2"};
      return {train ? 12U : 16U, true, 8, 9, train ? 11 : 15, "sentence1", "sentence2", "gold_label"};
    case GlueTask::QNLI:
      return {test ? 3U : 4U, true, 1, 2, test ? -1 : 3, "question", "sentence", "label"};
    case GlueTask::RTE:
    case GlueTask::WNLI:
      return {test ? 3U : 4U, true, 1, 2, test ? -1 : 3, "sentence1", "sentence2", "label"};
  }
  throw Error("glue: unknown task");
}

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  for (std::size_t begin = 0;;) {
    const std::size_t tab = line.find('\t', begin);
    columns.push_back(line.substr(begin, tab == std::string_view::npos ? tab : tab - begin));
    if (tab == std::string_view::npos) return columns;
    begin = tab + 1;
  }
}

void check_header(const Layout& layout, const std::vector<std::string_view>& columns, const std::string& where) {
  const auto check = [&](int column, const char* name) {
    if (column < 0) return;
    const std::string_view found = columns[static_cast<std::size_t>(column)];
    if (found != name)
      throw Error(
          str(where, ": expected ", quote(name), " as column ", column, " of the header, found ", quote(found)));
  };
  check(layout.first, layout.first_name);
  check(layout.second, layout.second_name);
  check(layout.label, layout.label_name);
}

void read_label(const GlueInfo& info, std::string_view text, const std::string& where, GlueExample& example) {
  if (!info.regression()) {
    const auto found = std::find(info.labels.begin(), info.labels.end(), text);
    if (found == info.labels.end()) {
      std::string known;
      for (const std::string& label : info.labels) known += (known.empty() ? "" : ", ") + label;
      throw Error(str(where, ": expected a label of ", known, ", found ", quote(text, 40)));
    }
    example.label = found - info.labels.begin();
    return;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), example.score);
  if (error != std::errc() || end != text.data() + text.size() || !(example.score >= 0 && example.score <= 5))
    throw Error(str(where, ": expected a score from 0 to 5, found ", quote(text, 40)));
}

void add(GlueScore& score, const char* name, const Figure& figure) {
  score.values.emplace_back(name, figure.value);
  if (!figure.defined) score.warnings.push_back(str(name, " is not defined here and counts as 0"));
}

void finish(GlueScore& score) {
  score.member = 0;
  for (const auto& [name, value] : score.values) score.member += value / static_cast<double>(score.values.size());
}

}  // namespace

const GlueInfo& glue_info(GlueTask task) { return infos()[static_cast<std::size_t>(task)]; }

GlueTask glue_task_of(std::string_view name) {
  const auto lower = [](std::string_view text) {
    std::string result(text);
    for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
  };
  std::string known;
  for (const GlueInfo& info : infos()) {
    if (lower(info.name) == lower(name)) return info.task;
    known += (known.empty() ? "" : ", ") + info.name;
  }
  throw UsageError(str("a GLUE task is one of ", known, "; found ", quote(name, 40)));
}

std::string glue_file(GlueTask task, GlueSplit split) {
  const bool matched = task == GlueTask::MNLI;
  switch (split) {
    case GlueSplit::Train:
      return "train.tsv";
    case GlueSplit::Dev:
      return matched ? "dev_matched.tsv" : "dev.tsv";
    case GlueSplit::Test:
      return matched ? "test_matched.tsv" : "test.tsv";
    default:
      if (!matched) throw UsageError(str(glue_info(task).name, " has no mismatched part; MNLI has"));
      return split == GlueSplit::DevMismatched ? "dev_mismatched.tsv" : "test_mismatched.tsv";
  }
}

std::vector<GlueExample> glue_from_text(GlueTask task, GlueSplit split, std::string_view text,
                                        const std::string& source) {
  const GlueInfo& info = glue_info(task);
  const Layout layout = layout_of(task, split);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<GlueExample> examples;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string where = str(source, ":", ++number);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) throw Error(where + ": expected a row, found an empty line");
    if (find_invalid_utf8(line) != std::string_view::npos) throw Error(where + ": expected text in UTF-8");
    const std::vector<std::string_view> columns = columns_of(line);
    if (columns.size() != layout.columns)
      throw Error(str(where, ": expected ", layout.columns, " columns separated by tabs (", info.name, "), found ",
                      columns.size()));
    if (number == 1 && layout.header) {
      check_header(layout, columns, where);
      continue;
    }
    GlueExample example;
    example.first = columns[static_cast<std::size_t>(layout.first)];
    if (layout.second >= 0) example.second = columns[static_cast<std::size_t>(layout.second)];
    if (layout.label >= 0) read_label(info, columns[static_cast<std::size_t>(layout.label)], where, example);
    examples.push_back(std::move(example));
  }
  if (examples.empty()) throw Error(source + ": expected at least one row");
  return examples;
}

std::vector<GlueExample> load_glue(GlueTask task, GlueSplit split, const std::string& folder) {
  const std::string path = folder + "/" + glue_file(task, split);
  return glue_from_text(task, split, read_file(path), path);
}

GlueScore score_glue(GlueTask task, const std::vector<std::int64_t>& predicted, const std::vector<std::int64_t>& gold) {
  const GlueInfo& info = glue_info(task);
  GlueScore score;
  switch (info.metric) {
    case GlueMetric::Matthews:
      add(score, "matthews", matthews_of(predicted, gold));
      break;
    case GlueMetric::Accuracy:
      add(score, "accuracy", accuracy_of(predicted, gold));
      break;
    case GlueMetric::AccuracyAndF1:
      add(score, "accuracy", accuracy_of(predicted, gold));
      add(score, "f1", f1_of(predicted, gold));
      break;
    case GlueMetric::PearsonAndSpearman:
      throw Error(str("glue: ", info.name, " is a regression; its answers are numbers"));
  }
  finish(score);
  return score;
}

GlueScore score_glue(GlueTask task, const std::vector<double>& predicted, const std::vector<double>& gold) {
  if (!glue_info(task).regression()) throw Error(str("glue: the answers of ", glue_info(task).name, " are classes"));
  GlueScore score;
  add(score, "pearson", pearson_of(predicted, gold));
  add(score, "spearman", spearman_of(predicted, gold));
  finish(score);
  return score;
}

GlueMean glue_mean(const std::vector<std::pair<GlueTask, double>>& members) {
  GlueMean mean;
  std::array<bool, kGlueTasks> seen{};
  for (const auto& [task, value] : members) {
    bool& there = seen[static_cast<std::size_t>(task)];
    if (there) throw Error(str("glue: ", glue_info(task).name, " is there twice"));
    there = true;
    if (!glue_info(task).counted) continue;
    ++mean.tasks;
    mean.mean += value;
  }
  if (mean.tasks > 0) mean.mean /= static_cast<double>(mean.tasks);
  mean.complete = mean.tasks == 8;
  return mean;
}

}  // namespace torsor
