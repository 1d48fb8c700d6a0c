// The door from tensors to the fused kernel, and the way back for gradients.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "torsor/attention/core.h"
#include "torsor/attention/lower.h"
#include "torsor/base/error.h"
#include "torsor/kernel/attention.h"

// at::parallel_for is a template: compiled without the threads that libtorch uses it would run in one.
#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "compile for OpenMP, as Torsor::torch asks for"
#endif

namespace torsor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernel::Run run_here() {
  kernel::Run run;
  run.threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  run.executor = [](std::int64_t begin, std::int64_t end, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body) {
    at::parallel_for(begin, end, grain, [&](std::int64_t first, std::int64_t last) { body(first, last); });
  };
  return run;
}

struct Held : public torch::CustomClassHolder {
  std::shared_ptr<const Lowered> lowered;
  std::vector<at::ScalarType> types;  ///< of the parts as they came, and so of their gradients
  bool trained = false;               ///< somebody may ask for a gradient
};

/// What backward() needs again, in the order in which it is saved.
struct Saved {
  at::Tensor q, k, v, out, lse, averages;
  std::vector<at::Tensor> parts;
  static constexpr std::size_t own = 6;

  variable_list list() const {
    variable_list all = {q, k, v, out, lse, averages};
    all.insert(all.end(), parts.begin(), parts.end());
    return all;
  }
  static Saved from(const variable_list& all) {
    return {all[0], all[1], all[2], all[3], all[4], all[5], {all.begin() + own, all.end()}};
  }
};

/// Tokens before heads, as q is cut from a projection: what is projected next needs no copy then.
at::Tensor empty_result(const at::Tensor& q, std::int64_t channels, at::ScalarType type) {
  return at::empty({q.size(0), q.size(2), q.size(1), channels}, q.options().dtype(type)).transpose(1, 2);
}

