#include "torsor/base/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "torsor/base/error.h"
#include "torsor/base/json.h"
#include "torsor/base/json_events.h"
#include "torsor/base/utf8.h"

namespace torsor {
namespace {

static_assert(std::endian::native == std::endian::little, "the bytes of tensors are used as they stand in the file");

constexpr std::size_t length_size = 8;
constexpr std::uint64_t largest_header = 100'000'000;  // the official library's limit
constexpr std::size_t longest_name = 4096;
constexpr std::size_t largest_rank = 64;  // as in NumPy and PyTorch; a hostile header could list millions of sizes
constexpr std::string_view reserved_name = "__metadata__";

struct DtypeFacts {
  std::string_view name;
  std::size_t size;
};

constexpr std::array<DtypeFacts, 15> dtypes{{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E4M3", 1},
                                             {"I16", 2},
                                             {"U16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"I32", 4},
                                             {"U32", 4},
                                             {"F32", 4},
                                             {"F64", 8},
                                             {"I64", 8},
                                             {"U64", 8}}};

constexpr std::array<std::string_view, 7> foreign_dtypes{"F4",          "F6_E2M3",     "F6_E3M2", "F8_E8M0",
                                                         "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64"};

/// a * b, or nothing when it does not fit.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  if (a != 0 && b > std::numeric_limits<std::uint64_t>::max() / a) return std::nullopt;
  return a * b;
}

/// Bytes of a tensor; multiplied from left to right and counted in bits as the official library does, so that the same
/// shapes overflow.
std::optional<std::uint64_t> tensor_bytes(Dtype dtype, const std::vector<std::int64_t>& shape) {
  std::optional<std::uint64_t> count = 1;
  for (const std::int64_t size : shape) {
    count = product(*count, static_cast<std::uint64_t>(size));
    if (!count) return std::nullopt;
  }
  const auto bits = product(*count, 8 * dtype_size(dtype));
  return bits ? std::optional(*bits / 8) : std::nullopt;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + ']';
}

/// What the header says of one tensor, before it is checked against the file.
struct Claim {
  std::string name;
  std::optional<Dtype> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::vector<std::uint64_t> offsets;  // begin, end
};

/// Reads the header's JSON without building a tree: each place of the fixed structure accepts only what belongs there,
/// so depth and types need no further check.
class HeaderReader final : public JsonEvents {
 public:
  std::map<std::string, Claim> claims;
  std::map<std::string, std::string> metadata;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return unexpected(str("the negative number ", value)); }
  bool number_float(number_float_t, const string_t& text) override { return unexpected(str("the number ", text)); }
  bool binary(binary_t&) override { return unexpected("a binary value"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape_item) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        invalid(str("size ", value, " of tensor ", quote(claim_->name), " is beyond the range of int64"));
      }
      if (claim_->shape->size() == largest_rank) {
        invalid(str("tensor ", quote(claim_->name), " has more than ", largest_rank, " dimensions"));
      }
      claim_->shape->push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::offset_item) {
      if (claim_->offsets.size() == 2) invalid(str("tensor ", quote(claim_->name), " has more than two data_offsets"));
      claim_->offsets.push_back(value);
    } else {
      return unexpected(str("the number ", value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::dtype) {
      try {
        claim_->dtype = dtype_of(value);
      } catch (const Error& error) {
        invalid(str("tensor ", quote(claim_->name), ": ", error.what()));
      }
      place_ = Place::tensor_key;
    } else if (place_ == Place::metadata_value) {
      metadata[metadata_name_] = std::move(value);
      place_ = Place::metadata_key;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::root) {
      place_ = Place::name;
    } else if (place_ == Place::tensor) {
      place_ = Place::tensor_key;
    } else if (place_ == Place::metadata) {
      place_ = Place::metadata_key;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::name) {
      if (value == reserved_name) {
        if (std::exchange(metadata_seen_, true)) invalid(str("duplicate key ", quote(value)));
        place_ = Place::metadata;
        return true;
      }
      if (value.size() > longest_name) invalid(str("a tensor name of more than ", longest_name, " bytes"));
      const auto [at, inserted] = claims.try_emplace(value);
      if (!inserted) invalid(str("duplicate tensor name ", quote(value)));
      claim_ = &at->second;
      claim_->name = value;
      place_ = Place::tensor;
    } else if (place_ == Place::metadata_key) {
      if (!metadata.emplace(value, std::string()).second) invalid(str("duplicate metadata key ", quote(value)));
      metadata_name_ = value;
      place_ = Place::metadata_value;
    } else {  // tensor_key
      bool again = false;
      if (value == "dtype") {
        again = claim_->dtype.has_value();
        place_ = Place::dtype;
      } else if (value == "shape") {
        again = claim_->shape.has_value();
        place_ = Place::shape;
      } else if (value == "data_offsets") {
        again = !claim_->offsets.empty();
        place_ = Place::offsets;
      } else {
        invalid(str("unknown key ", quote(value), " in tensor ", quote(claim_->name),
                    ", expected dtype, shape, data_offsets"));
      }
      if (again) invalid(str("duplicate key ", quote(value), " in tensor ", quote(claim_->name)));
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor_key) {
      if (!claim_->dtype || !claim_->shape || claim_->offsets.empty()) {
        invalid(str("tensor ", quote(claim_->name), " lacks ",
                    !claim_->dtype   ? "dtype"
                    : !claim_->shape ? "shape"
                                     : "data_offsets"));
      }
      place_ = Place::name;
    } else if (place_ == Place::metadata_key) {
      place_ = Place::name;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::shape) {
      claim_->shape.emplace();
      place_ = Place::shape_item;
    } else if (place_ == Place::offsets) {
      place_ = Place::offset_item;
    } else {
      return unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offset_item && claim_->offsets.size() != 2) {
      invalid(str("tensor ", quote(claim_->name), " has fewer than two data_offsets"));
    }
    place_ = Place::tensor_key;
    return true;
  }

 private:
  enum class Place {
    root,
    name,
    metadata,
    metadata_key,
    metadata_value,
    tensor,
    tensor_key,
    dtype,
    shape,
    shape_item,
    offsets,
    offset_item
  };

  [[noreturn]] void invalid(const std::string& message) const { fail(message + " [InvalidHeaderDeserialization]"); }

  bool unexpected(const std::string& what) const {
    const auto expected = [&]() -> const char* {
      switch (place_) {
        case Place::root:
          return "the header to be an object";
        case Place::metadata:
          return "__metadata__ to be an object";
        case Place::metadata_value:
          return "metadata to be strings";
        case Place::tensor:
          return "an object with dtype, shape, data_offsets";
        case Place::dtype:
          return "dtype to be a string";
        case Place::shape:
          return "shape to be a list";
        case Place::offsets:
          return "data_offsets to be a list";
        case Place::shape_item:
          return "sizes to be plain integers of at least 0";
        case Place::offset_item:
          return "offsets to be plain integers of at least 0";
        default:
          return "a key";
      }
    };
    invalid(str("expected ", expected(), ", got ", what, claim_ == nullptr ? "" : " in tensor ",
                claim_ == nullptr ? "" : quote(claim_->name)));
  }

  Place place_ = Place::root;
  Claim* claim_ = nullptr;
  std::string metadata_name_;
  bool metadata_seen_ = false;
};

/// A JSON string literal as the official writer spells it: compact, non-ASCII characters as they are.
std::string literal(const std::string& text) { return json_text(Json(text)); }

/// The 8 bytes of length and the header; `order` receives the tensors in the order of their data.
std::string header_bytes(const std::vector<SafetensorsTensor>& tensors,
                         const std::map<std::string, std::string>& metadata,
                         std::vector<std::pair<const SafetensorsTensor*, std::size_t>>& order) {
  for (const SafetensorsTensor& tensor : tensors) {
    const auto refuse = [&](const std::string& why) {
      throw Error(str("cannot store tensor ", quote(tensor.name), " as safetensors: ", why));
    };
    if (tensor.name == reserved_name) refuse("the name is reserved");
    if (tensor.name.size() > longest_name) refuse(str("the name has more than ", longest_name, " bytes"));
    if (find_invalid_utf8(tensor.name) != std::string::npos) refuse("the name is not UTF-8");
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](std::int64_t size) { return size < 0; })) {
      refuse(str("shape ", shape_text(tensor.shape), " has a negative size"));
    }
    if (tensor.shape.size() > largest_rank) refuse(str("it has more than ", largest_rank, " dimensions"));
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes) refuse(str("the size of shape ", shape_text(tensor.shape), " overflows"));
    if (*bytes > 0 && tensor.data == nullptr) refuse("it has no data");
    order.emplace_back(&tensor, static_cast<std::size_t>(*bytes));
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first->dtype != b.first->dtype ? a.first->dtype > b.first->dtype : a.first->name < b.first->name;
  });
  // Tensors of one name are neighbours only within a type, so doubles are looked for on their own.
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) throw Error(str("cannot store two tensors named ", quote(*twin), " as safetensors"));

  std::string json = "{";
  const auto separate = [&] {
    if (json.back() != '{') json += ',';
  };
  if (!metadata.empty()) {
    json += literal(std::string(reserved_name)) + ":{";
    for (const auto& [key, value] : metadata) {
      if (find_invalid_utf8(key) != std::string::npos || find_invalid_utf8(value) != std::string::npos) {
        throw Error(str("cannot store metadata ", quote(key), " as safetensors: it is not UTF-8"));
      }
      separate();
      json += literal(key) + ':' + literal(value);
    }
    json += '}';
  }
  std::uint64_t begin = 0;
  for (const auto& [tensor, bytes] : order) {
    separate();
    const std::uint64_t end = begin + bytes;
    if (end < begin) throw Error("cannot store tensors as safetensors: their total size overflows");
    json += literal(tensor->name) + ":{\"dtype\":\"" + std::string(dtype_name(tensor->dtype)) + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor->shape.size(); ++i) {
      json += (i == 0 ? "" : ",") + std::to_string(tensor->shape[i]);
    }
    json += "],\"data_offsets\":[" + std::to_string(begin) + ',' + std::to_string(end) + "]}";
    begin = end;
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > largest_header) {
    throw Error(str("cannot store tensors as safetensors: the header has ", json.size(), " bytes, expected at most ",
                    largest_header));
  }
  const std::uint64_t length = json.size();
  std::string result(length_size, '\0');
  std::memcpy(result.data(), &length, length_size);
  return result + json;
}

}  // namespace

