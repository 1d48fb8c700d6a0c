#include "torsor/attention/evaluate.h"

#include <limits>
#include <optional>

#include "torsor/attention/plain.h"
#include "torsor/base/error.h"
#include "torsor/encoding/bias/bucket.h"
#include "torsor/group/planes.h"

namespace torsor {
namespace {

/// True when a row steps by exactly one: then a bias of the distance needs one value a distance instead of one a pair.
bool steps_by_one(const at::Tensor& positions) {
  return positions.size(1) < 2 || positions.diff(1, 1).eq(1).all().item<bool>();
}

at::Tensor one_row(const at::Tensor& positions) {
  return positions.size(0) > 1 && positions.stride(0) == 0 ? positions.narrow(0, 0, 1) : positions;
}

/// (H) to (1, H, 1, 1) in the block's dtype.
at::Tensor per_head(const at::Tensor& values, const Block& block) { return values.to(block.dtype).view({1, -1, 1, 1}); }

at::Tensor queries_of(const at::Tensor& tensor, const Block& block, std::int64_t axis) {
  return tensor.narrow(axis, block.first_query, block.queries);
}
at::Tensor keys_of(const at::Tensor& tensor, const Block& block, std::int64_t axis) {
  return tensor.narrow(axis, block.first_key, block.keys);
}

class Evaluator {
 public:
  Evaluator(const BiasForm& bias, const Block& block)
      : bias_(bias), block_(block), query_(one_row(block.query_positions)), key_(one_row(block.key_positions)) {}

  at::Tensor operator()(const LinearForm& form) const {
    return by_distance([&](const at::Tensor& n) { return -per_head(form.slope, block_) * n.abs().to(block_.dtype); });
  }

  at::Tensor operator()(const TableForm& form) const {
    return by_distance([&](const at::Tensor& n) {
      const at::Tensor bucket = bucket_of(form.rule, n);  // (B|1, 1, q, k)
      const at::Tensor rows = form.table.to(block_.dtype).index_select(0, bucket.flatten());
      return rows.view({bucket.size(0), bucket.size(2), bucket.size(3), form.table.size(1)}).permute({0, 3, 1, 2});
    });
  }

  at::Tensor operator()(const LogForm& form) const {
    return by_distance([&](const at::Tensor& n) {
      return -per_head(form.r1, block_) * at::log1p(per_head(form.r2, block_) * n.abs().to(block_.dtype));
    });
  }

  at::Tensor operator()(const PowerForm& form) const {
    return by_distance([&](const at::Tensor& n) {
      // |0|^r has the gradient log(0) * 0 in r: the power is taken of 1 there and replaced by 0.
      const at::Tensor distance = n.abs().to(block_.dtype);
      const at::Tensor zero = distance.eq(0);
      const at::Tensor power = at::pow(distance.masked_fill(zero, 1), per_head(form.r2, block_)).masked_fill(zero, 0);
      return -per_head(form.r1, block_) * power;
    });
  }

  at::Tensor operator()(const CosineForm& form) const {
    return by_distance([&](const at::Tensor& n) {
      // One frequency at a time: the sum needs no (pairs x frequencies) array. Phases in float64.
      at::Tensor sum = at::zeros_like(n);
      const at::Tensor frequency = form.frequency.to(n.options());
      for (std::int64_t i = 0; i < frequency.size(0); ++i) sum = sum + at::cos(n * frequency[i]);
      return (sum * form.weight.to(n.options()).view({1, -1, 1, 1})).to(block_.dtype);
    });
  }

  at::Tensor operator()(const PiecewiseForm& form) const {
    const at::ScalarType dtype = block_.dtype;
    const at::Tensor c = form.c.to(dtype), mu = form.mu.to(dtype);
    const at::Tensor top = by_distance([&](const at::Tensor& n) { return at::log1p((c * n.to(dtype)).abs()); });
    const at::Tensor threshold = (mu * form.length).abs();
    const at::Tensor reach = at::maximum(query_.to(dtype), threshold.expand_as(query_));
    const at::Tensor bottom = at::log1p((c * reach).abs()) + form.epsilon;  // (B|1, q)
    const at::Tensor u = top / bottom.unsqueeze(1).unsqueeze(-1);           // (B|1, 1, q, k)
    const at::Tensor hidden = at::relu(u.squeeze(1).unsqueeze(-1) * form.w1.to(dtype) + form.b1.to(dtype));
    return (at::matmul(hidden, form.w2.to(dtype).t()) + form.b2.to(dtype)).permute({0, 3, 1, 2});
  }

