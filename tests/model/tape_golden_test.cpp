// TAPE through a whole decoder against float64 values of an independent reference: logits, loss, states, the gradient
// of every weight, decoding, and the equivariances with their negative controls.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <numbers>

#include "tests/golden_tape.h"
#include "torsor/model/decoder.h"

namespace torsor {
namespace {

/// The file's names of a layer's weights.
const std::map<std::string, std::string>& layer_names() {
  static const std::map<std::string, std::string> names = {
      {"input_layernorm.weight", "n1"},
      {"post_attention_layernorm.weight", "n2"},
      {"self_attn.q_proj.weight", "Wq"},
      {"self_attn.k_proj.weight", "Wk"},
      {"self_attn.v_proj.weight", "Wv"},
      {"self_attn.o_proj.weight", "Wo"},
      {"mlp.gate_proj.weight", "Wg"},
      {"mlp.up_proj.weight", "Wu"},
      {"mlp.down_proj.weight", "Wd"},
      {"self_attn.position.tape.x_proj", "Xp"},
      {"self_attn.position.tape.up_proj", "Up"},
      {"self_attn.position.tape.down_proj", "Dn"},
      {"self_attn.position.tape.post_attention", "Wp"},
  };
  return names;
}

/// "model.layers.1.self_attn.q_proj.weight" -> "layers.1.Wq"; empty for what the file does not have.
std::string golden_name(const std::string& name) {
  if (name == "model.embed_tokens.weight") return "embed";
  if (name == "model.norm.weight") return "nf";
  if (name == "lm_head.weight") return "head";
  const std::string prefix = "model.layers.";
  const std::size_t dot = name.find('.', prefix.size());
  const auto found = layer_names().find(name.substr(dot + 1));
  if (found == layer_names().end()) return "";
  return "layers." + name.substr(prefix.size(), dot - prefix.size()) + "." + found->second;
}

struct ModelRequest {
  std::string encoding = "tape(rope(base=100))";
  at::ScalarType dtype = at::kDouble;
  std::int64_t layers = 2;  ///< further ones keep the weights that they were drawn with
  std::int64_t window = 0;
  std::map<std::string, double> zeroed;  ///< endings of the file's names whose tensors are multiplied by this number
};

class TapeModel : public GoldenTape {
 protected:
  Decoder model(const ModelRequest& request) const {
    ModelConfig config;
    config.width = 8;
    config.layers = request.layers;
    config.heads = 2;
    config.mlp_width = 16;
    config.tie_head = false;
    config.norm_eps = 1e-5;
    config.window = {request.window};
    config.vocabulary_size = 11;
    config.train_length = 16;
    config.encoding = request.encoding;
    Decoder model(config, 1);
    model.to(request.dtype);
    const at::NoGradGuard no_grad;
    for (const ModelParameter& parameter : model.parameters()) {
      const std::string name = golden_name(parameter.name);
      if (!file_.at("weights").contains(name)) continue;
      at::Tensor value = golden_tensor(file_.at("weights").at(name));
      if (value.numel() != parameter.tensor.numel()) continue;  // a control's maps have other shapes
      for (const auto& [ending, factor] : request.zeroed)
        if (name.ends_with(ending)) value = value * factor;
      parameter.tensor.copy_(value.view(parameter.tensor.sizes()));
    }
    return model;
  }

  at::Tensor tokens() const {
    std::vector<std::int64_t> flat;
    for (const Json& row : file_.at("tokens"))
      for (const Json& token : row) flat.push_back(token.get<std::int64_t>());
    return at::tensor(flat, at::kLong).view({2, 5});
  }

  at::Tensor logits(const Decoder& model, TokenBatch batch = {}, KvCache* cache = nullptr,
                    at::ScalarType dtype = at::kDouble) const {
    if (!batch.tokens.defined()) batch.tokens = tokens();
    return model.logits(model.hidden(batch, cache, dtype), dtype);
  }

