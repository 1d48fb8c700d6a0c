#include "torsor/attention/core.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "torsor/attention/evaluate.h"
#include "torsor/attention/moves.h"
#include "torsor/attention/plain.h"
#include "torsor/attention/visit.h"
#include "torsor/attention/weights.h"
#include "torsor/base/error.h"

namespace torsor {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

at::ScalarType compute_dtype(const at::Tensor& q) { return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

/// The visible pairs of a block: (B|1, 1, queries, keys) bool.
at::Tensor visible_pairs(const CoreInput& input, std::int64_t first_query, std::int64_t queries, std::int64_t first_key,
                         std::int64_t keys) {
  const Mask& mask = input.mask;
  const auto options = input.q.options().dtype(at::kLong);
  const std::int64_t tq = input.q.size(2), tk = input.k.size(2);
  const at::Tensor j = at::arange(first_key, first_key + keys, options).view({1, 1, keys});
  at::Tensor offset;  // (B|1, 1, 1)
  if (mask.offsets.defined())
    offset = mask.offsets.view({-1, 1, 1});
  else if (mask.key_lengths.defined())
    offset = (mask.key_lengths - tq).view({-1, 1, 1});
  else
    offset = at::full({1, 1, 1}, tk - tq, options);
  const at::Tensor i = at::arange(first_query, first_query + queries, options).view({1, queries, 1}) + offset;
  at::Tensor visible = at::ones({1, queries, keys}, options.dtype(at::kBool));
  if (mask.causal) visible = visible.logical_and(j.le(i));
  if (mask.window) {
    visible = visible.logical_and((i - j).lt(*mask.window));
    if (!mask.causal) visible = visible.logical_and((j - i).lt(*mask.window));
  }
  if (mask.key_lengths.defined()) visible = visible.logical_and(j.lt(mask.key_lengths.view({-1, 1, 1})));
  if (mask.query_documents.defined()) {
    const at::Tensor of_query = mask.query_documents.narrow(1, first_query, queries).unsqueeze(-1);
    const at::Tensor of_key = mask.key_documents.narrow(1, first_key, keys).unsqueeze(-2);
    visible = visible.logical_and(of_query.eq(of_key)).logical_and(of_query.ne(-1));
  }
  return visible.unsqueeze(1);
}

/// x (B, Hq, T, D) against y (B, Hk, S, D): (B, Hq, T, S) without repeating the key heads.
at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& y) {
  const std::int64_t batch = x.size(0), heads = x.size(1), t = x.size(2), d = x.size(3);
  const std::int64_t key_heads = y.size(1), group = heads / key_heads;
  const at::Tensor left = x.reshape({batch * key_heads, group * t, d});
  const at::Tensor right = y.reshape({batch * key_heads, y.size(2), d});
  return at::bmm(left, right.transpose(1, 2)).view({batch, heads, t, y.size(2)});
}

/// weights (B, Hq, T, S) on values (B|1, Hw, S, E) with Hw in {1, divisor of Hq}: (B, Hq, T, E).
at::Tensor grouped_average(const at::Tensor& weights, const at::Tensor& values) {
  const std::int64_t batch = weights.size(0), heads = weights.size(1), t = weights.size(2), s = weights.size(3);
  const std::int64_t value_heads = values.size(1), group = heads / value_heads;
  const at::Tensor left = weights.reshape({batch * value_heads, group * t, s});
  const at::Tensor right =
      values.expand({batch, value_heads, s, values.size(3)}).reshape({batch * value_heads, s, values.size(3)});
  return at::bmm(left, right).view({batch, heads, t, values.size(3)});
}

at::Tensor add_to_heads(const at::Tensor& sum, const at::Tensor& part, const HeadRange& heads, std::int64_t all_heads) {
  at::Tensor placed = part;
  if (heads.size() != all_heads) {
    std::vector<std::int64_t> shape = part.sizes().vec();
    std::vector<at::Tensor> pieces;
    const auto zeros = [&](std::int64_t count) {
      shape[1] = count;
      return at::zeros(shape, part.options());
    };
    if (heads.begin > 0) pieces.push_back(zeros(heads.begin));
    pieces.push_back(part.size(1) == heads.size() ? part : part.expand({-1, heads.size(), -1, -1}));
    if (heads.end < all_heads) pieces.push_back(zeros(all_heads - heads.end));
    placed = at::cat(pieces, 1);
  }
  return sum.defined() ? sum + placed : placed;
}

at::Tensor heads_factor(const LogitScale& scale, std::int64_t first_query, std::int64_t queries, std::int64_t all_heads,
                        at::ScalarType dtype) {
  at::Tensor own = scale.query.narrow(1, first_query, queries).to(dtype).unsqueeze(1).unsqueeze(-1);
  if (scale.heads.size() == all_heads) return own;
  std::vector<at::Tensor> pieces;
  if (scale.heads.begin > 0) pieces.push_back(at::ones_like(own).expand({-1, scale.heads.begin, -1, -1}));
  pieces.push_back(own.expand({-1, scale.heads.size(), -1, -1}));
  if (scale.heads.end < all_heads)
    pieces.push_back(at::ones_like(own).expand({-1, all_heads - scale.heads.end, -1, -1}));
  return at::cat(pieces, 1);
}

/// Entries that are not finite, cleaned so that they cannot reach a row that does not see them (0 * NaN is NaN in a
/// matrix product), and where they were.
struct Cleaned {
  at::Tensor values;
  at::Tensor bad;  ///< undefined when everything is finite
};

Cleaned clean(const at::Tensor& tensor) {
  if (all_finite(tensor)) return {tensor, {}};
  const at::Tensor bad = at::isfinite(tensor).logical_not();
  return {tensor.masked_fill(bad, 0), bad};
}

/// NaN where a row sees an entry that was not finite: what the plain sum would have given. `bad` (B|1, heads, S,
/// channels of the result, or 1 for all of them).
at::Tensor poison(const at::Tensor& result, const at::Tensor& seen, const at::Tensor& bad) {
  const at::Tensor weights =
      seen.expand({result.size(0), result.size(1), seen.size(2), seen.size(3)}).to(result.scalar_type());
  const at::Tensor hits = grouped_average(weights, bad.to(result.scalar_type()));
  return result.masked_fill(hits.gt(0).expand_as(result), std::numeric_limits<double>::quiet_NaN());
}

struct Span {
  std::int64_t first = 0, count = 0;
};

/// Keys that any query of the block may see, judged by index alone.
Span keys_of_block(const CoreInput& input, std::int64_t first_query, std::int64_t queries) {
  const std::int64_t tq = input.q.size(2), tk = input.k.size(2);
  const Mask& mask = input.mask;
  if (!mask.causal || mask.offsets.defined() || mask.key_lengths.defined()) return {0, tk};
  const std::int64_t end = std::clamp<std::int64_t>(tk - tq + first_query + queries, 0, tk);
  std::int64_t first = 0;
  if (mask.window) first = std::clamp<std::int64_t>(tk - tq + first_query - *mask.window + 1, 0, end);
  return {first, end - first};
}

struct BlockResult {
  at::Tensor out, lse, averages;
};

/// Largest exponent of a query's factor within one run of queries: exp(-40) times exp(40) loses nothing in float32.
constexpr double kRunExponent = 40;

/// A run of queries whose positions lie so near, in every row, that one centre a row serves them all.
struct Run {
  Span queries;
  std::vector<double> low, high;  ///< a row; low > high where the row has no query that sees anything
};

/// `sees` (B, queries): the positions of other queries mean nothing and do not count.
std::vector<Run> decay_runs(const std::vector<Decay>& decays, const at::Tensor& query_positions,
                            const at::Tensor& sees) {
  double rate = 0;
  for (const Decay& decay : decays) rate = std::max(rate, decay.rate.abs().max().item<double>());
  const at::Tensor plain = query_positions.to(at::kCPU).contiguous(), seeing = sees.to(at::kCPU).contiguous();
  const double* positions = plain.const_data_ptr<double>();
  const bool* counts = seeing.const_data_ptr<bool>();
  const std::int64_t rows = plain.size(0), queries = plain.size(1);
  const auto empty_run = [&](std::int64_t first) {
    const auto size = static_cast<std::size_t>(rows);
    return Run{{first, 0}, std::vector<double>(size, -kMinusInfinity), std::vector<double>(size, kMinusInfinity)};
  };
  std::vector<Run> runs = {empty_run(0)};
  for (std::int64_t i = 0; i < queries; ++i) {
    const auto each = [&](const auto& f) {
      for (std::int64_t b = 0; b < rows; ++b)
        if (counts[b * queries + i])
          f(runs.back().low[static_cast<std::size_t>(b)], runs.back().high[static_cast<std::size_t>(b)],
            positions[b * queries + i]);
    };
    bool near = true;
    each([&](double low, double high, double p) {
      near &= low > high || (std::max(high, p) - std::min(low, p)) * rate <= kRunExponent;
    });
    if (!near) runs.push_back(empty_run(i));
    each([&](double& low, double& high, double p) { low = std::min(low, p), high = std::max(high, p); });
    ++runs.back().queries.count;
  }
  return runs;
}

/// <q_i, k_j> with every plane decayed by its distance. `sees` (B|1, queries).
at::Tensor decayed_product(const at::Tensor& q, const at::Tensor& keys, const std::vector<Decay>& decays,
                           const Block& block, const at::Tensor& sees) {
  const at::Tensor& positions = block.query_positions;
  const at::Tensor seeing = sees.expand_as(positions);
  std::vector<at::Tensor> products;
  for (Run& run : decay_runs(decays, positions, seeing)) {
    for (double& low : run.low)
      if (!std::isfinite(low)) low = 0;
    const at::Tensor centre = at::tensor(run.low, at::TensorOptions(at::kDouble)).to(positions.device()).unsqueeze(1);
    const auto of_run = [&](const at::Tensor& tensor) {
      return tensor.narrow(1, run.queries.first, run.queries.count);
    };
    const at::Tensor turn = at::where(of_run(seeing), of_run(positions) - centre, at::zeros({}, positions.options()));
    products.push_back(grouped_product(
        apply_decays(q.narrow(2, run.queries.first, run.queries.count), decays, turn, Role::Query, block.group),
        apply_decays(keys, decays, centre - block.key_positions, Role::Key, block.group)));
  }
  return products.size() == 1 ? products.front() : at::cat(products, 2);
}

/// A block before its softmax.
struct BlockLogits {
  at::Tensor logits;   ///< (B, Hq, queries, keys), -inf where masked
  at::Tensor visible;  ///< (B|1, 1, queries, keys) bool
  at::Tensor sees;     ///< (B|1, 1, queries, 1) bool
  bool all_see = true;
  at::Tensor bad_keys;  ///< as Cleaned::bad
};

/// `keys` is not empty.
BlockLogits block_logits(const CoreInput& input, std::int64_t first_query, std::int64_t queries, Span keys) {
  const at::ScalarType dtype = compute_dtype(input.q);
  const std::int64_t all_heads = input.q.size(1);
  BlockLogits result;
  Block block;
  block.first_query = first_query;
  block.queries = queries;
  block.first_key = keys.first;
  block.keys = keys.count;
  block.query_positions = input.query_positions.narrow(1, first_query, queries);
  block.key_positions = input.key_positions.narrow(1, keys.first, keys.count);
  block.dtype = dtype;
  block.group = all_heads / input.k.size(1);
  block.visible = visible_pairs(input, first_query, queries, keys.first, keys.count);
  const at::Tensor masked = block.visible.logical_not();
  const at::Tensor sees_something = block.visible.any(-1, true);
  result.visible = block.visible;
  result.sees = sees_something;
  result.all_see = sees_something.all().item<bool>();

  at::Tensor q = input.q.narrow(2, first_query, queries).to(dtype);
  const Cleaned k = clean(input.k.narrow(2, keys.first, keys.count).to(dtype));
  result.bad_keys = k.bad;
  // A query that sees nothing must not reach the gradient of a key through 0 * NaN.
  if (!result.all_see) q = q.masked_fill(sees_something.logical_not(), 0);
  q = q * input.scale;
  for (const LogitScale& scale : input.logit_scales)
    q = q * heads_factor(scale, first_query, queries, all_heads, dtype);

  at::Tensor bias;
  for (const BiasForm& form : input.biases)
    if (!std::holds_alternative<ContentForm>(form.form))
      bias = add_to_heads(bias, evaluate_form(form, block), form.heads, all_heads);

  at::Tensor logits = input.decays.empty() ? grouped_product(q, k.values)
                                           : decayed_product(q, k.values, input.decays, block,
                                                             sees_something.select(1, 0).select(-1, 0));
  // One pass over the large tensor: the mask travels inside the bias where that is one row for the whole batch.
  if (bias.defined() && bias.size(0) == 1 && masked.size(0) == 1) {
    logits = logits + bias.masked_fill(masked, kMinusInfinity);
  } else {
    if (bias.defined()) logits = logits + bias;
    logits = logits.masked_fill(masked, kMinusInfinity);
  }
  for (const BiasForm& form : input.biases) {
    const ContentForm* content = std::get_if<ContentForm>(&form.form);
    if (!content) continue;
    const at::Tensor own = logits.narrow(1, form.heads.begin, form.heads.size());
    logits = add_to_heads(logits, evaluate_content(*content, own, block), form.heads, all_heads);
  }
  result.logits = std::move(logits);
  return result;
}

/// The logits with zeros in the rows of queries that see nothing, so that a softmax stays finite.
at::Tensor safe_logits(const BlockLogits& block) {
  return block.all_see ? block.logits : block.logits.masked_fill(block.sees.logical_not(), 0);
}

at::Tensor softmax_of(const BlockLogits& block, const at::Tensor& safe) {
  const at::Tensor weights = at::softmax(safe, -1);
  return block.all_see ? weights : weights.masked_fill(block.sees.logical_not(), 0);
}

BlockResult attend_block(const CoreInput& input, std::int64_t first_query, std::int64_t queries) {
  const at::ScalarType dtype = compute_dtype(input.q);
  const std::int64_t all_heads = input.q.size(1), batch = input.q.size(0);
  const Span span = keys_of_block(input, first_query, queries);
  const auto options = input.q.options().dtype(dtype);

  if (span.count == 0) {
    // A zero that hangs on q, so that its gradient is zero and not absent.
    const at::Tensor zero = input.q.narrow(2, first_query, queries)
                                .narrow(3, 0, 1)
                                .to(dtype)
                                .masked_fill(at::ones({}, options.dtype(at::kBool)), 0);
    BlockResult nothing;
    nothing.out = zero.expand({batch, all_heads, queries, input.v.size(3)});
    if (input.need_lse) nothing.lse = zero.squeeze(-1) + kMinusInfinity;
    if (input.carried) nothing.averages = zero.expand({batch, all_heads, queries, input.carried->values.size(3)});
    return nothing;
  }

  const BlockLogits block = block_logits(input, first_query, queries, span);
  const Cleaned v = clean(input.v.narrow(2, span.first, span.count).to(dtype));
  const at::Tensor safe = safe_logits(block);
  const at::Tensor weights = softmax_of(block, safe);
  BlockResult result;
  if (input.need_lse) {
    result.lse = at::logsumexp(safe, -1);
    if (!block.all_see) result.lse = result.lse.masked_fill(block.sees.logical_not().squeeze(-1), kMinusInfinity);
  }
  result.out = grouped_average(weights, v.values);
  if (v.bad.defined()) result.out = poison(result.out, block.visible, v.bad);
  if (input.carried) {
    const Cleaned w = clean(input.carried->values.narrow(2, span.first, span.count).to(dtype));
    result.averages = grouped_average(weights, w.values);
    if (w.bad.defined()) result.averages = poison(result.averages, block.visible, w.bad);
  }
  if (block.bad_keys.defined()) {
    const at::Tensor bad = block.bad_keys.any(-1, true);
    result.out = poison(result.out, block.visible, bad);
    if (input.need_lse) result.lse = poison(result.lse.unsqueeze(-1), block.visible, bad).squeeze(-1);
    if (input.carried) result.averages = poison(result.averages, block.visible, bad);
  }
  return result;
}

// ---------------------------------------------------------------------------------------------------------------------
// Blocks that are recomputed in the backward pass

/// A call and a block of it; the node's tensor inputs replace the call's own tensors in visiting order.
struct BlockCall {
  CoreInput input;
  std::int64_t first_query = 0, queries = 0;
};

std::vector<at::Tensor> gather_tensors(CoreInput& input) {
  std::vector<at::Tensor> tensors;
  visit_tensors(input, [&](at::Tensor& tensor) {
    if (tensor.defined()) tensors.push_back(tensor);
  });
  return tensors;
}

void scatter_tensors(CoreInput& input, const std::vector<at::Tensor>& tensors) {
  std::size_t next = 0;
  visit_tensors(input, [&](at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensors[next++];
  });
}

struct RecomputedBlock : public torch::autograd::Function<RecomputedBlock> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const std::shared_ptr<BlockCall>& call, at::TensorList tensors) {
    at::NoGradGuard no_grad;
    BlockCall own = *call;
    scatter_tensors(own.input, tensors.vec());
    BlockResult result = attend_block(own.input, own.first_query, own.queries);
    context->save_for_backward(tensors.vec());
    // The tensors live in save_for_backward alone: a second hold would keep the graph alive in a cycle.
    scatter_tensors(own.input, std::vector<at::Tensor>(tensors.size(), at::empty({0})));
    context->saved_data["call"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(std::move(own)));
    torch::autograd::variable_list outputs = {result.out};
    if (result.lse.defined()) outputs.push_back(result.lse);
    if (result.averages.defined()) outputs.push_back(result.averages);
    return outputs;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    BlockCall call = static_cast<Holder*>(context->saved_data["call"].toCapsule().get())->call;
    torch::autograd::variable_list detached, wanted;
    std::vector<std::size_t> places;
    for (std::size_t n = 0; n < saved.size(); ++n) {
      at::Tensor copy = saved[n].detach();
      if (saved[n].requires_grad() && copy.is_floating_point()) {
        copy.requires_grad_(true);
        wanted.push_back(copy);
        places.push_back(n);
      }
      detached.push_back(copy);
    }
    torch::autograd::variable_list result(saved.size() + 1);
    {
      at::AutoGradMode with_grad(true);
      scatter_tensors(call.input, detached);
      const BlockResult again = attend_block(call.input, call.first_query, call.queries);
      torch::autograd::variable_list outputs, output_gradients;
      const at::Tensor all[] = {again.out, again.lse, again.averages};
      std::size_t next = 0;
      for (const at::Tensor& one : all) {
        if (!one.defined()) continue;
        if (gradients[next].defined() && one.requires_grad()) {
          outputs.push_back(one);
          output_gradients.push_back(gradients[next]);
        }
        ++next;
      }
      if (!outputs.empty() && !wanted.empty()) {
        const auto found = torch::autograd::grad(outputs, wanted, output_gradients, false, false, true);
        for (std::size_t n = 0; n < places.size(); ++n) result[places[n] + 1] = found[n];
      }
    }
    return result;
  }

  struct Holder : public torch::CustomClassHolder {
    explicit Holder(BlockCall held) : call(std::move(held)) {}
    BlockCall call;
  };
};

