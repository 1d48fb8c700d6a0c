// sipe around every kind of encoding: without syntax and at its start it is the encoding inside, bit for bit; its
// gradients at the start; tables against products; near pairs; sentences; the modes and the cache; memory at 4096
// tokens.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/attention/definition.h"
#include "tests/attention/drawn.h"
#include "torsor/encoding/syntax/sipe.h"

namespace torsor::attention_test {
namespace {

/// Every encoding that may stand inside with every coupling that it takes.
const std::vector<std::string>& all_forms() {
  static const std::vector<std::string> forms = [] {
    std::vector<std::string> all;
    const std::vector<std::string> terms = {"alibi", "t5", "txl", "kerple", "fire", "sandwich"};
    const std::vector<std::string> rotations = {"rope",
                                                "rope(layout=interleaved, dim=4, part=suffix)",
                                                "xpos",
                                                "yarn(rope, factor=4, train_length=8)",
                                                "dynamic(rope, factor=2, train_length=4)",
                                                "grape-m"};
    for (const std::string prior : {"", ", prior=fsyn"}) {
      for (const std::string& term : terms)
        for (const char* coupling : {"tag_align", "bilinear", "mlp", "sparse", "sparse_mlp", "additive", "bias"})
          all.push_back("sipe(" + term + prior + ", coupling=" + coupling + ")");
      for (const char* factor : {"linear", "bounded", "exp", "clamp"})
        for (const char* coupling : {"tag_align", "bilinear", "mlp", "sparse"})
          all.push_back("sipe(alibi" + prior + ", coupling=" + coupling + ", factor=" + factor + ")");
      for (const std::string& rotation : rotations) {
        for (const char* coupling : {"rotation", "prerot", "bias"})
          all.push_back("sipe(" + rotation + prior + ", coupling=" + coupling + ")");
        all.push_back("sipe(" + rotation + prior + ", bound=warp)");
      }
      all.push_back("sipe(rope" + prior + ", coupling=pair)");
      all.push_back("sipe(none" + prior + ", coupling=bias)");
      all.push_back("sipe(txl" + prior + ", inject=combined)");
      all.push_back("sipe(rope" + prior + ", inject=combined)");
      all.push_back("heads(sipe(alibi" + prior + ") * 2, sipe(rope" + prior + ") * 2)");
    }
    return all;
  }();
  return forms;
}

/// A call of the encoding inside with the same contents and trained tensors.
Drawn inner_of(const Drawn& call) {
  Drawn inner = call;
  inner.encoding = call.encoding->without_inputs();
  inner.options.named.clear();
  inner.options.parameters.clear();
  for (const ParameterInfo& info : inner.encoding->parameters(0))
    inner.options.parameters[info.name] = call.options.parameters.at(info.name);
  return inner;
}

void without_syntax(Drawn& call) {
  for (auto& [name, tensor] : call.options.named)
    tensor = at::full_like(tensor, name == kSyntaxTags || name == kSyntaxVectors ? 0 : -1);
}

/// Trained tensors as a model's first weights have them.
void at_first_values(Drawn& call) {
  for (const ParameterInfo& info : call.encoding->parameters(0)) {
    at::Tensor& tensor = call.options.parameters.at(info.name);
    switch (info.initial.kind) {
      case Initial::Kind::Constant:
        tensor = at::full_like(tensor, info.initial.a);
        break;
      case Initial::Kind::Normal:
        tensor = info.initial.a + info.initial.b * at::randn_like(tensor);
        break;
      case Initial::Kind::Uniform:
        tensor = info.initial.a + (info.initial.b - info.initial.a) * at::rand_like(tensor);
        break;
      case Initial::Kind::Values:
        tensor = at::tensor(info.initial.values, doubles()).view(info.shape).to(tensor.scalar_type());
    }
  }
}

/// On one path; on the automatic one too where both take the same (`lowers`).
void expect_same_bits(const Drawn& call, const std::string& what, bool lowers = true) {
  const Drawn inner = inner_of(call);
  for (const Path path : {Path::Reference, Path::Auto}) {
    if (path == Path::Auto && !lowers) continue;
    const Attended found = call.full(path), wanted = inner.full(path);
    EXPECT_TRUE(same_bits(found.out, wanted.out)) << what << (path == Path::Auto ? ", automatic path" : "");
    EXPECT_TRUE(same_bits(found.lse, wanted.lse)) << what;
  }
}

bool lowers(const std::string& form) {
  try {
    Drawn(form, 1, 9, at::kFloat, {4, 2}, 8).full(Path::Fused);
  } catch (const NotFused&) {
    return false;
  }
  return true;
}

TEST(Sipe, WithoutSyntaxItIsTheEncodingInsideBitForBit) {
  for (const std::string& form : all_forms())
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      Drawn call(form, 2, 9, dtype, {4, 2}, 8);
      without_syntax(call);
      expect_same_bits(call, str(form, ", ", dtype));
      if (HasFailure()) return;
    }
}

// Every form, its definition and finite differences of that, in float64.
TEST(Sipe, EveryFormComputesItsDefinition) {
  for (const std::string& form : all_forms()) {
    Drawn call(form, 2, 6, at::kDouble, {4, 2}, 8);
    call.options.query_positions = call.options.positions;
    std::vector<std::string> names;
    std::vector<at::Tensor> leaves;
    for (auto& [name, tensor] : call.options.parameters) {
      names.push_back(name);
      leaves.push_back(tensor.requires_grad_(true));
    }
    const at::Tensor out = call.full().out;
    PlainCall plain = plain_call(*call.encoding, call.q, call.k, call.v, call.options);
    EXPECT_LE(row_error(out, plain_attention_of(plain).out), 1e-10) << form;
    if (HasFailure()) return;
    if (leaves.empty()) continue;
    const at::Tensor weight = at::randn_like(out);
    const auto found = torch::autograd::grad({out}, leaves, {weight}, {}, false, true);
    const std::vector<double> weights = plain_values(weight);
    for (std::size_t n = 0; n < names.size(); ++n) {
      if (!names[n].starts_with("sipe.") || !found[n].defined()) continue;
      // Two numbers a tensor: tests/attention/definition_test.cpp looks at more of fewer forms.
      std::vector<double>& values = plain.parameters.at(names[n]);
      for (const std::size_t place : {std::size_t{0}, values.size() - 1}) {
        const double wanted =
            finite_difference(values[place], 3e-4, [&] { return plain_loss(plain, weights, everything(plain)); });
        EXPECT_NEAR(found[n].contiguous().const_data_ptr<double>()[place], wanted,
                    1e-7 * std::max(1.0, largest(found[n])))
            << form << " " << names[n] << " " << place;
      }
    }
  }
}

// Syntax that is there changes something: without this the test above could not fail.
TEST(Sipe, WithSyntaxItIsNot) {
  for (const std::string& form : all_forms()) {
    const Drawn call(form, 2, 9, at::kDouble, {4, 2}, 8);
    EXPECT_FALSE(same_bits(call.full().out, inner_of(call).full().out)) << form;
  }
}

TEST(Sipe, StartsAsTheEncodingInsideBitForBit) {
  for (const std::string& form : all_forms())
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      Drawn call(form, 2, 9, dtype, {4, 2}, 8);
      at_first_values(call);
      expect_same_bits(call, str(form, ", ", dtype), lowers(form));
      if (HasFailure()) return;
    }
  // The other start: a beta that acts on a factor that is zero.
  for (const char* form : {"sipe(t5, beta_init=0.1)", "sipe(alibi, coupling=mlp, beta_init=0.1)",
                           "sipe(t5, prior=fsyn, coupling=mlp, beta_init=0.1)", "sipe(rope, beta_init=0.1)",
                           "sipe(rope, coupling=pair, beta_init=0.1)"}) {
    Drawn call(form, 2, 9, at::kFloat, {4, 2}, 8);
    at_first_values(call);
    expect_same_bits(call, form, lowers(form));
  }
}

