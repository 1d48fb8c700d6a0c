// The cases that cross encodings with masks, positions and sizes.
#include <cmath>

#include "tests/oracle/make.h"

namespace oracle {
namespace {

/// An encoding and the word that stands for it in the names of cases.
struct Named {
  std::string word, encoding;
  int axes = 1;
  bool causal = true;
  bool needs_x = false;
  bool turns = false;  ///< its phases at large positions have rounding steps of their own
  int width = 4;
};

// Every encoding that the oracle knows, small enough that head width 4 suffices.
const std::vector<Named>& every_encoding() {
  static const std::vector<Named> list = {
      {"none", "none"},
      {"rope", "rope", 1, true, false, true},
      {"rope-interleaved", "rope(layout=interleaved)", 1, true, false, true},
      {"rope-minus", "rope(orientation=minus)", 1, true, false, true},
      {"rope-suffix", "rope(dim=2, part=suffix)", 1, true, false, true},
      {"rope-proportional", "rope(frequencies=proportional, fraction=0.5)", 1, true, false, true},
      {"rope-learned", "rope(learn=true)", 1, true, false, true},
      {"rope-bases", "rope(base=[10000, 500])", 1, true, false, true},
      {"rope-axial", "rope(axes=2)", 2, true, false, true},
      {"rope-contiguous", "rope(axes=3, arrangement=contiguous, sections=[1, 1, 1])", 3, true, false, true, 6},
      {"rope-sections", "rope(axes=3, arrangement=interleaved, sections=[1, 1, 1])", 3, true, false, true, 6},
      {"xpos", "xpos(scale_base=64)", 1, true, false, true},
      {"linear", "linear(rope, factor=4)", 1, true, false, true},
      {"ntk", "ntk(rope, factor=4)", 1, true, false, true},
      {"ntk-by-parts", "ntk-by-parts(rope(base=50), factor=4, train_length=48)", 1, true, false, true},
      {"dynamic", "dynamic(rope, factor=2, train_length=3)", 1, true, false, true},
      {"yarn", "yarn(rope(base=50), factor=4, train_length=48)", 1, true, false, true},
      {"longrope", "longrope(rope, short=[1.0, 1.5], long=[2.0, 8.5], train_length=3, factor=4)", 1, true, false, true},
      {"llama3", "llama3(rope(base=100), factor=8, train_length=64)", 1, true, false, true},
      {"logn", "logn(train_length=3)"},
      {"llama4-scale", "llama4-scale(scale=0.5, length=2)"},
      {"alibi", "alibi"},
      {"alibi-learned", "alibi(learn=true)"},
      {"t5", "t5(buckets=8, max_distance=16)"},
      {"t5-bidirectional", "t5(bidirectional=true, buckets=8, max_distance=16)", 1, false},
      {"kerple", "kerple"},
      {"kerple-power", "kerple(kind=power)"},
      {"sandwich", "sandwich(width=8)"},
      {"fire", "fire(hidden=3, length=4)"},
      {"cope", "cope(length=3)"},
      {"txl", "txl"},
      {"fox", "fox", 1, true, true},
      {"grape-a", "grape-a"},
      {"grape-a-qk", "grape-a(gate=qk)"},
      {"grape-a-paper", "grape-a(gate=k, variant=paper)"},
      {"grape-ap", "grape-ap(width=4)", 1, true, true},
      {"grape-ap-paper", "grape-ap(width=2, variant=paper)", 1, true, true},
      {"grape-ap-relative", "grape-ap(width=4, variant=relative)", 1, true, true},
      {"grape-ap-tied", "grape-ap(tie=k)"},
      {"sinusoidal", "sinusoidal", 1, true, true, true},
      {"learned", "learned(length=24)", 1, true, true},
      {"rope-alibi", "rope + alibi", 1, true, false, true},
  };
  return list;
}

Spec spec_of(const std::string& id, const Named& named) {
  Spec spec(id, named.encoding);
  spec.width(named.width).on_axes(named.axes);
  if (!named.causal) spec.full();
  if (named.needs_x) spec.with_x(4);
  return spec;
}

}  // namespace

std::vector<Spec> mask_specs() {
  const auto id = [](const std::string& what) { return "masks-" + what; };
  std::vector<Spec> specs;
  for (int tokens : {1, 2, 5}) {
    specs.push_back(Spec(id("causal-" + std::to_string(tokens)), "none").batch(2).tokens(tokens).width(4));
    specs.push_back(Spec(id("full-" + std::to_string(tokens)), "none").batch(2).tokens(tokens).width(4).full());
  }
  for (int window : {1, 2, 4, 6, 9}) {
    specs.push_back(Spec(id("window-" + std::to_string(window)), "none").tokens(6).width(4).windowed(window));
    specs.push_back(Spec(id("window-full-" + std::to_string(window)), "none", "two-sided")
                        .tokens(6)
                        .width(4)
                        .windowed(window)
                        .full());
    specs.push_back(Spec(id("window-decode-" + std::to_string(window)), "none").tokens(2, 7).width(4).windowed(window));
  }
  const std::vector<Spec> more = {
      Spec(id("fewer-queries"), "none", "bottom-right: rows see 4 and 5 keys").tokens(2, 5).width(4),
      Spec(id("fewer-queries-full"), "none").tokens(2, 5).width(4).full(),
      Spec(id("more-queries"), "none", "rows 0 to 2 see nothing: zeros, and null").tokens(5, 2).width(4),
      Spec(id("more-queries-full"), "none").tokens(5, 2).width(4).full(),
      Spec(id("more-queries-window"), "none").tokens(6, 4).width(4).windowed(2),
      Spec(id("window-full-fewer-queries"), "none").tokens(2, 7).width(4).windowed(3).full(),
      Spec(id("window-full-more-queries"), "none", "the first rows see nothing")
          .tokens(7, 3)
          .width(4)
          .windowed(2)
          .full(),
      Spec(id("decode"), "none").batch(3).tokens(1, 6).width(4).of_heads(4, 2),
      Spec(id("one-key"), "none").tokens(1).width(4),
      Spec(id("key-lengths"), "none", "a length of 0: the row sees nothing")
          .batch(4)
          .tokens(3, 5)
          .width(4)
          .key_lengths({5, 3, 1, 0})
          .full(),
      Spec(id("key-lengths-causal"), "none", "a length stands for Tk; where it is below Tq the first rows see nothing")
          .batch(4)
          .tokens(3, 5)
          .width(4)
          .key_lengths({5, 3, 2, 0}),
      Spec(id("key-lengths-decode"), "none").batch(3).tokens(1, 6).width(4).key_lengths({6, 2, 1}),
      Spec(id("key-lengths-window"), "none").batch(3).tokens(3, 7).width(4).key_lengths({7, 5, 3}).windowed(2),
      Spec(id("key-lengths-window-full"), "none")
          .batch(3)
          .tokens(3, 7)
          .width(4)
          .key_lengths({7, 5, 2})
          .windowed(2)
          .full(),
      Spec(id("key-lengths-leftover"), "rope", "what lies past the length is huge")
          .batch(3)
          .tokens(2, 5)
          .width(4)
          .key_lengths({5, 3, 1})
          .left_over(0x1p100),
      Spec(id("key-lengths-infinite"), "alibi", "what lies past the length is minus infinity")
          .batch(2)
          .tokens(2, 5)
          .width(4)
          .key_lengths({2, 4})
          .full()
          .left_over(-INFINITY),
      Spec(id("key-lengths-t5"), "t5(buckets=8, max_distance=16)")
          .batch(3)
          .tokens(2, 6)
          .width(4)
          .key_lengths({6, 4, 1}),
      Spec(id("key-lengths-documents"), "none", "both at once")
          .batch(2)
          .tokens(3, 6)
          .width(4)
          .key_lengths({6, 4})
          .documents({0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1}),
      Spec(id("documents"), "none").tokens(7).width(4).documents({0, 0, 0, 1, 1, 2, 2}),
      Spec(id("documents-full"), "none").tokens(7).width(4).documents({0, 0, 0, 1, 1, 2, 2}).full(),
      Spec(id("documents-of-one"), "none", "every token alone").tokens(4).width(4).documents({3, 2, 1, 0}),
      Spec(id("documents-interleaved"), "alibi", "a document need not be in one piece")
          .tokens(7)
          .width(4)
          .documents({0, 1, 0, 1, 1, 0, 0}),
      Spec(id("documents-window"), "none").tokens(7).width(4).documents({0, 0, 0, 0, 1, 1, 1}).windowed(2),
      Spec(id("documents-window-full"), "none").tokens(7).width(4).documents({0, 0, 0, 0, 1, 1, 1}).windowed(3).full(),
      Spec(id("documents-window-pads"), "none", "a window counts padding: it is over indices")
          .tokens(7)
          .width(4)
          .documents({0, 0, -1, -1, 0, 0, 0})
          .windowed(3),
      Spec(id("documents-chunk"), "none").tokens(3, 7).width(4).documents({0, 0, 0, 1, 1, 1, 1}),
      Spec(id("documents-decode"), "none").batch(2).tokens(1, 5).width(4).documents({0, 0, 1, 1, 1, -1, -1, 0, 0, 0}),
      Spec(id("documents-unmet"), "none", "a query whose document has no keys")
          .tokens(2, 4)
          .width(4)
          .documents({0, 0, 1, 1}, {1, 5})
          .full(),
      Spec(id("padding-left"), "none").batch(2).tokens(5).width(4).documents({0, 0, 0, 0, 0, -1, -1, 0, 0, 0}),
      Spec(id("padding-right"), "none").batch(2).tokens(5).width(4).documents({0, 0, 0, 0, 0, 0, 0, 0, -1, -1}),
      Spec(id("padding-right-full"), "none")
          .batch(2)
          .tokens(5)
          .width(4)
          .documents({0, 0, 0, 0, 0, 0, 0, 0, -1, -1})
          .full(),
      Spec(id("padding-inside"), "rope").tokens(6).width(4).documents({0, -1, 0, 0, -1, 0}),
      Spec(id("padding-whole-row"), "rope", "a row of padding alone")
          .batch(2)
          .tokens(4)
          .width(4)
          .documents({0, 0, 0, 0, -1, -1, -1, -1}),
      Spec(id("cross"), "none", "other lengths, no order, unrelated positions")
          .tokens(3, 6)
          .width(4)
          .full()
          .at({0, 1, 2, 3, 4, 5}, {100, 7, 3.5}),
      Spec(id("order-is-of-indices"), "alibi", "positions that run backwards do not change who sees whom")
          .tokens(4)
          .width(4)
          .at({9, 6, 3, 0}, {9, 6, 3, 0}),
      Spec(id("scale"), "none").tokens(4).width(4).scaled(1.0),
      Spec(id("scale-small"), "alibi", "the bias is not scaled").tokens(4).width(4).scaled(0.03125),
      Spec(id("scale-zero"), "none", "means over the seen values").tokens(4).width(4).scaled(0.0),
      Spec(id("scale-negative"), "none").tokens(4).width(4).scaled(-0.5),
      Spec(id("large-logits"), "none").tokens(5).width(4).loud(40.0),
      Spec(id("large-logits-rope"), "rope + alibi").tokens(5).width(4).loud(25.0),
  };
  specs.insert(specs.end(), more.begin(), more.end());
  return specs;
}

std::vector<Spec> position_specs() {
  std::vector<Spec> specs;
  for (const Named& named : every_encoding()) {
    const auto spec = [&](const std::string& shape) { return spec_of("positions-" + named.word + "-" + shape, named); };
    specs.push_back(spec("left-padded").batch(2).tokens(4).documents({0, 0, 0, 0, -1, -1, 0, 0}));
    specs.push_back(spec("packed").tokens(6).documents({0, 0, 1, 1, 1, 1}));
    specs.push_back(spec("decode").batch(2).tokens(1, 4).from({0, 13}));
    specs.push_back(spec("chunk").tokens(2, 6));
    if (named.word == "learned") continue;  // its positions are whole and below its length
    for (double start : {1e5, 1e6}) {
      Spec far = spec(start < 5e5 ? "far-1e5" : "far-1e6").tokens(3).from({start}, 3);
      if (named.turns) far.far_away();
      specs.push_back(far);
    }
    specs.push_back(spec("negative").tokens(3).from({-40}, 2));
    specs.push_back(spec("half").tokens(4).from({0.5}, 1.5));
    specs.push_back(
        spec("rows").batch(2).tokens(3).from({2, 777.25}, 2).of_heads(2, named.word == "rope-bases" ? 2 : 1));
  }
  return specs;
}

std::vector<Spec> shape_specs() {
  const auto id = [](const std::string& what) { return "shapes-" + what; };
  const std::vector<std::pair<std::string, std::string>> cycle = {
      {"none", "none"},     {"rope", "rope"},           {"alibi", "alibi"}, {"t5", "t5(buckets=8, max_distance=16)"},
      {"kerple", "kerple"}, {"cope", "cope(length=2)"}, {"txl", "txl"}};
  std::vector<Spec> specs;
  std::size_t next = 0;
  for (int rows : {1, 2, 3}) {
    for (int heads : {1, 2, 3}) {
      for (int tokens : {1, 2, 3}) {
        const auto& [word, encoding] = cycle[next++ % cycle.size()];
        specs.push_back(
            Spec(id(word + "-" + std::to_string(rows) + "x" + std::to_string(heads) + "x" + std::to_string(tokens)),
                 encoding)
                .batch(rows)
                .of_heads(heads, heads)
                .tokens(tokens)
                .width(6));
      }
    }
  }
  for (int width : {2, 6, 72, 128}) {
    const std::string w = std::to_string(width);
    const int heads = width > 6 ? 1 : 2;
    for (const char* name : {"none", "rope", "rope(layout=interleaved)", "alibi"}) {
      const std::string encoding = name;
      const std::string word = encoding.find('(') == std::string::npos ? encoding : "rope-interleaved";
      specs.push_back(Spec(id(word + "-width-" + w), encoding).of_heads(heads, 1).tokens(3).width(width));
    }
    if (width > 6) {
      specs.push_back(Spec(id("rope-half-width-" + w), "rope(fraction=0.5)").of_heads(2, 1).tokens(2).width(width, 3));
      specs.push_back(Spec(id("xpos-width-" + w), "xpos").of_heads(1, 1).tokens(2, 3).width(width, 3));
      specs.push_back(Spec(id("cope-width-" + w), "cope(length=2)").of_heads(1, 1).tokens(3).width(width, 3));
    }
  }
  const std::vector<std::pair<int, int>> groups = {{2, 1}, {3, 1}, {8, 1}, {4, 2}, {6, 2}, {6, 3}, {5, 5}};
  for (const auto& [heads, key_heads] : groups) {
    const std::string ratio = std::to_string(heads) + "-" + std::to_string(key_heads);
    specs.push_back(Spec(id("gqa-rope-" + ratio), "rope").of_heads(heads, key_heads).tokens(3).width(4));
    specs.push_back(Spec(id("gqa-alibi-" + ratio), "alibi").of_heads(heads, key_heads).tokens(3).width(2));
  }
  for (int value_dim : {1, 3, 16}) {
    specs.push_back(Spec(id("values-" + std::to_string(value_dim)), "rope").width(6, value_dim).tokens(3));
  }
  for (const auto& [word, encoding] : cycle) {
    specs.push_back(
        Spec(id(word + "-one-token-rows"), encoding, "T = 1, B > 1").batch(3).tokens(1).width(4).from({0, 5, 40}));
    specs.push_back(Spec(id(word + "-one-query"), encoding).batch(2).of_heads(4, 2).tokens(1, 3).width(4, 2));
    specs.push_back(Spec(id(word + "-more-keys"), encoding).of_heads(2, 1).tokens(3, 7).width(4));
    specs.push_back(Spec(id(word + "-more-queries"), encoding, "the first rows see nothing").tokens(5, 3).width(4));
  }
  return specs;
}

}  // namespace oracle
