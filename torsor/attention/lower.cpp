#include "torsor/attention/lower.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "torsor/attention/distances.h"
#include "torsor/attention/evaluate.h"
#include "torsor/attention/plain.h"
#include "torsor/attention/visit.h"
#include "torsor/encoding/bias/bucket.h"

namespace torsor {
namespace {

const std::int64_t* integers(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<std::int64_t>() : nullptr;
}

/// Positions as far as rows differ, (B|1, T).
at::Tensor distinct_rows(const at::Tensor& positions) {
  return positions.size(0) > 1 && positions.stride(0) == 0 ? positions.narrow(0, 0, 1) : positions;
}

bool reads_positions(const BiasForm& bias) {
  if (const FactorForm* factor = std::get_if<FactorForm>(&bias.form)) return reads_positions(*factor->base);
  return !std::holds_alternative<PotentialForm>(bias.form) && !std::holds_alternative<PathForm>(bias.form) &&
         !std::holds_alternative<ProductForm>(bias.form);
}

/// Whether every tensor of the call can be read in place and holds finite numbers. What q, k, v and the carried values
/// hold only matters to gradients: without them the kernel keeps what is not finite to the queries that see it, as the
/// reference path does, and looking through a long cache for each new token would cost as much as attending to it.
bool is_readable(const CoreInput& input) {
  bool plain = true, trained = false;
  CoreInput copy = input;
  visit_tensors(copy, [&](const at::Tensor& tensor) {
    plain = plain && (!tensor.defined() || is_plain(tensor));
    trained = trained || (tensor.defined() && tensor.requires_grad());
  });
  if (!plain) return false;
  const auto finite = [](const at::Tensor& tensor) { return !tensor.defined() || all_finite(tensor); };
  if (at::GradMode::is_enabled() && trained) {
    bool all = true;
    visit_tensors(copy, [&](const at::Tensor& tensor) { all = all && finite(tensor); });
    return all;
  }
  bool all = true;
  for (LogitScale& scale : copy.logit_scales) all = all && finite(scale.query);
  for (BiasForm& bias : copy.biases) visit_form(bias, [&](const at::Tensor& tensor) { all = all && finite(tensor); });
  return all;
}

/// Breaks of a ReLU network of one input u >= 0, and which units count in each of the pieces between them.
struct Pieces {
  at::Tensor breaks;  ///< (pieces - 1) float64, ascending; the first is 0
  at::Tensor active;  ///< (pieces, hidden) float64: 1 or 0
};

/// The first piece is the point u = 0 alone, where relu'(0) = 0 leaves out the units that start there: distances of 0
/// are common, and a gradient must not depend on which neighbour they fall to.
Pieces pieces_of(const at::Tensor& w1, const at::Tensor& b1) {
  const at::NoGradGuard constant;   // the function is continuous: moving a break changes nothing
  const at::Tensor own = -b1 / w1;  // where a unit starts or ends; not finite where it never does
  const at::Tensor inner = own.masked_select(own.gt(0).logical_and(at::isfinite(own)));
  Pieces pieces;
  pieces.breaks = std::get<0>(at::_unique(at::cat({at::zeros({1}, own.options()), inner})));
  const std::int64_t count = pieces.breaks.size(0);
  const at::Tensor low = pieces.breaks.unsqueeze(1);  // of the pieces after the first
  const at::Tensor infinite = at::full({1}, std::numeric_limits<double>::infinity(), own.options());
  const at::Tensor high = at::cat({pieces.breaks.narrow(0, 1, count - 1), infinite}).unsqueeze(1);
  const at::Tensor rises = w1.gt(0).logical_and(own.le(low)), falls = w1.lt(0).logical_and(own.ge(high));
  const at::Tensor level = w1.eq(0).logical_and(b1.gt(0));
  pieces.active =
      at::cat({b1.gt(0).unsqueeze(0), rises.logical_or(falls).logical_or(level)}).to(at::kDouble).contiguous();
  return pieces;
}

class Lowering {
 public:
  explicit Lowering(const CoreInput& input) : input_(input), distances_(input) {}

