#include "tests/cli/program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <sstream>

namespace torsor::testing {
namespace {

std::string temporary_file() {
  std::string pattern = (std::filesystem::temp_directory_path() / "torsor-cli-XXXXXX").string();
  const int descriptor = ::mkstemp(pattern.data());
  if (descriptor < 0) throw std::runtime_error("no file for the output");
  ::close(descriptor);
  return pattern;
}

// Only what may be called between fork and exec.
[[noreturn]] void become(const char* program, char* const* arguments, const Surroundings& surroundings, const char* out,
                         const char* err) {
  const auto redirect = [](int to, const char* path, int flags) {
    const int descriptor = ::open(path, flags);
    if (descriptor < 0 || ::dup2(descriptor, to) < 0) ::_exit(125);
    ::close(descriptor);
  };
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, out, O_WRONLY | O_TRUNC);
  redirect(STDERR_FILENO, err, O_WRONLY | O_TRUNC);
  if (!surroundings.folder.empty() && ::chdir(surroundings.folder.c_str()) != 0) ::_exit(125);
  if (surroundings.file_limit > 0) {
    const rlimit limit{surroundings.file_limit, surroundings.file_limit};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(125);
  }
  ::execv(program, arguments);
  ::_exit(126);
}

}  // namespace

std::vector<std::string> Ran::err_lines() const {
  std::vector<std::string> lines;
  std::istringstream stream(err);
  for (std::string line; std::getline(stream, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

std::ostream& operator<<(std::ostream& stream, const Ran& ran) {
  return stream << "exit " << ran.code << " signal " << ran.signal << "\nout: " << ran.out.substr(0, 2000)
                << "\nerr: " << ran.err.substr(0, 2000);
}

Program::Program(const std::vector<std::string>& arguments, const Surroundings& surroundings)
    : out_(surroundings.out.empty() ? temporary_file() : surroundings.out), err_(temporary_file()) {
  std::vector<std::string> words = arguments;
  const std::string program = words.empty() || words[0] != "/bin/sh" ? TORSOR_PROGRAM : words[0];
  if (program != "/bin/sh") words.insert(words.begin(), "torsor");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  process_ = ::fork();
  if (process_ < 0) throw std::runtime_error("cannot start a process");
  if (process_ == 0) become(program.c_str(), pointers.data(), surroundings, out_.c_str(), err_.c_str());
}

Program::~Program() {
  if (!ended_) {
    ::kill(process_, SIGKILL);
    finish();
  }
  for (const std::string& file : {out_, err_})
    if (file.rfind("/dev/", 0) != 0) ::unlink(file.c_str());
}

void Program::send(int signal) {
  if (!ended_) ::kill(process_, signal);
}

bool Program::running() {
  if (!ended_ && ::waitpid(process_, &status_, WNOHANG) == process_) ended_ = true;
  return !ended_;
}

bool Program::wait_until(const std::function<bool()>& enough) {
  while (running()) {
    if (enough()) return true;
    ::usleep(300);
  }
  return false;
}

Ran Program::finish() {
  while (!ended_)
    if (::waitpid(process_, &status_, 0) == process_)
      ended_ = true;
    else if (errno != EINTR)
      throw std::runtime_error("cannot wait for the program");
  Ran ran;
  if (WIFEXITED(status_)) ran.code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) ran.signal = WTERMSIG(status_);
  if (out_.rfind("/dev/", 0) != 0) ran.out = slurp(out_);
  ran.err = slurp(err_);
  return ran;
}

Ran run(const std::vector<std::string>& arguments, const Surroundings& surroundings) {
  return Program(arguments, surroundings).finish();
}

Ran run_shell(const std::string& line, const std::string& folder) {
  Surroundings surroundings;
  surroundings.folder = folder;
  return run({"/bin/sh", "-c", str("torsor() { '", TORSOR_PROGRAM, "' \"$@\"; }; ", line)}, surroundings);
}

void expect_refusal(const Ran& ran, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(ran.code, code) << ran;
  const std::vector<std::string> lines = ran.err_lines();
  ASSERT_EQ(lines.size(), 1u) << ran;
  EXPECT_EQ(lines[0].rfind("torsor: ", 0), 0u) << lines[0];
  EXPECT_FALSE(contains(lines[0], "internal error")) << lines[0];
  EXPECT_FALSE(contains(lines[0], "Exception raised")) << lines[0];
  for (const std::string& part : parts) EXPECT_TRUE(contains(lines[0], part)) << lines[0] << "\n  lacks " << part;
}

std::vector<Json> read_lines(const std::string& log) {
  std::vector<Json> lines;
  std::istringstream stream(slurp(log));
  for (std::string line; std::getline(stream, line);) {
    if (stream.eof()) break;  // a line without its end: the process is still writing, or was killed
    lines.push_back(parse_json(line, log));
  }
  return lines;
}

std::size_t count_events(const std::string& log, const std::string& event) {
  std::size_t count = 0;
  for (const Json& line : read_lines(log)) count += line.at("event") == event;
  return count;
}

std::string tiny_text(std::size_t bytes) {
  // Words that repeat in no simple period.
  std::string text;
  for (std::uint64_t n = 1; text.size() < bytes; n = n * 6364136223846793005u + 1442695040888963407u) {
    const std::uint64_t word = (n >> 33) % 40;
    for (std::uint64_t i = 0; i < 2 + word % 5; ++i) text += static_cast<char>('a' + (word * 7 + i * (word + 3)) % 26);
    text += ' ';
  }
  text.resize(bytes);
  return text;
}

std::string put_tiny_model(const TestFolder& folder) {
  return folder.put("tiny.json", R"({"width": 16, "layers": 1, "heads": 2})");
}

std::vector<std::string> tiny_train(const TestFolder& folder, const std::string& out,
                                    const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"train",
                                        "--encoding",
                                        "rope + t5",
                                        "--text",
                                        folder.put("book.txt", tiny_text(4000)),
                                        "--model",
                                        put_tiny_model(folder),
                                        "--length",
                                        "16",
                                        "--batch",
                                        "2",
                                        "--warmup",
                                        "2",
                                        "--threads",
                                        "1",
                                        "--quiet",
                                        "--out",
                                        folder / out};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace torsor::testing