  at::Tensor operator()(const PotentialForm& form) const {
    return (queries_of(form.query, block_, 2).unsqueeze(-1) - keys_of(form.key, block_, 2).unsqueeze(-2))
        .to(block_.dtype);
  }

  at::Tensor operator()(const GatedForm& form) const {
    refuse_negative(kGatedName);
    if (!form.query.defined() && !form.key.defined())
      throw Error("a gated slope needs a gate of the query, of the key, or both");
    at::Tensor rate;
    if (form.query.defined()) rate = queries_of(form.query, block_, 2).unsqueeze(-1);
    if (form.key.defined()) {
      const at::Tensor key = keys_of(form.key, block_, 2).unsqueeze(-2);
      rate = rate.defined() ? rate + key : key;
    }
    // What is not finite must not meet the zero gradient of a pair that nobody sees.
    const auto finite = [](const at::Tensor& gate) { return !gate.defined() || all_finite(gate); };
    if (!finite(form.query) || !finite(form.key)) rate = rate.masked_fill(block_.visible.logical_not(), 0);
    const at::Tensor n = distance().to(block_.dtype);
    return -n * per_head(form.omega, block_) * rate.to(block_.dtype);
  }

  at::Tensor operator()(const PathForm& form) const {
    refuse_negative(kPathName);
    const at::Tensor query = queries_of(form.query, block_, 2);
    at::Tensor key = keys_of(form.key, block_, 2), bad;
    if (!all_finite(key)) {  // as above
      bad = at::isfinite(key).all(-1).logical_not();
      key = key.masked_fill(bad.unsqueeze(-1), 0);
    }
    const double width = static_cast<double>(query.size(-1));
    at::Tensor z = at::matmul(query, key.transpose(-1, -2)) / width;
    if (bad.defined())
      z = z.masked_fill(bad.unsqueeze(-2).logical_and(block_.visible), std::numeric_limits<double>::quiet_NaN());
    // Edges over tokens that the query does not see (padding, other documents, the future) add nothing.
    const at::Tensor psi = at::log_sigmoid(z).masked_fill(block_.visible.logical_not(), 0);
    const at::Tensor wide = psi.to(at::kDouble);
    // Sum over l in (j, i]: an exclusive suffix sum along the keys.
    const at::Tensor suffix = wide.flip(-1).cumsum(-1).flip(-1) - wide;
    return (suffix * form.alpha.to(at::kDouble).view({1, -1, 1, 1})).to(block_.dtype);
  }

  at::Tensor operator()(const ProductForm& form) const {
    const at::Tensor query = queries_of(form.query, block_, 2).to(block_.dtype);
    at::Tensor key = keys_of(form.key, block_, 2).to(block_.dtype);
    const std::int64_t heads = bias_.heads.size();
    if (key.size(1) != 1 && key.size(1) != heads) key = key.repeat_interleave(heads / key.size(1), 1);
    return at::matmul(query, key.transpose(-1, -2));
  }

  at::Tensor operator()(const FactorForm& form) const {
    const at::Tensor base = std::visit(*this, form.base->form);
    return form.kind == FactorForm::Kind::Pairs ? times_pairs(base, form) : base * factor_of(form);
  }

  at::Tensor operator()(const StretchForm& form) const {
    const auto planes = [&](const at::Tensor& tensor) {  // (B, H, T, planes) of both channels
      const group::PlaneView view =
          group::split_planes(tensor.narrow(3, form.offset, form.width).to(block_.dtype), form.layout, form.blocks);
      return group::PlaneView{view.a.flatten(-2), view.b.flatten(-2)};
    };
    const std::int64_t heads = bias_.heads.size();
    const auto of_heads = [&](const at::Tensor& tensor) {  // key heads, each once a query head
      return tensor.size(1) == 1 || tensor.size(1) == heads ? tensor
                                                            : tensor.repeat_interleave(heads / tensor.size(1), 1);
    };
    at::Tensor keys = keys_of(form.key, block_, 2);
    if (!all_finite(keys)) keys = keys.masked_fill(at::isfinite(keys).logical_not(), 0);  // the product itself says NaN
    const group::PlaneView q = planes(queries_of(form.query, block_, 2)), k = planes(of_heads(keys));
    const auto pair = [](const at::Tensor& one, const at::Tensor& other) {
      return one.unsqueeze(3) * other.unsqueeze(2);
    };
    const at::Tensor along = pair(q.a, k.a) + pair(q.b, k.b), across = pair(q.a, k.b) - pair(q.b, k.a);
    // Phases in float64, as those of a rotation are.
    const at::Tensor frequency = of_heads(form.frequency.to(at::kDouble).unsqueeze(0).unsqueeze(2));  // (1, H|1, 1, F)
    const at::Tensor angle = distance().unsqueeze(-1) * frequency.unsqueeze(2);
    const at::Tensor stretched = angle * factor_of(*form.factor).to(at::kDouble).unsqueeze(-1);
    const at::Tensor cosine = (stretched.cos() - angle.cos()).to(block_.dtype),
                     sine = (stretched.sin() - angle.sin()).to(block_.dtype);
    return (along * cosine + across * sine).sum(-1) * form.weight;
  }

