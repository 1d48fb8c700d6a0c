// What the keys of sipe mean together, its trained tensors and their first values, what it asks of who feeds it, and
// what it says of inputs that do not fit.
#include "torsor/encoding/syntax/sipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

namespace torsor {
namespace {

const Dimensions kDimensions{.heads = 4, .kv_heads = 2, .head_dim = 6, .width = 10, .layers = 3};

std::shared_ptr<const Encoding> made(const std::string& text) { return make_encoding(text, kDimensions); }

std::string message_of(const std::string& text) {
  try {
    made(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::map<std::string, ParameterInfo> own_tensors(const std::string& text, std::int64_t layer = 0) {
  std::map<std::string, ParameterInfo> all;
  for (const ParameterInfo& info : made(text)->parameters(layer))
    if (info.name.starts_with("sipe.")) all[info.name.substr(5)] = info;
  return all;
}

std::set<std::string> names_of(const std::string& text, std::int64_t layer = 0) {
  std::set<std::string> names;
  for (const auto& [name, info] : own_tensors(text, layer)) names.insert(name);
  return names;
}

using Names = std::set<std::string>;

TEST(Sipe, PrintsItsCanonicalForm) {
  EXPECT_EQ(print(parse("sipe( txl , mode = oracle )")), "sipe(txl, mode=oracle)");
  EXPECT_EQ(print(parse("sipe(rope(base=500), prior=hexatags, bound=warp)")), "sipe(rope(base=500), bound=warp)");
  EXPECT_EQ(print(parse("sipe(yarn(rope, factor=4)) + alibi")), "sipe(yarn(rope, factor=4)) + alibi");
}

TEST(Sipe, TakesOneEncodingOfItsList) {
  for (const char* good :
       {"sipe(none)", "sipe(sinusoidal)", "sipe(alibi)", "sipe(txl)", "sipe(yarn(rope, factor=2, train_length=8))",
        "sipe(grape-m)", "heads(sipe(alibi) * 2, rope * 2)", "layers(sipe(rope), alibi)", "rope + sipe(alibi)"})
    EXPECT_EQ(message_of(good), "") << good;
  for (const auto& [bad, words] :
       std::map<std::string, std::string>{{"sipe", "takes one operand"},
                                          {"sipe(fox)", "not 'fox'"},
                                          {"sipe(tape(rope))", "not 'tape'"},
                                          {"sipe(sipe(rope))", "not 'sipe'"},
                                          {"sipe(rope + alibi)", "not a sum"},
                                          {"sipe(rope * 2)", "a count has no meaning"},
                                          {"sipe(txl) + rope", "takes no rotation beside it"},
                                          {"sipe(sinusoidal) + rope", "gives the position twice"},
                                          {"sipe(rope) + rope", "two rotations"},
                                          {"heads(sipe(sinusoidal) * 4)", "adds to the token embedding"},
                                          {"heads(sipe(alibi, inject=joint) * 4)", "adds to the token embedding"},
                                          {"layers(sipe(alibi, inject=joint), rope)", "adds to the token embedding"},
                                          {"sipe(alibi, coupling=bias) + sipe(t5, coupling=bias)", "one term may"}}) {
    std::string found;
    try {
      found = message_of(bad);
    } catch (const Error& error) {
      found = error.what();
    }
    EXPECT_NE(found.find(words), std::string::npos) << bad << ": " << found;
  }
}

TEST(Sipe, RefusesKeysWithoutMeaning) {
  for (const auto& [bad, words] : std::map<std::string, std::string>{
           {"sipe(alibi, coupling=rotation)", "needs a rotation inside"},
           {"sipe(rope, coupling=bilinear)", "rotation, pair, prerot, bias"},
           {"sipe(none, coupling=tag_align)", "couplings for it: bias"},
           {"sipe(none, inject=combined)", "no term or rotation"},
           {"sipe(alibi, coupling=bias, inject=combined)", "sets the bias"},
           {"sipe(none, hops=2)", "leaves attention as it is"},
           {"sipe(alibi, inject=input, coupling=mlp)", "leaves attention as it is"},
           {"sipe(alibi, hops=2)", "needs a sparse coupling"},
           {"sipe(alibi, coupling=mlp, rank=4)", "needs a bilinear coupling"},
           {"sipe(alibi, bound=warp)", "needs coupling=rotation"},
           {"sipe(txl, cross_sentence=true)", "needs a coupling of pairs"},
           {"sipe(alibi, same_sentence=true)", "needs tag_align"},
           {"sipe(rope, factor=exp)", "has none"},
           {"sipe(txl, beta_init=0.1)", "has no beta"},
           {"sipe(alibi, beta_init=0.95)", "within 0.9"},
           {"sipe(alibi, fuse=mix)", "needs inject=input or joint"},
           {"sipe(alibi, labels=add)", "needs inject=input"},
           {"sipe(alibi, inject=joint, labels=only)", "needs inject=input"},
           {"sipe(none, prior=fsyn, labels=add)", "know them already"},
           {"sipe(rope, inject_from=4)", "beyond the model's 3 layers"},
           {"sipe(grape-m(planes=general))", "turns other planes"},
           {"sipe(grape-m(context=true))", "turns other planes"},
           {"sipe(dynamic(rope, factor=2, train_length=8), coupling=pair)", "fixed frequencies"},
           {"sipe(xpos, coupling=pair)", "fixed frequencies"}}) {
    EXPECT_NE(message_of(bad).find(words), std::string::npos) << bad << ": " << message_of(bad);
  }
}

// Where two factors of one product both start at zero, no gradient ever moves either.
TEST(Sipe, RefusesADeadStart) {
  for (const char* dead :
       {"sipe(alibi, start=zero)", "sipe(alibi, start=zero, beta_init=0.1)", "sipe(t5, coupling=mlp, start=zero)",
        "sipe(t5, coupling=sparse, prior=fsyn, start=zero)", "sipe(rope, start=zero)",
        "sipe(rope, start=zero, beta_init=0.1)", "sipe(rope, prior=fsyn, start=zero)", "sipe(txl, start=zero)",
        "sipe(none, coupling=bias, start=zero)", "sipe(rope, coupling=prerot, start=zero)",
        "sipe(none, fuse=concat, start=zero)", "sipe(rope, inject=joint, start=zero)"})
    EXPECT_NE(message_of(dead).find("would never train"), std::string::npos) << dead;
  for (const char* alive : {"sipe(none, start=zero)", "sipe(txl, inject=joint, start=zero)",
                            "sipe(txl, prior=fsyn, start=zero)", "sipe(rope, prior=fsyn, start=zero, beta_init=0.1)",
                            "sipe(alibi, mode=none, start=zero)", "sipe(alibi, start=random, beta_init=0.1)"})
    EXPECT_EQ(message_of(alive), "") << alive;
}

TEST(Sipe, TrainsWhatItsCouplingNeeds) {
  EXPECT_EQ(names_of("sipe(txl)"), (Names{"tau", "nu", "w_e"}));
  EXPECT_EQ(names_of("sipe(txl, prior=fsyn)"), (Names{"w_e"}));
  EXPECT_EQ(names_of("sipe(alibi)"), (Names{"tau", "nu", "u", "v", "beta"}));
  EXPECT_EQ(names_of("sipe(t5, coupling=sparse_mlp)"), (Names{"tau", "nu", "a", "b", "b1", "w2", "b2", "beta"}));
  EXPECT_EQ(names_of("sipe(t5, coupling=additive)"), (Names{"tau", "nu", "w_e"}));
  EXPECT_EQ(names_of("sipe(rope)"), (Names{"tau", "nu", "w_phi", "beta"}));
  EXPECT_EQ(names_of("sipe(rope, coupling=prerot)"), (Names{"tau", "nu", "w_q", "w_k"}));
  EXPECT_EQ(names_of("sipe(none, coupling=bias)"), (Names{"tau", "nu", "w_key", "w_value", "alpha"}));
  EXPECT_EQ(names_of("sipe(alibi, inject=combined)"),
            (Names{"tau", "nu", "u", "v", "beta", "w_key", "w_value", "alpha"}));
  EXPECT_EQ(names_of("sipe(none)"), (Names{"tau", "nu"}));
  EXPECT_EQ(names_of("sipe(none, prior=fsyn)"), (Names{"w_input"}));
  EXPECT_EQ(names_of("sipe(none, fuse=concat)"), (Names{"tau", "nu", "w_x", "w_s"}));
  EXPECT_EQ(names_of("sipe(none, fuse=mix)"), (Names{"tau", "nu", "mix"}));
  EXPECT_EQ(names_of("sipe(rope, inject_from=2)", 0), (Names{}));
  EXPECT_EQ(names_of("sipe(rope, inject_from=2)", 1), (Names{"tau", "nu", "w_phi", "beta"}));
  // The paper's tables have 7 C numbers, for all layers together.
  const auto tensors = own_tensors("sipe(txl)");
  EXPECT_EQ(tensors.at("tau").shape, (std::vector<std::int64_t>{2, 10}));
  EXPECT_EQ(tensors.at("nu").shape, (std::vector<std::int64_t>{5, 10}));
  EXPECT_TRUE(tensors.at("tau").shared && tensors.at("nu").shared && !tensors.at("w_e").shared);
  EXPECT_EQ(tensors.at("w_e").shape, (std::vector<std::int64_t>{4, 6, 10}));
}

TEST(Sipe, StartsAsBetaSays) {
  const auto zero = [](const ParameterInfo& info) {
    return info.initial.kind == Initial::Kind::Constant && info.initial.a == 0;
  };
  const auto plain = own_tensors("sipe(t5)"), given = own_tensors("sipe(t5, beta_init=0.1)");
  EXPECT_TRUE(zero(plain.at("beta")) && !zero(plain.at("u")) && !zero(plain.at("v")));
  EXPECT_TRUE(zero(given.at("v")) && !zero(given.at("u")));
  EXPECT_EQ(given.at("beta").initial.a, 0.1);
  const auto mlp = own_tensors("sipe(t5, coupling=mlp, beta_init=0.1)");
  EXPECT_TRUE(zero(mlp.at("w2")) && zero(mlp.at("b2")) && !zero(mlp.at("a")));
  const auto turning = own_tensors("sipe(rope, beta_init=0.1)");
  EXPECT_TRUE(zero(turning.at("w_phi")) && !zero(turning.at("tau")));
  // beta_init is what multiplies: factor=bounded trains what tanh is taken of.
  EXPECT_NEAR(0.9 * std::tanh(own_tensors("sipe(alibi, beta_init=0.1)").at("beta").initial.a), 0.1, 1e-12);
  EXPECT_TRUE(zero(own_tensors("sipe(txl)").at("w_e")) && !zero(own_tensors("sipe(txl, start=random)").at("w_e")));
  for (const auto& [text, warm] : std::map<std::string, bool>{{"sipe(txl)", true},
                                                              {"sipe(txl, start=random)", false},
                                                              {"sipe(alibi, start=random)", true},
                                                              {"sipe(alibi, start=random, beta_init=0.1)", false},
                                                              {"sipe(none)", false},
                                                              {"sipe(none, start=zero)", true},
                                                              {"sipe(none, fuse=concat)", true},
                                                              {"sipe(none, fuse=mix)", true},
                                                              {"sipe(none, fuse=skip)", false},
                                                              {"sipe(none, fuse=skip, start=zero)", true},
                                                              {"sipe(none, labels=only)", false},
                                                              {"sipe(none, labels=add, start=zero)", true},
                                                              {"sipe(none, coupling=bias)", true}})
    EXPECT_EQ(made(text)->traits().warm_start, warm) << text;
}

TEST(Sipe, NamesTheInputsThatItReads) {
  using List = std::vector<std::string>;
  EXPECT_EQ(made("sipe(txl)")->inputs(), (List{"syntax.tags"}));
  EXPECT_EQ(made("sipe(txl, same_sentence=true)")->inputs(), (List{"syntax.tags", "syntax.sentences"}));
  EXPECT_EQ(made("sipe(alibi)")->inputs(), (List{"syntax.tags", "syntax.sentences"}));
  EXPECT_EQ(made("sipe(alibi, prior=fsyn, cross_sentence=true)")->inputs(), (List{"syntax.vectors"}));
  EXPECT_EQ(made("sipe(alibi, coupling=sparse)")->inputs(), (List{"syntax.tags", "syntax.links"}));
  EXPECT_EQ(made("sipe(rope)")->inputs(), (List{"syntax.tags"}));
  EXPECT_EQ(made("sipe(none, labels=add)")->inputs(), (List{"syntax.tags", "syntax.labels"}));
  EXPECT_EQ(made("sipe(rope, inject=input, labels=only)")->inputs(), (List{"syntax.labels"}));
  EXPECT_EQ(made("sipe(alibi, mode=none)")->inputs(), (List{}));
  EXPECT_EQ(made("sipe(rope) + sipe(alibi)")->inputs(), (List{"syntax.sentences", "syntax.tags"}));
}

TEST(Sipe, SettingsSayWhatFeedsIt) {
  const auto all =
      sipe_settings(parse("rope + layers(sipe(txl, mode=oracle), sipe(t5, prior=fsyn, coupling=sparse, hops=2))"));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].operand, "txl");
  EXPECT_EQ(all[0].coupling, "tag_align");
  EXPECT_EQ(all[0].mode, SipeMode::Oracle);
  EXPECT_TRUE(all[0].leaks(true));
  EXPECT_FALSE(all[0].leaks(false));  // an encoder sees all tokens anyway
  EXPECT_EQ(all[1].prior, SipePrior::Fsyn);
  EXPECT_EQ(all[1].hops, 2);
  EXPECT_EQ(all[1].mode_in(true), SipeMode::Incremental);
  EXPECT_EQ(all[1].mode_in(false), SipeMode::Oracle);
  EXPECT_FALSE(all[1].leaks(true));
  EXPECT_TRUE(sipe_settings(parse("rope + alibi")).empty());
  const auto rule = [](const std::string& text, bool causal) {
    return sipe_settings(parse(text))[0].subword_in(causal);
  };
  EXPECT_EQ(rule("sipe(rope)", true), SipeSubword::Delayed);
  EXPECT_EQ(rule("sipe(rope)", false), SipeSubword::All);
  EXPECT_EQ(rule("sipe(rope, inject=input)", false), SipeSubword::First);
  EXPECT_EQ(rule("sipe(txl, mode=oracle)", true), SipeSubword::First);
  EXPECT_EQ(rule("sipe(txl, subword=all)", true), SipeSubword::All);
  EXPECT_EQ(sipe_settings(parse("sipe(none)"))[0].inject, "input");
  EXPECT_EQ(sipe_settings(parse("sipe(alibi)"))[0].coupling, "bilinear");
  EXPECT_EQ(sipe_settings(parse("sipe(rope)"))[0].coupling, "rotation");
  EXPECT_TRUE(made("sipe(txl, mode=oracle_revealed)")->traits().leaks);
  EXPECT_FALSE(made("sipe(txl)")->traits().leaks);
}

struct Embedded {
  std::shared_ptr<const Encoding> encoding;
  NamedTensors parameters, named;
  Side side;
  at::Tensor x;

  explicit Embedded(const std::string& text) : encoding(made(text)) {
    at::manual_seed(3);
    for (const ParameterInfo& info : encoding->parameters(0))
      parameters[info.name] = at::randn(info.shape, at::kDouble);
    named["syntax.tags"] = at::tensor(std::vector<std::int64_t>{1, 4, 0, 0, 2, 5, 0, 3}, at::kLong).view({1, 4, 2});
    named["syntax.labels"] = at::tensor(std::vector<std::int64_t>{3, 0, 37, 1}, at::kLong).view({1, 4});
    named["syntax.vectors"] =
        at::randn({1, 4, 64}, at::kDouble) * at::tensor({1.0, 0.0, 1.0, 1.0}, at::kDouble).view({1, 4, 1});
    side.positions = at::arange(4, at::kDouble).view({1, 4, 1});
    x = at::randn({1, 4, 10}, at::kDouble);
  }
  at::Tensor operator()() const { return encoding->embedding(side, parameters, named, x); }
};

TEST(Sipe, PutsItsVectorsOnTheTokenEmbedding) {
  for (const char* text :
       {"sipe(none)", "sipe(none, prior=fsyn)", "sipe(rope, inject=joint)", "sipe(none, fuse=mix)",
        "sipe(none, fuse=concat)", "sipe(none, prior=fsyn, fuse=concat)", "sipe(sinusoidal)", "sipe(none, labels=add)",
        "sipe(none, labels=only)", "sipe(sinusoidal, labels=add, fuse=concat)", "sipe(none, labels=only, fuse=mix)"}) {
    Embedded one(text);
    const at::Tensor added = one();
    ASSERT_EQ(added.sizes(), (std::vector<std::int64_t>{1, 4, 10})) << text;
    PlainParameters plain;
    for (const auto& [name, tensor] : one.parameters)
      plain[name] = {tensor.contiguous().const_data_ptr<double>(),
                     tensor.contiguous().const_data_ptr<double>() + tensor.numel()};
    PlainInputs inputs;
    inputs.tokens = 4;
    inputs.exists.assign(4, true);
    for (const auto& [name, tensor] : one.named) {
      const at::Tensor flat = tensor.to(at::kDouble).contiguous();
      inputs.values[name] = {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
    }
    for (std::int64_t t = 0; t < 4; ++t)
      for (std::int64_t c = 0; c < 10; ++c) {
        const at::Tensor row = one.x[0][t].contiguous();
        const double wanted = one.encoding->define_token_embedding(
            {static_cast<double>(t), row.const_data_ptr<double>(), &inputs, t}, c, plain);
        EXPECT_NEAR(added[0][t][c].item<double>(), wanted, 1e-12) << text << ", token " << t << ", channel " << c;
      }
    // Token 1 brings nothing: it is as if nobody knew syntax.
    const at::Tensor inner = one.encoding->without_inputs()->embedding(one.side, {});
    const at::Tensor base = inner.defined() ? inner.to(at::kDouble) : at::zeros({1, 4, 10}, at::kDouble);
    EXPECT_TRUE(at::equal(added.select(1, 1), base.select(1, 1))) << text;
    EXPECT_FALSE(at::equal(added.select(1, 2), base.select(1, 2))) << text;
  }
}

// fuse=skip leaves the token embedding alone and says the same vectors where the first attention joins the stream.
TEST(Sipe, SkipsTheTokenEmbedding) {
  for (const char* keys : {"", ", prior=fsyn", ", labels=add", ", labels=only"}) {
    Embedded one(str("sipe(sinusoidal", keys, ", fuse=skip)"));
    const at::Tensor inner = one.encoding->without_inputs()->embedding(one.side, {});
    EXPECT_TRUE(at::equal(one(), inner)) << keys;
    const at::Tensor late = one.encoding->behind_attention(one.side, one.parameters, one.named);
    Embedded added(str("sipe(none", keys, ")"));
    added.parameters = one.parameters;
    added.named = one.named;
    EXPECT_TRUE(at::equal(late, added())) << keys;
    EXPECT_FALSE(added.encoding->behind_attention(added.side, added.parameters, added.named).defined());
  }
  // In a sum each part says its own.
  Embedded two("sipe(none, fuse=skip) + sipe(none, labels=only, fuse=skip)");
  const at::Tensor both = two.encoding->behind_attention(two.side, two.parameters, two.named);
  EXPECT_EQ(both.sizes(), (std::vector<std::int64_t>{1, 4, 10}));
  EXPECT_EQ(both.select(1, 1).count_nonzero().item<std::int64_t>(), 0);
  EXPECT_FALSE(made("sipe(none, mode=none, fuse=skip)")->behind_attention(two.side, {}, {}).defined());
}

// Padding brings nothing, whatever stands there.
TEST(Sipe, PaddingHasNoSyntax) {
  Embedded one("sipe(none)");
  one.side.documents = at::tensor(std::vector<std::int64_t>{-1, 0, 0, 0}, at::kLong).view({1, 4});
  one.named["syntax.tags"][0][0][0] = 77;
  EXPECT_EQ(one().select(1, 0).count_nonzero().item<std::int64_t>(), 0);
  EXPECT_GT(one().select(1, 2).count_nonzero().item<std::int64_t>(), 0);
}

TEST(Sipe, SaysWhatIsWrongWithItsInputs) {
  const auto message = [](const std::string& text, const std::function<void(Embedded&)>& spoil) {
    Embedded one(text);
    spoil(one);
    try {
      one();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect = [&](const std::string& text, const std::vector<std::string>& words,
                          const std::function<void(Embedded&)>& spoil) {
    const std::string found = message(text, spoil);
    for (const std::string& word : words) EXPECT_NE(found.find(word), std::string::npos) << found;
  };
  expect("sipe(none)", {"'syntax.tags' was not given"}, [](Embedded& one) { one.named.clear(); });
  expect("sipe(none)", {"syntax.tags", "(1, 4, 2)", "[1, 3, 2]"}, [](Embedded& one) {
    one.named["syntax.tags"] = at::zeros({1, 3, 2}, at::kLong);
  });
  expect("sipe(none)", {"whole numbers", "syntax.tags"}, [](Embedded& one) {
    one.named["syntax.tags"] = at::zeros({1, 4, 2});
  });
  expect("sipe(none)", {"tau 0 to 2", "found 3 and 4", "row 0, token 2"}, [](Embedded& one) {
    one.named["syntax.tags"][0][2][0] = 3;
    one.named["syntax.tags"][0][2][1] = 4;
  });
  for (const std::int64_t wrong : {-1, 38})
    expect("sipe(none, labels=only)", {"syntax.labels", "0 to 37", str("found ", wrong), "row 0, token 2"},
           [wrong](Embedded& one) { one.named["syntax.labels"][0][2] = wrong; });
  expect("sipe(none, labels=add)", {"'syntax.labels' was not given"},
         [](Embedded& one) { one.named.erase("syntax.labels"); });
  expect("sipe(none, prior=fsyn)", {"syntax.vectors", "(1, 4, 64)", "[1, 4, 63]"}, [](Embedded& one) {
    one.named["syntax.vectors"] = at::zeros({1, 4, 63});
  });
  expect("sipe(none, fuse=mix)", {"read the token embedding"}, [](Embedded& one) { one.x = at::Tensor(); });
}

}  // namespace
}  // namespace torsor
