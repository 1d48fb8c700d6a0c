// torsor syntax score
#include <iomanip>
#include <iostream>
#include <memory>

#include "torsor/base/json.h"
#include "torsor/cli/command_syntax.h"
#include "torsor/syntax/conllu.h"
#include "torsor/syntax/repair.h"
#include "torsor/syntax/score.h"

namespace torsor {
namespace {

struct ScoreArguments {
  std::string gold, system;
  bool repair = false;
};

Json agreement_json(const syntax::Agreement& agreement) {
  Json json;
  json["correct"] = agreement.correct;
  json["gold"] = agreement.gold;
  json["system"] = agreement.system;
  json["precision"] = agreement.precision();
  json["recall"] = agreement.recall();
  json["f1"] = agreement.f1();
  return json;
}

int run_score(const ScoreArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "syntax score");
  const syntax::Document gold = syntax::read_conllu_file(arguments.gold);
  syntax::Document system = syntax::read_conllu_file(arguments.system, {.check_trees = !arguments.repair});
  if (arguments.repair) {
    const syntax::RepairReport report = repair(system);
    if (report.repaired > 0) say(common, str(arguments.system, ": ", report.text()));
  }
  const syntax::Score result = score(gold.sentences, system.sentences);
  const std::pair<const char*, const syntax::Agreement&> rows[] = {
      {"tokens", result.tokens}, {"sentences", result.sentences},
      {"words", result.words},   {"uas", result.uas},
      {"las", result.las},       {"clas", result.clas}};
  if (common.json) {
    Json json;
    json["uas"] = 100 * result.uas.f1();
    json["las"] = 100 * result.las.f1();
    json["clas"] = 100 * result.clas.f1();
    json["sentences"] = gold.sentences.size();
    json["words"] = result.words.gold;
    for (const auto& [name, agreement] : rows) json["counts"][name] = agreement_json(agreement);
    std::cout << json_text(json, 1) << "\n";
    return 0;
  }
  std::cout << std::left << std::setw(10) << "" << std::right << std::setw(9) << "gold" << std::setw(9) << "system"
            << std::setw(9) << "correct" << std::setw(11) << "precision" << std::setw(9) << "recall" << std::setw(9)
            << "F1"
            << "\n"
            << std::fixed << std::setprecision(2);
  for (const auto& [name, agreement] : rows) {
    std::cout << std::left << std::setw(10) << name << std::right << std::setw(9) << agreement.gold << std::setw(9)
              << agreement.system << std::setw(9) << agreement.correct << std::setw(11) << 100 * agreement.precision()
              << std::setw(9) << 100 * agreement.recall() << std::setw(9) << 100 * agreement.f1() << "\n";
  }
  return 0;
}

}  // namespace

void add_syntax_score(Command& syntax, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<ScoreArguments>();
  Command* command = syntax.add_subcommand("score", "how well a parsed CoNLL-U file agrees with a gold one");
  command->footer(
      "Counts as the CoNLL 2018 shared task does: all words, punctuation included, relations without subtypes; tokens\n"
      "may differ as long as the text is the same up to white space. uas, las and clas of --json are F1 in per cent.\n"
      "Example: torsor syntax score treebank.conllu parsed.conllu");
  command->add_option("gold", arguments->gold, "the CoNLL-U file that is right")->required();
  command->add_option("system", arguments->system, "the CoNLL-U file to judge")->required();
  command->add_flag("--repair", arguments->repair, "make trees of heads in the second file that form none");
  command->callback(
      [&common, &chosen, arguments] { chosen = [&common, arguments] { return run_score(*arguments, common); }; });
}

}  // namespace torsor
