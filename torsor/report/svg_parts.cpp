#include "torsor/report/svg_parts.h"

#include "torsor/base/error.h"

namespace torsor::report {

void begin_picture(Markup& svg, const std::string& id, const std::string& title, const std::string& description,
                   double width, double height, const std::string& classes) {
  svg.open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                   {"class", classes},
                   {"viewBox", str("0 0 ", coordinate(width), ' ', coordinate(height))},
                   {"role", "img"},
                   {"aria-label", title},
                   {"aria-describedby", id + "-d"}});
  svg.element("title", {{"id", id + "-t"}}, title);
  svg.element("desc", {{"id", id + "-d"}}, description);
}

void words(Markup& svg, const std::string& classes, double x, double y, const std::string& text) {
  svg.element("text", {{"class", classes}, {"x", coordinate(x)}, {"y", coordinate(y)}}, text);
}

void line(Markup& svg, const std::string& classes, double x1, double y1, double x2, double y2) {
  svg.leaf("line", {{"class", classes},
                    {"x1", coordinate(x1)},
                    {"y1", coordinate(y1)},
                    {"x2", coordinate(x2)},
                    {"y2", coordinate(y2)}});
}

}  // namespace torsor::report
