// `torsor laws`: what encodings claim holds; what they do not claim is measured; and a fault of any kind is noticed.
#include "torsor/lab/laws.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "torsor/base/error.h"

namespace torsor {
namespace {

std::map<std::string, Law> by_name(const std::vector<Law>& laws) {
  std::map<std::string, Law> found;
  for (const Law& law : laws) found[law.name] = law;
  return found;
}

std::map<std::string, Law> laws_of(const std::string& encoding, std::int64_t head_dim = 16) {
  LawsRequest request;
  request.encoding = encoding;
  request.head_dim = head_dim;
  return by_name(check_laws(request));
}

std::map<std::string, Law> laws_of(const std::string& encoding, QkNorm qk_norm) {
  LawsRequest request;
  request.encoding = encoding;
  request.head_dim = 16;
  request.qk_norm = qk_norm;
  return by_name(check_laws(request));
}

void expect_claims_hold(const std::map<std::string, Law>& laws, std::size_t count = 16) {
  EXPECT_EQ(laws.size(), count);
  for (const auto& [name, law] : laws) {
    EXPECT_TRUE(!law.claimed || law.holds) << name << ": worst " << law.worst.value_or(-1) << " " << law.note;
    if (law.claimed) {
      EXPECT_TRUE(law.worst.has_value()) << name << ": " << law.note;
    } else {
      EXPECT_FALSE(law.note.empty()) << name;
    }
  }
}

TEST(Laws, WhatIsClaimedHolds) {
  for (const char* encoding :
       {"none",
        "sinusoidal",
        "learned",
        "rope",
        "rope(layout=interleaved, orientation=minus)",
        "rope(axes=2)",
        "rope(learn=true)",
        "rope(base=[100, 1000, 10000])",
        "rope(dim=8) + rope(dim=8, part=suffix)",
        "xpos(scale_base=16)",
        "linear(rope, factor=2)",
        "ntk(rope, factor=2)",
        "ntk-by-parts(rope, factor=2)",
        "dynamic(rope, factor=2)",
        "yarn(rope, factor=4)",
        "longrope(rope, short=[1, 1, 1, 1, 1, 1, 1, 1], long=[1, 2, 3, 4, 5, 6, 7, 8], factor=4)",
        "llama3(rope)",
        "logn",
        "llama4-scale(length=4)",
        "alibi",
        "alibi(learn=true)",
        "t5",
        "t5(bidirectional=true)",
        "t5(far=wrap, max_distance=9, buckets=8)",
        "kerple",
        "kerple(kind=power)",
        "sandwich",
        "fire",
        "cope(length=4)",
        "txl",
        "fox",
        "grape-a",
        "grape-a(gate=qk)",
        "grape-a(gate=k, variant=paper)",
        "grape-ap",
        "grape-ap(variant=paper)",
        "grape-ap(variant=relative, learn_alpha=true)",
        "grape-ap(tie=q)",
        "grape-ap(tie=v)",
        "rope + fox + grape-ap(variant=relative)",
        "grape-m",
        "grape-m(orientation=minus, per_head=true)",
        "grape-m(axes=2)",
        "grape-m(planes=general)",
        "grape-m(planes=ja)",
        "grape-m(rank=6)",
        "grape-m(basis=cayley)",
        "grape-m(basis=householder, reflectors=4)",
        "grape-m(context=true)",
        "grape-m(rank=4, context=true, link=softplus)",
        "heads(grape-m(rank=2) * 2, rope * 2)",
        "heads(fox * 2, grape-ap * 2)",
        "rope + alibi",
        "rope + cope",
        "heads(rope * 1, alibi * 2)",
        "layers(rope * 1, none * 1, alibi + t5)"}) {
    SCOPED_TRACE(encoding);
    expect_claims_hold(laws_of(encoding));
  }
}

// Four laws more, and the others with given states and the next states.
TEST(Laws, WhatIsClaimedOfStatesHolds) {
  for (const char* encoding :
       {"tape(rope)", "tape(rope, gqa=shared)", "tape(rope(layout=interleaved), post=headmix)",
        "tape(yarn(rope, factor=4), post=scalar, clip=2)", "tape(rope, block=3)", "tape(rope, mlp=false)",
        "tape(rope, attention=false)", "tape(rope(axes=2), width=3)", "tape(dynamic(rope, factor=2))",
        "tape(rope, control=mixing)", "tape(rope, control=frame)", "tape(rope) + alibi", "tape(rope) + fox",
        "tape(rope) + logn", "heads(tape(rope, gqa=shared) * 2, rope * 2)", "layers(tape(rope), rope)"}) {
    SCOPED_TRACE(encoding);
    expect_claims_hold(laws_of(encoding), 20);
  }
  for (const QkNorm norm : {QkNorm::Before, QkNorm::After}) expect_claims_hold(laws_of("tape(rope)", norm), 20);
}

TEST(Laws, StatesTurnAndReflectUnlessAControlBreaksIt) {
  for (const char* encoding : {"tape(rope)", "tape(rope, gqa=shared, post=headmix)", "tape(rope, block=3)"})
    for (const char* name : {"relative", "permutation", "phase", "reflection", "state bound"}) {
      const Law law = laws_of(encoding).at(name);
      EXPECT_TRUE(law.claimed) << encoding << ' ' << name;
      EXPECT_EQ(verdict(law), "holds") << encoding << ' ' << name;
    }
  for (const char* encoding : {"tape(rope, control=mixing)", "tape(rope, control=frame)"}) {
    const auto laws = laws_of(encoding);
    for (const char* name : {"relative", "phase"}) {
      EXPECT_FALSE(laws.at(name).claimed) << encoding << ' ' << name;
      EXPECT_EQ(verdict(laws.at(name)), "does not hold") << encoding << ' ' << name;
      EXPECT_GT(laws.at(name).worst.value_or(0), 1e-4) << encoding << ' ' << name;
    }
    EXPECT_EQ(verdict(laws.at("permutation")), "holds") << encoding;
    EXPECT_EQ(verdict(laws.at("reflection")), "not claimed") << encoding;  // a state of blocks is refused
  }
  const Law ordered = laws_of("tape(rope) + fox").at("permutation");
  EXPECT_EQ(verdict(ordered), "not claimed");
  EXPECT_FALSE(ordered.worst.has_value());
  EXPECT_EQ(verdict(laws_of("tape(rope)", QkNorm::After).at("phase")), "does not hold");
}

TEST(Laws, WhatIsNotClaimedIsMeasured) {
  EXPECT_TRUE(laws_of("rope").at("relative").claimed);
  for (const char* encoding :
       {"sinusoidal", "logn", "fire", "dynamic(rope, factor=2)", "grape-ap", "grape-ap(variant=paper)"}) {
    const Law law = laws_of(encoding).at("relative");
    EXPECT_EQ(verdict(law), "does not hold") << encoding;
    EXPECT_FALSE(law.claimed) << encoding;
    ASSERT_TRUE(law.worst.has_value()) << encoding;
    EXPECT_GT(*law.worst, 1e-4) << encoding;
  }
  for (const char* encoding : {"fox", "grape-a(gate=qk)", "grape-ap(variant=relative)"}) {
    EXPECT_EQ(verdict(laws_of(encoding).at("relative")), "holds") << encoding;
    EXPECT_EQ(verdict(laws_of(encoding).at("penalty")), "holds") << encoding;
  }
  EXPECT_EQ(verdict(laws_of("fox + grape-ap").at("falling")), "holds");
  EXPECT_EQ(verdict(laws_of("grape-a(gate=k)").at("falling")), "not claimed");
  EXPECT_EQ(verdict(laws_of("fox + t5").at("penalty")), "not claimed");
  // Phases of the content are no function of the position: there is nothing to compose, but a shift changes nothing.
  for (const char* name : {"identity", "composition", "inverse", "norm"}) {
    const Law law = laws_of("grape-m(context=true)").at(name);
    EXPECT_EQ(verdict(law), "not claimed") << name;
    EXPECT_NE(law.note.find("not from its position"), std::string::npos) << law.note;
  }
  EXPECT_EQ(verdict(laws_of("grape-m(context=true)").at("relative")), "holds");
  for (const char* encoding : {"grape-m(rank=6)", "grape-m(planes=general)"})
    for (const char* name : {"identity", "composition", "inverse", "norm", "relative"}) {
      const Law law = laws_of(encoding).at(name);
      EXPECT_EQ(verdict(law), "holds") << encoding << ' ' << name;
      EXPECT_GT(law.worst.value_or(0), 0) << encoding << ' ' << name << ": nothing was measured";
    }
  const Law learned = laws_of("learned").at("relative");
  EXPECT_EQ(verdict(learned), "not claimed");
  EXPECT_NE(learned.note.find("has no vector"), std::string::npos) << learned.note;
  EXPECT_EQ(verdict(laws_of("alibi").at("composition")), "not claimed");
  EXPECT_FALSE(laws_of("alibi").at("norm").worst.has_value());
  EXPECT_EQ(verdict(laws_of("txl").at("identity")), "not claimed");
  EXPECT_EQ(verdict(laws_of("yarn(rope, factor=4)").at("norm")), "holds");  // up to the magnitude
}

// Rows of paths compose with edges of their own; rows compose with each other only where no query weighs the edges.
TEST(Laws, PathsComposeAlongARowAndPotentialsOverRows) {
  for (const char* encoding : {"alibi", "grape-a", "fox", "alibi + fox", "rope + fox", "heads(fox * 2, rope * 2)"})
    for (const char* name : {"row composition", "chaining"})
      EXPECT_EQ(verdict(laws_of(encoding).at(name)), "holds") << encoding << ' ' << name;
  for (const char* encoding : {"grape-ap", "grape-ap(variant=paper)", "grape-ap(variant=relative)", "grape-ap(tie=q)",
                               "grape-ap(tie=k)", "grape-ap(tie=v)", "fox + grape-ap"}) {
    const auto laws = laws_of(encoding);
    EXPECT_EQ(verdict(laws.at("row composition")), "holds") << encoding;
    const Law law = laws.at("chaining");
    EXPECT_EQ(verdict(law), "does not hold") << encoding;
    EXPECT_FALSE(law.claimed) << encoding;
    EXPECT_GT(law.worst.value_or(0), 1e-3) << encoding;
    EXPECT_NE(law.note.find("a path of its own"), std::string::npos) << law.note;
  }
  for (const char* encoding : {"grape-a(gate=k)", "grape-a(gate=qk)"})
    for (const char* name : {"row composition", "chaining"}) {
      const Law law = laws_of(encoding).at(name);
      EXPECT_EQ(verdict(law), "does not hold") << encoding << ' ' << name;
      EXPECT_FALSE(law.claimed) << encoding << ' ' << name;
    }
  EXPECT_EQ(verdict(laws_of("t5").at("chaining")), "does not hold");
  EXPECT_EQ(verdict(laws_of("kerple").at("chaining")), "does not hold");
  for (const char* encoding : {"rope", "txl", "cope"}) {
    const Law law = laws_of(encoding).at("chaining");
    EXPECT_EQ(verdict(law), "not claimed") << encoding;
    EXPECT_FALSE(law.worst.has_value()) << encoding;
  }
}

// Gains that stand behind the turning weigh a plane's channels differently: offsets are no longer all that counts.
TEST(Laws, ANormBehindTheRotationBreaksTheRelativeLaw) {
  for (const char* encoding : {"rope", "grape-m", "grape-m(rank=4)", "rope + alibi", "heads(rope * 1, alibi * 2)"}) {
    EXPECT_EQ(verdict(laws_of(encoding, QkNorm::Before).at("relative")), "holds") << encoding;
    const auto after = laws_of(encoding, QkNorm::After);
    for (const char* name : {"relative", "identity"}) {
      const Law law = after.at(name);
      EXPECT_EQ(verdict(law), "does not hold") << encoding << ' ' << name;
      EXPECT_FALSE(law.claimed) << encoding << ' ' << name;
      EXPECT_GT(law.worst.value_or(0), 1e-2) << encoding << ' ' << name;
      EXPECT_NE(law.note.find("gains of a norm"), std::string::npos) << law.note;
    }
    // The turning itself is what it was.
    for (const char* name : {"composition", "inverse", "norm"})
      EXPECT_EQ(verdict(after.at(name)), "holds") << encoding << ' ' << name;
  }
  for (const char* encoding : {"none", "alibi", "fox", "grape-a(gate=qk)"})
    EXPECT_EQ(verdict(laws_of(encoding, QkNorm::After).at("relative")), "holds") << encoding;
}

TEST(Laws, WhatIsClaimedHoldsWithANorm) {
  for (const QkNorm norm : {QkNorm::Before, QkNorm::After})
    for (const char* encoding :
         {"none", "rope", "xpos(scale_base=16)", "dynamic(rope, factor=2)", "yarn(rope, factor=4)", "txl",
          "cope(length=4)", "fox", "grape-a(gate=qk)", "grape-ap(tie=k)", "grape-ap(tie=q)", "grape-m(rank=6)",
          "grape-m(basis=cayley)", "grape-m(context=true)", "layers(rope * 1, none * 1, alibi + t5)"}) {
      SCOPED_TRACE(str(encoding, norm == QkNorm::Before ? ", before" : ", after"));
      expect_claims_hold(laws_of(encoding, norm));
    }
}

TEST(Laws, HeadsFollowTheExpression) {
  EXPECT_EQ(verdict(laws_of("heads(alibi * 3, t5 * 4)").at("streaming")), "holds");
  LawsRequest request;
  request.encoding = "heads(alibi * 3, t5 * 4)";
  request.heads = 8;
  EXPECT_THROW(check_laws(request), UsageError);
  request.encoding = "rope";
  request.heads = 6;
  request.kv_heads = 3;
  EXPECT_EQ(verdict(by_name(check_laws(request)).at("chunked")), "holds");
  request.head_dim = 7;
  EXPECT_THROW(check_laws(request), UsageError);
  request.head_dim = 16;
  request.encoding = "tape(rope, block=3)";
  request.qk_norm = QkNorm::After;
  EXPECT_THROW(check_laws(request), UsageError);
  request.qk_norm = QkNorm::None;
  request.encoding = "roep";
  EXPECT_THROW(check_laws(request), UsageError);
}

// --------------------------------------------------------------------------------------------------------------------
// Encodings with one fault each

/// Turns the whole head by angle(p), with a length of scale(p).
class Turning : public Encoding {
 public:
  using Function = double (*)(double);
  Turning(Function angle, Function scale)
      : Encoding(Dimensions{.heads = 2, .kv_heads = 1, .head_dim = 4, .width = 8}), angle_(angle), scale_(scale) {}
  Traits traits() const override {
    Traits traits;
    traits.rotates = true;
    return traits;
  }
  std::vector<Move> moves(const Question& question, Role role) const override {
    const at::Tensor positions =
        (role == Role::Query ? question.query : question.key).positions.select(2, 0).contiguous();
    at::Tensor cosine = at::empty_like(positions), sine = at::empty_like(positions);
    for (std::int64_t i = 0; i < positions.numel(); ++i) {
      const double p = positions.data_ptr<double>()[i];
      cosine.data_ptr<double>()[i] = scale_(p) * std::cos(angle_(p));
      sine.data_ptr<double>()[i] = scale_(p) * std::sin(angle_(p));
    }
    Planes planes;
    planes.heads = all_heads();
    planes.width = 4;
    planes.cosine = cosine.unsqueeze(1).unsqueeze(3).expand({positions.size(0), 1, positions.size(1), 2});
    planes.sine = sine.unsqueeze(1).unsqueeze(3).expand({positions.size(0), 1, positions.size(1), 2});
    return {planes};
  }

