// The door from tensors to the fused kernel: lowers a core call to plain pointers, and carries gradients back.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "torsor/attention/core.h"
#include "torsor/attention/evaluate.h"
#include "torsor/attention/plain.h"
#include "torsor/base/error.h"
#include "torsor/kernel/attention.h"

namespace torsor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A bias as the kernel takes it, with the places of its tensors among those that autograd sees.
struct LoweredBias {
  kernel::Bias::Kind kind = kernel::Bias::Kind::DistanceTable;
  HeadRange heads;
  std::int64_t most = 0;      ///< of a distance table
  at::Tensor first_distance;  ///< (B) int64
  std::size_t first = 0;      ///< its first tensor: the table or slope, or the query's side of a potential
};

/// A call without the tensors that gradients flow through. What is read by pointer is contiguous.
struct Lowered {
  double scale = 1;
  bool causal = true;
  std::int64_t window = 0;
  at::Tensor key_lengths, offsets, query_documents, key_documents;  ///< int64, or undefined
  at::Tensor query_positions, key_positions;                        ///< (B, T) float64
  at::Tensor query_scale;                                           ///< (H, B, Tq) float32, or undefined
  std::vector<LoweredBias> biases;
  std::vector<at::Tensor> parts;  ///< tensors of the biases
};

bool reads_positions(const BiasForm& bias) { return !std::holds_alternative<PotentialForm>(bias.form); }

at::Tensor contiguous(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? tensor.to(type).contiguous() : tensor;
}

/// What a row's positions are to the tokens that see each other: the distance of query i to key j is
/// first + i - j for every pair that the mask lets through, if there is such a number.
struct WholeSteps {
  bool found = true;               ///< false where there is no such number
  std::optional<double> distance;  ///< of the first query to the first key; none where nobody sees anything
};

/// Tokens that do not exist, and queries that see nothing, do not count: their positions may be anything.
WholeSteps whole_steps(const CoreInput& input, const double* query_positions, const double* key_positions,
                       const std::int64_t* query_documents, const std::int64_t* key_documents, std::int64_t row) {
  const std::int64_t queries = input.q.size(2), keys = input.k.size(2);
  const Mask& mask = input.mask;
  const std::int64_t length = mask.key_lengths.defined() ? mask.key_lengths[row].item<std::int64_t>() : keys;
  const std::int64_t offset = mask.offsets.defined() ? mask.offsets[row].item<std::int64_t>() : length - queries;
  std::map<std::int64_t, double> starts;  // of a document: position minus index, the same for all its keys
  for (std::int64_t j = 0; j < length; ++j) {
    const std::int64_t document = key_documents ? key_documents[row * keys + j] : 0;
    if (document == -1) continue;
    const double start = key_positions[row * keys + j] - static_cast<double>(j);
    if (const auto [place, fresh] = starts.emplace(document, start); !fresh && place->second != start)
      return {false, {}};
  }
  WholeSteps steps;
  for (std::int64_t i = 0; i < queries; ++i) {
    if (mask.causal && offset + i < 0) continue;
    const std::int64_t document = query_documents ? query_documents[row * queries + i] : 0;
    const auto place = starts.find(document);
    if (document == -1 || place == starts.end()) continue;
    const double distance = query_positions[row * queries + i] - static_cast<double>(i) - place->second;
    if (distance != std::round(distance) || steps.distance.value_or(distance) != distance) return {false, {}};
    steps.distance = distance;
  }
  return steps;
}

