// What every checkpoint of this project consists of, whatever the model.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "torsor/base/json.h"
#include "torsor/data/tokenizer.h"
#include "torsor/model/parameters.h"

namespace torsor {

/// The tensors of a model, as they are written.
std::map<std::string, at::Tensor> tensors_by_name(const std::vector<ModelParameter>& parameters);

/// Writes the tokenizer's files (Tokenizer::files) where `reader` is one, model.safetensors and config.json with
/// "format" before `config`, each in one step; the config last, so that a folder with one is whole.
void write_checkpoint(const std::string& folder, const std::vector<ModelParameter>& parameters, const Json& config,
                      const std::shared_ptr<const Tokenizer>& reader);

}  // namespace torsor
