#include "torsor/lab/bench_case.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "torsor/attention/attend.h"
#include "torsor/attention/lower.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

/// GFLOP/s that estimates reckon with: a kernel on two server cores.
constexpr double kNominal = 100;

Spread in_milliseconds(const std::vector<double>& seconds) {
  const Spread spread = spread_of(seconds);
  return {spread.least * 1e3, spread.median * 1e3, spread.most * 1e3};
}

}  // namespace

BenchFeatures features_of(const Json& machine) {
  BenchFeatures features;
  for (const Json& set : machine.at("instruction_sets")) {
    features.bf16_dot = features.bf16_dot || set == "avx512_bf16";
    features.amx = features.amx || set == "amx_bf16";
  }
  return features;
}

BenchRow named_row(const std::string& subject, const std::string& peer, const BenchShape& shape, std::int64_t tokens,
                   const std::string& dtype, const std::string& pass) {
  BenchRow row;
  row.subject = subject;
  row.peer = peer;
  const std::string key_heads =
      shape.key_heads > 0 && shape.key_heads != shape.heads ? str("/", shape.key_heads) : std::string();
  row.shape = str("B=", shape.batch, " H=", shape.heads, key_heads, pass == "decode" ? " Tq=1 Tk=" : " T=", tokens,
                  " D=", shape.head_dim);
  row.dtype = dtype;
  row.pass = pass;
  return row;
}

Bar at_least(double value) { return {value, Bar::Sense::AtLeast}; }
Bar at_most(double value) { return {value, Bar::Sense::AtMost}; }

at::ScalarType bench_dtype(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  throw Error(str("the bench knows float32 and bf16, found ", name));
}

double causal_gflop(const BenchShape& shape, std::int64_t tokens) {
  const double t = static_cast<double>(tokens);
  return 1e-9 * 2 * t * t * static_cast<double>(shape.batch * shape.heads * shape.head_dim);
}

double causal_seconds(const BenchShape& shape, std::int64_t tokens) { return causal_gflop(shape, tokens) / kNominal; }

void require_fused(const CoreInput& input) {
  if (!lower(input)) throw NotFused("the fused kernel has no form for this call");
}

std::function<at::Tensor()> forward_of(std::function<at::Tensor()> attend) {
  return [attend = std::move(attend)] {
    at::NoGradGuard no_grad;
    return attend();
  };
}

std::function<at::Tensor()> both_passes_of(std::function<at::Tensor()> attend, std::vector<at::Tensor> leaves,
                                           at::Tensor dout) {
  return [attend = std::move(attend), leaves = std::move(leaves), dout = std::move(dout)] {
    at::AutoGradMode with_grad(true);
    const at::Tensor out = attend();
    torch::autograd::grad({out}, leaves, {dout});
    return out.detach();
  };
}

std::function<at::Tensor()> pass_of(const BenchRow& row, std::function<at::Tensor()> attend,
                                    std::vector<at::Tensor> leaves, const at::Tensor& dout) {
  if (row.pass == "backward") return both_passes_of(std::move(attend), std::move(leaves), dout);
  return forward_of(std::move(attend));
}

at::Tensor fused_result(const CoreInput& input) { return run_core(input, Path::Fused).out; }

double worst_row(const at::Tensor& a, const at::Tensor& b) {
  at::NoGradGuard no_grad;
  const at::Tensor x = a.to(at::kFloat), y = b.to(at::kFloat);
  const at::Tensor size = y.norm(2, -1).clamp_min(1e-30);
  return ((x - y).norm(2, -1) / size).max().item<double>();
}

void measure_pair(BenchRow& row, const BenchContext& context, std::function<at::Tensor()> ours,
                  std::function<at::Tensor()> peer, double work, bool same) {
  Work first{std::move(ours), {}}, second{std::move(peer), {}};
  const PairTimes times = time_pair({[&] { first(); }, [&] { second(); }, work}, context.repeats);
  row.repeats = static_cast<std::int64_t>(times.ours.size());
  row.ours_ms = in_milliseconds(times.ours);
  row.peer_ms = in_milliseconds(times.peer);
  row.ratio = ratio_of(times, work, row.bar ? row.bar->sense : Bar::Sense::AtLeast);
  if (same) row.difference = worst_row(first.result, second.result);
  if (row.repeats < context.repeats.wanted)
    row.note = str(row.repeats, " instead of ", context.repeats.wanted, " repeats, to save time");
}

double product_gflop(std::int64_t size) {
  const double n = static_cast<double>(size);
  return 2e-9 * n * n * n;
}

std::function<at::Tensor()> matrix_product(const BenchContext& context, const std::string& dtype) {
  const std::int64_t n = context.product.at(dtype);
  const at::Tensor a = at::randn({n, n}).to(bench_dtype(dtype)), b = at::randn({n, n}).to(bench_dtype(dtype));
  return [a, b] {
    at::NoGradGuard no_grad;
    return at::matmul(a, b);
  };
}

std::int64_t product_size(const std::string& dtype, std::int64_t limit) {
  std::int64_t size = std::min<std::int64_t>(limit, 256);
  for (;;) {
    BenchContext probe;
    probe.product[dtype] = size;
    const auto product = matrix_product(probe, dtype);
    product();
    const auto begin = std::chrono::steady_clock::now();
    product();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (size * 2 > limit || seconds * 8 > 1) return size;
    size *= 2;
  }
}

std::function<at::Tensor()> large_copy(const BenchContext& context) {
  const at::Tensor from = at::ones({context.copy_bytes}, at::kByte), to = at::zeros({context.copy_bytes}, at::kByte);
  return [from, to] {
    const std::uint8_t* source = from.const_data_ptr<std::uint8_t>();
    std::uint8_t* target = to.data_ptr<std::uint8_t>();
    at::parallel_for(0, from.numel(), std::int64_t{1} << 20, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(target + begin, source + begin, static_cast<std::size_t>(end - begin));
    });
    return to;
  };
}

}  // namespace torsor
