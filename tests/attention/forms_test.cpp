// Bias forms and carried values on plain arrays, against double loops, with their gradients: above all the forms that
// no encoding uses yet.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "tests/attention/call.h"
#include "tests/attention/definition.h"
#include "torsor/attention/core.h"

namespace torsor::attention_test {
namespace {

/// A plain array; an extent of 1 stands for all indices.
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<double> data;
  double at(std::initializer_list<std::int64_t> index) const {
    std::int64_t flat = 0;
    std::size_t axis = 0;
    for (const std::int64_t one : index) {
      flat = flat * shape[axis] + (shape[axis] == 1 ? 0 : one);
      ++axis;
    }
    return data.at(static_cast<std::size_t>(flat));
  }
};
using Arrays = std::map<std::string, Array>;

double inner(const Array& a, const Array& b, std::int64_t row, std::int64_t ha, std::int64_t i, std::int64_t hb,
             std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < a.shape.back(); ++c) sum += a.at({row, ha, i, c}) * b.at({row, hb, j, c});
  return sum;
}

double log_sigmoid(double z) { return z < 0 ? z - std::log1p(std::exp(z)) : -std::log1p(std::exp(-z)); }

constexpr std::int64_t kRows = 2, kHeads = 4, kKeyHeads = 2, kQueries = 5, kKeys = 7, kDim = 4, kValueDim = 3;

enum class Masking { Causal, Documents, Lengths, Window, Open };

/// What a form is tested with: its own tensors, the form made of them, and its value in plain numbers for head `h` of
/// the form's range at distance n.
struct FormCase {
  std::string name;
  HeadRange heads = {0, kHeads};
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::function<BiasForm(const NamedTensors&)> make;
  std::function<double(const Arrays&, const PlainCall&, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                       double n)>
      value;
  bool causal_only = false;
};

struct FormCall {
  CoreInput input;
  NamedTensors tensors;
  PlainCall plain;
  Arrays arrays;
};

at::Tensor longs(const std::vector<std::int64_t>& values, std::int64_t rows) {
  return at::tensor(values, at::TensorOptions(at::kLong)).view({rows, -1});
}

FormCall make_call(const FormCase& form, Masking masking, const Encoding& none, at::ScalarType dtype = at::kDouble) {
  FormCall call;
  CoreInput& input = call.input;
  const auto leaf = [&](at::IntArrayRef shape) { return at::randn(shape, doubles()).to(dtype).requires_grad_(true); };
  input.q = leaf({kRows, kHeads, kQueries, kDim});
  input.k = leaf({kRows, kKeyHeads, kKeys, kDim});
  input.v = leaf({kRows, kKeyHeads, kKeys, kValueDim});
  input.scale = 0.6;
  // Rows of their own, in token order, with half steps.
  input.key_positions = (at::rand({kRows, kKeys}, doubles()) * 6).ceil().cumsum(1) / 2;
  input.query_positions = input.key_positions.narrow(1, kKeys - kQueries, kQueries);
  AttendOptions options;
  options.scale = input.scale;
  options.positions = input.key_positions.unsqueeze(2);
  options.query_positions = input.query_positions.unsqueeze(2);
  if (masking == Masking::Documents) {
    // Padding stands between tokens of a document, too.
    options.documents = longs({3, -1, 3, 3, -1, 8, 8, -1, 0, 0, -1, 0, 0, 0}, kRows);
    options.query_documents = options.documents.narrow(1, kKeys - kQueries, kQueries);
    input.mask.key_documents = options.documents;
    input.mask.query_documents = options.query_documents;
  }
  if (masking == Masking::Lengths) {
    options.key_lengths = at::tensor({6, 3}, at::TensorOptions(at::kLong));
    input.mask.key_lengths = options.key_lengths;
    input.query_positions =
        at::cat({input.key_positions.narrow(0, 0, 1).narrow(1, 1, 5),
                 at::constant_pad_nd(input.key_positions.narrow(0, 1, 1).narrow(1, 0, 3), {2, 0}, 0)},
                0);
    options.query_positions = input.query_positions.unsqueeze(2);
  }
  if (masking == Masking::Window) options.window = input.mask.window = 3;
  if (masking == Masking::Open) options.causal = input.mask.causal = false;
  for (const auto& [name, shape] : form.shapes) {
    call.tensors[name] = leaf(shape);
    call.arrays[name] = {shape, plain_values(call.tensors[name])};
  }
  if (form.make) {
    BiasForm bias = form.make(call.tensors);
    bias.heads = form.heads;
    input.biases.push_back(bias);
  }
  call.plain = plain_call(none, input.q, input.k, input.v, options);
  return call;
}

