// Every bias form, factor and carried value through the fused kernel, given to the attention core directly: against the
// reference path in float64 on the same rounded numbers, values and every gradient.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/attention/call.h"
#include "torsor/attention/core.h"
#include "torsor/attention/evaluate.h"
#include "torsor/base/error.h"

namespace torsor::attention_test {
namespace {

constexpr std::int64_t kRows = 2, kHeads = 4, kKeyHeads = 2, kQueries = 45, kKeys = 70, kDim = 16, kValueDim = 24;

enum class Masking { Causal, Window, Documents, Lengths, Open };
enum class Steps { One, Halves };

struct FormCase {
  std::string name;
  HeadRange heads = {0, kHeads};
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::function<BiasForm(const NamedTensors&)> make;
  bool causal_only = false;
  bool positive = false;                            ///< its tensors are drawn from (0.1, 1.1), else normal
  std::function<void(NamedTensors&)> prepare = {};  ///< changes what was drawn
};

/// Memory that a kernel forgets to write shows as NaN.
class FillUninitialized {
 public:
  FillUninitialized() { at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true); }
  ~FillUninitialized() { at::globalContext().setDeterministicAlgorithms(false, false); }
  FillUninitialized(const FillUninitialized&) = delete;
  FillUninitialized& operator=(const FillUninitialized&) = delete;
};

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::TensorOptions(at::kLong)); }

/// The last queries of a row's tokens.
at::Tensor of_queries(const at::Tensor& per_key) { return per_key.narrow(1, kKeys - kQueries, kQueries); }

/// A call without q, k, v and biases.
CoreInput frame(Masking masking, Steps steps) {
  CoreInput input;
  input.scale = 0.25;
  const at::Tensor index = at::arange(kKeys, doubles());
  input.key_positions = steps == Steps::One ? at::stack({index, index + 30})
                                            : (at::rand({kRows, kKeys}, doubles()) * 6).ceil().cumsum(1) / 2;
  input.query_positions = of_queries(input.key_positions).clone();
  switch (masking) {
    case Masking::Causal:
      break;
    case Masking::Window:
      input.mask.window = 11;
      break;
    case Masking::Documents: {
      // Padding stands between tokens of a document, too.
      at::Tensor documents = at::stack({index.ge(33).to(at::kLong) * 4, index.ge(58).to(at::kLong) + 2});
      documents.masked_fill_((index.remainder(9).eq(4)).unsqueeze(0), -1);
      input.mask.key_documents = documents;
      input.mask.query_documents = of_queries(documents).clone();
      break;
    }
    case Masking::Lengths: {
      input.mask.key_lengths = longs({kKeys - 7, kQueries - 5});
      for (std::int64_t b = 0; b < kRows; ++b) {
        const std::int64_t first = input.mask.key_lengths[b].item<std::int64_t>() - kQueries;
        const at::Tensor own = at::arange(first, first + kQueries, at::kLong).clamp_min(0);
        input.query_positions.select(0, b).copy_(input.key_positions.select(0, b).index_select(0, own));
      }
      break;
    }
    case Masking::Open:
      input.mask.causal = false;
      break;
  }
  return input;
}

struct Numbers {
  at::Tensor q, k, v;
  NamedTensors of_form;  ///< float32
};

Numbers draw(const FormCase& form, at::ScalarType type) {
  const at::TensorOptions narrow(at::kFloat);
  Numbers numbers;
  numbers.q = at::randn({kRows, kHeads, kQueries, kDim}, narrow).to(type);
  numbers.k = at::randn({kRows, kKeyHeads, kKeys, kDim}, narrow).to(type);
  numbers.v = at::randn({kRows, kKeyHeads, kKeys, kValueDim}, narrow).to(type);
  for (const auto& [name, shape] : form.shapes)
    numbers.of_form[name] = form.positive ? at::rand(shape, narrow) + 0.1 : at::randn(shape, narrow) * 0.7;
  if (form.prepare) form.prepare(numbers.of_form);
  return numbers;
}

/// Results and the gradients of a weighted sum of them, q, k, v first, then the form's tensors by name.
struct Outcome {
  std::vector<at::Tensor> results, gradients;
  /// Of a gradient that is a sum over pairs: the norm of the sum of its terms' magnitudes, at least; of others 0.
  std::vector<double> terms;
};

using Complete = std::function<void(CoreInput&, const NamedTensors&)>;  ///< adds the form to a call

