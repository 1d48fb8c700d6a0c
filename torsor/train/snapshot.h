// One file that a stopped run continues from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "torsor/base/json.h"

namespace torsor {

/// Everything that a run needs to continue, as one safetensors file. Its metadata hold, as text: format
/// ("torsor-state-1"), step, seed, seconds, configuration (JSON), configuration_sha256, extra (JSON), content_sha256
/// (over all tensors and the other metadata: a file with one wrong bit is refused, not continued from).
struct Snapshot {
  std::int64_t step = 0;  ///< finished steps
  std::uint64_t seed = 0;
  double seconds = 0;                        ///< time spent in steps so far, earlier processes included
  Json configuration = Json::object();       ///< all that decides the result; another one is refused on loading
  std::map<std::string, std::string> extra;  ///< the caller's own cursors; UTF-8
  std::map<std::string, at::Tensor> tensors;
};

/// Replaces `path` in one step: a reader, or a process killed at any moment, leaves the old file or the new one.
/// Throws Error.
void save_snapshot(const std::string& path, const Snapshot& snapshot);

/// Reads what save_snapshot wrote. Throws Error for a file that is cut, changed or of another format, and, naming the
/// first key that differs and both values, for one whose configuration is not `configuration`.
Snapshot load_snapshot(const std::string& path, const Json& configuration);

/// Where two JSON values differ first: "model.width is 128 there and 256 here", or nothing. The order of keys does
/// not matter.
std::string first_difference(const Json& there, const Json& here);

}  // namespace torsor
