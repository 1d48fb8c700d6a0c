#include "torsor/base/memory.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace torsor {

void keep_freed_memory() {
#ifdef __GLIBC__
  // 32 MiB is the most that glibc takes as a threshold for mapping; the trim threshold has no bound.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
#endif
}

void hand_back_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace torsor
