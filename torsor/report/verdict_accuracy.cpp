// The verdict of tasks scored by accuracy: part of verdict.h.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "torsor/base/error.h"
#include "torsor/report/accuracy.h"
#include "torsor/report/numbers.h"
#include "torsor/report/statistics.h"
#include "torsor/report/verdict.h"

namespace torsor::report {
namespace {

constexpr std::size_t kMostNames = 4;  // of encodings that are level

const Pool* find_pool(const std::vector<Pool>& pools, const char* metric) {
  const auto found =
      std::find_if(pools.begin(), pools.end(), [metric](const Pool& pool) { return pool.metric == metric; });
  return found == pools.end() ? nullptr : &*found;
}

/// "up to 6 digits" inside, "at 7 to 12 digits" beyond.
std::string range_words(const Pool& pool, const std::string& unit) {
  if (pool.metric == kAccuracyInside) return str("up to ", pool.lengths.back(), ' ', unit);
  if (pool.lengths.size() == 1) return str("at ", pool.lengths.front(), ' ', unit);
  return str("at ", pool.lengths.front(), " to ", pool.lengths.back(), ' ', unit);
}

const SummaryRow* pool_row(const Results& results, const std::string& encoding, const std::string& task,
                           const Pool& pool) {
  return find_summary(results, encoding, task, pool.lengths.back(), pool.metric);
}

/// Who is highest in a pool: one encoding, or several that are level.
struct Leaders {
  std::vector<std::string> names;
  const SummaryRow* row = nullptr;  // of the first
};

Leaders leaders_of(const Results& results, const std::string& task, const Pool* pool) {
  Leaders leaders;
  if (pool == nullptr) return leaders;
  const auto best = best_of(results, task, pool->lengths.back(), pool->metric);
  if (!best) return leaders;
  leaders.row = pool_row(results, best->encoding, task, *pool);
  for (const std::string& encoding : encodings_of(results)) {
    const SummaryRow* row = pool_row(results, encoding, task, *pool);
    if (row != nullptr && row->mean && *row->mean == *leaders.row->mean) leaders.names.push_back(encoding);
  }
  return leaders;
}

std::string names_words(std::vector<std::string> names) {
  if (names.size() > kMostNames) {
    const std::size_t others = names.size() - kMostNames + 1;
    names.resize(kMostNames - 1);
    names.push_back(str(others, " others"));
  }
  return join_words(names);
}

/// "rope has the highest accuracy inside the trained lengths (...), alibi beyond them (...)."
std::string highest(const std::string& task, const Leaders& inside, const Pool* inside_pool, const Leaders& beyond,
                    const Pool* beyond_pool) {
  const std::string unit = length_unit(task);
  const auto figure = [&](const Leaders& leaders, const Pool& pool) {
    return str('(', format_percent(*leaders.row), ' ', range_words(pool, unit), ')');
  };
  const auto leads = [](const Leaders& leaders) {
    return names_words(leaders.names) + (leaders.names.size() > 1 ? " are level with" : " has") +
           " the highest accuracy";
  };
  const auto solved = [](const Leaders& leaders) { return leaders.row != nullptr && *leaders.row->mean > 0; };
  if (!inside.row && !beyond.row) return "No run gave an accuracy at all lengths.";
  if (!solved(inside) && !solved(beyond)) return "No encoding solved a single problem.";
  const std::string nothing_beyond =
      beyond.row != nullptr ? str("no encoding solves a problem beyond them (", range_words(*beyond_pool, unit), ")")
                            : "";
  if (!solved(beyond)) {
    const std::string first = leads(inside) + " inside the trained lengths " + figure(inside, *inside_pool);
    return first + (nothing_beyond.empty() ? "." : "; " + nothing_beyond + ".");
  }
  if (!solved(inside)) return leads(beyond) + " beyond the trained lengths " + figure(beyond, *beyond_pool) + ".";
  if (inside.names == beyond.names) {
    return leads(inside) + ", both inside the trained lengths " + figure(inside, *inside_pool) + " and beyond them " +
           figure(beyond, *beyond_pool) + ".";
  }
  return leads(inside) + " inside the trained lengths " + figure(inside, *inside_pool) + ", " +
         names_words(beyond.names) + " beyond them " + figure(beyond, *beyond_pool) + ".";
}

/// Whether the lead in a pool is shown, with its size in percentage points.
std::string evidence(const Results& results, const std::string& task, const Pool& pool) {
  const auto best = best_of(results, task, pool.lengths.back(), pool.metric);
  if (!best || best->runner_up.empty()) return "";
  const std::string where =
      pool.metric == kAccuracyInside ? "Inside the trained lengths " : "Beyond the trained lengths ";
  const std::string no_difference =
      str(where, "no difference shown between ", best->encoding, " and the runner-up ", best->runner_up);
  if (!best->lead) return no_difference + ": they share no seed.";
  // The lead is the runner-up minus the best: turned round, it is how much the best is ahead.
  const double ahead = -100 * best->lead->mean;
  if (ahead == 0) return str(where, best->encoding, " and ", best->runner_up, " are level.");
  const std::string size = format_significant(std::abs(ahead), 2) + (std::abs(ahead) == 1 ? " point" : " points");
  if (best->pairs < kSeedsToShow) {
    return str(where, best->encoding, " is ", size, ahead < 0 ? " below " : " above ", "the runner-up ",
               best->runner_up, ".");
  }
  Interval interval{ahead, std::nullopt, std::nullopt};
  if (best->lead->low && best->lead->high) {
    interval.low = -100 * *best->lead->high;
    interval.high = -100 * *best->lead->low;
  }
  const std::string ends = ", 95 % interval " + format_interval(interval);
  if (best->shown) {
    return str(where, "the lead of ", best->encoding, " over the runner-up ", best->runner_up, " is shown: ", size,
               ends, ".");
  }
  return str(no_difference, ": ", ahead < 0 ? "-" : "", size, ends, ".");
}

/// Encodings that learned the task, and the others with what they reach.
struct Learned {
  std::vector<std::string> yes;
  std::vector<std::string> no;
};

Learned learned_of(const Results& results, const std::string& task, const Pool& inside) {
  Learned learned;
  for (const std::string& encoding : encodings_of(results)) {
    const SummaryRow* row = pool_row(results, encoding, task, inside);
    if (row == nullptr || !row->mean) continue;
    if (*row->mean >= kLearned) {
      learned.yes.push_back(encoding);
    } else {
      learned.no.push_back(str(encoding, " (", format_percent(*row), ")"));
    }
  }
  return learned;
}

std::string threshold() { return str(std::lround(100 * kLearned), " %"); }

/// Which of those that learned the task still solve it beyond, length after length.
void add_holding(const Results& results, const std::string& task, const std::vector<std::string>& learned,
                 const Pool& beyond, std::vector<std::string>& sentences) {
  const std::string unit = length_unit(task);
  std::vector<std::string> all, part;
  for (const std::string& encoding : learned) {
    std::int64_t last = 0;
    for (const std::int64_t length : beyond.lengths) {
      const SummaryRow* row = find_summary(results, encoding, task, length, kAccuracy);
      if (row == nullptr || !row->mean || *row->mean < kLearned) break;
      last = length;
    }
    if (last == beyond.lengths.back()) {
      all.push_back(encoding);
    } else if (last > 0) {
      part.push_back(str(encoding, " to ", last));
    }
  }
  if (!all.empty()) {
    sentences.push_back(str("At least ", threshold(), " at every length up to ", beyond.lengths.back(), ' ', unit, ": ",
                            join_words(all), "."));
  }
  if (!part.empty()) {
    sentences.push_back(
        str("At least ", threshold(), " some way beyond the trained lengths: ", join_words(part), ' ', unit, "."));
  }
  if (all.empty() && part.empty() && !learned.empty()) {
    sentences.push_back(str("No encoding keeps ", threshold(), " at ", beyond.lengths.front(), ' ', unit,
                            ", the first length beyond."));
  }
}

/// What guessing would reach; empty for a task that is not known here.
std::string chance_sentence(const std::string& task) {
  // The sum of two numbers of n digits has 9 * 10^(n-1) equally likely summands that lead to its most frequent value,
  // of (9 * 10^(n-1))^2 pairs: the best blind guess is right in 1 of 9 * 10^(n-1).
  if (task == "addition") return "Chance level: 11 % at one digit, and a tenth of that with each further digit.";
  if (task == "passkey") return "Chance level: next to 0 %, since every digit of the key must be right.";
  return "";
}

}  // namespace

std::vector<std::string> accuracy_verdict(const Results& results, const std::string& task) {
  std::vector<std::string> sentences;
  const std::vector<Pool> pools = pools_of(results, task);
  const Pool* inside = find_pool(pools, kAccuracyInside);
  const Pool* beyond = find_pool(pools, kAccuracyBeyond);
  const Leaders best_inside = leaders_of(results, task, inside);
  const Leaders best_beyond = leaders_of(results, task, beyond);
  const std::size_t encodings = encodings_of(results).size();
  const Learned learned = inside != nullptr ? learned_of(results, task, *inside) : Learned{};

  // A table of models that have not learned the task compares accidents: that must be read before any figure.
  if (best_inside.row != nullptr && learned.yes.size() < std::min<std::size_t>(encodings, 2)) {
    std::string text = "This table shows nothing yet: ";
    text += learned.yes.empty() ? "no encoding reaches " : str("only ", learned.yes.front(), " reaches ");
    text += threshold() + " inside the trained lengths";
    if (learned.yes.empty()) text += str(" (the highest is ", format_percent(*best_inside.row), ")");
    sentences.push_back(text + "; more steps or shorter problems may help.");
  }
  sentences.push_back(highest(task, best_inside, inside, best_beyond, beyond));
  if (encodings == 1) {
    sentences.push_back("Only one encoding was run: there is nothing to compare it with.");
  } else {
    const std::size_t seeds = seeds_of(results).size();
    if (seeds < static_cast<std::size_t>(kSeedsToShow)) sentences.push_back(seeds_sentence(seeds));
    for (const Pool* pool : {inside, beyond}) {
      if (pool == nullptr) continue;
      if (std::string sentence = evidence(results, task, *pool); !sentence.empty()) sentences.push_back(sentence);
    }
  }
  if (!learned.yes.empty()) {
    sentences.push_back(str("At least ", threshold(), " inside the trained lengths: ", join_words(learned.yes), "."));
  }
  if (!learned.no.empty()) {
    sentences.push_back(str("Below ", threshold(), " inside the trained lengths: ", join_words(learned.no),
                            ". What these reach beyond says nothing about their encoding."));
  }
  if (beyond != nullptr) add_holding(results, task, learned.yes, *beyond, sentences);
  if (std::string chance = chance_sentence(task); !chance.empty()) sentences.push_back(std::move(chance));
  return sentences;
}

}  // namespace torsor::report
