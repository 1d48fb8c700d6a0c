// The training loop: accumulates, clips, steps, logs, saves, stops and resumes. Knows tensors and steps, no model.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/base/progress.h"
#include "torsor/train/optimizer.h"
#include "torsor/train/schedule.h"

namespace torsor {

/// One run. The first block decides the result, is kept in the state and must be the same on resuming; the second may
/// change from process to process.
struct TrainOptions {
  std::int64_t steps = 0;          ///< updates of the weights in all; at least 1
  double learning_rate = 3e-3;     ///< peak
  std::int64_t warmup_steps = 30;  ///< see Schedule
  double final_ratio = 0.1;        ///< see Schedule
  RateDecay decay = RateDecay::Cosine;
  AdamWOptions adamw;
  double clip_norm = 1;           ///< largest norm of all gradients together; 0 = no clipping
  std::int64_t accumulation = 1;  ///< micro-batches of one step; their losses and gradients are averaged
  std::uint64_t seed = 0;
  Json configuration = Json::object();  ///< what else decides the result: encoding, model, hash of the data

  std::int64_t tokens_per_step = 0;             ///< for tokens per second; 0 = not shown
  std::int64_t save_every = 0;                  ///< steps between two saved states; 0 = only at the end and on a stop
  std::string state;                            ///< the state file, "DIR/state.safetensors"; empty = nothing is saved
  std::string log;                              ///< JSON lines are appended to it; empty = no log
  bool resume = false;                          ///< continue from `state` if it exists; otherwise it is replaced
  const std::atomic<bool>* stop = nullptr;      ///< set from anywhere (a signal handler): end after the present step
  const Progress::Options* progress = nullptr;  ///< where to report; total and start are filled in by the loop
};

/// What one step did.
struct StepReport {
  std::int64_t step = 0;         ///< finished steps, this one included
  double loss = 0;               ///< mean over the micro-batches, before the update
  double learning_rate = 0;      ///< of the update
  double gradient_norm = 0;      ///< before clipping
  double tokens_per_second = 0;  ///< of this step; 0 when tokens_per_step is 0
  double seconds = 0;            ///< time spent in steps so far, earlier processes included
};

/// The loss of micro-batch `micro` (in [0, accumulation)) of the step that follows `step` finished ones: one number
/// with a gradient graph. libtorch's generators are seeded before each call from (seed, step, micro), so whatever it
/// draws (dropout) needs no state; data should likewise be a function of the two numbers, or keep its cursor in
/// TrainCallbacks::extra.
using LossFunction = std::function<at::Tensor(std::int64_t step, std::int64_t micro)>;

/// Hooks; each may be empty.
struct TrainCallbacks {
  std::function<void(const StepReport&)> on_step;  ///< after a step, before its state is saved
  /// May add keys to the log's line of a step and words to the progress line.
  std::function<void(Json& line, std::string& shown)> annotate;
  std::function<std::map<std::string, std::string>()> extra;  ///< the caller's cursors, asked for at every save (UTF-8)
  std::function<void(const std::map<std::string, std::string>&)> restore;  ///< given back once on resuming
};

/// A finished run.
struct TrainResult {
  std::vector<double> losses;     ///< of every step from the first on, those of earlier processes included
  double seconds = 0;             ///< time spent in steps, likewise; saving and hooks do not count
  std::int64_t tokens = 0;        ///< steps * tokens_per_step
  std::int64_t resumed_from = 0;  ///< finished steps when this process took over; 0 = from the start
};

/// Trains `parameters` in place. Deterministic for one machine, build and number of threads, and a run that was stopped
/// or killed and resumed, however often, ends with the same bits as an undisturbed one.
///
/// The state is one file that is replaced as a whole; beside it, with the ending .json, a short summary is written for
/// people, which is never read. It is checked before the first step that both can be written.
///
/// Lines of the log: {"event": "start" | "resume", "step", "steps", "seed", "configuration_sha256"},
/// {"event": "step", "step", "loss", "learning_rate", "gradient_norm", "tokens_per_second", "seconds"},
/// {"event": "save", "step"}, {"event": "stop", "step", "reason"}, {"event": "done", "step", "loss", "seconds"}.
/// "step" counts finished steps. After a kill, "resume" or "start" has a lower step than the lines before it: those
/// above it are repeated, with the same numbers.
///
/// Throws
/// - UsageError: options out of range;
/// - Interrupted: `stop` was set; the state of the last step has been saved;
/// - Error: a loss or gradient that is not finite or a loss that is no single number (naming the step; the state on the
///   disk stays that of the last save), a state that does not fit, is damaged or belongs to another configuration
///   (nothing is changed then), a file that cannot be written (the old state is intact).
/// What the callbacks throw passes through.
TrainResult train(std::vector<NamedParameter> parameters, const TrainOptions& options, const LossFunction& loss_of,
                  const TrainCallbacks& callbacks = {});

}  // namespace torsor