  std::optional<LoweredCall> operator()() {
    kernel::Attention& call = lowered_->call;
    call.scale = static_cast<float>(input_.scale);
    const Mask& mask = input_.mask;
    call.visible.causal = mask.causal;
    call.visible.window = mask.window.value_or(0);
    call.visible.key_lengths = integers(hold(mask.key_lengths, at::kLong));
    call.visible.offsets = integers(hold(mask.offsets, at::kLong));
    call.visible.query_documents = integers(hold(mask.query_documents, at::kLong));
    call.visible.key_documents = integers(hold(mask.key_documents, at::kLong));
    if (!input_.logit_scales.empty() && !lower_scales()) return {};
    if (input_.carried && !lower_carried(*input_.carried)) return {};
    for (const BiasForm& bias : input_.biases) {
      LoweredBias one;
      heads_ = bias.heads;
      one.bias.first_head = bias.heads.begin;
      one.bias.last_head = bias.heads.end;
      if (!std::visit([&](const auto& form) { return lower_form(form, one); }, bias.form)) return {};
      lowered_->biases.push_back(one);
    }
    return LoweredCall{lowered_, std::move(parts_)};
  }

 private:
  // Every lower_form() fills in the bias, or says that the kernel has no form for it.

  bool lower_form(const LinearForm& form, LoweredBias& one) {
    if (lower_to_table(form, one, needs_gradient(form.slope) ? at::kDouble : at::kFloat)) return true;
    kernel::Slope slope;
    slope.positions = positions();
    one.bias.form = slope;
    add(one, Slot::Slope, form.slope);
    return true;
  }

  bool lower_form(const TableForm& form, LoweredBias& one) {
    // Entries are copied: float64 only serves their gradients, which are sums over many distances.
    const at::ScalarType type = needs_gradient(form.table) ? at::kDouble : at::kFloat;
    if (lower_to_table(form, one, type)) return true;
    const Distances::Range seen = distances_.range();
    double least = std::nearbyint(seen.least), most = std::nearbyint(seen.most);
    if (form.rule.far != Buckets::Far::Wrap) {
      // Beyond the last bucket's bound nothing changes, and the kernel reads the nearest entry.
      const std::vector<double> bounds = bucket_bounds(form.rule);
      const double last = bounds.empty() ? 0 : bounds.back(), first = form.rule.bidirectional ? -last : 0;
      least = std::clamp(least, first, last);
      most = std::clamp(most, first, last);
    }
    if (most - least >= static_cast<double>(4 * (input_.q.size(2) + input_.k.size(2)) + 65536)) return false;
    kernel::DistanceLookup lookup;
    lookup.most = static_cast<std::int64_t>(most);
    lookup.count = static_cast<std::int64_t>(most - least) + 1;
    lookup.positions = positions();
    one.bias.form = lookup;
    add(one, Slot::Table, falling_values(form, lookup.most, lookup.most - lookup.count + 1, type));
    return true;
  }

  bool lower_form(const LogForm& form, LoweredBias& one) { return lower_curve(form, kernel::Curve::Kind::Log, one); }
  bool lower_form(const PowerForm& form, LoweredBias& one) {
    return lower_curve(form, kernel::Curve::Kind::Power, one);
  }

  bool lower_form(const CosineForm& form, LoweredBias& one) {
    if (lower_to_table(form, one, at::kDouble)) return true;
    // cos((p - r) w) = cos(p w) cos(r w) + sin(p w) sin(r w), with phases in float64.
    const auto waves = [&](const at::Tensor& positions) {
      const at::Tensor phase =
          (distinct_rows(positions).unsqueeze(2) * form.frequency.to(at::kDouble)).unsqueeze(1);  // (B|1, 1, T, F)
      return at::cat({phase.cos(), phase.sin()}, 3);
    };
    const at::Tensor weight = form.weight.to(at::kDouble).view({1, -1, 1, 1});
    return lower_form(ProductForm{(waves(input_.query_positions) * weight).expand({-1, heads_.size(), -1, -1}),
                                  waves(input_.key_positions)},
                      one);
  }

