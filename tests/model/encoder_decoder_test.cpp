// Models of an encoder and a decoder, against T5's formulas written out in float64.
#include "torsor/model/encoder_decoder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/test_folder.h"
#include "tests/model/foreign_weights.h"
#include "tests/model/t5_folders.h"
#include "torsor/base/file.h"
#include "torsor/model/hugging_face_t5.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

using namespace testing::t5;
using testing::contains;
using testing::ForeignWeights;
using testing::join_heads;
using testing::largest_difference;
using testing::message_of;
using testing::split_heads;
using testing::TestFolder;
using testing::write_hugging_face;

/// T5 as its paper and its first code have it: section 2.1 of Raffel et al. 2020, and the bucket rule.
class PlainT5 {
 public:
  PlainT5(const ForeignWeights& weights, std::string type, bool gated, double head_scale)
      : w_(weights), type_(std::move(type)), gated_(gated), head_scale_(head_scale) {}

  at::Tensor logits(const at::Tensor& source, const at::Tensor& target) const {
    const at::Tensor memory = stack("encoder.", kReads, source, {});
    const at::Tensor hidden = stack("decoder.", kWrites, target, memory) * head_scale_;
    return at::matmul(hidden, w_(own_head() ? "lm_head.weight" : "shared.weight").t());
  }

 private:
  bool own_head() const { return const_cast<ForeignWeights&>(w_).tensors().count("lm_head.weight") > 0; }

  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    return x / (x.square().mean(-1, true) + 1e-6).sqrt() * w_(name + ".weight");
  }

  static std::int64_t bucket(std::int64_t key_minus_query, bool both) {
    std::int64_t count = 8, first = 0, n = -key_minus_query;
    if (both) {
      count = 4;
      if (n < 0) first = 4;
      n = std::abs(n);
    }
    n = std::max<std::int64_t>(n, 0);
    const std::int64_t exact = count / 2;
    if (n < exact) return first + n;
    const double far = std::log(static_cast<double>(n) / static_cast<double>(exact)) /
                       std::log(20.0 / static_cast<double>(exact)) * static_cast<double>(count - exact);
    return first + std::min(exact + static_cast<std::int64_t>(far), count - 1);
  }

  at::Tensor bias(const std::string& table, std::int64_t tokens, bool both) const {
    const at::Tensor rows = w_(table), all = at::empty({kHeads, tokens, tokens}, at::kDouble);
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j < tokens; ++j)
        all.select(1, i).select(1, j).copy_(both || j <= i ? rows[bucket(j - i, both)]
                                                           : at::full({kHeads}, -INFINITY, at::kDouble));
    return all;
  }

  at::Tensor attention(const std::string& name, const at::Tensor& x, const at::Tensor& from,
                       const at::Tensor& bias) const {
    const at::Tensor q = split_heads(w_.apply(name + ".q", x), kHeads),
                     k = split_heads(w_.apply(name + ".k", from), kHeads),
                     v = split_heads(w_.apply(name + ".v", from), kHeads);
    at::Tensor scores = at::matmul(q, k.transpose(1, 2));  // not divided
    if (bias.defined()) scores = scores + bias;
    return w_.apply(name + ".o", join_heads(at::matmul(at::softmax(scores, -1), v)));
  }

  at::Tensor mlp(const std::string& name, const at::Tensor& x) const {
    if (!gated_) return w_.apply(name + ".wo", w_.apply(name + ".wi", x).clamp_min(0));
    const at::Tensor g = w_.apply(name + ".wi_0", x);
    const at::Tensor gelu = 0.5 * g * (1 + (std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)).tanh());
    return w_.apply(name + ".wo", gelu * w_.apply(name + ".wi_1", x));
  }

  at::Tensor stack(const std::string& name, std::int64_t layers, const at::Tensor& tokens,
                   const at::Tensor& memory) const {
    const bool writes = memory.defined();
    at::Tensor h = w_("shared.weight").index_select(0, tokens);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const std::string block = str(name, "block.", layer, ".layer.");
      const std::string table =
          str(name, "block.", type_ == "umt5" ? layer : 0, ".layer.0.SelfAttention.relative_attention_bias.weight");
      const at::Tensor x = norm(block + "0.layer_norm", h);
      h = h + attention(block + "0.SelfAttention", x, x, bias(table, tokens.numel(), !writes));
      if (writes) h = h + attention(block + "1.EncDecAttention", norm(block + "1.layer_norm", h), memory, {});
      const std::string last = block + (writes ? "2." : "1.");
      h = h + mlp(last + "DenseReluDense", norm(last + "layer_norm", h));
    }
    return norm(name + "final_layer_norm", h);
  }

  const ForeignWeights& w_;
  std::string type_;
  bool gated_;
  double head_scale_;
};

