#include "torsor/lab/run.h"

#include <filesystem>
#include <system_error>

#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/lab/state_watch.h"
#include "torsor/model/checkpoint.h"

namespace torsor {

at::ScalarType dtype_named(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  throw UsageError(str("dtype must be float32 or bf16, found ", name));
}

void check_axes(const Encoding& encoding, const std::string& expression) {
  if (const std::int64_t axes = encoding.traits().axes; axes != 1)
    throw UsageError(str("'", expression, "' reads ", axes, " position axes, and the tokens of a text have one"));
}

Decoder make_model(const RunPlan& plan, std::uint32_t vocabulary_size) {
  ModelConfig config = plan.model;
  config.encoding = plan.encoding;
  config.vocabulary_size = vocabulary_size;
  config.train_length = plan.length;
  config.complete();
  check_axes(*make_encoding(config.encoding, config.dimensions()), config.encoding);
  return Decoder(config, plan.seed);
}

Json plan_to_json(const RunPlan& plan) {
  Json json;
  json["encoding"] = plan.encoding;
  json["model"] = model_to_json(plan.model);
  json["length"] = plan.length;
  json["batch"] = plan.batch;
  json["accumulation"] = plan.accumulation;
  json["steps"] = plan.steps;
  json["learning_rate"] = plan.learning_rate;
  json["warmup_steps"] = plan.warmup_steps;
  json["weight_decay"] = plan.weight_decay;
  json["seed"] = plan.seed;
  json["dtype"] = plan.dtype;
  if (plan.tag_loss != 1) json["tag_loss"] = plan.tag_loss;
  return json;
}

TrainingData text_training(const RunPlan& plan, const Corpus& text, const std::string& sha256,
                           std::shared_ptr<const SyntaxFeed> feed) {
  const at::ScalarType dtype = dtype_named(plan.dtype);
  // The data's order depends on the seed alone, so encodings of one seed are compared on the same batches.
  const BatchSampler sampler(text, static_cast<std::size_t>(plan.batch), static_cast<std::size_t>(plan.length),
                             plan.seed);
  return {text.tokenizer,
          text.vocabulary_size,
          sha256,
          [=, weight = plan.tag_loss](const Decoder& model, std::uint64_t index) {
            if (model.encoding().inputs().empty()) return model.token_losses(windows_of(sampler, index), dtype).mean();
            const bool heads = model.tag_heads().there();
            const NamedTensors named = feed_windows(feed.get(), model.encoding(), text, sampler.at(index), heads);
            if (!heads) return model.token_losses(windows_of(sampler, index), dtype, named).mean();
            const Decoder::JointLosses losses = model.joint_losses(windows_of(sampler, index), named, dtype);
            const at::Tensor tags = losses.tags.mean() * weight;
            // Their gradient without their value: records hold the same kind of loss for every encoding.
            return losses.tokens.mean() + (tags - tags.detach());
          },
          feed ? feed->embedder() : std::string(),
          text.reader};
}

at::Tensor windows_of(const BatchSampler& sampler, std::uint64_t micro_batch) {
  const Batch batch = sampler.at(micro_batch);
  return at::tensor(batch.tokens, at::kLong)
      .view({static_cast<std::int64_t>(batch.rows), static_cast<std::int64_t>(batch.length) + 1});
}

namespace {

void apply(const RunPlan& plan, TrainOptions& options) {
  options.steps = plan.steps;
  options.learning_rate = plan.learning_rate;
  options.warmup_steps = plan.warmup_steps;
  options.adamw.weight_decay = plan.weight_decay;
  options.accumulation = plan.accumulation;
  options.seed = plan.seed;
  options.tokens_per_step = plan.batch * plan.length * plan.accumulation;
}

}  // namespace

TrainOptions train_options(const RunPlan& plan, const RunControl& control) {
  TrainOptions options;
  apply(plan, options);
  options.save_every = control.save_every;
  options.state = control.folder + "/state.safetensors";
  options.log = control.folder + "/log.jsonl";
  options.resume = control.resume;
  options.stop = control.stop;
  options.progress = control.progress;
  return options;
}

TrainResult train_parameters(std::vector<NamedParameter> parameters, Decoder& model, const RunPlan& plan,
                             const TrainingData& data, TrainOptions options, TrainCallbacks callbacks,
                             const std::function<void(const std::string&)>& on_message) {
  StateWatch watch(model, on_message);
  callbacks.annotate = [&](Json& line, std::string& shown) { watch.annotate(line, shown); };
  apply(plan, options);
  return train(
      std::move(parameters), options,
      [&](std::int64_t step, std::int64_t micro) {
        if (micro == 0) watch.begin(step);
        return data.loss(model, static_cast<std::uint64_t>(step * plan.accumulation + micro));
      },
      callbacks);
}

TrainResult train_model(Decoder& model, const RunPlan& plan, const TrainingData& data, TrainOptions options,
                        const TrainCallbacks& callbacks, const std::function<void(const std::string&)>& on_message) {
  model.require_gradients();
  std::vector<NamedParameter> parameters;
  for (const ModelParameter& parameter : model.parameters())
    parameters.push_back({parameter.name, parameter.tensor, parameter.decay});
  return train_parameters(std::move(parameters), model, plan, data, std::move(options), callbacks, on_message);
}

TrainResult train_model(Decoder& model, const RunPlan& plan, const Corpus& data, TrainOptions options,
                        const TrainCallbacks& callbacks) {
  return train_model(model, plan, text_training(plan, data, ""), std::move(options), callbacks);
}

RunResult train_run(const RunPlan& plan, const TrainingData& data, const RunControl& control) {
  Decoder model = make_model(plan, data.vocabulary_size);
  make_directories(control.folder);
  const FolderClaim claim(control.folder);
  // A run that starts anew has a log of its own.
  std::error_code ignored;
  if (!control.resume) std::filesystem::remove(control.folder + "/log.jsonl", ignored);
  TrainOptions options = train_options(plan, control);
  options.configuration = plan_to_json(plan);
  options.configuration["data_sha256"] = data.sha256;
  TrainCallbacks callbacks;
  if (control.on_step) callbacks.on_step = [&](const StepReport& report) { control.on_step(model, report); };
  TrainResult result;
  try {
    result = train_model(model, plan, data, options, callbacks, control.on_message);
  } catch (...) {
    // What was refused before a state was there leaves no log behind: it would be in the way of the next try.
    if (!control.resume && !std::filesystem::exists(options.state, ignored))
      std::filesystem::remove(options.log, ignored);
    throw;
  }
  save_checkpoint(control.folder, model, data.tokenizer, data.embedder, data.reader);
  return {std::move(model), result};
}

RunResult train_run(const RunPlan& plan, const LmData& data, const RunControl& control,
                    std::shared_ptr<const SyntaxFeed> feed) {
  // What the data refuses is refused before anything is written.
  const std::string sha256 = feed ? sha256_hex(data.sha256 + feed->sha256()) : data.sha256;
  return train_run(plan, text_training(plan, data.train, sha256, std::move(feed)), control);
}

}  // namespace torsor
