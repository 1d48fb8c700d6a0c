// torsor compare
#include <ATen/Parallel.h>

#include <iostream>

#include "torsor/base/file.h"
#include "torsor/cli/common.h"
#include "torsor/lab/profile.h"
#include "torsor/report/csv.h"
#include "torsor/report/html.h"
#include "torsor/report/statistics.h"
#include "torsor/report/table.h"

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
  std::int64_t eval_spans = -1;
  std::int64_t problems = 0;
  std::string profile = "quick";
  std::string model;
  std::string dtype = "float32";
  std::string from;
  bool resume = false;
};

/// Options that the task does not read are refused, not passed over.
void check_fit(const CompareArguments& arguments) {
  const auto refuse = [&](bool given, const char* option, const char* reader) {
    if (given) throw UsageError(str(option, " is for ", reader, ", not for --task ", arguments.task));
  };
  if (arguments.task == "lm") {
    refuse(arguments.problems > 0, "--problems", "generated tasks");
    return;
  }
  refuse(!arguments.data.text.empty(), "--text", "--task lm");
  refuse(!arguments.data.valid.empty(), "--valid", "--task lm");
  refuse(!arguments.data.tokens.empty(), "--tokens", "--task lm");
  refuse(arguments.eval_spans >= 0, "--eval-spans", "--task lm");
}

ComparePlan plan_of(const CompareArguments& arguments, const CommonOptions& common) {
  ComparePlan plan = profile_plan(arguments.profile, arguments.task);
  check_fit(arguments);
  if (!arguments.encodings.empty()) plan.encodings = split_encodings(arguments.encodings);
  const std::int64_t generated = plan.data.generated_bytes;
  plan.data = arguments.data;
  plan.data.generated_bytes = generated;
  if (!arguments.model.empty())
    plan.run.model = read_model_file(arguments.model);
  else
    plan.run.model.complete();
  // Without lengths of its own, an evaluation keeps the profile's multiples of the training length.
  if (arguments.length > 0) set_length(plan, arguments.length);
  if (!arguments.eval_lengths.empty()) plan.eval_lengths = arguments.eval_lengths;
  if (!arguments.seeds.empty())
    plan.seeds = arguments.seeds;
  else if (common.seed_given)
    plan.seeds = {static_cast<std::int64_t>(common.seed)};
  if (arguments.steps > 0) plan.run.steps = arguments.steps;
  if (arguments.batch > 0) plan.run.batch = arguments.batch;
  if (arguments.learning_rate > 0) plan.run.learning_rate = arguments.learning_rate;
  if (arguments.eval_spans >= 0) plan.eval_spans = arguments.eval_spans;
  if (arguments.problems > 0) plan.problems = arguments.problems;
  plan.run.warmup_steps = std::min(plan.run.warmup_steps, plan.run.steps);
  plan.run.dtype = arguments.dtype;
  dtype_named(plan.run.dtype);
  for (const std::int64_t length : plan.eval_lengths)
    if (length < 1) throw UsageError(str("evaluation lengths must be at least 1, found ", length));
  std::sort(plan.eval_lengths.begin(), plan.eval_lengths.end());
  plan.eval_lengths.erase(std::unique(plan.eval_lengths.begin(), plan.eval_lengths.end()), plan.eval_lengths.end());
  for (std::size_t a = 0; a < plan.seeds.size(); ++a) {
    if (plan.seeds[a] < 0) throw UsageError(str("seeds must not be negative, found ", plan.seeds[a]));
    for (std::size_t b = 0; b < a; ++b)
      if (plan.seeds[a] == plan.seeds[b]) throw UsageError(str("the seed ", plan.seeds[a], " is given twice"));
  }
  plan.threads = common.threads > 0 ? common.threads : at::get_num_threads();
  return plan;
}

/// Summary, verdict, CSV and report of the runs so far; all from the results alone.
report::Results publish(const Json& document, const std::string& folder, bool whole) {
  report::Results results = report::parse_results(document);
  report::summarize(results);
  write_file_atomic(folder + "/results.json", json_text(report::to_json(results), 1) + "\n");
  if (whole) {
    write_file_atomic(folder + "/results.csv", report::results_csv(results));
    write_file_atomic(folder + "/report.html", report::html_report(results));
  }
  return results;
}

