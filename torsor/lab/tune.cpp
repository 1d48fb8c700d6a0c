#include "torsor/lab/tune.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "torsor/base/file.h"
#include "torsor/lab/compare.h"
#include "torsor/lab/effects.h"
#include "torsor/lab/evaluate.h"
#include "torsor/lab/machine.h"
#include "torsor/lab/results_folder.h"

namespace torsor {
namespace {

/// The data must be what the base reads.
void check_data(const TuneBase& base, const LmData& data) {
  const std::string& reads = base.origin.tokenizer;
  if (data.train.tokenizer != reads)
    throw Error(str("'", base.origin.folder, "' reads '", reads, "', the data are '", data.train.tokenizer, "'; give ",
                    reads == "bytes" ? "--text" : "--tokens"));
  const auto largest = static_cast<std::int64_t>(std::max(data.train.vocabulary_size, data.valid.vocabulary_size));
  if (largest > base.origin.config.vocabulary_size)
    throw Error(str("the data have token ids up to ", largest - 1, ", '", base.origin.folder, "' knows those below ",
                    base.origin.config.vocabulary_size));
}

double mean_loss(const Decoder& model, const at::Tensor& windows, at::ScalarType dtype) {
  const at::NoGradGuard no_gradient;
  return model.token_losses(windows, dtype).mean().item<double>();
}

TuneStart start_of(const TuneBase& base, const TunedModel& tuned, const at::Tensor& windows, at::ScalarType dtype) {
  TuneStart start;
  start.trained = tuned.trained_count();
  start.frozen = tuned.frozen_count();
  start.fresh = tuned.fresh;
  start.loss = mean_loss(tuned.model, windows, dtype);
  try {
    start.base_loss = mean_loss(base.model, windows, dtype);
  } catch (const Refusal&) {
    // A learned table, asked past its last row: a reason to tune, not to stop.
  }
  return start;
}

}  // namespace

RunPlan TunePlan::default_run() {
  RunPlan run;
  run.learning_rate = 1e-3;
  run.weight_decay = 0;
  return run;
}

TuneBase load_tune_base(const std::string& folder) {
  if (is_adapter(folder))
    throw Error(str("'", folder, "' holds an adapter; merge it into a checkpoint first: torsor tune --merge"));
  LoadedModel loaded = load_checkpoint(folder);
  AdapterBase origin{folder,          weights_sha256(folder), loaded.tokenizer, loaded.model.config(),
                     loaded.embedder, loaded.reader};
  return {std::move(loaded.model), std::move(origin)};
}

Json tune_to_json(const TunePlan& plan) {
  Json json = adapter_to_json(plan.adapter);
  Json run = plan_to_json(plan.run);
  run.erase("encoding");
  run.erase("model");
  for (const auto& [key, value] : run.items()) json[key] = value;
  return json;
}

TuneResult tune_run(const TuneBase& base, const TunePlan& plan, const LmData& data, const RunControl& control,
                    const std::function<void(const TuneStart&)>& on_start) {
  check_data(base, data);
  TunedModel tuned = make_tuned(base.model, plan.adapter, plan.run.seed);
  // What the data or the encoding refuses is refused before anything is written.
  const BatchSampler sampler(data.train, static_cast<std::size_t>(plan.run.batch),
                             static_cast<std::size_t>(plan.run.length), plan.run.seed);
  const TuneStart start = start_of(base, tuned, windows_of(sampler, 0), dtype_named(plan.run.dtype));
  if (on_start) on_start(start);
  make_directories(control.folder);
  const FolderClaim claim(control.folder);
  // A tuning that starts anew leaves nothing of an earlier one beside it.
  std::error_code ignored;
  if (!control.resume)
    for (const char* name : {"/report.html", "/results.csv", "/results.json", "/log.jsonl"})
      std::filesystem::remove(control.folder + name, ignored);
  TrainOptions options;
  options.configuration = tune_to_json({tuned.plan, plan.run});
  options.configuration["base_sha256"] = base.origin.weights_sha256;
  options.configuration["data_sha256"] = data.sha256;
  options.decay = RateDecay::Constant;
  options.save_every = control.save_every;
  options.state = control.folder + "/state.safetensors";
  options.log = control.folder + "/log.jsonl";
  options.resume = control.resume;
  options.stop = control.stop;
  options.progress = control.progress;
  std::vector<NamedParameter> parameters;
  for (const ModelParameter& parameter : tuned.trained)
    parameters.push_back({parameter.name, parameter.tensor, parameter.decay});
  TrainResult train =
      train_parameters(std::move(parameters), tuned.model, plan.run, text_training(plan.run, data.train, data.sha256),
                       options, {}, control.on_message);
  Json run = plan_to_json(plan.run);
  run.erase("encoding");
  run.erase("model");
  run["data_sha256"] = data.sha256;
  save_adapter(control.folder, tuned, base.origin, run);
  return {std::move(tuned), std::move(train)};
}

namespace {

EvaluationPlan windows_for(const Corpus& corpus, const TuneEvaluation& evaluation) {
  return evaluation_windows(corpus, std::vector<std::size_t>(evaluation.lengths.begin(), evaluation.lengths.end()),
                            static_cast<std::size_t>(evaluation.spans));
}

}  // namespace

Json evaluate_lengths(const Decoder& model, const Corpus& corpus, const TuneEvaluation& evaluation,
                      at::ScalarType dtype, const std::function<bool()>& stop) {
  const EvaluationPlan plan = windows_for(corpus, evaluation);
  Json list = Json::array();
  for (const std::int64_t length : evaluation.lengths)
    list.push_back(evaluation_to_json(evaluate_lm(model, corpus, plan, length, dtype, stop)));
  return list;
}

namespace {

/// A word as a shell reads it back.
std::string shell_word(const std::string& word) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-,=:+";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

template <class T>
std::string listed(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += str(text.empty() ? "" : ",", value);
  return text;
}

/// The command that makes the results again; `job` is its own part.
std::string repeat_command(const std::string& checkpoint, const std::string& job, const AdapterPlan& adapter,
                           const RunPlan& run, const DataSource& data, const TuneEvaluation& evaluation) {
  std::string text = str("torsor tune ", shell_word(checkpoint), " ", job);
  if (adapter.train == "lora")
    text += str(" --rank ", adapter.lora.rank, " --alpha ", adapter.lora.alpha, " --modules ",
                listed(adapter.lora.modules));
  if (!adapter.with.empty()) text += " --with " + listed(adapter.with);
  for (const std::string& path : data.text) text += " --text " + shell_word(path);
  for (const std::string& path : data.valid) text += " --valid " + shell_word(path);
  if (!data.tokens.empty()) text += str(" --tokens ", shell_word(data.tokens), " --token-bytes ", data.token_bytes);
  return text + str(" --length ", run.length, " --steps ", run.steps, " --batch ", run.batch, " --accumulation ",
                    run.accumulation, " --learning-rate ", json_text(Json(run.learning_rate)), " --warmup ",
                    run.warmup_steps, " --weight-decay ", json_text(Json(run.weight_decay)), " --dtype ", run.dtype,
                    " --eval-lengths ", listed(evaluation.lengths), " --eval-spans ", evaluation.spans, " --threads ",
                    at::get_num_threads(), " --out again");
}

/// A run's entry in results.json before anything is known of its end.
Json run_json(const std::string& label, std::uint64_t seed) {
  return {{"encoding", label}, {"seed", seed}, {"status", "ok"}, {"reason", ""}};
}

/// The entry of what was evaluated; `train` is empty for a model that was not tuned.
void fill(Json& run, std::int64_t trained, const TrainResult& train, const Json& eval) {
  run["parameters"] = trained;
  run["train"] = train_to_json(train);
  run["peak_memory_bytes"] = nullptr;
  run["decode_tokens_per_second"] = nullptr;
  run["eval"] = eval;
}

Json document_of(const Json& config, const Json& runs, const Json& effects) {
  Json json;
  json["format"] = "torsor-results-1";
  json["config"] = config;
  json["machine"] = describe_machine();
  json["runs"] = runs;
  json["summary"] = json["verdict"] = Json::array();
  json["effects"] = effects;
  return json;
}

Json effect_named(const std::string& label, const Decoder& model, std::int64_t longest) {
  Json effect = effect_of(model, longest);
  effect["encoding"] = label;
  return effect;
}

Json base_to_json(const AdapterBase& base) {
  return {{"weights_sha256", base.weights_sha256}, {"encoding", base.config.encoding}};
}

TuneMethod parse_method(const std::string& text, const AdapterPlan& shared, const ModelConfig& base) {
  const std::size_t colon = text.find(':');
  const std::string word = trimmed(text.substr(0, colon));
  const std::string expression = colon == std::string::npos ? "" : trimmed(text.substr(colon + 1));
  if (word != "lora" && word != "positions" && word != "tape" && word != "base")
    throw UsageError(str("a method must be lora, positions, tape or base, alone or with ': EXPRESSION', found '", text,
                         "'; several stand with ';' between them"));
  TuneMethod method;
  method.trained = word != "base";
  method.adapter = shared;
  // A low-rank term that is never trained is none: the base under its encoding.
  method.adapter.train = method.trained ? word : "lora";
  if (!method.trained) method.adapter.with.clear();
  if (word == "positions" || word == "tape")
    std::erase(method.adapter.with, std::string("positions"));  // trained by the method itself
  method.adapter.encoding = expression;
  method.adapter = complete_plan(method.adapter, base);
  method.label = expression.empty() ? word : str(word, ": ", method.adapter.encoding);
  return method;
}

class TuneComparison {
 public:
  TuneComparison(const TuneComparePlan& plan, const TuneCompareControl& control)
      : plan_(plan),
        control_(control),
        base_(load_tune_base(plan.checkpoint)),
        methods_(parse_methods(plan.methods, plan.shared, base_.origin.config)) {}

