// A model whose tokens bring their syntax: steps through the cache are one pass, nothing leaks where nothing may, and
// without syntax it is the model without sipe.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/parsed.h"
#include "tests/model/tokens.h"
#include "torsor/model/generate.h"

namespace torsor {
namespace {

ModelConfig tiny(const std::string& encoding) {
  ModelConfig config;
  config.encoding = encoding;
  config.vocabulary_size = 50;
  config.width = 16;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.mlp_width = 24;
  return config;
}

/// A model away from its start, where a beta of 0 or a zero matrix would hide the syntax.
Decoder trained_model(const std::string& encoding) {
  Decoder model(tiny(encoding), 3);
  at::manual_seed(4);
  for (const ModelParameter& parameter : model.parameters())
    if (parameter.name.find(".sipe") != std::string::npos)
      parameter.tensor.copy_(at::randn(parameter.tensor.sizes()) * 0.5);
  return model;
}

TokenBatch parsed_batch(const at::Tensor& tokens, bool ahead = false) {
  TokenBatch batch = batch_of(tokens);
  batch.named = parsed(tokens, ahead);
  return batch;
}

const std::vector<std::string>& causal_forms() {
  static const std::vector<std::string> forms = {
      "sipe(txl)",
      "sipe(txl, prior=fsyn, mode=incremental)",
      "sipe(alibi)",
      "sipe(t5, coupling=mlp, prior=fsyn)",
      "sipe(alibi, coupling=sparse, mode=incremental)",
      "sipe(t5, coupling=additive)",
      "sipe(rope)",
      "sipe(rope, bound=warp)",
      "sipe(rope, coupling=pair)",
      "sipe(rope, coupling=prerot)",
      "sipe(rope, coupling=bias)",
      "sipe(none)",
      "sipe(rope, inject=joint, fuse=concat)",
      "sipe(sinusoidal, fuse=mix)",
      "sipe(txl, inject=combined)",
      "sipe(rope, inject_from=2)",
      "layers(sipe(rope), sipe(alibi), none)",
      "sipe(alibi, mode=none)",
  };
  return forms;
}

TEST(Sipe, StepsThroughTheCacheAreOnePass) {
  const at::NoGradGuard no_gradient;
  for (const std::string& form : causal_forms()) {
    const Decoder model = trained_model(form);
    const at::Tensor tokens = random_tokens(2, 13);
    const TokenBatch whole = parsed_batch(tokens);
    const at::Tensor full = model.logits(model.hidden(whole));
    for (const std::int64_t chunk : {1, 4}) {
      KvCache cache = model.make_cache(2, 13);
      std::vector<at::Tensor> logits;
      for (std::int64_t first = 0; first < 13; first += chunk) {
        const std::int64_t count = std::min<std::int64_t>(chunk, 13 - first);
        TokenBatch part = batch_of(tokens.narrow(1, first, count));
        // Parsed anew from what has been read: a token's syntax must stay what it was.
        for (const auto& [name, tensor] : parsed(tokens.narrow(1, 0, first + count)))
          part.named[name] = tensor.narrow(1, first, count);
        logits.push_back(model.logits(model.hidden(part, &cache)));
      }
      EXPECT_LE(largest_difference(at::cat(logits, 1), full), 1e-5 * full.abs().max().item<double>())
          << form << " " << chunk;
    }
  }
}

TEST(Sipe, LaterTokensAndTheirSyntaxChangeNoEarlierLogit) {
  const at::NoGradGuard no_gradient;
  for (const std::string& form : causal_forms()) {
    const Decoder model = trained_model(form);
    const at::Tensor tokens = random_tokens(2, 12);
    at::Tensor other = tokens.clone();
    other.narrow(1, 7, 5).copy_((tokens.narrow(1, 7, 5) * 7 + 3).remainder(50));
    const at::Tensor a = model.logits(model.hidden(parsed_batch(tokens))),
                     b = model.logits(model.hidden(parsed_batch(other)));
    EXPECT_TRUE(at::equal(a.narrow(1, 0, 7), b.narrow(1, 0, 7))) << form;
    EXPECT_FALSE(at::equal(a.narrow(1, 7, 5), b.narrow(1, 7, 5))) << form;
    // A parser that looks ahead does change them: if it did not, syntax would not be wired.
    if (model.encoding().inputs().empty()) continue;
    const at::Tensor c = model.logits(model.hidden(parsed_batch(tokens, true))),
                     d = model.logits(model.hidden(parsed_batch(other, true)));
    EXPECT_FALSE(at::equal(c.narrow(1, 0, 7), d.narrow(1, 0, 7))) << form;
  }
}

TEST(Sipe, WithoutSyntaxTheModelIsTheOneWithoutSipe) {
  const at::NoGradGuard no_gradient;
  for (const auto& [form, inner] :
       std::vector<std::pair<std::string, std::string>>{{"sipe(txl)", "txl"},
                                                        {"sipe(alibi)", "alibi"},
                                                        {"sipe(rope)", "rope"},
                                                        {"sipe(none)", "none"},
                                                        {"sipe(rope, inject=joint)", "rope"},
                                                        {"sipe(rope, coupling=bias)", "rope"},
                                                        {"sipe(rope, inject=joint, fuse=concat)", "rope"}}) {
    const Decoder model = trained_model(form), plain(tiny(inner), 3);
    TokenBatch batch = parsed_batch(random_tokens(2, 11));
    EXPECT_FALSE(at::equal(model.hidden(batch), plain.hidden(batch))) << form;
    batch.named[kSyntaxTags].zero_();
    EXPECT_TRUE(at::equal(model.hidden(batch), plain.hidden(batch))) << form;
    // As it starts, too, wherever it says so.
    if (!model.encoding().traits().warm_start) continue;
    const Decoder fresh(tiny(form), 3);
    batch = parsed_batch(random_tokens(2, 11));
    // What adds to a logit takes another path than a rotation alone, to rounding.
    const double bound = form.find("bias") != std::string::npos ? 1e-5 : 0;
    EXPECT_LE(largest_difference(fresh.hidden(batch), plain.hidden(batch)), bound) << form;
  }
}

TEST(Sipe, GeneratesWhatThePassesSay) {
  const at::NoGradGuard no_gradient;
  for (const char* form : {"sipe(txl)", "sipe(rope, inject=joint)", "sipe(alibi, coupling=sparse)"}) {
    const Decoder model = trained_model(form);
    using Rows = std::vector<std::vector<std::int64_t>>;
    const auto tensor_of = [](const Rows& rows) {
      std::size_t longest = 0;
      for (const auto& row : rows) longest = std::max(longest, row.size());
      at::Tensor tokens =
          at::zeros({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(longest)}, at::kLong);
      for (std::size_t b = 0; b < rows.size(); ++b)
        for (std::size_t t = 0; t < rows[b].size(); ++t)
          tokens[static_cast<std::int64_t>(b)][static_cast<std::int64_t>(t)] = rows[b][t];
      return tokens;
    };
    const Rows prompts = {{3, 1, 4, 1, 5}, {9, 2}};
    GenerateOptions options;
    options.max_tokens = 6;
    EXPECT_THROW(generate(model, prompts, options), UsageError);
    options.inputs = [&](const Rows& rows, const std::vector<std::int64_t>& first) {
      NamedTensors named = parsed(tensor_of(rows));
      std::int64_t rest = 0;
      for (std::size_t b = 0; b < rows.size(); ++b)
        rest = std::max(rest, static_cast<std::int64_t>(rows[b].size()) - first[b]);
      for (auto& [name, tensor] : named) {
        std::vector<at::Tensor> parts;
        for (std::size_t b = 0; b < rows.size(); ++b) {
          const std::int64_t left = std::min(rest, tensor.size(1) - first[b]);
          const at::Tensor part = tensor[static_cast<std::int64_t>(b)].narrow(0, first[b], left);
          std::vector<std::int64_t> shape = part.sizes().vec();
          shape[0] = rest - left;
          parts.push_back(at::cat({part, at::zeros(shape, part.options())}));
        }
        tensor = at::stack(parts);
      }
      return named;
    };
    const Generated found = generate(model, prompts, options);
    for (std::size_t b = 0; b < prompts.size(); ++b) {
      std::vector<std::int64_t> row = prompts[b];
      for (const std::int64_t token : found.tokens[b]) {
        const at::Tensor logits = model.logits(model.hidden(parsed_batch(tensor_of({row}))));
        EXPECT_EQ(logits.select(1, logits.size(1) - 1).argmax(-1).item<std::int64_t>(), token) << form;
        row.push_back(token);
      }
    }
  }
}

// fuse=skip: s is in the stream behind the first attention, and that attention has not read it.
TEST(Sipe, SkipJoinsBehindTheFirstAttention) {
  const auto model_of = [](const std::string& text, std::int64_t layers, bool attends) {
    ModelConfig config = tiny(text);
    config.layers = layers;
    Decoder model(config, 3);
    at::manual_seed(4);
    for (const ModelParameter& parameter : model.parameters()) {
      if (parameter.name.find(".sipe") != std::string::npos)
        parameter.tensor.copy_(at::randn(parameter.tensor.sizes()) * 0.5);
      const bool output =
          parameter.name.find("o_proj") != std::string::npos || parameter.name.find("down_proj") != std::string::npos;
      if (output && !attends) parameter.tensor.zero_();
    }
    return model;
  };
  const TokenBatch batch = parsed_batch(random_tokens(2, 7));
  // Layers that add nothing: it does not matter where s joins.
  const Decoder idle = model_of("sipe(none)", 2, false), idle_skip = model_of("sipe(none, fuse=skip)", 2, false);
  EXPECT_TRUE(at::equal(idle.hidden(batch), idle_skip.hidden(batch)));
  EXPECT_FALSE(at::equal(idle.hidden(batch), model_of("sipe(none, mode=none)", 2, false).hidden(batch)));
  // Of one layer: another tag of token 2 changes itself alone, and with fuse=add all that attend to it.
  TokenBatch other = batch;
  other.named[kSyntaxTags] = batch.named.at(kSyntaxTags).clone();
  other.named[kSyntaxTags].select(1, 2) = (batch.named.at(kSyntaxTags).select(1, 2) + 1).remainder(3);
  for (const bool skip : {false, true}) {
    const Decoder model = model_of(skip ? "sipe(none, fuse=skip)" : "sipe(none)", 1, true);
    const at::Tensor change = (model.hidden(batch) - model.hidden(other)).abs().amax({0, 2});
    EXPECT_GT(change[2].item<double>(), 1e-3);
    EXPECT_EQ(change.narrow(0, 0, 2).max().item<double>(), 0);
    if (skip)
      EXPECT_EQ(change.narrow(0, 3, 4).max().item<double>(), 0);
    else
      EXPECT_GT(change.narrow(0, 3, 4).min().item<double>(), 1e-5);
    // Token by token through the cache as in one pass.
    KvCache cache = model.make_cache(2, 7);
    for (std::int64_t t = 0; t < 7; ++t) {
      TokenBatch one = batch_of(batch.tokens.narrow(1, t, 1));
      for (const auto& [name, tensor] : batch.named) one.named[name] = tensor.narrow(1, t, 1);
      EXPECT_LT(largest_difference(model.hidden(one, &cache).select(1, 0), model.hidden(batch).select(1, t)), 1e-5);
    }
  }
}

TEST(Sipe, TheModelNamesInputsThatAreMissing) {
  const Decoder model = trained_model("sipe(alibi)");
  const auto message = [&](const TokenBatch& batch) {
    try {
      model.hidden(batch);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  TokenBatch batch = parsed_batch(random_tokens(2, 6));
  EXPECT_EQ(message(batch), "");
  batch.named.erase(kSyntaxSentences);
  EXPECT_EQ(message(batch),
            "model: 'sipe(alibi)' reads the per-token input 'syntax.sentences', which the batch does not bring");
  batch.named[kSyntaxSentences] = at::zeros({2, 5}, at::kLong);
  EXPECT_NE(message(batch).find("(2, 6, ...)"), std::string::npos) << message(batch);
}

TEST(Sipe, LossesTakeTheInputsOfTheirTokens) {
  Decoder model = trained_model("sipe(rope)");
  model.require_gradients();
  const at::Tensor windows = random_tokens(2, 10);
  const at::Tensor losses = model.token_losses(windows, at::kFloat, parsed(windows.narrow(1, 0, 9)));
  EXPECT_EQ(losses.sizes(), (std::vector<std::int64_t>{2, 9}));
  losses.sum().backward();
  int tables = 0;
  for (const ModelParameter& parameter : model.parameters())
    if (parameter.name == "model.position.sipe.tau" || parameter.name == "model.position.sipe.nu") {
      ++tables;
      EXPECT_GT(parameter.tensor.grad().abs().sum().item<double>(), 0) << parameter.name;
    }
  EXPECT_EQ(tables, 2);  // one for all layers
}

}  // namespace
}  // namespace torsor
