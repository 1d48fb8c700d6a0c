// torsor compare
#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>

#include "torsor/cli/command_syntax.h"
#include "torsor/cli/feed_options.h"
#include "torsor/cli/publish.h"
#include "torsor/cli/syntax_options.h"
#include "torsor/lab/cells.h"
#include "torsor/lab/compare.h"
#include "torsor/lab/glue.h"
#include "torsor/lab/perplexity_watch.h"
#include "torsor/lab/profile.h"

namespace torsor {
namespace {

struct CompareArguments {
  std::vector<std::string> encodings;
  std::string task = "lm";
  DataSource data;
  std::int64_t length = 0;
  std::vector<std::int64_t> eval_lengths;
  std::vector<std::int64_t> seeds;
  std::int64_t steps = 0;
  std::int64_t batch = 0;
  double learning_rate = 0;
  double tag_loss = 1;
  std::int64_t eval_spans = -1;
  std::int64_t problems = 0;
  std::string profile = "quick";
  std::string model;
  std::string dtype = "float32";
  SyntaxOptions syntax;
  FeedArguments feed;
  std::string folder;  // of GLUE-layout tasks
  std::vector<std::string> glue_tasks;
  std::int64_t fine_steps = -1;
  double fine_rate = 0;
  std::string grid;
  bool list = false;
  std::int64_t gate_every = 0;
  bool gate_warn_only = false;
  std::string from;
  bool resume = false;
  Command* command = nullptr;
};

/// Options that the task does not read are refused, not passed over.
void check_fit(const CompareArguments& arguments) {
  const auto refuse = [&](bool given, const char* option, const char* reader) {
    if (given) throw UsageError(str(option, " is for ", reader, ", not for --task ", arguments.task));
  };
  refuse(!arguments.folder.empty(), "--data", "--task glue");
  refuse(!arguments.glue_tasks.empty(), "--glue-tasks", "--task glue");
  refuse(arguments.fine_steps >= 0, "--fine-steps", "--task glue");
  refuse(arguments.fine_rate > 0, "--fine-rate", "--task glue");
  if (!learns_from_text(arguments.task)) {
    refuse(arguments.gate_every > 0, "--gate-every", "--task lm and syntax");
    if (arguments.task != "glue") refuse(!arguments.feed.gate.reports.empty(), "--gate", "--task lm, syntax and glue");
  }
  if (arguments.gate_warn_only && arguments.gate_every == 0)
    throw UsageError("--gate-warn-only goes with --gate-every");
  const char* syntax = given_syntax_option(arguments.syntax);
  if (arguments.task != "syntax") refuse(syntax != nullptr, syntax, "--task syntax");
  if (learns_from_text(arguments.task)) {
    refuse(arguments.problems > 0, "--problems", "generated tasks");
    refuse(arguments.task == "syntax" && !arguments.data.tokens.empty(), "--tokens", "--task lm");
    return;
  }
  refuse(!sources_of(arguments.feed).empty(), "--parser, --parses and --arcs", "--task lm, syntax and glue");
  refuse(!arguments.data.text.empty(), "--text", "--task lm and syntax");
  refuse(!arguments.data.valid.empty(), "--valid", "--task lm and syntax");
  refuse(!arguments.data.tokens.empty(), "--tokens", "--task lm");
  refuse(!arguments.data.tokenizer.empty(), "--tokenizer", "--task lm and syntax");
  refuse(arguments.eval_spans >= 0, "--eval-spans", "--task lm and syntax");
}

std::vector<std::int64_t> seeds_of(const CompareArguments& arguments, const CommonOptions& common,
                                   std::vector<std::int64_t> seeds) {
  if (!arguments.seeds.empty())
    seeds = arguments.seeds;
  else if (common.seed_given)
    seeds = {static_cast<std::int64_t>(common.seed)};
  for (std::size_t a = 0; a < seeds.size(); ++a) {
    if (seeds[a] < 0) throw UsageError(str("seeds must not be negative, found ", seeds[a]));
    for (std::size_t b = 0; b < a; ++b)
      if (seeds[a] == seeds[b]) throw UsageError(str("the seed ", seeds[a], " is given twice"));
  }
  return seeds;
}

/// What --grid names, for models of the kind that the task trains.
std::vector<std::string> encodings_of_grid(const CompareArguments& arguments, std::int64_t layers) {
  if (!arguments.encodings.empty()) throw UsageError("--grid names the encodings; leave --encodings out");
  const CellGrid grid = cell_grid(arguments.grid, layers);
  if (grid.encoder != (arguments.task == "glue"))
    throw UsageError(str("the grid ", grid.name, " is of ",
                         grid.encoder ? "encoders: it needs --task glue" : "decoders",
                         grid.encoder ? "" : ": it needs --task lm or syntax", ", found --task ", arguments.task));
  return grid_encodings(grid);
}

/// Encoders on tasks in the GLUE layouts.
GlueComparePlan glue_plan_of(const CompareArguments& arguments, const CommonOptions& common) {
  if (arguments.folder.empty()) throw UsageError("--task glue needs --data, the folder that holds a folder a task");
  const auto refuse = [](bool given, const char* option) {
    if (given) throw UsageError(str(option, " does not go with --task glue"));
  };
  refuse(!arguments.data.tokens.empty(), "--tokens");
  refuse(!arguments.data.tokenizer.empty(), "--tokenizer");
  refuse(!arguments.eval_lengths.empty(), "--eval-lengths");
  refuse(arguments.eval_spans >= 0, "--eval-spans");
  refuse(arguments.problems > 0, "--problems");
  refuse(arguments.gate_every > 0, "--gate-every");
  const char* syntax = given_syntax_option(arguments.syntax);
  refuse(syntax != nullptr, syntax);
  GlueComparePlan plan = glue_profile(arguments.profile);
  if (!arguments.encodings.empty()) plan.encodings = split_encodings(arguments.encodings);
  const std::int64_t generated = plan.data.generated_bytes;
  plan.data = arguments.data;
  plan.data.generated_bytes = generated;
  plan.parses = sources_of(arguments.feed);
  plan.grid = arguments.grid;
  plan.folder = arguments.folder;
  plan.tasks = arguments.glue_tasks;
  RunPlan& run = plan.encoder.run;
  if (!arguments.model.empty()) plan.encoder.encoder = encoder_from_json(read_json(arguments.model), arguments.model);
  plan.encoder.encoder.complete();
  if (!plan.grid.empty()) plan.encodings = encodings_of_grid(arguments, plan.encoder.encoder.model.layers);
  if (arguments.length > 0) run.length = arguments.length;
  if (arguments.steps > 0) run.steps = arguments.steps;
  if (arguments.batch > 0) run.batch = arguments.batch;
  if (arguments.learning_rate > 0) run.learning_rate = arguments.learning_rate;
  if (arguments.fine_steps >= 0) plan.fine.most_steps = arguments.fine_steps;
  if (arguments.fine_rate > 0) plan.fine.learning_rate = arguments.fine_rate;
  run.warmup_steps = std::min(run.warmup_steps, run.steps);
  run.dtype = arguments.dtype;
  dtype_named(run.dtype);
  plan.seeds = seeds_of(arguments, common, plan.seeds);
  plan.threads = common.threads > 0 ? common.threads : at::get_num_threads();
  return plan;
}

ComparePlan plan_of(const CompareArguments& arguments, const CommonOptions& common) {
  ComparePlan plan = profile_plan(arguments.profile, arguments.task);
  check_fit(arguments);
  if (!arguments.encodings.empty()) plan.encodings = split_encodings(arguments.encodings);
  const std::int64_t generated = plan.data.generated_bytes;
  plan.data = arguments.data;
  plan.data.generated_bytes = generated;
  plan.parses = sources_of(arguments.feed);
  if (arguments.task == "syntax") plan.syntax = syntax_plan(arguments.syntax);
  if (!arguments.model.empty())
    plan.run.model = read_model_file(arguments.model);
  else
    plan.run.model.complete();
  plan.grid = arguments.grid;
  if (!plan.grid.empty()) plan.encodings = encodings_of_grid(arguments, plan.run.model.layers);
  // Without lengths of its own, an evaluation keeps the profile's multiples of the training length.
  if (arguments.length > 0) set_length(plan, arguments.length);
  if (!arguments.eval_lengths.empty()) plan.eval_lengths = arguments.eval_lengths;
  plan.seeds = seeds_of(arguments, common, plan.seeds);
  if (arguments.steps > 0) plan.run.steps = arguments.steps;
  if (arguments.batch > 0) plan.run.batch = arguments.batch;
  if (arguments.learning_rate > 0) plan.run.learning_rate = arguments.learning_rate;
  plan.run.tag_loss = arguments.tag_loss;
  if (arguments.eval_spans >= 0) plan.eval_spans = arguments.eval_spans;
  if (arguments.problems > 0) plan.problems = arguments.problems;
  plan.gate_every = arguments.gate_every;
  plan.gate_warn_only = arguments.gate_warn_only;
  if (plan.gate_every > 0) plan.encodings = bases_first(std::move(plan.encodings));
  plan.run.warmup_steps = std::min(plan.run.warmup_steps, plan.run.steps);
  plan.run.dtype = arguments.dtype;
  dtype_named(plan.run.dtype);
  for (const std::int64_t length : plan.eval_lengths)
    if (length < 1) throw UsageError(str("evaluation lengths must be at least 1, found ", length));
  std::sort(plan.eval_lengths.begin(), plan.eval_lengths.end());
  plan.eval_lengths.erase(std::unique(plan.eval_lengths.begin(), plan.eval_lengths.end()), plan.eval_lengths.end());
  plan.threads = common.threads > 0 ? common.threads : at::get_num_threads();
  return plan;
}

int run_compare(const CompareArguments& arguments, const CommonOptions& common) {
  if (arguments.list) {
    if (arguments.grid.empty()) throw UsageError("--list goes with --grid");
    const std::int64_t layers =
        arguments.model.empty() ? ModelConfig().layers : read_model_file(arguments.model).layers;
    print_grid(arguments.grid, layers, common);
    return 0;
  }
  ComparePlan plan;
  std::optional<GlueComparePlan> glue;
  CompareControl control;
  if (!arguments.from.empty()) {
    for (const CommandOption* option : arguments.command->options())
      if (const std::string name = option->name(); option->count() > 0 && name.starts_with("--") && name != "--from" &&
                                                   name != "--resume" && name != "--parse-cache" && !is_common(name))
        throw UsageError(str("--from repeats a comparison as it was and takes no ", name));
    const Json earlier = read_json(arguments.from);
    if (!earlier.is_object() || !earlier.contains("config") || !earlier.at("config").is_object())
      throw Error(str(arguments.from, ": expected a results.json with a \"config\""));
    if (earlier.at("config").value("task", "") == "glue")
      glue = glue_plan_from_json(earlier.at("config"), arguments.from);
    else
      plan = compare_from_json(earlier.at("config"), arguments.from);
    (glue ? glue->parses : plan.parses).cache = arguments.feed.cache;
    control.expected_data = earlier.at("config").value("data_sha256", "");
    // The same bits need the same number of threads.
    const std::int64_t threads = glue ? glue->threads : plan.threads;
    if (threads > 0) at::set_num_threads(static_cast<int>(threads));
  } else if (arguments.task == "glue") {
    glue = glue_plan_of(arguments, common);
  } else {
    plan = plan_of(arguments, common);
  }
  control.folder = common.out.empty() ? "torsor-compare" : common.out;
  control.resume = arguments.resume;
  control.force = common.force;
  control.stop = &stop_requested;
  control.progress = [&](const std::string& label) { return progress_options(common, label); };
  control.on_message = [&](const std::string& line) { say(common, line); };
  std::size_t told = 0;
  control.on_results = [&](const Json& document) {
    tell_newest_run(common, publish(document, control.folder, false), told);
  };
  const Json document = glue ? run_glue_compare(*glue, control) : run_compare(plan, control);
  return print_results(common, publish(document, control.folder, true), control.folder);
}

}  // namespace

void add_compare_command(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<CompareArguments>();
  Command* command = app.add_subcommand("compare", "train and evaluate the same model under several encodings");
  command->footer(
      "Example: torsor compare --encodings 'rope; alibi; none' --text book.txt --steps 300 --out my-comparison");
  command
      ->add_option("--encodings", arguments->encodings, "expressions, with ';' between (commas belong to expressions)")
      ->take_all();
  command->add_option(
      "--grid", arguments->grid,
      "the encodings of an ablation in place of --encodings: decoder, depth, coupling or controls, with "
      "--task glue encoder, fusion or labels");
  command->add_flag("--list", arguments->list, "with --grid: print its cells and run nothing");
  command->add_option("--task", arguments->task, "what is compared: lm, syntax, glue, addition or passkey")
      ->capture_default_str();
  command->add_option("--text", arguments->data.text, "UTF-8 files or folders (*.txt, *.md) to train on");
  command->add_option("--valid", arguments->data.valid,
                      "files or folders to evaluate on; left out: a part of the text");
  command->add_option("--tokens", arguments->data.tokens, "a headerless file of token ids instead of text");
  command->add_option(
      "--tokenizer", arguments->data.tokenizer,
      "a tokenizer that gives texts back byte for byte, or a folder with it; left out: a token is a byte");
  command->add_option("--token-bytes", arguments->data.token_bytes, "bytes of a token id: 2 or 4")
      ->check(one_of({"2", "4"}));
  command->add_option("--length", arguments->length, "training length: tokens, or digits of an addend")
      ->check(whole_number(1));
  command->add_option("--eval-lengths", arguments->eval_lengths, "evaluation lengths; of lm each divides the largest")
      ->delimiter(',');
  command->add_option("--seeds", arguments->seeds, "seeds, separated by commas")->delimiter(',');
  command->add_option("--steps", arguments->steps, "training steps")->check(whole_number(1));
  command->add_option("--batch", arguments->batch, "windows or problems a step")->check(whole_number(1));
  command->add_option("--learning-rate", arguments->learning_rate, "peak learning rate")->check(real_number(false));
  add_tag_loss(command, arguments->tag_loss);
  command->add_option("--eval-spans", arguments->eval_spans, "spans of the largest length to score; 0 = all")
      ->check(whole_number(0));
  command->add_option("--problems", arguments->problems, "test problems a cell of a generated task")
      ->check(whole_number(1));
  command->add_option("--profile", arguments->profile, "quick, standard or full")->capture_default_str();
  command->add_option("--model", arguments->model, "JSON file with the model's sizes");
  command->add_option("--dtype", arguments->dtype, "float32 or bf16")->capture_default_str();
  add_syntax_options(command, arguments->syntax);
  add_feed_options(command, arguments->feed);
  command
      ->add_option(
          "--gate-every", arguments->gate_every,
          "steps between two looks of the perplexity gate: sipe(E) is stopped where E, compared too, is better")
      ->check(whole_number(1));
  command->add_flag("--gate-warn-only", arguments->gate_warn_only, "with --gate-every: warn, and stop nothing");
  command->add_option("--data", arguments->folder, "of glue: the folder that holds a folder a task");
  command
      ->add_option("--glue-tasks", arguments->glue_tasks,
                   "of glue: tasks, or FOLDER:LAYOUT; left out: every GLUE task that is there")
      ->delimiter(',');
  command->add_option("--fine-steps", arguments->fine_steps, "of glue: steps of fine-tuning at most; 0 = three epochs")
      ->check(whole_number(0));
  command->add_option("--fine-rate", arguments->fine_rate, "of glue: peak learning rate of fine-tuning")
      ->check(real_number(false));
  command->add_option("--from", arguments->from, "repeat the comparison of a results.json");
  command->add_flag("--resume", arguments->resume, "go on where an earlier call stopped");
  arguments->command = command;
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_compare(*arguments, common); }; });
}

}  // namespace torsor
