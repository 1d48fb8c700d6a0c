// torsor syntax gate, torsor syntax advise
#include <cmath>
#include <filesystem>
#include <iostream>

#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/cli/command_syntax.h"
#include "torsor/syntax/advise.h"
#include "torsor/syntax/gate.h"
#include "torsor/syntax/make_parser.h"
#include "torsor/syntax/treebank.h"

namespace torsor {
namespace {

struct SyntaxGateArguments {
  std::string parser;
  std::vector<std::string> files;
  syntax::GateOptions options;
  bool domain_given = false;
  syntax::ParserChoice choice;
};

int run_syntax_gate(const SyntaxGateArguments& arguments, const CommonOptions& common) {
  if (!common.out.empty() && !common.force && std::filesystem::exists(common.out))
    throw Error(str("'", common.out, "' exists; replace it with --force"));
  syntax::GateOptions options = arguments.options;
  options.seed = common.seed;
  std::vector<syntax::Sentence> gold;
  for (const std::string& file : arguments.files) {
    for (syntax::Sentence& sentence : syntax::read_treebank({file})) gold.push_back(std::move(sentence));
    if (!arguments.domain_given) options.of_sentence.resize(gold.size(), std::filesystem::path(file).stem().string());
  }
  if (gold.empty()) throw Error(str(arguments.files.front(), ": the gold files hold no sentence"));
  syntax::ParserChoice choice = arguments.choice;
  stop_while_parsing(arguments.parser, choice);
  const std::unique_ptr<syntax::Parser> parser = syntax::make_parser(arguments.parser, choice);
  const syntax::GateReport report = run_gate(*parser, gold, options);
  const Json json = syntax::gate_to_json(report);
  if (!common.out.empty()) write_file_atomic(common.out, json_text(json, 2) + "\n");
  if (common.json) {
    std::cout << json_text(json, 1) << "\n";
    return 0;
  }
  const syntax::ParserInfo& info = report.parser;
  std::cout << info.backend << " " << info.name << " " << info.version
            << (info.model_sha256.empty() ? "" : ", model " + info.model_sha256.substr(0, 12)) << ", scheme "
            << info.scheme << (info.prefix_safe ? ", prefix safe" : "") << ", on "
            << (options.tokens ? "gold tokens" : "raw text") << ", threshold " << options.threshold
            << (options.strict ? " for the lower end" : "") << "\n"
            << syntax::gate_table(report);
  if (report.seconds > 0) std::cout << static_cast<double>(report.all.sentences) / report.seconds << " sentences/s\n";
  return 0;
}

struct SyntaxAdviseArguments {
  syntax::AdviceQuestion question;
  std::string gate;
  std::vector<double> perplexities;
  bool tree = false;
};

int run_syntax_advise(const SyntaxAdviseArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "syntax advise");
  if (arguments.tree) {
    if (common.json)
      std::cout << json_text({{"tree", syntax::decision_tree()}}) << "\n";
    else
      std::cout << syntax::decision_tree();
    return 0;
  }
  syntax::AdviceQuestion question = arguments.question;
  if (!arguments.gate.empty()) question.gate = syntax::gate_from_json(read_json(arguments.gate), arguments.gate);
  if (!question.gate && !question.domains.empty()) throw UsageError("--domains goes with --gate");
  if (!arguments.perplexities.empty()) {
    const auto sound = [](double one) { return std::isfinite(one) && one > 0; };
    if (arguments.perplexities.size() != 2 || !sound(arguments.perplexities[0]) || !sound(arguments.perplexities[1]))
      throw UsageError("--perplexities takes two numbers above 0: with syntax, and of the base");
    question.rise = arguments.perplexities[0] / arguments.perplexities[1] - 1;
  }
  const syntax::Advice advice = advise(question);
  if (common.json) {
    std::cout << json_text({{"expression", advice.expression.empty() ? Json() : Json(advice.expression)},
                            {"reasons", advice.reasons},
                            {"closed", advice.closed},
                            {"stop", advice.stop}},
                           1)
              << "\n";
    return 0;
  }
  std::cout << (advice.expression.empty() ? "leave the encoding as it is" : advice.expression) << "\n";
  for (const std::string& reason : advice.reasons) std::cout << "- " << reason << "\n";
  return 0;
}

}  // namespace

void add_syntax_gate(Command& syntax, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<SyntaxGateArguments>();
  Command* command = syntax.add_subcommand("gate", "whether a parser is good enough, by domain");
  command->footer("Example: torsor syntax gate --parser ewt en_ewt-ud-dev.conllu --out gate.json");
  command
      ->add_option("--parser", arguments->parser,
                   "the folder of a trained model, conllu:FILE, process:'COMMAND' or udpipe:MODEL")
      ->required();
  command->add_option("files", arguments->files, "gold CoNLL-U files")->required();
  command->add_flag("--tokenized", arguments->options.tokens, "give the parser the gold tokens; otherwise raw text");
  command->add_flag("--strict-gate", arguments->options.strict, "the lower end of the interval must be above");
  command->add_option("--threshold", arguments->options.threshold, "UAS in percent that has to be passed")
      ->check(real_number(true))
      ->capture_default_str();
  CommandOption* domain = command->add_option("--domain", arguments->options.domain,
                                              "domain of sentences that name none; left out: the file's name");
  command->add_option("--lang", arguments->choice.language, "language told to a process")->capture_default_str();
  command->add_option("--log", arguments->choice.log, "file for a process's standard error");
  command->callback([&common, &chosen, arguments, domain] {
    arguments->domain_given = domain->count() > 0;
    chosen = [&common, arguments] { return run_syntax_gate(*arguments, common); };
  });
}

void add_syntax_advise(Command& syntax, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<SyntaxAdviseArguments>();
  syntax::AdviceQuestion& question = arguments->question;
  Command* command = syntax.add_subcommand("advise", "which syntax for which model, and what a closed gate means");
  command->footer("Example: torsor syntax advise --encoding alibi --gate gate.json");
  CommandOption* encoding =
      command->add_option("--encoding", question.encoding, "the model's encoding as it is; left out: the whole tree");
  command->add_flag("--encoder", question.encoder, "the model reads in both directions");
  command->add_flag("--oracle", question.oracle, "neither generation nor a real perplexity is needed");
  command->add_flag("--pretrained", question.pretrained, "the base has been trained already");
  command->add_option("--gate", arguments->gate, "what `torsor syntax gate --out` wrote");
  command->add_option("--domains", question.domains, "domains that the model will read")->delimiter(',');
  command->add_flag("--allow-unverified-domain", question.allow_unverified, "use domains that have no gold trees");
  command->add_option("--perplexities", arguments->perplexities, "with syntax, and of the base")->delimiter(',');
  command->callback([&common, &chosen, arguments, encoding] {
    arguments->tree = encoding->count() == 0;
    chosen = [&common, arguments] { return run_syntax_advise(*arguments, common); };
  });
}

}  // namespace torsor