// Exactly one factor of each product moves first.
TEST(Sipe, OneFactorHasAGradientAtTheStart) {
  struct Case {
    const char* form;
    std::vector<std::string> moves;
  };
  const std::vector<Case> cases = {
      {"sipe(txl)", {"w_e"}},
      {"sipe(alibi, coupling=tag_align)", {"w_e"}},
      {"sipe(t5, coupling=additive)", {"w_e"}},
      {"sipe(alibi)", {"beta"}},
      {"sipe(t5, beta_init=0.1)", {"v"}},
      {"sipe(t5, prior=fsyn, beta_init=0.1)", {"v"}},
      {"sipe(t5, coupling=mlp)", {"beta"}},
      {"sipe(t5, coupling=mlp, prior=fsyn)", {"beta"}},
      {"sipe(t5, coupling=mlp, beta_init=0.1)", {"w2", "b2"}},  // both of the last layer
      {"sipe(t5, coupling=sparse)", {"beta"}},
      {"sipe(t5, coupling=sparse_mlp, prior=fsyn, beta_init=0.1)", {"w2", "b2"}},
      {"sipe(rope)", {"beta"}},
      {"sipe(rope, bound=warp)", {"beta"}},
      {"sipe(rope, beta_init=0.1)", {"w_phi"}},
      {"sipe(rope, coupling=pair)", {"beta"}},
      {"sipe(rope, coupling=prerot)", {"w_q", "w_k"}},  // two products, one a side
      {"sipe(none, coupling=bias)", {"w_key", "w_value"}},
  };
  for (const Case& one : cases) {
    Drawn call(one.form, 2, 9, at::kDouble, {4, 2}, 8);
    at_first_values(call);
    std::vector<std::string> names;
    for (const auto& [name, tensor] : call.options.parameters)
      if (name.starts_with("sipe.")) names.push_back(name);
    std::vector<at::Tensor> leaves;
    for (const std::string& name : names)
      leaves.push_back(call[name] = call[name].detach().clone().requires_grad_(true));
    const at::Tensor out = call.full().out;
    const auto found = torch::autograd::grad({out}, leaves, {at::randn_like(out)}, {}, false, true);
    for (std::size_t n = 0; n < names.size(); ++n) {
      const bool moves = std::find(one.moves.begin(), one.moves.end(), names[n].substr(5)) != one.moves.end();
      const double size = found[n].defined() ? largest(found[n]) : 0;
      EXPECT_EQ(size > 1e-9, moves) << one.form << " " << names[n] << " " << size;
      EXPECT_TRUE(moves || size == 0) << one.form << " " << names[n] << " " << size;
    }
  }
}

