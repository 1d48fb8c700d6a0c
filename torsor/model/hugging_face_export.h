// A decoder in the form of Hugging Face transformers: the inverse of hugging_face.h. A family fits a model when its
// config.json, read back, gives the same model; nothing is written that would be read as another one.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/data/tokenizer.h"
#include "torsor/model/decoder.h"

namespace torsor {

struct HuggingFaceRequest {
  /// The model_type that is preferred where it fits, such as that of the folder that was read; empty = none.
  std::string family;
  /// Only families whose tensors are named as Decoder's are: their keys may stand beside this project's.
  bool own_names = false;
  /// max_position_embeddings, where that only says how long texts may become; 0 = what the encoding and the training
  /// length give. Under dynamic it decides the frequencies, and stays the training length.
  std::int64_t longest = 0;
};

/// What a config.json of transformers 5 says of a model.
struct HuggingFaceForm {
  std::string family;  ///< model_type
  Json config;
};

/// A family for a model: the preferred one, else the first that fits of llama, mistral, qwen2, qwen3, phi3, gpt2,
/// gpt_neox, bloom, mpt, falcon. Throws Refusal where none does, naming the nearest and what it has no counterpart for.
HuggingFaceForm hugging_face_form(const ModelConfig& config, const HuggingFaceRequest& request = {});

/// The tensors under the family's names, in its layouts: joined rows, transposed matrices. hugging_face_weights() gives
/// back the same bits. Throws Refusal where trained slopes are not the family's.
std::map<std::string, at::Tensor> hugging_face_tensors(const Decoder& model, const HuggingFaceForm& form);

/// The model's expression with its rotations in Hugging Face's layout (half-split pairs that turn forward):
/// convert_model() brings the weights there, bit for bit.
std::string hugging_face_layout(const std::string& encoding);

/// What a folder of Hugging Face transformers holds beside its model, to be kept when the model is written again.
struct HuggingFaceCompanions {
  std::string family;              ///< model_type of a folder of transformers; empty for anything else
  std::int64_t longest = 0;        ///< its max_position_embeddings, 0 where there is none
  Json tokens;                     ///< bos_token_id, eos_token_id and pad_token_id, those that there are
  std::vector<std::string> files;  ///< paths of its tokenizer and generation settings
};
/// Of a folder whose config.json is Hugging Face's, or this project's with its keys beside; else empty.
HuggingFaceCompanions hugging_face_companions(const std::string& checkpoint);

/// The files of a tokenizer in the form of transformers: plain bytes as a byte-level BPE without merges. None for none.
std::vector<TokenizerFile> hugging_face_tokenizer(const std::shared_ptr<const Tokenizer>& reader);

/// The value of eos_token_id: one, a list, or null.
Json end_tokens_json(const std::vector<std::int64_t>& end_tokens);

/// Writes model.safetensors and config.json (`config` with "dtype"), each in one step and the latter last; between them
/// copies of the companions' files or, where there are none, `tokenizer`. `dtype` is float, half or bfloat16, of all
/// tensors of real numbers. Throws Refusal naming a tensor with a number beyond it.
void write_hugging_face(const std::string& folder, std::map<std::string, at::Tensor> tensors, Json config,
                        const HuggingFaceCompanions& companions, const std::vector<TokenizerFile>& tokenizer,
                        at::ScalarType dtype);

/// The same of a decoder, with the tokenizer that `reader` is. Throws Refusal as hugging_face_tensors does besides.
void save_hugging_face(const std::string& folder, const Decoder& model, const HuggingFaceForm& form,
                       const HuggingFaceCompanions& companions, const std::shared_ptr<const Tokenizer>& reader,
                       const std::vector<std::int64_t>& end_tokens, at::ScalarType dtype = at::kFloat);

}  // namespace torsor
