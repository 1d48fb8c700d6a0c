// Small valid config.json files of every kind that is read, what they are mutated with, and the loop that does it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "torsor/base/error.h"
#include "torsor/base/json.h"
#include "torsor/syntax/relations.h"

namespace torsor::testing {

/// One key a line, the comma before it, so that most lines can go or come without a fault of syntax.
inline std::string in_lines(const Json& object) {
  std::string text = "{\n";
  for (const auto& [key, value] : object.items())
    text += (text.size() > 2 ? "," : "") + json_text(Json(key)) + ": " +
            (value.is_object() && !value.empty() ? in_lines(value) : json_text(value) + "\n");
  return text + "}\n";
}

/// The decoders, every family and every kind of rotation.
inline std::vector<Json> decoder_configs() {
  const Json llama = {{"model_type", "llama"},        {"hidden_size", 16},        {"num_hidden_layers", 2},
                      {"num_attention_heads", 2},     {"num_key_value_heads", 1}, {"intermediate_size", 24},
                      {"rms_norm_eps", 1e-6},         {"vocab_size", 40},         {"eos_token_id", {2, 3}},
                      {"max_position_embeddings", 64}};
  const auto with = [](Json base, const Json& more) {
    base.update(more);
    return base;
  };
  const auto rotated = [&](const Json& rotation) { return with(llama, {{"rope_parameters", rotation}}); };
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}};
  return {
      with(llama, {{"rope_theta", 10000.0}, {"head_dim", 8}, {"attention_bias", true}, {"mlp_bias", false}}),
      with(llama, {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}, {"tie_word_embeddings", true}}),
      rotated({{"rope_type", "dynamic"}, {"rope_theta", 1e4}, {"factor", 2.0}}),
      rotated({{"rope_type", "yarn"},
               {"factor", 4.0},
               {"original_max_position_embeddings", 16},
               {"beta_fast", 32},
               {"beta_slow", 1},
               {"truncate", false},
               {"mscale", 0.7},
               {"mscale_all_dim", 1.0}}),
      rotated({{"rope_type", "yarn"}, {"original_max_position_embeddings", 16}, {"attention_factor", 1.5}}),
      rotated({{"rope_type", "longrope"},
               {"original_max_position_embeddings", 16},
               {"short_factor", {1, 1, 1.5, 2}},
               {"long_factor", {1, 2, 4, 8}}}),
      rotated({{"rope_type", "llama3"},
               {"factor", 8.0},
               {"low_freq_factor", 1.0},
               {"high_freq_factor", 4.0},
               {"original_max_position_embeddings", 16},
               {"rope_theta", 5e5}}),
      with(llama, {{"model_type", "mistral"}, {"sliding_window", 9}}),
      with(llama, {{"model_type", "phi3"}, {"partial_rotary_factor", 0.5}, {"sliding_window", nullptr}}),
      with(llama,
           {{"model_type", "qwen2"}, {"use_sliding_window", true}, {"sliding_window", 9}, {"max_window_layers", 1}}),
      with(llama, {{"model_type", "qwen3"},
                   {"use_sliding_window", true},
                   {"sliding_window", 9},
                   {"layer_types", {"full_attention", "sliding_attention"}}}),
      {{"model_type", "gpt2"},
       {"n_embd", 16},
       {"n_layer", 2},
       {"n_head", 2},
       {"n_inner", nullptr},
       {"n_positions", 32},
       {"vocab_size", 40},
       {"activation_function", "gelu_new"},
       {"scale_attn_weights", false}},
      {{"model_type", "gpt_neox"},
       {"hidden_size", 16},
       {"num_hidden_layers", 2},
       {"num_attention_heads", 2},
       {"intermediate_size", 24},
       {"vocab_size", 40},
       {"rope_parameters", plain}},
      {{"model_type", "gpt_neox"},
       {"hidden_size", 16},
       {"num_hidden_layers", 2},
       {"num_attention_heads", 2},
       {"intermediate_size", 24},
       {"vocab_size", 40},
       {"rotary_pct", 0.25},
       {"rotary_emb_base", 10000},
       {"use_parallel_residual", false}},
      {{"model_type", "bloom"}, {"hidden_size", 16}, {"n_layer", 2}, {"n_head", 2}, {"vocab_size", 40}},
      {{"model_type", "mpt"},
       {"d_model", 16},
       {"n_layers", 2},
       {"n_heads", 2},
       {"vocab_size", 40},
       {"max_seq_len", 32},
       {"learned_pos_emb", true},
       {"attn_config", {{"alibi", true}, {"alibi_bias_max", 6}, {"softmax_scale", 0.3}, {"clip_qkv", nullptr}}}},
      {{"model_type", "falcon"},
       {"hidden_size", 16},
       {"num_hidden_layers", 2},
       {"num_attention_heads", 4},
       {"num_kv_heads", 2},
       {"new_decoder_architecture", true},
       {"num_ln_in_parallel_attn", 1},
       {"rope_theta", 10000.0},
       {"vocab_size", 40}},
      {{"model_type", "falcon"},
       {"hidden_size", 16},
       {"n_layer", 2},
       {"n_head", 4},
       {"multi_query", false},
       {"alibi", true},
       {"parallel_attn", false},
       {"bias", true},
       {"vocab_size", 40}},
  };
}

