#include "torsor/data/llama2_file.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "torsor/base/error.h"

namespace torsor {
namespace {

constexpr std::size_t kSizes = 7;
constexpr std::size_t kHeader = kSizes * sizeof(std::int32_t);
constexpr std::int64_t kLargest = 1 << 20;     // of any one size: no product of two overflows
constexpr std::int64_t kMostLayers = 1 << 14;  // what a decoder has at most

}  // namespace

Llama2File Llama2File::open(const std::string& path) { return {FileContent::open(path), path}; }

Llama2File Llama2File::from_bytes(std::string bytes, const std::string& source) {
  return {FileContent::of(std::move(bytes)), source};
}

Llama2File::Llama2File(std::unique_ptr<FileContent> content, const std::string& source) : content_(std::move(content)) {
  const std::string_view bytes = content_->bytes();
  if (bytes.size() < kHeader)
    throw Error(str(source, ": expected a model of llama2.c (28 bytes and its weights), got ", bytes.size(), " bytes"));
  std::int32_t header[kSizes];
  std::memcpy(header, bytes.data(), kHeader);
  const char* names[kSizes] = {"dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len"};
  std::int64_t size[kSizes];
  for (std::size_t i = 0; i < kSizes; ++i) {
    size[i] = header[i];
    if (i == 5) size[i] = std::abs(size[i]);  // negative: the output projection is a tensor of its own
    if (size[i] < 1 || size[i] > (i == 2 ? kMostLayers : kLargest))
      throw Error(str(source, ": expected a model of llama2.c, found ", names[i], " = ", header[i]));
  }
  sizes_ = {size[0], size[1], size[2], size[3], size[4], size[5], size[6], header[5] > 0};
  const Sizes& s = sizes_;
  if (s.dim % s.heads != 0 || s.head_dim() % 2 != 0)
    throw Error(str(source, ": dim ", s.dim, " must divide by n_heads ", s.heads, " into pairs of channels"));
  if (s.heads % s.kv_heads != 0)
    throw Error(str(source, ": n_kv_heads ", s.kv_heads, " must divide n_heads ", s.heads));

  const std::int64_t kv_dim = s.kv_heads * s.head_dim(), tables = 2 * s.length * (s.head_dim() / 2);
  // In double: sizes of a damaged file may multiply to more than there are numbers.
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double layer = 2 * real(s.dim) + 2 * real(s.dim) * real(s.dim) + 2 * real(s.dim) * real(kv_dim) +
                       3 * real(s.dim) * real(s.hidden_dim);
  const double total =
      real(s.vocabulary) * real(s.dim) * (s.tied ? 1 : 2) + real(s.layers) * layer + real(s.dim) + real(tables);
  const double expected = total * 4 + static_cast<double>(kHeader);
  if (expected != static_cast<double>(bytes.size()))
    throw Error(str(source, ": expected ",
                    expected < 1e15 ? str(static_cast<std::int64_t>(expected)) : std::string("more than 1e15"),
                    " bytes for dim ", s.dim, ", hidden_dim ", s.hidden_dim, ", ", s.layers, " layers, ", s.heads,
                    " heads, ", s.kv_heads, " key heads, vocabulary ", s.vocabulary, ", length ", s.length, ", got ",
                    bytes.size()));

  std::size_t at = kHeader;
  const auto next = [&](std::int64_t count) {
    const std::string_view part = bytes.substr(at, static_cast<std::size_t>(count) * 4);
    at += part.size();
    return part;
  };
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    tensors_.push_back({name, {rows, columns}, next(rows * columns)});
  };
  const auto by_layer = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t i = 0; i < s.layers; ++i) {
      const std::string full = str("model.layers.", i, ".", name, ".weight");
      if (columns == 0)
        tensors_.push_back({full, {rows}, next(rows)});
      else
        matrix(full, rows, columns);
    }
  };
  matrix("model.embed_tokens.weight", s.vocabulary, s.dim);
  by_layer("input_layernorm", s.dim, 0);
  by_layer("self_attn.q_proj", s.dim, s.dim);
  by_layer("self_attn.k_proj", kv_dim, s.dim);
  by_layer("self_attn.v_proj", kv_dim, s.dim);
  by_layer("self_attn.o_proj", s.dim, s.dim);
  by_layer("post_attention_layernorm", s.dim, 0);
  by_layer("mlp.gate_proj", s.hidden_dim, s.dim);
  by_layer("mlp.down_proj", s.dim, s.hidden_dim);
  by_layer("mlp.up_proj", s.hidden_dim, s.dim);
  tensors_.push_back({"model.norm.weight", {s.dim}, next(s.dim)});
  next(tables);
  if (!s.tied) matrix("lm_head.weight", s.vocabulary, s.dim);
}

}  // namespace torsor
