#include "torsor/base/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/base/test_folder.h"
#include "tests/fuzz/fuzz.h"
#include "torsor/base/error.h"
#include "torsor/base/file.h"
#include "torsor/base/hash.h"
#include "torsor/base/random.h"

namespace torsor {
namespace {

using testing::contains;
using testing::message_of;
using testing::shared_path;
using testing::slurp;
using testing::TestFolder;

/// A file by hand: length, header, data.
std::string file_of(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

std::string header_of(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{" + tensor("t", dtype, shape, offsets) + "}";
}

SafetensorsFile open(const std::string& bytes) { return SafetensorsFile::from_bytes(bytes, "m.safetensors"); }

template <class T>
std::vector<T> values(const SafetensorsEntry& entry) {
  std::vector<T> result(entry.bytes / sizeof(T));
  if (!result.empty()) std::memcpy(result.data(), entry.data, entry.bytes);
  return result;
}

TEST(Safetensors, ReadsAFileByHand) {
  const float floats[] = {1.5f, -0.0f};
  std::string data(reinterpret_cast<const char*>(floats), 8);
  data += "\x01\x02\x03";
  const SafetensorsFile file =
      open(file_of("{" + tensor("b", "U8", "[3,1]", "[8,11]") + ", \"__metadata__\":{\"format\":\"pt\"}," +
                       tensor("a", "F32", "[2]", "[0,8]") + "}   ",
                   data));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(file.entry("a").dtype, Dtype::F32);
  EXPECT_EQ(file.entry("a").shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(values<float>(file.entry("a"))[0], 1.5f);
  EXPECT_TRUE(std::signbit(values<float>(file.entry("a"))[1]));
  EXPECT_EQ(file.entry("b").shape, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(file.entry("b").elements(), 3);
  EXPECT_EQ(values<std::uint8_t>(file.entry("b")), (std::vector<std::uint8_t>{1, 2, 3}));
  EXPECT_TRUE(file.has("a"));
  EXPECT_FALSE(file.has("c"));
  EXPECT_EQ(message_of<Error>([&] { file.entry("c"); }), "m.safetensors: expected a tensor named 'c', there is none");
}

TEST(Safetensors, ReadsScalarsEmptyTensorsAndEmptyFiles) {
  const SafetensorsFile file = open(file_of(
      "{" + tensor("scalar", "I16", "[]", "[0,2]") + "," + tensor("e", "F64", "[0]", "[0,0]") + "," +
          tensor("f", "F64", "[3,0,4]", "[2,2]") + "," + tensor("g", "U8", "[0,9223372036854775807]", "[2,2]") + "}",
      std::string("\xFE\xFF", 2)));
  EXPECT_EQ(values<std::int16_t>(file.entry("scalar")), std::vector<std::int16_t>{-2});
  EXPECT_TRUE(file.entry("scalar").shape.empty());
  EXPECT_EQ(file.entry("scalar").elements(), 1);
  EXPECT_EQ(file.entry("f").shape, (std::vector<std::int64_t>{3, 0, 4}));
  EXPECT_EQ(file.entry("f").bytes, 0u);
  EXPECT_EQ(file.entry("g").elements(), 0);
  EXPECT_TRUE(open(file_of("{}")).names().empty());
  EXPECT_TRUE(open(file_of("{\"__metadata__\":{}}      ")).metadata().empty());
}

TEST(Safetensors, KnowsItsTypes) {
  const std::pair<const char*, std::size_t> expected[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_name(dtype), expected[i].first);
    EXPECT_EQ(dtype_size(dtype), expected[i].second);
    EXPECT_EQ(dtype_of(expected[i].first), dtype);
    const std::string size = std::to_string(3 * expected[i].second);
    const SafetensorsFile file = open(
        file_of(header_of(expected[i].first, "[3]", "[0," + size + "]"), std::string(3 * expected[i].second, 'x')));
    EXPECT_EQ(file.entry("t").dtype, dtype);
  }
  EXPECT_EQ(dtype_of("U64"), Dtype::U64);
  for (const char* name : {"F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"}) {
    EXPECT_TRUE(contains(message_of<Error>([&] { dtype_of(name); }), std::string("'") + name + "' is not supported"));
  }
  EXPECT_TRUE(contains(message_of<Error>([] { dtype_of("f32"); }), "'f32' is unknown, expected one of BOOL, U8"));
}

struct Hostile {
  const char* name;
  std::string file;
  std::string expected;  // part of the message
};

void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }

class HostileFile : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileFile, IsRefused) {
  const std::string message = message_of<Error>([&] { open(GetParam().file); });
  EXPECT_TRUE(contains(message, GetParam().expected)) << message;
  EXPECT_TRUE(message.starts_with("m.safetensors: ")) << message;
  EXPECT_LT(message.size(), 500u);
  // The same through a file.
  TestFolder folder;
  EXPECT_THROW(SafetensorsFile(folder.put("m.safetensors", GetParam().file)), Error);
}

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + rest;
}

const std::string eight(8, 'd');
const std::string good = header_of("F32", "[2]", "[0,8]");

std::vector<Hostile> hostile_files() {
  const std::string huge = "4611686018427387904";  // 2^62
  const std::string deserialization = "[InvalidHeaderDeserialization]";
  std::string long_rank = "[1";
  for (int i = 0; i < 64; ++i) long_rank += ",1";
  long_rank += "]";
  return {
      {"Empty", "", "[HeaderTooSmall]"},
      {"SevenBytes", std::string(7, '\0'), "[HeaderTooSmall]"},
      {"NoHeader", std::string(8, '\0'), "[InvalidHeaderStart]"},
      {"LengthTooLarge", with_length(100'000'001, good), "[HeaderTooLarge]"},
      {"LengthOverflows", with_length(~0ull, good), "[HeaderTooLarge]"},
      {"LengthMinusEight", with_length(~0ull - 7, good), "[HeaderTooLarge]"},
      {"LengthBeyondTheFile", with_length(good.size() + 9, good + eight), "[InvalidHeaderLength]"},
      {"NotUtf8", file_of("{\"\xFF\":1}"), "[InvalidHeader]"},
      {"SurrogateInUtf8", file_of("{\"\xED\xA0\x80\":1}"), "[InvalidHeader]"},
      {"LeadingSpace", file_of(" " + good, eight), "[InvalidHeaderStart]"},
      {"LeadingMark", file_of("\xEF\xBB\xBF" + good, eight), "[InvalidHeaderStart]"},
      {"List", file_of("[]"), "[InvalidHeaderStart]"},
      {"CutJson", file_of("{\"t\":{\"dtype\":\"F32\""), "not valid JSON"},
      {"TextAfterTheObject", file_of(good + "{}", eight), "not valid JSON"},
      {"NulPadding", file_of(good + std::string(3, '\0'), eight), "NUL"},
      {"NulThenMore", file_of("{}" + std::string(1, '\0') + "junk"), "NUL"},
      {"TensorIsNumber", file_of("{\"t\":1}"), deserialization},
      {"TensorIsNull", file_of("{\"t\":null}"), deserialization},
      {"TensorIsList", file_of("{\"t\":[]}"), deserialization},
      {"TensorIsEmpty", file_of("{\"t\":{}}"), "lacks dtype"},
      {"NoShape", file_of("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}"), "lacks shape"},
      {"NoOffsets", file_of("{\"t\":{\"dtype\":\"F32\",\"shape\":[0]}}"), "lacks data_offsets"},
      {"UnknownKey", file_of("{\"t\":{\"strides\":[1]}}"), "unknown key 'strides' in tensor 't'"},
      {"NestedTensor", file_of("{\"t\":{\"dtype\":{\"dtype\":1}}}"), "expected dtype to be a string"},
      {"DeepNesting", file_of("{\"t\":" + std::string(100000, '[')), deserialization},
      {"DeepObjects", file_of("{\"t\":{\"shape\":{\"a\":{\"a\":{}}}}}"), deserialization},
      {"DeepShape", file_of(header_of("F32", "[[2]]", "[0,8]"), eight), deserialization},
      {"UnknownType", file_of(header_of("F31", "[2]", "[0,8]"), eight), "'F31' is unknown"},
      {"ForeignType", file_of(header_of("C64", "[1]", "[0,8]"), eight), "'C64' is not supported"},
      {"LowerCaseType", file_of(header_of("f32", "[2]", "[0,8]"), eight), "'f32' is unknown"},
      {"TypeIsNumber", file_of("{\"t\":{\"dtype\":3}}"), "expected dtype to be a string, got the number 3"},
      {"NegativeSize", file_of(header_of("F32", "[-2]", "[0,8]"), eight), "the negative number -2"},
      {"TwoNegativeSizes", file_of(header_of("F32", "[-1,-2]", "[0,8]"), eight), "the negative number -1"},
      {"FractionalSize", file_of(header_of("F32", "[2.0]", "[0,8]"), eight), "the number 2.0"},
      {"ExponentSize", file_of(header_of("F32", "[2e0]", "[0,8]"), eight), "the number 2e0"},
      {"TextSize", file_of(header_of("F32", "[\"2\"]", "[0,8]"), eight), "a string"},
      {"BooleanSize", file_of(header_of("F32", "[true]", "[0,8]"), eight), "a boolean"},
      {"NullSize", file_of(header_of("F32", "[null]", "[0,8]"), eight), "null"},
      {"ShapeIsNumber", file_of(header_of("F32", "2", "[0,8]"), eight), "expected shape to be a list"},
      {"SizeBeyondInt64", file_of(header_of("F32", "[9223372036854775808]", "[0,8]"), eight), "range of int64"},
      {"SizeBeyondUint64", file_of(header_of("F32", "[18446744073709551618]", "[0,8]"), eight), "18446744073709551618"},
      {"ProductOverflows", file_of(header_of("F32", "[" + huge + "," + huge + "]", "[0,8]"), eight),
       "[ValidationOverflow]"},
      // 2^62 * 4 + 2 in 64 bits would be 2, and 2^61 elements of F32 take 2^66 bits, which is 0.
      {"BitsOverflow", file_of(header_of("F32", "[2305843009213693952]", "[0,0]")), "[ValidationOverflow]"},
      {"OverflowBeforeZero", file_of(header_of("F32", "[" + huge + ",4,0]", "[0,0]")), "[ValidationOverflow]"},
      {"TooManyDimensions", file_of(header_of("U8", long_rank, "[0,1]"), "d"), "more than 64 dimensions"},
      {"OneOffset", file_of(header_of("F32", "[2]", "[8]"), eight), "fewer than two data_offsets"},
      {"NoOffsetInList", file_of(header_of("F32", "[2]", "[]"), eight), "fewer than two data_offsets"},
      {"ThreeOffsets", file_of(header_of("F32", "[2]", "[0,8,8]"), eight), "more than two data_offsets"},
      {"NegativeOffset", file_of(header_of("F32", "[2]", "[-8,0]"), eight), "the negative number -8"},
      {"FractionalOffset", file_of(header_of("F32", "[2]", "[0,8.0]"), eight), "the number 8.0"},
      {"OffsetBeyondUint64", file_of(header_of("F32", "[2]", "[0,18446744073709551624]"), eight),
       "18446744073709551624"},
      {"EndBeforeBegin", file_of(header_of("F32", "[2]", "[8,0]"), eight), "[InvalidOffset]"},
      {"EndBeforeBeginLater",
       file_of("{" + tensor("a", "U8", "[8]", "[0,8]") + "," + tensor("b", "U8", "[0]", "[8,7]") + "}", eight),
       "[InvalidOffset]"},
      {"HoleAtTheStart", file_of(header_of("F32", "[1]", "[4,8]"), eight), "[InvalidOffset]"},
      {"HoleBetween",
       file_of("{" + tensor("a", "U8", "[2]", "[0,2]") + "," + tensor("b", "U8", "[4]", "[4,8]") + "}", eight),
       "[InvalidOffset]"},
      {"Overlap",
       file_of("{" + tensor("a", "U8", "[5]", "[0,5]") + "," + tensor("b", "U8", "[4]", "[4,8]") + "}", eight),
       "[InvalidOffset]"},
      {"SameBytesTwice",
       file_of("{" + tensor("a", "U8", "[8]", "[0,8]") + "," + tensor("b", "U8", "[8]", "[0,8]") + "}", eight),
       "[InvalidOffset]"},
      {"WrongSize", file_of(header_of("F32", "[3]", "[0,8]"), eight), "[TensorInvalidInfo]"},
      {"ScalarOfTwo", file_of(header_of("F32", "[]", "[0,8]"), eight), "[TensorInvalidInfo]"},
      {"Truncated", file_of(good, eight.substr(1)), "[MetadataIncompleteBuffer]"},
      {"ExtraByte", file_of(good, eight + "d"), "[MetadataIncompleteBuffer]"},
      {"DataWithoutTensors", file_of("{}", "d"), "[MetadataIncompleteBuffer]"},
      {"OffsetBeyondTheFile", file_of(header_of("U8", "[1000]", "[0,1000]"), eight), "[MetadataIncompleteBuffer]"},
      {"DuplicateName",
       file_of("{" + tensor("t", "F32", "[2]", "[0,8]") + "," + tensor("t", "F32", "[2]", "[0,8]") + "}", eight),
       "duplicate tensor name 't'"},
      {"DuplicateNameInEscapes",
       file_of("{" + tensor("t", "F32", "[2]", "[0,8]") + "," + tensor("\\u0074", "F32", "[2]", "[0,8]") + "}", eight),
       "duplicate tensor name 't'"},
      {"DuplicateType", file_of("{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}"), "duplicate key 'dtype'"},
      {"DuplicateShape", file_of("{\"t\":{\"shape\":[],\"shape\":[2]}}"), "duplicate key 'shape'"},
      {"DuplicateOffsets", file_of("{\"t\":{\"data_offsets\":[0,0],\"data_offsets\":[0,8]}}"),
       "duplicate key 'data_offsets'"},
      {"DuplicateMetadata", file_of("{\"__metadata__\":{},\"__metadata__\":{}}"), "duplicate key '__metadata__'"},
      {"DuplicateMetadataKey", file_of("{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}"), "duplicate metadata key 'a'"},
      {"MetadataIsText", file_of("{\"__metadata__\":\"pt\"}"), "__metadata__ to be an object"},
      {"MetadataNumber", file_of("{\"__metadata__\":{\"a\":1}}"), "metadata to be strings"},
      {"MetadataObject", file_of("{\"__metadata__\":{\"a\":{}}}"), "metadata to be strings"},
      {"LongName", file_of("{\"" + std::string(4097, 'n') + "\":{}}"), "more than 4096 bytes"},
      {"NameWithControls", file_of("{\"\\u001b[31m\\n\":1}"), "in tensor '\\x1b[31m\\n'"},
  };
}

INSTANTIATE_TEST_SUITE_P(Safetensors, HostileFile, ::testing::ValuesIn(hostile_files()),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(Safetensors, TheGoodFileBehindTheHostileOnesIsGood) {
  EXPECT_EQ(open(file_of(good, eight)).entry("t").bytes, 8u);
  EXPECT_EQ(open(file_of(good + "   ", eight)).entry("t").bytes, 8u);
}

TEST(Safetensors, WritesTheOfficialOrder) {
  const double f64[] = {0.1, std::numeric_limits<double>::quiet_NaN()};
  const std::uint16_t bf16 = 0x3F80;
  const std::uint8_t bytes[] = {1, 2, 3};
  const std::int32_t i32 = -5;
  const float f32 = 2.5f;
  const std::string file = safetensors_bytes({{"bytes", Dtype::U8, {3}, bytes},
                                              {"z", Dtype::F32, {}, &f32},
                                              {"a", Dtype::I32, {1, 1}, &i32},
                                              {"half\xC3\xA9\"", Dtype::BF16, {1}, &bf16},
                                              {"empty", Dtype::F64, {0, 2}, nullptr},
                                              {"double", Dtype::F64, {2}, f64}},
                                             {{"b", "2"}, {"a", "1\n"}});
  std::string header =
      "{\"__metadata__\":{\"a\":\"1\\n\",\"b\":\"2\"},"
      "\"double\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
      "\"empty\":{\"dtype\":\"F64\",\"shape\":[0,2],\"data_offsets\":[16,16]},"
      "\"z\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
      "\"a\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[20,24]},"
      "\"half\xC3\xA9\\\"\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[24,26]},"
      "\"bytes\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[26,29]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string data(reinterpret_cast<const char*>(f64), 16);
  data.append(reinterpret_cast<const char*>(&f32), 4);
  data.append(reinterpret_cast<const char*>(&i32), 4);
  data.append(reinterpret_cast<const char*>(&bf16), 2);
  data.append(reinterpret_cast<const char*>(bytes), 3);
  EXPECT_EQ(file, file_of(header, data));
}

TEST(Safetensors, RoundTripKeepsEveryBit) {
  TestFolder folder;
  Random random(21);
  std::vector<std::string> contents;
  std::vector<SafetensorsTensor> tensors;
  const std::vector<std::vector<std::int64_t>> shapes{{}, {1}, {0}, {7}, {3, 5}, {2, 0, 3}, {1, 2, 3, 4}, {70001}};
  contents.reserve(15 * shapes.size());
  for (int d = 0; d < 15; ++d) {
    for (std::size_t s = 0; s < shapes.size(); ++s) {
      std::size_t size = dtype_size(static_cast<Dtype>(d));
      for (const std::int64_t n : shapes[s]) size *= static_cast<std::size_t>(n);
      std::string content(size, '\0');
      for (char& c : content) c = static_cast<char>(random.next_uint32());
      contents.push_back(content);
      tensors.push_back({"t" + std::to_string(d) + "." + std::to_string(s), static_cast<Dtype>(d), shapes[s],
                         contents.back().data()});
    }
  }
  const std::map<std::string, std::string> metadata{
      {"", "empty key"}, {"format", "pt"}, {"text", "\"\\\n\x01\xE2\x82\xAC"}};
  write_safetensors(folder / "m.safetensors", tensors, metadata);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"m.safetensors"});
  EXPECT_TRUE(slurp(folder / "m.safetensors") == safetensors_bytes(tensors, metadata));
  SafetensorsFile opened(folder / "m.safetensors");
  const SafetensorsFile file = std::move(opened);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsEntry& entry = file.entry(tensors[i].name);
    EXPECT_EQ(entry.dtype, tensors[i].dtype);
    EXPECT_EQ(entry.shape, tensors[i].shape);
    ASSERT_EQ(entry.bytes, contents[i].size());
    EXPECT_EQ(std::memcmp(entry.data, contents[i].data(), entry.bytes), 0) << tensors[i].name;
    // The writer's order makes every tensor aligned (the mapping begins at a page).
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(entry.data) % dtype_size(entry.dtype), 0u) << tensors[i].name;
  }
  write_safetensors(folder / "none.safetensors", {});
  EXPECT_EQ(slurp(folder / "none.safetensors"), file_of("{}      "));
}

