// A row that is planned, and what measuring one needs.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "torsor/attention/core.h"
#include "torsor/lab/bench.h"

namespace torsor {

/// Instructions that decide which bars apply.
struct BenchFeatures {
  bool bf16_dot = false;  ///< AVX-512 bf16 dot products
  bool amx = false;       ///< matrix tiles in bf16
};
BenchFeatures features_of(const Json& machine);

/// What rows share while they are measured.
struct BenchContext {
  Repeats repeats;
  std::uint64_t seed = 0;
  std::int64_t memory_bytes = 0;                ///< of the machine; 0 = unknown
  std::map<std::string, std::int64_t> product;  ///< size of the matrix product by dtype
  std::int64_t copy_bytes = 0;
  std::optional<std::int64_t> masked_bytes;  ///< what the masked peer was found to hold
};

struct BenchCase {
  BenchRow row;
  double seconds = 0;  ///< estimate of one round, ours and the peer, on two server cores
  bool extra = false;  ///< only where it is asked for
  bool once = false;   ///< is not repeated
  /// Fills in the figures. Throws NotFused where the fused kernel has no form for it.
  std::function<void(BenchRow& row, BenchContext& context)> measure;
};

/// Speed of ours beside libtorch, the cost of a bias, the share of the machine, decode and growth.
void add_speed_cases(const BenchOptions& options, const BenchFeatures& features, std::vector<BenchCase>& cases);
/// Everything beside a mask, and GRAPE-AP as its authors write it.
void add_form_cases(const BenchOptions& options, std::vector<BenchCase>& cases);
/// What is held beyond inputs and outputs, and the long sequence.
void add_memory_cases(const BenchOptions& options, std::vector<BenchCase>& cases);

// ---------------------------------------------------------------------------------------------------------------------
// What the files of cases share

/// A row with its names; key heads and queries are shown where they differ.
BenchRow named_row(const std::string& subject, const std::string& peer, const BenchShape& shape, std::int64_t tokens,
                   const std::string& dtype, const std::string& pass);
Bar at_least(double value);
Bar at_most(double value);
at::ScalarType bench_dtype(const std::string& name);

/// Multiply-adds count two; a causal call computes half of the pairs.
double causal_gflop(const BenchShape& shape, std::int64_t tokens);
/// Seconds that one causal forward pass is estimated at.
double causal_seconds(const BenchShape& shape, std::int64_t tokens);
/// Of a forward and backward pass, relative to the forward pass: 2 and 5 products of the same size.
constexpr double kBothPasses = 3.5;

/// Throws NotFused where the fused kernel does not compute the call.
void require_fused(const CoreInput& input);

/// Work whose last result is kept, so that both sides can be compared.
struct Work {
  std::function<at::Tensor()> run;
  at::Tensor result;
  void operator()() { result = run(); }
};

/// A forward pass without gradients.
std::function<at::Tensor()> forward_of(std::function<at::Tensor()> attend);
/// A forward pass and the gradients of `leaves` for the gradient `dout` of the result.
std::function<at::Tensor()> both_passes_of(std::function<at::Tensor()> attend, std::vector<at::Tensor> leaves,
                                           at::Tensor dout);
/// The pass that a row names.
std::function<at::Tensor()> pass_of(const BenchRow& row, std::function<at::Tensor()> attend,
                                    std::vector<at::Tensor> leaves, const at::Tensor& dout);

/// The fused kernel's result for an input that is made anew in every call.
at::Tensor fused_result(const CoreInput& input);

/// Measures ours beside the peer and fills in times and ratio; `work` as in Pair. Where `same`, both compute the same
/// thing, and the largest relative difference of a row is kept.
void measure_pair(BenchRow& row, const BenchContext& context, std::function<at::Tensor()> ours,
                  std::function<at::Tensor()> peer, double work, bool same);

/// Largest Euclidean difference of a row of `a` (the last axis) from that of `b`, relative to b's.
double worst_row(const at::Tensor& a, const at::Tensor& b);

// ---------------------------------------------------------------------------------------------------------------------
// What the machine can do

/// A square matrix product of the size that the context holds for the dtype.
std::function<at::Tensor()> matrix_product(const BenchContext& context, const std::string& dtype);
double product_gflop(std::int64_t size);
/// The largest power of two up to `limit` whose product takes less than about a second.
std::int64_t product_size(const std::string& dtype, std::int64_t limit);
/// A copy of the context's bytes by all threads.
std::function<at::Tensor()> large_copy(const BenchContext& context);

}  // namespace torsor
