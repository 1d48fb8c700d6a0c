// tape's position network against golden values and its definition, its trained tensors, and what it refuses.
#include <torch/csrc/autograd/autograd.h>

#include <tuple>
#include <utility>

#include "tests/golden_tape.h"
#include "torsor/encoding/registry.h"
#include "torsor/encoding/state/position_network.h"

namespace torsor {
namespace {

at::Tensor like_state(const at::Tensor& planar_state) {  // (.., 2F) -> (.., F, 2)
  const std::int64_t planes = planar_state.size(-1) / 2;
  return at::stack({planar_state.narrow(-1, 0, planes), planar_state.narrow(-1, planes, planes)}, -1);
}

TEST_F(GoldenTape, ThePositionNetworkIsTheReferences) {
  const Json& golden = file_.at("pos_mlp_kernel");
  std::vector<at::Tensor> leaves = {planar(golden_tensor(golden.at("P_in"))), golden_tensor(golden.at("gate")),
                                    golden_tensor(golden.at("Up")), golden_tensor(golden.at("Dn"))};
  for (const auto& [dtype, bound] : {std::pair{at::kDouble, 1e-12}, {at::kFloat, 2e-5}}) {
    for (at::Tensor& leaf : leaves) leaf = leaf.detach().to(dtype).requires_grad_(true);
    const at::Tensor out = position_network(leaves[0], leaves[1], leaves[2], leaves[3]);
    EXPECT_LE(golden_error(like_state(out), golden_tensor(golden.at("P_out"))), bound);
    const auto gradients = torch::autograd::grad({out}, leaves, {planar(golden_tensor(golden.at("dP_out"))).to(dtype)});
    EXPECT_LE(golden_error(like_state(gradients[0]), golden_tensor(golden.at("dP_in"))), bound);
    EXPECT_LE(golden_error(gradients[1], golden_tensor(golden.at("dgate"))), bound);
    EXPECT_LE(golden_error(gradients[2], golden_tensor(golden.at("dUp"))), bound);
    EXPECT_LE(golden_error(gradients[3], golden_tensor(golden.at("dDn"))), bound);
  }
}

TEST(PositionNetwork, IsTheProductOverHeadsForAnyShapeAndStrides) {
  for (const auto& [batch, heads, tokens, width, inner] :
       std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>>{
           {1, 1, 1, 2, 1}, {2, 3, 5, 6, 4}, {1, 5, 17, 72, 20}, {3, 2, 2, 34, 8}, {2, 12, 3, 64, 48}}) {
    const at::Tensor state = at::randn({batch, tokens, heads, width}, at::kDouble).transpose(1, 2).requires_grad_(true);
    const at::Tensor gate = at::randn({batch, tokens, inner}, at::kDouble).requires_grad_(true);
    const at::Tensor up = at::randn({inner, heads}, at::kDouble).requires_grad_(true);
    const at::Tensor down = at::randn({heads, inner}, at::kDouble).requires_grad_(true);
    const at::Tensor inside = at::einsum("ih,bhtw->bitw", {up, state}) * gate.transpose(1, 2).unsqueeze(3);
    const at::Tensor expected = state + at::einsum("hi,bitw->bhtw", {down, inside});
    const at::Tensor ours = position_network(state, gate, up, down);
    EXPECT_LE((ours - expected).abs().max().item<double>(), 1e-11);
    const at::Tensor upstream = at::randn_like(expected);
    const auto a = torch::autograd::grad({ours}, {state, gate, up, down}, {upstream}, true);
    const auto b = torch::autograd::grad({expected}, {state, gate, up, down}, {upstream}, true);
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_LE((a[i] - b[i]).abs().max().item<double>(), 1e-10 * (1 + b[i].abs().max().item<double>())) << i;
  }
}

Dimensions dims(std::int64_t heads, std::int64_t kv_heads) {
  return {.heads = heads, .kv_heads = kv_heads, .head_dim = 8, .layers = 3};
}

std::string refusal(const std::string& encoding, const Dimensions& dimensions) {
  try {
    (void)make_encoding(encoding, dimensions);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Tape, CountsItsTensorsAsThePaperDoes) {
  const auto count = [](const Encoding& encoding, std::int64_t layers) {
    std::int64_t all = 0;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      for (const ParameterInfo& info : encoding.parameters(layer)) {
        std::int64_t one = 1;
        for (const std::int64_t extent : info.shape) one *= extent;
        all += one;
      }
    return all;
  };
  EXPECT_EQ(count(*make_encoding("tape(rope)", {.heads = 12, .head_dim = 64, .layers = 12}), 12), 457920);
  EXPECT_EQ(count(*make_encoding("tape(rope)", {.heads = 32, .head_dim = 128, .layers = 32}), 32), 17072128);
  // 2 H I + C I + H^2 a layer; the last layer's, which nobody reads, count as well.
  EXPECT_EQ(count(*make_encoding("tape(rope, width=5)", dims(4, 4)), 3), 3 * (2 * 4 * 5 + 32 * 5 + 16));
  EXPECT_EQ(count(*make_encoding("tape(rope, post=scalar)", dims(4, 4)), 3), 3 * (2 * 4 * 16 + 32 * 16 + 4));
  EXPECT_EQ(count(*make_encoding("tape(rope, post=none)", dims(4, 4)), 3), 3 * (2 * 4 * 16 + 32 * 16));
  EXPECT_EQ(count(*make_encoding("tape(rope, mlp=false)", dims(4, 4)), 3), 3 * 16);
  EXPECT_EQ(count(*make_encoding("tape(rope, attention=false)", dims(4, 4)), 3), 3 * (2 * 4 * 16 + 32 * 16));
  EXPECT_EQ(count(*make_encoding("tape(rope, from_layer=2)", dims(4, 4)), 3), 2 * 4 * 16 + 32 * 16 + 16);
  EXPECT_EQ(count(*make_encoding("tape(rope, gqa=shared)", dims(4, 2)), 3), 3 * (2 * 2 * 16 + 32 * 16 + 4));
  EXPECT_EQ(count(*make_encoding("tape(rope, control=frame)", dims(4, 4)), 3), 3 * (4 * 4 * 16 + 32 * 16 + 16));
  EXPECT_EQ(count(*make_encoding("tape(rope, control=mixing)", dims(4, 4)), 3), 3 * (2 * 16 * 16 + 32 * 16 + 16));
}

TEST(Tape, RefusesWhatHasNoMeaning) {
  EXPECT_NE(refusal("tape(rope) + tape(rope(dim=4))", dims(4, 4)), "");
  EXPECT_NE(refusal("tape(rope, clip=0.5)", dims(4, 4)).find("clip"), std::string::npos);
  EXPECT_NE(refusal("tape(rope, mlp=false, control=frame)", dims(4, 4)).find("control"), std::string::npos);
  EXPECT_NE(refusal("tape(rope, block=3, control=mixing)", dims(4, 4)).find("block"), std::string::npos);
  EXPECT_NE(refusal("layers(tape(rope), tape(rope(base=500)))", dims(4, 4)).find("one rotation"), std::string::npos);
  EXPECT_EQ(refusal("layers(tape(rope), rope(base=500), tape(rope, post=headmix))", dims(4, 4)), "");
  EXPECT_NE(refusal("tape(rope, from_layer=3)", dims(4, 4)).find("beyond"), std::string::npos);
  EXPECT_EQ(refusal("tape(rope, from_layer=2)", dims(4, 4)), "");
  EXPECT_NE(refusal("tape(rope, mlp=false, width=8)", dims(4, 4)).find("width"), std::string::npos);
  EXPECT_NE(refusal("tape(rope, attention=false, post=headmix)", dims(4, 4)).find("post"), std::string::npos);
  EXPECT_NE(refusal("heads(tape(rope) * 2, rope * 2)", dims(4, 2)).find("gqa=shared"), std::string::npos);
  EXPECT_NE(refusal("heads(tape(rope, block=3) * 2, rope * 2)", dims(4, 4)).find("block"), std::string::npos);
  EXPECT_NE(refusal("heads(tape(rope) * 2, tape(rope) * 2)", dims(4, 4)).find("two terms carry"), std::string::npos);
  EXPECT_EQ(refusal("heads(tape(rope) * 2, rope * 2)", dims(4, 4)), "");
  EXPECT_EQ(refusal("tape(yarn(rope, factor=4, train_length=32)) + alibi", dims(4, 2)), "");
}

}  // namespace
}  // namespace torsor
