#include "torsor/report/markup.h"

#include <cmath>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"
#include "torsor/report/numbers.h"

namespace torsor::report {

std::string escape_markup(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (std::size_t offset = 0; offset < text.size();) {
    const CodePoint point = decode_utf8(text, offset);
    switch (point.value) {
      case U'&':
        safe += "&amp;";
        break;
      case U'<':
        safe += "&lt;";
        break;
      case U'>':
        safe += "&gt;";
        break;
      case U'"':
        safe += "&quot;";
        break;
      case U'\'':
        safe += "&#39;";
        break;
      default: {
        const bool control = (point.value < 0x20 && point.value != U'\t' && point.value != U'\n') ||
                             (point.value >= 0x7f && point.value < 0xa0);
        append_utf8(safe, control ? char32_t{0xfffd} : point.value);
      }
    }
    offset += point.size;
  }
  return safe;
}

std::string coordinate(double value) {
  std::string text = format_decimals(value, 1);
  if (text.size() > 2 && text.substr(text.size() - 2) == ".0") text.resize(text.size() - 2);
  return text;
}

void Markup::start(std::string_view name, Attributes attributes) {
  text_ += '<';
  text_ += name;
  for (const auto& [key, value] : attributes) {
    text_ += ' ';
    text_ += key;
    text_ += "=\"";
    text_ += escape_markup(value);
    text_ += '"';
  }
}

Markup& Markup::open(std::string_view name, Attributes attributes) {
  start(name, attributes);
  text_ += '>';
  open_.emplace_back(name);
  return *this;
}

Markup& Markup::close() {
  if (open_.empty()) throw Error("markup: close without an open element");
  text_ += "</" + open_.back() + '>';
  open_.pop_back();
  return *this;
}

Markup& Markup::leaf(std::string_view name, Attributes attributes) {
  start(name, attributes);
  text_ += "/>";
  return *this;
}

Markup& Markup::element(std::string_view name, Attributes attributes, std::string_view content) {
  return open(name, attributes).text(content).close();
}

Markup& Markup::text(std::string_view content) {
  text_ += escape_markup(content);
  return *this;
}

Markup& Markup::raw(std::string_view markup) {
  text_ += markup;
  return *this;
}

std::string Markup::finish() const {
  if (!open_.empty()) throw Error(str("markup: the element '", open_.back(), "' was not closed"));
  return text_;
}

}  // namespace torsor::report
