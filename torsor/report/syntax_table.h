// What the results say of the syntax that runs read: where it came from, for which domains it was good enough, how much
// of the text it covered, and what the perplexity gate found.
#pragma once

#include <string>
#include <vector>

#include "torsor/report/results.h"

namespace torsor::report {

struct SyntaxTable {
  std::vector<std::vector<std::string>> rows;  ///< a heading and a row an encoding: mode, parser, gate, coverage, ...
  std::vector<std::vector<std::string>> domains;  ///< a heading and a row an encoding and domain; empty without any
  std::vector<std::string> notes;                 ///< what must not be passed over: leaks, unverified, stopped
};

/// Empty where no run read syntax. Of several seeds the first that has something to say stands for the encoding, but
/// what the perplexity gate found is told of every seed.
SyntaxTable syntax_table(const Results& results);

/// The same for a terminal; empty without any.
std::string syntax_text(const Results& results);

}  // namespace torsor::report
