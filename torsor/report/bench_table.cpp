#include "torsor/report/bench_table.h"

#include <sstream>
#include <utility>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/report/numbers.h"
#include "torsor/report/table.h"

namespace torsor::report {
namespace {

std::string text_of(const Json& row, const char* key) { return row.at(key).get<std::string>(); }

/// "cost of a bias, linear" -> {"cost of a bias", "linear"}
std::pair<std::string, std::string> parts_of(const std::string& subject) {
  const std::size_t comma = subject.find(", ");
  if (comma == std::string::npos) return {subject, ""};
  return {subject.substr(0, comma), subject.substr(comma + 2)};
}

std::string heading_of(const Json& row) {
  return str(parts_of(text_of(row, "subject")).first, " beside ", text_of(row, "peer"));
}

/// A median with its extremes in brackets, and bytes where memory was looked at.
std::string amount(const Json& row, const std::string& side) {
  const Json& times = row.at(side + "_ms");
  const Json& bytes = row.at(side + "_bytes");
  std::string text;
  if (times.is_array()) {
    text = format_significant(times[1].get<double>());
    if (row.at("repeats").get<std::int64_t>() > 1)
      text += str(" (", format_significant(times[0].get<double>()), " to ", format_significant(times[2].get<double>()),
                  ")");
  }
  if (bytes.is_number()) text += str(text.empty() ? "" : ", ", format_bytes(bytes.get<double>()));
  return text;
}

std::string ratio_text(const Json& row) {
  const Json& spread = row.at("ratio_spread");
  if (!spread.is_array()) return "";
  const std::string value = format_significant(row.at("ratio").get<double>());
  if (row.at("repeats").get<std::int64_t>() < 2) return value;
  return str(value, " (", format_significant(spread[0].get<double>()), " to ",
             format_significant(spread[1].get<double>()), ")");
}

std::string bar_text(const Json& row) {
  if (!row.at("bar").is_number()) return "";
  return str(row.at("sense") == "at least" ? ">= " : "<= ", format_significant(row.at("bar").get<double>()));
}

std::string verdict_text(const Json& row) {
  if (row.at("status") != "ok") return text_of(row, "status");
  if (!row.at("holds").is_boolean()) return "";
  return row.at("holds").get<bool>() ? "holds" : "missed";
}

std::string row_text(const Json& row) {
  const std::string what = parts_of(text_of(row, "subject")).second, pass = text_of(row, "pass");
  return str("  ", what, what.empty() ? "" : ", ", pass, ", ", text_of(row, "dtype"), ", ", text_of(row, "shape"));
}

/// One table: rows that share a subject and a peer.
std::string table_of(const std::string& heading, const std::vector<const Json*>& rows) {
  bool memory = true;
  for (const Json* row : rows) memory = memory && !row->at("ours_ms").is_array();
  std::vector<std::vector<std::string>> cells = {
      {heading, memory ? "ours" : "ours, ms", memory ? "peer" : "peer, ms", "ratio", "bar", ""}};
  for (const Json* row : rows)
    cells.push_back({row_text(*row), amount(*row, "ours"), amount(*row, "peer"), ratio_text(*row), bar_text(*row),
                     verdict_text(*row)});
  std::istringstream aligned(align_columns(cells));
  std::string text, line;
  for (std::size_t n = 0; std::getline(aligned, line); ++n) {
    text += line;
    if (n > 0 && n <= rows.size()) {
      const Json& row = *rows[n - 1];
      // The status says already that the kernel has no form for it.
      std::string note = row.at("status") == "not fused" ? "" : text_of(row, "note");
      const bool alone = row.at("difference").is_number() && !row.at("peer_ms").is_array();
      if (alone) note = str("difference ", format_significant(row.at("difference").get<double>(), 2), ", ", note);
      if (!note.empty()) text += "  " + note;
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string bench_table(const Json& document) {
  const Json& machine = document.at("machine");
  const Json& product = document.at("matmul_gflops");
  std::string text = str(text_of(machine, "processor"), ", ", document.at("threads").get<std::int64_t>(),
                         " threads, libtorch ", text_of(machine, "libtorch"), "\n");
  for (const char* dtype : {"float32", "bf16"})
    text += str(dtype, " matrix product ", format_significant(product.at(dtype).get<double>()), " GFLOP/s, ");
  text += str("copy ", format_significant(document.at("copy_gb_per_s").get<double>()), " GB/s read and written\n");
  text +=
      "ratio: the peer's time over ours where the bar is >=, ours over the peer's where it is <=; in brackets the "
      "least "
      "and the\nlargest; backward = forward and backward together\n";

  std::vector<std::pair<std::string, std::vector<const Json*>>> groups;
  std::int64_t bars = 0, held = 0, unfit = 0;
  for (const Json& row : document.at("rows")) {
    const std::string heading = heading_of(row);
    auto group = groups.begin();
    while (group != groups.end() && group->first != heading) ++group;
    if (group == groups.end()) group = groups.insert(group, {heading, {}});
    group->second.push_back(&row);
    if (row.at("bar").is_number()) ++bars;
    if (row.at("holds").is_boolean() && row.at("holds").get<bool>()) ++held;
    if (row.at("status") == "not fused") ++unfit;
  }
  for (const auto& [heading, rows] : groups) text += "\n" + table_of(heading, rows);
  text += bars == 0 ? "\nno bars" : str("\n", held, " of ", bars, " bars hold");
  if (unfit > 0) text += str("; ", unfit, unfit == 1 ? " row is" : " rows are", " not fused");
  const auto planned = document.at("planned").get<std::int64_t>();
  const auto measured = static_cast<std::int64_t>(document.at("rows").size());
  if (measured < planned) text += str("; stopped after ", measured, " of ", planned, " rows");
  return text + "\n";
}

}  // namespace torsor::report
