// What all sub-commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/base/progress.h"
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

/// Checks of an option's value; the message says what is expected and what came.
inline CLI::Validator whole_number(std::int64_t least, std::int64_t most = std::int64_t{1} << 40) {
  CLI::Validator validator;
  validator.name("INT").operation([least, most](std::string& text) -> std::string {
    std::int64_t value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return {};
    const std::string range =
        most < (std::int64_t{1} << 40) ? str("from ", least, " to ", most) : str("of at least ", least);
    return str("expected a whole number ", range, ", found ", text);
  });
  return validator;
}
inline CLI::Validator real_number(bool zero_too) {
  CLI::Validator validator;
  validator.name("FLOAT").operation([zero_too](std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && std::isfinite(value) && (zero_too ? value >= 0 : value > 0)) return {};
    return str("expected a number ", zero_too ? "of at least" : "above", " 0, found ", text);
  });
  return validator;
}
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

void add_inspect_commands(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_compare_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_train_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_eval_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_generate_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_convert_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_diagnose_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_extend_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_tune_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_syntax_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_bench_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_tokenizer_command(CLI::App& app, CommonOptions& common, Chosen& chosen);

}  // namespace torsor