  at::Tensor operator()(const ContentForm&) const {
    throw Error("a content position is evaluated after the other biases");
  }

 private:
  /// (B, H|1, q, k) in the block's dtype; of every kind but Pairs.
  at::Tensor factor_of(const FactorForm& form) const {
    at::Tensor factor, known;
    const at::Tensor left = queries_of(form.left, block_, 2);
    if (form.kind == FactorForm::Kind::Tag) {
      const at::Tensor tag = keys_of(form.tag, block_, 1);  // (B, k)
      known = tag.ge(0).unsqueeze(1).unsqueeze(1);
      const at::Tensor index =
          tag.clamp_min(0).unsqueeze(1).unsqueeze(1).expand({left.size(0), left.size(1), left.size(2), tag.size(1)});
      factor = 1 + left.gather(-1, index);
    } else {
      const at::Tensor right = keys_of(form.right, block_, 2);
      const bool network = form.kind == FactorForm::Kind::Network;
      const at::Tensor z =
          network ? at::matmul(at::gelu(left.unsqueeze(3) + right.unsqueeze(2)), form.weight.to(left.scalar_type())) +
                        form.level.to(left.scalar_type())
                  : at::matmul(left, right.transpose(-1, -2));
      factor = shaped(form, z);
    }
    if (form.group_query.defined()) {
      const at::Tensor i = queries_of(form.group_query, block_, 1).unsqueeze(-1),
                       j = keys_of(form.group_key, block_, 1).unsqueeze(-2);
      const at::Tensor same = i.eq(j).logical_and(i.ge(0)).unsqueeze(1);
      known = known.defined() ? known.logical_and(same) : same;
    }
    if (known.defined()) factor = at::where(known, factor, at::ones({}, factor.options()));
    return factor.to(block_.dtype);
  }

  at::Tensor shaped(const FactorForm& form, const at::Tensor& z) const {
    using Kind = FactorForm::Kind;
    using Shape = FactorForm::Shape;
    const Shape shape = form.kind == Kind::Tanh ? Shape::Tanh : form.kind == Kind::Exp ? Shape::Exp : form.shape;
    const auto times_beta = [&](const at::Tensor& x) {
      return form.beta.defined() ? per_head(form.beta, block_) * x : x;
    };
    switch (shape) {
      case Shape::Tanh:
        return 1 + times_beta(at::tanh(z));
      case Shape::Exp:
        return (form.kind == Kind::Exp ? z : times_beta(z)).clamp(-form.bound, form.bound).exp();
      case Shape::Clamp:
        return (1 + times_beta(z)).clamp_min(0);
      case Shape::ClampedTanh:
        return (1 + times_beta(at::tanh(z))).clamp_min(0);
      case Shape::Linear:
        break;
    }
    return 1 + times_beta(z);
  }