  /// (B, H, T, 2F) of positions first, first + 1, ...
  static at::Tensor initial_state(double first) {
    at::Tensor state = at::empty({2, 2, 5, 4}, at::kDouble);
    for (std::int64_t t = 0; t < 5; ++t)
      for (std::int64_t f = 0; f < 2; ++f) {
        const double angle = (first + static_cast<double>(t)) * std::pow(100.0, -2.0 * static_cast<double>(f) / 4);
        state.select(2, t).select(2, f).fill_(std::cos(angle));
        state.select(2, t).select(2, f + 2).fill_(std::sin(angle));
      }
    return state;
  }

  /// z_f times exp(i angle_f)
  static at::Tensor turned(const at::Tensor& state, const std::vector<double>& angle) {
    const at::Tensor a = at::tensor(angle, at::kDouble), c = state.narrow(3, 0, 2), s = state.narrow(3, 2, 2);
    return at::cat({c * a.cos() - s * a.sin(), c * a.sin() + s * a.cos()}, 3);
  }

  /// [[c, s], [-s, c]] a plane, row by row.
  static at::Tensor blocks_of(const at::Tensor& state) {
    const at::Tensor c = state.narrow(3, 0, 2), s = state.narrow(3, 2, 2);
    return at::stack({c, s, s.neg(), c}, -1).flatten(3);
  }

