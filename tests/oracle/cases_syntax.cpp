// sipe around terms, rotations and embeddings, with every coupling.
#include "tests/oracle/make.h"

namespace oracle {
namespace {

Spec spec(const std::string& what, const std::string& encoding, const std::string& note = "") {
  return Spec("syntax-" + what, encoding, note).width(4).hidden(8);
}

/// The shapes and masks that every kind must get right.
void add_layouts(std::vector<Spec>& specs, const std::string& id, const std::string& encoding) {
  const auto one = [&](const std::string& shape, const std::string& note = "") {
    return spec(id + "-" + shape, encoding, note);
  };
  specs.push_back(one("gqa").of_heads(4, 2).tokens(5));
  specs.push_back(one("decode").batch(2).tokens(1, 6));
  specs.push_back(one("chunk").tokens(3, 7));
  specs.push_back(one("more-queries", "the first rows see nothing").tokens(5, 3));
  specs.push_back(
      one("key-lengths", "what is past a length brings no syntax").batch(3).tokens(2, 6).key_lengths({6, 3, 0}));
  specs.push_back(one("padding-left", "padding brings no syntax")
                      .batch(2)
                      .tokens(6)
                      .documents({0, 0, 0, 0, 0, 0, -1, -1, 0, 0, 0, 0}));
  specs.push_back(one("packed").tokens(7).documents({0, 0, 0, 1, 1, 1, 1}));
  specs.push_back(one("window").tokens(7).windowed(3));
  specs.push_back(one("full").tokens(5).full());
}

}  // namespace

std::vector<Spec> syntax_specs() {
  std::vector<Spec> specs;
  const std::string t5 = "t5(buckets=8, max_distance=16)";
  add_layouts(specs, "txl", "sipe(txl)");
  add_layouts(specs, "alibi", "sipe(alibi, rank=4)");
  add_layouts(specs, "rope", "sipe(rope)");
  add_layouts(specs, "sparse", "sipe(" + t5 + ", coupling=sparse, rank=4, hops=2)");
  add_layouts(specs, "bias", "sipe(none, coupling=bias)");
  const std::vector<Spec> more = {
      spec("txl-plain", "sipe(txl)", "the paper's decoder: 1 + c multiplies the second term").tokens(7),
      spec("txl-oracle", "sipe(txl, mode=oracle)", "another source of the tags, the same numbers").tokens(5),
      spec("txl-same-sentence", "sipe(txl, same_sentence=true)").tokens(7),
      spec("txl-bounded", "sipe(txl, factor=bounded)").tokens(5),
      spec("txl-exp", "sipe(txl, factor=exp)").tokens(5),
      spec("txl-clamp", "sipe(txl, factor=clamp)").tokens(5),
      spec("txl-fsyn", "sipe(txl, prior=fsyn)").tokens(5),
      spec("txl-fsyn-exp", "sipe(txl, prior=fsyn, factor=exp)").tokens(5),
      spec("txl-combined", "sipe(txl, inject=combined)", "the factor and the bias").tokens(5),
      spec("txl-bilinear", "sipe(txl, coupling=bilinear, rank=4)").tokens(5),
      spec("alibi-plain", "sipe(alibi)", "bounded: a penalty stays one").tokens(7),
      spec("alibi-linear", "sipe(alibi, factor=linear, rank=4)").tokens(5),
      spec("alibi-exp", "sipe(alibi, factor=exp, rank=4)").tokens(5),
      spec("alibi-clamp", "sipe(alibi, factor=clamp, rank=4)").tokens(5),
      spec("alibi-across", "sipe(alibi, cross_sentence=true, rank=4)").tokens(6),
      spec("alibi-tag-align", "sipe(alibi, coupling=tag_align)").tokens(5),
      spec("alibi-fsyn", "sipe(alibi, prior=fsyn, rank=2)").tokens(5),
      spec("alibi-learn", "sipe(alibi(learn=true), rank=4)").tokens(5),
      spec("kerple", "sipe(kerple, rank=4)").tokens(5),
      spec("sandwich", "sipe(sandwich(width=8), rank=4)").tokens(5),
      spec("fire", "sipe(fire(hidden=4, length=6), rank=4)").tokens(5),
      spec("t5-plain", "sipe(" + t5 + ", rank=4)").tokens(6),
      spec("t5-mlp", "sipe(" + t5 + ", coupling=mlp)").tokens(4),
      spec("t5-mlp-bounded", "sipe(" + t5 + ", coupling=mlp, factor=bounded)").tokens(4),
      spec("t5-mlp-fsyn", "sipe(" + t5 + ", coupling=mlp, prior=fsyn)").tokens(3),
      spec("t5-additive", "sipe(" + t5 + ", coupling=additive)", "added, not multiplied").tokens(5),
      spec("t5-sparse-mlp", "sipe(" + t5 + ", coupling=sparse_mlp, hops=1)").tokens(4),
      spec("t5-sparse-oracle", "sipe(" + t5 + ", coupling=sparse, mode=oracle, rank=4)", "arcs of later tokens count")
          .tokens(6),
      spec("t5-sparse-revealed", "sipe(" + t5 + ", coupling=sparse, mode=oracle_revealed, rank=4)").tokens(6),
      spec("t5-sparse-far", "sipe(" + t5 + ", coupling=sparse, hops=6, rank=4)").tokens(7),
      spec("t5-sparse-fsyn", "sipe(" + t5 + ", coupling=sparse, prior=fsyn, rank=2)").tokens(5),
      spec("rope-warp", "sipe(rope, bound=warp)", "each plane moves by at most 4 beta positions").tokens(5),
      spec("rope-interleaved", "sipe(rope(layout=interleaved, orientation=minus))").tokens(5),
      spec("rope-part", "sipe(rope(dim=4, part=suffix))").width(8).tokens(5),
      spec("rope-learn", "sipe(rope(learn=true))").tokens(5),
      spec("rope-yarn", "sipe(yarn(rope, factor=4, train_length=8), bound=warp)", "the scaling does not reach the warp")
          .tokens(5),
      spec("rope-dynamic", "sipe(dynamic(rope, factor=2, train_length=4))").tokens(7),
      spec("rope-two-axes", "sipe(rope(axes=2))")
          .width(8)
          .tokens(4)
          .on_axes(2)
          .at({0, 0, 0, 1, 1, 0, 1, 1}, {0, 0, 0, 1, 1, 0, 1, 1}),
      spec("rope-fsyn", "sipe(rope, prior=fsyn)").tokens(4),
      spec("rope-prerot", "sipe(rope, coupling=prerot)").of_heads(4, 2).tokens(5),
      spec("rope-pair", "sipe(rope, coupling=pair, rank=4)", "the angle of each pair is multiplied").tokens(5),
      spec("rope-pair-exp", "sipe(rope(base=100, layout=interleaved), coupling=pair, factor=exp, rank=4)").tokens(5),
      spec("rope-bias", "sipe(rope, coupling=bias)").of_heads(4, 2).tokens(5),
      spec("rope-bias-fsyn", "sipe(rope, coupling=bias, prior=fsyn)").tokens(4),
      spec("rope-combined", "sipe(rope, inject=combined)").tokens(5),
      spec("xpos", "sipe(xpos)").tokens(5),
      spec("input", "sipe(none)", "s goes on the embedding").with_x(8).tokens(5),
      spec("input-sinusoidal", "sipe(sinusoidal)").with_x(8).tokens(5),
      spec("input-fsyn", "sipe(none, prior=fsyn)").with_x(8).tokens(4),
      spec("input-labels", "sipe(none, labels=add)", "relations beside the tags").with_x(8).tokens(5),
      spec("input-labels-only", "sipe(none, labels=only)", "relations in the tags' place").with_x(8).tokens(5),
      spec("input-skip", "sipe(sinusoidal, fuse=skip)", "s joins behind the first attention, not here")
          .with_x(8)
          .tokens(4),
      spec("joint", "sipe(alibi, inject=joint, rank=4)").with_x(8).tokens(5),
      spec("none", "sipe(alibi, mode=none, rank=4)", "reads nothing").tokens(5),
      spec("from-layer", "sipe(rope, inject_from=2)").tokens(5).in_layer(1, 3),
      spec("before-layer", "sipe(rope, inject_from=2)", "the encoding inside").tokens(5).in_layer(0, 3),
      spec("scale", "sipe(txl)", "c is not scaled").tokens(5).scaled(0.25),
      spec("sum", "sipe(rope) + alibi").tokens(5),
      spec("two", "sipe(rope) + sipe(alibi, rank=4)", "each has its own tables").tokens(5),
      spec("heads", "heads(sipe(alibi, rank=4) * 2, rope * 2)").of_heads(4, 4).tokens(5),
      spec("layers", "layers(sipe(alibi, rank=4), rope)").tokens(5),
  };
  specs.insert(specs.end(), more.begin(), more.end());
  return specs;
}

}  // namespace oracle
