// torsor convert
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>

#include "torsor/base/file.h"
#include "torsor/cli/common.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/convert.h"

namespace torsor {
namespace {

struct ConvertArguments {
  std::string checkpoint;
  std::string encoding;
  std::string to;
  std::string base;
};

void check_out(const ConvertArguments& arguments, const CommonOptions& common) {
  namespace fs = std::filesystem;
  const std::string& out = common.out;
  const auto present = [&](const char* name) { return fs::exists(fs::path(out) / name); };
  std::error_code ignored;
  if (fs::equivalent(out, arguments.checkpoint, ignored))
    throw UsageError(str("'", out, "' is the checkpoint itself; give another --out"));
  // A converted checkpoint beside the state of a run would be taken for its own.
  if (present("state.safetensors") || present("state.json") || present("log.jsonl"))
    throw Error(str("'", out, "' holds a run; give another --out"));
  if (!common.force && (present("config.json") || present("model.safetensors")))
    throw Error(str("'", out, "' already holds a checkpoint; give another --out or replace it with --force"));
}

int run_convert(const ConvertArguments& arguments, const CommonOptions& common) {
  if (common.out.empty()) throw UsageError("convert needs --out, the folder of the converted checkpoint");
  if (arguments.encoding.empty() && arguments.to.empty())
    throw UsageError("convert needs --encoding, --to or both: what is to change?");
  const std::string wanted = arguments.encoding.empty() ? "" : print(parse(arguments.encoding));
  check_out(arguments, common);
  const LoadedModel loaded = load_checkpoint(arguments.checkpoint, "", "", arguments.base);
  const ModelConfig& before = loaded.model.config();
  const Converted converted = convert_model(loaded.model, wanted.empty() ? before.encoding : wanted, common.seed);
  const ModelConfig& after = converted.model.config();
  if (const std::string obstacle = hugging_face_obstacle(after); arguments.to == "hf" && !obstacle.empty())
    throw Refusal("Hugging Face has no architecture for this model: " + obstacle);
  save_checkpoint(common.out, converted.model, loaded.tokenizer, loaded.embedder, loaded.reader);
  const LogitsDifference& difference = converted.difference;
  if (common.json) {
    Json json;
    json["checkpoint"] = arguments.checkpoint;
    json["out"] = common.out;
    json["from"] = before.encoding;
    json["encoding"] = after.encoding;
    json["hugging_face"] = hugging_face_obstacle(after).empty();
    json["parameters"] = converted.model.parameter_count();
    json["logits"] = {{"rows", difference.rows},
                      {"tokens", difference.tokens},
                      {"worst_difference", difference.worst},
                      {"allowed", logits_rounding(after)}};
    std::cout << json_text(json, 1) << "\n";
  } else {
    std::cout << before.encoding << " -> " << after.encoding << "\nworst difference of the logits on "
              << difference.rows << " x " << difference.tokens << " random tokens: " << std::setprecision(2)
              << difference.worst << " of the largest\ncheckpoint in " << common.out << "\n";
  }
  return 0;
}

}  // namespace

void add_convert_command(CLI::App& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command = app.add_subcommand("convert", "a checkpoint under another encoding that means the same");
  command->footer(
      "Exact or refused: logits stay equal to rounding, and both models are compared before anything is written.\n"
      "Example: torsor convert run --encoding 'grape-m + t5' --out converted");
  command
      ->add_option("checkpoint", arguments->checkpoint,
                   "a checkpoint (a folder, a .gguf, llama2.c's .bin) or an adapter")
      ->required();
  command->add_option("--base", arguments->base, "where an adapter's base lies, if not where it was recorded");
  command->add_option("--encoding", arguments->encoding,
                      "the expression to convert to; left out: that of the checkpoint");
  command->add_option("--to", arguments->to, "torsor, or hf: refuse what Hugging Face transformers cannot load")
      ->check(CLI::IsMember({"torsor", "hf"}));
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_convert(*arguments, common); }; });
}

}  // namespace torsor
