// The comparison of encoders on GLUE-layout tasks: part of glue.h.
#include <ATen/Parallel.h>

#include <optional>

#include "torsor/base/hash.h"
#include "torsor/lab/cells.h"
#include "torsor/lab/glue.h"
#include "torsor/lab/machine.h"
#include "torsor/lab/results_folder.h"

namespace torsor {
namespace {

constexpr std::int64_t kValidWindows = 256;  // of the pseudo-perplexity

Json fine_to_json(const FineTunePlan& plan) {
  return {{"epochs", plan.epochs},
          {"most_steps", plan.most_steps},
          {"batch", plan.batch},
          {"learning_rate", plan.learning_rate},
          {"weight_decay", plan.weight_decay},
          {"warmup", plan.warmup},
          {"most_train", plan.most_train},
          {"most_dev", plan.most_dev}};
}

FineTunePlan fine_from_json(const Json& json, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  FineTunePlan plan;
  plan.epochs = object.get<double>("epochs");
  plan.most_steps = object.get<std::int64_t>("most_steps");
  plan.batch = object.get<std::int64_t>("batch");
  plan.learning_rate = object.get<double>("learning_rate");
  plan.weight_decay = object.get<double>("weight_decay");
  plan.warmup = object.get<double>("warmup");
  plan.most_train = object.get<std::int64_t>("most_train");
  plan.most_dev = object.get<std::int64_t>("most_dev");
  object.finish();
  if (!(plan.epochs > 0) || plan.batch < 1 || plan.most_steps < 0 || !(plan.warmup >= 0 && plan.warmup <= 1))
    throw Error(source + ": epochs and batch must be above 0, most_steps at least 0, warmup in [0, 1]");
  return plan;
}

std::string hash_of(const std::vector<GlueData>& tasks) {
  Sha256 hash;
  const auto add = [&](const std::vector<GlueExample>& examples) {
    for (const GlueExample& one : examples)
      hash.update(str(one.first, '\t', one.second, '\t', one.label, '\t', one.score, '\n'));
  };
  for (const GlueData& task : tasks) {
    hash.update(str(task.name, ' ', glue_info(task.task).name, '\n'));
    add(task.train), add(task.dev), add(task.dev_mismatched);
  }
  return hash.hex();
}

Json score_to_json(const GlueScore& score) {
  Json json = Json::object();
  for (const auto& [name, value] : score.values) json[name] = value;
  return json;
}

class GlueComparison {
 public:
  GlueComparison(const GlueComparePlan& plan, const CompareControl& control) : plan_(plan), control_(control) {}

