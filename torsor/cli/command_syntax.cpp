// torsor syntax: treebanks and parsers
#include "torsor/cli/syntax.h"

namespace torsor {

void add_syntax_command(CLI::App& app, CommonOptions& common, Chosen& chosen) {
  CLI::App* syntax = app.add_subcommand("syntax", "treebanks and parsers");
  syntax->require_subcommand(1);
  add_syntax_train_command(*syntax, common, chosen);
  add_syntax_parse_command(*syntax, common, chosen);
  add_syntax_gate_command(*syntax, common, chosen);
  add_syntax_advise_command(*syntax, common, chosen);
}

}  // namespace torsor
