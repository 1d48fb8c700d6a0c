// What the families of Hugging Face transformers call the tensors of a decoder: shared by reading and writing.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "torsor/model/config.h"

namespace torsor {

/// How a family lays the rows of its joined projection of queries, keys and values.
enum class FusedRows {
  Apart,   ///< not joined
  Blocks,  ///< all queries, all keys, all values (GPT-2, MPT, Phi-3, Falcon with one key head)
  Heads,   ///< a head's query, key and value, head after head (GPT-NeoX, BLOOM)
  Groups   ///< the queries of a key head, its key, its value, group after group (Falcon's new decoder)
};

/// Names of one family: a layer's tensors stand under ROOT LAYERS N . NAME, all as modules, without ".weight" and
/// ".bias".
struct FamilyNames {
  std::string root;    ///< what every name but the head's begins with; may be missing in a file of the bare model
  std::string layers;  ///< behind it
  std::vector<std::pair<const char*, const char*>> whole;  ///< their name, ours
  std::vector<std::pair<const char*, const char*>> layer;  ///< the same of a layer
  const char* fused = nullptr;                             ///< module of queries, keys and values
  const char* gate_up = nullptr;                           ///< module of gate and up
  const char* positions = nullptr;                         ///< table of learned positions
  bool transposed = false;                                 ///< modules are (inputs, outputs) (GPT-2)
  const char* head = "lm_head";
};

/// `family` is a model_type that hugging_face.h reads; Falcon's norms are named by how its blocks stand.
FamilyNames family_names(const std::string& family, Parallel parallel);

/// Where the decoder has its table of learned positions.
constexpr const char* kLearnedTable = "model.position.learned.table";

/// The rows of joined projections that belong to queries, keys and values.
std::int64_t fused_row_count(const ModelConfig& config);

}  // namespace torsor