 private:
  Function angle_, scale_;
};

std::map<std::string, Law> laws_of(const std::shared_ptr<const Encoding>& encoding) {
  return by_name(check_laws(encoding, 0));
}

double one(double) { return 1; }

TEST(LawsNotice, ARotationThatIsNone) {
  auto laws = laws_of(std::make_shared<Turning>([](double p) { return 0.3 * p; }, one));
  for (const char* name : {"identity", "composition", "inverse", "norm", "relative"})
    EXPECT_EQ(verdict(laws.at(name)), "holds") << name;
  laws = laws_of(std::make_shared<Turning>([](double p) { return 0.3 * p + 0.1; }, one));
  EXPECT_EQ(verdict(laws.at("identity")), "does not hold");
  EXPECT_EQ(verdict(laws.at("composition")), "does not hold");
  EXPECT_EQ(verdict(laws.at("norm")), "holds");
  laws = laws_of(std::make_shared<Turning>([](double p) { return 1e-3 * p * p; }, one));
  EXPECT_EQ(verdict(laws.at("composition")), "does not hold");
  EXPECT_EQ(verdict(laws.at("inverse")), "does not hold");
  EXPECT_EQ(verdict(laws.at("relative")), "does not hold");
  laws = laws_of(
      std::make_shared<Turning>([](double p) { return 0.3 * p; }, [](double p) { return 1 + 1e-6 * std::abs(p); }));
  EXPECT_EQ(verdict(laws.at("norm")), "does not hold");
  EXPECT_EQ(verdict(laws.at("relative")), "does not hold");
}

/// Adds to every key what `bias` makes of the call.
class Biased : public Encoding {
 public:
  using Function = std::function<at::Tensor(const Question&)>;  // (B|1, 1, Tk)
  explicit Biased(Function bias)
      : Encoding(Dimensions{.heads = 2, .kv_heads = 2, .head_dim = 4, .width = 8}), bias_(std::move(bias)) {}
  Traits traits() const override {
    Traits traits;
    traits.forms = {"potential"};
    return traits;
  }
  std::vector<BiasForm> biases(const Question& question) const override {
    PotentialForm form;
    form.key = bias_(question)
                   .to(at::kDouble)
                   .expand({question.key.positions.size(0), dimensions_.heads, question.key.tokens()});
    form.query = at::zeros({1, dimensions_.heads, question.query.tokens()}, at::kDouble);
    return {{all_heads(), form}};
  }

