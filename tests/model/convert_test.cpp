// Conversions between encodings: the same logits afterwards, the same bits there and back, or a refusal that says why.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/test_folder.h"
#include "torsor/base/random.h"
#include "torsor/encoding/syntax/sample.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/convert.h"

namespace torsor {
namespace {

constexpr std::int64_t kTokens = 24;

struct Shape {
  std::int64_t heads = 8, kv_heads = 2, head_dim = 8;
  QkNorm qk_norm = QkNorm::None;
  bool tie_head = true;
  bool flat_gains = false;
  bool kv_shift = false;
};

/// A model in which positions matter: wide queries and keys, and trained tensors away from where they start.
Decoder trained_model(const std::string& encoding, const Shape& shape = {}) {
  ModelConfig config;
  config.width = 32;
  config.layers = 2;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.qk_norm = shape.qk_norm;
  config.tie_head = shape.tie_head;
  config.kv_shift = shape.kv_shift;
  config.vocabulary_size = 40;
  config.train_length = kTokens;
  config.encoding = print(parse(encoding));
  const Decoder drawn(config, 3);
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : drawn.parameters()) {
    at::Tensor noise = at::empty_like(parameter.tensor);
    fill_normal(noise.data_ptr<float>(), static_cast<std::size_t>(noise.numel()), 0, 1, 5, stream_of(parameter.name));
    at::Tensor tensor = parameter.tensor.clone();
    const auto has = [&](const char* part) { return parameter.name.find(part) != std::string::npos; };
    if (has("q_proj") || has("k_proj") || has("embed_tokens")) tensor = tensor * 3;
    if (has("position.")) tensor = tensor * (1 + 0.05 * noise) + (has("skew") ? 0.1 : 0.01) * noise;
    if (has("_norm.weight") && has("self_attn")) tensor = shape.flat_gains ? tensor * 1.5 : tensor + 0.3 * noise;
    weights[parameter.name] = tensor;
  }
  return Decoder(config, weights, "test");
}

at::Tensor logits_of(const Decoder& model) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 2 * kTokens; ++i) ids.push_back((i * i + 7 * i) % 40);
  TokenBatch batch;
  batch.tokens = at::tensor(ids, at::kLong).view({2, kTokens});
  std::int64_t axes = 1;
  for (std::int64_t layer = 0; layer < model.config().layers; ++layer)
    axes = std::max(axes, layer_encoding(model.shared_encoding(), layer)->traits().axes);
  if (axes > 1) {
    batch.positions = at::arange(kTokens, at::kDouble).view({1, kTokens, 1}).repeat({2, 1, axes});
    batch.positions.select(2, axes - 1).copy_(at::arange(kTokens, at::kDouble).mul(5).fmod(7));
  }
  Random random(9);
  batch.named = sample_syntax(model.encoding().inputs(), 2, kTokens, random);
  return model.logits(model.hidden(batch));
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / a.abs().max().item<double>();
}

/// Where the tensors of the new expression have the same names, what the conversion saved us from.
double distance_without_conversion(const Decoder& model, const std::string& encoding) {
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : model.parameters()) weights[parameter.name] = parameter.tensor;
  ModelConfig config = model.config();
  config.encoding = encoding;
  try {
    return distance(logits_of(model), logits_of(Decoder(config, weights, "test")));
  } catch (const Error&) {
    return 1;
  }
}

void expect_same_tensors(const Decoder& a, const Decoder& b) {
  ASSERT_EQ(a.parameters().size(), b.parameters().size());
  for (std::size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_EQ(a.parameters()[i].name, b.parameters()[i].name);
    EXPECT_TRUE(at::equal(a.parameters()[i].tensor, b.parameters()[i].tensor)) << a.parameters()[i].name;
  }
}

void expect_conversion(const std::string& from, const std::string& to, const Shape& shape = {}, double bound = 1e-6) {
  SCOPED_TRACE(from + " -> " + to);
  const Decoder model = trained_model(from, shape);
  const Converted converted = convert_model(model, to);
  EXPECT_EQ(converted.model.config().encoding, print(parse(to)));
  EXPECT_LE(distance(logits_of(model), logits_of(converted.model)), bound);
  EXPECT_LE(converted.difference.worst, logits_rounding(model.config()));
}