TEST(Safetensors, WriterRefusesWhatAReaderWouldNotTake) {
  TestFolder folder;
  const double data[2] = {};
  const auto refusal = [&](std::vector<SafetensorsTensor> tensors,
                           const std::map<std::string, std::string>& metadata = {}) {
    return message_of<Error>([&] { write_safetensors(folder / "m", tensors, metadata); });
  };
  EXPECT_TRUE(contains(refusal({{"a", Dtype::F64, {1}, data}, {"a", Dtype::U8, {1}, data}}), "two tensors named 'a'"));
  EXPECT_TRUE(contains(refusal({{"__metadata__", Dtype::U8, {1}, data}}), "reserved"));
  EXPECT_TRUE(contains(refusal({{"\xFF", Dtype::U8, {1}, data}}), "not UTF-8"));
  EXPECT_TRUE(contains(refusal({{std::string(4097, 'n'), Dtype::U8, {1}, data}}), "4096"));
  EXPECT_TRUE(contains(refusal({{"a", Dtype::U8, {-1}, data}}), "[-1] has a negative size"));
  EXPECT_TRUE(contains(refusal({{"a", Dtype::U8, std::vector<std::int64_t>(65, 1), data}}), "64 dimensions"));
  EXPECT_TRUE(contains(refusal({{"a", Dtype::U8, {1ll << 62, 1ll << 62}, data}}), "overflows"));
  EXPECT_TRUE(contains(refusal({{"a", Dtype::U8, {1}, nullptr}}), "no data"));
  EXPECT_TRUE(contains(refusal({}, {{"k", "\xFF"}}), "metadata 'k'"));
  EXPECT_TRUE(folder.names().empty());
  EXPECT_TRUE(contains(message_of<Error>([&] { write_safetensors(folder / "none/m", {}); }), "cannot write"));
}