 private:
  Function bias_;
};

TEST(LawsNotice, ABiasThatLooksWhereItMustNot) {
  const auto key_positions = [](const Question& question) { return question.key.positions.select(2, 0).unsqueeze(1); };
  auto laws = laws_of(std::make_shared<Biased>([&](const Question& q) { return key_positions(q) * 0; }));
  for (const auto& [name, law] : laws)
    EXPECT_NE(verdict(law), "does not hold") << name << (law.worst ? *law.worst : -1);
  // The index instead of the position: wrong as soon as there is padding or a second text.
  laws = laws_of(std::make_shared<Biased>([](const Question& q) {
    return at::arange(q.key.tokens(), at::kDouble).square().view({1, 1, -1}) * 0.05;
  }));
  EXPECT_EQ(verdict(laws.at("left-padded")), "does not hold");
  EXPECT_EQ(verdict(laws.at("packed")), "does not hold");
  EXPECT_EQ(verdict(laws.at("relative")), "holds");
  // The number of keys: it changes while tokens arrive.
  laws = laws_of(std::make_shared<Biased>(
      [&](const Question& q) { return at::cos(key_positions(q)) * static_cast<double>(q.key.tokens()); }));
  EXPECT_EQ(verdict(laws.at("streaming")), "does not hold");
  EXPECT_EQ(verdict(laws.at("chunked")), "does not hold");
  EXPECT_EQ(verdict(laws.at("relative")), "does not hold");
  // The last key, a later token for most queries.
  laws = laws_of(std::make_shared<Biased>([&](const Question& q) {
    if (!q.x.defined() || q.x.size(1) != q.key.tokens()) return key_positions(q) * 0;
    return key_positions(q) * q.x.select(1, q.key.tokens() - 1).select(1, 0).view({-1, 1, 1});
  }));
  EXPECT_EQ(verdict(laws.at("causality")), "does not hold");
  // More for what is farther away.
  laws = laws_of(std::make_shared<Biased>([&](const Question& q) { return key_positions(q); }));
  EXPECT_EQ(verdict(laws.at("penalty")), "does not hold");
  EXPECT_EQ(verdict(laws.at("falling")), "does not hold");
  // The token itself: what stands between two keys is no sum of what the tokens between say.
  laws = laws_of(std::make_shared<Biased>([&](const Question& q) {
    if (!q.x.defined() || q.x.size(1) != q.key.tokens()) return key_positions(q) * 0;
    return q.x.select(2, 0).unsqueeze(1);
  }));
  EXPECT_EQ(verdict(laws.at("row composition")), "does not hold");
  EXPECT_EQ(verdict(laws.at("chaining")), "does not hold");
  // The row of the batch.
  laws = laws_of(std::make_shared<Biased>([&](const Question& q) {
    return key_positions(q) * at::arange(q.key.positions.size(0), at::kDouble).view({-1, 1, 1});
  }));
  EXPECT_EQ(verdict(laws.at("batch order")), "does not hold");
}

/// A tape whose next states `fault` spoils.
class Spoilt : public Encoding {
 public:
  using Fault = std::function<at::Tensor(const at::Tensor& next, const Question&)>;
  explicit Spoilt(Fault fault)
      : Encoding(Dimensions{.heads = 2, .kv_heads = 2, .head_dim = 4, .width = 8}),
        tape_(make_encoding("tape(rope)", dimensions_)),
        fault_(std::move(fault)) {}
  Traits traits() const override { return tape_->traits(); }
  std::vector<ParameterInfo> parameters(std::int64_t layer) const override { return tape_->parameters(layer); }
  std::vector<Move> moves(const Question& question, Role role) const override { return tape_->moves(question, role); }
  std::optional<Carried> carried(const Question& question) const override { return tape_->carried(question); }
  at::Tensor after_layer(const Question& question, const at::Tensor& averages, const at::Tensor& mlp) const override {
    return fault_(tape_->after_layer(question, averages, mlp), question);
  }
  CacheContract cache(std::int64_t layer) const override { return tape_->cache(layer); }
  NamedTensors arrive(const Question& question, NamedTensors& state) const override {
    return tape_->arrive(question, state);
  }