  /// Blocks (B, H, T, F * 2 * R) times omega (F, R, R) from the right.
  static at::Tensor acted(const at::Tensor& blocks, const at::Tensor& omega) {
    return at::matmul(blocks.unflatten(3, {omega.size(0), 2, omega.size(1)}), omega).flatten(3);
  }
};

TEST_F(TapeModel, LogitsLossStatesAndEveryGradientAreTheReferences) {
  for (const std::string post : {"rowsum", "headmix"}) {
    SCOPED_TRACE(post);
    const Json& golden = file_.at("model").at(post);
    ModelRequest request;
    request.encoding = "tape(rope(base=100), post=" + post + ")";
    Decoder decoder = model(request);
    decoder.require_gradients();
    std::vector<at::Tensor> states;
    decoder.observe_states([&](std::int64_t layer, const at::Tensor& state) {
      EXPECT_EQ(layer, static_cast<std::int64_t>(states.size()));
      states.push_back(state.detach());
    });
    EXPECT_LE(golden_error(logits(decoder), golden_tensor(golden.at("logits"))), 1e-12);
    // The last layer's state is read by nobody and not computed; it is that of a longer model.
    ASSERT_EQ(states.size(), 1u);
    EXPECT_LE(golden_error(states[0], planar(golden_tensor(golden.at("P_after_layer").at(0)))), 1e-12);
    ModelRequest longer = request;
    longer.layers = 3;
    Decoder three = model(longer);
    three.observe_states([&](std::int64_t layer, const at::Tensor& state) {
      if (layer == 1) {
        EXPECT_LE(golden_error(state, planar(golden_tensor(golden.at("P_after_layer").at(1)))), 1e-12);
        states.push_back(state.detach());
      }
    });
    (void)logits(three);
    EXPECT_EQ(states.size(), 2u);

    decoder.observe_states({});
    const at::Tensor loss = decoder.token_losses(tokens(), at::kDouble).mean();
    EXPECT_NEAR(loss.item<double>(), golden.at("loss").get<double>(), 1e-12);
    std::vector<at::Tensor> leaves;
    for (const ModelParameter& parameter : decoder.parameters()) leaves.push_back(parameter.tensor);
    const auto gradients = torch::autograd::grad({loss}, leaves, {}, false, false, true);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const std::string name = golden_name(decoder.parameters()[i].name);
      const Json& expected = golden.at("grads").at(name);
      if (expected.is_null()) {
        EXPECT_FALSE(gradients[i].defined()) << name << ": dead work of the last layer";
        continue;
      }
      ASSERT_TRUE(gradients[i].defined()) << name;
      EXPECT_LE(golden_error(gradients[i], golden_tensor(expected)), 1e-11) << name;
    }
  }
}

TEST_F(TapeModel, Float32StaysNear) {
  ModelRequest request;
  request.dtype = at::kFloat;
  const Decoder decoder = model(request);
  EXPECT_LE(golden_error(logits(decoder, {}, nullptr, at::kFloat),
                         golden_tensor(file_.at("model").at("rowsum").at("logits"))),
            2e-5);
}

TEST_F(TapeModel, AtItsStartItIsItsOperand) {
  for (const std::string post : {"rowsum", "headmix"})
    for (const std::map<std::string, double>& zeroed :
         {std::map<std::string, double>{{".Up", 0}, {".Wp", 0}}, {{".Dn", 0}, {".Wp", 0}}}) {
      ModelRequest request;
      request.zeroed = zeroed;
      request.encoding = "tape(rope(base=100), post=" + post + ")";
      EXPECT_LE(golden_error(logits(model(request)), golden_tensor(file_.at("rope").at("logits"))), 1e-13);
      request.encoding = "tape(rope(base=100), clip=1, post=" + post + ")";
      EXPECT_LE(golden_error(logits(model(request)), golden_tensor(file_.at("rope").at("logits"))), 1e-13);
      request.encoding = "tape(linear(rope(base=100), factor=2), post=" + post + ")";
      EXPECT_LE(golden_error(logits(model(request)), golden_tensor(file_.at("rope").at("logits_factor2"))), 1e-13);
    }
  // In float32, against our own rope.
  ModelRequest request;
  request.dtype = at::kFloat;
  request.zeroed = {{".Up", 0}, {".Wp", 0}};
  const at::Tensor tape = logits(model(request), {}, nullptr, at::kFloat);
  request.encoding = "rope(base=100)";
  EXPECT_LE((tape - logits(model(request), {}, nullptr, at::kFloat)).abs().max().item<double>(), 2e-6);
  // With the file's weights it is not: nothing above would notice states that are never used.
  EXPECT_GT(golden_error(logits(model({})), golden_tensor(file_.at("rope").at("logits"))), 1e-2);
}

TEST_F(TapeModel, TheStateStartsAsTheTablesOfTheFile) {
  for (const auto& [name, encoding, shift] :
       {std::tuple<const char*, const char*, double>{"shift0_factor1", "tape(rope(base=100))", 0},
        {"shift7_factor1", "tape(rope(base=100))", 7},
        {"shift0_factor2", "tape(linear(rope(base=100), factor=2))", 0}}) {
    const auto tape = make_encoding(encoding, {.heads = 2, .head_dim = 4, .layers = 2});
    Question question;
    question.layers = 2;
    question.q = question.k = at::zeros({1, 2, 5, 4}, at::kDouble);
    question.query.positions = question.key.positions = at::arange(5, at::kDouble).view({1, 5, 1}) + shift;
    const auto carried = tape->carried(question);
    ASSERT_TRUE(carried);
    EXPECT_LE(golden_error(carried->values, planar(golden_tensor(file_.at("pos_init").at(name)))), 1e-15) << name;
  }
}

TEST_F(TapeModel, AShiftOfAllPositionsChangesNothing) {
  for (const std::string post : {"rowsum", "headmix"})
    for (const auto& [dtype, bound] : {std::pair{at::kDouble, 1e-11}, {at::kFloat, 1e-5}}) {
      ModelRequest request;
      request.dtype = dtype;
      request.encoding = "tape(rope(base=100), post=" + post + ")";
      const Decoder decoder = model(request);
      const at::Tensor here = logits(decoder, {}, nullptr, dtype);
      for (const double shift : {1.0, 7.0, 1000.0}) {
        TokenBatch batch;
        batch.positions = (at::arange(5, at::kDouble) + shift).view({1, 5, 1}).expand({2, 5, 1});
        EXPECT_LE((logits(decoder, batch, nullptr, dtype) - here).abs().max().item<double>(), bound) << shift;
      }
    }
  // The controls: maps that mix planes, or treat cosines and sines apart, do not commute with it.
  for (const std::string control : {"mixing", "frame"}) {
    ModelRequest request;
    request.encoding = "tape(rope(base=100), control=" + control + ")";
    Decoder decoder = model(request);
    const at::NoGradGuard no_grad;
    for (const ModelParameter& parameter : decoder.parameters())  // these start at zero
      if (parameter.name.ends_with(".up_proj"))
        parameter.tensor.copy_(
            at::linspace(-0.5, 0.7, parameter.tensor.numel(), at::kDouble).view(parameter.tensor.sizes()));
    const at::Tensor here = logits(decoder);
    TokenBatch batch;
    batch.positions = (at::arange(5, at::kDouble) + 7).view({1, 5, 1}).expand({2, 5, 1});
    EXPECT_GT((logits(decoder, batch) - here).abs().max().item<double>(), 1e-3) << control;
    // One rotation for all planes: mixing planes keeps it, treating cosines and sines apart does not.
    batch.positions = at::Tensor();
    batch.state = turned(initial_state(0), {0.7, 0.7});
    const double common = (logits(decoder, batch) - here).abs().max().item<double>();
    if (control == "mixing")
      EXPECT_LE(common, 1e-12);
    else
      EXPECT_GT(common, 1e-3);
  }
}

/// The states after layers 0 and 1 of a model of three layers whose first two hold the file's weights.
class TapeStates : public TapeModel {
 protected:
  struct Seen {
    at::Tensor logits;  ///< of two layers
    at::Tensor state;   ///< after the second
  };
  Seen run(const std::string& encoding, const at::Tensor& state, at::ScalarType dtype = at::kDouble) const {
    ModelRequest request;
    request.encoding = encoding;
    request.dtype = dtype;
    TokenBatch batch;
    batch.tokens = tokens();
    batch.state = state;
    Seen seen;
    seen.logits = logits(model(request), batch, nullptr, dtype);
    request.layers = 3;
    Decoder longer = model(request);
    longer.observe_states([&](std::int64_t layer, const at::Tensor& given) {
      if (layer == 1) seen.state = given.detach();
    });
    (void)logits(longer, batch, nullptr, dtype);
    return seen;
  }
  static double error(const at::Tensor& a, const at::Tensor& b) {
    return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
  }
};

TEST_F(TapeStates, ARotationOfEveryPlaneLeavesLogitsAndTurnsStates) {
  const std::vector<double> angle = file_.at("phase").at("data").get<std::vector<double>>();
  for (const std::string post : {"rowsum", "headmix", "none"})
    for (const auto& [dtype, bound] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}}) {
      const std::string encoding = "tape(rope(base=100), post=" + post + ")";
      const Seen plain = run(encoding, initial_state(0), dtype),
                 other = run(encoding, turned(initial_state(0), angle), dtype);
      EXPECT_LE(error(plain.logits, other.logits), bound);
      EXPECT_LE(error(turned(plain.state.to(at::kDouble), angle), other.state), bound);
    }
  // The complex conjugate is no member of the group.
  const at::Tensor z = initial_state(0), mirrored = at::cat({z.narrow(3, 0, 2), z.narrow(3, 2, 2).neg()}, 3);
  EXPECT_GT(error(run("tape(rope(base=100))", z).logits, run("tape(rope(base=100))", mirrored).logits), 1e-3);
}

