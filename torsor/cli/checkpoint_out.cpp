#include "torsor/cli/checkpoint_out.h"

#include <filesystem>

namespace torsor {

void check_checkpoint_out(const CommonOptions& common, const std::string& checkpoint) {
  namespace fs = std::filesystem;
  const std::string& out = common.out;
  const auto present = [&](const char* name) { return fs::exists(fs::path(out) / name); };
  std::error_code ignored;
  if (fs::equivalent(out, checkpoint, ignored))
    throw UsageError(str("'", out, "' is the checkpoint itself; give another --out"));
  // A checkpoint beside the state of a run would be taken for its own.
  for (const char* name : {"state.safetensors", "state.json", "log.jsonl", "adapter.json"})
    if (present(name)) throw Error(str("'", out, "' holds a run; give another --out"));
  if (!common.force && (present("config.json") || present("model.safetensors")))
    throw Error(str("'", out, "' already holds a checkpoint; give another --out or replace it with --force"));
}

}  // namespace torsor
