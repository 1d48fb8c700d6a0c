// torsor extend
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>

#include "torsor/cli/checkpoint_out.h"
#include "torsor/lab/data.h"
#include "torsor/lab/evaluate.h"
#include "torsor/lab/run.h"
#include "torsor/model/adapter.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/convert.h"
#include "torsor/model/extend.h"
#include "torsor/model/hugging_face_export.h"

namespace torsor {
namespace {

struct ExtendArguments {
  std::string checkpoint;
  ExtendRequest request;
  std::string to;
  std::string base;
  std::vector<std::string> text;
  std::string tokens;
  std::int64_t token_bytes = 2;
  std::vector<std::int64_t> lengths;
  std::int64_t spans = 0;
  std::string dtype = "float32";

  bool judged() const { return !text.empty() || !tokens.empty(); }
};

void check(const ExtendArguments& arguments, const CommonOptions& common) {
  if (common.out.empty()) throw UsageError("extend needs --out, the folder of the extended checkpoint");
  if (!arguments.text.empty() && !arguments.tokens.empty()) throw UsageError("give --text or --tokens, one of them");
  if (!arguments.judged() && (!arguments.lengths.empty() || arguments.spans > 0))
    throw UsageError("--lengths and --spans say how a text is scored; give --text or --tokens");
  for (const std::int64_t length : arguments.lengths)
    if (length < 1) throw UsageError(str("lengths must be at least 1, found ", length));
  if (!arguments.request.encoding.empty()) parse_grammar(arguments.request.encoding);
  dtype_named(arguments.dtype);
  check_checkpoint_out(common, arguments.checkpoint);
}

/// Both models, and what was asked for and found.
struct Subject {
  LoadedModel before;
  Decoder after;
  Extension extension;
};

/// A tuned adapter has its encoding: its base stands beside it.
Subject tuned_subject(const ExtendArguments& arguments) {
  if (!arguments.request.encoding.empty() || !arguments.request.method.empty())
    throw UsageError("an adapter stays under the encoding that it was tuned for and takes no --encoding or --method");
  const LoadedAdapter adapter = load_adapter(arguments.checkpoint, arguments.base);
  Decoder merged = adapter.tuned.merged();
  Extension extension;
  extension.encoding = merged.config().encoding;
  extension.trained = adapter.base.config.train_length;
  extension.length = arguments.request.length;
  if (extension.length == 0) {
    try {
      extension.length = plan_extension(adapter.base.config, {extension.encoding, "", 0}).length;
    } catch (const Error&) {
      // No scaling tells how far it goes.
      throw UsageError(str("the adapter's encoding '", extension.encoding,
                           "' tells no length; give --length of the texts that are to be read"));
    }
  }
  return {load_checkpoint(adapter.base.folder), std::move(merged), extension};
}

Subject subject_of(const ExtendArguments& arguments) {
  if (is_adapter(arguments.checkpoint)) return tuned_subject(arguments);
  LoadedModel before = load_checkpoint(arguments.checkpoint, "", "", arguments.base);
  const Extension extension = plan_extension(before.model.config(), arguments.request);
  Decoder after = extended(before.model, extension);
  return {std::move(before), std::move(after), extension};
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// The training length and its doubles, up to the length that was asked for.
std::vector<std::int64_t> lengths_of(const ExtendArguments& arguments, const Extension& extension) {
  std::vector<std::int64_t> lengths = arguments.lengths;
  if (lengths.empty()) {
    for (std::int64_t one = extension.trained; one < extension.length; one *= 2)
      if (extension.length % one == 0) lengths.push_back(one);
    lengths.push_back(extension.length);
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

struct Scores {
  std::int64_t length = 0;
  LmEvaluation before, after;
};

Corpus corpus_of(const ExtendArguments& arguments, const LoadedModel& loaded) {
  if (!arguments.tokens.empty())
    return load_tokens(arguments.tokens, static_cast<std::size_t>(arguments.token_bytes),
                       static_cast<std::uint32_t>(loaded.model.config().vocabulary_size));
  if (!loaded.reader)
    throw Error(str(arguments.checkpoint, ": the model reads '", loaded.tokenizer, "', no text; give --tokens"));
  return load_texts(arguments.text, loaded.reader).corpus;
}

/// The same targets under both models, once a length.
std::vector<Scores> scores_of(const ExtendArguments& arguments, const CommonOptions& common, const Subject& subject,
                              const Corpus& corpus, const EvaluationPlan& plan,
                              const std::vector<std::int64_t>& lengths) {
  Progress::Options options = progress_options(common, "evaluate");
  options.total = 2 * static_cast<std::int64_t>(lengths.size());
  Progress progress(options);
  const auto stop = [] { return stop_requested.load(); };
  const at::ScalarType dtype = dtype_named(arguments.dtype);
  std::vector<Scores> all;
  std::int64_t done = 0;
  for (const std::int64_t length : lengths) {
    Scores scores;
    scores.length = length;
    progress.update(done, str("length ", length, ", before"));
    scores.before = evaluate_lm(subject.before.model, corpus, plan, length, dtype, stop);
    progress.update(++done, str("length ", length, ", after"));
    scores.after = evaluate_lm(subject.after, corpus, plan, length, dtype, stop);
    progress.update(++done);
    all.push_back(std::move(scores));
  }
  progress.finish();
  return all;
}

void print_table(const Subject& subject, const Corpus& corpus, const EvaluationPlan& plan,
                 const std::vector<Scores>& all) {
  const auto cell = [](const LmEvaluation& one) -> std::string {
    if (one.refused) return "refused";
    std::ostringstream text;
    text << std::setprecision(6) << std::exp(one.loss);
    return text.str();
  };
  std::cout << "perplexity on " << plan.target_count() << (corpus.of_bytes() ? " bytes" : " tokens")
            << ", the same under both; trained on " << subject.extension.trained << "\n"
            << std::setw(8) << "length" << std::setw(14) << "before" << std::setw(14) << "after"
            << "\n";
  for (const Scores& one : all) {
    std::cout << std::setw(8) << one.length << std::setw(14) << cell(one.before) << std::setw(14) << cell(one.after)
              << "\n";
    for (const LmEvaluation* side : {&one.before, &one.after})
      if (side->refused)
        std::cout << std::setw(8) << ""
                  << "  refused: " << side->reason << "\n";
  }
}

/// What is written: a folder of transformers, or of this project where `form` is empty.
struct Target {
  HuggingFaceCompanions companions;
  std::optional<HuggingFaceForm> form;
};

/// In the form that the checkpoint has, where none is asked for. Throws Refusal where no family has the model.
Target target_of(const ExtendArguments& arguments, const Subject& subject) {
  Target target;
  target.companions = hugging_face_companions(arguments.checkpoint);
  const std::string& family = target.companions.family;
  const bool own = family.empty() || read_json(arguments.checkpoint + "/config.json").contains("format");
  if (arguments.to == "hf" || (arguments.to.empty() && !own))
    target.form = hugging_face_form(subject.after.config(), {family, false, subject.extension.length});
  return target;
}

/// Rows in Hugging Face's order where it has the model then: the same function, and readable there. Whether it did.
bool bring_to_its_layout(Subject& subject, std::uint64_t seed) {
  const std::string layout = hugging_face_layout(subject.after.config().encoding);
  if (layout == subject.after.config().encoding) return false;
  ModelConfig config = subject.after.config();
  config.encoding = layout;
  try {
    hugging_face_form(config);
  } catch (const Refusal&) {
    return false;
  }
  subject.after = convert_model(subject.after, layout, seed).model;
  subject.extension.encoding = layout;
  return true;
}

/// What a user should know who did not write it.
void tell(const CommonOptions& common, const Subject& subject, const Target& target, bool moved) {
  const Extension& extension = subject.extension;
  if (!extension.kept.empty()) say(common, str("kept from the checkpoint: ", joined(extension.kept)));
  if (!extension.filled.empty()) say(common, str("filled in: ", joined(extension.filled)));
  if (moved) say(common, str("pairs of channels in Hugging Face's order: ", extension.encoding));
  const std::string& family = target.companions.family;
  if (target.form && !family.empty() && target.form->family != family)
    say(common, str("a ", family, " of Hugging Face has no such encoding: written as a ", target.form->family));
}

/// Answers the family under which transformers reads what is written, empty where none does.
std::string write(const CommonOptions& common, const Subject& subject, const Target& target) {
  const LoadedModel& loaded = subject.before;
  if (target.form) {
    save_hugging_face(common.out, subject.after, *target.form, target.companions, loaded.reader, loaded.end_tokens);
    return target.form->family;
  }
  save_checkpoint(common.out, subject.after, loaded.tokenizer, loaded.embedder, loaded.reader,
                  subject.extension.length);
  return read_json(common.out + "/config.json").value("model_type", "");
}

int run_extend(const ExtendArguments& arguments, const CommonOptions& common) {
  check(arguments, common);
  Subject subject = subject_of(arguments);
  const Extension& extension = subject.extension;
  const std::string from = subject.before.model.config().encoding;
  const bool moved = bring_to_its_layout(subject, common.seed);
  const Target target = target_of(arguments, subject);

  std::vector<Scores> all;
  Corpus corpus;
  EvaluationPlan plan;
  std::vector<std::int64_t> lengths;
  if (arguments.judged()) {
    lengths = lengths_of(arguments, extension);
    corpus = corpus_of(arguments, subject.before);
    plan = evaluation_windows(corpus, std::vector<std::size_t>(lengths.begin(), lengths.end()),
                              static_cast<std::size_t>(arguments.spans));
  }
  tell(common, subject, target, moved);
  if (arguments.judged()) all = scores_of(arguments, common, subject, corpus, plan, lengths);
  const std::string family = write(common, subject, target);
  if (common.json) {
    Json json = {{"checkpoint", arguments.checkpoint},
                 {"out", common.out},
                 {"from", from},
                 {"encoding", extension.encoding},
                 {"kept", extension.kept},
                 {"filled", extension.filled},
                 {"train_length", extension.trained},
                 {"length", extension.length},
                 {"hugging_face", family.empty() ? Json(nullptr) : Json(family)},
                 {"tokens", plan.target_count()},
                 {"eval", Json::array()}};
    for (const Scores& one : all)
      json["eval"].push_back({{"length", one.length},
                              {"before", evaluation_to_json(one.before)},
                              {"after", evaluation_to_json(one.after)}});
    std::cout << json_text(json, 1) << "\n";
    return 0;
  }
  std::cout << from << " -> " << extension.encoding << "\n";
  if (arguments.judged())
    print_table(subject, corpus, plan, all);
  else
    std::cout << "nothing was evaluated: no --text was given\n";
  std::cout << "for texts of up to " << extension.length << " tokens, in " << common.out
            << (family.empty() ? "" : ", read by Hugging Face as a " + family) << "\n";
  return 0;
}

}  // namespace

void add_extend_command(Command& app, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<ExtendArguments>();
  Command* command = app.add_subcommand("extend", "a checkpoint past its training length, by another scaling");
  command->footer(
      "Inside the expression rope keeps what the checkpoint's has. With a text both are scored on it, by length.\n"
      "Example: torsor extend run --method yarn --length 512 --text book.txt --out longer\n"
      "         torsor extend Llama-folder --encoding 'dynamic(rope, factor=4)' --out longer");
  ExtendRequest& request = arguments->request;
  command
      ->add_option("checkpoint", arguments->checkpoint,
                   "a checkpoint (a folder, a .gguf, llama2.c's .bin) or an adapter")
      ->required();
  command->add_option("--base", arguments->base, "where an adapter's base lies, if not where it was recorded");
  command->add_option("--encoding", request.encoding, "the scaling, such as 'yarn(rope, factor=4)'");
  command->add_option("--method", request.method, "instead: a scaling of the checkpoint's rotation to --length")
      ->check(one_of(extend_methods()));
  command->add_option("--length", request.length, "tokens of the longest text; left out: factor times the training's")
      ->check(whole_number(1));
  command
      ->add_option("--train-length", request.trained,
                   "tokens of the texts that it was trained on, where the checkpoint tells none or another")
      ->check(whole_number(1));
  command->add_option("--to", arguments->to, "torsor or hf: the form that is written; left out: the checkpoint's")
      ->check(one_of({"torsor", "hf"}));
  command->add_option("--text", arguments->text, "UTF-8 files or folders to score both on");
  command->add_option("--tokens", arguments->tokens, "a headerless file of token ids instead");
  command->add_option("--token-bytes", arguments->token_bytes, "bytes of a token id: 2 or 4")
      ->check(one_of({"2", "4"}));
  command
      ->add_option("--lengths", arguments->lengths,
                   "lengths to score, each dividing the largest; left out: the training length, doubled up to --length")
      ->delimiter(',');
  command->add_option("--spans", arguments->spans, "spans of the largest length to score; 0 = all")
      ->check(whole_number(0));
  command->add_option("--dtype", arguments->dtype, "of the scoring: float32 or bf16")->capture_default_str();
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_extend(*arguments, common); }; });
}

}  // namespace torsor
