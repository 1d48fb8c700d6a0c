// The sub-commands of `torsor syntax` that start parsers; each lives in a file of its own.
#pragma once

#include "torsor/cli/common.h"

namespace torsor {

void add_syntax_train_command(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_parse_command(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_gate_command(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_advise_command(CLI::App& syntax, CommonOptions& common, Chosen& chosen);

}  // namespace torsor
