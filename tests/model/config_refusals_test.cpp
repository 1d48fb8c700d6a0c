// What a config.json may not say: numbers that are no sizes, keys that contradict each other, words of another type.
// Each of these was once taken, overflowed or asked for memory without end.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/base/test_folder.h"
#include "tests/model/config_seeds.h"
#include "torsor/model/checkpoint_config.h"
#include "torsor/model/hugging_face_config.h"
#include "torsor/model/hugging_face_encoder_config.h"
#include "torsor/model/hugging_face_t5_config.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

/// The first seed of a family, with changes.
Json decoder(const std::string& family, const Json& more) {
  for (Json config : testing::decoder_configs()) {
    if (config.at("model_type") != Json(family)) continue;
    config.update(more);
    return config;
  }
  throw Error("no such family: " + family);
}

void refused(const std::string& family, const Json& more, const std::vector<std::string>& parts) {
  const std::string message = message_of<Error>([&] { describe_hugging_face(decoder(family, more), "config.json"); });
  EXPECT_TRUE(message.starts_with("config.json")) << message;
  for (const std::string& part : parts)
    EXPECT_TRUE(contains(message, part)) << family << " " << json_text(more) << ": " << message;
}

TEST(ConfigRefusals, SizesOutOfRange) {
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, kMost, kLeast, SizeLimits::kSize + 1}) {
    const std::string found = "found " + std::to_string(value);
    for (const char* key :
         {"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"})
      refused("llama", {{key, value}}, {key, found});
    refused("gpt2", {{"n_embd", value}}, {"n_embd", found});  // four times as wide inside
    refused("gpt2", {{"n_inner", value}}, {"n_inner", found});
    refused("bloom", {{"hidden_size", value}}, {"hidden_size", found});
    refused("mpt", {{"d_model", value}}, {"d_model", found});
    refused("falcon", {{"hidden_size", value}}, {"hidden_size", found});
    refused("falcon", {{"num_kv_heads", value}}, {"num_kv_heads", found});
  }
  // A window was listed for every layer of Qwen before the layers had been counted.
  for (const std::int64_t value : {std::int64_t{0}, kMost, kLeast, SizeLimits::kLayers + 1})
    refused("qwen2", {{"num_hidden_layers", value}}, {"num_hidden_layers", std::to_string(value)});
  for (const std::int64_t value : {std::int64_t{0}, kMost, kLeast, SizeLimits::kLength + 1}) {
    refused("llama", {{"max_position_embeddings", value}}, {"max_position_embeddings"});
    refused("mistral", {{"sliding_window", value}}, {"sliding_window"});
    refused("qwen2", {{"sliding_window", value}}, {value < 1 ? "sliding_window" : "window must"});
    refused("gpt2", {{"n_positions", value}}, {"n_positions"});
    const Json yarn = {{"rope_type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", value}};
    refused("llama", {{"rope_scaling", yarn}}, {"rope_scaling", "original_max_position_embeddings"});
  }
  refused("llama", {{"vocab_size", SizeLimits::kVocabulary + 1}}, {"vocab_size"});
  refused("llama", {{"vocab_size", 18446744073709551615ULL}}, {"vocab_size"});
  for (const double eps : {0.0, -1e-6, 1.5, 1e308}) refused("llama", {{"rms_norm_eps", eps}}, {"norm_eps"});
  // The largest that there are pass.
  const ModelConfig large = describe_hugging_face(decoder("llama", {{"num_hidden_layers", SizeLimits::kLayers},
                                                                    {"hidden_size", SizeLimits::kSize},
                                                                    {"head_dim", nullptr},
                                                                    {"max_position_embeddings", SizeLimits::kLength},
                                                                    {"vocab_size", SizeLimits::kVocabulary}}),
                                                  "x")
                                .config;
  EXPECT_EQ(large.head_dim, SizeLimits::kSize / 2);
  EXPECT_EQ(large.train_length, SizeLimits::kLength);
}

TEST(ConfigRefusals, KeysThatContradict) {
  refused("bloom", {{"n_embed", 32}}, {"'hidden_size' is 16", "'n_embed'", "32"});
  refused("bloom", {{"num_hidden_layers", 3}}, {"'n_layer' is 2", "num_hidden_layers"});
  refused("falcon", {{"n_head", 2}}, {"'num_attention_heads' is 4", "n_head"});
  EXPECT_EQ(describe_hugging_face(decoder("bloom", {{"n_embed", 16}}), "x").config.width, 16);
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.0}}, plain = {{"rope_type", "default"}};
  refused("llama", {{"rope_scaling", linear}, {"rope_parameters", plain}}, {"rope_scaling", "rope_parameters"});
  EXPECT_EQ(describe_hugging_face(decoder("llama", {{"rope_scaling", linear}, {"rope_parameters", linear}}), "x")
                .config.encoding,
            "linear(rope(base=10000), factor=2)");
  refused("gpt_neox", {{"num_attention_heads", 3}}, {"16", "divide", "3 heads"});
  refused("falcon", {{"hidden_size", 18}, {"ffn_hidden_size", 72}}, {"18", "divide"});
}

