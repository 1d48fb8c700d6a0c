#include "torsor/syntax/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor::syntax {
namespace {

void close_quietly(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

/// A pipe of which other children see neither end.
struct Pipe {
  int read = -1, write = -1;

  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(str("cannot make a pipe: ", std::strerror(errno)));
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_quietly(read);
    close_quietly(write);
  }
};

/// A write to a pipe that nobody reads must be an error of the call, not the end of this process.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~NoPipeSignal() {
    sigset_t pending;
    sigpending(&pending);
    if (!was_pending_ && sigismember(&pending, SIGPIPE) == 1) {
      const timespec none = {0, 0};
      sigtimedwait(&set_, nullptr, &none);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t set_{}, before_{};
  bool was_pending_ = false;
};

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::string> split_command(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;  // of a word
  char quote_mark = 0;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == '\\' && quote_mark != '\'') {
      if (++i == command.size()) throw UsageError(str("command ", quote(command), " ends in a backslash"));
      word += command[i];
      inside = true;
    } else if (quote_mark != 0) {
      if (c == quote_mark)
        quote_mark = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote_mark = c;
      inside = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (inside) words.push_back(std::move(word));
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote_mark != 0) throw UsageError(str("command ", quote(command), " leaves a quote open"));
  if (inside) words.push_back(std::move(word));
  if (words.empty() || words.front().empty()) throw UsageError("expected a command, got none");
  return words;
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::string& log, std::size_t line_limit)
    : line_limit_(line_limit) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  Pipe to_child, from_child, failure;
  int errors = ::open(log.empty() ? "/dev/null" : log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (errors < 0) throw Error(str("cannot write ", quote(log), ": ", std::strerror(errno)));
  id_ = ::fork();
  if (id_ == 0) {
    // Only what is safe between fork and exec. The child leads a group of its own, so that all of it can be ended and
    // the terminal's Ctrl-C reaches only us.
    ::setpgid(0, 0);
    ::dup2(to_child.read, STDIN_FILENO);
    ::dup2(from_child.write, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::signal(SIGPIPE, SIG_DFL);
    ::execvp(argv.front(), argv.data());
    const int reason = errno;
    [[maybe_unused]] const ssize_t told = ::write(failure.write, &reason, sizeof reason);
    ::_exit(127);
  }
  close_quietly(errors);
  if (id_ < 0) throw Error(str("cannot start ", quote(arguments.front()), ": ", std::strerror(errno)));
  ::setpgid(id_, id_);
  close_quietly(failure.write);
  int reason = 0;
  ssize_t told;
  do told = ::read(failure.read, &reason, sizeof reason);
  while (told < 0 && errno == EINTR);
  if (told == sizeof reason) {
    ::waitpid(id_, nullptr, 0);
    throw Error(str("cannot start ", quote(arguments.front()), ": ", std::strerror(reason)));
  }
  std::swap(input_, to_child.write);
  std::swap(output_, from_child.read);
  ::fcntl(input_, F_SETFL, O_NONBLOCK);
  ::fcntl(output_, F_SETFL, O_NONBLOCK);
}

ChildProcess::~ChildProcess() {
  close_quietly(input_);  // a well-behaved child ends by itself now
  await_end(20);
  // The child is not reaped before its group is ended: until then no other process can have the number.
  ::kill(-id_, SIGKILL);
  ::waitpid(id_, nullptr, 0);
  close_quietly(output_);
}

bool ChildProcess::await_end(int tries) {
  for (; tries > 0; --tries) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == id_) {
      signalled_ = info.si_code != CLD_EXITED;
      status_ = info.si_status;
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

void ChildProcess::send(const std::string& line) {
  queued_ += line;
  queued_ += '\n';
  write_some();
}

void ChildProcess::write_some() {
  const NoPipeSignal guard;
  while (!queued_.empty() && input_ >= 0) {
    const ssize_t written = ::write(input_, queued_.data(), queued_.size());
    if (written > 0) {
      queued_.erase(0, static_cast<std::size_t>(written));
    } else if (written < 0 && errno == EINTR) {
      continue;
    } else {
      // The child takes no more: the end of its output will tell what became of it.
      if (written < 0 && errno != EAGAIN) close_quietly(input_);
      return;
    }
  }
  if (input_ < 0) queued_.clear();
}

bool ChildProcess::take_line(std::string& line) {
  const std::size_t end = received_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = received_.size();
    return false;
  }
  line.assign(received_, 0, end);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  received_.erase(0, end + 1);
  searched_ = 0;
  return true;
}

ChildProcess::Outcome ChildProcess::wait(double seconds, std::string& line) {
  const double deadline = steady_seconds() + seconds;
  std::array<char, 65536> buffer;
  while (true) {
    if (take_line(line)) return line.size() > line_limit_ ? Outcome::too_long : Outcome::line;
    if (received_.size() > line_limit_) return Outcome::too_long;
    if (output_ < 0) return Outcome::ended;
    const double left = std::max(0.0, deadline - steady_seconds());
    pollfd watched[2] = {{output_, POLLIN, 0}, {queued_.empty() ? -1 : input_, POLLOUT, 0}};
    const int ready = ::poll(watched, 2, static_cast<int>(std::ceil(std::min(left, 3600.0) * 1000)));
    if (ready < 0 && errno != EINTR) throw Error(str("cannot wait for the child: ", std::strerror(errno)));
    if (ready == 0 && steady_seconds() >= deadline) return Outcome::timeout;
    if (ready <= 0) continue;
    if (watched[1].revents != 0) write_some();
    if (watched[0].revents == 0) continue;
    const ssize_t got = ::read(output_, buffer.data(), buffer.size());
    if (got > 0) {
      received_.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      close_quietly(output_);
    }
  }
}

std::string ChildProcess::fate() {
  if (!await_end(100)) return output_ < 0 ? "has closed its output, though it is still running" : "is running";
  return signalled_ ? str("was ended by signal ", status_) : str("ended with ", status_);
}

}  // namespace torsor::syntax
