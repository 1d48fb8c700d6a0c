// The document of a bench.
#include "torsor/lab/bench.h"

namespace torsor {
namespace {

Json to_json(const std::optional<Spread>& spread) {
  return spread ? Json{spread->least, spread->median, spread->most} : Json(nullptr);
}

Json to_json(const BenchRow& row) {
  Json json;
  json["subject"] = row.subject;
  json["peer"] = row.peer;
  json["shape"] = row.shape;
  json["dtype"] = row.dtype;
  json["pass"] = row.pass;
  json["status"] = status_name(row.status);
  json["repeats"] = row.repeats;
  json["ours_ms"] = to_json(row.ours_ms);
  json["peer_ms"] = to_json(row.peer_ms);
  // What the kernel cannot compute has no speed; what the machine cannot tell has no bar.
  const bool unfit = row.status == BenchRow::Status::NotFused && row.bar.has_value();
  const bool barred = row.bar.has_value() && (unfit || row.ratio.has_value());
  json["ratio"] = row.ratio ? Json(row.ratio->value) : unfit ? Json(0) : Json(nullptr);
  json["ratio_spread"] = row.ratio ? Json{row.ratio->least, row.ratio->most} : Json(nullptr);
  json["bar"] = barred ? Json(row.bar->value) : Json(nullptr);
  json["sense"] = barred ? Json(row.bar->sense == Bar::Sense::AtLeast ? "at least" : "at most") : Json(nullptr);
  json["holds"] = barred ? Json(!unfit && holds(*row.bar, row.ratio->value)) : Json(nullptr);
  json["gflops"] = json_or_null(row.gflops);
  json["ours_bytes"] = json_or_null(row.ours_bytes);
  json["peer_bytes"] = json_or_null(row.peer_bytes);
  json["difference"] = json_or_null(row.difference);
  json["note"] = row.note;
  return json;
}

}  // namespace

Json bench_json(const BenchReport& report) {
  Json json;
  json["format"] = "torsor-bench-1";
  json["machine"] = report.machine;
  json["threads"] = report.threads;
  json["matmul_gflops"] = Json::object();
  for (const auto& [dtype, gflops] : report.product_gflops) json["matmul_gflops"][dtype] = gflops;
  json["matmul_size"] = Json::object();
  for (const auto& [dtype, size] : report.product_size) json["matmul_size"][dtype] = size;
  json["copy_gb_per_s"] = report.copy_gb_per_s;
  json["planned"] = report.planned;
  json["stopped"] = report.stopped;
  json["rows"] = Json::array();
  for (const BenchRow& row : report.rows) json["rows"].push_back(to_json(row));
  return json;
}

}  // namespace torsor
