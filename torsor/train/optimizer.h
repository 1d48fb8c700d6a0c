// AdamW and gradient clipping over named tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace torsor {

/// A tensor that is trained.
struct NamedParameter {
  std::string name;   ///< unique within a run; the name in state files
  at::Tensor tensor;  ///< contiguous leaf that requires a gradient, float32 or float64, on any device
  bool decay = true;  ///< whether weight decay applies; not for norms, biases and positional scalars
};

/// Constants of AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019).
///
/// beta2 = 0.95 and weight decay 0.1 are what published decoder-only models train with (GPT-3, appendix B; LLaMA,
/// section 2.3): with the few hundred steps of a comparison, the usual 0.999 would average over more steps than there
/// are.
struct AdamWOptions {
  double beta1 = 0.9;         ///< in [0, 1)
  double beta2 = 0.95;        ///< in [0, 1)
  double epsilon = 1e-8;      ///< at least 0; added to the root of the second moment after bias correction
  double weight_decay = 0.1;  ///< at least 0; multiplied by the learning rate of the step
};

/// Throws UsageError naming the field that is out of range.
void check_adamw_options(const AdamWOptions& options);

/// The values follow torch.optim.AdamW, whose operator this uses, to float32 rounding. A parameter without a gradient
/// is left alone at that step: no decay, no moments, and its own bias correction does not advance.
///
///     optimizer.zero_gradients();
///     loss.backward();
///     double norm = optimizer.clip_gradients(1.0);
///     optimizer.update(rate);
class AdamW {
 public:
  /// Shares the tensors. Throws UsageError for options out of range, and Error for a parameter that is undefined, no
  /// leaf, not contiguous, of another type, or shares its name or its memory with an earlier one.
  AdamW(std::vector<NamedParameter> parameters, const AdamWOptions& options);

  /// Drops all gradients, so that the next backward pass allocates or steals them anew.
  void zero_gradients();

  /// The Euclidean norm of all gradients as one vector (each tensor's norm in its own type, their sum in double);
  /// 0 without gradients. When it is above `limit`, all gradients are multiplied by limit / (norm + 1e-6), the same
  /// rule as torch.nn.utils.clip_grad_norm_. An infinite `limit` only measures.
  /// Throws Error naming the step and the parameter when the norm is not finite; nothing is changed then.
  double clip_gradients(double limit);

  /// One step with the gradients that are there. Throws Error when there are none at all.
  void update(double learning_rate);

  /// Updates made so far.
  std::int64_t updates() const { return updates_; }

  const std::vector<NamedParameter>& parameters() const { return parameters_; }

  /// All that a continued run needs beside the weights: for each parameter "first_moment.NAME", "second_moment.NAME"
  /// (its shape and type) and "updates.NAME" (float32 scalar: how often it was updated). The tensors are shared, not
  /// copied.
  std::map<std::string, at::Tensor> state() const;

  /// Copies what state() gave, after checking all of it; `updates` is the number of updates made by then. Other names
  /// in `state` are ignored. Throws Error naming the tensor that is missing or of another shape or type, and
  /// `source`.
  void restore(const std::map<std::string, at::Tensor>& state, std::int64_t updates, const std::string& source);

 private:
  [[noreturn]] void report_norm(double norm) const;

  std::vector<NamedParameter> parameters_;
  AdamWOptions options_;
  std::vector<at::Tensor> first_;
  std::vector<at::Tensor> second_;
  std::vector<at::Tensor> counts_;  // float32 scalars: the type that the fused operator reads on every device
  std::int64_t updates_ = 0;
};

}  // namespace torsor
