// What an expression alone lets one expect past the training length, against formulas written out here.
#include "torsor/lab/diagnosis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numbers>

#include "tests/base/test_folder.h"
#include "tests/lab/tiny_lab.h"
#include "torsor/lab/diagnosis_findings.h"
#include "torsor/lab/diagnosis_words.h"

namespace torsor {
namespace {

using testing::contains;
using testing::edited_model;
using testing::message_of;
using testing::tiny_config;

constexpr double kTurn = 2 * std::numbers::pi;

Dimensions dimensions_of(std::int64_t head_dim, std::int64_t train_length, std::int64_t heads = 8) {
  Dimensions dimensions;
  dimensions.heads = heads;
  dimensions.head_dim = head_dim;
  dimensions.train_length = train_length;
  return dimensions;
}

Facts facts(const std::string& encoding, std::int64_t head_dim, std::int64_t train_length,
            std::vector<std::int64_t> lengths, std::int64_t heads = 8) {
  return facts_of({encoding, dimensions_of(head_dim, train_length, heads), std::move(lengths), nullptr, false});
}

Diagnosis judged(const std::string& encoding, std::int64_t head_dim, std::int64_t train_length,
                 std::vector<std::int64_t> lengths, std::int64_t heads = 8) {
  Diagnosis diagnosis;
  diagnosis.facts = facts(encoding, head_dim, train_length, std::move(lengths), heads);
  diagnosis.layers = make_encoding(encoding, dimensions_of(head_dim, train_length, heads))->period();
  diagnosis.not_measured = "a test has no text";
  judge(diagnosis);
  return diagnosis;
}

const Finding* find(const Diagnosis& diagnosis, const std::string& topic, const std::string& part = "") {
  for (const Finding& finding : diagnosis.findings)
    if (finding.topic == topic && contains(finding.what + " " + finding.why, part)) return &finding;
  return nullptr;
}

// --------------------------------------------------------------------------------------------------------------------
// Rotations

TEST(DiagnosisRotation, WavelengthsAndTurnsOfFourPlanes) {
  const Facts found = facts("rope", 8, 512, {512, 1024, 2048});
  ASSERT_EQ(found.rotations.size(), 1u);
  const RotationFacts& rotation = found.rotations[0];
  // 10000^(-2i/8) = 1, 0.1, 0.01, 0.001
  for (std::size_t i = 0; i < 4; ++i) {
    const double frequency = std::pow(10.0, -static_cast<double>(i));
    EXPECT_NEAR(rotation.plain[i], frequency, 1e-15);
    EXPECT_NEAR(rotation.trained_turns[i], 512 * frequency / kTurn, 1e-12);
  }
  EXPECT_NEAR(rotation.trained_turns[0], 81.487, 1e-3);
  EXPECT_NEAR(rotation.trained_turns[3], 0.081487, 1e-6);
  ASSERT_EQ(rotation.lengths.size(), 3u);
  EXPECT_TRUE(rotation.lengths[0].unseen.empty());
  EXPECT_EQ(rotation.lengths[1].unseen, (std::vector<std::int64_t>{2, 3}));  // wavelengths 628 and 6283
  EXPECT_NEAR(rotation.lengths[1].worst, 2, 1e-12);
  EXPECT_EQ(rotation.lengths[2].unseen, (std::vector<std::int64_t>{2, 3}));
  EXPECT_NEAR(rotation.lengths[2].worst, 4, 1e-12);
  EXPECT_TRUE(rotation.scaling.empty());

  const Diagnosis diagnosis = judged("rope", 8, 512, {512, 1024, 2048});
  const Finding* angles = find(diagnosis, "angles");
  ASSERT_TRUE(angles);
  EXPECT_EQ(angles->severity, Severity::Breaks);
  EXPECT_FALSE(angles->measured);
  EXPECT_EQ(angles->from, 513);
  EXPECT_TRUE(contains(angles->why, "planes 2, 3 of 4 never completed a turn")) << angles->why;
  EXPECT_TRUE(contains(angles->why, "at 2048 tokens their angles reach up to 4 times the largest seen")) << angles->why;
  ASSERT_FALSE(angles->advice.empty());
  EXPECT_EQ(angles->advice[0], "torsor extend CKPT --encoding 'yarn(rope, factor=4)' --length 2048 --out extended");
  EXPECT_TRUE(contains(diagnosis.verdict[0], "rope, trained at 512, is expected to break from 513 tokens on"))
      << diagnosis.verdict[0];
  // Within the training length nothing is new.
  EXPECT_FALSE(find(judged("rope", 8, 512, {128, 512}), "angles"));
  // A base so small that every plane went round.
  EXPECT_EQ(find(judged("rope(base=10)", 8, 512, {2048}), "angles")->severity, Severity::Note);
}

TEST(DiagnosisRotation, YarnKeepsBlendsAndStretchesByItsRamp) {
  const Facts found = facts("yarn(rope, factor=4)", 64, 2048, {2048, 8192, 16384});
  const RotationFacts& rotation = found.rotations.at(0);
  EXPECT_EQ(rotation.scaling, "yarn");
  EXPECT_EQ(rotation.factor, 4);
  EXPECT_EQ(rotation.scaling_length, 2048);
  EXPECT_NEAR(rotation.magnitude, 1.138629436, 1e-9);
  const double low = 8, high = 21;  // the golden row: floor and ceiling of 8.06 and 20.1
  for (const RotationAtLength& at : rotation.lengths)
    for (std::size_t i = 0; i < 32; ++i) {
      const double r = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
      EXPECT_NEAR(at.slowed[i], 1 / (r / 4 + 1 - r), 1e-9) << i;
      EXPECT_EQ(at.treatment[i], i <= 8 ? Treatment::Kept : i >= 21 ? Treatment::Stretched : Treatment::Blended) << i;
    }
  // Four times the length, four times slower: nothing new up to 8192, and then what was stretched.
  EXPECT_TRUE(rotation.lengths[1].unseen.empty());
  EXPECT_FALSE(rotation.lengths[2].unseen.empty());
  EXPECT_NEAR(rotation.lengths[2].worst, 2, 1e-9);
  const Diagnosis diagnosis = judged("yarn(rope, factor=4)", 64, 2048, {2048, 8192, 16384});
  EXPECT_EQ(find(diagnosis, "angles")->from, 8193);
  EXPECT_TRUE(contains(find(diagnosis, "angles")->advice.at(0), "'yarn(rope, factor=8)'"));
  const Finding* scaling = find(diagnosis, "scaling", "keeps");
  ASSERT_TRUE(scaling);
  EXPECT_EQ(scaling->what, "yarn keeps planes 0 to 8, blends planes 9 to 20, stretches planes 21 to 31 (by up to 4)");
  EXPECT_TRUE(contains(scaling->why, "multiplied by 1.3")) << scaling->why;
  EXPECT_FALSE(find(diagnosis, "scaling", "neighbouring"));
}

TEST(DiagnosisRotation, OtherScalings) {
  const RotationFacts linear = facts("linear(rope, factor=4)", 64, 512, {2048}).rotations.at(0);
  for (const double slowed : linear.lengths.back().slowed) EXPECT_NEAR(slowed, 4, 1e-12);
  for (const Treatment treatment : linear.lengths.back().treatment) EXPECT_EQ(treatment, Treatment::Stretched);
  EXPECT_TRUE(linear.lengths.back().unseen.empty());
  const Diagnosis diagnosis = judged("linear(rope, factor=4)", 64, 512, {2048});
  ASSERT_TRUE(find(diagnosis, "scaling", "neighbouring"));
  EXPECT_TRUE(contains(find(diagnosis, "scaling", "neighbouring")->why, "by 0.25 of"));

  const RotationFacts ntk = facts("ntk(rope, factor=4)", 64, 512, {2048}).rotations.at(0);
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_NEAR(ntk.lengths.back().slowed[i], std::pow(4, 2 * static_cast<double>(i) / 62), 1e-9) << i;
  EXPECT_EQ(ntk.lengths.back().treatment[0], Treatment::Kept);
  EXPECT_EQ(ntk.lengths.back().treatment[16], Treatment::Blended);
  EXPECT_EQ(ntk.lengths.back().treatment[31], Treatment::Stretched);

  // (2 * 4096 / 2048 - 1)^(2i / 62)
  const RotationFacts dynamic = facts("dynamic(rope, factor=2)", 64, 2048, {2048, 4096}).rotations.at(0);
  EXPECT_TRUE(dynamic.length_dependent);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(dynamic.lengths[0].slowed[i], 1);
    EXPECT_NEAR(dynamic.lengths[1].slowed[i], std::pow(3, 2 * static_cast<double>(i) / 62), 1e-9) << i;
  }
  EXPECT_TRUE(find(judged("dynamic(rope, factor=2)", 64, 2048, {4096}), "scaling", "depend on the length"));