at::Tensor some_tokens(std::int64_t count, std::uint64_t seed) {
  return testing::some_tokens(count, 2, kVocabulary, seed);
}

TEST(EncoderDecoder, T5AndItsKinEqualTheirFormulas) {
  const at::NoGradGuard no_grad;
  for (const Kind& kind : kKinds) {
    ForeignWeights weights = weights_of(kind.type, kind.gated, kind.own_head);
    const TestFolder folder;
    write_hugging_face(folder, config_of(kind.type, kind.more), weights);
    ASSERT_TRUE(is_encoder_decoder(folder.path()));
    const LoadedEncoderDecoder loaded = load_encoder_decoder(folder.path());
    const double scale = kind.scaled ? 1 / std::sqrt(static_cast<double>(kWidth)) : 1;
    const PlainT5 plain(weights, kind.type, kind.gated, scale);
    // Distances beyond the last bucket of both stacks; one token alone.
    for (const auto& [reads, writes] : {std::pair(45, 33), std::pair(1, 1), std::pair(2, 40)}) {
      const at::Tensor source = some_tokens(reads, 1), target = some_tokens(writes, 2);
      const at::Tensor wanted = plain.logits(source, target);
      const at::Tensor found = loaded.model.logits(target.view({1, -1}), loaded.model.read(source.view({1, -1})))[0];
      EXPECT_LE(largest_difference(found, wanted), 2e-5 * wanted.abs().max().item<double>())
          << kind.type << " " << json_text(kind.more) << " " << reads << " " << writes;
    }
  }
}

EncoderDecoder some_model(const std::string& type = "t5") {
  ForeignWeights weights = weights_of(type, type != "t5", false);
  HuggingFaceT5 model = read_hugging_face_t5(config_of(type), "x");
  const std::map<std::string, at::Tensor> ours = hugging_face_t5_weights(model, weights.tensors(), "x");
  return {model.config, ours, "x"};
}

TEST(EncoderDecoder, StepsEqualTheWholeAndRowsDoNotMix) {
  const at::NoGradGuard no_grad;
  const EncoderDecoder model = some_model();
  // Sources of different lengths: padding must not be seen.
  std::vector<std::vector<std::int64_t>> sources;
  for (const std::int64_t length : {30, 1, 9}) {
    const at::Tensor one = some_tokens(length, static_cast<std::uint64_t>(length));
    sources.emplace_back(one.data_ptr<std::int64_t>(), one.data_ptr<std::int64_t>() + length);
  }
  GenerateOptions options;
  options.max_tokens = 25;
  options.end_tokens = {kVocabulary - 1};
  std::size_t written = 0;
  const Generated together = model.generate(sources, options);
  for (std::size_t row = 0; row < sources.size(); ++row) {
    const Generated alone = model.generate({sources[row]}, options);
    EXPECT_EQ(together.tokens[row], alone.tokens[0]) << row;
    // What the full pass would choose behind each token.
    std::vector<std::int64_t> target = {0};
    target.insert(target.end(), alone.tokens[0].begin(), alone.tokens[0].end());
    const at::Tensor source = at::tensor(sources[row], at::kLong).view({1, -1});
    const at::Tensor best = model.logits(at::tensor(target, at::kLong).view({1, -1}), model.read(source)).argmax(-1)[0];
    for (std::size_t i = 0; i + 1 < target.size(); ++i)
      EXPECT_EQ(best[static_cast<std::int64_t>(i)].item<std::int64_t>(), target[i + 1]) << row << " " << i;
    written += target.size() - 1;
  }
  EXPECT_GE(written, 25u);
  // A later token of the target changes nothing before it, bit for bit; a token of the source does.
  const at::Tensor source = some_tokens(12, 3).view({1, -1}), target = some_tokens(14, 4).view({1, -1});
  const at::Tensor before = model.logits(target, model.read(source));
  at::Tensor changed = target.clone();
  changed[0][9] = changed[0][9].item<std::int64_t>() == 5 ? 6 : 5;
  const at::Tensor after = model.logits(changed, model.read(source));
  EXPECT_TRUE(before.narrow(1, 0, 9).equal(after.narrow(1, 0, 9)));
  EXPECT_FALSE(before.narrow(1, 9, 1).equal(after.narrow(1, 9, 1)));
  at::Tensor other = source.clone();
  other[0][11] = other[0][11].item<std::int64_t>() == 5 ? 6 : 5;
  EXPECT_GT(largest_difference(model.logits(target, model.read(other)).narrow(1, 0, 1), before.narrow(1, 0, 1)), 1e-3);
}

