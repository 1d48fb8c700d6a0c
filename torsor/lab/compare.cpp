#include "torsor/lab/compare.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "torsor/data/task.h"
#include "torsor/lab/cells.h"
#include "torsor/lab/effects.h"
#include "torsor/lab/machine.h"
#include "torsor/lab/perplexity_watch.h"
#include "torsor/lab/results_folder.h"
#include "torsor/lab/workload.h"
#include "torsor/model/generate.h"
#include "torsor/syntax/controls.h"

namespace torsor {
namespace {

constexpr const char* kResultsFormat = "torsor-results-1";
constexpr std::int64_t kDecodedTokens = 64;

bool stopped(const CompareControl& control) { return control.stop && control.stop->load(); }

double decode_speed(const Decoder& model, const Workload& work, std::int64_t window, at::ScalarType dtype) {
  // Inside the training length, so that every encoding is asked the same: half of it read, the rest decoded, again and
  // again where that is little.
  const std::vector<std::int64_t> prompt = work.prompt(std::max<std::int64_t>(window / 2, 1));
  GenerateOptions options;
  options.max_tokens = std::min(kDecodedTokens, window - static_cast<std::int64_t>(prompt.size()));
  options.dtype = dtype;
  if (options.max_tokens < 2) return 0;
  std::int64_t decoded = 0;
  double seconds = 0;
  try {
    for (std::int64_t fresh = 0; fresh < kDecodedTokens; fresh += options.max_tokens) {
      // What it writes is parsed as it comes, which is part of the time.
      if (!model.encoding().inputs().empty()) options.inputs = work.streamed_inputs(model.encoding());
      seconds += generate(model, {prompt}, options).seconds;
      decoded += options.max_tokens - 1;  // the first token comes from the prompt's pass
    }
  } catch (const Refusal&) {
    return 0;  // an encoding without a cache, or tags that cannot be streamed: unknown, and no reason to lose the run
  } catch (const UsageError&) {
    return 0;  // no gate tells of a text that is being written
  }
  return seconds > 0 ? static_cast<double>(decoded) / seconds : 0;
}

class Comparison {
 public:
  Comparison(const ComparePlan& plan, const CompareControl& control) : plan_(plan), control_(control) {}

  Json run() {
    prepare();
    for (const std::int64_t seed : plan_.seeds)
      for (const std::string& encoding : plan_.encodings) {
        if (stopped(control_)) throw Interrupted(str("stopped; go on with --resume --out ", control_.folder));
        runs_.push_back(one_run(encoding, static_cast<std::uint64_t>(seed)));
        write();
      }
    return document();
  }

 private:
  void prepare() {
    // Everything that can be refused is refused before the first step.
    window_ = trained_window(plan_);
    for (const std::string& label : plan_.encodings) {
      const std::string encoding = split_control(label).first;
      const auto made = encoding_of(label);
      check_axes(*made, encoding);
      if (!made->inputs().empty() && plan_.parses.empty() && !control_.feed)
        throw UsageError(str("'", encoding, "' reads ", made->inputs().front(),
                             " of every token, and no parses of the text were given (--parser)"));
      if (made->inputs().empty() && encoding != label)
        throw UsageError(str("'", label, "': a control changes parses, and this encoding reads none"));
    }
    work_ = make_workload(plan_, feed_factory(plan_.parses, control_, /*causal=*/true));
    std::set<std::string> told;
    for (const std::string& label : plan_.encodings) {
      const auto encoding = encoding_of(label);
      work_->check(*encoding);
      if (control_.on_message)
        for (const std::string& line : gate_lines(work_->account(*encoding)))
          if (told.insert(line).second) control_.on_message(line);
    }
    if (!control_.expected_data.empty() && control_.expected_data != work_->sha256())
      throw Error(str("the data has changed since the results were made: SHA-256 ", work_->sha256(), ", expected ",
                      control_.expected_data));
    config_ = compare_to_json(plan_);
    config_["data_sha256"] = work_->sha256();
    folder_.emplace(control_.folder, config_, control_.resume, control_.force);
    if (control_.on_message) control_.on_message(work_->description());
  }

