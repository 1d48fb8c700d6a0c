// What a bench measured, for a terminal.
#pragma once

#include <string>

#include "torsor/base/json.h"

namespace torsor::report {

/// From a document of the format torsor-bench-1 (docs/bench.md): the machine, a table for every subject and peer, and
/// how many bars hold.
std::string bench_table(const Json& document);

}  // namespace torsor::report
