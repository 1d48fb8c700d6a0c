#include "tests/attention/test_encodings.h"

#include <cmath>
#include <utility>
#include <vector>

#include "torsor/encoding/bias/answer.h"
#include "torsor/encoding/own_tokens.h"
#include "torsor/encoding/registry.h"

namespace torsor::attention_test {
namespace {

CacheContract exact_contract(std::vector<std::string> kept) {
  CacheContract contract;
  contract.kept = std::move(kept);
  contract.shift = contract.evict = "exact";
  return contract;
}

ParameterInfo normal_parameter(const std::string& name, std::vector<std::int64_t> shape) {
  ParameterInfo info;
  info.name = name;
  info.shape = std::move(shape);
  info.initial.kind = Initial::Kind::Normal;
  info.initial.b = 0.5;
  return info;
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

class Fox : public Encoding {
 public:
  using Encoding::Encoding;
  Traits traits() const override {
    Traits traits;
    traits.content = true;
    traits.forms = {"potential"};
    return traits;
  }
  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    return {normal_parameter("fox.weight", {dimensions_.heads, dimensions_.width}),
            normal_parameter("fox.bias", {dimensions_.heads})};
  }
  CacheContract cache(std::int64_t) const override { return exact_contract({"fox.potential"}); }
  NamedTensors arrive(const Question& question, NamedTensors& state) const override {
    const at::Tensor x = question.x.to(at::kDouble);
    const at::Tensor weight = find_trained(question.parameters, "fox.weight").to(at::kDouble);
    const at::Tensor bias = find_trained(question.parameters, "fox.bias").to(at::kDouble);
    const at::Tensor gates = at::log_sigmoid(at::matmul(x, weight.t()) + bias).transpose(1, 2);  // (B, H, T)
    return {{"fox.potential", running_sum(gates, question.key, "fox.sum", state)}};
  }
  std::vector<BiasForm> biases(const Question& question) const override {
    const at::Tensor& potential = question.kept->at("fox.potential");
    return {{all_heads(), PotentialForm{own_tokens(question, potential), potential}}};
  }
};

class GrapeA : public Encoding {
 public:
  GrapeA(const Dimensions& dimensions, bool key_gate, bool query_gate, bool paper)
      : Encoding(dimensions),
        key_gate_(key_gate),
        query_gate_(query_gate),
        paper_(paper),
        slopes_(make_encoding("alibi", dimensions)->slopes()) {}
  Traits traits() const override {
    Traits traits;
    traits.content = true;
    traits.forms = {"gated"};
    return traits;
  }
  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    std::vector<ParameterInfo> all = {normal_parameter("grape-a.rho", {dimensions_.heads})};
    if (key_gate_) all.push_back(normal_parameter("grape-a.u", {dimensions_.kv_heads, dimensions_.head_dim}));
    if (query_gate_) all.push_back(normal_parameter("grape-a.v", {dimensions_.heads, dimensions_.head_dim}));
    return all;
  }
  CacheContract cache(std::int64_t) const override {
    return exact_contract(key_gate_ ? std::vector<std::string>{"grape-a.gate"} : std::vector<std::string>{});
  }
  NamedTensors arrive(const Question& question, NamedTensors&) const override {
    if (!key_gate_) return {};
    return {{"grape-a.gate", gate(question.k, find_trained(question.parameters, "grape-a.u"))}};
  }
  std::vector<BiasForm> biases(const Question& question) const override {
    GatedForm form;
    form.omega = at::softplus(trained(question, "grape-a.rho"));
    if (!paper_) form.omega = form.omega * fixed(question, slopes_, form.omega.scalar_type());
    if (key_gate_) form.key = question.kept->at("grape-a.gate").repeat_interleave(group(), 1);
    if (query_gate_) form.query = gate(question.q, find_trained(question.parameters, "grape-a.v"));
    return {{all_heads(), form}};
  }

