#include "torsor/encoding/bias/bucket.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "torsor/base/error.h"
#include "torsor/encoding/registry.h"

namespace torsor {
namespace {

using Far = Buckets::Far;

std::vector<std::int64_t> fast(const Buckets& rule, const std::vector<double>& distances) {
  const at::Tensor answer = bucket_of(rule, at::tensor(distances, at::kDouble));
  EXPECT_EQ(answer.scalar_type(), at::kLong);
  return {answer.const_data_ptr<std::int64_t>(), answer.const_data_ptr<std::int64_t>() + answer.numel()};
}

std::vector<std::int64_t> defined(const Buckets& rule, const std::vector<double>& distances) {
  const std::string far = rule.far == Far::Clamp ? "clamp" : rule.far == Far::Wrap ? "wrap" : "log";
  const auto encoding =
      make_encoding(str("t5(buckets=", rule.buckets, ", max_distance=", rule.max_distance,
                        ", bidirectional=", rule.bidirectional ? "true" : "false", ", far=", far, ")"),
                    {.heads = 1, .head_dim = 4});
  return encoding->buckets(distances);
}

void expect_both(const Buckets& rule, const std::vector<double>& distances, const std::vector<std::int64_t>& expected) {
  EXPECT_EQ(fast(rule, distances), expected);
  EXPECT_EQ(defined(rule, distances), expected);
}

TEST(Bucket, CausalValuesOfT5) {
  expect_both({}, {0, 1, 15, 16, 18, 19, 20, 21, 32, 64, 127, 128, 129, 5000, 1e15},
              {0, 1, 15, 16, 16, 17, 17, 18, 21, 26, 31, 31, 31, 31, 31});
}

TEST(Bucket, KeysAfterTheQueryShareBucketZeroWhenCausal) { expect_both({}, {-1, -7, -1e9}, {0, 0, 0}); }

TEST(Bucket, BidirectionalValuesOfT5) {
  const Buckets rule{.bidirectional = true};
  expect_both(rule, {-7, 7, -8, 8, -12, 12, -16, 16, -64, 64, -91, 91, 0},
              {23, 7, 24, 8, 25, 9, 26, 10, 30, 14, 31, 15, 0});
}

TEST(Bucket, NearestWholeDistanceHalvesToEven) {
  expect_both({}, {0.4, 0.5, 0.6, 1.5, 2.5, 3.5, 15.5, -0.4}, {0, 0, 1, 2, 2, 4, 16, 0});
  expect_both({.bidirectional = true}, {-0.5, -0.6, -1.5, -2.5, 2.5}, {0, 17, 18, 18, 2});
}

TEST(Bucket, WrapTakesDistancesModuloMaxDistance) {
  const Buckets rule{.buckets = 8, .max_distance = 16, .far = Far::Wrap};
  expect_both(rule, {0, 3, 15, 16, 17, 19, 31, 32, 160, 163, -5}, {0, 3, 7, 0, 1, 3, 7, 0, 0, 3, 0});
  const Buckets both{.buckets = 8, .max_distance = 16, .bidirectional = true, .far = Far::Wrap};
  expect_both(both, {16, -16, 17, -17, 15, -15}, {0, 4, 1, 5, 3, 7});
}

TEST(Bucket, LogTellsFarDistancesApart) {
  // e = 4 and four shared buckets up to 2^20: a bucket spans a factor (2^18)^(1/4) = 2^4.5.
  const Buckets rule{.buckets = 8, .max_distance = 16, .far = Far::Log};
  expect_both(rule, {3, 4, 90, 91, 2047, 2048, 46340, 46341, 1048576, 1e12}, {3, 4, 4, 5, 5, 6, 6, 7, 7, 7});
}

TEST(Bucket, ExactPowersAreNotLostToRounding) {
  // ln(8/4) / ln(128/4) * 5 is 1, and 0.9999999999999999 in float64.
  const Buckets rule{.buckets = 9, .max_distance = 128};
  expect_both(rule, {7, 8, 15, 16, 31, 32, 63, 64}, {4, 5, 5, 6, 6, 7, 7, 8});
  for (std::int64_t power = 1; power < 20; ++power) {
    // e = 1 and two shared buckets: the second begins at the root of max_distance.
    const Buckets halves{.buckets = 3, .max_distance = std::int64_t{1} << (2 * power)};
    const double middle = std::exp2(static_cast<double>(power));
    if (power <= 10) {
      expect_both(halves, {middle - 1, middle}, {1, 2});
    }
    EXPECT_EQ(fast(halves, {middle - 1, middle}), (std::vector<std::int64_t>{1, 2}));
  }
}

TEST(Bucket, EqualsTheFormulaInManySettings) {
  std::vector<double> distances;
  for (int n = 0; n < 5000; ++n) distances.push_back(n);
  for (const std::int64_t buckets : {8, 16, 20, 32, 40, 64, 100, 128, 160, 256, 320})
    for (const std::int64_t max_distance : {20, 64, 100, 128, 200, 256, 512, 1000, 1024, 2048}) {
      if (max_distance <= buckets / 2) continue;
      const Buckets rule{.buckets = buckets, .max_distance = max_distance};
      std::vector<std::int64_t> expected;
      const double e = static_cast<double>(buckets / 2);
      for (const double n : distances) {
        const double steps = std::log(n / e) / std::log(static_cast<double>(max_distance) / e);
        const auto far = static_cast<std::int64_t>(e + std::trunc(steps * (static_cast<double>(buckets) - e)));
        expected.push_back(n < e ? static_cast<std::int64_t>(n) : std::min(far, buckets - 1));
      }
      ASSERT_EQ(fast(rule, distances), expected) << buckets << " buckets to " << max_distance;
      ASSERT_EQ(defined(rule, distances), expected) << buckets << " buckets to " << max_distance;
    }
}

TEST(Bucket, DefinitionAndAnswerAgreeInOddSettings) {
  std::vector<double> distances;
  for (int n = -3000; n < 3000; ++n) distances.push_back(n * 0.75);
  for (const double far : {65535.0, 65536.0, 1048575.0, 1048576.0, 1e9, -1e9, 123456789.5}) distances.push_back(far);
  for (const Far far : {Far::Clamp, Far::Wrap, Far::Log})
    for (const bool both : {false, true})
      for (const std::int64_t buckets : {2, 3, 4, 5, 6, 7, 9, 12, 33, 256})
        for (const std::int64_t max_distance : {2, 3, 7, 20, 81, 129, 4096, 1048576}) {
          const Buckets rule{.buckets = buckets, .max_distance = max_distance, .bidirectional = both, .far = far};
          if (both && (buckets < 4 || buckets % 2 != 0)) continue;
          if (far != Far::Log && max_distance <= (both ? buckets / 4 : buckets / 2)) continue;
          ASSERT_EQ(fast(rule, distances), defined(rule, distances)) << buckets << ' ' << max_distance << ' ' << both;
        }
}

TEST(Bucket, BoundsAreAscendingWholeNumbersOnePerBucket) {
  const std::vector<double> bounds = bucket_bounds({});
  ASSERT_EQ(bounds.size(), 31u);
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    EXPECT_EQ(bounds[i], std::floor(bounds[i]));
    if (i > 0) {
      EXPECT_GE(bounds[i], bounds[i - 1]);
    }
  }
  EXPECT_EQ(bounds[15], 16);
  EXPECT_EQ(bounds[16], 19);
  EXPECT_EQ(bucket_bounds({.bidirectional = true}).size(), 15u);
}

TEST(Bucket, KeepsTheShape) {
  const at::Tensor strided = at::arange(24, at::kDouble).view({2, 3, 4}).transpose(0, 2);
  const at::Tensor answer = bucket_of({}, strided);
  EXPECT_EQ(answer.sizes(), strided.sizes());
  EXPECT_EQ((answer.index({3, 2, 1}).item<std::int64_t>()), 18);  // distance 23
  EXPECT_EQ(bucket_of({}, at::empty({2, 0, 4}, at::kDouble)).numel(), 0);
}

TEST(Bucket, RefusesRulesWithoutMeaning) {
  const auto message = [](const Buckets& rule) -> std::string {
    try {
      check_buckets(rule, "t5");
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.buckets = 2, .max_distance = 2}), "");
  EXPECT_EQ(message({.buckets = 13, .bidirectional = true}),
            "t5: buckets=13 must be even and at least 4 when bidirectional=true");
  EXPECT_EQ(message({.buckets = 2, .bidirectional = true}),
            "t5: buckets=2 must be even and at least 4 when bidirectional=true");
  EXPECT_EQ(message({.buckets = 1}), "t5: buckets=1 must be at least 2");
  EXPECT_EQ(message({.buckets = 32, .max_distance = 16}),
            "t5: max_distance=16 must be larger than 16, as the first 16 distances have buckets of their own");
  EXPECT_EQ(message({.buckets = 32, .max_distance = 17}), "");
  EXPECT_EQ(message({.buckets = 32, .max_distance = 16, .far = Far::Log}), "");
  EXPECT_NE(message({.buckets = 1 << 22, .max_distance = 16, .far = Far::Log}).find("no logarithmic half"),
            std::string::npos);
}

}  // namespace
}  // namespace torsor