  Json one_run(const std::string& encoding, std::uint64_t seed) {
    const std::string folder = folder_->run_folder(encoding, seed);
    if (const auto earlier = folder_->recorded(encoding, seed)) {
      effects_.push_back(earlier->at("effect"));
      Json run = *earlier;
      run.erase("effect");
      return run;
    }
    RunPlan plan = plan_.run;
    const std::string control = split_control(encoding).second;
    const std::unique_ptr<const Workload> controlled = control.empty() ? nullptr : work_->under(control);
    const Workload& work = controlled ? *controlled : *work_;
    plan.encoding = split_control(encoding).first;
    plan.seed = seed;
    plan.length = window_;
    const at::ScalarType dtype = dtype_named(plan.dtype);
    std::optional<PerplexityWatch> watch;
    Json json;
    json["encoding"] = encoding;
    json["seed"] = seed;
    json["status"] = "ok";
    json["reason"] = "";
    reset_peak_memory();
    attempt(json, control_.folder, control_.on_message, [&] {
      try {
        RunControl run;
        run.folder = folder;
        run.save_every = kSaveEvery;
        run.resume = true;
        run.stop = control_.stop;
        const std::string label = plan_.seeds.size() > 1 ? str(encoding, " seed ", seed) : encoding;
        std::optional<Progress::Options> progress;
        if (control_.progress) progress.emplace(control_.progress(label));
        run.progress = progress ? &*progress : nullptr;
        if (control_.on_message)
          run.on_message = [&](const std::string& line) { control_.on_message(label + ": " + line); };
        const auto settle = watch_run(encoding, seed, folder, work, run, watch);
        work.prepare(*encoding_of(encoding));
        const RunResult result = train_run(plan, work.training(plan), run);
        settle(result.model);
        json["parameters"] = result.model.parameter_count();
        json["train"] = train_to_json(result.train);
        json["peak_memory_bytes"] = nullptr;
        json["decode_tokens_per_second"] = nullptr;
        json["eval"] = Json::array();
        const auto stop = [&] { return stopped(control_); };
        for (const std::int64_t length : plan_.eval_lengths)
          json["eval"].push_back(work.evaluate(result.model, length, dtype, stop));
        for (Json& one : work.evaluate_more(result.model, dtype, stop)) json["eval"].push_back(std::move(one));
        const double speed = decode_speed(result.model, work, window_, dtype);
        if (speed > 0) json["decode_tokens_per_second"] = speed;
        if (const std::int64_t memory = peak_memory(); memory > 0) json["peak_memory_bytes"] = memory;
        json["effect"] = effect_of(result.model, work_->inputs_of(plan_.eval_lengths.back()));
        if (Json syntax = work.account(result.model.encoding()); !syntax.is_null()) json["syntax"] = std::move(syntax);
      } catch (const GateStop& stop) {
        tell_outcome(json, give_up(json, "stopped", stop.what()), control_.on_message);
        if (Json syntax = work.account(*encoding_of(encoding)); !syntax.is_null()) json["syntax"] = std::move(syntax);
      }
    });
    if (watch) json["perplexity_gate"] = watch->to_json();
    if (const std::string why = why_not_watched(encoding); !why.empty())
      json["perplexity_gate"] = {
          {"base", nullptr}, {"status", "not watched: " + why}, {"rise", nullptr}, {"evaluations", Json::array()}};
    folder_->record(folder, json);
    effects_.push_back(json.at("effect"));
    json.erase("effect");
    return json;
  }

  /// What a run with syntax is held against; null where there is nothing to hold it against.
  const std::string* base_of(const std::string& label) const {
    const std::string base = without_syntax(split_control(label).first);
    for (const std::string& one : plan_.encodings) {
      if (one == label) return nullptr;  // a base that comes later tells nothing in time
      if (one == base) return &one;
    }
    return nullptr;
  }

  /// Why the perplexity gate, though asked, does not look at a run with syntax; empty where it does, or is not asked.
  std::string why_not_watched(const std::string& label) const {
    if (plan_.gate_every == 0 || !learns_from_text(plan_.task) || encoding_of(label)->inputs().empty()) return "";
    if (!split_control(label).second.empty()) return "a control";
    return base_of(label) == nullptr ? "its base without syntax is not compared before it" : "";
  }

  std::shared_ptr<const Encoding> encoding_of(const std::string& label) const {
    ModelConfig model = plan_.run.model;
    model.train_length = window_;
    model.complete();
    return make_encoding(split_control(label).first, model.dimensions());
  }

