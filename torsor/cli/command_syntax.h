// The sub-commands of torsor syntax, each in a file of its own.
#pragma once

#include "torsor/cli/common.h"

namespace torsor {

void add_syntax_check(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_tags(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_corpus(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_suites(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_score(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_train(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_parse(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_gate(CLI::App& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_advise(CLI::App& syntax, CommonOptions& common, Chosen& chosen);

}  // namespace torsor