/// `extra` of the plain call reads the arrays as they are when it is called, so that they can be changed one by one.
void connect(FormCall& call, const FormCase& form) {
  if (!form.value) return;
  call.plain.extra = [&call, &form](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    if (h < form.heads.begin || h >= form.heads.end) return 0.0;
    const double n = call.plain.query_positions[static_cast<std::size_t>(b * kQueries + i)] -
                     call.plain.key_positions[static_cast<std::size_t>(b * kKeys + j)];
    return form.value(call.arrays, call.plain, b, h - form.heads.begin, i, j, n);
  };
}

double loss_of(const PlainCall& plain, const std::vector<double>& of_out, const std::vector<double>& of_lse) {
  double loss = 0;
  std::size_t row_number = 0;
  for (std::int64_t b = 0; b < kRows; ++b)
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t i = 0; i < kQueries; ++i, ++row_number) {
        const PlainRow row = plain_row(plain, b, h, i);
        for (std::size_t c = 0; c < row.out.size(); ++c) loss += of_out[row_number * row.out.size() + c] * row.out[c];
        if (std::isfinite(row.lse)) loss += of_lse[row_number] * row.lse;
      }
  return loss;
}

void expect_differences(const at::Tensor& found, std::vector<double>& values, const std::function<double()>& loss,
                        const std::string& name) {
  ASSERT_TRUE(found.defined()) << name;
  const std::vector<double> gradient = plain_values(found);
  ASSERT_EQ(gradient.size(), values.size()) << name;
  double largest = 0;
  for (const double one : gradient) largest = std::max(largest, std::abs(one));
  // A third of the entries, the same ones in every run.
  for (std::size_t n = 0; n<values.size(); n += values.size()> 24 ? 3 : 1) {
    const double wanted = finite_difference(values[n], 3e-4, loss);
    ASSERT_NEAR(gradient[n], wanted, 1e-9 + 1e-8 * largest) << name << " entry " << n;
  }
}