std::size_t dtype_size(Dtype dtype) { return dtypes.at(static_cast<std::size_t>(dtype)).size; }

std::string_view dtype_name(Dtype dtype) { return dtypes.at(static_cast<std::size_t>(dtype)).name; }

Dtype dtype_of(std::string_view name) {
  std::string supported;
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    if (dtypes[i].name == name) return static_cast<Dtype>(i);
    supported += (i == 0 ? "" : ", ") + std::string(dtypes[i].name);
  }
  const bool foreign = std::find(foreign_dtypes.begin(), foreign_dtypes.end(), name) != foreign_dtypes.end();
  throw Error(
      str("dtype ", quote(name, 40), foreign ? " is not supported" : " is unknown", ", expected one of ", supported));
}

SafetensorsFile::SafetensorsFile(const std::string& path) : SafetensorsFile(FileContent::open(path), path) {}

SafetensorsFile SafetensorsFile::from_bytes(std::string bytes, const std::string& source) {
  return SafetensorsFile(FileContent::of(std::move(bytes)), source);
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<FileContent> content, std::string source)
    : source_(std::move(source)), content_(std::move(content)) {
  parse(content_->bytes());
}

void SafetensorsFile::parse(std::string_view file) {
  const auto invalid = [&](const auto&... parts) {
    throw Error(str(source_, ": not a valid safetensors file: ", parts...));
  };
  if (file.size() < length_size) {
    invalid("expected at least 8 bytes, got ", file.size(), " [HeaderTooSmall]");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), length_size);
  if (length > largest_header) {
    invalid("expected a header of at most ", largest_header, " bytes, got ", length, " [HeaderTooLarge]");
  }
  if (length > file.size() - length_size) {
    invalid("the header should have ", length, " bytes, but the file has only ", file.size() - length_size,
            " after the length [InvalidHeaderLength]");
  }
  const std::string_view header = file.substr(length_size, static_cast<std::size_t>(length));
  const std::string_view data = file.substr(length_size + header.size());
  const std::size_t bad = find_invalid_utf8(header);
  if (bad != std::string_view::npos) invalid("byte ", bad, " of the header is not UTF-8 [InvalidHeader]");
  if (header.empty() || header.front() != '{') invalid("the header does not begin with '{' [InvalidHeaderStart]");

  HeaderReader reader;
  reader.run(header, str(source_, ": safetensors header"));

  std::vector<const Claim*> claims;
  for (const auto& [name, claim] : reader.claims) claims.push_back(&claim);
  std::sort(claims.begin(), claims.end(), [](const Claim* a, const Claim* b) { return a->offsets < b->offsets; });
  std::uint64_t expected = 0;
  for (const Claim* claim : claims) {
    const std::uint64_t begin = claim->offsets[0];
    const std::uint64_t end = claim->offsets[1];
    if (begin != expected || end < begin) {
      invalid("the data of tensor ", quote(claim->name), " lies at [", begin, ", ", end, "), expected it to begin at ",
              expected, " (no hole, no overlap) [InvalidOffset]");
    }
    const auto bytes = tensor_bytes(*claim->dtype, *claim->shape);
    if (!bytes) {
      invalid("the size of tensor ", quote(claim->name), " with shape ", shape_text(*claim->shape),
              " overflows [ValidationOverflow]");
    }
    if (*bytes != end - begin) {
      invalid("tensor ", quote(claim->name), " has ", end - begin, " bytes, but ", dtype_name(*claim->dtype), ' ',
              shape_text(*claim->shape), " takes ", *bytes, " [TensorInvalidInfo]");
    }
    expected = end;
  }
  if (expected != data.size()) {
    invalid("the tensors take ", expected, " bytes, but the file has ", data.size(),
            " after the header [MetadataIncompleteBuffer]");
  }
  for (auto& [name, claim] : reader.claims) {
    const auto begin = static_cast<std::size_t>(claim.offsets[0]);
    const auto bytes = static_cast<std::size_t>(claim.offsets[1]) - begin;
    entries_.emplace(name, SafetensorsEntry{*claim.dtype, std::move(*claim.shape),
                                            reinterpret_cast<const std::byte*>(data.data()) + begin, bytes});
  }
  metadata_ = std::move(reader.metadata);
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw Error(str(source_, ": expected a tensor named ", quote(name), ", there is none"));
  return found->second;
}

void write_safetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<const SafetensorsTensor*, std::size_t>> order;
  const std::string header = header_bytes(tensors, metadata, order);
  AtomicFile file(path);
  file.write(header);
  for (const auto& [tensor, bytes] : order) file.write(tensor->data, bytes);
  file.commit();
}

std::string safetensors_bytes(const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<const SafetensorsTensor*, std::size_t>> order;
  std::string result = header_bytes(tensors, metadata, order);
  for (const auto& [tensor, bytes] : order) {
    if (bytes > 0) result.append(static_cast<const char*>(tensor->data), bytes);
  }
  return result;
}

}  // namespace torsor
