// torsor syntax train
#include <filesystem>
#include <iostream>

#include "torsor/base/json.h"
#include "torsor/cli/command_syntax.h"
#include "torsor/syntax/arc_training.h"
#include "torsor/syntax/native_biaffine.h"
#include "torsor/syntax/native_incremental.h"
#include "torsor/syntax/parser_udpipe.h"
#include "torsor/syntax/tokenizer.h"

namespace torsor {
namespace {

struct SyntaxTrainArguments {
  std::string parser;
  std::vector<std::string> treebank;
  std::string development;
  syntax::NativeTraining training;
  bool epochs_given = false;
  syntax::UdpipeTraining udpipe;
};

/// Refuses to write over what is there, as `torsor train` does.
void check_folder(const std::string& folder, bool resume, const CommonOptions& common) {
  if (common.force) return;
  const auto present = [&](const char* name) { return std::filesystem::exists(folder + "/" + name); };
  const bool run_there = present("state.safetensors");
  if (run_there && !resume)
    throw Error(str("'", folder, "' already holds a run; go on with --resume or replace it with --force"));
  if (!run_there && (present("config.json") || present("model.safetensors")))
    throw Error(str("'", folder, "' already holds a model; give another --out or replace it with --force"));
  if (resume && !run_there) say(common, str("no saved state in '", folder, "': from the first step"));
}

void report(const syntax::NativeTraining& training, const CommonOptions& common) {
  const syntax::NativeModel model = syntax::read_native_model(training.folder);
  if (common.json) {
    Json json = model.training;
    json["out"] = training.folder;
    json["model_sha256"] = model.sha256;
    std::cout << json_text(json) << "\n";
    return;
  }
  std::cout << "model " << model.sha256.substr(0, 12) << " in " << training.folder;
  const Json& development = model.training.at("development");
  if (!development.is_null())
    std::cout << ", UAS " << 100 * development.at("uas").get<double>() << ", LAS "
              << 100 * development.at("las").get<double>() << " on the development set (gold tokens)";
  std::cout << "\n";
}

/// f_syn: no parser, but made of the same treebanks.
int run_arcs(const SyntaxTrainArguments& arguments, const std::vector<syntax::Sentence>& sentences,
             const std::vector<syntax::Sentence>& development, const CommonOptions& common) {
  if (development.empty()) throw UsageError("syntax train --parser arcs needs --dev: it decides when training ends");
  const bool incremental = arguments.parser == "arcs-incremental";
  syntax::ArcTraining training;
  training.seed = common.seed;
  training.folder = common.out;
  training.resume = arguments.training.resume;
  training.stop = &stop_requested;
  if (arguments.epochs_given) training.epochs = arguments.training.epochs;
  const Progress::Options progress = progress_options(common, arguments.parser);
  training.progress = &progress;
  training.on_message = [&](const std::string& line) { say(common, line); };
  const syntax::TrainedArcs trained =
      train_arcs(arc_sentences(sentences, incremental), arc_sentences(development, incremental),
                 {.incremental = incremental, .exchange = arguments.parser == "arcs-exchange"}, training);
  const syntax::NativeModel model = syntax::read_native_model(common.out);
  if (common.json) {
    Json json = model.training;
    json["out"] = common.out;
    json["model_sha256"] = model.sha256;
    std::cout << json_text(json) << "\n";
  } else {
    std::cout << "structure embedder " << model.sha256.substr(0, 12) << " in " << common.out << ", "
              << 100 * trained.development.uas << " % of hidden heads and " << 100 * trained.development.las
              << " % with their relations told from the other arcs (no accuracies of a parser)\n";
  }
  return 0;
}

int run_syntax_train(const SyntaxTrainArguments& arguments, const CommonOptions& common) {
  if (common.out.empty()) throw UsageError("syntax train needs --out, the folder (or UDPipe's file) of the model");
  const bool udpipe = arguments.parser == "udpipe";
  if (udpipe && !syntax::has_udpipe())
    throw Error("this torsor was built without UDPipe; configure it with -DTORSOR_WITH_UDPIPE=ON");
  if (udpipe && arguments.training.resume) throw UsageError("UDPipe's training cannot be resumed");
  if (udpipe && !common.force && std::filesystem::exists(common.out))
    throw Error(str("'", common.out, "' exists; replace it with --force"));
  if (!udpipe) {
    syntax::check_native_training(arguments.training);
    check_folder(common.out, arguments.training.resume, common);
  }
  const std::vector<syntax::Sentence> sentences = syntax::read_treebank(arguments.treebank);
  std::vector<syntax::Sentence> development;
  if (!arguments.development.empty()) development = syntax::read_treebank({arguments.development});
  if (sentences.empty()) throw Error("the treebank holds no sentences");
  std::size_t words = 0;
  for (const syntax::Sentence& sentence : sentences) words += sentence.size();
  say(common, str(sentences.size(), " sentences, ", words, " words"));
  if (arguments.parser.starts_with("arcs")) return run_arcs(arguments, sentences, development, common);
  if (udpipe) {
    syntax::UdpipeTraining training = arguments.udpipe;
    training.trees = sentences;
    training.development = development;
    std::ostream nowhere(nullptr);
    stops_at_once = true;  // UDPipe asks nobody, and writes its file at the end
    syntax::train_udpipe(training, common.out, common.quiet ? nowhere : std::cerr);
    if (common.json)
      std::cout << json_text({{"out", common.out}}) << "\n";
    else
      std::cout << "model in " << common.out << "\n";
    return 0;
  }
  syntax::NativeTraining training = arguments.training;
  training.seed = common.seed;
  training.folder = common.out;
  training.stop = &stop_requested;
  const Progress::Options progress = progress_options(common, arguments.parser);
  training.progress = &progress;
  training.on_message = [&](const std::string& line) { say(common, line); };
  if (!arguments.epochs_given) training.epochs = arguments.parser == "native" ? 15 : 22;
  const Json tokenizer = syntax::Tokenizer(sentences).to_json();
  const std::vector<syntax::TaggedTree> trees = syntax::tagged_trees(sentences),
                                        scored = syntax::tagged_trees(development);
  if (arguments.parser == "native")
    syntax::train_biaffine(trees, scored, {}, training, tokenizer);
  else
    syntax::train_incremental(trees, scored, {}, training, tokenizer);
  report(training, common);
  return 0;
}

}  // namespace

void add_syntax_train(Command& syntax, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<SyntaxTrainArguments>();
  Command* command = syntax.add_subcommand("train", "train a parser on a treebank");
  command->footer(
      "Example: torsor syntax train --parser native --conllu en_ewt-ud-train.conllu --dev en_ewt-ud-dev.conllu --out "
      "ewt");
  command
      ->add_option(
          "--parser", arguments->parser,
          "native (whole sentences), incremental (left to right, for causal tags), udpipe; arcs, arcs-exchange "
          "(for encoders) and arcs-incremental: the structure embedder of sipe(prior=fsyn)")
      ->check(one_of({"native", "incremental", "udpipe", "arcs", "arcs-exchange", "arcs-incremental"}))
      ->required();
  command->add_option("--conllu", arguments->treebank, "CoNLL-U files to train on")->required();
  command->add_option("--dev", arguments->development, "CoNLL-U file that is scored after each pass");
  CommandOption* epochs = command
                              ->add_option("--epochs", arguments->training.epochs,
                                           "passes over the treebank; left out: 15, or 22 for incremental")
                              ->check(whole_number(1, 10000));
  command->add_option("--batch-words", arguments->training.batch_words, "words of a step")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--learning-rate", arguments->training.learning_rate, "peak learning rate")
      ->check(real_number(false))
      ->capture_default_str();
  command->add_option("--dropout", arguments->training.dropout, "share of channels dropped, below 1")
      ->check(real_number(true))
      ->capture_default_str();
  arguments->training.save_every = 200;
  command->add_option("--save-every", arguments->training.save_every, "steps between saved states; 0 = only at the end")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_flag("--resume", arguments->training.resume, "go on from the folder's saved state");
  command->add_option("--udpipe-tokenizer", arguments->udpipe.tokenizer, "UDPipe's options, or none");
  command->add_option("--udpipe-tagger", arguments->udpipe.tagger, "UDPipe's options, or none");
  command->add_option("--udpipe-parser", arguments->udpipe.parser, "UDPipe's options, or none");
  command->callback([&common, &chosen, arguments, epochs] {
    arguments->epochs_given = epochs->count() > 0;
    chosen = [&common, arguments] { return run_syntax_train(*arguments, common); };
  });
}

}  // namespace torsor
