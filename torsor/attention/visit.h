// Every tensor of a core call that a gradient may flow through, in one order.
#pragma once

#include <memory>
#include <type_traits>
#include <variant>

#include "torsor/attention/core.h"

namespace torsor {

/// The tensors of a factor but those of its base.
template <class F>
void visit_factor(FactorForm& form, const F& f) {
  f(form.left), f(form.right), f(form.beta), f(form.weight), f(form.level), f(form.pair_value);
}

/// Calls `f(at::Tensor&)` on the tensors of a form; some may be undefined. The base of a factor is copied first, since
/// it is shared, and so is the factor of a stretch.
template <class F>
void visit_form(BiasForm& bias, const F& f) {
  std::visit(
      [&](auto& form) {
        using Form = std::decay_t<decltype(form)>;
        if constexpr (std::is_same_v<Form, LinearForm>) {
          f(form.slope);
        } else if constexpr (std::is_same_v<Form, TableForm>) {
          f(form.table);
        } else if constexpr (std::is_same_v<Form, LogForm> || std::is_same_v<Form, PowerForm>) {
          f(form.r1), f(form.r2);
        } else if constexpr (std::is_same_v<Form, CosineForm>) {
          f(form.frequency), f(form.weight);
        } else if constexpr (std::is_same_v<Form, PiecewiseForm>) {
          f(form.w1), f(form.b1), f(form.w2), f(form.b2), f(form.c), f(form.mu);
        } else if constexpr (std::is_same_v<Form, PotentialForm> || std::is_same_v<Form, ProductForm>) {
          f(form.query), f(form.key);
        } else if constexpr (std::is_same_v<Form, GatedForm>) {
          f(form.omega), f(form.query), f(form.key);
        } else if constexpr (std::is_same_v<Form, PathForm>) {
          f(form.query), f(form.key), f(form.alpha);
        } else if constexpr (std::is_same_v<Form, ContentForm>) {
          f(form.query), f(form.table);
        } else if constexpr (std::is_same_v<Form, StretchForm>) {
          auto factor = std::make_shared<FactorForm>(*form.factor);
          visit_factor(*factor, f);
          form.factor = factor;
          f(form.query), f(form.key), f(form.frequency);
        } else {
          static_assert(std::is_same_v<Form, FactorForm>);
          auto base = std::make_shared<BiasForm>(*form.base);
          visit_form(*base, f);
          form.base = base;
          visit_factor(form, f);
        }
      },
      bias.form);
}

/// The same for a whole call.
template <class F>
void visit_tensors(CoreInput& input, const F& f) {
  f(input.q), f(input.k), f(input.v);
  for (LogitScale& scale : input.logit_scales) f(scale.query);
  for (Decay& decay : input.decays) f(decay.rate);
  for (BiasForm& bias : input.biases) visit_form(bias, f);
  if (input.carried) f(input.carried->values);
}

}  // namespace torsor
