// Gates: whether a parser is good enough for a domain, and whether a model has not been made worse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/syntax/parser.h"
#include "torsor/syntax/score.h"

namespace torsor::syntax {

enum class GateVerdict : std::uint8_t {
  kPass,
  kFail,          ///< the domain runs without tags
  kInsufficient,  ///< too few gold words to tell: as a failure
  kUnverified,    ///< no gold at all: use has to be allowed, and every report says so
};

/// "pass", "fail", "insufficient", "unverified", and back; the latter throws UsageError.
std::string_view verdict_name(GateVerdict verdict);
GateVerdict gate_verdict(std::string_view name);

struct GateOptions {
  double threshold = 85;          ///< UAS in percent (F1 over aligned words, punctuation included); above passes
  std::size_t least_words = 500;  ///< gold words of a domain, below which it is insufficient
  bool strict = false;            ///< the lower end of the interval must be above the threshold
  bool tokens = false;            ///< gold tokens are given; otherwise raw text, errors in cutting it count
  std::size_t resamples = 1000;   ///< of the bootstrap
  std::uint64_t seed = 0;         ///< of the bootstrap
  std::string domain = "other";   ///< of sentences whose number tells none
  std::vector<std::string> of_sentence = {};  ///< the same for each gold sentence by itself; empty = `domain` for all
};

/// A domain's figures.
struct DomainGate {
  std::string domain;
  std::size_t sentences = 0, words = 0;  ///< gold
  std::size_t unparsed = 0;  ///< sentences, or stretches of text, without a parse: their words count as wrong
  double uas = 0, las = 0;   ///< percent
  double low = 0, high = 0;  ///< 95 % interval of the UAS: bootstrap over sentences
  GateVerdict verdict = GateVerdict::kInsufficient;
};

struct GateReport {
  ParserInfo parser;
  GateOptions options;
  double seconds = 0;               ///< that the parser took
  std::vector<DomainGate> domains;  ///< by name
  DomainGate all;                   ///< of everything; its verdict closes and opens nothing
};

/// The domain in a sentence's sent_id: English EWT's genre ("weblog", "email", "newsgroup", "answers", "reviews"),
/// PUD's "news" and "wiki"; `otherwise` for all others.
std::string domain_of(const Sentence& sentence, const std::string& otherwise);

/// Parses the gold sentences (as raw text, or their words) and compares. Throws Error as the parser does.
GateReport run_gate(Parser& parser, const std::vector<Sentence>& gold, const GateOptions& options);

/// The same from scores that are there. `unparsed` counts by sentence of `gold`, or is empty.
GateReport judge(const std::vector<Sentence>& gold, const Score& score, const std::vector<std::size_t>& unparsed,
                 const ParserInfo& parser, const GateOptions& options);

/// What a report says of a domain; unverified when it does not know it. With `strict` a domain that passed also needs
/// the lower end of its interval above the threshold.
GateVerdict verdict_of(const GateReport& report, std::string_view domain, bool strict = false);

/// {"parser": {...}, "setting", "threshold", "strict", "least_words", "seconds", "sentences_per_second", "domains":
/// [{"domain", "sentences", "words", "unparsed", "uas", "las", "low", "high", "verdict"}], "all": {...}}, and back. The
/// latter throws Error naming `source`; a report without least_words was judged with the 500 of GateOptions.
Json gate_to_json(const GateReport& report);
GateReport gate_from_json(const Json& json, const std::string& source);

/// A readable table.
std::string gate_table(const GateReport& report);

/// The gate on a model's perplexity beside that of its base (the same data, steps and seed without syntax).
class PerplexityGate {
 public:
  enum class Verdict : std::uint8_t { kFine, kWarn, kStop };

  struct Options {
    double warn = 0.01;      ///< rise from which it warns; twice in a row stops
    double stop = 0.03;      ///< rise that stops at once after the warm-up
    bool warn_only = false;  ///< never stop; warnings cannot be silenced
  };

  PerplexityGate() = default;
  explicit PerplexityGate(const Options& options) : options_(options) {}

  /// An evaluation: perplexities that are valid for comparison (no cond_ppl). Throws Error for numbers that are not
  /// finite and above 0.
  Verdict observe(double perplexity, double base, bool warmed_up = true);

  double rise() const { return rise_; }  ///< of the last evaluation: perplexity / base - 1
  bool stopped() const { return stopped_; }

 private:
  Options options_;
  double rise_ = 0;
  int warnings_ = 0;  // in a row
  bool stopped_ = false;
};

}  // namespace torsor::syntax