  Json run() {
    prepare();
    for (const std::int64_t seed : plan_.seeds)
      for (const std::string& encoding : plan_.encodings) {
        if (stopped()) throw interrupted();
        runs_.push_back(one_run(encoding, static_cast<std::uint64_t>(seed)));
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
    // Everything that can be refused is refused before the first step.
    for (const std::string& encoding : plan_.encodings) {
      EncoderPlan plan = plan_.encoder;
      plan.run.encoding = split_control(encoding).first;
      const Encoder encoder = make_encoder(plan);
      if (!encoder.encoding().inputs().empty() && !control_.feed && plan_.parses.empty())
        throw UsageError(str("'", encoding, "' reads ", encoder.encoding().inputs().front(),
                             " of every token, and no parses were given"));
    }
    tasks_ = load_glue_tasks(plan_.folder, plan_.tasks, plan_.fine);
    data_ = load_data(plan_.data, plan_.encoder.run.length);
    if (const SyntaxFeedFactory make = feed_factory(plan_.parses, control_, /*causal=*/false)) feed_ = make(data_);
    for (const std::string& encoding : plan_.encodings) {
      EncoderPlan plan = plan_.encoder;
      const auto [expression, control] = split_control(encoding);
      plan.run.encoding = expression;
      if (!control.empty() && !feed_)
        throw UsageError(str("'@ ", control, "' is a control of parses, and none are read here"));
      if (!control.empty()) feed_->under(control);
      // The sentences of tasks belong to no document.
      if (const Encoder encoder = make_encoder(plan); feed_) feed_->check(encoder.encoding(), true, true);
    }
    data_.sha256 = sha256_hex(data_.sha256 + hash_of(tasks_) + (feed_ ? feed_->sha256() : ""));
    if (!control_.expected_data.empty() && control_.expected_data != data_.sha256)
      throw Error(str("the data has changed since the results were made: SHA-256 ", data_.sha256, ", expected ",
                      control_.expected_data));
    config_ = glue_plan_to_json(plan_);
    config_["data_sha256"] = data_.sha256;
    folder_.emplace(control_.folder, config_, control_.resume, control_.force);
    if (!control_.on_message) return;
    std::string names;
    std::size_t counted = 0;
    for (const GlueData& task : tasks_) {
      names += (names.empty() ? "" : ", ") + task.name;
      counted += glue_info(task.task).counted && task.name == glue_info(task.task).name ? 1 : 0;
    }
    control_.on_message(str("pre-training on ", data_.description, "; tasks ", names,
                            counted == 8 ? "" : ": not the eight of GLUE, so the mean is no GLUE score"));
  }

  template <class Action>
  auto with_progress(const std::string& label, const std::string& folder, Action action) {
    RunControl control;
    control.folder = folder;
    control.save_every = kSaveEvery;
    control.resume = true;
    control.stop = control_.stop;
    std::optional<Progress::Options> progress;
    if (control_.progress) progress.emplace(control_.progress(label));
    control.progress = progress ? &*progress : nullptr;
    return action(control);
  }

  Json one_run(const std::string& encoding, std::uint64_t seed) {
    const std::string folder = folder_->run_folder(encoding, seed);
    if (const auto earlier = folder_->recorded(encoding, seed)) {
      Json run = *earlier;
      run.erase("effect");
      return run;
    }
    Json json = {{"encoding", encoding}, {"seed", seed}, {"status", "ok"}, {"reason", ""}};
    reset_peak_memory();
    attempt(json, control_.folder, control_.on_message, [&] {
      EncoderPlan plan = plan_.encoder;
      const auto [expression, control] = split_control(encoding);
      plan.run.encoding = expression;
      plan.run.seed = seed;
      const std::shared_ptr<const SyntaxFeed> feed = control.empty() ? feed_ : feed_->under(control);
      const std::string label = plan_.seeds.size() > 1 ? str(encoding, " seed ", seed) : encoding;
      const EncoderResult pretrained =
          with_progress(label, folder, [&](const RunControl& run) { return train_encoder(plan, data_, run, feed); });
      json["parameters"] = pretrained.encoder.parameter_count();
      json["train"] = train_to_json(pretrained.train);
      json["peak_memory_bytes"] = json["decode_tokens_per_second"] = nullptr;
      json["eval"] = Json::array();
      json["eval"].push_back(evaluate_masked(pretrained.encoder, data_.valid, plan, kValidWindows, feed.get(),
                                             [this] { return stopped(); }));
      json["eval"].push_back(tasks_entry(pretrained.encoder, plan, feed.get(), label, folder));
      if (const std::int64_t memory = peak_memory(); memory > 0) json["peak_memory_bytes"] = memory;
      json["effect"] = nullptr;
      if (feed)
        if (Json syntax = feed->account(pretrained.encoder.encoding()); !syntax.is_null())
          json["syntax"] = std::move(syntax);
    });
    make_directories(folder);
    folder_->record(folder, json);
    json.erase("effect");
    return json;
  }

  Json tasks_entry(const Encoder& pretrained, const EncoderPlan& plan, const SyntaxFeed* feed, const std::string& label,
                   const std::string& folder) {
    Json entry = {{"task", "glue"}, {"length", plan.run.length}, {"status", "ok"}, {"reason", ""}};
    entry["score"] = nullptr;
    entry["groups"] = entry["tasks"] = Json::array();
    double sum = 0, all = 0;
    std::size_t counted = 0;
    std::vector<std::pair<GlueTask, double>> members;
    bool own = true;  // whether every folder is that of a GLUE task
    for (const GlueData& task : tasks_) {
      const GlueTaskResult result =
          with_progress(str(label, ", ", task.name), folder + "/" + task.name, [&](const RunControl& control) {
            return fine_tune(pretrained, task, plan_.fine, plan.run.seed, plan.run.length, plan.run.dtype, control,
                             feed);
          });
      const GlueInfo& info = glue_info(task.task);
      own = own && task.name == info.name;
      entry["groups"].push_back({{"name", task.name}, {"score", result.dev.member}, {"count", result.examples}});
      Json one = {{"name", task.name},           {"layout", info.name},   {"values", score_to_json(result.dev)},
                  {"member", result.dev.member}, {"train", result.train}, {"warnings", result.dev.warnings}};
      if (!result.dev_mismatched.values.empty()) one["mismatched"] = score_to_json(result.dev_mismatched);
      entry["tasks"].push_back(std::move(one));
      for (const std::string& warning : result.dev.warnings)
        if (control_.on_message) control_.on_message(str(label, ", ", task.name, ": ", warning));
      if (own) members.emplace_back(task.task, result.dev.member);
      all += result.dev.member;
      if (info.counted) sum += result.dev.member, ++counted;
    }
    // WNLI alone still has a figure.
    entry["score"] = counted > 0 ? sum / static_cast<double>(counted) : all / static_cast<double>(tasks_.size());
    entry["complete"] = own && glue_mean(members).complete;
    return entry;
  }

  Json results() const {
    Json json;
    json["format"] = "torsor-results-1";
    json["config"] = config_;
    json["machine"] = describe_machine();
    json["runs"] = runs_;
    json["summary"] = json["verdict"] = json["effects"] = Json::array();
    return json;
  }

  const GlueComparePlan& plan_;
  const CompareControl& control_;
  std::vector<GlueData> tasks_;
  LmData data_;
  std::shared_ptr<const SyntaxFeed> feed_;
  Json config_;
  std::optional<ResultsFolder> folder_;
  Json runs_ = Json::array();
};

}  // namespace

GlueComparePlan glue_profile(const std::string& name) {
  if (name != "quick" && name != "standard" && name != "full")
    throw UsageError(str("profile must be quick, standard or full, found ", name));
  GlueComparePlan plan;
  plan.profile = name;
  plan.encodings = {"none", "learned", "rope", "alibi", "t5(bidirectional=true)"};
  plan.seeds = {0};
  RunPlan& run = plan.encoder.run;
  run.length = 128;
  run.batch = 16;
  run.steps = 1000;
  run.learning_rate = 1e-3;
  run.warmup_steps = 100;
  run.weight_decay = 0.01;
  plan.fine.most_steps = 300;
  plan.fine.most_dev = 1000;
  if (name == "standard") {
    run.steps = 5000;
    run.warmup_steps = 250;
    plan.seeds = {0, 1, 2};
    plan.fine.most_steps = 2000;
    plan.fine.most_dev = 0;
  } else if (name == "full") {
    ModelConfig& model = plan.encoder.encoder.model;
    model.width = 768, model.layers = 12, model.heads = 12;
    plan.encoder.encoder.dropout = 0.1;
    run.length = 512;
    run.batch = 64;
    run.steps = 100000;
    run.learning_rate = 2e-4;
    run.warmup_steps = 5000;
    plan.seeds = {0, 1, 2};
    plan.fine.learning_rate = 3e-5;
    plan.fine.most_steps = 0;
    plan.fine.most_dev = 0;
    plan.data.generated_bytes = 400'000'000;
  }
  return plan;
}

Json glue_plan_to_json(const GlueComparePlan& plan) {
  Json json;
  json["encodings"] = plan.encodings;
  json["task"] = "glue";
  json["profile"] = plan.profile;
  json["data"] = data_to_json(plan.data);
  if (!plan.parses.empty()) json["parses"] = sources_to_json(plan.parses);
  if (!plan.grid.empty()) json["grid"] = grid_to_json(cell_grid(plan.grid, plan.encoder.encoder.model.layers));
  json["folder"] = plan.folder;
  json["tasks"] = plan.tasks;
  json["fine"] = fine_to_json(plan.fine);
  json["length"] = plan.encoder.run.length;
  json["seeds"] = plan.seeds;
  Json run = encoder_plan_to_json(plan.encoder);
  for (const char* key : {"encoding", "seed", "length"}) run.erase(key);
  json["run"] = run;
  json["threads"] = plan.threads > 0 ? plan.threads : static_cast<std::int64_t>(at::get_num_threads());
  return json;
}

namespace {

GlueComparePlan read_plan(const Json& config, const std::string& source) {
  JsonObject object(config, source + ": config", JsonObject::Blame::data);
  GlueComparePlan plan;
  plan.encodings = object.get<std::vector<std::string>>("encodings");
  if (object.get<std::string>("task") != "glue") object.fail("task must be glue");
  plan.profile = object.get<std::string>("profile");
  plan.data = data_from_json(object.get<Json>("data"), source + ": config: data");
  if (object.has("parses")) plan.parses = sources_from_json(object.get<Json>("parses"), source + ": config: parses");
  if (object.has("grid")) plan.grid = object.get<Json>("grid").value("name", "");
  plan.folder = object.get<std::string>("folder");
  plan.tasks = object.get<std::vector<std::string>>("tasks");
  plan.fine = fine_from_json(object.get<Json>("fine"), source + ": config: fine");
  RunPlan& run = plan.encoder.run;
  run.length = object.get<std::int64_t>("length");
  plan.seeds = object.get<std::vector<std::int64_t>>("seeds");
  plan.threads = object.get<std::int64_t>("threads");
  object.allow("data_sha256");
  const Json inner = object.get<Json>("run");
  object.finish();
  JsonObject training(inner, source + ": config: run", JsonObject::Blame::data);
  plan.encoder.encoder = encoder_from_json(training.get<Json>("model"), source + ": config: run: model");
  run.batch = training.get<std::int64_t>("batch");
  run.accumulation = training.get<std::int64_t>("accumulation");
  run.steps = training.get<std::int64_t>("steps");
  run.learning_rate = training.get<double>("learning_rate");
  run.warmup_steps = training.get<std::int64_t>("warmup_steps");
  run.weight_decay = training.get<double>("weight_decay");
  run.dtype = training.get<std::string>("dtype");
  plan.encoder.tau_weight = training.get<double>("tau_weight");
  plan.encoder.nu_weight = training.get<double>("nu_weight");
  JsonObject masking = training.object("masking");
  plan.encoder.masking.rate = masking.get<double>("rate");
  plan.encoder.masking.masked = masking.get<double>("masked");
  plan.encoder.masking.random = masking.get<double>("random");
  masking.finish();
  training.finish();
  dtype_named(run.dtype);
  for (const std::string& encoding : plan.encodings) parse(encoding);
  if (plan.encodings.empty() || plan.seeds.empty()) throw Error(source + ": config names no encodings or seeds");
  for (const std::int64_t seed : plan.seeds)
    if (seed < 0) throw Error(str(source, ": config: seeds must be at least 0, found ", seed));
  if (run.steps < 1 || run.batch < 1 || run.accumulation < 1)
    throw Error(source + ": config: run: steps, batch and accumulation must be at least 1");
  return plan;
}

}  // namespace

GlueComparePlan glue_plan_from_json(const Json& config, const std::string& source) {
  try {
    return read_plan(config, source);
  } catch (const UsageError& error) {
    // A bad word in a file is bad data, not a bad request.
    const std::string message = error.what();
    throw Error(message.rfind(source, 0) == 0 ? message : str(source, ": config: ", message));
  }
}

Json run_glue_compare(const GlueComparePlan& plan, const CompareControl& control) {
  return GlueComparison(plan, control).run();
}

}  // namespace torsor
