#include "torsor/model/hugging_face_names.h"

namespace torsor {

FamilyNames family_names(const std::string& family, Parallel parallel) {
  if (family == "gpt2")
    return {"transformer.",
            "h.",
            {{"wte", "model.embed_tokens"}, {"ln_f", "model.norm"}},
            {{"ln_1", "input_layernorm"},
             {"ln_2", "post_attention_layernorm"},
             {"attn.c_proj", "self_attn.o_proj"},
             {"mlp.c_fc", "mlp.up_proj"},
             {"mlp.c_proj", "mlp.down_proj"}},
            "attn.c_attn",
            nullptr,
            "wpe",
            true};
  if (family == "gpt_neox")
    return {"gpt_neox.",
            "layers.",
            {{"embed_in", "model.embed_tokens"}, {"final_layer_norm", "model.norm"}},
            {{"input_layernorm", "input_layernorm"},
             {"post_attention_layernorm", "post_attention_layernorm"},
             {"attention.dense", "self_attn.o_proj"},
             {"mlp.dense_h_to_4h", "mlp.up_proj"},
             {"mlp.dense_4h_to_h", "mlp.down_proj"}},
            "attention.query_key_value",
            nullptr,
            nullptr,
            false,
            "embed_out"};
  if (family == "bloom" || family == "falcon") {
    const bool two = family == "falcon" && parallel == Parallel::TwoNorms;
    return {"transformer.",
            "h.",
            {{"word_embeddings", "model.embed_tokens"},
             {"word_embeddings_layernorm", "model.embed_norm"},
             {"ln_f", "model.norm"}},
            {{two ? "ln_attn" : "input_layernorm", "input_layernorm"},
             {two ? "ln_mlp" : "post_attention_layernorm", "post_attention_layernorm"},
             {"self_attention.dense", "self_attn.o_proj"},
             {"mlp.dense_h_to_4h", "mlp.up_proj"},
             {"mlp.dense_4h_to_h", "mlp.down_proj"}},
            "self_attention.query_key_value"};
  }
  if (family == "mpt")
    return {"transformer.",
            "blocks.",
            {{"wte", "model.embed_tokens"}, {"norm_f", "model.norm"}},
            {{"norm_1", "input_layernorm"},
             {"norm_2", "post_attention_layernorm"},
             {"attn.out_proj", "self_attn.o_proj"},
             {"ffn.up_proj", "mlp.up_proj"},
             {"ffn.down_proj", "mlp.down_proj"}},
            "attn.Wqkv"};
  FamilyNames llama{"model.",
                    "layers.",
                    {{"embed_tokens", "model.embed_tokens"}, {"norm", "model.norm"}},
                    {{"input_layernorm", "input_layernorm"},
                     {"post_attention_layernorm", "post_attention_layernorm"},
                     {"self_attn.q_norm", "self_attn.q_norm"},
                     {"self_attn.k_norm", "self_attn.k_norm"},
                     {"self_attn.o_proj", "self_attn.o_proj"},
                     {"mlp.down_proj", "mlp.down_proj"}}};
  if (family == "phi3") {
    llama.fused = "self_attn.qkv_proj";
    llama.gate_up = "mlp.gate_up_proj";
    return llama;
  }
  for (const char* one : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"})
    llama.layer.push_back({one, one});
  return llama;
}

std::int64_t fused_row_count(const ModelConfig& config) {
  return (config.heads + 2 * config.kv_heads) * config.head_dim;
}

}  // namespace torsor