  const RotationFacts longrope =
      facts("longrope(rope, short=[1, 1, 1, 1], long=[1, 2, 3, 4], factor=4)", 8, 512, {512, 2048}).rotations.at(0);
  EXPECT_EQ(longrope.lengths[0].slowed, (std::vector<double>{1, 1, 1, 1}));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(longrope.lengths[1].slowed[i], static_cast<double>(i + 1), 1e-12);
  EXPECT_EQ(longrope.lengths[1].treatment[1], Treatment::Stretched);
  EXPECT_NEAR(longrope.magnitude, std::sqrt(1 + std::log(4) / std::log(512)), 1e-12);

  // Wavelengths below 2048 stay, above 8192 are slowed by 8.
  const RotationFacts llama3 = facts("llama3(rope(base=500000))", 128, 8192, {8192, 65536}).rotations.at(0);
  for (std::size_t i = 0; i < 64; ++i) {
    const double wavelength = kTurn * std::pow(500000, static_cast<double>(i) / 64);
    const Treatment expected = wavelength < 2048   ? Treatment::Kept
                               : wavelength > 8192 ? Treatment::Stretched
                                                   : Treatment::Blended;
    EXPECT_EQ(llama3.lengths.back().treatment[i], expected) << i;
  }
}

TEST(DiagnosisRotation, AModelTrainedWithItsScalingKnowsItsOwnAngles) {
  ModelConfig config = tiny_config("linear(rope, factor=4)", 512);
  const Decoder model(config, 1);
  FactsRequest request{config.encoding, config.dimensions(), {512, 2048}, &model, true};
  const RotationFacts own = facts_of(request).rotations.at(0);
  EXPECT_NEAR(own.trained_turns[0], 512 * 0.25 / kTurn, 1e-9);
  EXPECT_FALSE(own.lengths.back().unseen.empty());
  request.own = false;
  EXPECT_NEAR(facts_of(request).rotations.at(0).trained_turns[0], 512 / kTurn, 1e-9);
}

TEST(DiagnosisRotation, PartsKeepTheirHeadsAndLayers) {
  const Facts found = facts("layers(rope * 3, none)", 16, 128, {128, 512}, 4);
  ASSERT_EQ(found.rotations.size(), 1u);
  EXPECT_EQ(found.rotations[0].part.layers, (std::vector<std::int64_t>{0, 1, 2}));
  const Facts heads = facts("heads(rope * 2, alibi * 2)", 16, 128, {128, 512}, 4);
  EXPECT_EQ(heads.rotations.at(0).part.heads, 2);
  EXPECT_EQ(heads.biases.at(0).part.first_head, 2);
  const Facts bases = facts("rope(base=[100, 10000])", 8, 512, {2048}, 2);
  ASSERT_EQ(bases.rotations.size(), 2u);
  EXPECT_EQ(bases.rotations[1].key_head, 1);
  EXPECT_NEAR(bases.rotations[0].plain[1], std::pow(100, -0.25), 1e-12);
}

TEST(DiagnosisRotation, AWindowBoundsWhatIsSeen) {
  ModelConfig config = tiny_config("rope", 16);
  config.window = {4};
  const Decoder model(config, 1);
  const RotationFacts rotation = facts_of({"rope", config.dimensions(), {16, 1024}, &model, true}).rotations.at(0);
  EXPECT_EQ(rotation.lengths.back().reach, 4);
  EXPECT_TRUE(rotation.lengths.back().unseen.empty());
}

// --------------------------------------------------------------------------------------------------------------------
// Small numbers

float to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u);
}

