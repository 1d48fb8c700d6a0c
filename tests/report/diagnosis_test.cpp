// The page and the text of a diagnosis, from its document alone.
#include "torsor/report/diagnosis.h"

#include <gtest/gtest.h>

#include "tests/report/markup_check.h"
#include "torsor/base/error.h"
#include "torsor/report/diagnosis_pictures.h"
#include "torsor/report/diagnosis_tables.h"

namespace torsor::report {
namespace {

constexpr double kTurn = 6.283185307179586;

Json rotation_of(const std::string& term, bool scaled) {
  Json rotation = {{"term", term},          {"layers", {0, 1}},          {"heads", {0, 2}},
                   {"key_head", nullptr},   {"initial", false},          {"magnitude", 1.0},
                   {"softmax_factor", 1.0}, {"length_dependent", false}, {"scaling", nullptr}};
  if (scaled) rotation["scaling"] = {{"name", "yarn"}, {"factor", 4.0}, {"train_length", 16.0}};
  const std::vector<double> frequency = {1, 0.01};
  rotation["planes"] = Json::array();
  for (std::size_t i = 0; i < 2; ++i)
    rotation["planes"].push_back({{"plane", i},
                                  {"axis", 0},
                                  {"frequency", frequency[i]},
                                  {"plain_frequency", frequency[i]},
                                  {"wavelength", kTurn / frequency[i]},
                                  {"trained_turns", 16 * frequency[i] / kTurn}});
  rotation["lengths"] = Json::array();
  for (const int length : {16, 64}) {
    Json at = {{"length", length},
               {"reach", length},
               {"turns", {length / kTurn, length * 0.01 / kTurn}},
               {"unseen", {1}},
               {"worst", 4.0}};
    if (scaled) {
      at["slowed"] = {1.0, 4.0};
      at["treatment"] = {"kept", "stretched"};
    }
    rotation["lengths"].push_back(at);
  }
  rotation["dtypes"] = Json::parse(
      R"([{"dtype": "bf16", "first_position": 257, "plane": 0, "error": 1.0, "searched": 1048576},
          {"dtype": "float32", "first_position": null, "plane": null, "error": null, "searched": 1048576}])");
  return rotation;
}

Json fixture(bool measured = true) {
  Json json = {
      {"format", "torsor-diagnosis-1"},
      {"subject", "checkpoint"},
      {"checkpoint", "run"},
      {"encoding", "rope + alibi"},
      {"train_length", 16},
      {"lengths", {16, 64}},
      {"model", {{"layers", 2}, {"heads", 2}, {"kv_heads", 1}, {"head_dim", 4}, {"width", 8}}},
      {"verdict", {"rope + alibi, trained at 16, breaks from 25 tokens on: the loss rises.", "Measured on 2 windows."}},
      {"not_measured", ""},
      {"bounds", {{"angle", 0.01}, {"faint", 10}}},
      {"repeat", "torsor diagnose run --lengths 16,64"}};
  json["findings"] = Json::parse(R"([
    {"severity": "breaks", "basis": "measured", "topic": "loss", "from_length": 25, "what": "the loss rises by 0.6 nats a token",
     "why": "3.6 past 16 positions", "do": ["torsor extend run --encoding 'yarn(rope, factor=4) + alibi' --out extended"]},
    {"severity": "note", "basis": "expected", "topic": "sight", "from_length": null, "what": "heads see 20 to 40 tokens",
     "why": "there the bias ends", "do": ["or shorter texts"]}])");
  json["facts"] = {
      {"windows", {0, 0}},
      {"rotations", Json::array({rotation_of("rope", false), rotation_of("yarn(rope, factor=4)", true)})},
      {"biases", Json::array()},
      {"embeddings", Json::array()},
      {"temperatures", Json::parse(R"([{"term": "logn", "factor": [1.0, 1.5]}])")},
      {"training_lengths", Json::parse(R"([{"term": "logn", "key": "train_length", "length": 100, "agrees": false}])")},
      {"twice", false},
      {"memory",
       Json::parse(
           R"([{"length": 64, "naive_bias_bytes": 32768, "stored_bias_bytes": 8, "cache_float32_bytes": 4096, "cache_bf16_bytes": 2048}])")},
      {"unknown", Json::array()}};
  json["facts"]["biases"].push_back(
      Json::parse(R"({"term": "alibi", "layers": [0, 1], "heads": [0, 2], "forms": ["linear"], "content": [],
    "initial": false, "distances": [0, 1, 15, 63], "per_head": [[0, -0.5, -7.5, -31.5], [0, -0.25, -3.75, -15.75]], "sight": [20, 40],
    "merge_from": null, "wraps": null, "counts": null, "rows": [{"length": 64, "read": 5, "unseen": [3, 4], "first_distance": 20}]})"));
  json["measured"] = nullptr;
  if (!measured) return json;
  Json layers = Json::array();
  for (int layer = 0; layer < 2; ++layer)
    layers.push_back(Json::parse(R"({"window": 0, "entropy": [1.0, 2.0, 3.0], "relative_entropy": [null, 0.5, 0.75],
      "first_token": [0.5, 0.25, 0.125], "distance": [1.0, 5.0, 20.0], "largest_logit": [3.0, 4.0, 5.0], "rms": [1.0, 1.1, 1.6],
      "largest_channel": [3, 3, 4], "largest_channel_mean": [2.0, 2.1, 3.0],
      "heads": [{"entropy": [1, 2], "relative_entropy": [0.4, 0.6], "first_token": [0.3, 0.1], "distance": [3, 15]},
                {"entropy": [1, null], "relative_entropy": [0.4, null], "first_token": [0.3, null], "distance": [3, null]}]})"));
  json["measured"] = {
      {"text", "book.txt"},
      {"length", 64},
      {"windows", 2},
      {"stride", 8},
      {"loss", 3.2},
      {"bins",
       Json::parse(
           R"([{"from": 0, "to": 8, "targets": 16, "loss": 4.0, "inside": 4.0, "difference": 0, "error": 0, "largest_logit": 9},
                                              {"from": 8, "to": 16, "targets": 16, "loss": 3.5, "inside": 3.5, "difference": 0, "error": 0, "largest_logit": 9},
                                              {"from": 16, "to": 64, "targets": 96, "loss": 3.6, "inside": 3.0, "difference": 0.6, "error": null, "largest_logit": 9}])")},
      {"layers", layers},
      {"last_rms", {1.0, 1.2, 2.0}}};
  return json;
}