inline std::vector<Json> t5_configs() {
  const Json t5 = {{"model_type", "t5"},
                   {"is_encoder_decoder", true},
                   {"vocab_size", 40},
                   {"d_model", 16},
                   {"num_heads", 2},
                   {"d_kv", 8},
                   {"d_ff", 24},
                   {"num_layers", 2},
                   {"num_decoder_layers", 3},
                   {"layer_norm_epsilon", 1e-6},
                   {"feed_forward_proj", "relu"},
                   {"relative_attention_num_buckets", 32},
                   {"relative_attention_max_distance", 128},
                   {"pad_token_id", 0},
                   {"decoder_start_token_id", 0},
                   {"eos_token_id", 1}};
  Json mt5 = t5, umt5 = t5;
  mt5["model_type"] = "mt5", mt5["feed_forward_proj"] = "gated-gelu", mt5["tie_word_embeddings"] = false;
  umt5["model_type"] = "umt5", umt5["scale_decoder_outputs"] = true, umt5.erase("decoder_start_token_id");
  return {t5, mt5, umt5};
}

inline std::vector<Json> encoder_configs() {
  const Json bert = {{"model_type", "bert"},
                     {"vocab_size", 40},
                     {"hidden_size", 16},
                     {"num_hidden_layers", 2},
                     {"num_attention_heads", 2},
                     {"intermediate_size", 24},
                     {"hidden_act", "gelu"},
                     {"hidden_dropout_prob", 0.1},
                     {"layer_norm_eps", 1e-12},
                     {"max_position_embeddings", 32},
                     {"type_vocab_size", 2},
                     {"pad_token_id", 1},
                     {"position_embedding_type", "absolute"}};
  Json roberta = bert, roformer = bert;
  roberta["model_type"] = "roberta";
  roformer["model_type"] = "roformer", roformer["embedding_size"] = 16, roformer["rotary_value"] = false;
  return {bert,
          roberta,
          roformer,
          {{"model_type", "distilbert"},
           {"vocab_size", 40},
           {"dim", 16},
           {"n_layers", 2},
           {"n_heads", 2},
           {"hidden_dim", 24},
           {"activation", "relu"},
           {"dropout", 0.2},
           {"sinusoidal_pos_embds", false},
           {"max_position_embeddings", 32}}};
}

/// This project's own: decoders, encoders, models of two stacks.
inline std::vector<Json> own_configs() {
  const Json model = {{"width", 16},       {"layers", 2},      {"heads", 2},       {"kv_heads", 1},
                      {"head_dim", 8},     {"mlp_width", 24},  {"tie_head", true}, {"qk_norm", "before"},
                      {"norm_eps", 1e-5},  {"window", {0, 9}}, {"kv_shift", true}, {"decay_positions", false},
                      {"tag_heads", true}, {"precision", "hf"}};
  const Json other = {{"width", 16},
                      {"layers", 2},
                      {"heads", 2},
                      {"norm", "layer"},
                      {"norm_bias", false},
                      {"mlp", "geglu"},
                      {"parallel", "one_norm"},
                      {"qkv_bias", true},
                      {"attention_scale", 0.5},
                      {"head_scale", 0.25},
                      {"window", 0}};
  const Json format = {{"format", "torsor-checkpoint-1"}};
  const auto with = [](Json base, const Json& more) {
    base.update(more);
    return base;
  };
  const Json decoder = with(format, {{"encoding", "yarn(rope, factor=4)"},
                                     {"model", model},
                                     {"vocabulary_size", 40},
                                     {"train_length", 64},
                                     {"tokenizer", "tokens"}});
  const Json encoder = {{"kind", "encoder"},   {"width", 16},          {"layers", 2},         {"heads", 2},
                        {"norm", "pre"},       {"dropout", 0.1},       {"segments", 2},       {"tag_heads", true},
                        {"token_head", false}, {"activation", "relu"}, {"byte_tokens", false}};
  const Json stack = {
      {"encoding", "t5"}, {"train_length", 64}, {"model", {{"width", 16}, {"layers", 2}, {"heads", 2}}}};
  return {decoder, with(decoder, {{"model", other}, {"encoding", "heads(alibi * 1, none * 1) + logn"}}),
          with(decoder, {{"model_type", "llama"},
                         {"structure_embedder", {{"sha256", "ab"}, {"relations", syntax::kRelations}}}}),
          with(format, {{"kind", "encoder"},
                        {"encoding", "learned"},
                        {"model", encoder},
                        {"vocabulary_size", 40},
                        {"train_length", 64},
                        {"tokenizer", "tokens"},
                        {"labels", 3},
                        {"task", {{"name", "x"}}}}),
          with(format, {{"kind", "encoder-decoder"},
                        {"encoder", stack},
                        {"decoder", stack},
                        {"vocabulary_size", 40},
                        {"start_token", 0},
                        {"end_tokens", {1, 2}},
                        {"tokenizer", "tokens"}})};
}

