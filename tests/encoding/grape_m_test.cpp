// grape-m as an expression: what it refuses, what it trains and how that starts, what it tells of itself.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <variant>

#include "torsor/encoding/registry.h"
#include "torsor/group/basis.h"

namespace torsor {
namespace {

const Dimensions kModel = {.heads = 4, .kv_heads = 2, .head_dim = 8, .width = 12};

std::string refusal_of(const std::string& text, const Dimensions& dimensions = kModel) {
  try {
    make_encoding(text, dimensions);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::map<std::string, ParameterInfo> trained_by(const std::string& text, const Dimensions& dimensions = kModel) {
  std::map<std::string, ParameterInfo> all;
  for (const ParameterInfo& info : make_encoding(text, dimensions)->parameters(0)) all[info.name] = info;
  return all;
}

using Shape = std::vector<std::int64_t>;

TEST(GrapeM, RefusesWhatSaysNothing) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"grape-m(planes=general, rank=4)",
       "grape-m: planes=general and rank=4 both say which planes turn; give one of them"},
      {"grape-m(planes=ja, basis=cayley)",
       "grape-m: basis=cayley says nothing beside planes=ja, whose vectors may point anywhere; leave it out"},
      {"grape-m(rank=4, basis=householder)",
       "grape-m: basis=householder says nothing beside rank=4, whose vectors may point anywhere; leave it out"},
      {"grape-m(rank=2, axes=2)",
       "grape-m: axes=2 needs planes of its own for each axis; with rank=2 the generators of the axes would not "
       "commute "
       "and distances would lose their meaning"},
      {"grape-m(planes=general, orientation=minus)",
       "grape-m: orientation=minus says nothing beside planes=general, whose frequencies have a sign of their own"},
      {"grape-m(rank=4, layout=interleaved)",
       "grape-m: layout=interleaved says nothing beside rank=4, which pairs no channels"},
      {"grape-m(planes=general, per_head=true)",
       "grape-m: per_head=true says nothing beside planes=general, which has vectors for each key head anyway"},
      {"grape-m(context=true, axes=2)",
       "grape-m: context=true puts one phase in the place of the position, which has axes=2"},
      {"grape-m(link=softplus)", "grape-m: link= says how a gate becomes a rate and needs context=true"},
      {"grape-m(reflectors=4)", "grape-m: reflectors= needs basis=householder"},
      {"grape-m(rank=3)", "grape-m: rank=3 must be even: a plane takes two vectors"},
      {"grape-m(rank=10)", "grape-m: rank=10 must be at most head_dim=8"},
      {"grape-m(basis=householder, reflectors=3)",
       "grape-m: reflectors=3 must be even: an odd number mirrors the head"},
      {"grape-m(axes=3)", "grape-m: axes=3 needs a head_dim that is a multiple of 6, found 8"},
  };
  for (const auto& [text, message] : refused) EXPECT_EQ(refusal_of(text), message) << text;
  Dimensions odd = kModel;
  odd.head_dim = 7;
  EXPECT_EQ(refusal_of("grape-m(planes=ja)", odd), "grape-m: planes=ja needs an even head_dim, found 7");
  EXPECT_EQ(refusal_of("grape-m", odd), "grape-m: axes=1 needs a head_dim that is a multiple of 2, found 7");
  for (const char* text : {"grape-m(planes=general)", "grape-m(rank=6)"}) EXPECT_EQ(refusal_of(text, odd), "") << text;
  odd.head_dim = 1;
  EXPECT_EQ(refusal_of("grape-m(planes=general)", odd),
            "grape-m: planes=general needs a head_dim of at least 2, found 1");
}

TEST(GrapeM, StandsAloneAmongRotations) {
  for (const char* text :
       {"grape-m + rope", "rope(dim=4) + grape-m", "grape-m + grape-m", "yarn(rope, factor=2) + grape-m"})
    EXPECT_NE(refusal_of(text).find("one of them turns the whole head"), std::string::npos) << refusal_of(text);
  EXPECT_NE(refusal_of("sinusoidal + grape-m").find("rope takes it with allow=absolute"), std::string::npos);
  EXPECT_NE(refusal_of("txl + grape-m").find("takes no rotation beside it"), std::string::npos);
  EXPECT_NE(refusal_of("yarn(grape-m, factor=2)").find("takes a rotary encoding (rope, xpos"), std::string::npos);
  for (const char* text : {"grape-m + alibi", "grape-m(context=true) + fox", "heads(grape-m * 2, rope * 2)"})
    EXPECT_EQ(refusal_of(text), "") << text;
}

TEST(GrapeM, PrintsItsCanonicalForm) {
  EXPECT_EQ(print(parse("grape-m(orientation=plus,context=true, planes=canonical)")), "grape-m(context=true)");
  EXPECT_EQ(print(parse("grape-m(reflectors=4,basis=householder)")), "grape-m(basis=householder, reflectors=4)");
  EXPECT_THROW(parse("grape-m(planes=random)"), ExpressionError);
  EXPECT_THROW(parse("grape-m(rank=-2)"), ExpressionError);
  EXPECT_THROW(parse("grape-m(base=1)"), ExpressionError);
}

TEST(GrapeM, TrainsWhatItSays) {
  const auto shapes = [](const std::string& text) {
    std::map<std::string, Shape> all;
    for (const auto& [name, info] : trained_by(text)) {
      all[name] = info.shape;
      EXPECT_FALSE(info.decay) << name;
      EXPECT_FALSE(info.shared) << name;
    }
    return all;
  };
  using Shapes = std::map<std::string, Shape>;
  EXPECT_EQ(shapes("grape-m"), (Shapes{{"grape-m.log_freq", {1, 4}}}));
  EXPECT_EQ(shapes("grape-m(per_head=true)"), (Shapes{{"grape-m.log_freq", {2, 4}}}));
  EXPECT_EQ(shapes("grape-m(planes=general)"),
            (Shapes{{"grape-m.a", {2, 8}}, {"grape-m.b", {2, 8}}, {"grape-m.omega", {2}}}));
  EXPECT_EQ(shapes("grape-m(planes=ja)"), (Shapes{{"grape-m.a", {2, 8}}, {"grape-m.omega", {2}}}));
  EXPECT_EQ(shapes("grape-m(rank=4)"), (Shapes{{"grape-m.mix", {2, 8, 4}}, {"grape-m.theta", {2, 2}}}));
  EXPECT_EQ(shapes("grape-m(basis=cayley)"), (Shapes{{"grape-m.log_freq", {1, 4}}, {"grape-m.skew", {28}}}));
  EXPECT_EQ(shapes("grape-m(basis=householder, reflectors=4)"),
            (Shapes{{"grape-m.log_freq", {1, 4}}, {"grape-m.reflectors", {4, 8}}}));
  EXPECT_EQ(shapes("grape-m(context=true)"),
            (Shapes{{"grape-m.log_freq", {1, 4}}, {"grape-m.gate_weight", {1, 12}}, {"grape-m.gate_bias", {1}}}));
  EXPECT_EQ(shapes("grape-m(context=true, per_head=true)"),
            (Shapes{{"grape-m.log_freq", {2, 4}}, {"grape-m.gate_weight", {2, 12}}, {"grape-m.gate_bias", {2}}}));
  EXPECT_EQ(trained_by("grape-m").at("grape-m.log_freq").also, (std::vector<Shape>{{2, 4}}));
}

TEST(GrapeM, Starts) {
  const std::vector<double> spectrum = trained_by("grape-m").at("grape-m.log_freq").initial.values;
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(std::exp(spectrum[i] / 16), std::pow(10000.0, -static_cast<double>(i) / 4), 1e-15);
  // With context the logarithms are not multiplied: the released code has it so.
  const auto context = trained_by("grape-m(context=true)");
  EXPECT_NEAR(context.at("grape-m.log_freq").initial.values[1], -std::log(10.0), 1e-15);
  const double gate = context.at("grape-m.gate_bias").initial.values[0];
  EXPECT_NEAR(std::log1p(std::exp(gate)), 1e-3, 1e-15);
  EXPECT_NEAR(1 / (1 + std::exp(-gate / 16)), 0.3937196363265527, 1e-12);
  EXPECT_EQ(context.at("grape-m.gate_weight").initial.kind, Initial::Kind::Constant);
  EXPECT_EQ(context.at("grape-m.gate_weight").initial.a, 0);
  // Planes of unit vectors at right angles; mixtures of orthonormal ones; no channel without a gradient.
  const auto plane = trained_by("grape-m(planes=general)");
  const at::Tensor a = at::tensor(plane.at("grape-m.a").initial.values, at::kDouble).view({2, 8}),
                   b = at::tensor(plane.at("grape-m.b").initial.values, at::kDouble).view({2, 8});
  for (const at::Tensor& one : {a.square().sum(1) - 1, b.square().sum(1) - 1, (a * b).sum(1)})
    EXPECT_LE(one.abs().max().item<double>(), 1e-14);
  const at::Tensor mix =
      at::tensor(trained_by("grape-m(rank=4)").at("grape-m.mix").initial.values, at::kDouble).view({2, 8, 4});
  EXPECT_LE((at::matmul(mix.transpose(1, 2), mix) - at::eye(4, at::kDouble)).abs().max().item<double>(), 1e-14);
  EXPECT_GT(mix.abs().min().item<double>(), 1e-3);
  const at::Tensor reflectors =
      at::tensor(trained_by("grape-m(basis=householder, reflectors=4)").at("grape-m.reflectors").initial.values,
                 at::kDouble)
          .view({4, 8});
  EXPECT_LE((group::householder(reflectors) - at::eye(8, at::kDouble)).abs().max().item<double>(), 1e-14);
}

TEST(GrapeM, TellsItsRotationWhereThereIsOne) {
  const PlainParameters given = {{"grape-m.log_freq", {0, -16, -32, -48}}};
  const auto half = make_encoding("grape-m(orientation=minus, axes=2)", kModel)->rotation(10, given);
  ASSERT_TRUE(half.has_value());
  EXPECT_EQ(half->blocks, 2);
  EXPECT_EQ(half->axis, (std::vector<std::int64_t>{0, 0, 1, 1}));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(half->inv_freq[0][i], -std::exp(-static_cast<double>(i)), 1e-15);
  for (const char* text : {"grape-m(context=true)", "grape-m(rank=2)", "grape-m(planes=general)"})
    EXPECT_FALSE(make_encoding(text, kModel)->rotation(10, given).has_value()) << text;
  const auto context = make_encoding("grape-m(context=true, per_head=true)", kModel);
  EXPECT_EQ(context->cache(0).kept, (std::vector<std::string>{"grape-m.phase", "grape-m.reach"}));
  EXPECT_EQ(context->cache(0).shift, "exact");
  ASSERT_EQ(context->content().size(), 1u);
  EXPECT_TRUE(context->traits().content && context->traits().relative && context->traits().rotates);
}

TEST(GrapeM, AnswersMovesOfTheirKind) {
  const auto moves = [](const std::string& text) {
    const auto encoding = make_encoding(text, kModel);
    NamedTensors parameters;
    for (const ParameterInfo& info : encoding->parameters(0)) parameters[info.name] = at::rand(info.shape, at::kDouble);
    Question question;
    question.parameters = &parameters;
    question.q = at::zeros({1, 4, 3, 8});
    question.query.positions = question.key.positions = at::arange(3, at::kDouble).view({1, 3, 1});
    return encoding->moves(question, Role::Query);
  };
  ASSERT_EQ(moves("grape-m").size(), 1u);
  EXPECT_EQ(std::get<Planes>(moves("grape-m")[0]).cosine.sizes(), (at::IntArrayRef{1, 1, 3, 4}));
  EXPECT_EQ(std::get<Planes>(moves("grape-m")[0]).cosine.scalar_type(), at::kFloat);
  EXPECT_EQ(std::get<Planes>(moves("grape-m(per_head=true)")[0]).cosine.sizes(), (at::IntArrayRef{1, 2, 3, 4}));
  EXPECT_EQ(std::get<RankTurn>(moves("grape-m(rank=6)")[0]).generator.sizes(), (at::IntArrayRef{2, 8, 6}));
  EXPECT_EQ(std::get<RankTurn>(moves("grape-m(planes=ja)")[0]).generator.sizes(), (at::IntArrayRef{2, 8, 2}));
  const auto in_basis = moves("grape-m(basis=cayley)");
  ASSERT_EQ(in_basis.size(), 2u);
  EXPECT_EQ(std::get<Basis>(in_basis[0]).matrix.sizes(), (at::IntArrayRef{1, 8, 8}));
  EXPECT_TRUE(std::holds_alternative<Planes>(in_basis[1]));
  // Phases are not a function of the position.
  EXPECT_THROW(moves("grape-m(context=true)"), Refusal);
}

}  // namespace
}  // namespace torsor
