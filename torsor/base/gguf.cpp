#include "torsor/base/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they stand in the file");

constexpr std::size_t kLongestName = 64;  // ggml's GGML_MAX_NAME
constexpr std::size_t kMostDimensions = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::size_t kBlock = 32, kBlockBytes = 34;  // of Q8_0: a float16 and 32 bytes

// ggml.h, enum ggml_type; gaps are types that were removed.
constexpr std::pair<std::uint32_t, const char*> kTypes[] = {
    {0, "F32"},      {1, "F16"},     {2, "Q4_0"},     {3, "Q4_1"},   {6, "Q5_0"},    {7, "Q5_1"},   {8, "Q8_0"},
    {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},    {12, "Q4_K"},  {13, "Q5_K"},   {14, "Q6_K"},  {15, "Q8_K"},
    {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},
    {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},     {26, "I32"},   {27, "I64"},    {28, "F64"},   {29, "IQ1_M"},
    {30, "BF16"},    {34, "TQ1_0"},  {35, "TQ2_0"}};

float widened(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  std::uint32_t exponent = (half >> 10) & 0x1FU, fraction = half & 0x3FFU;
  if (exponent == 0x1FU) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
  if (exponent == 0) {
    if (fraction == 0) return std::bit_cast<float>(sign);
    exponent = 1;
    while ((fraction & 0x400U) == 0) fraction <<= 1, --exponent;
    fraction &= 0x3FFU;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

/// Reads a file from its beginning on and never beyond its end.
class Reader {
 public:
  Reader(std::string_view file, const std::string& source) : file_(file), source_(source) {}

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(str(source_, ": not a valid GGUF file: ", parts...));
  }
  std::size_t at() const { return at_; }
  std::size_t left() const { return file_.size() - at_; }

  std::string_view bytes(std::uint64_t count, const char* what) {
    if (count > left()) fail(what, " at byte ", at_, " should have ", count, " bytes, and ", left(), " are left");
    const std::string_view result = file_.substr(at_, static_cast<std::size_t>(count));
    at_ += static_cast<std::size_t>(count);
    return result;
  }
  template <class Number>
  Number number(const char* what) {
    Number value;
    std::memcpy(&value, bytes(sizeof value, what).data(), sizeof value);
    return value;
  }
  std::string text(const char* what) {
    const auto size = number<std::uint64_t>(what);
    return std::string(bytes(size, what));
  }

  GgufScalar scalar(std::uint32_t type, const std::string& key) {
    const char* what = "a value";
    switch (type) {
      case 0:
        return std::int64_t{number<std::uint8_t>(what)};
      case 1:
        return std::int64_t{number<std::int8_t>(what)};
      case 2:
        return std::int64_t{number<std::uint16_t>(what)};
      case 3:
        return std::int64_t{number<std::int16_t>(what)};
      case 4:
        return std::int64_t{number<std::uint32_t>(what)};
      case 5:
        return std::int64_t{number<std::int32_t>(what)};
      case 6:
        return double{number<float>(what)};
      case 7: {
        const auto flag = number<std::uint8_t>(what);
        if (flag > 1) fail("the value of ", quote(key), " must be 0 or 1, found ", int{flag});
        return flag == 1;
      }
      case 8:
        return text(what);
      case 10: {
        const auto whole = number<std::uint64_t>(what);
        if (whole > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return whole;
        return static_cast<std::int64_t>(whole);
      }
      case 11:
        return number<std::int64_t>(what);
      case 12:
        return number<double>(what);
      default:
        fail("the key ", quote(key), " has a value of the unknown type ", type);
    }
  }

  GgufValue value(const std::string& key) {
    const auto type = number<std::uint32_t>("the type of a value");
    if (type != 9) return std::visit([](auto&& one) { return GgufValue(std::move(one)); }, scalar(type, key));
    const auto inner = number<std::uint32_t>("the type of an array");
    const auto count = number<std::uint64_t>("the size of an array");
    if (inner == 9) fail("the key ", quote(key), " has an array of arrays");
    // Every value takes a byte at least: no list is longer than what is left.
    if (count > left())
      fail("the array of ", quote(key), " should have ", count, " values, and ", left(), " bytes are left");
    if (inner == 8) return list<std::string>(inner, count, key);
    if (inner == 6 || inner == 12) return list<double>(inner, count, key);
    std::vector<std::int64_t> whole;
    for (std::uint64_t i = 0; i < count; ++i) {
      const GgufScalar one = scalar(inner, key);
      if (const auto* number = std::get_if<std::int64_t>(&one))
        whole.push_back(*number);
      else if (const auto* flag = std::get_if<bool>(&one))
        whole.push_back(*flag ? 1 : 0);
      else
        fail("the array of ", quote(key), " holds a number beyond 64 bits with a sign");
    }
    return whole;
  }

 private:
  template <class Item>
  std::vector<Item> list(std::uint32_t type, std::uint64_t count, const std::string& key) {
    std::vector<Item> items;
    for (std::uint64_t i = 0; i < count; ++i) items.push_back(std::get<Item>(scalar(type, key)));
    return items;
  }

  std::string_view file_;
  std::string source_;
  std::size_t at_ = 0;
};

bool is_read(std::uint32_t type) {
  return type == static_cast<std::uint32_t>(GgufType::F32) || type == static_cast<std::uint32_t>(GgufType::F16) ||
         type == static_cast<std::uint32_t>(GgufType::Q8_0) || type == static_cast<std::uint32_t>(GgufType::BF16);
}

}  // namespace

std::string gguf_type_name(std::uint32_t type) {
  for (const auto& [number, name] : kTypes)
    if (number == type) return name;
  return str("type ", type);
}

std::int64_t GgufEntry::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

void GgufEntry::read(float* out) const {
  const auto count = static_cast<std::size_t>(elements());
  const auto half_at = [&](std::size_t byte) {
    std::uint16_t half;
    std::memcpy(&half, data + byte, sizeof half);
    return half;
  };
  switch (type) {
    case GgufType::F32:
      if (count > 0) std::memcpy(out, data, 4 * count);
      return;
    case GgufType::F16:
      for (std::size_t i = 0; i < count; ++i) out[i] = widened(half_at(2 * i));
      return;
    case GgufType::BF16:
      for (std::size_t i = 0; i < count; ++i)
        out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(half_at(2 * i)) << 16);
      return;
    case GgufType::Q8_0:
      for (std::size_t block = 0; block * kBlock < count; ++block) {
        const float scale = widened(half_at(block * kBlockBytes));
        for (std::size_t i = 0; i < kBlock; ++i)
          out[block * kBlock + i] =
              scale * static_cast<float>(static_cast<std::int8_t>(data[block * kBlockBytes + 2 + i]));
      }
      return;
  }
}

