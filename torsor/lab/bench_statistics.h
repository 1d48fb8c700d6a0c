// Times of two things that are compared, taken in turn, and what they come to.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace torsor {

struct Spread {
  double least = 0, median = 0, most = 0;
};

/// The median of an even number of values is the mean of the middle two. Throws Error when there is no value.
Spread spread_of(std::vector<double> values);

/// What a ratio must reach.
struct Bar {
  enum class Sense { AtLeast, AtMost };
  double value = 0;
  Sense sense = Sense::AtLeast;
};

bool holds(const Bar& bar, double ratio);
/// By how much of the bar a ratio misses it: 0.1 = ten per cent; 0 where it holds.
double shortfall(const Bar& bar, double ratio);
/// ">= 1.25" or "<= 1.05"
std::string bar_text(const Bar& bar);

/// Two pieces of work that are compared, on the same tensors.
struct Pair {
  std::function<void()> ours, peer;
  /// Where the two do different amounts of work: ours divided by the peer's.
  double work = 1;
};

/// How often a pair is measured.
struct Repeats {
  std::int64_t wanted = 9;  ///< at least 1
  double seconds = 0;       ///< a row may take about as long, below which fewer repeats are made; 0 = any time
  std::int64_t least = 3;   ///< but never fewer, where more are wanted
  double shortest = 5e-3;   ///< seconds of one sample: quick work is repeated inside it and divided
};

/// Seconds of each sample; entry i of both sides was taken right after the other.
struct PairTimes {
  std::vector<double> ours, peer;
};

/// One round that does not count, then ours, peer, ours, peer ..., so that a drift of the machine meets both alike.
/// `clock` gives seconds; empty = the steady clock.
PairTimes time_pair(const Pair& pair, const Repeats& repeats, const std::function<double()>& clock = {});

/// The wanted number of rounds, or what fits into the seconds when one takes `round` of them.
std::int64_t rounds_for(const Repeats& repeats, double round);

/// Ratios of speed (`sense` AtLeast: peer's time over ours, times the work) or of time (AtMost: ours over the peer's,
/// over the work): of the medians, and the least and largest of one sample's.
struct Ratio {
  double value = 0, least = 0, most = 0;
};
Ratio ratio_of(const PairTimes& times, double work, Bar::Sense sense);

}  // namespace torsor
