#include "torsor/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/base/test_folder.h"
#include "torsor/base/random.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::TestFolder;

std::string refusal(const std::string& text, int max_depth = 64) {
  return message_of<Error>([&] { parse_json(text, "run.json", max_depth); });
}

std::string nested(int levels) {
  return std::string(static_cast<std::size_t>(levels), '[') + std::string(static_cast<std::size_t>(levels), ']');
}

TEST(ParseJson, ReadsEveryKindOfValue) {
  const Json json = parse_json(
      " {\"z\": [1, -2, 3.5, true, false, null], \"a\": {\"b\": \"\\u20ac\xC3\xA9\\n\"}, \"empty\": {}, \"\": []} \n",
      "x");
  EXPECT_EQ(json.size(), 4u);
  EXPECT_EQ(json.begin().key(), "z");  // the order of the file
  EXPECT_EQ(json["z"], Json::parse("[1, -2, 3.5, true, false, null]"));
  EXPECT_EQ(json["a"]["b"], "\xE2\x82\xAC\xC3\xA9\n");
  EXPECT_TRUE(json["empty"].is_object());
  EXPECT_TRUE(json[""].is_array());
  EXPECT_EQ(parse_json("7", "x"), 7);
  EXPECT_EQ(parse_json("\xEF\xBB\xBF{}", "x"), Json::object());
  EXPECT_EQ(parse_json("18446744073709551615", "x").get<std::uint64_t>(), ~0ull);
  EXPECT_EQ(parse_json("-9223372036854775808", "x").get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
}

TEST(ParseJson, EqualsThePlainParserOnANestedDocument) {
  Random random(1);
  const std::function<Json(int)> make = [&](int depth) -> Json {
    const auto kind = random.below(depth > 5 ? 5 : 7);
    if (kind == 0) return random.normal();
    if (kind == 1) return random.next_uint64();
    if (kind == 2) return -static_cast<std::int64_t>(random.below(1000));
    if (kind == 3) return std::string(random.below(5), '"');
    if (kind == 4) return nullptr;
    Json value = kind == 5 ? Json::array() : Json::object();
    for (auto left = random.below(8); left > 0; --left) {
      if (kind == 5) {
        value.push_back(make(depth + 1));
      } else {
        value["k" + std::to_string(left)] = make(depth + 1);
      }
    }
    return value;
  };
  for (int i = 0; i < 200; ++i) {
    const Json value = make(0);
    EXPECT_EQ(parse_json(json_text(value), "x"), value);
    EXPECT_EQ(parse_json(json_text(value, 2), "x"), value);
  }
}

TEST(ParseJson, RefusesWithThePlace) {
  EXPECT_EQ(refusal("{\n  \"a\": 1,\n  \"a\": 2\n}"), "run.json:3:5: duplicate key 'a'");
  EXPECT_TRUE(contains(refusal("{\n\"a\": nope}"), "run.json:2:7: not valid JSON: "));
  EXPECT_TRUE(contains(refusal("{} {}"), "run.json:1:4: not valid JSON: "));
  EXPECT_TRUE(contains(refusal(std::string("{}\0{}", 5)), "run.json:1:3: a NUL byte"));
  EXPECT_TRUE(contains(refusal("{}\n" + std::string(1, '\0')), "run.json:2:1: a NUL byte"));
  EXPECT_TRUE(contains(refusal(""), "run.json:1:1: not valid JSON: "));
}

TEST(ParseJson, RefusesWhatIsNotStrict) {
  for (const char* text : {" ",           "{",         "[1,]",
                           "{\"a\":1,}",  "{a:1}",     "{'a':1}",
                           "NaN",         "Infinity",  "-Infinity",
                           "nan",         "[1 2]",     "01",
                           "+1",          ".5",        "1.",
                           "0x10",        "1e999",     "-1e999",
                           "\"\t\"",      "\"\xFF\"",  "\"\xED\xA0\x80\"",
                           "\"\\ud800\"", "\"\\x41\"", "// c\n1",
                           "/* c */ 1",   "True",      "]",
                           "[1}",         "\"open",    "{\"a\"}",
                           "{\"a\":}",    "[1]x",      "{\"a\":1 \"b\":2}"}) {
    EXPECT_TRUE(contains(refusal(text), "not valid JSON")) << text;
  }
}

TEST(ParseJson, FindsDuplicateKeysAtEveryLevel) {
  EXPECT_TRUE(contains(refusal("[{\"b\": {\"a\": 1, \"c\": {}, \"a\": 2}}]"), "duplicate key 'a'"));
  EXPECT_TRUE(contains(refusal("{\"a\\u0062\": 1, \"\\u0061b\": 2}"), "duplicate key 'ab'"));
  EXPECT_TRUE(contains(refusal("{\"\\u001b[0m\": 1, \"\\u001b[0m\": 2}"), "'\\x1b[0m'"));
  EXPECT_NO_THROW(parse_json("{\"a\": {\"a\": [{\"a\": 1}, {\"a\": 2}]}, \"A\": 1}", "x"));
}

TEST(ParseJson, LimitsTheDepth) {
  EXPECT_NO_THROW(parse_json(nested(64), "x"));
  EXPECT_EQ(refusal(nested(65)), "run.json:1:65: nested deeper than 64 levels");
  EXPECT_TRUE(contains(refusal(std::string(1000000, '[')), "nested deeper"));
  EXPECT_NO_THROW(parse_json(nested(3), "x", 3));
  EXPECT_TRUE(contains(refusal("{\"a\":{\"a\":{\"a\":{}}}}", 3), "deeper than 3"));
  EXPECT_NO_THROW(parse_json("1", "x", 0));
  EXPECT_NO_THROW(parse_json(nested(1000), "x", 1000));
}

TEST(ParseJson, LargeObjectsTakeTimeInProportion) {
  // Quadratic search would take minutes, not a moment.
  std::string text = "{";
  for (int i = 0; i < 300000; ++i) text += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":" + std::to_string(i);
  const Json json = parse_json(text + "}", "x");
  EXPECT_EQ(json.size(), 300000u);
  EXPECT_EQ(json.back(), 299999);
}

TEST(JsonText, DoublesComeBackToTheSameBits) {
  Random random(2);
  for (int i = 0; i < 20000; ++i) {
    double value = 0;
    const std::uint64_t bits = random.next_uint64();
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const double back = parse_json(json_text(Json(value)), "x").get<double>();
    ASSERT_EQ(std::memcmp(&back, &value, sizeof value), 0) << value;
  }
  EXPECT_EQ(json_text(Json(0.1)), "0.1");
}

TEST(JsonText, NeverThrows) {
  EXPECT_EQ(json_text(Json{{"loss", std::nan("")}, {"text", "a\xFFz"}}), "{\"loss\":null,\"text\":\"a\xEF\xBF\xBDz\"}");
  EXPECT_EQ(json_text(Json{{"a", {1}}}, 2), "{\n  \"a\": [\n    1\n  ]\n}");
}

TEST(ReadJson, NamesThePath) {
  TestFolder folder;
  EXPECT_EQ(read_json(folder.put("a.json", "[1]")), Json::array({1}));
  folder.put("b.json", "[1");
  EXPECT_TRUE(contains(message_of<Error>([&] { read_json(folder / "b.json"); }), (folder / "b.json") + ":1:2: "));
  EXPECT_TRUE(contains(message_of<Error>([&] { read_json(folder / "none"); }), "cannot read"));
}

class JsonObjectTest : public ::testing::Test {
 protected:
  template <class T>
  T get(const std::string& text) {
    const Json json = parse_json("{\"k\": " + text + "}", "x");
    return JsonObject(json, "run.json").get<T>("k");
  }
  template <class T>
  std::string refused(const std::string& text) {
    return message_of<UsageError>([&] { get<T>(text); });
  }
};

TEST_F(JsonObjectTest, ReadsTypes) {
  EXPECT_EQ(get<bool>("true"), true);
  EXPECT_EQ(get<int>("-7"), -7);
  EXPECT_EQ(get<std::int64_t>("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(get<std::uint64_t>("18446744073709551615"), ~0ull);
  EXPECT_EQ(get<std::int64_t>("1e6"), 1000000);
  EXPECT_EQ(get<int>("2.0"), 2);
  EXPECT_EQ(get<double>("3"), 3.0);
  EXPECT_EQ(get<double>("0.1"), 0.1);
  EXPECT_EQ(get<float>("0.1"), 0.1f);
  EXPECT_EQ(get<std::string>("\"s\""), "s");
  EXPECT_EQ(get<Json>("[null]"), Json::parse("[null]"));
  EXPECT_EQ(get<std::vector<int>>("[1, 2]"), (std::vector<int>{1, 2}));
  EXPECT_EQ(get<std::vector<bool>>("[true, false]"), (std::vector<bool>{true, false}));
  EXPECT_EQ(get<std::vector<std::vector<double>>>("[[1], []]"), (std::vector<std::vector<double>>{{1}, {}}));
  EXPECT_EQ((get<std::map<std::string, double>>("{\"a\": 1}")), (std::map<std::string, double>{{"a", 1}}));
  EXPECT_EQ(get<std::optional<int>>("3"), 3);
  EXPECT_EQ(get<std::optional<int>>("null"), std::nullopt);
}

TEST_F(JsonObjectTest, RefusesOtherTypes) {
  EXPECT_EQ(refused<int>("\"ten\""), "run.json: key 'k' must be an integer of 32 bits, got \"ten\" (string)");
  for (const char* text : {"2147483648", "-2147483649", "1.5", "1e300", "true", "null", "[]", "\"1\""})
    refused<int>(text);
  for (const char* text : {"9223372036854775808", "1e16", "0.5", "18446744073709551616"}) refused<std::int64_t>(text);
  for (const char* text : {"-1", "-1.0", "18446744073709551616"}) refused<std::uint64_t>(text);
  for (const char* text : {"1", "0", "\"true\"", "null"}) refused<bool>(text);
  for (const char* text : {"true", "\"1\"", "null", "[1]"}) refused<double>(text);
  for (const char* text : {"1e39", "-1e39"}) refused<float>(text);
  for (const char* text : {"1", "null", "[\"a\"]"}) refused<std::string>(text);
  EXPECT_TRUE(contains(refused<std::vector<int>>("[1, 2, \"x\"]"), "'k[2]' must be an integer"));
  EXPECT_TRUE(contains((refused<std::map<std::string, bool>>("{\"a\": 1}")), "'k.a' must be true or false"));
  refused<std::vector<int>>("1");
  refused<std::vector<int>>("{}");
  const std::string message = refused<int>("\"" + std::string(1000, 'x') + "\\u001b\"");
  EXPECT_LT(message.size(), 200u);
}

TEST_F(JsonObjectTest, DefaultsStandForMissingAndNull) {
  const Json json = parse_json("{\"a\": 1, \"n\": null, \"w\": \"x\"}", "x");
  JsonObject object(json, "run.json");
  EXPECT_EQ(object.get<int>("a", 5), 1);
  EXPECT_EQ(object.get<int>("n", 5), 5);
  EXPECT_EQ(object.get<int>("missing", 5), 5);
  EXPECT_EQ(object.get<std::string>("missing", "text"), "text");
  EXPECT_THROW(object.get<int>("w", 5), UsageError);
  EXPECT_TRUE(object.has("a"));
  EXPECT_FALSE(object.has("n"));
  EXPECT_FALSE(object.has("missing"));
  EXPECT_EQ(message_of<UsageError>([&] { object.get<int>("gone"); }), "run.json: key 'gone' is missing");
}

TEST_F(JsonObjectTest, FinishRefusesUnknownKeys) {
  const Json json = parse_json("{\"steps\": 1, \"lerning_rate\": 2}", "x");
  JsonObject object(json, "run.json");
  object.get<int>("steps");
  object.get<double>("learning_rate", 1.0);
  object.get<int>("steps");
  object.allow("seed");
  EXPECT_EQ(object.unknown(), std::vector<std::string>{"lerning_rate"});
  EXPECT_EQ(message_of<UsageError>([&] { object.finish(); }),
            "run.json: unknown key 'lerning_rate'; possible keys: steps, learning_rate, seed");
  object.allow("lerning_rate");
  EXPECT_TRUE(object.unknown().empty());
  EXPECT_NO_THROW(object.finish());
  const Json other = parse_json("{\"x\": 1}", "x");
  EXPECT_TRUE(contains(message_of<UsageError>([&] { JsonObject(other, "s").finish(); }), "possible keys: none"));
}

TEST_F(JsonObjectTest, NestedObjectsNameTheirPlace) {
  const Json json = parse_json("{\"model\": {\"layers\": 0.5}, \"data\": 1}", "x");
  JsonObject object(json, "run.json");
  JsonObject model = object.object("model");
  EXPECT_EQ(model.source(), "run.json: model");
  EXPECT_TRUE(contains(message_of<UsageError>([&] { model.get<int>("layers"); }), "run.json: model: key 'layers'"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { object.object("data"); }), "'data' must be an object, got 1"));
  EXPECT_TRUE(contains(message_of<UsageError>([&] { object.object("gone"); }), "'gone' is missing"));
  EXPECT_NO_THROW(object.allow("gone"));
  EXPECT_NO_THROW(object.finish());
}

TEST_F(JsonObjectTest, BlameDecidesTheErrorType) {
  const Json list = Json::array();
  EXPECT_EQ(message_of<UsageError>([&] { JsonObject(list, "run.json"); }),
            "run.json: expected an object, got [] (array)");
  try {
    JsonObject(list, "state.json", JsonObject::Blame::data);
    FAIL();
  } catch (const UsageError&) {
    FAIL() << "a broken file is no usage error";
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace torsor