  Json run() {
    prepare();
    for (const std::int64_t seed : plan_.seeds)
      for (const TuneMethod& method : methods_) {
        if (stopped()) throw interrupted();
        runs_.push_back(one_run(method, static_cast<std::uint64_t>(seed)));
        const Json document = results();
        folder_->write(document);
        if (control_.on_results) control_.on_results(document);
      }
    return results();
  }

 private:
  bool stopped() const { return control_.stop && control_.stop->load(); }
  Interrupted interrupted() const { return Interrupted(str("stopped; go on with --resume --out ", control_.folder)); }

  void prepare() {
    data_ = load_data(plan_.data, std::max(plan_.run.length, plan_.evaluation.lengths.back()), base_.origin.reader);
    check_data(base_, data_);
    // Everything that can be refused is refused before the first step.
    const BatchSampler refusing(data_.train, static_cast<std::size_t>(plan_.run.batch),
                                static_cast<std::size_t>(plan_.run.length), 0);
    windows_for(data_.valid, plan_.evaluation);
    Json labels = Json::array();
    for (const TuneMethod& method : methods_) labels.push_back(method.label);
    config_["methods"] = labels;
    config_["task"] = "lm";
    config_["base"] = base_to_json(base_.origin);
    config_["rank"] = plan_.shared.lora.rank;
    config_["alpha"] = plan_.shared.lora.alpha;
    config_["modules"] = plan_.shared.lora.modules;
    config_["with"] = plan_.shared.with;
    config_["parameters"] = "what was trained";
    config_["data"] = data_to_json(plan_.data);
    config_["length"] = plan_.run.length;
    config_["eval_lengths"] = plan_.evaluation.lengths;
    config_["eval_spans"] = plan_.evaluation.spans;
    config_["seeds"] = plan_.seeds;
    Json run = plan_to_json(plan_.run);
    for (const char* key : {"encoding", "model", "length", "seed"}) run.erase(key);
    config_["run"] = run;
    config_["threads"] = at::get_num_threads();
    std::string methods;
    for (const TuneMethod& method : methods_) methods += (methods.empty() ? "" : "; ") + method.label;
    config_["repeat"] =
        repeat_command(plan_.checkpoint, str("--compare ", shell_word(methods), " --seeds ", listed(plan_.seeds)),
                       plan_.shared, plan_.run, plan_.data, plan_.evaluation);
    config_["data_sha256"] = data_.sha256;
    folder_.emplace(control_.folder, config_, control_.resume, control_.force);
    if (control_.on_message) control_.on_message(data_.description);
  }