std::string small_file() {
  const float data[] = {1, 2, 3, 4, 5, 6};
  return safetensors_bytes({{"w", Dtype::F32, {2, 3}, data},
                            {"b", Dtype::BF16, {2}, data},
                            {"s", Dtype::I64, {}, data},
                            {"e", Dtype::U8, {0}, data}},
                           {{"format", "pt"}});
}

/// What is accepted can be read to its last byte. Otherwise whether the message is of a later check than `first` ones.
bool gets_past(const std::string& bytes, const std::vector<std::string>& first) {
  try {
    const SafetensorsFile file = open(bytes);
    std::size_t sum = 0, all = 0;
    for (const auto& [name, entry] : file.entries()) {
      for (std::size_t b = 0; b < entry.bytes; ++b) sum += static_cast<std::size_t>(entry.data[b]);
      EXPECT_EQ(entry.bytes % dtype_size(entry.dtype), 0u);
      all += entry.bytes;
    }
    EXPECT_LE(all, bytes.size());
    EXPECT_LE(sum, 255 * bytes.size());
    return true;
  } catch (const Error& error) {
    return std::none_of(first.begin(), first.end(),
                        [&](const std::string& one) { return contains(error.what(), one); });
  }
}

TEST(SafetensorsFuzz, MutatedFilesAreReadOrRefused) {
  const auto length = [](std::uint64_t number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  std::vector<std::string> pieces = fuzz::hostile_pieces();
  for (const char* piece :
       {"{", "}", "[", "]", ",", ":", "F32", "BF16", "null", "true", "1e3", "\\u0000", "__metadata__"})
    pieces.push_back(piece);
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{100'000'000}, ~std::uint64_t{0}})
    pieces.push_back(length(number));
  fuzz::Run run(
      "safetensors files",
      {.seeds = {small_file(), file_of("{}"), file_of(header_of("U8", "[4]", "[0,4]"), "abcd")}, .pieces = pieces});
  // Past the first check: the length, UTF-8, and an object that begins.
  while (run.next())
    run.count(
        gets_past(run.input(), {"[HeaderToo", "[InvalidHeaderLength]", "[InvalidHeader]", "[InvalidHeaderStart]"}));
  run.report(0.2);
}

