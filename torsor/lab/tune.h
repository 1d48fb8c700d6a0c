// Tuning a checkpoint: its weights stay, what an adapter plan names is trained on text.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "torsor/lab/run.h"
#include "torsor/model/adapter.h"

namespace torsor {

/// A checkpoint that is tuned, loaded.
struct TuneBase {
  Decoder model;
  AdapterBase origin;
};

/// Throws Error when the folder holds no checkpoint, or an adapter, which must be merged first.
TuneBase load_tune_base(const std::string& folder);

/// What decides a tuning's result, beside the base and the data.
struct TunePlan {
  AdapterPlan adapter;
  /// Length, batches, steps, rates, seed and dtype; encoding and model are the base's. The defaults follow the recipe
  /// of TAPE's authors (a constant rate after the warm-up, no weight decay) at a rate for small models.
  RunPlan run = default_run();

  static RunPlan default_run();
};

Json tune_to_json(const TunePlan& plan);

/// What is known before the first step.
struct TuneStart {
  std::int64_t trained = 0, frozen = 0;  ///< numbers
  std::vector<std::string> fresh;        ///< the encoding's tensors that begin at their initial values
  double loss = 0;                       ///< of the first batch, nats a token
  std::optional<double> base_loss;       ///< of the base on the same; empty where its encoding refuses the length
};

struct TuneResult {
  TunedModel tuned;
  TrainResult train;
};

/// Trains and leaves adapter.json, adapter.safetensors, state.safetensors, state.json and log.jsonl in the folder.
/// Throws Error when the data are not what the base reads; else as train() and make_tuned() do.
TuneResult tune_run(const TuneBase& base, const TunePlan& plan, const LmData& data, const RunControl& control,
                    const std::function<void(const TuneStart&)>& on_start = {});

/// How tunings are judged: as a comparison judges encodings (evaluate.h).
struct TuneEvaluation {
  std::vector<std::int64_t> lengths;
  std::int64_t spans = 32;  ///< of the largest length; 0 = all
};

/// results.json's "eval" of a model. `stop` as in evaluate_lm.
Json evaluate_lengths(const Decoder& model, const Corpus& corpus, const TuneEvaluation& evaluation,
                      at::ScalarType dtype, const std::function<bool()>& stop);

/// results.json of one tuning without summary and verdict: the runs "before" and "after". `before` and `after` are
/// answers of evaluate_lengths.
Json tune_results(const TuneBase& base, const TunePlan& plan, const TuneResult& result, const DataSource& source,
                  const LmData& data, const TuneEvaluation& evaluation, const Json& before, const Json& after);

/// A tuning that takes part in a comparison.
struct TuneMethod {
  std::string label;    ///< as written, in canonical form: "lora", "lora: linear(rope, factor=2)", "base"
  bool trained = true;  ///< "base" is evaluated as it is, or under another encoding
  AdapterPlan adapter;  ///< complete
};

/// Methods written with ';' between them, each `lora`, `positions`, `tape` or `base`, alone or as `METHOD: EXPRESSION`;
/// one given twice counts once. Rank, alpha, modules and `with` are those of `shared`. Throws UsageError.
std::vector<TuneMethod> parse_methods(const std::vector<std::string>& texts, const AdapterPlan& shared,
                                      const ModelConfig& base);

struct TuneComparePlan {
  std::string checkpoint;
  std::vector<std::string> methods;  ///< as given
  AdapterPlan shared;                ///< rank, alpha, modules and `with` of every method
  RunPlan run = TunePlan::default_run();
  DataSource data;
  TuneEvaluation evaluation;
  std::vector<std::int64_t> seeds;
};

struct TuneCompareControl {
  std::string folder;
  bool resume = false;
  bool force = false;
  const std::atomic<bool>* stop = nullptr;
  std::function<Progress::Options(const std::string& label)> progress;
  std::function<void(const Json& results)> on_results;
  std::function<void(const std::string&)> on_message;
};

/// Tunes the checkpoint by every method with every seed and returns results.json without summary and verdict, where the
/// methods' labels stand for encodings and "parameters" counts what was trained. Each run's adapter lies in its folder
/// under runs/. A method that is not trained has no seed: the same figures stand with each. Fails, resumes and stops as
/// run_compare does.
Json compare_tunings(const TuneComparePlan& plan, const TuneCompareControl& control);

}  // namespace torsor
