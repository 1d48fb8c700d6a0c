// Options that commands share which score minimal pairs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/cli/common.h"
#include "torsor/cli/feed_options.h"
#include "torsor/lab/compare.h"

namespace torsor {

struct SyntaxOptions {
  std::vector<std::string> suites;
  std::int64_t items = 0;  ///< 0 = the default
  std::string blimp;
  std::string separator;  ///< with \n and \t written so; empty = the default
  bool final_period = false;
};

void add_syntax_options(Command* command, SyntaxOptions& options);

/// The first of these options that was given, or null.
const char* given_syntax_option(const SyntaxOptions& options);

/// Throws UsageError for an escape that is none, and for a number of items beside suites of the caller's own.
SyntaxPlan syntax_plan(const SyntaxOptions& options);

struct SyntaxEvalArguments {
  std::string checkpoint, base, encoding, precision;
  std::string dtype = "float32";
  bool suites = true;  ///< score suites; else BLiMP alone
  SyntaxOptions syntax;
  FeedArguments feed;
};

/// torsor eval --task syntax or blimp
int run_syntax_eval(const SyntaxEvalArguments& arguments, const CommonOptions& common);

}  // namespace torsor
