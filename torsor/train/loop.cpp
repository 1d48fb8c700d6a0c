#include "torsor/train/loop.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/base/random.h"
#include "torsor/base/utf8.h"
#include "torsor/train/snapshot.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

constexpr const char* weight_prefix = "parameter.";
constexpr const char* losses_name = "losses";

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void check_options(const TrainOptions& options) {
  if (!(options.clip_norm >= 0) || !std::isfinite(options.clip_norm)) {
    throw UsageError(str("clip_norm must be finite and at least 0, got ", options.clip_norm));
  }
  if (options.accumulation < 1) throw UsageError(str("accumulation must be at least 1, got ", options.accumulation));
  if (options.save_every < 0) throw UsageError(str("save_every must be at least 0, got ", options.save_every));
  if (options.tokens_per_step < 0) {
    throw UsageError(str("tokens_per_step must be at least 0, got ", options.tokens_per_step));
  }
  if (options.resume && options.state.empty()) throw UsageError("resume needs a state file");
}

Json configuration_of(const TrainOptions& options, const std::vector<NamedParameter>& parameters) {
  Json decayed = Json::array();
  for (const NamedParameter& parameter : parameters) {
    if (parameter.decay) decayed.push_back(parameter.name);
  }
  const Json configuration = {
      {"steps", options.steps},
      {"learning_rate", options.learning_rate},
      {"warmup_steps", options.warmup_steps},
      {"final_ratio", options.final_ratio},
      {"decay", decay_name(options.decay)},
      {"beta1", options.adamw.beta1},
      {"beta2", options.adamw.beta2},
      {"epsilon", options.adamw.epsilon},
      {"weight_decay", options.adamw.weight_decay},
      {"clip_norm", options.clip_norm},
      {"accumulation", options.accumulation},
      {"seed", options.seed},
      {"decayed_parameters", decayed},
      {"run", options.configuration},
  };
  // As it will read back: a NaN of the caller's becomes null on both sides.
  return parse_json(json_text(configuration), "the configuration");
}

// One process's share of a run.
class Loop {
 public:
  Loop(std::vector<NamedParameter> parameters, const TrainOptions& options, const LossFunction& loss_of,
       const TrainCallbacks& callbacks)
      : options_(options),
        loss_of_(loss_of),
        callbacks_(callbacks),
        schedule_{options.learning_rate, options.steps, options.warmup_steps, options.final_ratio, options.decay},
        optimizer_(std::move(parameters), options.adamw),
        configuration_(configuration_of(options, optimizer_.parameters())) {
    check_schedule(schedule_);
    check_options(options_);
  }

  TrainResult run() {
    prepare_files();
    std::error_code ignored;
    const bool resumed = options_.resume && std::filesystem::exists(options_.state, ignored);
    if (resumed) restore();
    const std::int64_t first = done_;
    log({{"event", resumed ? "resume" : "start"},
         {"step", done_},
         {"steps", options_.steps},
         {"seed", options_.seed},
         {"configuration_sha256", sha256_hex(json_text(configuration_))}});
    std::optional<Progress> progress;
    if (options_.progress != nullptr) {
      Progress::Options shown = *options_.progress;
      shown.total = options_.steps;
      shown.start = done_;
      progress.emplace(shown);
    }
    try {
      work(first, progress);
    } catch (const Error& error) {
      optimizer_.zero_gradients();
      try {
        log({{"event", "stop"}, {"step", done_}, {"reason", error.what()}});
      } catch (const Error&) {
        // The first error is the one to tell.
      }
      throw;
    }
    optimizer_.zero_gradients();
    if (progress) progress->finish();
    log({{"event", "done"}, {"step", done_}, {"loss", losses_.back()}, {"seconds", seconds_}});
    return {losses_, seconds_, options_.steps * options_.tokens_per_step, first};
  }

 private:
  // Finds out now, not after hours of work, that a file cannot be written.
  void prepare_files() {
    if (!options_.state.empty()) {
      const AtomicFile state(options_.state);
      const AtomicFile summary(summary_path());
    }
    if (!options_.log.empty()) log_.emplace(options_.log);
  }

  std::string summary_path() const { return std::filesystem::path(options_.state).replace_extension(".json").string(); }

  void work(std::int64_t first, std::optional<Progress>& progress) {
    const double seconds_before = seconds_;
    while (done_ < options_.steps) {
      if (options_.stop != nullptr && options_.stop->load()) stop();
      const StepReport report = step();
      Json line = {{"event", "step"},
                   {"step", report.step},
                   {"loss", report.loss},
                   {"learning_rate", report.learning_rate},
                   {"gradient_norm", report.gradient_norm}};
      if (options_.tokens_per_step > 0) line["tokens_per_second"] = report.tokens_per_second;
      line["seconds"] = report.seconds;
      std::string shown;
      if (callbacks_.annotate) callbacks_.annotate(line, shown);
      log(line);
      if (callbacks_.on_step) callbacks_.on_step(report);
      const bool due = options_.save_every > 0 && done_ % options_.save_every == 0;
      if (due || done_ == options_.steps) save();
      if (progress) progress->update(done_, summary(report, first, seconds_ - seconds_before) + shown);
    }
  }

  std::string summary(const StepReport& report, std::int64_t first, double seconds) const {
    char text[64];
    std::snprintf(text, sizeof text, "loss %.4g", report.loss);
    std::string line = text;
    if (options_.tokens_per_step > 0 && seconds > 0) {
      const double tokens = static_cast<double>((done_ - first) * options_.tokens_per_step);
      std::snprintf(text, sizeof text, "  %.0f tokens/s", tokens / seconds);
      line += text;
    }
    return line;
  }