 private:
  std::shared_ptr<const Encoding> tape_;
  Fault fault_;
};

TEST(LawsNotice, AStateThatIsChangedAsItMustNot) {
  auto laws = laws_of(std::make_shared<Spoilt>([](const at::Tensor& next, const Question&) { return next; }));
  for (const char* name : {"relative", "permutation", "phase", "reflection", "state bound"})
    EXPECT_EQ(verdict(laws.at(name)), "holds") << name;
  // It grows without a trained number that says so: that turns and reflects all the same.
  laws = laws_of(std::make_shared<Spoilt>([](const at::Tensor& next, const Question&) { return 9 * next; }));
  EXPECT_EQ(verdict(laws.at("state bound")), "does not hold");
  for (const char* name : {"relative", "permutation", "phase", "reflection"})
    EXPECT_EQ(verdict(laws.at(name)), "holds") << name;
  // A bias, and a function of each number.
  for (const bool bias : {true, false}) {
    laws = laws_of(std::make_shared<Spoilt>(
        [bias](const at::Tensor& next, const Question&) { return bias ? next + 0.1 : at::tanh(next); }));
    for (const char* name : {"relative", "phase", "reflection"})
      EXPECT_EQ(verdict(laws.at(name)), "does not hold") << name;
    EXPECT_EQ(verdict(laws.at("permutation")), "holds");
  }
  // The index of a token.
  laws = laws_of(std::make_shared<Spoilt>([](const at::Tensor& next, const Question&) {
    return next * at::arange(next.size(2), at::kDouble).add(1).mul(0.05).view({1, 1, -1, 1});
  }));
  EXPECT_EQ(verdict(laws.at("permutation")), "does not hold");
  EXPECT_EQ(verdict(laws.at("left-padded")), "does not hold");
  EXPECT_EQ(verdict(laws.at("phase")), "holds");
  // Another token's state: a later one's, or that of another row.
  laws = laws_of(std::make_shared<Spoilt>([](const at::Tensor& next, const Question&) { return next.flip(2); }));
  EXPECT_EQ(verdict(laws.at("causality")), "does not hold");
  laws = laws_of(std::make_shared<Spoilt>([](const at::Tensor& next, const Question&) { return next.cumsum(0); }));
  EXPECT_EQ(verdict(laws.at("batch order")), "does not hold");
}

TEST(LawsNotice, WhatThrows) {
  const auto laws =
      laws_of(std::make_shared<Biased>([](const Question&) -> at::Tensor { throw Error("no bias today"); }));
  const Law law = laws.at("packed");
  EXPECT_EQ(verdict(law), "does not hold");
  EXPECT_FALSE(law.worst.has_value());
  EXPECT_NE(law.note.find("no bias today"), std::string::npos);
}

}  // namespace
}  // namespace torsor