TEST(DiagnosisDtype, FirstWrongPositionsByBruteForce) {
  for (const double base : {10000.0, 500000.0}) {
    const RotationFacts rotation = facts(str("rope(base=", base, ")"), 8, 512, {2048}).rotations.at(0);
    const auto first = [&](const std::function<double(double, double)>& angle) {
      for (std::int64_t p = 0; p < (1 << 20); ++p)
        for (std::size_t i = 0; i < 4; ++i) {
          const double frequency = std::pow(base, -static_cast<double>(i) / 4);
          const double exact = static_cast<double>(p) * frequency;
          if (std::abs(angle(static_cast<double>(p), frequency) - exact) > 1e-2)
            return std::pair<std::int64_t, std::int64_t>(p, static_cast<std::int64_t>(i));
        }
      return std::pair<std::int64_t, std::int64_t>(-1, 0);
    };
    const auto expect = [&](const DtypeFacts& found, const char* dtype,
                            const std::pair<std::int64_t, std::int64_t>& wanted) {
      EXPECT_EQ(found.dtype, dtype);
      EXPECT_EQ(found.position.value_or(-1), wanted.first) << dtype;
      if (found.position) {
        EXPECT_EQ(found.plane, wanted.second) << dtype;
        EXPECT_GT(found.error, 1e-2);
      }
      EXPECT_EQ(found.searched, 1 << 20);
    };
    const auto half = [](double value) { return static_cast<double>(static_cast<_Float16>(value)); };
    ASSERT_EQ(rotation.dtypes.size(), 3u);
    expect(rotation.dtypes[0], "bf16", first([](double p, double f) {
             return to_bf16(to_bf16(static_cast<float>(p)) * to_bf16(static_cast<float>(f)));
           }));
    expect(rotation.dtypes[1], "float16", first([&](double p, double f) { return half(half(p) * half(f)); }));
    // Hugging Face: 1 / base^(2i/d), all in float32.
    expect(rotation.dtypes[2], "float32", first([&](double p, double f) {
             const float exponent = static_cast<float>(std::round(-std::log(f) / std::log(base) * 4) / 4);
             const float frequency = 1.0f / static_cast<float>(std::pow(base, static_cast<double>(exponent)));
             return static_cast<double>(static_cast<float>(p) * frequency);
           }));
    EXPECT_LT(rotation.dtypes[0].position.value(), 300);
  }
}