/// There and back, bit for bit.
void expect_round_trip(const std::string& from, const std::string& to, const Shape& shape = {}) {
  SCOPED_TRACE(from + " -> " + to + " -> " + from);
  const Decoder model = trained_model(from, shape);
  const Converted there = convert_model(model, to);
  EXPECT_LE(distance(logits_of(model), logits_of(there.model)), 1e-6);
  expect_same_tensors(model, convert_model(there.model, from).model);
}

std::string refusal(const std::string& from, const std::string& to, const Shape& shape = {}) {
  try {
    convert_model(trained_model(from, shape), to);
  } catch (const Refusal& error) {
    return error.what();
  }
  ADD_FAILURE() << from << " -> " << to << " was not refused";
  return "";
}

void expect_refusal(const std::string& from, const std::string& to, const std::string& part, const Shape& shape = {}) {
  const std::string message = refusal(from, to, shape);
  EXPECT_NE(message.find(part), std::string::npos) << from << " -> " << to << ": " << message;
}

const std::vector<Shape> kShapes = {
    {},
    {.heads = 4, .kv_heads = 4, .tie_head = false},
    {.qk_norm = QkNorm::Before},
    {.qk_norm = QkNorm::After, .tie_head = false},
    {.kv_heads = 1, .qk_norm = QkNorm::Before, .kv_shift = true},
};

TEST(Convert, LayoutsAndOrientationsThereAndBack) {
  const std::vector<std::string> forms = {"rope", "rope(layout=interleaved)", "rope(orientation=minus)",
                                          "rope(layout=interleaved, orientation=minus)"};
  for (const Shape& shape : kShapes)
    for (const std::string& from : forms)
      for (const std::string& to : forms) {
        expect_round_trip(from, to, shape);
        // Position 0 alone would be equal in any case.
        if (from == to) continue;
        EXPECT_GT(distance_without_conversion(trained_model(from, shape), to), 1e-4) << from << " as " << to;
      }
}

TEST(Convert, LayoutsOfEveryRotationThereAndBack) {
  for (const char* form : {
           "rope(base=[500, 20000], %)",
           "rope(%, dim=4)",
           "rope(%, dim=4, part=suffix)",
           "rope(%, frequencies=proportional, fraction=0.5)",
           "rope(%, axes=2)",
           "rope(%, axes=2, sections=[3, 1], arrangement=contiguous)",
           "rope(%, learn=true)",
           "xpos(%)",
           "yarn(rope(%), factor=4)",
           "dynamic(rope(%), factor=4, train_length=8)",
           "linear(rope(%, learn=true), factor=2)",
           "grape-m(%)",
           "grape-m(per_head=true, %)",
           "grape-m(axes=2, %)",
           "grape-m(context=true, %)",
           "grape-m(basis=cayley, %)",
           "grape-m(basis=householder, reflectors=4, %)",
           "grape-m(planes=ja, %)",
       }) {
    const std::string text = form;
    const auto with = [&](const std::string& keys) {
      std::string one = text;
      return one.replace(one.find('%'), 1, keys);
    };
    for (const Shape& shape : {kShapes[0], kShapes[2], kShapes[3]}) {
      expect_round_trip(with("layout=half"), with("layout=interleaved"), shape);
      if (text.find("xpos") == std::string::npos && text.find("ja") == std::string::npos)
        expect_round_trip(with("orientation=minus"), with("layout=interleaved"), shape);
    }
  }
}

TEST(Convert, TrainedSpectraThereAndBack) {
  for (const Shape& shape : kShapes)
    for (const char* rope :
         {"rope(learn=true)", "rope(layout=interleaved, learn=true)", "rope(orientation=minus, learn=true)"})
      for (const char* grape : {"grape-m", "grape-m(layout=interleaved)", "grape-m(orientation=minus)",
                                "grape-m(layout=interleaved, orientation=minus)"}) {
        expect_round_trip(rope, grape, shape);
        expect_round_trip(grape, rope, shape);
      }
  expect_round_trip("rope(base=[500, 20000], learn=true)", "grape-m(per_head=true)");
  expect_round_trip("grape-m(axes=2, orientation=minus)", "rope(axes=2, learn=true)");
  expect_round_trip("grape-m(context=true)", "grape-m(context=true, per_head=true)");
}