  bool lower_form(const PiecewiseForm& form, LoweredBias& one) {
    const at::Tensor w1 = form.w1.to(at::kDouble), b1 = form.b1.to(at::kDouble), w2 = form.w2.to(at::kDouble);
    const at::Tensor c = form.c.to(at::kDouble), mu = form.mu.to(at::kDouble);
    const Pieces pieces = pieces_of(w1, b1);
    const at::Tensor own = distances_.query_positions(), threshold = (mu * form.length).abs();
    const at::Tensor longest = at::maximum(own, threshold.expand_as(own));
    const at::Tensor reach = (at::log1p((c * longest).abs()) + form.epsilon).unsqueeze(1);  // (B, 1, Tq)
    if (!reach.gt(0).all().item<bool>()) return false;
    kernel::Piecewise piecewise;
    piecewise.breaks = hold(pieces.breaks, at::kDouble).const_data_ptr<double>();
    piecewise.pieces = pieces.active.size(0);
    piecewise.positions = positions();
    if (distances_.whole().defined()) piecewise.first_distance = integers(hold(distances_.whole(), at::kLong));
    one.bias.form = piecewise;
    add(one, Slot::Slope, at::matmul(w2, (pieces.active * w1).t()), at::kDouble);  // (H, pieces)
    add(one, Slot::Level, at::matmul(w2, (pieces.active * b1).t()) + form.b2.to(at::kDouble).unsqueeze(1), at::kDouble);
    add(one, Slot::C, c, at::kDouble);
    add(one, Slot::Reach, reach, at::kDouble);
    return true;
  }

  bool lower_form(const PotentialForm& form, LoweredBias& one) {
    kernel::Potential potential;
    potential.query_strides = side_strides(add(one, Slot::Query, form.query, at::kDouble));
    potential.key_strides = side_strides(add(one, Slot::Key, form.key, at::kDouble));
    one.bias.form = potential;
    return true;
  }

  bool lower_form(const GatedForm& form, LoweredBias& one) {
    if (!form.query.defined() && !form.key.defined()) return false;  // an error of the reference path
    refuse_negative(kGatedName);
    kernel::Gated gated;
    gated.positions = positions();
    const at::Tensor omega = form.omega.to(at::kDouble).view({1, -1, 1});
    if (form.query.defined()) gated.query_strides = side_strides(add(one, Slot::Query, omega * form.query));
    if (form.key.defined()) gated.key_strides = side_strides(add(one, Slot::Key, omega * form.key));
    one.bias.form = gated;
    return true;
  }

  bool lower_form(const PathForm& form, LoweredBias& one) {
    if (form.query.numel() == 0) return false;
    refuse_negative(kPathName);
    kernel::Path path;
    path.width = form.query.size(3);
    one.bias.form = path;
    add(one, Slot::Query, form.query.to(at::kFloat));
    add(one, Slot::Key, form.key.to(at::kFloat));
    add(one, Slot::Alpha, form.alpha);
    return true;
  }

  bool lower_form(const ProductForm& form, LoweredBias& one) {
    if (form.query.numel() == 0) return false;
    kernel::Product product;
    product.width = form.query.size(3);
    product.key_group = heads_.size() / form.key.size(1);
    one.bias.form = product;
    add(one, Slot::Query, form.query.to(at::kFloat));
    add(one, Slot::Key, form.key.to(at::kFloat));
    return true;
  }

  bool lower_form(const ContentForm&, LoweredBias&) { return false; }
  bool lower_form(const StretchForm&, LoweredBias&) { return false; }

  bool lower_form(const FactorForm& form, LoweredBias& one) {
    const auto& base = form.base->form;
    if (std::holds_alternative<FactorForm>(base) || std::holds_alternative<PathForm>(base)) return false;
    if (form.kind == FactorForm::Kind::Pairs || form.left.numel() == 0) return false;
    kernel::Factor factor;
    factor.width = form.left.size(3);
    switch (form.kind) {
      case FactorForm::Kind::Tag:
        factor.kind = kernel::Factor::Kind::Tag;
        if (form.tag.numel() == 0 || form.tag.max().item<std::int64_t>() >= factor.width) return false;
        factor.tags = integers(hold(marks(form.tag), at::kLong));
        break;
      case FactorForm::Kind::Tanh:
        factor.kind = kernel::Factor::Kind::Tanh;
        break;
      case FactorForm::Kind::Exp:
        factor.kind = kernel::Factor::Kind::Exp;
        factor.bound = static_cast<float>(form.bound);
        break;
      default:
        return false;
    }
    if (form.group_query.defined()) {
      factor.query_groups = integers(hold(marks(form.group_query), at::kLong));
      factor.key_groups = integers(hold(marks(form.group_key), at::kLong));
    }
    if (!std::visit([&](const auto& inner) { return lower_form(inner, one); }, base)) return false;
    one.bias.factor = factor;
    add(one, Slot::Left, form.left.to(at::kFloat));
    if (form.kind != FactorForm::Kind::Tag) add(one, Slot::Right, form.right.to(at::kFloat));
    if (form.kind == FactorForm::Kind::Tanh) add(one, Slot::Beta, form.beta);
    return true;
  }

