// The command line: chooses the sub-command, turns errors into one line and an exit code.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <limits>
#include <new>
#include <sstream>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/memory.h"
#include "torsor/base/utf8.h"
#include "torsor/cli/common.h"

#ifndef TORSOR_VERSION
#define TORSOR_VERSION "unknown"
#endif

namespace torsor {

std::atomic<bool> stop_requested{false};
std::atomic<bool> stops_at_once{false};

Progress::Options progress_options(const CommonOptions& common, const std::string& label) {
  Progress::Options options{.out = std::cerr};
  options.terminal = isatty(STDERR_FILENO) != 0;
  options.quiet = common.quiet;
  options.label = label;
  return options;
}

void say(const CommonOptions& common, const std::string& line) {
  if (!common.quiet) std::cerr << line << std::endl;
}

std::string read_input(const std::string& file) { return read_file(file == "-" ? "/dev/stdin" : file); }

std::vector<TokenId> read_ids(const std::string& text, const std::string& source) {
  std::istringstream words(text);
  std::vector<TokenId> ids;
  for (std::string word; words >> word;) {
    TokenId id = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (failed != std::errc() || end != word.data() + word.size())
      throw Error(str(source, ": expected ids with blanks between them, found ", quote(word, 40), " as number ",
                      ids.size() + 1));
    ids.push_back(id);
  }
  return ids;
}

void check_precision(const std::string& precision) {
  if (!precision.empty() && precision != "exact" && precision != "hf")
    throw UsageError(str("precision must be exact or hf, found ", precision));
}

void refuse_out(const CommonOptions& common, const char* command) {
  if (!common.out.empty())
    throw UsageError(str(command, " prints its result and takes no --out; redirect standard output instead"));
}

namespace {

constexpr int kDone = 0, kFailed = 1, kUsage = 2, kStopped = 130;

void on_interrupt(int) {
  if (stop_requested.exchange(true) || stops_at_once) _exit(kStopped);
}

/// The first line of a message, so that a failure is one line whatever a library wrote.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int complain(const std::string& message, int code) {
  std::cerr << "torsor: " << first_line(message) << std::endl;
  return code;
}

int run(int argc, char** argv) {
  CommandLine app("torsor", "Positional encodings of Transformers: compare, train, inspect, check.",
                  str("torsor ", TORSOR_VERSION));
  CommonOptions common;
  Chosen chosen;
  app.add_option("--threads", common.threads, "threads to use; 0 = one a core")->check(whole_number(0, kMostThreads));
  CommandOption* seed = app.add_option("--seed", common.seed, "seed of everything that is drawn")
                            ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()));
  app.add_flag("--quiet", common.quiet, "no progress and no messages");
  app.add_flag("--json", common.json, "one JSON document on standard output");
  app.add_option("--out", common.out, "where results go");
  app.add_flag("--force", common.force, "replace what exists");
  // The options above belong to every command; its own help says where they stand.
  add_compare_command(app, common, chosen);
  add_train_command(app, common, chosen);
  add_tune_command(app, common, chosen);
  add_eval_command(app, common, chosen);
  add_generate_command(app, common, chosen);
  add_extend_command(app, common, chosen);
  add_convert_command(app, common, chosen);
  add_diagnose_command(app, common, chosen);
  add_inspect_commands(app, common, chosen);
  add_syntax_command(app, common, chosen);
  add_tokenizer_command(app, common, chosen);
  add_bench_command(app, common, chosen);
  for (Command* command : app.subcommands())
    command->footer(
        str("Also: --out, --force, --seed, --threads, --quiet, --json; see torsor --help.\n", command->footer()));
  if (!app.parse(argc, argv)) return kDone;
  common.seed_given = seed->count() > 0;
  if (common.threads > 0) at::set_num_threads(common.threads);
  return chosen();
}

}  // namespace

int guarded_main(int argc, char** argv) {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  // A reached file-size limit or a closed pipe becomes an error of the write, which is reported in words.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const int code = run(argc, argv);
    std::cout.flush();
    if (!std::cout) return complain("cannot write to standard output", kFailed);
    return code;
  } catch (const Interrupted& stopped) {
    return complain(stopped.what(), kStopped);
  } catch (const UsageError& error) {
    return complain(error.what(), kUsage);
  } catch (const Error& error) {
    return complain(error.what(), kFailed);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailed);
  } catch (const std::filesystem::filesystem_error& error) {
    return complain(str("cannot use '", error.path1().string(), "': ", error.code().message()), kFailed);
  } catch (const std::exception& error) {
    if (std::string(error.what()).find("can't allocate memory") != std::string::npos)
      return complain("out of memory", kFailed);
    // A fault of ours or of a library: still one line, without its internals.
    return complain(std::string("internal error: ") + error.what(), kFailed);
  }
}

}  // namespace torsor

int main(int argc, char** argv) {
  torsor::keep_freed_memory();
  return torsor::guarded_main(argc, argv);
}