TEST(DiagnosisPage, IsWholeAndNeedsNothingElse) {
  for (const bool measured : {true, false}) {
    std::string html = diagnosis_page(fixture(measured));
    EXPECT_EQ(tag_fault(html), "");
    const std::string name_space = "http://www.w3.org/2000/svg";
    for (std::size_t at = html.find(name_space); at != std::string::npos; at = html.find(name_space))
      html.erase(at, name_space.size());
    for (const char* part : {"http:", "https:", "src=", "href=", "@import", "url(http", "<link", "<img", "fetch(",
                             "=\"nan", "=\"inf", "=\"-inf", "fill=\"#"})
      EXPECT_EQ(html.find(part), std::string::npos) << part;
    EXPECT_NE(html.find("default-src &#39;none&#39;"), std::string::npos);
    const std::size_t pictures = count(html, "role=\"img\"");
    // Wavelengths twice, one scaling: each wide and narrow; one panel; measured: two of the loss, four of attention,
    // two of activations.
    EXPECT_EQ(pictures, (measured ? 2u * 8 : 0u) + 2u * 3 + 1);
    EXPECT_EQ(count(html, "<desc "), pictures);
    EXPECT_EQ(count(html, "<summary>Numbers</summary>"), (measured ? 8u : 0u) + 3 + 1);
  }
}

TEST(DiagnosisPage, SaysTheVerdictFirst) {
  const std::string html = diagnosis_page(fixture());
  std::size_t last = 0;
  for (const char* part : {"<h1>rope + alibi, trained at 16, breaks", ">Loss by position<", ">Findings<",
                           "badge breaks", "The loss rises by 0.6", "measured, from 25 tokens on", "factor=4) + alibi",
                           "expected, at every length", ">Attention by position<", ">Activations by position<",
                           ">Turns against the training length<", ">Bias by distance<", ">Lengths and memory<",
                           "32.0 KiB", ">Settings and how to repeat<", "torsor diagnose run"}) {
    const std::size_t at = html.find(part, last);
    ASSERT_NE(at, std::string::npos) << part;
    last = at;
  }
  EXPECT_NE(html.find("trained at 16"), std::string::npos);
}