/// (B|1, 1, Tq, Tk) bool
at::Tensor visible_pairs(const Mask& mask) {
  const at::TensorOptions whole(at::kLong);
  const at::Tensor lengths = mask.key_lengths.defined() ? mask.key_lengths : at::full({1}, kKeys, whole);
  const at::Tensor i = at::arange(kQueries, whole).view({1, -1, 1}) + (lengths - kQueries).view({-1, 1, 1});
  const at::Tensor j = at::arange(kKeys, whole).view({1, 1, -1});
  at::Tensor visible = j.lt(lengths.view({-1, 1, 1})).expand({-1, kQueries, -1});
  if (mask.causal) visible = visible.logical_and(j.le(i));
  if (mask.window) visible = visible.logical_and((i - j).lt(*mask.window));
  if (mask.key_documents.defined()) {
    const at::Tensor own = mask.query_documents.unsqueeze(2);
    visible = visible.logical_and(own.eq(mask.key_documents.unsqueeze(1))).logical_and(own.ge(0));
  }
  return visible.unsqueeze(1);
}

/// For each leaf, the norm of sum |d loss / d bias| * d bias / d leaf over the pairs of every bias of the call: the sum
/// of the magnitudes where the second factor has one sign, less elsewhere.
std::vector<double> sizes_of_terms(const CoreInput& call, const at::Tensor& of_pairs,
                                   const std::vector<at::Tensor>& leaves) {
  Block block;
  block.queries = kQueries, block.keys = kKeys;
  block.query_positions = call.query_positions, block.key_positions = call.key_positions;
  block.visible = visible_pairs(call.mask);
  block.dtype = at::kDouble;
  block.group = kHeads / kKeyHeads;
  at::Tensor sum = at::zeros({}, doubles());
  for (const BiasForm& bias : call.biases) {
    const at::Tensor own = of_pairs.abs().narrow(1, bias.heads.begin, bias.heads.size());
    sum = sum + (own * evaluate_form(bias, block)).sum();
  }
  std::vector<double> sizes(leaves.size(), 0.0);
  if (!sum.requires_grad()) return sizes;
  const auto found = torch::autograd::grad({sum}, leaves, {}, false, false, true);
  for (std::size_t n = 0; n < leaves.size(); ++n)
    if (found[n].defined()) sizes[n] = found[n].norm().item<double>();
  return sizes;
}

/// The gradients are those of all results, or of the one that is asked for.
Outcome compute(const CoreInput& frame, const Numbers& numbers, const Complete& complete, bool fused,
                std::optional<std::size_t> asked = {}) {
  // The reference computes in float64 on the same numbers.
  const auto leaf = [&](const at::Tensor& tensor) {
    return (fused ? tensor.clone() : tensor.to(at::kDouble)).requires_grad_(true);
  };
  CoreInput input = frame;
  input.q = leaf(numbers.q), input.k = leaf(numbers.k), input.v = leaf(numbers.v);
  std::vector<at::Tensor> leaves = {input.q, input.k, input.v};
  NamedTensors of_form;
  for (const auto& [name, tensor] : numbers.of_form) leaves.push_back(of_form[name] = leaf(tensor));
  complete(input, of_form);
  const CoreInput call = input;
  const at::Tensor zero = at::zeros({kRows, kHeads, kQueries, kKeys}, doubles()).requires_grad_(true);
  if (!fused) {  // a bias of one number a pair, whose gradient is that of the logits
    input.biases.push_back({{0, kHeads}, ProductForm{zero, at::eye(kKeys, doubles()).view({1, 1, kKeys, kKeys})}});
    leaves.push_back(zero);
  }
  const std::optional<Attended> attended = fused ? fused_attention(input) : reference_attention(input);
  if (!attended) {
    ADD_FAILURE() << "the call does not lower";
    return {};
  }
  Outcome outcome;
  outcome.results = {attended->out, attended->lse.masked_fill(attended->lse.isinf(), 0)};
  if (attended->averages.defined()) outcome.results.push_back(attended->averages);
  std::vector<at::Tensor> upstream;
  at::manual_seed(77);
  for (const at::Tensor& result : outcome.results)
    upstream.push_back(at::randn(result.sizes(), at::kFloat).to(numbers.q.scalar_type()).to(result.scalar_type()));
  const std::vector<at::Tensor> of = asked ? std::vector<at::Tensor>{outcome.results[*asked]} : outcome.results;
  if (asked) upstream = {upstream[*asked]};
  outcome.gradients = torch::autograd::grad(of, leaves, upstream, true, false, true);
  if (!fused) {
    leaves.pop_back();
    outcome.terms = sizes_of_terms(call, outcome.gradients.back(), leaves);
    outcome.gradients.pop_back();
  }
  return outcome;
}

double error_of(const at::Tensor& found, const at::Tensor& wanted) {
  return (found.to(at::kDouble) - wanted).norm().item<double>() / (wanted.norm().item<double>() + 1e-30);
}

/// Bounds of kernel.md: of a row, and of whole tensors. A gradient that is a sum over pairs is judged by its terms.
struct Bounds {
  double row = 2e-6, tensor = 5e-7, gradient = 1e-6;
};
constexpr Bounds kNarrow = {}, kHalf = {4e-3, 4e-3, 6e-3};

