#include "torsor/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

constexpr const char* first_prefix = "first_moment.";
constexpr const char* second_prefix = "second_moment.";
constexpr const char* count_prefix = "updates.";

void check_parameter(const NamedParameter& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  const auto refuse = [&](const std::string& why) {
    throw Error(str("parameter '", parameter.name, "' cannot be trained: ", why));
  };
  if (!tensor.defined()) refuse("it is undefined");
  if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble) {
    refuse(str("expected float32 or float64, got ", describe_tensor(tensor)));
  }
  if (!tensor.is_leaf() || !tensor.requires_grad()) refuse("it is no leaf that requires a gradient");
  if (!tensor.is_contiguous()) refuse(str("it is not contiguous: ", describe_tensor(tensor)));
}

}  // namespace

void check_adamw_options(const AdamWOptions& options) {
  const auto check_beta = [](const char* name, double beta) {
    if (!(beta >= 0 && beta < 1)) throw UsageError(str(name, " must lie in [0, 1), got ", beta));
  };
  const auto check_size = [](const char* name, double value) {
    if (!(value >= 0) || !std::isfinite(value)) {
      throw UsageError(str(name, " must be finite and at least 0, got ", value));
    }
  };
  check_beta("beta1", options.beta1);
  check_beta("beta2", options.beta2);
  check_size("epsilon", options.epsilon);
  check_size("weight_decay", options.weight_decay);
}

AdamW::AdamW(std::vector<NamedParameter> parameters, const AdamWOptions& options)
    : parameters_(std::move(parameters)), options_(options) {
  check_adamw_options(options_);
  std::map<std::string, std::size_t> names;
  std::map<const void*, std::string> owners;
  for (const NamedParameter& parameter : parameters_) {
    check_parameter(parameter);
    if (!names.emplace(parameter.name, names.size()).second) {
      throw Error(str("parameter '", parameter.name, "' is given twice"));
    }
    // A tied tensor that is listed twice would be updated twice a step.
    if (parameter.tensor.numel() != 0) {
      const auto [owner, fresh] = owners.emplace(parameter.tensor.const_data_ptr(), parameter.name);
      if (!fresh) {
        throw Error(str("parameters '", owner->second, "' and '", parameter.name, "' share their memory: give one"));
      }
    }
    first_.push_back(at::zeros_like(parameter.tensor.detach()));
    second_.push_back(at::zeros_like(parameter.tensor.detach()));
    counts_.push_back(at::zeros({}, parameter.tensor.detach().options().dtype(at::kFloat)));
  }
}

void AdamW::zero_gradients() {
  for (NamedParameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

double AdamW::clip_gradients(double limit) {
  if (!(limit > 0)) throw UsageError(str("clip_norm must be above 0, got ", limit));
  const at::NoGradGuard no_grad;
  // One list for each device and type: what the multi-tensor operators ask for.
  std::map<std::pair<at::Device, at::ScalarType>, std::vector<at::Tensor>, decltype([](const auto& a, const auto& b) {
             return std::tuple(a.first.type(), a.first.index(), a.second) <
                    std::tuple(b.first.type(), b.first.index(), b.second);
           })>
      groups;
  for (const NamedParameter& parameter : parameters_) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined() && gradient.numel() != 0) {
      groups[{gradient.device(), gradient.scalar_type()}].push_back(gradient);
    }
  }
  double squares = 0;
  for (auto& [key, gradients] : groups) {
    const at::Tensor norms = at::stack(at::_foreach_norm(gradients)).to(at::kDouble);
    squares += norms.square().sum().item<double>();
  }
  const double norm = std::sqrt(squares);
  if (!std::isfinite(norm)) report_norm(norm);
  const double factor = limit / (norm + 1e-6);
  if (factor < 1) {
    for (auto& [key, gradients] : groups) at::_foreach_mul_(gradients, factor);
  }
  return norm;
}

void AdamW::report_norm(double norm) const {
  const std::string where =
      str("step ", updates_ + 1, ": the norm of the gradients is ", std::isnan(norm) ? "nan" : "inf");
  for (const NamedParameter& parameter : parameters_) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined() && !at::isfinite(gradient).all().item<bool>()) {
      throw Error(str(where, ": first in parameter '", parameter.name, "'"));
    }
  }
  throw Error(str(where, ": the gradients are finite but too large to square"));
}

void AdamW::update(double learning_rate) {
  const at::NoGradGuard no_grad;
  struct Group {
    std::vector<at::Tensor> weights, gradients, first, second, counts;
  };
  using Key = std::tuple<at::DeviceType, at::DeviceIndex, at::ScalarType, bool>;
  std::map<Key, Group> groups;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const NamedParameter& parameter = parameters_[i];
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    Group& group = groups[{parameter.tensor.device().type(), parameter.tensor.device().index(),
                           parameter.tensor.scalar_type(), parameter.decay}];
    group.weights.push_back(parameter.tensor);
    // The CPU operator walks the memory of the gradient as if it were contiguous, whatever its strides.
    group.gradients.push_back(gradient.contiguous());
    group.first.push_back(first_[i]);
    group.second.push_back(second_[i]);
    group.counts.push_back(counts_[i]);
  }
  if (groups.empty()) throw Error(str("step ", updates_ + 1, ": no parameter has a gradient"));
  for (auto& [key, group] : groups) {
    at::_foreach_add_(group.counts, 1);
    at::_fused_adamw_(group.weights, group.gradients, group.first, group.second, /*max_exp_avg_sqs=*/{}, group.counts,
                      learning_rate, options_.beta1, options_.beta2, std::get<3>(key) ? options_.weight_decay : 0,
                      options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
  }
  ++updates_;
}

std::map<std::string, at::Tensor> AdamW::state() const {
  std::map<std::string, at::Tensor> result;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    result.emplace(first_prefix + parameters_[i].name, first_[i]);
    result.emplace(second_prefix + parameters_[i].name, second_[i]);
    result.emplace(count_prefix + parameters_[i].name, counts_[i]);
  }
  return result;
}

void AdamW::restore(const std::map<std::string, at::Tensor>& state, std::int64_t updates, const std::string& source) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, target] : this->state()) {
    copies.emplace_back(target, find_tensor(state, name, target, source));
  }
  for (auto& [target, value] : copies) target.copy_(value);
  updates_ = updates;
}

}  // namespace torsor
