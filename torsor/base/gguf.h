// GGUF, the format of ggml and llama.cpp (ggml, docs/gguf.md; version 3, and 2, which differs in nothing read here).
//
// "GGUF", uint32 version, uint64 tensors, uint64 keys; the keys; for every tensor name, sizes fastest first, type and
// offset; padding to general.alignment; the data. Little-endian. Files come from strangers, so the reader trusts
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "torsor/base/file.h"

namespace torsor {

/// The types of tensors that are read; numbers are ggml's.
enum class GgufType : std::uint32_t { F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };

/// "F32", "Q4_K", ...; "type 99" for a number that ggml has not.
std::string gguf_type_name(std::uint32_t type);

/// A value of a key. Whole numbers of every width are int64 (uint64 beyond its range), both floats double.
using GgufScalar = std::variant<std::int64_t, std::uint64_t, double, bool, std::string>;
using GgufValue = std::variant<std::int64_t, std::uint64_t, double, bool, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

/// A tensor inside an open file.
struct GgufEntry {
  GgufType type = GgufType::F32;
  std::vector<std::int64_t> shape;  ///< slowest first, as everywhere else here
  const std::byte* data = nullptr;  ///< aligned to the file's alignment within the file
  std::size_t bytes = 0;

  std::int64_t elements() const;
  /// The numbers as float32: F16 and BF16 widened, of Q8_0 each of 32 bytes times the float16 before them.
  void read(float* out) const;
};

/// An open GGUF file. The constructor checks everything before it returns and throws Error with the path: another
/// format, byte order or version, sizes beyond the file, a key or tensor given twice, arrays of arrays, an alignment
/// that is no power of two, more than four dimensions, a type that is not read (by name), data that is not where the
/// sizes say.
class GgufFile {
 public:
  /// Opens a file (mapped, not read).
  explicit GgufFile(const std::string& path);
  /// Takes the content of a file; `source` stands for the path in messages.
  static GgufFile from_bytes(std::string bytes, const std::string& source);

  const std::string& source() const { return source_; }
  const std::map<std::string, GgufEntry>& entries() const { return entries_; }
  const std::map<std::string, GgufValue>& keys() const { return keys_; }
  bool has(const std::string& key) const { return keys_.count(key) != 0; }

  /// A key's value. Throw Error where it is missing (and there is no fallback) or of another kind.
  std::int64_t integer(const std::string& key) const;
  std::int64_t integer(const std::string& key, std::int64_t fallback) const;
  double real(const std::string& key, double fallback) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  std::vector<std::string> texts(const std::string& key) const;
  std::vector<double> reals(const std::string& key) const;

 private:
  GgufFile(std::unique_ptr<FileContent> content, std::string source);
  void parse(std::string_view file);
  const GgufValue& value(const std::string& key) const;
  [[noreturn]] void mismatch(const std::string& key, const char* expected) const;

  std::string source_;
  std::unique_ptr<FileContent> content_;
  std::map<std::string, GgufEntry> entries_;
  std::map<std::string, GgufValue> keys_;
};

}  // namespace torsor
