// The config.json of this project's checkpoints, read without libtorch: everything that it says but whether there is
// such an encoding, which check_stored_encoding (stored_encoding.h) answers.
#pragma once

#include <string>

#include "torsor/base/json.h"
#include "torsor/model/config.h"
#include "torsor/model/encoder_config.h"
#include "torsor/model/encoder_decoder_config.h"

namespace torsor {

constexpr const char* kCheckpointFormat = "torsor-checkpoint-1";
constexpr const char* kEncoderDecoderKind = "encoder-decoder";

/// Throws Error where a config.json is not of this project's format.
void check_checkpoint_format(JsonObject& config);

/// {"sha256", "relations": the labels that its arcs are numbered by}.
Json structure_embedder_to_json(const std::string& sha256);

/// The hash under "structure_embedder" of a checkpoint's config; empty where there is none. Throws Error where the
/// labels are numbered in another way than this program numbers them.
std::string structure_embedder_of(JsonObject& config);

struct DecoderCheckpoint {
  ModelConfig config;
  std::string tokenizer;
  std::string embedder;  ///< structure_embedder_of
};
/// Of save_checkpoint. Keys that are not known are Hugging Face's, which stand beside. These three throw Error naming
/// `source` and the key.
DecoderCheckpoint read_decoder_checkpoint(const Json& json, const std::string& source);

struct EncoderCheckpoint {
  EncoderConfig config;
  Json about;  ///< "task"
  std::string tokenizer;
  std::string embedder;  ///< structure_embedder_of
};
/// Of save_encoder.
EncoderCheckpoint read_encoder_checkpoint(const Json& json, const std::string& source);
/// What a checkpoint calls the ids of an encoder that brings no tokenizer.
const char* encoder_tokens(const EncoderConfig& config);

struct EncoderDecoderCheckpoint {
  EncoderDecoderConfig config;
  std::string tokenizer;
};
/// Of save_encoder_decoder.
EncoderDecoderCheckpoint read_encoder_decoder_checkpoint(const Json& json, const std::string& source);

}  // namespace torsor
