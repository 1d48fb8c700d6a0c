// The folder that a command writes a checkpoint into.
#pragma once

#include <string>

#include "torsor/cli/common.h"

namespace torsor {

/// Throws UsageError when --out is `checkpoint` itself, Error when it holds a run, or a checkpoint and --force was not
/// given.
void check_checkpoint_out(const CommonOptions& common, const std::string& checkpoint);

}  // namespace torsor