void compare(const Outcome& found, const Outcome& wanted, const Bounds& given, bool path) {
  ASSERT_EQ(found.results.size(), wanted.results.size());
  // Logits beyond 8 scale the bounds. The largest that counts is near the log-sum-exp.
  const double factor = std::max(1.0, wanted.results[1].abs().max().item<double>() / 8) * (path ? 3 : 1);
  for (std::size_t n = 0; n < found.results.size(); ++n) {
    const at::Tensor right = wanted.results[n].detach(), error = found.results[n].detach().to(at::kDouble) - right;
    if (n != 1) {
      EXPECT_LE(row_error(found.results[n], right), given.row * factor) << "result " << n;
    }
    EXPECT_LE(error.norm().item<double>(), given.tensor * factor * right.norm().item<double>()) << "result " << n;
  }
  ASSERT_EQ(found.gradients.size(), wanted.gradients.size());
  for (std::size_t n = 0; n < found.gradients.size(); ++n) {
    ASSERT_TRUE(found.gradients[n].defined() && wanted.gradients[n].defined()) << "gradient " << n;
    ASSERT_EQ(found.gradients[n].sizes(), wanted.gradients[n].sizes());
    const double size = std::max(wanted.gradients[n].norm().item<double>(), wanted.terms[n]);
    EXPECT_LE((found.gradients[n] - wanted.gradients[n]).norm().item<double>(), given.gradient * factor * size)
        << "gradient " << n << " of size " << wanted.gradients[n].norm().item<double>() << ", terms "
        << wanted.terms[n];
  }
}

void check_form(const FormCase& form) {
  const FillUninitialized fill;
  const Complete complete = [&](CoreInput& input, const NamedTensors& tensors) {
    BiasForm bias = form.make(tensors);
    bias.heads = form.heads;
    input.biases.push_back(bias);
  };
  for (const Masking masking : {Masking::Causal, Masking::Window, Masking::Documents, Masking::Lengths, Masking::Open})
    for (const Steps steps : {Steps::One, Steps::Halves})
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        if (masking == Masking::Open && form.causal_only) continue;
        SCOPED_TRACE(
            str(form.name, ", masking ", static_cast<int>(masking), ", steps ", static_cast<int>(steps), ", ", type));
        at::manual_seed(11 + static_cast<std::uint64_t>(masking));
        const CoreInput call = frame(masking, steps);
        const Numbers numbers = draw(form, type);
        const bool path = form.name.starts_with("path");
        compare(compute(call, numbers, complete, true), compute(call, numbers, complete, false),
                type == at::kFloat ? kNarrow : kHalf, path);
        if (testing::Test::HasFailure()) return;
      }
}

BiasForm table_form(const at::Tensor& table, Buckets::Far far, bool bidirectional) {
  Buckets rule;
  rule.buckets = table.size(0), rule.max_distance = 24, rule.far = far, rule.bidirectional = bidirectional;
  return BiasForm{{}, TableForm{rule, table}};
}

TEST(FusedForms, Linear) {
  FormCase form;
  form.name = "linear";
  form.shapes = {{"slope", {kHeads}}};
  form.positive = true;
  form.make = [](const NamedTensors& t) { return BiasForm{{}, LinearForm{t.at("slope")}}; };
  check_form(form);
  form.name = "linear, one key head's queries";
  form.heads = {2, 4};
  form.shapes = {{"slope", {2}}};
  check_form(form);
}

TEST(FusedForms, Table) {
  for (const Buckets::Far far : {Buckets::Far::Clamp, Buckets::Far::Wrap, Buckets::Far::Log})
    for (const bool bidirectional : {false, true}) {
      FormCase form;
      form.name = str("table, far ", static_cast<int>(far), bidirectional ? ", bidirectional" : "");
      form.heads = {0, 2};
      form.shapes = {{"table", {8, 2}}};
      form.make = [=](const NamedTensors& t) { return table_form(t.at("table"), far, bidirectional); };
      check_form(form);
    }
}

TEST(FusedForms, LogAndPower) {
  for (const bool power : {false, true}) {
    FormCase form;
    form.name = power ? "power" : "log";
    form.shapes = {{"r1", {kHeads}}, {"r2", {kHeads}}};
    form.positive = true;
    form.make = [=](const NamedTensors& t) {
      return power ? BiasForm{{}, PowerForm{t.at("r1"), t.at("r2")}} : BiasForm{{}, LogForm{t.at("r1"), t.at("r2")}};
    };
    check_form(form);
  }
}

TEST(FusedForms, Cosine) {
  FormCase form;
  form.name = "cosine";
  form.shapes = {{"frequency", {5}}, {"weight", {kHeads}}};
  form.make = [=](const NamedTensors& t) { return BiasForm{{}, CosineForm{t.at("frequency"), t.at("weight")}}; };
  check_form(form);
}

