// torsor tune
#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <sstream>

#include "torsor/cli/checkpoint_out.h"
#include "torsor/cli/publish.h"
#include "torsor/lab/tune.h"
#include "torsor/model/checkpoint.h"

namespace torsor {
namespace {

namespace fs = std::filesystem;

struct TuneArguments {
  std::string checkpoint;
  TunePlan plan;
  std::int64_t length = 0;
  DataSource data;
  TuneEvaluation evaluation;
  std::int64_t save_every = 50;
  bool resume = false;
  std::vector<std::string> compare;
  std::vector<std::int64_t> seeds;
  std::string merge, base;
  Command* command = nullptr;

  bool given(const char* option) const { return command->count(option) > 0; }
};

bool present(const std::string& folder, const char* name) {
  std::error_code ignored;
  return fs::exists(fs::path(folder) / name, ignored);
}

/// The folder that results go to must not be one that they would spoil.
void refuse_spoiling(const std::string& out, const std::string& checkpoint) {
  std::error_code ignored;
  if (fs::equivalent(out, checkpoint, ignored))
    throw UsageError(str("'", out, "' is the checkpoint itself; give another --out"));
}

// --------------------------------------------------------------------------------------------------------------------
// Merging

int run_merge(const TuneArguments& arguments, const CommonOptions& common) {
  const std::string& out = common.out;
  if (out.empty()) throw UsageError("tune --merge needs --out, the folder of the merged checkpoint");
  for (const CommandOption* option : arguments.command->options()) {
    const std::string name = option->name();
    if (option->count() > 0 && name.starts_with("--") && name != "--merge" && name != "--base" && !is_common(name))
      throw UsageError(str("tune --merge trains nothing and takes no ", name));
  }
  if (!arguments.checkpoint.empty())
    throw UsageError(str("tune --merge takes the adapter alone, found '", arguments.checkpoint,
                         "' too; another place of its base is given by --base"));
  if (!is_adapter(arguments.merge)) throw Error(str("'", arguments.merge, "' holds no adapter.json"));
  const LoadedAdapter adapter = load_adapter(arguments.merge, arguments.base);
  refuse_spoiling(out, adapter.base.folder);
  check_checkpoint_out(common, arguments.merge);
  const Decoder merged = adapter.tuned.merged();
  save_checkpoint(out, merged, adapter.base.tokenizer, adapter.base.embedder, adapter.base.reader);
  if (common.json) {
    const Json json = {{"adapter", arguments.merge},
                       {"out", out},
                       {"train", adapter.tuned.plan.train},
                       {"encoding", merged.config().encoding},
                       {"parameters", merged.parameter_count()},
                       {"trained_parameters", adapter.tuned.trained_count()}};
    std::cout << json_text(json, 1) << "\n";
  } else {
    std::cout << "merged " << adapter.tuned.plan.train << " under " << merged.config().encoding << " into " << out
              << "\n";
  }
  return 0;
}

// --------------------------------------------------------------------------------------------------------------------
// One tuning

/// `count` with commas between thousands.
std::string grouped(std::int64_t count) {
  std::string text = std::to_string(count);
  for (std::ptrdiff_t place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > 0; place -= 3)
    text.insert(static_cast<std::size_t>(place), 1, ',');
  return text;
}

void tell_start(const CommonOptions& common, const TuneBase& base, const std::string& encoding,
                const TuneStart& start) {
  std::ostringstream line;
  line << std::setprecision(3) << "trained " << grouped(start.trained) << " parameters, frozen "
       << grouped(start.frozen) << " ("
       << 100 * static_cast<double>(start.trained) / static_cast<double>(start.trained + start.frozen) << " % trained)";
  say(common, line.str());
  if (!start.fresh.empty())
    say(common, str("at their initial values: ", start.fresh.size(), " tensors of ", encoding, ", first ",
                    start.fresh.front()));
  line.str("");
  line << std::setprecision(5) << "loss before the first step " << start.loss << " under " << encoding;
  if (start.base_loss)
    line << ", the checkpoint's " << *start.base_loss;
  else
    line << "; the checkpoint's " << base.origin.config.encoding << " refuses this length";
  say(common, line.str());
}

void check_folder(const TuneArguments& arguments, const CommonOptions& common) {
  const std::string& out = common.out;
  refuse_spoiling(out, arguments.checkpoint);
  if (present(out, "config.json") || present(out, "model.safetensors"))
    throw Error(str("'", out, "' holds a checkpoint; give another --out"));
  if (present(out, "plan.json")) throw Error(str("'", out, "' holds a comparison; give another --out"));
  if (common.force) return;
  const bool state = present(out, "state.safetensors");
  if (state && !arguments.resume)
    throw Error(str("'", out, "' already holds a tuning; go on with --resume or replace it with --force"));
  if (!state)
    for (const char* name : {"adapter.json", "adapter.safetensors", "log.jsonl", "results.json"})
      if (present(out, name) && !(arguments.resume && std::string(name) == "log.jsonl"))
        throw Error(str("'", out, "' already holds ", name, "; give another --out or replace it with --force"));
  if (arguments.resume && !state) say(common, str("no saved state in '", out, "': from the first step"));
}

void check_evaluation(TuneEvaluation& evaluation) {
  for (const std::int64_t length : evaluation.lengths)
    if (length < 1) throw UsageError(str("evaluation lengths must be at least 1, found ", length));
  std::sort(evaluation.lengths.begin(), evaluation.lengths.end());
  evaluation.lengths.erase(std::unique(evaluation.lengths.begin(), evaluation.lengths.end()), evaluation.lengths.end());
}

/// The plan with what stands in other options, for a checkpoint.
TunePlan complete_run(const TuneArguments& arguments, const CommonOptions& common, const ModelConfig& base) {
  TunePlan plan = arguments.plan;
  plan.run.length = arguments.length > 0 ? arguments.length : base.train_length;
  if (plan.run.length < 1) throw UsageError("the checkpoint tells no training length; give --length");
  plan.run.warmup_steps = std::min(plan.run.warmup_steps, plan.run.steps);
  plan.run.seed = common.seed;
  return plan;
}

int run_one(const TuneArguments& arguments, const CommonOptions& common) {
  if (arguments.plan.adapter.train != "lora")
    for (const char* option : {"--rank", "--alpha", "--modules"})
      if (arguments.given(option)) throw UsageError(str(option, " belongs to --train lora"));
  check_folder(arguments, common);
  const TuneBase base = load_tune_base(arguments.checkpoint);
  TunePlan plan = complete_run(arguments, common, base.origin.config);
  plan.adapter = complete_plan(plan.adapter, base.origin.config);
  const at::ScalarType dtype = dtype_named(plan.run.dtype);
  const TuneEvaluation& evaluation = arguments.evaluation;
  const bool judged = !evaluation.lengths.empty();
  const LmData data =
      load_data(arguments.data, judged ? std::max(plan.run.length, evaluation.lengths.back()) : plan.run.length,
                base.origin.reader);
  say(common, data.description);
  const auto stop = [] { return stop_requested.load(); };
  RunControl control;
  control.folder = common.out;
  control.save_every = arguments.save_every;
  control.resume = arguments.resume;
  control.stop = &stop_requested;
  const Progress::Options progress = progress_options(common, plan.adapter.train);
  control.progress = &progress;
  control.on_message = [&](const std::string& line) { say(common, line); };
  Json before, after;
  // First, so that lengths that cannot be scored are refused before hours of training.
  if (judged) before = evaluate_lengths(base.model, data.valid, evaluation, dtype, stop);
  TuneStart begun;
  const TuneResult result = tune_run(base, plan, data, control, [&](const TuneStart& start) {
    begun = start;
    tell_start(common, base, plan.adapter.encoding, start);
  });
  if (judged) {
    after = evaluate_lengths(result.tuned.merged(), data.valid, evaluation, dtype, stop);
    const report::Results results =
        publish(tune_results(base, plan, result, arguments.data, data, evaluation, before, after), common.out, true);
    if (!common.json) return print_results(common, results, common.out);
  }
  const double speed = result.train.seconds > 0 ? static_cast<double>(result.train.tokens) / result.train.seconds : 0;
  if (common.json) {
    Json json = {
        {"checkpoint", arguments.checkpoint},  {"out", common.out},
        {"train", plan.adapter.train},         {"encoding", plan.adapter.encoding},
        {"trained_parameters", begun.trained}, {"frozen_parameters", begun.frozen},
        {"loss_before", begun.loss},           {"base_loss", begun.base_loss ? Json(*begun.base_loss) : Json(nullptr)},
        {"steps", result.train.losses.size()}, {"loss", result.train.losses.back()},
        {"tokens_per_second", speed}};
    if (judged) json["eval"] = {{"before", before}, {"after", after}};
    std::cout << json_text(json, 1) << "\n";
  } else {
    std::cout << "final loss " << result.train.losses.back() << ", " << static_cast<std::int64_t>(speed)
              << " tokens/s, adapter in " << common.out << "\n";
  }
  return 0;
}

// --------------------------------------------------------------------------------------------------------------------
// Several tunings

int run_comparison(const TuneArguments& arguments, const CommonOptions& common) {
  for (const char* option : {"--train", "--encoding"})
    if (arguments.given(option)) throw UsageError(str("tune --compare names its methods itself and takes no ", option));
  refuse_spoiling(common.out, arguments.checkpoint);
  if (present(common.out, "config.json") || present(common.out, "adapter.json"))
    throw Error(str("'", common.out, "' holds a checkpoint or an adapter; give another --out"));
  TuneComparePlan plan;
  plan.checkpoint = arguments.checkpoint;
  plan.methods = arguments.compare;
  plan.shared = arguments.plan.adapter;
  plan.data = arguments.data;
  const ModelConfig base = load_tune_base(arguments.checkpoint).origin.config;
  plan.run = complete_run(arguments, common, base).run;
  plan.evaluation = arguments.evaluation;
  if (plan.evaluation.lengths.empty())
    for (const std::int64_t times : {1, 2, 4, 8}) plan.evaluation.lengths.push_back(times * plan.run.length);
  plan.seeds = arguments.seeds;
  if (plan.seeds.empty()) plan.seeds = {static_cast<std::int64_t>(common.seed)};
  for (std::size_t n = 0; n < plan.seeds.size(); ++n) {
    if (plan.seeds[n] < 0) throw UsageError(str("seeds must not be negative, found ", plan.seeds[n]));
    if (std::count(plan.seeds.begin(), plan.seeds.end(), plan.seeds[n]) > 1)
      throw UsageError(str("the seed ", plan.seeds[n], " is given twice"));
  }
  TuneCompareControl control;
  control.folder = common.out;
  control.resume = arguments.resume;
  control.force = common.force;
  control.stop = &stop_requested;
  control.progress = [&](const std::string& label) { return progress_options(common, label); };
  control.on_message = [&](const std::string& line) { say(common, line); };
  std::size_t told = 0;
  control.on_results = [&](const Json& document) {
    tell_newest_run(common, publish(document, control.folder, false), told);
  };
  const Json document = compare_tunings(plan, control);
  return print_results(common, publish(document, control.folder, true), control.folder);
}

int run_tune(TuneArguments& arguments, const CommonOptions& common) {
  if (!arguments.merge.empty()) return run_merge(arguments, common);
  if (!arguments.base.empty()) throw UsageError("--base belongs to --merge");
  if (arguments.checkpoint.empty()) throw UsageError("tune needs the folder of a checkpoint, or --merge DIR");
  if (common.out.empty()) throw UsageError("tune needs --out, the folder of the adapter");
  dtype_named(arguments.plan.run.dtype);
  check_evaluation(arguments.evaluation);
  if (arguments.compare.empty() && arguments.evaluation.lengths.empty() && arguments.given("--eval-spans"))
    throw UsageError("--eval-spans belongs to --eval-lengths, which is missing");
  if (arguments.compare.empty() && !arguments.seeds.empty())
    throw UsageError("--seeds belongs to --compare; one tuning takes --seed");
  return arguments.compare.empty() ? run_one(arguments, common) : run_comparison(arguments, common);
}

}  // namespace

void add_tune_command(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<TuneArguments>();
  Command* command = app.add_subcommand("tune", "train a small part of a checkpoint: positions or LoRA; merge it back");
  arguments->command = command;
  command->footer(
      "Example: torsor tune run --train lora --encoding 'linear(rope, factor=2)' --text book.txt --length 256 --out "
      "lora\n"
      "         torsor tune --merge lora --out merged");
  AdapterPlan& adapter = arguments->plan.adapter;
  RunPlan& run = arguments->plan.run;
  command->add_option("checkpoint", arguments->checkpoint,
                      "the checkpoint that is tuned (a folder, a .gguf, llama2.c's .bin)");
  command->add_option("--train", adapter.train, "lora, positions (the encoding's own tensors) or tape")
      ->capture_default_str();
  command->add_option("--encoding", adapter.encoding, "the expression to tune under; left out: the checkpoint's");
  command->add_option("--rank", adapter.lora.rank, "rank of LoRA's terms")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--alpha", adapter.lora.alpha, "LoRA's terms are multiplied by alpha / rank")
      ->check(real_number(false))
      ->capture_default_str();
  command->add_option("--modules", adapter.lora.modules, "projections that LoRA adds to, among q,k,v,o")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--with", adapter.with, "trained besides: embeddings, norms; beside lora: positions")
      ->delimiter(',');
  command->add_option("--text", arguments->data.text, "UTF-8 files or folders to tune on; left out: generated text");
  command->add_option("--valid", arguments->data.valid,
                      "files or folders to evaluate on; left out: a part of the text");
  command->add_option("--tokens", arguments->data.tokens, "a headerless file of token ids instead of text");
  command->add_option("--token-bytes", arguments->data.token_bytes, "bytes of a token id: 2 or 4")
      ->check(one_of({"2", "4"}));
  command->add_option("--length", arguments->length, "tokens of a window; left out: the checkpoint's")
      ->check(whole_number(1));
  command->add_option("--steps", run.steps, "training steps")->check(whole_number(1))->capture_default_str();
  command->add_option("--batch", run.batch, "windows of a micro-batch")->check(whole_number(1))->capture_default_str();
  command->add_option("--accumulation", run.accumulation, "micro-batches a step")->check(whole_number(1));
  command->add_option("--learning-rate", run.learning_rate, "learning rate after the warm-up")
      ->check(real_number(false))
      ->capture_default_str();
  command->add_option("--warmup", run.warmup_steps, "steps of linear warm-up")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--weight-decay", run.weight_decay, "weight decay")
      ->check(real_number(true))
      ->capture_default_str();
  command->add_option("--dtype", run.dtype, "float32 or bf16")->capture_default_str();
  command->add_option("--save-every", arguments->save_every, "steps between saved states; 0 = only at the end")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_flag("--resume", arguments->resume, "go on from the folder's saved state");
  command
      ->add_option("--eval-lengths", arguments->evaluation.lengths,
                   "perplexity at these lengths before and after, each dividing the largest")
      ->delimiter(',');
  command->add_option("--eval-spans", arguments->evaluation.spans, "spans of the largest length to score; 0 = all")
      ->check(whole_number(0))
      ->capture_default_str();
  command
      ->add_option("--compare", arguments->compare,
                   "several tunings in one report: base, lora, positions, tape, each alone or as 'METHOD: EXPRESSION', "
                   "with ';' between them")
      ->take_all();
  command->add_option("--seeds", arguments->seeds, "seeds of --compare, separated by commas")->delimiter(',');
  command->add_option("--merge", arguments->merge, "write the adapter in this folder as a full checkpoint to --out");
  command->add_option("--base", arguments->base, "where the base of --merge lies, if not where it was recorded");
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_tune(*arguments, common); }; });
}

}  // namespace torsor