/// The bias of the encoding inside, and what sipe makes of it, (B, H, T, T).
struct Factored {
  Drawn call, inner;
  at::Tensor base, changed, seen;

  explicit Factored(Drawn drawn) : call(std::move(drawn)), inner(inner_of(call)) {
    base = inner.bias();
    changed = call.bias();
    seen = base.isinf().logical_not();
  }
  /// changed / base where that is far from zero, else NaN.
  at::Tensor factor() const {
    return at::where(base.abs().gt(1e-3).logical_and(seen), changed / base, at::full({}, std::nan(""), doubles()));
  }
};

// The look-up of 18 numbers a query is the product <q + v, W_E e> taken for every pair.
TEST(Sipe, TagLookUpIsTheProductOfEveryPair) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const Drawn call("sipe(txl, start=random)", 2, 12, dtype, {4, 2}, 6);
    const auto at = [&](const char* name) { return call.options.parameters.at(name).to(at::kDouble); };
    const at::Tensor tags = call.options.named.at(kSyntaxTags);
    const auto rows = [&](const at::Tensor& table, const at::Tensor& index) {
      const at::Tensor padded = at::cat({at::zeros({1, table.size(1)}, doubles()), table});
      return padded.index_select(0, index.flatten()).view({2, 12, table.size(1)});
    };
    const at::Tensor e = rows(at("sipe.tau"), tags.select(2, 0)) + rows(at("sipe.nu"), tags.select(2, 1));
    const at::Tensor projected = at::einsum("hdc,btc->bhtd", {at("sipe.w_e"), e});  // one vector a head and key
    const at::Tensor q = call.q.to(at::kDouble) + at("txl.v").unsqueeze(1);
    const at::Tensor c = at::matmul(q, projected.transpose(2, 3)) / std::sqrt(6.0);
    // The whole bias from the formula, on logits of unit scale: the call's own product is taken away.
    Drawn wide = call;
    wide.q = call.q.to(at::kDouble), wide.k = call.k.to(at::kDouble), wide.v = call.v.to(at::kDouble);
    for (auto& [name, tensor] : wide.options.parameters) tensor = tensor.to(at::kDouble);
    const at::Tensor plain = inner_of(wide).logits(), content = [&] {
      const at::Tensor u = wide.q + at("txl.u").unsqueeze(1);
      return at::matmul(u, wide.k.repeat_interleave(2, 1).transpose(2, 3)) / std::sqrt(6.0);
    }();
    const at::Tensor wanted = content + (1 + c) * (plain - content);
    const double bound =
        (dtype == at::kDouble ? 1e-9 : 1e-6) * std::max(1.0, largest(wanted.masked_fill(plain.isinf(), 0)));
    EXPECT_LE(apart(call.logits().to(at::kDouble),
                    wanted.masked_fill(plain.isinf(), -std::numeric_limits<double>::infinity())),
              dtype == at::kDouble ? bound : 20 * bound);  // float32 logits are read back from rounded weights
  }
}