/// The distance of every row's first query to its first key, (B) int64, where every pair's distance follows from it;
/// undefined where positions do not step by one, are not whole, or lie so far apart that a table of all distances would
/// be larger than the sequences.
at::Tensor whole_distances(const CoreInput& input) {
  const std::int64_t batch = input.q.size(0), queries = input.q.size(2), keys = input.k.size(2);
  const at::Tensor query_positions = contiguous(input.query_positions, at::kDouble);
  const at::Tensor key_positions = contiguous(input.key_positions, at::kDouble);
  const at::Tensor query_documents = contiguous(input.mask.query_documents, at::kLong);
  const at::Tensor key_documents = contiguous(input.mask.key_documents, at::kLong);
  const auto documents = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.const_data_ptr<std::int64_t>() : nullptr;
  };
  std::vector<std::optional<double>> rows;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (std::int64_t row = 0; row < batch; ++row) {
    const WholeSteps steps =
        whole_steps(input, query_positions.const_data_ptr<double>(), key_positions.const_data_ptr<double>(),
                    documents(query_documents), documents(key_documents), row);
    if (!steps.found) return {};
    rows.push_back(steps.distance);
    if (!steps.distance) continue;
    least = std::min(least, *steps.distance);
    most = std::max(most, *steps.distance);
  }
  if (most - least > static_cast<double>(queries + keys) || std::abs(most) > 1e15) {
    if (most >= least) return {};
    least = most = 0;  // nobody sees anything
  }
  at::Tensor distances = at::empty({batch}, at::kLong);
  for (std::int64_t row = 0; row < batch; ++row)
    distances.data_ptr<std::int64_t>()[row] =
        static_cast<std::int64_t>(rows[static_cast<std::size_t>(row)].value_or(most));
  return distances;
}

std::shared_ptr<Lowered> lower(const CoreInput& input) {
  const std::int64_t batch = input.q.size(0), heads = input.q.size(1), queries = input.q.size(2);
  const std::int64_t keys = input.k.size(2);
  auto lowered = std::make_shared<Lowered>();
  lowered->scale = input.scale;
  lowered->causal = input.mask.causal;
  lowered->window = input.mask.window.value_or(0);
  lowered->key_lengths = contiguous(input.mask.key_lengths, at::kLong);
  lowered->offsets = contiguous(input.mask.offsets, at::kLong);
  lowered->query_documents = contiguous(input.mask.query_documents, at::kLong);
  lowered->key_documents = contiguous(input.mask.key_documents, at::kLong);
  if (!input.logit_scales.empty()) {
    const at::Tensor scale = at::ones({heads, batch, queries}, at::kDouble);
    for (const LogitScale& one : input.logit_scales)
      scale.narrow(0, one.heads.begin, one.heads.size()).mul_(one.query.to(at::kDouble).unsqueeze(0));
    lowered->query_scale = scale.to(at::kFloat);
  }
  at::Tensor first_distance;  // asked for once, and only by biases of the distance
  for (const BiasForm& bias : input.biases) {
    LoweredBias one;
    one.heads = bias.heads;
    one.first = lowered->parts.size();
    if (const PotentialForm* potential = std::get_if<PotentialForm>(&bias.form)) {
      one.kind = kernel::Bias::Kind::Potential;
      lowered->parts.push_back(contiguous(potential->query, at::kDouble));
      lowered->parts.push_back(contiguous(potential->key, at::kDouble));
      lowered->biases.push_back(one);
      continue;
    }
    if (!first_distance.defined()) first_distance = whole_distances(input);
    if (first_distance.defined()) {
      one.first_distance = first_distance;
      one.most = first_distance.max().item<std::int64_t>() + queries - 1;
      const std::int64_t least = first_distance.min().item<std::int64_t>() - keys + 1;
      // Falling: what a query's row of scores adds then lies in the order of the keys.
      const at::Tensor n =
          static_cast<double>(one.most) - at::arange(one.most - least + 1, input.query_positions.options());
      at::Tensor table = evaluate_at_distances(bias, n, at::kFloat);
      lowered->parts.push_back(table.contiguous());
    } else {
      one.kind = kernel::Bias::Kind::Slope;
      lowered->query_positions = contiguous(input.query_positions, at::kDouble);
      lowered->key_positions = contiguous(input.key_positions, at::kDouble);
      lowered->parts.push_back(contiguous(std::get<LinearForm>(bias.form).slope, at::kFloat));
    }
    lowered->biases.push_back(one);
  }
  return lowered;
}

const std::int64_t* integers(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<std::int64_t>() : nullptr;
}

