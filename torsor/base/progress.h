// How far a long task has come: one live line on a terminal, plain lines elsewhere, nothing when quiet.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

namespace torsor {

/// Reports to a stream that the caller passes (the library itself never prints). Not for use by two threads at once.
///
///     Progress progress({.out = std::cerr, .terminal = isatty(2) != 0, .label = "train", .total = steps});
///     for (...) progress.update(step, "loss 3.21");
///     progress.finish();
///
/// terminal:  train [=======>      ]  50% 500/1000  12.5/s  0:40 left  loss 3.21
/// plain:     train: 500/1000 (50%)  12.5/s  0:40 left  loss 3.21
class Progress {
 public:
  struct Options {
    std::ostream& out;
    bool terminal = false;  ///< `out` is a terminal: rewrite one line
    bool quiet = false;     ///< write nothing at all
    std::string label = {};
    std::int64_t total = 0;              ///< steps in all; 0 = not known: no bar, no time left
    std::int64_t start = 0;              ///< steps already done before this run (a resumed task): not in the rate
    double terminal_interval = 0.1;      ///< seconds between two rewrites of the live line
    double plain_interval = 10;          ///< seconds between two plain lines
    int width = 80;                      ///< columns of the terminal; longer lines are cut
    std::function<double()> clock = {};  ///< seconds from any origin, never decreasing; empty = the steady clock
  };

  explicit Progress(Options options);
  /// Ends an unfinished live line with a newline, so that an error message starts on a line of its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps of the total are done; writes when the interval has passed since the last line. `extra` is shown as
  /// is.
  void update(std::int64_t done, const std::string& extra = {});

  /// Writes the last state given to update (or the start), if it has not been written yet, and ends the line. Calls
  /// after the first do nothing.
  void finish();

 private:
  std::string line(double now) const;
  void write(double now);

  Options options_;
  double begun_;
  double written_at_;
  std::int64_t done_;
  std::string extra_;
  bool pending_ = true;  // the present state has not been written
  bool live_ = false;    // the cursor stands at the end of a live line
  bool finished_ = false;
};

/// Seconds as 0:07, 12:34, 1:02:03 or 3d 4h; "-" for what is not a finite number. Rounded to whole seconds.
std::string format_duration(double seconds);

}  // namespace torsor
