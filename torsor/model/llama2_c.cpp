#include "torsor/model/llama2_c.h"

#include <cstring>
#include <filesystem>

#include "torsor/data/llama2_file.h"

namespace torsor {

Llama2Model read_llama2(const std::string& path) {
  const Llama2File file = Llama2File::open(path);
  const Llama2File::Sizes& sizes = file.sizes();
  Llama2Model model;
  ModelConfig& c = model.config;
  c.width = sizes.dim;
  c.layers = sizes.layers;
  c.heads = sizes.heads;
  c.kv_heads = sizes.kv_heads;
  c.mlp_width = sizes.hidden_dim;
  c.vocabulary_size = sizes.vocabulary;
  c.train_length = sizes.length;
  c.tie_head = sizes.tied;
  c.encoding = "rope(layout=interleaved)";
  try {
    c.complete();
  } catch (const UsageError& error) {
    throw Error(str(path, ": ", error.what()));
  }
  for (const Llama2File::Tensor& one : file.tensors()) {
    const at::Tensor tensor = at::empty(one.shape, at::kFloat);
    std::memcpy(tensor.data_ptr(), one.bytes.data(), one.bytes.size());
    model.weights[one.name] = tensor;
  }
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