TEST(EncoderDecoder, PrefixesAreGoneOnFrom) {
  const EncoderDecoder model = some_model();
  GenerateOptions options;
  options.max_tokens = 8;
  options.end_tokens = {kVocabulary - 1};
  const std::vector<std::vector<std::int64_t>> source = {{5, 6, 7}};
  const Generated all = model.generate(source, options);
  ASSERT_GE(all.tokens[0].size(), 4u);
  const std::vector<std::int64_t> first(all.tokens[0].begin(), all.tokens[0].begin() + 3);
  const Generated rest = model.generate(source, options, {first});
  for (std::size_t i = 3; i < all.tokens[0].size(); ++i) EXPECT_EQ(rest.tokens[0][i - 3], all.tokens[0][i]);
}

TEST(EncoderDecoder, GradientsReachTheSourceSide) {
  EncoderDecoder model = some_model("umt5");
  model.require_gradients();
  const at::Tensor source = some_tokens(6, 3).view({1, -1}), target = some_tokens(5, 4).view({1, -1});
  model.logits(target, model.read(source)).square().sum().backward();
  std::size_t seen = 0;
  for (const ModelParameter& parameter : model.parameters()) {
    ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
    EXPECT_GT(parameter.tensor.grad().abs().max().item<double>(), 0) << parameter.name;
    ++seen;
  }
  EXPECT_EQ(seen, 1u + kReads * 10u + 1u + kWrites * 15u + 1u);  // embedding; tables and norms of all layers
}

TEST(EncoderDecoder, CheckpointsComeBack) {
  const at::NoGradGuard no_grad;
  const TestFolder folder;
  const EncoderDecoder model = some_model("umt5");
  save_encoder_decoder(folder.path(), model, "tokens");
  ASSERT_TRUE(is_encoder_decoder(folder.path()));
  const LoadedEncoderDecoder back = load_encoder_decoder(folder.path());
  EXPECT_EQ(back.tokenizer, "tokens");
  EXPECT_EQ(back.model.config().end_tokens, (std::vector<std::int64_t>{1}));
  const at::Tensor source = some_tokens(6, 3).view({1, -1}), target = some_tokens(5, 4).view({1, -1});
  EXPECT_TRUE(model.logits(target, model.read(source)).equal(back.model.logits(target, back.model.read(source))));
  // A drawn model too, with any encodings.
  EncoderDecoderConfig config;
  config.encoder.width = config.decoder.width = 16;
  config.encoder.layers = 1, config.decoder.layers = 2;
  config.encoder.heads = config.decoder.heads = 2;
  config.encoder.encoding = "rope";
  config.decoder.encoding = "alibi";
  config.start_token = 3;
  const EncoderDecoder drawn(config, 5);
  save_encoder_decoder(folder.path(), drawn, "bytes");
  const LoadedEncoderDecoder again = load_encoder_decoder(folder.path());
  EXPECT_EQ(again.model.config().encoder.encoding, "rope");
  EXPECT_EQ(again.model.config().start_token, 3);
  EXPECT_TRUE(drawn.logits(target, drawn.read(source)).equal(again.model.logits(target, again.model.read(source))));
  EXPECT_EQ(drawn.parameter_count(), again.model.parameter_count());
}

TEST(EncoderDecoder, TheFirstT5sAreReadWithTheirKeyOfLengths) {
  // t5-small and t5-base say "n_positions": 512, though a bucket holds every distance.
  const HuggingFaceT5 plain = read_hugging_face_t5(config_of("t5"), "x");
  const HuggingFaceT5 first = read_hugging_face_t5(config_of("t5", {{"n_positions", 512}, {"output_past", true}}), "x");
  EXPECT_EQ(model_to_json(first.config.encoder), model_to_json(plain.config.encoder));
  EXPECT_EQ(model_to_json(first.config.decoder), model_to_json(plain.config.decoder));
  EXPECT_EQ(first.config.decoder.encoding, plain.config.decoder.encoding);
  EXPECT_TRUE(contains(message_of<Error>([] {
                         read_hugging_face_t5(config_of("t5", {{"position_scheme", 512}}), "x");
                       }),
                       "position_scheme"));
}