  Json one_run(const TuneMethod& method, std::uint64_t seed) {
    // What is not trained is the same whatever the seed.
    if (!method.trained)
      for (const Json& earlier : runs_)
        if (earlier.at("encoding") == method.label) {
          Json run = earlier;
          run["seed"] = seed;
          return run;
        }
    const std::string folder = folder_->run_folder(method.label, seed);
    Json json;
    if (const auto earlier = folder_->recorded(method.label, seed)) {
      json = *earlier;
    } else {
      json = run_json(method.label, seed);
      reset_peak_memory();
      attempt(json, control_.folder, control_.on_message, [&] {
        method.trained ? tune(method, seed, folder, json) : judge(method, json);
        if (const std::int64_t memory = peak_memory(); memory > 0 && method.trained) json["peak_memory_bytes"] = memory;
      });
      make_directories(folder);
      folder_->record(folder, json);
    }
    if (!json.at("effect").is_null() && seed == static_cast<std::uint64_t>(plan_.seeds.front()))
      effects_.push_back(json.at("effect"));
    json.erase("effect");
    return json;
  }

  void tune(const TuneMethod& method, std::uint64_t seed, const std::string& folder, Json& json) {
    TunePlan plan{method.adapter, plan_.run};
    plan.run.seed = seed;
    RunControl control;
    control.folder = folder;
    control.save_every = 50;
    control.resume = true;
    control.stop = control_.stop;
    std::optional<Progress::Options> progress;
    if (control_.progress)
      progress.emplace(control_.progress(plan_.seeds.size() > 1 ? str(method.label, " seed ", seed) : method.label));
    control.progress = progress ? &*progress : nullptr;
    const TuneResult result = tune_run(base_, plan, data_, control);
    finish(result.tuned.merged(), result.tuned.trained_count(), result.train, json);
  }