TEST(Convert, FixedSpectra) {
  for (const Shape& shape : kShapes) {
    expect_conversion("rope", "grape-m(orientation=minus)", shape);
    expect_conversion("rope(base=500, layout=interleaved)", "rope(learn=true)", shape);
    expect_conversion("linear(rope, factor=4)", "grape-m", shape);
    // And back to the base that the frequencies are of.
    const Decoder model = trained_model("rope(base=500)", shape);
    const Decoder grape = convert_model(model, "grape-m(layout=interleaved)").model;
    expect_same_tensors(model, convert_model(grape, "rope(base=500)").model);
    EXPECT_NE(testing::message_of<Refusal>([&] { convert_model(grape, "rope"); }).find("learn=true"),
              std::string::npos);
  }
  expect_conversion("rope(base=[500, 20000])", "grape-m(per_head=true)");
  expect_conversion("rope(base=500, axes=2)", "grape-m(axes=2)");
  // The same planes at other places of the head.
  expect_round_trip("rope(dim=4)", "rope(dim=4, part=suffix)");
  expect_round_trip("rope(dim=4)", "rope(fraction=0.5)");
  expect_round_trip("rope(base=10000, frequencies=proportional, fraction=0.5)", "rope(base=100, dim=4)");
}

TEST(Convert, BasesFoldIntoTheProjections) {
  for (const char* basis : {"basis=cayley", "basis=householder, reflectors=4"}) {
    const std::string from = str("grape-m(", basis, ")");
    for (const Shape& shape : {Shape{}, Shape{.heads = 4, .kv_heads = 4, .tie_head = false},
                               Shape{.qk_norm = QkNorm::After}, Shape{.qk_norm = QkNorm::Before, .flat_gains = true}}) {
      expect_conversion(from, "grape-m", shape);
      expect_conversion(from, "rope(layout=interleaved, learn=true)", shape);
    }
    expect_refusal(from, "grape-m", "q_norm.weight", {.qk_norm = QkNorm::Before});
    // A basis that starts as the identity takes what has none.
    expect_conversion("rope", from, {.qk_norm = QkNorm::Before});
    expect_conversion(str("grape-m(context=true, ", basis, ")"), "grape-m(context=true, orientation=minus)");
  }
  expect_conversion("grape-m(basis=cayley)", "grape-m(basis=householder)");
}

TEST(Convert, PlanesOfTrainedVectors) {
  expect_conversion("grape-m(rank=8)", "grape-m(per_head=true)");
  expect_conversion("grape-m(rank=8)", "grape-m(layout=interleaved, orientation=minus)", {.kv_heads = 1});
  expect_conversion("grape-m(rank=8)", "grape-m(per_head=true)", {.qk_norm = QkNorm::After, .flat_gains = true});
  expect_conversion("grape-m(rank=4)", "rope(dim=4, base=[1000, 1000], learn=true)");
  expect_conversion("grape-m(planes=general)", "rope(dim=2, base=[1000, 1000], part=suffix, learn=true)");
  expect_conversion("grape-m(planes=ja)", "grape-m(rank=2)");
  expect_conversion("grape-m(planes=general)", "grape-m(per_head=true)", {.head_dim = 2});
  expect_conversion("grape-m(planes=ja, layout=interleaved)", "grape-m(per_head=true)", {.head_dim = 2});
  expect_conversion("rope", "grape-m(rank=8)", {.qk_norm = QkNorm::Before});
  expect_conversion("rope(dim=4, orientation=minus)", "grape-m(rank=6)", {.qk_norm = QkNorm::After});
  expect_conversion("grape-m(basis=cayley)", "grape-m(rank=8)", {.qk_norm = QkNorm::Before});
  expect_refusal("grape-m(rank=4)", "grape-m(per_head=true)", "planes that stand still cannot be expressed");
  expect_refusal("grape-m(planes=ja)", "grape-m", "rope(dim=2, learn=true)");
  expect_refusal("grape-m(rank=8)", "grape-m", "per_head=true");
  expect_refusal("grape-m(rank=8)", "grape-m(rank=4)", "turns 4 planes of a head, the other 2");
  expect_refusal("grape-m(rank=8)", "grape-m(per_head=true)", "q_norm.weight", {.qk_norm = QkNorm::Before});
  expect_refusal("grape-m(rank=8)", "grape-m(per_head=true)", "behind", {.qk_norm = QkNorm::After});
  expect_refusal("grape-m(basis=cayley)", "grape-m(rank=8)", "behind", {.qk_norm = QkNorm::After});
  expect_refusal("rope", "grape-m(planes=general)", "rank=2", {.head_dim = 2});
}

