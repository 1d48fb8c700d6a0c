#include "tests/attention/test_encodings.h"

#include <utility>
#include <vector>

#include "torsor/encoding/own_tokens.h"

namespace torsor::attention_test {
namespace {

CacheContract exact_contract(std::vector<std::string> kept) {
  CacheContract contract;
  contract.kept = std::move(kept);
  contract.shift = contract.evict = "exact";
  return contract;
}

/// (B, T) bool: arriving tokens that exist.
at::Tensor existing(const Side& side) {
  at::Tensor real = at::ones({side.positions.size(0), side.tokens()}, at::TensorOptions(at::kBool));
  if (side.documents.defined()) real = real.logical_and(side.documents.ne(-1));
  if (side.lengths.defined())
    real = real.logical_and(at::arange(side.tokens(), at::TensorOptions(at::kLong)).lt(side.lengths.unsqueeze(1)));
  return real;
}

/// Running sum over the tokens of each row, (B, H, T) float64, from `state[name]` on; restarts where the document
/// changes.
at::Tensor running_sum(const at::Tensor& values, const Side& side, const std::string& name, NamedTensors& state) {
  const std::int64_t rows = values.size(0), heads = values.size(1), count = values.size(2);
  const at::Tensor real = existing(side);
  const at::TensorOptions whole(at::kLong);
  at::Tensor sum = state.contains(name) ? state.at(name) : at::zeros({rows, heads}, at::TensorOptions(at::kDouble));
  at::Tensor last = state.contains(name + ".document") ? state.at(name + ".document") : at::full({rows}, -1, whole);
  std::vector<at::Tensor> sums;
  for (std::int64_t t = 0; t < count; ++t) {
    const at::Tensor there = real.select(1, t);
    const at::Tensor document = side.documents.defined() ? side.documents.select(1, t) : at::zeros({rows}, whole);
    const at::Tensor fresh = there.logical_and(document.ne(last));
    sum = at::where(fresh.unsqueeze(1), at::zeros({}, sum.options()), sum);
    sum = sum + at::where(there.unsqueeze(1), values.select(2, t).to(at::kDouble), at::zeros({}, sum.options()));
    last = at::where(there, document, last);
    sums.push_back(sum);
  }
  state[name] = sum;
  state[name + ".document"] = last;
  return sums.empty() ? at::zeros({rows, heads, 0}, at::TensorOptions(at::kDouble)) : at::stack(sums, 2);
}

class Carrier : public Encoding {
 public:
  using Encoding::Encoding;
  Traits traits() const override { return {}; }
  CacheContract cache(std::int64_t) const override { return exact_contract({"carrier.state"}); }
  NamedTensors arrive(const Question& question, NamedTensors&) const override {
    if (question.state.defined()) return {{"carrier.state", question.state}};
    const at::Tensor p = question.key.positions.select(2, 0);
    return {{"carrier.state", at::stack({p, p.square()}, 2).unsqueeze(1)}};  // (B, 1, T, 2)
  }
  std::optional<Carried> carried(const Question& question) const override {
    return Carried{question.kept->at("carrier.state")};
  }
};

class Phase : public Encoding {
 public:
  using Encoding::Encoding;
  Traits traits() const override {
    Traits traits;
    traits.rotates = traits.content = true;
    return traits;
  }
  CacheContract cache(std::int64_t) const override { return exact_contract({"phase.turn"}); }
  NamedTensors arrive(const Question& question, NamedTensors& state) const override {
    const at::Tensor gate = at::sigmoid(question.x.select(2, 0).to(at::kDouble)).unsqueeze(1);  // (B, 1, T)
    return {{"phase.turn", running_sum(gate, question.key, "phase.sum", state)}};
  }
  std::vector<Move> moves(const Question& question, Role role) const override {
    const at::Tensor& kept = question.kept->at("phase.turn");
    const at::Tensor turn = role == Role::Key ? kept : own_tokens(question, kept);
    Planes planes;
    planes.heads = all_heads();
    planes.width = 2;
    planes.cosine = turn.unsqueeze(3).cos();
    planes.sine = turn.unsqueeze(3).sin();
    return {planes};
  }
};

class Named : public Encoding {
 public:
  using Encoding::Encoding;
  Traits traits() const override { return {}; }
  std::vector<std::string> inputs() const override { return {"strength"}; }
  CacheContract cache(std::int64_t) const override { return exact_contract({"named.strength"}); }
  NamedTensors arrive(const Question& question, NamedTensors&) const override {
    return {{"named.strength", question.named->at("strength").unsqueeze(1).unsqueeze(3)}};
  }
  std::vector<BiasForm> biases(const Question& question) const override {
    const at::Tensor query = question.named->at("strength").unsqueeze(1).unsqueeze(3);
    return {
        {all_heads(), ProductForm{query.expand({-1, dimensions_.heads, -1, -1}), question.kept->at("named.strength")}}};
  }
};

Dimensions completed(Dimensions dimensions) {
  if (dimensions.kv_heads == 0) dimensions.kv_heads = dimensions.heads;
  if (dimensions.width == 0) dimensions.width = dimensions.heads * dimensions.head_dim;
  return dimensions;
}

}  // namespace

std::shared_ptr<const Encoding> make_test_carrier(const Dimensions& dimensions) {
  return std::make_shared<Carrier>(completed(dimensions));
}
std::shared_ptr<const Encoding> make_test_phase(const Dimensions& dimensions) {
  return std::make_shared<Phase>(completed(dimensions));
}
std::shared_ptr<const Encoding> make_test_named(const Dimensions& dimensions) {
  return std::make_shared<Named>(completed(dimensions));
}

}  // namespace torsor::attention_test