TEST(Sipe, SparseIsDenseForNearPairsAndTheEncodingInsideElsewhere) {
  for (const auto& [sparse, dense] :
       std::vector<std::pair<std::string, std::string>>{{"sparse", "bilinear"}, {"sparse_mlp", "mlp"}})
    for (const std::string prior : {"", ", prior=fsyn"})
      for (const char* factor : {"linear", "exp", "bounded"}) {
        const std::string rest = prior + ", factor=" + factor + ", cross_sentence=true)";
        const Factored all(Drawn("sipe(alibi, coupling=" + dense + rest, 2, 14));
        Drawn near = all.call;
        near.encoding = make_encoding("sipe(alibi, coupling=" + sparse + prior + ", factor=" + factor + ", hops=2)",
                                      all.call.encoding->dimensions());
        for (auto& [name, tensor] : draw_syntax({kSyntaxLinks}, 2, 14)) near.options.named[name] = tensor;
        const at::Tensor found = near.bias();
        // The library's own list says which pairs are near; hops_test checks that.
        at::Tensor listed = at::zeros({2, 1, 14, 14}, at::kBool);
        std::int64_t other = 0;
        for (std::int64_t b = 0; b < 2; ++b)
          for (std::int64_t i = 0; i < 14; ++i)
            for (std::int64_t j = 0; j <= i; ++j) {
              const bool as_dense = (found[b][0][i][j] - all.changed[b][0][i][j]).abs().item<double>() < 1e-6;
              const bool as_inner = (found[b][0][i][j] - all.base[b][0][i][j]).abs().item<double>() < 1e-6;
              EXPECT_TRUE(as_dense || as_inner) << sparse << rest << " " << b << " " << i << " " << j;
              other += as_dense && !as_inner;
            }
        EXPECT_GE(other, 5) << sparse << rest;
      }
}

// What one block of queries computes does not depend on how many there are, nor on computing it again backwards.
TEST(Sipe, BlocksComputeWhatOnePassComputes) {
  for (const char* form : {"sipe(t5, prior=fsyn, coupling=mlp)", "sipe(alibi, coupling=sparse)",
                           "sipe(rope, coupling=pair)", "sipe(txl, prior=fsyn)", "sipe(txl, inject=combined)"}) {
    Drawn call(form, 2, 23, at::kFloat, {4, 2}, 8);
    std::vector<at::Tensor> leaves = {call.q.requires_grad_(true), call.k.requires_grad_(true)};
    for (auto& [name, tensor] : call.options.parameters) leaves.push_back(tensor.requires_grad_(true));
    const auto run = [&](const ReferenceLimits& limits) {
      const Sides sides = resolve_sides(call.q, call.k, call.options, call.encoding->traits());
      Question arriving = arrival_question(call.q, call.k, call.v, sides, call.options);
      NamedTensors running;
      const NamedTensors kept = call.encoding->arrive(arriving, running);
      arriving.kept = &kept;
      const at::Tensor keys = move_keys(arriving.k, *call.encoding, arriving, call.options);
      const Question question = query_question(call.q, sides, kept, *call.encoding, call.options);
      const CoreInput input = ask_for_core(*call.encoding, question, keys, call.v, call.options);
      const Attended attended = reference_attention(input, limits);
      std::vector<at::Tensor> all = {attended.out};
      const at::Tensor loss = (attended.out * at::arange(8, at::kFloat)).sum();
      for (at::Tensor& one : torch::autograd::grad({loss}, leaves, {}, {}, false, true)) all.push_back(one);
      return all;
    };
    const std::vector<at::Tensor> whole = run({}), small = run({.block_numbers = 700, .kept_numbers = 1});
    for (std::size_t n = 0; n < whole.size(); ++n) {
      ASSERT_EQ(whole[n].defined(), small[n].defined()) << form << " " << n;
      if (!whole[n].defined()) continue;
      EXPECT_LE(tensor_error(small[n], whole[n]), 1e-5) << form << " " << n;
    }
  }
}

