#include "torsor/syntax/advise.h"

#include <algorithm>
#include <cstdio>

#include "torsor/base/error.h"
#include "torsor/encoding/registry.h"

namespace torsor::syntax {
namespace {

enum class Family { kNone, kAbsolute, kTxl, kT5, kAlibi, kRotary };

Family family_of(const std::string& encoding) {
  if (encoding.empty() || encoding == "none") return Family::kNone;
  const Expression expression = parse(encoding);
  if (expression.terms.size() != 1)
    throw UsageError(str("sipe(...) takes one term, and '", encoding, "' is a sum; advise asks for the one to couple"));
  const Term& term = expression.terms.front();
  const NameInfo* info = find_name(term.name);
  if (term.name == "sipe") throw UsageError(str("'", encoding, "' has syntax already; give the encoding inside"));
  if (term.name == "txl") return Family::kTxl;
  if (term.name == "t5") return Family::kT5;
  if (term.name == "alibi") return Family::kAlibi;
  if (term.name == "sinusoidal" || term.name == "learned") return Family::kAbsolute;
  if (info != nullptr && info->rotary) return Family::kRotary;
  throw UsageError(
      str("sipe(...) couples with txl, t5, alibi, rotations and absolute positions, not with '", term.name, "'"));
}

std::string wrapped(const std::string& encoding, const std::string& keys) {
  return str("sipe(", encoding.empty() ? "none" : encoding, keys.empty() ? "" : ", ", keys, ")");
}

void encoder_advice(Family family, const AdviceQuestion& question, Advice& advice) {
  advice.expression = wrapped(question.encoding, "mode=oracle, inject=input");
  advice.reasons.push_back(
      "an encoder sees both sides anyway: the tags of whole sentences leak nothing, as long as they "
      "are withheld at masked words");
  if (family == Family::kTxl || family == Family::kT5 || family == Family::kAlibi)
    advice.reasons.push_back(str("relative positions: train ",
                                 wrapped(question.encoding, "mode=oracle, inject=attention"),
                                 " too and keep the better on development data"));
  if (family == Family::kRotary)
    advice.reasons.push_back("rotations stay as they are: the published rotary encoder adds at the input");
}

void decoder_advice(Family family, const AdviceQuestion& question, Advice& advice) {
  const std::string mode = question.oracle ? "mode=oracle" : "mode=incremental";
  switch (family) {
    case Family::kTxl:
      advice.expression = wrapped(question.encoding, mode + ", coupling=tag_align");
      advice.reasons.push_back("tag_align on Transformer-XL's term is the only published result of a decoder");
      break;
    case Family::kT5:
      advice.expression = wrapped(question.encoding, mode + ", coupling=bilinear, factor=linear");
      advice.reasons.push_back("T5's bias is signed, so a linear factor may change its sign; an extrapolation");
      break;
    case Family::kAlibi:
      advice.expression = wrapped(question.encoding, mode + ", coupling=bilinear, factor=bounded");
      advice.reasons.push_back(
          "ALiBi's bias must stay negative: the bounded factor keeps it so, factor=exp as well; an "
          "extrapolation");
      break;
    case Family::kRotary:
      advice.expression = wrapped(question.encoding, mode + ", bound=warp");
      advice.reasons.push_back(
          "a second rotation by the tags' phase, bounded; an extrapolation. If the perplexity rises: "
          "q and k before the rotation, then inject=input");
      break;
    case Family::kAbsolute:
    case Family::kNone:
      advice.expression = wrapped(question.encoding, mode + ", inject=input");
      advice.reasons.push_back(
          "without a relative term the tags are added at the input, the weakest published cell of a "
          "decoder");
      break;
  }
  advice.reasons.push_back(
      question.oracle
          ? "oracle tags tell a decoder about the future: its perplexity is cond_ppl and is compared with "
            "nothing"
          : "generation and a real perplexity need tags that depend on the words so far alone: a parser that "
            "is prefix safe");
}

void gate_advice(const AdviceQuestion& question, Advice& advice) {
  const GateReport& gate = *question.gate;
  if (!question.encoder && !question.oracle && !gate.parser.prefix_safe)
    advice.reasons.push_back(str("the parser '", gate.parser.name,
                                 "' is not prefix safe: mode incremental refuses it; "
                                 "train one with --parser incremental"));
  if (gate.parser.scheme != "ud")
    advice.reasons.push_back(str("the parser's heads follow the scheme ", gate.parser.scheme,
                                 ", not Universal Dependencies: a gate against UD trees fails it rightly"));
  std::vector<std::string> domains = question.domains;
  if (domains.empty())
    for (const DomainGate& one : gate.domains) domains.push_back(one.domain);
  for (const std::string& domain : domains) {
    const GateVerdict verdict = verdict_of(gate, domain);
    const bool open =
        verdict == GateVerdict::kPass || (verdict == GateVerdict::kUnverified && question.allow_unverified);
    if (verdict == GateVerdict::kUnverified)
      advice.reasons.push_back(str("domain ", domain, " has no gold trees: it is unverified, ",
                                   open ? "used because you allow it, and every report says so"
                                        : "and stays without tags unless --allow-unverified-domain"));
    if (open) continue;
    advice.closed.push_back(domain);
    for (const DomainGate& one : gate.domains) {
      if (one.domain != domain) continue;
      char text[200];
      std::snprintf(text, sizeof text, "domain %s is closed: UAS %.2f on %zu words, %s %.1f", domain.c_str(), one.uas,
                    one.words,
                    verdict == GateVerdict::kInsufficient ? "too few to tell whether it is above" : "not above",
                    gate.options.threshold);
      advice.reasons.push_back(text);
    }
  }
  if (!domains.empty() && advice.closed.size() == domains.size()) {
    advice.expression.clear();
    advice.reasons.push_back(
        "no domain is open: the model would run without tags, which is the base encoding bit for bit; "
        "use a better parser, or gold trees of your domain");
  }
}

}  // namespace

Advice advise(const AdviceQuestion& question) {
  const Family family = family_of(question.encoding);
  Advice advice;
  if (question.encoder)
    encoder_advice(family, question, advice);
  else
    decoder_advice(family, question, advice);
  if (question.pretrained)
    advice.reasons.push_back(
        "a trained base: start at zero (beta_init=0, the default), train the new tensors alone "
        "first, then everything");
  if (question.gate) gate_advice(question, advice);
  if (question.rise) {
    PerplexityGate gate;
    const auto verdict = gate.observe(1 + *question.rise, 1);
    char text[160];
    std::snprintf(text, sizeof text, "perplexity against the base: %+.2f %%", 100 * *question.rise);
    advice.reasons.push_back(text);
    if (verdict != PerplexityGate::Verdict::kFine) {
      advice.stop = verdict == PerplexityGate::Verdict::kStop;
      advice.reasons.push_back(str(advice.stop ? "the perplexity gate has tripped"
                                               : "the perplexity gate warns; a second "
                                                 "rise of 1 % in a row trips it",
                                   ". In this order: a smaller beta; coupling=bilinear or factor=exp; fewer domains; "
                                   "inject=input; no syntax"));
    }
  }
  return advice;
}

std::string decision_tree() {
  return R"(reads in both directions?
  yes: absolute positions  add at the input; withhold the tags at masked words
       relative positions  train inject=input and inject=attention, keep the better on development data
       rotations           add at the input; leave the rotation alone
  no (decoder): generation or a real perplexity needed? mode=incremental with a prefix-safe parser. Else oracle, which leaks.
       txl                 coupling=tag_align                     the only published result of a decoder
       t5                  coupling=bilinear, factor=linear       extrapolation
       alibi               coupling=bilinear, factor=bounded      extrapolation; factor=exp keeps the sign too
       rotations           a second rotation, bound=warp          extrapolation; then q and k before it, then inject=input
       absolute or none    inject=input                           the weakest published cell of a decoder
a domain that is not through the UAS gate, or the perplexity gate tripped: no tags (s = 0)
a trained base: start at zero (beta_init=0), train the new tensors alone first, then everything
)";
}

}  // namespace torsor::syntax
