#include "torsor/model/parameters.h"

#include <algorithm>
#include <utility>

#include "torsor/base/random.h"

namespace torsor {

bool is_positional(const std::string& parameter) {
  return parameter.rfind("model.position.", 0) == 0 || parameter.find(".self_attn.position.") != std::string::npos;
}

at::Tensor drawn_tensor(const std::string& name, const std::vector<std::int64_t>& shape, const Initial& initial,
                        std::uint64_t seed) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  float* values = tensor.data_ptr<float>();
  const std::size_t count = static_cast<std::size_t>(tensor.numel());
  switch (initial.kind) {
    case Initial::Kind::Constant:
      tensor.fill_(initial.a);
      break;
    case Initial::Kind::Uniform:
      fill_uniform(values, count, initial.a, initial.b, seed, stream_of(name));
      break;
    case Initial::Kind::Normal:
      fill_normal(values, count, initial.a, initial.b, seed, stream_of(name));
      break;
    case Initial::Kind::Values:
      if (initial.values.size() != count)
        throw Error(str("model: ", initial.values.size(), " initial values for ", name, " of ", count));
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(initial.values[i]);
      break;
  }
  return tensor;
}

Initial normal_initial(double deviation) { return {Initial::Kind::Normal, 0, deviation, {}}; }
Initial constant_initial(double value) { return {Initial::Kind::Constant, value, 0, {}}; }

Declare drawn_parameters(std::vector<ModelParameter>& list, std::uint64_t seed) {
  return [&list, seed](const std::string& name, const std::vector<std::int64_t>& shape, const Initial& initial,
                       bool decay) {
    at::Tensor tensor = drawn_tensor(name, shape, initial, seed);
    list.push_back({name, tensor, decay});
    return tensor;
  };
}

Declare given_parameters(std::vector<ModelParameter>& list, const std::map<std::string, at::Tensor>& weights,
                         const std::string& source, std::optional<std::uint64_t> draw_seed,
                         std::function<bool(const std::string&)> may_draw) {
  return [&list, &weights, source, draw_seed, may_draw = std::move(may_draw)](
             const std::string& name, const std::vector<std::int64_t>& shape, const Initial& initial, bool decay) {
    const auto found = weights.find(name);
    if (found == weights.end() && draw_seed && (is_positional(name) || (may_draw && may_draw(name)))) {
      list.push_back({name, drawn_tensor(name, shape, initial, *draw_seed), decay});
      return list.back().tensor;
    }
    if (found == weights.end()) throw Error(str(source, ": the tensor ", name, " is missing"));
    if (found->second.sizes() != at::IntArrayRef(shape))
      throw Error(str(source, ": the tensor ", name, " must have shape ", at::IntArrayRef(shape), ", found ",
                      found->second.sizes()));
    if (!found->second.is_floating_point())
      throw Error(str(source, ": the tensor ", name, " must hold real numbers, found ", found->second.scalar_type()));
    if (!at::isfinite(found->second).all().item<bool>())
      throw Error(str(source, ": the tensor ", name, " holds numbers that are not finite"));
    at::Tensor tensor = found->second.to(at::kFloat).contiguous();
    list.push_back({name, tensor, decay});
    return tensor;
  };
}

void check_no_others(const std::vector<ModelParameter>& list, const std::map<std::string, at::Tensor>& weights,
                     const std::string& source) {
  for (const auto& [name, tensor] : weights) {
    const bool known =
        std::any_of(list.begin(), list.end(), [&](const ModelParameter& one) { return one.name == name; });
    if (!known) throw Error(str(source, ": the tensor ", name, " has no place in the model"));
  }
}

void convert_parameters(std::vector<ModelParameter>& list, at::ScalarType dtype) {
  if (dtype != at::kFloat && dtype != at::kDouble)
    throw UsageError(str("model: weights are float32 or float64, found ", dtype));
  for (ModelParameter& parameter : list) parameter.tensor.set_data(parameter.tensor.detach().to(dtype));
}

std::int64_t count_parameters(const std::vector<ModelParameter>& list) {
  std::int64_t count = 0;
  for (const ModelParameter& parameter : list) count += parameter.tensor.numel();
  return count;
}

}  // namespace torsor
