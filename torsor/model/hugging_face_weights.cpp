// Hugging Face's tensors under this project's names.
#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "torsor/model/hugging_face.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

/// Buffers of older files that repeat the configuration.
bool is_buffer(const std::string& name) {
  for (const char* end : {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias",
                          ".attention.masked_bias", ".self_attention.rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

class Renaming {
 public:
  Renaming(const HuggingFaceModel& model, const Tensors& tensors, const std::string& source)
      : model_(model), names_(family_names(model.model_type, model.config.block.parallel)), source_(source) {
    for (const auto& [name, tensor] : tensors)
      if (!is_buffer(name)) left_.emplace(name, tensor);
    // A file of the bare model leaves the root out.
    const auto under_root = [&](const auto& one) { return one.first.starts_with(names_.root); };
    if (std::none_of(left_.begin(), left_.end(), under_root))
      root_.clear();
    else
      root_ = names_.root;
  }

  Tensors run() {
    const ModelConfig& c = model_.config;
    for (const auto& [theirs, ours] : names_.whole) module(root_ + theirs, ours, false);
    if (names_.positions != nullptr) put(kLearnedTable, take(str(root_, names_.positions, ".weight")));
    if (c.tie_head)
      left_.erase(str(names_.head, ".weight"));  // the embedding once more
    else
      module(names_.head, "lm_head", false);
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      const std::string theirs = str(root_, names_.layers, layer, "."), ours = str("model.layers.", layer, ".");
      for (const auto& [from, to] : names_.layer) module(theirs + from, ours + to, names_.transposed);
      if (names_.fused != nullptr) split_attention(theirs + names_.fused, ours + "self_attn.");
      if (names_.gate_up != nullptr) split_gate(theirs + names_.gate_up, ours + "mlp.");
      if (!model_.slopes.empty()) put(ours + "self_attn.position.alibi.slopes", at::tensor(model_.slopes, at::kDouble));
    }
    if (!left_.empty())
      throw Error(str(source_, ": tensor '", left_.begin()->first, "' ", left_.begin()->second.sizes(),
                      " belongs to no part of a ", model_.model_type));
    return std::move(result_);
  }

 private:
  at::Tensor take(const std::string& name) {
    const auto found = left_.find(name);
    if (found == left_.end()) throw Error(str(source_, ": tensor '", name, "' is missing"));
    at::Tensor tensor = found->second;
    left_.erase(found);
    return tensor;
  }

  void put(const std::string& name, const at::Tensor& tensor) {
    if (!at::isFloatingType(tensor.scalar_type()))
      throw Error(str(source_, ": the tensor for '", name, "' must be floating, found ", tensor.scalar_type()));
    result_[name] = tensor.to(at::kFloat).contiguous();
  }

  /// Weight and bias of a module, where they are there; the decoder says which it misses.
  void module(const std::string& theirs, const std::string& ours, bool transposed) {
    for (const char* part : {".weight", ".bias"}) {
      if (left_.count(theirs + part) == 0) continue;
      const at::Tensor tensor = take(theirs + part);
      put(ours + part, transposed && tensor.dim() == 2 ? tensor.t() : tensor);
    }
  }

  void split_attention(const std::string& theirs, const std::string& ours) {
    const ModelConfig& c = model_.config;
    const std::int64_t d = c.head_dim, heads = c.heads, keys = c.kv_heads, group = heads / keys;
    for (const char* part : {".weight", ".bias"}) {
      if (left_.count(theirs + part) == 0) {
        if (std::string(part) == ".weight") throw Error(str(source_, ": tensor '", theirs, part, "' is missing"));
        continue;
      }
      at::Tensor all = take(theirs + part);
      if (names_.transposed && all.dim() == 2) all = all.t();
      const std::int64_t rows = fused_row_count(c);
      if (all.dim() < 1 || all.size(0) != rows)
        throw Error(str(source_, ": tensor '", theirs, part, "' must have ", rows, " rows (", heads, " queries, ", keys,
                        " keys and values of ", d, "), found ", all.sizes()));
      const auto send = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        put(ours + "q_proj" + part, q), put(ours + "k_proj" + part, k), put(ours + "v_proj" + part, v);
      };
      if (model_.fused == FusedRows::Blocks) {
        send(all.narrow(0, 0, heads * d), all.narrow(0, heads * d, keys * d),
             all.narrow(0, (heads + keys) * d, keys * d));
        continue;
      }
      // Groups of queries, one key, one value; with a key head a query head the groups hold one.
      const at::Tensor groups = all.reshape({keys, group + 2, d, -1});
      const auto rows_of = [&](std::int64_t first, std::int64_t count) {
        const at::Tensor some = groups.narrow(1, first, count).reshape({keys * count * d, -1});
        return all.dim() == 1 ? some.squeeze(1) : some;
      };
      send(rows_of(0, group), rows_of(group, 1), rows_of(group + 1, 1));
    }
  }

  void split_gate(const std::string& theirs, const std::string& ours) {
    const at::Tensor both = take(theirs + ".weight");
    const std::int64_t width = model_.config.mlp_width;
    if (both.dim() != 2 || both.size(0) != 2 * width)
      throw Error(str(source_, ": tensor '", theirs, ".weight' must have ", 2 * width, " rows, found ", both.sizes()));
    put(ours + "gate_proj.weight", both.narrow(0, 0, width));
    put(ours + "up_proj.weight", both.narrow(0, width, width));
  }

  const HuggingFaceModel& model_;
  FamilyNames names_;
  std::string source_, root_;
  Tensors left_, result_;
};

}  // namespace

