// tape: states that are given and states of positions, every key, and the edges of masks and shapes.
#include "tests/oracle/make.h"

namespace oracle {

std::vector<Spec> state_specs() {
  // In the first layer nobody has touched the states: they are those of the positions.
  const auto first = [](const std::string& what, const std::string& encoding, const std::string& note = "") {
    return Spec("state-" + what, encoding, note).width(4).with_mlp(6).in_layer(0, 2);
  };
  // In a middle one they are given: two heads, F = 2 planes.
  const auto middle = [](const std::string& what, const std::string& encoding, const std::string& note = "") {
    return Spec("state-" + what, encoding, note).width(4).with_mlp(6).in_layer(1, 3).with_state(2, 4);
  };
  const std::vector<double> grid = {0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2};  // two rows, three columns
  return {
      first("first-layer", "tape(rope)", "the state is that of the positions").tokens(6),
      first("first-full", "tape(rope)").tokens(5).full(),
      first("first-interleaved-minus", "tape(rope(layout=interleaved, orientation=minus))").tokens(5),
      first("first-linear", "tape(linear(rope, factor=4))").tokens(5),
      first("first-yarn", "tape(yarn(rope, factor=4, train_length=8))", "the magnitude is in the state").tokens(6),
      first("first-yarn-softmax", "tape(yarn(rope, factor=40, train_length=8, mscale=1, mscale_all_dim=0.5))")
          .tokens(5),
      first("first-dynamic", "tape(dynamic(rope, factor=2, train_length=4))").tokens(7),
      first("first-llama3", "tape(llama3(rope(base=50), train_length=64))").width(8).tokens(5),
      first("first-learned-frequencies", "tape(rope(learn=true))").tokens(5),
      first("first-bases", "tape(rope(base=[10000, 500]), gqa=shared)", "a base a key head").of_heads(4, 2).tokens(5),
      first("first-bases-expand", "tape(rope(base=[10000, 500]))").of_heads(4, 2).tokens(5),
      first("first-two-axes", "tape(rope(axes=2))").width(8).tokens(6).on_axes(2).at(grid, grid),
      first("first-part", "tape(rope(dim=4, part=suffix))", "other channels stand still").width(8).tokens(5),
      first("first-half-steps", "tape(rope)").from({-2.5}, 0.5).tokens(6),
      first("first-far", "tape(rope)").from({1000000}, 3).tokens(5).far_away(),
      first("first-packed", "tape(rope)").tokens(8).documents({0, 0, 0, 1, 1, 1, 1, 1}),
      first("first-padding-left", "tape(rope)").batch(2).tokens(6).documents({0, 0, 0, 0, 0, 0, -1, -1, -1, 0, 0, 0}),
      first("first-block", "tape(rope, block=3)", "(cos, sin, 0), (-sin, cos, 0)").tokens(5),
      first("first-decode", "tape(rope)", "one query: nothing becomes of the other states")
          .of_heads(4, 2)
          .batch(2)
          .tokens(1, 7)
          .from({0, 9}),
      first("only-layer", "tape(rope)", "nobody reads a next state: nothing is averaged").tokens(5).in_layer(0, 1),

      middle("given", "tape(rope)").tokens(6),
      middle("given-full", "tape(rope)").tokens(5).full(),
      middle("given-window", "tape(rope)").tokens(7).windowed(3),
      middle("given-window-full", "tape(rope)").tokens(6).windowed(2).full(),
      middle("given-one-token", "tape(rope)").batch(2).tokens(1),
      middle("given-positions", "tape(rope)", "positions play no part").tokens(5).from({1000000}, 17),
      middle("given-interleaved", "tape(rope(layout=interleaved))").tokens(5),
      middle("given-part", "tape(rope(dim=4, part=suffix))").width(8).tokens(5),
      middle("given-yarn-softmax", "tape(yarn(rope, factor=40, train_length=8, mscale=1, mscale_all_dim=0.5))")
          .tokens(5),
      middle("given-values", "tape(rope)", "values of another width").width(4, 3).tokens(5),
      middle("given-wide", "tape(rope)").width(16).with_state(2, 16).tokens(5),
      middle("given-scale", "tape(rope)").tokens(5).scaled(0.25),
      middle("decode", "tape(rope)").batch(2).tokens(1, 6),
      middle("chunk", "tape(rope)").tokens(3, 8),
      middle("more-queries", "tape(rope)", "the first rows see nothing").tokens(5, 3),
      middle("key-lengths", "tape(rope)").batch(4).tokens(2, 6).key_lengths({6, 4, 1, 0}),
      middle("leftover", "tape(rope)", "what lies past the length is huge")
          .batch(2)
          .tokens(2, 5)
          .key_lengths({3, 5})
          .left_over(0x1p100),
      middle("padding-left", "tape(rope)", "the state of padding is zeros")
          .batch(2)
          .tokens(6)
          .documents({0, 0, 0, 0, 0, 0, -1, -1, -1, 0, 0, 0}),
      middle("padding-inside", "tape(rope)").tokens(7).documents({0, -1, 0, 0, -1, -1, 0}),
      middle("packed", "tape(rope)").tokens(8).documents({0, 0, 0, 1, 1, 1, 1, 1}),
      middle("documents-interleaved", "tape(rope)").tokens(8).documents({0, 1, 0, 1, 1, 0, 0, 1}),
      middle("documents-chunk", "tape(rope)").tokens(3, 8).documents({0, 0, 0, 1, 1, 1, 1, 1}),

      middle("expand", "tape(rope)", "a state a query head: keys turn once for each").of_heads(4, 2).with_state(4, 4),
      middle("expand-one-key-head", "tape(rope, post=headmix)").of_heads(3, 1).with_state(3, 4),
      middle("expand-decode", "tape(rope)").of_heads(4, 2).with_state(4, 4).batch(2).tokens(1, 6),
      middle("shared", "tape(rope, gqa=shared)", "a state a key head: its group's averages are averaged")
          .of_heads(4, 2),
      middle("shared-headmix", "tape(rope, gqa=shared, post=headmix)").of_heads(6, 2).tokens(4),
      middle("shared-padding", "tape(rope, gqa=shared)").of_heads(4, 2).documents({-1, -1, 0, 0, 0}),

      middle("headmix", "tape(rope, post=headmix)").tokens(5),
      middle("scalar", "tape(rope, post=scalar)").tokens(5),
      middle("no-post", "tape(rope, post=none)", "nothing is averaged, the network acts").tokens(5),
      middle("no-attention", "tape(rope, attention=false)", "the same").tokens(5),
      middle("no-mlp", "tape(rope, mlp=false)").tokens(5),
      middle("neither", "tape(rope, mlp=false, attention=false)", "the state stays").tokens(5),
      middle("narrow", "tape(rope, width=1)").tokens(5),
      middle("width", "tape(rope, width=3)").of_heads(1, 1).with_state(1, 4).tokens(5),
      middle("clip", "tape(rope, clip=1)").tokens(6),
      middle("clip-2", "tape(rope, clip=2.5, post=headmix)").tokens(6),
      middle("clip-block", "tape(rope, block=3, clip=1)", "|z| squared is half the sum of a block's squares")
          .with_state(2, 12)
          .tokens(5),
      first("clip-first-block", "tape(rope, block=3, clip=1, mlp=false, post=scalar)",
            "an untouched state is 1: the limit leaves it")
          .tokens(5)
          .set("tape.post_attention", {0, 0}),
      middle("from-layer", "tape(rope, from_layer=1)").tokens(5),
      middle("before-from-layer", "tape(rope, from_layer=2)", "the state is handed on").tokens(5),
      middle("last-layer", "tape(rope)", "nothing is averaged").tokens(5).in_layer(2, 3),
      middle("last-layer-expand", "tape(rope)").of_heads(4, 2).with_state(4, 4).tokens(2, 5).in_layer(2, 3),
      middle("block", "tape(rope, block=3)").with_state(2, 12).tokens(5),
      middle("block-gqa", "tape(rope, block=3)").of_heads(4, 2).with_state(4, 12).tokens(2, 5),
      middle("block-padding", "tape(rope, block=4, gqa=shared)").with_state(2, 16).documents({-1, 0, 0, 0, 0}),
      middle("reflections", "tape(rope)", "a block (2, 2) a plane, row by row: reflections are such").with_state(2, 8),
      middle("mixing", "tape(rope, control=mixing)", "planes mix").tokens(5),
      middle("frame", "tape(rope, control=frame)", "cosines and sines apart").tokens(5),

      middle("alibi", "tape(rope) + alibi").tokens(5),
      middle("logn", "tape(rope) + logn(train_length=2)").tokens(5),
      middle("t5", "tape(rope, post=headmix) + t5(buckets=8, max_distance=16)").tokens(6),
      middle("heads", "heads(tape(rope, gqa=shared) * 2, rope * 2)", "heads of other parts carry nothing")
          .of_heads(4, 4)
          .tokens(5),
      middle("heads-second", "heads(rope * 2, tape(rope, gqa=shared) * 4)").of_heads(6, 3).tokens(5),
      middle("layers", "layers(none, tape(rope), rope)").tokens(5),
      middle("layers-other", "layers(tape(rope), rope)", "a layer that leaves the state").tokens(5).without_state(),
  };
}

}  // namespace oracle
