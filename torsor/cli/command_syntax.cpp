// torsor syntax: treebanks and parsers
#include "torsor/cli/command_syntax.h"

namespace torsor {

void add_syntax_command(CLI::App& app, CommonOptions& common, Chosen& chosen) {
  CLI::App* syntax = app.add_subcommand("syntax", "treebanks and parsers");
  syntax->require_subcommand(1);
  add_syntax_train(*syntax, common, chosen);
  add_syntax_parse(*syntax, common, chosen);
  add_syntax_gate(*syntax, common, chosen);
  add_syntax_advise(*syntax, common, chosen);
}

}  // namespace torsor
