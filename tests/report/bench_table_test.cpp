#include "torsor/report/bench_table.h"

#include <gtest/gtest.h>

#include <regex>

namespace torsor::report {
namespace {

Json document() {
  return parse_json(R"({
    "format": "torsor-bench-1",
    "machine": {"processor": "A processor", "libtorch": "2.15.0"},
    "threads": 2,
    "matmul_gflops": {"bf16": 390.0, "float32": 170.0},
    "copy_gb_per_s": 31.0,
    "planned": 5,
    "stopped": true,
    "rows": [
      {"subject": "no bias", "peer": "libtorch", "shape": "B=1 H=8 T=512 D=64", "dtype": "float32", "pass": "forward",
       "status": "ok", "repeats": 9, "ours_ms": [1.0, 2.0, 4.0], "peer_ms": [3.0, 5.0, 6.0], "ratio": 2.5,
       "ratio_spread": [1.5, 3.0], "bar": 2.0, "sense": "at least", "holds": true, "ours_bytes": null,
       "peer_bytes": null, "difference": 1e-6, "note": ""},
      {"subject": "cost of a bias, linear", "peer": "none", "shape": "B=1 H=4 T=2048 D=64", "dtype": "float32",
       "pass": "forward", "status": "ok", "repeats": 9, "ours_ms": [1.0, 2.2, 4.0], "peer_ms": [1.0, 2.0, 4.0],
       "ratio": 1.1, "ratio_spread": [1.0, 1.2], "bar": 1.05, "sense": "at most", "holds": false, "ours_bytes": null,
       "peer_bytes": null, "difference": null, "note": "misses its bar by 5 %"},
      {"subject": "cost of a bias, gated", "peer": "none", "shape": "B=1 H=4 T=2048 D=64", "dtype": "float32",
       "pass": "forward", "status": "not fused", "repeats": 0, "ours_ms": null, "peer_ms": null, "ratio": 0,
       "ratio_spread": null, "bar": 1.05, "sense": "at most", "holds": false, "ours_bytes": null, "peer_bytes": null,
       "difference": null, "note": "the fused kernel has no form for it"},
      {"subject": "memory, linear", "peer": "a mask", "shape": "B=1 H=4 T=8192 D=64", "dtype": "float32",
       "pass": "forward", "status": "ok", "repeats": 1, "ours_ms": null, "peer_ms": null, "ratio": 0.0078,
       "ratio_spread": [0.0078, 0.0078], "bar": 0.1, "sense": "at most", "holds": true, "ours_bytes": 8388608,
       "peer_bytes": 1073741824, "difference": null, "note": ""}
    ]})",
                    "bench");
}

TEST(ReportBenchTable, GroupsBySubjectAndPeer) {
  const std::string text = bench_table(document());
  EXPECT_EQ(text.substr(0, text.find("ratio:")),
            "A processor, 2 threads, libtorch 2.15.0\n"
            "float32 matrix product 170 GFLOP/s, bf16 matrix product 390 GFLOP/s, copy 31.0 GB/s read and written\n");
  // align_columns has its own test; here every run of spaces counts as one.
  EXPECT_EQ(std::regex_replace(text.substr(text.find("\n\n") + 2), std::regex(" +"), " "),
            "no bias beside libtorch ours, ms peer, ms ratio bar\n"
            " forward, float32, B=1 H=8 T=512 D=64 2.00 (1.00 to 4.00) 5.00 (3.00 to 6.00) 2.50 (1.50 to 3.00) >= 2.00"
            " holds\n"
            "\n"
            "cost of a bias beside none ours, ms peer, ms ratio bar\n"
            " linear, forward, float32, B=1 H=4 T=2048 D=64 2.20 (1.00 to 4.00) 2.00 (1.00 to 4.00)"
            " 1.10 (1.00 to 1.20) <= 1.05 missed misses its bar by 5 %\n"
            " gated, forward, float32, B=1 H=4 T=2048 D=64 <= 1.05 not fused\n"
            "\n"
            "memory beside a mask ours peer ratio bar\n"
            " linear, forward, float32, B=1 H=4 T=8192 D=64 8.00 MiB 1.00 GiB 0.00780 <= 0.100 holds\n"
            "\n"
            "2 of 4 bars hold; 1 row is not fused; stopped after 4 of 5 rows\n");
}

TEST(ReportBenchTable, ASingleSampleHasNoSpread) {
  Json json = document();
  Json row = json["rows"][0];
  json["rows"] = Json::array();
  for (const char* key : {"peer_ms", "ratio", "ratio_spread", "bar", "sense", "holds"}) row[key] = nullptr;
  row["repeats"] = 1;
  row["ours_bytes"] = 8388608;
  row["note"] = "17 rows";
  json["rows"].push_back(row);
  const std::string text = std::regex_replace(bench_table(json), std::regex(" +"), " ");
  EXPECT_NE(text.find("D=64 2.00, 8.00 MiB difference 1.0e-6, 17 rows\n\nno bars"), std::string::npos) << text;
}

TEST(ReportBenchTable, RefusesOtherDocuments) { EXPECT_ANY_THROW(bench_table(Json::object())); }

}  // namespace
}  // namespace torsor::report
