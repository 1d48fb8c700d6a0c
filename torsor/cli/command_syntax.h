// The sub-commands of torsor syntax, each in a file of its own.
#pragma once

#include <cstdint>
#include <string>

#include "torsor/cli/common.h"
#include "torsor/syntax/make_parser.h"

namespace torsor {

void add_syntax_check(Command& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_tags(Command& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_corpus(Command& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_suites(Command& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_score(Command& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_train(Command& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_parse(Command& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_gate(Command& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_cells(Command& syntax, CommonOptions& common, Chosen& chosen);
void add_syntax_advise(Command& syntax, CommonOptions& common, Chosen& chosen);

/// Ctrl-C ends the wait for a process, and the process with it; any other parser has nothing to end.
inline void stop_while_parsing(const std::string& parser, syntax::ParserChoice& choice) {
  if (parser.starts_with("process:"))
    choice.stop = [] { return stop_requested.load(); };
  else
    stops_at_once = true;
}

/// Prints the cells of a grid (torsor/lab/cells.h) for models of `layers` layers. Throws UsageError for an unknown one.
void print_grid(const std::string& name, std::int64_t layers, const CommonOptions& common);

}  // namespace torsor