// The forms of hexatags lower to the fused kernel; what needs a number a pair says that it does not.
TEST(Sipe, LowersToTheFusedKernel) {
  for (const char* form : {"sipe(alibi)", "sipe(t5, coupling=mlp, factor=exp)", "sipe(t5, factor=clamp)", "sipe(txl)",
                           "sipe(txl, factor=exp)", "sipe(alibi, prior=fsyn)", "sipe(alibi, prior=fsyn, factor=exp)",
                           "sipe(txl, prior=fsyn, factor=bounded)", "sipe(t5, coupling=additive)", "sipe(rope)",
                           "sipe(rope, coupling=prerot)", "sipe(rope, coupling=bias)", "sipe(txl, inject=combined)"}) {
    Drawn call(form, 2, 70, at::kFloat, {4, 2}, 8);
    const Attended fused = call.full(Path::Fused), reference = call.full(Path::Reference);
    EXPECT_LE(row_error(fused.out, reference.out), 8e-6) << form;
    std::vector<std::string> names = {"q", "k"};
    for (const auto& [name, tensor] : call.options.parameters) names.push_back(name);
    at::manual_seed(5);
    const auto by_kernel = gradients(call, names, Path::Fused);
    at::manual_seed(5);
    const auto by_blocks = gradients(call, names, Path::Reference);
    for (std::size_t n = 0; n < names.size(); ++n)
      EXPECT_LE(tensor_error(by_kernel[n], by_blocks[n]), 2e-5) << form << " " << names[n];
  }
  for (const char* form : {"sipe(t5, prior=fsyn, coupling=mlp)", "sipe(t5, prior=fsyn, factor=clamp)",
                           "sipe(txl, prior=fsyn)", "sipe(alibi, coupling=sparse)", "sipe(rope, coupling=pair)"})
    EXPECT_THROW(Drawn(form, 2, 70, at::kFloat, {4, 2}, 8).full(Path::Fused), NotFused) << form;
}

TEST(Sipe, PenaltiesStayMonotoneWhereTokensAreAlike) {
  for (const std::string prior : {"", ", prior=fsyn"})
    for (const char* coupling : {"tag_align", "bilinear", "mlp"})
      for (const char* factor : {"bounded", "exp"}) {
        const std::string form = "sipe(alibi" + prior + ", coupling=" + coupling + ", factor=" + factor + ")";
        Drawn call(form, 2, 15);
        for (auto& [name, tensor] : call.options.named) {
          if (name == kSyntaxSentences) {
            tensor = at::zeros_like(tensor);
          } else {
            tensor = at::ones_like(tensor);
          }
        }
        const at::Tensor bias = call.bias();
        double rise = 0, moved = 0;
        const at::Tensor base = inner_of(call).bias();
        for (std::int64_t b = 0; b < 2; ++b)
          for (std::int64_t h = 0; h < 4; ++h)
            for (std::int64_t i = 1; i < 15; ++i)
              for (std::int64_t j = 0; j < i; ++j) {
                rise = std::max(rise, (bias[b][h][i][j] - bias[b][h][i][j + 1]).item<double>());
                moved = std::max(moved, (bias[b][h][i][j] - base[b][h][i][j]).abs().item<double>());
              }
        EXPECT_LE(rise, 1e-9) << form;
        EXPECT_GT(moved, 1e-3) << form;
      }
  // A linear factor may turn a penalty into a gain: that is why it is not the default here.
  Drawn call("sipe(alibi, factor=linear)", 1, 6);
  call["sipe.beta"].fill_(-50);
  EXPECT_GT(call.bias().masked_fill(call.bias().isinf(), 0).max().item<double>(), 0.01);
}