 private:
  /// (B, H, T) for x (B, H, T, D) and a vector a head.
  at::Tensor gate(const at::Tensor& x, const at::Tensor& given) const {
    at::Tensor vector = given.to(x.scalar_type());
    if (!paper_) vector = vector / vector.norm(2, {-1}, true).clamp_min(1e-6);
    const double root = std::sqrt(static_cast<double>(dimensions_.head_dim));
    return at::softplus((x * vector.unsqueeze(1)).sum(-1) / root);
  }
  bool key_gate_, query_gate_, paper_;
  std::vector<double> slopes_;
};

class GrapeAp : public Encoding {
 public:
  GrapeAp(const Dimensions& dimensions, std::int64_t width, TestPath variant)
      : Encoding(dimensions), width_(width), variant_(variant), slopes_(make_encoding("alibi", dimensions)->slopes()) {}
  Traits traits() const override {
    Traits traits;
    traits.content = true;
    traits.relative = variant_ == TestPath::Relative;
    traits.forms = {"path"};
    return traits;
  }
  std::vector<ParameterInfo> parameters(std::int64_t) const override {
    return {normal_parameter("grape-ap.weight", {dimensions_.heads, width_, dimensions_.width})};
  }
  CacheContract cache(std::int64_t) const override { return exact_contract({"grape-ap.probe"}); }
  NamedTensors arrive(const Question& question, NamedTensors&) const override {
    const double sign = variant_ == TestPath::Paper ? 1 : -1;
    return {{"grape-ap.probe", turned(normalised(probes(question)), question.key, sign)}};
  }
  std::vector<BiasForm> biases(const Question& question) const override {
    at::Tensor query = probes(question);
    if (variant_ == TestPath::Paper) query = normalised(query);
    if (variant_ == TestPath::Relative) query = turned(query, question.query, -1);
    return {{all_heads(),
             PathForm{query, question.kept->at("grape-ap.probe"), fixed(question, slopes_, query.scalar_type())}}};
  }

 private:
  /// (B, H, T, P) in the type of x
  at::Tensor probes(const Question& question) const {
    const at::Tensor weight = find_trained(question.parameters, "grape-ap.weight").to(question.x.scalar_type());
    return at::matmul(question.x, weight.flatten(0, 1).t())
        .view({question.x.size(0), question.x.size(1), dimensions_.heads, width_})
        .transpose(1, 2);
  }
  static at::Tensor normalised(const at::Tensor& p) {
    return p / at::sqrt(p.square().mean({-1}, true) + 1.1920929e-7);  // the epsilon of the reference
  }
  /// Every plane turns by sign * position radians: halves, or neighbouring pairs in the paper's variant.
  at::Tensor turned(const at::Tensor& p, const Side& side, double sign) const {
    const at::Tensor angle = (side.positions.select(2, 0) * sign).unsqueeze(1).unsqueeze(-1);
    const at::Tensor cosine = angle.cos().to(p.scalar_type()), sine = angle.sin().to(p.scalar_type());
    const bool pairs = variant_ == TestPath::Paper;
    const at::Tensor a = pairs ? p.slice(3, 0, width_, 2) : p.narrow(3, 0, width_ / 2);
    const at::Tensor b = pairs ? p.slice(3, 1, width_, 2) : p.narrow(3, width_ / 2, width_ / 2);
    const at::Tensor x = a * cosine - b * sine, y = a * sine + b * cosine;
    return pairs ? at::stack({x, y}, 4).flatten(3) : at::cat({x, y}, 3);
  }
  std::int64_t width_;
  TestPath variant_;
  std::vector<double> slopes_;
};

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

std::shared_ptr<const Encoding> make_test_fox(const Dimensions& dimensions) {
  return std::make_shared<Fox>(completed(dimensions));
}
std::shared_ptr<const Encoding> make_test_grape_a(const Dimensions& dimensions, bool key_gate, bool query_gate,
                                                  bool paper) {
  return std::make_shared<GrapeA>(completed(dimensions), key_gate, query_gate, paper);
}
std::shared_ptr<const Encoding> make_test_grape_ap(const Dimensions& dimensions, std::int64_t width, TestPath variant) {
  return std::make_shared<GrapeAp>(completed(dimensions), width, variant);
}
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
