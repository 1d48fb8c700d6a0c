// Blocks that are not Llama's: each part by a formula of its own, files, conversions with constants.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/test_folder.h"
#include "torsor/base/random.h"
#include "torsor/model/checkpoint.h"
#include "torsor/model/convert.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::TestFolder;

ModelConfig config_with(const BlockStyle& block, const std::string& encoding = "rope") {
  ModelConfig config;
  config.width = 16;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.vocabulary_size = 20;
  config.train_length = 12;
  config.encoding = encoding;
  config.block = block;
  config.complete();
  return config;
}

BlockStyle everything() {
  BlockStyle block;
  block.norm = NormKind::Layer;
  block.mlp = MlpKind::GeluTanh;
  block.parallel = Parallel::TwoNorms;
  block.qkv_bias = block.output_bias = block.mlp_bias = block.head_bias = block.embedding_norm = true;
  block.attention_scale = 0.7;
  return block;
}

/// Every tensor away from where it starts, so that constants and gains matter.
Decoder shaken(const ModelConfig& config) {
  const at::NoGradGuard no_grad;
  Decoder model(config, 3);
  for (const ModelParameter& parameter : model.parameters()) {
    at::Tensor noise = at::empty_like(parameter.tensor);
    fill_normal(noise.data_ptr<float>(), static_cast<std::size_t>(noise.numel()), 0, 0.2, 5, stream_of(parameter.name));
    parameter.tensor.add_(noise);
  }
  return model;
}

at::Tensor tokens() { return at::arange(12, at::kLong).mul(7).remainder(20).view({1, 12}); }

at::Tensor logits_of(const Decoder& model) {
  const at::NoGradGuard no_grad;
  TokenBatch batch;
  batch.tokens = tokens();
  return model.logits(model.hidden(batch));
}

/// The model once more in float64, with plain operations and no encoding: attention as nested loops over heads.
at::Tensor plain_logits(const Decoder& model) {
  const ModelConfig& c = model.config();
  std::map<std::string, at::Tensor> w;
  for (const ModelParameter& parameter : model.parameters()) w[parameter.name] = parameter.tensor.to(at::kDouble);
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    const bool layer = c.block.norm == NormKind::Layer;
    const at::Tensor centred = layer ? x - x.mean(-1, true) : x;
    at::Tensor y = centred / (centred.square().mean(-1, true) + c.norm_eps).sqrt() * w.at(name + ".weight");
    return w.count(name + ".bias") ? y + w.at(name + ".bias") : y;
  };
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    const at::Tensor y = at::matmul(x, w.at(name + ".weight").t());
    return w.count(name + ".bias") ? y + w.at(name + ".bias") : y;
  };
  at::Tensor h = w.at("model.embed_tokens.weight").index_select(0, tokens().flatten());
  if (c.block.embedding_norm) h = norm(h, "model.embed_norm");
  const std::int64_t count = h.size(0), d = c.head_dim;
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string own = str("model.layers.", layer, ".");
    const at::Tensor x = norm(h, own + "input_layernorm");
    const at::Tensor q = linear(x, own + "self_attn.q_proj"), k = linear(x, own + "self_attn.k_proj"),
                     v = linear(x, own + "self_attn.v_proj");
    std::vector<at::Tensor> heads;
    for (std::int64_t head = 0; head < c.heads; ++head) {
      const std::int64_t key = head / (c.heads / c.kv_heads);
      const double scale = c.block.attention_scale > 0 ? c.block.attention_scale : 1 / std::sqrt(double(d));
      at::Tensor scores = at::matmul(q.narrow(1, head * d, d), k.narrow(1, key * d, d).t()) * scale;
      const at::Tensor later = at::ones({count, count}, at::kBool).triu(1);
      heads.push_back(at::matmul(scores.masked_fill(later, -INFINITY).softmax(-1), v.narrow(1, key * d, d)));
    }
    const at::Tensor attended = linear(at::cat(heads, 1), own + "self_attn.o_proj");
    const at::Tensor u = c.block.parallel == Parallel::OneNorm ? x
                         : c.block.parallel == Parallel::TwoNorms
                             ? norm(h, own + "post_attention_layernorm")
                             : norm(h + attended, own + "post_attention_layernorm");
    const auto gelu = [](const at::Tensor& y) { return 0.5 * y * (1 + (y / std::sqrt(2.0)).erf()); };
    const auto gelu_tanh = [](const at::Tensor& y) {
      return 0.5 * y * (1 + (std::sqrt(2 / M_PI) * (y + 0.044715 * y.pow(3))).tanh());
    };
    at::Tensor inner = linear(u, own + "mlp.up_proj");
    const bool gated = w.count(own + "mlp.gate_proj.weight") > 0;
    const at::Tensor gate = gated ? linear(u, own + "mlp.gate_proj") : inner;
    switch (c.block.mlp) {
      case MlpKind::SwiGlu:
        inner = gate / (1 + (-gate).exp()) * inner;
        break;
      case MlpKind::GeGlu:
        inner = gelu(gate) * inner;
        break;
      case MlpKind::GeGluTanh:
        inner = gelu_tanh(gate) * inner;
        break;
      case MlpKind::Gelu:
        inner = gelu(inner);
        break;
      case MlpKind::GeluTanh:
        inner = gelu_tanh(inner);
        break;
      case MlpKind::Relu:
        inner = inner.clamp_min(0);
        break;
    }
    h = h + attended + linear(inner, own + "mlp.down_proj");
  }
  h = norm(h, "model.norm") * c.block.head_scale;
  at::Tensor logits = at::matmul(h, w.at(c.tie_head ? "model.embed_tokens.weight" : "lm_head.weight").t());
  if (c.block.head_bias) logits = logits + w.at("lm_head.bias");
  return logits.unsqueeze(0);
}

