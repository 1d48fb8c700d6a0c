// The verdict in plain words: part of statistics.h.
#include "torsor/report/verdict.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "torsor/base/error.h"
#include "torsor/report/accuracy.h"
#include "torsor/report/groups.h"
#include "torsor/report/numbers.h"
#include "torsor/report/statistics.h"

namespace torsor::report {
namespace {

constexpr const char* kMetricName = "perplexity";
constexpr double kFlat = 0.05;             // the share of perplexity within which a curve counts as flat
constexpr std::size_t kReasonWidth = 120;  // columns of a reason; the run's own row has all of it

std::string in_brackets(const std::string& reason) {
  return reason.empty() ? "" : str(" (", shorten(one_line(reason), kReasonWidth), ")");
}

const SummaryRow* row_at(const Results& results, const std::string& encoding, const std::string& task,
                         std::int64_t length) {
  return find_summary(results, encoding, task, length, kMetricName);
}

std::string figure_at(const Results& results, const Best& best, const std::string& task, std::int64_t length) {
  const SummaryRow* row = row_at(results, best.encoding, task, length);
  return str(format_mean_sd(*row->mean, row->sd), " at ", length);
}

/// "rope is lowest ..., alibi at the longest ...": the sentence that answers which one to take.
std::string lowest(const Results& results, const std::string& task, std::int64_t home, bool home_is_training,
                   std::int64_t longest) {
  const auto best_home = best_of(results, task, home, kMetricName);
  const auto best_far = best_of(results, task, longest, kMetricName);
  const char* home_words = home_is_training ? "at the training length" : "at the shortest length";
  const auto part = [&](const Best& best, std::int64_t length) { return figure_at(results, best, task, length); };
  if (best_home && best_far && home != longest) {
    if (best_home->encoding == best_far->encoding) {
      return str(best_home->encoding, " has the lowest perplexity, both ", home_words, " (", part(*best_home, home),
                 ") and at the longest (", part(*best_far, longest), ").");
    }
    return str(best_home->encoding, " has the lowest perplexity ", home_words, " (", part(*best_home, home), "), ",
               best_far->encoding, " at the longest (", part(*best_far, longest), ").");
  }
  if (best_home)
    return str(best_home->encoding, " has the lowest perplexity ", home_words, " (", part(*best_home, home), ").");
  if (best_far) {
    return str(best_far->encoding, " has the lowest perplexity at the longest length (", part(*best_far, longest),
               ").");
  }
  return "No run gave a finite perplexity.";
}

/// Whether the lead at one length is shown, with its size.
std::string evidence(const Results& results, const std::string& task, std::int64_t length) {
  const auto best = best_of(results, task, length, kMetricName);
  if (!best || best->runner_up.empty()) return "";
  if (!best->lead) {
    return str("At ", length, " no difference shown between ", best->encoding, " and the runner-up ", best->runner_up,
               ": they share no seed.");
  }
  const std::string size = format_significant(std::abs(best->lead->mean), 2);
  const char* side = best->lead->mean < 0 ? " above " : " below ";
  if (best->pairs < kSeedsToShow) {
    if (best->lead->mean == 0) return str("At ", length, " ", best->encoding, " and ", best->runner_up, " are level.");
    return str("At ", length, " ", best->encoding, " is ", size, side, "the runner-up ", best->runner_up, ".");
  }
  const std::string interval = str("95 % interval ", format_interval(*best->lead));
  if (best->shown) {
    return str("At ", length, " the lead of ", best->encoding, " over the runner-up ", best->runner_up,
               " is shown: ", size, ", ", interval, ".");
  }
  return str("At ", length, " no difference shown between ", best->encoding, " and the runner-up ", best->runner_up,
             ": ", best->lead->mean < 0 ? "-" : "", size, ", ", interval, ".");
}

std::string change_words(double before, double after) {
  const double ratio = after / before;
  if (ratio >= 3) return str("times ", format_significant(ratio, 2));
  return str(ratio > 1 ? "+" : "-", format_significant(std::abs(ratio - 1) * 100, 2), " %");
}

/// A curve that does not stay flat.
struct Change {
  double ratio;
  std::string full;   // "rope from 7.41 to 10.4 (+41 %)"
  std::string brief;  // "rope (+41 %)"
};

/// The changes, largest first; where there are many, without the figures that the table has anyway.
std::string list_changes(std::vector<Change> changes) {
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::abs(std::log(a.ratio)) > std::abs(std::log(b.ratio));
  });
  std::vector<std::string> items;
  for (const Change& change : changes) items.push_back(changes.size() > 3 ? change.brief : change.full);
  return join_words(items);
}

