#include "tests/train/workbench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/random.h"

extern char** environ;

namespace torsor::testing {

std::string program_path;

TemporaryFolder::TemporaryFolder() {
  std::string path = std::filesystem::temp_directory_path() / "torsor-train-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) throw Error("cannot make a temporary folder");
  path_ = path;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::unfinished() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    const std::string name = entry.path().filename();
    if (name.front() == '.' && entry.path().extension() == ".tmp") names.push_back(name);
  }
  return names;
}

namespace {

at::Tensor normal(std::vector<std::int64_t> shape, double deviation, std::uint64_t stream, bool trained) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  fill_normal(tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel()), 0, deviation, 5, stream);
  return tensor.requires_grad_(trained);
}

}  // namespace

Problem::Problem(std::int64_t hidden)
    : w1(normal({hidden, 6}, 0.4, 1, true)),
      b1(normal({hidden}, 0.1, 2, true)),
      w2(normal({3, hidden}, 0.3, 3, true)),
      b2(normal({3}, 0.1, 4, true)),
      x(normal({40, 6}, 1, 5, false)),
      y(at::sin(normal({40, 3}, 1, 6, false))) {}

std::vector<NamedParameter> Problem::parameters() const {
  return {{"w1", w1}, {"b1", b1, false}, {"w2", w2}, {"b2", b2, false}};
}

at::Tensor Problem::loss(std::int64_t step, std::int64_t micro) {
  ++calls;
  const auto first = static_cast<std::int64_t>(random_at(9, 0, static_cast<std::uint64_t>(step * 2 + micro)) % 30);
  const at::Tensor hidden = at::tanh(at::linear(x.narrow(0, first, 10), w1, b1));
  const at::Tensor out = at::linear(at::dropout(hidden, 0.2, true), w2, b2);
  return at::mse_loss(out, y.narrow(0, first, 10));
}

at::Tensor Problem::weights() const { return at::cat({w1.flatten(), b1, w2.flatten(), b2}).detach().clone(); }

TrainOptions small_options() {
  TrainOptions options;
  options.steps = 12;
  options.learning_rate = 2e-2;
  options.warmup_steps = 4;
  options.accumulation = 2;
  options.clip_norm = 0.5;
  options.seed = 3;
  options.tokens_per_step = 20;
  options.configuration = {{"encoding", "rope"}, {"model", {{"width", 16}}}};
  return options;
}

TrainOptions saving_options(const TemporaryFolder& folder) {
  TrainOptions options = small_options();
  options.state = folder / "state.safetensors";
  options.log = folder / "log.jsonl";
  return options;
}

TrainResult train_problem(Problem& problem, const TrainOptions& options, TrainCallbacks callbacks) {
  callbacks.extra = [&] { return std::map<std::string, std::string>{{"calls", std::to_string(problem.calls)}}; };
  callbacks.restore = [&](const std::map<std::string, std::string>& extra) {
    problem.calls = std::stoll(extra.at("calls"));
  };
  return train(
      problem.parameters(), options, [&](std::int64_t step, std::int64_t micro) { return problem.loss(step, micro); },
      callbacks);
}

std::vector<Json> read_log(const std::string& path) {
  std::istringstream stream(read_file(path));
  std::vector<Json> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(parse_json(line, path));
  return lines;
}

Child start_child(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe(ends) != 0) throw Error("cannot make a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<std::string> words = {program_path, "--child"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  Child child;
  const int failed = posix_spawn(&child.process, program_path.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  child.output = ends[0];
  if (failed != 0) {
    close(ends[0]);
    throw Error("cannot start " + program_path);
  }
  return child;
}

int finish_child(const Child& child, std::string& output) {
  char buffer[4096];
  for (ssize_t size; (size = read(child.output, buffer, sizeof buffer)) > 0;) {
    output.append(buffer, static_cast<std::size_t>(size));
  }
  close(child.output);
  int status = 0;
  waitpid(child.process, &status, 0);
  return status;
}

TrainOptions child_options(const std::string& folder) {
  TrainOptions options = small_options();
  options.steps = 300;
  options.save_every = 3;
  options.state = folder + "/state.safetensors";
  options.log = folder + "/log.jsonl";
  options.resume = true;
  return options;
}

int run_child(const std::vector<std::string>& arguments) {
  const auto put = [](const std::string& text) {
    if (write(STDOUT_FILENO, text.data(), text.size()) < 0) _exit(3);
  };
  at::set_num_threads(1);
  try {
    if (arguments.at(0) == "train") {
      Problem problem;
      TrainCallbacks callbacks;
      callbacks.on_step = [&](const StepReport&) {
        put(".");
        usleep(200);  // so that a few milliseconds are a few steps, on fast machines too
      };
      train_problem(problem, child_options(arguments.at(1)), callbacks);
      return 0;
    }
    if (arguments.at(0) == "full") {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{std::stoul(arguments.at(2)), RLIM_INFINITY};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 4;
      Problem problem(128);
      TrainOptions options = child_options(arguments.at(1));
      options.steps = 12;
      train_problem(problem, options);
      return 0;
    }
  } catch (const Error& error) {
    put(error.what());
    return 1;
  }
  return 2;
}

}  // namespace torsor::testing