  /// Where a pair is listed its base times 1 + value, elsewhere the base as it is: no array of factors is made.
  at::Tensor times_pairs(const at::Tensor& base, const FactorForm& form) const {
    const at::Tensor starts = form.pair_start.to(at::kCPU).contiguous(),
                     all_keys = form.pair_key.to(at::kCPU).contiguous();
    const std::int64_t rows = starts.size(0), q = block_.queries, k = block_.keys;
    const std::int64_t* keys = all_keys.const_data_ptr<std::int64_t>();
    std::vector<std::int64_t> places, pairs;  // in the block, counted over rows, queries and keys; among all pairs
    for (std::int64_t b = 0; b < rows; ++b) {
      const std::int64_t* start = starts.const_data_ptr<std::int64_t>() + b * starts.size(1) + block_.first_query;
      for (std::int64_t i = 0; i < q; ++i)
        for (std::int64_t pair = start[i]; pair < start[i + 1]; ++pair) {
          const std::int64_t key = keys[pair] - block_.first_key;
          if (key < 0 || key >= k) continue;
          places.push_back((b * q + i) * k + key);
          pairs.push_back(pair);
        }
    }
    if (places.empty()) return base;
    const auto index = [&](const std::vector<std::int64_t>& values) {
      return at::tensor(values, at::TensorOptions(at::kLong)).to(base.device());
    };
    const at::Tensor flat = base.expand({rows, -1, -1, -1}).transpose(0, 1).reshape({base.size(1), rows * q * k});
    const at::Tensor value = form.pair_value.index_select(0, index(pairs)).to(block_.dtype);
    const at::Tensor place = index(places);
    return flat.index_add(1, place, flat.index_select(1, place) * value).view({-1, rows, q, k}).transpose(0, 1);
  }

  at::Tensor distance() const { return (query_.unsqueeze(-1) - key_.unsqueeze(-2)).unsqueeze(1); }

  void refuse_negative(const char* what) const {
    if (distance().lt(0).logical_and(block_.visible).any().item<bool>()) refuse_negative_distance(what);
  }

  /// f on distances (B|1, 1, q, k), evaluated once a distance where the positions allow it.
  template <class Function>
  at::Tensor by_distance(Function f) const {
    const std::int64_t q = block_.queries, k = block_.keys;
    const bool one_row = query_.size(0) == 1 && key_.size(0) == 1;
    if (q * k < 2 * (q + k) || !one_row || !steps_by_one(query_) || !steps_by_one(key_)) return f(distance());
    const double farthest = (query_.select(1, q - 1) - key_.select(1, 0)).item<double>();
    // Falling distances: entry s belongs to farthest - s, and query i starts at entry q - 1 - i.
    const at::Tensor n = farthest - at::arange(q + k - 1, query_.options());
    const at::Tensor values = f(n.view({1, 1, 1, -1}));
    return values.squeeze(2).unfold(-1, k, 1).flip(2);
  }

  const BiasForm& bias_;
  const Block& block_;
  at::Tensor query_, key_;
};

}  // namespace

void refuse_negative_distance(const char* what) {
  throw Error(str(what, " needs causal order: a query sees a key with a larger position"));
}

at::Tensor evaluate_at_distances(const BiasForm& bias, const at::Tensor& n, at::ScalarType dtype) {
  const bool of_distance = std::holds_alternative<LinearForm>(bias.form) ||
                           std::holds_alternative<TableForm>(bias.form) || std::holds_alternative<LogForm>(bias.form) ||
                           std::holds_alternative<PowerForm>(bias.form) ||
                           std::holds_alternative<CosineForm>(bias.form);
  if (!of_distance) return {};
  // One query at the position 0 and keys at minus the distances.
  Block block;
  block.queries = 1;
  block.keys = n.size(0);
  block.query_positions = at::zeros({1, 1}, n.options());
  block.key_positions = -n.unsqueeze(0);
  block.dtype = dtype;
  const at::Tensor values = evaluate_form(bias, block);  // (1, heads | 1, 1, S)
  return values.squeeze(0).squeeze(1).expand({bias.heads.size(), n.size(0)});
}

at::Tensor evaluate_form(const BiasForm& bias, const Block& block) {
  return std::visit(Evaluator(bias, block), bias.form);
}

at::Tensor evaluate_content(const ContentForm& form, const at::Tensor& logits, const Block& block) {
  const at::Tensor table = form.table.to(block.dtype);
  const double last = static_cast<double>(table.size(0) - 1);
  const at::Tensor gates = at::sigmoid(logits).masked_fill(block.visible.logical_not(), 0);
  const at::Tensor count = gates.flip(-1).cumsum(-1).flip(-1).clamp_max(last);
  const at::Tensor low = count.detach().floor();
  const at::Tensor fraction = count - low;
  const at::Tensor entries = at::matmul(queries_of(form.query, block, 2).to(block.dtype), table.t());
  const at::Tensor row = low.nan_to_num(0);  // a NaN count reads some row; its fraction makes the result NaN
  const at::Tensor at_low = entries.gather(-1, row.to(at::kLong));
  const at::Tensor at_high = entries.gather(-1, row.add(1).clamp_max(last).to(at::kLong));
  return at_low + fraction * (at_high - at_low);
}

}  // namespace torsor
