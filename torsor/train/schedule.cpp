#include "torsor/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "torsor/base/error.h"

namespace torsor {

void check_schedule(const Schedule& schedule) {
  if (!(schedule.peak >= 0) || !std::isfinite(schedule.peak)) {
    throw UsageError(str("learning_rate must be finite and at least 0, got ", schedule.peak));
  }
  if (schedule.steps < 1) throw UsageError(str("steps must be at least 1, got ", schedule.steps));
  if (schedule.warmup < 0) throw UsageError(str("warmup_steps must be at least 0, got ", schedule.warmup));
  if (!(schedule.final_ratio >= 0 && schedule.final_ratio <= 1)) {
    throw UsageError(str("final_ratio must lie in [0, 1], got ", schedule.final_ratio));
  }
}

double learning_rate_at(const Schedule& schedule, std::int64_t done) {
  check_schedule(schedule);
  if (done < 0) throw UsageError(str("the number of finished steps must be at least 0, got ", done));
  const std::int64_t now = std::min(done, schedule.steps - 1) + 1;
  if (now <= schedule.warmup) {
    return schedule.peak * static_cast<double>(now) / static_cast<double>(schedule.warmup);
  }
  if (schedule.decay == RateDecay::Constant) return schedule.peak;
  // cos(pi) is exactly -1 in double, so the last rate is the floor without a rounding error of its own.
  const double part =
      static_cast<double>(now - schedule.warmup) / static_cast<double>(schedule.steps - schedule.warmup);
  const double wave = 0.5 * (1 + std::cos(std::numbers::pi * part));
  return schedule.peak * (schedule.final_ratio + (1 - schedule.final_ratio) * wave);
}

std::string_view decay_name(RateDecay decay) { return decay == RateDecay::Cosine ? "cosine" : "constant"; }

RateDecay decay_of(std::string_view name) {
  if (name == "cosine") return RateDecay::Cosine;
  if (name == "constant") return RateDecay::Constant;
  throw UsageError(str("unknown decay '", name, "'; possible: cosine, constant"));
}

}  // namespace torsor