TEST(Sipe, FactorsKeepTheirRange) {
  for (const std::string prior : {"", ", prior=fsyn"})
    for (const char* coupling : {"tag_align", "bilinear", "mlp", "sparse"})
      for (const auto& [name, low, high] : {std::tuple{"bounded", 0.1, 1.9},
                                            {"exp", std::exp(-2.0), std::exp(2.0)},
                                            {"clamp", 0.0, std::numeric_limits<double>::infinity()}}) {
        Drawn call(str("sipe(alibi", prior, ", coupling=", coupling, ", factor=", name, ")"), 2, 12);
        for (auto& [tensor_name, tensor] : call.options.parameters) tensor = tensor * 30;
        const Factored one(std::move(call));
        const at::Tensor factor = one.factor(), known = factor.isnan().logical_not();
        EXPECT_GE(at::where(known, factor, at::full({}, 1.0, doubles())).min().item<double>(), low - 1e-6);
        EXPECT_LE(at::where(known, factor, at::full({}, 1.0, doubles())).max().item<double>(), high + 1e-6);
      }
}

TEST(Sipe, SentencesKeepToThemselves) {
  const auto check = [](const std::string& form, bool apart_sentences) {
    Drawn call(form, 1, 10);
    call.options.named[kSyntaxSentences] = longs({0, 0, 0, 0, 0, 1, 1, 1, -1, -1}).view({1, 10});
    if (call.options.named.count(kSyntaxTags)) call.options.named[kSyntaxTags] = at::ones({1, 10, 2}, at::kLong);
    if (call.options.named.count(kSyntaxVectors)) call.options.named[kSyntaxVectors] = at::randn({1, 10, 64});
    const Factored one(std::move(call));
    const at::Tensor same = (one.changed - one.base).masked_fill(one.seen.logical_not(), 0).abs();
    const double across = largest(same.narrow(2, 5, 3).narrow(3, 0, 5)),
                 within = largest(same.narrow(2, 1, 4).narrow(3, 0, 4)), nowhere = largest(same.narrow(2, 8, 2));
    EXPECT_GT(within, 1e-3) << form;
    if (apart_sentences) {
      EXPECT_LE(across, 1e-12) << form;
      EXPECT_LE(nowhere, 1e-12) << form;
    } else {
      EXPECT_GT(across, 1e-3) << form;
    }
  };
  check("sipe(alibi)", true);
  check("sipe(alibi, prior=fsyn)", true);
  check("sipe(t5, prior=fsyn, coupling=mlp)", true);
  check("sipe(t5, coupling=mlp)", true);
  check("sipe(alibi, cross_sentence=true)", false);
  check("sipe(alibi, prior=fsyn, cross_sentence=true)", false);
  check("sipe(t5, coupling=tag_align)", false);
  check("sipe(t5, coupling=tag_align, same_sentence=true)", true);
  check("sipe(t5, prior=fsyn, coupling=tag_align, same_sentence=true)", true);
}

/// Queries and keys of a call after all moves.
std::pair<at::Tensor, at::Tensor> moved(const Drawn& call) {
  const Sides sides = resolve_sides(call.q, call.k, call.options, call.encoding->traits());
  Question arriving = arrival_question(call.q, call.k, call.v, sides, call.options);
  NamedTensors running;
  const NamedTensors kept = call.encoding->arrive(arriving, running);
  arriving.kept = &kept;
  const at::Tensor keys = move_keys(arriving.k, *call.encoding, arriving, call.options);
  const Question question = query_question(call.q, sides, kept, *call.encoding, call.options);
  return {ask_for_core(*call.encoding, question, keys, call.v, call.options).q, keys};
}

TEST(Sipe, RotationsKeepLengths) {
  for (const char* form : {"sipe(rope)", "sipe(rope, bound=warp)", "sipe(rope(layout=interleaved), prior=fsyn)"})
    for (const auto& [dtype, bound] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-6}}) {
      const Drawn call(form, 2, 9, dtype, {4, 2}, 8);
      const auto [q, k] = moved(call);
      const auto off = [](const at::Tensor& after, const at::Tensor& before) {
        return largest((after.to(at::kDouble).norm(2, {-1}) / before.to(at::kDouble).norm(2, {-1})) - 1);
      };
      EXPECT_LE(off(q, call.q), bound) << form;
      EXPECT_LE(off(k, call.k), bound) << form;
    }
}

