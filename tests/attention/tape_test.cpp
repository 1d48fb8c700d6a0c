// tape in one attention call: a given state against golden values, key heads shared and expanded, and permutations of
// the tokens.
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <tuple>
#include <utility>

#include "tests/golden_tape.h"
#include "torsor/attention/attend.h"

namespace torsor {
namespace {

at::Tensor like_state(const at::Tensor& planar_state) {  // (.., 2F) -> (.., F, 2)
  const std::int64_t planes = planar_state.size(-1) / 2;
  return at::stack({planar_state.narrow(-1, 0, planes), planar_state.narrow(-1, planes, planes)}, -1);
}

Dimensions dims(std::int64_t heads, std::int64_t kv_heads) {
  return {.heads = heads, .kv_heads = kv_heads, .head_dim = 8, .layers = 3};
}

/// The encoding in the first of two layers, so that it carries.
AttendOptions options_of(const Encoding& tape, const at::Tensor& state) {
  AttendOptions options;
  options.layers = 2;
  options.state = state;
  options.need_lse = true;
  for (const ParameterInfo& info : tape.parameters(0))
    options.parameters[info.name] = at::zeros(info.shape, state.options());
  return options;
}

class TapeAttention : public GoldenTape {
 protected:
  at::Tensor input(const char* name) const { return golden_tensor(file_.at("attn_kernel").at(name)); }
};

TEST_F(TapeAttention, ForwardAndBackwardAreTheReferences) {
  const auto tape = make_encoding("tape(rope(base=100))", {.heads = 2, .head_dim = 4, .layers = 2});
  for (const auto& [name, causal, window] :
       {std::tuple<const char*, bool, std::optional<std::int64_t>>{"causal", true, {}},
        {"causal_window3", true, 3},
        {"full", false, {}}})
    for (const auto& [dtype, forward, backward] : {std::tuple{at::kDouble, 1e-12, 1e-11}, {at::kFloat, 2e-5, 2e-5}}) {
      SCOPED_TRACE(name);
      const Json& golden = file_.at("attn_kernel").at("cases").at(name);
      std::vector<at::Tensor> leaves = {input("q"), input("k"), input("v"), planar(input("P"))};
      for (at::Tensor& leaf : leaves) leaf = leaf.to(dtype).requires_grad_(true);
      AttendOptions options = options_of(*tape, leaves[3]);
      options.causal = causal;
      options.window = window;
      const Attended attended = attend_full(leaves[0], leaves[1], leaves[2], *tape, options);
      EXPECT_LE(golden_error(attended.out, golden_tensor(golden.at("O"))), forward);
      EXPECT_LE(golden_error(like_state(attended.averages), golden_tensor(golden.at("Y"))), forward);
      EXPECT_LE(golden_error(attended.lse, golden_tensor(golden.at("lse"))), forward);
      const auto gradients = torch::autograd::grad({attended.out, attended.averages}, leaves,
                                                   {input("dO").to(dtype), planar(input("dY")).to(dtype)});
      EXPECT_LE(golden_error(gradients[0], golden_tensor(golden.at("dq"))), backward);
      EXPECT_LE(golden_error(gradients[1], golden_tensor(golden.at("dk"))), backward);
      EXPECT_LE(golden_error(gradients[2], golden_tensor(golden.at("dv"))), backward);
      EXPECT_LE(golden_error(like_state(gradients[3]), golden_tensor(golden.at("dP"))), backward);
    }
}

TEST_F(TapeAttention, KeyHeadsExpandedAndShared) {
  const Json& kernel = file_.at("attn_kernel");
  const at::Tensor k = input("k").narrow(1, 0, 1), v = input("v").narrow(1, 0, 1);
  for (const bool shared : {false, true}) {
    const auto tape = make_encoding(shared ? "tape(rope(base=100), gqa=shared)" : "tape(rope(base=100))",
                                    {.heads = 2, .kv_heads = 1, .head_dim = 4, .layers = 2});
    const at::Tensor state = planar(input("P"));
    const Attended attended =
        attend_full(input("q"), k, v, *tape, options_of(*tape, shared ? state.narrow(1, 0, 1) : state));
    const Json& golden = kernel.at(shared ? "gqa_shared" : "gqa_expand");
    EXPECT_LE(golden_error(attended.out, golden_tensor(golden.at("O"))), 1e-12);
    const at::Tensor averages = shared ? attended.averages.mean(1, true) : attended.averages;
    EXPECT_LE(golden_error(like_state(averages), golden_tensor(golden.at(shared ? "Y_mean_over_group" : "Y"))), 1e-12);
  }
}

TEST(Tape, ChecksTheStateThatItIsGiven) {
  const auto tape = make_encoding("tape(rope)", dims(4, 4));
  const at::Tensor q = at::zeros({1, 4, 3, 8});
  AttendOptions options = options_of(*tape, at::zeros({1, 4, 3, 6}));
  try {
    (void)attend(q, q, q, *tape, options);
    FAIL() << "a state of three planes in heads of four";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("position state"), std::string::npos) << error.what();
  }
}

/// A state of F planes as F blocks (c, s), (-s, c), row by row, of `columns` columns.
at::Tensor blocks_of(const at::Tensor& state, std::int64_t columns) {
  const std::int64_t planes = state.size(3) / 2;
  const at::Tensor c = state.narrow(3, 0, planes), s = state.narrow(3, planes, planes);
  const at::Tensor blocks = at::stack({at::stack({c, s}, -1), at::stack({s.neg(), c}, -1)}, -2);
  return at::constant_pad_nd(blocks, {0, columns - 2}).flatten(3);
}

TEST(Tape, BlocksSayWhatPlanesSayAndAreLimitedAlike) {
  at::manual_seed(7);
  const at::Tensor q = at::randn({1, 4, 5, 8}, at::kDouble), k = at::randn({1, 4, 5, 8}, at::kDouble);
  const at::Tensor state = 2 * at::randn({1, 4, 5, 8}, at::kDouble), mlp = at::randn({1, 5, 32}, at::kDouble);
  for (const std::int64_t columns : {2, 3, 5}) {
    const auto planes = make_encoding("tape(rope, clip=1.5)", dims(4, 4));
    const auto blocks = make_encoding(
        columns == 2 ? "tape(rope, clip=1.5)" : str("tape(rope, clip=1.5, block=", columns, ")"), dims(4, 4));
    AttendOptions of_planes = options_of(*planes, state), of_blocks = options_of(*planes, blocks_of(state, columns));
    for (auto& [name, tensor] : of_planes.parameters) {
      tensor = at::randn(tensor.sizes(), at::kDouble) * 0.3;
      of_blocks.parameters[name] = tensor;
    }
    const Attended a = attend_full(q, k, k, *planes, of_planes), b = attend_full(q, k, k, *blocks, of_blocks);
    EXPECT_LE((a.out - b.out).abs().max().item<double>(), 1e-13);
    EXPECT_LE((blocks_of(a.averages, columns) - b.averages).abs().max().item<double>(), 1e-13);
    const auto next = [&](const Encoding& tape, const AttendOptions& options, const at::Tensor& averages) {
      return tape.after_layer(layer_question(options, 1, 5, tape, q.options()), averages, mlp);
    };
    const at::Tensor next_a = next(*planes, of_planes, a.averages), next_b = next(*blocks, of_blocks, b.averages);
    EXPECT_LE((blocks_of(next_a, columns) - next_b).abs().max().item<double>(), 1e-13);
    // The limit is at work: no head's mean square is above it, and some head stands at it.
    const at::Tensor root = (next_a.square().sum(3) / 4).sqrt();
    EXPECT_NEAR(root.max().item<double>(), 1.5, 1e-12);
  }
}

TEST(Tape, AControlTakesNoBlocks) {
  const at::Tensor q = at::zeros({1, 4, 3, 8});
  for (const char* control : {"mixing", "frame"}) {
    const auto tape = make_encoding(str("tape(rope, control=", control, ")"), dims(4, 4));
    EXPECT_THROW((void)attend(q, q, q, *tape, options_of(*tape, at::zeros({1, 4, 3, 16}))), Error) << control;
    EXPECT_NO_THROW((void)attend(q, q, q, *tape, options_of(*tape, at::zeros({1, 4, 3, 8})))) << control;
  }
}

/// One layer without the model: attention, then the state after it.
struct LayerOut {
  at::Tensor out, state;
};
LayerOut layer(const Encoding& tape, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const at::Tensor& mlp, const at::Tensor& state, const NamedTensors& parameters, const at::Tensor& seen) {
  // Any mask: every query in a row of its own, where what it does not see is another document.
  const std::int64_t tokens = q.size(2);
  std::vector<at::Tensor> outs, averages;
  for (std::int64_t i = 0; i < tokens; ++i) {
    AttendOptions options;
    options.layers = 3;
    options.causal = false;
    options.parameters = parameters;
    options.state = state;
    options.documents =
        at::where(seen.select(0, i), at::zeros({}, at::kLong), at::ones({}, at::kLong)).view({1, tokens});
    options.query_documents = at::zeros({1, 1}, at::kLong);
    options.query_offsets = at::full({1}, i, at::kLong);
    const Attended one = attend_full(q.narrow(2, i, 1), k, v, tape, options);
    outs.push_back(one.out);
    averages.push_back(one.averages);
  }
  AttendOptions options;
  options.layers = 3;
  options.parameters = parameters;
  options.state = state;
  return {at::cat(outs, 2),
          tape.after_layer(layer_question(options, 1, tokens, tape, q.options()), at::cat(averages, 2), mlp)};
}

TEST(Tape, TokensMayBePermutedWithTheirMask) {
  at::manual_seed(5);
  const std::int64_t tokens = 7;
  for (const std::string encoding : {"tape(rope)", "tape(rope, post=headmix)", "tape(rope, gqa=shared)"})
    for (const auto& [dtype, bound] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 1e-5}})
      for (const std::string mask : {"causal", "full", "window"}) {
        const auto tape = make_encoding(encoding, dims(4, 2));
        const std::int64_t heads = encoding == "tape(rope, gqa=shared)" ? 2 : 4;
        const auto kind = at::TensorOptions(dtype);
        const at::Tensor q = at::randn({1, 4, tokens, 8}, kind), k = at::randn({1, 2, tokens, 8}, kind);
        const at::Tensor v = at::randn({1, 2, tokens, 8}, kind), mlp = at::randn({1, tokens, 32}, kind);
        const at::Tensor state = at::randn({1, heads, tokens, 8}, kind);
        NamedTensors parameters;
        for (const ParameterInfo& info : tape->parameters(0)) parameters[info.name] = at::randn(info.shape, kind) * 0.3;
        at::Tensor seen = at::ones({tokens, tokens}, at::kBool);
        if (mask != "full") seen = seen.tril();
        if (mask == "window") seen = seen.triu(-2);
        const at::Tensor order = at::randperm(tokens, at::kLong);
        const auto permuted = [&](const at::Tensor& x, std::int64_t axis) { return x.index_select(axis, order); };
        const LayerOut a = layer(*tape, q, k, v, mlp, state, parameters, seen);
        const auto again = [&](const at::Tensor& own) {
          return layer(*tape, permuted(q, 2), permuted(k, 2), permuted(v, 2), permuted(mlp, 1), permuted(state, 2),
                       parameters, own);
        };
        const LayerOut b = again(permuted(permuted(seen, 0), 1));
        EXPECT_LE((permuted(a.out, 2) - b.out).abs().max().item<double>(), bound) << mask;
        EXPECT_LE((permuted(a.state, 2) - b.state).abs().max().item<double>(), bound * 10) << mask;
        // With a causal mask that stays where it is, it is not so.
        if (mask == "causal") {
          EXPECT_GT((permuted(a.out, 2) - again(seen).out).abs().max().item<double>(), 1e-3);
        }
      }
}

}  // namespace
}  // namespace torsor
