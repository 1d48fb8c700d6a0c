// A checkpoint past its training length: what an asked scaling means for a model that has positions already.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "torsor/model/decoder.h"

namespace torsor {

struct ExtendRequest {
  /// The expression that is asked for, such as 'yarn(rope, factor=4)'. Of a scaling, factor (then `length` is needed),
  /// train_length and longrope's lists may be left out.
  std::string encoding;
  /// Instead: linear, ntk, dynamic, yarn, longrope or llama3 around the checkpoint's own rotation, by
  /// length / training length.
  std::string method;
  std::int64_t length = 0;   ///< tokens that texts may have; 0 = factor times the training length
  std::int64_t trained = 0;  ///< the training length, where the checkpoint tells none or another; 0 = what it tells
};

struct Extension {
  std::string encoding;  ///< whole and canonical
  std::int64_t trained = 0, length = 0;
  std::vector<std::string> kept;    ///< keys of rope that the checkpoint had and the request did not name
  std::vector<std::string> filled;  ///< keys of the scaling that the request left open
};

/// The names that ExtendRequest::method takes.
const std::vector<std::string>& extend_methods();

/// What the request means for a model:
///   - `rope` inside the asked expression keeps every key of the checkpoint's rope that it does not name itself;
///   - train_length, where left out, is the length that the checkpoint was trained on, and factor length /
///   train_length;
///   - longrope's lists, where left out, are 1 for short texts and factor^(2i/(d - 2)) for long ones, NTK's slowing:
///     nothing is searched here, and found lists are given as short=[...] and long=[...];
///   - everything but the rotation stays as it is; only logn and llama4-scale, which have no tensors, may join.
/// Throws UsageError for what is no expression or needs a length, Refusal where the checkpoint has no rotation, or the
/// request would change more than its scaling.
Extension plan_extension(const ModelConfig& config, const ExtendRequest& request);

/// The same weights under the extension's expression; they are shared.
Decoder extended(const Decoder& model, const Extension& extension);

}  // namespace torsor
