// torsor syntax: the group of commands for treebanks and parsers
#include "torsor/cli/command_syntax.h"

namespace torsor {

void add_syntax_command(Command& app, CommonOptions& common, Chosen& chosen) {
  Command* syntax = app.add_subcommand(
      "syntax", "treebanks and parsers: check, tags, score, corpus, suites, train, parse, gate, advise, cells");
  syntax->footer("Example: torsor syntax check treebank.conllu");
  syntax->require_subcommand();
  add_syntax_check(*syntax, common, chosen);
  add_syntax_tags(*syntax, common, chosen);
  add_syntax_score(*syntax, common, chosen);
  add_syntax_train(*syntax, common, chosen);
  add_syntax_parse(*syntax, common, chosen);
  add_syntax_gate(*syntax, common, chosen);
  add_syntax_advise(*syntax, common, chosen);
  add_syntax_cells(*syntax, common, chosen);
  add_syntax_corpus(*syntax, common, chosen);
  add_syntax_suites(*syntax, common, chosen);
}

}  // namespace torsor
