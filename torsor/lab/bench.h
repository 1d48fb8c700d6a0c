// The kernel beside its peers on this machine, in one run on the same tensors.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/base/progress.h"
#include "torsor/lab/bench_statistics.h"

namespace torsor {

/// A batch of heads that attend; key heads as many as heads where 0.
struct BenchShape {
  std::int64_t batch = 1, heads = 1, head_dim = 64;
  std::int64_t key_heads = 0;
};

/// What the subjects are measured at. The defaults are the published ones; tests take small ones. Bars belong to
/// lengths, so a length between two of the defaults takes the bar of the smaller.
struct BenchSizes {
  std::vector<BenchShape> shapes = {{1, 8, 64}, {4, 8, 128}, {1, 32, 128}};
  std::vector<std::int64_t> forward_lengths = {512, 2048, 8192};
  std::vector<std::int64_t> backward_lengths = {512, 2048};
  BenchShape form_shape = {1, 4, 64};  ///< of everything beside a mask
  std::vector<std::int64_t> form_lengths = {2048, 8192};
  BenchShape authors_shape = {1, 8, 64};  ///< beside GRAPE-AP as its authors write it
  std::int64_t authors_length = 2048;
  std::vector<BenchShape> cost_shapes = {{1, 4, 64}, {1, 4, 128}};
  std::vector<std::int64_t> cost_lengths = {2048, 8192};
  std::vector<std::int64_t> share_lengths = {2048, 8192};
  std::vector<BenchShape> decode_shapes = {{1, 8, 64}, {4, 8, 128}, {1, 32, 128}, {1, 32, 128, 8}};
  std::vector<std::int64_t> decode_lengths = {2048, 32768};
  std::int64_t memory_length = 8192;
  std::int64_t memory_warm_length = 256;  ///< of the call before, which loads code and starts threads
  std::vector<std::int64_t> growth_lengths = {2048, 4096, 8192};
  std::int64_t long_length = 131072;
  std::int64_t product_limit = 4096;                  ///< largest matrix of the matrix product, a power of two
  std::int64_t copy_bytes = std::int64_t{256} << 20;  ///< of one side of the copy
};

struct BenchOptions {
  std::string filter;  ///< parts of a row's name, with commas between, in any order and case; empty = every row
  bool quick = false;  ///< only rows whose round is quick
  bool full = false;   ///< also the rows that take a minute each
  Repeats repeats = {.seconds = 20};
  std::uint64_t seed = 0;
  BenchSizes sizes;
};

struct BenchRow {
  /// NotFused: the fused kernel has no form for the call (yet). NotMeasured: the machine does not allow it; `note` says
  /// why.
  enum class Status { Ok, NotFused, NotMeasured };

  std::string subject;  ///< of the table of subjects, and after a comma what of it: "every form, linear"
  std::string peer;
  std::string shape;  ///< "B=1 H=8 T=2048 D=64"
  std::string dtype;  ///< "float32" or "bf16"
  std::string pass;   ///< "forward", "backward" (forward and backward together) or "decode"
  Status status = Status::Ok;
  std::optional<Bar> bar;
  std::int64_t repeats = 0;
  std::optional<Spread> ours_ms, peer_ms;
  std::optional<std::int64_t> ours_bytes, peer_bytes;  ///< where memory is the subject
  std::optional<Ratio> ratio;
  std::optional<double> gflops;      ///< of ours, where a count is agreed on: 4 T^2 D / 2 a head, causal, forward
  std::optional<double> difference;  ///< worst row of ours against the peer's result (or a float64 one), relative
  std::string note;                  ///< a bar that is missed, or what the figures do not tell
};

/// All that identifies a row, as a filter looks at it: subject, pass, dtype, shape, peer.
std::string row_name(const BenchRow& row);
const char* status_name(BenchRow::Status status);

struct BenchReport {
  Json machine;
  std::int64_t threads = 0;
  std::vector<BenchRow> rows;
  std::map<std::string, std::int64_t> product_size;  ///< rows and columns of the matrix product, by dtype
  std::map<std::string, double> product_gflops;
  double copy_gb_per_s = 0;  ///< read and written, of a large copy
  std::int64_t planned = 0;  ///< rows that were chosen
  bool stopped = false;      ///< the user stopped before the last of them
};

struct BenchPlan {
  std::vector<BenchRow> rows;  ///< in the order of measuring, with nothing measured
  double seconds = 0;          ///< estimate of the whole on two server cores that have nothing else to do
};
/// What these options choose. Throws UsageError when that is nothing.
BenchPlan plan_bench(const BenchOptions& options);

struct BenchControl {
  const std::atomic<bool>* stop = nullptr;  ///< looked at between rows
  std::optional<Progress::Options> progress;
};

BenchReport run_bench(const BenchOptions& options, const BenchControl& control);

/// {"format": "torsor-bench-1", ...}: docs/bench.md has the keys. report/bench_table.h shows it to people.
Json bench_json(const BenchReport& report);

}  // namespace torsor