  void judge(const TuneMethod& method, Json& json) {
    finish(make_tuned(base_.model, method.adapter, 0).merged(), 0, {}, json);
  }

  void finish(const Decoder& model, std::int64_t trained, const TrainResult& train, Json& json) {
    fill(json, trained, train,
         evaluate_lengths(model, data_.valid, plan_.evaluation, dtype_named(plan_.run.dtype),
                          [this] { return stopped(); }));
    json["effect"] = effect_named(json.at("encoding"), model, plan_.evaluation.lengths.back());
  }

  Json results() const { return document_of(config_, runs_, effects_); }

  const TuneComparePlan& plan_;
  const TuneCompareControl& control_;
  TuneBase base_;
  std::vector<TuneMethod> methods_;
  LmData data_;
  Json config_;
  std::optional<ResultsFolder> folder_;
  Json runs_ = Json::array(), effects_ = Json::array();
};

}  // namespace

Json tune_results(const TuneBase& base, const TunePlan& plan, const TuneResult& result, const DataSource& source,
                  const LmData& data, const TuneEvaluation& evaluation, const Json& before, const Json& after) {
  Json config = tune_to_json({result.tuned.plan, plan.run});
  config["task"] = "lm";
  config["base"] = base_to_json(base.origin);
  config["parameters"] = "what was trained";
  config["data"] = data_to_json(source);
  config["eval_lengths"] = evaluation.lengths;
  config["eval_spans"] = evaluation.spans;
  config["threads"] = at::get_num_threads();
  const AdapterPlan& adapter = result.tuned.plan;
  config["repeat"] = repeat_command(
      base.origin.folder,
      str("--train ", adapter.train, " --encoding ", shell_word(adapter.encoding), " --seed ", plan.run.seed), adapter,
      plan.run, source, evaluation);
  config["data_sha256"] = data.sha256;
  Json first = run_json("before", plan.run.seed), second = run_json("after", plan.run.seed);
  fill(first, 0, {}, before);
  fill(second, result.tuned.trained_count(), result.train, after);
  const std::int64_t longest = evaluation.lengths.back();
  return document_of(
      config, {first, second},
      {effect_named("before", base.model, longest), effect_named("after", result.tuned.merged(), longest)});
}

std::vector<TuneMethod> parse_methods(const std::vector<std::string>& texts, const AdapterPlan& shared,
                                      const ModelConfig& base) {
  std::vector<TuneMethod> methods;
  for (const std::string& text : texts) {
    std::size_t begin = 0;
    while (begin <= text.size()) {
      const std::size_t end = std::min(text.find(';', begin), text.size());
      const std::string one = trimmed(text.substr(begin, end - begin));
      begin = end + 1;
      if (one.empty()) continue;
      TuneMethod method = parse_method(one, shared, base);
      const auto same = [&](const TuneMethod& other) { return other.label == method.label; };
      if (std::none_of(methods.begin(), methods.end(), same)) methods.push_back(std::move(method));
    }
  }
  if (methods.empty()) throw UsageError("no method was given; separate several with ';'");
  return methods;
}

Json compare_tunings(const TuneComparePlan& plan, const TuneCompareControl& control) {
  return TuneComparison(plan, control).run();
}

}  // namespace torsor
