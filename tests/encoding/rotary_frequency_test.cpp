// The numbers of the rotary encodings: frequencies, magnitudes, softmax factors, float32 tables bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/encoding/rotary_case.h"

namespace torsor::rotary_test {
namespace {

RotationInfo rotation(const std::string& expression, std::int64_t head_dim, double length = 1,
                      Precision precision = Precision::Exact) {
  const auto encoding =
      make_encoding(expression, {.heads = 4, .kv_heads = 2, .head_dim = head_dim, .precision = precision});
  return encoding->rotation(length, {}).value();
}

struct Wanted {
  std::size_t plane;
  double frequency;
};

void expect_frequencies(const RotationInfo& info, const std::vector<Wanted>& wanted) {
  ASSERT_EQ(info.inv_freq.size(), 1u);
  for (const Wanted& one : wanted) {
    ASSERT_LT(one.plane, info.inv_freq[0].size());
    EXPECT_NEAR(info.inv_freq[0][one.plane] / one.frequency, 1, 1e-8) << "plane " << one.plane;
  }
}

TEST(RotaryFrequencies, Plain) {
  expect_frequencies(rotation("rope", 64),
                     {{0, 1}, {1, .749894209}, {8, .1}, {16, .01}, {24, .001}, {31, 1.33352143e-4}});
}

TEST(RotaryFrequencies, Yarn) {
  const RotationInfo info = rotation("yarn(rope, factor=4, train_length=2048)", 64);
  expect_frequencies(info, {{8, .1}, {16, .00538461538}, {20, 9.73008511e-4}, {24, 2.5e-4}, {31, 3.33380358e-5}});
  EXPECT_NEAR(info.magnitude, 1.138629436, 1e-9);
  expect_frequencies(rotation("yarn(rope, factor=4, train_length=2048, truncate=false)", 64),
                     {{16, .00505697152}, {20, 8.11290382e-4}});
}

TEST(RotaryFrequencies, YarnOfQwen) {
  expect_frequencies(
      rotation("yarn(rope(base=1000000), factor=4, train_length=32768)", 128),
      {{23, .00697830585}, {24, .00537532149}, {30, .00106436098}, {39, 6.49039432e-5}, {63, 3.1023444e-7}});
}

TEST(RotaryFrequencies, YarnOfGptOss) {
  const RotationInfo info = rotation("yarn(rope(base=150000), factor=32, train_length=4096, truncate=false)", 64);
  expect_frequencies(
      info, {{8, .0508132748}, {9, .0317056962}, {12, .00679495949}, {17, 1.29318701e-4}, {18, 3.83088124e-5}});
  EXPECT_NEAR(info.magnitude, 1.346573590, 1e-9);
}

TEST(RotaryFrequencies, YarnOfDeepSeek) {
  const char* v3 = "yarn(rope, factor=40, train_length=4096, mscale=1, mscale_all_dim=1)";
  expect_frequencies(rotation(v3, 64), {{11, .0390069266}, {16, .0055}, {20, 7.90569415e-4}, {23, 3.33380358e-5}});
  EXPECT_EQ(rotation(v3, 64).magnitude, 1);
  EXPECT_NEAR(make_encoding(v3, {.head_dim = 64})->softmax_factor(), 1.873854207, 1e-9);
  const char* v2_lite = "yarn(rope, factor=40, train_length=4096, mscale=0.707, mscale_all_dim=0.707)";
  EXPECT_EQ(rotation(v2_lite, 64).magnitude, 1);
  EXPECT_NEAR(make_encoding(v2_lite, {.head_dim = 64})->softmax_factor(), 1.589626165, 1e-9);
}

TEST(RotaryFrequencies, Llama3) {
  expect_frequencies(rotation("llama3(rope(base=500000), factor=8)", 128), {{28, .00321144599},
                                                                            {29, .00216657076},
                                                                            {32, 5.24846161e-4},
                                                                            {34, 1.78507813e-4},
                                                                            {35, 9.55621235e-5},
                                                                            {63, 3.06892599e-7}});
  expect_frequencies(rotation("llama3(rope(base=500000), factor=32)", 64),
                     {{14, .00321144599}, {15, .00129054793}, {17, 9.7082878e-5}, {18, 1.94616382e-5}});
}

TEST(RotaryFrequencies, Ntk) {
  const double fastest_but_one = rotation("ntk(rope, factor=4)", 64).inv_freq[0][1];
  EXPECT_NEAR(std::pow(fastest_but_one, -32) / 41829.36592889948, 1, 1e-12);
  // The slowest plane is slowed by the factor exactly.
  EXPECT_NEAR(rotation("ntk(rope, factor=4)", 64).inv_freq[0][31] * 4 / rotation("rope", 64).inv_freq[0][31], 1, 1e-12);
}

TEST(RotaryFrequencies, Dynamic) {
  const char* expression = "dynamic(rope, factor=2, train_length=2048)";
  const auto base = [&](double length) { return std::pow(rotation(expression, 64, length).inv_freq[0][1], -32); };
  EXPECT_NEAR(base(2049) / 10010.0808039, 1, 1e-9);
  EXPECT_NEAR(base(4096) / 31082.2366672, 1, 1e-9);
  EXPECT_NEAR(base(8192) / 74534.8303181, 1, 1e-9);
}

// vllm-project/vllm#3488: short documents keep the plain frequencies, bit for bit, in both precisions.
TEST(RotaryFrequencies, DynamicLeavesShortDocumentsAlone) {
  for (const Precision precision : {Precision::Exact, Precision::HuggingFace})
    for (const double length : {0.0, 1.0, 2047.0, 2048.0})
      EXPECT_EQ(rotation("dynamic(rope, factor=1.7, train_length=2048)", 64, length, precision).inv_freq,
                rotation("rope", 64, length, precision).inv_freq);
  EXPECT_NE(rotation("dynamic(rope, factor=1.7, train_length=2048)", 64, 2049).inv_freq, rotation("rope", 64).inv_freq);
}

// huggingface/transformers#25104: phase of the key at 100 and the query at 4095, pair 16, with one base for both.
TEST(RotaryFrequencies, DynamicTurnsOldKeysWithTheNewBase) {
  const double now = rotation("dynamic(rope, factor=2, train_length=2048)", 64, 4096).inv_freq[0][16];
  const double before = rotation("dynamic(rope, factor=2, train_length=2048)", 64, 2048).inv_freq[0][16];
  EXPECT_NEAR(4095 * now - 100 * now, 22.6600, 5e-5);
  EXPECT_NEAR(4095 * now - 100 * before, 22.2272, 5e-5);  // what a cache of rotated keys would give
}

TEST(RotaryFrequencies, LongRope) {
  std::string lists = "short=[1, 1, 1, 1], long=[1, 2, 4, 8]";
  const auto make = [&](const std::string& rest, std::int64_t train_length = 0) {
    return make_encoding("longrope(rope, " + lists + rest, {.head_dim = 8, .train_length = train_length});
  };
  const auto given = make(", train_length=4096, factor=32)");
  EXPECT_NEAR(given->rotation(1, {})->magnitude, 1.1902380714238083, 1e-15);
  EXPECT_NEAR(given->rotation(5000, {})->magnitude, 1.1902380714238083, 1e-15);
  EXPECT_EQ(given->rotation(4096, {})->inv_freq, make_encoding("rope", {.head_dim = 8})->rotation(1, {})->inv_freq);
  EXPECT_NEAR(given->rotation(4097, {})->inv_freq[0][3], .001 / 8, 1e-18);
  // factor=auto: the model's length over train_length
  EXPECT_NEAR(make(", train_length=4096)", 131072)->rotation(1, {})->magnitude, 1.1902380714238083, 1e-15);
  EXPECT_EQ(make(")", 131072)->rotation(1, {})->magnitude, 1);
  EXPECT_EQ(make(", train_length=4096, attention_factor=1.5)")->rotation(1, {})->magnitude, 1.5);
  EXPECT_THROW(make(", train_length=4096)"), UsageError);
}

TEST(RotaryFrequencies, Proportional) {
  const RotationInfo info = rotation("rope(base=1000000, frequencies=proportional, fraction=0.25)", 512);
  ASSERT_EQ(info.inv_freq[0].size(), 256u);
  EXPECT_NEAR(info.inv_freq[0][63], .0333762469, 1e-10);
  for (std::size_t plane = 64; plane < 256; ++plane) EXPECT_EQ(info.inv_freq[0][plane], 0);
  const RotationInfo slowed =
      rotation("linear(rope(base=1000000, frequencies=proportional, fraction=0.25), factor=8)", 512);
  EXPECT_NEAR(slowed.inv_freq[0][63] * 8, .0333762469, 1e-10);
  EXPECT_EQ(slowed.inv_freq[0][64], 0);
}

// pytorch/torchtitan#3787: an attention factor of 1 is honoured, not taken for "not given".
TEST(RotaryFrequencies, AttentionFactorOfOne) {
  EXPECT_EQ(rotation("yarn(rope, factor=64, train_length=2048, attention_factor=1)", 64).magnitude, 1);
  EXPECT_NEAR(rotation("yarn(rope, factor=64, train_length=2048)", 64).magnitude, 1.4158883083359672, 1e-15);
  EXPECT_EQ(rotation("yarn(rope, factor=1, train_length=2048)", 64).magnitude, 1);
  // mscale without mscale_all_dim counts for nothing
  EXPECT_NEAR(rotation("yarn(rope, factor=64, train_length=2048, mscale=0.5)", 64).magnitude, 1.4158883083359672,
              1e-15);
}

TEST(RotaryFrequencies, LengthOfTheModelIsTheDefault) {
  const Dimensions model{.heads = 2, .head_dim = 64, .train_length = 2048};
  for (const char* name : {"yarn", "dynamic", "ntk-by-parts"}) {
    const std::string open = std::string(name) + "(rope, factor=4";
    EXPECT_EQ(make_encoding(open + ")", model)->rotation(9999, {})->inv_freq,
              make_encoding(open + ", train_length=2048)", {.head_dim = 64})->rotation(9999, {})->inv_freq);
    EXPECT_THROW(make_encoding(open + ")", {.head_dim = 64}), UsageError);
  }
}

TEST(RotaryFrequencies, BasesOfKeyHeadsAndAxesCarryOverToScalings) {
  for (const char* scaling : {"linear(", "yarn(", "llama3(", "ntk("}) {
    const std::string tail = std::string(scaling) == "yarn(" ? ", factor=4, train_length=256)" : ", factor=4)";
    const RotationInfo both = rotation(scaling + std::string("rope(base=[10000, 500])") + tail, 32);
    ASSERT_EQ(both.inv_freq.size(), 2u);
    EXPECT_EQ(both.inv_freq[0], rotation(scaling + std::string("rope(base=10000)") + tail, 32).inv_freq[0]);
    EXPECT_EQ(both.inv_freq[1], rotation(scaling + std::string("rope(base=500)") + tail, 32).inv_freq[0]);

    const RotationInfo axial = rotation(scaling + std::string("rope(axes=2, layout=interleaved)") + tail, 64);
    const std::vector<double> block = rotation(scaling + std::string("rope") + tail, 32).inv_freq[0];
    ASSERT_EQ(axial.inv_freq[0].size(), 32u);
    EXPECT_EQ(axial.blocks, 2);
    EXPECT_EQ(axial.layout, Layout::Interleaved);
    for (std::size_t plane = 0; plane < 32; ++plane) {
      EXPECT_EQ(axial.inv_freq[0][plane], block[plane % 16]);
      EXPECT_EQ(axial.axis[plane], plane < 16 ? 0 : 1);
    }
  }
}

TEST(RotaryFrequencies, Axes) {
  using Axes = std::vector<std::int64_t>;
  EXPECT_EQ(rotation("rope(axes=3, arrangement=contiguous, sections=[2, 3, 3])", 16).axis,
            (Axes{0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(rotation("rope(axes=3, arrangement=interleaved, sections=[4, 2, 2])", 16).axis,
            (Axes{0, 1, 2, 0, 1, 2, 0, 0}));
  const Axes long_one = rotation("rope(axes=3, arrangement=interleaved, sections=[24, 20, 20])", 128).axis;
  for (std::size_t plane = 0; plane < 64; ++plane)
    EXPECT_EQ(long_one[plane], plane < 60 ? static_cast<std::int64_t>(plane % 3) : 0);
  // The frequency index runs on.
  EXPECT_EQ(rotation("rope(axes=3, arrangement=interleaved, sections=[4, 2, 2])", 16).inv_freq,
            rotation("rope", 16).inv_freq);
}

TEST(RotaryFrequencies, Orientation) {
  const RotationInfo minus = rotation("rope(orientation=minus)", 8), plus = rotation("rope", 8);
  for (std::size_t plane = 0; plane < 4; ++plane) EXPECT_EQ(minus.inv_freq[0][plane], -plus.inv_freq[0][plane]);
}

TEST(RotaryFrequencies, Span) {
  const RotationInfo prefix = rotation("rope(dim=4)", 10), suffix = rotation("rope(dim=4, part=suffix)", 10);
  EXPECT_EQ(prefix.offset, 0);
  EXPECT_EQ(prefix.width, 4);
  EXPECT_EQ(suffix.offset, 6);
  EXPECT_EQ(suffix.inv_freq, rotation("rope", 4).inv_freq);
  EXPECT_EQ(rotation("rope(fraction=0.5)", 16).inv_freq, rotation("rope", 8).inv_freq);
}

// -------------------------------------------------------------------------------------------------------------------
// Precision hf: bits made with PyTorch's float32 operations in the order of transformers' modeling_rope_utils.

std::uint32_t bits(double value) {
  const float rounded = static_cast<float>(value);
  EXPECT_EQ(static_cast<double>(rounded), value);
  std::uint32_t result;
  std::memcpy(&result, &rounded, sizeof result);
  return result;
}

struct Bits {
  std::size_t plane;
  std::uint32_t bits;
};

void expect_bits(const std::string& expression, std::int64_t head_dim, double length, std::uint64_t sum,
                 const std::vector<Bits>& wanted) {
  SCOPED_TRACE(expression);
  const RotationInfo info = rotation(expression, head_dim, length, Precision::HuggingFace);
  std::uint64_t found = 0;
  for (std::size_t plane = 0; plane < info.inv_freq[0].size(); ++plane)
    found += (plane + 1) * bits(info.inv_freq[0][plane]);
  EXPECT_EQ(found, sum);
  for (const Bits& one : wanted) EXPECT_EQ(bits(info.inv_freq[0][one.plane]), one.bits) << "plane " << one.plane;
}

TEST(RotaryHuggingFace, FrequenciesBitForBit) {
  expect_bits("rope", 64, 1, 0x7a0f88378f,
              {{0, 0x3f800000}, {1, 0x3f3ff911}, {2, 0x3f0ff59a}, {3, 0x3ed7e89b}, {16, 0x3c23d70a}, {31, 0x390bd472}});
  expect_bits("rope(base=500000)", 128, 1, 0x1d13aef1435, {{1, 0x3f508ac1}, {29, 0x3b2b72dc}, {63, 0x3624c2ff}});
  expect_bits("linear(rope, factor=3)", 64, 1, 0x786cbec26d, {{0, 0x3eaaaaab}, {16, 0x3b5a740d}, {31, 0x383a7098}});
  expect_bits("dynamic(rope, factor=2, train_length=2048)", 64, 4096, 0x78f864a23c,
              {{1, 0x3f3949e8}, {16, 0x3bb9dd06}, {31, 0x383a7097}});
  expect_bits("dynamic(rope, factor=1.7, train_length=2048)", 64, 3001, 0x797b17c1ee,
              {{1, 0x3f3c65c1}, {16, 0x3bf28e51}, {31, 0x389c2441}});
  // Here a base made in float64 would give 25 other planes.
  expect_bits("dynamic(rope, factor=3.3, train_length=2048)", 64, 2678, 0x795dc649d2,
              {{1, 0x3f3baeb6}, {16, 0x3be43d26}, {31, 0x388ac791}});
  expect_bits("yarn(rope, factor=4, train_length=2048)", 64, 1, 0x789634a8a3,
              {{8, 0x3dcccccd}, {16, 0x3bb0716d}, {20, 0x3a7f1180}, {31, 0x380bd472}});
  expect_bits("yarn(rope(base=150000), factor=32, train_length=4096, truncate=false)", 64, 1, 0x7397c7d187,
              {{8, 0x3d502194}, {16, 0x39ef543c}, {31, 0x34a252d3}});
  expect_bits("llama3(rope(base=500000), factor=8)", 128, 1, 0x1c83b7d7378,
              {{29, 0x3b0dfd06}, {31, 0x3a60979e}, {32, 0x3a0995d2}, {35, 0x38c86886}, {63, 0x34a4c2ff}});
  expect_bits("longrope(rope, short=[1, 1, 1, 1], long=[1.5, 4, 9, 30], train_length=128, factor=32)", 8, 129,
              0x248a869f5, {{0, 0x3f2aaaab}, {1, 0x3ccccccd}, {2, 0x3a91a2b4}, {3, 0x380bcf65}});
  const RotationInfo gemma =
      rotation("rope(base=1000000, frequencies=proportional, fraction=0.25)", 512, 1, Precision::HuggingFace);
  EXPECT_EQ(bits(gemma.inv_freq[0][32]), 0x3e361887u);
  EXPECT_EQ(bits(gemma.inv_freq[0][63]), 0x3d08b588u);
  EXPECT_EQ(gemma.inv_freq[0][64], 0);
}

Call table_call(const std::string& expression, Precision precision, const std::vector<double>& positions,
                at::ScalarType type) {
  Call call;
  call.encoding = make_encoding(expression, {.heads = 1, .head_dim = 64, .precision = precision});
  const std::int64_t tokens = static_cast<std::int64_t>(positions.size());
  call.q = call.k = call.v = at::zeros({1, 1, tokens, 64}, type);
  call.query.positions = call.key.positions = at::tensor(positions, at::kDouble).view({1, tokens, 1});
  return call;
}

Planes planes_of(const Call& call, Role role = Role::Key) {
  return std::get<Planes>(call.encoding->moves(call.question(), role).at(0));
}

// The tables follow the order of operations: float32 phase, float32 cosine, times the magnitude.
TEST(RotaryHuggingFace, TablesFollowTheOrderOfOperations) {
  std::vector<double> positions;
  for (double p = 0; p < 4096; ++p) positions.push_back(p);
  positions.insert(positions.end(), {15962, 131071, 1000000});
  const char* expression = "yarn(rope, factor=4, train_length=2048)";
  const Call call = table_call(expression, Precision::HuggingFace, positions, at::kBFloat16);
  const Planes planes = planes_of(call);
  EXPECT_EQ(planes.cosine.scalar_type(), at::kFloat);
  const RotationInfo info = call.encoding->rotation(1, {}).value();
  const at::Tensor frequency = at::tensor(info.inv_freq[0], at::kDouble).to(at::kFloat);
  const at::Tensor half = at::tensor(positions, at::kDouble).to(at::kFloat).unsqueeze(1) * frequency.unsqueeze(0);
  const at::Tensor angle = at::cat({half, half}, 1).unsqueeze(0);  // (1, T, d), as there
  EXPECT_TRUE(planes.cosine[0].equal((angle.cos() * info.magnitude).narrow(2, 0, 32)));
  EXPECT_TRUE(planes.sine[0].equal((angle.sin() * info.magnitude).narrow(2, 0, 32)));
}

// EleutherAI/gpt-neox#1003: tables do not depend on the dtype of the model, and their error is bounded.
TEST(RotaryPrecision, ErrorOfTheTablesIsBounded) {
  const std::vector<double> positions = {0, 1, 257, 2047, 15962, 131071};
  const Planes truth = planes_of(table_call("rope", Precision::Exact, positions, at::kDouble));
  for (std::size_t token = 0; token < positions.size(); ++token)
    for (std::int64_t plane = 0; plane < 32; ++plane) {
      const long double angle = static_cast<long double>(positions[token]) *
                                std::pow(10000.0L, -2.0L * static_cast<long double>(plane) / 64.0L);
      const std::int64_t row = static_cast<std::int64_t>(token);
      EXPECT_NEAR(truth.cosine[0][0][row][plane].item<double>(), static_cast<double>(std::cos(angle)), 1e-10);
      EXPECT_NEAR(truth.sine[0][0][row][plane].item<double>(), static_cast<double>(std::sin(angle)), 1e-10);
    }
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const Planes exact = planes_of(table_call("rope", Precision::Exact, positions, type));
    EXPECT_EQ(exact.cosine.scalar_type(), at::kFloat);
    EXPECT_TRUE(exact.cosine.equal(truth.cosine.to(at::kFloat)));  // rounded once
    EXPECT_TRUE(exact.sine.equal(truth.sine.to(at::kFloat)));
    EXPECT_LT((exact.cosine.to(at::kDouble) - truth.cosine).abs().max().item<double>(), 1e-6);
    const Planes single = planes_of(table_call("rope", Precision::HuggingFace, positions, type));
    const double worst = (single.cosine.to(at::kDouble) - truth.cosine).abs().max().item<double>();
    EXPECT_LT(worst, 6e-3);
    EXPECT_GT(worst, 1e-5);  // float32 phases are not exact out there: the two precisions differ
  }
}

}  // namespace
}  // namespace torsor::rotary_test
