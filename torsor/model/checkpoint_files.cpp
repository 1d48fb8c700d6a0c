#include "torsor/model/checkpoint_files.h"

#include <map>

#include "torsor/base/file.h"
#include "torsor/train/state.h"

namespace torsor {
namespace {

constexpr const char* kFormat = "torsor-checkpoint-1";

}  // namespace

void write_checkpoint(const std::string& folder, const std::vector<ModelParameter>& parameters, const Json& config,
                      const std::shared_ptr<const Tokenizer>& reader) {
  make_directories(folder);
  if (reader)
    for (const TokenizerFile& file : reader->files()) write_file_atomic(folder + "/" + file.name, file.content);
  std::map<std::string, at::Tensor> tensors;
  for (const ModelParameter& parameter : parameters) tensors[parameter.name] = parameter.tensor.detach();
  save_tensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  Json json = {{"format", kFormat}};
  json.update(config);
  write_file_atomic(folder + "/config.json", json_text(json, 2) + "\n");
}

void check_checkpoint_format(JsonObject& config) {
  if (!config.has("format"))
    config.fail(str("\"format\" is missing; a checkpoint of this project has \"", kFormat, "\""));
  if (const auto format = config.get<std::string>("format"); format != kFormat)
    config.fail(str("format must be ", kFormat, ", found ", format));
}

}  // namespace torsor
