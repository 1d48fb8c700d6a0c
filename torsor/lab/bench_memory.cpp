// Rows about memory, and the long sequence that no mask reaches.
//
// How memory is measured: a small call of the same kind first, so that code is loaded and threads are started. Then
// freed memory is handed back, the high-water mark of the process's resident memory is reset, and the call is made. The
// mark above what was resident before, less the result, is the working set: it counts every page that was touched,
// whoever asked for it, and nothing that was there before.
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "torsor/attention/attend.h"
#include "torsor/base/error.h"
#include "torsor/lab/bench_case.h"
#include "torsor/lab/bench_forms.h"
#include "torsor/lab/machine.h"

namespace torsor {
namespace {

/// What a thread may hold beside the packed keys and values: tiles of scores, queries and results, with room to spare.
constexpr std::int64_t kTileBytes = std::int64_t{2} << 20;
/// The high-water mark counts in steps of some pages a thread; below this a reset did what it says.
constexpr std::int64_t kResetSlack = std::int64_t{8} << 20;

/// Bytes held beyond inputs and the result while `call` runs; none where the system does not let us measure it.
std::optional<std::int64_t> working_bytes(const std::function<at::Tensor()>& call) {
  reset_peak_memory();
  const std::int64_t before = resident_memory();
  if (before == 0 || peak_memory() > before + kResetSlack) return std::nullopt;
  const at::Tensor result = call();
  return std::max<std::int64_t>(0, peak_memory() - before - static_cast<std::int64_t>(result.nbytes()));
}

void cannot_measure(BenchRow& row) {
  row.status = BenchRow::Status::NotMeasured;
  row.note = "this system does not let a process reset its high-water mark of memory";
}

void compare_bytes(BenchRow& row, std::int64_t ours, std::int64_t peer) {
  row.ours_bytes = ours;
  row.peer_bytes = peer;
  const double ratio = static_cast<double>(ours) / static_cast<double>(peer);
  row.ratio = Ratio{ratio, ratio, ratio};
  row.repeats = 1;
}

/// The fused kernel's working set at `tokens`, in a form ("" = no bias).
std::optional<std::int64_t> fused_bytes(const BenchShape& shape, std::int64_t tokens, at::ScalarType dtype,
                                        const std::string& form, const BenchContext& context,
                                        std::int64_t warm_tokens) {
  const auto call = [&](std::int64_t length) -> std::function<at::Tensor()> {
    CoreInput input = bench_input(bench_tensors(shape, length, length, dtype, context.seed, false));
    if (form.empty()) {
      require_fused(input);
      return forward_of([input] { return fused_result(input); });
    }
    const FormCase bias = make_form(form, shape, length, context.seed, false);
    input.biases = {bias.form()};
    require_fused(input);
    return forward_of([input, bias]() mutable {
      input.biases = {bias.form()};  // what lowering it takes counts
      return fused_result(input);
    });
  };
  call(warm_tokens)();
  return working_bytes(call(tokens));
}

/// The masked peer's: the mask, and what attention with it takes.
std::optional<std::int64_t> masked_bytes(const BenchShape& shape, std::int64_t tokens, const BenchContext& context,
                                         std::int64_t warm_tokens) {
  const auto attend = [&](std::int64_t length) -> std::function<at::Tensor()> {
    const BenchTensors tensors = bench_tensors(shape, length, length, at::kFloat, context.seed, false);
    const at::Tensor mask = causal_mask(shape, length);
    return forward_of(
        [tensors, mask] { return at::scaled_dot_product_attention(tensors.q, tensors.k, tensors.v, mask); });
  };
  attend(warm_tokens)();
  const std::optional<std::int64_t> beyond = working_bytes(attend(tokens));
  if (!beyond) return std::nullopt;
  return *beyond + 4 * shape.heads * tokens * tokens;
}

void add_memory(const BenchOptions& options, std::vector<BenchCase>& cases) {
  const BenchShape shape = options.sizes.form_shape;
  const std::int64_t tokens = options.sizes.memory_length, warm = options.sizes.memory_warm_length;
  for (const std::string dtype : {"float32", "bf16"}) {
    BenchCase one;
    one.row = named_row("memory, no bias", str("one copy of K and V, ", kTileBytes >> 20, " MiB a thread"), shape,
                        tokens, dtype, "forward");
    one.row.bar = at_most(1);
    one.seconds = causal_seconds(shape, tokens);
    one.once = true;
    one.measure = [=](BenchRow& row, BenchContext& context) {
      const auto ours = fused_bytes(shape, tokens, bench_dtype(row.dtype), "", context, warm);
      if (!ours) return cannot_measure(row);
      const std::int64_t copy = 2 * shape.batch * shape.heads * tokens * shape.head_dim * (row.dtype == "bf16" ? 2 : 4);
      compare_bytes(row, *ours, copy + at::get_num_threads() * kTileBytes);
    };
    cases.push_back(std::move(one));
  }
  for (const std::string& form : form_names()) {
    BenchCase one;
    one.row = named_row(str("memory, ", form), "libtorch SDPA with a mask", shape, tokens, "float32", "forward");
    one.row.bar = at_most(0.1);
    one.seconds = 4 * causal_seconds(shape, tokens);
    one.once = true;
    one.measure = [=](BenchRow& row, BenchContext& context) {
      const auto ours = fused_bytes(shape, tokens, at::kFloat, form, context, warm);
      if (ours && !context.masked_bytes) context.masked_bytes = masked_bytes(shape, tokens, context, warm);
      if (!ours || !context.masked_bytes) return cannot_measure(row);
      compare_bytes(row, *ours, *context.masked_bytes);
    };
    cases.push_back(std::move(one));
  }
}

/// Row i of one head, in float64: keys 0 ... i, with -slope times the distance added.
at::Tensor plain_row(const CoreInput& input, std::int64_t i, double slope) {
  const auto row_of = [&](const at::Tensor& tensor) { return tensor[0][0].narrow(0, 0, i + 1).to(at::kDouble); };
  const at::Tensor q = input.q[0][0][i].to(at::kDouble);
  at::Tensor logits = at::matmul(row_of(input.k), q) * input.scale;
  logits = logits - slope * at::arange(i, -1, -1, at::kDouble);
  return at::matmul(at::softmax(logits, 0), row_of(input.v));
}

void add_long(const BenchOptions& options, std::vector<BenchCase>& cases) {
  const BenchShape shape{1, 1, 64};
  const std::int64_t tokens = options.sizes.long_length, warm = options.sizes.memory_warm_length;
  for (const bool linear : {false, true}) {
    BenchCase one;
    one.row =
        named_row(linear ? "long, linear" : "long, no bias", "rows in float64", shape, tokens, "float32", "forward");
    one.extra = true;
    one.seconds = causal_seconds(shape, tokens);
    one.once = true;
    one.measure = [=](BenchRow& row, BenchContext& context) {
      // Slow enough that far keys count: at the far end the bias is -8.
      const double slope = linear ? 8.0 / static_cast<double>(tokens) : 0;
      const auto input_at = [&](std::int64_t length) {
        CoreInput input = bench_input(bench_tensors(shape, length, length, at::kFloat, context.seed, false));
        if (linear) input.biases = {BiasForm{{0, 1}, LinearForm{at::full({1}, slope, at::kFloat)}}};
        return input;
      };
      const CoreInput input = input_at(tokens), small = input_at(std::min(tokens, warm));
      require_fused(input);
      forward_of([&] { return fused_result(small); })();
      at::Tensor out;
      double seconds = 0;
      const auto timed = forward_of([&] {
        const auto begin = std::chrono::steady_clock::now();
        out = fused_result(input);
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        return out;
      });
      row.ours_bytes = working_bytes(timed);
      if (!out.defined()) timed();  // the system does not tell how much memory it took
      row.repeats = 1;
      row.ours_ms = Spread{seconds * 1e3, seconds * 1e3, seconds * 1e3};
      row.gflops = causal_gflop(shape, tokens) / seconds;
      // Both ends and some rows between, away from the edges of tiles and on them.
      double worst = 0;
      const double slope_used = linear ? static_cast<double>(static_cast<float>(slope)) : 0;
      for (std::int64_t n = 0; n <= 16; ++n) {
        const std::int64_t i = std::min(tokens - 1, n * tokens / 16 + n % 3);
        const at::Tensor expected = plain_row(input, i, slope_used);
        const at::Tensor got = out[0][0][i].to(at::kDouble);
        worst = std::max(worst, ((got - expected).norm() / expected.norm()).item<double>());
      }
      row.difference = worst;
      row.note = "17 rows against float64";
    };
    cases.push_back(std::move(one));
  }
}

}  // namespace

void add_memory_cases(const BenchOptions& options, std::vector<BenchCase>& cases) {
  add_memory(options, cases);
  add_long(options, cases);
}

}  // namespace torsor