TEST(SafetensorsFuzz, MutatedHeadersAreReadOrRefused) {
  // Commas begin lines, so that what stands behind a colon can be exchanged by itself.
  const std::string header = R"({
"__metadata__": {"format": "pt"}
,"w": {
"dtype": "F32"
,"shape": [2, 3]
,"data_offsets": [0, 24]
}
,"b": {
"dtype": "BF16"
,"shape": [2]
,"data_offsets": [24, 28]
}
})";
  const std::vector<std::string> values = {"\"F32\"",
                                           "\"F16\"",
                                           "\"I64\"",
                                           "\"BOOL\"",
                                           "\"F8_E4M3\"",
                                           "\"C64\"",
                                           "[6]",
                                           "[3, 2]",
                                           "[]",
                                           "[0]",
                                           "[1, 1, 1, 24]",
                                           "[4294967296, 4294967296]",
                                           "[-1]",
                                           "[1.0]",
                                           "[0, 4]",
                                           "[28, 24]",
                                           "[0, 28]",
                                           "[24, 18446744073709551615]",
                                           "[24]",
                                           "null",
                                           "{}",
                                           "[18446744073709551616]"};
  const std::vector<std::string> lines = {",\"shape\": [1]\n", ",\"data_offsets\": [0, 1]\n",
                                          ",\"e\": {\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [0, 0]}\n",
                                          ",\"w\": {\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [0, 0]}\n"};
  fuzz::Run run("safetensors headers",
                {.seeds = {header}, .pieces = fuzz::hostile_pieces(), .values = values, .lines = lines});
  const std::string data(28, '\x3F');
  // Past the first check: UTF-8 and the syntax of JSON, up to where something else is wrong.
  while (run.next())
    run.count(gets_past(file_of(run.input(), data), {"[InvalidHeader]", "[InvalidHeaderStart]", "not valid JSON"}));
  run.report(0.2);
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  TestFolder folder;
  EXPECT_TRUE(contains(message_of<Error>([&] { SafetensorsFile(folder / "none"); }), "No such file"));
  EXPECT_TRUE(contains(message_of<Error>([&] { SafetensorsFile(folder.path()); }), "Is a directory"));
}

