// What the runs of a comparison share: what they learn from and how what they learned is scored. One kind for text, one
// for generated tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torsor/data/syntaxgym.h"
#include "torsor/lab/compare.h"
#include "torsor/model/generate.h"

namespace torsor {

class Workload {
 public:
  virtual ~Workload() = default;

  virtual const std::string& description() const = 0;  ///< for people, one line
  virtual const std::string& sha256() const = 0;       ///< of all that is learned from and scored
  /// The most tokens that a model reads at once at a length of the plan.
  virtual std::int64_t inputs_of(std::int64_t length) const = 0;
  virtual TrainingData training(const RunPlan& plan) const = 0;
  /// The entry of results.json for one of the plan's evaluation lengths. Throws Interrupted when `stop` answers true.
  virtual Json evaluate(const Decoder& model, std::int64_t length, at::ScalarType dtype,
                        const std::function<bool()>& stop) const = 0;
  /// Entries beside those by length; empty unless the task has some.
  virtual Json evaluate_more(const Decoder& /*model*/, at::ScalarType /*dtype*/,
                             const std::function<bool()>& /*stop*/) const {
    return Json::array();
  }
  /// The same with the syntax of a control (SyntaxFeed::under). Throws UsageError where nothing is fed.
  virtual std::unique_ptr<const Workload> under(const std::string& control) const {
    throw UsageError(str("'@ ", control, "' is a control of parses, and none are read here"));
  }
  /// Per-token inputs of what a model writes (stream_inputs). Throws Refusal where there are none.
  virtual decltype(GenerateOptions::inputs) streamed_inputs(const Encoding& /*encoding*/) const {
    throw Refusal("nobody parses what is written here");
  }
  /// Throws UsageError, before anything is trained, for an encoding whose inputs cannot be fed (SyntaxFeed::check).
  virtual void check(const Encoding& /*encoding*/) const {}
  /// Done ahead of training under an encoding (SyntaxFeed::prepare).
  virtual void prepare(const Encoding& /*encoding*/) const {}
  /// What results.json says of an encoding's syntax (SyntaxFeed::account); null where nothing is fed.
  virtual Json account(const Encoding& /*encoding*/) const { return nullptr; }
  /// How far the factors of each layer (mean_factor_effect) are from one on some windows of a length; empty where
  /// nothing is fed.
  virtual std::vector<std::optional<double>> factor_effects(const Decoder& /*model*/, std::int64_t /*length*/,
                                                            at::ScalarType /*dtype*/) const {
    return {};
  }
  /// The domain of each window that evaluate() scores at a length, "" where it has none; empty where no text has one.
  virtual std::vector<std::string> window_domains(std::int64_t /*length*/) const { return {}; }
  /// Up to `most` tokens that decoding can begin with; at least one.
  virtual std::vector<std::int64_t> prompt(std::int64_t most) const = 0;
};

/// The suites that a plan names, or else the generated ones. Throws what load_suites throws.
std::vector<Suite> suites_of(const SyntaxPlan& plan);

/// Loads or makes everything that the plan needs; `feed` is for encodings with per-token inputs. Throws what load_data,
/// evaluation_windows, make_task, load_suites and load_blimp throw.
std::unique_ptr<const Workload> make_workload(const ComparePlan& plan, const SyntaxFeedFactory& feed = {});

/// The tokens of a training window: the plan's length, or the most inputs that a trained problem has.
std::int64_t trained_window(const ComparePlan& plan);

}  // namespace torsor