kernel::Input input_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), {tensor.stride(0), tensor.stride(1), tensor.stride(2)}};
}
kernel::Output output_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), {tensor.stride(0), tensor.stride(1), tensor.stride(2)}};
}

/// Channels next to each other; other strides are free.
at::Tensor with_unit_stride(const at::Tensor& tensor) {
  return tensor.size(-1) == 1 || tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

kernel::Attention call_of(const Lowered& lowered, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          at::ArrayRef<at::Tensor> parts) {
  kernel::Attention call;
  call.batch = q.size(0), call.heads = q.size(1), call.key_heads = k.size(1);
  call.queries = q.size(2), call.keys = k.size(2), call.width = q.size(3), call.value_width = v.size(3);
  call.q = input_of(q), call.k = input_of(k), call.v = input_of(v);
  call.scale = static_cast<float>(lowered.scale);
  if (lowered.query_scale.defined()) call.query_scale = lowered.query_scale.const_data_ptr<float>();
  call.visible.causal = lowered.causal;
  call.visible.window = lowered.window;
  call.visible.key_lengths = integers(lowered.key_lengths);
  call.visible.offsets = integers(lowered.offsets);
  call.visible.query_documents = integers(lowered.query_documents);
  call.visible.key_documents = integers(lowered.key_documents);
  for (const LoweredBias& one : lowered.biases) {
    kernel::Bias bias;
    bias.kind = one.kind;
    bias.first_head = one.heads.begin;
    bias.last_head = one.heads.end;
    const at::Tensor& part = parts[one.first];
    switch (one.kind) {
      case kernel::Bias::Kind::DistanceTable:
        bias.distance_table = {part.const_data_ptr<float>(), one.most, part.size(1), integers(one.first_distance)};
        break;
      case kernel::Bias::Kind::Slope:
        bias.slope = {part.const_data_ptr<float>(), lowered.query_positions.const_data_ptr<double>(),
                      lowered.key_positions.const_data_ptr<double>()};
        break;
      case kernel::Bias::Kind::Potential: {
        const at::Tensor& key = parts[one.first + 1];
        const auto strides = [](const at::Tensor& side) {
          return std::array<std::int64_t, 2>{side.size(0) == 1 ? 0 : side.stride(0), side.stride(1)};
        };
        bias.potential = {part.const_data_ptr<double>(), key.const_data_ptr<double>(), strides(part), strides(key)};
        break;
      }
    }
    call.biases.push_back(bias);
  }
  return call;
}

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
  explicit Held(std::shared_ptr<Lowered> given) : lowered(std::move(given)) {}
  std::shared_ptr<Lowered> lowered;
};

struct FusedAttention : public torch::autograd::Function<FusedAttention> {
  static variable_list forward(AutogradContext* context, const std::shared_ptr<Lowered>& lowered, const at::Tensor& q0,
                               const at::Tensor& k0, const at::Tensor& v0, at::TensorList parts) {
    const at::Tensor q = with_unit_stride(q0), k = with_unit_stride(k0), v = with_unit_stride(v0);
    // Tokens before heads, as q is cut from a projection: what is projected next needs no copy then.
    const at::Tensor out = at::empty({q.size(0), q.size(2), q.size(1), v.size(3)}, q.options()).transpose(1, 2);
    const at::Tensor lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options());
    kernel::attention_forward(call_of(*lowered, q, k, v, parts), run_here(), output_of(out), lse.data_ptr<float>());
    variable_list saved = {q, k, v, out, lse};
    saved.insert(saved.end(), parts.begin(), parts.end());
    context->save_for_backward(saved);
    context->saved_data["lowered"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(lowered));
    context->set_materialize_grads(false);
    return {out, lse};
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    if (at::GradMode::is_enabled())
      throw Error("attend: the fused path has no gradient of a gradient; choose Path::Reference");
    const auto saved = context->get_saved_variables();
    const auto lowered = static_cast<Held*>(context->saved_data["lowered"].toCapsule().get())->lowered;
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &lse = saved[4];
    const at::ArrayRef<at::Tensor> parts = at::ArrayRef<at::Tensor>(saved).slice(5);
    variable_list result(4 + parts.size());
    if (!upstream[0].defined() && !upstream[1].defined()) return result;
    const at::Tensor dout = upstream[0].defined() ? with_unit_stride(upstream[0]) : at::zeros_like(out);
    const at::Tensor dlse = contiguous(upstream[1], at::kFloat);