TEST(Convert, Slopes) {
  expect_round_trip("alibi", "grape-a");
  expect_conversion("alibi", "alibi(learn=true)");
  expect_conversion("alibi(max_exponent=4)", "alibi(learn=true)");
  expect_conversion("alibi(max_exponent=4)", "grape-a(learn_slopes=true)");
  expect_conversion("alibi(learn=true)", "grape-a(learn_slopes=true)");
  expect_conversion("grape-a(learn_slopes=true)", "alibi(learn=true)");
  expect_conversion("grape-a", "alibi(learn=true)", {.heads = 6, .kv_heads = 3});
  expect_conversion("grape-a(gate=qk)", "grape-a(gate=qk, learn_slopes=true)", {.qk_norm = QkNorm::Before});
  expect_refusal("alibi(max_exponent=4)", "grape-a", "learn_slopes=true");
  expect_refusal("alibi(learn=true)", "alibi", "learn=true");
  expect_refusal("grape-a(gate=qk, learn_slopes=true)", "grape-a(gate=qk)", "learn_slopes=true");
  expect_refusal("grape-a(gate=k)", "alibi", "gates");
  expect_refusal("grape-a(gate=k)", "grape-a(gate=q)", "gates");
  Decoder negative = trained_model("alibi(learn=true)");
  for (const ModelParameter& parameter : negative.parameters())
    if (parameter.name.find("slopes") != std::string::npos) parameter.tensor[1].fill_(-0.25);
  EXPECT_NE(testing::message_of<Refusal>([&] {
              convert_model(negative, "grape-a(learn_slopes=true)");
            }).find("head 1 is -0.25, which has no logarithm"),
            std::string::npos);
  // Slopes that training has not moved are those of the formula.
  const Decoder untouched(trained_model("alibi").config(), 1);
  const Decoder learned = convert_model(untouched, "grape-a(learn_slopes=true)").model;
  expect_same_tensors(untouched, convert_model(learned, "alibi").model);
}

TEST(Convert, SumsHeadsAndLayers) {
  for (const Shape& shape : {Shape{}, Shape{.qk_norm = QkNorm::Before}}) {
    expect_conversion("rope + alibi", "grape-m + grape-a", shape);
    expect_round_trip("rope(dim=4) + t5", "rope(dim=4, layout=interleaved) + t5", shape);
    expect_round_trip(
        "rope(dim=4, part=suffix) + rope(base=100, dim=4, learn=true)",
        "rope(dim=4, layout=interleaved, part=suffix) + rope(base=100, dim=4, orientation=minus, learn=true)", shape);
    expect_round_trip("heads(rope * 4, none * 4)", "heads(rope(layout=interleaved) * 4, none * 4)", shape);
    expect_round_trip("layers(rope, alibi + t5(shared=true))",
                      "layers(rope(orientation=minus), grape-a + t5(shared=true))", shape);
    expect_round_trip("layers(rope(learn=true), rope(base=77, learn=true))", "layers(grape-m, grape-m)", shape);
    expect_conversion("heads(rope * 4, alibi * 4)", "heads(grape-m * 4, grape-a * 4)", shape);
    // Terms that read q or k follow the channels.
    expect_round_trip("rope + grape-a(gate=qk)", "rope(layout=interleaved) + grape-a(gate=qk)", shape);
    expect_round_trip("rope + cope(length=8)", "rope(layout=interleaved, orientation=minus) + cope(length=8)", shape);
  }
  // A pattern may be written in another way; bases of layers may become trained ones.
  expect_conversion("layers(rope, rope(base=77))", "grape-m");
  expect_conversion("rope + grape-a(gate=qk)", "grape-m(basis=cayley) + grape-a(gate=qk)");
  expect_conversion("grape-m(basis=cayley) + grape-a(gate=qk)", "rope(learn=true) + grape-a(gate=qk)");
  expect_conversion("grape-m(basis=cayley) + cope(length=8)", "grape-m + cope(length=8)");
  expect_conversion("sinusoidal + rope(allow=absolute)", "sinusoidal + rope(layout=interleaved, allow=absolute)");
  expect_refusal("grape-m(rank=8) + cope(length=8)", "grape-m(per_head=true) + cope(length=8)", "share its table");
  expect_refusal("rope + grape-ap(tie=k)", "rope(layout=interleaved) + grape-ap(tie=k)", "reads the channels");
  expect_refusal("rope + alibi", "grape-m", "layer 0 has rope, alibi where the other has grape-m");
  expect_refusal("rope + alibi", "grape-a + grape-m", "only one of them is a rotation");
  expect_refusal("heads(rope * 4, alibi * 4)", "heads(rope * 2, alibi * 6)", "on the same heads", {.kv_heads = 4});
  expect_refusal("layers(rope, none)", "rope", "layer 1 has none");
}