/// Inputs: the call, then q, k, v and its parts. Results: out, lse and, where something is carried, the averages.
struct FusedAttention : public torch::autograd::Function<FusedAttention> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Held>& held, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v, at::TensorList parts) {
    Saved saved;
    variable_list outputs = results_of(*held, q, k, v, parts, saved);
    context->save_for_backward(saved.list());
    context->saved_data["held"] = c10::IValue::make_capsule(held);
    context->set_materialize_grads(false);
    return outputs;
  }

  static variable_list results_of(Held& held, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  at::TensorList parts, Saved& saved) {
    const Lowered& lowered = *held.lowered;
    saved = {with_unit_stride(q), with_unit_stride(k), with_unit_stride(v), {}, {}, {}, {}};
    for (std::size_t n = 0; n < parts.size(); ++n) {
      held.types.push_back(parts[n].scalar_type());
      saved.parts.push_back(parts[n].to(lowered.types[n]));
    }
    const kernel::Attention call = call_of(lowered, saved.q, saved.k, saved.v, saved.parts);
    // Gradients take the product of out and its gradient from others that it nearly cancels: in bfloat16 too they need
    // it unrounded.
    saved.out = empty_result(q, v.size(3), held.trained ? at::kFloat : q.scalar_type());
    saved.lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    kernel::Results results;
    results.out = output_of(saved.out);
    results.lse = saved.lse.data_ptr<float>();
    if (lowered.carried) {
      saved.averages = empty_result(q, call.carried.width, at::kFloat);
      results.averages = output_of(saved.averages);
    }
    kernel::attention_forward(call, run_here(), results);
    variable_list outputs = {saved.out.to(q.scalar_type()), saved.lse};
    if (lowered.carried) outputs.push_back(saved.averages);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    if (at::GradMode::is_enabled())
      throw Error("attend: the fused path has no gradient of a gradient; choose Path::Reference");
    const Saved saved = Saved::from(context->get_saved_variables());
    const auto held = c10::static_intrusive_pointer_cast<Held>(context->saved_data["held"].toCapsule());
    const Lowered& lowered = *held->lowered;
    variable_list result(first_part_ + saved.parts.size());
    bool any = false;
    for (const at::Tensor& one : upstream) any = any || one.defined();
    if (!any) return result;

    kernel::Upstream given;
    given.out = input_of(saved.out);
    given.lse = saved.lse.const_data_ptr<float>();
    at::Tensor dout, dlse, daverages;  // alive until the kernel has run
    if (upstream[0].defined()) {
      dout = with_unit_stride(upstream[0]);
      given.dout = input_of(dout);
    }
    if (upstream[1].defined()) {
      dlse = upstream[1].contiguous();
      given.dlse = dlse.const_data_ptr<float>();
    }
    if (lowered.carried) given.averages = input_of(saved.averages);
    if (lowered.carried && upstream[2].defined()) {
      daverages = with_unit_stride(upstream[2]);
      given.daverages = input_of(daverages);
    }

    const kernel::Attention call = call_of(lowered, saved.q, saved.k, saved.v, saved.parts);
    const at::Tensor dq = at::empty_like(saved.q), dk = at::empty_like(saved.k), dv = at::empty_like(saved.v);
    kernel::Gradients gradients;
    gradients.q = output_of(dq), gradients.k = output_of(dk), gradients.v = output_of(dv);
    // Of the autograd inputs, q, k and v come first.
    const auto wanted = [&](std::size_t part) { return context->needs_input_grad(first_part_ - 1 + part); };
    std::vector<at::Tensor> dparts(saved.parts.size());
    const auto make = [&](std::size_t part, at::IntArrayRef shape) {
      dparts[part] = at::empty(shape, at::TensorOptions(at::kDouble));
      return dparts[part].data_ptr<double>();
    };
    bool trained = false;
    for (const LoweredBias& one : lowered.biases) {
      kernel::BiasGradient& gradient = gradients.biases.emplace_back();
      for (std::size_t n = 0; n < kSlots; ++n) {
        const Place part = one.parts[n];
        if (!part || !wanted(*part)) continue;
        const Slot slot = static_cast<Slot>(n);
        gradient_of(gradient, slot) = make(*part, gradient_shape(one, slot, saved.parts[*part], call.batch));
        trained = true;
      }
    }
    if (!trained) gradients.biases.clear();
    if (lowered.carried && wanted(*lowered.carried))
      gradients.carried = make(*lowered.carried, {call.batch, call.heads, call.keys, call.carried.width});
    kernel::attention_backward(call, run_here(), given, gradients);

    if (lowered.query_scale && wanted(*lowered.query_scale)) {
      // The gradient of q holds the factor, and q times it is the factor times that of the factor.
      const at::Tensor both = (saved.q.to(at::kDouble) * dq.to(at::kDouble)).sum(-1).transpose(0, 1);
      dparts[*lowered.query_scale] = both / saved.parts[*lowered.query_scale].to(at::kDouble);
    }
    result[1] = dq, result[2] = dk, result[3] = dv;
    for (std::size_t n = 0; n < dparts.size(); ++n)
      if (dparts[n].defined())
        result[first_part_ + n] = summed_to(dparts[n], saved.parts[n].sizes()).to(held->types[n]);
    return result;
  }

 private:
  static constexpr std::size_t first_part_ = 4;  // among the arguments of forward(): the call, q, k, v
};

}  // namespace

std::optional<Attended> fused_attention(const CoreInput& input) {
  const std::optional<LoweredCall> call = lower(input);
  if (!call) return {};
  auto held = c10::make_intrusive<Held>();
  held->lowered = call->lowered;
  const auto trained = [](const at::Tensor& tensor) { return tensor.requires_grad(); };
  held->trained = at::GradMode::is_enabled() && (trained(input.q) || trained(input.k) || trained(input.v) ||
                                                 std::any_of(call->parts.begin(), call->parts.end(), trained));
  variable_list results;
  if (at::GradMode::is_enabled()) {
    results = FusedAttention::apply(held, input.q, input.k, input.v, at::TensorList(call->parts));
  } else {
    Saved unused;
    results = FusedAttention::results_of(*held, input.q, input.k, input.v, call->parts, unused);
  }
  Attended attended;
  attended.out = results[0];
  if (input.need_lse) attended.lse = results[1];
  if (input.carried) attended.averages = results[2];
  return attended;
}

}  // namespace torsor