Tensors hugging_face_weights(const HuggingFaceModel& model, const Tensors& tensors, const std::string& source) {
  return Renaming(model, tensors, source).run();
}

namespace {

/// What model.safetensors.index.json says: the tensors of each file.
std::map<std::string, std::set<std::string>> read_index(const std::string& path) {
  const Json index = read_json(path);
  if (!index.is_object() || !index.contains("weight_map") || !index.at("weight_map").is_object())
    throw Error(str(path, ": expected an object with a \"weight_map\""));
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [name, file] : index.at("weight_map").items()) {
    if (!file.is_string()) throw Error(str(path, ": \"", name, "\" must name a file"));
    const auto plain = file.get<std::string>();
    if (plain.empty() || plain.find('/') != std::string::npos || plain.find('\\') != std::string::npos ||
        plain.starts_with("."))
      throw Error(str(path, ": \"", name, "\" names '", plain, "', which is no plain name of a file of this folder"));
    files[plain].insert(name);
  }
  return files;
}

bool is_sharded(const std::string& folder) {
  const std::string single = folder + "/model.safetensors";
  return !std::filesystem::exists(single) && std::filesystem::exists(single + ".index.json");
}

}  // namespace

std::vector<std::string> weight_files(const std::string& folder) {
  if (!is_sharded(folder)) return {"model.safetensors"};
  std::vector<std::string> files;
  for (const auto& [file, names] : read_index(folder + "/model.safetensors.index.json")) files.push_back(file);
  return files;
}

Tensors load_sharded(const std::string& folder) {
  const std::string single = folder + "/model.safetensors", path = single + ".index.json";
  if (!is_sharded(folder)) return load_tensors(single).tensors;
  Tensors all;
  for (const auto& [file, names] : read_index(path)) {
    TensorFile one = load_tensors(folder + "/" + file);
    for (const std::string& name : names)
      if (one.tensors.count(name) == 0)
        throw Error(str(path, ": tensor '", name, "' is not in ", file, ", where it should be"));
    for (auto& [name, tensor] : one.tensors) {
      if (names.count(name) == 0) throw Error(str(folder, "/", file, ": tensor '", name, "' is not in the index"));
      all.emplace(name, std::move(tensor));
    }
  }
  return all;
}

}  // namespace torsor
