#include "torsor/report/syntax_pairs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/encoding/expression.h"
#include "torsor/report/numbers.h"
#include "torsor/report/statistics.h"

namespace torsor::report {
namespace {

// Quantiles of Student's t distribution, 97.5 %, 1 to 30 degrees of freedom.
constexpr std::array<double, 30> kStudent = {12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060,
                                             2.2622,  2.2281, 2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199,
                                             2.1098,  2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639,
                                             2.0595,  2.0555, 2.0518, 2.0484, 2.0452, 2.0423};

/// "E @ CONTROL" as its two parts.
std::pair<std::string, std::string> label_parts(const std::string& label) {
  const std::size_t at = label.find(" @ ");
  if (at == std::string::npos) return {label, ""};
  return {label.substr(0, at), label.substr(at + 3)};
}

/// What an encoding is compared with; empty for one without syntax, or no expression at all.
std::string base_of(const std::string& expression) {
  try {
    const Expression tree = parse_grammar(expression);
    const std::string base = print(unwrapped(tree, "sipe"));
    return base == print(tree) ? "" : base;
  } catch (const UsageError&) {
    return "";
  }
}

struct Figure {
  std::string name;
  double value = 0;
  bool percent = false;  ///< differences are relative
};

/// The figures of a run, in the order of its evaluations.
std::vector<Figure> figures_of(const Run& run) {
  std::vector<Figure> figures;
  for (const Eval& eval : run.eval) {
    if (eval.status != Status::ok) continue;
    if (eval.task == "lm" && (eval.perplexity || eval.joint_perplexity))
      figures.push_back(
          {str("perplexity at ", eval.length), eval.perplexity ? *eval.perplexity : *eval.joint_perplexity, true});
    else if (eval.task != "lm" && eval.accuracy)
      figures.push_back({str(eval.task, eval.score ? " score" : " accuracy"), 100 * *eval.accuracy, false});
  }
  return figures;
}

bool leaks(const Run& run) { return run.syntax && run.syntax->leaks; }

void add_pairs(std::vector<SyntaxPair>& pairs, const Results& results, const std::string& encoding,
               const std::string& beside) {
  std::vector<SyntaxPair> found;
  for (const Run& run : results.runs) {
    if (run.encoding != encoding) continue;
    for (const Run& other : results.runs) {
      if (other.encoding != beside || other.seed != run.seed) continue;
      const std::vector<Figure> ours = figures_of(run), theirs = figures_of(other);
      for (const Figure& one : ours)
        for (const Figure& two : theirs) {
          if (one.name != two.name) continue;
          std::string name = one.name + (one.percent ? " (%)" : " (points)");
          if (one.percent && leaks(run)) name = (leaks(other) ? "joint " : "joint beside plain ") + name;
          auto place =
              std::find_if(found.begin(), found.end(), [&](const SyntaxPair& pair) { return pair.figure == name; });
          if (place == found.end()) place = found.insert(found.end(), {encoding, beside, name, {}, 0, {}, {}});
          place->differences.push_back(one.percent ? 100 * (one.value / two.value - 1) : one.value - two.value);
        }
    }
  }
  for (SyntaxPair& pair : found) {
    pair.mean = mean_of(pair.differences);
    pair.sd = sd_of(pair.differences);
    if (pair.sd)
      pair.smallest = *student_quantile(pair.differences.size() - 1) * *pair.sd /
                      std::sqrt(static_cast<double>(pair.differences.size()));
    pairs.push_back(std::move(pair));
  }
}

}  // namespace

std::optional<double> student_quantile(std::size_t freedom) {
  if (freedom == 0) return std::nullopt;
  return freedom <= kStudent.size() ? kStudent[freedom - 1] : 1.96;
}

std::vector<SyntaxPair> syntax_pairs(const Results& results) {
  const std::vector<std::string> encodings = encodings_of(results);
  const std::set<std::string> known(encodings.begin(), encodings.end());
  std::vector<SyntaxPair> pairs;
  for (const std::string& label : encodings) {
    const auto [expression, control] = label_parts(label);
    const std::string base = base_of(expression);
    if (base.empty()) continue;
    if (known.count(base) > 0) add_pairs(pairs, results, label, base);
    if (!control.empty()) continue;
    for (const std::string& other : encodings)
      if (const auto [same, its] = label_parts(other); same == expression && !its.empty())
        add_pairs(pairs, results, label, other);
  }
  return pairs;
}

std::vector<std::vector<std::string>> syntax_pair_rows(const Results& results) {
  std::vector<std::vector<std::string>> rows;
  const auto signed_text = [](double value) {
    const std::string text = format_decimals(value, 2);
    return (value > 0 && text != "0.00" ? "+" : "") + text;
  };
  for (const SyntaxPair& pair : syntax_pairs(results)) {
    if (rows.empty())
      rows.push_back({"encoding", "beside", "difference of", "seeds", "mean", "sd", "95 %",
                      "smallest that could be shown", "shown"});
    rows.push_back({pair.encoding, pair.beside, pair.figure, str(pair.differences.size()), signed_text(pair.mean),
                    pair.sd ? format_decimals(*pair.sd, 2) : "-",
                    pair.smallest
                        ? str(signed_text(pair.mean - *pair.smallest), " to ", signed_text(pair.mean + *pair.smallest))
                        : "-",
                    pair.smallest ? format_decimals(*pair.smallest, 2) : "-",
                    static_cast<std::int64_t>(pair.differences.size()) < kSeedsToShow ? "too few seeds"
                    : pair.shown()                                                    ? "yes"
                                                                                      : "no"});
  }
  return rows;
}

}  // namespace torsor::report