TEST(DiagnosisPage, HostileNamesStayText) {
  const std::string evil = "<script>alert('x')</script>\"&";
  Json json = fixture();
  json["checkpoint"] = json["encoding"] = json["repeat"] = evil;
  json["verdict"][1] = evil;
  json["findings"][0]["what"] = json["findings"][0]["why"] = json["findings"][0]["do"][0] = evil;
  json["facts"]["rotations"][0]["term"] = json["facts"]["biases"][0]["term"] = evil;
  json["measured"]["text"] = evil;
  const std::string html = diagnosis_page(json);
  EXPECT_EQ(tag_fault(html), "");
  EXPECT_EQ(count(html, "<script"), 1u) << "the page's own";
  json["encoding"] = json["verdict"][0] = "a\nb\x1b[31m";
  EXPECT_EQ(diagnosis_text(json).find('\x1b'), std::string::npos);
}

TEST(DiagnosisPage, OddNumbersDoNotBreakIt) {
  Json json = fixture();
  for (Json& bin : json["measured"]["bins"]) bin["loss"] = bin["difference"] = bin["inside"] = nullptr;
  for (Json& layer : json["measured"]["layers"]) layer["rms"] = layer["largest_logit"] = {nullptr, nullptr, nullptr};
  json["measured"]["last_rms"] = {nullptr, nullptr, nullptr};
  json["facts"]["biases"][0]["per_head"][0][3] = nullptr;
  json["findings"] = Json::array();
  const std::string html = diagnosis_page(json);
  EXPECT_EQ(tag_fault(html), "");
  EXPECT_NE(html.find("Nothing was found."), std::string::npos);
  EXPECT_NE(diagnosis_text(json).find("none"), std::string::npos);
}

TEST(DiagnosisPage, RefusesOtherDocuments) {
  for (const char* text :
       {"{}", "[]", "3", R"({"format": "torsor-results-1"})", R"({"format": "torsor-diagnosis-1"})"}) {
    EXPECT_THROW(diagnosis_page(Json::parse(text)), Error) << text;
    EXPECT_THROW(diagnosis_text(Json::parse(text)), Error) << text;
  }
  Json json = fixture();
  json["measured"]["layers"][0].erase("entropy");
  EXPECT_THROW(diagnosis_page(json), Error);
}

TEST(DiagnosisText, HoldsEveryTable) {
  const std::string text = diagnosis_text(fixture());
  for (const char* part :
       {"rope + alibi\nrun: 2 layers, 2 query heads and 1 key heads of width 4, trained at 16 positions\n", "Verdict\n",
        "  breaks (measured, from 25 tokens on): the loss rises by 0.6 nats a token\n    why: 3.6 past 16 positions\n"
        "    do:  torsor extend run --encoding 'yarn(rope, factor=4) + alibi' --out extended\n",
        "Planes of rope\n", "turns at 64", "stretched", "How far heads see: alibi", "3, 4", "from position",
        "none up to 1048576", "32.0 KiB", "logn", "16 to 63", "By layer"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    EXPECT_TRUE(end == at || text[end - 1] != ' ') << text.substr(at, end - at);
  EXPECT_EQ(diagnosis_text(fixture(false)).find("By position"), std::string::npos);
}

TEST(DiagnosisText, WordsOfTheTables) {
  EXPECT_EQ(capital("the loss rises"), "The loss rises");
  EXPECT_EQ(capital("yarn(rope) keeps"), "yarn(rope) keeps");
  EXPECT_EQ(capital(""), "");
  EXPECT_EQ(shown_ranges(Json::parse("[0, 1, 2, 5]")), "0 to 2, 5");
  EXPECT_EQ(shown_number(nullptr), "-");
  EXPECT_EQ(shown_number(2.0), "2");
  EXPECT_EQ(part_title(rotation_of("rope", false), fixture()), "rope");
  Json part = rotation_of("rope", false);
  part["layers"] = {1};
  part["heads"] = {1, 2};
  EXPECT_EQ(part_title(part, fixture()), "rope, heads 1 to 1, layer 1");
  const Rows rows = plane_rows(rotation_of("rope", false), 1);
  ASSERT_EQ(rows.size(), 2u);
}

}  // namespace
}  // namespace torsor::report
