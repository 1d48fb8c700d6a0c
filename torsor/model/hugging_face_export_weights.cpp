// A decoder's tensors under a family's names, and the folder that holds them.
#include <cmath>
#include <filesystem>
#include <utility>

#include "torsor/base/file.h"
#include "torsor/data/bpe.h"
#include "torsor/encoding/bias/slopes.h"
#include "torsor/model/checkpoint_files.h"
#include "torsor/model/foreign_tensors.h"
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
        names_(family_names(form.family, model.config().block.parallel)),
        own_(tensors_by_name(model.parameters()), form.family) {}

  Tensors run() {
    const FamilyNames& n = names_;
    for (const auto& [theirs, ours] : n.whole) own_.module(ours, n.root + theirs);
    if (n.positions != nullptr) own_.put(str(n.root, n.positions, ".weight"), own_.take(kLearnedTable));
    if (!config_.tie_head) own_.module("lm_head", n.head);
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string theirs = str(n.root, n.layers, layer, "."), ours = str("model.layers.", layer, ".");
      for (const auto& [to, from] : n.layer) own_.module(ours + from, theirs + to, n.transposed);
      if (n.fused != nullptr) join_attention(ours + "self_attn.", theirs + n.fused);
      if (n.gate_up != nullptr)
        own_.put(str(theirs, n.gate_up, ".weight"),
                 at::cat({own_.take(ours + "mlp.gate_proj.weight"), own_.take(ours + "mlp.up_proj.weight")}));
      if (!family_.slopes.empty()) check_slopes(own_.take(ours + "self_attn.position.alibi.slopes"));
    }
    return own_.finish();
  }

 private:
  void join_attention(const std::string& ours, const std::string& theirs) {
    const std::int64_t d = config_.head_dim, keys = config_.kv_heads, group = config_.heads / keys;
    for (const char* part : {".weight", ".bias"}) {
      if (!own_.has(ours + "q_proj" + part)) continue;
      const at::Tensor q = own_.take(ours + "q_proj" + part), k = own_.take(ours + "k_proj" + part),
                       v = own_.take(ours + "v_proj" + part);
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
      own_.put(theirs + part, names_.transposed && all.dim() == 2 ? all.t() : all);
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
  OwnTensors own_;
};

const char* dtype_name_of(at::ScalarType dtype) {
  return dtype == at::kHalf ? "float16" : dtype == at::kBFloat16 ? "bfloat16" : "float32";
}

at::Tensor narrowed(const std::string& name, const at::Tensor& tensor, at::ScalarType dtype) {
  if (!at::isFloatingType(tensor.scalar_type())) return tensor;  // counts that a file repeated
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

std::vector<TokenizerFile> hugging_face_tokenizer(const std::shared_ptr<const Tokenizer>& reader) {
  if (!reader) return {};
  const bool bytes = dynamic_cast<const ByteTokenizer*>(reader.get()) != nullptr;
  return bytes ? bytes_as_pieces()->files() : reader->files();
}

void write_hugging_face(const std::string& folder, Tensors tensors, Json config,
                        const HuggingFaceCompanions& companions, const std::vector<TokenizerFile>& tokenizer,
                        at::ScalarType dtype) {
  for (auto& [name, tensor] : tensors) tensor = narrowed(name, tensor, dtype);
  config.erase("torch_dtype");  // its older name
  config["dtype"] = dtype_name_of(dtype);
  make_directories(folder);
  save_tensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  for (const std::string& file : companions.files)
    write_file_atomic(folder + "/" + std::filesystem::path(file).filename().string(), read_file(file));
  if (companions.files.empty())
    for (const TokenizerFile& file : tokenizer) write_file_atomic(folder + "/" + file.name, file.content);
  write_file_atomic(folder + "/config.json", json_text(config, 2) + "\n");
}

Json end_tokens_json(const std::vector<std::int64_t>& end_tokens) {
  if (end_tokens.empty()) return nullptr;
  return end_tokens.size() == 1 ? Json(end_tokens.front()) : Json(end_tokens);
}

void save_hugging_face(const std::string& folder, const Decoder& model, const HuggingFaceForm& form,
                       const HuggingFaceCompanions& companions, const std::shared_ptr<const Tokenizer>& reader,
                       const std::vector<std::int64_t>& end_tokens, at::ScalarType dtype) {
  Json config = form.config;
  // Every family has defaults of its own, which would point beyond a small vocabulary.
  for (const char* key : {"bos_token_id", "pad_token_id"}) config[key] = nullptr;
  config["eos_token_id"] = end_tokens_json(end_tokens);
  if (companions.tokens.is_object()) config.update(companions.tokens);
  write_hugging_face(folder, hugging_face_tensors(model, form), std::move(config), companions,
                     hugging_face_tokenizer(reader), dtype);
}

}  // namespace torsor
