// How the rotary encodings answer: definition and answers agree, documents keep their own length, calls do not touch
// one another, gradients of trained frequencies, refusals.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <c10/core/InferenceMode.h>

#include <limits>

#include "tests/encoding/rotary_case.h"
#include "torsor/encoding/rotary/document_lengths.h"

namespace torsor::rotary_test {
namespace {

struct Form {
  const char* expression;
  std::int64_t head_dim;
  std::int64_t axes;
};

const Form kForms[] = {
    {"rope", 2, 1},
    {"rope", 6, 1},
    {"rope(layout=interleaved)", 6, 1},
    {"rope(orientation=minus)", 8, 1},
    {"rope(orientation=minus, layout=interleaved, dim=4)", 7, 1},
    {"rope(dim=4, part=suffix)", 10, 1},
    {"rope(fraction=0.5)", 72, 1},
    {"rope(base=[10000, 50])", 6, 1},
    {"rope(learn=true)", 6, 1},
    {"rope(learn=true, base=[10000, 50], orientation=minus)", 6, 1},
    {"rope(learn=true, axes=2)", 8, 2},
    {"rope(frequencies=proportional, fraction=0.3)", 16, 1},
    {"rope(axes=2)", 8, 2},
    {"rope(axes=3, layout=interleaved)", 12, 3},
    {"rope(axes=2, dim=8, part=suffix, base=[100, 20])", 11, 2},
    {"rope(axes=3, arrangement=contiguous, sections=[2, 0, 6])", 16, 3},
    {"rope(axes=3, arrangement=interleaved, sections=[4, 2, 2], layout=interleaved)", 16, 3},
    {"rope(axes=2, arrangement=interleaved, sections=[3, 3])", 12, 2},
    {"xpos", 8, 1},
    {"xpos(layout=interleaved, scale_base=64, gamma=0.7, base=100)", 128, 1},
    {"linear(rope(frequencies=proportional, fraction=0.5), factor=3)", 16, 1},
    {"linear(rope(base=[10000, 50]), factor=2.5)", 6, 1},
    {"linear(rope(learn=true, base=[10000, 50], orientation=minus), factor=2.5)", 6, 1},
    {"yarn(rope(learn=true, base=[1000, 50]), factor=4)", 64, 1},
    {"ntk(rope(layout=interleaved), factor=4)", 8, 1},
    {"ntk-by-parts(rope(base=[1000, 50]), factor=4)", 128, 1},
    {"dynamic(rope, factor=2)", 8, 1},
    {"dynamic(rope(base=[1000, 50], axes=2), factor=2, train_length=1500)", 16, 2},
    {"yarn(rope, factor=4)", 128, 1},
    {"yarn(rope(base=[1000, 50], dim=32), factor=4, truncate=false, beta_fast=8, beta_slow=2)", 40, 1},
    {"yarn(rope(axes=3, arrangement=contiguous, sections=[8, 12, 12]), factor=8, attention_factor=0.5)", 64, 3},
    {"yarn(rope, factor=4, mscale=0.7, mscale_all_dim=0.3)", 8, 1},
    {"longrope(rope, short=[1, 1.5, 2, 2], long=[2, 3, 5, 8], train_length=1000, factor=4)", 8, 1},
    {"longrope(rope(axes=2), short=[1, 1.5], long=[2, 3], train_length=10, attention_factor=0.7)", 8, 2},
    {"llama3(rope(base=[1000, 50]), factor=8, train_length=500, low_freq_factor=2, high_freq_factor=16)", 64, 1},
    {"rope + logn", 6, 1},
};

TEST(Rotary, AnswersEqualTheDefinition) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.expression);
    for (const double far : {3.0, 1000.0, 1e5}) {
      const bool fades = std::string(form.expression).find("xpos") == 0;
      if (fades && far > 1000) continue;  // nothing is left of it out there, or it overflows
      const Call call = random_call(form.expression, form.head_dim, form.axes, 7, far);
      EXPECT_LT(error_of(call.product(), call.defined_product()), 1e-9);
    }
  }
}