FormCase piecewise() {
  FormCase form;
  form.name = "piecewise";
  form.shapes = {{"w1", {12}}, {"b1", {12}}, {"w2", {kHeads, 12}}, {"b2", {kHeads}}, {"c", {1}}, {"mu", {1}}};
  form.make = [](const NamedTensors& t) {
    // The threshold lies among the positions: some queries are beyond it.
    return BiasForm{
        {}, PiecewiseForm{t.at("w1"), t.at("b1"), t.at("w2"), t.at("b2"), t.at("c"), t.at("mu"), /*length=*/60, 1e-6}};
  };
  return form;
}

TEST(FusedForms, Piecewise) {
  check_form(piecewise());
  FormCase form = piecewise();
  form.name = "piecewise, units that start at the distance 0, and some that never change";
  form.prepare = [](NamedTensors& drawn) {
    drawn.at("b1").narrow(0, 0, 5).zero_();
    drawn.at("w1").narrow(0, 4, 3).zero_();
  };
  check_form(form);
}

TEST(FusedForms, PiecewiseWithoutAReading) {
  // c = 0: every distance is the distance 0, where only units with a positive start count, and c has no gradient.
  const FillUninitialized fill;
  FormCase form = piecewise();
  form.prepare = [](NamedTensors& drawn) { drawn.at("c").zero_(); };
  at::manual_seed(2);
  const Numbers numbers = draw(form, at::kFloat);
  const Complete complete = [&](CoreInput& input, const NamedTensors& tensors) {
    input.biases.push_back(form.make(tensors));
    input.biases.back().heads = form.heads;
  };
  const CoreInput call = frame(Masking::Causal, Steps::One);
  const Outcome found = compute(call, numbers, complete, true), wanted = compute(call, numbers, complete, false);
  ASSERT_EQ(found.gradients.size(), wanted.gradients.size());
  EXPECT_LE(row_error(found.results[0], wanted.results[0]), 2e-6);
  for (std::size_t n = 0; n < wanted.gradients.size(); ++n)
    EXPECT_LE((found.gradients[n] - wanted.gradients[n]).abs().max().item<double>(), 1e-4) << n;
}

TEST(FusedForms, Potential) {
  FormCase form;
  form.name = "potential";
  form.shapes = {{"query", {kRows, kHeads, kQueries}}, {"key", {kRows, kHeads, kKeys}}};
  form.make = [](const NamedTensors& t) { return BiasForm{{}, PotentialForm{t.at("query"), t.at("key")}}; };
  check_form(form);
  form.name = "potential, one row for all, two heads";
  form.heads = {2, 4};
  form.shapes = {{"query", {1, 2, kQueries}}, {"key", {1, 2, kKeys}}};
  check_form(form);
}

TEST(FusedForms, Gated) {
  for (const char* gates : {"query", "key", "both"})
    for (const std::int64_t rows : {std::int64_t{1}, kRows}) {
      const bool query = std::string(gates) != "key", key = std::string(gates) != "query";
      FormCase form;
      form.name = str("gated by ", gates, ", rows ", rows);
      form.heads = {0, 2};
      form.causal_only = form.positive = true;
      form.shapes = {{"omega", {2}}};
      if (query) form.shapes["query"] = {rows, 2, kQueries};
      if (key) form.shapes["key"] = {rows, 2, kKeys};
      form.make = [=](const NamedTensors& t) {
        return BiasForm{
            {}, GatedForm{t.at("omega"), query ? t.at("query") : at::Tensor(), key ? t.at("key") : at::Tensor()}};
      };
      check_form(form);
    }
}

TEST(FusedForms, Path) {
  for (const std::int64_t width : {2, 8}) {
    FormCase form;
    form.name = str("path of width ", width);
    form.causal_only = true;
    form.shapes = {
        {"query", {kRows, kHeads, kQueries, width}}, {"key", {kRows, kHeads, kKeys, width}}, {"alpha", {kHeads}}};
    form.make = [](const NamedTensors& t) {
      return BiasForm{{}, PathForm{t.at("query"), t.at("key"), t.at("alpha").abs() * 0.2}};
    };
    check_form(form);
    form.name += ", two heads";
    form.heads = {2, 4};
    form.shapes = {{"query", {kRows, 2, kQueries, width}}, {"key", {kRows, 2, kKeys, width}}, {"alpha", {2}}};
    check_form(form);
  }
}

TEST(FusedForms, Product) {
  for (const auto& [groups, heads] :
       {std::pair<std::int64_t, HeadRange>{1, {0, 4}}, {2, {0, 4}}, {4, {0, 4}}, {1, {2, 4}}, {2, {2, 4}}})
    for (const std::int64_t rows : {std::int64_t{1}, kRows}) {
      FormCase form;
      form.name = str("product, ", groups, " key vectors for ", heads.size(), " heads, rows ", rows);
      form.heads = heads;
      form.shapes = {{"query", {rows, heads.size(), kQueries, 5}}, {"key", {rows, groups, kKeys, 5}}};
      form.make = [](const NamedTensors& t) { return BiasForm{{}, ProductForm{t.at("query"), t.at("key")}}; };
      check_form(form);
    }
}