void check_form(const FormCase& form) {
  const auto none = make_encoding("none", {.heads = kHeads, .kv_heads = kKeyHeads, .head_dim = kDim});
  for (const Masking masking :
       {Masking::Causal, Masking::Documents, Masking::Lengths, Masking::Window, Masking::Open}) {
    if (masking == Masking::Open && form.causal_only) continue;
    SCOPED_TRACE(str(form.name, ", masking ", static_cast<int>(masking)));
    at::manual_seed(11 + static_cast<std::uint64_t>(masking));
    FormCall call = make_call(form, masking, *none);
    connect(call, form);
    const Attended found = reference_attention(call.input);
    const PlainResult wanted = plain_attention_of(call.plain);
    const at::Tensor blind = wanted.lse.isinf();
    EXPECT_LE(row_error(found.out, wanted.out), 1e-12);
    EXPECT_TRUE(found.lse.isinf().equal(blind));
    EXPECT_LE(tensor_error(found.lse.masked_fill(blind, 0), wanted.lse.masked_fill(blind, 0)), 1e-12);

    const at::Tensor of_out = at::randn_like(found.out), of_lse = at::randn_like(found.lse).masked_fill(blind, 0);
    std::vector<at::Tensor> leaves = {call.input.q, call.input.k, call.input.v};
    std::vector<std::string> names;
    for (const auto& [name, tensor] : call.tensors) leaves.push_back(tensor), names.push_back(name);
    const auto gradients = torch::autograd::grad({found.out, found.lse}, leaves, {of_out, of_lse});
    const std::vector<double> w_out = plain_values(of_out), w_lse = plain_values(of_lse);
    const auto loss = [&] { return loss_of(call.plain, w_out, w_lse); };
    expect_differences(gradients[0], call.plain.q, loss, "q");
    expect_differences(gradients[1], call.plain.k, loss, "k");
    expect_differences(gradients[2], call.plain.v, loss, "v");
    for (std::size_t n = 0; n < names.size(); ++n)
      expect_differences(gradients[n + 3], call.arrays.at(names[n]).data, loss, names[n]);

    // Small blocks, recomputed in the backward pass: the same numbers.
    for (const std::int64_t kept : {std::int64_t{0}, std::int64_t{1} << 40}) {
      const ReferenceLimits limits{.block_numbers = kRows * kHeads * kKeys * 2, .kept_numbers = kept};
      ASSERT_EQ(reference_block(call.input, limits), 2);
      const Attended parts = reference_attention(call.input, limits);
      EXPECT_LE(row_error(parts.out, found.out), 1e-13);
      const auto again = torch::autograd::grad({parts.out, parts.lse}, leaves, {of_out, of_lse});
      for (std::size_t n = 0; n < leaves.size(); ++n) EXPECT_LE(tensor_error(again[n], gradients[n]), 1e-12) << n;
    }

    // float32 keeps to the bound of a row.
    CoreInput narrow = call.input;
    NamedTensors rounded;
    for (const auto& [name, tensor] : call.tensors) rounded[name] = tensor.detach().to(at::kFloat);
    narrow.q = narrow.q.detach().to(at::kFloat), narrow.k = narrow.k.detach().to(at::kFloat),
    narrow.v = narrow.v.detach().to(at::kFloat);
    if (form.make) {
      narrow.biases = {form.make(rounded)};
      narrow.biases[0].heads = form.heads;
    }
    EXPECT_LE(row_error(reference_attention(narrow).out, wanted.out), 6e-6);
  }
}

TEST(Forms, None) { check_form({.name = "none"}); }

TEST(Forms, Potential) {
  FormCase form;
  form.name = "potential";
  form.shapes = {{"query", {kRows, kHeads, kQueries}}, {"key", {kRows, kHeads, kKeys}}};
  form.make = [](const NamedTensors& t) { return BiasForm{{}, PotentialForm{t.at("query"), t.at("key")}}; };
  form.value = [](const Arrays& a, const PlainCall&, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                  double) {
    return a.at("query").at({b, h, i}) - a.at("key").at({b, h, j});
  };
  check_form(form);
  form.name = "potential, one row for all, two heads";
  form.heads = {2, 4};
  form.shapes = {{"query", {1, 2, kQueries}}, {"key", {1, 2, kKeys}}};
  check_form(form);
}

TEST(Forms, Gated) {
  for (const char* gates : {"query", "key", "both"}) {
    const bool query = std::string(gates) != "key", key = std::string(gates) != "query";
    FormCase form;
    form.name = str("gated by ", gates);
    form.heads = {0, 2};
    form.causal_only = true;
    form.shapes = {{"omega", {2}}};
    if (query) form.shapes["query"] = {kRows, 2, kQueries};
    if (key) form.shapes["key"] = {kRows, 2, kKeys};
    form.make = [=](const NamedTensors& t) {
      return BiasForm{{},
                      GatedForm{t.at("omega"), query ? t.at("query") : at::Tensor(), key ? t.at("key") : at::Tensor()}};
    };
    form.value = [=](const Arrays& a, const PlainCall&, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                     double n) {
      const double rate = (query ? a.at("query").at({b, h, i}) : 0) + (key ? a.at("key").at({b, h, j}) : 0);
      return -n * a.at("omega").at({h}) * rate;
    };
    check_form(form);
  }
}

double path_sum(const Arrays& a, const PlainCall& call, std::int64_t b, std::int64_t h, std::int64_t i,
                std::int64_t j) {
  double sum = 0;
  for (std::int64_t l = j + 1; l < kKeys; ++l)
    if (plain_visible(call, b, i, l))
      sum += log_sigmoid(inner(a.at("query"), a.at("key"), b, h, i, h, l) /
                         static_cast<double>(a.at("query").shape.back()));
  return a.at("alpha").at({h}) * sum;
}

