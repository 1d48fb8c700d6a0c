// Hugging Face's tensors under this project's names.
#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "torsor/model/foreign_tensors.h"
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
      : model_(model),
        names_(family_names(model.model_type, model.config.block.parallel)),
        source_(source),
        tensors_(without_buffers(tensors), source, model.model_type),
        // A file of the bare model leaves the root out.
        root_(tensors_.any_under(names_.root) ? names_.root : "") {}

  Tensors run() {
    const ModelConfig& c = model_.config;
    for (const auto& [theirs, ours] : names_.whole) tensors_.module(root_ + theirs, ours);
    if (names_.positions != nullptr)
      tensors_.put(kLearnedTable, tensors_.take(str(root_, names_.positions, ".weight")));
    if (c.tie_head)
      tensors_.drop(str(names_.head, ".weight"));  // the embedding once more
    else
      tensors_.module(names_.head, "lm_head");
    for (std::int64_t layer = 0; layer < c.layers; ++layer) {
      const std::string theirs = str(root_, names_.layers, layer, "."), ours = str("model.layers.", layer, ".");
      for (const auto& [from, to] : names_.layer) tensors_.module(theirs + from, ours + to, names_.transposed);
      if (names_.fused != nullptr) split_attention(theirs + names_.fused, ours + "self_attn.");
      if (names_.gate_up != nullptr) split_gate(theirs + names_.gate_up, ours + "mlp.");
      if (!model_.slopes.empty())
        tensors_.put(ours + "self_attn.position.alibi.slopes", at::tensor(model_.slopes, at::kDouble));
    }
    return tensors_.finish();
  }

 private:
  static Tensors without_buffers(const Tensors& tensors) {
    Tensors rest;
    for (const auto& [name, tensor] : tensors)
      if (!is_buffer(name)) rest.emplace(name, tensor);
    return rest;
  }

  void split_attention(const std::string& theirs, const std::string& ours) {
    const ModelConfig& c = model_.config;
    const std::int64_t d = c.head_dim, heads = c.heads, keys = c.kv_heads, group = heads / keys;
    for (const char* part : {".weight", ".bias"}) {
      if (std::string(part) == ".bias" && !tensors_.has(theirs + part)) continue;
      at::Tensor all = tensors_.take(theirs + part);
      if (names_.transposed && all.dim() == 2) all = all.t();
      const std::int64_t rows = fused_row_count(c);
      if (all.dim() < 1 || all.size(0) != rows)
        throw Error(str(source_, ": tensor '", theirs, part, "' must have ", rows, " rows (", heads, " queries, ", keys,
                        " keys and values of ", d, "), found ", all.sizes()));
      const auto send = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        tensors_.put(ours + "q_proj" + part, q);
        tensors_.put(ours + "k_proj" + part, k);
        tensors_.put(ours + "v_proj" + part, v);
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
    const at::Tensor both = tensors_.take(theirs + ".weight");
    const std::int64_t width = model_.config.mlp_width;
    if (both.dim() != 2 || both.size(0) != 2 * width)
      throw Error(str(source_, ": tensor '", theirs, ".weight' must have ", 2 * width, " rows, found ", both.sizes()));
    tensors_.put(ours + "gate_proj.weight", both.narrow(0, 0, width));
    tensors_.put(ours + "up_proj.weight", both.narrow(0, width, width));
  }

  const HuggingFaceModel& model_;
  FamilyNames names_;
  std::string source_;
  ForeignTensors tensors_;
  std::string root_;
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
