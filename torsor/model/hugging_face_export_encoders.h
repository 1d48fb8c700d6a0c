// Encoders, and models of an encoder and a decoder, in the form of Hugging Face transformers: the inverse of
// hugging_face_encoder.h and hugging_face_t5.h, as hugging_face_export.h is of hugging_face.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torsor/model/encoder.h"
#include "torsor/model/encoder_decoder.h"
#include "torsor/model/hugging_face_export.h"

namespace torsor {

/// How an encoder of this project is written: as a bert, or a roformer where its positions are that one's rotation.
/// Projections without biases get some of zero, which change nothing. `about` is LoadedEncoder::about: its "labels"
/// name the classes. Throws Refusal where neither fits, naming the nearest and what it has no counterpart for.
HuggingFaceEncoderForm hugging_face_form(const EncoderConfig& config, const Json& about = nullptr);

/// How a model of two stacks is written: as a t5, or a umt5 where every layer has a table of its own. Throws Refusal as
/// above.
HuggingFaceT5Form hugging_face_form(const EncoderDecoderConfig& config);

/// An encoder under `rope` with the channels of its heads in RoFormer's order, in which neighbours turn together: the
/// same function under `rope(layout=interleaved)`, rows of W_Q and W_K permuted. Nothing for one under anything else.
std::optional<Encoder> hugging_face_layout(const Encoder& encoder);

/// The tensors under the family's names; reading gives back the same bits. Throws Refusal for one that has no place.
std::map<std::string, at::Tensor> hugging_face_tensors(const Encoder& encoder, const HuggingFaceEncoderForm& form);
std::map<std::string, at::Tensor> hugging_face_tensors(const EncoderDecoder& model, const HuggingFaceT5Form& form);

/// What was passed over in reading and is no second name, a phrase each: "bert.pooler.dense.weight", "rows 0 to 1 of
/// roberta.embeddings.position_embeddings.weight".
std::vector<std::string> unread_tensors(const HuggingFaceEncoderForm& form);
std::vector<std::string> unread_tensors(const HuggingFaceT5Form& form);

/// Writes a folder as save_hugging_face does of a decoder. Bytes with EncoderTokens behind them become a tokenizer.json
/// that puts these around a text as here.
void save_hugging_face(const std::string& folder, const Encoder& encoder, const HuggingFaceEncoderForm& form,
                       const HuggingFaceCompanions& companions, const std::shared_ptr<const Tokenizer>& reader,
                       at::ScalarType dtype = at::kFloat);
void save_hugging_face(const std::string& folder, const EncoderDecoder& model, const HuggingFaceT5Form& form,
                       const HuggingFaceCompanions& companions, const std::shared_ptr<const Tokenizer>& reader,
                       at::ScalarType dtype = at::kFloat);

}  // namespace torsor
