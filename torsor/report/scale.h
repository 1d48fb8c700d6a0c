// Axes: from values to places on the page, where the ticks go, and labels that keep their distance.
#pragma once

#include <string>
#include <vector>

namespace torsor::report {

/// A straight or logarithmic map from [low, high] to [from, to] on the page; values outside map outside.
struct Scale {
  double low = 0;
  double high = 1;
  double from = 0;
  double to = 1;
  bool log = false;

  double operator()(double value) const;
};

/// Whether the values of an axis want a logarithmic scale: all positive and the largest above four times the smallest.
bool wants_log(double low, double high);

/// Multiples of 1, 2 or 5 times a power of ten inside [low, high], about `about` of them, at least two when low < high.
/// For low = high that one value. Throws Error for ends that are not finite or out of order.
std::vector<double> nice_ticks(double low, double high, int about);

/// Ticks of a logarithmic axis inside [low, high]: powers of ten, or 1-2-5, or 1-1.5-2-3-4-5-7 times them, the coarsest
/// that gives at least `about` - 1 ticks; nice_ticks where even the finest gives fewer than two; about every other
/// power of ten where there are too many. Throws Error unless 0 < low <= high, finite.
std::vector<double> log_ticks(double low, double high, int about);

/// The texts of ticks: the fewest decimals that tell all of them apart; powers of ten far from 1 as "1e6".
std::vector<std::string> tick_texts(const std::vector<double>& ticks);

/// Centres for labels of one height that stay inside [top, bottom], do not overlap, keep the order of the wanted
/// centres and together move as little as possible (least squares). Where they cannot fit they share the room evenly.
/// The result has the order of `wanted`; equal wishes keep their order.
std::vector<double> spread_labels(const std::vector<double>& wanted, double height, double top, double bottom);

/// A rough width of `text` in a sans-serif font of `size` pixels; on the safe side.
double text_width(const std::string& text, double size);

/// `text` shortened in its middle until text_width fits `room`.
std::string fit_text(const std::string& text, double size, double room);

/// fit_text of every text to its own room, followed by "#k" (its place from 1) where two would look alike.
std::vector<std::string> fit_texts(const std::vector<std::string>& texts, double size,
                                   const std::vector<double>& rooms);

}  // namespace torsor::report
