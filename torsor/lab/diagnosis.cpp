#include "torsor/lab/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "torsor/lab/diagnosis_findings.h"
#include "torsor/lab/diagnosis_words.h"

namespace torsor {
namespace {

/// Whether anything of a sum, at any depth, was wrapped.
bool stretch(Expression& expression, const char* scaling, double factor);

bool stretch(Term& term, const char* scaling, double factor) {
  const NameInfo* info = find_name(term.name);
  if (info->rotary) {
    Term plain = term;
    std::vector<Argument> arguments = {{"factor", factor}};
    if (!term.operands.empty()) {
      plain = term.operands.front().expression.terms.front();
      for (const Argument& argument : term.arguments)
        if (argument.key == "train_length" && std::string(scaling) == "yarn") arguments.push_back(argument);
    }
    term = {scaling, {Item{Expression{{plain}, ""}, 1}}, arguments};
    return true;
  }
  bool any = false;
  for (Item& item : term.operands) any |= stretch(item.expression, scaling, factor);
  return any;
}

bool stretch(Expression& expression, const char* scaling, double factor) {
  bool any = false;
  for (Term& term : expression.terms) any |= stretch(term, scaling, factor);
  return any;
}

std::string sentence(std::string text) {
  if (text.empty()) return text;
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text + ".";
}

std::string since(const Finding& finding) {
  return finding.from ? str(" from ", *finding.from, " tokens on") : std::string(" at every length");
}

}  // namespace

const char* severity_name(Severity severity) {
  switch (severity) {
    case Severity::Breaks:
      return "breaks";
    case Severity::Degrades:
      return "degrades";
    case Severity::Note:
      return "note";
  }
  return "";
}

std::optional<std::string> stretched(const std::string& encoding, const Dimensions& dimensions, double factor) {
  for (const char* scaling : {"yarn", "linear"}) {
    Expression expression = parse(encoding);
    if (!stretch(expression, scaling, factor)) return std::nullopt;
    try {
      const std::string text = print(parse(print(expression)));
      make_encoding(text, dimensions);
      return text;
    } catch (const UsageError&) {
      // Such a rotation does not take this scaling.
    }
  }
  return std::nullopt;
}

void judge(Diagnosis& diagnosis) {
  const std::optional<Measures>& measures = diagnosis.measures;
  std::vector<Finding>& findings = diagnosis.findings;
  findings = expected_findings(diagnosis);
  if (measures) {
    const LossVerdict loss = loss_verdict(*measures, diagnosis.facts.dimensions.train_length);
    // What expression and weights let one expect gives way where the text tells otherwise.
    if (loss.beyond && loss.finite && loss.difference + 2 * loss.error < kBreaking && loss.late < kBreaking)
      for (Finding& finding : findings)
        if (finding.severity == Severity::Breaks && finding.topic != "table") {
          finding.severity = Severity::Degrades;
          finding.why += loss.difference + 2 * loss.error < kDegrading
                             ? "; the text that was measured does not show it"
                             : str("; on the text that was measured the loss changes by ", shown(loss.difference),
                                   " nats a token");
        }
    for (Finding& finding : measured_findings(diagnosis)) findings.push_back(std::move(finding));
  }
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    if (a.severity != b.severity) return a.severity < b.severity;
    return a.measured && !b.measured;
  });
  // Advice is given once.
  std::set<std::string> given;
  for (Finding& finding : findings)
    std::erase_if(finding.advice, [&](const std::string& one) { return !given.insert(one).second; });

  std::vector<std::string>& verdict = diagnosis.verdict;
  verdict.clear();
  const std::int64_t trained = diagnosis.facts.dimensions.train_length, longest = diagnosis.facts.lengths.back();
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::Note) break;
    const bool breaks = finding.severity == Severity::Breaks;
    const std::string how = finding.measured ? (breaks ? "breaks" : "gets worse")
                                             : (breaks ? "is expected to break" : "is expected to get worse");
    if (verdict.empty())
      verdict.push_back(
          str(diagnosis.facts.encoding, ", trained at ", trained, ", ", how, since(finding), ": ", finding.what, "."));
    else
      verdict.push_back(str(finding.measured ? "Measured" : "Expected", since(finding), ": ", finding.what, "."));
  }
  if (verdict.empty())
    verdict.push_back(longest <= trained
                          ? str(diagnosis.facts.encoding, ": ", longest, " tokens are within the training length of ",
                                trained, ", where nothing is found to break.")
                          : str(diagnosis.facts.encoding, ", trained at ", trained,
                                ": nothing was found that breaks or gets worse up to ", longest, " tokens."));
  if (measures)
    verdict.push_back(str("Measured on ", measures->windows, measures->windows == 1 ? " window" : " windows", " of ",
                          measures->length, " tokens of ", measures->text, "."));
  if (measures)
    for (const Finding& finding : findings)
      if (finding.measured && finding.topic == "loss" && finding.severity == Severity::Note)
        verdict.push_back(sentence(finding.what));
  if (!measures) verdict.push_back(sentence("nothing was measured: " + diagnosis.not_measured));
}

}  // namespace torsor