TEST(Rotary, AnswersAreFloat32RoundedOnceUnlessTheCallIsFloat64) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.expression);
    Call call = random_call(form.expression, form.head_dim, form.axes);
    const Planes exact = std::get<Planes>(call.encoding->moves(call.question(), Role::Key).at(0));
    EXPECT_EQ(exact.cosine.scalar_type(), at::kDouble);
    call.k = call.k.to(at::kBFloat16);
    const Planes rounded = std::get<Planes>(call.encoding->moves(call.question(), Role::Key).at(0));
    EXPECT_TRUE(rounded.cosine.equal(exact.cosine.to(at::kFloat)));
    EXPECT_TRUE(rounded.sine.equal(exact.sine.to(at::kFloat)));
  }
}

TEST(Rotary, HuggingFacePrecisionIsTheSameFunctionInFloat32) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.expression);
    const Call exact = random_call(form.expression, form.head_dim, form.axes, 7, 20);
    const Call single = random_call(form.expression, form.head_dim, form.axes, 7, 20, Precision::HuggingFace);
    EXPECT_LT(error_of(single.product(), exact.product()), 2e-5);
    const at::Tensor table = std::get<Planes>(single.encoding->moves(single.question(), Role::Key).at(0)).cosine;
    EXPECT_EQ(table.scalar_type(), at::kDouble);
    EXPECT_TRUE(table.equal(table.to(at::kFloat).to(at::kDouble)));
  }
}

TEST(Rotary, NothingChangesWhenAllPositionsMove) {
  for (const Form& form : kForms) {
    Call call = random_call(form.expression, form.head_dim, form.axes, 3, 100);
    if (!call.encoding->traits().relative) continue;
    SCOPED_TRACE(form.expression);
    const at::Tensor before = call.product();
    for (const double shift : {1.0, -7.0, 0.5, 1e6}) {
      Call moved = call;
      moved.query.positions = call.query.positions + shift;
      moved.key.positions = call.key.positions + shift;
      EXPECT_LT(error_of(moved.product(), before), 1e-8) << shift;
    }
  }
  EXPECT_FALSE(random_call("dynamic(rope, factor=2)", 8).encoding->traits().relative);
  EXPECT_FALSE(random_call("rope + logn", 8).encoding->traits().relative);
}

// lucidrains/rotary-embedding-torch#11: what was asked before must not matter.
TEST(Rotary, AnswersDoNotDependOnEarlierCalls) {
  for (const char* expression : {"rope", "dynamic(rope, factor=2, train_length=4)", "rope(learn=true)"}) {
    SCOPED_TRACE(expression);
    Call call = random_call(expression, 8);
    const auto at_offset = [&](const Call& one, double offset) {
      Call moved = one;
      moved.key.positions = at::arange(5, at::kDouble).view({1, 5, 1}).expand({2, 5, 1}) + offset;
      return moved.moved(Role::Key).detach();
    };
    Call fresh = random_call(expression, 8);
    const at::Tensor five = at_offset(fresh, 5), zero = at_offset(random_call(expression, 8), 0);
    EXPECT_GT(error_of(five, zero), 1e-3);
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_TRUE(at_offset(call, 0).equal(zero));
      EXPECT_TRUE(at_offset(call, 5).equal(five));
      EXPECT_TRUE(at_offset(call, 5).equal(five));
      EXPECT_TRUE(at_offset(call, 0).equal(zero));
    }
  }
  // Equal positions in a longer document are another question.
  Call growing = random_call("dynamic(rope, factor=2, train_length=4)", 8);
  growing.query.positions = at::arange(3, at::kDouble).view({1, 3, 1}).expand({2, 3, 1});
  std::vector<at::Tensor> found;
  for (const double last : {4.0, 8.0, 4.0}) {
    growing.key.positions = at::arange(last - 4, last + 1, at::kDouble).view({1, 5, 1}).expand({2, 5, 1});
    found.push_back(growing.moved(Role::Query));
  }
  EXPECT_GT(error_of(found[0], found[1]), 1e-3);
  EXPECT_TRUE(found[0].equal(found[2]));
  // The same tensor written over in place is another question.
  Call call = random_call("rope", 8);
  call.key.positions = at::arange(5, at::kDouble).view({1, 5, 1}).repeat({2, 1, 1});
  const at::Tensor before = call.moved(Role::Key);
  call.key.positions.data_ptr<double>()[9] = 77;
  const at::Tensor after = call.moved(Role::Key);
  EXPECT_TRUE(before.narrow(2, 0, 4).equal(after.narrow(2, 0, 4)));
  EXPECT_GT(error_of(before[1].narrow(1, 4, 1), after[1].narrow(1, 4, 1)), 1e-3);
}

