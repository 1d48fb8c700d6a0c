// What the tests of the training loop share: a small problem, a folder that cleans up, a copy of the program as child.
#pragma once

#include <ATen/core/Tensor.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/train/loop.h"

namespace torsor::testing {

/// A folder that is removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  /// Names that begin with a dot and end in .tmp: files that were never finished.
  std::vector<std::string> unfinished() const;

 private:
  std::string path_;
};

/// A network with one hidden layer and dropout on fixed data: y = W2 dropout(tanh(W1 x + b1)) + b2.
struct Problem {
  explicit Problem(std::int64_t hidden = 16);
  std::vector<NamedParameter> parameters() const;
  at::Tensor loss(std::int64_t step, std::int64_t micro);
  /// All weights in one vector, for comparing.
  at::Tensor weights() const;

  at::Tensor w1, b1, w2, b2;
  at::Tensor x, y;
  std::int64_t calls = 0;  // losses asked for: the cursor that the callbacks keep
};

/// 12 steps with two micro-batches.
TrainOptions small_options();
TrainOptions saving_options(const TemporaryFolder& folder);

/// Trains with the problem's cursor kept in the state.
TrainResult train_problem(Problem& problem, const TrainOptions& options, TrainCallbacks callbacks = {});

/// The lines of a log.
std::vector<Json> read_log(const std::string& path);

/// A copy of this program that runs one of the children below, with its standard output on a pipe.
struct Child {
  pid_t process = -1;
  int output = -1;
};
Child start_child(const std::vector<std::string>& arguments);
/// Reads to the end of the output and waits; returns the exit status as waitpid gives it.
int finish_child(const Child& child, std::string& output);

/// The children: "train FOLDER" writes one byte a step and ends with 0; "full FOLDER LIMIT" does the same where no file
/// may grow beyond LIMIT bytes, writes the message of the error and ends with 1.
int run_child(const std::vector<std::string>& arguments);

/// The options of "train".
TrainOptions child_options(const std::string& folder);

/// The path of this program; set by main.
extern std::string program_path;

}  // namespace torsor::testing
