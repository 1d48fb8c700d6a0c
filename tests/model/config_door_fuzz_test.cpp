// The doors behind config_fuzz_test.cpp: whether the registry has the encoding for such a model. With libtorch, so not
// under the sanitizers of make test.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/config_seeds.h"
#include "torsor/encoding/registry.h"
#include "torsor/model/checkpoint_config.h"
#include "torsor/model/hugging_face.h"
#include "torsor/model/hugging_face_encoder.h"
#include "torsor/model/hugging_face_t5.h"
#include "torsor/model/stored_encoding.h"

namespace torsor {
namespace {

using testing::fuzz_configs;

/// Makes what was read, and asks it what a door would.
void use(const ModelConfig& config) {
  const auto encoding = make_encoding(config.encoding, config.dimensions());
  EXPECT_EQ(encoding->expression(), config.encoding);
  const Traits traits = encoding->traits();
  EXPECT_EQ(traits.axes, 1) << config.encoding;  // no key asks for more
  const auto rotation = layer_encoding(encoding, 0)->rotation(1, {});
  if (!rotation) return;
  EXPECT_TRUE(rotation->width >= 2 && rotation->offset + rotation->width <= config.head_dim) << config.encoding;
  EXPECT_TRUE(std::isfinite(rotation->magnitude)) << config.encoding;
  for (const std::vector<double>& row : rotation->inv_freq)
    for (const double one : row) EXPECT_TRUE(one >= 0 && std::isfinite(one)) << config.encoding << ": " << one;
}

TEST(ConfigDoorFuzz, MutatedFilesOfHuggingFace) {
  std::vector<Json> seeds = testing::decoder_configs();
  for (const std::vector<Json>& more : {testing::t5_configs(), testing::encoder_configs()})
    seeds.insert(seeds.end(), more.begin(), more.end());
  fuzz_configs("config.json with its encoding", seeds, [](const Json& json, const char* source, bool) {
    if (is_hugging_face_t5(json)) {
      const HuggingFaceT5 model = read_hugging_face_t5(json, source);
      use(model.config.encoder), use(model.config.decoder);
    } else if (is_hugging_face_encoder(json)) {
      use(read_hugging_face_encoder(json, source).config.model);
    } else {
      use(read_hugging_face(json, source).config);
    }
  });
}

TEST(ConfigDoorFuzz, MutatedDecodersOfThisProject) {
  std::vector<Json> seeds = testing::own_configs();
  seeds.resize(3);
  fuzz_configs("a checkpoint's config.json with its encoding", seeds, [](const Json& json, const char* source, bool) {
    ModelConfig config = read_decoder_checkpoint(json, source).config;
    check_stored_encoding(config, source);
    EXPECT_EQ(make_encoding(config.encoding, config.dimensions())->expression(), config.encoding);
  });
}

}  // namespace
}  // namespace torsor
