// The perplexity gate of a comparison: a run with syntax beside the same run without, while both train.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/encoding/registry.h"
#include "torsor/model/decoder.h"
#include "torsor/syntax/gate.h"

namespace torsor {

/// The expression with every sipe(E) replaced by E, canonical: the matched base of a run with syntax. Equal to
/// `expression` where there is no sipe.
std::string without_syntax(const std::string& expression);

/// `encodings` with every base (without_syntax) that is among them ahead of the encodings it is the base of; otherwise
/// in their order.
std::vector<std::string> bases_first(std::vector<std::string> encodings);

/// What an evaluation on the validation text gave.
struct WatchedFigure {
  std::int64_t step = 0;                  ///< finished steps
  std::optional<double> perplexity;       ///< empty where there is none that counts
  std::string kind;                       ///< "perplexity" or "joint_ppl"; else why there is none
  std::map<std::string, double> domains;  ///< perplexity by domain, where the text has some
};

/// Of an entry of results.json (evaluation_to_json); `domains` names the domain of each of its windows, or is empty. A
/// perplexity that is conditional on tags (cond_ppl) is no evidence: only a joint_ppl stands for it.
WatchedFigure watched_figure(const Json& entry, std::int64_t step, const std::vector<std::string>& domains);

/// The figures of a run, kept in watch.json of its folder so that they outlive the process.
class WatchRecord {
 public:
  /// Reads what is there. Throws Error for a damaged file.
  explicit WatchRecord(const std::string& folder);
  const std::vector<WatchedFigure>& figures() const { return figures_; }
  const WatchedFigure* at(std::int64_t step) const;
  /// Adds a figure; those of the same and later steps, which a killed process left, go.
  void add(WatchedFigure figure);

 private:
  std::string path_;
  std::vector<WatchedFigure> figures_;
};

/// Ends a run: not a failure, what the gate found.
class GateStop : public std::exception {
 public:
  explicit GateStop(std::string reason) : reason_(std::move(reason)) {}
  const char* what() const noexcept override { return reason_.c_str(); }

 private:
  std::string reason_;
};

/// Watches one run beside its base's record.
class PerplexityWatch {
 public:
  struct Options {
    std::int64_t warmup_steps = 0;
    bool warn_only = false;
    std::function<void(const std::string&)> on_message;
    /// {"domains", "coverage", ...} of SyntaxFeed::account, for the reasons of a stop.
    std::function<Json(const Encoding&)> account;
    /// The mean of |F - 1| by layer (Workload::factor_effects), for the same.
    std::function<std::vector<std::optional<double>>(const Decoder&)> factors;
  };

  PerplexityWatch(std::string base, WatchRecord base_record, Options options);

  /// Takes the newest figure of the run. Throws GateStop with the rise, the worst domains, the sizes of the coupling
  /// and the mean |F - 1| by layer, the coverage and the remedies. What cannot be judged is told once and not watched
  /// any further.
  void observe(const WatchedFigure& figure, const Decoder& model);
  /// The same for figures of an earlier process, which stopped nothing and tell nothing.
  void replay(const WatchedFigure& figure);

  /// {"base", "status": "watched", "warned", "stopped" or "not watched: why", "rise": of the last evaluation or null,
  /// "evaluations": [{"step", "kind", "perplexity", "base", "rise", "verdict", "domains": {NAME: rise}}]}
  Json to_json() const;

 private:
  std::optional<syntax::PerplexityGate::Verdict> judge(const WatchedFigure& figure, bool replayed);
  std::string reasons(const WatchedFigure& figure, const WatchedFigure& base, const Decoder& model) const;

  std::string base_;
  WatchRecord base_record_;
  Options options_;
  syntax::PerplexityGate gate_;
  std::string not_watched_;
  bool warned_ = false, stopped_ = false;
  Json evaluations_ = Json::array();
};

}  // namespace torsor
