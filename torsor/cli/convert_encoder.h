// torsor convert of models that are no decoders alone.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "torsor/cli/common.h"

namespace torsor {

struct EncoderConvertArguments {
  std::string checkpoint;
  bool foreign = false;               ///< to a folder of transformers, else of this project
  at::ScalarType dtype = at::kFloat;  ///< of its tensors
};

/// Writes the encoder of a folder into --out.
int run_encoder_convert(const EncoderConvertArguments& arguments, const CommonOptions& common);

/// The same of a model of an encoder and a decoder.
int run_encoder_decoder_convert(const EncoderConvertArguments& arguments, const CommonOptions& common);

}  // namespace torsor