/// Keys about positions that no family has: whoever reads a file with one would read it wrongly.
inline const std::vector<std::string> kForeignPositions = {"rope_new",       "RotaryScale",   "x_alibi_y",
                                                           "max_Position_2", "local_sliding", "chunk_window"};

/// Mutations of configurations.
inline fuzz::Material config_material(const std::vector<Json>& configs) {
  fuzz::Material material;
  for (const Json& config : configs) material.seeds.push_back(in_lines(config));
  material.pieces = fuzz::hostile_pieces();
  material.pieces.insert(material.pieces.end(), {"{", "}", "]", ",", ": ", "\"a\"", ",\"a\": 1\n", "[1]", "e9"});
  material.values = {"0",
                     "-1",
                     "1",
                     "2",
                     "3",
                     "7",
                     "1.5",
                     "-0.0",
                     "1e-320",
                     "1e308",
                     "-1e308",
                     "16384",
                     "16385",
                     "1048576",
                     "1048577",
                     "4294967296",
                     "1099511627777",
                     "9007199254740993",
                     "9223372036854775807",
                     "-9223372036854775808",
                     "18446744073709551615",
                     "2305843009213693952",
                     "null",
                     "true",
                     "false",
                     "\"\"",
                     "\"x\"",
                     "\"\\u0000\\n\"",
                     "\"rope(base=1e308) + none\"",
                     "\"gelu\"",
                     "[]",
                     "[2]",
                     "[1, 1, 1, 1]",
                     "[9223372036854775807, -1]",
                     "[null]",
                     "{}",
                     "{\"factor\": 1e308}",
                     std::string(40, '[') + std::string(40, ']'),
                     std::string(80, '[') + std::string(80, ']')};
  for (const std::string& key : kForeignPositions) material.lines.push_back(",\"" + key + "\": 1\n");
  for (const char* line : {"sliding_window", "rope_theta", "rope_scaling", "head_dim", "factor", "num_hidden_layers",
                           "n_head", "width", "partial_rotary_factor", "layer_types", "eos_token_id", "mlp_width",
                           "kind", "original_max_position_embeddings"})
    for (const char* value : {"8", "0.001", "9223372036854775807", "[\"full_attention\", \"sliding_attention\"]",
                              "{\"rope_type\": \"yarn\"}"})
      material.lines.push_back(std::string(",\"") + line + "\": " + value + "\n");
  return material;
}

/// Feeds every mutated input to `read(json, source, dear)`, which returns for a configuration and throws else: an Error
/// of one line that names the file. `dear` is true for each eighth input, of which more is asked.
template <class Read>
void fuzz_configs(const char* name, const std::vector<Json>& seeds, Read read) {
  for (const Json& seed : seeds) read(parse_json(in_lines(seed), "seed"), "seed", true);
  fuzz::Run run(name, config_material(seeds));
  std::size_t whole = 0;
  while (run.next()) {
    bool past = true;
    try {
      read(parse_json(run.input(), "fuzz"), "fuzz", run.every(8));
      ++whole;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.starts_with("fuzz:")) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_EQ(dynamic_cast<const UsageError*>(&error), nullptr) << "a file is no request: " << message;
      // "fuzz:LINE:COLUMN: " is said of the syntax.
      past = !(message[5] >= '0' && message[5] <= '9') && message.find("\"model_type\"") == std::string::npos;
    }
    run.count(past);
  }
  run.report(0.2);
  std::cout << name << ": " << whole << " were read\n";
}

}  // namespace torsor::testing
