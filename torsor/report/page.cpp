#include "torsor/report/page.h"

#include <algorithm>

#include "torsor/base/error.h"
#include "torsor/report/html_style.h"

namespace torsor::report {
namespace {

std::string scalar(const Json& value) { return value.is_string() ? value.get<std::string>() : json_text(value); }

void flatten(const Json& value, const std::string& key, Rows& rows) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, item] : value.items()) flatten(item, key.empty() ? name : key + '.' + name, rows);
    return;
  }
  if (value.is_array() &&
      std::none_of(value.begin(), value.end(), [](const Json& item) { return item.is_structured(); })) {
    std::string text;
    const bool lines = std::any_of(value.begin(), value.end(), [](const Json& item) {
      return item.is_string() && item.get<std::string>().find(',') != std::string::npos;
    });
    for (const Json& item : value) text += (text.empty() ? "" : lines ? "; " : ", ") + scalar(item);
    rows.push_back({key, text});
    return;
  }
  rows.push_back({key, scalar(value)});
}

}  // namespace

std::string keep_together(std::string text) {
  for (const char* pair : {" %", " \u00b1 "}) {
    for (std::size_t at = text.find(pair); at != std::string::npos; at = text.find(pair, at + 1)) {
      text.replace(at, 1, "\u00a0");
      if (pair[1] != '%') text.replace(at + 4, 1, "\u00a0");  // U+00A0 and U+00B1 are two bytes each
    }
  }
  return text;
}

void PageWriter::begin(const std::string& title) {
  html_.raw("<!DOCTYPE html>\n").open("html", {{"lang", "en"}}).raw("\n");
  html_.open("head").raw("\n").leaf("meta", {{"charset", "utf-8"}}).raw("\n");
  html_.leaf("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}}).raw("\n");
  // The browser holds the page to its word: nothing can be fetched.
  html_
      .leaf("meta", {{"http-equiv", "Content-Security-Policy"},
                     {"content", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"}})
      .raw("\n");
  html_.element("title", {}, title).raw("\n");
  html_.open("style").raw(report_css()).close().raw("\n").close().raw("\n");
  html_.open("body").raw("\n").open("main").raw("\n");
}

std::string PageWriter::end() {
  html_.close().raw("\n").open("script").raw(report_script()).close();
  html_.close().raw("\n").close().raw("\n");
  return html_.finish();
}

void PageWriter::section(const std::string& title, const std::string& note) {
  const std::string id = str("section-", ++sections_);
  html_.open("section", {{"aria-labelledby", id}}).raw("\n").element("h2", {{"id", id}}, title).raw("\n");
  if (!note.empty()) html_.element("p", {{"class", "note"}}, keep_together(note)).raw("\n");
}

std::string PageWriter::next_id() { return str("chart-", ++charts_); }

void PageWriter::rows_table(const Rows& rows, const std::string& caption, bool tall) {
  html_.open(
      "div",
      {{"class", tall ? "scroll tall" : "scroll"}, {"role", "region"}, {"aria-label", caption}, {"tabindex", "0"}});
  html_.open("table").element("caption", {}, caption);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == 0) html_.open("thead");
    if (i == 1) html_.open("tbody");
    html_.open("tr");
    for (std::size_t j = 0; j < rows[i].size(); ++j) {
      if (i == 0) {
        html_.element("th", {{"scope", "col"}, {"class", j == 0 ? "corner" : ""}}, rows[i][j]);
      } else if (j == 0) {
        html_.element("th", {{"scope", "row"}}, rows[i][j]);
      } else {
        html_.element("td", {}, rows[i][j]);
      }
    }
    html_.close();
    if (i == 0) html_.close();
  }
  if (rows.size() > 1) html_.close();
  html_.close().close().raw("\n");
}

void PageWriter::folded(const Rows& rows, const std::string& caption) {
  html_.open("details").element("summary", {}, "Numbers");
  rows_table(rows, caption, rows.size() > 14);
  html_.close().raw("\n");
}

void PageWriter::line_figure(LinePicture picture) {
  html_.open("figure").raw("\n");
  for (const ChartSize& size : {kWideChart, kNarrowChart}) {
    picture.chart.id = next_id();
    html_.raw(line_chart(picture.chart, size)).raw("\n");
  }
  folded(picture.rows, picture.chart.title);
  html_.close().raw("\n");
}

bool PageWriter::drawn(const std::vector<ChartSeries>& series) {
  return std::any_of(series.begin(), series.end(), [](const ChartSeries& one) { return !one.points.empty(); });
}

void PageWriter::plain_table(const Json& object, const std::string& caption) {
  Rows rows;
  flatten(object, "", rows);
  html_.open("div", {{"class", "scroll"}, {"role", "region"}, {"aria-label", caption}, {"tabindex", "0"}});
  html_.open("table", {{"class", "plain"}}).element("caption", {}, caption).open("tbody");
  for (const auto& row : rows) {
    html_.open("tr").element("th", {{"scope", "row"}}, row[0]).element("td", {}, row[1]).close();
  }
  html_.close().close().close().raw("\n");
}

}  // namespace torsor::report
