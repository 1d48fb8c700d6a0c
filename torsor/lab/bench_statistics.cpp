#include "torsor/lab/bench_statistics.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "torsor/base/error.h"

namespace torsor {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) throw Error("a spread needs at least one value");
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {values.front(), median, values.back()};
}

bool holds(const Bar& bar, double ratio) {
  return bar.sense == Bar::Sense::AtLeast ? ratio >= bar.value : ratio <= bar.value;
}

double shortfall(const Bar& bar, double ratio) {
  return holds(bar, ratio) ? 0 : std::abs(ratio - bar.value) / bar.value;
}

std::string bar_text(const Bar& bar) { return str(bar.sense == Bar::Sense::AtLeast ? ">= " : "<= ", bar.value); }

std::int64_t rounds_for(const Repeats& repeats, double round) {
  if (repeats.seconds <= 0 || round * static_cast<double>(repeats.wanted) <= repeats.seconds) return repeats.wanted;
  const auto fitting = static_cast<std::int64_t>(repeats.seconds / round);
  return std::min(repeats.wanted, std::max(repeats.least, fitting));
}

PairTimes time_pair(const Pair& pair, const Repeats& repeats, const std::function<double()>& clock) {
  const std::function<double()> now = clock ? clock : steady_seconds;
  const auto seconds = [&](const std::function<void()>& work, std::int64_t times) {
    const double begin = now();
    for (std::int64_t i = 0; i < times; ++i) work();
    return (now() - begin) / static_cast<double>(times);
  };
  const auto inner = [&](double once) {
    if (once >= repeats.shortest) return std::int64_t{1};
    return static_cast<std::int64_t>(std::ceil(repeats.shortest / std::max(once, 1e-7)));
  };
  const double first_ours = seconds(pair.ours, 1), first_peer = seconds(pair.peer, 1);
  const std::int64_t inner_ours = inner(first_ours), inner_peer = inner(first_peer);
  const double round = first_ours * static_cast<double>(inner_ours) + first_peer * static_cast<double>(inner_peer);
  PairTimes times;
  for (std::int64_t left = rounds_for(repeats, round); left > 0; --left) {
    times.ours.push_back(seconds(pair.ours, inner_ours));
    times.peer.push_back(seconds(pair.peer, inner_peer));
  }
  return times;
}

Ratio ratio_of(const PairTimes& times, double work, Bar::Sense sense) {
  if (times.ours.empty() || times.ours.size() != times.peer.size())
    throw Error(str("a ratio needs as many samples of ours as of the peer, found ", times.ours.size(), " and ",
                    times.peer.size()));
  const auto one = [&](double ours, double peer) {
    const double speed = work * peer / ours;
    return sense == Bar::Sense::AtLeast ? speed : 1 / speed;
  };
  Ratio ratio;
  ratio.value = one(spread_of(times.ours).median, spread_of(times.peer).median);
  std::vector<double> paired;
  for (std::size_t i = 0; i < times.ours.size(); ++i) paired.push_back(one(times.ours[i], times.peer[i]));
  const Spread spread = spread_of(paired);
  ratio.least = spread.least;
  ratio.most = spread.most;
  return ratio;
}

}  // namespace torsor
