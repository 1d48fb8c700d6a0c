// Rows about speed that need no mask: beside libtorch's attention, with and without a bias, beside the matrix product,
// decode, growth.
#include <unistd.h>

#include <algorithm>

#include "torsor/attention/attend.h"
#include "torsor/base/error.h"
#include "torsor/lab/bench_case.h"
#include "torsor/lab/bench_forms.h"

namespace torsor {
namespace {

const char* const kDtypes[] = {"float32", "bf16"};

std::optional<Bar> plain_bar(const BenchRow& row, std::int64_t tokens, const BenchFeatures& features) {
  const bool forward = row.pass == "forward";
  if (row.dtype == "float32") {
    if (!forward) return at_least(1.2);
    return at_least(tokens >= 2048 ? 1.25 : 2);
  }
  // With AMX libtorch's own path uses it.
  if (features.amx) return at_least(1);
  if (features.bf16_dot) return at_least(forward ? 2 : 1.7);
  return std::nullopt;
}

void add_plain(const BenchOptions& options, const BenchFeatures& features, std::vector<BenchCase>& cases) {
  const BenchSizes& sizes = options.sizes;
  for (const std::string pass : {"forward", "backward"})
    for (const std::string dtype : kDtypes)
      for (const BenchShape& shape : sizes.shapes)
        for (const std::int64_t tokens : pass == "forward" ? sizes.forward_lengths : sizes.backward_lengths) {
          BenchCase one;
          one.row = named_row("no bias", "libtorch SDPA is_causal", shape, tokens, dtype, pass);
          one.row.bar = plain_bar(one.row, tokens, features);
          if (!one.row.bar) one.row.note = "no bar: this processor has no bf16 products";
          one.seconds = 2 * causal_seconds(shape, tokens) * (pass == "forward" ? 1 : kBothPasses);
          one.measure = [=](BenchRow& row, BenchContext& context) {
            const BenchTensors tensors =
                bench_tensors(shape, tokens, tokens, bench_dtype(row.dtype), context.seed, row.pass == "backward");
            const CoreInput input = bench_input(tensors);
            require_fused(input);
            const std::vector<at::Tensor> leaves = {tensors.q, tensors.k, tensors.v};
            measure_pair(row, context,
                         pass_of(
                             row, [=] { return fused_result(input); }, leaves, tensors.dout),
                         pass_of(
                             row,
                             [=] {
                               return at::scaled_dot_product_attention(tensors.q, tensors.k, tensors.v, {}, 0.0, true,
                                                                       input.scale);
                             },
                             leaves, tensors.dout),
                         1, true);
            if (row.gflops || !row.ours_ms) return;
            row.gflops =
                causal_gflop(shape, tokens) * (row.pass == "forward" ? 1 : kBothPasses) / (row.ours_ms->median * 1e-3);
          };
          cases.push_back(std::move(one));
        }
}

/// What a bias may cost, or none where it has no bar.
std::optional<Bar> cost_bar(const std::string& form) {
  if (form == "path integral") return at_most(1.5);
  if (form == "product") return at_most(2);
  if (form == "factor") return at_most(1.2);
  return at_most(1.05);
}

void add_cost(const BenchOptions& options, std::vector<BenchCase>& cases) {
  for (const std::string form : {"linear", "table", "potential", "gated", "path integral", "product", "factor"})
    for (const std::string pass : {"forward", "backward"})
      for (const BenchShape& shape : options.sizes.cost_shapes)
        for (const std::int64_t tokens : options.sizes.cost_lengths) {
          BenchCase one;
          one.row =
              named_row(str("cost of a bias, ", form), "the same kernel with none", shape, tokens, "float32", pass);
          one.row.bar = cost_bar(form);
          one.seconds = 2.3 * causal_seconds(shape, tokens) * (pass == "forward" ? 1 : kBothPasses);
          one.measure = [=](BenchRow& row, BenchContext& context) {
            const bool trained = row.pass == "backward";
            const BenchTensors tensors = bench_tensors(shape, tokens, tokens, at::kFloat, context.seed, trained);
            const FormCase bias = make_form(form, shape, tokens, context.seed, trained);
            const CoreInput none = bench_input(tensors);
            const auto with_bias = [=] {
              CoreInput input = none;
              input.biases = {bias.form()};
              return input;
            };
            require_fused(with_bias());
            const std::vector<at::Tensor> leaves = {tensors.q, tensors.k, tensors.v};
            std::vector<at::Tensor> all = leaves;
            all.insert(all.end(), bias.trained.begin(), bias.trained.end());
            measure_pair(row, context,
                         pass_of(
                             row, [=] { return fused_result(with_bias()); }, all, tensors.dout),
                         pass_of(
                             row, [=] { return fused_result(none); }, leaves, tensors.dout),
                         1, false);
          };
          cases.push_back(std::move(one));
        }
}

/// A position state as wide as a head, one for every head, averaged in the same pass (TAPE): three products for two,
/// and seven for five on the way back.
void add_carried(const BenchOptions& options, std::vector<BenchCase>& cases) {
  for (const std::string pass : {"forward", "backward"})
    for (const BenchShape& shape : options.sizes.cost_shapes)
      for (const std::int64_t tokens : options.sizes.cost_lengths) {
        BenchCase one;
        one.row = named_row("carried values", "the same kernel without", shape, tokens, "float32", pass);
        one.row.bar = at_most(pass == "forward" ? 1.6 : 1.5);
        one.seconds = 2.6 * causal_seconds(shape, tokens) * (pass == "forward" ? 1 : kBothPasses);
        one.measure = [=](BenchRow& row, BenchContext& context) {
          const bool trained = row.pass == "backward";
          const BenchTensors tensors = bench_tensors(shape, tokens, tokens, at::kFloat, context.seed, trained);
          const CoreInput none = bench_input(tensors);
          CoreInput carrying = none;
          const at::Tensor state =
              bench_tensors(shape, tokens, tokens, at::kFloat, context.seed + 1, trained).q;  // (B, H, T, 2F), 2F = D
          carrying.carried = Carried{state};
          require_fused(carrying);
          // Both results want a gradient; their sum costs next to nothing.
          const auto both = [=] {
            const Attended attended = run_core(carrying, Path::Fused);
            return attended.out + attended.averages;
          };
          const std::vector<at::Tensor> leaves = {tensors.q, tensors.k, tensors.v};
          measure_pair(row, context, pass_of(row, both, {tensors.q, tensors.k, tensors.v, state}, tensors.dout),
                       pass_of(
                           row, [=] { return fused_result(none); }, leaves, tensors.dout),
                       1, false);
        };
        cases.push_back(std::move(one));
      }
}

std::optional<Bar> share_bar(const std::string& dtype, std::int64_t tokens, const BenchFeatures& features) {
  const bool all = tokens >= 8192;
  if (tokens < 2048) return std::nullopt;
  if (dtype == "float32") return at_least(all ? 1 : 0.95);
  if (features.amx || !features.bf16_dot) return std::nullopt;
  return at_least(all ? 0.8 : 0.65);
}

void add_share(const BenchOptions& options, const BenchFeatures& features, std::vector<BenchCase>& cases) {
  for (const std::string dtype : kDtypes)
    for (const BenchShape& shape : options.sizes.cost_shapes)
      for (const std::int64_t tokens : options.sizes.share_lengths) {
        BenchCase one;
        one.row = named_row("share of the machine", str("matrix product in ", dtype), shape, tokens, dtype, "forward");
        one.row.bar = share_bar(dtype, tokens, features);
        if (dtype == "bf16" && features.amx) one.row.note = "no bar: the matrix product runs on AMX";
        one.seconds = causal_seconds(shape, tokens) + 0.2;
        one.measure = [=](BenchRow& row, BenchContext& context) {
          const BenchTensors tensors =
              bench_tensors(shape, tokens, tokens, bench_dtype(row.dtype), context.seed, false);
          const CoreInput input = bench_input(tensors);
          require_fused(input);
          const double work = causal_gflop(shape, tokens) / product_gflop(context.product.at(row.dtype));
          measure_pair(row, context, forward_of([=] { return fused_result(input); }),
                       matrix_product(context, row.dtype), work, false);
          row.gflops = causal_gflop(shape, tokens) / (row.ours_ms->median * 1e-3);
        };
        cases.push_back(std::move(one));
      }
}

/// Bytes of the largest cache, or a usual size where the system does not tell.
double largest_cache() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<double>(bytes);
#endif
  return 32e6;
}

void add_decode(const BenchOptions& options, std::vector<BenchCase>& cases) {
  for (const std::string dtype : kDtypes)
    for (const BenchShape& shape : options.sizes.decode_shapes)
      for (const std::int64_t keys : options.sizes.decode_lengths) {
        BenchCase one;
        one.row = named_row("decode", "copy bandwidth", shape, keys, dtype, "decode");
        one.row.bar = at_least(0.85);
        one.seconds = 0.1;
        one.measure = [=](BenchRow& row, BenchContext& context) {
          const BenchTensors tensors = bench_tensors(shape, 1, keys, bench_dtype(row.dtype), context.seed, false);
          const CoreInput input = bench_input(tensors);
          require_fused(input);
          const auto bytes = static_cast<double>(tensors.k.nbytes() + tensors.v.nbytes());
          // The copy reads and writes every byte.
          const double work = bytes / (2 * static_cast<double>(context.copy_bytes));
          measure_pair(row, context, forward_of([=] { return fused_result(input); }), large_copy(context), work, false);
          if (bytes < largest_cache()) row.note = "K and V may stay in the cache from call to call, the copy cannot";
        };
        cases.push_back(std::move(one));
      }
}

void add_growth(const BenchOptions& options, std::vector<BenchCase>& cases) {
  const std::vector<std::int64_t>& lengths = options.sizes.growth_lengths;
  for (std::size_t n = 1; n < lengths.size(); ++n) {
    const BenchShape shape = options.sizes.form_shape;
    const std::int64_t tokens = lengths[n], before = lengths[n - 1];
    BenchCase one;
    one.row = named_row("growth", before * 2 == tokens ? "half the length" : str("T=", before), shape, tokens,
                        "float32", "forward");
    // The bar speaks of twice the length.
    if (tokens == 2 * before) one.row.bar = at_most(4.2);
    one.seconds = causal_seconds(shape, tokens) + causal_seconds(shape, before);
    one.measure = [=](BenchRow& row, BenchContext& context) {
      const CoreInput more = bench_input(bench_tensors(shape, tokens, tokens, at::kFloat, context.seed, false));
      const CoreInput less = bench_input(bench_tensors(shape, before, before, at::kFloat, context.seed, false));
      require_fused(more);
      measure_pair(row, context, forward_of([=] { return fused_result(more); }),
                   forward_of([=] { return fused_result(less); }), 1, false);
    };
    cases.push_back(std::move(one));
  }
}

}  // namespace

void add_speed_cases(const BenchOptions& options, const BenchFeatures& features, std::vector<BenchCase>& cases) {
  add_plain(options, features, cases);
  add_cost(options, cases);
  add_carried(options, cases);
  add_share(options, features, cases);
  add_decode(options, cases);
  add_growth(options, cases);
}

}  // namespace torsor