TEST(Rotary, TablesMadeInInferenceModeDoNotSpoilTraining) {
  Call call = random_call("rope", 8);
  {
    const c10::InferenceMode guard;
    call.moved(Role::Key);
  }
  const Planes planes = std::get<Planes>(call.encoding->moves(call.question(), Role::Key)[0]);
  call.k.requires_grad_(true);
  EXPECT_NO_THROW(torch::autograd::grad({(call.k.narrow(3, 0, 4) * planes.cosine).sum()}, {call.k}));
}

TEST(Rotary, OneRowAnswersForAllWhenRowsShareTheirPositions) {
  for (const char* expression : {"rope", "rope(learn=true)", "dynamic(rope, factor=2, train_length=3)"}) {
    Call call = random_call(expression, 8);
    call.key.positions = at::arange(5, at::kDouble).view({1, 5, 1}).expand({2, 5, 1});
    EXPECT_EQ(std::get<Planes>(call.encoding->moves(call.question(), Role::Key)[0]).cosine.sizes(),
              (std::vector<std::int64_t>{1, 1, 5, 4}));
    call.key.positions = call.key.positions.clone(at::MemoryFormat::Contiguous) + 0;
    EXPECT_EQ(std::get<Planes>(call.encoding->moves(call.question(), Role::Key)[0]).cosine.size(0), 2);
  }
}

TEST(Rotary, EmptyAndSingleExtents) {
  for (const char* expression : {"rope", "rope(base=[100, 10])", "dynamic(rope, factor=2)", "rope(learn=true)"}) {
    SCOPED_TRACE(expression);
    Call call = random_call(expression, 8);
    call.query.positions = call.query.positions.narrow(1, 0, 0);
    const Planes none = std::get<Planes>(call.encoding->moves(call.question(), Role::Query)[0]);
    EXPECT_EQ(none.cosine.size(2), 0);
    EXPECT_EQ(none.cosine.size(3), 4);
    call.key.positions = call.key.positions.narrow(1, 0, 1);
    const Planes one = std::get<Planes>(call.encoding->moves(call.question(), Role::Key)[0]);
    EXPECT_EQ(one.cosine.size(0), 2);
    EXPECT_EQ(one.cosine.size(2), 1);
  }
  // Strided positions.
  Call call = random_call("rope", 8);
  const at::Tensor wide = at::randn({5, 2, 3}, at::kDouble) * 10;
  call.key.positions = wide.permute({1, 0, 2}).narrow(2, 1, 1);
  Call packed = call;
  packed.key.positions = call.key.positions.contiguous();
  EXPECT_TRUE(call.moved(Role::Key).equal(packed.moved(Role::Key)));
}

