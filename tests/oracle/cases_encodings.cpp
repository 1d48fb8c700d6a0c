// The cases of one encoding each: every key at every edge.
#include "tests/oracle/make.h"

namespace oracle {
namespace {

std::string named(const std::string& group, const std::string& what) { return group + "-" + what; }

// Text, then an image of two rows and three columns, then text: time, row, column.
const std::vector<double> image_positions = {0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 2, 2,
                                             4, 2, 3, 2, 2, 3, 3, 2, 3, 4, 5, 5, 5};
// A grid of two rows and three columns: row, column.
const std::vector<double> grid_positions = {0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2};

// Keys that stand at these distances before a query at 200.
Spec at_distances(Spec spec, const std::vector<double>& distances) {
  std::vector<double> keys;
  for (double distance : distances) keys.push_back(200.0 - distance);
  return spec.tokens(1, static_cast<int>(keys.size())).full().width(2).at(keys, {200.0});
}

}  // namespace

std::vector<Spec> rotary_specs() {
  const auto id = [](const std::string& what) { return named("rotary", what); };
  return {
      Spec(id("rope"), "rope"),
      Spec(id("rope-full"), "rope").full(),
      Spec(id("layout-interleaved"), "rope(layout=interleaved)"),
      Spec(id("orientation-minus"), "rope(orientation=minus)", "each plane turns the other way"),
      Spec(id("interleaved-minus-gqa"), "rope(layout=interleaved, orientation=minus)").of_heads(4, 2),
      Spec(id("dim-2"), "rope(dim=2)", "one plane; the other channels pass"),
      Spec(id("dim-6-of-8"), "rope(dim=6)"),
      Spec(id("dim-whole"), "rope(dim=8)"),
      Spec(id("suffix"), "rope(dim=4, part=suffix)"),
      Spec(id("suffix-interleaved-minus"), "rope(dim=6, part=suffix, layout=interleaved, orientation=minus)"),
      Spec(id("fraction-half"), "rope(fraction=0.5)", "partial: the exponents run over the rotary width"),
      Spec(id("fraction-quarter-interleaved"), "rope(fraction=0.25, layout=interleaved)").width(16),
      Spec(id("fraction-suffix"), "rope(fraction=0.5, part=suffix)"),
      Spec(id("proportional-whole"), "rope(frequencies=proportional)"),
      Spec(id("proportional-half"), "rope(frequencies=proportional, fraction=0.5)",
           "the exponents run over the head; the last planes stand still"),
      Spec(id("proportional-floor"), "rope(frequencies=proportional, fraction=0.3)", "1.8 planes are one").width(12),
      Spec(id("base-100"), "rope(base=100)").tokens(7),
      Spec(id("base-1e6"), "rope(base=1000000)").from({900}, 301),
      Spec(id("base-below-10"), "rope(base=2.5)"),
      Spec(id("base-each-head"), "rope(base=[10000, 500, 20])", "one base a key head").of_heads(6, 3).tokens(4),
      Spec(id("base-one-key-head"), "rope(base=[300])").of_heads(3, 1).tokens(4),
      Spec(id("base-each-head-partial"), "rope(base=[10000, 50], dim=4, layout=interleaved)").of_heads(2, 2),
      Spec(id("two-axes"), "rope(axes=2)", "equal blocks, the index begins again in each")
          .tokens(6)
          .full()
          .on_axes(2)
          .at(grid_positions, grid_positions),
      Spec(id("two-axes-base-100"), "rope(axes=2, base=100)")
          .tokens(6)
          .width(12)
          .on_axes(2)
          .at(grid_positions, grid_positions),
      Spec(id("two-axes-partial"), "rope(axes=2, dim=4)")
          .tokens(6)
          .full()
          .on_axes(2)
          .at(grid_positions, grid_positions),
      Spec(id("two-axes-width-4"), "rope(axes=2)", "one plane an axis")
          .tokens(6)
          .width(4)
          .on_axes(2)
          .at(grid_positions, grid_positions),
      Spec(id("three-axes"), "rope(axes=3)").tokens(9).width(12).on_axes(3).at(image_positions, image_positions),
      Spec(id("three-axes-width-6"), "rope(axes=3)", "one plane an axis")
          .tokens(9)
          .width(6)
          .on_axes(3)
          .at(image_positions, image_positions),
      Spec(id("sections-contiguous"), "rope(axes=3, arrangement=contiguous, sections=[2, 1, 1])")
          .tokens(9)
          .on_axes(3)
          .at(image_positions, image_positions),
      Spec(id("sections-contiguous-two"), "rope(axes=2, arrangement=contiguous, sections=[1, 3])")
          .tokens(6)
          .full()
          .on_axes(2)
          .at(grid_positions, grid_positions),
      Spec(id("sections-interleaved"), "rope(axes=3, arrangement=interleaved, sections=[2, 1, 1])")
          .tokens(9)
          .on_axes(3)
          .at(image_positions, image_positions),
      Spec(id("sections-interleaved-uneven"), "rope(axes=3, arrangement=interleaved, sections=[3, 2, 1])",
           "axis order: time, row, column, time, row, time")
          .tokens(9)
          .width(12)
          .on_axes(3)
          .at(image_positions, image_positions),
      Spec(id("sections-text"), "rope(axes=3, arrangement=interleaved, sections=[2, 1, 1])",
           "text: all axes equal, as plain rope")
          .tokens(4)
          .on_axes(3)
          .at({0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}, {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}),
      Spec(id("learned"), "rope(learn=true)").tokens(6),
      Spec(id("learned-each-head"), "rope(learn=true, layout=interleaved)").of_heads(4, 2).frequencies_in_rows(2),
      Spec(id("learned-partial-minus"), "rope(learn=true, dim=4, orientation=minus)").from({7}, 2.5),
      Spec(id("learned-two-axes"), "rope(learn=true, axes=2)", "planes in the order of the axes")
          .tokens(6)
          .full()
          .on_axes(2)
          .at(grid_positions, grid_positions),
      Spec(id("width-2"), "rope").width(2).tokens(6),
      Spec(id("width-6"), "rope(layout=interleaved)").width(6).tokens(3, 6),
      Spec(id("xpos"), "xpos").from({0}, 60).tokens(6),
      Spec(id("xpos-full"), "xpos(scale_base=64)", "keys after the query grow instead").from({5}, 3).full(),
      Spec(id("xpos-interleaved"), "xpos(layout=interleaved, scale_base=64)").from({0}, 20),
      Spec(id("xpos-gamma"), "xpos(gamma=0.25, scale_base=32)").from({0}, 4),
      Spec(id("xpos-base"), "xpos(base=500, scale_base=128)").of_heads(4, 2).from({11}, 9),
      Spec(id("xpos-far"), "xpos", "only the difference counts, however far").from({1000000}, 40).far_away(),
      Spec(id("xpos-decode"), "xpos(scale_base=64)").tokens(1, 8).of_heads(2, 1),
      Spec(id("xpos-width-2"), "xpos(scale_base=64)").width(2).tokens(2, 7),
  };
}

std::vector<Spec> scaling_specs() {
  const auto id = [](const std::string& what) { return named("scaling", what); };
  const std::string lists = "short=[1.0, 1.25, 1.5, 2.0], long=[1.5, 4.0, 9.5, 31.0]";
  return {
      Spec(id("linear"), "linear(rope, factor=4)").from({3}, 11),
      Spec(id("linear-one"), "linear(rope, factor=1)", "nothing changes"),
      Spec(id("linear-learned"), "linear(rope(learn=true), factor=4)", "divides what is learned"),
      Spec(id("linear-interleaved-partial"), "linear(rope(layout=interleaved, dim=4), factor=2.5)"),
      Spec(id("linear-axes"), "linear(rope(axes=2), factor=2)")
          .tokens(6)
          .on_axes(2)
          .full()
          .at(grid_positions, grid_positions),
      Spec(id("ntk"), "ntk(rope, factor=4)").from({0}, 37),
      Spec(id("ntk-partial"), "ntk(rope(dim=6, base=500), factor=8)", "d is the rotary width").from({0}, 9),
      Spec(id("ntk-each-head"), "ntk(rope(base=[10000, 100]), factor=2)").of_heads(4, 2).from({0}, 5),
      Spec(id("ntk-by-parts"), "ntk-by-parts(rope, factor=4, train_length=2048)").width(16).from({2000}, 131),
      Spec(id("ntk-by-parts-short"), "ntk-by-parts(rope(base=1000), factor=8, train_length=128)")
          .width(12)
          .from({0}, 77),
      Spec(id("dynamic-inside"), "dynamic(rope, factor=4, train_length=8)", "T <= L: plain").tokens(8),
      Spec(id("dynamic-one-beyond"), "dynamic(rope, factor=4, train_length=8)").tokens(9),
      Spec(id("dynamic-decode"), "dynamic(rope, factor=2, train_length=4)").tokens(1, 11).of_heads(4, 2),
      Spec(id("dynamic-rows"), "dynamic(rope, factor=2, train_length=16)", "each row has its own T")
          .batch(2)
          .from({0, 40}, 2),
      Spec(id("dynamic-key-lengths"), "dynamic(rope, factor=2, train_length=4)",
           "keys past the length do not count for T")
          .batch(2)
          .tokens(2, 8)
          .key_lengths({8, 3}),
      Spec(id("dynamic-packed"), "dynamic(rope, factor=2, train_length=3)", "each document has its own T")
          .tokens(9)
          .documents({0, 0, 1, 1, 1, 1, 2, 2, 2}),
      Spec(id("dynamic-half"), "dynamic(rope, factor=2, train_length=4)", "T = 8.5").from({0}, 1.875),
      Spec(id("yarn"), "yarn(rope, factor=4, train_length=2048)").width(16).from({3000}, 117),
      Spec(id("yarn-width-64"), "yarn(rope, factor=4, train_length=2048)").width(64).tokens(3).from({4000}, 1021),
      Spec(id("yarn-untruncated"), "yarn(rope, factor=32, train_length=4096, truncate=false)").width(16).from({0}, 613),
      Spec(id("yarn-betas"), "yarn(rope(base=1000), factor=8, train_length=1024, beta_fast=20, beta_slow=2)")
          .width(16)
          .from({0}, 313),
      Spec(id("yarn-factor-one"), "yarn(rope, factor=1, train_length=64)", "g(1) = 1: plain rope"),
      Spec(id("yarn-attention-factor"), "yarn(rope, factor=4, train_length=64, attention_factor=1.25)"),
      Spec(id("yarn-attention-factor-one"), "yarn(rope, factor=16, train_length=64, attention_factor=1)",
           "given, so it counts")
          .from({0}, 29),
      Spec(id("yarn-mscale-both"), "yarn(rope, factor=40, train_length=4096, mscale=0.8, mscale_all_dim=0.5)")
          .width(16),
      Spec(id("yarn-mscale-equal"), "yarn(rope, factor=40, train_length=4096, mscale=0.707, mscale_all_dim=0.707)",
           "magnitude 1, softmax factor g^2")
          .width(16),
      Spec(id("yarn-mscale-alone"), "yarn(rope, factor=8, train_length=64, mscale=0.5)",
           "without mscale_all_dim it does not count"),
      Spec(id("yarn-all-dim-alone"), "yarn(rope, factor=8, train_length=64, mscale_all_dim=0.5)",
           "magnitude g(s, 1), softmax factor g(s, 0.5)^2"),
      Spec(id("yarn-all-dim-given-scale"), "yarn(rope, factor=8, train_length=64, mscale_all_dim=0.5)",
           "a given scale stands as it is")
          .scaled(0.25),
      Spec(id("yarn-all-dim-attention-factor"),
           "yarn(rope, factor=8, train_length=64, attention_factor=0.9, mscale_all_dim=1)"),
      Spec(id("yarn-partial"), "yarn(rope(dim=4, part=suffix), factor=16, train_length=64)",
           "the magnitude is on the planes alone"),
      Spec(id("yarn-interleaved-minus"),
           "yarn(rope(layout=interleaved, orientation=minus), factor=2, train_length=256)")
          .from({250}, 13),
      Spec(id("yarn-each-head"), "yarn(rope(base=[10000, 300]), factor=4, train_length=512)")
          .of_heads(4, 2)
          .from({500}, 31),
      Spec(id("yarn-sections"),
           "yarn(rope(axes=3, arrangement=contiguous, sections=[2, 1, 1]), factor=4, train_length=32)")
          .tokens(9)
          .on_axes(3)
          .at(image_positions, image_positions),
      Spec(id("yarn-learned"), "yarn(rope(learn=true), factor=4, train_length=256)", "the ramp is that of the base")
          .from({0}, 9),
      Spec(id("yarn-short-length"), "yarn(rope, factor=4, train_length=6)", "both ends of the ramp at 0"),
      Spec(id("longrope-at-length"), "longrope(rope, " + lists + ", train_length=16, factor=4)", "T = 16 is short")
          .from({11}),
      Spec(id("longrope-past-length"), "longrope(rope, " + lists + ", train_length=16, factor=4)", "T = 17 is long")
          .from({12}),
      Spec(id("longrope-half-past"), "longrope(rope, " + lists + ", train_length=16, factor=4)", "T = 16.5 is long")
          .from({11.5}),
      Spec(id("longrope-attention-factor"),
           "longrope(rope, " + lists + ", train_length=16, factor=4, attention_factor=1.5)")
          .from({40}, 3),
      Spec(id("longrope-factor-one"), "longrope(rope, " + lists + ", train_length=16, factor=1)", "magnitude 1"),
      Spec(id("longrope-packed"), "longrope(rope, " + lists + ", train_length=4, factor=32)",
           "short and long side by side")
          .tokens(9)
          .documents({0, 0, 0, 0, 1, 1, 1, 1, 1}),
      Spec(id("longrope-interleaved-gqa"),
           "longrope(rope(layout=interleaved), " + lists + ", train_length=4, factor=8)")
          .of_heads(4, 1)
          .tokens(2, 7),
      Spec(id("llama3"), "llama3(rope(base=500000))", "planes on both sides and between")
          .width(32)
          .tokens(3)
          .from({8000}, 777),
      Spec(id("llama3-small"), "llama3(rope(base=1000), factor=8, train_length=128)").from({100}, 19),
      Spec(id("llama3-factors"),
           "llama3(rope(base=1000), factor=32, low_freq_factor=0.5, high_freq_factor=8, train_length=256)")
          .width(12)
          .from({0}, 101),
      Spec(id("llama3-partial"), "llama3(rope(base=100, fraction=0.5, layout=interleaved), factor=4, train_length=48)")
          .from({0}, 7),
      Spec(id("logn"), "logn(train_length=4)", "1 up to position L - 1, then it grows").tokens(9),
      Spec(id("logn-far"), "logn(train_length=2048)").from({100000}, 4096).tokens(4),
      Spec(id("logn-half"), "logn(train_length=3)", "real positions").from({0}, 1.5),
      Spec(id("logn-given-scale"), "logn(train_length=2)").scaled(0.5).full(),
      Spec(id("rope-logn-decode"), "rope + logn(train_length=4)").tokens(2, 8).of_heads(4, 2),
      Spec(id("llama4-scale"), "llama4-scale", "8191 is the first with a factor").from({8189}).tokens(5),
      Spec(id("llama4-scale-small"), "llama4-scale(scale=0.3, length=3)").tokens(10),
      Spec(id("llama4-scale-half"), "llama4-scale(scale=0.5, length=2)").from({0.5}, 0.5).tokens(6),
  };
}

std::vector<Spec> bias_specs() {
  const auto id = [](const std::string& what) { return named("bias", what); };
  std::vector<Spec> specs;
  for (int heads : {1, 2, 3, 5, 6, 7, 8, 12}) {
    specs.push_back(Spec(id("alibi-heads-" + std::to_string(heads)), "alibi").of_heads(heads, 1).tokens(3, 4).width(2));
  }
  const std::vector<Spec> more = {
      Spec(id("alibi-40-heads"), "alibi").of_heads(40, 8).tokens(2, 3).width(2),
      Spec(id("alibi-full-gqa"), "alibi", "the distance counts without its sign").of_heads(6, 3).full(),
      Spec(id("alibi-exponent"), "alibi(max_exponent=4)").of_heads(3, 3),
      Spec(id("alibi-exponent-real"), "alibi(max_exponent=10.5)").of_heads(4, 2),
      Spec(id("alibi-learned"), "alibi(learn=true)").of_heads(4, 2).full(),
      Spec(id("alibi-learned-negative"), "alibi(learn=true)", "a slope is used as it is")
          .set("alibi.slopes", {-0.25, 0.0}),
      Spec(id("alibi-far-distance"), "alibi", "distances of tens of thousands")
          .of_heads(8, 2)
          .tokens(3)
          .from({0}, 35000),
      Spec(id("alibi-real"), "alibi", "distances need not be whole").from({0}, 0.375).tokens(6),
      at_distances(Spec(id("t5-default"), "t5", "the edges of the buckets"),
                   {0, 1, 15, 16, 18, 19, 20, 21, 32, 64, 127, 128, 5000}),
      at_distances(Spec(id("t5-bidirectional-default"), "t5(bidirectional=true)"),
                   {0, 7, 8, 12, 16, 64, 91, 400, -1, -7, -8, -12, -16, -64, -91}),
      at_distances(Spec(id("t5-half-to-even"), "t5(buckets=8, max_distance=16)"), {0.25, 0.5, 0.75, 1.5, 2.5, 3.5}),
      at_distances(Spec(id("t5-bidirectional-half"), "t5(bidirectional=true, buckets=8, max_distance=16)"),
                   {0.5, 1.5, 2.5, -0.5, -1.5, -2.5}),
      at_distances(
          Spec(id("t5-causal-sees-later"), "t5(buckets=8, max_distance=16)", "a key after the query is in bucket 0"),
          {0, 3, -1, -3, -40}),
      at_distances(Spec(id("t5-wrap"), "t5(buckets=8, max_distance=16, far=wrap)"), {15, 16, 17, 20, 31, 32, 33, 1000}),
      at_distances(Spec(id("t5-wrap-bidirectional"), "t5(bidirectional=true, buckets=12, max_distance=20, far=wrap)"),
                   {19, 20, 21, 39, 41, -19, -20, -21, -50}),
      at_distances(Spec(id("t5-log"), "t5(buckets=8, max_distance=16, far=log)"),
                   {0, 3, 5, 80, 100, 1500, 3000, 40000, 60000, 900000, 3000000}),
      at_distances(Spec(id("t5-log-bidirectional"), "t5(bidirectional=true, buckets=16, max_distance=64, far=log)"),
                   {2, 7, 300, 70000, -2, -9, -500, -80000}),
      Spec(id("t5-gqa-decode"), "t5(buckets=8, max_distance=16)").of_heads(4, 2).tokens(1, 12).batch(2),
      Spec(id("t5-few-buckets"), "t5(buckets=4, max_distance=6)").tokens(9).width(4),
      Spec(id("t5-shared"), "t5(buckets=8, max_distance=16, shared=true)",
           "shared between layers; in one layer the same"),
      Spec(id("t5-scale-one"), "t5(bidirectional=true, buckets=8, max_distance=16)",
           "as T5 itself, which does not scale")
          .scaled(1.0)
          .full()
          .width(4),
      Spec(id("kerple-log"), "kerple").of_heads(3, 1).tokens(6),
      Spec(id("kerple-log-full"), "kerple").full().from({0}, 2.5),
      Spec(id("kerple-log-far"), "kerple").from({0}, 20000).tokens(4),
      Spec(id("kerple-log-clamped"), "kerple", "below 0.01: 0.01, and no gradient")
          .set("kerple.r1", {-0.5, 0.75})
          .set("kerple.r2", {0.5, 0.0078125}),
      Spec(id("kerple-power"), "kerple(kind=power)").of_heads(4, 2),
      Spec(id("kerple-power-full"), "kerple(kind=power)").full().from({0}, 0.75),
      Spec(id("kerple-power-clamped"), "kerple(kind=power)", "above 2: 2; below 0.01: 0.01")
          .set("kerple.r1", {0.0625, 0.5})
          .set("kerple.r2", {2.5, -1.0}),
      Spec(id("sandwich"), "sandwich").of_heads(4, 2),
      Spec(id("sandwich-real"), "sandwich(width=16)").of_heads(3, 3).from({0}, 6.25).full(),
      Spec(id("sandwich-width-2"), "sandwich(width=2)").of_heads(8, 2).tokens(4).width(4),
      Spec(id("sandwich-far"), "sandwich(width=64)").from({0}, 777).tokens(4),
      Spec(id("fire"), "fire(hidden=4, length=16)", "queries on both sides of the threshold").tokens(7).from({0}, 5),
      Spec(id("fire-full"), "fire(hidden=3, length=4)").full().tokens(6),
      Spec(id("fire-default-size"), "fire").of_heads(3, 1).tokens(4).from({490}, 23),
      Spec(id("fire-decode"), "fire(hidden=5, length=8)").tokens(2, 9).of_heads(4, 2),
      Spec(id("fire-negative-mu"), "fire(hidden=4, length=8)", "the threshold is a magnitude")
          .set("fire.mu", {-0.8125})
          .tokens(9)
          .width(4),
      Spec(id("fire-negative-c"), "fire(hidden=4, length=8)").set("fire.c", {-0.15}).tokens(5),
      Spec(id("fire-near"), "fire(hidden=4, length=64)", "every query below the threshold").tokens(6),
  };
  specs.insert(specs.end(), more.begin(), more.end());
  return specs;
}

std::vector<Spec> content_specs() {
  const auto id = [](const std::string& what) { return named("content", what); };
  return {
      Spec(id("cope"), "cope(length=4)").tokens(7),
      Spec(id("cope-long"), "cope", "the count never reaches the end of the table").tokens(5).width(4),
      Spec(id("cope-one-row"), "cope(length=1)", "every count is clamped to 0").width(4),
      Spec(id("cope-two-rows"), "cope(length=2)").tokens(7).width(4),
      Spec(id("cope-gqa"), "cope(length=3)").of_heads(4, 2).tokens(6),
      Spec(id("cope-decode"), "cope(length=3)").tokens(1, 7).batch(2),
      Spec(id("cope-window"), "cope(length=3)", "keys outside the window add no gate").tokens(7).windowed(4),
      Spec(id("cope-key-lengths"), "cope(length=3)").batch(3).tokens(2, 6).key_lengths({6, 4, 1}),
      Spec(id("cope-packed"), "cope(length=3)").tokens(8).documents({0, 0, 0, 1, 1, 1, 1, 1}),
      Spec(id("cope-pad-inside"), "cope(length=3)", "padding between tokens adds no gate")
          .tokens(7)
          .documents({0, 0, -1, 0, -1, 0, 0}),
      Spec(id("cope-more-queries"), "cope(length=3)").tokens(5, 3),
      Spec(id("cope-scale"), "cope(length=4)", "the gates read the scaled logit, the table's own product the plain q")
          .scaled(1.0)
          .tokens(6),
      Spec(id("cope-positions"), "cope(length=4)", "positions play no part").from({1000000}, 17).tokens(5),
      Spec(id("txl"), "txl").tokens(6),
      Spec(id("txl-interleaved"), "txl(order=interleaved)").tokens(5),
      Spec(id("txl-full"), "txl", "negative distances").full().tokens(5).hidden(6),
      Spec(id("txl-gqa-decode"), "txl").of_heads(4, 2).tokens(2, 7),
      Spec(id("txl-narrow"), "txl", "C = 2").hidden(2).tokens(5).width(4),
      Spec(id("txl-wide"), "txl", "C = 12").hidden(12).tokens(4).width(4),
      Spec(id("txl-real"), "txl").from({0}, 1.75).tokens(5).width(6),
      Spec(id("txl-window"), "txl").tokens(6).windowed(2).width(4),
      Spec(id("txl-scale"), "txl", "a given scale is on both products").scaled(0.75).tokens(5).width(4),
      Spec(id("txl-far-distance"), "txl").from({0}, 5000).tokens(4).width(4),
  };
}

std::vector<Spec> absolute_specs() {
  const auto id = [](const std::string& what) { return named("absolute", what); };
  return {
      Spec(id("sinusoidal"), "sinusoidal").with_x(8).width(4),
      Spec(id("sinusoidal-halves"), "sinusoidal(order=halves)").with_x(8).width(4),
      Spec(id("sinusoidal-base"), "sinusoidal(base=100)").with_x(6).width(4),
      Spec(id("sinusoidal-narrow"), "sinusoidal").with_x(2).width(2),
      Spec(id("sinusoidal-wide"), "sinusoidal").with_x(64).width(2).tokens(3),
      Spec(id("sinusoidal-far"), "sinusoidal").with_x(8).width(4).tokens(3).from({1000000}).far_away(),
      Spec(id("sinusoidal-negative-half"), "sinusoidal(order=halves, base=500)").with_x(8).width(4).from({-2.5}),
      Spec(id("sinusoidal-rows"), "sinusoidal").batch(3).with_x(6).width(4).from({0, 17, 99999.5}).tokens(3),
      Spec(id("learned"), "learned(length=5)", "the last row is used").with_x(6).width(4),
      Spec(id("learned-longer"), "learned(length=12)").with_x(4).width(4).from({7}),
      Spec(id("learned-rows"), "learned(length=9)").batch(2).with_x(6).width(4).from({0, 4}).tokens(4),
      Spec(id("learned-one"), "learned(length=1)").batch(2).with_x(4).width(4).tokens(1),
      Spec(id("learned-chunk"), "learned(length=8)", "the vectors are those of all tokens")
          .with_x(6)
          .width(4)
          .tokens(2, 7),
      Spec(id("sinusoidal-alibi"), "sinusoidal + alibi").with_x(6).width(4),
      Spec(id("learned-t5"), "learned(length=6) + t5(buckets=8, max_distance=16)").with_x(6).width(4),
      Spec(id("sinusoidal-rope"), "rope(allow=absolute) + sinusoidal").with_x(6).width(4),
  };
}

std::vector<Spec> composition_specs() {
  const auto id = [](const std::string& what) { return named("composition", what); };
  const std::string t5 = "t5(buckets=8, max_distance=16)";
  return {
      Spec(id("rope-alibi"), "rope + alibi").of_heads(4, 2),
      Spec(id("alibi-rope"), "alibi + rope", "the order of a sum does not matter").of_heads(3, 1),
      Spec(id("rope-three-biases"), "rope + alibi + " + t5 + " + kerple").tokens(6),
      Spec(id("yarn-t5"), "yarn(rope, factor=4, train_length=64) + " + t5).from({60}, 5),
      Spec(id("softmax-factor-alibi"), "yarn(rope, factor=8, train_length=64, mscale_all_dim=0.5) + alibi",
           "the factor is on the product, not on the bias"),
      Spec(id("xpos-sandwich"), "xpos(scale_base=64) + sandwich(width=8)"),
      Spec(id("rope-fire"), "rope + fire(hidden=3, length=4)"),
      Spec(id("alibi-logn"), "alibi + logn(train_length=2)", "logn is on the product, not on the bias").tokens(6),
      Spec(id("rope-two-factors"), "rope + logn(train_length=2) + llama4-scale(scale=0.5, length=2)").tokens(6),
      Spec(id("rope-cope"), "rope + cope(length=3)", "the gates read the rotated logit").tokens(6),
      Spec(id("cope-alibi"), "cope(length=3) + alibi", "the gates read the bias too").tokens(6),
      Spec(id("cope-logn"), "cope(length=3) + logn(train_length=2)",
           "the gates read the finished logit, the table's product the plain q")
          .tokens(6),
      Spec(id("txl-alibi"), "txl + alibi").tokens(5).width(4),
      Spec(id("txl-logn"), "txl + logn(train_length=2)", "the factor is on (q + u).k alone").tokens(5).width(4),
      Spec(id("repeated-t5"), t5 + " + t5(buckets=4, max_distance=32)", "t5.table and t5#2.table").tokens(7).width(4),
      Spec(id("repeated-three"), "alibi(learn=true) + kerple + alibi(learn=true) + kerple(kind=power)").width(4),
      Spec(id("heads"), "heads(rope * 2, none * 2)").of_heads(4, 4).tokens(4),
      Spec(id("heads-one-each"), "heads(alibi, " + t5 + ")", "a count left out is 1").tokens(6),
      Spec(id("heads-slopes"), "heads(alibi * 3, alibi * 1)", "slopes of three heads, then of one")
          .of_heads(4, 4)
          .tokens(4),
      Spec(id("heads-sandwich"), "heads(none * 2, sandwich(width=8) * 4)", "the ratios are those of four heads")
          .of_heads(6, 3)
          .tokens(4)
          .width(4),
      Spec(id("heads-repeated"), "heads(alibi(learn=true) * 2, alibi(learn=true) * 2)",
           "alibi.slopes and alibi#2.slopes")
          .of_heads(4, 2)
          .tokens(4),
      Spec(id("heads-bases"), "heads(rope(base=[10000, 100]) * 4, rope(base=50) * 2)",
           "the list is over the part's own key heads")
          .of_heads(6, 3)
          .tokens(4),
      Spec(id("heads-learned-rope"), "heads(none * 2, rope(learn=true) * 4)")
          .of_heads(6, 3)
          .tokens(4)
          .frequencies_in_rows(2),
      Spec(id("heads-sum"), "heads(rope + alibi * 2, kerple * 2)", "the count belongs to the whole sum")
          .of_heads(4, 2)
          .tokens(4),
      Spec(id("heads-in-sum"), "rope + heads(" + t5 + " * 2, alibi * 2)").of_heads(4, 2).tokens(5),
      Spec(id("heads-softmax-factor"), "heads(yarn(rope, factor=8, train_length=64, mscale_all_dim=0.5) * 1, rope * 1)",
           "the factor is on its own head"),
      Spec(id("heads-content"), "heads(cope(length=3) * 1, txl * 1)").tokens(5).width(4),
      Spec(id("heads-fire-kerple-gqa"), "heads(fire(hidden=3, length=4) * 2, kerple * 4)")
          .of_heads(6, 3)
          .tokens(4)
          .width(4),
      Spec(id("heads-logn"), "heads(logn(train_length=2) * 1, rope * 1)", "a factor on the queries of one head")
          .tokens(5)
          .width(4),
      Spec(id("heads-shared-t5"), "heads(t5(buckets=8, max_distance=16, shared=true) * 2, " + t5 + " * 2)")
          .of_heads(4, 2)
          .tokens(4)
          .width(4),
      Spec(id("layers-first"), "layers(rope * 3, none * 1)").in_layer(0, 8).width(4),
      Spec(id("layers-third"), "layers(rope * 3, none * 1)").in_layer(2, 8).width(4),
      Spec(id("layers-fourth"), "layers(rope * 3, none * 1)").in_layer(3, 8).width(4),
      Spec(id("layers-again"), "layers(rope * 3, none * 1)", "the pattern begins again").in_layer(4, 8).width(4),
      Spec(id("layers-last"), "layers(rope * 3, none * 1)").in_layer(7, 8).width(4),
      Spec(id("layers-repeated"), "layers(" + t5 + ", " + t5 + ")", "the second layer has t5#2.table")
          .in_layer(1, 2)
          .width(4),
      Spec(id("layers-factor"), "layers(rope, llama4-scale(scale=0.5, length=2))").in_layer(1, 4).width(4),
      Spec(id("layers-bases"), "layers(rope(base=10000) * 5, rope(base=1000000) * 1)")
          .in_layer(5, 12)
          .width(4)
          .from({0}, 100),
      Spec(id("layers-heads"), "layers(heads(rope * 1, alibi * 1), kerple)").in_layer(2, 3).width(4),
      Spec(id("layers-in-sum"), "alibi + layers(rope, none)").in_layer(0, 2).width(4),
  };
}

}  // namespace oracle
