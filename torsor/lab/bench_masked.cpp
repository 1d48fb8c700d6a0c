// Rows beside what users do today: the bias as a (B|1, H, T, T) mask of libtorch's attention, and GRAPE-AP as its
// authors write it.
#include "torsor/base/error.h"
#include "torsor/lab/bench_case.h"
#include "torsor/lab/bench_forms.h"

namespace torsor {
namespace {

// Seconds relative to a causal forward pass without a mask, for the estimates; measured on two server cores.
constexpr double kMasked = 2.3, kMaskedBoth = 7.5, kMaskTrained = 20, kAuthors = 45;

std::optional<Bar> masked_bar(const std::string& form, std::int64_t tokens, bool backward) {
  const bool path = form == "path integral", product = form == "product";
  if (!backward) {
    if (tokens < 8192) return std::nullopt;
    return at_least(path ? 1.8 : product ? 1.35 : 2.7);
  }
  if (tokens >= 8192) return at_least(path ? 4 : product ? 3 : 6);
  if (tokens >= 2048) return at_least(path ? 2.5 : product ? 2 : 4);
  return std::nullopt;
}

/// `needs` bytes must fit into memory beside the rest of the system.
bool too_large(BenchRow& row, const BenchContext& context, double needs) {
  if (context.memory_bytes == 0 || needs < 0.8 * static_cast<double>(context.memory_bytes)) return false;
  row.status = BenchRow::Status::NotMeasured;
  row.note = "the masked peer needs more memory than this machine has";
  return true;
}

struct MaskedPass {
  const char* peer;
  const char* pass;
  bool train_bias;  ///< the bias's parameters here, the mask there
  double seconds;   ///< of the peer, relative to a causal forward pass
  double masks;     ///< arrays as large as the mask that the peer holds at once
};

void measure_masked(BenchRow& row, BenchContext& context, const std::string& form, const BenchShape& shape,
                    std::int64_t tokens, const MaskedPass& pass) {
  const double mask_bytes = 4.0 * static_cast<double>(shape.batch * shape.heads) * static_cast<double>(tokens * tokens);
  if (too_large(row, context, mask_bytes * pass.masks)) return;
  const bool backward = row.pass == "backward";
  const BenchTensors tensors = bench_tensors(shape, tokens, tokens, at::kFloat, context.seed, backward);
  const FormCase bias = make_form(form, shape, tokens, context.seed, pass.train_bias);
  const CoreInput none = bench_input(tensors);
  const auto ours = [=] {
    CoreInput input = none;
    input.biases = {bias.form()};
    return input;
  };
  require_fused(ours());
  const at::Tensor mask = materialised_mask(bias.form(), none).requires_grad_(pass.train_bias);
  const std::vector<at::Tensor> leaves = {tensors.q, tensors.k, tensors.v};
  std::vector<at::Tensor> our_leaves = leaves, peer_leaves = leaves;
  our_leaves.insert(our_leaves.end(), bias.trained.begin(), bias.trained.end());
  if (pass.train_bias) peer_leaves.push_back(mask);
  measure_pair(row, context,
               pass_of(
                   row, [=] { return fused_result(ours()); }, our_leaves, tensors.dout),
               pass_of(
                   row, [=] { return at::scaled_dot_product_attention(tensors.q, tensors.k, tensors.v, mask); },
                   peer_leaves, tensors.dout),
               1, true);
}

void add_masked(const BenchOptions& options, std::vector<BenchCase>& cases) {
  static constexpr MaskedPass kPasses[] = {
      {"libtorch SDPA with a mask", "forward", false, kMasked, 2},
      {"libtorch SDPA with a mask, not trained", "backward", false, kMaskedBoth, 4},
      {"libtorch SDPA with a mask, trained", "backward", true, kMaskTrained, 8},
  };
  const BenchShape shape = options.sizes.form_shape;
  for (const std::string& form : form_names())
    for (const MaskedPass& pass : kPasses)
      for (const std::int64_t tokens : options.sizes.form_lengths) {
        BenchCase one;
        one.row = named_row(str("every form, ", form), pass.peer, shape, tokens, "float32", pass.pass);
        const bool backward = one.row.pass == "backward";
        if (!backward || pass.train_bias) one.row.bar = masked_bar(form, tokens, backward);
        one.seconds = causal_seconds(shape, tokens) * ((backward ? kBothPasses : 1) + pass.seconds);
        one.measure = [=](BenchRow& row, BenchContext& context) {
          measure_masked(row, context, form, shape, tokens, pass);
        };
        cases.push_back(std::move(one));
      }
}

void add_authors(const BenchOptions& options, std::vector<BenchCase>& cases) {
  const BenchShape shape = options.sizes.authors_shape;
  const std::int64_t tokens = options.sizes.authors_length;
  BenchCase one;
  one.row = named_row("path integral", "GRAPE-AP as its authors write it", shape, tokens, "float32", "backward");
  if (tokens >= 2048) one.row.bar = at_least(8);
  one.seconds = causal_seconds(shape, tokens) * (2 * kBothPasses + kAuthors);
  one.measure = [=](BenchRow& row, BenchContext& context) {
    const double square = 4.0 * static_cast<double>(shape.batch * shape.heads) * static_cast<double>(tokens * tokens);
    if (too_large(row, context, square * 14)) return;
    const BenchTensors tensors = bench_tensors(shape, tokens, tokens, at::kFloat, context.seed, true);
    const auto [p, slope] = authors_probes(shape, tokens, context.seed, true);
    const CoreInput none = bench_input(tensors);
    const auto ours = [none, probes = p, slopes = slope] {
      CoreInput input = none;
      input.biases = {path_form(probes, slopes)};
      return input;
    };
    require_fused(ours());
    const at::Tensor future = at::ones({tokens, tokens}, at::kBool).triu_(1);
    const std::vector<at::Tensor> leaves = {tensors.q, tensors.k, tensors.v, p};
    measure_pair(
        row, context,
        pass_of(
            row, [=] { return fused_result(ours()); }, leaves, tensors.dout),
        pass_of(
            row, [=, probes = p, slopes = slope] { return authors_path_attention(tensors, probes, slopes, future); },
            leaves, tensors.dout),
        1, true);
  };
  cases.push_back(std::move(one));
}

}  // namespace

void add_form_cases(const BenchOptions& options, std::vector<BenchCase>& cases) {
  add_masked(options, cases);
  add_authors(options, cases);
}

}  // namespace torsor
