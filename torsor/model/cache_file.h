// A KV cache in a safetensors file, so that a long prompt is read once.
#pragma once

#include <memory>
#include <string>

#include "torsor/attention/kv_cache.h"

namespace torsor {

/// Writes everything that a cache holds, in one step.
void save_cache(const std::string& path, const KvCache& cache);

/// The cache of such a file, for the same encoding (of the model that wrote it: keys of other weights mean nothing
/// there). Throws Error naming the path where the file is not whole or was written for another encoding.
KvCache load_cache(const std::string& path, std::shared_ptr<const Encoding> encoding, at::Device device = at::kCPU);

}  // namespace torsor
