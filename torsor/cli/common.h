// What all sub-commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "torsor/base/progress.h"

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

/// A sub-command sets `chosen` to what is to be run; its result is the exit code.
using Chosen = std::function<int()>;

/// Set by Ctrl-C; a second one ends the process at once.
extern std::atomic<bool> stop_requested;

/// A reporter on standard error: a live line on a terminal, plain lines elsewhere, nothing with --quiet.
Progress::Options progress_options(const CommonOptions& common, const std::string& label);

/// A line for people on standard error, unless --quiet.
void say(const CommonOptions& common, const std::string& line);

void add_inspect_commands(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_compare_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_train_command(CLI::App& app, CommonOptions& common, Chosen& chosen);
void add_eval_command(CLI::App& app, CommonOptions& common, Chosen& chosen);

}  // namespace torsor