  /// A function of the distance as one number a distance, where the positions allow it.
  template <class Form>
  bool lower_to_table(const Form& form, LoweredBias& one, at::ScalarType type) {
    const at::Tensor& first_distance = distances_.whole();
    if (!first_distance.defined()) return false;
    kernel::DistanceTable table;
    table.first_distance = integers(hold(first_distance, at::kLong));
    table.most = first_distance.max().item<std::int64_t>() + input_.q.size(2) - 1;
    std::int64_t least = first_distance.min().item<std::int64_t>() - input_.k.size(2) + 1;
    const Mask& mask = input_.mask;
    if (mask.causal && !mask.offsets.defined() && !mask.key_lengths.defined())  // no query sees a key behind its own
      least = std::max(least, first_distance.min().item<std::int64_t>() - input_.k.size(2) + input_.q.size(2));
    table.count = table.most - least + 1;
    // Falling: what a query's row of scores adds then lies in the order of the keys.
    one.bias.form = table;
    add(one, Slot::Table, falling_values(form, table.most, table.most - table.count + 1, type));
    return true;
  }

  /// (H, most - least + 1): the form at the distances from `most` down to `least`.
  template <class Form>
  at::Tensor falling_values(const Form& form, std::int64_t most, std::int64_t least, at::ScalarType type) const {
    const auto at_distances = [&](const at::Tensor& n) { return evaluate_at_distances({heads_, form}, n, type); };
    const at::TensorOptions wide(at::kDouble);
    if (std::is_same_v<Form, TableForm> || least >= 0 || most <= 0)
      return at_distances(static_cast<double>(most) - at::arange(most - least + 1, wide));
    // A function of |n|: most of a square call's distances are there with both signs.
    const at::Tensor values = at_distances(at::arange(std::max(most, -least) + 1, wide));
    return at::cat({values.narrow(1, 0, most + 1).flip(1), values.narrow(1, 1, -least)}, 1);
  }

  template <class Form>
  bool lower_curve(const Form& form, kernel::Curve::Kind kind, LoweredBias& one) {
    if (lower_to_table(form, one, at::kDouble)) return true;
    kernel::Curve curve;
    curve.kind = kind;
    curve.positions = positions();
    one.bias.form = curve;
    add(one, Slot::R1, form.r1);
    add(one, Slot::R2, form.r2);
    return true;
  }

  /// One factor a query, (H, B, Tq). Its gradient is that of q divided by it, so a trained factor must not be 0.
  bool lower_scales() {
    const std::int64_t batch = input_.q.size(0), heads = input_.q.size(1), queries = input_.q.size(2);
    const at::TensorOptions wide(at::kDouble);
    at::Tensor product = at::ones({heads, batch, queries}, wide);
    for (const LogitScale& scale : input_.logit_scales)
      product = product * at::cat({at::ones({scale.heads.begin, batch, queries}, wide),
                                   scale.query.to(at::kDouble).expand({scale.heads.size(), batch, queries}),
                                   at::ones({heads - scale.heads.end, batch, queries}, wide)});
    if (product.requires_grad() && product.eq(0).any().item<bool>()) return false;
    lowered_->query_scale = add_part(product, at::kFloat);
    return true;
  }

  bool lower_carried(const Carried& carried) {
    if (carried.values.numel() == 0) return false;
    lowered_->call.carried.width = carried.values.size(3);
    lowered_->call.carried.group = input_.q.size(1) / carried.values.size(1);
    lowered_->carried = add_part(carried.values.to(at::kFloat), at::kFloat);
    return true;
  }

  void refuse_negative(const char* what) {
    if (!negative_) negative_ = distances_.any_negative();
    if (*negative_) refuse_negative_distance(what);
  }

  /// Whole numbers of which only -1 is negative: any negative one stands for none.
  static at::Tensor marks(const at::Tensor& tensor) { return tensor.clamp_min(-1); }

  static bool needs_gradient(const at::Tensor& tensor) { return at::GradMode::is_enabled() && tensor.requires_grad(); }

  kernel::Positions positions() {
    const at::Tensor& query = hold(distances_.query_positions(), at::kDouble);
    const double* of_query = query.const_data_ptr<double>();
    return {of_query, hold(distances_.key_positions(), at::kDouble).const_data_ptr<double>()};
  }