TEST(Sipe, EqualSyntaxTurnsNothingAgainstEachOther) {
  for (const char* form :
       {"sipe(rope)", "sipe(rope, bound=warp)", "sipe(yarn(rope, factor=4, train_length=8))", "sipe(grape-m)"}) {
    Drawn call(form, 2, 9, at::kFloat, {4, 2}, 8);
    EXPECT_GT(row_error(call.full().out, inner_of(call).full().out), 1e-2) << form;
    call.options.named[kSyntaxTags] = at::ones({2, 9, 2}, at::kLong);
    EXPECT_LE(row_error(call.full().out, inner_of(call).full().out), 1e-5) << form;
  }
}

TEST(Sipe, TokensWithoutSyntaxAreTurnedByTheirPositionsAlone) {
  Drawn call("sipe(rope)", 1, 6, at::kFloat, {4, 2}, 8);
  call.options.named[kSyntaxTags] = longs({1, 1, 0, 0, 2, 3, 0, 0, 0, 0, 1, 5}).view({1, 6, 2});
  const auto [q, k] = moved(call);
  const auto [plain_q, plain_k] = moved(inner_of(call));
  for (std::int64_t t = 0; t < 6; ++t) {
    const bool none = t == 1 || t == 3 || t == 4;
    EXPECT_EQ(same_bits(q.select(2, t), plain_q.select(2, t)), none) << t;
    EXPECT_EQ(same_bits(k.select(2, t), plain_k.select(2, t)), none) << t;
  }
}

// With bound=warp a plane moves by at most four positions of its own, times beta.
TEST(Sipe, WarpMovesAPlaneByAtMostFourPositions) {
  Drawn call("sipe(rope, bound=warp)", 1, 30, at::kDouble, {2, 2}, 8);
  call["sipe.w_phi"] = call["sipe.w_phi"] * 1000;
  call["sipe.beta"].fill_(1);
  Question question;
  const Sides sides = resolve_sides(call.q, call.k, call.options, call.encoding->traits());
  question = arrival_question(call.q, call.k, call.v, sides, call.options);
  const std::vector<Move> moves = call.encoding->moves(question, Role::Key);
  ASSERT_EQ(moves.size(), 2u);
  const Planes planes = std::get<Planes>(moves.back());
  const at::Tensor angle = at::atan2(planes.sine, planes.cosine).abs().amax({0, 1, 2});
  for (std::int64_t i = 0; i < 4; ++i) {
    const double most = 4 * std::pow(10000.0, -static_cast<double>(i) / 4);
    // The first plane's four radians come back around the circle.
    const double wanted = most > 3.14159265358979 ? 2 * 3.14159265358979 - most : most;
    EXPECT_NEAR(angle[i].item<double>(), wanted, 1e-6) << i;
  }
}

TEST(Sipe, PairTurnsAtMost256Keys) {
  EXPECT_NO_THROW(Drawn("sipe(rope, coupling=pair)", 1, 256, at::kFloat, {2, 2}, 4).full());
  EXPECT_THROW(Drawn("sipe(rope, coupling=pair)", 1, 257, at::kFloat, {2, 2}, 4).full(), Refusal);
}

// A parse of whole sentences changes as they grow.
TEST(Sipe, OracleTakesNoTokensBehindOthers) {
  const Drawn call("sipe(alibi, mode=oracle)", 2, 8);
  KvCache cache = call.cache();
  const auto attend = [&](std::int64_t first, std::int64_t count) {
    return cache.attend(call.q.narrow(2, first, count), call.k.narrow(2, first, count), call.v.narrow(2, first, count),
                        call.part(first, count));
  };
  EXPECT_LE(row_error(attend(0, 5).out,
                      [&] {
                        Drawn short_call = call;
                        short_call.q = call.q.narrow(2, 0, 5), short_call.k = call.k.narrow(2, 0, 5);
                        short_call.v = call.v.narrow(2, 0, 5), short_call.options = call.part(0, 5);
                        return short_call.full().out;
                      }()),
            1e-10);
  EXPECT_THROW(attend(5, 1), Refusal);
  EXPECT_EQ(cache.lengths()[0], 5);
  cache.truncate(0);
  EXPECT_NO_THROW(attend(0, 8));
  cache.truncate(3);
  EXPECT_THROW(attend(3, 1), Refusal);
  // The modes whose syntax is final at arrival take them.
  for (const char* mode : {"incremental", "oracle_revealed", "auto"}) {
    const Drawn other(str("sipe(alibi, mode=", mode, ")"), 2, 8);
    KvCache steps = other.cache();
    std::vector<at::Tensor> outs;
    for (std::int64_t t = 0; t < 8; ++t)
      outs.push_back(
          steps.attend(other.q.narrow(2, t, 1), other.k.narrow(2, t, 1), other.v.narrow(2, t, 1), other.part(t, 1))
              .out);
    EXPECT_LE(row_error(at::cat(outs, 2), other.full().out), 1e-10) << mode;
  }
}