/// Bases of a factor, for `heads` heads.
std::vector<FormCase> bases(std::int64_t heads) {
  std::vector<FormCase> all(6);
  all[0].name = "linear";
  all[0].shapes = {{"slope", {heads}}};
  all[0].make = [](const NamedTensors& t) { return BiasForm{{}, LinearForm{t.at("slope").abs()}}; };
  all[1].name = "table";
  all[1].shapes = {{"table", {8, heads}}};
  all[1].make = [](const NamedTensors& t) { return table_form(t.at("table"), Buckets::Far::Clamp, false); };
  all[2].name = "product";
  all[2].shapes = {{"a", {kRows, heads, kQueries, 3}}, {"c", {kRows, 1, kKeys, 3}}};
  all[2].make = [](const NamedTensors& t) { return BiasForm{{}, ProductForm{t.at("a"), t.at("c")}}; };
  all[3].name = "potential";
  all[3].shapes = {{"a", {kRows, heads, kQueries}}, {"c", {1, heads, kKeys}}};
  all[3].make = [](const NamedTensors& t) { return BiasForm{{}, PotentialForm{t.at("a"), t.at("c")}}; };
  all[4].name = "log";
  all[4].shapes = {{"r1", {heads}}, {"r2", {heads}}};
  all[4].make = [](const NamedTensors& t) { return BiasForm{{}, LogForm{t.at("r1").abs(), t.at("r2").abs()}}; };
  all[5].name = "gated";
  all[5].causal_only = true;
  all[5].shapes = {{"omega", {heads}}, {"gate", {kRows, heads, kQueries}}};
  all[5].make = [](const NamedTensors& t) {
    return BiasForm{{}, GatedForm{t.at("omega").abs(), t.at("gate").abs(), {}}};
  };
  return all;
}

at::Tensor marks(std::uint64_t seed, std::int64_t count) {
  const at::Tensor index = at::arange(kRows * kKeys, at::kLong).view({kRows, kKeys});
  return (index * static_cast<std::int64_t>(seed) + index.div(7, "floor")).remainder(count + 1) - 1;
}

void check_factor(FactorForm::Kind kind, std::int64_t factor_heads, const HeadRange& heads, bool grouped) {
  for (const FormCase& base : bases(heads.size())) {
    const bool tagged = kind == FactorForm::Kind::Tag;
    FormCase form;
    form.name = str("factor ", static_cast<int>(kind), " on ", base.name, ", ", factor_heads, " heads",
                    grouped ? ", grouped" : "");
    form.heads = heads;
    form.causal_only = base.causal_only;
    form.shapes = base.shapes;
    form.shapes["left"] = {kRows, factor_heads, kQueries, 3};
    if (!tagged) form.shapes["right"] = {kRows, factor_heads, kKeys, 3};
    if (kind == FactorForm::Kind::Tanh) form.shapes["beta"] = {heads.size()};
    form.make = [=](const NamedTensors& t) {
      FactorForm factor;
      factor.kind = kind;
      factor.base = std::make_shared<BiasForm>(base.make(t));
      factor.left = t.at("left") * 0.5;
      if (tagged) factor.tag = marks(5, 3);
      if (!tagged) factor.right = t.at("right");
      if (kind == FactorForm::Kind::Tanh) factor.beta = t.at("beta");
      factor.bound = 0.83;
      if (grouped) {
        factor.group_key = marks(3, 4);
        factor.group_query = of_queries(factor.group_key);
      }
      return BiasForm{{}, factor};
    };
    check_form(form);
  }
}

TEST(FusedForms, FactorByTag) {
  check_factor(FactorForm::Kind::Tag, kHeads, {0, kHeads}, false);
  check_factor(FactorForm::Kind::Tag, 1, {2, kHeads}, true);
}
TEST(FusedForms, FactorTanh) {
  check_factor(FactorForm::Kind::Tanh, 1, {0, kHeads}, false);
  check_factor(FactorForm::Kind::Tanh, 2, {0, 2}, true);
}
TEST(FusedForms, FactorExp) {
  check_factor(FactorForm::Kind::Exp, 2, {2, kHeads}, false);
  check_factor(FactorForm::Kind::Exp, 1, {0, kHeads}, true);
}

