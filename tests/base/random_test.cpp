#include "torsor/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "torsor/base/error.h"

namespace torsor {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The known answers of the Random123 distribution for philox4x32 with ten rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, FollowsTheCounter) {
  Random random(0, 0);
  EXPECT_EQ(random.next_uint32(), 0x6627e8d5u);
  EXPECT_EQ(random.next_uint32(), 0xe169c58du);
  EXPECT_EQ(random.next_uint64(), 0x9b00dbd8bc57ac4cu);
  EXPECT_EQ(random.next_uint32(), philox4x32({1, 0, 0, 0}, {0, 0})[0]);
  // Counter: block low, block high, stream low, stream high; key: seed low, seed high.
  EXPECT_EQ(Random(0x299f31d0a4093822, 0x0370734413198a2e).next_uint32(),
            philox4x32({0, 0, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0})[0]);
}

TEST(Random, SequencesAreTheStatelessFunctions) {
  Random words(7, 9);
  Random uniforms(7, 9);
  Random normals(7, 9);
  for (std::uint64_t i = 0; i < 101; ++i) {
    ASSERT_EQ(words.next_uint64(), random_at(7, 9, i));
    ASSERT_EQ(uniforms.uniform(), uniform_at(7, 9, i));
    ASSERT_EQ(normals.normal(), normal_at(7, 9, i));
  }
}

TEST(Random, AnOddWordDoesNotBreakTheSequence) {
  Random a(3, 4);
  Random b(3, 4);
  std::vector<std::uint32_t> words;
  for (int i = 0; i < 13; ++i) words.push_back(b.next_uint32());
  EXPECT_EQ(a.next_uint32(), words[0]);
  for (std::size_t i = 1; i < 13; i += 2) EXPECT_EQ(a.next_uint64(), std::uint64_t{words[i + 1]} << 32 | words[i]);
}

TEST(Random, SeedsAndStreamsDiffer) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 32, 1ull << 63}) {
    for (std::uint64_t stream : {0ull, 1ull, 1ull << 32, 1ull << 63}) seen.insert(Random(seed, stream).next_uint64());
  }
  EXPECT_EQ(seen.size(), 16u);
}

TEST(Random, UniformIsInTheHalfOpenInterval) {
  Random random(1);
  double sum = 0;
  double squares = 0;
  double least = 1;
  double most = 0;
  const int count = 200000;
  for (int i = 0; i < count; ++i) {
    const double u = random.uniform();
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    ASSERT_EQ(std::trunc(u * 0x1p53), u * 0x1p53);
    sum += u;
    squares += u * u;
    least = std::min(least, u);
    most = std::max(most, u);
  }
  EXPECT_NEAR(sum / count, 1.0 / 2, 0.003);      // 4.6 standard errors
  EXPECT_NEAR(squares / count, 1.0 / 3, 0.003);  // 4.5
  EXPECT_LT(least, 1e-4);
  EXPECT_GT(most, 1 - 1e-4);
}

// The functions behind normal() are our own, so that platforms agree: they must agree with the C library too.
TEST(Random, NormalIsBoxMullerToTheLastBits) {
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double u = (static_cast<double>(random_at(5, 6, 2 * i) >> 11) + 1) * 0x1p-53;
    const double turn = 2 * 3.14159265358979323846 * uniform_at(5, 6, 2 * i + 1);
    const double radius = std::sqrt(-2 * std::log(u));
    // 2 pi t is rounded here and not there: 5e-16 of angle, times the radius.
    ASSERT_NEAR(normal_at(5, 6, 2 * i), radius * std::cos(turn), 5e-15) << i;
    ASSERT_NEAR(normal_at(5, 6, 2 * i + 1), radius * std::sin(turn), 5e-15) << i;
  }
}

// Recorded here; another platform, compiler or flag must give the same bits.
TEST(Random, NormalBitsAreFixed) {
  const double expected[] = {0x1.b37647ab4a92p-1,  0x1.e6cabc762e3dcp+0, 0x1.68093b5025213p+0,  -0x1.253c60382b8a7p-1,
                             0x1.5d5f81c69d04ep-1, 0x1.39a38d678c97fp+0, -0x1.d1e5ff7faab82p-2, -0x1.1a6475d5fe1d9p+0};
  for (std::uint64_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(normal_at(2024, 11, i), expected[i]) << i;
}

TEST(Random, NormalHasItsMoments) {
  const int count = 400000;
  double sums[5] = {};
  double pairs = 0;
  double previous = 0;
  Random random(8, stream_of("moments"));
  for (int i = 0; i < count; ++i) {
    const double z = random.normal();
    ASSERT_LT(std::abs(z), 8.58);
    for (int k = 1; k <= 4; ++k) sums[k] += std::pow(z, k);
    pairs += z * previous;
    previous = z;
  }
  // Five standard errors: sqrt(var(z^k) / count) with variances 1, 2, 15, 96.
  EXPECT_NEAR(sums[1] / count, 0, 5 * std::sqrt(1.0 / count));
  EXPECT_NEAR(sums[2] / count, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(sums[3] / count, 0, 5 * std::sqrt(15.0 / count));
  EXPECT_NEAR(sums[4] / count, 3, 5 * std::sqrt(96.0 / count));
  EXPECT_NEAR(pairs / count, 0, 5 * std::sqrt(1.0 / count));
}

TEST(Random, AnotherDrawDropsTheSecondNormal) {
  Random random(1, 2);
  random.normal();  // block 0
  EXPECT_EQ(random.next_uint32(), philox4x32({1, 0, 2, 0}, {1, 0})[0]);
  EXPECT_EQ(random.normal(), normal_at(1, 2, 4));  // block 2: block 1 is begun
  EXPECT_EQ(random.normal(), normal_at(1, 2, 5));
}

TEST(FillNormal, ValuesDependOnTheirIndexAlone) {
  std::vector<float> whole(101);
  fill_normal(whole.data(), whole.size(), 0.5, 0.02, 3, 4);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i], static_cast<float>(std::fma(0.02, normal_at(3, 4, i), 0.5)));
  }
  for (std::size_t first : {0, 1, 2, 50, 99, 100}) {
    std::vector<float> part(whole.size() - first);
    fill_normal(part.data(), part.size(), 0.5, 0.02, 3, 4, first);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first))) << first;
  }
  float untouched = 7;
  fill_normal(&untouched, 0, 0, 1, 3, 4);
  EXPECT_EQ(untouched, 7);
  fill_normal(&untouched, 1, 2, 0, 3, 4);
  EXPECT_EQ(untouched, 2);
}

