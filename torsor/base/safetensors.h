// The safetensors format: 8 bytes with the header's length N (little-endian), N bytes of JSON, then the tensors' bytes.
//
//     {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//
// Little-endian values in C order. Files come from strangers, so the reader trusts nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "torsor/base/file.h"

namespace torsor {

/// Element types, in the order of the official library, which is also the order of alignment.
enum class Dtype { Bool, U8, I8, F8_E5M2, F8_E4M3, I16, U16, F16, BF16, I32, U32, F32, F64, I64, U64 };

/// Bytes of one element: 1, 2, 4 or 8.
std::size_t dtype_size(Dtype dtype);
/// The name in the file: "BOOL", "F8_E4M3", "BF16", ...
std::string_view dtype_name(Dtype dtype);
/// Throws Error for a name that is unknown, or known but not supported, listing the supported ones.
Dtype dtype_of(std::string_view name);

/// A tensor inside an open file.
struct SafetensorsEntry {
  Dtype dtype;
  std::vector<std::int64_t> shape;  ///< empty for a scalar; sizes are at least 0
  const std::byte* data;            ///< NOT aligned for the type in general: copy the bytes
  std::size_t bytes;

  std::int64_t elements() const { return static_cast<std::int64_t>(bytes / dtype_size(dtype)); }
};

/// An open safetensors file. The constructor checks everything before it returns and throws Error with the path and,
/// in brackets, the name of the official library's error:
/// too short or too long a header, a header that does not fit the file, bad UTF-8 or JSON, wrong types, keys given
/// twice or unknown, numbers that are no plain integers, sizes that overflow, holes, overlaps, missing or extra bytes.
class SafetensorsFile {
 public:
  /// Opens a file (mapped, not read: opening a large file is cheap).
  explicit SafetensorsFile(const std::string& path);
  /// Takes the content of a file; `source` stands for the path in messages.
  static SafetensorsFile from_bytes(std::string bytes, const std::string& source);

  const std::string& source() const { return source_; }
  /// Sorted by bytes.
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return entries_.count(name) != 0; }
  /// Throws Error when there is no such tensor. The entry and its bytes live as long as the file object.
  const SafetensorsEntry& entry(const std::string& name) const;
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  SafetensorsFile(std::unique_ptr<FileContent> content, std::string source);
  void parse(std::string_view file);

  std::string source_;
  std::unique_ptr<FileContent> content_;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to write: contiguous, in C order.
struct SafetensorsTensor {
  std::string name;  ///< valid UTF-8, at most 4096 bytes, not "__metadata__"
  Dtype dtype;
  std::vector<std::int64_t> shape;
  const void* data;  ///< product(shape) elements; may be null when that is 0
};

/// Writes a file in one step (AtomicFile), byte for byte as the official library would: tensors by descending element
/// type, then by name; header padded with spaces to a multiple of 8, so every tensor is aligned for its type.
/// Throws Error for names that are doubled or not valid, negative sizes, sizes that overflow, missing data, and
/// when the file cannot be written.
void write_safetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// The same bytes as a string.
std::string safetensors_bytes(const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace torsor
