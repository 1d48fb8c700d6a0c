// A child process that is spoken to in lines.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace torsor::syntax {

/// "python3 'my parser.py' --lang en" as an argument vector: words are separated by white space; single and double
/// quotes hold words together, a backslash takes the next character as it is (not inside single quotes). Nothing is
/// expanded, no shell is asked. Throws UsageError for an open quote, a trailing backslash and an empty command.
std::vector<std::string> split_command(const std::string& command);

/// Seconds of the steady clock, from any origin.
double steady_seconds();

/// A child whose standard input and output are ours. It is ended, with everything it started in its process group, when
/// the object goes.
class ChildProcess {
 public:
  /// What became of waiting for a line.
  enum class Outcome {
    line,     ///< `line` holds one, without its newline
    timeout,  ///< none came in time
    ended,    ///< the child closed its output: what it left unfinished is dropped
    too_long  ///< a line beyond the limit began: nothing more can be read
  };

  /// Starts `arguments` (the first is the program, looked up in PATH). What it writes to standard error is appended to
  /// the file `log`; empty = thrown away. Throws Error "cannot start 'PROGRAM': REASON".
  ChildProcess(const std::vector<std::string>& arguments, const std::string& log, std::size_t line_limit);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Queues `line` and a newline. What the child does not take at once is written while waiting.
  void send(const std::string& line);

  /// Waits at most `seconds` for the next line, writing what is queued meanwhile.
  Outcome wait(double seconds, std::string& line);

  /// How the child ended, for messages: "ended with 3", "was ended by signal 9", "is running". Waits shortly for one
  /// that has just closed its output.
  std::string fate();

  pid_t id() const { return id_; }

 private:
  bool take_line(std::string& line);
  void write_some();
  /// Looks every 5 ms, so many times, whether the child has ended.
  bool await_end(int tries);

  pid_t id_ = -1;
  int input_ = -1;   // we write here
  int output_ = -1;  // we read here
  std::size_t line_limit_;
  std::string queued_;
  std::string received_;
  std::size_t searched_ = 0;  // bytes of `received_` known to hold no newline
  bool signalled_ = false;
  int status_ = 0;
};

}  // namespace torsor::syntax