// --------------------------------------------------------------------------------------------------------------------
// Biases

TEST(DiagnosisBias, WhereT5TellsNothingApart) {
  // 16 + ln(n / 16) / ln(8) * 16 reaches 31 at n = 16 * 8^(15/16) = 112.4
  const BiasFacts t5 = facts("t5", 64, 512, {512, 2048}).biases.at(0);
  EXPECT_EQ(t5.merge_from, std::ceil(16 * std::pow(8, 15.0 / 16)));
  EXPECT_EQ(t5.merge_from, 113);
  EXPECT_TRUE(t5.rows.back().unseen.empty());
  EXPECT_EQ(t5.rows.back().seen, 32);
  EXPECT_TRUE(t5.distances.empty()) << "its numbers are trained";
  const Diagnosis diagnosis = judged("t5", 64, 512, {512, 2048});
  EXPECT_TRUE(contains(find(diagnosis, "merging")->what, "distances from 113 on are one row"));
  EXPECT_EQ(diagnosis.findings.front().severity, Severity::Note);
  EXPECT_TRUE(contains(diagnosis.verdict[0], "nothing was found that breaks or gets worse up to 2048 tokens"));

  // Rows that no distance of training reads: 16 + ln(n / 16) / ln(2^20 / 16) * 16 at n = 511 and at n = 2047.
  const BiasFacts far = facts("t5(far=log)", 64, 512, {512, 2048}).biases.at(0);
  const auto row = [](double n) { return static_cast<std::int64_t>(16 + std::log(n / 16) / std::log(65536.0) * 16); };
  ASSERT_EQ(row(511), 20);
  ASSERT_EQ(row(2047), 22);  // 16 + 6.9996
  EXPECT_TRUE(far.rows[0].unseen.empty());
  EXPECT_EQ(far.rows[1].unseen, (std::vector<std::int64_t>{21, 22}));
  EXPECT_EQ(far.rows[1].first, 512);  // 16 * 65536^(5/16) = 512 exactly
  const Diagnosis log = judged("t5(far=log)", 64, 512, {512, 2048});
  EXPECT_EQ(find(log, "rows")->severity, Severity::Breaks);
  EXPECT_EQ(find(log, "rows")->from, 513);

  const BiasFacts wraps = facts("t5(far=wrap, max_distance=300)", 64, 512, {512, 2048}).biases.at(0);
  EXPECT_EQ(wraps.wraps, 300);
  EXPECT_FALSE(wraps.merge_from);
  EXPECT_TRUE(wraps.rows.back().unseen.empty());
  EXPECT_EQ(find(judged("t5(far=wrap, max_distance=1024)", 64, 512, {2048}), "merging")->severity, Severity::Degrades);
}