// SHA-256 of what save() of the official Python package (0.8.0) makes of the same tensors.
TEST(Safetensors, WritesTheBytesOfTheOfficialLibrary) {
  const std::uint8_t bytes[] = {1, 2, 3, 1, 0};
  const float z = 2.5f;
  const std::int32_t a = -5;
  const std::uint32_t u32 = 7;
  const std::int16_t small[] = {1, 2, 0x4200};  // 0x4200 is 3 in F16
  const double d = 0.1;
  const std::int64_t large[] = {9, 8};
  const std::string file = safetensors_bytes({{"bytes", Dtype::U8, {3}, bytes},
                                              {"z", Dtype::F32, {}, &z},
                                              {"a", Dtype::I32, {1, 1}, &a},
                                              {"bool", Dtype::Bool, {2}, bytes + 3},
                                              {"i8", Dtype::I8, {1}, bytes},
                                              {"u16", Dtype::U16, {1}, small},
                                              {"i16", Dtype::I16, {1}, small + 1},
                                              {"f16", Dtype::F16, {1}, small + 2},
                                              {"u32", Dtype::U32, {1}, &u32},
                                              {"d", Dtype::F64, {1}, &d},
                                              {"i64", Dtype::I64, {1}, large},
                                              {"u64", Dtype::U64, {1}, large + 1},
                                              {"e", Dtype::F64, {0, 2}, nullptr},
                                              {"half\xC3\xA9\"\n", Dtype::I16, {1}, small}},
                                             {{"a", "1\n"}});
  EXPECT_EQ(sha256_hex(file), "d74432a0af7f497b144514fb9f437aad31b09d4b27b833391757b0b856a3f63a");
}

