// Checkpoints: folders of this project (config.json with the expression under "encoding", model.safetensors), folders
// of Hugging Face transformers, llama2.c's .bin.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "torsor/data/tokenizer.h"
#include "torsor/model/decoder.h"

namespace torsor {

/// Writes both files, each in one step; weights first, so that a folder with a config is whole. `tokenizer` names what
/// turned text into ids ("bytes", "tokens"). Where Hugging Face has the model in a family whose tensors are named
/// as ours (hugging_face_export.h), its keys are written beside ours, so that transformers loads the folder; `longest`
/// is then its max_position_embeddings, 0 = what the encoding gives. Of a model that reads
/// syntax.vectors, `embedder` is the SHA-256 of the network that made them; it is kept with the labels that arcs are
/// numbered by. `reader` is the tokenizer that `tokenizer` names; its files() are written
/// beside them.
void save_checkpoint(const std::string& folder, const Decoder& model, const std::string& tokenizer,
                     const std::string& embedder = "", const std::shared_ptr<const Tokenizer>& reader = nullptr,
                     std::int64_t longest = 0);

/// Why Hugging Face transformers cannot load the folder that save_checkpoint writes of a model; empty when it can.
std::string hugging_face_obstacle(const ModelConfig& config);

struct LoadedModel {
  Decoder model;
  std::string tokenizer;
  std::string embedder;  ///< SHA-256 of what made its syntax.vectors (structure_embedder.h); empty where none is told
  std::vector<std::int64_t> end_tokens = {};     ///< that end a text, where the checkpoint names some
  std::shared_ptr<const Tokenizer> reader = {};  ///< of its own tokenizer, or of bytes; nothing where ids are no text
  std::string unread = {};                       ///< why a tokenizer that is there was not read
};

/// Reads a folder written by save_checkpoint; a folder of Hugging Face transformers (hugging_face.h; a
/// tokenizer that is not read, see tokenizer_file.h, leaves it without text); a file of llama2.c (llama2_c.h) or a
/// .gguf (gguf_model.h); the folder of an adapter (adapter.h) merged into its base, which `base` names where it is not
/// the recorded one. `encoding` replaces the stored expression when it is not empty (tensors must still fit). Throws
/// Error naming the file and what is wrong (also a tokenizer.json that is another than the model's), UsageError when
/// `base` is given for a folder without adapter.
LoadedModel load_checkpoint(const std::string& folder, const std::string& encoding = "",
                            const std::string& precision = "", const std::string& base = "");

}  // namespace torsor