// With arcs of whole sentences a later token changes what is near an earlier one; revealed one by one they cannot.
TEST(Sipe, ArcsOfLaterTokensCountInOracleModeAlone) {
  for (const auto& [mode, changes] :
       {std::pair{"oracle", true}, {"oracle_revealed", false}, {"incremental", false}, {"auto", false}}) {
    Drawn call(str("sipe(alibi, coupling=sparse, hops=2, mode=", mode, ")"), 1, 8);
    call.options.named[kSyntaxTags] = at::ones({1, 8, 2}, at::kLong);
    call.options.named[kSyntaxLinks].fill_(-1);
    const at::Tensor before = call.full().out;
    // The last token joins tokens 0 and 4.
    call.options.named[kSyntaxLinks] = call.options.named[kSyntaxLinks].clone();
    call.options.named[kSyntaxLinks][0][7][0] = longs({7, 3});
    const at::Tensor after = call.full().out;
    EXPECT_EQ(!same_bits(before.narrow(2, 0, 7), after.narrow(2, 0, 7)), changes) << mode;
    EXPECT_TRUE(changes || same_bits(before.narrow(2, 0, 7), after.narrow(2, 0, 7)));
  }
}

TEST(Sipe, WithoutASourceItReadsNothing) {
  const Drawn call("sipe(alibi, mode=none)", 2, 7);
  EXPECT_TRUE(call.encoding->inputs().empty());
  expect_same_bits(call, "mode=none");
  EXPECT_TRUE(call.encoding->cache(0).kept.empty());
}

TEST(Sipe, MissingInputsAreNamed) {
  Drawn call("sipe(alibi)", 2, 7);
  call.options.named.erase(kSyntaxSentences);
  try {
    call.full();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'syntax.sentences'"), std::string::npos) << error.what();
  }
  Drawn many("sipe(alibi, coupling=sparse)", 1, 7);
  many.options.named[kSyntaxLinks] = at::full({1, 7, 33, 2}, -1, at::kLong);
  EXPECT_THROW(many.full(), Error);
}

/// Most memory of the process so far, in bytes.
std::int64_t peak_memory() {
  std::int64_t peak = 0;
  if (FILE* file = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file))
      if (std::sscanf(line, "VmHWM: %ld kB", &peak) == 1) break;
    std::fclose(file);
  }
  return peak * 1024;
}

// Training at 4096 tokens: one array of pairs alone would be 64 MiB a head, the hidden units of a network 4 GiB. The
// reference path holds one block of at most 2^22 numbers, a few times over.
TEST(Sipe, TrainsAt4096TokensWithoutAnArrayOfPairs) {
  const std::int64_t tokens = 4096;
  if (peak_memory() == 0) GTEST_SKIP() << "no /proc/self/status to read the peak from";
  for (const auto& [form, most] : std::vector<std::pair<std::string, std::int64_t>>{
           {"sipe(txl)", 64}, {"sipe(alibi)", 64}, {"sipe(alibi, coupling=sparse)", 400}}) {
    Drawn call(form, 1, tokens, at::kFloat, {2, 2}, 8);
    std::vector<at::Tensor> leaves = {call.q.requires_grad_(true)};
    for (auto& [name, tensor] : call.options.parameters) leaves.push_back(tensor.requires_grad_(true));
    const std::int64_t before = peak_memory();
    const at::Tensor out = attend(call.q, call.k, call.v, *call.encoding, call.options);
    const auto found = torch::autograd::grad({out.sum()}, leaves, {}, {}, false, true);
    EXPECT_TRUE(at::isfinite(found.front()).all().item<bool>());
    EXPECT_LE(peak_memory() - before, most << 20) << form;
  }
}

}  // namespace
}  // namespace torsor::attention_test