TEST(ConfigRefusals, ValuesThatMeanSomethingElse) {
  // So small a part turned the whole head: no channels is how an expression says all of them.
  refused("gpt_neox", {{"rope_parameters", {{"partial_rotary_factor", 0.01}}}}, {"partial_rotary_factor", "none"});
  for (const double part : {0.0, -0.5, 1.5})
    refused("gpt_neox", {{"rope_parameters", {{"partial_rotary_factor", part}}}}, {"partial_rotary_factor", "(0, 1]"});
  // 0 was taken for "not given", where it makes all keys alike.
  for (const double scale : {0.0, -0.0, -1.0})
    refused("mpt", {{"attn_config", {{"softmax_scale", scale}}}}, {"attn_config", "softmax_scale"});
  EXPECT_EQ(describe_hugging_face(decoder("mpt", {{"attn_config", {{"softmax_scale", 0.25}}}}), "x")
                .config.block.attention_scale,
            0.25);
  for (const int norms : {0, 3, -2}) refused("falcon", {{"num_ln_in_parallel_attn", norms}}, {"num_ln_in_parallel"});
  const auto mscale = [](double one, double all, double factor = 4) {
    return Json{{"rope_parameters",
                 {{"rope_type", "yarn"},
                  {"factor", factor},
                  {"original_max_position_embeddings", 16},
                  {"mscale", one},
                  {"mscale_all_dim", all}}}};
  };
  refused("llama", mscale(1e308, 1, 1e308), {"mscale", "factor inf"});
  refused("llama", mscale(-100, 1), {"mscale", "factor -"});
  refused("llama", mscale(1, -1 / (0.1 * std::log(4.0))), {"mscale"});
}

// Whatever stands in the file, a message is one short line.
TEST(ConfigRefusals, MessagesAreShortLines) {
  const Json longest = std::string(100000, 'x') + "\n\x1b[31m", list = std::vector<std::string>(30000, "7");
  const auto is_short = [](const std::string& message) {
    EXPECT_LT(message.size(), 400u) << message.substr(0, 400);
    for (const char c : message) EXPECT_TRUE(c >= 32) << message;
  };
  for (const Json& value : {longest, list}) {
    for (const char* key : {"hidden_size", "rope_scaling", "hidden_act", "eos_token_id"})
      is_short(message_of<Error>([&] { describe_hugging_face(decoder("llama", {{key, value}}), "config.json"); }));
    is_short(message_of<Error>([&] { describe_hugging_face(decoder("bloom", {{"n_embed", value}}), "x"); }));
    is_short(message_of<Error>([&] { describe_hugging_face({{"model_type", value}}, "x"); }));
    Json own = testing::own_configs().front();
    own["format"] = value;
    is_short(message_of<Error>([&] { read_decoder_checkpoint(own, "x"); }));
    for (const char* key : {"norm", "mlp", "parallel", "qk_norm", "precision", "kind", "width"}) {
      own = testing::own_configs().front();
      own["model"][key] = value;
      is_short(message_of<Error>([&] { read_decoder_checkpoint(own, "x"); }));
    }
    own = testing::own_configs()[3];
    own["model"]["norm"] = value;
    is_short(message_of<Error>([&] { read_encoder_checkpoint(own, "x"); }));
  }
}

TEST(ConfigRefusals, TokensOfTheEnd) {
  const auto end = [](const Json& value) {
    return describe_hugging_face(decoder("llama", {{"eos_token_id", value}}), "config.json").end_tokens;
  };
  EXPECT_EQ(end({5, 39, 7}), (std::vector<std::int64_t>{5, 39, 7}));
  EXPECT_EQ(end(3), std::vector<std::int64_t>{3});
  EXPECT_TRUE(end(nullptr).empty());
  // The default of a family in a model of few tokens: it ends nothing.
  EXPECT_EQ(end({50256, 40, -1, 2}), std::vector<std::int64_t>{2});
  for (const Json& value : {Json("</s>"), Json(1.5), Json(true), Json::parse("[2, null]"), Json::parse("[[2]]"),
                            Json::object(), Json(18446744073709551615ULL)})
    refused("llama", {{"eos_token_id", value}}, {"eos_token_id"});
}

TEST(ConfigRefusals, KeysAboutPositionsInAnyLetters) {
  for (const std::string& key : testing::kForeignPositions) {
    for (const char* family : {"llama", "gpt2", "bloom", "mpt", "falcon"})
      refused(family, {{key, nullptr}}, {key, "positions"});
    for (Json config : testing::t5_configs()) {
      config[key] = 1;
      EXPECT_TRUE(contains(message_of<Error>([&] { describe_hugging_face_t5(config, "x"); }), key));
    }
    for (Json config : testing::encoder_configs()) {
      config[key] = 1;
      EXPECT_TRUE(contains(message_of<Error>([&] { describe_hugging_face_encoder(config, "x"); }), key));
    }
  }
}