TEST(Forms, Path) {
  FormCase form;
  form.name = "path";
  form.causal_only = true;
  form.shapes = {{"query", {kRows, kHeads, kQueries, 6}}, {"key", {kRows, kHeads, kKeys, 6}}, {"alpha", {kHeads}}};
  form.make = [](const NamedTensors& t) { return BiasForm{{}, PathForm{t.at("query"), t.at("key"), t.at("alpha")}}; };
  form.value = [](const Arrays& a, const PlainCall& call, std::int64_t b, std::int64_t h, std::int64_t i,
                  std::int64_t j, double) { return path_sum(a, call, b, h, i, j); };
  check_form(form);
}

TEST(Forms, GatedAndPathRefuseAFallingPosition) {
  const auto none = make_encoding("none", {.heads = kHeads, .kv_heads = kKeyHeads, .head_dim = kDim});
  FormCase gated;
  gated.shapes = {{"omega", {kHeads}}, {"query", {kRows, kHeads, kQueries}}};
  gated.make = [](const NamedTensors& t) { return BiasForm{{}, GatedForm{t.at("omega"), t.at("query"), {}}}; };
  FormCase path;
  path.shapes = {{"query", {kRows, kHeads, kQueries, 2}}, {"key", {kRows, kHeads, kKeys, 2}}, {"alpha", {kHeads}}};
  path.make = [](const NamedTensors& t) { return BiasForm{{}, PathForm{t.at("query"), t.at("key"), t.at("alpha")}}; };
  for (const FormCase& form : {gated, path}) {
    FormCall call = make_call(form, Masking::Causal, *none);
    EXPECT_NO_THROW(reference_attention(call.input));
    call.input.key_positions = call.input.key_positions.clone();
    call.input.key_positions[0][2] = 1000;  // seen by later queries
    EXPECT_THROW(reference_attention(call.input), Error);
    // Where nobody sees it, it may be anything.
    call.input.mask.key_documents = at::zeros({kRows, kKeys}, at::TensorOptions(at::kLong));
    call.input.mask.key_documents[0][2] = -1;
    call.input.mask.query_documents = call.input.mask.key_documents.narrow(1, kKeys - kQueries, kQueries);
    EXPECT_NO_THROW(reference_attention(call.input));
    EXPECT_THROW(reference_attention(make_call(form, Masking::Open, *none).input), Error);
  }
  FormCase ungated;
  ungated.make = [](const NamedTensors&) { return BiasForm{{}, GatedForm{at::ones({kHeads}, doubles()), {}, {}}}; };
  EXPECT_THROW(reference_attention(make_call(ungated, Masking::Causal, *none).input), Error);
}

TEST(Forms, Product) {
  for (const auto& [groups, heads] :
       {std::pair<std::int64_t, HeadRange>{1, {0, 4}}, {2, {0, 4}}, {4, {0, 4}}, {1, {2, 4}}}) {
    const std::int64_t count = heads.size(), of_group = count / groups;
    FormCase form;
    form.name = str("product, ", groups, " key vectors for ", count, " heads");
    form.heads = heads;
    form.shapes = {{"query", {kRows, count, kQueries, 3}}, {"key", {kRows, groups, kKeys, 3}}};
    form.make = [](const NamedTensors& t) { return BiasForm{{}, ProductForm{t.at("query"), t.at("key")}}; };
    form.value = [=](const Arrays& a, const PlainCall&, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                     double) { return inner(a.at("query"), a.at("key"), b, h, i, h / of_group, j); };
    check_form(form);
  }
}

/// A base for the factors, in tensors and in plain numbers.
struct Base {
  std::string name;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::function<BiasForm(const NamedTensors&)> make;
  std::function<double(const Arrays&, std::int64_t, std::int64_t, std::int64_t, std::int64_t, double)> value;
};

