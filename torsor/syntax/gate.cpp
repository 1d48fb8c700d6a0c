#include "torsor/syntax/gate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "torsor/base/error.h"
#include "torsor/base/random.h"
#include "torsor/syntax/child_process.h"
#include "torsor/syntax/tokenizer.h"

namespace torsor::syntax {
namespace {

constexpr std::string_view kVerdicts[] = {"pass", "fail", "insufficient", "unverified"};

double f1(std::size_t correct, std::size_t gold, std::size_t system) {
  return gold + system == 0 ? 0 : 200.0 * static_cast<double>(correct) / static_cast<double>(gold + system);
}

/// Ends of the middle 95 % of the UAS over sentences drawn with replacement.
std::pair<double, double> interval(const std::vector<const SentenceScore*>& sentences, const GateOptions& options,
                                   const std::string& domain) {
  if (sentences.empty() || options.resamples == 0) return {0, 0};
  Random random(options.seed, stream_of("gate." + domain));
  std::vector<double> values;
  for (std::size_t draw = 0; draw < options.resamples; ++draw) {
    std::size_t correct = 0, gold = 0, system = 0;
    for (std::size_t i = 0; i < sentences.size(); ++i) {
      const SentenceScore& one = *sentences[static_cast<std::size_t>(random.below(sentences.size()))];
      correct += one.uas;
      gold += one.gold_words;
      system += one.system_words;
    }
    values.push_back(f1(correct, gold, system));
  }
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(std::lround(share * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.025), at(0.975)};
}

DomainGate judge_domain(const std::string& domain, const std::vector<const SentenceScore*>& sentences,
                        std::size_t unparsed, const GateOptions& options) {
  DomainGate result;
  result.domain = domain;
  result.sentences = sentences.size();
  result.unparsed = unparsed;
  std::size_t uas = 0, las = 0, system = 0;
  for (const SentenceScore* one : sentences) {
    result.words += one->gold_words;
    system += one->system_words;
    uas += one->uas;
    las += one->las;
  }
  result.uas = f1(uas, result.words, system);
  result.las = f1(las, result.words, system);
  std::tie(result.low, result.high) = interval(sentences, options, domain);
  const double judged = options.strict ? result.low : result.uas;
  result.verdict = result.words < options.least_words ? GateVerdict::kInsufficient
                   : judged > options.threshold       ? GateVerdict::kPass
                                                      : GateVerdict::kFail;
  return result;
}

Json domain_to_json(const DomainGate& domain) {
  return {{"domain", domain.domain},
          {"sentences", domain.sentences},
          {"words", domain.words},
          {"unparsed", domain.unparsed},
          {"uas", domain.uas},
          {"las", domain.las},
          {"low", domain.low},
          {"high", domain.high},
          {"verdict", verdict_name(domain.verdict)}};
}

DomainGate domain_from_json(const Json& json, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  DomainGate domain;
  domain.domain = object.get<std::string>("domain");
  domain.sentences = object.get<std::uint64_t>("sentences");
  domain.words = object.get<std::uint64_t>("words");
  domain.unparsed = object.get<std::uint64_t>("unparsed");
  domain.uas = object.get<double>("uas");
  domain.las = object.get<double>("las");
  domain.low = object.get<double>("low");
  domain.high = object.get<double>("high");
  try {
    domain.verdict = gate_verdict(object.get<std::string>("verdict"));
  } catch (const UsageError& error) {
    object.fail(error.what());
  }
  object.finish();
  for (const double percent : {domain.uas, domain.las, domain.low, domain.high})
    if (!(percent >= 0 && percent <= 100))
      object.fail(str(domain.domain, ": expected percents from 0 to 100, got ", percent));
  if (domain.low > domain.high)
    object.fail(str(domain.domain, ": expected an interval, got ", domain.low, " to ", domain.high));
  return domain;
}

/// A report is evidence: one whose verdicts contradict its own numbers was edited.
void check_verdict(const DomainGate& domain, const GateOptions& options, const std::string& source) {
  const bool above = (options.strict ? domain.low : domain.uas) > options.threshold;
  if ((domain.verdict == GateVerdict::kPass && !above) || (domain.verdict == GateVerdict::kFail && above))
    throw Error(str(source, ": ", domain.domain, " has the verdict ", verdict_name(domain.verdict), " with a UAS of ",
                    domain.uas, " (", domain.low, " to ", domain.high, ") and a threshold of ", options.threshold));
  const bool enough = domain.words >= options.least_words, judged = domain.verdict != GateVerdict::kInsufficient;
  if (domain.verdict != GateVerdict::kUnverified && enough != judged)
    throw Error(str(source, ": ", domain.domain, " has the verdict ", verdict_name(domain.verdict), " on ",
                    domain.words, " words, and ", options.least_words, " are the least that are judged"));
}

}  // namespace

std::string_view verdict_name(GateVerdict verdict) { return kVerdicts[static_cast<std::size_t>(verdict)]; }

GateVerdict gate_verdict(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kVerdicts); ++i)
    if (kVerdicts[i] == name) return static_cast<GateVerdict>(i);
  throw UsageError(str("a verdict is pass, fail, insufficient or unverified, found '", name, "'"));
}