TEST(ConfigRefusals, EncodersAndModelsOfTwoStacks) {
  const auto t5 = [](const Json& more, const char* part) {
    Json config = testing::t5_configs().front();
    config.update(more);
    const std::string message = message_of<Error>([&] { describe_hugging_face_t5(config, "x"); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  const auto encoder = [](const std::string& type, const Json& more, const char* part) {
    for (Json config : testing::encoder_configs()) {
      if (config.at("model_type") != Json(type)) continue;
      config.update(more);
      const std::string message = message_of<Error>([&] { describe_hugging_face_encoder(config, "x"); });
      EXPECT_TRUE(contains(message, part)) << message;
    }
  };
  for (const std::int64_t value : {std::int64_t{0}, kMost, kLeast}) {
    for (const char* key : {"d_model", "num_heads", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "vocab_size",
                            "relative_attention_num_buckets", "relative_attention_max_distance"})
      t5({{key, value}}, key);
    for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                            "max_position_embeddings", "type_vocab_size", "vocab_size"})
      encoder("bert", {{key, value}}, key);
    for (const char* key : {"dim", "n_layers", "n_heads", "hidden_dim"}) encoder("distilbert", {{key, value}}, key);
  }
  // The row behind the padding id is where positions begin.
  for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{40}, kMost})
    encoder("roberta", {{"pad_token_id", value}}, "pad_token_id");
  for (const double dropout : {-0.1, 1.0, 1e308}) encoder("bert", {{"hidden_dropout_prob", dropout}}, "dropout");
}

TEST(ConfigRefusals, OwnCheckpoints) {
  const std::vector<Json> seeds = testing::own_configs();
  const auto decoder_refused = [&](const Json& more, const char* part) {
    Json config = seeds[0];
    config.merge_patch(more);
    const std::string message = message_of<Error>([&] { read_decoder_checkpoint(config, "config.json"); });
    EXPECT_TRUE(message.starts_with("config.json: ") && contains(message, part)) << message;
    EXPECT_EQ(message.find("config.json", 5), std::string::npos) << message;  // named once
  };
  for (const std::int64_t value : {std::int64_t{-1}, kMost, kLeast, SizeLimits::kLength + 1}) {
    decoder_refused({{"train_length", value}}, "train_length");
    decoder_refused({{"model", {{"window", value}}}}, "window");
  }
  for (const std::int64_t value : {std::int64_t{0}, kMost, kLeast}) {
    decoder_refused({{"vocabulary_size", value}}, "vocabulary_size");
    for (const char* key : {"width", "layers", "heads"}) decoder_refused({{"model", {{key, value}}}}, key);
  }
  decoder_refused({{"model", {{"norm_eps", 2}}}}, "norm_eps");
  decoder_refused({{"model", {{"window", {1, 2, 3}}}}}, "window");
  decoder_refused({{"encoding", "rope("}}, "expected");
  decoder_refused({{"encoding", std::string(70000, 'a')}}, "65536");
  decoder_refused({{"tokenizer", 7}}, "tokenizer");
  decoder_refused({{"kind", "encoder"}}, "decoder");

  // The width of an encoder was read before its type had been looked at, and multiplied before its size had.
  for (const Json& value : {Json("wide"), Json(1.5), Json(kMost), Json(kLeast), Json(0), Json(true)}) {
    Json config = seeds[3];
    config["model"]["width"] = value;
    const std::string message = message_of<Error>([&] { read_encoder_checkpoint(config, "config.json"); });
    EXPECT_TRUE(message.starts_with("config.json: ") && contains(message, "width")) << message;
  }
  for (const auto& [key, value] : std::vector<std::pair<const char*, std::int64_t>>{
           {"labels", -1}, {"labels", kMost}, {"vocabulary_size", 0}, {"train_length", -5}}) {
    Json config = seeds[3];
    config[key] = value;
    EXPECT_TRUE(contains(message_of<Error>([&] { read_encoder_checkpoint(config, "x"); }), key));
  }
  Json two = seeds[4];
  two["end_tokens"] = {1, 40};
  EXPECT_TRUE(contains(message_of<Error>([&] { read_encoder_decoder_checkpoint(two, "x"); }), "end_tokens"));
  two = seeds[4];
  two["decoder"]["model"]["width"] = 32;
  EXPECT_TRUE(contains(message_of<Error>([&] { read_encoder_decoder_checkpoint(two, "x"); }), "width"));
  two = seeds[4];
  two["position"] = 1;
  EXPECT_TRUE(contains(message_of<Error>([&] { read_encoder_decoder_checkpoint(two, "x"); }), "position"));
}

// The width of the inner layer of an encoder's MLP is four times the width, unless it is told.
TEST(ConfigRefusals, AnEncoderKeepsItsInnerWidth) {
  const auto inner = [](const char* more) {
    return encoder_from_json(parse_json(std::string(R"({"kind": "encoder", "width": 32)") + more + "}", "m"), "m")
        .model.mlp_width;
  };
  EXPECT_EQ(inner(""), 128);
  EXPECT_EQ(inner(R"(, "mlp_width": null)"), 128);
  EXPECT_EQ(inner(R"(, "mlp_width": 48)"), 48);
}

}  // namespace
}  // namespace torsor