TEST(DiagnosisBias, HowFarHeadsSee) {
  // Slopes 1/2 .. 1/256: the bias falls by 10 nats at 20, 40 .. 2560 tokens.
  const BiasFacts alibi = facts("alibi", 64, 512, {512, 4096}).biases.at(0);
  ASSERT_EQ(alibi.sight.size(), 8u);
  for (std::size_t head = 0; head < 8; ++head)
    EXPECT_EQ(alibi.sight[head], 10 * std::pow(2, static_cast<double>(head) + 1)) << head;
  const Diagnosis diagnosis = judged("alibi", 64, 512, {512, 4096});
  const Finding* sight = find(diagnosis, "sight");
  ASSERT_TRUE(sight);
  EXPECT_EQ(sight->what, "no head sees farther than 2560 tokens");
  EXPECT_EQ(sight->from, 2562);
  const BiasFacts shorter = facts("alibi", 64, 512, {512, 1024}).biases.at(0);
  EXPECT_FALSE(shorter.sight[7]) << "farther than the text";
  EXPECT_EQ(shorter.sight[5], 640);

  // Trained numbers of a model: -r1 ln(1 + r2 n) falls by 10 at n = (e^(10/r1) - 1) / r2.
  const ModelConfig config = tiny_config("kerple", 16);
  const Decoder model = edited_model(config, 1, [](const std::string& name, at::Tensor& tensor) {
    if (name.ends_with("kerple.r1")) tensor.fill_(4);
    if (name.ends_with("kerple.r2")) tensor.fill_(0.5);
  });
  const BiasFacts kerple = facts_of({"kerple", config.dimensions(), {16, 4096}, &model, true}).biases.at(0);
  EXPECT_EQ(kerple.sight.at(0), std::floor((std::exp(2.5) - 1) / 0.5));
  EXPECT_NEAR(kerple.per_head[1].back(), -4 * std::log1p(0.5 * 4095), 1e-6);
  EXPECT_TRUE(facts("kerple", 64, 512, {2048}).biases.at(0).distances.empty());
  EXPECT_EQ(find(judged("heads(alibi * 1, none * 3)", 64, 512, {512, 4096}, 4), "sight")->what,
            "no head sees farther than 2560 tokens (query heads 0 to 0)");

  // Layers that learned different numbers are told together.
  ModelConfig two = tiny_config("alibi(learn=true)", 16);
  two.layers = 2;
  const Decoder layered = edited_model(two, 1, [](const std::string& name, at::Tensor& tensor) {
    if (name == "model.layers.0.self_attn.position.alibi.slopes") tensor.copy_(at::tensor({0.1f, 1e-6f}));
    if (name == "model.layers.1.self_attn.position.alibi.slopes") tensor.copy_(at::tensor({0.01f, 0.5f}));
  });
  Diagnosis together;
  together.layers = 2;
  together.facts = facts_of({"alibi(learn=true)", two.dimensions(), {16, 4096}, &layered, true});
  judge(together);
  ASSERT_EQ(together.facts.biases.size(), 2u);
  EXPECT_EQ(find(together, "sight")->what, "3 of 4 heads of all layers see 20 to 1000 tokens");
  EXPECT_EQ(std::count_if(together.findings.begin(), together.findings.end(),
                          [](const Finding& finding) { return finding.topic == "sight"; }),
            1);
  EXPECT_TRUE(find(judged("kerple", 64, 512, {2048}), "content", "its numbers are trained") != nullptr);
}

TEST(DiagnosisBias, ContentCountsAndTables) {
  const Facts cope = facts("cope", 64, 512, {2048});
  EXPECT_EQ(cope.biases.at(0).counts, 63);
  EXPECT_FALSE(cope.biases.at(0).content.empty());
  EXPECT_EQ(cope.unknown.size(), 1u);
  EXPECT_TRUE(find(judged("fire", 64, 512, {2048}), "interpolation") != nullptr);
  const Diagnosis none = judged("none", 64, 512, {2048});
  EXPECT_FALSE(none.facts.positions);
  EXPECT_TRUE(find(none, "positions") != nullptr);
}

// --------------------------------------------------------------------------------------------------------------------
// Everything else