TEST(EncoderDecoder, WhatDoesNotFitIsRefused) {
  const auto refused = [](const Json& more, const std::string& part) {
    const std::string message = message_of<Error>([&] { read_hugging_face_t5(config_of("t5", more), "config.json"); });
    EXPECT_TRUE(contains(message, part)) << json_text(more) << ": " << message;
    EXPECT_TRUE(contains(message, "config.json")) << message;
  };
  refused({{"feed_forward_proj", "gated-swish"}}, "gated-swish");
  refused({{"is_encoder_decoder", false}}, "is_encoder_decoder");
  refused({{"relative_attention_scheme", 3}}, "relative_attention_scheme");
  refused({{"d_kv", "ten"}}, "d_kv");
  refused({{"d_kv", 0}}, "d_kv");
  refused({{"d_ff", 0}}, "d_ff");
  refused({{"num_layers", 1.5}}, "num_layers");
  refused({{"relative_attention_num_buckets", 7}}, "bidirectional");
  refused({{"eos_token_id", 400}}, "400");
  refused({{"decoder_start_token_id", -1}}, "start_token");

  const auto weights_refused = [](const std::function<void(std::map<std::string, at::Tensor>&)>& change,
                                  const std::string& part) {
    ForeignWeights weights = weights_of("t5", false, false);
    change(weights.tensors());
    HuggingFaceT5 model = read_hugging_face_t5(config_of("t5"), "x");
    const std::string message = message_of<Error>([&] {
      const std::map<std::string, at::Tensor> ours = hugging_face_t5_weights(model, weights.tensors(), "folder");
      EncoderDecoder(model.config, ours, "folder");
    });
    EXPECT_TRUE(contains(message, part)) << message;
    EXPECT_TRUE(contains(message, "folder")) << message;
  };
  weights_refused([](auto& all) { all.erase("decoder.block.1.layer.1.EncDecAttention.k.weight"); },
                  "decoder.block.1.layer.1.EncDecAttention.k.weight");
  weights_refused([](auto& all) { all["decoder.block.7.layer.0.SelfAttention.q.weight"] = at::zeros({2}); }, "block.7");
  weights_refused(
      [](auto& all) {
        all["decoder.embed_tokens.weight"] = at::zeros({kVocabulary, kWidth});
      },
      "decoder.embed_tokens.weight");
  weights_refused([](auto& all) { all["shared.weight"] = at::zeros({kVocabulary, 3}); }, "embed_tokens");
  weights_refused([](auto& all) { all["encoder.final_layer_norm.weight"] = at::zeros({kWidth}, at::kLong); },
                  "must be floating");

  const EncoderDecoder model = some_model();
  const at::Tensor source = some_tokens(4, 1).view({1, -1}), target = some_tokens(3, 2).view({1, -1});
  TokenBatch batch;
  batch.tokens = target;
  EXPECT_TRUE(contains(message_of<Error>([&] { model.decoder().hidden(batch); }), "encoder's output"));
  const Memory memory = model.read(source);
  batch.tokens = target.expand({2, 3});
  batch.memory = &memory;
  EXPECT_TRUE(contains(message_of<Error>([&] { model.decoder().hidden(batch); }), "1 rows, the batch has 2"));
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         model.encoder().remember(at::zeros({1, 2, kWidth}), {});
                       }),
                       "without cross-attention"));
  EXPECT_TRUE(contains(message_of<Error>([&] { model.decoder().remember(at::zeros({1, 2, 5}), {}); }), "(B, S, 24)"));
  // Two texts for one row would be passed over where they begin with the decoder's.
  const at::Tensor two = at::tensor(std::vector<std::int64_t>{0, 1}).view({1, 2});
  EXPECT_TRUE(contains(message_of<Error>([&] {
                         model.decoder().remember(at::zeros({1, 2, kWidth}), two);
                       }),
                       "one source"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { model.generate({}); }), "no source"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { model.generate({{}}); }), "at least one token"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { model.generate({{kVocabulary}}); }), "[0, 41)"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { model.generate({{3}}, {}, {{1}, {2}}); }), "2 prefixes for 1"));

  EncoderDecoderConfig config;
  config.decoder.width = 64;
  EXPECT_TRUE(contains(message_of<UsageError>([&] { config.complete(); }), "width of the encoder is 128"));
  config.decoder.width = 128;
  config.encoder.encoding = "tape(rope)";
  EXPECT_TRUE(contains(message_of<UsageError>([&] { EncoderDecoder(config, 1); }), "state"));
  config.encoder.encoding = "rope";
  config.encoder.kv_shift = true;
  EXPECT_TRUE(contains(message_of<UsageError>([&] { config.complete(); }), "kv_shift"));

  const TestFolder folder;
  write_file_atomic(folder / "config.json", R"({"format": "torsor-checkpoint-1", "kind": "encoder"})");
  EXPECT_FALSE(is_encoder_decoder(folder.path()));
  EXPECT_TRUE(contains(message_of<Error>([&] { load_encoder_decoder(folder.path()); }), "an encoder and a decoder"));
}

}  // namespace
}  // namespace torsor