TEST(Rotary, GradientOfTrainedFrequencies) {
  for (const char* expression :
       {"rope(learn=true)", "rope(learn=true, base=[100, 10])", "rope(learn=true, axes=2, orientation=minus)"}) {
    SCOPED_TRACE(expression);
    const std::int64_t axes = std::string(expression).find("axes") == std::string::npos ? 1 : 2;
    Call call = random_call(expression, 8, axes, 5, 4);
    const at::Tensor weight = at::randn({2, 4, 3, 5}, at::kDouble);
    at::Tensor& logarithm = call.parameters.at("rope.log_freq");
    const at::Tensor found = torch::autograd::grad({(call.product() * weight).sum()}, {logarithm})[0].contiguous();
    const at::Tensor start = logarithm.detach().clone();
    for (std::int64_t i = 0; i < start.numel(); ++i) {
      const auto defined_at = [&](double step) {
        logarithm = start.clone();
        logarithm.view(-1)[i] += step;
        return (call.defined_product() * weight).sum().item<double>();
      };
      // Fourth-order central difference.
      const double h = 1e-3;
      const double wanted =
          (8 * (defined_at(h) - defined_at(-h)) - (defined_at(2 * h) - defined_at(-2 * h))) / (12 * h);
      EXPECT_NEAR(found.view(-1)[i].item<double>(), wanted, 1e-6 * found.abs().max().item<double>());
    }
  }
}

