// Minimal-pair suites in the SyntaxGym format from the grammar of the generated corpus: one a construction for which a
// violation is defined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/data/grammar.h"
#include "torsor/data/syntaxgym.h"

namespace torsor {

struct MinimalSuiteOptions {
  std::uint64_t seed = 0;
  std::size_t items = 40;  ///< of each suite, 1 to 1000
  GrammarOptions grammar;  ///< its seed is not read
};

/// A suite and which of its conditions are sentences of the language. Every condition has its gold tree; those of one
/// violation have the tree of the right sentence.
struct MinimalSuite {
  Suite suite;
  Construction source = Construction::kSimple;  ///< what the sentences were drawn from
  std::vector<std::string> grammatical;         ///< names of conditions
};

/// The names of all suites, in order; each begins with "generated_".
std::vector<std::string> minimal_suite_names();

/// A suite: a pure function of its name and the options, no sentence twice. Throws UsageError for another name or
/// options out of range, Error when the grammar does not yield enough items.
MinimalSuite minimal_suite(std::string_view name, const MinimalSuiteOptions& options = {});

/// All of them.
std::vector<MinimalSuite> minimal_suites(const MinimalSuiteOptions& options = {});

}  // namespace torsor
