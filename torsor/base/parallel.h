// A parallel loop whose executor is passed in, so that low floors need no thread pool of their own.
#pragma once

#include <cstdint>
#include <functional>

namespace torsor {

/// Calls body(first, last) on ranges that are disjoint and together cover [begin, end), in any order and perhaps at the
/// same time; `grain` (at least 1) is the smallest range worth a task of its own. Nothing is called for an empty range.
/// An exception of the body reaches the caller. Results must not depend on how the range was cut.
using Executor = std::function<void(std::int64_t begin, std::int64_t end, std::int64_t grain,
                                    const std::function<void(std::int64_t first, std::int64_t last)>& body)>;

/// The executor that makes one call in the calling thread.
inline Executor serial_executor() {
  return [](std::int64_t begin, std::int64_t end, std::int64_t /*grain*/,
            const std::function<void(std::int64_t, std::int64_t)>& body) {
    if (begin < end) body(begin, end);
  };
}

}  // namespace torsor