BlockResult recomputed_block(const CoreInput& input, std::int64_t first_query, std::int64_t queries) {
  auto call = std::make_shared<BlockCall>(BlockCall{input, first_query, queries});
  const std::vector<at::Tensor> tensors = gather_tensors(call->input);
  scatter_tensors(call->input, std::vector<at::Tensor>(tensors.size(), at::empty({0})));
  const auto outputs = RecomputedBlock::apply(call, at::TensorList(tensors));
  BlockResult result;
  std::size_t next = 0;
  result.out = outputs[next++];
  if (input.need_lse) result.lse = outputs[next++];
  if (input.carried) result.averages = outputs[next++];
  return result;
}

/// Numbers that one pair costs at the widest moment of its evaluation, relative to its logit.
std::int64_t numbers_per_pair(const CoreInput& input) {
  std::int64_t most = 1;
  for (const BiasForm& bias : input.biases) {
    if (const PiecewiseForm* form = std::get_if<PiecewiseForm>(&bias.form)) most = std::max(most, form->w1.size(0) / 4);
    // Sum and its gelu for each unit, once for all heads.
    if (const FactorForm* form = std::get_if<FactorForm>(&bias.form); form && form->kind == FactorForm::Kind::Network)
      most = std::max(most, 2 * form->weight.size(0) / input.q.size(1));
    // Two products, two angles and their cosines and sines in float64, for each plane.
    if (const StretchForm* form = std::get_if<StretchForm>(&bias.form)) most = std::max(most, 6 * form->width / 2);
  }
  return most;
}

}  // namespace