TEST_F(TapeStates, BlocksOfTwoColumnsAreThePlanarFormAndMayReflect) {
  for (const std::string encoding : {"tape(rope(base=100))", "tape(rope(base=100), post=headmix)"}) {
    const Seen planes = run(encoding, initial_state(0)), blocks = run(encoding, blocks_of(initial_state(0)));
    EXPECT_LE(error(planes.logits, blocks.logits), 1e-12);
    EXPECT_LE(error(blocks_of(planes.state), blocks.state), 1e-12);
    const at::Tensor reflection = at::tensor({0.6, 0.8, 0.8, -0.6, 1.0, 0.0, 0.0, -1.0}, at::kDouble).view({2, 2, 2});
    const Seen reflected = run(encoding, acted(blocks_of(initial_state(0)), reflection));
    EXPECT_LE(error(planes.logits, reflected.logits), 1e-12);
    EXPECT_LE(error(acted(blocks.state, reflection), reflected.state), 1e-12);
    const at::Tensor skewed = at::tensor({1.0, 0.5, 0.0, 1.0, 1.0, 0.0, 0.3, 2.0}, at::kDouble).view({2, 2, 2});
    EXPECT_GT(error(planes.logits, run(encoding, acted(blocks_of(initial_state(0)), skewed)).logits), 1e-3);
  }
}

