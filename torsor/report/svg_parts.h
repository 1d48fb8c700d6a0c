// What the drawings of all kinds share: the frame, the head of a picture, texts and lines.
#pragma once

#include <string>

#include "torsor/report/markup.h"

namespace torsor::report {

inline constexpr double kFont = 12.5;  ///< pixels of a text in a chart

/// The part of a picture inside its axes.
struct Frame {
  double left, right, top, bottom;
};

/// Opens the svg element with its title and description; the caller closes it.
void begin_picture(Markup& svg, const std::string& id, const std::string& title, const std::string& description,
                   double width, double height, const std::string& classes);

void words(Markup& svg, const std::string& classes, double x, double y, const std::string& text);

void line(Markup& svg, const std::string& classes, double x1, double y1, double x2, double y2);

}  // namespace torsor::report
