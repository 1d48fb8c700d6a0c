// The pictures of a diagnosis, each with the table that stands under it.
#pragma once

#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/report/charts.h"

namespace torsor::report {

/// A figure as short text; "-" for null.
std::string shown_number(const Json& value, int digits = 3);

/// "4 to 7", "0, 2" of a list of rising numbers.
std::string shown_ranges(const Json& numbers);

/// What a part of the expression is called: its term, and its heads and layers where they are not all.
std::string part_title(const Json& part, const Json& diagnosis);

/// Loss by position, beside that of the same targets within the training length.
LinePicture loss_picture(const Json& diagnosis);
/// The difference of the two with twice its standard error.
LinePicture difference_picture(const Json& diagnosis);

/// One curve a layer by position: "entropy", "relative_entropy", "first_token", "distance", "largest_logit", "rms". Of
/// many layers some are drawn, spread over all; the table has them all.
LinePicture layer_picture(const Json& diagnosis, const std::string& key);

LinePicture wavelength_picture(const Json& rotation, const Json& diagnosis);
/// How much slower than the plain one each plane turns.
LinePicture scaling_picture(const Json& rotation, const Json& diagnosis);

/// Biases by distance, one a part; none for parts without known numbers.
std::vector<PanelPicture> bias_panels(const Json& diagnosis);

}  // namespace torsor::report