std::int64_t reference_block(const CoreInput& input, const ReferenceLimits& limits) {
  const std::int64_t row = std::max<std::int64_t>(1, input.q.size(0) * input.q.size(1) * input.k.size(2));
  return std::clamp<std::int64_t>(limits.block_numbers / row / numbers_per_pair(input), 1,
                                  std::max<std::int64_t>(input.q.size(2), 1));
}

Attended reference_attention(const CoreInput& input, const ReferenceLimits& limits) {
  const std::int64_t tq = input.q.size(2), block = reference_block(input, limits);
  const bool recompute =
      at::GradMode::is_enabled() &&
      input.q.size(0) * input.q.size(1) * input.k.size(2) * tq * numbers_per_pair(input) > limits.kept_numbers;
  std::vector<at::Tensor> outs, lses, averages;
  std::int64_t first = 0;
  do {
    const std::int64_t queries = std::min(block, tq - first);
    const BlockResult one = recompute ? recomputed_block(input, first, queries) : attend_block(input, first, queries);
    outs.push_back(one.out);
    if (one.lse.defined()) lses.push_back(one.lse);
    if (one.averages.defined()) averages.push_back(one.averages);
    first += queries;
  } while (first < tq);
  const auto joined = [](const std::vector<at::Tensor>& parts) {
    return parts.empty() ? at::Tensor() : parts.size() == 1 ? parts.front() : at::cat(parts, 2);
  };
  Attended result;
  result.out = joined(outs).to(input.q.scalar_type());
  result.lse = joined(lses);
  result.averages = joined(averages);
  return result;
}