TEST(Rotary, TrainedFrequenciesTakeOneRowOrOneAKeyHead) {
  const auto encoding = make_encoding("rope(learn=true)", {.heads = 4, .kv_heads = 2, .head_dim = 6});
  const std::vector<ParameterInfo> infos = encoding->parameters(0);
  ASSERT_EQ(infos.size(), 1u);
  EXPECT_EQ(infos[0].name, "rope.log_freq");
  EXPECT_EQ(infos[0].shape, (std::vector<std::int64_t>{1, 3}));
  ASSERT_EQ(infos[0].also.size(), 1u);
  EXPECT_EQ(infos[0].also[0], (std::vector<std::int64_t>{2, 3}));
  EXPECT_FALSE(infos[0].decay);
  ASSERT_EQ(infos[0].initial.values.size(), 3u);
  EXPECT_NEAR(infos[0].initial.values[1], -std::log(10000.0) / 3, 1e-15);
  const auto heads = make_encoding("rope(learn=true, base=[10000, 100])", {.heads = 4, .kv_heads = 2, .head_dim = 6});
  EXPECT_EQ(heads->parameters(0)[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_NEAR(heads->parameters(0)[0].initial.values[5], -std::log(100.0) * 2 / 3, 1e-15);

  EXPECT_FALSE(encoding->rotation(1, {}).has_value());
  EXPECT_NEAR(encoding->rotation(1, {{"rope.log_freq", {0, -1, -2}}})->inv_freq[0][2], std::exp(-2), 1e-16);
  Call call = random_call("rope(learn=true)", 6);
  call.parameters["rope.log_freq"] = at::zeros({3, 3}, at::kDouble);
  EXPECT_THROW(call.product(), Error);
  call.parameters.clear();
  EXPECT_THROW(call.product(), Error);
}

// ---------------------------------------------------------------------------------------------------------------------
// Frequencies that depend on the length

Side side_of(const std::vector<double>& positions, std::int64_t rows, const std::vector<std::int64_t>& documents = {},
             const std::vector<std::int64_t>& lengths = {}) {
  Side side;
  side.positions = at::tensor(positions, at::kDouble).view({rows, -1, 1});
  if (!documents.empty()) side.documents = at::tensor(documents, at::kLong).view({rows, -1});
  if (!lengths.empty()) side.lengths = at::tensor(lengths, at::kLong);
  return side;
}

TEST(DocumentLengths, EachDocumentOfEachRowHasItsOwn) {
  const Side key = side_of({0, 1, 2, 0, 1, 9, 9, 0, 5, 6}, 2, {4, 4, 4, 7, 7, -1, -1, 4, 4, 9});
  const double nothing = -std::numeric_limits<double>::infinity();
  EXPECT_TRUE(document_lengths(key, key).equal(
      at::tensor({3.0, 3.0, 3.0, 2.0, 2.0, nothing, nothing, 6.0, 6.0, 7.0}, at::kDouble).view({2, 5})));
  const Side query = side_of({50, 60, 70, 80}, 2, {7, 8, 9, 4});
  EXPECT_TRUE(document_lengths(query, key).equal(at::tensor({2.0, nothing, 7.0, 6.0}, at::kDouble).view({2, 2})));
}

TEST(DocumentLengths, KeysPastTheirLengthDoNotCountWhateverTheyHold) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Side key = side_of({3, 4, 5, 2, 1e9, nan}, 2, {}, {3, 1});
  EXPECT_TRUE(document_lengths(key, key).equal(at::tensor({6.0, 3.0}, at::kDouble).view({2, 1})));
  const Side packed = side_of({3, 4, 5, 2, 1e9, nan}, 2, {0, 0, 1, 0, 0, 0}, {3, 1});
  EXPECT_TRUE(
      document_lengths(packed, packed).equal(at::tensor({5.0, 5.0, 6.0, 3.0, 3.0, 3.0}, at::kDouble).view({2, 3})));
}

TEST(DocumentLengths, LargestAxisAndOrderOfKeysDoNotMatter) {
  Side key;
  key.positions = at::tensor({0.0, 8.0, 3.0, 2.5, 1.0, 0.0}, at::kDouble).view({1, 3, 2});
  EXPECT_EQ(document_lengths(key, key).item<double>(), 9);
  key.positions = key.positions.narrow(1, 0, 0);
  EXPECT_EQ(document_lengths(key, key).item<double>(), -std::numeric_limits<double>::infinity());
}

TEST(DocumentLengths, AShortDocumentBesideALongOneKeepsItsFrequencies) {
  for (const char* expression : {"dynamic(rope(base=[1000, 50]), factor=2, train_length=4)",
                                 "longrope(rope, short=[1, 1, 1, 1], long=[2, 3, 4, 5], train_length=4, factor=2)"}) {
    SCOPED_TRACE(expression);
    for (const Precision precision : {Precision::Exact, Precision::HuggingFace}) {
      const auto encoding =
          make_encoding(expression, {.heads = 4, .kv_heads = 2, .head_dim = 8, .precision = precision});
      at::manual_seed(3);
      const at::Tensor k = at::randn({1, 2, 9, 8}, at::kDouble);
      const auto call_with = [&](const std::vector<double>& positions, const std::vector<std::int64_t>& documents,
                                 std::int64_t from) {
        Call call;
        call.encoding = encoding;
        const std::int64_t tokens = static_cast<std::int64_t>(positions.size());
        call.k = k.narrow(2, from, tokens);
        call.q = call.k.repeat_interleave(2, 1);
        call.v = call.k;
        call.key = call.query = side_of(positions, 1, documents);
        return call;
      };
      const Call both = call_with({0, 1, 2, 0, 1, 2, 3, 4, 5}, {0, 0, 0, 1, 1, 1, 1, 1, 1}, 0);
      const Call first = call_with({0, 1, 2}, {}, 0), second = call_with({0, 1, 2, 3, 4, 5}, {}, 3);
      for (const Role role : {Role::Query, Role::Key}) {
        EXPECT_LT(error_of(both.moved(role).narrow(2, 0, 3), first.moved(role)), 1e-7);
        EXPECT_LT(error_of(both.moved(role).narrow(2, 3, 6), second.moved(role)), 1e-7);
      }
      EXPECT_GT(error_of(call_with({0, 1, 2, 3, 4, 5}, {}, 3).moved(Role::Key).narrow(2, 1, 2),
                         call_with({0, 1, 2}, {}, 3).moved(Role::Key).narrow(2, 1, 2)),
                1e-2);
    }
  }
}

TEST(Rotary, QueriesTurnWithTheLengthOfTheKeys) {
  // Two queries of nine keys: T is 9 for both sides, whatever the queries' own positions are.
  Call call = random_call("dynamic(rope, factor=2, train_length=4)", 8);
  call.key = side_of({0, 1, 2, 3, 8, 0, 1, 2, 3, 8}, 2);
  call.query = side_of({1, 2, 3, 1, 2, 3}, 2);
  const double frequency = call.encoding->rotation(9, {})->inv_freq[0][1];
  const Planes planes = std::get<Planes>(call.encoding->moves(call.question(), Role::Query)[0]);
  EXPECT_NEAR(planes.cosine[0][0][2][1].item<double>(), std::cos(3 * frequency), 1e-15);
}

TEST(Rotary, CacheContract) {
  for (const char* expression : {"rope", "xpos", "yarn(rope, factor=2, train_length=8)", "rope(learn=true)"}) {
    const CacheContract contract = make_encoding(expression, {.head_dim = 8})->cache(0);
    EXPECT_EQ(contract.key, CacheContract::Key::Rotated);
    EXPECT_EQ(contract.shift, "exact");
    EXPECT_EQ(contract.evict, "exact");
  }
  for (const char* expression : {"dynamic(rope, factor=2, train_length=8)",
                                 "longrope(rope, short=[1, 1, 1, 1], long=[1, 1, 1, 1], train_length=8, factor=2)"}) {
    const auto encoding = make_encoding(expression, {.head_dim = 8});
    EXPECT_EQ(encoding->cache(0).key, CacheContract::Key::Raw);
    EXPECT_FALSE(encoding->cache(0).note.empty());
    EXPECT_TRUE(encoding->traits().length_dependent);
  }
}

TEST(Rotary, FrequenciesChangeOnlyWhereTheLengthMatters) {
  const auto dynamic = make_encoding("dynamic(rope, factor=2, train_length=8)", {.head_dim = 8});
  EXPECT_FALSE(dynamic->frequencies_change(3, 8));
  EXPECT_TRUE(dynamic->frequencies_change(8, 9));
  EXPECT_TRUE(dynamic->frequencies_change(9, 10));
  const auto longrope =
      make_encoding("longrope(rope, short=[1, 1, 1, 1], long=[2, 1, 1, 1], train_length=8, factor=2)", {.head_dim = 8});
  EXPECT_FALSE(longrope->frequencies_change(3, 8));
  EXPECT_TRUE(longrope->frequencies_change(8, 9));
  EXPECT_FALSE(longrope->frequencies_change(9, 10));
  EXPECT_FALSE(make_encoding("rope", {.head_dim = 8})->frequencies_change(1, 1e6));
}

TEST(Xpos, FadesAsTheFormulaSays) {
  const auto encoding = make_encoding("xpos", {.head_dim = 8});
  const std::vector<Decay> decays = encoding->decays();
  ASSERT_EQ(decays.size(), 1u);
  // zeta_0 = 0.4/1.4 (encodings of xPos: 0.2857), at a distance of 512
  EXPECT_NEAR(std::exp(512 * decays[0].rate[0].item<double>()), 0.4 / 1.4, 1e-15);
  EXPECT_NEAR(std::exp(512 * decays[0].rate[3].item<double>()), (6 + 0.4 * 8) / (1.4 * 8), 1e-15);
  EXPECT_EQ(decays[0].rate.scalar_type(), at::kDouble);
}

// ---------------------------------------------------------------------------------------------------------------------
// Refusals

std::string refusal(const std::string& expression, Dimensions dimensions) {
  try {
    make_encoding(expression, dimensions);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Rotary, RefusalsNameTheKey) {
  const Dimensions model{.heads = 4, .kv_heads = 2, .head_dim = 8};
  const std::pair<const char*, const char*> cases[] = {
      {"rope(dim=7)", "dim=7 must be even"},
      {"rope(dim=10)", "dim=10 must be at most head_dim=8"},
      {"rope(dim=4, fraction=0.5)", "dim= and fraction="},
      {"rope(fraction=0.4)", "fraction=0.4 of head_dim=8 is 3"},
      {"rope(base=[1000, 100, 10])", "base= takes one number, or a list of 2"},
      {"rope(axes=3)", "multiple of 6, found 8"},
      {"rope(axes=2, sections=[2, 2])", "sections= needs arrangement="},
      {"rope(axes=2, arrangement=contiguous)", "sections= needs 2 entries"},
      {"rope(axes=2, arrangement=contiguous, sections=[2, 3])", "must sum to 4 planes, found 5"},
      {"rope(axes=2, arrangement=contiguous, sections=[2.5, 1.5])", "sections= counts planes"},
      {"rope(axes=2, arrangement=interleaved, sections=[1, 3])", "entry 2 can be at most 2"},
      {"rope(arrangement=interleaved, sections=[4])", "needs axes=2 or axes=3"},
      {"rope(frequencies=proportional, dim=4)", "leave dim= out"},
      {"rope(frequencies=proportional, part=suffix)", "leave part= out"},
      {"rope(frequencies=proportional, axes=2)", "one axis"},
      {"rope(frequencies=proportional, fraction=0.1)", "turns no plane"},
      {"rope(frequencies=proportional, learn=true)", "learn=true"},
      {"linear(yarn(rope, factor=2, train_length=8), factor=2)", "cannot scale 'yarn'"},
      {"yarn(xpos, factor=2, train_length=8)", "cannot scale xpos"},
      {"ntk(rope(learn=true), factor=2)", "trained frequencies"},
      {"yarn(rope(frequencies=proportional), factor=2, train_length=8)", "only linear can"},
      {"yarn(rope, factor=2)", "yarn needs train_length"},
      {"yarn(rope, factor=2, train_length=8, beta_fast=1, beta_slow=32)",
       "beta_fast=1 must be larger than beta_slow=32"},
      {"ntk(rope(dim=2), factor=2)", "at least 4"},
      {"dynamic(rope(axes=2, dim=4), factor=2, train_length=8)", "at least 4"},
      {"longrope(rope, short=[1, 1, 1], long=[1, 1, 1, 1], factor=2, train_length=8)", "short= needs 4 numbers"},
      {"longrope(rope, short=[1, 1, 1, 1], long=[1], factor=2, train_length=8)", "long= needs 4 numbers"},
      {"longrope(rope, short=[1, 1, 1, 1], long=[1, 1, 1, 1], factor=2, train_length=1)",
       "train_length=1 must be above 1"},
      {"llama3(rope, low_freq_factor=4, high_freq_factor=4)", "low_freq_factor=4 must be smaller"},
      {"logn", "logn needs train_length"},
  };
  for (const auto& [expression, words] : cases)
    EXPECT_NE(refusal(expression, model).find(words), std::string::npos)
        << expression << ": " << refusal(expression, model);
  EXPECT_NE(refusal("rope", {.head_dim = 7}).find("head_dim=7 must be even"), std::string::npos);
  EXPECT_NE(refusal("xpos", {.head_dim = 7}).find("head_dim=7 must be even"), std::string::npos);
  for (const char* wrong : {"rope(base=0)", "rope(base=1)", "rope(axes=4)", "rope(fraction=0)", "rope(layout=odd)",
                            "yarn(rope, train_length=8)", "yarn(rope, factor=0.5, train_length=8)", "xpos(gamma=0)",
                            "llama3(rope, beta_fast=1)", "yarn(alibi, factor=2)", "longrope(rope, factor=2)"})
    EXPECT_NE(refusal(wrong, model), "accepted") << wrong;
}

TEST(Rotary, PositionsMustHaveTheAxes) {
  Call call = random_call("rope(axes=2)", 8, 2);
  call.query.positions = call.query.positions.narrow(2, 0, 1);
  EXPECT_THROW(call.moved(Role::Query), Error);
  EXPECT_NO_THROW(call.moved(Role::Key));
  call = random_call("rope", 8);
  call.key.positions = call.key.positions.repeat({1, 1, 3});
  EXPECT_THROW(call.moved(Role::Key), Error);
}

}  // namespace
}  // namespace torsor::rotary_test