TEST_F(TapeStates, BlocksOfThreeColumnsAreTheReferences) {
  const Json& golden = file_.at("general_R3");
  const at::Tensor blocks = golden_tensor(golden.at("E_in")).flatten(3), omega = golden_tensor(golden.at("Omega"));
  const std::string encoding = "tape(rope(base=100), block=3)";
  const Seen seen = run(encoding, blocks), acted_on = run(encoding, acted(blocks, omega));
  EXPECT_LE(golden_error(seen.logits, golden_tensor(golden.at("logits"))), 1e-12);
  EXPECT_LE(golden_error(seen.state, golden_tensor(golden.at("E_out"))), 1e-12);
  EXPECT_LE(error(seen.logits, acted_on.logits), 1e-12);
  EXPECT_LE(error(acted(seen.state, omega), acted_on.state), 1e-12);
  // Made from positions, the third column is nothing, and the planar form comes out.
  EXPECT_LE(error(run(encoding, {}).logits, run("tape(rope(base=100))", {}).logits), 1e-12);
}

TEST_F(TapeModel, AClippedStateIsTheReferences) {
  ModelRequest request;
  request.encoding = "tape(rope(base=100), clip=1)";
  const Decoder decoder = model(request);
  EXPECT_LE(golden_error(logits(decoder), golden_tensor(file_.at("clip_tau1").at("logits"))), 1e-12);
  TokenBatch batch;
  batch.positions = (at::arange(5, at::kDouble) + 1000).view({1, 5, 1}).expand({2, 5, 1});
  EXPECT_LE((logits(decoder, batch) - logits(decoder)).abs().max().item<double>(), 1e-12);
}

TEST_F(TapeModel, ALaterTokenNeverChangesAnEarlierLogit) {
  const Decoder decoder = model({});
  TokenBatch batch;
  batch.tokens = tokens().clone();
  batch.tokens.select(1, 4).fill_(3);
  ASSERT_FALSE(batch.tokens.equal(tokens()));
  EXPECT_TRUE(logits(decoder).narrow(1, 0, 4).equal(logits(decoder, batch).narrow(1, 0, 4)));
}

TEST_F(TapeModel, DecodingIsExact) {
  const at::NoGradGuard no_grad;
  for (const std::string post : {"rowsum", "headmix"})
    for (const std::int64_t window : {0, 3}) {
      ModelRequest request;
      request.encoding = "tape(rope(base=100), post=" + post + ")";
      request.window = window;
      const Decoder decoder = model(request);
      const at::Tensor full = logits(decoder);
      if (window == 3 && post == "rowsum") {
        EXPECT_LE(golden_error(full, golden_tensor(file_.at("decode_window3").at("logits"))), 1e-12);
      }
      for (const std::int64_t chunk : {1, 2, 5}) {
        KvCache cache = decoder.make_cache(2, 5, at::kDouble);
        const auto feed = [&](std::int64_t first, std::int64_t count) {
          TokenBatch batch;
          batch.tokens = tokens().narrow(1, first, count);
          return logits(decoder, batch, &cache);
        };
        for (std::int64_t t = 0; t < 5; t += chunk) {
          const std::int64_t count = std::min<std::int64_t>(chunk, 5 - t);
          EXPECT_LE((feed(t, count) - full.narrow(1, t, count)).abs().max().item<double>(), 1e-13);
        }
        // Speculation that was wrong: back by two tokens, and the same ones again.
        cache.truncate(3);
        EXPECT_LE((feed(3, 2) - full.narrow(1, 3, 2)).abs().max().item<double>(), 1e-13);
      }
    }
}

}  // namespace
}  // namespace torsor