TEST(DiagnosisFacts, EmbeddingsRefuseRepeatAndContradict) {
  const Diagnosis learned = judged("learned", 64, 512, {512, 2048});
  EXPECT_EQ(find(learned, "table")->severity, Severity::Breaks);
  EXPECT_EQ(find(learned, "table")->from, 513);
  const Diagnosis longer = judged("learned(length=1024)", 64, 512, {512, 2048});
  EXPECT_EQ(find(longer, "table")->from, 1025);
  EXPECT_EQ(find(longer, "embedding")->from, 513);
  EXPECT_TRUE(contains(find(longer, "embedding")->what, "rows 512 to 1023"));

  const Facts sinusoidal = facts("sinusoidal", 8, 512, {2048}, 1);
  // Wavelengths 2 pi 10000^(2i/8): 6.28, 62.8, 628, 6283.
  EXPECT_EQ(sinusoidal.embeddings.at(0).unfinished, 2);
  EXPECT_NEAR(sinusoidal.embeddings.at(0).wavelength[3], 2000 * std::numbers::pi, 1e-9);
  EXPECT_EQ(find(judged("sinusoidal", 8, 512, {2048}, 1), "embedding")->from, 513);

  EXPECT_TRUE(facts("sinusoidal + rope(allow=absolute)", 8, 512, {2048}).twice);
  EXPECT_TRUE(find(judged("sinusoidal + rope(allow=absolute)", 8, 512, {2048}), "twice") != nullptr);
  EXPECT_FALSE(facts("sinusoidal + alibi", 8, 512, {2048}).twice);
}

TEST(DiagnosisFacts, TrainingLengthsThatDisagree) {
  const Diagnosis wrong = judged("yarn(rope, factor=4, train_length=4096)", 64, 512, {512, 2048});
  ASSERT_EQ(wrong.facts.claims.size(), 1u);
  EXPECT_FALSE(wrong.facts.claims[0].agrees);
  EXPECT_EQ(find(wrong, "lengths")->severity, Severity::Degrades);
  EXPECT_TRUE(contains(find(wrong, "lengths")->what, "takes 4096 positions as trained, the model was trained at 512"));
  // 4 * 512 = 2048: a model that was extended.
  EXPECT_TRUE(facts("yarn(rope, factor=4, train_length=512)", 64, 2048, {4096}).claims.at(0).agrees);
  EXPECT_TRUE(facts("yarn(rope, factor=4)", 64, 2048, {4096}).claims.empty());
  EXPECT_FALSE(facts("rope + logn(train_length=100)", 64, 512, {2048}).claims.at(0).agrees);
}

TEST(DiagnosisFacts, TemperatureByLength) {
  const Facts found = facts("rope + logn", 64, 2048, {1024, 2048, 8192});
  ASSERT_EQ(found.temperatures.size(), 1u);
  EXPECT_EQ(found.temperatures[0].factor[0], 1);
  EXPECT_EQ(found.temperatures[0].factor[1], 1);
  EXPECT_NEAR(found.temperatures[0].factor[2], 1.1818, 1e-4);  // ln 8192 / ln 2048
}

TEST(DiagnosisFacts, MemoryOfBiasesAndCaches) {
  const auto at = [](const std::string& encoding, std::int64_t length) {
    return facts(encoding, 64, 512, {512, length}).memory.back();
  };
  const MemoryFacts alibi = at("alibi", 4096);
  EXPECT_EQ(alibi.naive, 8.0 * 4096 * 4096 * 4);
  EXPECT_EQ(alibi.stored, 8 * 4.0);  // a float32 slope a head
  EXPECT_EQ(at("t5", 4096).stored, 32 * 8 * 4.0);
  EXPECT_EQ(at("rope", 4096).stored, 0);
  EXPECT_EQ(alibi.cache_bf16, 4096.0 * 8 * 64 * 2 * 2);
  EXPECT_EQ(alibi.cache_float32, 4096.0 * 8 * 64 * 2 * 4);
  // A running sum in float64 a head and token is kept beside the keys.
  EXPECT_EQ(at("fox", 4096).cache_bf16, 4096.0 * 8 * (64 * 2 * 2 + 8));
  // The sums themselves, in float64, one more than there are tokens.
  EXPECT_EQ(at("fox", 8192).stored, 8 * 8193 * 8.0);
  // A width of four numbers a plane makes keys wider.
  EXPECT_EQ(facts("tape(rope, block=4)", 64, 512, {512}).memory.back().cache_bf16, 512.0 * 8 * (128 + 64) * 2);
}