TEST(FusedForms, CarriedValues) {
  const FillUninitialized fill;
  for (const std::int64_t carried_heads : {std::int64_t{1}, kKeyHeads, kHeads})
    for (const std::int64_t rows : {std::int64_t{1}, kRows})
      for (const Masking masking : {Masking::Causal, Masking::Window, Masking::Documents, Masking::Lengths})
        for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
          SCOPED_TRACE(str(carried_heads, " heads, ", rows, " rows, masking ", static_cast<int>(masking), ", ", type));
          at::manual_seed(5);
          FormCase form;
          form.shapes = {{"state", {rows, carried_heads, kKeys, 6}}, {"slope", {kHeads}}};
          const Complete complete = [](CoreInput& input, const NamedTensors& tensors) {
            input.carried = Carried{tensors.at("state")};
            input.biases.push_back({{0, kHeads}, LinearForm{tensors.at("slope").abs()}});
          };
          const CoreInput call = frame(masking, Steps::Halves);
          const Numbers numbers = draw(form, type);
          const Outcome found = compute(call, numbers, complete, true);
          ASSERT_EQ(found.results.size(), 3u);
          EXPECT_EQ(found.results[2].scalar_type(), at::kFloat);
          compare(found, compute(call, numbers, complete, false), type == at::kFloat ? kNarrow : kHalf, false);
          // Whatever the type of v, what is carried is not rounded to it.
          const at::Tensor wanted = compute(call, numbers, complete, false).results[2];
          if (type == at::kBFloat16) {
            EXPECT_LE(row_error(found.results[2], wanted), 5e-4);
          }
        }
}

TEST(FusedForms, EachResultHasItsOwnGradient) {
  const FillUninitialized fill;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (std::size_t asked = 0; asked < 3; ++asked) {
      SCOPED_TRACE(str("result ", asked, " alone, ", type));
      at::manual_seed(12);
      FormCase form;
      form.shapes = {{"state", {1, kKeyHeads, kKeys, 5}}, {"r1", {kHeads}}, {"r2", {kHeads}}};
      form.positive = true;
      const Numbers numbers = draw(form, type);
      const Complete complete = [](CoreInput& input, const NamedTensors& t) {
        input.carried = Carried{t.at("state")};
        input.biases.push_back({{0, kHeads}, LogForm{t.at("r1"), t.at("r2")}});
      };
      const CoreInput call = frame(Masking::Causal, Steps::Halves);
      const Outcome found = compute(call, numbers, complete, true, asked);
      const Outcome wanted = compute(call, numbers, complete, false, asked);
      for (std::size_t n = 0; n < wanted.gradients.size(); ++n) {
        // The values and what is carried are not read by the others.
        if (!wanted.gradients[n].defined()) {
          EXPECT_TRUE(!found.gradients[n].defined() || found.gradients[n].eq(0).all().item<bool>()) << n;
          continue;
        }
        const double size = std::max(wanted.gradients[n].norm().item<double>(), wanted.terms[n]);
        EXPECT_LE((found.gradients[n] - wanted.gradients[n]).norm().item<double>(),
                  (type == at::kFloat ? kNarrow : kHalf).gradient * size)
            << n;
      }
    }
}

TEST(FusedForms, SeveralAtOnce) {
  const FillUninitialized fill;
  at::manual_seed(8);
  FormCase form = piecewise();
  form.shapes["slope"] = {2};
  form.shapes["query"] = {kRows, 2, kQueries, 4};
  form.shapes["key"] = {kRows, 1, kKeys, 4};
  form.shapes["factor"] = {1, kQueries};
  const auto network = form.make;
  const Complete complete = [=](CoreInput& input, const NamedTensors& t) {
    input.biases.push_back({{0, 2}, LinearForm{t.at("slope").abs()}});
    input.biases.push_back({{2, 4}, ProductForm{t.at("query"), t.at("key")}});
    input.biases.push_back(network(t));
    input.biases.back().heads = {0, kHeads};
    input.logit_scales.push_back({{1, 3}, t.at("factor").to(at::kDouble).abs() + 0.5});
  };
  const CoreInput call = frame(Masking::Documents, Steps::Halves);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Numbers numbers = draw(form, type);
    compare(compute(call, numbers, complete, true), compute(call, numbers, complete, false),
            type == at::kFloat ? kNarrow : kHalf, false);
  }
}

TEST(FusedForms, AGradientThatNobodyAsksForIsNotComputed) {
  at::manual_seed(3);
  CoreInput input = frame(Masking::Causal, Steps::Halves);
  input.q = at::randn({kRows, kHeads, kQueries, kDim}), input.k = at::randn({kRows, kKeyHeads, kKeys, kDim});
  input.v = at::randn({kRows, kKeyHeads, kKeys, kValueDim});
  const at::Tensor slope = at::rand({kHeads}).requires_grad_(true);
  const at::Tensor query = at::randn({kRows, kHeads, kQueries}), key = at::randn({kRows, kHeads, kKeys});
  const auto gradient = [&](bool all) {
    CoreInput own = input;
    own.biases.push_back({{0, kHeads}, LinearForm{slope}});
    own.biases.push_back({{0, kHeads}, PotentialForm{query.clone().requires_grad_(all), key}});
    own.q = input.q.clone().requires_grad_(all);
    return torch::autograd::grad({fused_attention(own)->out.square().sum()}, {slope})[0];
  };
  EXPECT_TRUE(gradient(true).equal(gradient(false)));
  // Without any gradient the result is the same, bit for bit.
  CoreInput own = input;
  own.biases.push_back({{0, kHeads}, LinearForm{slope}});
  const at::Tensor trained = fused_attention(own)->out;
  const at::NoGradGuard constant;
  EXPECT_TRUE(trained.equal(fused_attention(own)->out));
}

