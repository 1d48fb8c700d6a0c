// Mutated config.json files, of Hugging Face transformers and of this project: whatever comes, the reader answers with
// one line that names the file or with a configuration that is whole. Nothing here needs libtorch, so that the
// sanitizers see it; config_door_fuzz_test.cpp asks the registry as well.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/config_seeds.h"
#include "torsor/encoding/expression.h"
#include "torsor/model/checkpoint_config.h"
#include "torsor/model/hugging_face_config.h"
#include "torsor/model/hugging_face_encoder_config.h"
#include "torsor/model/hugging_face_t5_config.h"

namespace torsor {
namespace {

using testing::fuzz_configs;

/// What every configuration that was read is.
void check(const ModelConfig& c) {
  EXPECT_TRUE(c.width >= 1 && c.width <= SizeLimits::kSize) << c.width;
  EXPECT_TRUE(c.layers >= 1 && c.layers <= SizeLimits::kLayers) << c.layers;
  EXPECT_TRUE(c.kv_heads >= 1 && c.heads <= SizeLimits::kSize && c.heads % c.kv_heads == 0) << c.heads;
  EXPECT_TRUE(c.head_dim >= 1 && c.head_dim <= SizeLimits::kSize) << c.head_dim;
  EXPECT_TRUE(c.mlp_width >= 1 && c.mlp_width <= SizeLimits::kSize) << c.mlp_width;
  EXPECT_TRUE(c.vocabulary_size >= 1 && c.vocabulary_size <= SizeLimits::kVocabulary) << c.vocabulary_size;
  EXPECT_TRUE(c.train_length >= 0 && c.train_length <= SizeLimits::kLength) << c.train_length;
  EXPECT_TRUE(c.norm_eps > 0 && c.norm_eps <= 1) << c.norm_eps;
  EXPECT_TRUE(c.window.size() <= 1 || c.window.size() == static_cast<std::size_t>(c.layers)) << c.window.size();
  for (const std::int64_t one : c.window) EXPECT_TRUE(one >= 0 && one <= SizeLimits::kLength) << one;
  EXPECT_TRUE(c.block.attention_scale >= 0 && std::isfinite(c.block.attention_scale));
  EXPECT_TRUE(c.block.head_scale > 0 && std::isfinite(c.block.head_scale));
  EXPECT_EQ(print(parse_grammar(c.encoding)), c.encoding);
  EXPECT_EQ(c.encoding.find("null"), std::string::npos) << c.encoding;   // what NaN would be written as
  EXPECT_EQ(c.encoding.find("dim=0"), std::string::npos) << c.encoding;  // the whole head, where none was meant
}

/// What was read says the same when it is written down and read again.
void check_again(const ModelConfig& config) {
  const Json json = model_to_json(config);
  EXPECT_EQ(model_to_json(model_from_json(parse_json(json_text(json), "again"), "again")), json);
}

TEST(ConfigFuzz, MutatedDecodersOfHuggingFace) {
  fuzz_configs("decoders' config.json", testing::decoder_configs(),
               [](const Json& json, const char* source, bool dear) {
                 const HuggingFaceModel model = describe_hugging_face(json, source);
                 check(model.config);
                 for (const std::int64_t token : model.end_tokens)
                   EXPECT_TRUE(token >= 0 && token < model.config.vocabulary_size) << token;
                 for (const std::string& key : testing::kForeignPositions) EXPECT_FALSE(json.contains(key)) << key;
                 for (const double slope : model.slopes) EXPECT_TRUE(slope > 0 && slope < 1) << slope;
                 if (dear) check_again(model.config);
               });
}

TEST(ConfigFuzz, MutatedEncoderDecodersOfHuggingFace) {
  fuzz_configs("T5's config.json", testing::t5_configs(), [](const Json& json, const char* source, bool dear) {
    if (!is_hugging_face_t5(json)) throw Error(std::string(source) + ": \"model_type\" is another");
    const HuggingFaceT5 model = describe_hugging_face_t5(json, source);
    for (const ModelConfig* one : {&model.config.encoder, &model.config.decoder}) {
      check(*one);
      if (dear) check_again(*one);
    }
    EXPECT_TRUE(model.config.decoder.cross_attention && !model.config.encoder.causal);
    EXPECT_TRUE(model.config.start_token >= 0 && model.config.start_token < model.config.decoder.vocabulary_size);
    for (const std::string& key : testing::kForeignPositions) EXPECT_FALSE(json.contains(key)) << key;
  });
}

TEST(ConfigFuzz, MutatedEncodersOfHuggingFace) {
  fuzz_configs("BERT's config.json", testing::encoder_configs(), [](const Json& json, const char* source, bool dear) {
    if (!is_hugging_face_encoder(json)) throw Error(std::string(source) + ": \"model_type\" is another");
    const HuggingFaceEncoder model = describe_hugging_face_encoder(json, source);
    const EncoderConfig& config = model.config;
    check(config.model);
    EXPECT_TRUE(config.dropout >= 0 && config.dropout < 1) << config.dropout;
    EXPECT_TRUE(config.segments >= 1 && config.segments <= 1024) << config.segments;
    EXPECT_TRUE(model.first_row >= 0 && model.first_row <= config.model.vocabulary_size) << model.first_row;
    EXPECT_GE(config.model.train_length, 1);
    for (const std::string& key : testing::kForeignPositions) EXPECT_FALSE(json.contains(key)) << key;
    if (dear) {
      const Json written = encoder_to_json(config);
      EXPECT_EQ(encoder_to_json(encoder_from_json(parse_json(json_text(written), "again"), "again")), written);
    }
  });
}

TEST(ConfigFuzz, MutatedCheckpointsOfThisProject) {
  fuzz_configs("checkpoints' config.json", testing::own_configs(), [](const Json& json, const char* source, bool dear) {
    const Json kind = json.is_object() && json.contains("kind") ? json.at("kind") : Json();
    if (is_encoder(json)) {
      const EncoderCheckpoint stored = read_encoder_checkpoint(json, source);
      check(stored.config.model);
      EXPECT_TRUE(stored.config.labels >= 0 && stored.config.labels <= 100000) << stored.config.labels;
      if (dear) {
        const Json written = encoder_to_json(stored.config);
        EXPECT_EQ(encoder_to_json(encoder_from_json(parse_json(json_text(written), "again"), "again")), written);
      }
    } else if (kind == Json(kEncoderDecoderKind)) {
      const EncoderDecoderCheckpoint stored = read_encoder_decoder_checkpoint(json, source);
      for (const ModelConfig* one : {&stored.config.encoder, &stored.config.decoder}) check(*one);
      for (const std::int64_t token : stored.config.end_tokens)
        EXPECT_TRUE(token >= 0 && token < stored.config.decoder.vocabulary_size) << token;
      EXPECT_EQ(stored.config.encoder.width, stored.config.decoder.width);
    } else {
      const DecoderCheckpoint stored = read_decoder_checkpoint(json, source);
      check(stored.config);
      if (dear) check_again(stored.config);
    }
  });
}

}  // namespace
}  // namespace torsor
