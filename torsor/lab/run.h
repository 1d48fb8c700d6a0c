// One training run: a model under one encoding with one seed, resumable, with its record.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "torsor/data/batches.h"
#include "torsor/lab/data.h"
#include "torsor/lab/syntax_feed.h"
#include "torsor/model/decoder.h"
#include "torsor/train/loop.h"

namespace torsor {

/// What decides a run's result.
struct RunPlan {
  std::string encoding = "rope";  ///< canonical expression
  ModelConfig model;              ///< architecture; vocabulary, length and encoding are filled in
  std::int64_t length = 128;      ///< tokens of a training window
  std::int64_t batch = 16;        ///< windows of a micro-batch
  std::int64_t accumulation = 1;
  std::int64_t steps = 300;
  double learning_rate = 3e-3;
  std::int64_t warmup_steps = 30;
  double weight_decay = 0.1;
  std::uint64_t seed = 0;
  std::string dtype = "float32";  ///< of the matrix products: float32 or bf16
  double tag_loss = 1;            ///< weight of the tags' loss in the training of a model with tag heads
};

/// How it is carried out; changes nothing in the result.
struct RunControl {
  std::string folder;  ///< state, log and checkpoint are kept here
  std::int64_t save_every = 0;
  bool resume = false;
  const std::atomic<bool>* stop = nullptr;
  const Progress::Options* progress = nullptr;
  std::function<void(const std::string&)> on_message;  ///< a warning for people; empty = nobody is told
  /// After every step, before its state is saved; what it throws ends the run.
  std::function<void(const Decoder& model, const StepReport& report)> on_step;
};

at::ScalarType dtype_named(const std::string& name);  ///< throws UsageError for others than float32 and bf16

/// Throws UsageError for an encoding of several position axes: a token of a text has one position.
void check_axes(const Encoding& encoding, const std::string& expression);

/// The model of a plan, with its first weights. Throws UsageError when the expression and the model do not fit.
Decoder make_model(const RunPlan& plan, std::uint32_t vocabulary_size);

/// What a run learns from, whatever it is.
struct TrainingData {
  std::string tokenizer;              ///< what the ids mean, for the checkpoint
  std::uint32_t vocabulary_size = 0;  ///< every id is below it
  std::string sha256;                 ///< identity: a run is not gone on with on other data
  /// The loss of micro-batch `index` = step * accumulation + micro: one number with a gradient graph, a function of the
  /// index and the run's seed alone.
  std::function<at::Tensor(const Decoder& model, std::uint64_t index)> loss;
  std::string embedder = {};  ///< SHA-256 of the network that makes syntax.vectors, for the checkpoint; empty without
  std::shared_ptr<const Tokenizer> reader = {};  ///< the tokenizer itself, for the same; nothing for generated tasks
};

/// Windows of text, all targets alike; a model with tag heads learns its tags beside them, yet the loss that is told is
/// the tokens'. `feed` is for encodings with per-token inputs. Throws Error when no document
/// holds plan.length + 1 tokens.
TrainingData text_training(const RunPlan& plan, const Corpus& text, const std::string& sha256,
                           std::shared_ptr<const SyntaxFeed> feed = nullptr);

/// What training of any kind takes from a plan and from a control, whose folder holds state and log.
TrainOptions train_options(const RunPlan& plan, const RunControl& control);

/// Trains `model` in place. Of `options`, what the plan decides is filled in here; where to save, log and report is the
/// caller's.
TrainResult train_model(Decoder& model, const RunPlan& plan, const TrainingData& data, TrainOptions options,
                        const TrainCallbacks& callbacks = {},
                        const std::function<void(const std::string&)>& on_message = {});
/// The same on text_training of `data`.
TrainResult train_model(Decoder& model, const RunPlan& plan, const Corpus& data, TrainOptions options,
                        const TrainCallbacks& callbacks = {});

/// Trains those `parameters` of `model` alone, on the same data; they require gradients already. The sizes of a
/// position state go into the log (state_watch.h).
TrainResult train_parameters(std::vector<NamedParameter> parameters, Decoder& model, const RunPlan& plan,
                             const TrainingData& data, TrainOptions options, TrainCallbacks callbacks = {},
                             const std::function<void(const std::string&)>& on_message = {});

/// The windows of a micro-batch, (batch, length + 1) int64.
at::Tensor windows_of(const BatchSampler& sampler, std::uint64_t micro_batch);

struct RunResult {
  Decoder model;
  TrainResult train;
};

/// Trains and leaves config.json, model.safetensors, state.safetensors, state.json and log.jsonl in the folder.
RunResult train_run(const RunPlan& plan, const TrainingData& data, const RunControl& control);
RunResult train_run(const RunPlan& plan, const LmData& data, const RunControl& control,
                    std::shared_ptr<const SyntaxFeed> feed = nullptr);

Json plan_to_json(const RunPlan& plan);

}  // namespace torsor
