// What all sub-commands share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/base/progress.h"
#include "torsor/cli/command_line.h"
#include "torsor/data/tokenizer.h"

namespace torsor {

/// Options that every command takes.
struct CommonOptions {
  int threads = 0;  ///< 0 = as many as cores
  std::uint64_t seed = 0;
  bool seed_given = false;
  bool quiet = false;
  bool json = false;  ///< one JSON document on standard output, messages on standard error
  std::string out;
  bool force = false;
};

/// The most heads, and channels of a head, that an option takes: sizes beyond cost hours and mean a slip.
constexpr std::int64_t kMostHeads = 1 << 16;
constexpr std::int64_t kMostThreads = 1024;

/// A sub-command sets `chosen` to what is to be run; its result is the exit code.
using Chosen = std::function<int()>;

/// Whether an option is one of those that every command has.
inline bool is_common(const std::string& option) {
  for (const char* one : {"--out", "--force", "--seed", "--threads", "--quiet", "--json", "--help"})
    if (option == one) return true;
  return false;
}

/// Set by Ctrl-C; a second one ends the process at once.
extern std::atomic<bool> stop_requested;
/// Set by commands that write nothing before they are done and cannot ask in between: the first signal ends them.
extern std::atomic<bool> stops_at_once;

/// A reporter on standard error: a live line on a terminal, plain lines elsewhere, nothing with --quiet.
Progress::Options progress_options(const CommonOptions& common, const std::string& label);

/// A file, or standard input for "-".
std::string read_input(const std::string& file);
/// Token ids with blanks between them. Throws Error naming `source`, the word that is none and its place.
std::vector<TokenId> read_ids(const std::string& text, const std::string& source);
/// Throws UsageError for another --precision than "exact", "hf" and none.
void check_precision(const std::string& precision);

/// For commands that print their result: throws UsageError where --out is given.
void refuse_out(const CommonOptions& common, const char* command);

/// A line for people on standard error, unless --quiet.
void say(const CommonOptions& common, const std::string& line);

void add_inspect_commands(Command& app, CommonOptions& common, Chosen& chosen);
void add_compare_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_train_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_eval_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_generate_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_convert_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_diagnose_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_extend_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_tune_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_syntax_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_bench_command(Command& app, CommonOptions& common, Chosen& chosen);
void add_tokenizer_command(Command& app, CommonOptions& common, Chosen& chosen);

}  // namespace torsor
