// torsor syntax check
#include <algorithm>
#include <iostream>
#include <memory>

#include "torsor/base/json.h"
#include "torsor/cli/command_syntax.h"
#include "torsor/syntax/conllu.h"
#include "torsor/syntax/hexatags.h"
#include "torsor/syntax/parse.h"

namespace torsor {
namespace {

struct Counts {
  std::size_t sentences = 0, words = 0, multiwords = 0, empty_nodes = 0;
  std::size_t crossing_sentences = 0, crossing_arcs = 0;
  std::size_t documents = 0;
};

struct Finding {
  std::size_t line;
  std::string reason;
};

/// What a sound sentence may still have wrong: a text that its tokens do not spell, a root that is not called root.
void look_closer(const syntax::Sentence& sentence, std::vector<Finding>& findings) {
  for (std::size_t i = 0; i < sentence.size(); ++i) {
    const syntax::Word& word = sentence.words[i];
    if ((word.head == 0) == (syntax::base_relation(word.deprel) == "root")) continue;
    findings.push_back({sentence.line, str("expected the relation root with head 0 and only there, got ", word.deprel,
                                           " with head ", word.head, " for word ", i + 1)});
  }
  const auto text = sentence.comment("text");
  if (!text) return;
  try {
    syntax::make_parse(std::span(&sentence, 1), *text);
  } catch (const Error& error) {
    findings.push_back({sentence.line, str("# text: ", error.what())});
  }
}

Json counts_json(const Counts& counts) {
  Json json;
  json["sentences"] = counts.sentences;
  json["words"] = counts.words;
  json["multiword_tokens"] = counts.multiwords;
  json["empty_nodes"] = counts.empty_nodes;
  json["documents"] = counts.documents;
  json["nonprojective_sentences"] = counts.crossing_sentences;
  json["nonprojective_arcs"] = counts.crossing_arcs;
  return json;
}

int run_syntax_check(const std::vector<std::string>& files, const CommonOptions& common) {
  refuse_out(common, "syntax check");
  Json list = Json::array();
  bool sound = true;
  for (const std::string& file : files) {
    if (stop_requested) throw Interrupted("syntax check was stopped");
    const syntax::Document document = syntax::read_conllu_file(file, {.lenient = true});
    std::vector<Finding> findings;
    for (const syntax::Skipped& skipped : document.skipped) findings.push_back({skipped.line, skipped.reason});
    Counts counts;
    for (const syntax::Sentence& sentence : document.sentences) {
      ++counts.sentences;
      counts.words += sentence.size();
      counts.multiwords += sentence.multiwords.size();
      counts.empty_nodes += sentence.empty_nodes.size();
      const int crossing = syntax::count_nonprojective(sentence.heads());
      counts.crossing_sentences += crossing > 0 ? 1 : 0;
      counts.crossing_arcs += static_cast<std::size_t>(crossing);
      look_closer(sentence, findings);
    }
    counts.documents = treebank_texts(document, file).size();
    std::sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) { return a.line < b.line; });
    sound = sound && findings.empty();
    Json one = counts_json(counts);
    Json defects = Json::array();
    for (const Finding& finding : findings) {
      if (common.json)
        defects.push_back({{"line", finding.line}, {"reason", finding.reason}});
      else
        std::cout << file << ":" << finding.line << ": " << finding.reason << "\n";
    }
    if (common.json) {
      Json row;
      row["file"] = file;
      row.update(one);
      row["defects"] = std::move(defects);
      list.push_back(std::move(row));
    } else {
      std::cout << file << ": " << counts.sentences << " sentences, " << counts.words << " words, " << counts.multiwords
                << " multiword tokens, " << counts.empty_nodes << " empty nodes, " << counts.crossing_arcs
                << " non-projective arcs in " << counts.crossing_sentences << " sentences, " << findings.size()
                << (findings.size() == 1 ? " defect\n" : " defects\n");
    }
  }
  if (common.json) std::cout << json_text(Json{{"sound", sound}, {"files", std::move(list)}}, 1) << "\n";
  return sound ? 0 : 1;
}

}  // namespace

void add_syntax_check(Command& syntax, CommonOptions& common, Chosen& chosen) {
  auto files = std::make_shared<std::vector<std::string>>();
  Command* command = syntax.add_subcommand("check", "every defect of CoNLL-U files with its line, and what they hold");
  command->footer(
      "Exits with 1 when there is a defect.\n"
      "Example: torsor syntax check treebank.conllu");
  command->add_option("files", *files, "CoNLL-U files")->required();
  command->callback(
      [&common, &chosen, files] { chosen = [&common, files] { return run_syntax_check(*files, common); }; });
}

}  // namespace torsor