std::string domain_of(const Sentence& sentence, const std::string& otherwise) {
  static const std::set<std::string, std::less<>> genres = {"weblog", "email", "newsgroup", "answers", "reviews"};
  const std::string id = sentence.comment("sent_id").value_or("");
  const std::string_view prefix = std::string_view(id).substr(0, id.find('-'));
  if (genres.count(prefix) > 0) return std::string(prefix);
  const bool number =
      id.size() == 9 && std::all_of(id.begin() + 1, id.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (number && id.front() == 'n') return "news";
  if (number && id.front() == 'w') return "wiki";
  return otherwise;
}

GateReport judge(const std::vector<Sentence>& gold, const Score& score, const std::vector<std::size_t>& unparsed,
                 const ParserInfo& parser, const GateOptions& options) {
  if (score.by_sentence.size() != gold.size())
    throw Error(str("gate: expected scores of ", gold.size(), " sentences, got ", score.by_sentence.size()));
  if (!options.of_sentence.empty() && options.of_sentence.size() != gold.size())
    throw Error(str("gate: expected domains of ", gold.size(), " sentences, got ", options.of_sentence.size()));
  struct Group {
    std::vector<const SentenceScore*> sentences;
    std::size_t unparsed = 0;
  };
  std::map<std::string, Group> groups;
  Group all;
  for (std::size_t i = 0; i < gold.size(); ++i) {
    const std::size_t failed = unparsed.empty() ? 0 : unparsed[i];
    const std::string& otherwise = options.of_sentence.empty() ? options.domain : options.of_sentence[i];
    for (Group* group : {&groups[domain_of(gold[i], otherwise)], &all}) {
      group->sentences.push_back(&score.by_sentence[i]);
      group->unparsed += failed;
    }
  }
  GateReport report;
  report.parser = parser;
  report.options = options;
  for (const auto& [domain, group] : groups)
    report.domains.push_back(judge_domain(domain, group.sentences, group.unparsed, options));
  report.all = judge_domain("all", all.sentences, all.unparsed, options);
  return report;
}

GateReport run_gate(Parser& parser, const std::vector<Sentence>& gold, const GateOptions& options) {
  const double begun = steady_seconds();
  std::vector<ParsedSentence> parsed;
  if (options.tokens) {
    std::vector<std::vector<std::string>> forms;
    for (const Sentence& sentence : gold) {
      forms.emplace_back();
      for (const Word& word : sentence.words) forms.back().push_back(word.form);
    }
    parsed = parser.parse_tokens(forms);
  } else {
    parsed = parser.parse_text(raw_text(gold));
  }
  const double seconds = steady_seconds() - begun;
  std::vector<Sentence> system;
  std::vector<std::size_t> unparsed;
  std::size_t failed = 0;
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    ParsedSentence& one = parsed[i];
    fill_words(one.sentence);
    if (!one.parsed)
      for (Word& word : one.sentence.words) word.head = kNoHead;
    failed += !one.parsed;
    if (options.tokens) {
      // The words were given, so the gold sentence's tokens are the system's: opened ones must not look like an error.
      if (one.sentence.multiwords.empty() && one.sentence.size() == gold[i].size())
        one.sentence.multiwords = gold[i].multiwords;
      unparsed.push_back(!one.parsed);
    }
    system.push_back(std::move(one.sentence));
  }
  GateReport report = judge(gold, score(gold, system), unparsed, parser.info(), options);
  report.all.unparsed = failed;
  report.seconds = seconds;
  return report;
}

