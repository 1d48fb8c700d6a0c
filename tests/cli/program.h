// Starts the built program as a user would: arguments in, exit code and both streams out.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/base/test_folder.h"
#include "torsor/base/json.h"

namespace torsor::testing {

/// How a process ended and what it wrote.
struct Ran {
  int code = -1;   ///< exit code; -1 when a signal ended it
  int signal = 0;  ///< that signal
  std::string out;
  std::string err;

  /// The lines of standard error that are not empty.
  std::vector<std::string> err_lines() const;
  bool ended_well() const { return code == 0; }
};

std::ostream& operator<<(std::ostream& stream, const Ran& ran);

struct Surroundings {
  std::string folder;            ///< where the program runs; empty = here
  std::uint64_t file_limit = 0;  ///< no file may grow beyond these bytes (0 = any size): a full disk
  std::string out;               ///< standard output goes to this file instead
};

/// A running program.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const Surroundings& surroundings = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send(int signal);
  bool running();
  /// Waits until `enough` holds, asked again and again; false when the program ended before.
  bool wait_until(const std::function<bool()>& enough);
  Ran finish();

 private:
  std::string out_, err_;
  pid_t process_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

Ran run(const std::vector<std::string>& arguments, const Surroundings& surroundings = {});
/// `torsor ...` as a shell reads it, in a folder.
Ran run_shell(const std::string& line, const std::string& folder);

/// The failure must end with `code` and say one line on standard error that holds every one of `parts`.
void expect_refusal(const Ran& ran, int code, const std::vector<std::string>& parts);

/// How many lines with `"event": EVENT` a log has; 0 when there is none yet.
std::size_t count_events(const std::string& log, const std::string& event);
std::vector<Json> read_lines(const std::string& log);

/// A CoNLL-U file of two sentences; the second has crossing arcs.
inline const std::string kTreebank =
    "# sent_id = one\n# text = she watches funny videos\n"
    "1\tshe\tshe\tPRON\t_\t_\t2\tnsubj\t_\t_\n2\twatches\twatch\tVERB\t_\t_\t0\troot\t_\t_\n"
    "3\tfunny\tfunny\tADJ\t_\t_\t4\tamod\t_\t_\n4\tvideos\tvideo\tNOUN\t_\t_\t2\tobj\t_\t_\n\n"
    "# sent_id = two\n1\ta\ta\tX\t_\t_\t0\troot\t_\t_\n2\tb\tb\tX\t_\t_\t4\tdep\t_\t_\n"
    "3\tc\tc\tX\t_\t_\t1\tdep\t_\t_\n4\td\td\tX\t_\t_\t1\tdep\t_\t_\n\n";

/// Arguments of a run of a tiny model: `train`, a text, sizes.
std::string tiny_text(std::size_t bytes);
std::string put_tiny_model(const TestFolder& folder);
std::vector<std::string> tiny_train(const TestFolder& folder, const std::string& out,
                                    const std::vector<std::string>& more = {});

}  // namespace torsor::testing
