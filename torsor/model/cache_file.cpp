#include "torsor/model/cache_file.h"

#include <utility>

#include "torsor/train/state.h"

namespace torsor {
namespace {

constexpr const char* kAbout = "torsor.cache";

}  // namespace

void save_cache(const std::string& path, const KvCache& cache) {
  CacheContents contents = cache.contents();
  save_tensors(path, contents.tensors, {{kAbout, contents.about}});
}

KvCache load_cache(const std::string& path, std::shared_ptr<const Encoding> encoding, at::Device device) {
  TensorFile file = load_tensors(path);
  const auto about = file.metadata.find(kAbout);
  if (about == file.metadata.end()) throw Error(str(path, ": holds no cache (no '", kAbout, "' in its metadata)"));
  return KvCache::restore(std::move(encoding), {std::move(file.tensors), about->second}, path, device);
}

}  // namespace torsor