GateVerdict verdict_of(const GateReport& report, std::string_view domain, bool strict) {
  for (const DomainGate& one : report.domains) {
    if (one.domain != domain) continue;
    const bool low = strict && one.verdict == GateVerdict::kPass && !(one.low > report.options.threshold);
    return low ? GateVerdict::kFail : one.verdict;
  }
  return GateVerdict::kUnverified;
}

Json gate_to_json(const GateReport& report) {
  const ParserInfo& parser = report.parser;
  Json json;
  json["parser"] = {{"backend", parser.backend},           {"name", parser.name},
                    {"version", parser.version},           {"model", parser.model},
                    {"model_sha256", parser.model_sha256}, {"scheme", parser.scheme},
                    {"prefix_safe", parser.prefix_safe}};
  json["setting"] = report.options.tokens ? "tokens" : "text";
  json["threshold"] = report.options.threshold;
  json["strict"] = report.options.strict;
  json["least_words"] = report.options.least_words;
  json["seconds"] = report.seconds;
  json["sentences_per_second"] =
      report.seconds > 0 ? Json(static_cast<double>(report.all.sentences) / report.seconds) : Json();
  json["domains"] = Json::array();
  for (const DomainGate& domain : report.domains) json["domains"].push_back(domain_to_json(domain));
  json["all"] = domain_to_json(report.all);
  return json;
}

GateReport gate_from_json(const Json& json, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  GateReport report;
  JsonObject parser = object.object("parser");
  report.parser = {.backend = parser.get<std::string>("backend"),
                   .name = parser.get<std::string>("name"),
                   .version = parser.get<std::string>("version"),
                   .model = parser.get<std::string>("model"),
                   .model_sha256 = parser.get<std::string>("model_sha256"),
                   .scheme = parser.get<std::string>("scheme"),
                   .prefix_safe = parser.get<bool>("prefix_safe")};
  parser.finish();
  const auto setting = object.get<std::string>("setting");
  if (setting != "tokens" && setting != "text") object.fail(str("setting must be tokens or text, found ", setting));
  report.options.tokens = setting == "tokens";
  report.options.threshold = object.get<double>("threshold");
  report.options.strict = object.get<bool>("strict");
  report.options.least_words = object.get<std::uint64_t>("least_words", report.options.least_words);
  report.seconds = object.get<double>("seconds");
  object.allow("sentences_per_second");
  for (const Json& domain : object.get<std::vector<Json>>("domains"))
    report.domains.push_back(domain_from_json(domain, source + ": domains"));
  report.all = domain_from_json(object.get<Json>("all"), source + ": all");
  object.finish();
  std::set<std::string> names;
  for (const DomainGate& domain : report.domains) {
    check_verdict(domain, report.options, source);
    if (!names.insert(domain.domain).second) throw Error(str(source, ": the domain ", domain.domain, " stands twice"));
  }
  return report;
}

std::string gate_table(const GateReport& report) {
  char line[200];
  std::snprintf(line, sizeof line, "%-12s %9s %7s %7s %15s %7s  %s\n", "domain", "sentences", "words", "UAS", "95 %",
                "LAS", "gate");
  std::string text = line;
  const auto add = [&](const DomainGate& one, std::string_view verdict) {
    std::snprintf(line, sizeof line, "%-12s %9zu %7zu %7.2f   %5.2f - %5.2f %7.2f  ", one.domain.c_str(), one.sentences,
                  one.words, one.uas, one.low, one.high, one.las);
    text += line + std::string(verdict);
    if (one.unparsed > 0) text += str("  (", one.unparsed, " unparsed)");
    text += "\n";
  };
  for (const DomainGate& one : report.domains) add(one, verdict_name(one.verdict));
  add(report.all, "");
  return text;
}

PerplexityGate::Verdict PerplexityGate::observe(double perplexity, double base, bool warmed_up) {
  for (const double value : {perplexity, base})
    if (!(value > 0) || !std::isfinite(value))
      throw Error(str("perplexity gate: expected finite perplexities above 0, got ", perplexity, " and ", base));
  rise_ = perplexity / base - 1;
  warnings_ = rise_ >= options_.warn ? warnings_ + 1 : 0;
  const bool stop = warnings_ >= 2 || (warmed_up && rise_ >= options_.stop);
  if (stop && !options_.warn_only) {
    stopped_ = true;
    return Verdict::kStop;
  }
  return warnings_ > 0 ? Verdict::kWarn : Verdict::kFine;
}

}  // namespace torsor::syntax
