// Learning rates as a pure function of the step: nothing to save, nothing to restore.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace torsor {

/// How the learning rate changes after the warm-up.
enum class RateDecay {
  Cosine,    ///< half a cosine from the peak to the floor (Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts)
  Constant,  ///< the peak to the end
};

/// A linear warm-up to `peak`, then a decay to `peak * final_ratio` at the last step.
struct Schedule {
  double peak = 3e-3;        ///< highest learning rate; finite, at least 0
  std::int64_t steps = 0;    ///< length of the run; at least 1
  std::int64_t warmup = 0;   ///< steps of warm-up; at least 0. A run shorter than its warm-up ends inside it
  double final_ratio = 0.1;  ///< floor as a share of the peak, in [0, 1]; not read by RateDecay::Constant
  RateDecay decay = RateDecay::Cosine;
};

/// Throws UsageError naming the field that is out of range.
void check_schedule(const Schedule& schedule);

/// The learning rate of the update that follows `done` finished ones; with t = done + 1, w = warmup, n = steps:
///
///     t <= w:        peak * t / w                                     (never 0, so the first update counts)
///     cosine, t > w: peak * (f + (1 - f) * (1 + cos(pi * u)) / 2),    u = (t - w) / (n - w), f = final_ratio
///
/// The two pieces meet at the peak, and the last update (done = n - 1) uses the floor exactly. Past the end the rate
/// stays there. Throws UsageError when `done` is negative or the schedule is out of range.
double learning_rate_at(const Schedule& schedule, std::int64_t done);

/// "cosine" or "constant", and back (UsageError naming what is possible).
std::string_view decay_name(RateDecay decay);
RateDecay decay_of(std::string_view name);

}  // namespace torsor