TEST(FusedForms, WhatIsNotFiniteReachesOnlyTheQueriesThatSeeIt) {
  at::manual_seed(6);
  CoreInput input = frame(Masking::Documents, Steps::Halves);
  input.q = at::randn({kRows, kHeads, kQueries, kDim}), input.k = at::randn({kRows, kKeyHeads, kKeys, kDim});
  input.v = at::randn({kRows, kKeyHeads, kKeys, kValueDim});
  const at::Tensor potential = at::randn({kRows, kHeads, kKeys});
  input.biases = {{{0, kHeads}, PotentialForm{at::randn({kRows, kHeads, kQueries}), potential}}};
  input.carried = Carried{at::randn({kRows, 1, kKeys, 3})};
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  input.k[0][0][40][2] = nan;
  input.k[1][1][22][0] = infinity;  // of a token that is padding
  input.v[1][1][50][7] = -infinity;
  input.q[0][3][12][1] = nan;
  input.carried->values[1][0][64][1] = infinity;
  const std::optional<Attended> found = fused_attention(input);
  ASSERT_TRUE(found.has_value());
  const Attended wanted = reference_attention(input);
  for (const auto& [ours, theirs] : {std::pair{found->out, wanted.out}, std::pair{found->averages, wanted.averages}}) {
    EXPECT_TRUE(ours.isnan().equal(theirs.isnan()));
    EXPECT_TRUE(theirs.isnan().any().item<bool>());
    EXPECT_FALSE(theirs.isnan().all().item<bool>());
    EXPECT_LE(error_of(ours.nan_to_num(0), theirs.nan_to_num(0).to(at::kDouble)), 1e-6);
  }
  // Gradients of it are the reference path's, and so is a bias that is not finite.
  CoreInput trained = input;
  trained.q = input.q.clone().requires_grad_(true);
  EXPECT_FALSE(fused_attention(trained).has_value());
  potential[0][0][3] = nan;
  EXPECT_FALSE(fused_attention(input).has_value());
}

TEST(FusedForms, ACacheInBFloat16IsReadAsItLies) {
  at::manual_seed(12);
  for (const std::int64_t queries : {std::int64_t{1}, kQueries}) {
    CoreInput input = frame(Masking::Documents, Steps::Halves);
    input.q = at::randn({kRows, kHeads, queries, kDim});
    input.query_positions = input.query_positions.narrow(1, kQueries - queries, queries);
    input.mask.query_documents = input.mask.query_documents.narrow(1, kQueries - queries, queries);
    input.k = at::randn({kRows, kKeyHeads, kKeys, kDim}).to(at::kBFloat16);
    input.v = at::randn({kRows, kKeyHeads, kKeys, kValueDim}).to(at::kBFloat16);
    input.biases = {{{0, kHeads}, LinearForm{at::rand({kHeads})}}};
    CoreInput wide = input;
    wide.k = input.k.to(at::kFloat), wide.v = input.v.to(at::kFloat);
    const std::optional<Attended> found = fused_attention(input), same = fused_attention(wide);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->out.scalar_type(), at::kFloat);
    EXPECT_TRUE(found->out.equal(same->out));
    EXPECT_TRUE(found->lse.equal(same->lse));
    // The reference path takes the same call, and is the one that has gradients of it.
    EXPECT_TRUE(reference_attention(input).out.equal(reference_attention(wide).out));
    EXPECT_LE(error_of(found->out, reference_attention(wide).out.to(at::kDouble)), 1e-6);
    CoreInput trained = input;
    trained.q = input.q.clone().requires_grad_(true);
    EXPECT_FALSE(fused_attention(trained).has_value());
    // Other mixtures are not for the kernel.
    CoreInput halves = wide;
    halves.q = input.q.to(at::kBFloat16);
    EXPECT_FALSE(fused_attention(halves).has_value());
    CoreInput mixed = wide;
    mixed.v = input.v;
    EXPECT_FALSE(fused_attention(mixed).has_value());
  }
}