TEST(DiagnosisFacts, LengthsThatAreNone) {
  EXPECT_TRUE(contains(message_of<UsageError>([] { facts("rope", 64, 0, {512}); }), "--train-length"));
  EXPECT_TRUE(contains(message_of<UsageError>([] { facts("rope", 64, 512, {}); }), "at least one length"));
  EXPECT_TRUE(contains(message_of<UsageError>([] { facts("rope", 64, 512, {0}); }), "found 0"));
  EXPECT_TRUE(contains(message_of<UsageError>([] { facts("rope", 64, 512, {512, 512}); }), "rise"));
  // The longest that an option takes: answers, and none of them by counting up to it.
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  for (const char* encoding : {"rope", "yarn(rope, factor=4)", "dynamic(rope, factor=2)", "t5", "t5(far=log)", "alibi",
                               "sandwich", "rope + logn", "sinusoidal"}) {
    const Diagnosis diagnosis = judged(encoding, 64, 512, {512, huge});
    EXPECT_FALSE(diagnosis.verdict.empty()) << encoding;
    const Json json = diagnosis_to_json(diagnosis);
    EXPECT_EQ(json.at("format"), "torsor-diagnosis-1");
  }
  EXPECT_FALSE(judged("rope", 64, 1, {1, 2}).verdict.empty());
}

TEST(DiagnosisFacts, EveryEncodingIsDiagnosed) {
  for (const NameInfo& info : registry()) {
    if (info.operand == Operand::Items) continue;
    std::string text = info.operand == Operand::Rotary   ? info.name + "(rope)"
                       : info.operand == Operand::Listed ? info.name + "(alibi)"
                                                         : info.name;
    if (info.name == "longrope") text = "longrope(rope, short=[1, 1, 1, 1], long=[2, 2, 2, 2], factor=2)";
    if (info.operand == Operand::Rotary && info.name != "longrope" && info.name != "tape" && info.name != "llama3")
      text = info.name + "(rope, factor=2)";
    const Diagnosis diagnosis = judged(text, 8, 64, {64, 256});
    EXPECT_FALSE(diagnosis.verdict.empty()) << text;
    EXPECT_FALSE(diagnosis.findings.empty()) << text;
    EXPECT_EQ(diagnosis_to_json(diagnosis).at("encoding"), print(parse(text)));
  }
}

TEST(DiagnosisWords, StretchedExpressions) {
  const Dimensions d = dimensions_of(64, 512);
  EXPECT_EQ(stretched("rope", d, 4), "yarn(rope, factor=4)");
  EXPECT_EQ(stretched("rope + alibi", d, 2), "yarn(rope, factor=2) + alibi");
  EXPECT_EQ(stretched("yarn(rope, factor=2, train_length=512)", d, 4), "yarn(rope, factor=4, train_length=512)");
  EXPECT_EQ(stretched("linear(rope(base=500), factor=2)", d, 4), "yarn(rope(base=500), factor=4)");
  EXPECT_EQ(stretched("rope(frequencies=proportional, fraction=0.5)", d, 4),
            "linear(rope(frequencies=proportional, fraction=0.5), factor=4)");
  EXPECT_EQ(stretched("heads(rope * 4, alibi * 4)", d, 4), "heads(yarn(rope, factor=4) * 4, alibi * 4)");
  EXPECT_EQ(stretched("layers(rope * 3, none)", d, 4), "layers(yarn(rope, factor=4) * 3, none)");
  EXPECT_FALSE(stretched("alibi", d, 4));
  EXPECT_FALSE(stretched("learned + t5", d, 4));
}

TEST(DiagnosisWords, NumbersAndLists) {
  EXPECT_EQ(shown(512), "512");
  EXPECT_EQ(shown(0.0814873), "0.0815");
  EXPECT_EQ(shown(6283.185), "6283");
  EXPECT_EQ(shown(1.23456e9), "1.23e9");
  EXPECT_EQ(shown(-0.25), "-0.25");
  EXPECT_EQ(ranges({}), "");
  EXPECT_EQ(ranges({3}), "3");
  EXPECT_EQ(ranges({2, 3}), "2, 3");
  EXPECT_EQ(ranges({0, 1, 2, 5, 7, 8}), "0 to 2, 5, 7, 8");
  EXPECT_EQ(shell_word("run/a_b-1.bin"), "run/a_b-1.bin");
  EXPECT_EQ(shell_word("yarn(rope)"), "'yarn(rope)'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shown_bytes(512), "512 bytes");
  EXPECT_EQ(shown_bytes(536870912), "512 MiB");
}

}  // namespace
}  // namespace torsor
