#include "torsor/model/llama2_c.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include "torsor/base/file.h"

namespace torsor {
namespace {

constexpr std::size_t kHeader = 7;
constexpr std::int64_t kLargest = 1 << 24;  // of any one size: no product of three overflows

}  // namespace

Llama2Model read_llama2(const std::string& path) {
  const std::string bytes = read_file(path);
  if (bytes.size() < 4 * kHeader)
    throw Error(str(path, ": expected a model of llama2.c (28 bytes and its weights), got ", bytes.size(), " bytes"));
  std::int32_t header[kHeader];
  std::memcpy(header, bytes.data(), sizeof header);
  const char* names[kHeader] = {"dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len"};
  for (std::size_t i = 0; i < kHeader; ++i) {
    const std::int64_t size = i == 5 ? std::abs(static_cast<std::int64_t>(header[i])) : header[i];
    if (size < 1 || size > kLargest)
      throw Error(str(path, ": expected a model of llama2.c, found ", names[i], " = ", header[i]));
  }
  const std::int64_t dim = header[0], hidden = header[1], layers = header[2], heads = header[3], kv = header[4];
  const std::int64_t vocabulary = std::abs(static_cast<std::int64_t>(header[5])), length = header[6];
  Llama2Model model;
  ModelConfig& c = model.config;
  c.width = dim;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv;
  c.mlp_width = hidden;
  c.vocabulary_size = vocabulary;
  c.train_length = length;
  c.tie_head = header[5] > 0;
  c.encoding = "rope(layout=interleaved)";
  try {
    c.complete();
    if (c.head_dim % 2 != 0) throw UsageError(str("heads of ", c.head_dim, " channels do not pair"));
  } catch (const UsageError& error) {
    throw Error(str(path, ": ", error.what()));
  }
  const std::int64_t kv_dim = kv * c.head_dim, half = c.head_dim / 2;
  // In double: sizes of a damaged file may multiply to more than there are numbers.
  const double total =
      static_cast<double>(vocabulary) * dim * (c.tie_head ? 1 : 2) +
      static_cast<double>(layers) * (2.0 * dim + 2.0 * dim * dim + 2.0 * dim * kv_dim + 3.0 * dim * hidden) + dim +
      2.0 * static_cast<double>(length) * half;
  const double expected = total * 4 + 4 * kHeader;
  if (expected != static_cast<double>(bytes.size()))
    throw Error(str(path, ": expected ",
                    expected < 1e18 ? str(static_cast<std::int64_t>(expected)) : std::string("far more than 1e18"),
                    " bytes for dim ", dim, ", hidden_dim ", hidden, ", ", layers, " layers, ", heads, " heads, ", kv,
                    " key heads, vocabulary ", vocabulary, ", length ", length, ", got ", bytes.size()));

  const char* at = bytes.data() + 4 * kHeader;
  const auto next = [&](const std::vector<std::int64_t>& shape) {
    at::Tensor tensor = at::empty(shape, at::kFloat);
    std::memcpy(tensor.data_ptr(), at, tensor.nbytes());
    at += tensor.nbytes();
    return tensor;
  };
  const auto by_layer = [&](const char* name, std::vector<std::int64_t> shape) {
    shape.insert(shape.begin(), layers);
    const at::Tensor all = next(shape);
    for (std::int64_t layer = 0; layer < layers; ++layer)
      model.weights[str("model.layers.", layer, ".", name, ".weight")] = all[layer].clone();
  };
  model.weights["model.embed_tokens.weight"] = next({vocabulary, dim});
  by_layer("input_layernorm", {dim});
  by_layer("self_attn.q_proj", {dim, dim});
  by_layer("self_attn.k_proj", {kv_dim, dim});
  by_layer("self_attn.v_proj", {kv_dim, dim});
  by_layer("self_attn.o_proj", {dim, dim});
  by_layer("post_attention_layernorm", {dim});
  by_layer("mlp.gate_proj", {hidden, dim});
  by_layer("mlp.down_proj", {dim, hidden});
  by_layer("mlp.up_proj", {hidden, dim});
  model.weights["model.norm.weight"] = next({dim});
  next({2, length, half});
  if (!c.tie_head) model.weights["lm_head.weight"] = next({vocabulary, dim});
  return model;
}

std::shared_ptr<const Llama2Tokenizer> find_llama2_tokenizer(const std::string& path, std::int64_t vocabulary) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const std::string& name : {str("tok", vocabulary, ".bin"), std::string("tokenizer.bin")}) {
    const std::string file = (folder / name).string();
    if (!std::filesystem::exists(file)) continue;
    auto tokenizer = Llama2Tokenizer::load(file);
    if (tokenizer->vocabulary_size() != vocabulary)
      throw Error(str(file, ": has ", tokenizer->vocabulary_size(), " pieces, the model ", vocabulary));
    return tokenizer;
  }
  return nullptr;
}

}  // namespace torsor