TEST(FusedForms, RefusesANegativeDistanceInTheWordsOfTheReference) {
  at::manual_seed(9);
  CoreInput input = frame(Masking::Documents, Steps::Halves);
  input.q = at::randn({kRows, kHeads, kQueries, kDim}), input.k = at::randn({kRows, kKeyHeads, kKeys, kDim});
  input.v = at::randn({kRows, kKeyHeads, kKeys, kValueDim});
  const GatedForm gated{at::ones({kHeads}), at::rand({kRows, kHeads, kQueries}), {}};
  FactorForm factor;
  factor.kind = FactorForm::Kind::Tag;
  factor.base = std::make_shared<BiasForm>(BiasForm{{}, gated});
  factor.left = at::rand({kRows, 1, kQueries, 3}), factor.tag = marks(5, 3);
  const PathForm path{at::randn({kRows, kHeads, kQueries, 2}), at::randn({kRows, kHeads, kKeys, 2}),
                      at::ones({kHeads})};
  const auto message = [&](const BiasForm& bias, bool fused) -> std::string {
    CoreInput own = input;
    own.biases = {bias};
    own.biases[0].heads = {0, kHeads};
    try {
      if (fused)
        EXPECT_TRUE(fused_attention(own).has_value());
      else
        reference_attention(own);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::vector<BiasForm> forms = {{{}, gated}, {{}, path}, {{}, factor}};
  for (const BiasForm& form : forms) EXPECT_EQ(message(form, true), "");
  input.key_positions[1][41] += 9;  // seen by the next queries, and behind the later ones
  for (const BiasForm& form : forms) {
    EXPECT_EQ(message(form, true), message(form, false));
    EXPECT_NE(message(form, true), "");
  }
  input.mask.key_documents[1][41] = -1;  // nobody sees it any more
  for (const BiasForm& form : forms) {
    EXPECT_EQ(message(form, true), "");
    EXPECT_EQ(message(form, false), "");
  }
}

TEST(FusedForms, SaysWhichFormsItHasNot) {
  CoreInput input = frame(Masking::Causal, Steps::Halves);
  input.q = at::randn({kRows, kHeads, kQueries, kDim}), input.k = at::randn({kRows, kKeyHeads, kKeys, kDim});
  input.v = at::randn({kRows, kKeyHeads, kKeys, kValueDim});
  const auto lowers = [&](const auto& form) {
    CoreInput own = input;
    own.biases = {{{0, kHeads}, form}};
    return fused_attention(own).has_value();
  };
  const at::Tensor probes = at::randn({kRows, kHeads, kQueries, 2}), keys = at::randn({kRows, kHeads, kKeys, 2});
  const PathForm path{probes, keys, at::ones({kHeads})};
  EXPECT_TRUE(lowers(path));
  EXPECT_FALSE(lowers(ContentForm{at::randn({kRows, kHeads, kQueries, kDim}), at::randn({4, kDim})}));
  FactorForm factor;
  factor.kind = FactorForm::Kind::Exp;
  factor.left = at::randn({kRows, 1, kQueries, 2}), factor.right = at::randn({kRows, 1, kKeys, 2});
  factor.base = std::make_shared<BiasForm>(BiasForm{{}, LinearForm{at::ones({kHeads})}});
  EXPECT_TRUE(lowers(factor));
  const FactorForm once = factor;
  factor.base = std::make_shared<BiasForm>(BiasForm{{}, path});
  EXPECT_FALSE(lowers(factor));
  factor.base = std::make_shared<BiasForm>(BiasForm{{}, once});
  EXPECT_FALSE(lowers(factor));
  FactorForm tagged = once;
  tagged.kind = FactorForm::Kind::Tag;
  tagged.tag = marks(5, 3);
  EXPECT_FALSE(lowers(tagged));  // of three tags the tensor has two
  // Distances that wrap need a table of all of them, unless they are too many.
  const at::Tensor table = at::randn({8, kHeads});
  EXPECT_TRUE(lowers(std::get<TableForm>(table_form(table, Buckets::Far::Wrap, false).form)));
  input.key_positions.narrow(1, 0, 9) -= 1e6;
  EXPECT_FALSE(lowers(std::get<TableForm>(table_form(table, Buckets::Far::Wrap, false).form)));
  EXPECT_TRUE(lowers(std::get<TableForm>(table_form(table, Buckets::Far::Clamp, false).form)));
}

TEST(FusedForms, FarTablesReadTheLastBucket) {
  // Queries far beyond the keys, and keys far beyond the queries: one bucket each, whose gradient must not be lost.
  for (const double shift : {1e6, -1e6})
    for (const bool bidirectional : {false, true}) {
      SCOPED_TRACE(str(shift, bidirectional ? " bidirectional" : ""));
      at::manual_seed(4);
      CoreInput call = frame(Masking::Causal, Steps::Halves);
      // Some rows near, so that not all keys of a query read one entry.
      call.key_positions = call.key_positions.clone();
      call.key_positions.narrow(1, 0, 20) -= shift;
      FormCase form;
      form.shapes = {{"table", {8, kHeads}}};
      const Numbers numbers = draw(form, at::kFloat);
      const Complete complete = [=](CoreInput& input, const NamedTensors& t) {
        input.biases.push_back(table_form(t.at("table"), Buckets::Far::Clamp, bidirectional));
        input.biases.back().heads = {0, kHeads};
      };
      compare(compute(call, numbers, complete, true), compute(call, numbers, complete, false), kNarrow, false);
    }
}

}  // namespace
}  // namespace torsor::attention_test