  static std::array<std::int64_t, 2> side_strides(const at::Tensor& side) {
    return {side.size(0) == 1 ? 0 : side.stride(0), side.stride(1)};
  }

  /// Keeps a constant for the kernel to point at, contiguous.
  at::Tensor hold(const at::Tensor& tensor, at::ScalarType type) {
    if (!tensor.defined()) return tensor;
    lowered_->held.push_back(tensor.detach().to(type).contiguous());
    return lowered_->held.back();
  }

  std::size_t add_part(const at::Tensor& tensor, at::ScalarType type) {
    // bfloat16 is widened outside the kernel call; float64 is rounded inside, see LoweredCall.
    at::Tensor part = tensor.scalar_type() == at::kDouble ? tensor : tensor.to(type);
    part = part.dim() == 4 ? with_unit_stride(part) : part.contiguous();
    parts_.push_back(part);
    lowered_->types.push_back(type);
    return parts_.size() - 1;
  }

  const at::Tensor& add(LoweredBias& one, Slot slot, const at::Tensor& tensor, at::ScalarType type = at::kFloat) {
    const std::size_t place = add_part(tensor, type);
    one.parts[static_cast<std::size_t>(slot)] = place;
    return parts_[place];
  }

  const CoreInput& input_;
  Distances distances_;
  HeadRange heads_;  // of the bias that is being lowered
  std::optional<bool> negative_;
  std::shared_ptr<Lowered> lowered_ = std::make_shared<Lowered>();
  std::vector<at::Tensor> parts_;
};

/// Parts of one bias, by slot.
class PartsOf {
 public:
  PartsOf(const LoweredBias& bias, at::ArrayRef<at::Tensor> parts) : bias_(bias), parts_(parts) {}
  bool has(Slot slot) const { return bias_.parts[static_cast<std::size_t>(slot)].has_value(); }
  const at::Tensor& operator[](Slot slot) const { return parts_[*bias_.parts[static_cast<std::size_t>(slot)]]; }
  const float* floats(Slot slot) const { return has(slot) ? (*this)[slot].const_data_ptr<float>() : nullptr; }
  const double* doubles(Slot slot) const { return has(slot) ? (*this)[slot].const_data_ptr<double>() : nullptr; }

  void point(kernel::DistanceTable& form) const { form.table = floats(Slot::Table); }
  void point(kernel::DistanceLookup& form) const { form.table = floats(Slot::Table); }
  void point(kernel::Slope& form) const { form.slope = floats(Slot::Slope); }
  void point(kernel::Curve& form) const { form.r1 = floats(Slot::R1), form.r2 = floats(Slot::R2); }
  void point(kernel::Piecewise& form) const {
    form.c = *doubles(Slot::C);
    form.reach = doubles(Slot::Reach);
    form.slope = doubles(Slot::Slope);
    form.level = doubles(Slot::Level);
  }
  void point(kernel::Potential& form) const { form.query = doubles(Slot::Query), form.key = doubles(Slot::Key); }
  void point(kernel::Gated& form) const { form.query = floats(Slot::Query), form.key = floats(Slot::Key); }
  void point(kernel::Path& form) const {
    form.query = input_of((*this)[Slot::Query]);
    form.key = input_of((*this)[Slot::Key]);
    form.alpha = floats(Slot::Alpha);
  }
  void point(kernel::Product& form) const {
    form.query = input_of((*this)[Slot::Query]);
    form.key = input_of((*this)[Slot::Key]);
  }
  void point(kernel::Factor& factor) const {
    factor.left = input_of((*this)[Slot::Left]);
    if (has(Slot::Right)) factor.right = input_of((*this)[Slot::Right]);
    factor.beta = floats(Slot::Beta);
  }