/// Who stays flat, rises, falls, is no longer finite past the training length.
void add_shapes(const Results& results, const std::string& task, std::int64_t home,
                const std::vector<std::int64_t>& lengths, std::vector<std::string>& sentences) {
  std::vector<std::string> flat, lost;
  std::vector<Change> rising, falling;
  for (const std::string& encoding : encodings_of(results)) {
    const SummaryRow* start = row_at(results, encoding, task, home);
    const SummaryRow* end = nullptr;
    for (const std::int64_t length : lengths) {
      if (length <= home) continue;
      const SummaryRow* row = row_at(results, encoding, task, length);
      if (row == nullptr) continue;
      if (!row->mean) {
        lost.push_back(str(encoding, " at ", length));
        end = nullptr;
        break;
      }
      end = row;
    }
    if (start == nullptr || !start->mean || end == nullptr) continue;
    const double before = *start->mean, after = *end->mean;
    const std::string where = end->length == lengths.back() ? "" : str(" at ", end->length);
    const std::string size = str(" (", change_words(before, after), ")");
    const Change change{after / before,
                        str(encoding, " from ", format_mean_short(before, start->sd), " to ",
                            format_mean_short(after, end->sd), where, size),
                        str(encoding, where, size)};
    if (after > before * (1 + kFlat)) {
      rising.push_back(change);
    } else if (after < before * (1 - kFlat)) {
      falling.push_back(change);
    } else {
      flat.push_back(end->length == lengths.back() ? encoding : str(encoding, " (to ", end->length, ")"));
    }
  }
  if (!flat.empty()) {
    sentences.push_back(str("Flat up to ", lengths.back(), " (within ", kFlat * 100, " % of the perplexity at ", home,
                            "): ", join_words(flat), "."));
  }
  if (!rising.empty()) sentences.push_back(str("Rising by ", lengths.back(), ": ", list_changes(rising), "."));
  if (!falling.empty()) sentences.push_back(str("Falling by ", lengths.back(), ": ", list_changes(falling), "."));
  if (!lost.empty()) sentences.push_back(str("No longer finite: ", join_words(lost), "."));
}

}  // namespace

std::string join_words(const std::vector<std::string>& items, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? last : ", ";
    text += items[i];
  }
  return text;
}

std::string seeds_sentence(std::size_t seeds) {
  if (seeds == 1)
    return str("One seed only shows direction: no difference counts as shown with fewer than ", kSeedsToShow,
               " seeds.");
  return str(seeds, " seeds only show direction: no difference counts as shown with fewer than ", kSeedsToShow, ".");
}

std::string leaks_sentence(const Results& results, const std::string& task) {
  std::vector<std::string> leaking;
  for (const std::string& encoding : encodings_of(results)) {
    const bool leaks = std::any_of(results.runs.begin(), results.runs.end(), [&](const Run& run) {
      return run.encoding == encoding && std::any_of(run.eval.begin(), run.eval.end(),
                                                     [&](const Eval& eval) { return eval.task == task && eval.leaks; });
    });
    if (leaks) leaking.push_back(encoding);
  }
  if (leaking.empty()) return "";
  return str("Not compared, since its inputs tell of later words: ", join_words(leaking), ".");
}