  /// Has both sides of the perplexity gate evaluated while they train: bases leave a record, runs with syntax are held
  /// against it. What is answered is called with the trained model.
  std::function<void(const Decoder&)> watch_run(const std::string& label, std::uint64_t seed, const std::string& folder,
                                                const Workload& work, RunControl& run,
                                                std::optional<PerplexityWatch>& watch) const {
    if (plan_.gate_every == 0 || !learns_from_text(plan_.task)) return [](const Decoder&) {};
    const bool reads = !encoding_of(label)->inputs().empty();
    const std::string* base = reads && split_control(label).second.empty() ? base_of(label) : nullptr;
    const bool is_base = std::any_of(plan_.encodings.begin(), plan_.encodings.end(), [&](const std::string& one) {
      const std::string* of = one == label || !split_control(one).second.empty() ? nullptr : base_of(one);
      return of != nullptr && *of == label;
    });
    if (base == nullptr && !is_base) return [](const Decoder&) {};
    const std::int64_t length =
        std::find(plan_.eval_lengths.begin(), plan_.eval_lengths.end(), plan_.run.length) == plan_.eval_lengths.end()
            ? plan_.eval_lengths.front()
            : plan_.run.length;
    if (base != nullptr) {
      PerplexityWatch::Options options;
      options.warmup_steps = plan_.run.warmup_steps;
      options.warn_only = plan_.gate_warn_only;
      options.on_message = run.on_message;
      options.account = [&work](const Encoding& encoding) { return work.account(encoding); };
      options.factors = [&work, length, dtype = dtype_named(plan_.run.dtype)](const Decoder& model) {
        return work.factor_effects(model, length, dtype);
      };
      watch.emplace(*base, WatchRecord(folder_->run_folder(*base, seed)), std::move(options));
    }
    auto record = std::make_shared<std::optional<WatchRecord>>();
    run.on_step = [this, record, folder, length, &work, &watch](const Decoder& model, const StepReport& report) {
      if (!*record) {
        // What an earlier process saw counts, up to where this one goes on.
        record->emplace(folder);
        for (const WatchedFigure& one : (*record)->figures())
          if (watch && one.step < report.step) watch->replay(one);
      }
      if (report.step % plan_.gate_every != 0) return;
      const Json entry =
          work.evaluate(model, length, dtype_named(plan_.run.dtype), [this] { return stopped(control_); });
      const WatchedFigure figure = watched_figure(entry, report.step, work.window_domains(length));
      (*record)->add(figure);
      if (watch) watch->observe(figure, model);
    };
    return [record, folder, &watch](const Decoder& model) {
      // No step was left to do: an earlier process did them all, and was killed before it could say how they went.
      if (*record || !watch) return;
      const std::vector<WatchedFigure> figures = WatchRecord(folder).figures();
      for (const WatchedFigure& one : figures)
        if (&one == &figures.back())
          watch->observe(one, model);
        else
          watch->replay(one);
    };
  }

  Json document() const {
    Json json;
    json["format"] = kResultsFormat;
    json["config"] = config_;
    json["machine"] = describe_machine();
    json["runs"] = runs_;
    json["summary"] = Json::array();
    json["verdict"] = Json::array();
    Json effects = Json::array();
    // One effect an encoding: that of its first seed.
    for (std::size_t n = 0; n < effects_.size() && n < plan_.encodings.size(); ++n)
      if (!effects_[n].is_null()) effects.push_back(effects_[n]);
    json["effects"] = effects;
    return json;
  }

  void write() const {
    const Json json = document();
    folder_->write(json);
    if (control_.on_results) control_.on_results(json);
  }