TEST(FillUniform, ValuesDependOnTheirIndexAlone) {
  std::vector<float> whole(33);
  fill_uniform(whole.data(), whole.size(), -2, 6, 3, 4);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i], static_cast<float>(-2 + 8 * uniform_at(3, 4, i)));
  }
  std::vector<float> part(3);
  fill_uniform(part.data(), 3, -2, 6, 3, 4, 17);
  EXPECT_EQ(part[2], whole[19]);
}

TEST(Below, IsUniformOnSmallBounds) {
  Random random(11);
  for (std::uint64_t bound : {1, 2, 3, 7, 10}) {
    std::map<std::uint64_t, int> counts;
    const int count = 20000;
    for (int i = 0; i < count; ++i) ++counts[random.below(bound)];
    ASSERT_EQ(counts.size(), bound);
    ASSERT_LT(counts.rbegin()->first, bound);
    double chi = 0;
    const double expected = static_cast<double>(count) / static_cast<double>(bound);
    for (const auto& [value, seen] : counts) chi += (seen - expected) * (seen - expected) / expected;
    EXPECT_LT(chi, 34) << bound;  // 0.01% of a chi-square with 9 degrees
  }
}

TEST(Below, RejectsTheUnevenRest) {
  // 3/4 of 2^64: without rejection the multiples of 4 and the rest would differ by a factor of two in frequency.
  const std::uint64_t bound = 3ull << 62;
  Random random(12);
  int parts[3] = {};
  int rest[3] = {};
  for (int i = 0; i < 30000; ++i) {
    const std::uint64_t value = random.below(bound);
    ASSERT_LT(value, bound);
    ++parts[value >> 62];
    ++rest[value % 3];
  }
  for (int part : parts) EXPECT_NEAR(part, 10000, 410);  // five standard deviations
  for (int part : rest) EXPECT_NEAR(part, 10000, 410);
  EXPECT_LT(random.below(~0ull), ~0ull);
  EXPECT_THROW(random.below(0), UsageError);
}

TEST(Shuffle, GivesEveryOrderEquallyOften) {
  Random random(13);
  std::map<std::vector<int>, int> orders;
  for (int i = 0; i < 12000; ++i) {
    std::vector<int> values{1, 2, 3};
    random.shuffle(values);
    ++orders[values];
  }
  ASSERT_EQ(orders.size(), 6u);
  for (const auto& [order, seen] : orders) EXPECT_NEAR(seen, 2000, 5 * std::sqrt(2000 * 5.0 / 6));
  std::vector<int> none;
  random.shuffle(none);
}

TEST(RandomState, ContinuesInTheMiddleOfEverything) {
  for (int words : {0, 1, 2, 3, 4, 5}) {
    for (int normals : {0, 1, 2}) {
      Random original(0xffffffffffffffff, 42);
      for (int i = 0; i < words; ++i) original.next_uint32();
      for (int i = 0; i < normals; ++i) original.normal();
      Random copy(0);
      copy.next_uint32();
      copy.restore(original.save());
      EXPECT_EQ(copy.seed(), 0xffffffffffffffff);
      EXPECT_EQ(copy.stream(), 42u);
      Random twin = original;
      EXPECT_EQ(copy.normal(), original.normal()) << words << ' ' << normals;
      EXPECT_EQ(copy.next_uint32(), original.next_uint32());
      copy.restore(twin.save());
      EXPECT_EQ(copy.next_uint64(), twin.next_uint64());
      EXPECT_EQ(copy.uniform(), twin.uniform());
    }
  }
  EXPECT_EQ(Random(1, 2).save(), "philox4x32-10 1 2 0 0");
}

TEST(RandomState, RefusesOtherLines) {
  Random random(5, 6);
  random.next_uint32();
  const std::string before = random.save();
  for (const char* line : {"", "philox4x32-10", "philox4x32-10 1 2 3", "philox4x32-7 1 2 3 0", "philox4x32-10 -1 2 3 0",
                           "philox4x32-10 1 2 3 2", "philox4x32-10 1 2 3 1", "philox4x32-10 1 2 0 1",
                           "philox4x32-10 1 2 3 0 ", "philox4x32-10 1  2 3 0", "philox4x32-10 01 2 3 0",
                           "philox4x32-10 18446744073709551616 2 3 0", "philox4x32-10 1 2 x 0"}) {
    EXPECT_THROW(random.restore(line), Error) << line;
  }
  EXPECT_EQ(random.save(), before);
  EXPECT_NO_THROW(random.restore("philox4x32-10 1 2 4 1"));
}

// The published test values of 64-bit FNV-1a.
TEST(StreamOf, IsFnv1a) {
  EXPECT_EQ(stream_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stream_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(stream_of("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace torsor