 private:
  const LoweredBias& bias_;
  at::ArrayRef<at::Tensor> parts_;
};

std::array<std::int64_t, 3> strides_of(const at::Tensor& tensor) {
  const auto of = [&](std::int64_t axis) { return tensor.size(axis) == 1 ? 0 : tensor.stride(axis); };
  return {of(0), of(1), of(2)};
}

}  // namespace

std::optional<LoweredCall> lower(const CoreInput& input) {
  const auto fits = [&](const at::Tensor& tensor) {
    const at::ScalarType type = tensor.scalar_type();
    return is_plain(tensor) && (type == at::kFloat || type == at::kBFloat16) && tensor.numel() > 0;
  };
  const at::ScalarType asking = input.q.scalar_type(), kept = input.k.scalar_type();
  if (input.v.scalar_type() != kept) return {};
  if (asking != kept) {
    // A cache in bfloat16 is read as it lies.
    const bool trained = input.q.requires_grad() || input.k.requires_grad() || input.v.requires_grad();
    if (asking != at::kFloat || (at::GradMode::is_enabled() && trained)) return {};
  }
  // A scale that is not finite would make every score NaN, those of hidden keys too.
  if (!fits(input.q) || !fits(input.k) || !fits(input.v) || !input.decays.empty() || !std::isfinite(input.scale))
    return {};
  for (const BiasForm& bias : input.biases) {
    if (!reads_positions(bias)) continue;
    if (input.query_positions.requires_grad() || input.key_positions.requires_grad() ||
        !all_finite(input.query_positions) || !all_finite(input.key_positions))
      return {};
    break;
  }
  if (!is_readable(input)) return {};
  return Lowering(input)();
}

at::Tensor with_unit_stride(const at::Tensor& tensor) {
  return tensor.size(-1) == 1 || tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

kernel::Input input_of(const at::Tensor& tensor) {
  kernel::Input input;
  input.strides = strides_of(tensor);
  if (tensor.scalar_type() == at::kBFloat16)
    input.half = static_cast<const kernel::BFloat16*>(tensor.const_data_ptr());
  else
    input.data = tensor.const_data_ptr<float>();
  return input;
}

kernel::Output output_of(const at::Tensor& tensor) {
  kernel::Output output;
  output.strides = strides_of(tensor);
  if (tensor.scalar_type() == at::kBFloat16)
    output.half = static_cast<kernel::BFloat16*>(tensor.data_ptr());
  else
    output.data = tensor.data_ptr<float>();
  return output;
}

kernel::Attention call_of(const Lowered& lowered, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          at::ArrayRef<at::Tensor> parts) {
  kernel::Attention call = lowered.call;
  call.batch = q.size(0), call.heads = q.size(1), call.key_heads = k.size(1);
  call.queries = q.size(2), call.keys = k.size(2), call.width = q.size(3), call.value_width = v.size(3);
  call.q = input_of(q), call.k = input_of(k), call.v = input_of(v);
  if (lowered.query_scale) call.query_scale = parts[*lowered.query_scale].const_data_ptr<float>();
  if (lowered.carried) call.carried.values = input_of(parts[*lowered.carried]);
  for (const LoweredBias& one : lowered.biases) {
    kernel::Bias bias = one.bias;
    const PartsOf own(one, parts);
    std::visit([&](auto& form) { own.point(form); }, bias.form);
    if (bias.factor) own.point(*bias.factor);
    call.biases.push_back(bias);
  }
  return call;
}

std::vector<std::int64_t> gradient_shape(const LoweredBias& bias, Slot slot, const at::Tensor& part,
                                         std::int64_t batch) {
  const std::int64_t heads = bias.bias.last_head - bias.bias.first_head;
  std::vector<std::int64_t> shape = part.sizes().vec();
  switch (slot) {
    case Slot::C:
      return {heads};
    case Slot::Reach:
    case Slot::Query:
    case Slot::Key:
    case Slot::Left:
    case Slot::Right:
      shape[0] = batch, shape[1] = heads;
      return shape;
    default:
      return shape;
  }
}

at::Tensor summed_to(const at::Tensor& gradient, at::IntArrayRef sizes) {
  at::Tensor sum = gradient;
  for (std::size_t n = 0; n < sizes.size(); ++n) {
    const auto axis = static_cast<std::int64_t>(n);
    if (sum.size(axis) != sizes[n]) sum = sum.unflatten(axis, {sizes[n], sum.size(axis) / sizes[n]}).sum(axis + 1);
  }
  return sum;
}

double*& gradient_of(kernel::BiasGradient& gradient, Slot slot) {
  using Member = double* kernel::BiasGradient::*;
  using G = kernel::BiasGradient;
  constexpr std::array<Member, kSlots> members = {&G::table, &G::slope, &G::level, &G::c,    &G::reach, &G::r1,  &G::r2,
                                                  &G::alpha, &G::query, &G::key,   &G::left, &G::right, &G::beta};
  return gradient.*members[static_cast<std::size_t>(slot)];
}

}  // namespace torsor