GgufFile::GgufFile(const std::string& path) : GgufFile(FileContent::open(path), path) {}

GgufFile GgufFile::from_bytes(std::string bytes, const std::string& source) {
  return GgufFile(FileContent::of(std::move(bytes)), source);
}

GgufFile::GgufFile(std::unique_ptr<FileContent> content, std::string source)
    : source_(std::move(source)), content_(std::move(content)) {
  parse(content_->bytes());
}

void GgufFile::parse(std::string_view file) {
  Reader reader(file, source_);
  if (reader.bytes(4, "the first word") != "GGUF") reader.fail("it does not begin with 'GGUF'");
  const auto version = reader.number<std::uint32_t>("the version");
  if (version != 2 && version != 3)
    reader.fail("expected version 2 or 3, found ", version,
                version % 65536 == 0 ? " (a file of the other byte order?)" : "");
  const auto tensors = reader.number<std::uint64_t>("the number of tensors");
  const auto keys = reader.number<std::uint64_t>("the number of keys");
  for (std::uint64_t i = 0; i < keys; ++i) {
    const std::string key = reader.text("a key");
    if (key.empty() || key.size() > 65535) reader.fail("a key of ", key.size(), " bytes");
    if (find_invalid_utf8(key) != std::string_view::npos) reader.fail("a key that is not UTF-8");
    if (!keys_.emplace(key, reader.value(key)).second) reader.fail("the key ", quote(key), " is given twice");
  }
  const std::int64_t alignment = integer("general.alignment", static_cast<std::int64_t>(kDefaultAlignment));
  if (alignment < 8 || alignment > (std::int64_t{1} << 30) || (alignment & (alignment - 1)) != 0)
    reader.fail("general.alignment must be a power of two from 8 on, found ", alignment);

  struct Claim {
    std::string name;
    std::uint32_t type = 0;
    std::uint64_t offset = 0, bytes = 0;
    std::vector<std::int64_t> shape;
  };
  std::vector<Claim> claims;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    Claim claim;
    claim.name = reader.text("the name of a tensor");
    if (claim.name.empty() || claim.name.size() > kLongestName)
      reader.fail("the name of a tensor has ", claim.name.size(), " bytes, 1 to ", kLongestName, " are possible");
    const auto dimensions = reader.number<std::uint32_t>("the dimensions of a tensor");
    if (dimensions > kMostDimensions)
      reader.fail("tensor ", quote(claim.name), " has ", dimensions, " dimensions, at most ", kMostDimensions);
    std::uint64_t count = 1;
    std::vector<std::uint64_t> sizes;
    for (std::uint32_t d = 0; d < dimensions; ++d) {
      sizes.push_back(reader.number<std::uint64_t>("a size of a tensor"));
      // 2^48 numbers are beyond any file, and no product below overflows.
      if (sizes.back() > (std::uint64_t{1} << 48) / std::max<std::uint64_t>(count, 1))
        reader.fail("tensor ", quote(claim.name), " would have more numbers than a file can hold");
      count *= sizes.back();
    }
    claim.type = reader.number<std::uint32_t>("the type of a tensor");
    claim.offset = reader.number<std::uint64_t>("the offset of a tensor");
    if (!is_read(claim.type))
      throw Error(str(source_, ": tensor ", quote(claim.name), " is of ", gguf_type_name(claim.type),
                      "; only F32, F16, BF16 and Q8_0 are read"));
    const auto type = static_cast<GgufType>(claim.type);
    if (type == GgufType::Q8_0) {
      if (sizes.empty() || sizes.front() % kBlock != 0)
        reader.fail("tensor ", quote(claim.name), " of Q8_0 needs rows of a multiple of 32 numbers");
      claim.bytes = count / kBlock * kBlockBytes;
    } else {
      claim.bytes = count * (type == GgufType::F32 ? 4 : 2);
    }
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size)
      claim.shape.push_back(static_cast<std::int64_t>(*size));
    claims.push_back(std::move(claim));
  }

  const auto step = static_cast<std::uint64_t>(alignment);
  const auto padded = [&](std::uint64_t bytes) { return (bytes + step - 1) / step * step; };
  if (claims.empty()) return;
  const std::uint64_t begin = padded(reader.at());
  if (begin > file.size()) reader.fail("the data should begin at byte ", begin, ", the file has ", file.size());
  const std::string_view data = file.substr(static_cast<std::size_t>(begin));
  std::uint64_t expected = 0;
  for (Claim& claim : claims) {
    if (claim.offset != expected)
      reader.fail("the data of tensor ", quote(claim.name), " lies at ", claim.offset, ", expected ", expected,
                  " (in order, padded to ", alignment, ")");
    if (claim.offset > data.size() || claim.bytes > data.size() - claim.offset)
      reader.fail("tensor ", quote(claim.name), " takes ", claim.bytes, " bytes from ", claim.offset, ", the data has ",
                  data.size());
    GgufEntry entry;
    entry.type = static_cast<GgufType>(claim.type);
    entry.shape = std::move(claim.shape);
    entry.data = reinterpret_cast<const std::byte*>(data.data() + claim.offset);
    entry.bytes = static_cast<std::size_t>(claim.bytes);
    expected = padded(claim.offset + claim.bytes);
    if (!entries_.emplace(claim.name, std::move(entry)).second)
      reader.fail("tensor ", quote(claim.name), " is there twice");
  }
}

