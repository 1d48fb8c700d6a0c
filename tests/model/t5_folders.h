// Small models of T5 and its kin in transformers' form, made of random numbers.
#pragma once

#include <string>
#include <vector>

#include "tests/model/foreign_weights.h"
#include "torsor/base/json.h"

namespace torsor::testing::t5 {

constexpr std::int64_t kWidth = 24, kHeads = 3, kHead = 10, kInner = 36, kVocabulary = 41;
constexpr std::int64_t kReads = 2, kWrites = 3;  // layers

inline Json config_of(const std::string& type, const Json& more = nullptr) {
  Json config = {{"model_type", type},
                 {"vocab_size", kVocabulary},
                 {"d_model", kWidth},
                 {"d_kv", kHead},
                 {"d_ff", kInner},
                 {"num_layers", kReads},
                 {"num_decoder_layers", kWrites},
                 {"num_heads", kHeads},
                 {"relative_attention_num_buckets", 8},
                 {"relative_attention_max_distance", 20},
                 {"is_encoder_decoder", true},
                 {"pad_token_id", 0},
                 {"eos_token_id", 1},
                 {"decoder_start_token_id", 0}};
  if (!more.is_null()) config.update(more);
  return config;
}

inline ForeignWeights weights_of(const std::string& type, bool gated, bool own_head) {
  ForeignWeights w(7);
  w.add("shared.weight", {kVocabulary, kWidth}, 1);
  for (const bool writes : {false, true}) {
    const std::string stack = writes ? "decoder." : "encoder.";
    for (std::int64_t layer = 0; layer < (writes ? kWrites : kReads); ++layer) {
      const std::string block = str(stack, "block.", layer, ".layer.");
      const auto attention = [&](const std::string& name) {
        for (const char* part : {"q", "k", "v"}) w.linear(name + "." + part, kHeads * kHead, kWidth, false);
        w.linear(name + ".o", kWidth, kHeads * kHead, false);
      };
      attention(block + "0.SelfAttention");
      if (layer == 0 || type == "umt5")
        w.add(block + "0.SelfAttention.relative_attention_bias.weight", {8, kHeads}, 1.5);
      w.norm(block + "0.layer_norm", kWidth, false);
      if (writes) attention(block + "1.EncDecAttention"), w.norm(block + "1.layer_norm", kWidth, false);
      const std::string last = block + (writes ? "2." : "1.");
      for (const char* part : {"wi_0", "wi_1", "wi"})
        if (gated == (std::string(part) != "wi")) w.linear(last + "DenseReluDense." + part, kInner, kWidth, false);
      w.linear(last + "DenseReluDense.wo", kWidth, kInner, false);
      w.norm(last + "layer_norm", kWidth, false);
    }
    w.norm(stack + "final_layer_norm", kWidth, false);
  }
  if (own_head) w.add("lm_head.weight", {kVocabulary, kWidth}, 1);
  return w;
}

struct Kind {
  std::string type;
  Json more;
  bool gated, own_head, scaled;
};
inline const std::vector<Kind> kKinds = {
    {"t5", nullptr, false, false, true},
    {"t5", {{"feed_forward_proj", "gated-gelu"}, {"tie_word_embeddings", false}}, true, true, false},
    {"t5", {{"feed_forward_proj", "gated-gelu"}, {"scale_decoder_outputs", false}}, true, false, false},
    {"mt5", nullptr, true, true, false},
    {"umt5", nullptr, true, false, true},
};

}  // namespace torsor::testing::t5
