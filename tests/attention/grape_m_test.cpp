// grape-m in attention: what it equals exactly, against the shared values of whole sub-layers, contextual phases in a
// cache, trained bases folded into projections.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "tests/attention/call.h"
#include "torsor/base/json.h"
#include "torsor/group/basis.h"

namespace torsor::attention_test {
namespace {

/// Tokens of one encoding with first or drawn trained tensors.
struct Started {
  std::shared_ptr<const Encoding> encoding;
  at::Tensor q, k, v;
  AttendOptions options;

  Started(const std::string& expression, std::int64_t tokens, at::ScalarType dtype = at::kDouble, std::int64_t axes = 1,
          std::int64_t dim = 8) {
    encoding = make_encoding(expression, {.heads = 4, .kv_heads = 2, .head_dim = dim, .width = kCaseWidth});
    at::manual_seed(5);
    const auto normal = [&](std::vector<std::int64_t> shape) { return at::randn(shape, doubles()).to(dtype); };
    q = normal({2, 4, tokens, dim}), k = normal({2, 2, tokens, dim}), v = normal({2, 2, tokens, dim});
    options.x = normal({2, tokens, kCaseWidth});
    const at::Tensor steps = at::arange(tokens, doubles());
    options.positions = (axes == 1 ? steps.view({1, tokens, 1}) : at::stack({steps, (steps * 7).remainder(13)}, 1))
                            .expand({2, tokens, axes});
    for (const ParameterInfo& info : encoding->parameters(0)) {
      const at::Tensor first = info.initial.values.empty()
                                   ? at::full(info.shape, info.initial.a, doubles())
                                   : at::tensor(info.initial.values, doubles()).view(info.shape);
      options.parameters[info.name] = first;
    }
  }
  Started& shaken(double by = 0.3) {
    for (auto& [name, tensor] : options.parameters) tensor = tensor + by * at::randn(tensor.sizes(), doubles());
    return *this;
  }
  at::Tensor& operator[](const std::string& name) { return options.parameters.at(name); }
  at::Tensor out() const { return attend(q, k, v, *encoding, options); }
};

// ---------------------------------------------------------------------------------------------------------------------
// Exact recovery

TEST(GrapeM, StartsAsRope) {
  const std::vector<std::pair<std::string, std::string>> same = {
      {"grape-m", "rope"},
      {"grape-m(base=500, layout=interleaved)", "rope(base=500, layout=interleaved)"},
      {"grape-m(orientation=minus)", "rope(orientation=minus)"},
      {"grape-m(per_head=true)", "rope"},
      {"grape-m(axes=2)", "rope(axes=2)"},
      {"grape-m(basis=cayley)", "rope"},
      {"grape-m(basis=householder, reflectors=4)", "rope"},
  };
  for (const auto& [ours, theirs] : same)
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      const std::int64_t axes = ours == "grape-m(axes=2)" ? 2 : 1;
      const at::Tensor found = Started(ours, 40, dtype, axes).out(), wanted = Started(theirs, 40, dtype, axes).out();
      EXPECT_LE(row_error(found, wanted), dtype == at::kDouble ? 1e-13 : 1e-6) << ours;
    }
  Started learned("rope(learn=true)", 40), ours("grape-m", 40);
  ours.shaken();
  learned["rope.log_freq"] = ours["grape-m.log_freq"] / 16;
  EXPECT_TRUE(same_bits(ours.out(), learned.out()));
}

// One orthonormal plane a canonical pair is the mixture that RoPE is.
TEST(GrapeM, AMixtureOfCanonicalPlanesIsRope) {
  Started mixture("grape-m(rank=8)", 30), rope("rope", 30);
  at::Tensor mix = at::zeros({2, 8, 8}, doubles());
  for (std::int64_t i = 0; i < 4; ++i) {
    mix.select(2, 2 * i).select(1, i + 4) = 1;  // a = the second channel: L(a, b) turns towards minus b
    mix.select(2, 2 * i + 1).select(1, i) = 1;
  }
  mixture["grape-m.mix"] = mix;
  EXPECT_LE(row_error(mixture.out(), rope.out()), 1e-13);
  // A plane of rank 2 is the general plane, and the general plane with b = Ja is ja.
  Started two("grape-m(rank=2)", 30), general("grape-m(planes=general)", 30), ja("grape-m(planes=ja)", 30);
  general.shaken();
  two["grape-m.mix"] = at::stack({general["grape-m.a"], general["grape-m.b"]}, 2);
  two["grape-m.theta"] = general["grape-m.omega"].unsqueeze(1);
  EXPECT_LE(row_error(two.out(), general.out()), 1e-14);
  ja["grape-m.a"] = general["grape-m.a"];
  ja["grape-m.omega"] = general["grape-m.omega"];
  general["grape-m.b"] = at::cat({-general["grape-m.a"].narrow(1, 4, 4), general["grape-m.a"].narrow(1, 0, 4)}, 1);
  EXPECT_TRUE(same_bits(ja.out(), general.out()));
}

// Gates that do not read the content: phases are multiples of the position.
TEST(GrapeM, ConstantRatesAreSlowerPositions) {
  for (const bool softplus : {false, true}) {
    Started context(softplus ? "grape-m(context=true, link=softplus)" : "grape-m(context=true)", 30), rope("rope", 30);
    context["grape-m.gate_bias"].fill_(0.7);
    rope.options.positions =
        rope.options.positions * (softplus ? std::log1p(std::exp(0.7)) : 1 / (1 + std::exp(-0.7 / 16)));
    EXPECT_LE(row_error(context.out(), rope.out()), 1e-12);
    // Positions are not read.
    const at::Tensor before = context.out();
    context.options.positions = context.options.positions * 3 - 11;
    EXPECT_TRUE(same_bits(context.out(), before));
  }
}

TEST(GrapeM, ContextNeedsACausalOrderAndX) {
  Started context("grape-m(context=true)", 9);
  context.options.causal = false;
  EXPECT_THROW(context.out(), Refusal);
  context.options.causal = true;
  context.options.x = at::Tensor();
  EXPECT_THROW(context.out(), Error);
}

// A basis in W_Q and W_K is the same attention without a move.
TEST(GrapeM, BasesFoldIntoProjections) {
  for (const char* text : {"grape-m(basis=cayley)", "grape-m(basis=householder, reflectors=4)"}) {
    Started moved(text, 12), folded("grape-m", 12);
    moved.shaken();
    folded["grape-m.log_freq"] = moved["grape-m.log_freq"];
    const at::Tensor basis = moved.options.parameters.contains("grape-m.skew")
                                 ? group::cayley(group::skew_matrix(moved["grape-m.skew"]))
                                 : group::householder(moved["grape-m.reflectors"]);
    const auto projected = [&](const at::Tensor& x, const at::Tensor& weight) {
      return at::matmul(x, weight.t()).unflatten(2, {weight.size(0) / 8, 8}).transpose(1, 2);
    };
    const at::Tensor wq = at::randn({32, kCaseWidth}, doubles()), wk = at::randn({16, kCaseWidth}, doubles());
    moved.q = projected(moved.options.x, wq), moved.k = projected(moved.options.x, wk);
    folded.q = projected(moved.options.x, group::fold_basis(wq, basis));
    folded.k = projected(moved.options.x, group::fold_basis(wk, basis));
    EXPECT_LE(row_error(moved.out(), folded.out()), 1e-12) << text;
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Contextual phases in a cache

TEST(GrapeM, PhasesGoBackWithTheCache) {
  for (const char* text : {"grape-m(context=true)", "grape-m(context=true, per_head=true, link=softplus)",
                           "grape-m(rank=4, context=true)"}) {
    Started tokens(text, 14);
    tokens.shaken();
    const at::Tensor full = tokens.out();
    KvCache cache(tokens.encoding, {.capacity = 14, .batch = 2, .dtype = at::kDouble});
    const auto step = [&](std::int64_t first, std::int64_t count, double stretch) {
      AttendOptions call = tokens.options;
      call.positions = call.positions.narrow(1, first, count);
      call.x = call.x.narrow(1, first, count) * stretch;
      return cache
          .attend(tokens.q.narrow(2, first, count), tokens.k.narrow(2, first, count), tokens.v.narrow(2, first, count),
                  call)
          .out;
    };
    step(0, 6, 1);
    step(6, 8, -2);  // a rejected draft: other content, other phases
    cache.truncate(6);
    EXPECT_LE(row_error(step(6, 5, 1), full.narrow(2, 6, 5)), 1e-12) << text;
    step(11, 3, 5);
    cache.truncate({11, 11});
    EXPECT_LE(row_error(step(11, 3, 1), full.narrow(2, 11, 3)), 1e-12) << text;
  }
}

// The sum before a token: the key's own rate counts, the query's does not.
TEST(GrapeM, RatesAreExclusive) {
  for (const char* text : {"grape-m(context=true)", "grape-m(context=true, per_head=true, link=softplus)",
                           "grape-m(rank=4, context=true)"}) {
    const auto logits = [&](double more) {
      Started tokens(text, 8);
      tokens.shaken();
      tokens.options.x.select(1, 4).add_(more);
      tokens.options.need_lse = true;
      const at::Tensor units = at::eye(8, doubles()).expand({2, 2, 8, 8});
      const Attended one = attend_full(tokens.q, tokens.k, units, *tokens.encoding, tokens.options);
      return one.out.log() + one.lse.unsqueeze(3);
    };
    const at::Tensor change = (logits(3) - logits(0)).nan_to_num(0).abs().amax({0, 1});
    for (std::int64_t i = 0; i < 8; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        EXPECT_EQ(change[i][j].item<double>() > 1e-9, j <= 4 && i > 4) << text << ' ' << i << ' ' << j;
  }
}

// What is left of a prefix is an additive constant of the phases: no logit among the rest changes.
TEST(GrapeM, ARemovedPrefixChangesNothing) {
  Started tokens("grape-m(context=true)", 12);
  tokens.shaken();
  tokens.options.window = 4;
  const at::Tensor full = tokens.out();
  Started rest = tokens;
  rest.q = tokens.q.narrow(2, 5, 7), rest.k = tokens.k.narrow(2, 5, 7), rest.v = tokens.v.narrow(2, 5, 7);
  rest.options.x = tokens.options.x.narrow(1, 5, 7);
  rest.options.positions = tokens.options.positions.narrow(1, 5, 7);
  EXPECT_LE(row_error(rest.out().narrow(2, 3, 4), full.narrow(2, 8, 4)), 1e-12);
}

// ---------------------------------------------------------------------------------------------------------------------
// Shared values: the released sub-layer, which turns before it normalises

std::string golden_file() {
  const char* shared = std::getenv("TORSOR_SHARED");
  return (shared ? std::string(shared) : std::string(TORSOR_SOURCE_DIR) + "/../shared") + "/golden/golden-grape.json";
}

at::Tensor nested(const Json& json) {
  if (!json.is_array()) return at::scalar_tensor(json.get<double>(), doubles());
  std::vector<at::Tensor> parts;
  for (const Json& one : json) parts.push_back(nested(one));
  return at::stack(parts);
}

TEST(GrapeM, EqualsTheReleasedSubLayers) {
  if (!std::filesystem::exists(golden_file())) GTEST_SKIP() << "no " << golden_file() << "; set TORSOR_SHARED";
  int seen = 0;
  const Json file = read_json(golden_file());
  for (const Json& one : file.at("cases")) {
    const std::string id = one.at("id").get<std::string>();
    const bool context = id == "module_grape-m-ctx";
    if (!context && id != "module_grape-m-nonctx") continue;
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      SCOPED_TRACE(id);
      ++seen;
      const Json &in = one.at("inputs"), &wanted = one.at("outputs");
      const auto leaf = [&](const char* name) { return nested(in.at(name)).to(dtype).requires_grad_(true); };
      const std::int64_t heads = in.at("n_head").get<std::int64_t>(), dim = in.at("head_dim").get<std::int64_t>();
      const at::Tensor x = leaf("x"), wq = leaf("Wq"), wk = leaf("Wk"), wv = leaf("Wv"), wo = leaf("Wo"),
                       q_norm = leaf("q_norm_w"), k_norm = leaf("k_norm_w"), log_freq = leaf("log_freq");
      const auto encoding =
          make_encoding(context ? "grape-m(context=true, orientation=minus)" : "grape-m(orientation=minus)",
                        {.heads = heads, .head_dim = dim, .width = x.size(1)});
      const auto project = [&](const at::Tensor& weight) {
        return at::matmul(x, weight.t()).view({1, x.size(0), heads, dim}).transpose(1, 2);
      };
      AttendOptions options;
      options.x = x.unsqueeze(0);
      options.parameters["grape-m.log_freq"] = log_freq.unsqueeze(0);
      std::vector<std::pair<at::Tensor, const char*>> leaves = {
          {x, "d_x"},   {wq, "d_Wq"},           {wk, "d_Wk"},           {wv, "d_Wv"},
          {wo, "d_Wo"}, {q_norm, "d_q_norm_w"}, {k_norm, "d_k_norm_w"}, {log_freq, "d_log_freq"}};
      if (context) {
        const at::Tensor w = leaf("w_omega"), b = leaf("b_omega");
        options.parameters["grape-m.gate_weight"] = w.unsqueeze(0);
        options.parameters["grape-m.gate_bias"] = b.unsqueeze(0);
        leaves.push_back({w, "d_w_omega"});
        leaves.push_back({b, "d_b_omega"});
      }
      const double eps = in.at("qk_norm_eps").get<double>();
      options.after_moves = [&](const at::Tensor& moved, Role role) {
        return moved / (moved.square().mean(-1, true) + eps).sqrt() * (role == Role::Query ? q_norm : k_norm);
      };
      const at::Tensor heads_out = attend(project(wq), project(wk), project(wv), *encoding, options);
      const at::Tensor y = at::matmul(heads_out.transpose(1, 2).reshape({x.size(0), heads * dim}), wo.t());
      const double bound = one.at("tol").at(dtype == at::kDouble ? "f64_abs" : "f32_abs").get<double>();
      const auto expect = [&](const at::Tensor& found, const char* name) {
        EXPECT_LE((found.to(at::kDouble) - nested(wanted.at(name))).abs().max().item<double>(), bound) << name << dtype;
      };
      expect(y, "y");
      std::vector<at::Tensor> inputs;
      for (const auto& [tensor, name] : leaves) inputs.push_back(tensor);
      const auto gradients = torch::autograd::grad({y}, inputs, {nested(in.at("gy")).to(dtype)});
      for (std::size_t i = 0; i < leaves.size(); ++i) expect(gradients[i], leaves[i].second);
    }
  }
  EXPECT_EQ(seen, 4);
}

}  // namespace
}  // namespace torsor::attention_test
