#include "torsor/report/syntax_table.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/report/numbers.h"
#include "torsor/report/syntax_pairs.h"
#include "torsor/report/table.h"

namespace torsor::report {
namespace {

std::string percent(double share) { return format_decimals(100 * share, 1) + " %"; }

/// "fail: s = 0" and the like.
std::string gate_word(const SyntaxDomain& domain) { return domain.verdict + (domain.fed ? "" : ": no syntax"); }

std::string gate_of(const Run& run) {
  if (run.syntax->gate != "asked") return "gate: " + run.syntax->gate;
  const auto open = std::count_if(run.syntax->domains.begin(), run.syntax->domains.end(),
                                  [](const SyntaxDomain& domain) { return domain.fed; });
  return str(open, " of ", run.syntax->domains.size(), run.syntax->domains.size() == 1 ? " domain" : " domains",
             " fed");
}

/// The perplexity gate over all seeds of an encoding: "seed 0 watched +0.3 %".
std::string watch_of(const Results& results, const std::string& encoding, bool several) {
  std::string text;
  for (const Run& run : results.runs) {
    if (run.encoding != encoding || run.watch.empty()) continue;
    text += str(text.empty() ? "" : "; ", several ? str("seed ", run.seed, " ") : "", run.watch);
    if (run.watch_rise) text += str(*run.watch_rise < 0 ? " " : " +", percent(*run.watch_rise));
  }
  return text.empty() ? "not asked" : text;
}

}  // namespace

SyntaxTable syntax_table(const Results& results) {
  SyntaxTable table;
  std::vector<std::string> unverified;
  for (const std::string& encoding : encodings_of(results)) {
    const auto run = std::find_if(results.runs.begin(), results.runs.end(),
                                  [&](const Run& one) { return one.encoding == encoding && one.syntax; });
    if (run == results.runs.end()) continue;
    if (table.rows.empty())
      table.rows.push_back({"encoding", "mode", "prior", "parser", "parser's gate", "coverage", "repaired",
                            "tokens of several words", "perplexity gate"});
    const SyntaxBlock& syntax = *run->syntax;
    table.rows.push_back({encoding, syntax.mode + (syntax.leaks ? " (leaks)" : ""), syntax.prior, syntax.parser,
                          gate_of(*run), syntax.coverage ? percent(*syntax.coverage) : "-",
                          str(syntax.repaired, " of ", syntax.sentences,
                              syntax.unparsed > 0 ? str(", ", syntax.unparsed, " unparsed") : ""),
                          str(syntax.multi_word_tokens), watch_of(results, encoding, seeds_of(results).size() > 1)});
    for (const SyntaxDomain& domain : syntax.domains) {
      if (table.domains.empty())
        table.domains.push_back({"encoding", "domain", "UAS", "95 %", "LAS", "words", "asked for", "gate"});
      const auto figure = [](const std::optional<double>& value) { return value ? format_decimals(*value, 1) : "-"; };
      table.domains.push_back({encoding, domain.name.empty() ? "(none named)" : domain.name, figure(domain.uas),
                               domain.low && domain.high ? figure(domain.low) + " to " + figure(domain.high) : "-",
                               figure(domain.las), domain.words ? str(*domain.words) : "-",
                               domain.threshold ? str("above ", format_decimals(*domain.threshold, 1)) : "-",
                               gate_word(domain)});
      if (domain.verdict == "unverified")
        unverified.push_back(domain.name.empty() ? "text without a domain" : domain.name);
    }
    if (syntax.leaks)
      table.notes.push_back(str(encoding, ": its tags tell of later words; its cond_ppl is no perplexity."));
    if (syntax.sentences > 0 && syntax.repaired * 100 > syntax.sentences)
      table.notes.push_back(str(encoding, ": more than one sentence in a hundred had to be repaired."));
    if (syntax.multi_word_tokens * 20 > syntax.tokens && syntax.tokens > 0)
      table.notes.push_back(str(encoding, ": more than one token in twenty covers several words."));
  }
  std::sort(unverified.begin(), unverified.end());
  unverified.erase(std::unique(unverified.begin(), unverified.end()), unverified.end());
  for (const std::string& name : unverified)
    table.notes.push_back(str("Nobody knows how good the parser is on ", name, ": it was allowed unverified."));
  for (const Run& run : results.runs)
    if (run.status == Status::stopped)
      table.notes.push_back(str(run.encoding, " seed ", run.seed, " was stopped: ", run.reason));
  return table;
}

std::string syntax_text(const Results& results) {
  const SyntaxTable table = syntax_table(results);
  if (table.rows.empty()) return "";
  const auto shown = [](std::vector<std::vector<std::string>> rows) {
    std::vector<std::string> names;
    for (const auto& row : rows) names.push_back(one_line(row.front()));
    names = shorten_apart(names, 60);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::string& cell : rows[r]) cell = shorten(one_line(cell), 60);
      rows[r].front() = names[r];
    }
    return align_columns(rows);
  };
  std::string text = "syntax\n" + shown(table.rows);
  if (!table.domains.empty()) text += "\n" + shown(table.domains);
  if (const auto pairs = syntax_pair_rows(results); !pairs.empty()) text += "\n" + shown(pairs);
  for (const std::string& note : table.notes) text += one_line(note) + "\n";
  return text;
}

}  // namespace torsor::report