    const kernel::Attention call = call_of(*lowered, q, k, v, parts);
    const at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    kernel::Gradients gradients{output_of(dq), output_of(dk), output_of(dv), {}};
    std::vector<at::Tensor> dparts(parts.size());
    bool trained = false;
    for (const at::Tensor& part : parts) trained = trained || part.requires_grad();
    if (trained)
      for (const LoweredBias& one : lowered->biases) {
        kernel::BiasGradient wanted;
        const auto make = [&](std::size_t n) -> double* {
          if (!parts[n].requires_grad()) return nullptr;
          std::vector<std::int64_t> shape = parts[n].sizes().vec();
          if (one.kind == kernel::Bias::Kind::Potential) shape[0] = q.size(0);
          dparts[n] = at::zeros(shape, at::kDouble);
          return dparts[n].data_ptr<double>();
        };
        if (one.kind == kernel::Bias::Kind::DistanceTable) wanted.table = make(one.first);
        if (one.kind == kernel::Bias::Kind::Slope) wanted.slope = make(one.first);
        if (one.kind == kernel::Bias::Kind::Potential) {
          wanted.query = make(one.first);
          wanted.key = make(one.first + 1);
        }
        gradients.biases.push_back(wanted);
      }
    kernel::attention_backward(call, run_here(), input_of(out), lse.const_data_ptr<float>(), input_of(dout),
                               dlse.defined() ? dlse.const_data_ptr<float>() : nullptr, gradients);
    result[1] = dq, result[2] = dk, result[3] = dv;
    for (std::size_t n = 0; n < parts.size(); ++n) {
      if (!dparts[n].defined()) continue;
      at::Tensor gradient = dparts[n];
      if (gradient.size(0) != parts[n].size(0)) gradient = gradient.sum(0, true);
      result[4 + n] = gradient.to(parts[n].scalar_type());
    }
    return result;
  }
};

bool has_form(const BiasForm& bias) {
  return std::holds_alternative<PotentialForm>(bias.form) || std::holds_alternative<LinearForm>(bias.form) ||
         std::holds_alternative<TableForm>(bias.form) || std::holds_alternative<LogForm>(bias.form) ||
         std::holds_alternative<PowerForm>(bias.form) || std::holds_alternative<CosineForm>(bias.form);
}

}  // namespace

bool fused_attention_applies(const CoreInput& input) {
  const auto fits = [](const at::Tensor& tensor) {
    return is_plain(tensor) && tensor.scalar_type() == at::kFloat && tensor.numel() > 0;
  };
  if (!fits(input.q) || !fits(input.k) || !fits(input.v) || !input.decays.empty() || input.carried) return false;
  for (const LogitScale& scale : input.logit_scales)
    if (scale.query.requires_grad()) return false;
  bool by_distance = false, needs_steps = false;
  for (const BiasForm& bias : input.biases) {
    if (!has_form(bias)) return false;
    by_distance = by_distance || reads_positions(bias);
    needs_steps = needs_steps || (reads_positions(bias) && !std::holds_alternative<LinearForm>(bias.form));
  }
  if (by_distance && (input.query_positions.requires_grad() || input.key_positions.requires_grad())) return false;
  if (needs_steps && !whole_distances(input).defined()) return false;
  return all_finite(input.q) && all_finite(input.k) && all_finite(input.v);
}

Attended fused_attention(const CoreInput& input) {
  const std::shared_ptr<Lowered> lowered = lower(input);
  const std::vector<at::Tensor> parts = std::exchange(lowered->parts, {});
  const variable_list results = FusedAttention::apply(lowered, input.q, input.k, input.v, at::TensorList(parts));
  Attended attended;
  attended.out = results[0];
  if (input.need_lse) attended.lse = results[1];
  return attended;
}

}  // namespace torsor
