// The trained tensors of a model: how they are named, how they start, and where they come from.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "torsor/encoding/encoding.h"
#include "torsor/model/config.h"

namespace torsor {

/// One trained tensor of a model.
struct ModelParameter {
  std::string name;  ///< Hugging Face's Llama names; positional tensors as model[.layers.N.self_attn].position.NAME
  at::Tensor tensor;
  bool decay = true;  ///< weight decay applies
};

/// Whether a tensor's name is that of one of the encoding's.
bool is_positional(const std::string& parameter);

/// A tensor as a model's first weights have it: `name` is that of the parameter, whose stream of `seed` it is drawn
/// from.
at::Tensor drawn_tensor(const std::string& name, const std::vector<std::int64_t>& shape, const Initial& initial,
                        std::uint64_t seed);

/// Normal around 0; all ones; all zeros.
Initial normal_initial(double deviation);
Initial constant_initial(double value);

/// Gives a model the tensors that it declares, one after the other, and lists them.
using Declare = std::function<at::Tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                                         const Initial& initial, bool decay)>;

/// Tensors drawn from `seed`, each from a stream of its own name, appended to `list`.
Declare drawn_parameters(std::vector<ModelParameter>& list, std::uint64_t seed);

/// Tensors of `weights`; with `draw_seed`, positional ones that are missing are drawn, and so are those that `may_draw`
/// names. Shared where they are float32 and contiguous. Throws Error naming the tensor that is missing, of another
/// shape or type, or not finite; `source` names the file. `weights` must outlive the declaring.
Declare given_parameters(std::vector<ModelParameter>& list, const std::map<std::string, at::Tensor>& weights,
                         const std::string& source, std::optional<std::uint64_t> draw_seed,
                         std::function<bool(const std::string& name)> may_draw = {});

/// Throws Error for a tensor of `weights` that `list` has not.
void check_no_others(const std::vector<ModelParameter>& list, const std::map<std::string, at::Tensor>& weights,
                     const std::string& source);

/// Brings all tensors to float32 or float64, in place. Throws UsageError for another dtype.
void convert_parameters(std::vector<ModelParameter>& list, at::ScalarType dtype);

std::int64_t count_parameters(const std::vector<ModelParameter>& list);

}  // namespace torsor
