// grape-m: trained spectra, planes, mixtures, bases and phases of the content.
#include "tests/oracle/make.h"

namespace oracle {

std::vector<Spec> turn_specs() {
  const auto named = [](const std::string& what, const std::string& encoding, const std::string& note = "") {
    return Spec("turns-" + what, encoding, note).width(4);
  };
  const std::vector<double> grid = {0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2};  // two rows, three columns
  std::vector<Spec> specs = {
      named("spectrum", "grape-m", "frequency exp(log_freq / 16)").width(8).tokens(6),
      named("spectrum-full", "grape-m").tokens(5).full(),
      named("spectrum-rows", "grape-m", "log_freq may have a row a key head").of_heads(4, 2).frequencies_in_rows(2),
      named("spectrum-per-head", "grape-m(per_head=true)").of_heads(4, 2).tokens(5),
      named("spectrum-interleaved-minus", "grape-m(layout=interleaved, orientation=minus)").width(6).tokens(5),
      named("spectrum-far", "grape-m").from({1000000}, 3).tokens(4).far_away(),
      named("two-axes", "grape-m(axes=2)", "equal blocks, as rope(axes=2)")
          .width(8)
          .tokens(6)
          .on_axes(2)
          .at(grid, grid),
      named("general", "grape-m(planes=general)", "turns a towards minus b").tokens(6),
      named("general-gqa", "grape-m(planes=general)").of_heads(6, 3).tokens(4),
      named("general-odd", "grape-m(planes=general)", "an odd head").width(3).tokens(5),
      named("general-half-steps", "grape-m(planes=general)").from({-1.5}, 0.5).tokens(6),
      named("ja", "grape-m(planes=ja)", "b_i = -a_(i + D/2), b_(i + D/2) = a_i").tokens(6),
      named("ja-interleaved", "grape-m(planes=ja, layout=interleaved)", "b = (-a_1, a_0, -a_3, a_2)").tokens(6),
      named("rank-2", "grape-m(rank=2)").tokens(5),
      named("rank-4", "grape-m(rank=4)", "planes that do not commute").width(6).tokens(5),
      named("rank-4-gqa-decode", "grape-m(rank=4)").of_heads(4, 2).tokens(1, 6),
      named("rank-whole", "grape-m(rank=4)", "as many vectors as channels").tokens(5).full(),
      named("rank-equal-angles", "grape-m(rank=4)", "two orthonormal planes, one angle")
          .of_heads(1, 1)
          .tokens(5)
          .set("grape-m.mix", {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1})
          .set("grape-m.theta", {0.75, 0.75}),
      named("cayley", "grape-m(basis=cayley)", "x to B^T x, B = (I + S)^-1 (I - S)").tokens(5),
      named("cayley-gqa-interleaved", "grape-m(basis=cayley, layout=interleaved)").of_heads(4, 2).tokens(5),
      named("householder", "grape-m(basis=householder)", "B = H_1 H_2").tokens(5),
      named("householder-four", "grape-m(basis=householder, reflectors=4)").width(6).tokens(4),
      named("padding-left", "grape-m(rank=2)").batch(2).tokens(5).documents({0, 0, 0, 0, 0, -1, -1, 0, 0, 0}),
      named("packed", "grape-m(planes=general)").tokens(6).documents({0, 0, 0, 1, 1, 1}),
      named("key-lengths", "grape-m(basis=cayley)").batch(3).tokens(2, 5).key_lengths({5, 2, 0}),
      named("window-scale", "grape-m(rank=4)").tokens(6).windowed(3).scaled(0.25),
      named("alibi", "grape-m(rank=2) + alibi").tokens(5),
      named("logn", "grape-m + logn(train_length=2)").tokens(5),
      named("heads", "heads(grape-m(rank=2) * 2, rope * 2)").of_heads(4, 2).tokens(4),
      named("layers", "layers(grape-m, none)").in_layer(2, 4).tokens(4),
      named("softplus", "grape-m(context=true, link=softplus)").with_x(6).tokens(6),
      named("phases-per-head", "grape-m(context=true, per_head=true)").of_heads(6, 3).with_x(6).tokens(5),
      named("phases-general", "grape-m(planes=general, context=true)").with_x(6).tokens(5),
      named("phases-rank-4", "grape-m(rank=4, context=true, per_head=true)").of_heads(4, 2).with_x(6).tokens(5),
      named("phases-basis", "grape-m(basis=cayley, context=true)").with_x(6).tokens(5),
      named("phases-minus", "grape-m(context=true, orientation=minus)", "as released").with_x(6).tokens(6),
      named("phases-fox", "grape-m(context=true) + fox").with_x(6).tokens(6),
  };
  add_token_layouts(specs, "turns-phases", "grape-m(context=true)");
  return specs;
}

}  // namespace oracle
