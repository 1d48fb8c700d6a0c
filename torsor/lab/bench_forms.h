// What the bench attends with: random tensors, every bias form by hand, and the same biases as users build them today.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "torsor/attention/core.h"
#include "torsor/lab/bench.h"

namespace torsor {

struct BenchTensors {
  at::Tensor q;     ///< (B, H, Tq, D)
  at::Tensor k, v;  ///< (B, Hk, T, D)
  at::Tensor dout;  ///< (B, H, Tq, D): the gradient that comes back
};

/// Unit-normal numbers from a seed; q, k and v are leaves that want gradients where `trained`.
BenchTensors bench_tensors(const BenchShape& shape, std::int64_t queries, std::int64_t keys, at::ScalarType dtype,
                           std::uint64_t seed, bool trained);

/// A causal call at the positions 0, 1, 2 ... without a bias; the queries are the last tokens.
CoreInput bench_input(const BenchTensors& tensors);

/// A bias form with random numbers of the size that models train.
struct FormCase {
  std::vector<at::Tensor> trained;  ///< leaves
  /// The form from the leaves, as a model would make it in every step: what is cheap to make (running sums of gates) is
  /// part of the time.
  std::function<BiasForm()> form;
};

/// linear (ALiBi), table (T5), function (KERPLE's logarithm), fire, potential (FoX), gated (GRAPE-A), path integral
/// (GRAPE-AP, P = 8), product (width D), factor (by tag, of a linear form).
const std::vector<std::string>& form_names();

/// Tensors that want gradients where `trained`. Throws Error for another name.
FormCase make_form(const std::string& name, const BenchShape& shape, std::int64_t tokens, std::uint64_t seed,
                   bool trained);

/// softmax masks as users build them: (B|1, H, T, T) float32, the bias where a query sees a key and -inf elsewhere.
/// Evaluated by the plain definition, some queries at a time.
at::Tensor materialised_mask(const BiasForm& form, const CoreInput& input);
/// The causal mask alone.
at::Tensor causal_mask(const BenchShape& shape, std::int64_t tokens);

// ---------------------------------------------------------------------------------------------------------------------
// GRAPE-AP from probes p (B, H, T, P) that both sides normalise and rotate themselves

struct Probes {
  at::Tensor p;      ///< (B, H, T, 8)
  at::Tensor slope;  ///< (H), fixed
};
/// As large as at the start of a training: rms 0.5.
Probes authors_probes(const BenchShape& shape, std::int64_t tokens, std::uint64_t seed, bool trained);

/// As its authors write it: several (B, H, T, T) tensors and the row's total minus a running sum, then SDPA with the
/// mask. `future` (T, T) is true where a key comes after the query; slope (H) is positive.
at::Tensor authors_path_attention(const BenchTensors& tensors, const at::Tensor& p, const at::Tensor& slope,
                                  const at::Tensor& future);
/// Its mask alone, (B, H, T, T).
at::Tensor authors_path_mask(const at::Tensor& p, const at::Tensor& slope, const at::Tensor& future);

/// The same bias as a form.
BiasForm path_form(const at::Tensor& p, const at::Tensor& slope);

}  // namespace torsor
