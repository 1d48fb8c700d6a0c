#include "torsor/attention/large_tensor.h"

#include <cstdint>
#include <cstdlib>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace torsor {

at::Tensor large_empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
#ifdef __linux__
  constexpr std::size_t page = std::size_t{2} << 20;
  std::size_t bytes = options.dtype().itemsize();
  for (const std::int64_t size : sizes) {
    // What no memory holds is at::empty's to refuse.
    if (size <= 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes) || bytes > SIZE_MAX / 2)
      return at::empty(sizes, options);
  }
  if (bytes < page || !options.device().is_cpu()) return at::empty(sizes, options);
  const std::size_t whole = (bytes + page - 1) / page * page;
  void* block = std::aligned_alloc(page, whole);
  if (!block) return at::empty(sizes, options);
  madvise(block, whole, MADV_HUGEPAGE);  // advice: without such pages the memory is as good as any
  return at::from_blob(
      block, sizes, [](void* mine) { std::free(mine); }, options);
#else
  return at::empty(sizes, options);
#endif
}

}  // namespace torsor
