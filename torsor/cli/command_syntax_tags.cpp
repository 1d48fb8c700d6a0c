// torsor syntax tags
#include <iostream>
#include <memory>
#include <sstream>

#include "torsor/base/file.h"
#include "torsor/base/json.h"
#include "torsor/cli/command_syntax.h"
#include "torsor/syntax/conllu.h"
#include "torsor/syntax/hexatags.h"

namespace torsor {
namespace {

struct TagsArguments {
  std::string file;
  bool invert = false;
  bool lenient = false;
};

template <class List, class Write>
std::string joined(const List& list, const Write& write) {
  std::string text;
  for (const auto& one : list) text += (text.empty() ? "" : " ") + write(one);
  return text;
}

int run_tags(const TagsArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "syntax tags");
  const syntax::Document document = syntax::read_conllu_file(arguments.file, {.lenient = arguments.lenient});
  Json rows = Json::array();
  std::size_t lifted_sentences = 0;
  for (const syntax::Sentence& sentence : document.sentences) {
    const std::vector<int> heads = sentence.heads(), projective = syntax::projectivise(heads);
    lifted_sentences += heads != projective ? 1 : 0;
    const std::string tags = joined(syntax::hexatags_of(projective), syntax::hexatag_text);
    if (common.json) {
      const auto id = sentence.comment("sent_id");
      rows.push_back({{"sent_id", id ? Json(*id) : Json(nullptr)},
                      {"words", sentence.size()},
                      {"nonprojective_arcs", syntax::count_nonprojective(heads)},
                      {"tags", tags}});
    } else {
      std::cout << tags << "\n";
    }
  }
  if (common.json) std::cout << json_text(rows, 1) << "\n";
  if (lifted_sentences > 0)
    say(common, str(lifted_sentences, " of ", document.sentences.size(),
                    " sentences have crossing arcs and were made projective"));
  for (const syntax::Skipped& skipped : document.skipped)
    say(common, str("left out ", arguments.file, ":", skipped.line, ": ", skipped.reason));
  return 0;
}

int run_invert(const TagsArguments& arguments, const CommonOptions& common) {
  refuse_out(common, "syntax tags");
  std::istringstream lines(read_file(arguments.file));
  Json rows = Json::array();
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    try {
      std::istringstream words(line);
      std::vector<syntax::Hexatag> tags;
      for (std::string word; words >> word;) tags.push_back(syntax::parse_hexatag(word));
      const std::vector<int> heads = syntax::heads_of(tags);
      if (common.json)
        rows.push_back(heads);
      else
        std::cout << joined(heads, [](int head) { return std::to_string(head); }) << "\n";
    } catch (const Error& error) {
      throw Error(str(arguments.file, ":", number, ": ", error.what()));
    }
  }
  if (common.json) std::cout << json_text(rows) << "\n";
  return 0;
}

}  // namespace

void add_syntax_tags(Command& syntax, CommonOptions& common, Chosen& chosen) {
  auto arguments = std::make_shared<TagsArguments>();
  Command* command = syntax.add_subcommand("tags", "hexatags of the trees of a CoNLL-U file, one sentence a line");
  command->footer(
      "A tag is such as L:LR: the word is a Left or Right child; the gap behind it is a Left or Right child with the\n"
      "head on its Left or Right, or E at the end. Trees with crossing arcs are made projective first.\n"
      "Example: torsor syntax tags treebank.conllu\n"
      "Example: torsor syntax tags --invert tags.txt");
  command->add_option("file", arguments->file, "a CoNLL-U file, or lines of tags for --invert")->required();
  command->add_flag("--invert", arguments->invert, "the heads that lines of tags stand for");
  command->add_flag("--lenient", arguments->lenient, "leave sentences with a defect out");
  command->callback([&common, &chosen, arguments] {
    chosen = [&common, arguments] {
      return arguments->invert ? run_invert(*arguments, common) : run_tags(*arguments, common);
    };
  });
}

}  // namespace torsor
