// `torsor values` and `torsor encodings`: the golden numbers of the design, what is described instead of invented, and
// what people read.
#include "torsor/lab/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "torsor/base/error.h"
#include "torsor/lab/catalogue.h"
#include "torsor/lab/picture.h"

namespace torsor {
namespace {

struct Ask {
  std::int64_t head_dim = 64, heads = 8, kv_heads = 0, train_length = 0, layer = 0;
  double length = 0;
  std::vector<double> positions = {0, 1, 2, 100}, distances = {0, 1, 2, 100};
};

ValuesRequest request_of(const std::string& encoding, const Ask& ask) {
  ValuesRequest request;
  request.encoding = encoding;
  request.dimensions = {
      .heads = ask.heads, .kv_heads = ask.kv_heads, .head_dim = ask.head_dim, .train_length = ask.train_length};
  request.length = ask.length;
  request.positions = ask.positions;
  request.distances = ask.distances;
  request.layer = ask.layer;
  return request;
}

Json values(const std::string& encoding, const Ask& ask = {}) { return encoding_values(request_of(encoding, ask)); }

TEST(Values, FrequenciesOfThePublishedConfigurations) {
  struct Golden {
    const char* encoding;
    std::int64_t head_dim;
    double length;
    std::map<int, double> inv_freq;  // to nine digits
    double magnitude, softmax_factor;
  };
  const std::vector<Golden> all = {
      {"rope", 64, 0, {{0, 1}, {1, .749894209}, {8, .1}, {16, .01}, {24, .001}, {31, 1.33352143e-4}}, 1, 1},
      {"yarn(rope, factor=4, train_length=2048)",
       64,
       0,
       {{8, .1}, {16, .00538461538}, {20, 9.73008511e-4}, {24, 2.5e-4}, {31, 3.33380358e-5}},
       1.138629436,
       1},
      {"yarn(rope, factor=4, train_length=2048, truncate=false)",
       64,
       0,
       {{16, .00505697152}, {20, 8.11290382e-4}},
       1.138629436,
       1},
      {"yarn(rope(base=1000000), factor=4, train_length=32768)",
       128,
       0,
       {{23, .00697830585}, {24, .00537532149}, {30, .00106436098}, {39, 6.49039432e-5}, {63, 3.1023444e-7}},
       1.138629436,
       1},
      {"yarn(rope(base=150000), factor=32, train_length=4096, truncate=false)",
       64,
       0,
       {{8, .0508132748}, {9, .0317056962}, {12, .00679495949}, {17, 1.29318701e-4}, {18, 3.83088124e-5}},
       1.346573590,
       1},
      {"yarn(rope, factor=40, train_length=4096, mscale=1, mscale_all_dim=1)",
       64,
       0,
       {{11, .0390069266}, {16, .0055}, {20, 7.90569415e-4}, {23, 3.33380358e-5}},
       1,
       1.873854207},
      {"yarn(rope, factor=40, train_length=4096, mscale=0.707, mscale_all_dim=0.707)", 64, 0, {{0, 1}}, 1, 1.589626165},
      {"llama3(rope(base=500000))",
       128,
       0,
       {{28, .00321144599},
        {29, .00216657076},
        {32, 5.24846161e-4},
        {34, 1.78507813e-4},
        {35, 9.55621235e-5},
        {63, 3.06892599e-7}},
       1,
       1},
      {"llama3(rope(base=500000), factor=32)",
       64,
       0,
       {{14, .00321144599}, {15, .00129054793}, {17, 9.7082878e-5}, {18, 1.94616382e-5}},
       1,
       1},
      {"rope(base=1000000, frequencies=proportional, fraction=0.25)",
       512,
       0,
       {{63, .0333762469}, {64, 0}, {255, 0}},
       1,
       1},
      // base' = base * (s T/L - (s - 1))^(d/(d - 2)); plane 1 is base'^(-2/64)
      {"dynamic(rope, factor=2, train_length=2048)", 64, 2048, {{1, .749894209}}, 1, 1},
      {"dynamic(rope, factor=2, train_length=2048)", 64, 4096, {{1, std::pow(31082.2366672, -2.0 / 64)}}, 1, 1},
      {"dynamic(rope, factor=2, train_length=2048)", 64, 8192, {{1, std::pow(74534.8303181, -2.0 / 64)}}, 1, 1},
  };
  for (const Golden& golden : all) {
    Ask ask;
    ask.head_dim = golden.head_dim;
    ask.length = golden.length;
    const Json rotation = values(golden.encoding, ask)["rotation"];
    for (const auto& [plane, expected] : golden.inv_freq)
      EXPECT_NEAR(rotation["inv_freq"][static_cast<std::size_t>(plane)].get<double>(), expected, expected * 2e-9)
          << golden.encoding << ", plane " << plane;
    EXPECT_NEAR(rotation["magnitude"].get<double>(), golden.magnitude, 1e-9) << golden.encoding;
    EXPECT_NEAR(rotation["softmax_factor"].get<double>(), golden.softmax_factor, 2e-9) << golden.encoding;
    EXPECT_EQ(rotation["inv_freq"].size(), static_cast<std::size_t>(golden.head_dim / 2));
  }
}

TEST(Values, CosAndSinCarryTheMagnitude) {
  Ask ask;
  ask.head_dim = 4;
  ask.positions = {0, 3, -0.5};
  const Json rotation = values("yarn(rope, factor=4, train_length=2048)", ask)["rotation"];
  ASSERT_EQ(rotation["cos"].size(), 3u);
  ASSERT_EQ(rotation["cos"][0].size(), 2u);
  const double magnitude = 0.1 * std::log(4.0) + 1, frequency = rotation["inv_freq"][1];
  EXPECT_NEAR(rotation["cos"][0][0].get<double>(), magnitude, 1e-12);
  EXPECT_NEAR(rotation["sin"][0][0].get<double>(), 0, 1e-12);
  EXPECT_NEAR(rotation["cos"][1][1].get<double>(), magnitude * std::cos(3 * frequency), 1e-12);
  EXPECT_NEAR(rotation["sin"][2][1].get<double>(), -magnitude * std::sin(0.5 * frequency), 1e-12);
}

TEST(Values, FrequenciesByHeadAxisAndPart) {
  Ask ask;
  ask.heads = 4;
  ask.kv_heads = 2;
  ask.head_dim = 8;
  Json rotation = values("rope(base=[10000, 100])", ask)["rotation"];
  ASSERT_TRUE(rotation["inv_freq"][0].is_array());
  EXPECT_NEAR(rotation["inv_freq"][0][1].get<double>(), 0.1, 1e-15);
  EXPECT_NEAR(rotation["inv_freq"][1][1].get<double>(), std::pow(100, -0.25), 1e-15);
  ASSERT_EQ(rotation["cos"].size(), 2u);     // key heads
  ASSERT_EQ(rotation["cos"][0].size(), 4u);  // positions
  rotation = values("rope(axes=2)", ask)["rotation"];
  EXPECT_EQ(rotation["axis"], Json::array({0, 0, 1, 1}));
  EXPECT_EQ(rotation["inv_freq"][0], rotation["inv_freq"][2]);
  rotation = values("rope(dim=4, part=suffix, layout=interleaved)", ask)["rotation"];
  EXPECT_EQ(rotation["offset"], 4);
  EXPECT_EQ(rotation["width"], 4);
  EXPECT_EQ(rotation["layout"], "interleaved");
  const Json mixed = values("heads(rope * 2, yarn(rope, factor=2, train_length=8) * 2)", ask);
  EXPECT_EQ(mixed["rotation"]["heads"], Json::array({0, 2}));
  ASSERT_EQ(mixed["further_rotations"].size(), 1u);
  EXPECT_EQ(mixed["further_rotations"][0]["heads"], Json::array({2, 4}));
  EXPECT_GT(mixed["further_rotations"][0]["magnitude"].get<double>(), 1);
  EXPECT_TRUE(values("xpos", ask)["rotation"]["decay"][0].get<double>() < 0);
}

TEST(Values, Slopes) {
  Ask ask;
  ask.heads = 6;
  EXPECT_EQ(values("alibi", ask)["slopes"], Json::array({.25, .0625, .015625, .00390625, .5, .125}));
  EXPECT_EQ(values("alibi(learn=true)", ask)["slopes"], values("alibi", ask)["slopes"]);
  ask.heads = 1;
  EXPECT_EQ(values("alibi", ask)["slopes"], Json::array({std::pow(2.0, -8)}));
  ask.heads = 4;
  EXPECT_EQ(values("heads(alibi * 1, alibi * 3)", ask)["slopes"].size(), 4u);
  EXPECT_TRUE(values("rope", ask)["slopes"].is_null());
}

TEST(Values, Buckets) {
  Ask ask;
  ask.distances = {15, 16, 18, 19, 20, 21, 32, 64, 127};
  EXPECT_EQ(values("t5(buckets=32, max_distance=128)", ask)["buckets"],
            Json::array({15, 16, 16, 17, 17, 18, 21, 26, 31}));
  ask.distances = {-7, 7, -8, 8, -12, 12, -16, 16, -64, 64, -91, 91};  // key after, key before
  EXPECT_EQ(values("t5(bidirectional=true)", ask)["buckets"],
            Json::array({23, 7, 24, 8, 25, 9, 26, 10, 30, 14, 31, 15}));
  EXPECT_TRUE(values("alibi", ask)["buckets"].is_null());
}

TEST(Values, BiasByDistance) {
  Ask ask;
  ask.heads = 2;
  ask.distances = {0, 1, 100, -3};
  Json bias = values("alibi", ask)["bias"];
  EXPECT_EQ(bias["distances"], Json::array({0.0, 1.0, 100.0, -3.0}));
  ASSERT_EQ(bias["per_head"].size(), 2u);
  EXPECT_NEAR(bias["per_head"][0][2].get<double>(), -6.25, 1e-12);
  EXPECT_NEAR(bias["per_head"][1][3].get<double>(), -3 * 0.00390625, 1e-12);
  ask.heads = 8;
  bias = values("sandwich", ask)["bias"];  // before the ratio 8 (h + 1) / 8: 64, 62.0937, 30.5435
  EXPECT_NEAR(bias["per_head"][0][0].get<double>(), 64, 1e-9);
  EXPECT_NEAR(bias["per_head"][0][1].get<double>(), 62.0937, 1e-4);
  EXPECT_NEAR(bias["per_head"][1][2].get<double>(), 30.5435 / 2, 1e-4);
  // A sum adds up; a rotation beside it changes nothing.
  const double alone = values("alibi", ask)["bias"]["per_head"][3][1].get<double>();
  EXPECT_NEAR(values("rope + alibi + sandwich", ask)["bias"]["per_head"][3][1].get<double>(),
              alone + bias["per_head"][3][1].get<double>(), 1e-12);
  EXPECT_TRUE(values("rope", ask)["bias"].is_null());
  EXPECT_TRUE(values("none", ask)["bias"].is_null());
}

TEST(Values, WhatIsTrainedOrMadeOfContentIsDescribed) {
  Ask ask;
  ask.train_length = 16;
  for (const char* encoding : {"t5", "kerple", "fire", "alibi(learn=true)", "cope", "txl", "alibi + t5", "alibi + cope",
                               "heads(alibi * 4, t5 * 4)"}) {
    const Json json = values(encoding, ask);
    EXPECT_TRUE(json["bias"].is_null()) << encoding;
    EXPECT_FALSE(json["trained"].empty()) << encoding;
  }
  EXPECT_EQ(values("t5")["trained"], Json::array({"t5.table (32, 8)"}));
  EXPECT_FALSE(values("cope")["content"].empty());
  EXPECT_FALSE(values("txl")["content"].empty());
  for (const char* encoding : {"fox", "grape-a(gate=k)", "grape-ap", "rope + fox"}) {
    EXPECT_TRUE(values(encoding)["bias"].is_null()) << encoding;
    EXPECT_EQ(values(encoding)["content"].size(), 1u) << encoding;
  }
  EXPECT_EQ(values("grape-a(gate=qk)")["content"].size(), 2u);
  EXPECT_EQ(values("grape-a")["bias"], values("alibi")["bias"]);
  EXPECT_EQ(values("grape-ap")["slopes"], values("alibi")["slopes"]);
  EXPECT_TRUE(values("t5")["content"].empty());
  EXPECT_TRUE(values("alibi")["trained"].empty());
  const Json learned = values("learned + alibi", ask);
  EXPECT_TRUE(learned["embedding"].is_null());
  EXPECT_FALSE(learned["bias"].is_null());  // the bias is fixed, whatever the embedding is
  EXPECT_EQ(learned["trained"], Json::array({"learned.table (16, 512)"}));
  const Json frequencies = values("rope(learn=true)");
  EXPECT_EQ(frequencies["rotation"]["initial"], true);
  EXPECT_NEAR(frequencies["rotation"]["inv_freq"][8].get<double>(), 0.1, 1e-12);
  EXPECT_NEAR(values("linear(rope(learn=true), factor=4)")["rotation"]["inv_freq"][8].get<double>(), 0.025, 1e-12);
  EXPECT_FALSE(values("rope")["rotation"].contains("initial"));
  // grape-m tells its first spectrum, and no frequencies where angles are not theirs alone.
  const Json spectrum = values("grape-m(base=100)")["rotation"];
  EXPECT_EQ(spectrum["initial"], true);
  EXPECT_NEAR(spectrum["inv_freq"][16].get<double>(), 0.1, 1e-12);
  EXPECT_TRUE(values("grape-m(rank=4)")["rotation"].is_null());
  EXPECT_EQ(values("grape-m(rank=4)")["trained"], Json::array({"grape-m.mix (8, 64, 4)", "grape-m.theta (8, 2)"}));
  EXPECT_TRUE(values("grape-m(context=true)")["rotation"].is_null());
  EXPECT_EQ(values("grape-m(context=true)")["content"].size(), 1u);
}

TEST(Values, EmbeddingAndTemperature) {
  Ask ask;
  ask.heads = 2;
  ask.head_dim = 4;
  ask.positions = {0, 3};
  const Json embedding = values("sinusoidal", ask)["embedding"];
  ASSERT_EQ(embedding.size(), 2u);
  ASSERT_EQ(embedding[1].size(), 8u);
  EXPECT_NEAR(embedding[0][1].get<double>(), 1, 1e-15);
  EXPECT_NEAR(embedding[1][2].get<double>(), std::sin(3 / std::pow(10000, 0.25)), 1e-14);
  EXPECT_TRUE(values("rope", ask)["embedding"].is_null());

  ask.positions = {0, 2047, 8191};
  const Json factor = values("logn(train_length=2048)", ask)["temperature"];
  ASSERT_EQ(factor.size(), 3u);
  EXPECT_NEAR(factor[1].get<double>(), 1, 1e-12);
  EXPECT_NEAR(factor[2].get<double>(), std::log(8192) / std::log(2048), 1e-12);
  EXPECT_NEAR(factor[2].get<double>(), 1.1818, 1e-4);
  const Json mixed = values("heads(logn(train_length=2048) * 1, none * 1)", ask)["temperature"];
  ASSERT_TRUE(mixed[0].is_array());
  EXPECT_NEAR(mixed[1][2].get<double>(), 1, 1e-15);
  EXPECT_TRUE(values("rope", ask)["temperature"].is_null());
}

TEST(Values, ALayerOfAPattern) {
  Ask ask;
  Json json = values("layers(rope * 3, alibi)", ask);
  EXPECT_EQ(json["layer"], 0);
  EXPECT_FALSE(json["rotation"].is_null());
  EXPECT_TRUE(json["bias"].is_null());
  ask.layer = 7;
  json = values("layers(rope * 3, alibi)", ask);
  EXPECT_TRUE(json["rotation"].is_null());
  EXPECT_FALSE(json["bias"].is_null());
  EXPECT_FALSE(values("rope").contains("layer"));
}

TEST(Values, CanonicalFormAndRefusals) {
  EXPECT_EQ(values("yarn( rope(base=10000) ,factor=4,train_length=8)")["encoding"],
            "yarn(rope, factor=4, train_length=8)");
  Ask ask;
  ask.head_dim = 7;
  EXPECT_THROW(values("rope", ask), UsageError);
  ask = {};
  ask.heads = 0;
  EXPECT_THROW(values("alibi", ask), UsageError);
  ask = {};
  ask.kv_heads = 3;
  EXPECT_THROW(values("alibi", ask), UsageError);
  EXPECT_THROW(values("yarn(rope, factor=4)"), UsageError);  // no training length
  EXPECT_THROW(values(""), UsageError);
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    ask = {};
    ask.positions = {bad};
    EXPECT_THROW(values("rope", ask), UsageError);
    ask = {};
    ask.distances = {bad};
    EXPECT_THROW(values("alibi", ask), UsageError);
    ask = {};
    ask.length = bad;
    EXPECT_THROW(values("rope", ask), UsageError);
  }
  ask = {};
  ask.layer = -1;
  EXPECT_THROW(values("rope", ask), UsageError);
}

TEST(Values, TextShowsTheNumbersAndAPicture) {
  Ask ask;
  ask.heads = 6;
  std::string text = values_text(request_of("alibi", ask));
  for (const char* part : {"6 query heads", "Slopes", "0.015625", "Bias by distance", "0 = head 0", "-50"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  text = values_text(request_of("rope", {}));
  for (const char* part : {"half layout", "0.749894209", "Mean cosine", "wavelength"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  text = values_text(request_of("cope", {}));
  for (const char* part : {"Depends on content", "cope.table (64, 64)", "no fixed values"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  for (const char* encoding : {"sinusoidal", "heads(logn(train_length=8) * 4, none * 4)", "t5", "none", "xpos + alibi"})
    for (const char one : values_text(request_of(encoding, {})))
      EXPECT_TRUE(one == '\n' || (one >= ' ' && one <= '~')) << encoding;
}

TEST(Picture, DrawsEachCurveWhereItsValuesAre) {
  std::vector<double> x, rising, flat;
  for (std::size_t i = 0; i < kPictureColumns; ++i) {
    x.push_back(static_cast<double>(i));
    rising.push_back(static_cast<double>(i));
    flat.push_back(0);
  }
  const std::string text = picture(x, {{"up", rising}, {"flat", flat}});
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  ASSERT_EQ(lines.size(), 14u);
  EXPECT_EQ(lines[0].back(), '0');                       // the top right is curve 0
  EXPECT_EQ(lines[0].find("60 |"), 2u);                  // the largest value
  EXPECT_NE(lines[10].find("0 |0"), std::string::npos);  // curve 0 hides curve 1 where they meet
  EXPECT_EQ(lines[10].back(), '1');                      // curve 1 lies at the bottom
  EXPECT_NE(lines[13].find("0 = up, 1 = flat"), std::string::npos);
  const double gap = std::nan("");
  EXPECT_EQ(picture(x, {{"none", std::vector<double>(kPictureColumns, gap)}}), "  nothing to draw\n");
}

TEST(Catalogue, HasEveryNameWithItsKeysTensorsAndContract) {
  const Json all = catalogue();
  ASSERT_EQ(all.size(), registry().size());
  for (const Json& one : all) {
    for (const char* key : {"name", "summary", "formula", "source"})
      EXPECT_FALSE(one[key].get<std::string>().empty()) << one["name"];
    EXPECT_FALSE(catalogue_text(one["name"].get<std::string>()).empty());
    if (one["takes"] == "encodings with counts") {
      EXPECT_TRUE(one["cache"].is_null());
      continue;
    }
    EXPECT_FALSE(one["cache"]["shift"].get<std::string>().empty()) << one["name"];
    EXPECT_NE(catalogue_text().find(one["summary"].get<std::string>()), std::string::npos);
  }
  const auto tensors = [](const char* name) {
    std::map<std::string, Json> found;
    const Json entry = catalogue_entry(name);
    for (const Json& tensor : entry["trained"]) found[tensor["name"].get<std::string>()] = tensor;
    return found;
  };
  EXPECT_EQ(tensors("t5").at("t5.table")["shape"], Json::array({32, "H"}));
  EXPECT_TRUE(tensors("t5").at("t5.table")["with"].is_null());
  EXPECT_EQ(tensors("txl").at("txl.w")["shape"], Json::array({"H", "D", "C"}));
  EXPECT_EQ(tensors("learned").at("learned.table")["shape"], Json::array({"L", "C"}));
  EXPECT_EQ(tensors("rope").at("rope.log_freq")["shape"], Json::array({1, "D/2"}));
  EXPECT_EQ(tensors("rope").at("rope.log_freq")["also"], Json::array({Json::array({"K", "D/2"})}));
  EXPECT_EQ(tensors("rope").at("rope.log_freq")["with"], "learn=true");
  EXPECT_EQ(tensors("alibi").at("alibi.slopes")["with"], "learn=true");
  EXPECT_EQ(tensors("fire").size(), 6u);
  EXPECT_EQ(tensors("fox").at("fox.weight")["shape"], Json::array({"H", "C"}));
  EXPECT_EQ(tensors("grape-a").at("grape-a.u")["shape"], Json::array({"K", "D"}));
  EXPECT_EQ(tensors("grape-a").at("grape-a.u")["with"], "gate=k or qk");
  EXPECT_EQ(tensors("grape-a").at("grape-a.v")["with"], "gate=q or qk");
  EXPECT_EQ(tensors("grape-a").at("grape-a.rho")["with"], "gate=k or q or qk");
  EXPECT_EQ(tensors("grape-a").at("grape-a.log_slopes")["with"], "learn_slopes=true");
  EXPECT_EQ(tensors("grape-ap").at("grape-ap.weight")["shape"], Json::array({"H", 8, "C"}));
  EXPECT_NE(catalogue_entry("grape-ap")["cache"]["evict"], "exact");
  EXPECT_EQ(catalogue_entry("grape-ap")["cache"]["evict_oldest"], "exact");
  EXPECT_EQ(catalogue_entry("fox")["cache"]["kept"], Json::array({"fox.potential"}));
  EXPECT_EQ(tensors("grape-m").at("grape-m.log_freq")["shape"], Json::array({1, "D/2"}));
  EXPECT_EQ(tensors("grape-m").at("grape-m.a")["with"], "planes=general or ja");
  EXPECT_EQ(tensors("grape-m").at("grape-m.b")["with"], "planes=general");
  EXPECT_EQ(tensors("grape-m").at("grape-m.mix")["shape"], Json::array({"K", "D", 4}));
  EXPECT_EQ(tensors("grape-m").at("grape-m.theta")["with"], "rank=4");
  EXPECT_EQ(tensors("grape-m").at("grape-m.skew")["shape"], Json::array({"D(D-1)/2"}));
  EXPECT_EQ(tensors("grape-m").at("grape-m.reflectors")["with"], "basis=householder");
  EXPECT_EQ(tensors("grape-m").at("grape-m.gate_weight")["shape"], Json::array({1, "C"}));
  EXPECT_TRUE(tensors("yarn").empty());
  EXPECT_EQ(tensors("tape").at("tape.up_proj")["shape"], Json::array({"4H", "H"}));
  EXPECT_EQ(tensors("tape").at("tape.x_proj")["shape"], Json::array({"4H", "C"}));
  EXPECT_EQ(catalogue_entry("tape")["cache"]["kept"], Json::array({"tape.state"}));
  EXPECT_EQ(catalogue_entry("tape")["takes"], "one rotary encoding");
  EXPECT_EQ(catalogue_entry("yarn")["takes"], "one rotary encoding");
  // What stands inside decides which tensors there are: a term and a rotation are tried.
  EXPECT_TRUE(catalogue_entry("sipe")["takes"].get<std::string>().starts_with("one of none, sinusoidal"));
  EXPECT_EQ(tensors("sipe").at("sipe.tau")["shape"], Json::array({2, "C"}));
  EXPECT_TRUE(tensors("sipe").at("sipe.tau")["shared_by_layers"]);
  EXPECT_EQ(tensors("sipe").at("sipe.w_e")["shape"], Json::array({"H", "D", "C"}));
  EXPECT_EQ(tensors("sipe").at("sipe.w_e")["with"], "coupling=tag_align or additive");
  EXPECT_EQ(tensors("sipe").at("sipe.w_phi")["shape"], Json::array({"D/2", "C"}));
  EXPECT_EQ(tensors("sipe").at("sipe.w_input")["with"], "prior=fsyn, inject=input or joint");
  EXPECT_EQ(catalogue_entry("sipe")["cache"]["kept"], Json::array({"sipe.tag", "sipe.sentence"}));
  EXPECT_EQ(catalogue_entry("dynamic")["cache"]["keys"], "unmoved, moved at each read");
  EXPECT_EQ(catalogue_entry("rope")["cache"]["keys"], "as moved at arrival");
  EXPECT_NE(catalogue_entry("cope")["cache"]["evict"], "exact");
  EXPECT_EQ(catalogue_entry("cope")["cache"]["evict_oldest"], "exact");
  const Json yarn = catalogue_entry("yarn");
  EXPECT_EQ(yarn["keys"][0]["name"], "factor");
  EXPECT_EQ(yarn["keys"][0]["required"], true);
  EXPECT_THROW(catalogue_entry("roep"), UsageError);
  EXPECT_THROW(catalogue_entry("rope + alibi"), UsageError);
  EXPECT_THROW(catalogue_entry(""), UsageError);
}

}  // namespace
}  // namespace torsor