std::vector<Base> bases() {
  std::vector<Base> all;
  all.push_back({"linear",
                 {{"slope", {kHeads}}},
                 [](const NamedTensors& t) {
                   return BiasForm{{}, LinearForm{t.at("slope")}};
                 },
                 [](const Arrays& a, std::int64_t, std::int64_t h, std::int64_t, std::int64_t, double n) {
                   return -a.at("slope").at({h}) * std::abs(n);
                 }});
  all.push_back(
      {"table",
       {{"table", {4, kHeads}}},
       [](const NamedTensors& t) {
         Buckets rule;
         rule.buckets = 4, rule.max_distance = 6;
         return BiasForm{{}, TableForm{rule, t.at("table")}};
       },
       [](const Arrays& a, std::int64_t, std::int64_t h, std::int64_t, std::int64_t, double n) {
         // Four buckets up to 6: 0, 1, then from 2 and from 2 * sqrt(3) on.
         const double whole = std::max(n - std::remainder(n, 1.0), 0.0);
         const std::int64_t bucket = whole < 2 ? static_cast<std::int64_t>(whole) : whole < 2 * std::sqrt(3.0) ? 2 : 3;
         return a.at("table").at({bucket, h});
       }});
  all.push_back({"product",
                 {{"a", {kRows, kHeads, kQueries, 3}}, {"c", {kRows, 1, kKeys, 3}}},
                 [](const NamedTensors& t) {
                   return BiasForm{{}, ProductForm{t.at("a"), t.at("c")}};
                 },
                 [](const Arrays& a, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double) {
                   return inner(a.at("a"), a.at("c"), b, h, i, 0, j);
                 }});
  return all;
}

const std::vector<std::int64_t>& tags() {
  static const std::vector<std::int64_t> all = {0, 2, -1, 1, 1, 0, 2, -1, -1, 0, 1, 2, 2, 0};
  return all;
}
const std::vector<std::int64_t>& groups_of_keys() {
  static const std::vector<std::int64_t> all = {0, 0, 0, 1, 1, -1, 1, 5, 5, 5, 5, -1, 6, 6};
  return all;
}
std::int64_t group_of(std::int64_t b, std::int64_t j) {
  return groups_of_keys()[static_cast<std::size_t>(b * kKeys + j)];
}

void check_factor(FactorForm::Kind kind, std::int64_t factor_heads, bool grouped) {
  for (const Base& base : bases()) {
    const bool tagged = kind == FactorForm::Kind::Tag;
    FormCase form;
    form.name = str("factor ", static_cast<int>(kind), " on ", base.name, ", ", factor_heads, " heads",
                    grouped ? ", grouped" : "");
    form.shapes = base.shapes;
    form.shapes["left"] = {kRows, factor_heads, kQueries, 3};
    if (!tagged) form.shapes["right"] = {kRows, factor_heads, kKeys, 3};
    if (kind == FactorForm::Kind::Tanh) form.shapes["beta"] = {kHeads};
    form.make = [=](const NamedTensors& t) {
      FactorForm factor;
      factor.kind = kind;
      factor.base = std::make_shared<BiasForm>(base.make(t));
      factor.left = t.at("left");
      if (tagged) factor.tag = longs(tags(), kRows);
      if (!tagged) factor.right = t.at("right");
      if (kind == FactorForm::Kind::Tanh) factor.beta = t.at("beta");
      factor.bound = 1.43;
      if (grouped) {
        factor.group_key = longs(groups_of_keys(), kRows);
        factor.group_query = factor.group_key.narrow(1, kKeys - kQueries, kQueries);
      }
      return BiasForm{{}, factor};
    };
    form.value = [=](const Arrays& a, const PlainCall&, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                     double n) {
      const double value = base.value(a, b, h, i, j, n);
      if (grouped) {
        const std::int64_t mine = group_of(b, kKeys - kQueries + i);
        if (mine == -1 || mine != group_of(b, j)) return value;
      }
      if (tagged) {
        const std::int64_t tag = tags()[static_cast<std::size_t>(b * kKeys + j)];
        return tag < 0 ? value : value * (1 + a.at("left").at({b, h, i, tag}));
      }
      const double z = inner(a.at("left"), a.at("right"), b, h, i, h, j);
      if (kind == FactorForm::Kind::Tanh) return value * (1 + a.at("beta").at({h}) * std::tanh(z));
      return value * std::exp(std::min(1.43, std::max(-1.43, z)));
    };
    check_form(form);
  }
}