  const ComparePlan& plan_;
  const CompareControl& control_;
  std::unique_ptr<const Workload> work_;
  std::int64_t window_ = 0;  // tokens
  std::optional<ResultsFolder> folder_;
  Json config_;
  Json runs_ = Json::array();
  std::vector<Json> effects_;
};

}  // namespace

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::pair<std::string, std::string> split_control(const std::string& encoding) {
  const std::size_t at = encoding.find('@');
  if (at == std::string::npos) return {encoding, ""};
  const std::string control = trimmed(encoding.substr(at + 1));
  if (syntax::control_named(control) == syntax::Control::kNone)
    throw UsageError(str("'", encoding, "': 'none' is no control"));
  return {trimmed(encoding.substr(0, at)), control};
}

std::vector<std::string> split_encodings(const std::vector<std::string>& texts) {
  std::vector<std::string> encodings;
  for (const std::string& text : texts) {
    std::size_t begin = 0;
    while (begin <= text.size()) {
      std::size_t end = text.find(';', begin);
      if (end == std::string::npos) end = text.size();
      const std::string one = text.substr(begin, end - begin);
      begin = end + 1;
      if (one.find_first_not_of(' ') == std::string::npos) continue;
      std::string canonical;
      try {
        const auto [expression, control] = split_control(one);
        canonical = print(parse(expression)) + (control.empty() ? "" : " @ " + control);
      } catch (const UsageError& error) {
        const std::string message = error.what();
        if (message.find("found ','") == std::string::npos) throw;
        throw UsageError(message + "; several encodings stand with ';' between them");
      }
      if (std::find(encodings.begin(), encodings.end(), canonical) == encodings.end()) encodings.push_back(canonical);
    }
  }
  if (encodings.empty()) throw UsageError("no encoding was given; separate several with ';'");
  return encodings;
}

void check_task(const std::string& name) {
  const std::vector<std::string>& names = task_names();
  if (learns_from_text(name) || std::find(names.begin(), names.end(), name) != names.end()) return;
  std::string known = "lm, syntax, glue";
  for (std::size_t n = 0; n < names.size(); ++n) known += (n + 1 < names.size() ? ", " : " or ") + names[n];
  throw UsageError(str("task must be ", known, ", found ", name));
}

bool learns_from_text(const std::string& task) { return task == "lm" || task == "syntax"; }

namespace {

Json syntax_to_json(const SyntaxPlan& plan) {
  return {{"suites", plan.suites}, {"items", plan.items},         {"suite_seed", plan.suite_seed},
          {"blimp", plan.blimp},   {"separator", plan.separator}, {"final_period", plan.final_period}};
}

SyntaxPlan syntax_from_json(const Json& json, const std::string& source) {
  JsonObject object(json, source, JsonObject::Blame::data);
  SyntaxPlan plan;
  plan.suites = object.get<std::vector<std::string>>("suites");
  plan.items = object.get<std::int64_t>("items");
  plan.suite_seed = object.get<std::int64_t>("suite_seed");
  plan.blimp = object.get<std::string>("blimp");
  plan.separator = object.get<std::string>("separator");
  plan.final_period = object.get<bool>("final_period");
  object.finish();
  if (plan.suite_seed < 0) throw Error(str(source, ": suite_seed must be at least 0, found ", plan.suite_seed));
  return plan;
}

}  // namespace

Json compare_to_json(const ComparePlan& plan) {
  Json json;
  json["encodings"] = plan.encodings;
  json["task"] = plan.task;
  json["profile"] = plan.profile;
  if (learns_from_text(plan.task)) {
    json["data"] = data_to_json(plan.data);
    json["eval_spans"] = plan.eval_spans;
    if (!plan.parses.empty()) json["parses"] = sources_to_json(plan.parses);
    if (!plan.grid.empty()) json["grid"] = grid_to_json(cell_grid(plan.grid, plan.run.model.layers));
    if (plan.gate_every > 0) json["perplexity_gate"] = {{"every", plan.gate_every}, {"warn_only", plan.gate_warn_only}};
    if (plan.task == "syntax") json["syntax"] = syntax_to_json(plan.syntax);
  } else {
    json["problems"] = plan.problems;
  }
  json["length"] = plan.run.length;
  json["eval_lengths"] = plan.eval_lengths;
  json["seeds"] = plan.seeds;
  Json run = plan_to_json(plan.run);
  for (const char* key : {"encoding", "seed", "length"}) run.erase(key);
  json["run"] = run;
  json["threads"] = plan.threads > 0 ? plan.threads : static_cast<std::int64_t>(at::get_num_threads());
  return json;
}

namespace {

ComparePlan read_config(const Json& config, const std::string& source) {
  JsonObject object(config, source + ": config", JsonObject::Blame::data);
  ComparePlan plan;
  plan.encodings = object.get<std::vector<std::string>>("encodings");
  plan.task = object.get<std::string>("task");
  plan.profile = object.get<std::string>("profile");
  if (learns_from_text(plan.task)) {
    plan.data = data_from_json(object.get<Json>("data"), source + ": config: data");
    plan.eval_spans = object.get<std::int64_t>("eval_spans");
    if (object.has("parses")) plan.parses = sources_from_json(object.get<Json>("parses"), source + ": config: parses");
    if (object.has("grid")) plan.grid = object.get<Json>("grid").value("name", "");
    if (object.has("perplexity_gate")) {
      JsonObject gate = object.object("perplexity_gate");
      plan.gate_every = gate.get<std::int64_t>("every");
      plan.gate_warn_only = gate.get<bool>("warn_only");
      gate.finish();
    }
    if (plan.task == "syntax") plan.syntax = syntax_from_json(object.get<Json>("syntax"), source + ": config: syntax");
  } else {
    check_task(plan.task);
    plan.problems = object.get<std::int64_t>("problems");
  }
  plan.run.length = object.get<std::int64_t>("length");
  plan.eval_lengths = object.get<std::vector<std::int64_t>>("eval_lengths");
  plan.seeds = object.get<std::vector<std::int64_t>>("seeds");
  plan.threads = object.get<std::int64_t>("threads");
  object.allow("data_sha256");
  const Json inner = object.get<Json>("run");
  object.finish();
  JsonObject run(inner, source + ": config: run", JsonObject::Blame::data);
  plan.run.model = model_from_json(run.get<Json>("model"), source + ": config: run: model");
  plan.run.batch = run.get<std::int64_t>("batch");
  plan.run.accumulation = run.get<std::int64_t>("accumulation");
  plan.run.steps = run.get<std::int64_t>("steps");
  plan.run.learning_rate = run.get<double>("learning_rate");
  plan.run.warmup_steps = run.get<std::int64_t>("warmup_steps");
  plan.run.weight_decay = run.get<double>("weight_decay");
  plan.run.dtype = run.get<std::string>("dtype");
  plan.run.tag_loss = run.get<double>("tag_loss", plan.run.tag_loss);
  run.finish();
  if (plan.encodings.empty() || plan.seeds.empty() || plan.eval_lengths.empty())
    throw Error(source + ": config names no encodings, seeds or evaluation lengths");
  const auto at_least = [&](const char* key, std::int64_t least, std::int64_t value) {
    if (value < least) throw Error(str(source, ": config: ", key, " must be at least ", least, ", found ", value));
  };
  at_least("length", 1, plan.run.length);
  at_least("eval_spans", 0, plan.eval_spans);
  at_least("problems", 1, plan.problems);
  at_least("threads", 0, plan.threads);
  at_least("perplexity_gate: every", 0, plan.gate_every);
  if (plan.threads > 1024) throw Error(str(source, ": config: threads must be at most 1024, found ", plan.threads));
  at_least("run: batch", 1, plan.run.batch);
  at_least("run: accumulation", 1, plan.run.accumulation);
  at_least("run: steps", 1, plan.run.steps);
  for (const std::int64_t length : plan.eval_lengths) at_least("eval_lengths", 1, length);
  for (const std::int64_t seed : plan.seeds) at_least("seeds", 0, seed);
  for (const std::string& encoding : plan.encodings) parse(split_control(encoding).first);
  dtype_named(plan.run.dtype);
  return plan;
}

}  // namespace

ComparePlan compare_from_json(const Json& config, const std::string& source) {
  try {
    return read_config(config, source);
  } catch (const UsageError& error) {
    // A bad word in a file is bad data, not a bad request.
    const std::string message = error.what();
    throw Error(message.rfind(source, 0) == 0 ? message : str(source, ": config: ", message));
  }
}

SyntaxFeedFactory feed_factory(const ParseSources& parses, const CompareControl& control, bool causal) {
  if (control.feed || parses.empty()) return control.feed;
  ParseSources sources = parses;
  if (sources.cache.empty()) sources.cache = control.folder + "/parses";
  std::function<bool()> stop;
  if (control.stop != nullptr) stop = [flag = control.stop] { return flag->load(); };
  return [sources, causal, stop, tell = control.on_message](const LmData& data) {
    return make_parsed_feed(sources, causal, data.gold, tell, data.domains, stop);
  };
}

Json run_compare(const ComparePlan& plan, const CompareControl& control) { return Comparison(plan, control).run(); }

}  // namespace torsor
