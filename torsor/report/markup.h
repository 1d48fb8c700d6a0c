// A small writer of HTML and SVG that cannot leave an element open and escapes whatever it is given.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torsor::report {

/// `text` with & < > " ' as entities, safe as content and inside a quoted attribute. Bytes that are not UTF-8 and
/// control characters other than tab and line break become U+FFFD.
std::string escape_markup(std::string_view text);

/// A coordinate with one decimal at most: 12.04 -> "12", -0.04 -> "0".
std::string coordinate(double value);

class Markup {
 public:
  using Attributes = std::initializer_list<std::pair<std::string_view, std::string>>;

  /// Writes a start tag. An attribute with an empty value is written as name="". Attribute values are escaped.
  Markup& open(std::string_view name, Attributes attributes = {});
  /// Writes the end tag of the innermost open element. Throws Error when none is open.
  Markup& close();
  /// An element without content: <name ... />.
  Markup& leaf(std::string_view name, Attributes attributes = {});
  /// An element whose content is text.
  Markup& element(std::string_view name, Attributes attributes, std::string_view content);
  /// Escaped text.
  Markup& text(std::string_view content);
  /// Markup that is already finished, such as a chart.
  Markup& raw(std::string_view markup);

  /// What was written. Throws Error when an element is still open.
  std::string finish() const;

 private:
  void start(std::string_view name, Attributes attributes);

  std::string text_;
  std::vector<std::string> open_;
};

}  // namespace torsor::report