TEST(Forms, FactorByTag) {
  check_factor(FactorForm::Kind::Tag, kHeads, false);
  check_factor(FactorForm::Kind::Tag, 1, true);
}
TEST(Forms, FactorTanh) {
  check_factor(FactorForm::Kind::Tanh, 1, false);
  check_factor(FactorForm::Kind::Tanh, kHeads, true);
}
TEST(Forms, FactorExp) {
  check_factor(FactorForm::Kind::Exp, kHeads, false);
  check_factor(FactorForm::Kind::Exp, 1, true);
}

TEST(Forms, CarriedValuesAreAveragedWithTheSameWeights) {
  const auto none = make_encoding("none", {.heads = kHeads, .kv_heads = kKeyHeads, .head_dim = kDim});
  for (const std::int64_t carried_heads : {std::int64_t{1}, kKeyHeads, kHeads})
    for (const std::int64_t rows : {std::int64_t{1}, kRows})
      for (const Masking masking : {Masking::Causal, Masking::Documents, Masking::Lengths, Masking::Window}) {
        SCOPED_TRACE(str(carried_heads, " heads, ", rows, " rows, masking ", static_cast<int>(masking)));
        at::manual_seed(5);
        FormCase form;
        form.shapes = {{"state", {rows, carried_heads, kKeys, 6}}};
        FormCall call = make_call(form, masking, *none);
        at::Tensor state = call.tensors.at("state");
        call.input.carried = Carried{state};
        const Attended found = reference_attention(call.input);
        ASSERT_EQ(found.averages.sizes(), (std::vector<std::int64_t>{kRows, kHeads, kQueries, 6}));
        const at::Tensor weights_out = at::randn_like(found.out), weights_state = at::randn_like(found.averages);
        const std::vector<double> w_out = plain_values(weights_out), w_state = plain_values(weights_state);
        Array& plain_state = call.arrays.at("state");
        at::Tensor wanted = at::zeros_like(found.averages);
        const auto loss = [&](double* averages) {
          double sum = 0;
          std::size_t out_place = 0, state_place = 0;
          for (std::int64_t b = 0; b < kRows; ++b)
            for (std::int64_t h = 0; h < kHeads; ++h)
              for (std::int64_t i = 0; i < kQueries; ++i) {
                const PlainRow row = plain_row(call.plain, b, h, i);
                for (const double one : row.out) sum += w_out[out_place++] * one;
                for (std::int64_t c = 0; c < 6; ++c, ++state_place) {
                  double average = 0;
                  for (std::int64_t j = 0; j < kKeys; ++j)
                    average += row.weights[static_cast<std::size_t>(j)] *
                               plain_state.at({b, h / (kHeads / carried_heads), j, c});
                  if (averages) averages[state_place] = average;
                  sum += w_state[state_place] * average;
                }
              }
          return sum;
        };
        loss(wanted.data_ptr<double>());
        EXPECT_LE(row_error(found.averages, wanted), 1e-12);
        const auto gradients =
            torch::autograd::grad({found.out, found.averages}, {call.input.q, call.input.k, call.input.v, state},
                                  {weights_out, weights_state});
        const auto plain_loss_of = [&] { return loss(nullptr); };
        expect_differences(gradients[0], call.plain.q, plain_loss_of, "q");
        expect_differences(gradients[1], call.plain.k, plain_loss_of, "k");
        expect_differences(gradients[2], call.plain.v, plain_loss_of, "v");
        expect_differences(gradients[3], plain_state.data, plain_loss_of, "state");
        const Attended recomputed = reference_attention(call.input, {.block_numbers = 1, .kept_numbers = 0});
        const auto again =
            torch::autograd::grad({recomputed.out, recomputed.averages},
                                  {call.input.q, call.input.k, call.input.v, state}, {weights_out, weights_state});
        for (std::size_t n = 0; n < 4; ++n) EXPECT_LE(tensor_error(again[n], gradients[n]), 1e-12) << n;
      }
}

}  // namespace
}  // namespace torsor::attention_test
