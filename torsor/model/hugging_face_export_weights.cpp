// A decoder's tensors under a family's names, and the folder that holds them.
#include <cmath>
#include <filesystem>

#include "torsor/base/file.h"
#include "torsor/data/bpe.h"
#include "torsor/encoding/bias/slopes.h"
#include "torsor/model/hugging_face.h"
#include "torsor/model/hugging_face_export.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

class Naming {
 public:
  Naming(const Decoder& model, const HuggingFaceForm& form)
      : config_(model.config()),
        family_(read_hugging_face(form.config, "config.json")),
        names_(family_names(form.family, model.config().block.parallel)) {
    for (const ModelParameter& parameter : model.parameters()) left_[parameter.name] = parameter.tensor.detach();
  }

  Tensors run() {
    const FamilyNames& n = names_;
    for (const auto& [theirs, ours] : n.whole) module(ours, n.root + theirs, false);
    if (n.positions != nullptr) put(str(n.root, n.positions, ".weight"), take(kLearnedTable));
    if (!config_.tie_head) module("lm_head", n.head, false);
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string theirs = str(n.root, n.layers, layer, "."), ours = str("model.layers.", layer, ".");
      for (const auto& [to, from] : n.layer) module(ours + from, theirs + to, n.transposed);
      if (n.fused != nullptr) join_attention(ours + "self_attn.", theirs + n.fused);
      if (n.gate_up != nullptr)
        put(str(theirs, n.gate_up, ".weight"),
            at::cat({take(ours + "mlp.gate_proj.weight"), take(ours + "mlp.up_proj.weight")}));
      if (!family_.slopes.empty()) check_slopes(take(ours + "self_attn.position.alibi.slopes"));
    }
    if (!left_.empty())
      throw Refusal(str("a ", family_.model_type, " of Hugging Face has no tensor '", left_.begin()->first, "'"));
    return std::move(result_);
  }

 private:
  at::Tensor take(const std::string& name) {
    const auto found = left_.find(name);
    if (found == left_.end()) throw Error(str("the model has no tensor '", name, "'"));
    at::Tensor tensor = found->second;
    left_.erase(found);
    return tensor;
  }

  void put(const std::string& name, const at::Tensor& tensor) { result_[name] = tensor.contiguous(); }

  void module(const std::string& ours, const std::string& theirs, bool transposed) {
    for (const char* part : {".weight", ".bias"}) {
      if (left_.count(ours + part) == 0) continue;
      const at::Tensor tensor = take(ours + part);
      put(theirs + part, transposed && tensor.dim() == 2 ? tensor.t() : tensor);
    }
  }

  void join_attention(const std::string& ours, const std::string& theirs) {
    const std::int64_t d = config_.head_dim, keys = config_.kv_heads, group = config_.heads / keys;
    for (const char* part : {".weight", ".bias"}) {
      if (left_.count(ours + "q_proj" + part) == 0) continue;
      const at::Tensor q = take(ours + "q_proj" + part), k = take(ours + "k_proj" + part),
                       v = take(ours + "v_proj" + part);
      at::Tensor all;
      if (family_.fused == FusedRows::Blocks) {
        all = at::cat({q, k, v});
      } else {
        // Groups of queries, one key, one value; with a key head a query head the groups hold one.
        const std::int64_t columns = q.dim() == 2 ? q.size(1) : 1;
        all = at::cat({q.reshape({keys, group, d, columns}), k.reshape({keys, 1, d, columns}),
                       v.reshape({keys, 1, d, columns})},
                      1)
                  .reshape({fused_row_count(config_), columns});
        if (q.dim() == 1) all = all.squeeze(1);
      }
      put(theirs + part, names_.transposed && all.dim() == 2 ? all.t() : all);
    }
  }

  void check_slopes(const at::Tensor& slopes) const {
    const at::Tensor wanted = at::tensor(family_.slopes, at::kDouble).to(slopes.scalar_type());
    if (!at::equal(slopes, wanted))
      throw Refusal(str("Hugging Face has no architecture for this model: the slopes of a ", family_.model_type,
                        " are fixed, and here they are others"));
  }

  const ModelConfig& config_;
  HuggingFaceModel family_;
  FamilyNames names_;
  Tensors left_, result_;
};

const char* dtype_name_of(at::ScalarType dtype) {
  return dtype == at::kHalf ? "float16" : dtype == at::kBFloat16 ? "bfloat16" : "float32";
}

at::Tensor narrowed(const std::string& name, const at::Tensor& tensor, at::ScalarType dtype) {
  const at::Tensor result = tensor.to(dtype);
  if (!at::isfinite(result).logical_or(at::isfinite(tensor).logical_not()).all().item<bool>())
    throw Refusal(str("tensor '", name, "' has numbers beyond ", dtype_name_of(dtype)));
  return result;
}

/// Bytes as a tokenizer.json: an id is the byte, and nothing merges.
std::shared_ptr<const BpeTokenizer> bytes_as_pieces() {
  BpeModel model;
  for (int byte = 0; byte < 256; ++byte) model.vocabulary.push_back(std::string(1, static_cast<char>(byte)));
  return std::make_shared<const BpeTokenizer>(std::move(model));
}

}  // namespace

Tensors hugging_face_tensors(const Decoder& model, const HuggingFaceForm& form) { return Naming(model, form).run(); }

void save_hugging_face(const std::string& folder, const Decoder& model, const HuggingFaceForm& form,
                       const HuggingFaceCompanions& companions, const std::shared_ptr<const Tokenizer>& reader,
                       const std::vector<std::int64_t>& end_tokens, at::ScalarType dtype) {
  Tensors tensors = hugging_face_tensors(model, form);
  for (auto& [name, tensor] : tensors) tensor = narrowed(name, tensor, dtype);
  Json config = form.config;
  config["dtype"] = dtype_name_of(dtype);
  // Every family has defaults of its own, which would point beyond a small vocabulary.
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) config[key] = nullptr;
  if (end_tokens.size() == 1) config["eos_token_id"] = end_tokens.front();
  if (end_tokens.size() > 1) config["eos_token_id"] = end_tokens;
  if (companions.tokens.is_object()) config.update(companions.tokens);

  make_directories(folder);
  save_tensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  for (const std::string& file : companions.files)
    write_file_atomic(folder + "/" + std::filesystem::path(file).filename().string(), read_file(file));
  if (companions.files.empty() && reader) {
    const bool bytes = dynamic_cast<const ByteTokenizer*>(reader.get()) != nullptr;
    for (const TokenizerFile& file : bytes ? bytes_as_pieces()->files() : reader->files())
      write_file_atomic(folder + "/" + file.name, file.content);
  }
  write_file_atomic(folder + "/config.json", json_text(config, 2) + "\n");
}

}  // namespace torsor
