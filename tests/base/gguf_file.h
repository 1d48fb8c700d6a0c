// Small GGUF files, written by hand for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace torsor::testing {

/// Bytes of a number, little-endian.
template <class Number>
std::string bytes_of(Number value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string gguf_text(const std::string& text) { return bytes_of(std::uint64_t{text.size()}) + text; }

/// The parts of a file; change them to damage it.
struct GgufParts {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::string> keys;  ///< each with key, type and value
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> sizes;  ///< fastest first
    std::uint32_t type = 0;
    std::string data;
  };
  std::vector<Tensor> tensors;
  std::uint64_t alignment = 32;

  void key(const std::string& name, std::uint32_t type, const std::string& value) {
    keys.push_back(gguf_text(name) + bytes_of(type) + value);
  }
  void text_key(const std::string& name, const std::string& value) { key(name, 8, gguf_text(value)); }
  void number_key(const std::string& name, std::uint32_t value) { key(name, 4, bytes_of(value)); }

  std::string build() const {
    std::string file =
        magic + bytes_of(version) + bytes_of(std::uint64_t{tensors.size()}) + bytes_of(std::uint64_t{keys.size()});
    for (const std::string& one : keys) file += one;
    std::string data;
    for (const Tensor& tensor : tensors) {
      data.resize((data.size() + alignment - 1) / alignment * alignment);
      file += gguf_text(tensor.name) + bytes_of(static_cast<std::uint32_t>(tensor.sizes.size()));
      for (const std::uint64_t size : tensor.sizes) file += bytes_of(size);
      file += bytes_of(tensor.type) + bytes_of(std::uint64_t{data.size()});
      data += tensor.data;
    }
    if (tensors.empty()) return file;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data;
  }
};

/// Two tensors of F32 and Q8_0, keys of every type.
inline GgufParts small_gguf() {
  GgufParts parts;
  parts.text_key("general.architecture", "llama");
  parts.number_key("llama.block_count", 7);
  parts.key("a.u8", 0, bytes_of(std::uint8_t{200}));
  parts.key("a.i8", 1, bytes_of(std::int8_t{-3}));
  parts.key("a.i16", 3, bytes_of(std::int16_t{-300}));
  parts.key("a.f32", 6, bytes_of(0.5F));
  parts.key("a.flag", 7, bytes_of(std::uint8_t{1}));
  parts.key("a.u64", 10, bytes_of(~std::uint64_t{0}));
  parts.key("a.i64", 11, bytes_of(std::int64_t{-5}));
  parts.key("a.f64", 12, bytes_of(0.1));
  parts.key("a.names", 9, bytes_of(std::uint32_t{8}) + bytes_of(std::uint64_t{2}) + gguf_text("x") + gguf_text(""));
  parts.key("a.reals", 9, bytes_of(std::uint32_t{6}) + bytes_of(std::uint64_t{2}) + bytes_of(1.5F) + bytes_of(-2.0F));
  parts.key("a.wholes", 9, bytes_of(std::uint32_t{5}) + bytes_of(std::uint64_t{1}) + bytes_of(std::int32_t{-9}));
  std::string numbers, block = bytes_of(std::uint16_t{0x3800});  // one half
  for (int i = 0; i < 6; ++i) numbers += bytes_of(static_cast<float>(i));
  for (int i = 0; i < 32; ++i) block += static_cast<char>(i - 16);
  parts.tensors = {{"first", {3, 2}, 0, numbers}, {"second", {32}, 8, block}};
  return parts;
}

}  // namespace torsor::testing