TEST(Block, EveryPartIsItsFormula) {
  std::vector<BlockStyle> styles = {BlockStyle(), everything()};
  for (const NormKind norm : {NormKind::Rms, NormKind::Layer})
    for (const MlpKind mlp :
         {MlpKind::SwiGlu, MlpKind::Gelu, MlpKind::GeluTanh, MlpKind::Relu, MlpKind::GeGlu, MlpKind::GeGluTanh})
      for (const Parallel parallel : {Parallel::None, Parallel::OneNorm, Parallel::TwoNorms}) {
        BlockStyle block;
        block.norm = norm, block.mlp = mlp, block.parallel = parallel;
        block.norm_bias = mlp != MlpKind::Gelu;
        block.mlp_bias = mlp != MlpKind::GeluTanh;
        block.qkv_bias = parallel != Parallel::None;
        block.output_bias = norm == NormKind::Layer;
        block.head_scale = mlp == MlpKind::Relu ? 0.25 : 1;
        styles.push_back(block);
      }
  for (const BlockStyle& block : styles)
    for (const bool tied : {true, false}) {
      ModelConfig config = config_with(block, "none");
      config.tie_head = tied;
      const Decoder model = shaken(config);
      const at::Tensor found = logits_of(model).to(at::kDouble), wanted = plain_logits(model);
      EXPECT_LE((found - wanted).abs().max().item<double>(), 2e-5 * wanted.abs().max().item<double>())
          << json_text(model_to_json(config));
    }
}

TEST(Block, FilesKeepIt) {
  const TestFolder folder;
  const ModelConfig config = config_with(everything());
  const ModelConfig again = model_from_json(model_to_json(config), "m.json");
  EXPECT_EQ(again.block, config.block);
  EXPECT_FALSE(model_to_json(config_with({})).contains("norm"));  // Llama's blocks need no words
  const Decoder model = shaken(config);
  save_checkpoint(folder / "m", model, "bytes");
  EXPECT_TRUE(at::equal(logits_of(load_checkpoint(folder / "m").model), logits_of(model)));
  EXPECT_TRUE(contains(hugging_face_obstacle(config), "norm=\"rms\", not \"layer\""));
  const auto refused = [](const Json& json, const char* part) {
    const std::string message = message_of<UsageError>([&] { model_from_json(json, "m.json"); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  refused({{"norm", "batch"}}, "rms, layer");
  refused({{"mlp", "swish"}}, "swiglu, gelu, gelu_tanh, relu, geglu, geglu_tanh");
  refused({{"head_scale", 0}}, "head_scale");
  refused({{"parallel", "two"}}, "none, one_norm, two_norms");
  refused({{"qkv_bias", 1}}, "qkv_bias");
  refused({{"attention_scale", -1}}, "attention_scale");
}

TEST(Block, ConversionsTakeConstantsAlong) {
  BlockStyle block;
  block.qkv_bias = true;
  const Decoder model = shaken(config_with(block));
  const Converted converted = convert_model(model, "rope(layout=interleaved)");
  EXPECT_LE((logits_of(converted.model) - logits_of(model)).abs().max().item<double>(), 1e-5);
  const Converted back = convert_model(converted.model, "rope");
  for (std::size_t i = 0; i < model.parameters().size(); ++i)
    EXPECT_TRUE(at::equal(back.model.parameters()[i].tensor, model.parameters()[i].tensor))
        << model.parameters()[i].name;
}

TEST(Block, CachesAreExact) {
  const at::NoGradGuard no_grad;
  for (const Parallel parallel : {Parallel::None, Parallel::OneNorm, Parallel::TwoNorms}) {
    BlockStyle block = everything();
    block.parallel = parallel;
    const Decoder model = shaken(config_with(block, "alibi"));
    const at::Tensor full = logits_of(model);
    KvCache cache = model.make_cache(1, 12);
    for (std::int64_t t = 0; t < 12; ++t) {
      TokenBatch one;
      one.tokens = tokens().narrow(1, t, 1);
      EXPECT_LE((model.logits(model.hidden(one, &cache)) - full.narrow(1, t, 1)).abs().max().item<double>(), 1e-4);
    }
  }
}

}  // namespace
}  // namespace torsor
