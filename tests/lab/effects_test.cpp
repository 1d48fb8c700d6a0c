// What an encoding does to a logit by distance.
#include "torsor/lab/effects.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/lab/tiny_lab.h"

namespace torsor {
namespace {

using testing::edited_model;
using testing::tiny_config;

Json effect(const std::string& encoding, std::int64_t longest = 64) {
  return effect_of(Decoder(tiny_config(encoding), 0), longest);
}

TEST(LabEffects, DistancesRiseFromZeroToTheLongest) {
  for (const std::int64_t longest : {1, 2, 64, 2048}) {
    const auto distances = effect("alibi", longest).at("distances").get<std::vector<double>>();
    EXPECT_EQ(distances.front(), 0);
    EXPECT_EQ(distances[1], 1);
    EXPECT_EQ(distances.back(), static_cast<double>(longest));
    for (std::size_t n = 1; n < distances.size(); ++n) {
      EXPECT_LT(distances[n - 1], distances[n]);
      EXPECT_EQ(distances[n], std::round(distances[n]));
    }
    EXPECT_LE(distances.size(), 100u);
  }
}

TEST(LabEffects, AlibiIsItsStraightLines) {
  const Json json = effect("alibi");
  EXPECT_EQ(json.at("encoding"), "alibi");
  EXPECT_EQ(json.at("kind"), "bias");
  EXPECT_EQ(json.at("note"), "");
  ASSERT_EQ(json.at("per_head").size(), 2u);
  const double slopes[] = {1.0 / 16, 1.0 / 256};  // two heads: 2^-4 and 2^-8
  for (std::size_t head = 0; head < 2; ++head)
    for (std::size_t n = 0; n < json.at("distances").size(); ++n)
      EXPECT_EQ(json.at("per_head")[head][n].get<double>(), -slopes[head] * json.at("distances")[n].get<double>());
}

TEST(LabEffects, ATrainedTableIsShownWithItsPresentWeights) {
  const Decoder model =
      edited_model(tiny_config("t5(buckets=8, max_distance=16)"), 0, [](const std::string& name, at::Tensor& tensor) {
        if (name.find("t5.table") == std::string::npos) return;
        for (std::int64_t bucket = 0; bucket < 8; ++bucket)
          for (std::int64_t head = 0; head < 2; ++head) tensor[bucket][head] = static_cast<double>(10 * bucket + head);
      });
  const Json json = effect_of(model, 64);
  EXPECT_EQ(json.at("kind"), "bias");
  const auto distances = json.at("distances").get<std::vector<double>>();
  for (int head = 0; head < 2; ++head)
    for (std::size_t n = 0; n < distances.size(); ++n) {
      const double value = json.at("per_head")[static_cast<std::size_t>(head)][n].get<double>();
      if (distances[n] < 4) {
        EXPECT_EQ(value, 10 * distances[n] + head);  // half of the buckets are exact
      } else if (distances[n] >= 16) {
        EXPECT_EQ(value, 70 + head);  // the last one takes the rest
      }
    }
}

TEST(LabEffects, ARotationIsItsMeanCosine) {
  const Json json = effect("rope");
  EXPECT_EQ(json.at("kind"), "rotation");
  ASSERT_EQ(json.at("per_head").size(), 1u);
  for (std::size_t n = 0; n < json.at("distances").size(); ++n) {
    const double distance = json.at("distances")[n].get<double>();
    double mean = 0;
    for (int plane = 0; plane < 4; ++plane) mean += std::cos(distance * std::pow(10000.0, -plane / 4.0)) / 4;
    EXPECT_NEAR(json.at("per_head")[0][n].get<double>(), mean, 1e-12);
  }
  EXPECT_EQ(json.at("per_head")[0][0], 1.0);
}

TEST(LabEffects, AStateIsOfTheContent) {
  const Json json = effect("tape(rope)");
  EXPECT_EQ(json.at("kind"), "content");
  EXPECT_NE(json.at("note").get<std::string>().find("position state (B, 2, T, 8)"), std::string::npos) << json;
  EXPECT_TRUE(json.at("per_head").empty());
}

TEST(LabEffects, ASumShowsItsBiasAndSaysSo) {
  const Json json = effect("rope + alibi");
  EXPECT_EQ(json.at("kind"), "bias");
  EXPECT_NE(json.at("note"), "");
  EXPECT_EQ(json.at("per_head"), effect("alibi").at("per_head"));
}

TEST(LabEffects, WhatDependsOnContentIsDescribedNotInvented) {
  for (const char* encoding : {"cope", "txl"}) {
    const Json json = effect(encoding);
    EXPECT_EQ(json.at("kind"), "content") << encoding;
    EXPECT_NE(json.at("note"), "") << encoding;
    EXPECT_TRUE(json.at("per_head").empty()) << encoding;
    EXPECT_TRUE(json.at("distances").empty()) << encoding;
  }
}

TEST(LabEffects, WhatDoesNothingToALogitHasNoCurve) {
  for (const char* encoding : {"none", "learned", "sinusoidal"}) {
    const Json json = effect(encoding);
    EXPECT_EQ(json.at("kind"), "none") << encoding;
    EXPECT_TRUE(json.at("per_head").empty()) << encoding;
    EXPECT_EQ(json.at("note") == "", std::string(encoding) == "none") << encoding;
  }
}

TEST(LabEffects, PlainParametersAreRowMajorDoubles) {
  const at::Tensor tensor = at::arange(6, at::kFloat).view({3, 2}).transpose(0, 1);
  const PlainParameters plain = plain_parameters({{"table", tensor}});
  EXPECT_EQ(plain.at("table"), (std::vector<double>{0, 2, 4, 1, 3, 5}));
}

}  // namespace
}  // namespace torsor