TEST(Safetensors, ReadsRealFiles) {
  struct Real {
    const char* path;
    std::size_t count;
    std::map<std::string, std::string> metadata;
    const char* tensor;
    std::vector<std::int64_t> shape;
    std::uint32_t first, second;  // bits of its first two values
  };
  for (const Real& real :
       {Real{"data/models/retsim/model.safetensors", 23, {}, "encoder_start.bias", {256}, 0x402c1646, 0x4007dadc},
        Real{"data/models/stories260K/hf/model.safetensors",
             47,
             {{"format", "pt"}},
             "model.layers.0.mlp.down_proj.weight",
             {64, 172},
             0x3e0a394c,
             0x3d897569}}) {
    const std::string path = shared_path(real.path);
    if (path.empty()) GTEST_SKIP() << "no shared data: " << real.path;
    const SafetensorsFile file(path);
    EXPECT_EQ(file.names().size(), real.count);
    EXPECT_EQ(file.metadata(), real.metadata);
    const SafetensorsEntry& entry = file.entry(real.tensor);
    EXPECT_EQ(entry.dtype, Dtype::F32);
    EXPECT_EQ(entry.shape, real.shape);
    EXPECT_EQ(values<std::uint32_t>(entry)[0], real.first);
    EXPECT_EQ(values<std::uint32_t>(entry)[1], real.second);
    for (const auto& [name, tensor] : file.entries()) {
      ASSERT_EQ(tensor.dtype, Dtype::F32);
      for (const float value : values<float>(tensor)) ASSERT_TRUE(std::isfinite(value)) << name;
    }
  }
}

}  // namespace
}  // namespace torsor