TEST(Convert, StatesThatGoFromLayerToLayer) {
  // At its start tape is its operand, whatever its keys; the way back is refused once the states move.
  for (const std::string to : {"tape(rope)", "tape(rope(layout=interleaved), post=headmix)", "tape(rope, post=none)",
                               "tape(rope, clip=1)", "tape(rope, gqa=shared, mlp=false)", "tape(rope, control=frame)"})
    for (const Shape& shape : kShapes) {
      expect_round_trip("rope", to, shape);
      if (to != "tape(rope, gqa=shared, mlp=false)") {
        // The network can learn: what is drawn is drawn, not zero.
        const Decoder made = convert_model(trained_model("rope", shape), to).model;
        for (const ModelParameter& parameter : made.parameters())
          if (parameter.name.ends_with("tape.down_proj") || parameter.name.ends_with("tape.x_proj")) {
            EXPECT_GT(parameter.tensor.abs().max().item<double>(), 0) << parameter.name;
          }
      }
    }
  // Moved states go with a rotation in other planes, bit for bit there and back.
  for (const std::string keys : {"", ", post=headmix", ", gqa=shared", ", mlp=false", ", clip=2"}) {
    expect_round_trip("tape(rope" + keys + ")", "tape(rope(layout=interleaved)" + keys + ")");
    expect_round_trip("tape(rope" + keys + ")", "tape(rope(orientation=minus)" + keys + ")");
  }
  expect_refusal("tape(rope)", "rope", "position states move");
  expect_refusal("tape(rope)", "tape(rope, post=headmix)", "position states move");
  expect_refusal("tape(rope, control=mixing)", "tape(rope(layout=interleaved), control=mixing)", "another order");
}

TEST(Convert, SyntaxStandsAroundATermAndStartsAsIt) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"rope", "sipe(rope)"},
           {"rope(learn=true)", "sipe(rope(learn=true), coupling=bias)"},
           {"txl", "sipe(txl, mode=oracle)"},
           {"alibi(learn=true)", "sipe(alibi(learn=true), prior=fsyn, beta_init=0.1)"},
           {"rope + t5", "sipe(rope, coupling=prerot) + sipe(t5)"}}) {
    const Decoder model = trained_model(from);
    const Converted converted = convert_model(model, to);
    // What adds to a logit takes another path than a rotation alone, to rounding.
    const double bound = to.find("bias") != std::string::npos ? 1e-6 : 0;
    EXPECT_LE(distance(logits_of(model), logits_of(converted.model)), bound) << to;
    EXPECT_LE(converted.difference.worst, bound) << to;
    bool drawn = false;
    for (const ModelParameter& parameter : converted.model.parameters())
      drawn = drawn ||
              (parameter.name.find("sipe") != std::string::npos && parameter.tensor.abs().max().item<double>() > 0);
    EXPECT_TRUE(drawn) << to;  // it can learn
    const Decoder again = convert_model(converted.model, to).model;
    EXPECT_TRUE(at::equal(logits_of(again), logits_of(converted.model))) << to;
  }
  expect_refusal("sipe(rope)", "rope", "stays it");
  expect_refusal("rope", "sipe(alibi)", "stays it");
  expect_refusal("sipe(rope)", "sipe(rope(layout=interleaved))", "stays it");
  expect_refusal("rope", "sipe(rope, start=random, beta_init=0.1)", "does not start as");
  expect_refusal("rope", "sipe(rope, inject=joint)", "does not start as");
}

TEST(Convert, LeavesTheModelAlone) {
  const Decoder model = trained_model("grape-m(basis=cayley) + grape-a(gate=k)");
  const at::Tensor before = logits_of(model);
  for (const char* to : {"grape-m + grape-a(gate=k)", "grape-m(basis=cayley) + grape-a(gate=k)"}) {
    const Converted converted = convert_model(model, to);
    for (const ModelParameter& parameter : converted.model.parameters()) parameter.tensor.fill_(1);
  }
  EXPECT_TRUE(at::equal(logits_of(model), before));
}