const GgufValue& GgufFile::value(const std::string& key) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) throw Error(str(source_, ": the key ", quote(key), " is missing"));
  return found->second;
}

void GgufFile::mismatch(const std::string& key, const char* expected) const {
  throw Error(str(source_, ": the key ", quote(key), " must be ", expected));
}

std::int64_t GgufFile::integer(const std::string& key) const {
  const auto* number = std::get_if<std::int64_t>(&value(key));
  if (number == nullptr) mismatch(key, "a whole number");
  return *number;
}

std::int64_t GgufFile::integer(const std::string& key, std::int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double GgufFile::real(const std::string& key, double fallback) const {
  if (!has(key)) return fallback;
  if (const auto* number = std::get_if<double>(&value(key))) return *number;
  return static_cast<double>(integer(key));
}

std::string GgufFile::text(const std::string& key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  const auto* text = std::get_if<std::string>(&value(key));
  if (text == nullptr) mismatch(key, "a string");
  return *text;
}

std::vector<std::string> GgufFile::texts(const std::string& key) const {
  const auto* list = std::get_if<std::vector<std::string>>(&value(key));
  if (list == nullptr) mismatch(key, "a list of strings");
  return *list;
}

std::vector<double> GgufFile::reals(const std::string& key) const {
  const auto* list = std::get_if<std::vector<double>>(&value(key));
  if (list == nullptr) mismatch(key, "a list of floating numbers");
  return *list;
}

}  // namespace torsor
