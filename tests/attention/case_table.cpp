#include "tests/attention/case_table.h"

#include <ostream>

namespace torsor::attention_test {

// Lengths are small (kCaseTrainLength is 8) so that sequences of 15 tokens cross every boundary: dynamic and longrope
// change their frequencies, logn and llama4-scale their factors, t5 and cope reach their last rows.
const std::vector<EncodingCase>& case_table() {
  static const std::vector<EncodingCase> table = {
      {.expression = "none"},

      {.expression = "sinusoidal", .relative = false, .absolute = true},
      {.expression = "sinusoidal(base=100, order=halves)", .relative = false, .absolute = true},
      {.expression = "learned(length=64)", .trained = true, .relative = false, .absolute = true, .farthest = 63},

      {.expression = "rope"},
      {.expression = "rope(layout=interleaved)", .head_dim = 6},
      {.expression = "rope(base=100, dim=4)"},
      {.expression = "rope(layout=interleaved, orientation=minus, dim=4, part=suffix)"},
      {.expression = "rope(base=[10000, 500])", .heads = {{2, 2}, {6, 2}}},
      {.expression = "rope(frequencies=proportional, fraction=0.5)"},
      {.expression = "rope(learn=true)", .trained = true},
      {.expression = "rope(axes=2)", .axes = 2},
      {.expression = "rope(axes=3, sections=[1, 1, 2], arrangement=contiguous)", .axes = 3},
      {.expression = "rope(axes=3, sections=[2, 1, 1], arrangement=interleaved)", .axes = 3},
      {.expression = "xpos"},
      {.expression = "xpos(scale_base=16, layout=interleaved)"},

      {.expression = "linear(rope, factor=4)"},
      {.expression = "ntk(rope(layout=interleaved), factor=4)"},
      {.expression = "ntk-by-parts(rope(base=100), factor=4)"},
      {.expression = "dynamic(rope, factor=2)", .relative = false, .length_dependent = true},
      {.expression = "yarn(rope, factor=4)"},
      {.expression = "yarn(rope(base=50), factor=40, mscale=1, mscale_all_dim=0.5)"},
      {.expression = "longrope(rope, short=[1, 1.1, 1.3, 2], long=[1.5, 4, 9, 30], factor=32)",
       .relative = false,
       .length_dependent = true},
      {.expression = "llama3(rope(base=50), train_length=64)"},

      {.expression = "logn", .relative = false},
      {.expression = "llama4-scale(length=4)", .relative = false},

      {.expression = "alibi", .heads = {{2, 2}, {6, 3}, {3, 1}}},
      {.expression = "alibi(max_exponent=12, learn=true)", .trained = true},
      {.expression = "t5(buckets=8, max_distance=16)", .trained = true},
      {.expression = "t5(buckets=12, max_distance=20, bidirectional=true)", .trained = true},
      {.expression = "t5(buckets=8, max_distance=8, far=wrap)", .trained = true},
      {.expression = "t5(buckets=8, max_distance=16, far=log)", .trained = true},
      {.expression = "kerple", .trained = true},
      {.expression = "kerple(kind=power)", .trained = true},
      {.expression = "sandwich(width=16)"},
      {.expression = "fire(hidden=4, length=6)", .trained = true, .relative = false},
      {.expression = "cope(length=4)", .trained = true, .needs_causal = true},
      {.expression = "txl", .trained = true},
      {.expression = "txl(order=interleaved)", .head_dim = 6, .trained = true},
      {.expression = "fox", .trained = true, .hidden = true, .needs_causal = true},
      {.expression = "grape-a", .heads = {{2, 2}, {6, 3}, {3, 1}}},
      {.expression = "grape-a(learn_slopes=true)", .trained = true},
      {.expression = "grape-a(gate=k)", .trained = true, .needs_causal = true},
      {.expression = "grape-a(gate=q, learn_slopes=true)", .trained = true, .needs_causal = true},
      {.expression = "grape-a(gate=qk)", .trained = true, .needs_causal = true},
      {.expression = "grape-a(gate=qk, variant=paper)", .trained = true, .needs_causal = true},
      {.expression = "grape-ap", .trained = true, .relative = false, .hidden = true, .needs_causal = true},
      {.expression = "grape-ap(width=4, variant=paper, learn_alpha=true)",
       .trained = true,
       .relative = false,
       .hidden = true,
       .needs_causal = true},
      {.expression = "grape-ap(width=6, variant=relative)",
       .head_dim = 6,
       .trained = true,
       .hidden = true,
       .needs_causal = true},
      {.expression = "grape-ap(tie=k)", .relative = false, .needs_causal = true},

      {.expression = "grape-m", .trained = true},
      {.expression = "grape-m(per_head=true, layout=interleaved, orientation=minus)", .head_dim = 6, .trained = true},
      {.expression = "grape-m(axes=2)", .axes = 2, .trained = true},
      {.expression = "grape-m(planes=general)", .trained = true},
      {.expression = "grape-m(planes=ja, layout=interleaved)", .trained = true},
      {.expression = "grape-m(rank=4)", .trained = true},
      {.expression = "grape-m(basis=cayley)", .trained = true},
      {.expression = "grape-m(basis=householder, reflectors=4)", .trained = true},
      {.expression = "grape-m(context=true)", .trained = true, .hidden = true, .needs_causal = true},
      {.expression = "grape-m(context=true, link=softplus, per_head=true)",
       .trained = true,
       .hidden = true,
       .needs_causal = true},
      {.expression = "grape-m(rank=4, context=true, per_head=true)",
       .trained = true,
       .hidden = true,
       .needs_causal = true},

      {.expression = "tape(rope)", .trained = true, .carries = true},
      {.expression = "tape(rope, gqa=shared)", .trained = true, .carries = true},
      {.expression = "tape(rope(layout=interleaved), post=headmix, clip=1)",
       .head_dim = 6,
       .trained = true,
       .carries = true},
      {.expression = "tape(rope, block=3)", .trained = true, .carries = true, .raw_keys = true},
      {.expression = "tape(rope(axes=2), post=scalar)", .axes = 2, .trained = true, .carries = true},
      {.expression = "tape(rope(learn=true), mlp=false)", .trained = true, .carries = true},
      {.expression = "tape(yarn(rope, factor=4), control=frame)", .trained = true, .relative = false, .carries = true},
      {.expression = "tape(dynamic(rope, factor=2))",
       .trained = true,
       .relative = false,
       .length_dependent = true,
       .carries = true},

      {.expression = "sipe(alibi)", .trained = true, .heads = {{2, 2}, {6, 3}, {3, 1}}},
      {.expression = "sipe(alibi, prior=fsyn, factor=exp, cross_sentence=true)", .trained = true},
      {.expression = "sipe(kerple, coupling=mlp, inject_from=2)", .trained = true},
      {.expression = "sipe(t5(buckets=8, max_distance=16), coupling=sparse, hops=2)", .trained = true},
      {.expression = "sipe(alibi, prior=fsyn, coupling=sparse_mlp, mode=oracle_revealed, hops=1)", .trained = true},
      {.expression = "sipe(t5(buckets=8, max_distance=16), prior=fsyn, coupling=mlp, mode=incremental)",
       .trained = true},
      {.expression = "sipe(txl)", .trained = true},
      {.expression = "sipe(txl, prior=fsyn, same_sentence=true)", .trained = true},
      {.expression = "sipe(t5(buckets=8, max_distance=16), coupling=additive)", .trained = true},
      {.expression = "sipe(txl, inject=combined)", .trained = true, .averages = true},
      {.expression = "sipe(none, coupling=bias)", .trained = true, .averages = true},
      {.expression = "sipe(rope, prior=fsyn, coupling=bias)", .trained = true, .averages = true},
      {.expression = "sipe(rope)", .trained = true},
      {.expression = "sipe(rope(layout=interleaved, dim=4), prior=fsyn, bound=warp)", .head_dim = 6, .trained = true},
      {.expression = "sipe(grape-m(axes=2, layout=interleaved))", .axes = 2, .trained = true},
      {.expression = "sipe(dynamic(rope, factor=2))", .trained = true, .relative = false, .length_dependent = true},
      {.expression = "sipe(yarn(rope, factor=4), coupling=prerot)", .trained = true},
      {.expression = "sipe(rope(base=100, orientation=minus), coupling=pair)", .trained = true},
      {.expression = "sipe(sinusoidal)", .trained = true, .relative = false, .absolute = true},
      {.expression = "sipe(rope, prior=fsyn, inject=joint, fuse=mix)", .trained = true, .absolute = true},
      {.expression = "sipe(alibi, mode=none)", .trained = true},

      {.expression = "rope + alibi"},
      {.expression = "heads(sipe(alibi) * 2, sipe(rope) * 2)", .trained = true, .heads = {{4, 4}, {4, 2}}},
      {.expression = "layers(sipe(t5(buckets=8, max_distance=16), coupling=sparse), rope)", .trained = true},
      {.expression = "rope + sipe(none, coupling=bias)", .trained = true, .averages = true},
      {.expression = "tape(rope) + alibi", .trained = true, .carries = true},
      {.expression = "heads(tape(rope, gqa=shared) * 2, rope * 2)",
       .trained = true,
       .carries = true,
       .heads = {{4, 4}, {4, 2}}},
      {.expression = "layers(tape(yarn(rope, factor=4)), rope)", .trained = true, .carries = true},
      {.expression = "rope + logn", .relative = false},
      {.expression = "rope + t5(buckets=8, max_distance=16) + t5(buckets=4, max_distance=8)", .trained = true},
      {.expression = "rope + cope(length=4)", .trained = true, .needs_causal = true},
      {.expression = "rope + grape-ap", .trained = true, .relative = false, .hidden = true, .needs_causal = true},
      {.expression = "fox + t5(buckets=8, max_distance=16)", .trained = true, .hidden = true, .needs_causal = true},
      {.expression = "rope + fox + grape-a(gate=qk) + grape-ap(width=4, variant=relative)",
       .trained = true,
       .hidden = true,
       .needs_causal = true},
      {.expression = "rope(dim=4) + rope(base=100, dim=4, part=suffix)"},
      {.expression = "grape-m(context=true) + fox + alibi", .trained = true, .hidden = true, .needs_causal = true},
      {.expression = "heads(grape-m(rank=2) * 2, grape-m(basis=cayley, context=true) * 2)",
       .trained = true,
       .hidden = true,
       .needs_causal = true,
       .heads = {{4, 4}, {4, 2}}},
      {.expression = "rope(allow=absolute) + sinusoidal", .relative = false, .absolute = true},
      {.expression = "dynamic(rope, factor=2) + kerple", .trained = true, .relative = false, .length_dependent = true},
      {.expression = "heads(t5(buckets=8, max_distance=16) * 2, xpos(scale_base=16) * 2)",
       .trained = true,
       .heads = {{4, 4}, {4, 2}}},
      {.expression = "heads(cope(length=4) * 2, rope + alibi * 4)",
       .trained = true,
       .needs_causal = true,
       .heads = {{6, 3}}},
      {.expression = "heads(yarn(rope(base=50), factor=40, mscale=1, mscale_all_dim=0.5) * 2, txl * 2)",
       .trained = true,
       .heads = {{4, 4}, {4, 2}}},
      {.expression = "heads(fox * 2, grape-a(gate=k) * 4)",
       .trained = true,
       .hidden = true,
       .needs_causal = true,
       .heads = {{6, 3}, {6, 6}}},
      {.expression = "layers(rope, fox, grape-ap(width=4))",
       .trained = true,
       .relative = false,
       .hidden = true,
       .needs_causal = true},
      {.expression = "layers(rope, fire(hidden=4, length=6) * 2)", .trained = true, .relative = false},
  };
  return table;
}

std::ostream& operator<<(std::ostream& out, const EncodingCase& one) {
  out << one.expression << ", head_dim " << one.head_dim << ", axes " << one.axes;
  if (one.trained) out << ", trained";
  out << (one.relative ? ", relative" : ", not relative");
  if (one.length_dependent) out << ", length-dependent";
  if (one.absolute) out << ", absolute";
  if (one.hidden) out << ", reads x";
  if (one.needs_causal) out << ", causal only";
  if (one.carries) out << ", carries a state";
  if (one.raw_keys) out << ", raw keys";
  if (one.averages) out << ", averages";
  out << ", positions to " << one.farthest << ", heads";
  for (const HeadCounts& counts : one.heads) out << ' ' << counts.heads << ':' << counts.kv_heads;
  return out;
}

}  // namespace torsor::attention_test
