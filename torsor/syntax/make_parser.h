// From a word on the command line to a parser.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "torsor/syntax/parser.h"

namespace torsor::syntax {

struct ParserChoice {
  std::string language = "en";      ///< told to processes
  std::string log;                  ///< a process's standard error is appended to this file; empty = thrown away
  std::function<bool()> stop = {};  ///< asked while a process is waited for; true = Interrupted is thrown
};

/// "conllu:FILE" | the folder of a native model | "process:COMMAND" | "udpipe:MODEL". The command is split into words
/// without a shell (split_command). Throws UsageError for anything else, Error for a file or a program that does not
/// serve.
std::unique_ptr<Parser> make_parser(const std::string& spec, const ParserChoice& choice = {});

}  // namespace torsor::syntax
