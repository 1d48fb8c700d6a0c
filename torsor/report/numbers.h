// How the report writes numbers: with the digits that their spread allows.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/report/results.h"

namespace torsor::report {

/// Fixed notation with `decimals` places, which may be negative: format_decimals(12345, -2) = "12300". The locale has
/// no say. A result that is zero has no sign.
std::string format_decimals(double value, int decimals);

/// At most `digits` (1..15) significant digits: fixed where 1e-4 <= |value| < 1e6 ("7.42", "11.7", "10400"), else
/// "1.04e7". "inf" and "nan" where it is not finite.
std::string format_significant(double value, int digits = 3);

/// The decimal places that a standard deviation allows: one digit of the deviation, two when it begins with 1 (0.03,
/// 0.014). A deviation over a handful of seeds is itself known to no more than that: its relative error is about 1 /
/// sqrt(2 (n - 1)), half of it at three seeds. At most `limit`. Throws Error unless 0 < sd < infinity.
int decimals_for_spread(double sd, int limit = 6);

/// A mean with those digits; three significant ones where the spread is not known or zero.
std::string format_mean(double mean, const std::optional<double>& sd);

/// format_mean with three significant digits at most: for labels and sentences, where the table has the rest.
std::string format_mean_short(double mean, const std::optional<double>& sd);

/// "7.42 +- 0.03" with the sign U+00B1, or the mean alone where the spread is not known or zero.
std::string format_mean_sd(double mean, const std::optional<double>& sd);

/// "-0.3 to 1.2": both ends with the same decimals: as a quarter of the width needs, three significant digits at most,
/// and more where an end would print as 0.
std::string format_interval(const Interval& interval);

/// 835584 -> "836 k", 1.2e9 -> "1.2 G": three significant digits and a power of 1000.
std::string format_count(double value);

/// 327155712 -> "312 MiB": three significant digits and a power of 1024.
std::string format_bytes(double value);

/// 0.971 -> "0.97", 1.0 -> "1.00", 12.3 -> "12.3": a factor beside 1.
std::string format_factor(double value);

/// `text` with every control character, line breaks included, as a space: for a line of a terminal or a label.
std::string one_line(std::string_view text);

/// The number of terminal columns that `text` takes: 0 for combining and zero-width characters, 2 for wide ones (East
/// Asian, emoji), 1 for the rest and for bytes that are not UTF-8.
std::size_t display_width(std::string_view text);

/// `text` shortened to at most `width` columns by an ellipsis in its middle, where both ends still tell it apart.
std::string shorten(std::string_view text, std::size_t width);

/// The same of names that stand below each other; those that would look alike stay as they are.
std::vector<std::string> shorten_apart(const std::vector<std::string>& names, std::size_t width);

}  // namespace torsor::report