TEST(Convert, KeepsWhatIsTheSame) {
  for (const char* encoding : {"none", "learned", "t5(shared=true) + kerple", "fire + rope", "txl", "fox",
                               "grape-ap(tie=k)", "grape-m(rank=4)", "layers(t5, t5 + alibi(learn=true))"})
    expect_round_trip(encoding, encoding, {.qk_norm = QkNorm::Before});
}

TEST(Convert, RefusesWhatMeansSomethingElse) {
  expect_refusal("rope", "alibi", "only one of them is a rotation");
  expect_refusal("alibi", "t5", "they say different things");
  expect_refusal("t5", "t5(shared=true)", "they say different things");
  expect_refusal("rope", "rope(base=500)", "learn=true takes any frequencies");
  expect_refusal("rope(dim=4)", "rope", "the model turns 2 planes of a head, the other 4");
  expect_refusal("rope(dim=4)", "grape-m", "a frequency of 0 has no logarithm");
  expect_refusal("rope(base=[500, 20000])", "grape-m", "per_head=true");
  expect_refusal("rope(base=[500, 20000])", "rope(learn=true)", "base=[...]");
  expect_refusal("rope(axes=2)", "grape-m", "2 axes");
  expect_refusal("rope(axes=2, sections=[3, 1], arrangement=contiguous)", "grape-m(axes=2)", "along axis 0");
  expect_refusal("grape-m(context=true)", "rope(learn=true)", "content");
  expect_refusal("grape-m(context=true)", "grape-m(context=true, link=softplus)", "link=");
  expect_refusal("yarn(rope, factor=4)", "rope(learn=true)", "multiplies");
  expect_refusal("dynamic(rope, factor=4)", "rope", "depend on the length");
  expect_refusal("xpos", "rope", "fade");
  expect_refusal("rope", "linear(rope(learn=true), factor=2)", "only with the same term");
  const Decoder model = trained_model("rope");
  EXPECT_THROW(convert_model(model, "roep"), UsageError);
  EXPECT_THROW(convert_model(model, "rope(dim=100)"), UsageError);
  ModelConfig config = model.config();
  config.precision = Precision::HuggingFace;
  EXPECT_NE(testing::message_of<Refusal>([&] { convert_model(Decoder(config, 1), "grape-m"); }).find("precision"),
            std::string::npos);
  expect_same_tensors(Decoder(config, 1),
                      convert_model(convert_model(Decoder(config, 1), "rope(layout=interleaved)").model, "rope").model);
}

TEST(Convert, TheComparisonSeesADifference) {
  const Decoder model = trained_model("rope");
  std::map<std::string, at::Tensor> weights;
  for (const ModelParameter& parameter : model.parameters()) weights[parameter.name] = parameter.tensor;
  ModelConfig config = model.config();
  config.encoding = "rope(layout=interleaved)";
  EXPECT_EQ(compare_logits(model, model, 1).worst, 0);
  EXPECT_EQ(compare_logits(model, model, 1).tokens, kTokens);
  EXPECT_GT(compare_logits(model, Decoder(config, weights, "test"), 1).worst, 10 * logits_rounding(config));
  // A table shorter than the training length is compared as far as it goes.
  EXPECT_EQ(compare_logits(trained_model("learned(length=7)"), trained_model("learned(length=7)"), 1).tokens, 6);
}

TEST(Convert, HuggingFaceHasKindsOfModels) {
  const auto obstacle = [](const std::string& encoding, const Shape& shape = {}) {
    return hugging_face_obstacle(trained_model(encoding, shape).config());
  };
  EXPECT_EQ(obstacle("rope(base=500)"), "");
  EXPECT_NE(obstacle("rope(layout=interleaved)").find("not 'rope(layout=interleaved)'"), std::string::npos);
  EXPECT_EQ(obstacle("rope", {.qk_norm = QkNorm::Before}), "");
  EXPECT_NE(obstacle("rope", {.qk_norm = QkNorm::After}).find("qk_norm"), std::string::npos);
  EXPECT_NE(obstacle("rope", {.kv_shift = true}).find("kv_shift"), std::string::npos);
}

}  // namespace
}  // namespace torsor
