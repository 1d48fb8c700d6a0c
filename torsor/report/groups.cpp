#include "torsor/report/groups.h"

#include <algorithm>
#include <cmath>

#include "torsor/base/error.h"
#include "torsor/report/accuracy.h"
#include "torsor/report/numbers.h"
#include "torsor/report/statistics.h"
#include "torsor/report/verdict.h"

namespace torsor::report {
namespace {

// What the groups of a task are and what they count.
struct Words {
  const char* group;
  const char* counted;
  const char* mean;  // what the figure over all is the mean of
};

Words words_of(const std::string& task) {
  if (task == "syntax") return {"circuit", "suites", "suites"};
  if (task == "blimp") return {"linguistic term", "paradigms", "paradigms"};
  if (task == "glue") return {"task", "examples", "tasks that count"};
  return {"group", "problems", "groups"};
}

std::int64_t length_of(const Results& results, const std::string& task) { return lengths_of(results, task).front(); }

FigureCell cell_of(const Results& results, const std::string& encoding, const std::string& task,
                   const std::string& metric) {
  const std::int64_t length = length_of(results, task);
  FigureCell cell;
  const SummaryRow* row = find_summary(results, encoding, task, length, metric);
  if (row != nullptr && row->mean) {
    cell.mean = row->mean;
    cell.text = format_percent(*row->mean, row->sd);
    cell.spread = format_percent_spread(row->sd);
    return cell;
  }
  for (const Run& run : results.runs) {
    if (run.encoding != encoding) continue;
    const Eval* eval = find_eval(run, task, length);
    const Status status = eval != nullptr ? eval->status : run.status;
    if (status == Status::ok || !cell.text.empty()) continue;
    cell.text = status_name(status);
    cell.reason = eval != nullptr ? eval->reason : run.reason;
  }
  return cell;
}

bool is_leaking(const Results& results, const std::string& encoding, const std::string& task) {
  return std::any_of(results.runs.begin(), results.runs.end(), [&](const Run& run) {
    return run.encoding == encoding && std::any_of(run.eval.begin(), run.eval.end(),
                                                   [&](const Eval& eval) { return eval.task == task && eval.leaks; });
  });
}

/// Encodings that share the highest mean of a metric, and that mean's row.
std::pair<std::vector<std::string>, const SummaryRow*> leaders(const Results& results, const std::string& task,
                                                               const std::string& metric) {
  const auto best = best_of(results, task, length_of(results, task), metric);
  if (!best) return {{}, nullptr};
  const SummaryRow* top = find_summary(results, best->encoding, task, length_of(results, task), metric);
  std::vector<std::string> names;
  for (const SummaryRow& row : results.summary)
    if (row.task == task && row.metric == metric && row.mean && !row.leaks && *row.mean == *top->mean)
      names.push_back(row.encoding);
  return {names, top};
}

std::string points(double value) {
  return format_significant(std::abs(value), 2) + (std::abs(value) == 1 ? " point" : " points");
}

/// Whether the lead over all is shown, and how small a lead could have been.
void add_evidence(const Results& results, const std::string& task, const std::string& metric,
                  std::vector<std::string>& sentences) {
  const auto best = best_of(results, task, length_of(results, task), metric);
  if (!best || best->runner_up.empty() || !best->lead) return;
  const double ahead = -100 * best->lead->mean;
  if (best->pairs < kSeedsToShow) {
    if (ahead != 0)
      sentences.push_back(str(best->encoding, " is ", points(ahead), " above the runner-up ", best->runner_up, "."));
    return;
  }
  if (!best->lead->low || !best->lead->high) return;
  const Interval interval{ahead, -100 * *best->lead->high, -100 * *best->lead->low};
  sentences.push_back(str(best->shown ? "The lead of " : "No difference shown between ", best->encoding,
                          best->shown ? " over the runner-up " : " and the runner-up ", best->runner_up,
                          best->shown ? " is shown: " : ": ", points(ahead), ", 95 % interval ",
                          format_interval(interval), "."));
  const double half = (*interval.high - *interval.low) / 2;
  if (half > 0)
    sentences.push_back(
        str("With these seeds and problems a difference below about ", points(half), " could not have been shown."));
}

std::string group_chance_sentence(const std::string& task) {
  if (task == "syntax")
    return "Chance level: a half where one relation must hold, a quarter where two must, an eighth where three must.";
  if (task == "blimp") return "Chance level: 50 %.";
  return "";
}

}  // namespace

std::vector<EvalGroup> groups_of(const Results& results, const std::string& task) {
  for (const Run& run : results.runs)
    for (const Eval& eval : run.eval)
      if (eval.task == task && !eval.groups.empty()) return eval.groups;
  return {};
}

std::string group_metric(const std::string& headline, const std::string& group) { return headline + ": " + group; }

GroupTable group_table(const Results& results, const std::string& task) {
  const std::string headline = headline_metric(results, task);
  const Words words = words_of(task);
  const std::vector<EvalGroup> groups = groups_of(results, task);
  GroupTable table;
  table.title = str(headline == kScore ? "Score" : "Accuracy", " by ", words.group, ": ", task);
  table.note = str("In %, higher is better: mean and standard deviation over seeds; in brackets the number of ",
                   words.counted, ". \"All\" is the mean over the ", words.mean,
                   ". A number is bold only where the 95 % interval of its lead over the runner-up excludes zero, with "
                   "three seeds or more.");
  table.columns.push_back("all");
  for (const EvalGroup& group : groups) table.columns.push_back(str(group.name, " (", group.count, ")"));
  std::vector<std::string> metrics = {headline};
  for (const EvalGroup& group : groups) metrics.push_back(group_metric(headline, group.name));
  for (const std::string& encoding : encodings_of(results)) {
    FigureRow& row = table.rows.emplace_back();
    row.encoding = encoding + (is_leaking(results, encoding, task) ? " (leaks, not compared)" : "");
    for (const std::string& metric : metrics) {
      FigureCell cell = cell_of(results, encoding, task, metric);
      const auto best = best_of(results, task, length_of(results, task), metric);
      cell.best = best && best->shown && best->encoding == encoding;
      row.cells.push_back(std::move(cell));
    }
  }
  return table;
}

std::string group_text(const Results& results, const std::string& task) {
  const GroupTable table = group_table(results, task);
  const Words words = words_of(task);
  const std::size_t seeds = seeds_of(results).size();
  std::vector<std::vector<std::string>> rows(1);
  rows[0].push_back("encoding");
  rows[0].insert(rows[0].end(), table.columns.begin(), table.columns.end());
  bool marked = false;
  std::string reasons;
  const std::vector<std::string> names = shown_names(table.rows, 60);
  for (const FigureRow& row : table.rows) {
    std::vector<std::string>& cells = rows.emplace_back();
    cells.push_back(names[rows.size() - 2]);
    for (const FigureCell& cell : row.cells) {
      marked = marked || cell.best;
      cells.push_back(cell_text(cell) + (cell.best ? "*" : ""));
    }
    if (const FigureCell& all = row.cells.front(); !all.reason.empty())
      reasons += str(one_line(row.encoding), ": ", all.text, ", ", one_line(all.reason), '\n');
  }
  std::string text =
      str(task, ": ", headline_metric(results, task), " in %, the mean over the ", words.mean, " and by ", words.group,
          " (number of ", words.counted, "), ", seeds, seeds == 1 ? " seed" : " seeds (mean \u00b1 sd)", '\n');
  text += align_columns(rows);
  if (marked) text += "* the 95 % interval of its lead over the runner-up excludes zero\n";
  return text + reasons;
}

std::vector<std::string> group_verdict(const Results& results, const std::string& task) {
  const std::string headline = headline_metric(results, task);
  const Words words = words_of(task);
  std::vector<std::string> sentences;
  const auto [names, top] = leaders(results, task, headline);
  if (top == nullptr) {
    sentences.push_back(str("No run gave a ", headline, " that can be compared."));
  } else {
    sentences.push_back(str(join_words(names), names.size() > 1 ? " are level with" : " has", " the highest mean ",
                            headline, " over ", words.mean, " (", format_percent(*top), ")."));
    const std::size_t seeds = seeds_of(results).size();
    if (encodings_of(results).size() == 1) {
      sentences.push_back("Only one encoding was run: there is nothing to compare it with.");
    } else {
      if (seeds < static_cast<std::size_t>(kSeedsToShow)) sentences.push_back(seeds_sentence(seeds));
      add_evidence(results, task, headline, sentences);
      std::vector<std::string> parts;
      for (const EvalGroup& group : groups_of(results, task)) {
        const auto [best, row] = leaders(results, task, group_metric(headline, group.name));
        if (row != nullptr) parts.push_back(str(group.name, " ", join_words(best), " (", format_percent(*row), ")"));
      }
      // Many groups would make a sentence that nobody reads; the table has them all.
      if (parts.size() > 1 && parts.size() <= 9)
        sentences.push_back(str("Highest by ", words.group, ": ", join_words(parts, ", "), "."));
    }
  }
  if (std::string leaking = leaks_sentence(results, task); !leaking.empty()) sentences.push_back(std::move(leaking));
  if (std::string chance = group_chance_sentence(task); !chance.empty()) sentences.push_back(std::move(chance));
  return sentences;
}

}  // namespace torsor::report