void add_refusals(const Results& results, const std::string& task, const std::vector<std::int64_t>& lengths,
                  std::vector<std::string>& sentences) {
  std::vector<std::string> refusing, failing, stopped;
  for (const std::string& encoding : encodings_of(results)) {
    std::set<std::int64_t> refused;
    std::string reason;
    for (const Run& run : results.runs) {
      if (run.encoding != encoding) continue;
      if (run.status == Status::failed)
        failing.push_back(str(encoding, " with seed ", run.seed, in_brackets(run.reason)));
      if (run.status == Status::stopped) stopped.push_back(str(encoding, " with seed ", run.seed));
      if (run.status == Status::refused) {
        refused.insert(lengths.begin(), lengths.end());
        if (reason.empty()) reason = run.reason;
      }
      for (const Eval& eval : run.eval) {
        if (eval.task != task || run.status != Status::ok) continue;
        if (eval.status == Status::refused) {
          refused.insert(eval.length);
          if (reason.empty()) reason = eval.reason;
        }
        if (eval.status == Status::failed) {
          failing.push_back(str(encoding, " with seed ", run.seed, " at ", eval.length, in_brackets(eval.reason)));
        }
      }
    }
    if (refused.empty() && reason.empty()) continue;
    std::vector<std::string> which;
    for (const std::int64_t length : refused) which.push_back(str(length));
    const bool all_above = !refused.empty() && std::all_of(lengths.begin(), lengths.end(), [&](std::int64_t length) {
      return length < *refused.begin() || refused.count(length) != 0;
    });
    if (refused.empty() || (all_above && *refused.begin() == lengths.front())) {
      refusing.push_back(str(encoding, " every length", in_brackets(reason)));
    } else if (all_above && refused.size() > 1) {
      refusing.push_back(str(encoding, " ", *refused.begin(), " and longer", in_brackets(reason)));
    } else {
      refusing.push_back(str(encoding, " ", join_words(which), in_brackets(reason)));
    }
  }
  if (!refusing.empty()) sentences.push_back(str("Refused: ", join_words(refusing, "; "), "."));
  if (!stopped.empty()) sentences.push_back(str("Stopped by the perplexity gate: ", join_words(stopped, "; "), "."));
  if (!failing.empty()) sentences.push_back(str("Failed: ", join_words(failing, "; "), "."));
}

std::vector<std::string> verdict_sentences(const Results& results, const std::string& task) {
  std::vector<std::string> sentences;
  const std::vector<std::int64_t> lengths = lengths_of(results, task);
  if (results.runs.empty()) return {"Nothing was run."};
  if (lengths.empty()) {
    sentences.push_back("No run was evaluated.");
    add_refusals(results, task, lengths, sentences);
    return sentences;
  }
  if (scored_by_accuracy(results, task)) {
    const bool grouped = !groups_of(results, task).empty();
    sentences = grouped ? group_verdict(results, task) : accuracy_verdict(results, task);
    add_refusals(results, task, lengths, sentences);
    return sentences;
  }
  const std::int64_t trained = training_length(results);
  const bool evaluated = std::binary_search(lengths.begin(), lengths.end(), trained);
  const std::int64_t home = evaluated ? trained : lengths.front();
  const std::int64_t longest = lengths.back();

  sentences.push_back(lowest(results, task, home, evaluated, longest));
  const std::size_t seeds = seeds_of(results).size();
  if (encodings_of(results).size() == 1) {
    sentences.push_back("Only one encoding was run: there is nothing to compare it with.");
  } else {
    if (seeds < static_cast<std::size_t>(kSeedsToShow)) sentences.push_back(seeds_sentence(seeds));
    for (const std::int64_t length : std::set<std::int64_t>{home, longest}) {
      if (std::string sentence = evidence(results, task, length); !sentence.empty())
        sentences.push_back(std::move(sentence));
    }
  }
  add_shapes(results, task, home, lengths, sentences);
  if (std::string leaking = leaks_sentence(results, task); !leaking.empty()) sentences.push_back(std::move(leaking));
  add_refusals(results, task, lengths, sentences);
  return sentences;
}

}  // namespace torsor::report