BlockWeights block_weights(const CoreInput& input, std::int64_t first_query, std::int64_t queries) {
  const at::NoGradGuard no_gradient;
  const Span span = keys_of_block(input, first_query, queries);
  BlockWeights result;
  result.first_key = span.first;
  if (span.count == 0) {
    const std::int64_t batch = input.q.size(0), heads = input.q.size(1);
    result.logits = result.weights =
        at::zeros({batch, heads, queries, 0}, input.q.options().dtype(compute_dtype(input.q)));
    result.visible = at::zeros({1, 1, queries, 0}, input.q.options().dtype(at::kBool));
    return result;
  }
  const BlockLogits block = block_logits(input, first_query, queries, span);
  result.logits = block.logits;
  result.weights = softmax_of(block, safe_logits(block));
  result.visible = block.visible;
  return result;
}

std::optional<double> mean_factor_effect(const CoreInput& input, std::int64_t most_queries) {
  const at::NoGradGuard no_gradient;
  Block block;
  block.queries = std::min({most_queries, reference_block(input), input.q.size(2)});
  block.first_query = input.q.size(2) - block.queries;
  block.keys = input.k.size(2);
  block.query_positions = input.query_positions.narrow(1, block.first_query, block.queries);
  block.key_positions = input.key_positions;
  block.visible = visible_pairs(input, block.first_query, block.queries, 0, block.keys);
  block.dtype = at::kDouble;
  block.group = input.q.size(1) / input.k.size(1);
  double sum = 0, pairs = 0;
  for (const BiasForm& bias : input.biases) {
    const FactorForm* form = std::get_if<FactorForm>(&bias.form);
    if (const StretchForm* stretch = std::get_if<StretchForm>(&bias.form)) form = stretch->factor.get();
    if (form == nullptr) continue;
    // Times a form that is one everywhere it is F itself.
    const auto ones = [&](std::int64_t tokens) {
      return at::ones({1, bias.heads.size(), tokens, 1}, block.query_positions.options());
    };
    FactorForm alone = *form;
    alone.base =
        std::make_shared<BiasForm>(BiasForm{bias.heads, ProductForm{ones(input.q.size(2)), ones(input.k.size(2))}});
    const at::Tensor effect = evaluate_form(BiasForm{bias.heads, std::move(alone)}, block).sub(1).abs();
    const at::Tensor seen = block.visible.expand(
        {std::max(effect.size(0), block.visible.size(0)), bias.heads.size(), block.queries, block.keys});
    sum += at::where(seen, effect, at::zeros({}, effect.options())).sum().item<double>();
    pairs += seen.sum().item<double>();
  }
  if (pairs == 0) return std::nullopt;
  return sum / pairs;
}

bool plain_attention_applies(const CoreInput& input) {
  const Mask& mask = input.mask;
  return input.biases.empty() && input.decays.empty() && input.logit_scales.empty() && !input.carried &&
         !input.need_lse && input.scale > 0 && !mask.window && !mask.key_lengths.defined() && !mask.offsets.defined() &&
         !mask.query_documents.defined() && (!mask.causal || input.q.size(2) == input.k.size(2)) &&
         input.q.scalar_type() == input.k.scalar_type() && input.q.size(2) > 0 && input.k.size(2) > 0 &&
         input.q.size(3) == input.v.size(3) && all_finite(input.q) && all_finite(input.k) && all_finite(input.v);
}

Attended plain_attention(const CoreInput& input) {
  Attended result;
  result.out = at::scaled_dot_product_attention(input.q, input.k, input.v, {}, 0.0, input.mask.causal, input.scale,
                                                input.k.size(1) != input.q.size(1));
  return result;
}

}  // namespace torsor
