// fox, grape-a and grape-ap, alone and in sums.
#include "tests/oracle/make.h"

namespace oracle {
namespace {

Spec named(const std::string& what, const std::string& encoding, const std::string& note = "") {
  return Spec("gates-" + what, encoding, note).width(4);
}

}  // namespace

void add_token_layouts(std::vector<Spec>& specs, const std::string& id, const std::string& encoding) {
  const auto spec = [&](const std::string& shape, const std::string& note = "") {
    return Spec(id + "-" + shape, encoding, note).width(4).with_x(6);
  };
  specs.push_back(spec("plain").tokens(7));
  specs.push_back(spec("one-token").batch(2).tokens(1));
  specs.push_back(spec("gqa").of_heads(6, 3).tokens(5));
  specs.push_back(spec("decode").of_heads(4, 2).batch(2).tokens(1, 7).from({0, 9}));
  specs.push_back(spec("chunk").tokens(3, 8));
  specs.push_back(spec("more-queries", "the first rows see nothing").tokens(5, 3));
  specs.push_back(spec("window", "tokens outside of the window are not between").tokens(7).windowed(3));
  specs.push_back(spec("key-lengths").batch(4).tokens(2, 6).key_lengths({6, 4, 1, 0}));
  specs.push_back(spec("leftover", "what lies past the length is huge")
                      .batch(2)
                      .tokens(2, 5)
                      .key_lengths({3, 5})
                      .left_over(0x1p100));
  specs.push_back(spec("padding-left").batch(2).tokens(6).documents({0, 0, 0, 0, 0, 0, -1, -1, -1, 0, 0, 0}));
  specs.push_back(
      spec("padding-inside", "padding between tokens adds nothing").tokens(7).documents({0, -1, 0, 0, -1, -1, 0}));
  specs.push_back(spec("packed").tokens(8).documents({0, 0, 0, 1, 1, 1, 1, 1}));
  specs.push_back(spec("documents-interleaved", "tokens of another document are not between")
                      .tokens(8)
                      .documents({0, 1, 0, 1, 1, 0, 0, 1}));
  specs.push_back(spec("documents-chunk").tokens(3, 8).documents({0, 0, 0, 1, 1, 1, 1, 1}));
  specs.push_back(spec("scale", "a bias is not scaled").tokens(5).scaled(0.03125));
  specs.push_back(spec("half", "half steps").tokens(6).from({-2.5}, 0.5));
}

std::vector<Spec> gate_specs() {
  std::vector<Spec> specs;
  add_token_layouts(specs, "gates-fox", "fox");
  add_token_layouts(specs, "gates-grape-a-qk", "grape-a(gate=qk)");
  add_token_layouts(specs, "gates-grape-ap", "grape-ap(width=4)");
  add_token_layouts(specs, "gates-grape-ap-relative", "grape-ap(width=6, variant=relative)");
  const std::vector<Spec> more = {
      named("fox-steep", "fox", "gates near 0 and near 1").with_x(6).tokens(6).set("fox.bias", {-12.0, 9.0}),
      named("fox-own-gates", "fox", "the weights pass x on: it holds the logits of the gates")
          .with_x(2)
          .tokens(6)
          .set("fox.weight", {1, 0, 0, 1})
          .set("fox.bias", {0, 0}),
      named("grape-ap-own-probes", "grape-ap(width=2)", "the weights pass x on: it holds the probes of both heads")
          .with_x(4)
          .tokens(6)
          .set("grape-ap.weight", {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}),
      named("fox-positions", "fox", "positions play no part").with_x(6).tokens(5).from({1000000}, 17),
      named("fox-narrow", "fox", "C = 1").with_x(1).tokens(5),
      named("fox-long", "fox").of_heads(1, 1).with_x(3).tokens(24).width(2),
      named("grape-a", "grape-a", "no gate: ALiBi").of_heads(6, 3).tokens(6),
      named("grape-a-full", "grape-a", "without a gate the distance counts without its sign").tokens(6).full(),
      named("grape-a-learned", "grape-a(learn_slopes=true)").of_heads(4, 2).tokens(6),
      named("grape-a-k", "grape-a(gate=k)").tokens(6),
      named("grape-a-q", "grape-a(gate=q)").tokens(6),
      named("grape-a-k-paper", "grape-a(gate=k, variant=paper)").tokens(6),
      named("grape-a-q-paper", "grape-a(gate=q, variant=paper)").tokens(6),
      named("grape-a-qk-paper", "grape-a(gate=qk, variant=paper)").tokens(6),
      named("grape-a-k-gqa", "grape-a(gate=k)", "u is of key heads").of_heads(6, 2).tokens(5),
      named("grape-a-qk-learned", "grape-a(gate=qk, learn_slopes=true)").of_heads(4, 2).tokens(6),
      named("grape-a-k-far-distance", "grape-a(gate=k)").of_heads(8, 8).tokens(4).from({0}, 3000),
      named("grape-a-q-scale", "grape-a(gate=q, variant=paper)", "the gate divides by sqrt(D) whatever the scale is")
          .tokens(5)
          .scaled(1.0),
      named("grape-ap-default", "grape-ap").with_x(6).tokens(7),
      named("grape-ap-narrow", "grape-ap(width=2)").with_x(6).tokens(6),
      named("grape-ap-wide", "grape-ap(width=12)").with_x(3).tokens(5),
      named("grape-ap-paper", "grape-ap(width=4, variant=paper)").with_x(6).tokens(7),
      named("grape-ap-paper-gqa", "grape-ap(width=2, variant=paper)").of_heads(4, 2).with_x(6).tokens(2, 6),
      named("grape-ap-learned", "grape-ap(width=4, learn_alpha=true)").of_heads(3, 1).with_x(6).tokens(6),
      named("grape-ap-from-5", "grape-ap(width=4)", "absolute positions are read").with_x(6).tokens(7).from({5}),
      named("grape-ap-relative-from-5", "grape-ap(width=4, variant=relative)").with_x(6).tokens(7).from({5}),
      named("grape-ap-far", "grape-ap(width=4)", "radians of a million").with_x(6).tokens(5).from({1000000}, 3),
      named("grape-ap-tie-q", "grape-ap(tie=q)").of_heads(4, 2).tokens(6),
      named("grape-ap-tie-k", "grape-ap(tie=k)").of_heads(4, 2).tokens(6),
      named("grape-ap-tie-v", "grape-ap(tie=v)", "as wide as the values").of_heads(4, 2).width(4, 6).tokens(6),
      named("grape-ap-tie-q-paper", "grape-ap(tie=q, variant=paper, learn_alpha=true)").tokens(6),
      named("grape-ap-tie-k-relative", "grape-ap(tie=k, variant=relative)").of_heads(4, 2).tokens(2, 7),
      named("grape-ap-tie-v-paper", "grape-ap(tie=v, variant=paper)").tokens(6),
      named("grape-ap-long", "grape-ap(width=2)").of_heads(1, 1).with_x(3).tokens(24).width(2),
      named("rope-fox", "rope + fox").of_heads(4, 2).with_x(6).tokens(6),
      named("rope-grape-a", "rope + grape-a(gate=qk)", "gates read q and k before any rotation")
          .tokens(6)
          .from({100}, 7),
      named("rope-grape-ap", "rope + grape-ap(width=4)").with_x(6).tokens(6),
      named("fox-t5", "fox + t5(buckets=8, max_distance=16)").with_x(6).tokens(7),
      named("fox-logn", "fox + logn(train_length=2)", "the factor is on the product alone").with_x(6).tokens(6),
      named("all-three", "rope + fox + grape-a(gate=k) + grape-ap(width=2)").with_x(6).tokens(6),
      named("cope-fox", "cope(length=3) + fox", "the gates of cope read the finished logit").with_x(6).tokens(6),
      named("repeated-fox", "fox + fox", "fox.weight and fox#2.weight").with_x(6).tokens(5),
      named("heads", "heads(fox * 2, grape-a(gate=k) * 4)").of_heads(6, 3).with_x(6).tokens(5),
      named("heads-grape-ap", "heads(grape-ap(width=2) * 1, none * 1)").with_x(6).tokens(5),
      named("layers", "layers(rope, fox, grape-ap(width=2))").with_x(6).in_layer(2, 3).tokens(5),
  };
  specs.insert(specs.end(), more.begin(), more.end());
  return specs;
}

}  // namespace oracle
