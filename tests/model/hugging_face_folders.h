// The fifteen small folders of Hugging Face transformers in the shared data.
#pragma once

#include <string>
#include <vector>

#include "tests/base/test_folder.h"

namespace torsor::testing {

inline const std::vector<std::string> kHuggingFaceFolders = {
    "bloom",      "falcon-alibi", "falcon-rope",    "gpt-neox", "gpt2",      "llama", "llama-dynamic", "llama-linear",
    "llama-yarn", "llama31",      "mistral-window", "mpt",      "phi3-long", "qwen2", "qwen3"};

inline std::string hugging_face_folder(const std::string& name) { return shared_path("data/models/hf-tiny/" + name); }

}  // namespace torsor::testing