  StepReport step() {
    const double begun = now();
    StepReport report;
    optimizer_.zero_gradients();
    for (std::int64_t micro = 0; micro < options_.accumulation; ++micro) {
      report.loss += add_gradients(micro) / static_cast<double>(options_.accumulation);
    }
    report.gradient_norm = optimizer_.clip_gradients(options_.clip_norm > 0 ? options_.clip_norm
                                                                            : std::numeric_limits<double>::infinity());
    report.learning_rate = learning_rate_at(schedule_, done_);
    optimizer_.update(report.learning_rate);
    ++done_;
    losses_.push_back(report.loss);
    const double taken = now() - begun;
    seconds_ += taken;
    report.step = done_;
    report.seconds = seconds_;
    if (taken > 0) report.tokens_per_second = static_cast<double>(options_.tokens_per_step) / taken;
    return report;
  }

  // Adds the gradients of one micro-batch's share of the mean; returns its loss.
  double add_gradients(std::int64_t micro) {
    static const std::uint64_t stream = stream_of("train");
    const auto call = static_cast<std::uint64_t>(done_ * options_.accumulation + micro);
    at::manual_seed(random_at(options_.seed, stream, call));
    const at::AutoGradMode gradients(true);
    const at::Tensor loss = loss_of_(done_, micro);
    const auto refuse = [&](const std::string& what) { throw Error(str("step ", done_ + 1, ": the loss ", what)); };
    if (!loss.defined() || loss.numel() != 1 || !loss.is_floating_point()) {
      refuse("must be one floating-point number, got " + describe_tensor(loss));
    }
    if (!loss.requires_grad()) refuse("does not depend on any parameter");
    const double value = loss.item<double>();
    if (!std::isfinite(value)) refuse(str("is ", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"));
    (options_.accumulation == 1 ? loss : loss / static_cast<double>(options_.accumulation)).backward();
    return value;
  }

  [[noreturn]] void stop() {
    if (options_.state.empty()) throw Interrupted(str("stopped after step ", done_, " of ", options_.steps));
    if (saved_ != done_) save();
    throw Interrupted(
        str("stopped after step ", done_, " of ", options_.steps, "; the state is in ", quote(options_.state)));
  }

  void save() {
    if (options_.state.empty()) return;
    Snapshot snapshot;
    snapshot.step = done_;
    snapshot.seed = options_.seed;
    snapshot.seconds = seconds_;
    snapshot.configuration = configuration_;
    if (callbacks_.extra) snapshot.extra = callbacks_.extra();
    snapshot.tensors = optimizer_.state();
    for (const NamedParameter& parameter : optimizer_.parameters()) {
      snapshot.tensors.emplace(weight_prefix + parameter.name, parameter.tensor);
    }
    snapshot.tensors.emplace(losses_name, at::tensor(losses_, at::kDouble));
    save_snapshot(options_.state, snapshot);
    saved_ = done_;
    log({{"event", "save"}, {"step", done_}});
    if (log_) log_->sync();
    const Json summary = {{"step", done_},
                          {"steps", options_.steps},
                          {"loss", losses_.empty() ? Json() : Json(losses_.back())},
                          {"seconds", seconds_},
                          {"configuration_sha256", sha256_hex(json_text(configuration_))},
                          {"configuration", configuration_}};
    write_file_atomic(summary_path(), json_text(summary, 2) + "\n");
  }

  void restore() {
    const Snapshot snapshot = load_snapshot(options_.state, configuration_);
    const std::string source = "state " + quote(options_.state);
    const auto& tensors = snapshot.tensors;
    // All is checked before anything is changed.
    if (snapshot.step < 0 || snapshot.step > options_.steps) {
      throw Error(str(source, ": step ", snapshot.step, " lies outside the run of ", options_.steps));
    }
    const at::Tensor losses = find_tensor(tensors, losses_name, at::empty({snapshot.step}, at::kDouble), source);
    std::map<std::string, at::Tensor> expected = optimizer_.state();
    expected.emplace(losses_name, losses);
    for (const NamedParameter& parameter : optimizer_.parameters()) {
      const std::string name = weight_prefix + parameter.name;
      find_tensor(tensors, name, parameter.tensor, source);
      expected.emplace(name, parameter.tensor);
    }
    for (const auto& [name, tensor] : tensors) {
      if (expected.count(name) == 0) throw Error(str(source, ": tensor ", quote(name), " is not part of this run"));
    }
    optimizer_.restore(tensors, snapshot.step, source);
    const at::NoGradGuard no_grad;
    for (const NamedParameter& parameter : optimizer_.parameters()) {
      parameter.tensor.copy_(tensors.at(weight_prefix + parameter.name));
    }
    done_ = saved_ = snapshot.step;
    seconds_ = snapshot.seconds;
    losses_.assign(losses.const_data_ptr<double>(), losses.const_data_ptr<double>() + losses.numel());
    if (callbacks_.restore) callbacks_.restore(snapshot.extra);
  }

  void log(const Json& line) {
    if (log_) log_->append_line(json_text(line));
  }

  const TrainOptions& options_;
  const LossFunction& loss_of_;
  const TrainCallbacks& callbacks_;
  Schedule schedule_;
  AdamW optimizer_;
  Json configuration_;
  std::optional<AppendFile> log_;
  std::vector<double> losses_;
  std::int64_t done_ = 0;
  std::int64_t saved_ = -1;  // the step whose state is on the disk
  double seconds_ = 0;
};

}  // namespace

TrainResult train(std::vector<NamedParameter> parameters, const TrainOptions& options, const LossFunction& loss_of,
                  const TrainCallbacks& callbacks) {
  return Loop(std::move(parameters), options, loss_of, callbacks).run();
}

}  // namespace torsor