/// A finished run in one line: perplexity, or the share of right answers, by length.
std::string line_of(const Json& run) {
  std::string line =
      str("  ", run.at("encoding").get<std::string>(), " seed ", run.at("seed").get<std::int64_t>(), ":");
  for (const Json& eval : run.at("eval")) {
    const bool share = eval.contains("accuracy");
    const Json& value = eval.at(share ? "accuracy" : "perplexity");
    std::ostringstream figure;
    figure.precision(3);
    if (!value.is_number())
      figure << eval.at("status").get<std::string>();
    else if (share)
      figure << 100 * value.get<double>() << " %";
    else
      figure << value.get<double>();
    line += str("  ", eval.at("length").get<std::int64_t>(), " ", figure.str());
  }
  return line;
}

int run_command(const CompareArguments& arguments, const CommonOptions& common) {
  ComparePlan plan;
  CompareControl control;
  if (!arguments.from.empty()) {
    const Json earlier = read_json(arguments.from);
    if (!earlier.is_object() || !earlier.contains("config") || !earlier.at("config").is_object())
      throw Error(str(arguments.from, ": expected a results.json with a \"config\""));
    plan = compare_from_json(earlier.at("config"), arguments.from);
    control.expected_data = earlier.at("config").value("data_sha256", "");
    // The same bits need the same number of threads.
    if (plan.threads > 0) at::set_num_threads(static_cast<int>(plan.threads));
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
    const report::Results results = publish(document, control.folder, false);
    if (results.runs.size() <= told || common.quiet) return;
    told = results.runs.size();
    const Json& run = document.at("runs").back();
    if (run.at("status") == "failed") return;  // it was told with its reason
    say(common, line_of(run));
  };
  const Json document = run_compare(plan, control);
  const report::Results results = publish(document, control.folder, true);
  if (common.json) {
    std::cout << json_text(report::to_json(results), 1) << "\n";
  } else {
    std::cout << report::text_table(results) << "\n";
    for (const std::string& sentence : results.verdict) std::cout << sentence << "\n";
    std::cout << "\nreport: " << control.folder << "/report.html\n";
  }
  const auto has_failed = [](const report::Run& run) { return run.status == report::Status::failed; };
  const auto first = std::find_if(results.runs.begin(), results.runs.end(), has_failed);
  if (first == results.runs.end()) return 0;
  throw Error(str(std::count_if(results.runs.begin(), results.runs.end(), has_failed), " of ", results.runs.size(),
                  " runs failed, first ", first->encoding, " seed ", first->seed, ": ", first->reason));
}

}  // namespace

void add_compare_command(CLI::App& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command = app.add_subcommand("compare", "train and evaluate the same model under several encodings");
  command->footer(
      "Example: torsor compare --encodings 'rope; alibi; none' --text book.txt --steps 300 --out my-comparison");
  command
      ->add_option("--encodings", arguments->encodings, "expressions, with ';' between (commas belong to expressions)")
      ->take_all();
  command->add_option("--task", arguments->task, "what is compared: lm, addition or passkey")->capture_default_str();
  command->add_option("--text", arguments->data.text, "UTF-8 files or folders (*.txt, *.md) to train on");
  command->add_option("--valid", arguments->data.valid,
                      "files or folders to evaluate on; left out: a part of the text");
  command->add_option("--tokens", arguments->data.tokens, "a headerless file of token ids instead of text");
  command->add_option("--token-bytes", arguments->data.token_bytes, "bytes of a token id: 2 or 4")
      ->check(CLI::IsMember({2, 4}));
  command->add_option("--length", arguments->length, "training length: tokens, or digits of an addend")
      ->check(whole_number(1));
  command->add_option("--eval-lengths", arguments->eval_lengths, "evaluation lengths; of lm each divides the largest")
      ->delimiter(',');
  command->add_option("--seeds", arguments->seeds, "seeds, separated by commas")->delimiter(',');
  command->add_option("--steps", arguments->steps, "training steps")->check(whole_number(1));
  command->add_option("--batch", arguments->batch, "windows or problems a step")->check(whole_number(1));
  command->add_option("--learning-rate", arguments->learning_rate, "peak learning rate")->check(real_number(false));
  command->add_option("--eval-spans", arguments->eval_spans, "spans of the largest length to score; 0 = all")
      ->check(whole_number(0));
  command->add_option("--problems", arguments->problems, "test problems a cell of a generated task")
      ->check(whole_number(1));
  command->add_option("--profile", arguments->profile, "quick, standard or full")->capture_default_str();
  command->add_option("--model", arguments->model, "JSON file with the model's sizes");
  command->add_option("--dtype", arguments->dtype, "float32 or bf16")->capture_default_str();
  command->add_option("--from", arguments->from, "repeat the comparison of a results.json");
  command->add_flag("--resume", arguments->resume, "go on where an earlier call stopped");
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_command(*arguments, common); }; });
}

}  // namespace torsor
